"""Owns writing an answer as chunks.

Order: a first chunk with the role; deltas; one chunk with the finish reason and no delta; one without choices and with
the usage, if the client asked for it; `[DONE]`. Clients put equal members of deltas one behind another, so role, id,
name and type are sent once. Some take the first content, even an empty one, for the answer, and look for no call behind
it; so the chunk with the role has none, and an answer with neither has its empty content at the end.

The arguments of calls are sent as they come, of one call at a time, as clients expect it. What was sent cannot be taken
back: where a call was cut off, or turned out to be none, the finish reason says that the answer is not whole. The only
call of the deprecated form, and free text, which is sent as an argument here, wait until they are complete.
"""

from __future__ import annotations

from collections.abc import Iterable

from msgspec.structs import replace

from turnscript.apis.api import Api, Body, Rendering, Reply, merge
from turnscript.apis.openai_chat.answer import (
    COUNTS,
    LEGACY_CALL,
    cut_word,
    finish_word,
)
from turnscript.apis.openai_chat.content import is_within, piece
from turnscript.apis.openai_chat.response import (
    OBJECTS,
    Message,
    logprobs_of,
    lose_stop,
    put_top,
    rendering_of,
    usage_rest,
)
from turnscript.apis.shared.answers import (
    CHANGED,
    came_to_nothing,
    is_whole,
    lose_id,
    lose_usage,
    made_id,
    write_usage,
)
from turnscript.apis.shared.chunk_streams import ChunkEnding, asks_usage, encoded
from turnscript.core.conversation import Assistant, Item, Refusal, Request, Text, Thinking, ToolCall
from turnscript.core.errors import UpstreamError
from turnscript.core.events import Event, MessageEnd, NextText, PartDelta, PartEnd, PartStart, ScoredDelta, no_event
from turnscript.core.finish_reasons import check_end
from turnscript.core.json_text import Json, read_object
from turnscript.core.losses import Loss
from turnscript.core.message_groups import slot_of
from turnscript.core.sse import HOLE, frame, template


