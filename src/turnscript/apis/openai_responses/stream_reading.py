"""Owns reading responses: server-sent events as events of a response, and a whole one as a stream of its last event.

An item is one part. Its pieces are passed on as they come, and what `output_item.done` says of it counts. Parts end in
the order of the output, so that folding the events gives what the whole response would.

Servers differ: some tell no pieces, some no `done`, some only the last event. Whatever is complete is taken. What
contradicts itself in a way that could make a wrong answer look right is an UpstreamError, anything else an issue.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec import UNSET, Struct, UnsetType

from turnscript.apis.openai_responses.client_tools import name_of
from turnscript.apis.openai_responses.options import ORIGIN
from turnscript.apis.openai_responses.outcome import (
    CANCELLED,
    FAILED,
    INCOMPLETE,
    ResponseObject,
    failure,
    read_response_object,
    said,
)
from turnscript.apis.openai_responses.output import (
    content_text,
    head,
    read_output,
    settle_last,
    status_of,
)
from turnscript.apis.openai_responses.response import ending, untold_call
from turnscript.apis.shared.answers import nameless
from turnscript.apis.streams import Answer
from turnscript.core.conversation import (
    Assistant,
    Issue,
    Item,
    Opaque,
    Part,
    Refusal,
    Response,
    Text,
    Thinking,
    ToolCall,
)
from turnscript.core.errors import InvalidRequest, UpstreamError
from turnscript.core.events import Event, NextText, PartDelta, PartEnd
from turnscript.core.json_text import Json, members_in, plain, read_object
from turnscript.core.unread_stream import DONE
from turnscript.core.wire import extra_of, given


class ToldPart:
    """An item that is being told. `final`: the event that ends it, once it is known.

    `pieces`: the text that goes on, and `at` which content part of a message it is, if the server counts them. `over`:
    the texts before it, and `ends` of how many of them an event has said that they are over.
    """

    __slots__ = ("announced", "arguments", "at", "ends", "final", "index", "item", "over", "pieces", "refuses")

    def __init__(self, index: int, item: Item) -> None:
        self.index = index
        self.item = item
        self.announced = False
        self.at: object = None
        self.over: list[Part] = []
        self.ends = 0
        self.pieces: list[str] = []
        self.refuses = False
        self.arguments: str | None = None
        self.final: PartEnd | None = None

    @property
    def has_told(self) -> bool:
        """Whether there was any piece."""
        return bool(self.pieces or self.over)

    def move(self, at: object) -> None:
        """What comes is of the content part at this index: the text of one before it is over."""
        before = self.at
        if type(at) is not int or (isinstance(before, int) and at <= before):
            return
        self.at = at
        if before is not None and isinstance(self.item, Assistant):
            self.over.append(self._text())
            self.pieces = []

    def next_texts(self, refuses: bool) -> list[Event]:
        """The ends of texts that were not said yet: they wait for a piece behind them, as some servers tell none.
        `refuses`: whether that piece is of a refusal."""
        kinds = [*(isinstance(text, Refusal) for text in self.over[self.ends + 1 :]), refuses]
        events: list[Event] = [NextText(self.index, "", refuses=kind) for kind in kinds[: len(self.over) - self.ends]]
        self.ends = len(self.over)
        return events

    def content(self) -> list[Part]:
        """The texts of a message or thought, as far as they were told."""
        return [*self.over, self._text()]

    def rest(self, item: Item) -> list[Event] | None:
        """What the pieces left out of the item, which is whole now; None where they said something else."""
        whole = _texts(item)
        told = content_text(Assistant(content=self.content()))
        if not "".join(whole).startswith(told):
            return None
        events: list[Event] = []
        missing = -len(told)  # where a text begins, seen from the end of what was told
        for number, (text, refuses) in enumerate(zip(whole, _refusals(item), strict=True)):
            if number > self.ends and missing >= 0:
                events.append(NextText(self.index, "", refuses=refuses))
            left = text[max(-missing, 0) :]
            if left:
                events.append(PartDelta(self.index, left))
            missing += len(text)
        return events

    def end(self, final: PartEnd) -> None:
        """It is whole: what was told is not needed any more."""
        self.final = final
        self.over, self.pieces = [], []

    def _text(self) -> Part:
        text = "".join(self.pieces)
        return Refusal(text=text) if self.refuses else Text(text=text)


def announced_call(value: Json, index: int) -> ToolCall:
    """The announcement of a call that is known not to be told already."""
    members: Any = msgspec.json.decode(value)
    custom = members["type"] == "custom_tool_call"
    name, id_ = members.get("name", name_of(members["type"])), members.get("call_id") or None
    call = ToolCall(name=name, arguments="", id=id_, custom=custom, at=f"$.output[{index}]")
    call.namespace = members.get("namespace")
    return call


def cut_arguments(value: Json) -> str | None:
    """Return what there is of the arguments of a call that is not complete; None where they are no text."""
    members = read_object(value)
    said = plain(members.get("input", members.get("arguments", _NOTHING)))
    return said if isinstance(said, str) else None


def names_of(item: Item) -> tuple[object, ...]:
    """What identifies an item while it is told."""
    if isinstance(item, ToolCall):
        return (ToolCall, item.id, item.name)
    return (type(item), getattr(item, "id", None) if isinstance(item, Assistant | Thinking) else None)


def namespace_of(item: Item) -> str | None:
    """Where the tool of a call has its name."""
    return item.namespace if isinstance(item, ToolCall) else None


def refuses(item: Assistant) -> bool:
    """Whether a message begins with a refusal."""
    return bool(item.content) and isinstance(item.content[0], Refusal)


def _refusals(item: Item) -> list[bool]:
    """Of each of these texts, whether it is a refusal."""
    if not isinstance(item, Assistant):
        return [False]
    return [isinstance(part, Refusal) for part in item.content if isinstance(part, Text | Refusal)]


def _texts(item: Item) -> list[str]:
    """The texts of a message; all that the deltas of another item add up to is one."""
    if not isinstance(item, Assistant):
        return [content_text(item)]
    return [part.text for part in item.content if isinstance(part, Text | Refusal)]


_LIFECYCLE = frozenset({"response.created", "response.queued", "response.in_progress"})
_TERMINALS = frozenset({"response.completed", "response.incomplete", "response.failed", "response.cancelled"})
_STATUSES = {"response.incomplete": INCOMPLETE, "response.failed": FAILED, "response.cancelled": CANCELLED}
_REFUSAL = "response.refusal.delta"
_DELTAS: dict[str, type[Item]] = {
    "response.output_text.delta": Assistant,
    _REFUSAL: Assistant,
    "response.reasoning_text.delta": Thinking,
    "response.function_call_arguments.delta": ToolCall,
    "response.custom_tool_call_input.delta": ToolCall,
}
_TOLD_BY_THE_ITEM = frozenset(
    {f"response.{what}.done" for what in ("content_part", "output_text", "refusal", "reasoning_text", "reasoning_part")}
    | {"response.output_text.annotation.added", "response.reasoning_part.added"}
    | {f"response.reasoning_summary_{what}" for what in ("part.added", "part.done", "text.delta", "text.done")}
    | {f"response.shell_call_command.{what}" for what in ("added", "delta", "done")}
    | {f"response.apply_patch_call_operation_diff.{what}" for what in ("delta", "done")}
)
"""Events that say nothing which the item itself will not say again when it is done; `reasoning_part` is vLLM's."""
_ARGUMENTS_DONE = {
    "response.function_call_arguments.done": "arguments",
    "response.custom_tool_call_input.done": "input",
}
_PREFIX, _ERROR = "response.", "error"
"""What the types of all events begin with, but for that of an error."""
_NOTHING = Json(b"null")
_BODY_IN_ERRORS = 500
_MOST_ISSUES = 100


