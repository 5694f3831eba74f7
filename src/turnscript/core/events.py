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
    """A part begins. `part` is its item without content; a call has its name and id already. A parser tells a call when
    it is certain that there is one, but not that it will be whole. `origin`: as at its end.
    """

    index: int
    part: Item
    raw: str = ""
    origin: str | None = None


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
    """A part is complete. `part` is the whole item; None for a call that was cut off, or turned out to be none.

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
    others = [event for event in told if type(event) is not PartDelta]  # by far the fewest
    for event in others:
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
    response.cut = _cut_call(told, others)
    return response


def _cut_call(told: list[Event], others: list[Event]) -> ToolCall | None:
    last = LastCall()
    for event in others:
        if not isinstance(event, PartDelta):
            last.note(event)
    if last.begun is not None:
        for event in told:
            if isinstance(event, PartDelta):
                last.note(event)
    return last.cut


class LastCall:
    """The call that events tell last, as long as it is not whole. `begun`: its start."""

    __slots__ = ("_pieces", "begun")

    def __init__(self) -> None:
        self.begun: PartStart | None = None
        self._pieces: list[str] = []

    def note(self, event: Event) -> None:
        """Note one more event. A text that begins behind a call holds what the call turned out to be."""
        begun = self.begun
        if isinstance(event, PartDelta):
            if begun is not None and event.index == begun.index:
                self._pieces.append(event.text)
        elif isinstance(event, PartStart):
            self.begun, self._pieces = event if isinstance(event.part, ToolCall) else None, []
        elif isinstance(event, PartEnd) and begun is not None and event.index == begun.index:
            self.begun = begun if event.part is None else None

    @property
    def cut(self) -> ToolCall | None:
        """The call, with the arguments that it has by now."""
        if self.begun is None:
            return None
        assert isinstance(self.begun.part, ToolCall)
        return cut_call(self.begun.part, "".join(self._pieces))


def cut_call(call: ToolCall, arguments: str) -> ToolCall:
    """A call that was cut off, as a response tells it."""
    kept = ToolCall(name=call.name, arguments=arguments, id=call.id, namespace=call.namespace, custom=call.custom)
    kept.open, kept.at = True, call.at
    return kept


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
        events.append(PartStart(index, head, origin=response.origin))
        if index in response.logprobs:
            events.append(ScoredDelta(index, text, tokens=response.logprobs[index]))
        elif text:
            events.append(PartDelta(index, text))
        events.append(PartEnd(index, item, origin=response.origin))
    if response.cut is not None:
        index = len(response.items)
        head, text = _opened(response.cut)
        events.append(PartStart(index, head, origin=response.origin))
        events += [PartDelta(index, text)] * bool(text)
        events.append(PartEnd(index, None, origin=response.origin))
    return [*events, end_of(response)]


def end_of(response: Response) -> MessageEnd:
    """What a response says of itself, as its last event."""
    end = MessageEnd(response.finish_reason, response.stop_sequence, response.usage, list(response.issues))
    end.id, end.model, end.extra, end.origin = response.id, response.model, response.extra, response.origin
    return end


def _opened(item: Item) -> tuple[Item, str]:
    """An item as its start tells it, and the text that its deltas tell; none where they could not tell all of it."""
    if isinstance(item, ToolCall):
        return replace(item, arguments="", open=False), item.arguments
    if not isinstance(item, Assistant | Thinking):
        return item, ""
    refused = any(isinstance(part, Refusal) for part in item.content)
    head = replace(item, content=[Refusal(text="")] if refused else [], extra={})
    only = item.content[0] if len(item.content) == 1 else None
    return head, only.text if isinstance(only, Text | Refusal) else ""


def raw_text(events: Iterable[Event]) -> str:
    """What the model wrote, byte for byte."""
    return "".join([event.raw for event in events])
