"""Owns answers in JSON chunks that end with `[DONE]`, whatever the chunks say: how they are read, written and end.

A stream is over with its `[DONE]`, or where the body ends behind a finish reason, because some servers send no
`[DONE]`. A finish reason behind which the answer went on was none, so there only `[DONE]` ends it. Anything else that
ends it is an UpstreamError, and so is an `error` in a chunk. What comes behind its end is an issue of that.
"""

from __future__ import annotations

import json
from abc import abstractmethod
from collections.abc import Callable, Iterable
from operator import attrgetter
from typing import Any, ClassVar

import msgspec
from msgspec import UNSET, UnsetType

from turnscript.apis.api import OFFICIAL, Api, Body, Rendering, Reply, leftover
from turnscript.apis.shared.answers import (
    Counts,
    Gathered,
    lose_foreign,
    lose_id,
    lose_usage,
    made_id,
    of_each_choice,
    only_first,
    read_usage,
    tier_of,
    write_usage,
)
from turnscript.apis.streams import Answer, StreamRenderer, created_of
from turnscript.core.conversation import Conversation, Extra, Issue, Item, Request, Response, Usage
from turnscript.core.error_object import encoded as encoded_error
from turnscript.core.error_object import error_body, error_frame, upstream_error
from turnscript.core.errors import InvalidRequest, TurnscriptError, UpstreamError
from turnscript.core.events import MessageEnd
from turnscript.core.finish_reasons import STOP
from turnscript.core.json_text import Json, members_in, plain, read_object
from turnscript.core.losses import Loss
from turnscript.core.payloads import Source
from turnscript.core.sse import frame
from turnscript.core.unread_stream import DONE
from turnscript.core.wire import Reader, Wire

_SHOWN = 2000
_NULL = Json(b"null")
_EMPTY = (_NULL, Json(b"[]"))


class ChunkAnswer(Answer):
    """An answer that comes in chunks, `reason` why it ended, once that was said, and `late` whether it went on behind
    that. APIs say what a chunk and the end tell."""

    def __init__(self) -> None:
        super().__init__()
        self.reason: str | None = None
        self.late = False
        self._begun = False

    @abstractmethod
    def add_chunk(self, chunk: Json) -> None:
        """Take a chunk. Raises InvalidRequest for one that cannot be read, UpstreamError for one that is an error."""

    @abstractmethod
    def finish(self) -> None:
        """End the answer: close its parts, and tell the end of the message."""

    def whole(self, body: Json) -> Response:
        self.add_chunk(body)  # a chunk that says all
        self.finish()
        return self.response()

    def take(self, name: str, data: str) -> None:
        if data.strip() == DONE:
            if not self._begun:
                raise UpstreamError("the server ended the stream before an answer began", retryable=True)
            self.finish()
            return
        chunk = Json(data)
        try:
            if name == "error":
                raise upstream_error(chunk, data)
            self.add_chunk(chunk)
        except InvalidRequest as error:
            message = f"the server sent a chunk that cannot be read: {error}"
            raise UpstreamError(message, body=data[:_SHOWN]) from error
        self._begun = True

    def close(self, stray: str) -> None:
        if self.reason is None or self.late:
            what = "in the middle of the answer" if self._begun else "before an answer began"
            raise UpstreamError(f"the server ended the stream {what}", body=stray, retryable=True)
        self.finish()

    def salvage(self) -> None:
        if self._begun:
            self.reason = None if self.late else self.reason
            self.finish()


class ToldChoice(Wire):
    """Holds what a choice says alike in all APIs of choices, in a whole answer or in a chunk."""

    index: int | UnsetType | None = UNSET
    finish_reason: str | UnsetType | None = UNSET
    logprobs: Json | UnsetType = UNSET
    stop_reason: Json | UnsetType = UNSET
    matched_stop: Json | UnsetType = UNSET


