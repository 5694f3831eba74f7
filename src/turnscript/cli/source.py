"""Owns the input: a file or standard input, read whole as one document or line by line as JSON Lines."""

from __future__ import annotations

import io
import os
import re
import stat
import sys
from collections import deque
from collections.abc import Iterator
from pathlib import PurePath
from types import TracebackType
from typing import IO, cast

from msgspec import Struct

from turnscript.cli.failures import Failed, reading
from turnscript.cli.output import STREAM
from turnscript.convert.registry import stream_begun
from turnscript.core.errors import InvalidInput
from turnscript.core.json_text import read_list, read_object

_PIECE = 1 << 16
_STATUS = re.compile(rb"HTTP/\d(?:\.\d)? (\d{3})\b([^\r\n]*)")
SUFFIXES = frozenset({".jsonl", ".ndjson"})


class Row(Struct):
    """One line of JSON Lines that is not blank: its number, where it begins, and its bytes without the line ending."""

    line: int
    byte: int
    data: bytes


class Status(Struct):
    """How an HTTP answer begins: `HTTP/1.1 429 Too Many Requests`."""

    code: int
    reason: str

    @property
    def is_good(self) -> bool:
        """Whether what was asked for follows."""
        return 200 <= self.code < 300

    def __str__(self) -> str:
        return f"HTTP {self.code} {self.reason}".rstrip()


class Source:
    """An input. `name` is how messages call it, `size` its length where that is known beforehand.

    `is_live` says that more may arrive while we work, so that results should not wait in a buffer.
    """

    def __init__(self, path: str) -> None:
        self._path = path
        self._seen: deque[bytes] = deque()
        self.name = "<stdin>" if path == STREAM else path
        self._guard = reading(self.name)
        with self._guard:
            self._file = _standard_input() if path == STREAM else open(path, "rb")  # noqa: SIM115  (closed by `with`)
            self.is_terminal = self._file.isatty()
            status = _status(self._file)
        is_plain = status is not None and stat.S_ISREG(status.st_mode)
        self.size = status.st_size if status is not None and is_plain else None
        self.is_live = status is not None and not is_plain

    def __enter__(self) -> Source:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        if self._path != STREAM:
            self._file.close()

    def has_rows(self) -> bool:
        """Whether this is JSON Lines: by the name of the file, or because a second line follows a whole JSON value."""
        if PurePath(self._path).suffix.lower() in SUFFIXES:
            return True
        first = self._first()
        return first is not None and _is_json(first) and self._peek() is not None

    def skip_head(self) -> Status | None:
        """Leave out the head of an HTTP answer, as `curl -i` prints it before the body: the last, if there are several.

        Gives its status. Empty lines stand for it, so that all others keep their numbers.
        """
        status = None
        while line := self._line():
            found = _STATUS.match(line)
            if found is None:
                self._seen.append(line)
                break
            status = Status(int(found[1]), found[2].decode("ascii", "replace").strip())
            while line and line.strip():
                self._seen.append(b"\n")
                line = self._line()
            self._seen.append(line)
        return status

    def whole(self) -> bytes:
        """Everything."""
        with self._guard:
            rest = self._file.read()
        return b"".join([*self._seen, rest])

    def is_stream(self) -> bool:
        """Return whether this is a recorded stream, by the lines that it begins with, which are kept for later."""
        seen, enough = b"".join(self._seen), 0
        while True:
            if len(seen) >= enough:  # twice as much each time, or short lines are looked at again and again
                told, enough = stream_begun(seen), 2 * len(seen)
                if told is not None:
                    return told
            line = self._line()
            if not line:
                return stream_begun(seen) or False
            self._seen.append(line)
            seen += line

    def pieces(self, size: int | None = None) -> Iterator[bytes]:
        """Everything: what is there, and then what comes; in pieces of `size` bytes if that is given."""
        file = cast("io.BufferedReader", self._file)
        seen, self._seen = b"".join(self._seen), deque()
        while True:
            data = seen
            if not data:
                with self._guard:
                    data = file.read1(_PIECE)
            if not data:
                return
            seen = b""
            step = size or len(data)
            yield from (data[start : start + step] for start in range(0, len(data), step))

    def rows(self) -> Iterator[Row]:
        """Line by line; never more than one line in memory."""
        byte = 0
        for number, line in enumerate(self._lines(), 1):
            data = line.rstrip(b"\r\n")
            if data.strip():
                yield Row(number, byte, data)
            byte += len(line)

    def _lines(self) -> Iterator[bytes]:
        while self._seen:
            yield self._seen.popleft()
        while line := self._line():
            yield line

    def _first(self) -> bytes | None:
        """The first line that is not blank, kept for later."""
        return next((line for line in self._seen if line.strip()), None) or self._peek()

    def _peek(self) -> bytes | None:
        """The next line that is not blank, kept for later."""
        while line := self._line():
            self._seen.append(line)
            if line.strip():
                return line
        return None

    def _line(self) -> bytes:
        with self._guard:
            return self._file.readline()


def _standard_input() -> IO[bytes]:
    if sys.stdin is None:
        raise Failed("standard input is closed", remedy="give a file")
    return sys.stdin.buffer


def _status(file: IO[bytes]) -> os.stat_result | None:
    """What the system knows about an open file; nothing where it is not a real one."""
    try:
        return os.fstat(file.fileno())
    except (OSError, ValueError):
        return None


def _is_json(line: bytes) -> bool:
    text = line.removeprefix(b"\xef\xbb\xbf").strip()
    read = {b"{": read_object, b"[": read_list}.get(text[:1])
    if read is None:
        return False
    try:
        read(text)
    except InvalidInput:
        return False
    return True
