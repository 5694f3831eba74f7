"""Owns reading a stream as events: which block is open, what it holds so far, and what is wrong with the stream.

Each block is one part, put together from its start and its deltas and read as one of a whole response is. What cannot
be a stream of this API raises UpstreamError; what is merely odd (an unknown event, a block that nobody ended) is an
issue. An error never swallows events: those that were read before it are given first, and the next call raises.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, get_args

from msgspec import UNSET, UnsetType

from turnscript.apis.anthropic_messages.errors import unreadable, upstream_error
from turnscript.apis.anthropic_messages.response import (
    CUTTING,
    ORIGIN,
    Tokens,
    cut_call,
    finish_reason,
    head_of,
    item_of,
    told,
    word,
)
from turnscript.apis.anthropic_messages.stream_blocks import (
    TOLD,
    Block,
    CompactionDelta,
    Delta,
    SignatureDelta,
    content_of,
)
from turnscript.apis.api import Head
from turnscript.apis.shared.answers import nameless
from turnscript.core.conversation import Extra, Issue, Usage
from turnscript.core.errors import InvalidInput, UpstreamError
from turnscript.core.events import Event, MessageEnd, PartDelta, PartEnd, PartStart
from turnscript.core.json_text import (
    Json,
    excerpt,
    is_json,
    is_object,
    plain,
    read_object,
)
from turnscript.core.sse import SseReader
from turnscript.core.unread_stream import DONE, Behind
from turnscript.core.wire import Reader, Verbatim, Wire

# Wire objects.


class MessageStart(Wire, tag="message_start"):
    message: Json


class BlockStart(Wire, tag="content_block_start"):
    index: int
    content_block: Json


class BlockDelta(Wire, tag="content_block_delta"):
    index: int
    delta: Delta


class BlockStop(Wire, tag="content_block_stop"):
    index: int


class MessageDelta(Wire, tag="message_delta"):
    delta: Json
    usage: Json | UnsetType = UNSET


class MessageStop(Wire, tag="message_stop"):
    pass


class Ping(Wire, tag="ping"):
    pass


class Failure(Wire, tag="error"):
    error: Json


_Frame = MessageStart | BlockStart | BlockDelta | BlockStop | MessageDelta | MessageStop | Ping | Failure
_read_frame: Reader[Any] = Reader(_Frame)


class StreamReader:
    """Reads a stream. `id`, `model` and `usage` are known as soon as the message has begun; events tell them last."""

    def __init__(self, api: str) -> None:
        self.id: str | None = None
        self.model: str | None = None
        self._api = api
        self._sse = SseReader()
        self._error: UpstreamError | None = None
        self._began = self._ended = False
        self._behind: Behind | None = None  # once it has ended
        self._tokens = Tokens()
        self._reason: str | None = None
        self._closing = False  # whether a message_delta has come behind the last block
        self._stop_sequence: str | None = None
        self._extra: Extra = {}
        self._issues: dict[tuple[str, str], Issue] = {}
        self._open: Block | None = None
        self._doubt: Block | None = None  # a call that has ended and is no object: cut off, or badly written?
        self._last = -1  # index of the last block
        self._parts = 0

    @property
    def usage(self) -> Usage | None:
        """The token counts so far."""
        return self._tokens.usage()

    def head(self) -> Head:
        """What the stream has said of itself so far."""
        return Head(self.id, self.model, usage=self.usage)

    def feed(self, data: bytes) -> list[Event]:
        """More bytes; returns the events that are certain now."""
        if self._error is not None:
            raise self._error
        if self._behind is not None:
            self._behind.feed(data)
            return []
        events: list[Event] = []
        try:
            self._take(iter(self._sse.feed(data)), events)
        except UpstreamError as error:
            self._error = error
            if not events:
                raise
        return events

    def close(self) -> list[Event]:
        """The stream is over. Raises UpstreamError if it did not come to its end."""
        if self._error is not None:
            raise self._error
        if self._behind is not None:
            self._behind.close()
            return []
        events: list[Event] = []
        try:
            for _, text in self._sse.close():
                self._frame(text, events)
            if self._ended:
                return events
            if self._reason is None or not self._closing:
                what = "it broke off before its end" if self._began else "it holds no message"
                error = unreadable(self._api, what, self._sse.stray)
                error.retryable = True
                raise error
        except UpstreamError as error:
            self._error = error
            raise
        self._issue("missing_stop", "message_stop", "the stream ended without it")
        self._message_stop(events)
        return events

    def salvage(self) -> list[Event]:
        """What can be kept of a stream that failed: not the call that it failed in."""
        events: list[Event] = []
        if not self._began or self._ended:
            return events
        if not self._closing:  # the answer went on behind a reason that was told early
            self._reason = None
        try:
            self._end_missed(events)
            self._settle(True, events)
        except InvalidInput:  # a block that could not even begin
            self._open = self._doubt = None
        self._message_stop(events)
        return events

    def _take(self, told: Iterator[tuple[str, str]], events: list[Event]) -> None:
        for _, text in told:
            self._frame(text, events)
            if self._behind is not None:
                self._behind.note(told)

    def _frame(self, data: str, events: list[Event]) -> None:
        if data.strip() == DONE:  # some servers end all their streams with it
            return
        try:
            wire = _read_frame(Json(data), "$")
            if isinstance(wire, Verbatim):
                self._issue("unknown_event", wire.tag, excerpt(wire.value, 200))
            elif not isinstance(wire, Ping):
                self._in_order(wire)
                _STEPS[type(wire)](self, wire, events)
        except InvalidInput as error:
            raise unreadable(self._api, error, data) from None

    def _in_order(self, wire: Wire) -> None:
        """Only an error may come before the message has begun."""
        if not self._began and not isinstance(wire, MessageStart | Failure):
            raise unreadable(self._api, f"{_tag(wire)} before message_start", "")
        if wire.rest and isinstance(wire, MessageStart | MessageStop):
            # As of a server that says behind the answer how long it took.
            self._keep({name: value for name, value in wire.rest.items() if name not in _PLACED})
            if misplaced := {name: value for name, value in wire.rest.items() if name in _PLACED}:
                self._unknown(_tag(wire), misplaced)
        elif wire.rest and not isinstance(wire, MessageDelta | Failure):
            self._unknown(_tag(wire), wire.rest)

    def _unknown(self, where: str, rest: Extra) -> None:
        for name, value in rest.items():
            self._issue("unknown_member", f"{where}.{name}", excerpt(value, 200))

    def _issue(self, kind: str, what: str, detail: str) -> None:
        """Note what is odd; the same thing only once."""
        self._issues.setdefault((kind, what), Issue(kind, f"{what}: {detail}"))

    # The message.

    def _message_start(self, wire: MessageStart, events: list[Event]) -> None:
        members = read_object(wire.message)
        id_, model = head_of(members)
        if self._began and (id_ is None or id_ != self.id):
            raise unreadable(self._api, f"{_tag(wire)} again", "")
        if self._began:  # some gateways write a start of their own before that of the server behind them
            self._issue("second_start", "message_start", "the same message began twice")
        self._began, self.id, self.model = True, id_, model or self.model
        members.pop("type", None)
        content = members.pop("content", None)
        if content is not None and bytes(content) not in (b"[]", b"null"):
            self._issue("misplaced_content", "message_start", excerpt(content, 200))
        self._note(members, members.pop("usage", None))
        self._tokens.begin()

    def _message_delta(self, wire: MessageDelta, events: list[Event]) -> None:
        self._end_missed(events)
        self._closing = True
        self._note(read_object(wire.delta), None if wire.usage is UNSET else wire.usage)
        self._keep({name: value for name, value in (wire.rest or {}).items() if name != "usage"})
        if self._reason is not None:
            self._settle(self._reason in CUTTING, events)

    def _note(self, members: Extra, usage: Json | None) -> None:
        """Take what is said of the message: a null says nothing that was not said before."""
        reason, stop = word(members, "stop_reason"), word(members, "stop_sequence")
        if reason:
            self._reason = finish_reason(reason)
        if stop is not None:
            self._stop_sequence = stop
        self._tokens.read(usage, "$.usage")
        self._keep(told(members))

    def _keep(self, members: Extra) -> None:
        for name, value in members.items():
            if bytes(value) != b"null" or name not in self._extra:
                self._extra[name] = value

    def _message_stop(self, events: list[Event]) -> None:
        self._end_missed(events)
        self._settle(self._reason is None or self._reason in CUTTING, events)
        if self._reason is None:
            self._issue("missing_reason", "message_delta", "the message ended without a stop_reason")
        self._ended = True
        usage, issues = self._tokens.end()
        end = MessageEnd(self._reason, self._stop_sequence, usage, [*self._issues.values(), *issues])
        end.id, end.model, end.extra = self.id, self.model, self._extra | self._tokens.extra()
        end.origin = ORIGIN
        self._behind = Behind(self._sse, end.issues, _tag(Ping))
        events.append(end)

    def _stop(self, wire: MessageStop, events: list[Event]) -> None:
        self._message_stop(events)

    def _failure(self, wire: Failure, events: list[Event]) -> None:
        raise upstream_error(wire.error, self._api)

    # Blocks.

    def _block_start(self, wire: BlockStart, events: list[Event]) -> None:
        self._end_missed(events)
        self._settle(False, events)
        if self._closing and self._reason is not None:
            self._issue("late_content", "content_block_start", "the answer went on behind its stop_reason")
        self._closing = False
        if wire.index <= self._last:
            raise unreadable(self._api, f"block {wire.index} begins after block {self._last}", "")
        if wire.index != self._last + 1:
            self._issue("index_gap", "content_block_start", f"block {wire.index} follows block {self._last}")
        self._last = wire.index
        block = self._open = Block(wire.index, self._parts, wire.content_block)
        self.model = block.model or self.model
        self._parts += 1
        events.append(PartStart(block.part, block.without_content()))
        if block.opening:
            events.append(PartDelta(block.part, block.opening))

    def _block_delta(self, wire: BlockDelta, events: list[Event]) -> None:
        block = self._opened(wire.index)
        delta: Any = wire.delta
        if isinstance(delta, Verbatim):
            self._issue("unknown_delta", delta.tag, excerpt(delta.value, 200))
            return
        if delta.rest and not isinstance(delta, CompactionDelta):
            self._unknown(_tag(delta), delta.rest)
        if not block.takes(delta):
            detail = f"a {_tag(delta)} in a block of type {block.kind!r}"
            self._issue("misplaced_delta", f"block {block.index}", f"{detail}: {content_of(delta)[:200]}")
            return
        if isinstance(delta, SignatureDelta) and block.signature is not None:
            self._issue("second_signature", f"block {block.index}", "the last one counts")
        if told := block.take(delta):
            events.append(PartDelta(block.part, told))

    def _block_stop(self, wire: BlockStop, events: list[Event]) -> None:
        self._end_block(self._opened(wire.index), events)

    def _opened(self, index: int) -> Block:
        if self._open is None or self._open.index != index:
            raise unreadable(self._api, f"block {index} is not open", "")
        return self._open

    def _end_missed(self, events: list[Event]) -> None:
        """End a block that the stream forgot to end."""
        if self._open is not None:
            self._issue("missing_stop", f"block {self._open.index}", "its content_block_stop is missing")
            self._end_block(self._open, events)

    def _end_block(self, block: Block, events: list[Event]) -> None:
        self._open = None
        if block.kind == "tool_use":
            self._doubt = block
            if is_object(block.said()):
                self._settle(False, events)
            return
        if block.texts and block.kind not in TOLD and not is_json("".join(block.texts)):
            self._issue("invalid_json", f"block {block.index}", f"its input is no JSON: {''.join(block.texts)}")
            block.texts.clear()
        events.append(PartEnd(block.part, item_of(block.whole(), block.part), origin=ORIGIN))

    def _settle(self, cut: bool, events: list[Event]) -> None:
        """Tell the call that has ended. Without arguments, or with broken ones, it waited for what comes behind it."""
        block, self._doubt = self._doubt, None
        if block is None:
            return
        said = block.said()
        call = block.call(said or "{}")
        if cut:
            self._issues["cut_call", f"block {block.index}"] = cut_call(call.name, said)
            events.append(PartEnd(block.part, None))
            return
        if not call.name:
            self._issues["invalid_call", f"block {block.index}"] = nameless(call.arguments)
            events.append(PartEnd(block.part, None))
            return
        if said and not is_object(said):
            self._issue("invalid_json", f"block {block.index}", "the arguments of the call are no JSON object")
        if not block.texts:
            events.append(PartDelta(block.part, call.arguments))
        events.append(PartEnd(block.part, call, origin=ORIGIN))


def claims_event(members: Mapping[str, Json]) -> int:
    """How surely an event is one of this API."""
    said = members.get("type", Json(b"null"))
    type_ = plain(said) if bytes(said)[:1] == b'"' else ""
    if type_ == _tag(Failure) and "error" not in members:
        return 0
    return 2 if type_ in _TAGS else 0


def _tag(wire: Wire | type[Wire]) -> str:
    """The `type` of a wire object."""
    return str(wire.__struct_config__.tag)


_PLACED = frozenset({"id", "model", "role", "content", "stop_reason", "stop_sequence", "usage"})
"""Members that a message has itself, so that there is no place for them beside it."""

_TAGS = frozenset({_tag(wire) for wire in get_args(_Frame)})
"""The types that events have."""

_STEPS: dict[type[Wire], Callable[[StreamReader, Any, list[Event]], None]] = {
    MessageStart: StreamReader._message_start,
    BlockStart: StreamReader._block_start,
    BlockDelta: StreamReader._block_delta,
    BlockStop: StreamReader._block_stop,
    MessageDelta: StreamReader._message_delta,
    MessageStop: StreamReader._stop,
    Failure: StreamReader._failure,
}