class Told(Wire):
    """Holds what a whole answer or a chunk says alike in these APIs, around its choices."""

    id: str | UnsetType | None = UNSET
    object: Json | UnsetType = UNSET
    created: Json | UnsetType = UNSET
    model: str | UnsetType | None = UNSET
    usage: Json | UnsetType = UNSET
    error: Json | UnsetType = UNSET
    system_fingerprint: Json | UnsetType = UNSET


STOPS = ("stop_reason", "matched_stop")
"""The member for a stop string that was met, as two servers name it."""


def said_by(wire: Wire, *names: str) -> list[tuple[str, Json]]:
    """Return the unnamed members, without those that say nothing: an official member that is null or an empty list."""
    said: list[tuple[str, Json]] = []
    if wire.rest:  # where a null of a member with a name may be as well
        official = type(wire).__struct_fields__
        said += [(name, value) for name, value in wire.rest.items() if name not in official or value not in _EMPTY]
    for name in names:
        value = getattr(wire, name)
        if value is not UNSET and value not in _EMPTY:
            said.append((name, value))
    return said


class ChoiceAnswer(ChunkAnswer):
    """An answer in choices, of which the first is read. Members without a name wait in the `extra` of the response:
    those of the choice under `choices`, those of the usage under `usage`.

    `read` reads a chunk, and a whole answer, of which `counts` names the token counts and `kept` the members that have
    no name in the model. `is_whole`: it came in one piece.
    """

    read: ClassVar[Reader[Any]]
    counts: ClassVar[Counts]
    kept: ClassVar[tuple[str, ...]] = ("object", "created", "system_fingerprint", "error")

    def __init__(self) -> None:
        super().__init__()
        self.is_whole = False
        self.rest = Gathered()  # of the choice
        self._others: set[int] = set()  # the indexes of the choices that are not read
        self._head_of: Callable[[Any], tuple[Json | UnsetType, ...]] = attrgetter(*self.kept)
        self._head: tuple[Json | UnsetType, ...] = ()  # what the last chunk said of the answer
        self._usage_rest: Extra = {}
        self._usage_issues: list[Issue] = []  # of the last usage, which is the one that counts

    @abstractmethod
    def choose(self, choice: Any) -> None:
        """Take what a chunk says in the first choice."""

    def checked(self, chunk: Json) -> Any:
        """Return a chunk, or a whole answer, that is read."""
        answer = self.read(chunk, "$")
        if isinstance(answer.error, Json) and answer.error != _NULL:
            raise upstream_error(answer.error, chunk)
        if not answer.choices and (self.is_whole or (answer.choices != [] and answer.usage in (UNSET, _NULL))):
            empty, expected = " or empty" if self.is_whole else "", "a list of choices"
            message = f"required, but missing{empty}; expected {expected}"
            raise InvalidRequest(message, path="$.choices", expected=expected)
        return answer

    def whole(self, body: Json) -> Response:
        self.is_whole = True
        answer = self.checked(body)
        for place, choice in enumerate(answer.choices):
            choice.index = place
        self.add(answer)
        self.finish()
        return self.completed(self.response(), answer.choices[0])

    def completed(self, response: Response, choice: Any) -> Response:
        """Return an answer that came whole, with what only that says. Raises InvalidRequest for what is none."""
        return response

    def add_chunk(self, chunk: Json) -> None:
        self.add(self.checked(chunk))

    def add(self, answer: Any) -> None:
        """Take a chunk, or a whole answer, that is read."""
        self.said.id = self.said.id or answer.id or None
        self.said.model = self.said.model or answer.model or None
        for choice in answer.choices or ():
            if choice.index:
                self._others.add(choice.index)
                continue
            self.choose(choice)
            self.rest.add(said_by(choice, "logprobs", *STOPS))
            if choice.finish_reason == STOP:
                for value in (choice.stop_reason, choice.matched_stop):
                    if value is not UNSET and bytes(value)[:1] == b'"':
                        self.said.stop_sequence = plain(value)
            self.reason = choice.finish_reason or self.reason
        if answer.usage is not UNSET and answer.usage != _NULL:
            self.said.usage, self._usage_rest, self._usage_issues = read_usage(answer.usage, "$.usage", self.counts)
        head = self._head_of(answer)
        if head != self._head or answer.rest:
            self._head = head
            told = [*(answer.rest or {}).items(), *zip(self.kept, head, strict=True)]
            self._keep([(key, value) for key, value in told if value is not UNSET and key != "usage"])

    def _keep(self, members: list[tuple[str, Json]]) -> None:
        """Keep the unnamed members of the answer. A `usage` among them is null and says nothing."""
        for key, value in members:
            if value != _NULL or key not in self.said.extra:
                self.said.extra[key] = Json(bytes(value))

    def note(self, kind: str, detail: str) -> None:
        """Note what is not as it should be."""
        self.parts.note(Issue(kind, detail))

    def finish(self) -> None:
        if self._others:
            self.parts.note(only_first(self._others))
        if self.reason is None:
            self.note("no_finish_reason", "the server did not say why the answer ended")
        self.said.finish_reason = self.reason
        if choice := self.conclude():
            self.said.extra["choices"] = leftover(choice)
        if self._usage_rest:
            self.said.extra["usage"] = leftover(self._usage_rest)
        self.end(self._usage_issues)

    @abstractmethod
    def conclude(self) -> Extra:
        """Close all parts, and return the unnamed members of the choice."""

    def note_late(self, reason: str | UnsetType | None, *, says: bool) -> None:
        """Note what comes behind a reason: it is read, but the end may have been none, or this another answer's.

        `reason`: one more; `says`: whether there is any content.
        """
        if says:
            self.late = True
            self.note("late_content", "the answer went on behind its finish_reason")
        if reason and reason != self.reason:
            told = f"the finish_reason {self.reason!r} was followed by {reason!r}, which counts"
            self.note("changed_reason", told)