class ChatStreamRenderer(ChunkEnding):
    """Writes events as chunks of the choice that the reply says."""

    def __init__(self, api: Api, request: Request, reply: Reply) -> None:
        self.losses: list[Loss] = []
        self.id = reply.id if reply.id is not None else made_id("chatcmpl-", request)
        self._named = reply.id is not None
        self.created = reply.created or 0
        self._choice = reply.choice
        self._api = api
        self._request = request
        self._asked_usage = asks_usage(request)
        self._rendering = self._rendering_for(None)
        self._message = Message(self._rendering, request, reply)
        self._chunk_of = b""  # the chunk that a delta is in, once the stream has begun
        self._live: dict[int, bytes] = {}  # the parts that have deltas: the chunk that tells a text
        self._said: set[int] = set()  # those that have said anything
        self._telling = b""  # that of the one that was told last
        self._refusals: set[int] = set()  # those whose deltas are a refusal
        self._mixed: set[int] = set()  # those that have become one, or a text
        self._begun: dict[int, tuple[Body, list[str]]] = {}  # a call: which of them it is, and its arguments so far
        self._late: list[PartEnd] = []  # calls that ended while that went on
        self._cut = False  # whether one that was sent in part came to nothing
        self._ended = self._failed = False
        self._now = None
        self._into: list[str] | None = None  # what that was sent of, if it is a call

    def start(self) -> bytes:
        """The chunk with the role, unless it was sent."""
        return b"" if self._chunk_of or self._failed else self._begin()

    def send(self, events: Iterable[Event]) -> bytes:
        """The chunks for some events; the very first call gives the chunk with the role as well."""
        match events:
            case [event] if type(event) is PartDelta and self._chunk_of:  # by far the most
                if event.index == self._now:
                    if self._into is not None:
                        self._into.append(event.text)
                    return self._telling % encoded(event.text) if event.text else b""
                if event.index not in self._live:
                    return b""
        return self._send(events)

    def _send(self, events: Iterable[Event]) -> bytes:
        out = [self.start()]
        for event in events:
            if self._ended or self._failed:
                break
            if type(event) is PartDelta:
                if event.index in self._live and event.text:
                    self._tell(out, event)
            elif isinstance(event, ScoredDelta):
                self._scored(out, event)
            elif isinstance(event, PartStart):
                self._start(out, event.part, event.index)
            elif isinstance(event, PartEnd):
                self._end_part(out, event)
            elif isinstance(event, MessageEnd):
                self._finish(out, event)
            elif isinstance(event, NextText):
                self._turn(event.index, event.refuses)
            else:
                raise no_event("a stream is sent", [event])
        return b"".join(out)

    # Chunks.

    def _begin(self) -> bytes:
        self._chunk_of = self._template(HOLE)
        return self._delta(b'{"role":"assistant","content":null}')

    def _delta(self, delta: bytes) -> bytes:
        return self._chunk_of % delta

    def _template(self, delta: Body | Json) -> bytes:
        choice = {"index": self._choice, "delta": delta, "logprobs": None, "finish_reason": None}
        return template(self._chunk([choice]))

    def _scored(self, out: list[bytes], event: ScoredDelta) -> None:
        """A text with its tokens. One that waits for its end does not keep them waiting."""
        if event.index in self._begun:
            self._tell(out, event)
        live = event.index in self._live and event.index not in self._refusals and event.index not in self._begun
        if live and event.text:
            self._said.add(event.index)
        delta = {"content": event.text if live else ""}
        choice = {"index": self._choice, "delta": delta, "logprobs": logprobs_of(event.tokens), "finish_reason": None}
        out.append(frame(encoded(self._chunk([choice]))))

    def _tell(self, out: list[bytes], delta: PartDelta) -> None:
        self._now, self._telling = delta.index, self._live[delta.index]
        self._into = self._begun[delta.index][1] if delta.index in self._begun else None
        if self._into is not None:
            self._into.append(delta.text)
        else:
            self._said.add(delta.index)
        out.append(self._telling % encoded(delta.text))

    def _start(self, out: list[bytes], part: Item, index: int) -> None:
        member = ""
        if isinstance(part, ToolCall):
            self._start_call(out, part, index)
            return
        if is_within(part):
            self._live[index] = self._template({"content": [piece([{"type": "text", "text": HOLE}], {})]})
            return
        if isinstance(part, Thinking):
            member = self._message.thinks_in(part)
        elif isinstance(part, Assistant):
            member = "refusal" if any(isinstance(one, Refusal) for one in part.content) else "content"
        chunk = self._template({member: HOLE}) if member else b""
        if member and chunk not in self._live.values():  # else it would be mixed with another: it waits for its end
            self._live[index] = chunk
            if member == "refusal":
                self._refusals.add(index)

    def _turn(self, index: int, refuses: bool) -> None:
        """What comes of a part is a refusal, or a text, as it may not have been before."""
        if index not in self._live or refuses == (index in self._refusals):
            return
        self._live[index], self._now = self._template({"refusal" if refuses else "content": HOLE}), None
        self._refusals ^= {index}
        if index in self._said:
            self._mixed.add(index)

    def _end_part(self, out: list[bytes], event: PartEnd) -> None:
        if self._begun and event.index not in self._begun and isinstance(event.part, ToolCall):
            self._late.append(event)
            return
        self._rendering.foreign = event.origin not in (None, self._api.origin)
        self._end(out, event.part, event.index)
        late, self._late = ([], self._late) if self._begun else (self._late, [])
        for one in late:
            self._end_part(out, one)

    def _end(self, out: list[bytes], part: Item | None, index: int) -> None:
        said = index in self._said
        self._live.pop(index, None)
        self._now = None
        begun = self._begun.pop(index, None)
        if part is None or (begun is not None and isinstance(part, ToolCall) and not is_whole(part)):
            self._cut = self._cut or begun is not None
            said = said or begun is not None
            self._rendering.lose(f"items[{index}]", "approximated", came_to_nothing(said))
            return
        if not part.at:
            part.at = f"items[{index}]"
        if begun is not None and isinstance(part, ToolCall):
            self._end_call(out, part, *begun)
            return
        kinds = (Text, Refusal) if index in self._mixed else (Refusal if index in self._refusals else Text,)
        deltas = self._message.deltas(part, kinds if said else ())
        if isinstance(part, ToolCall):
            deltas = [half for delta in deltas for half in self._in_two(delta)]
        out += [self._delta(encoded(delta)) for delta in deltas]

    def _in_two(self, delta: Body) -> list[Body]:
        """A call that is told at once, in two deltas as others are: with its name, and with its arguments."""
        if LEGACY_CALL in delta:
            arguments, delta[LEGACY_CALL]["arguments"] = delta[LEGACY_CALL]["arguments"], ""
            return [delta, {LEGACY_CALL: {"arguments": arguments}}]
        place, (call,) = {"index": self._message.calls - 1}, delta["tool_calls"]
        arguments, call["function"]["arguments"] = call["function"]["arguments"], ""
        return [_of_call(place | call), _of_call(place | {"function": {"arguments": arguments}})]

    def _start_call(self, out: list[bytes], part: ToolCall, index: int) -> None:
        """A call whose arguments are sent as they come."""
        message = self._message
        if message.holds or self._begun or message.legacy or part.custom or slot_of(part) == LEGACY_CALL:
            return
        place: Body = {"index": message.calls}
        id_, name = message.call_head(part if part.at else replace(part, at=f"items[{index}]"))
        function = {"name": name, "arguments": ""}
        out.append(self._delta(encoded(_of_call(place | {"id": id_, "type": "function", "function": function}))))
        self._live[index] = self._template(_of_call(place | {"function": {"arguments": HOLE}}))
        self._begun[index] = place, []

    def _end_call(self, out: list[bytes], part: ToolCall, place: Body, pieces: list[str]) -> None:
        """A call that was sent as it came is complete: what of it was not, such as members that its end told."""
        sent, rest = "".join(pieces), dict(place)
        if not part.arguments.startswith(sent):
            self._rendering.lose(f"{part.at}.arguments", "approximated", CHANGED)
            self._cut = True
        elif len(part.arguments) > len(sent):
            rest["function"] = {"arguments": part.arguments[len(sent) :]}
        self._rendering.put_extra(rest, part.extra, part.at)
        if rest != place:
            out.append(self._delta(encoded(_of_call(rest))))
        self._message.order.call(part, part.arguments)

    # The end.

    def _finish(self, out: list[bytes], end: MessageEnd) -> None:
        try:
            check_end(end.finish_reason)
        except UpstreamError as error:
            out.append(self.fail(error))
            return
        for index in list(self._begun):
            self._end_part(out, PartEnd(index, None))
        last = self._rendering_for(end.origin)
        extra = {} if last.foreign else end.extra
        reason = finish_word(last, end.finish_reason, bool(self._message.calls), self._message.legacy)
        if self._cut:
            reason = cut_word(last, reason)
        self._message.order.end(reason)
        if not self._message.calls and not self._message.speaks:
            out.append(self._delta(b'{"content":""}'))
        choice: Body = {"index": self._choice, "delta": {}, "finish_reason": reason}
        if "choices" in extra:
            rest = read_object(extra["choices"])
            if "message" in rest:
                choice["delta"] = read_object(rest.pop("message"))
            merge(choice, rest)
        choice.setdefault("logprobs", None)
        lose_stop(last, end.stop_sequence, choice)
        lose_id(last, end.id, self.id, named=self._named)
        body = self._chunk([choice])
        put_top(last, body, end)
        out.append(frame(encoded(body)))
        if self._asked_usage and end.usage is not None:
            body = self._chunk([])
            body["usage"] = write_usage(end.usage, usage_rest(extra), COUNTS)
            out.append(frame(encoded(body)))
        elif end.usage is not None:
            last.lose("$.usage", "dropped", "the client did not ask for it in a stream")
        lose_usage(self.losses, end.usage, extra)
        self._ended, self._now = True, None

    def _chunk(self, choices: list[Body]) -> Body:
        model = self._request.settings.model or ""
        body: Body = {"id": self.id, "object": OBJECTS[1], "created": self.created, "model": model, "choices": choices}
        if self._asked_usage:
            body["usage"] = None
        return body

    def _rendering_for(self, origin: str | None) -> Rendering:
        rendering = rendering_of(self._api, [], origin)
        rendering.losses = self.losses
        return rendering


def _of_call(entry: Body) -> Body:
    """A delta of one call."""
    return {"tool_calls": [entry]}
