"""Owns finding where JSON values end in bytes that come in blocks, without parsing them.

Strings are stepped over as strings, and brackets are counted; everything else is left to whoever parses the value. The
steps are made by regular expressions: Python code runs once for each bracket, not for each byte. All bytes that JSON
gives a meaning are ASCII, so a block may be cut in the middle of a character.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from enum import Enum

SPACE = re.compile(rb"[ \t\r\n]*+")
_TO_BRACKET = re.compile(rb'[^"{}\[\]]*+(?>(?:"[^"\\]*+(?:\\.[^"\\]*+)*+"[^"{}\[\]]*+)*)', re.DOTALL)
_IN_STRING = re.compile(rb'[^"\\]*+(?:\\.[^"\\]*+)*+', re.DOTALL)
_SCALAR = re.compile(rb"[^,:\[\]{}\" \t\r\n]*+")
_QUOTE, _COMMA, _OPEN, _CLOSE = b'",[]'
_OPENING = frozenset(b"{[")


class Value:
    """Finds the end of one value. White space before it must be gone already."""

    __slots__ = ("_began", "_depth", "_in_scalar", "_in_string", "_slash", "done")

    def __init__(self) -> None:
        self.done = False
        self._began = False
        self._depth = 0
        self._in_string = False
        self._in_scalar = False
        self._slash = False

    def feed(self, block: bytes, position: int) -> int:
        """Scan on; returns where the value ends, or the end of the block if it goes on.

        What begins no value ends where it begins.
        """
        if not self._began:
            position = self._begin(block, position)
        elif self._in_string:
            position = self._string(block, position)
        if self._in_scalar:
            position = _SCALAR.match(block, position).end()  # type: ignore[union-attr]
            self.done = position < len(block)
        elif not self.done:
            position = self._structure(block, position)
        return position

    def close(self) -> bool:
        """Return whether the value is whole, because no more bytes come."""
        self.done = self.done or self._in_scalar
        return self.done

    def _begin(self, block: bytes, position: int) -> int:
        first = block[position]
        self._began = True
        if first == _QUOTE:
            return self._string(block, position + 1)
        if first in _OPENING:
            self._depth = 1
            return position + 1
        self._in_scalar = True
        return position

    def _string(self, block: bytes, position: int) -> int:
        """Scan on inside a string."""
        self._in_string = True
        length = len(block)
        if self._slash and position < length:
            position += 1
            self._slash = False
        end = _IN_STRING.match(block, position).end()  # type: ignore[union-attr]
        if end == length:
            return end
        if block[end] == _QUOTE:
            self._in_string = False
            self.done = self._depth == 0
            return end + 1
        self._slash = True  # the backslash is the last byte of the block
        return length

    def _structure(self, block: bytes, position: int) -> int:
        """Scan on between strings, until the bracket that began the value is closed."""
        depth, length, step = self._depth, len(block), _TO_BRACKET.match
        while True:
            position = step(block, position).end()  # type: ignore[union-attr]
            if position == length:
                break
            byte = block[position]
            position += 1
            if byte == _QUOTE:  # of a string that does not end here
                position = self._string(block, position)
                break
            if byte in _OPENING:
                depth += 1
            else:
                depth -= 1
                if depth == 0:
                    self.done = True
                    break
        self._depth = depth
        return position


class At(Enum):
    """Where in an array the scanner stands."""

    START = "before the array"
    FIRST = "at the first element or the end"
    ELEMENT = "at an element"
    INSIDE = "in an element"
    BEHIND = "behind an element"
    CLOSED = "behind the array"
    FAULT = "at something that cannot be there"


_STOPS = frozenset({At.CLOSED, At.FAULT})


class Elements:
    """Finds the elements of one array.

    `at` says where it stands. It stops at a fault, and behind the array: `place` is where in the block that is, and
    `before` where it stood before a fault.
    """

    __slots__ = ("_value", "at", "before", "place")

    def __init__(self, at: At = At.START) -> None:
        self.at = at
        self.before = at
        self.place = 0
        self._value = Value()

    def feed(self, block: bytes) -> Iterator[tuple[int, int]]:
        """Scan a block: give what of each element lies in it, as its begin and end.

        The element is whole if `at` is BEHIND when it is given; else the block ends in it.
        """
        position, length = 0, len(block)
        while position < length and self.at not in _STOPS:
            if self.at is At.INSIDE:
                start, position = position, self._value.feed(block, position)
                if self._value.done:
                    self.at = At.BEHIND
                yield start, position
            else:
                position = SPACE.match(block, position).end()  # type: ignore[union-attr]
                if position < length:
                    position = self._between(block, position)
        self.place = position

    def _between(self, block: bytes, position: int) -> int:
        """Take one step that is not inside an element."""
        byte = block[position]
        if self.at is At.BEHIND and byte == _COMMA:
            self.at = At.ELEMENT
        elif self.at in {At.BEHIND, At.FIRST} and byte == _CLOSE:
            self.at = At.CLOSED
        elif self.at is At.START and byte == _OPEN:
            self.at = At.FIRST
        elif self.at in {At.FIRST, At.ELEMENT} and byte not in b",:]}":
            self._value = Value()
            self.at = At.INSIDE
            return position
        else:
            self.before, self.at = self.at, At.FAULT
            return position
        return position + 1
