"""Owns line and column of positions in a text."""

from __future__ import annotations

from typing import NoReturn

from turnscript.errors import InvalidTranscript


class Lines:
    """Line and column of a position. Counted on from the last one asked for, so asking in order is linear."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._counted = 0
        self._line = 1
        self._begin = 0  # where the line begins that holds the last position

    def at(self, position: int) -> tuple[int, int]:
        """Return line and column, both from 1."""
        text, counted = self._text, self._counted
        if position < counted:
            self._line -= text.count("\n", position, counted)
            if position < self._begin:
                self._begin = text.rfind("\n", 0, position) + 1
        else:
            self._line += text.count("\n", counted, position)
            self._begin = text.rfind("\n", counted, position) + 1 or self._begin
        self._counted = position
        return self._line, position - self._begin + 1

    def fail(self, position: int, message: str, expected: str) -> NoReturn:
        """Raise the error for what stands at `position`."""
        line, column = self.at(position)
        got = self._text[position : position + 40].split("\n")[0]
        raise InvalidTranscript(message, line=line, column=column, expected=expected, got=got)
