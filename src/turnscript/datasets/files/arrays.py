"""Owns arrays: files that are one JSON array, or an object with one, whose elements are the rows.

An array is never held whole: its elements are cut out while it streams by. The rows before a fault are kept, and the
fault is a row of its own; where the next element would begin is anybody's guess, so nothing behind it is read.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from turnscript.datasets.files.rowbytes import HEAD, Gathered, Rows, head, too_large, truncated
from turnscript.datasets.files.scanning import SPACE, At, Elements
from turnscript.datasets.files.streams import BOM, Broken, Compression, blocks
from turnscript.datasets.problems import Code, Problem
from turnscript.datasets.rows import RawRow

_MEMBERS = rb"data|rows|examples|records|items|instances|samples|dataset"
_STRING = rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"'
_PLAIN = rb"\s*+" + _STRING + rb"\s*+:\s*+(?:" + _STRING + rb"|[-+.\w]++)\s*+"
_WRAPPER = re.compile(rb"\s*+\{(?:" + _PLAIN + rb',)*\s*+"(?:' + _MEMBERS + rb')"\s*+:\s*+(?=\[\s*+[\[{])', re.DOTALL)
_WRAPPER_END = re.compile(rb"\s*+(?>(?:," + _PLAIN + rb")*)\}\s*+", re.DOTALL)
FRONT = 1 << 16
"""In so many bytes the array of an object must begin, and behind it the object must end."""

ONE_A_LINE = "put each value on a line of its own: jq -c . FILE > FILE.jsonl"
_FAULTS = {
    At.START: "a JSON array is expected here",
    At.FIRST: "an element of the array is expected here",
    At.ELEMENT: "behind a comma, an element of the array is expected here",
    At.BEHIND: "a comma or the end of the array is expected here",
    At.CLOSED: f"there is more behind the array; if these are several values, {ONE_A_LINE}",
}
_BEHIND_WRAPPED = "behind the array of rows, this object has more than plain values; make a file of the array alone"
_LOST = "what follows is not read"


def front_size(front: bytes) -> int:
    """Return how many bytes come before the array of rows, if a file begins as an object with one; else -1.

    Such an object has plain values beside the array and no second structure: `{"object": "list", "data": [{...}]}`.
    """
    found = _WRAPPER.match(front, 0, FRONT)
    return found.end() if found else -1


class Array:
    """Reads the elements of an array, or of a piece of one: such a piece begins and ends where an element begins.

    `wrapped`: the array is the member of an object.
    """

    def __init__(self, file: str, compression: Compression, limit: int, *, wrapped: bool = False) -> None:
        self._file = file
        self._compression = compression
        self._limit = limit
        self._wrapped = wrapped
        self._scanner = Elements()
        self._source: Iterator[bytes] = iter(())
        self._row = Gathered(limit)
        self._number = 0
        self._byte = 0
        self._position = 0

    def rows(self, start: int, end: int, counter: Rows) -> Iterator[RawRow]:
        """Give the rows from one offset to another, -1 for the end."""
        try:
            self._begin(start, counter)
            for block in self._source:
                own = block[: end - self._position] if end >= 0 else block
                yield from self._of_block(own)
                self._position += len(own)
                if self._scanner.at is At.CLOSED:
                    yield from self._behind(own[self._scanner.place :])
                if self._scanner.at in {At.CLOSED, At.FAULT} or self._position == end:
                    break
            else:
                yield from self._at_end()
        except Broken as error:
            yield self._bad(self._byte, self._kept(), truncated(str(error)))
        counter.numbers = self._number

    def starts(self) -> Iterator[int]:
        """Give where each element begins. It ends at the first fault, and nothing is kept."""
        self._begin(0)
        inside = False
        for block in self._source:
            for start, _ in self._scanner.feed(block):
                if not inside:
                    yield self._position + start
                inside = self._scanner.at is At.INSIDE
            self._position += len(block)
            if self._scanner.at in {At.CLOSED, At.FAULT}:
                return

    def _begin(self, start: int, counter: Rows | None = None) -> None:
        """Open the file, and step over what stands before the array."""
        self._position = self._byte = start
        self._source = blocks(self._file, self._compression, start, counter)
        if start > 0:
            self._scanner = Elements(At.ELEMENT)
            return
        front = b""
        for block in self._source:
            front += block
            if len(front) >= (FRONT if self._wrapped else len(BOM)):
                break
        size = len(BOM) if front.startswith(BOM) else 0
        if self._wrapped:
            size += max(front_size(front[size:]), 0)
        self._position = self._byte = size
        self._source = _chain(front[size:], self._source)

    def _of_block(self, block: bytes) -> Iterator[RawRow]:
        """Give the elements that end in a block. What begins in it is gathered."""
        scanner = self._scanner
        for start, end in scanner.feed(block):
            if self._row.size == 0:
                self._byte = self._position + start
            self._row.add(block[start:end])
            if scanner.at is At.BEHIND:
                yield self._finish()
        if scanner.at is At.FAULT:
            problem = Problem(Code.JSON, f"{_FAULTS[scanner.before]}; {_LOST}")
            yield self._bad(self._position + scanner.place, block[scanner.place :], problem)

    def _finish(self) -> RawRow:
        row, self._row = self._row, Gathered(self._limit)
        if row.over:
            return self._bad(self._byte, head(row.bytes(), self._limit), too_large(self._limit))
        self._number += 1
        return RawRow(self._file, self._number, self._byte, row.bytes())

    def _behind(self, first: bytes) -> Iterator[RawRow]:
        """Give what is wrong behind the array, if anything is."""
        position = self._position - len(first)
        if self._wrapped:
            rest = first
            while len(rest) < FRONT and (block := next(self._source, b"")):
                rest += block
            if not _WRAPPER_END.fullmatch(rest):
                missing = not rest.strip()
                problem = truncated("the object is not closed") if missing else Problem(Code.JSON, _BEHIND_WRAPPED)
                yield self._bad(position, rest, problem)
            return
        for block in _chain(first, self._source):
            space = SPACE.match(block).end()  # type: ignore[union-attr]
            if space < len(block):
                yield self._bad(position + space, block[space:], Problem(Code.JSON, f"{_FAULTS[At.CLOSED]}; {_LOST}"))
                return
            position += len(block)

    def _at_end(self) -> Iterator[RawRow]:
        """Give what is wrong where the file ended: that is right only where nothing was begun."""
        if self._scanner.at is At.START:
            return
        where = "in the middle of this" if self._row.size else "where more of its array is expected"
        byte = self._byte if self._row.size else self._position
        yield self._bad(byte, self._kept(), truncated(f"the file ends {where}"))

    def _kept(self) -> bytes:
        row = self._row.bytes()
        return head(row, self._limit) if self._row.over else row

    def _bad(self, byte: int, row: bytes, problem: Problem) -> RawRow:
        self._number += 1
        kept = row if problem.code is Code.TRUNCATED else row[:HEAD]
        return RawRow(self._file, self._number, byte, kept, problem)


def _chain(first: bytes, rest: Iterator[bytes]) -> Iterator[bytes]:
    if first:
        yield first
    yield from rest
