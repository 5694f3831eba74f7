"""Owns how the frames of a stream stand on the wire: server-sent events, or the elements of one JSON array.

What a frame says is an API's. Which framings its streams may have, and which one a request asks for, an API says too.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Protocol

from msgspec import Struct

from turnscript.core.errors import UpstreamError
from turnscript.core.split_characters import Halves
from turnscript.core.sse import LIMIT, SseReader, comment


class Frames(Protocol):
    """Cuts the bytes of a stream into frames: pairs of a name, which may be empty, and data.

    `stray`: the beginning of what was no frame. `half`: half of a character whose other half has not come.
    """

    @property
    def stray(self) -> str: ...

    @property
    def half(self) -> str: ...

    def feed(self, data: bytes) -> list[tuple[str, str]]: ...

    def close(self) -> list[tuple[str, str]]: ...


class Framing(Struct, frozen=True):
    """One way to put frames on a wire.

    `media_type`: what a server says of the bytes. `reader`: what cuts them, wherever they come apart. `begins`: what
    the first of them look like. `between`: where a recording can be cut without a look at what it says: behind frames.
    `mends`: the reader takes a last frame whose end is missing. `comment`: bytes for people, which no reader takes for
    a frame; nothing where the wire has no place for them.
    """

    media_type: str
    reader: Callable[[], Frames]
    begins: re.Pattern[bytes]
    between: re.Pattern[bytes]
    mends: bool
    comment: Callable[[str], bytes]


class ArrayReader:
    """Cuts one JSON array into its elements, which are objects. Each byte is looked at once; memory is one element.

    Raises UpstreamError for an element that is no UTF-8, or of more than `LIMIT` bytes, and so does every call after
    it; but never in the call that completes an element, so that none is lost.
    """

    def __init__(self) -> None:
        self.stray = ""
        self._pieces: list[bytes] = []  # of the element that has begun
        self._size = self._depth = 0
        self._quoted = self._escaped = False
        self._between = b""  # the beginning of what stands outside all elements
        self._halves = Halves()
        self._error: UpstreamError | None = None

    @property
    def half(self) -> str:
        """Return half of a character whose other half has not come."""
        return self._halves.waiting

    def feed(self, data: bytes) -> list[tuple[str, str]]:
        """Take more bytes; return the elements that are complete now."""
        if self._error is not None:
            raise self._error
        found: list[tuple[str, str]] = []
        try:
            self._cut(data, found)
        except UpstreamError as error:
            self._error = error
            if not found:
                raise
        return found

    def _cut(self, data: bytes, found: list[tuple[str, str]]) -> None:
        start = 0  # of what is neither kept nor told
        at = 1 if self._escaped else 0
        self._escaped = False
        while (sign := (_IN_STRING if self._quoted else _OUTSIDE).search(data, at)) is not None:
            at, char = sign.end(), sign[0]
            if char == b"\\":
                self._escaped = at == len(data)
                at += 1
            elif char == b'"':
                self._quoted = not self._quoted
            elif char in b"{[":
                self._depth += 1
                if self._depth <= _OUTER:
                    self._pass(data[start : sign.start()])
                    self._note()
                    start = sign.start()
            else:
                self._depth -= 1
                if self._depth == 1:
                    found.append(("", self._joined(data[start:at])))
                    start = at
                elif self._depth < 1:
                    self._pass(data[start : sign.start()])
                    self._note()
                    self._depth, start = 0, at
        self._keep(data[start:])

    def close(self) -> list[tuple[str, str]]:
        """End the stream. An element without its end is none."""
        if self._error is not None:
            raise self._error
        if self._depth < _OUTER:
            self._note()
        return []

    def _keep(self, rest: bytes) -> None:
        if self._depth < _OUTER:
            self._pass(rest)
            return
        self._pieces.append(rest)
        self._size += len(rest)
        if self._size > LIMIT:
            raise UpstreamError(f"the server sent one chunk of more than {LIMIT} bytes; the stream was given up")

    def _pass(self, outside: bytes) -> None:
        more = outside if self._between else outside.lstrip(_NOTHING)
        self._between = (self._between + more[:_SHOWN])[:_SHOWN]

    def _note(self) -> None:
        said, self._between = self._between.strip(_NOTHING), b""
        if said and not self.stray:
            self.stray = said.decode(errors="replace")

    def _joined(self, last: bytes) -> str:
        whole = b"".join([*self._pieces, last])
        self._pieces, self._size = [], 0
        try:
            text = whole.decode()
        except UnicodeDecodeError:
            shown = whole[:_SHOWN].decode(errors="replace")
            raise UpstreamError("the server sent bytes that are no UTF-8", body=shown) from None
        return self._halves.mended(text)


_OUTER = 2
"""An element stands at this depth, in the array and in its own braces; all that is less deep is outside of it."""
_SHOWN = 200
_NOTHING = b" \t\r\n,[]"
_IN_STRING = re.compile(rb'["\\]')
_OUTSIDE = re.compile(rb'["{}\[\]]')


def _nothing(_: str) -> bytes:
    return b""


SSE = Framing(
    "text/event-stream; charset=utf-8",
    SseReader,
    re.compile(rb"(?:\xef\xbb\xbf)?\s*(?:data|event|id|retry)?:"),
    re.compile(rb"\r?\n\r?\n|\r\r"),
    mends=True,
    comment=comment,
)
"""Server-sent events."""

JSON_ARRAY = Framing(
    "application/json",
    ArrayReader,
    re.compile(rb"(?:\xef\xbb\xbf)?\s*\["),
    re.compile(rb"\n"),
    mends=False,
    comment=_nothing,
)
"""One JSON array, whose elements come one by one."""


class _FirstSeen:
    """Cuts a stream that has one of several framings: of the one that it begins as, else of the first."""

    def __init__(self, framings: Sequence[Framing]) -> None:
        self._framings = framings
        self._begun = b""
        self._frames: Frames | None = None

    @property
    def stray(self) -> str:
        return "" if self._frames is None else self._frames.stray

    @property
    def half(self) -> str:
        return "" if self._frames is None else self._frames.half

    def feed(self, data: bytes) -> list[tuple[str, str]]:
        """Take more bytes; return the frames that are complete now."""
        if self._frames is not None:
            return self._frames.feed(data)
        if type(data) is bytes:
            data = self._begun + data
            if says_nothing(data):
                self._begun = data
                return []
        self._frames = framing_of(data, self._framings).reader()
        return self._frames.feed(data)

    def close(self) -> list[tuple[str, str]]:
        """End the stream."""
        return [] if self._frames is None else self._frames.close()


_MARK = b"\xef\xbb\xbf"


def says_nothing(data: bytes | bytearray) -> bool:
    """Return whether bytes at the beginning of a stream do not show yet how it is framed: blanks, or part of a mark."""
    return _MARK.startswith(data) or not data.removeprefix(_MARK).strip()


def framing_of(data: bytes, framings: Sequence[Framing]) -> Framing:
    """Return the one of several framings that bytes begin as; the first one if they begin as none."""
    first, *others = framings
    return next((one for one in others if type(data) is bytes and one.begins.match(data)), first)


def frames_of(framings: Sequence[Framing]) -> Frames:
    """Return what cuts a stream that has one of these framings."""
    return framings[0].reader() if len(framings) == 1 else _FirstSeen(framings)
