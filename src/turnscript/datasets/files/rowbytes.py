"""Owns the bytes of a row while they come in, and the iterator over rows that counts them."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from turnscript.datasets.problems import Code, Problem
from turnscript.datasets.rows import RawRow

LIMIT = 64 << 20
"""A row of more bytes is set aside, unless somebody allows more."""
HEAD = 4096
"""So many bytes are kept of a row that is too large."""


class Rows(Iterator[RawRow]):
    """The rows of a piece.

    `numbers`: how many numbers were used up when all rows have been read. It is what to add to the numbers of the
    pieces behind, and can be more than the rows, since blank lines are no rows and yet lines. `taken`: how much of the
    piece was read so far, in what its `size` is in, so before decompression.
    """

    def __init__(self, make: Callable[[Rows], Iterator[RawRow]]) -> None:
        self.numbers = 0
        self.taken = 0
        self._rows = make(self)

    def __iter__(self) -> Iterator[RawRow]:
        """Return the iterator behind this one: a `for` loop then pays for one step a row and not for two."""
        return self._rows

    def __next__(self) -> RawRow:
        return next(self._rows)


class Gathered:
    """The bytes of one row: all of them, or only the beginning of one that is too large.

    `size` is how many there were, kept or not.
    """

    __slots__ = ("_limit", "_parts", "over", "size")

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._parts: list[bytes] = []
        self.over = False
        self.size = 0

    def add(self, part: bytes) -> None:
        self.size += len(part)
        if not self.over:
            self._parts.append(part)
            if self.size > self._limit:
                self.over = True
                self._parts = [self._first(HEAD + 4)]

    def _first(self, count: int) -> bytes:
        """Return the first bytes, without joining all of them, which would take as much memory again."""
        found = b""
        for part in self._parts:
            found += part[:count]
            if len(found) >= count:
                break
        return found[:count]

    def bytes(self) -> bytes:
        return b"".join(self._parts)


def head(row: bytes, limit: int) -> bytes:
    """Return what is kept of a row that is too large. It is all row, whatever of the row and its end was read."""
    return row[: min(HEAD, limit)]


def too_large(limit: int, *, whole: bool = False) -> Problem:
    """Return the problem of a row that has more bytes. `whole`: it is all of its file."""
    shown = f"{limit >> 20} MiB" if limit >= 1 << 20 and limit % (1 << 20) == 0 else f"{limit} bytes"
    row = "the whole file is one row here, and a row" if whole else "a row"
    return Problem(Code.ROW_SIZE, f"{row} may have {shown}, and this has more; split it, or leave it out")


def truncated(reason: str) -> Problem:
    return Problem(Code.TRUNCATED, f"{reason}; what follows is lost: fetch or make the file again")
