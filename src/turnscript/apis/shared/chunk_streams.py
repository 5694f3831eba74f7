"""Owns streams of JSON chunks that end with `[DONE]`, whatever the chunks say: how they are read and how they end.

A stream is over with its `[DONE]`, or where the body ends behind a finish reason, because some servers send no
`[DONE]`. A finish reason behind which the answer went on was none, so there only `[DONE]` ends it. Anything else that
ends it is an UpstreamError, and so is an `error` in a chunk. What comes behind its end is an issue of that.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from typing import Any

import msgspec

from turnscript.apis.api import Head
from turnscript.core.conversation import Request
from turnscript.core.error_object import error_frame, upstream_error
from turnscript.core.errors import InvalidRequest, TurnscriptError, UpstreamError
from turnscript.core.events import Event, MessageEnd
from turnscript.core.json_text import Json, read_object
from turnscript.core.sse import comment, frame
from turnscript.core.unread_stream import DONE

_SHOWN = 2000


class ChunkAnswer(ABC):
    """An answer that comes in chunks, `reason` why it ended, once that was said, and `late` whether it went on behind
    that. APIs say what a chunk and the end tell."""

    def __init__(self) -> None:
        self.ending: MessageEnd | None = None
        self.reason: str | None = None
        self.late = False
        self._begun = False
        self._told: list[Event] = []

    @abstractmethod
    def head(self) -> Head:
        """Return what the chunks have said of themselves so far."""

    @abstractmethod
    def add_chunk(self, chunk: Json) -> None:
        """Take a chunk. Raises InvalidRequest for one that cannot be read, UpstreamError for one that is an error."""

    @abstractmethod
    def finish(self) -> MessageEnd:
        """End the answer: tell the last events but one, and return that, the message's end."""

    def events(self) -> list[Event]:
        """Return what is certain since the last time."""
        events = self._told[:]
        self._told.clear()
        return events

    def take(self, name: str, data: str) -> None:
        """Take a frame: a chunk, the end, or an error."""
        if data.strip() == DONE:
            if not self._begun:
                raise UpstreamError("the server ended the stream before an answer began", retryable=True)
            self.end()
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
        """End an answer without `[DONE]`, if it said why it ended."""
        if self.reason is None or self.late:
            what = "in the middle of the answer" if self._begun else "before an answer began"
            raise UpstreamError(f"the server ended the stream {what}", body=stray, retryable=True)
        self.end()

    def salvage(self) -> None:
        """End an answer that failed, without a reason that was none."""
        if self._begun:
            self.reason = None if self.late else self.reason
            self.end()

    def end(self) -> list[Event]:
        """End the answer, and return all events that nobody has taken."""
        self.ending = self.finish()
        self._told.append(self.ending)
        return self._told


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
