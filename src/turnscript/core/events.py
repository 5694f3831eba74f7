"""Owns events: what a parser says while a model writes, and folding them into a response.

A response is a sequence of parts (a text, a thought, a tool call), one item each. For every part there is one
`PartStart`, any number of `PartDelta`, one `PartEnd`; parts do not overlap in what a text parser gives. The last event
is one `MessageEnd`.

No byte is lost: each event carries in `raw` what it read. The `raw` of all events, joined, is what the model wrote.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NoReturn, SupportsIndex

from msgspec import Struct
from msgspec.structs import replace

from turnscript.core.conversation import (
    Assistant,
    Extra,
    Issue,
    Item,
    Refusal,
    Response,
    Text,
    Thinking,
    ToolCall,
    Usage,
)
from turnscript.core.errors import type_of
from turnscript.core.logprobs import TokenLogprob


class PartStart(Struct, gc=False):
    """A part begins. `part` is its item without content; a call has its name and id already."""

    index: int
    part: Item
    raw: str = ""


class PartDelta(Struct, gc=False):
    """More of a part: text, or a piece of a call's arguments as JSON text. Joined, the deltas are the content."""

    index: int
    text: str
    raw: str = ""


class ScoredDelta(PartDelta, gc=False):
    """A `PartDelta` that says more: the tokens of its text with their log probabilities, where those were asked for."""

    tokens: list[TokenLogprob] = []


class NextText(PartDelta, gc=False):
    """One text of a part is over, and what comes is of its next one: a message may hold several. It adds no text.
    `refuses`: that one is a refusal."""

    refuses: bool = False


class PartEnd(Struct, gc=False):
    """A part is complete. `part` is the whole item; None when what began as a call turned out to be none.

    `origin`: the API whose members the `extra` of the part holds, as in `Response.origin`.
    """

    index: int
    part: Item | None
    raw: str = ""
    origin: str | None = None


class MessageEnd(Struct, gc=False):
    """The response is over.

    `finish_reason`: `stop`, `length`, `tool_calls`, `content_filter`, or what else the backend said. `stop_sequence`:
    the client's own stop string, where that was met. `issues`: everything that was not as it should be. `id`, `model`
    and `extra`: what an API's response says of itself, and `origin` which API's.
    """

    finish_reason: str | None = None
    stop_sequence: str | None = None
    usage: Usage | None = None
    issues: list[Issue] = []
    raw: str = ""
    id: str | None = None
    model: str | None = None
    extra: Extra = {}
    origin: str | None = None


Event = PartStart | PartDelta | PartEnd | MessageEnd
"""What a parser says."""


class OneStream:
    """What stands in the middle of one stream, and has at hand where the next piece goes.

    A copy would have the same at hand, and one of the two would say what the other was given.
    """

    __slots__ = ()

    def __reduce_ex__(self, protocol: SupportsIndex, /) -> NoReturn:
        raise TypeError(
            f"a {type(self).__name__} stands in the middle of one stream and cannot be copied or pickled; "
            "make a new one and give it the same again"
        )


def fold(events: Iterable[Event]) -> Response:
    """The response that a list of events tells. `raw` is the text as generated, `items` the complete parts."""
    told = list(events)
    try:
        response = Response(raw=raw_text(told))
    except (AttributeError, TypeError):
        raise no_event("fold takes", told) from None
    tokens: dict[int, list[TokenLogprob]] = {}
    for event in [event for event in told if type(event) is not PartDelta]:  # by far the most
        if isinstance(event, PartEnd):
            if event.part is not None:
                if event.index in tokens:
                    response.logprobs[len(response.items)] = tokens[event.index]
                response.items.append(event.part)
        elif isinstance(event, ScoredDelta):
            tokens.setdefault(event.index, []).extend(event.tokens)
        elif isinstance(event, MessageEnd):
            response.finish_reason = event.finish_reason
            response.stop_sequence = event.stop_sequence
            response.usage = event.usage
            response.issues.extend(event.issues)
            response.id, response.model, response.extra = event.id, event.model, event.extra
            response.origin = event.origin
    return response


def no_event(taker: str, given: Iterable[object]) -> TypeError:
    """The error for something else among what should be events. `taker`: who takes them, and the verb."""
    wrong = next((type_of(one) for one in given if not isinstance(one, Event)), "something else")
    remedy = "add the lists of feed and close up: events += parser.feed(...)"
    return TypeError(f"{taker} the events of a parser, got {wrong}; {remedy}")


def unfold(response: Response) -> list[Event]:
    """The events that tell a response, of which `fold` makes it again: a part that is one text is one delta."""
    events: list[Event] = []
    for index, item in enumerate(response.items):
        head, text = _opened(item)
        events.append(PartStart(index, head))
        if text and index in response.logprobs:
            events.append(ScoredDelta(index, text, tokens=response.logprobs[index]))
        elif text:
            events.append(PartDelta(index, text))
        events.append(PartEnd(index, item, origin=response.origin))
    end = MessageEnd(response.finish_reason, response.stop_sequence, response.usage, list(response.issues))
    end.id, end.model, end.extra, end.origin = response.id, response.model, response.extra, response.origin
    return [*events, end]


def _opened(item: Item) -> tuple[Item, str]:
    """An item as its start tells it, and the text that its deltas tell; none where they could not tell all of it."""
    if isinstance(item, ToolCall):
        return replace(item, arguments="", extra={}), item.arguments
    if not isinstance(item, Assistant | Thinking):
        return item, ""
    refused = any(isinstance(part, Refusal) for part in item.content)
    head = replace(item, content=[Refusal(text="")] if refused else [], extra={})
    only = item.content[0] if len(item.content) == 1 else None
    return head, only.text if isinstance(only, Text | Refusal) else ""


def raw_text(events: Iterable[Event]) -> str:
    """What the model wrote, byte for byte."""
    return "".join([event.raw for event in events])
