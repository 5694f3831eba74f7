"""Owns reading values that are nested as JSON's and spelled otherwise: what is read is passed on as JSON text."""

from __future__ import annotations

import re
from abc import abstractmethod
from collections.abc import Callable, Mapping
from functools import lru_cache

from turnscript.core.json_text import json_string
from turnscript.engine.machine import Machine, Reading
from turnscript.engine.scanner import Unescaper

SPACE = re.compile(r"[ \t\r\n]*")
"""White space between the tokens, which says nothing."""
LONGEST_WORD = 1024


def may_be(literal: str, text: str, position: int) -> bool:
    """Tell whether a text ends, from a position on, with the beginning of a literal."""
    return len(text) - position < len(literal) and literal.startswith(text[position:])


@lru_cache(maxsize=64)
def other_than_plain(signs: str) -> Callable[[str], object]:
    """Return what finds anything but text of a string that is the same in JSON, without these signs."""
    return re.compile(rf'[{re.escape(signs)}"\\\x00-\x1f\x7f\ud800-\udfff]').search


class StructureMachine(Machine):
    """Reads one structure inside another. A spelling says what its scalars are, and what stands around the whole.

    `signs`: what may end a string. `closings`: the brackets around structures; a curly one opens an object, any other
    an array.
    """

    closings: Mapping[str, str] = {"[": "]", "{": "}"}

    def __init__(self, reading: Reading, signs: str) -> None:
        super().__init__()
        self._unescaper = Unescaper(reading.escape)
        self._odd = other_than_plain("".join(sorted({signs, *(lead[0] for lead in reading.escape.leads)})))
        self._tentative = reading.tentative
        self._step: Callable[[str, int], int] = self._start
        self._inside: Callable[[str, int], int] | None = None  # the step that reads text, where white space counts
        self._into: list[str] | None = None  # where the text of a string goes that is no value
        self._open: list[str] = []  # the brackets that are open
        self._first: list[bool] = [True]  # whether nothing stands yet in each of them, and around them
        self._key = True  # whether what comes in the innermost object is a key

    def feed(self, text: str, start: int) -> int:
        position = start
        while position < len(text) and not (self.done or self.failed):
            if self._step != self._inside:
                position = SPACE.match(text, position).end()  # type: ignore[union-attr]
                if position == len(text):
                    break
            step, before, known = self._step, position, self.name
            position = step(text, position)
            if (position == before and self._step == step) or (self._tentative and self.name is not known):
                break
        return position

    def passes(self, text: str) -> int:
        inside = self._step == self._inside and self._into is None and not self._unescaper.held
        return len(text) if inside and self._odd(text) is None else -1

    @abstractmethod
    def _start(self, text: str, position: int) -> int:
        """Read what stands before the first value."""

    @abstractmethod
    def _scalar(self, text: str, position: int) -> int:
        """Read a string, a number or a word, or its beginning. Call `_element` before the first text of it."""

    @abstractmethod
    def _behind(self, text: str, position: int) -> int:
        """Read on behind a value that stands in no structure."""

    def _say(self, text: str) -> None:
        if text:
            self.said.append(text)
            self.deltas.append(text)

    @property
    def _is_key(self) -> bool:
        """Return whether what comes is the key of a member."""
        return bool(self._open) and self._open[-1] == "{" and self._key

    def _element(self) -> None:
        """Separate what comes from the element before it in the innermost structure."""
        if self._open and (self._open[-1] != "{" or self._key):
            if not self._first[-1]:
                self._say(", ")
            self._first[-1] = False

    def _value(self, text: str, position: int) -> int:
        """Read a value, or what ends the structure that it would stand in."""
        char = text[position]
        if self._open and char == self.closings[self._open[-1]] and (self._key or self._open[-1] != "{"):
            return self._end_structure(position)
        if char not in self.closings:
            return self._scalar(text, position)
        self.failed = self._is_key
        self._element()
        self._say("{" if char == "{" else "[")
        self._open.append(char)
        self._first.append(True)
        self._key = True
        return position + 1

    def _say_word(self, word: str) -> None:
        """Pass on a whole scalar as JSON text; one that is a key becomes a string."""
        self._element()
        self._say(json_string(word) if self._is_key and word[0] != '"' else word)
        self._step = self._behind_value

    def _end_structure(self, position: int) -> int:
        self._say("}" if self._open.pop() == "{" else "]")
        self._first.pop()
        self._key = False  # a structure is the value of a key, or no member at all
        self._step = self._behind_value
        return position + 1

    def _behind_value(self, text: str, position: int) -> int:
        """Read what stands behind a value: a comma, a colon behind a key, or the end of what it stands in."""
        if not self._open:
            return self._behind(text, position)
        char = text[position]
        if self._is_key:
            self.failed = char != ":"
            self._say("" if self.failed else ": ")
            self._key, self._step = False, self._value
        elif char == ",":
            self._key, self._step = True, self._value
        elif char == self.closings[self._open[-1]]:
            return self._end_structure(position)
        else:
            self.failed = True
        return position + (not self.failed)
