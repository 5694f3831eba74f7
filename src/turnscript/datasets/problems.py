"""Owns what can be wrong with a row: stable codes, and the reason with its place, so that no row is lost without one.

A row is written whole or set aside whole. The code is for programs and never changes; the message is for people.
"""

from __future__ import annotations

import re
from enum import StrEnum
from typing import Any

from msgspec import Struct

from turnscript.core.errors import InvalidInput, TurnscriptError, Unsupported

_AROUND = 40


class Code(StrEnum):
    """Why a row was set aside."""

    UTF8 = "E_UTF8"
    """It is not UTF-8 text."""
    JSON = "E_JSON"
    """It is not JSON, or not the JSON of one record."""
    ROW_SIZE = "E_ROW_SIZE"
    """It is larger than a row may be."""
    TRUNCATED = "E_TRUNCATED"
    """The file ends, or its compressed bytes break, in the middle of it."""
    FORM = "E_FORM"
    """It is not of the form that its file was taken for."""
    SHAPE = "E_SHAPE"
    """A member has the wrong type, or is missing."""
    ROLE = "E_ROLE"
    """A message has a role that its form does not have."""
    EMPTY = "E_EMPTY"
    """There is no message in it, or none with anything to say."""
    ARGS = "E_ARGS"
    """The arguments of a call are no JSON object."""
    CALL = "E_CALL"
    """A result answers no call, a call has no name, or two have the same id."""
    TOOL_UNDECLARED = "E_TOOL_UNDECLARED"
    """A tool is called that the row does not declare (only with `--declared-tools`)."""
    TAG_IN_TEXT = "E_TAG_IN_TEXT"
    """A text holds a tag of the format (only where the escape policy is to refuse them)."""
    FORMAT = "E_FORMAT"
    """The format has no way to say something in it."""
    MEDIA = "E_MEDIA"
    """It has a picture, a sound or a file that the format does not show (`--media drop` leaves these out)."""
    HOSTED = "E_HOSTED"
    """The provider ran a tool of its own in it (`--hosted` makes calls or a text of that)."""
    UNWANTED = "E_UNWANTED"
    """The row itself says that its answer is a bad one, so nobody shall learn it."""
    UNFINISHED = "E_UNFINISHED"
    """Its answer was cut off in the middle of a call."""
    LOSSY = "E_LOSSY"
    """The format, or the messages of JSON Lines, would lose something of it (only with `--strict`)."""
    NO_TRAINED_TOKEN = "E_NO_TRAINED_TOKEN"
    """Nothing in it would be trained."""
    TOO_LONG = "E_TOO_LONG"
    """It has more tokens than a sample may have."""
    WEIGHT = "E_WEIGHT"
    """A mark is not known, a weight is no number from 0 to 1, or a fraction where the mask holds only 0 and 1."""
    ID_RANGE = "E_ID_RANGE"
    """A token id does not fit the type of the output."""
    INTERNAL = "E_INTERNAL"
    """turnscript itself failed on it: a defect, please report it."""


class Problem(Struct, frozen=True):
    """Why a row was set aside: `pointer` is the JSON path in the row, or `line 3, column 5` of a transcript in it."""

    code: Code
    message: str
    pointer: str = ""


_PARTICULARS = re.compile(r"'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\"|\([^()]*\)|\d+")
"""What a message says of one row alone: what stands there, and how much of it."""


def kind_of(code: str, message: str, pointer: str) -> tuple[str, str, str]:
    """Return what two problems have in common that need the same remedy: all but positions and what stands there."""
    return code, _PARTICULARS.sub("_", message), _PARTICULARS.sub("_", pointer)


class BadRow(InvalidInput):
    """A row that cannot be used, with the code of the reason. Forms and the encoder raise it."""

    code = "bad_row"

    def __init__(self, reason: Code, message: str, *, path: str = "", line: int = 0, column: int = 0) -> None:
        super().__init__(message, path=path, line=line, column=column)
        self.reason = reason

    def __reduce__(self) -> tuple[object, ...]:
        return _again, (self.__dict__.copy(),)


def _again(fields: dict[str, Any]) -> BadRow:
    error = BadRow(fields["reason"], fields["message"])
    error.__dict__.update(fields)
    return error


DEFECTS = (TypeError, ValueError, KeyError, IndexError, AttributeError, RecursionError)
"""Errors that odd data can cause in code that did not expect it. One row must not end a job of millions of them."""


def _place(error: InvalidInput) -> str:
    """Return where in its row: most rows are a line of a file, whose number is not that of the line in the row."""
    return f"column {error.column}" if error.line == 1 and not error.path else error.where


def problem_of(error: Exception, otherwise: Code = Code.SHAPE) -> Problem:
    """Return an error as the reason why a row was set aside; `otherwise`: the code of one that has none of its own.

    One that turnscript did not raise on purpose is a defect of it, but for a row that is nested too deep.
    """
    if isinstance(error, BadRow):
        return Problem(error.reason, error.message, _place(error))
    if isinstance(error, InvalidInput):
        return Problem(otherwise, error.message, _place(error))
    if isinstance(error, Unsupported):
        return Problem(Code.FORMAT, error.message, error.path)
    if isinstance(error, TurnscriptError):
        return Problem(otherwise, str(error))
    if isinstance(error, RecursionError):
        return Problem(Code.SHAPE, "it is nested deeper than anything can read; leave it out")
    said = f"{type(error).__name__}: {error}"
    return Problem(Code.INTERNAL, f"turnscript failed on it ({said}); please report this row")


def difference(expected: str, found: str) -> str:
    """Return where two texts part, in words."""
    least = min(len(expected), len(found))
    at = next((place for place in range(least) if expected[place] != found[place]), least)
    around = slice(max(at - 10, 0), at + _AROUND)
    return f"at character {at}, {found[around]!r} in the place of {expected[around]!r}"
