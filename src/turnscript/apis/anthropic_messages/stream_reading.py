"""Owns reading responses, whole ones and streams: which block is open, what it holds so far, and what is wrong.

Each block is one part, put together from its start and its deltas and read as one of a whole response is. What cannot
be a stream of this API raises UpstreamError; what is merely odd (an unknown event, a block that nobody ended) is an
issue. An error never swallows events: those that were read before it are given first, and the next call raises.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, get_args

from msgspec import UNSET, UnsetType

from turnscript.apis.anthropic_messages.errors import unreadable, upstream_error
from turnscript.apis.anthropic_messages.response import (
    API,
    CUTTING,
    ORIGIN,
    Tokens,
    cut_short,
    finish_reason,
    head_of,
    item_of,
    told,
    word,
)
from turnscript.apis.api import leftover
from turnscript.apis.shared.answers import nameless
from turnscript.apis.streams import Answer
from turnscript.core.conversation import Assistant, Extra, Issue, Item, Response, Thinking, ToolCall
from turnscript.core.errors import InvalidInput, InvalidRequest
from turnscript.core.json_text import (
    Json,
    elements_in,
    excerpt,
    is_json,
    is_object,
    json_of,
    members_in,
    plain,
    read_list,
    read_object,
    text_of,
    type_word,
)
from turnscript.core.unread_stream import DONE
from turnscript.core.wire import Reader, Verbatim, Wire, given, mismatch, missing

# Wire objects.


class TextDelta(Wire, tag="text_delta"):
    text: str


class ThinkingDelta(Wire, tag="thinking_delta"):
    thinking: str
    # A hint for progress bars, not content; declared so that it does not make the reading slow.
    estimated_tokens: Json | UnsetType = UNSET


class SignatureDelta(Wire, tag="signature_delta"):
    signature: str


class InputDelta(Wire, tag="input_json_delta"):
    partial_json: str


class CitationsDelta(Wire, tag="citations_delta"):
    citation: Json


class CompactionDelta(Wire, tag="compaction_delta"):
    """Its members are those of its block."""


Delta = TextDelta | ThinkingDelta | SignatureDelta | InputDelta | CitationsDelta | CompactionDelta
_CONTENT: dict[type[Wire], str] = {TextDelta: "text", ThinkingDelta: "thinking", InputDelta: "partial_json"}
"""The member of a delta that is one more piece; of others the last counts, or each is one of a list."""

_KINDS: dict[type[Wire], str] = {
    TextDelta: "text",
    CitationsDelta: "text",
    ThinkingDelta: "thinking",
    SignatureDelta: "thinking",
    CompactionDelta: "compaction",
}
"""The kind of block that a delta is for; input is for any other."""

TOLD = frozenset({"text", "thinking", "tool_use"})
"""Kinds of blocks whose content is told as it comes."""


def content_of(delta: Any) -> str:
    """Return what a delta says, as text."""
    if isinstance(delta, CitationsDelta):
        return text_of(delta.citation)
    if isinstance(delta, CompactionDelta):
        return text_of(leftover(delta.rest or {}))
    return str(delta.signature if isinstance(delta, SignatureDelta) else getattr(delta, _CONTENT[type(delta)]))


class Block:
    """A block that is being read."""

    def __init__(self, index: int, part: int, start: Json) -> None:
        self.index = index
        self.part = part
        self.kind = type_word(start)
        self.members = read_object(start)
        self.texts: list[str] = []
        self.citations: list[Json] = []
        self.signature: str | None = None
        said = self.members.get(self.kind) if self.kind in ("text", "thinking") else None
        self.opening = "" if said is None or bytes(said)[:1] != b'"' else str(plain(said))

    @property
    def model(self) -> str | None:
        """The model that goes on with the answer from here, where that changes in the middle of it."""
        to = self.members.get("to") if self.kind == "fallback" else None
        name = members_in(to).get("model", Json(b""))
        return str(plain(name)) if bytes(name)[:1] == b'"' else None

    def takes(self, delta: Any) -> bool:
        """Whether a delta is for a block of this kind."""
        wanted = _KINDS.get(type(delta))
        return self.kind not in ("text", "thinking", "compaction") if wanted is None else self.kind == wanted

    def take(self, delta: Any) -> str:
        """Take a delta; gives the text that is told of it at once."""
        name = _CONTENT.get(type(delta))
        if name is not None:
            text: str = getattr(delta, name)
            if text:
                self.texts.append(text)
            return text if self.kind in TOLD else ""
        if isinstance(delta, SignatureDelta):
            self.signature = delta.signature
        elif isinstance(delta, CitationsDelta):
            self.citations.append(delta.citation)
        else:
            self.members |= delta.rest or {}
        return ""

    def said(self) -> str:
        """The input as text: what the deltas said, else what the start did if that is more than an empty object."""
        given = self.members.get("input")
        opening = "" if given is None else text_of(given)
        return "".join(self.texts) or ("" if opening == "null" or not opening.strip("{} \t\r\n") else opening)

    def call(self, arguments: str) -> ToolCall:
        """The block as a call with these arguments, whatever they are."""
        call = item_of(leftover(self.members | {"input": Json(b"{}")}), self.part)
        assert isinstance(call, ToolCall)
        call.arguments, call.as_object = arguments, False  # a stream has them as a text, which nobody printed
        return call

    def whole(self) -> Json:
        """The block as a whole response would have it."""
        members = dict(self.members)
        if self.kind in ("text", "thinking"):
            members[self.kind] = json_of(self.opening + "".join(self.texts))
        elif self.texts:
            members["input"] = Json(self.said().encode())
        if self.signature is not None:
            members["signature"] = json_of(self.signature)
        if self.citations:
            given = elements_in(members.get("citations"))
            members["citations"] = Json(b"[%b]" % b",".join([bytes(one) for one in given + self.citations]))
        return leftover(members)

    def without_content(self) -> Item:
        """The part that begins with the block: its item without content."""
        if self.kind == "text":
            return Assistant()
        if self.kind == "thinking":
            return Thinking()
        if self.kind != "tool_use":
            return item_of(self.whole(), self.part)
        return self.call("")


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


class Message(Answer):
    """One message, as its events arrive."""

    origin, idle = ORIGIN, "ping"

    def __init__(self) -> None:
        super().__init__()
        self._began = False
        self._tokens = Tokens()
        self._closing = False  # whether a message_delta has come behind the last block
        self._open: Block | None = None
        self._doubt: Block | None = None  # a call that has ended and is no object: cut off, or badly written?
        self._last = -1  # index of the last block

    def whole(self, body: Json) -> Response:
        members = read_object(body)
        kind = word(members, "type")
        if kind == "error" or ("error" in members and "content" not in members):
            raise upstream_error(members.get("error"), API)
        if kind not in (None, "message"):
            message = f"expected 'message', got {kind!r}"
            raise InvalidRequest(message, path="$.type", expected="'message'", got=repr(kind))
        if "content" not in members:
            raise missing("$", "content", "an array of content blocks")
        content = members.pop("content")
        if bytes(content)[:1] != b"[":
            raise mismatch(content, "$.content", "an array of content blocks")
        blocks = read_list(content)
        self.said.id, self.said.model = head_of(members)
        self._note(members, members.pop("usage", None))
        for index, block in enumerate(blocks):
            item = item_of(block, index)
            if not isinstance(item, ToolCall):
                self.parts.close(self.parts.open(item), item)
            elif self.said.finish_reason in CUTTING and index == len(blocks) - 1:
                self.parts.note(cut_short(item.name, item.arguments))
                self.parts.close(self.parts.open(item, item.arguments), None)
            elif not item.name:
                self.parts.note(nameless(item.arguments))
            else:
                self.parts.close(self.parts.open(item), item)
        self._message_stop()
        return self.response()

    def close(self, stray: str) -> None:
        """End a message without a `message_stop`, if it said why it ended behind its last block."""
        if self.said.finish_reason is None or not self._closing:
            what = "it broke off before its end" if self._began else "it holds no message"
            error = unreadable(API, what, stray)
            error.retryable = True
            raise error
        self._issue("missing_stop", "message_stop", "the stream ended without it")
        self._message_stop()

    def salvage(self) -> None:
        """End a message without the call that its stream failed in."""
        if not self._began:
            return
        if not self._closing:  # the answer went on behind a reason that was told early
            self.said.finish_reason = None
        try:
            self._end_missed()
            self._settle(True)
        except InvalidInput:  # a block that could not even begin
            self._open = self._doubt = None
        self._message_stop()

    def take(self, name: str, data: str) -> None:
        if data.strip() == DONE:  # some servers end all their streams with it
            return
        try:
            wire = _read_frame(Json(data), "$")
            if isinstance(wire, Verbatim):
                self._issue("unknown_event", wire.tag, excerpt(wire.value, 200))
            elif not isinstance(wire, Ping):
                self._in_order(wire)
                _STEPS[type(wire)](self, wire)
        except InvalidInput as error:
            raise unreadable(API, error, data) from None

    def _in_order(self, wire: Wire) -> None:
        """Only an error may come before the message has begun."""
        if not self._began and not isinstance(wire, MessageStart | Failure):
            raise unreadable(API, f"{_tag(wire)} before message_start", "")
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
        self.parts.note(Issue(kind, f"{what}: {detail}"), what)

    # The message.

    def _message_start(self, wire: MessageStart) -> None:
        members = read_object(wire.message)
        id_, model = head_of(members)
        if self._began and (id_ is None or id_ != self.said.id):
            raise unreadable(API, f"{_tag(wire)} again", "")
        if self._began:  # some gateways write a start of their own before that of the server behind them
            self._issue("second_start", "message_start", "the same message began twice")
        self._began, self.said.id, self.said.model = True, id_, model or self.said.model
        members.pop("type", None)
        content = members.pop("content", None)
        if content is not None and bytes(content) not in (b"[]", b"null"):
            self._issue("misplaced_content", "message_start", excerpt(content, 200))
        self._note(members, members.pop("usage", None))
        self._tokens.begin()

    def _message_delta(self, wire: MessageDelta) -> None:
        self._end_missed()
        self._closing = True
        self._note(read_object(wire.delta), given(wire.usage))
        self._keep({name: value for name, value in (wire.rest or {}).items() if name != "usage"})
        if self.said.finish_reason is not None:
            self._settle(self.said.finish_reason in CUTTING)

    def _note(self, members: Extra, usage: Json | None) -> None:
        """Take what is said of the message: a null says nothing that was not said before."""
        reason, stop = word(members, "stop_reason"), word(members, "stop_sequence")
        if reason:
            self.said.finish_reason = finish_reason(reason)
        if stop is not None:
            self.said.stop_sequence = stop
        self._tokens.read(usage, "$.usage")
        self.said.usage = self._tokens.usage()
        self._keep(told(members))

    def _keep(self, members: Extra) -> None:
        for name, value in members.items():
            if bytes(value) != b"null" or name not in self.said.extra:
                self.said.extra[name] = value

    def _message_stop(self) -> None:
        self._end_missed()
        reason = self.said.finish_reason
        self._settle(reason is None or reason in CUTTING)
        if reason is None:
            self.parts.note(Issue("missing_reason", "the message has no stop_reason"))
        self.said.usage, issues = self._tokens.end()
        self.said.extra |= self._tokens.extra()
        self.end(issues)

    def _stop(self, wire: MessageStop) -> None:
        self._message_stop()

    def _failure(self, wire: Failure) -> None:
        raise upstream_error(wire.error, API)

    # Blocks.

    def _block_start(self, wire: BlockStart) -> None:
        self._end_missed()
        self._settle(False)
        if self._closing and self.said.finish_reason is not None:
            self._issue("late_content", "content_block_start", "the answer went on behind its stop_reason")
        self._closing = False
        if wire.index <= self._last:
            raise unreadable(API, f"block {wire.index} begins after block {self._last}", "")
        if wire.index != self._last + 1:
            self._issue("index_gap", "content_block_start", f"block {wire.index} follows block {self._last}")
        self._last = wire.index
        block = self._open = Block(wire.index, self.parts.count, wire.content_block)
        self.said.model = block.model or self.said.model
        self.parts.open(block.without_content(), block.opening)

    def _block_delta(self, wire: BlockDelta) -> None:
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
        self.parts.append(block.part, block.take(delta))

    def _block_stop(self, wire: BlockStop) -> None:
        self._end_block(self._opened(wire.index))

    def _opened(self, index: int) -> Block:
        if self._open is None or self._open.index != index:
            raise unreadable(API, f"block {index} is not open", "")
        return self._open

    def _end_missed(self) -> None:
        """End a block that the stream forgot to end."""
        if self._open is not None:
            self._issue("missing_stop", f"block {self._open.index}", "its content_block_stop is missing")
            self._end_block(self._open)

    def _end_block(self, block: Block) -> None:
        self._open = None
        if block.kind == "tool_use":
            self._doubt = block
            if is_object(block.said()):
                self._settle(False)
            return
        if block.texts and block.kind not in TOLD and not is_json("".join(block.texts)):
            self._issue("invalid_json", f"block {block.index}", f"its input is no JSON: {''.join(block.texts)}")
            block.texts.clear()
        self.parts.close(block.part, item_of(block.whole(), block.part))

    def _settle(self, cut: bool) -> None:
        """Tell the call that has ended. Without arguments, or with broken ones, it waited for what comes behind it."""
        block, self._doubt = self._doubt, None
        if block is None:
            return
        said, where = block.said(), f"block {block.index}"
        call = block.call(said or "{}")
        if cut or not call.name:
            self.parts.note(cut_short(call.name, said) if cut else nameless(call.arguments), where)
            self.parts.close(block.part, None)
            return
        if said and not is_object(said):
            self._issue("invalid_json", where, "the arguments of the call are no JSON object")
        if not block.texts:
            self.parts.append(block.part, call.arguments)
        self.parts.close(block.part, call)


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

_STEPS: dict[type[Wire], Callable[[Message, Any], None]] = {
    MessageStart: Message._message_start,
    BlockStart: Message._block_start,
    BlockDelta: Message._block_delta,
    BlockStop: Message._block_stop,
    MessageDelta: Message._message_delta,
    MessageStop: Message._stop,
    Failure: Message._failure,
}