def claims_event(name: str, members: Mapping[str, Json]) -> int:
    """How surely an event is one of this API."""
    said = members.get("type")
    type_ = name if said is None else plain(said)
    if type_ == _ERROR:
        return 1
    return 2 if isinstance(type_, str) and type_.startswith(_PREFIX) else 0


class _Told(Struct, gc=False):
    """The members of an event that are read. Others, such as `sequence_number`, are not needed."""

    type: str | UnsetType = UNSET
    output_index: int | UnsetType = UNSET
    content_index: object = None
    item_id: object = None
    delta: Json | UnsetType = UNSET
    item: Json | UnsetType = UNSET
    part: Json | UnsetType = UNSET
    response: Json | UnsetType = UNSET
    error: Json | UnsetType = UNSET
    arguments: Json | UnsetType = UNSET
    input: Json | UnsetType = UNSET


class _PartType(Struct, gc=False):
    type: str = ""


_decode = msgspec.json.Decoder(_Told).decode
_decode_text = msgspec.json.Decoder(str).decode
_decode_part = msgspec.json.Decoder(_PartType).decode


class StreamedResponse(Answer):
    """One response, as its events arrive."""

    origin = ORIGIN

    def __init__(self) -> None:
        super().__init__()
        self._begun = False
        self._by_index: dict[int, ToldPart] = {}
        self._by_name: dict[tuple[object, ...], ToldPart] = {}
        self._ids: dict[str, int] = {}  # of items that were announced without an output index
        self._waiting: deque[ToldPart] = deque()  # in the order of the output, not ended yet
        self._held: PartEnd | None = None  # of the item that may be the last: the end shows what its status says
        self._items: list[Item] = []

    def whole(self, body: Json) -> Response:
        members = read_object(body)  # of a stream that its last event tells
        if "output" not in members and members.get("error", _NOTHING) != _NOTHING:
            raise failure(members["error"], body)
        wire = read_response_object(body, "$")
        if wire.output is UNSET:
            expected = "an array of output items"
            message = f"required, but missing; expected {expected}"
            raise InvalidRequest(message, path="$.output", expected=expected, got="nothing")
        self.conclude(wire)
        return self.response()

    def close(self, stray: str) -> None:
        message = "the stream ended before the response was over"
        raise UpstreamError(f"{message}: {stray}" if stray else message, body=stray, retryable=True)

    def salvage(self) -> None:
        """End a response whose stream failed with all that was said, and the calls that were."""
        if not self._begun:
            return
        for part in [part for part in self._waiting if part.final is None]:
            calls = isinstance(part.item, ToolCall)
            told = part.arguments is not None if calls else part.has_told
            if calls and not told:
                name = part.item.name  # type: ignore[attr-defined]
                self._issue("unclosed_call", f"the stream ends inside a call of {name!r}, which is left out")
            self._end(part, self._final(part, None) if told else None)
        self._release()
        self.end()

    def take(self, name: str, data: str) -> None:
        if data.startswith(DONE):
            return
        told = _read(data)
        type_ = name if told.type is UNSET else told.type
        error = told.error if told.error is not UNSET and bytes(told.error) != b"null" else None
        if error is not None or type_ == _ERROR:
            raise failure(error if error is not None else Json(data.encode()), data)
        if not self._begun:
            self._begin(type_, told)
        try:
            self._handle(type_, told, data)
        except InvalidRequest as error:
            raise UpstreamError(f"the server sent a {type_} that cannot be read: {error}", body=_start(data)) from None

    def _begin(self, type_: str, told: _Told) -> None:
        self._begun = True
        if told.response is not UNSET and type_ in _LIFECYCLE:
            try:
                wire = read_response_object(told.response, "$.response")
            except InvalidRequest:
                wire = ResponseObject()  # the last event is the one that counts
            self.said.id = given(wire.id) or None
            self.said.model = given(wire.model) or None
            self.said.extra = said(extra_of(wire))
        if type_ not in _LIFECYCLE:
            self._issue("missing_event", f"the stream begins with {type_!r} and not with 'response.created'")

    def _handle(self, type_: str, told: _Told, text: str) -> None:
        if type_ in _DELTAS:
            self._delta(type_, told, text)
        elif type_ == "response.output_item.added":
            self._added(told, text)
        elif type_ == "response.output_item.done":
            self._item_done(told, text)
        elif type_ == "response.content_part.added":
            self._content_part(told, text)
        elif type_ in _ARGUMENTS_DONE:
            value = getattr(told, _ARGUMENTS_DONE[type_])
            if value is not UNSET:
                self._part(told, type_, text).arguments = _text(value, type_, text)
        elif type_ in _TERMINALS:
            self._terminal(type_, told, text)
        elif type_ in _TOLD_BY_THE_ITEM:
            self._part(told, type_, text)
        elif type_ not in _LIFECYCLE and not self._is_progress(told):
            self._issue("unknown_event", f"the event {type_!r} is not known here")

    def _is_progress(self, told: _Told) -> bool:
        """Whether the event belongs to an item that is kept whole anyway."""
        part = None if told.output_index is UNSET else self._by_index.get(told.output_index)
        return part is not None and isinstance(part.item, Opaque)

    # Items.

    def _added(self, told: _Told, text: str) -> None:
        index = len(self._by_index) if told.output_index is UNSET else told.output_index
        if index in self._by_index:
            raise UpstreamError(f"the server announced two items at output index {index}", body=_start(text))
        if told.item is UNSET:
            raise UpstreamError("the server announced an item without saying which", body=_start(text))
        item = read_output(told.item, "$.output", index)
        if told.output_index is UNSET:
            self._ids |= dict.fromkeys(_ids(told.item), index)
        self._new(index, item if item is not None else announced_call(told.item, index))

    def _new(self, index: int, item: Item) -> ToldPart:
        self._release()
        part = ToldPart(self.parts.count, head(item))
        self.parts.count += 1
        self._by_index[index] = part
        self._by_name.setdefault(names_of(item), part)
        self._waiting.append(part)
        if not isinstance(item, Assistant):  # a message waits until it is known whether it is a refusal
            self._announce(part)
        return part

    def _announce(self, part: ToldPart) -> None:
        if not part.announced:
            part.announced = True
            self.parts.open(part.item, index=part.index)

    def _content_part(self, told: _Told, text: str) -> None:
        part = self._part(told, "response.content_part.added", text)
        if not isinstance(part.item, Assistant) or told.part is UNSET:
            return
        part.move(told.content_index)
        if part.announced:
            return
        try:
            refuses = _decode_part(told.part).type == "refusal"
        except msgspec.DecodeError:
            raise UpstreamError("the server sent a content part that is none", body=_start(text)) from None
        if refuses:
            part.refuses = True
            part.item.content = [Refusal(text="")]
        self._announce(part)

    def _delta(self, type_: str, told: _Told, text: str) -> None:
        part = self._part(told, type_, text)
        if not isinstance(part.item, _DELTAS[type_]) or part.final is not None:
            raise UpstreamError(f"the server sent a {type_} for an item that takes none", body=_start(text))
        if told.delta is UNSET:
            raise UpstreamError(f"the server sent a {type_} without a delta", body=_start(text))
        piece = _text(told.delta, type_, text)
        if piece:
            self._announce(part)
            if told.content_index != part.at:
                part.move(told.content_index)
            if part.over:
                self.parts.events += part.next_texts(type_ == _REFUSAL)
            part.refuses = type_ == _REFUSAL
            part.pieces.append(piece)
            self.parts.append(part.index, piece)

    def _item_done(self, told: _Told, text: str) -> None:
        index = self._index(told, "response.output_item.done", text)
        if told.item is UNSET:
            raise UpstreamError("the server ended an item without saying which", body=_start(text))
        item = read_output(told.item, "$.output", index)
        if item is None:
            self._note(untold_call(told.item))
        part = self._by_index.get(index) or self._misplaced(item, index)
        if part is None:
            part = self._new(index, item if item is not None else announced_call(told.item, index))
        if part.final is not None:
            raise UpstreamError(f"the server ended the item at output index {index} twice", body=_start(text))
        if item is not None and type(item) is not type(part.item):
            raise UpstreamError(f"the item at output index {index} became another kind of item", body=_start(text))
        self._end(part, item)

    def _misplaced(self, item: Item | None, index: int) -> ToldPart | None:
        """The part that was announced at another index than its item is done at, if an id tells."""
        part = None if item is None or names_of(item)[1] is None else self._by_name.get(names_of(item))
        if part is None or part.final is not None:
            return None
        self._issue("changed_item", f"item {part.index} is done at output index {index}, where it was not announced")
        return part

    def _end(self, part: ToldPart, item: Item | None) -> None:
        """The item is whole, or None. What its pieces left out is told now; it ends when those before it have."""
        if item is not None:
            if names_of(item) != names_of(part.item) or namespace_of(part.item) not in (None, namespace_of(item)):
                self._issue("changed_item", f"item {part.index} ended under another id or name than it began with")
            if isinstance(item, Assistant) and not part.announced and refuses(item):
                part.item.content = [Refusal(text="")]  # type: ignore[attr-defined]
            self._announce(part)
            rest = part.rest(item)
            if rest is None:
                self._issue("changed_item", f"item {part.index} is not what its pieces said")
            else:
                self.parts.events += rest
        self._announce(part)
        part.end(PartEnd(part.index, item, origin=ORIGIN))
        while self._waiting and self._waiting[0].final is not None:
            ended = self._waiting.popleft().final
            assert ended is not None
            if ended.part is not None:
                self._items.append(ended.part)
            self._held = ended
            if self._waiting or status_of(ended.part) is None:
                self._release()

    def _release(self, reason: str | None = None) -> None:
        """Tell the end of an item that is not the last, or is the last of a response that ended for that reason."""
        if self._held is not None:
            settle_last(self._held.part, reason)
            self.parts.events.append(self._held)
            self._held = None

    # The end.

    def _terminal(self, type_: str, told: _Told, text: str) -> None:
        if told.response is UNSET:
            raise UpstreamError(f"the server sent a {type_} without a response", body=_start(text))
        wire = read_response_object(told.response, "$.response")
        if type_ in _STATUSES and wire.status in (UNSET, "completed", "in_progress"):
            wire.status = _STATUSES[type_]
        elif type_ not in _STATUSES and wire.status == "in_progress":
            wire.status = UNSET
        self.conclude(wire)

    def conclude(self, wire: ResponseObject) -> None:
        """End the response as it says itself, which tells all that was not told before. Raises UpstreamError for one
        that failed or is not over."""
        output = [] if wire.output is UNSET else wire.output
        if wire.output is UNSET and not self._by_index:
            self._issue("missing_item", "there is no output, neither in events of its own nor in the last one")
        if wire.status != FAILED and wire.error is UNSET:
            self._complete(output)
        end = ending(wire, self._items)
        if self.said.id and end.id and self.said.id != end.id:
            self._issue("changed_id", f"the response began as {self.said.id!r} and ended as {end.id!r}, which counts")
        self._release(end.finish_reason)
        self.said = end
        self.end(end.issues)

    def _complete(self, output: list[Json]) -> None:
        """End the items that were not, with what the last event says of them; tell those that it alone has."""
        known = len(self._by_index)
        self._end_announced(output)
        if 0 < known < len(output) and not self._begins_with_announced(output):
            self._issue("unannounced_item", "the last event has more items than were announced; they are left out")
            return
        for index, value in enumerate(output[known:], known):
            item = read_output(value, "$.output", index)
            if known:
                self._issue("missing_event", f"item {index} was never announced")
            if item is not None:
                self._end(self._new(index, item), item)
                continue
            self._note(untold_call(value))
            self._release()
            call, arguments = announced_call(value, index), cut_arguments(value)
            if call.name and arguments is not None:
                part = self._new(index, call)
                self.parts.append(part.index, arguments)
                self._end(part, None)

    def _begins_with_announced(self, output: list[Json]) -> bool:
        """Whether all of the last event can be read, and it begins with what was announced: the rest is more then."""
        announced = [names_of(self._by_index[index].item) for index in sorted(self._by_index)]
        try:
            items = [read_output(value, "$.output", at) for at, value in enumerate(output)]
        except InvalidRequest:
            return False
        return announced == [None if item is None else names_of(item) for item in items[: len(announced)]]

    def _end_announced(self, output: list[Json]) -> None:
        unended = [part for part in self._waiting if part.final is None]
        if output and len(output) < len(self._by_index) - len(unended):
            self._issue("missing_item", "the last event has fewer items than were done; all that were done are kept")
        if not unended:
            self._compare(output)
            return
        finals = [read_output(value, "$.output", index) for index, value in enumerate(output)]
        named = {names_of(item): item for item in reversed(finals) if item is not None}
        for part in unended:
            beside = finals[part.index] if part.index < len(finals) else None
            same = beside if beside is not None and names_of(beside) == names_of(part.item) else None
            self._end(part, self._final(part, same or named.get(names_of(part.item))))

    def _compare(self, output: list[Json]) -> None:
        """Report where the last event says something else of an item than what was kept of it."""
        if len(output) != len(self._items):
            return
        for index, (value, kept) in enumerate(zip(output, self._items, strict=True)):
            try:
                item = read_output(value, "$.output", index)
            except InvalidRequest:
                item = None
            if type(item) is not type(kept) or content_text(item) != content_text(kept):
                self._issue("changed_item", f"the last event says something else of item {index} than was done")

    def _final(self, part: ToldPart, item: Item | None) -> Item | None:
        """The whole item of a part without `done`: that of the last event, else its pieces if they are whole."""
        if item is not None:
            return item
        self._issue("missing_event", f"item {part.index} was never done")
        item = part.item
        if isinstance(item, ToolCall):
            if part.arguments is None:
                return None
            item = head(item)
            item.arguments = part.arguments  # type: ignore[attr-defined]
            if not item.name:  # type: ignore[attr-defined]
                self._note(nameless(part.arguments))
                return None
        elif isinstance(item, Assistant | Thinking):
            item = head(item)
            item.content = part.content()  # type: ignore[attr-defined]
        return item

    # Faults.

    def _part(self, told: _Told, type_: str, text: str) -> ToldPart:
        part = self._by_index.get(self._index(told, type_, text))
        if part is None:
            raise UpstreamError(f"the server sent a {type_} for an item that it never announced", body=_start(text))
        return part

    def _index(self, told: _Told, type_: str, text: str) -> int:
        """Return the place of an event's item. llama.cpp says none: there the item's id tells, or it is the last."""
        if told.output_index is not UNSET:
            return told.output_index
        if not self._ids:
            raise UpstreamError(f"the server sent a {type_} without an output index", body=_start(text))
        ids = _ids(told.item) if told.item is not UNSET else [str(told.item_id)]
        return next((self._ids[id_] for id_ in ids if id_ in self._ids), len(self._by_index) - 1)

    def _issue(self, kind: str, detail: str) -> None:
        self._note(Issue(kind, detail))

    def _note(self, issue: Issue) -> None:
        if len(self.parts.issues) < _MOST_ISSUES:
            self.parts.note(issue)


def _read(text: str) -> _Told:
    try:
        return _decode(text)
    except (msgspec.DecodeError, RecursionError, UnicodeEncodeError) as error:
        reason = f"the server sent an event that is not what this API sends: {error}"
        raise UpstreamError(reason, body=_start(text)) from None


def _ids(item: Json) -> list[str]:
    """Return the ids that the events of an item may call it by."""
    members = members_in(item)
    return [id_ for name in ("id", "call_id") if name in members and isinstance(id_ := plain(members[name]), str)]


def _text(value: Json, type_: str, text: str) -> str:
    try:
        return _decode_text(value)
    except msgspec.DecodeError:
        raise UpstreamError(f"the server sent a {type_} whose text is no string", body=_start(text)) from None


def _start(text: str) -> str:
    return text[:_BODY_IN_ERRORS]
