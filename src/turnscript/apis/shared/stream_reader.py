"""Owns reading an answer of any API, whole or as a stream: how its parts are put together, and the loop around frames.

How bytes are cut into frames is one thing (`core.framing`), and what a frame says is an API's: an `Answer` takes the
frames one by one, and tells the parts that it opens, appends to and closes.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from typing import ClassVar

from turnscript.apis.api import Head
from turnscript.apis.shared.answers import head_of
from turnscript.core.conversation import Issue, Item, Response
from turnscript.core.errors import UpstreamError
from turnscript.core.events import Event, MessageEnd, PartDelta, PartEnd, PartStart, fold
from turnscript.core.framing import SSE, Framing, frames_of
from turnscript.core.unread_stream import Behind


class Parts:
    """The parts of an answer as `events`, and what is not as it should be in it, each thing once. `count`: of parts."""

    __slots__ = ("_issues", "_origin", "count", "events")

    def __init__(self, origin: str) -> None:
        self.events: list[Event] = []
        self.count = 0
        self._origin = origin
        self._issues: dict[tuple[str, str], Issue] = {}

    @property
    def issues(self) -> list[Issue]:
        """Return all that was noted."""
        return list(self._issues.values())

    def open(self, head: Item, text: str = "", index: int | None = None) -> int:
        """Begin a part, with the first of its text, and return its index: the next one, if none was kept for it."""
        if index is None:
            index, self.count = self.count, self.count + 1
        self.events.append(PartStart(index, head, origin=self._origin))
        self.append(index, text)
        return index

    def append(self, index: int, text: str) -> None:
        """Tell more of a part."""
        if text:
            self.events.append(PartDelta(index, text))

    def close(self, index: int, part: Item | None) -> None:
        """End a part: `part` is all of it, and None where it came to nothing."""
        self.events.append(PartEnd(index, part, origin=self._origin))

    def note(self, issue: Issue, about: str = "") -> None:
        """Note what is odd, unless that was noted of the same thing: `about`, or else its detail."""
        self._issues.setdefault((issue.kind, about or issue.detail), issue)


class Answer(ABC):
    """One answer, as its frames arrive. `said`: what it has said of itself, which is told with its end; `ending`: that,
    once it was told as the last of the events."""

    origin: ClassVar[str]

    def __init__(self) -> None:
        self.said = MessageEnd(origin=self.origin)
        self.ending: MessageEnd | None = None
        self.parts = Parts(self.origin)

    @abstractmethod
    def take(self, name: str, data: str) -> None:
        """Take one more frame: the name of its event, empty where it has none, and its data. Raises UpstreamError."""

    @abstractmethod
    def close(self, stray: str) -> None:
        """End an answer whose stream is over without an end, or raise UpstreamError. `stray`: the beginning of what was
        no frame."""

    @abstractmethod
    def salvage(self) -> None:
        """End an answer whose stream failed with what can be kept of it; one that never began says nothing."""

    def head(self) -> Head:
        """Return what the answer has said of itself so far."""
        return head_of(self.said.id, self.said.model, self.said.extra, self.said.usage)

    def events(self) -> list[Event]:
        """Return what is certain since the last time."""
        events = self.parts.events[:]
        self.parts.events.clear()
        return events

    def end(self, issues: Iterable[Issue] = ()) -> None:
        """Tell the end of the message. `issues`: more than those of its parts."""
        self.said.issues = [*self.parts.issues, *issues]
        self.ending = self.said
        self.parts.events.append(self.said)

    def response(self) -> Response:
        """Return all that was told, of an answer that came whole."""
        response = fold(self.parts.events)
        response.raw = None
        return response


class StreamReader:
    """Reads a stream of frames into an answer. An error that comes behind events waits for the next call, so that they
    are not lost. `framings`: how it may be framed; `idle`: the name of frames that say nothing but that the server is
    alive."""

    def __init__(self, answer: Answer, framings: Sequence[Framing] = (SSE,), idle: str = "") -> None:
        self._answer = answer
        self._frames = frames_of(framings)
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
