"""Owns reading a stream of any API: the loop around its frames, its errors, its end, and what stands behind that.

How bytes are cut into frames is one thing (server-sent events, if nothing else is said), and what a frame says is an
API's: an `Answer` takes the frames one by one and says what is certain.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

from turnscript.apis.api import Head
from turnscript.core.errors import UpstreamError
from turnscript.core.events import Event, MessageEnd
from turnscript.core.sse import SseReader
from turnscript.core.unread_stream import Behind, Frames


class Answer(Protocol):
    """One answer, as its frames arrive."""

    ending: MessageEnd | None
    """The message's end, once it was told: it is the last of the events."""

    def head(self) -> Head:
        """Return what the answer has said of itself so far."""
        ...

    def take(self, name: str, data: str) -> None:
        """Take one more frame: the name of its event, empty where it has none, and its data. Raises UpstreamError."""
        ...

    def events(self) -> list[Event]:
        """Return what is certain since the last time."""
        ...

    def close(self, stray: str) -> None:
        """End an answer whose stream is over without an end, or raise UpstreamError. `stray`: the beginning of what was
        no frame."""
        ...

    def salvage(self) -> None:
        """End an answer whose stream failed with what can be kept of it; one that never began says nothing."""
        ...


class StreamReader:
    """Reads a stream of frames into an answer. An error that comes behind events waits for the next call, so that they
    are not lost. `idle`: the name of frames that say nothing but that the server is alive."""

    def __init__(self, answer: Answer, frames: Frames | None = None, idle: str = "") -> None:
        self._answer = answer
        self._frames = SseReader() if frames is None else frames
        self._idle = idle
        self._behind: Behind | None = None  # once the answer is over
        self._error: UpstreamError | None = None

    def head(self) -> Head:
        """Return what the stream has said of itself so far."""
        return self._answer.head()

    def feed(self, data: bytes) -> list[Event]:
        """Take more bytes; return the events that are certain now."""
        if self._error is not None:
            raise self._error
        if self._behind is not None:
            self._behind.feed(data)
            return []
        try:
            self._take(iter(self._frames.feed(data)))
        except UpstreamError as error:
            self._error = error
            events = self._answer.events()
            if not events:
                raise
            return events
        return self._answer.events()

    def close(self) -> list[Event]:
        """End the stream. Raises UpstreamError if it did not come to its end."""
        if self._error is not None:
            raise self._error
        if self._behind is not None:
            self._behind.close()
            return []
        try:
            self._take(iter(self._frames.close()))
            if self._answer.ending is None:
                self._answer.close(self._frames.stray)
                self._end(iter(()))
        except UpstreamError as error:
            self._error = error
            raise
        return self._answer.events()

    def salvage(self) -> list[Event]:
        """Return what can be kept of a stream that failed: the ends of its parts, without a call that is not whole."""
        if self._answer.ending is not None:
            return []
        self._answer.salvage()
        self._end(iter(()))
        return self._answer.events()

    def _take(self, told: Iterator[tuple[str, str]]) -> None:
        for name, data in told:
            self._answer.take(name, data)
            if self._answer.ending is not None:
                self._end(told)

    def _end(self, rest: Iterator[tuple[str, str]]) -> None:
        """Look at nothing more, where the answer is over. `rest`: frames that came with its end, behind it."""
        if self._answer.ending is not None:
            self._behind = Behind(self._frames, self._answer.ending.issues, self._idle)
            self._behind.note(rest)
