"""Owns what of a streamed answer is not read: what stands behind its end, and lines that are none of an event.

It is counted and shown in the issues of the end. That has been told by then, because nobody can wait for what most
servers never send. So its list of issues is what learns of it, and has all of it once the parser is closed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from turnscript.core.conversation import Issue
from turnscript.core.errors import UpstreamError
from turnscript.core.framing import Frames

BEHIND = "behind_the_end"
"""The kind of the issue."""

HALF = "half_character"
"""The kind of the issue of half a character, which no text can hold: it is left out."""

STRAY = "stray_line"
"""The kind of the issue of a line that is no field of an event, or of an event without data. What it was to say, such
as a text, is missing."""

DONE = "[DONE]"
"""What most streams end with, whatever their API; some end with it twice."""

_SHOWN = 200


class Behind:
    """Takes what still comes of a stream whose answer is over. `issues`: those of its end; `idle`: the name of events
    that say nothing but that the server is alive."""

    def __init__(self, reader: Frames, issues: list[Issue], idle: str = "") -> None:
        self._reader = reader
        self._issues = issues
        self._idle = idle
        self._count = 0
        self._first = ""
        self._told: Issue | None = None
        self._broken = self._strayed = False
        self._half, self._half_at = "", len(issues)
        self._note_half()
        self._note_stray()

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
        self._note_half()
        self._note_stray()

    def _add(self, text: str) -> None:
        self._first = self._first or text[:_SHOWN]
        self._count += 1
        what = "1 event stands" if self._count == 1 else f"{self._count} events stand"
        are, which = ("is", "") if self._count == 1 else ("are", "the first: ")
        shown = f"; {which}{self._first}" if self._first else ""
        self._put(Issue(BEHIND, f"{what} behind the end of the answer, and {are} not read{shown}"))

    def _put(self, issue: Issue) -> None:
        """Say it where the last one was said. The list is not ours alone: others may have added to it since."""
        at, self._told = self._place(), issue
        self._issues[at : at + 1] = [issue]

    def _note_half(self) -> None:
        """Say what half is left now: however the stream was cut, the end of all decides."""
        half = self._reader.half
        if half != self._half:
            said = [Issue(HALF, f"the server sent half of a character and not the other half: {half}")] if half else []
            self._issues[self._half_at : self._half_at + bool(self._half)] = said
            self._half = half

    def _note_stray(self) -> None:
        """Say it once, and before what is said of events behind the end: however the stream was cut."""
        if self._reader.stray and not self._strayed:
            self._strayed = True
            detail = f"the server sent what is no event, and is not read: {self._reader.stray}"
            self._issues.insert(self._place(), Issue(STRAY, detail))

    def _place(self) -> int:
        """Where the last issue of events behind the end stands; behind all, if there is none."""
        count = len(self._issues)
        return next((at for at in reversed(range(count)) if self._issues[at] is self._told), count)
