"""Owns line and column of positions in a text, and what a reader finds there, where all of it is asked for."""

from __future__ import annotations

import re
from typing import NoReturn

from msgspec import Struct

from turnscript.core.errors import InvalidTranscript
from turnscript.core.losses import Loss

FAULT = "fault"
UNESCAPED = "unescaped"
WARNING = "warning"
_PLACE = re.compile(r"line (\d+)(?:, column (\d+))?\.?")


class Finding(Struct, frozen=True, order=True):
    """A finding says what is wrong with a transcript at a line and column, both from 1.

    `kind`: FAULT for what a reader refuses, UNESCAPED for a mark of the format in a text, WARNING for what is hardly
    meant as it is read; else what happens to what stands there, as of a loss. `expected`: a short phrase, empty where
    it does not apply.
    """

    line: int
    column: int
    kind: str
    message: str
    expected: str = ""


def found_loss(loss: Loss, otherwise: tuple[int, int]) -> Finding:
    """Return what a loss says as a finding: at the place in its path, or where that has none, the one given."""
    told = _PLACE.match(loss.path)
    line, column = (int(told[1]), int(told[2] or 1)) if told else otherwise
    member = loss.path[told.end() :] if told else loss.path
    return Finding(line, column, loss.kind, f"{member}: {loss.detail}" if member else loss.detail)


class Findings(Struct):
    """All that is wrong with a transcript, where its list of tools stands, and where something may stand that was not
    read because of a fault."""

    all: list[Finding] = []
    tools: tuple[int, int] = (1, 1)
    unread: list[tuple[int, int]] = []


class Lines:
    """Line and column of a position. Counted on from the last one asked for, so asking in order is linear.

    `found`: where faults are kept, for those who want all of them; with None the first one is raised.
    """

    def __init__(self, text: str, found: Findings | None = None) -> None:
        self.found = found
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

    def note(self, position: int, message: str, expected: str) -> None:
        """Raise the same error, or keep it: then reading goes on."""
        try:
            self.fail(position, message, expected)
        except InvalidTranscript as error:
            self.keep(error)

    def keep(self, error: InvalidTranscript, *, hides: bool = True) -> None:
        """Keep an error, or raise it where nobody asks for all. `hides`: something there is not read because of it."""
        if self.found is None:
            raise error
        if hides:
            self.found.unread.append((error.line, error.column))
        self.found.all.append(Finding(error.line, error.column, FAULT, error.message, error.expected))

    def warn(self, position: int, message: str) -> None:
        """Keep what is hardly meant as it is read, where all is asked for."""
        if self.found is not None:
            self.found.all.append(Finding(*self.at(position), WARNING, message))

    def note_tools(self, position: int) -> None:
        """Take note of where tools are defined, first of all."""
        if self.found is not None and self.found.tools == (1, 1):
            self.found.tools = self.at(position)

    def place(self, position: int) -> str:
        """Return the place of an item as its losses tell it: with a column, where all is asked for."""
        line, column = self.at(position)
        return f"line {line}" if self.found is None else f"line {line}, column {column}"

    def lose(self, position: int, loss: Loss) -> None:
        """Keep a loss of what stands at `position`, where all is asked for."""
        if self.found is not None:
            member = Loss(_PLACE.sub("", loss.path), loss.kind, loss.detail)
            self.found.all.append(found_loss(member, self.at(position)))

    def within(self, position: int, error: InvalidTranscript) -> InvalidTranscript:
        """Return an error whose place is counted from `position` on, as the line 1 and column 1, with its own place."""
        line, column = self.at(position)
        error.column += column - 1 if error.line == 1 else 0
        error.line += line - 1
        return error
