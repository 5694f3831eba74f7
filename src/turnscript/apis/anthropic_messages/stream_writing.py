"""Owns writing events as a stream: which block is open, what is sent of it at once, and what waits until it is whole.

Blocks come one after the other, without gaps in their indexes. Texts, thoughts and the arguments of calls are sent as
they are said. What was sent cannot be taken back: where a call was cut off, or turned out to be none, its block ends
there, and the message as one that met its limit. SDKs read an input while it comes, and some raise where it is no JSON:
so nothing is sent of arguments from where they are no object. Those that never begin like one, and free text, are sent
when they are complete, wrapped in an object. A part that begins while another goes on waits for its end too.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import msgspec

from turnscript.apis.anthropic_messages.blocks import WORDS
from turnscript.apis.anthropic_messages.errors import encoded, error_body
from turnscript.apis.anthropic_messages.response import (
    LATE,
    SILENT,
    SILENT_USAGE,
    AnswerWriter,
    fill,
    message_body,
    usage_object,
)
from turnscript.apis.anthropic_messages.writing import is_text
from turnscript.apis.api import Api, Body, Reply
from turnscript.apis.shared.answers import CHANGED, came_to_nothing, is_whole, lose_id
from turnscript.apis.streams import StreamRenderer
from turnscript.core.conversation import Assistant, Extra, Item, Request, Response, Thinking, ToolCall, Usage
from turnscript.core.errors import TurnscriptError, half_a_pair
from turnscript.core.events import (
    Event,
    MessageEnd,
    NextText,
    PartDelta,
    PartEnd,
    PartStart,
    ScoredDelta,
)
from turnscript.core.json_text import Beginning, Json, is_object, is_plain, plain, read_list, read_object, text_of
from turnscript.core.source_paths import telling
from turnscript.core.sse import HOLE, frame, template

PIECE = 8192
"""The most characters of arguments in one event: some readers of streams dislike long lines."""

_EMPTY_OBJECT = Json(b"{}")
_encode = msgspec.json.Encoder().encode
_join = b"".join
_DELTA = "content_block_delta"
_STOP = b'event: content_block_stop\ndata: {"type":"content_block_stop","index":%d}\n\n'
_COMPACTED = ("content", "encrypted_content")
"""The members of a compaction that its delta says; all others are in its start."""
_DELTAS = {
    "text": ("text_delta", "text"),
    "thinking": ("thinking_delta", "thinking"),
    "tool_use": ("input_json_delta", "partial_json"),
}
_NO_CALL = (ToolCall(name=""), None)
_NO_OBJECT = "its arguments are no JSON object, and what was sent of them cannot be wrapped in one"
_BLANKS = " \t\r\n"
_PLAIN = {"text": {"type", "text", "citations"}, "thinking": {"type", "thinking", "signature"}}
"""The members of a block that its deltas say, or every block of its type has."""


class StreamWriter(StreamRenderer):
    """Writes the answer to a request, as a stream or whole."""

    def __init__(self, api: Api, request: Request, reply: Reply, response: Response | None = None) -> None:
        super().__init__(response)
        self._writer = AnswerWriter(request, api, reply, whole=response is not None)
        self._writer.origin = None if response is None else response.origin
        self.losses = self._writer.losses
        self._lose = self._writer.rendering.lose
        said = None if response is None else response.id
        known = reply.id if reply.id is not None else said
        self.id = known if known is not None else self._writer.message_id(response)
        self._content: list[Any] = []  # the blocks of a whole answer
        self._named = reply.id is not None
        self._usage = reply.usage or Usage()
        self._request_id = reply.request_id
        self._holds = reply.calls == "whole"
        self._more = reply.members
        self._api = api.name
        self._scored = False
        self._index = 0  # of the block that is open, or comes next
        self._kind = ""  # of its block
        self._sent: list[str] = []  # its text so far; without any, its block is not open yet
        self._texts: list[str] = []  # the texts before it in the same part, each a block that is closed
        self._telling = b""  # the event that tells a delta of it
        self._call: tuple[ToolCall, str | None] = _NO_CALL  # the call that it is, and whose members that has
        self._block: Body = {}  # of that, once it is open
        self._ahead = ""  # white space before the arguments of that
        self._input = Beginning()  # what of them may be sent
        self._broken = False  # whether the last block is a call that is not whole
        self._late: list[PartEnd] = []  # parts that ended while another went on

    def send(self, events: Iterable[Event]) -> bytes:
        """The bytes for some events; nothing more once the message is over."""
        try:
            match events:
                case [event] if type(event) is PartDelta and self._began and not self._out:  # by far the most
                    if event.index != self._now:
                        return b""  # of a part that waits
                    if self._sent and len(event.text) <= PIECE:
                        return self._next_piece(event.text)
            self._begin_once()
            for event in events:
                if type(event) is PartDelta and event.index == self._now and self._sent and len(event.text) <= PIECE:
                    self._out.append(self._next_piece(event.text))
                else:
                    self._take(event)
            return self._taken()
        except UnicodeEncodeError as error:
            raise half_a_pair(error, "a text of the answer") from None

    def _next_piece(self, text: str) -> bytes:
        """Return the event for more of the block that is open; nothing as long as none of it may be told."""
        if self._kind == "tool_use" and not (self._input.inside and is_plain(text)):
            text = self._input.take(text)
        if not text:
            return b""
        self._sent.append(text)
        return self._telling % _encode(text)

    def _alive(self) -> bytes:
        """A ping. Nothing before the message has begun, because clients take its start for the first event."""
        if self._began:
            self._frame("ping", {})
        return self._taken()

    # Frames.

    def _frame(self, type_: str, members: Body) -> None:
        try:
            data = _encode({"type": type_, **members})
        except UnicodeEncodeError as error:
            raise half_a_pair(error, "a text of the answer") from None
        self._out.append(frame(data, type_))

    def _fail(self, error: TurnscriptError) -> None:
        _, body = error_body(error, self._request_id)
        self._out.append(frame(encoded(body), "error"))

    def _begin(self) -> None:
        ending = {"stop_reason": None, "stop_sequence": None}
        message = message_body(self.id, self._writer.model, [], ending, usage_object(self._usage)) | dict(self._more)
        fill(message, SILENT)
        fill(message["usage"], SILENT_USAGE)
        self._frame("message_start", {"message": message})

    def _start_block(self, block: Any) -> None:
        self._broken = False
        self._frame("content_block_start", {"index": self._index, "content_block": block})

    def _send_delta(self, type_: str, **members: Any) -> None:
        self._frame(_DELTA, self._members(type_, **members))

    def _members(self, type_: str, **members: Any) -> Body:
        return {"index": self._index, "delta": {"type": type_, **members}}

    def _stop(self) -> None:
        self._out.append(_STOP % self._index)
        self._index += 1

    def _whole(self, block: Any) -> None:
        """A block that is known in full."""
        if self._response is not None:
            self._content.append(block)
            return
        opening, deltas = _unfolded(block)
        self._start_block(opening)
        for type_, members in deltas:
            self._send_delta(type_, **members)
        self._stop()

    # Events.

    def _start(self, event: PartStart) -> None:
        kind = self._kind_of(event.part)
        if self._now is None and kind:
            self._now, self._kind = event.index, kind
            if isinstance(event.part, ToolCall):
                self._call, self._ahead, self._input = (event.part, event.origin), "", Beginning()

    def _delta(self, event: PartDelta) -> None:
        if type(event) is ScoredDelta and not self._scored:
            self._scored = True
            self._writer.lose_scores()
        if event.index != self._now:
            return
        if event.text:
            self._tell(event.text)
        elif type(event) is NextText and self._sent:
            self._next_text()

    def _kind_of(self, part: Item) -> str:
        """The block that can be sent piece by piece, if the part becomes one."""
        if isinstance(part, Assistant):
            return "text"
        if isinstance(part, ToolCall):
            return "" if part.custom or self._holds else "tool_use"
        hidden = not isinstance(part, Thinking) or part.redacted is not None or self._writer.omits_thinking
        return "" if hidden else "thinking"

    def _tell(self, text: str) -> None:
        """More of the part that is sent as it is said."""
        if self._kind == "tool_use" and (self._sent or self._ahead or not is_object(text)):
            text = self._ahead + self._input.take(text)
            self._ahead = "" if self._sent or text.strip(_BLANKS) else text
        if not text or self._ahead:
            return
        if not self._sent:
            self._open()
        for piece in _pieces(text) if self._kind == "tool_use" else (text,):
            self._out.append(self._telling % _encode(piece))
        self._sent.append(text)

    def _open(self) -> None:
        """Begin the block of the part that is sent as it is said."""
        if self._kind == "tool_use":
            call, self._writer.origin = self._call
            assert self._now is not None
            self._block = self._writer.begin_call(call, self._now)
            self._start_block(self._block)
        elif self._kind == "text":
            self._start_block({"type": "text", "text": "", "citations": None})
        else:
            self._start_block({"type": "thinking", "thinking": "", "signature": ""})
        type_, member = _DELTAS[self._kind]
        members = self._members(type_, **{member: HOLE})
        self._telling = template({"type": _DELTA, **members}, _DELTA)

    def _next_text(self) -> None:
        """The open block is over: the part goes on with another one."""
        self._texts.append("".join(self._sent))
        self._sent = []
        self._stop()

    def _end(self, event: PartEnd) -> None:
        self._writer.origin = event.origin
        if event.index != self._now:
            if self._now is None:
                self._part(event)
            else:
                self._late.append(event)
            return
        sent, self._sent, self._now = "".join(self._sent), [], None
        closed, self._texts = self._texts, []
        if sent and self._kind == "tool_use":
            self._end_call(event, sent)
        elif sent or closed:
            self._end_text(event, closed, sent)
        else:
            self._part(event)
        self._flush()

    def _flush(self) -> None:
        late, self._late = self._late, []
        for event in late:
            if event.part is not None:
                self._lose(f"items[{event.index}]", "moved", "behind the part that it came in between")
            self._writer.origin = event.origin
            self._part(event)

    def _part(self, event: PartEnd) -> None:
        if event.part is None:
            self._lose(f"items[{event.index}]", "approximated", came_to_nothing(False))
            return
        for block in self._writer.blocks(event.part, event.index):
            self._whole(block)

    def _end_call(self, event: PartEnd, sent: str) -> None:
        """The end of a call that was sent as it was said. One that is not whole makes that the message is not."""
        part, where = event.part, f"items[{event.index}]"
        why = came_to_nothing(True)
        if isinstance(part, ToolCall) and is_whole(part):
            self._writer.end_call(part, self._block, event.index)
            where, why = part.at, CHANGED
            if part.arguments.startswith(sent):
                why = "" if is_object(part.arguments) else _NO_OBJECT
            for piece in _pieces("" if why else part.arguments[len(sent) :]):
                self._send_delta("input_json_delta", partial_json=piece)
        if why:
            self._writer.cut, self._broken = True, why == _NO_OBJECT
            self._lose(where, "approximated", why)
        self._stop()

    def _end_text(self, event: PartEnd, closed: list[str], sent: str) -> None:
        """The end of a part that was sent as it was said: whatever of it was not. `closed`: its first texts, each in a
        block; `sent`: what stands in the one that is open."""
        part = event.part
        blocks = self._writer.blocks(part, event.index) if part is not None else []
        where = part.at if part is not None else f"items[{event.index}]"
        if not closed and len(blocks) == 1 and self._is_mine(blocks[0]):  # by far the most
            self._finish_block(blocks, sent, where)
            return
        mine = [block for block in blocks if self._is_mine(block)]
        _, member = _DELTAS[self._kind]
        first, rest = mine[: len(closed)], mine[len(closed) :]
        if [block[member] for block in first] != closed:
            self._lose(where, "approximated", CHANGED)
        for block in first:
            self._lose_late(_unfolded(block), where)
        if sent:
            self._finish_block(rest, sent, where)
            rest = []
        for block in [*rest, *(block for block in blocks if not self._is_mine(block))]:
            self._whole(block)

    def _is_mine(self, block: Any) -> bool:
        """Whether a block may be told piece by piece, as the part that is sent as it is said."""
        return isinstance(block, dict) and bool(block["type"] == self._kind)

    def _finish_block(self, mine: list[Body], sent: str, where: str) -> None:
        """The end of a block that was sent as it was said. `mine`: the blocks that it stands for, one mostly."""
        type_, member = _DELTAS[self._kind]
        said = "".join([block[member] for block in mine])
        if said.startswith(sent):
            if len(said) > len(sent):
                self._send_delta(type_, **{member: said[len(sent) :]})
        else:
            self._lose(where, "approximated", CHANGED)
        if len(mine) == 1:
            self._close(mine[0], where)
        else:
            if mine:
                self._lose(where, "approximated", "its parts become one block")
            if self._kind == "thinking":
                self._send_delta("signature_delta", signature="")
        self._stop()

    def _close(self, block: Body, where: str) -> None:
        """What a block that was sent already has besides its text."""
        if block.keys() <= _PLAIN[self._kind] and block.get("citations") is None:  # by far the most
            if self._kind == "thinking":
                self._send_delta("signature_delta", signature=block["signature"])
            return
        type_, _ = _DELTAS[self._kind]
        opening, deltas = _unfolded(block)
        for delta, members in deltas:
            if delta != type_:
                self._send_delta(delta, **members)
        self._lose_late((opening, []), where)

    def _lose_late(self, block: tuple[Any, list[tuple[str, Body]]], where: str) -> None:
        """Report what of a block came too late: its start was sent, and deltas of it that were not cannot follow."""
        opening, deltas = block
        type_, member = _DELTAS[self._kind]
        said = ("type", member, "signature")
        behind = {name: value for name, value in opening.items() if name not in said and value is not None}
        for name in telling(behind, WORDS):
            self._lose(f"{where}.{name}", "dropped", LATE)
        for delta in dict.fromkeys(delta for delta, _ in deltas if delta != type_):
            self._lose(f"{where}.{delta.removesuffix('_delta')}", "dropped", "it was not known when the block ended")

    def _cut(self, call: ToolCall, index: int) -> None:
        self._content += self._writer.cut_call(call, index)

    def _finish(self, end: MessageEnd) -> None:
        if self._now is not None:
            self._end(PartEnd(self._now, None))
        writer = self._writer
        writer.origin = end.origin
        for block in writer.blank():
            self._whole(block)
        ending = writer.ending(end.finish_reason, end.stop_sequence)
        usage = writer.usage(end.usage, self._usage)
        if self._response is None:
            self._end_stream(end, ending, usage)
        else:
            self._end_whole(end, ending, usage)

    def _end_whole(self, end: MessageEnd, ending: Body, usage: Body) -> None:
        writer = self._writer
        model = end.model if writer.model is None else writer.model
        body = self._body = message_body(self.id, model, self._content, ending, usage)
        writer.put_tier(usage, end.extra)
        writer.put_extra(body, end.extra, end.usage)
        fill(usage, SILENT_USAGE)
        fill(body, SILENT)
        body |= self._more
        if self._response is not None and self._response.logprobs:
            writer.lose_scores()
        writer.end(body["stop_reason"])

    def _end_stream(self, end: MessageEnd, ending: Body, usage: Body) -> None:
        writer = self._writer
        if self._broken:
            writer.end(ending["stop_reason"])
        if not self._named:
            lose_id(writer.rendering, end.id, self.id)
        last: Body = {"delta": ending, "usage": usage}
        extra = dict(end.extra)
        beside: Extra = {name: extra.pop(name) for name in ("usage", "context_management") if name in extra}
        writer.put_extra(last, beside, end.usage)
        writer.put_extra(ending, extra, end.usage)
        fill(ending, SILENT)
        fill(usage, ("server_tool_use",))
        self._frame("message_delta", last)
        self._frame("message_stop", {})


def _unfolded(block: Any) -> tuple[Any, list[tuple[str, Body]]]:
    """A block as its start, without content, and the deltas that give it back: the type and the members of each."""
    if isinstance(block, Json):
        members: dict[str, Any] = dict(read_object(block))
        type_ = str(plain(members["type"])) if "type" in members else ""
    else:
        members, type_ = dict(block), block["type"]
    if type_.endswith("tool_use") and isinstance(members.get("input"), Json):
        arguments = text_of(members["input"])
        members["input"] = _EMPTY_OBJECT
        return members, [("input_json_delta", {"partial_json": piece}) for piece in _pieces(arguments)]
    if type_ == "compaction":
        told = {name: members.pop(name) for name in _COMPACTED if name in members}
        return members | {"content": None}, [("compaction_delta", told)] if told else []
    if isinstance(block, Json):
        return block, []
    if type_ == "thinking":
        text = members["thinking"]
        deltas: list[tuple[str, Body]] = [("thinking_delta", {"thinking": text})] if text else []
        deltas.append(("signature_delta", {"signature": members["signature"]}))
        return members | {"thinking": "", "signature": ""}, deltas
    if not is_text(block):
        return block, []
    deltas = [("text_delta", {"text": members["text"]})] if members["text"] else []
    citations = members.get("citations")
    if isinstance(citations, Json) and bytes(citations)[:1] == b"[" and (listed := read_list(citations)):
        members["citations"] = None
        deltas += [("citations_delta", {"citation": citation}) for citation in listed]
    return members | {"text": ""}, deltas


def _pieces(arguments: str) -> Iterator[str]:
    """Arguments in pieces. An empty object is said too: a call without any piece may be one that a limit cut off."""
    for start in range(0, len(arguments), PIECE):
        yield arguments[start : start + PIECE]
