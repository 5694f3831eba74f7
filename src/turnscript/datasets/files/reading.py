"""Owns reading: the rows of a piece, and the first rows of a file to tell its form by."""

from __future__ import annotations

from collections.abc import Iterator

from turnscript.datasets.files.arrays import Array
from turnscript.datasets.files.container import Container, container_of
from turnscript.datasets.files.lines import Lines
from turnscript.datasets.files.parquet import tables
from turnscript.datasets.files.pieces import Piece
from turnscript.datasets.files.rowbytes import LIMIT, Rows
from turnscript.datasets.files.single import read_value, read_whole
from turnscript.datasets.files.streams import compression_of
from turnscript.datasets.rows import RawRow

_ENOUGH = 16 << 20
"""A sample has no more bytes than this, and one row."""


def read(piece: Piece, *, limit: int = LIMIT) -> Rows:
    """Return the rows of a piece, in order, each of `limit` bytes at most. Memory holds a block and one row.

    Numbers count from 1 in the piece; what is left over at the end stands in `numbers`. Content is never an error: what
    cannot be a row is one with a problem. Raises InvalidInput for a file that cannot be read at all.
    """
    return Rows(lambda counter: _rows(piece, limit, counter))


def sample(path: str, count: int = 200) -> list[RawRow]:
    """Return the first rows of a file, each a record, to tell the form by; fewer if they are large."""
    piece = Piece(path, container_of(path), compression_of(path))
    found: list[RawRow] = []
    size = 0
    for row in read(piece) if count > 0 else ():
        found.append(row)
        size += len(row.data)
        if len(found) >= count or size >= _ENOUGH:
            break
    return found


def _rows(piece: Piece, limit: int, counter: Rows) -> Iterator[RawRow]:
    file, container, compression = piece.file, piece.container, piece.compression
    if container is Container.PARQUET:
        if piece.whole:
            return tables(file).read_table_whole(file, limit, counter)
        return tables(file).read_table(file, piece.start, piece.end, limit, counter)
    if piece.whole or container is Container.TEXT:
        return read_whole(file, compression, limit, text=container is Container.TEXT, counter=counter)
    if container is Container.LINES:
        return Lines(file, compression, piece.start, piece.end, limit).rows(counter)
    if container is Container.OBJECT:
        return read_value(file, compression, limit, counter=counter)
    array = Array(file, compression, limit, wrapped=container is Container.MEMBER)
    return array.rows(piece.start, piece.end, counter)