def asks_usage(request: Request) -> bool:
    """Whether the client wants token counts at the end of a stream."""
    options = request.settings.stream_options
    if options is None or bytes(options)[:1] != b"{":
        return False
    asked = read_object(options).get("include_usage")
    return asked is not None and bytes(asked) == b"true"


_encode = msgspec.json.Encoder().encode


def encoded(value: Any) -> bytes:
    """A chunk, or a text in one, as JSON; half of a surrogate pair, which no UTF-8 can hold, as an escape."""
    try:
        return _encode(value)
    except UnicodeEncodeError:
        return json.dumps(value, default=_plain).encode()


def _plain(value: Any) -> Any:
    return json.loads(bytes(value))


class ChunkWriter(StreamRenderer):
    """Writes an answer as chunks, or whole. `id`: the answer's, which begins with `prefix` where it is made up."""

    prefix: ClassVar[str] = ""

    def __init__(self, api: Api, request: Request, reply: Reply, response: Response | None = None) -> None:
        super().__init__(response)
        self.losses: list[Loss] = []
        self.id = reply.id or ("" if response is not None else made_id(self.prefix, request))
        self._api = api
        self._request = request
        self._reply = reply
        cut = [] if response is None or response.cut is None else [response.cut]
        items = [] if response is None else response.items
        self._rendering = self.rendering(None if response is None else response.origin, [*items, *cut])

    def rendering(self, origin: str | None, items: Iterable[Item] = ()) -> Rendering:
        """A rendering that reports to `losses`, for what came from an API, or from none."""
        request = Request(conversation=Conversation(items=list(items)), origin=origin)
        rendering = self._api.rendering(request, OFFICIAL, {})
        rendering.unplaced = self._api.unplaced.in_answers
        rendering.losses = self.losses
        return rendering

    def whole_id(self, response: Response, said: object = None) -> str:
        """The id of a whole answer: the server's, its own, or one made of all that it says."""
        named = self.id or response.id
        if named:
            return named
        items = [(type(item).__name__, getattr(item, "arguments", None) or item) for item in response.items]
        return made_id(self.prefix, self._request, items if said is None else said)

    def _fail(self, error: TurnscriptError) -> None:
        self._out.append(error_frame(error))

    def _tail(self) -> bytes:
        return frame(DONE)


