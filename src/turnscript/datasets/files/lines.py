"""Owns JSON Lines: every line that is not blank is a row, whatever is on it.

A line ends with a line feed, and a carriage return before that belongs to the end; nothing else ends a line. A piece
holds the lines that begin in it, so a line that goes on behind its end is read to the line's end.
"""

from __future__ import annotations

from collections.abc import Iterator

from turnscript.datasets.files.rowbytes import Gathered, Rows, head, too_large, truncated
from turnscript.datasets.files.streams import BOM, Broken, Compression, blocks
from turnscript.datasets.rows import RawRow

_SLACK = len(BOM) + 1
"""What a line may have more than its row: a mark in front, and a carriage return behind."""


class Lines:
    """Reads the lines of a piece."""

    def __init__(self, file: str, compression: Compression, start: int, end: int, limit: int) -> None:
        self._file = file
        self._compression = compression
        self._start = start
        self._end = end
        self._limit = limit
        self._number = 0
        self._byte = 0
        self._pending = Gathered(limit + _SLACK)
        self._source: Iterator[bytes] = iter(())

    def rows(self, counter: Rows) -> Iterator[RawRow]:
        """Give the rows. Broken bytes give one row more, with what was read of it."""
        self._byte = self._begin()
        if 0 <= self._end <= self._byte:
            return
        self._source = blocks(self._file, self._compression, self._byte, counter)
        try:
            for block in self._own():
                yield from self._of_block(block)
            if self._pending.size:
                self._complete()
                yield from self._finish()
        except Broken as error:
            self._number += 1
            row = self._pending.bytes()
            row = head(row, self._limit) if self._pending.over else row
            yield RawRow(self._file, self._number, self._byte, row, truncated(str(error)))
        counter.numbers = self._number

    def _begin(self) -> int:
        """Return where the first line begins that begins in this piece; the piece's end or more if there is none."""
        if self._start <= 0:
            return 0
        position = self._start - 1  # a line that begins at `start` has its predecessor's end there
        for block in blocks(self._file, self._compression, position):
            found = block.find(b"\n")
            if found >= 0:
                return position + found + 1
            position += len(block)
            if 0 <= self._end <= position:
                break
        return position

    def _own(self) -> Iterator[bytes]:
        """Give the blocks up to the end of the piece. The rest of the last is kept for the line that goes on."""
        left = self._end - self._byte if self._end >= 0 else -1
        for block in self._source:
            if 0 <= left <= len(block):
                self._source = _chain(block[left:], self._source)
                yield block[:left]
                return
            left -= len(block) if left >= 0 else 0
            yield block

    def _of_block(self, block: bytes) -> Iterator[RawRow]:
        """Give the rows that end in a block. The hot path: every step here is paid for each row."""
        find = block.find  # `split` looks at one byte after the other
        end = find(b"\n")
        if end < 0:
            self._pending.add(block)
            return
        self._pending.add(block[:end])
        yield from self._finish()
        file, number, byte, limit = self._file, self._number, self._byte, self._limit
        start = end + 1
        while (end := find(b"\n", start)) >= 0:
            line, start = block[start:end], end + 1
            number += 1
            size = len(line)
            row = line[:-1] if line.endswith(b"\r") else line
            if size > limit and len(row) > limit:
                yield RawRow(file, number, byte, head(row, limit), too_large(limit))
            elif row and not row.isspace():
                yield RawRow(file, number, byte, row)
            byte += size + 1
        self._number, self._byte = number, byte
        self._pending.add(block[start:])

    def _complete(self) -> None:
        """Add the rest of a line that goes on behind the piece. There is no need to see the end of one too large."""
        for block in self._source:
            found = block.find(b"\n")
            self._pending.add(block if found < 0 else block[:found])
            if found >= 0 or self._pending.over:
                return

    def _finish(self) -> Iterator[RawRow]:
        """Give the row of the line that is pending now, unless it is blank."""
        pending, byte = self._pending, self._byte
        self._pending = Gathered(self._limit + _SLACK)
        self._number += 1
        self._byte += pending.size + 1
        row = pending.bytes()
        if byte == 0 and row.startswith(BOM):
            row, byte = row[len(BOM) :], len(BOM)
        if not pending.over:
            row = row.removesuffix(b"\r")
        if pending.over or len(row) > self._limit:
            yield RawRow(self._file, self._number, byte, head(row, self._limit), too_large(self._limit))
        elif row and not row.isspace():
            yield RawRow(self._file, self._number, byte, row)


def _chain(first: bytes, rest: Iterator[bytes]) -> Iterator[bytes]:
    if first:
        yield first
    yield from rest
