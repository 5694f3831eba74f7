"""Owns characters that a server cut in two: the first half, at the end of one text, is put before the other one.

Servers that count in UTF-16, as those in JavaScript do, cut a text of theirs between the two escapes of an emoji. Each
half alone is none that a text can hold; together they are what the model wrote.
"""

from __future__ import annotations

import re

_may_have_half = re.compile(r"\\u[dD]").search
"""Finds where a half may be, which is one of a whole character most of the time."""
_FIRST = re.compile(r'(?<!\\)((?:\\\\)*)(\\u[dD][89abAB][0-9a-fA-F]{2})(?=")')
"""A first half that a string ends with."""
_SECOND = re.compile(r'(?<!\\)"(?=\\u[dD][c-fC-F][0-9a-fA-F]{2})')
"""The quotation mark of a string that begins with a second one."""


class Halves:
    """Joins halves over the JSON of a stream's events. `waiting`: the first half whose other half has not come."""

    def __init__(self) -> None:
        self.waiting = ""

    def mended(self, data: str) -> str:
        """Return the next event as `joined` does. Most have no half, which costs them nothing."""
        escape = data.find("\\")  # one character is found many times as fast as two
        return self.joined(data) if (escape >= 0 and _may_have_half(data, escape)) or self.waiting else data

    def joined(self, data: str) -> str:
        """The next event with what was cut off the one before. Only where one string of it can be meant."""
        if self.waiting and len(_SECOND.findall(data)) == 1:
            data = _SECOND.sub(lambda found: found[0] + self.waiting, data)
            self.waiting = ""
        if not self.waiting:
            found = _FIRST.findall(data)
            if len(found) == 1:
                self.waiting = found[0][1]
                data = _FIRST.sub(r"\1", data)
        return data
