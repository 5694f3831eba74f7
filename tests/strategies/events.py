"""Owns responses and the events that tell them: parts in any order, text cut anywhere, calls that a limit cut off.

Well formed: parts do not overlap, indexes count from 0, one `MessageEnd` stands last, and its reason fits the parts.
Reasons have one word for all APIs: `stop`, `length`, `tool_calls`, `content_filter`; a reason that only one API knows
keeps that API's word.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

from hypothesis import strategies as st

from tests.strategies import jsontext, text
from turnscript.core.conversation import Assistant, Item, Refusal, Response, Text, Thinking, ToolCall, Usage
from turnscript.core.events import Event, MessageEnd, NextText, PartDelta, PartEnd, PartStart

Draw = st.DrawFn
Pieces = Callable[[str], Sequence[str]]

NAMES = ("get_weather", "f", "apply_patch", "mcp__fs__read", "a-b_c")
MODELS = (None, "rwkv-7", "gpt-x")
USUAL = ("text", "texts", "thinking", "call")
STOPS = ("\n\nUser:", "END", "```", "停")


def texts_told(events: Sequence[Event], index: int = 0) -> list[str]:
    """The texts of the part at this index, as its deltas tell them."""
    texts = [""]
    for event in events:
        if isinstance(event, PartDelta) and event.index == index:
            texts += [""] if isinstance(event, NextText) else []
            texts[-1] += event.text
    return texts


def content_of(item: Item) -> str:
    """What the deltas of a part add up to."""
    if isinstance(item, ToolCall):
        return item.arguments
    return "".join([part.text for part in getattr(item, "content", []) if isinstance(part, Text | Refusal)])


def head_of(item: Item) -> Item:
    """The part as its start event tells it: without content. An empty refusal says that the text will be one."""
    if isinstance(item, ToolCall):
        return ToolCall(name=item.name, arguments="", id=item.id, custom=item.custom, namespace=item.namespace)
    if isinstance(item, Thinking):
        return Thinking(of=item.of)
    refused = any(isinstance(part, Refusal) for part in getattr(item, "content", []))
    return Assistant(content=[Refusal(text="")] if refused else [])


def told(response: Response, pieces: Pieces, cut: ToolCall | None = None) -> list[Event]:
    """The events that tell a response. `pieces` cuts contents; `cut` is a call that the limit ended, told last."""
    events: list[Event] = []
    for index, item in enumerate(response.items):
        events.append(PartStart(index, head_of(item)))
        events += _deltas(index, item, pieces)
        events.append(PartEnd(index, item))
    if cut is not None:
        index = len(response.items)
        events.append(PartStart(index, head_of(cut)))
        events += [PartDelta(index, piece) for piece in pieces(cut.arguments) if piece]
        events.append(PartEnd(index, None))
    end = MessageEnd(response.finish_reason, response.stop_sequence, response.usage, list(response.issues))
    end.id, end.model, end.extra = response.id, response.model, dict(response.extra)
    return [*events, end]


def _deltas(index: int, item: Item, pieces: Pieces) -> list[Event]:
    """The deltas of a part; of one with several texts they say where each ends."""
    texts = [content_of(item)]
    if isinstance(item, Assistant) and all(isinstance(part, Text) for part in item.content):
        texts = [content_of(Assistant(content=[part])) for part in item.content]
    events: list[Event] = []
    for number, content in enumerate(texts):
        events += [NextText(index, "")] * bool(number)
        events += [PartDelta(index, piece) for piece in pieces(content) if piece]
    return events


def in_pieces(size: int) -> Pieces:
    """Contents in pieces of `size` characters."""
    return lambda content: [content[start : start + size] for start in range(0, len(content), size)]


@st.composite
def usages(draw: Draw) -> Usage:
    """Token counts that add up."""
    cached, written, rest = draw(st.tuples(*[st.integers(0, 2000)] * 3))
    output = draw(st.integers(0, 100_000))
    return Usage(cached + written + rest, output, cached, written, draw(st.integers(0, output)))


def texts(*, empty: bool = True) -> st.SearchStrategy[str]:
    """What a model says."""
    return text.texts() if empty else text.texts().filter(bool)


@st.composite
def items(draw: Draw, kinds: Sequence[str] = USUAL, *, empty: bool = True) -> list[Item]:
    """The parts of an answer, in any order; `texts` is one with several.

    `kinds` may also hold `refusal`, `custom` (a call of free text) and `idless` (a call that the model gave no id).
    """
    found: list[Item] = []
    for kind in draw(st.lists(st.sampled_from(kinds), max_size=5)):
        found.append(_item(draw, kind, len(found), empty))
    return found


def _item(draw: Draw, kind: str, index: int, empty: bool) -> Item:
    if kind == "text":
        return Assistant(content=[Text(text=draw(texts(empty=empty)))])
    if kind == "texts":
        said = draw(st.lists(texts(empty=empty), min_size=2, max_size=3))
        return Assistant(content=[Text(text=one) for one in said])
    if kind == "thinking":
        return Thinking(content=[Text(text=draw(texts(empty=empty)))])
    if kind == "refusal":
        return Assistant(content=[Refusal(text=draw(texts(empty=False)))])
    id_ = None if kind == "idless" else f"call_{index}{draw(st.sampled_from(('a', 'Zz9')))}"
    name = draw(st.sampled_from(NAMES))
    if kind == "custom":
        return ToolCall(name=name, arguments=draw(texts()), id=id_, custom=True)
    return ToolCall(name=name, arguments=draw(jsontext.argument_objects()), id=id_)


@st.composite
def responses(draw: Draw, kinds: Sequence[str] = USUAL, *, empty: bool = True) -> Response:
    """A whole answer with a reason that fits it; also one without any part."""
    response = Response(items=draw(items(kinds, empty=empty)))
    if any(isinstance(item, ToolCall) for item in response.items):
        response.finish_reason = "tool_calls"
    else:
        response.finish_reason = draw(st.sampled_from(("stop", "stop", "length", "content_filter")))
        if response.finish_reason == "stop":
            response.stop_sequence = draw(st.none() | st.sampled_from(STOPS))
    response.usage = draw(st.none() | usages())
    response.model = draw(st.sampled_from(MODELS))
    response.id = draw(st.none() | st.sampled_from(("r1", "abcDEF0123456789")))
    return response


@st.composite
def event_lists(draw: Draw, kinds: Sequence[str] = USUAL, *, empty: bool = True, cut: bool = True) -> list[Event]:
    """The events of an answer, every content cut at random. `cut`: one in some ends inside a call, at the limit."""
    response = draw(responses(kinds, empty=empty))
    call = None
    if cut and draw(st.integers(0, 4)) == 0:
        arguments = draw(jsontext.argument_objects())
        call = ToolCall(name=draw(st.sampled_from(NAMES)), id="call_cut")
        call.arguments = arguments[: draw(st.integers(0, len(arguments.rstrip()) - 1))]
        response.finish_reason, response.stop_sequence = "length", None
    return told(response, lambda content: cut_anywhere(draw, content), call)


def cut_anywhere(draw: Callable[..., Any], content: Any) -> list[Any]:
    """A text or bytes in pieces, none of them empty."""
    places = draw(st.lists(st.integers(0, len(content)), max_size=4))
    return [content[start:end] for start, end in pairwise(sorted({0, len(content), *places}))]
