"""Owns the lines of agent sessions: each with its number, read as what it is, or refused with its place.

A session is a file that an agent appended to while it ran: one JSON object a line. All its lines are one row.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TypeVar

import msgspec

from turnscript.core.json_text import Json
from turnscript.datasets.problems import BadRow, Code
from turnscript.datasets.traces import checked, members_of

T = TypeVar("T")

_PLACE = re.compile(r" - at `\$?([^`]*)`$")


def lines_of(data: bytes) -> Iterator[tuple[str, bytes]]:
    """Give the lines that are not blank, each with its place: `line 3: $`."""
    for number, line in enumerate(checked(data).split(b"\n"), 1):
        if line.strip():
            yield f"line {number}: $", line


def read_as(decoder: msgspec.json.Decoder[T], value: bytes | Json, at: str) -> T:
    """Return a value as the declared type. What is wrong with it is said with its place."""
    try:
        return decoder.decode(value)
    except msgspec.ValidationError as error:
        words = str(error)
        found = _PLACE.search(words)
        place = at + found[1].removeprefix("key in ") if found else at
        text = words[: found.start()] if found else words
        raise BadRow(Code.SHAPE, text[:1].lower() + text[1:], path=place) from None
    except (msgspec.DecodeError, RecursionError):
        members_of(value, at)  # says what is wrong, at which line and column
        raise BadRow(Code.UTF8, "half of a surrogate pair, which no UTF-8 text can hold", path=at) from None
