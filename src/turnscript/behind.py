"""Owns what stands behind the end of a streamed answer: it is counted and shown in the issues of that end, not read.

The end has been told by then, because nobody can wait for what most servers never send. So its list of issues is what
learns of it, and has all of it once the parser is closed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from turnscript.conversation import Issue
from turnscript.errors import UpstreamError
from turnscript.sse import SseReader

BEHIND = "behind_the_end"
"""The kind of the issue."""

HALF = "half_character"
"""The kind of the issue of half a character, which no text can hold: it is left out."""

DONE = "[DONE]"
"""What most streams end with, whatever their API; some end with it twice."""

_SHOWN = 200


class Behind:
    """Takes what still comes of a stream whose answer is over. `issues`: those of its end; `idle`: the name of events
    that say nothing but that the server is alive."""

    def __init__(self, reader: SseReader, issues: list[Issue], idle: str = "") -> None:
        self._reader = reader
        self._issues = issues
        self._idle = idle
        self._count = 0
        self._first = ""
        self._told: Issue | None = None
        self._broken = False
        if reader.half:
            issues.append(Issue(HALF, f"the server sent half of a character and not the other half: {reader.half}"))

    def feed(self, data: bytes) -> None:
        """More bytes. None of them can fail any more."""
        self._read(lambda: self._reader.feed(data))

    def close(self) -> None:
        """The stream is over."""
        self._read(self._reader.close)

    def note(self, events: Iterable[tuple[str, str]]) -> None:
        """Some events."""
        for name, text in events:
            if text.strip() != DONE and (not name or name != self._idle):
                self._add(text)

    def _read(self, read: Callable[[], list[tuple[str, str]]]) -> None:
        if self._broken:
            return
        try:
            self.note(read())
        except UpstreamError as error:
            self._broken = True
            self._add(error.body)

    def _add(self, text: str) -> None:
        self._first = self._first or text[:_SHOWN]
        self._count += 1
        what = "1 event stands" if self._count == 1 else f"{self._count} events stand"
        are, which = ("is", "") if self._count == 1 else ("are", "the first: ")
        shown = f"; {which}{self._first}" if self._first else ""
        self._put(Issue(BEHIND, f"{what} behind the end of the answer, and {are} not read{shown}"))

    def _put(self, issue: Issue) -> None:
        """Say it where the last one was said. The list is not ours alone: others may have added to it since."""
        last, self._told = self._told, issue
        at = next((at for at in reversed(range(len(self._issues))) if self._issues[at] is last), None)
        if at is None:
            self._issues.append(issue)
        else:
            self._issues[at] = issue
