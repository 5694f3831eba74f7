"""Owns streams of JSON chunks that end with `[DONE]`: the loop around whatever the chunks say.

A stream is over with its `[DONE]`, or where the body ends behind a finish reason, because some servers send no
`[DONE]`. A finish reason behind which the answer went on was none, so there only `[DONE]` ends it. Anything else that
ends it is an UpstreamError, and so is an `error` in a chunk. What comes behind its end is an issue of that.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any, Protocol

import msgspec

from turnscript.apis.api import Head
from turnscript.core.conversation import Request
from turnscript.core.error_object import error_frame, upstream_error
from turnscript.core.errors import InvalidRequest, TurnscriptError, UpstreamError
from turnscript.core.events import Event, MessageEnd
from turnscript.core.json_text import Json, read_object
from turnscript.core.sse import SseReader, comment, frame
from turnscript.core.unread_stream import DONE, Behind

_SHOWN = 2000


class Assembly(Protocol):
    """One answer, as its chunks arrive."""

    reason: str | None
    """Why it ended, once that was said."""
    late: bool
    """Whether the answer went on behind that."""

    def head(self) -> Head:
        """What the chunks have said of themselves so far."""
        ...

    def take(self, chunk: Json) -> None:
        """One more chunk. Raises InvalidRequest for one that cannot be read, UpstreamError for one that is an error."""
        ...

    def events(self) -> list[Event]:
        """What is certain since the last time."""
        ...

    def end(self) -> list[Event]:
        """The answer is over: the last events, and the message's end as the last of them."""
        ...


class ChunkParser:
    """Reads a stream of chunks into an assembly. An error that comes behind events waits for the next call, so that
    they are not lost."""

    def __init__(self, answer: Assembly) -> None:
        self._reader = SseReader()
        self._answer = answer
        self._begun = False
        self._behind: Behind | None = None  # once it is over
        self._error: UpstreamError | None = None

    def head(self) -> Head:
        """What the stream has said of itself so far."""
        return self._answer.head()

    def feed(self, data: bytes) -> list[Event]:
        """More bytes. What comes behind the end is not read."""
        if self._error is not None:
            raise self._error
        if self._behind is not None:
            self._behind.feed(data)
            return []
        events: list[Event] = []
        try:
            told = iter(self._reader.feed(data))
            for name, payload in told:
                if self._take(name, payload):
                    events += self._end(told)
                    break
                events += self._answer.events()
        except UpstreamError as error:
            self._error = error
            if not events:
                raise
        return events

    def close(self) -> list[Event]:
        """The body is over."""
        if self._error is not None:
            raise self._error
        if self._behind is not None:
            self._behind.close()
            return []
        try:
            for name, payload in self._reader.close():
                if self._take(name, payload):
                    return self._end()
            if self._answer.reason is None or self._answer.late:
                what = "in the middle of the answer" if self._begun else "before an answer began"
                raise UpstreamError(f"the server ended the stream {what}", body=self._reader.stray, retryable=True)
        except UpstreamError as error:
            self._error = error
            raise
        return self._end()

    def salvage(self) -> list[Event]:
        """What can be kept of a stream that failed."""
        if not self._begun or self._behind is not None:
            return []
        if self._answer.late:
            self._answer.reason = None
        return self._end()

    def _end(self, rest: Iterable[tuple[str, str]] = ()) -> list[Event]:
        """The last events. `rest`: what came with the end, behind it."""
        events = self._answer.end()
        end = events[-1]
        assert isinstance(end, MessageEnd)
        self._behind = Behind(self._reader, end.issues)
        self._behind.note(rest)
        return events

    def _take(self, name: str, payload: str) -> bool:
        """One more event; whether it is the end."""
        if payload.strip() == DONE:
            if not self._begun:
                raise UpstreamError("the server ended the stream before an answer began", retryable=True)
            return True
        chunk = Json(payload)
        try:
            if name == "error":
                raise upstream_error(chunk, payload)
            self._answer.take(chunk)
        except InvalidRequest as error:
            message = f"the server sent a chunk that cannot be read: {error}"
            raise UpstreamError(message, body=payload[:_SHOWN]) from error
        self._begun = True
        return False


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
