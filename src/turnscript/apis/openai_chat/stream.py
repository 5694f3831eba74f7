"""Owns reading answers: a whole one, and a stream of chunks, both piece by piece in the same way.

Members without a name wait in the `extra` of the response: those of the choice and its message under `choices`, those
of the usage under `usage`.
"""

from __future__ import annotations

from msgspec import UNSET, UnsetType

from turnscript.apis.api import Head, leftover
from turnscript.apis.openai_chat.answer import (
    COUNTS,
    LEGACY_CALL,
    ORIGIN,
    REASONING,
    Answer,
    Choice,
    Piece,
    read_answer,
)
from turnscript.apis.openai_chat.content import parts_of, thought_of
from turnscript.apis.openai_chat.lanes import Lanes
from turnscript.apis.openai_chat.objects import kept
from turnscript.apis.shared.answers import Gathered, head_of, only_first, read_usage
from turnscript.apis.shared.chunk_streams import ChunkAnswer
from turnscript.core.conversation import Extra, Issue, Refusal, Text, Usage
from turnscript.core.error_object import upstream_error
from turnscript.core.errors import InvalidRequest
from turnscript.core.events import MessageEnd
from turnscript.core.finish_reasons import CALLED, STOP
from turnscript.core.json_text import Json, plain
from turnscript.core.source_paths import says_nothing
from turnscript.core.wire import Wire

_NULL = Json(b"null")
_EMPTY = (_NULL, Json(b"[]"))
_SAYS = ("content", "refusal", "reasoning_content", "tool_calls", "function_call")
"""The members of a delta that are content; a piece that says nothing has them empty, null or not at all."""


def _says(piece: Piece | None) -> bool:
    return any(getattr(piece, member, None) for member in _SAYS)


