"""Owns the stream that answers a request: events of a model as the server-sent events of this API.

`response.created` and `response.in_progress` come first. Each part is an item: `output_item.added`, its content parts
or arguments piece by piece, `output_item.done`. One `response.completed`, `response.incomplete` or `response.failed`
with the whole output is last. An item's id never changes, and `sequence_number` counts every event.

`output_item.done` waits for what comes next, because only then it is known whether the token limit cut the item off.
A call that was cut off, or turned out to be none, is an item that is incomplete, and so is then the response: nothing
takes back what was announced, and the SDKs refuse the end of a response that leaves out an item that was. Such an item
is never done, because there are clients that run what is done before they know how the response ends. Some calls wait
until they are complete, because only then it is known what they are: those of a tool that has a type of its own,
and free text that the model wrote as JSON. So do all where the client takes no end but `completed`, which would tell
a call that was cut off as complete.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from copy import copy
from typing import Any

import msgspec
from msgspec import Raw as RawJson

from turnscript.apis.api import Api, Body, Reply
from turnscript.apis.openai_responses.client_tools import CLIENT_CALLS, command_events
from turnscript.apis.openai_responses.options import ORIGIN
from turnscript.apis.openai_responses.outcome import (
    COMPLETED,
    FAILED,
    IN_PROGRESS,
    INCOMPLETE,
    failure_of,
    flat_error,
)
from turnscript.apis.openai_responses.output import OVERTAKEN, Output, brief, is_search_call, told_token
from turnscript.apis.openai_responses.parts import (
    OUTPUT,
    REASONING,
    REFUSAL,
    SUMMARY,
    blank_part,
    text_of_part,
    type_of_part,
)
from turnscript.apis.openai_responses.response import Report, own_extra
from turnscript.apis.openai_responses.tools import Named, response_id
from turnscript.apis.shared.answers import CHANGED, came_to_nothing, is_whole, lose_id
from turnscript.apis.shared.citations import with_pages_on_ends, with_pages_on_text
from turnscript.apis.streams import StreamRenderer
from turnscript.core.conversation import Assistant, Item, Part, Refusal, Request, Response, Text, Thinking, ToolCall
from turnscript.core.errors import InvalidConversation, TurnscriptError, half_a_pair
from turnscript.core.events import (
    Event,
    MessageEnd,
    NextText,
    OneStream,
    PartDelta,
    PartEnd,
    PartStart,
    ScoredDelta,
)
from turnscript.core.json_text import Json, read_list
from turnscript.core.logprobs import TokenLogprob
from turnscript.core.sse import HOLE, frame, template


class LivePart:
    """A part that is being told; the events call it an item. `at`: its output index; -1: it has no place here.
    `place`: what each of its events says of it.

    `closed`: its texts that are complete, each a content part, and `scored` how many tokens those have. `told`: the
    deltas of the one that goes on; `open`: that was announced. `telling`: the events that tell a delta, each with holes
    for its number and the text; None before one.
    """

    __slots__ = ("at", "closed", "kind", "named", "open", "place", "scored", "telling", "told")

    def __init__(self, named: Named, at: int) -> None:
        self.named = named
        self.at = at
        self.place: Body = {"item_id": _id(named.item), "output_index": at}
        self.kind = _kind(named.item)
        self.closed: list[Part] = []
        self.scored = 0
        self.told: list[str] = []
        self.open = False
        self.telling: list[bytes] | None = None

    def end_text(self, tokens: Sequence[TokenLogprob]) -> Body:
        """What was told since the last one is a text, and the next one begins with its first delta. Returns the content
        part that it is. `tokens`: those of all its item."""
        text = "".join(self.told)
        body = blank_part(self.kind, text)
        if self.kind == OUTPUT:
            body["logprobs"] = [told_token(one) for one in tokens[self.scored :]]
        self.closed.append(self._part(text))
        self.told, self.telling, self.open, self.scored = [], None, False, len(tokens)
        return body

    def content(self) -> list[Part]:
        """What was told."""
        told = "".join(self.told)
        return [*self.closed, self._part(told)] if told else [*self.closed]

    def _part(self, text: str) -> Part:
        return Refusal(text=text) if self.kind == REFUSAL else Text(text=text)


def _id(item: Item) -> str | None:
    return item.item_id if isinstance(item, ToolCall) else getattr(item, "id", None)


def _kind(item: Item) -> str:
    """The type of the text that the deltas of a part are."""
    if isinstance(item, Assistant):
        return REFUSAL if item.content and isinstance(item.content[0], Refusal) else OUTPUT
    return REASONING if isinstance(item, Thinking) else ""


_encode = msgspec.json.Encoder().encode
_join = b"".join
_TEXTS = {OUTPUT: ("response.output_text", "text"), REASONING: ("response.reasoning_text", "text")}
_ARGUMENTS = "response.function_call_arguments"
_INPUT = "response.custom_tool_call_input"
_TERMINALS = {COMPLETED: "response.completed", FAILED: "response.failed"}


class StreamWriter(StreamRenderer, OneStream):
    """Writes the answer to a request, as a stream or whole."""

    def __init__(self, api: Api, request: Request, reply: Reply, response: Response | None = None) -> None:
        foreign = response is not None and response.origin != ORIGIN
        super().__init__(with_pages_on_text(response) if response is not None and foreign else response)
        self._reply = reply
        self._api = api
        self._request = request
        self._output = Output(api, request, "", reply)
        self.losses = self._output.losses
        self._report: Report | None = None
        self._opened = RawJson(b"{}")
        self._number = 0
        self._parts: dict[int, LivePart] = {}
        self._telling = b""  # the event of each delta of the part that was told last, if that is one event
        self._texts: list[str] = []  # its deltas so far
        self._calls: dict[int, PartStart] = {}  # the calls that wait until they are complete, in order
        self._whole: dict[int, PartEnd] = {}  # those of them that are complete
        self._count = 0
        self._latest = -1  # the index of the last part that has a place in the output
        self._ready: tuple[int, Item, Any] | None = None  # complete, but for its `output_item.done`; its body
        self._done: list[tuple[int, Any]] = []
        self._items: list[Item] = []
        if response is not None:
            self._begin_whole(response)

    def send(self, events: Iterable[Event]) -> bytes:
        """The bytes for some events; the first call, even without any, opens the stream. Nothing once it is over."""
        try:
            match events:
                case [event] if type(event) is PartDelta:  # by far the most
                    if event.index == self._now:
                        if (text := event.text) and not self._out:
                            data = self._telling % (_encode(self._number), _encode(text))
                            self._number += 1
                            self._texts.append(text)
                            return data
                    elif event.index in self._calls:
                        return b""
            return self._send(events)
        except UnicodeEncodeError as error:
            raise half_a_pair(error, "a text of the answer") from None

    def _send(self, events: Iterable[Event]) -> bytes:
        events = events if type(events) is list else list(events)
        if not (self._began or self._over):
            self._began = True
            self._open(events)
        if events and type(end := events[-1]) is MessageEnd and end.origin not in (None, ORIGIN):
            events = with_pages_on_ends(events, self._items)
        for event in events:
            if type(event) is PartDelta and event.index == self._now and event.text:  # by far the most
                self._out.append(self._telling % (_encode(self._number), _encode(event.text)))
                self._number += 1
                self._texts.append(event.text)
            else:
                self._take(event)
        return self._taken()

    def _alive(self) -> bytes:
        """Once more that the response is in progress: some clients wait for events, and a comment is none to them."""
        if self._report is None:
            return super()._alive()
        self._emit("response.in_progress", {"response": self._opened})
        return self._taken()

    def _fail(self, error: TurnscriptError) -> None:
        """Tell `response.failed`, or `error` if the response has not begun."""
        if self._report is None:
            self._emit("error", flat_error(error))
            return
        self._settle(COMPLETED, tell=False)
        body = self._report.body(FAILED, self._told(), MessageEnd(), error=failure_of(error))
        self._emit(_TERMINALS[FAILED], {"response": body})

    # The frame of the stream.

    def _begin(self) -> None:
        self._open([])

    def _open(self, given: Iterable[Event]) -> None:
        """What the response says of itself must stand in the first event, where a later one is not known yet."""
        end = next((event for event in given if isinstance(event, MessageEnd)), MessageEnd())
        id_ = self._reply.id or end.id or response_id(self._request)
        self._output.naming.seed = id_
        self._report = Report(self._api, self._request, id_, self._reply)
        extra = own_extra(end, [])
        begun = self._report.body(IN_PROGRESS, [], MessageEnd(model=end.model, extra=extra))
        body = self._opened = RawJson(_bytes(begun))
        self._emit("response.created", {"response": body})
        self._emit("response.in_progress", {"response": body})

    def _finish(self, end: MessageEnd) -> None:
        assert self._report is not None
        self._release(over=True)
        for index in list(self._parts):
            self._drop(index)
        status, body = self._report.conclude(self._output, end, self._items, self._settled)
        if self._response is not None:
            self._body = body
            return
        if self._reply.id is None:
            lose_id(self._output.rendering, end.id, self._report.id)
        self._emit(_TERMINALS.get(status, "response.incomplete"), {"response": body})

    def _settled(self, status: str) -> list[Any]:
        self._settle(status)
        return self._told()

    def _told(self) -> list[Any]:
        return [body for _, body in sorted(self._done, key=lambda done: done[0])]

    def _emit(self, type_: str, members: Body) -> None:
        self._out.append(frame(_bytes({"type": type_, "sequence_number": self._number, **members}), type_))
        self._number += 1

    # A whole response.

    def _begin_whole(self, response: Response) -> None:
        id_ = self._reply.id or response.id or response_id(self._request, response.items)
        self._output.naming.seed = id_
        self._output.logprobs = response.logprobs
        self._output.came_from(response.origin)
        self._report = Report(self._api, self._request, id_, self._reply)

    def _whole_item(self, item: Item, index: int) -> None:
        """An item that is told at once."""
        if isinstance(item, ToolCall) and not is_whole(item):
            self._cut(item, index)
            return
        self._settle(COMPLETED)
        whole = self._output.naming.end(item, self._output.naming.begin(item, index), index)
        self._items.append(whole)
        body = self._output.item(whole, index, COMPLETED)
        if body is not None:
            self._ready = (index, whole, body)

    def _cut(self, call: ToolCall, index: int) -> None:
        self._settle(COMPLETED)
        self._done += [(index, body) for body in self._output.cut_call(call, index)]

    # Items.

    def _start(self, event: PartStart) -> None:
        if isinstance(event.part, ToolCall) and self._output.waits(event.part):
            self._settle(COMPLETED)
            self._calls[event.index] = event
        else:
            self._announce(event)

    def _end(self, event: PartEnd) -> None:
        if self._response is not None and event.part is not None:
            self._whole_item(event.part, event.index)
        elif event.index in self._calls:
            self._whole[event.index] = event
            self._release(over=False)
        else:
            self._end_item(event)

    def _release(self, *, over: bool) -> None:
        """Tell the calls that are complete, each behind those that began before it. `over`: nothing more will come."""
        for index, start in list(self._calls.items()):
            end = self._whole.pop(index, None)
            if end is None and not over:
                return
            del self._calls[index]
            if end is None or end.part is None or _is_cut(end.part):
                self._output.lose(f"items[{index}]", "approximated", came_to_nothing(False))
                continue
            if index < self._latest:
                self._output.lose(f"items[{index}]", "moved", OVERTAKEN)
            self._announce(start, end.part)
            self._end_item(end)

    def _announce(self, event: PartStart, whole: Item | None = None) -> None:
        self._settle(COMPLETED)
        named = self._output.naming.begin(event.part, event.index, whole)
        body = self._output.opening(named, event.index)
        part = LivePart(named, -1 if body is None else self._count)
        self._parts[event.index] = part
        if body is not None:
            self._count += 1
            self._latest = max(self._latest, event.index)
            self._emit("response.output_item.added", {"output_index": part.at, "item": body})

    def _delta(self, event: PartDelta) -> None:
        if event.index in self._calls:
            return
        part, text = self._part(event.index), event.text
        if type(event) is NextText:
            self._next_text(part, event.index, REFUSAL if event.refuses else OUTPUT)
            return
        scored = isinstance(event, ScoredDelta) and part.kind == OUTPUT
        if not (text or scored) or part.at < 0:
            return
        if part.telling is None:
            part.telling = [self._template(*telling) for telling in self._tellings(part)]
        if len(part.telling) == 1:
            self._now, self._telling, self._texts = event.index, part.telling[0], part.told
        part.told.append(text)
        if isinstance(event, ScoredDelta) and scored:
            self._output.logprobs.setdefault(event.index, []).extend(event.tokens)
            tokens = brief([told_token(one) for one in event.tokens])
            self._emit(*self._text_delta(part, OUTPUT, len(part.closed), text, tokens))
            return
        said = _bytes(text)
        for telling in part.telling:
            self._out.append(telling % (_encode(self._number), said))
            self._number += 1

    def _tellings(self, part: LivePart) -> list[tuple[str, Body]]:
        """The events of a piece of a part, of which the first comes now."""
        item = part.named.item
        if isinstance(item, ToolCall):
            return [(f"{_INPUT if item.custom else _ARGUMENTS}.delta", part.place | {"delta": HOLE})]
        return self._open_content(part) if part.kind else []

    def _next_text(self, part: LivePart, index: int, kind: str) -> None:
        """A content part is complete, and the next one, of this kind, begins with its first delta."""
        if part.at < 0 or part.kind not in (OUTPUT, REFUSAL):
            return
        if not part.open:
            self._open_content(part)
        self._leave(index)
        at = len(part.closed)
        self._close(part, at, part.end_text(self._output.logprobs.get(index, [])))
        part.kind = kind

    def _leave(self, index: int) -> None:
        """No more deltas of a part are told as the last one was."""
        if index == self._now:
            self._now = None

    def _template(self, type_: str, members: Body) -> bytes:
        return template({"type": type_, "sequence_number": HOLE, **members}, type_)

    def _end_item(self, event: PartEnd) -> None:
        part = self._part(event.index)
        if event.part is None or _is_cut(event.part):
            self._drop(event.index)
            return
        del self._parts[event.index]
        self._leave(event.index)
        if part.at < 0:
            return
        self._settle(COMPLETED)
        self._output.came_from(event.origin)
        self._complete(part, self._output.naming.end(event.part, part.named, event.index), event.index, COMPLETED)

    def _complete(self, part: LivePart, item: Item, index: int, status: str) -> None:
        """Tell what is still to be told of an item, whose whole is known. It is done with the next one."""
        body = self._output.item(item, index, status)
        if isinstance(item, ToolCall) and status == INCOMPLETE:  # Codex runs what is done, whatever its status
            self._done.append((part.at, RawJson(_bytes(body))))
            self._items.append(item)
            return
        if isinstance(item, ToolCall):
            self._end_call(part, item, index)
        elif isinstance(item, Assistant | Thinking):
            self._end_content(part, body)
        self._ready = (part.at, item, body)
        self._items.append(item)

    def _drop(self, index: int) -> None:
        """A part that came to nothing. What was announced must be in the output, so it is told as far as it got."""
        self._settle(COMPLETED)
        part = self._parts.pop(index)
        self._leave(index)
        if part.at < 0:
            return
        self._output.lose(f"items[{index}]", "approximated", "it was announced and came to nothing: told as unfinished")
        item = copy(part.named.item)
        item.open = True
        if isinstance(item, Assistant | Thinking):
            item.content = part.content()
        elif isinstance(item, ToolCall):
            item.arguments, self._output.unfinished = "".join(part.told), True
        self._complete(part, item, index, INCOMPLETE)

    def _settle(self, status: str, *, tell: bool = True) -> None:
        """Say that the last item is done."""
        if self._ready is None:
            return
        (at, item, body), self._ready = self._ready, None
        self._output.settle(body, item, status)
        told = body if self._response is not None else RawJson(_bytes(body))
        self._done.append((at, told))
        if tell and self._response is None:
            self._emit("response.output_item.done", {"output_index": at, "item": told})

    def _part(self, index: int) -> LivePart:
        part = self._parts.get(index)
        if part is None:
            raise InvalidConversation(f"an event of part {index}, which has not begun or is over")
        return part

    # Calls.

    def _end_call(self, part: LivePart, item: ToolCall, index: int) -> None:
        if is_search_call(item):  # it is told by the item alone
            return
        if item.slot in CLIENT_CALLS:
            for type_, members in command_events(item):
                self._emit(type_, {"output_index": part.at} | members)
            return
        event, whole = _call_words(item)
        told = "".join(part.told)
        if not item.arguments.startswith(told):
            self._output.lose(f"{self._output.at(item, index)}.arguments", "approximated", CHANGED)
        elif len(item.arguments) > len(told):
            self._emit(f"{event}.delta", part.place | {"delta": item.arguments[len(told) :]})
        self._emit(f"{event}.done", part.place | whole)

    # Messages and thoughts.

    def _open_content(self, part: LivePart) -> list[tuple[str, Body]]:
        """Announce the content part that is told in pieces, and give the events of a piece."""
        part.open = True
        at = len(part.closed)
        self._content_event(part, "response.content_part.added", at, blank_part(part.kind))
        telling = [self._text_delta(part, part.kind, at, HOLE)]
        if self._shows_summary(part):
            self._summary_event(part, "response.reasoning_summary_part.added", 0, {"part": blank_part(SUMMARY)})
            telling.append(self._summary_delta(part, 0, HOLE))
        return telling

    def _shows_summary(self, part: LivePart) -> bool:
        """Whether the thought itself stands for its summary, piece by piece."""
        return self._output.summarise and part.kind == REASONING

    def _end_content(self, part: LivePart, body: Body) -> None:
        """Close the content part that was told in pieces, and tell those that were not. `body`: the whole item."""
        content, told = body["content"], "".join(part.told)
        done = at = len(part.closed)
        if part.open:
            last = content[at] if len(content) > at and type_of_part(content[at]) == part.kind else None
            whole = text_of_part(last) if last is not None else ""
            if last is None or not whole.startswith(told):
                last, done = blank_part(part.kind, told), len(content)  # the item itself says what its parts are
            else:
                done += 1
                if len(whole) > len(told):
                    self._emit(*self._text_delta(part, part.kind, at, whole[len(told) :]))
            self._close(part, at, last)
        for at in range(done, len(content)):
            self._whole_part(part, at, content[at])
        self._end_summary(part, body.get("summary", ()), told)

    def _whole_part(self, part: LivePart, at: int, body: Any) -> None:
        kind = type_of_part(body)
        if kind not in _TEXTS and kind != REFUSAL:
            self._content_event(part, "response.content_part.added", at, body)
            self._content_event(part, "response.content_part.done", at, body)
            return
        self._content_event(part, "response.content_part.added", at, blank_part(kind))
        if text_of_part(body):
            self._emit(*self._text_delta(part, kind, at, text_of_part(body)))
        self._close(part, at, body)

    def _text_delta(
        self, part: LivePart, kind: str, at: int, text: str | RawJson, tokens: Any = ()
    ) -> tuple[str, Body]:
        event = _TEXTS[kind][0] if kind in _TEXTS else "response.refusal"
        members = part.place | {"content_index": at, "delta": text}
        if kind == OUTPUT:
            members["logprobs"] = tokens
        return f"{event}.delta", members

    def _close(self, part: LivePart, at: int, body: Body) -> None:
        """A content part is complete."""
        kind = type_of_part(body)
        event, member = _TEXTS.get(kind, ("response.refusal", "refusal"))
        annotations = body.get("annotations")
        for number, annotation in enumerate(_elements(annotations)):
            members = {"annotation_index": number, "annotation": annotation}
            self._emit("response.output_text.annotation.added", part.place | {"content_index": at} | members)
        members = part.place | {"content_index": at, member: text_of_part(body)}
        if kind == OUTPUT:
            members["logprobs"] = brief(body.get("logprobs", []))
        self._emit(f"{event}.done", members)
        self._content_event(part, "response.content_part.done", at, body)

    def _content_event(self, part: LivePart, type_: str, at: int, body: Any) -> None:
        self._emit(type_, part.place | {"content_index": at, "part": body})

    # Summaries.

    def _end_summary(self, part: LivePart, summary: Sequence[Any], told: str) -> None:
        for at, body in enumerate(summary):
            whole = text_of_part(body)
            begun = at == 0 and part.open and self._shows_summary(part)
            if not begun:
                self._summary_event(part, "response.reasoning_summary_part.added", at, {"part": blank_part(SUMMARY)})
            rest = whole[len(told) :] if begun and whole.startswith(told) else "" if begun else whole
            if rest:
                self._emit(*self._summary_delta(part, at, rest))
            self._summary_event(part, "response.reasoning_summary_text.done", at, {"text": whole})
            self._summary_event(part, "response.reasoning_summary_part.done", at, {"part": body})

    def _summary_delta(self, part: LivePart, at: int, text: str | RawJson) -> tuple[str, Body]:
        members = part.place | {"summary_index": at, "delta": text}
        return "response.reasoning_summary_text.delta", members

    def _summary_event(self, part: LivePart, type_: str, at: int, members: Body) -> None:
        self._emit(type_, part.place | {"summary_index": at} | members)


def _is_cut(part: Item) -> bool:
    """Whether a part is a call that nobody may run."""
    return isinstance(part, ToolCall) and not is_whole(part)


def _bytes(body: Any) -> bytes:
    try:
        return _encode(body)
    except UnicodeEncodeError as error:
        raise half_a_pair(error, "a text of the answer") from None


def _call_words(item: ToolCall) -> tuple[str, Body]:
    said = item.arguments
    return (_INPUT, {"input": said}) if item.custom else (_ARGUMENTS, {"name": item.name, "arguments": said})


def _elements(value: Any) -> list[Any]:
    if isinstance(value, list):
        return value
    return read_list(value) if isinstance(value, Json) and bytes(value).lstrip()[:1] == b"[" else []
