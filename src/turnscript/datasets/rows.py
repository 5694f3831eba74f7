"""Owns rows: one record of a dataset as it was found, and where."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from msgspec import Struct

from turnscript.datasets.problems import Problem


class Readings(NamedTuple):
    """A record with values that JSON does not have. In `marked` something else stands in their places: an object that
    nobody takes for anything, and a value of their own type. `without` leaves them out.
    """

    marked: Sequence[bytes]
    without: bytes


class RawRow(Struct, frozen=True, gc=False):
    """A record before anybody has read it. A Struct, because there is one for each row: a tuple takes longer.

    `number` counts from 1: the line of JSON Lines, else the place in the array or table. In the middle of a file that
    was cut into pieces it counts from the piece's beginning. `byte` is the offset of its first byte in the file, after
    decompression; -1 where there is none (Parquet). `data` is the record: JSON, or the text of a transcript. With a
    `problem`, `data` is as much of it as could be read. Where there are `readings`, only a form that reads the values
    which it is about has that problem.
    """

    file: str
    number: int
    byte: int
    data: bytes
    problem: Problem | None = None
    readings: Readings | None = None
