"""Owns answers of any API, read and written: the loops around frames and events, and whole ones as their fold.

How bytes are cut into frames is one thing (`core.framing`), and what a frame says is an API's: an `Answer` takes the
frames one by one, and tells the parts that it opens, appends to and closes. A whole body is a stream of one piece, and
`fold` makes the response of what that tells.

A `StreamRenderer` is told parts and an end, and sends what an API says of each. A whole body is the same with parts
that come complete: what is said of them is put together, and not sent.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, ClassVar

from msgspec import Struct

from turnscript.core.conversation import Extra, Issue, Item, Response, ToolCall, Usage
from turnscript.core.errors import TurnscriptError, UpstreamError
from turnscript.core.events import (
    Event,
    MessageEnd,
    PartDelta,
    PartEnd,
    PartStart,
    end_of,
    fold,
    no_event,
)
from turnscript.core.framing import SSE, Framing, frames_of
from turnscript.core.json_text import Json, read_count
from turnscript.core.losses import Loss
from turnscript.core.sse import comment
from turnscript.core.unread_stream import Behind

# Reading.


class Head(Struct):
    """Holds what a stream has said of itself before it tells anything. `created`: Unix seconds."""

    id: str | None = None
    model: str | None = None
    created: int | None = None
    usage: Usage | None = None


CREATED = ("created", "created_at")
"""The members that say when an answer was made, in any API."""


def created_of(extra: Extra) -> int | None:
    """Return when an answer was made, in seconds."""
    said = [read_count(extra[name]) for name in CREATED if name in extra]
    return next((one for one in said if one is not None), None)


def head_of(said: MessageEnd | Response) -> Head:
    """Return what a stream says of itself, where all its chunks say it: `extra` holds their other members."""
    return Head(said.id, said.model, created_of(said.extra), said.usage)


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
    once it was told as the last of the events. `idle`: the name of frames that say nothing but that the server is
    alive."""

    origin: ClassVar[str]
    idle: ClassVar[str] = ""

    def __init__(self) -> None:
        self.said = MessageEnd(origin=self.origin)
        self.ending: MessageEnd | None = None
        self.parts = Parts(self.origin)

    @abstractmethod
    def whole(self, body: Json) -> Response:
        """Return an answer that comes in one piece: the fold of what that tells. Raises InvalidRequest for what is no
        answer, UpstreamError for an error."""

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
        return head_of(self.said)

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


class StreamParser:
    """Reads a stream of an API, in any of its framings and cut anywhere, as events. Raises UpstreamError for what
    cannot be read; one that comes behind events waits for the next call, so that they are not lost.

    What comes behind the end of the answer is not read. Until `close`, the issues of that end may learn of it.
    """

    def __init__(self, answer: Answer, framings: Sequence[Framing] = (SSE,)) -> None:
        self._answer = answer
        self._frames = frames_of(framings)
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
        """End the stream. One that ends in the middle is an UpstreamError, never a success."""
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
        """Return what can be kept of a stream that failed: the ends of the parts that are open, without calls that are
        not whole, and of the message, without a reason. Nothing where no answer had begun."""
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
            self._behind = Behind(self._frames, self._answer.ending.issues, self._answer.idle)
            self._behind.note(rest)


# Writing.


class StreamRenderer(ABC):
    """Writes events as the framed bytes of an API, or a whole answer as its body. `losses`: what it could not say, in
    the words of the model; `answer_in_source_words` says where it stood.

    What waiting costs is the server's to decide: `start` and `idle` have no part in what is told. `response`: the
    answer, where it is written whole.
    """

    framing: Framing = SSE
    losses: list[Loss]

    def __init__(self, response: Response | None = None) -> None:
        self._response = response
        self._body: dict[str, Any] = {}  # of a whole answer, once it is told
        self._out: list[bytes] = []  # what is to be sent next
        self._began = False
        self._over = False  # all was told, or an error
        self._closed = False
        self._now: int | None = None  # the part that is told as it comes, as long as more of it may come

    @abstractmethod
    def _begin(self) -> None:
        """The answer begins."""

    @abstractmethod
    def _start(self, event: PartStart) -> None:
        """A part begins."""

    @abstractmethod
    def _delta(self, event: PartDelta) -> None:
        """More of a part, or of its next text."""

    @abstractmethod
    def _end(self, event: PartEnd) -> None:
        """A part is complete, or came to nothing."""

    @abstractmethod
    def _finish(self, end: MessageEnd) -> None:
        """The answer is over. Raises UpstreamError for one that failed."""

    @abstractmethod
    def _fail(self, error: TurnscriptError) -> None:
        """An error is the last that is told."""

    @abstractmethod
    def _cut(self, call: ToolCall, index: int) -> None:
        """A whole answer ends in this call."""

    def answer(self) -> dict[str, Any]:
        """Return the body of the whole answer. Raises UpstreamError for one that failed."""
        response = self._response
        assert response is not None
        for index, item in enumerate(response.items):
            self._part_over(PartEnd(index, item, origin=response.origin))
        if response.cut is not None:
            self._cut(response.cut, len(response.items))
        self._finish(end_of(response))
        return self._body

    def start(self) -> bytes:
        """Return the bytes before the first event: that the answer has begun. Once; `send` sends them if nobody has."""
        self._begin_once()
        return self._taken()

    def send(self, events: Iterable[Event]) -> bytes:
        """Return the bytes for some events. Nothing once the answer is over."""
        self._begin_once()
        for event in events:
            self._take(event)
        return self._taken()

    def _begin_once(self) -> None:
        if not (self._began or self._over):
            self._began = True
            self._begin()

    def _take(self, event: Event) -> None:
        if self._over:
            return
        if isinstance(event, PartDelta):
            self._delta(event)
        elif isinstance(event, PartStart):
            self._start(event)
        elif isinstance(event, PartEnd):
            self._part_over(event)
        elif isinstance(event, MessageEnd):
            self._conclude(event)
        else:
            raise no_event("a stream is sent", [event])

    def idle(self) -> bytes:
        """Return a sign of life, for while the model has nothing to say: nothing where the stream could take none."""
        return b"" if self._over else self._alive()

    def _alive(self) -> bytes:
        return comment("keepalive")

    def fail(self, error: TurnscriptError) -> bytes:
        """Return the bytes that end the stream because of an error, in the API's own shape; never those of a good end,
        and nothing behind one."""
        if self._over:
            return b""
        self._broken_off(error)
        return self._taken()

    def close(self) -> bytes:
        """Return the bytes behind the last event; an error, where the events broke off before it."""
        if self._closed:
            return b""
        if not self._over:
            return self.fail(UpstreamError("the answer broke off before its end", retryable=True))
        self._closed = True
        return self._tail()

    def _tail(self) -> bytes:
        return b""

    def _part_over(self, event: PartEnd) -> None:
        if event.part is not None:
            event.part.at = event.part.at or f"items[{event.index}]"
        self._end(event)

    def _conclude(self, end: MessageEnd) -> None:
        try:
            self._finish(end)
        except UpstreamError as error:
            self._broken_off(error)
        self._over, self._now = True, None

    def _broken_off(self, error: TurnscriptError) -> None:
        self._over, self._closed, self._now = True, True, None
        self._fail(error)

    def _taken(self) -> bytes:
        data = b"".join(self._out)
        self._out.clear()
        return data
