"""Owns pieces: the parts of files that are read independently of each other, and cutting files into them."""

from __future__ import annotations

import os

from msgspec import Struct

from turnscript.datasets.files.arrays import Array
from turnscript.datasets.files.container import Container, container_of
from turnscript.datasets.files.parquet import tables
from turnscript.datasets.files.rowbytes import HEAD
from turnscript.datasets.files.streams import Compression, compression_of
from turnscript.datasets.files.troubles import reading


class Piece(Struct, frozen=True):
    """A part of a file, or all of it.

    `start` and `end` are byte offsets, or for Parquet row groups; an end of -1 is that of the file. A row of lines
    belongs to the piece in which it begins; pieces of arrays begin where an element begins. `whole`: all of the file is
    one row. `size` says how much work it is, in bytes.
    """

    file: str
    container: Container
    compression: Compression = Compression.NONE
    start: int = 0
    end: int = -1
    whole: bool = False
    size: int = 0


def cut(path: str, *, whole: bool, target: int) -> list[Piece]:
    """Return a file in pieces of about `target` bytes, in order; at least one. The same file is always cut alike.

    JSON Lines are cut anywhere, which costs nothing. An array is scanned for the elements nearest to the cuts, Parquet
    is cut between row groups. What is compressed, or one row, stays in one piece.
    """
    container, compression = container_of(path), compression_of(path)
    with reading(path):
        size = os.stat(path).st_size
    if whole or compression is not Compression.NONE or container in {Container.OBJECT, Container.TEXT}:
        return [Piece(path, container, compression, whole=whole, size=size)]
    target = max(target, 1)
    if container is Container.PARQUET:
        return _of_groups(path, tables(path).group_sizes(path), target)
    cuts = _even_cuts(size, target)
    if container is not Container.LINES and cuts:
        cuts = _element_cuts(path, cuts, wrapped=container is Container.MEMBER)
    bounds = [0, *cuts, size]
    ends = [*cuts, -1]
    return [
        Piece(path, container, start=start, end=end, size=next_start - start)
        for start, end, next_start in zip(bounds, ends, bounds[1:], strict=False)
    ]


def _even_cuts(size: int, target: int) -> list[int]:
    """Return where to cut so many bytes into pieces of the same size, near to the one wanted."""
    count = max(1, round(size / target))
    return sorted({size * number // count for number in range(1, count)} - {0})


def _element_cuts(path: str, cuts: list[int], *, wrapped: bool) -> list[int]:
    """Return for each cut the first element that begins there or later."""
    found: list[int] = []
    wanted = iter(cuts)
    next_cut = next(wanted, -1)
    for start in Array(path, Compression.NONE, HEAD, wrapped=wrapped).starts():
        if start >= next_cut >= 0:
            found.append(start)
            while 0 <= next_cut <= start:
                next_cut = next(wanted, -1)
        if next_cut < 0:
            break
    return found


def _of_groups(path: str, sizes: list[int], target: int) -> list[Piece]:
    """Return row groups one behind another, until a piece has enough of them."""
    pieces: list[Piece] = []
    start, size = 0, 0
    for number, group in enumerate(sizes, 1):
        size += group
        if size >= target or number == len(sizes):
            pieces.append(Piece(path, Container.PARQUET, start=start, end=number, size=size))
            start, size = number, 0
    return pieces or [Piece(path, Container.PARQUET, end=0)]