class Assembly(ChunkAnswer):
    """One answer, as its pieces arrive. `whole`: in one piece."""

    def __init__(self, whole: bool = False) -> None:
        super().__init__()
        self._lanes = Lanes(self._told)
        self._whole = whole
        self._thoughts: list[str] = []  # in `reasoning_content`: some servers say all of it again in `reasoning`
        self.twice = False  # whether they did
        self._others: set[int] = set()  # the indexes of the choices that are not read
        self._id: str | None = None
        self._model: str | None = None
        self._stop: str | None = None
        self._usage: Usage | None = None
        self._extra: Extra = {}
        self._head: tuple[Json | UnsetType, ...] = ()  # what the last chunk said of the answer
        self._usage_rest: Extra = {}
        self._usage_issues: list[Issue] = []  # of the last usage, which is the one that counts
        self._choice_rest = Gathered()
        self._message_rest = Gathered(texts=True)

    def head(self) -> Head:
        return head_of(self._id, self._model, self._extra, self._usage)

    def add_chunk(self, chunk: Json) -> None:
        answer = read_checked(chunk)
        if not isinstance(answer.choices, list) and answer.usage in (UNSET, _NULL):
            expected = "a list of choices"
            raise InvalidRequest(f"required, but missing; expected {expected}", path="$.choices", expected=expected)
        self.add(answer)

    def add(self, answer: Answer) -> None:
        """A chunk, or a whole answer."""
        self._id = self._id or answer.id or None
        self._model = self._model or answer.model or None
        for choice in answer.choices or ():
            if choice.index:
                self._others.add(choice.index)
            else:
                self._choice(choice)
        if answer.usage is not UNSET and answer.usage != _NULL:
            self._usage, self._usage_rest, self._usage_issues = read_usage(answer.usage, "$.usage", COUNTS)
        head = (answer.object, answer.created, answer.system_fingerprint, answer.service_tier, answer.error)
        if head != self._head or answer.rest:
            self._head = head
            self._keep(kept(answer, "object", "created", "system_fingerprint", "service_tier", "error"))

    def _keep(self, members: Extra) -> None:
        """The unnamed members of the answer. A `usage` among them is null and says nothing."""
        for key, value in members.items():
            if key != "usage" and (value != _NULL or key not in self._extra):
                self._extra[key] = Json(bytes(value))

    def finish(self) -> MessageEnd:
        lanes = self._lanes
        if self._others:
            found = only_first(self._others)
            lanes.issue(found.kind, found.detail)
        reason = CALLED if self.reason == LEGACY_CALL else self.reason
        if reason is None:
            lanes.issue("no_finish_reason", "the server did not say why the answer ended")
        lanes.finish(reason)
        if reason == CALLED and not lanes.called:
            lanes.issue("missing_call", "the answer ended for a call of a tool, and there is none in it")
        choice, message = self._choice_rest.joined(), self._message_rest.joined()
        self.twice = REASONING in message and plain(message[REASONING]) == "".join(self._thoughts)
        if self.twice:
            del message[REASONING]
        if message:
            choice["message"] = leftover(message)
        if choice:
            self._extra["choices"] = leftover(choice)
        if self._usage_rest:
            self._extra["usage"] = leftover(self._usage_rest)
        end = MessageEnd(reason, self._stop, self._usage, lanes.issues + self._usage_issues)
        end.id, end.model, end.extra, end.origin = self._id, self._model, self._extra, ORIGIN
        return end

    def _choice(self, choice: Choice) -> None:
        piece = self._told_in(choice)
        if self.reason is not None:
            self._late(choice, piece)
        if piece is not None:
            self._piece(piece, whole=piece is choice.message)
        elif not (choice.finish_reason or choice.rest):
            self._lanes.issue("missing_delta", "the server sent a chunk that says nothing")
        self.reason = choice.finish_reason or self.reason
        if choice.finish_reason == STOP:
            for value in (choice.stop_reason, choice.matched_stop):
                if value is not UNSET and bytes(value)[:1] == b'"':
                    self._stop = plain(value)
        self._choice_rest.add(_said(choice, "logprobs", "stop_reason", "matched_stop"))

    def _told_in(self, choice: Choice) -> Piece | None:
        """What a choice says: its message in a whole answer, its delta in a chunk.

        Some servers send both: chunks with all that was said so far beside the delta, answers with an empty delta. One
        that says all at once where a stream was asked for has nothing in the delta.
        """
        first, second = (choice.message, choice.delta) if self._whole else (choice.delta, choice.message)
        if not isinstance(second, Piece):
            return first if isinstance(first, Piece) else None
        if not isinstance(first, Piece) or not (_says(first) or self._lanes.began or not _says(second)):
            return second
        return first

    def _late(self, choice: Choice, piece: Piece | None) -> None:
        """Something behind the end: it is read, but the end may have been none, or this another answer's."""
        if _says(piece):
            self.late = True
            self._lanes.issue("late_content", "the answer went on behind its finish_reason")
        if choice.finish_reason and choice.finish_reason != self.reason:
            told = f"the finish_reason {self.reason!r} was followed by {choice.finish_reason!r}, which counts"
            self._lanes.issue("changed_reason", told)

    def _piece(self, piece: Piece, whole: bool) -> None:
        lanes = self._lanes
        rest = [(name, value) for name, value in _said(piece, "annotations", "audio") if not _no_sound(name, value)]
        if isinstance(piece.reasoning_content, str):
            lanes.add("reasoning_content", piece.reasoning_content)
            self._thoughts += [piece.reasoning_content] if piece.reasoning_content else []
        if piece.reasoning is not UNSET:
            if bytes(piece.reasoning)[:1] == b'"' and not self._thoughts:
                lanes.add("reasoning", plain(piece.reasoning))
            elif piece.reasoning != _NULL:
                rest.append(("reasoning", piece.reasoning))
        self._content(piece, whole)
        if isinstance(piece.refusal, str):
            lanes.add("refusal", piece.refusal)
        for place, call in enumerate(piece.tool_calls or ()):
            lanes.call(call, place, whole)
        if piece.function_call and (piece.function_call.name or piece.function_call.arguments):
            lanes.legacy_call(piece.function_call)
        self._message_rest.add(rest)

    def _content(self, piece: Piece, whole: bool) -> None:
        content = piece.content
        if whole and content == "" and (piece.tool_calls or piece.function_call or piece.refusal):
            self._lanes.add_part(Text(text=""))  # in a stream it is how every message begins, and says nothing
        if isinstance(content, str):
            self._lanes.add("content", content)
            return
        for part in parts_of(content):
            thought = thought_of(part, "$.choices[0].message.content")
            if thought is not None:
                self._lanes.think(thought, whole)
            elif isinstance(part, Text) and not part.extra:
                self._lanes.add("content", part.text)
            elif isinstance(part, Refusal) and not part.extra:
                self._lanes.add("refusal", part.text)
            else:
                self._lanes.add_part(part)


def read_checked(body: Json) -> Answer:
    """A chunk or a whole answer. Raises UpstreamError if it is an error."""
    answer = read_answer(body, "$")
    if isinstance(answer.error, Json) and answer.error != _NULL:
        raise upstream_error(answer.error, body)
    return answer


def _no_sound(name: str, value: Json) -> bool:
    return name == "audio" and says_nothing(value)


def _said(wire: Wire, *names: str) -> list[tuple[str, Json]]:
    """The unnamed members, without those that say nothing: an official member that is null or an empty list."""
    said: list[tuple[str, Json]] = []
    if wire.rest:  # where a null of a member with a name may be as well
        official = type(wire).__struct_fields__
        said += [(name, value) for name, value in wire.rest.items() if name not in official or value not in _EMPTY]
    for name in names:
        value = getattr(wire, name)
        if value is not UNSET and value not in _EMPTY:
            said.append((name, value))
    return said
