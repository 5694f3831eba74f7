"""Owns streams of JSON chunks that end with `[DONE]`, whatever the chunks say: how they are read and how they end.

A stream is over with its `[DONE]`, or where the body ends behind a finish reason, because some servers send no
`[DONE]`. A finish reason behind which the answer went on was none, so there only `[DONE]` ends it. Anything else that
ends it is an UpstreamError, and so is an `error` in a chunk. What comes behind its end is an issue of that.
"""

from __future__ import annotations

import json
from abc import abstractmethod
from typing import Any, ClassVar

import msgspec
from msgspec import UNSET, UnsetType

from turnscript.apis.api import leftover
from turnscript.apis.shared.answers import Counts, Gathered, only_first, read_usage
from turnscript.apis.shared.stream_reader import Answer
from turnscript.core.conversation import Extra, Issue, Request, Response
from turnscript.core.error_object import error_frame, upstream_error
from turnscript.core.errors import InvalidRequest, TurnscriptError, UpstreamError
from turnscript.core.json_text import Json, read_object
from turnscript.core.sse import comment, frame
from turnscript.core.unread_stream import DONE
from turnscript.core.wire import Reader

_SHOWN = 2000
_NULL = Json(b"null")


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
        """Return a whole answer, which is a chunk that says all. Raises the same as a chunk."""
        self.add_chunk(body)
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


class ChoiceAnswer(ChunkAnswer):
    """An answer in choices, of which the first is read. Members without a name wait in the `extra` of the response:
    those of the choice under `choices`, those of the usage under `usage`.

    `read` reads a chunk, and a whole answer, of which `counts` names the token counts and `kept` the members that have
    no name in the model. `is_whole`: it comes in one piece.
    """

    read: ClassVar[Reader[Any]]
    counts: ClassVar[Counts]
    kept: ClassVar[tuple[str, ...]]

    def __init__(self, is_whole: bool = False) -> None:
        super().__init__()
        self.is_whole = is_whole
        self.rest = Gathered()  # of the choice
        self._others: set[int] = set()  # the indexes of the choices that are not read
        self._head: list[Json | UnsetType] = []  # what the last chunk said of the answer
        self._usage_rest: Extra = {}
        self._usage_issues: list[Issue] = []  # of the last usage, which is the one that counts

    @abstractmethod
    def choose(self, choice: Any) -> None:
        """Take what a chunk says of the first choice."""

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

    def add_chunk(self, chunk: Json) -> None:
        self.add(self.checked(chunk))

    def add(self, answer: Any) -> None:
        """Take a chunk, or a whole answer, that is read."""
        self.said.id = self.said.id or answer.id or None
        self.said.model = self.said.model or answer.model or None
        for choice in answer.choices or ():
            if choice.index:
                self._others.add(choice.index)
            else:
                self.choose(choice)
        if answer.usage is not UNSET and answer.usage != _NULL:
            self.said.usage, self._usage_rest, self._usage_issues = read_usage(answer.usage, "$.usage", self.counts)
        head = [getattr(answer, key) for key in self.kept]
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
        if self.reason is None:
            return
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


class ChunkEnding:
    """How a stream of chunks ends. Whoever writes one sets `_ended` with its last chunk."""

    takes_comments = True
    _ended = False
    _failed = False  # or closed: nothing may follow
    _now: int | None = None  # the part that was told last, while more of it may be

    def idle(self) -> bytes:
        """A comment, which keeps the connection alive; nothing behind the end."""
        return b"" if self._failed or self._ended else comment("keepalive")

    def fail(self, error: TurnscriptError) -> bytes:
        """The error as the last event. Nothing follows it, no `[DONE]` either. Nothing at all behind a good end."""
        if self._failed or self._ended:
            return b""
        self._failed, self._now = True, None
        return error_frame(error)

    def close(self) -> bytes:
        """`[DONE]`; or an error, where the events broke off before their end."""
        if self._failed:
            return b""
        if not self._ended:
            return self.fail(UpstreamError("the answer broke off before its end", retryable=True))
        self._failed = True
        return frame(DONE)