class ChoiceWriter(ChunkWriter):
    """Writes an answer in choices, as chunks or whole, which are called `objects`. `counts` names the token counts, and
    `tiers` are the words for how an answer is served, where there is a place for one."""

    counts: ClassVar[Counts]
    objects: ClassVar[tuple[str, str]]
    tiers: ClassVar[frozenset[str]] = frozenset()

    def __init__(self, api: Api, request: Request, reply: Reply, response: Response | None = None) -> None:
        super().__init__(api, request, reply, response)
        self.created = reply.created or 0
        self._asked_usage = asks_usage(request)

    def chunk(self, choices: list[Body]) -> Body:
        """A chunk. If the client asked for counts, they are null in all but the last."""
        model = self._request.settings.model or ""
        body = {"id": self.id, "object": self.objects[1], "created": self.created, "model": model, "choices": choices}
        return body | {"usage": None} if self._asked_usage else body

    def put_end(self, rendering: Rendering, end: MessageEnd, choice: Body, said: object = None) -> None:
        """Write the end of an answer with the last of its choice. `said`: what it says, if its items do not."""
        response = self._response
        if response is not None:
            self._body = self._whole(rendering, end, choice, self.whole_id(response, said))
            return
        if self._reply.id is None:
            lose_id(rendering, end.id, self.id)
        body = self.chunk([choice])
        self._put_top(rendering, body, end)
        self._out.append(frame(encoded(body)))
        if end.usage is not None and self._asked_usage:
            counts = self._usage(rendering, end.usage, end.extra)
            self._out.append(frame(encoded(self.chunk([]) | {"usage": counts})))
        elif end.usage is not None:
            rendering.lose("$.usage", "dropped", "the client did not ask for it in a stream")

    def _whole(self, rendering: Rendering, end: MessageEnd, choice: Body, id_: str) -> Body:
        extra = end.extra
        created: Any = (created_of(extra) or 0) if rendering.foreign else extra.get("created", 0)
        body: Body = {
            "id": id_,
            "object": self.objects[0],
            "created": created if self._reply.created is None else self._reply.created,
            "model": self._request.settings.model or end.model or "",
            "choices": [choice],
        }
        if end.usage is not None:
            body["usage"] = self._usage(rendering, end.usage, extra)
        self._put_top(rendering, body, end)
        return body

    def _usage(self, rendering: Rendering, usage: Usage, extra: Extra) -> Body:
        return write_usage(usage, {} if rendering.foreign else members_in(extra.get("usage")), self.counts)

    def _put_top(self, rendering: Rendering, body: Body, said: MessageEnd) -> None:
        """Write the unnamed members of the body, or report them."""
        extra = {key: value for key, value in said.extra.items() if key != "object"}
        if rendering.foreign:
            tier = tier_of(extra, self.tiers)
            if tier is not None:
                body["service_tier"] = tier
            lose_foreign(rendering.losses, rendering.target, extra, said.usage, body)
            return
        lose_usage(rendering.losses, said.usage, extra)
        for key, value in extra.items():
            if key != "usage":  # which is written already
                body.setdefault(key, value)


def lose_stop(rendering: Rendering, stop: str | None, choice: Body) -> None:
    """Report which stop string was met, where the choice does not say it."""
    if stop is not None and choice.keys().isdisjoint(STOPS):
        rendering.lose("$.stop_sequence", "dropped", "which stop string was met cannot be said here")


class ChoiceApi(Api):
    """An API of choices, of which a reader reads one."""

    def parse_responses(self, body: Source) -> list[Response]:
        """An answer for each choice."""
        return of_each_choice(body, self.parse_response)

    def render_error(self, error: TurnscriptError, *, request_id: str | None = None) -> tuple[int, bytes]:
        """Status and body of an error."""
        status, body = error_body(error)
        return status, encoded_error(body)
