"""Owns the error of the configuration, and how what was found is put into words without giving a secret away."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable
from typing import Any

from turnscript.core.errors import InvalidInput
from turnscript.tableio.tables import type_words

COMMAND_LINE = "the command line"
"""The source of what stood there."""

# What programs make keys of: no words, and no path or URL has so long a piece without a dot or a slash.
_KEY = re.compile(r"(?i)\s*(?:(?:t?sk|pk|key|bearer)[-_ ]\S{4,}.*|(?=\S*\d)[\w+=-]{24,}\s*)", re.DOTALL)

COMMAND_LINE = "the command line"
"""The source of what is not read but typed."""


class InvalidConfig(InvalidInput):
    """A setting that cannot be so. `path`: its key, `source`: the file or variable; `others`: further errors found.

    Nothing in it is a secret: not what was found where one belongs, nor what looks like one elsewhere.
    """

    code = "invalid_config"

    def __init__(self, message: str, *, path: str = "", source: str = "", expected: str = "", got: str = "") -> None:
        if source:
            message = f"{message} ({'on' if source == COMMAND_LINE else 'in'} {source})"
        super().__init__(message, path=path, expected=expected, got=got)
        self.source = source
        self.others: tuple[InvalidConfig, ...] = ()


def looks_secret(value: Any) -> bool:
    """Whether a value looks like a key that stands in the wrong place."""
    return isinstance(value, str) and _KEY.fullmatch(value) is not None


def found_words(value: Any) -> str:
    """What a value is, for a message. What looks like a key is not shown."""
    return "a string that looks like a key" if looks_secret(value) else type_words(value)


def unknown_key(path: str, key: str, known: Iterable[str], source: str) -> InvalidConfig:
    """The error for a key that no table has, with the nearest ones."""
    names = list(known)
    close = difflib.get_close_matches(key, names, n=3, cutoff=0.6)
    hint = f"did you mean {' or '.join(map(repr, close))}?" if close else f"known here: {', '.join(names)}"
    message = f"unknown setting {key!r}; {hint}"
    return InvalidConfig(message, path=path, source=source, expected=f"one of: {', '.join(names)}")
