"""Owns writing an answer, as chunks and whole.

Order: a first chunk with the role; deltas; one chunk with the finish reason and no delta; one without choices and with
the usage, if the client asked for it; `[DONE]`. Clients put equal members of deltas one behind another, so role, id,
name and type are sent once. Some take the first content, even an empty one, for the answer, and look for no call behind
it; so the chunk with the role has none, and an answer with neither has its empty content at the end.

The arguments of calls are sent as they come, of one call at a time, as clients expect it. What was sent cannot be taken
back: where a call was cut off, or turned out to be none, the finish reason says that the answer is not whole. The only
call of the deprecated form, and free text, which is sent as an argument here, wait until they are complete.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import chain

from msgspec.structs import replace

from turnscript.apis.api import Api, Body, Reply, merge
from turnscript.apis.openai_chat.content import is_within, piece
from turnscript.apis.openai_chat.options import TIERS
from turnscript.apis.openai_chat.response import OBJECTS, Message
from turnscript.apis.openai_chat.stream_reading import COUNTS, LEGACY_CALL
from turnscript.apis.shared.answers import CHANGED, came_to_nothing, index_of, is_whole
from turnscript.apis.shared.chunk_streams import ChoiceWriter, encoded, lose_stop
from turnscript.core.conversation import Assistant, Item, Refusal, Request, Response, Text, Thinking, ToolCall
from turnscript.core.events import Event, MessageEnd, NextText, PartDelta, PartEnd, PartStart, ScoredDelta
from turnscript.core.finish_reasons import check_end
from turnscript.core.json_text import Json, members_in, read_list, read_object
from turnscript.core.logprobs import TokenLogprob
from turnscript.core.sse import HOLE, frame, template


class ChatStreamRenderer(ChoiceWriter):
    """Writes events as chunks of the choice that the reply says."""

    prefix, objects, counts, tiers = "chatcmpl-", OBJECTS, COUNTS, TIERS

    def __init__(self, api: Api, request: Request, reply: Reply, response: Response | None = None) -> None:
        super().__init__(api, request, reply, response)
        self._message = Message(self._rendering, request, reply, whole=response is not None)
        self._chunk_of = b""  # the chunk that a delta is in, once the stream has begun
        self._live: dict[int, bytes] = {}  # the parts that have deltas: the chunk that tells a text
        self._said: set[int] = set()  # those that have said anything
        self._telling = b""  # that of the one that was told last
        self._refusals: set[int] = set()  # those whose deltas are a refusal
        self._mixed: set[int] = set()  # those that have become one, or a text
        self._calls: dict[int, tuple[Body, list[str]]] = {}  # a call: which of them it is, and its arguments so far
        self._late: list[PartEnd] = []  # calls that ended while that went on
        self._into: list[str] | None = None  # what was sent of the part that was told last, if it is a call

    def send(self, events: Iterable[Event]) -> bytes:
        """The chunks for some events; the very first call gives the chunk with the role as well."""
        match events:
            case [event] if type(event) is PartDelta and self._began:  # by far the most
                if event.index == self._now:
                    if self._into is not None:
                        self._into.append(event.text)
                    return self._telling % encoded(event.text) if event.text else b""
                if event.index not in self._live:
                    return b""
        return super().send(events)

    # Chunks.

    def _begin(self) -> None:
        self._chunk_of = self._template(HOLE)
        self._out.append(self._chunk_of % b'{"role":"assistant","content":null}')

    def _template(self, delta: Body | Json) -> bytes:
        choice = {"index": self._reply.choice, "delta": delta, "logprobs": None, "finish_reason": None}
        return template(self.chunk([choice]))

    def _delta(self, event: PartDelta) -> None:
        if type(event) is PartDelta:
            if event.index == self._now and event.text:
                if self._into is not None:
                    self._into.append(event.text)
                self._out.append(self._telling % encoded(event.text))
            elif event.index in self._live and event.text:
                self._tell(event)
        elif isinstance(event, ScoredDelta):
            self._scored(event)
        elif isinstance(event, NextText):
            self._turn(event.index, event.refuses)

    def _scored(self, event: ScoredDelta) -> None:
        """A text with its tokens. One that waits for its end does not keep them waiting."""
        if event.index in self._calls:
            self._tell(event)
        live = event.index in self._live and event.index not in self._refusals and event.index not in self._calls
        if live and event.text:
            self._said.add(event.index)
        delta = {"content": event.text if live else ""}
        logprobs = logprobs_of(event.tokens)
        choice = {"index": self._reply.choice, "delta": delta, "logprobs": logprobs, "finish_reason": None}
        self._out.append(frame(encoded(self.chunk([choice]))))

    def _tell(self, delta: PartDelta) -> None:
        self._now, self._telling = delta.index, self._live[delta.index]
        self._into = self._calls[delta.index][1] if delta.index in self._calls else None
        if self._into is not None:
            self._into.append(delta.text)
        else:
            self._said.add(delta.index)
        self._out.append(self._telling % encoded(delta.text))

    def _start(self, event: PartStart) -> None:
        part, index, member = event.part, event.index, ""
        if isinstance(part, ToolCall):
            self._start_call(part, index)
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

    def _end(self, event: PartEnd) -> None:
        if self._calls and event.index not in self._calls and isinstance(event.part, ToolCall):
            self._late.append(event)
            return
        self._rendering.foreign = event.origin not in (None, self._api.origin)
        self._whole_part(event.part, event.index)
        late, self._late = ([], self._late) if self._calls else (self._late, [])
        for one in late:
            self._end(one)

    def _whole_part(self, part: Item | None, index: int) -> None:
        said = index in self._said
        self._live.pop(index, None)
        self._now = None
        begun = self._calls.pop(index, None)
        if part is None or (begun is not None and isinstance(part, ToolCall) and not is_whole(part)):
            self._message.cut = self._message.cut or begun is not None
            said = said or begun is not None
            self._rendering.lose(f"items[{index}]", "approximated", came_to_nothing(said))
            return
        if begun is not None and isinstance(part, ToolCall):
            self._end_call(part, *begun)
            return
        kinds = (Text, Refusal) if index in self._mixed else (Refusal if index in self._refusals else Text,)
        deltas = self._message.deltas(part, kinds if said else ())
        if self._response is not None:
            self._message.put(deltas)
            return
        if isinstance(part, ToolCall):
            deltas = [half for delta in deltas for half in self._in_two(delta)]
        self._out += [self._chunk_of % encoded(delta) for delta in deltas]

    def _in_two(self, delta: Body) -> list[Body]:
        """A call that is told at once, in two deltas as others are: with its name, and with its arguments."""
        if LEGACY_CALL in delta:
            arguments, delta[LEGACY_CALL]["arguments"] = delta[LEGACY_CALL]["arguments"], ""
            return [delta, {LEGACY_CALL: {"arguments": arguments}}]
        place, (call,) = {"index": self._message.calls - 1}, delta["tool_calls"]
        arguments, call["function"]["arguments"] = call["function"]["arguments"], ""
        return [_of_call(place | call), _of_call(place | {"function": {"arguments": arguments}})]

    def _start_call(self, part: ToolCall, index: int) -> None:
        """A call whose arguments are sent as they come."""
        message = self._message
        if message.holds or self._calls or message.legacy or part.custom or part.slot == LEGACY_CALL:
            return
        place: Body = {"index": message.calls}
        id_, name = message.call_head(part if part.at else replace(part, at=f"items[{index}]"))
        function = {"name": name, "arguments": ""}
        call = place | {"id": id_, "type": "function", "function": function}
        self._out.append(self._chunk_of % encoded(_of_call(call)))
        self._live[index] = self._template(_of_call(place | {"function": {"arguments": HOLE}}))
        self._calls[index] = place, []

    def _end_call(self, part: ToolCall, place: Body, pieces: list[str]) -> None:
        """A call that was sent as it came is complete: what of it was not, such as members that its end told."""
        sent, rest = "".join(pieces), dict(place)
        if not part.arguments.startswith(sent):
            self._rendering.lose(f"{part.at}.arguments", "approximated", CHANGED)
            self._message.cut = True
        elif len(part.arguments) > len(sent):
            rest["function"] = {"arguments": part.arguments[len(sent) :]}
        self._rendering.put_extra(rest, part.extra, part.at)
        if rest != place:
            self._out.append(self._chunk_of % encoded(_of_call(rest)))
        self._message.order.call(part, part.arguments)

    # The end.

    def _cut(self, call: ToolCall, index: int) -> None:
        self._message.put(self._message.deltas(call, cut=True))

    def _finish(self, end: MessageEnd) -> None:
        check_end(end.finish_reason)
        for index in list(self._calls):
            self._end(PartEnd(index, None))
        last, message = self.rendering(end.origin), self._message
        reason = message.end(last, end.finish_reason)
        rest = {} if last.foreign else members_in(end.extra.get("choices"))
        if self._response is None:
            if not (message.calls or message.speaks):
                self._out.append(self._chunk_of % b'{"content":""}')
            delta = members_in(rest.pop("message", None))
            choice: Body = {"index": self._reply.choice, "delta": delta, "finish_reason": reason}
        else:
            choice = {"index": index_of(rest, self._reply.choice), "message": message.body(), "finish_reason": reason}
            if "content" in members_in(rest.get("message")):
                choice["message"]["content"] = choice["message"]["content"] or None
        merge(choice, rest)
        if self._response is not None:
            choice["message"].setdefault("annotations", [])
            if self._response.logprobs:
                choice["logprobs"] = logprobs_of(chain.from_iterable(self._response.logprobs.values()))
        choice.setdefault("logprobs", None)
        lose_stop(last, end.stop_sequence, choice)
        self.put_end(last, end, choice)


def join_choices(bodies: Sequence[bytes]) -> bytes:
    """Several answers to one request as one: the first of them, with the choices of all."""
    joined: Body = dict(read_object(bodies[0]))
    joined["choices"] = [choice for body in bodies for choice in read_list(read_object(body)["choices"])]
    return encoded(joined)


def logprobs_of(tokens: Iterable[TokenLogprob]) -> Body:
    """The log probabilities of a choice, or of a piece of one: those of its content."""
    return {"content": list(tokens), "refusal": None}


def _of_call(entry: Body) -> Body:
    """A delta of one call."""
    return {"tool_calls": [entry]}
