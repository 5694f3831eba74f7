"""Owns TOML tables that know their place in a file, and the error that names it: `format[0].turn[1].open`."""

from __future__ import annotations

import difflib
import re
import tomllib
from collections.abc import Iterable, Mapping
from typing import Any

from turnscript.core.errors import InvalidInput

_PLACE = re.compile(r" \(at (?:line (\d+), column (\d+)|end of document)\)$")
_BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")
_INDEX = re.compile(r"\[\d+\]")
_LONG_INTEGER = re.compile(r"[0-9](?:_?[0-9]){4300}")
_MANY_BITS = 128


class InvalidFormat(InvalidInput):
    """A declaration of a format that cannot be one: `path` names the key."""

    code = "invalid_format"


class Table(dict[str, Any]):
    """A TOML table with its place. Tables inside it are tables with a place too."""

    def __init__(self, entries: Mapping[str, Any], path: str = "") -> None:
        super().__init__()
        self.path = path
        for key, value in entries.items():
            self[key] = _placed(value, self.at(key))

    def at(self, key: str) -> str:
        """The place of one of its keys."""
        shown = key if _BARE_KEY.fullmatch(key) else f'"{key}"'
        return f"{self.path}.{shown}" if self.path else shown


def _placed(value: Any, path: str) -> Any:
    if isinstance(value, Table):
        return value
    if isinstance(value, Mapping):
        return Table(value, path)
    if isinstance(value, list):
        return [_placed(one, f"{path}[{index}]") for index, one in enumerate(value)]
    return value


def read_toml(text: str) -> Table:
    """The tables of a TOML text. Raises InvalidFormat with line and column."""
    try:
        return Table(tomllib.loads(text.removeprefix("\ufeff")))
    except tomllib.TOMLDecodeError as error:
        found = _PLACE.search(str(error))
        reason = _PLACE.sub("", str(error))
        lines = text.split("\n")
        line, column = (int(found[1]), int(found[2])) if found and found[1] else (len(lines), len(lines[-1]) + 1)
        raise _no_toml(reason, line, column) from None
    except ValueError:  # Python makes no int of so many digits
        found = _LONG_INTEGER.search(text)
        before = text[: found.start() if found else 0]
        line, column = before.count("\n") + 1, len(before) - before.rfind("\n")
        raise _no_toml("an integer of more digits than can be read", line, column) from None
    except RecursionError:
        raise _no_toml("nested too deep", 1, 1) from None


def _no_toml(reason: str, line: int, column: int) -> InvalidFormat:
    return InvalidFormat(f"not valid TOML: {reason}", line=line, column=column, expected="TOML")


def unfit(path: str, message: str, expected: str = "", got: str = "") -> InvalidFormat:
    """The error for a value that makes no sense where it stands."""
    return InvalidFormat(message, path=path, expected=expected, got=got)


def wrong_type(path: str, expected: str, value: Any) -> InvalidFormat:
    """The error for a value that is of another type than the key takes."""
    got = type_words(value)
    return InvalidFormat(f"expected {expected}, found {got}", path=path, expected=expected, got=got)


def not_among(path: str, what: str, got: str, known: Iterable[str]) -> InvalidFormat:
    """The error for a word that is none of the known ones; offers the nearest."""
    words = list(known)
    close = difflib.get_close_matches(got, words, n=3, cutoff=0.6)
    hint = f"did you mean {' or '.join(map(repr, close))}?" if close else f"known here: {', '.join(words) or 'none'}"
    message = f"{what} {got!r}; {hint}"
    return InvalidFormat(message, path=path, expected=f"one of: {', '.join(words)}", got=got)


def type_words(value: Any) -> str:
    """What a TOML value is, in the words of an error message."""
    if isinstance(value, str):
        return f"the string {_shortened(value)!r}"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        bits = value.bit_length()  # written in hexadecimal it may have any number
        return f"the integer {value}" if bits <= _MANY_BITS else f"an integer of {bits} bits"
    if isinstance(value, float):
        return f"the float {value}"
    if isinstance(value, Mapping):
        return "a table"
    return "an array" if isinstance(value, list) else "a date or time"


def text_at(value: Any, path: str) -> str:
    """A value that must be a string."""
    if not isinstance(value, str):
        raise wrong_type(path, "a string", value)
    return value


def texts_at(value: Any, path: str) -> tuple[str, ...]:
    """A value that must be an array of strings."""
    if not isinstance(value, list):
        raise wrong_type(path, "an array of strings", value)
    return tuple(text_at(one, f"{path}[{index}]") for index, one in enumerate(value))


def table_at(value: Any, path: str) -> Table:
    """A value that must be a table."""
    if not isinstance(value, Table):
        raise wrong_type(path, "a table", value)
    return value


def tables_at(value: Any, path: str) -> list[Table]:
    """A value that must be an array of tables."""
    if isinstance(value, Table):
        header = f"[[{_INDEX.sub('', path)}]]"
        message = f"expected an array of tables, found a table; write {header} with two brackets"
        raise InvalidFormat(message, path=path, expected=header, got="a table")
    if not isinstance(value, list):
        raise wrong_type(path, "an array of tables", value)
    return [table_at(one, f"{path}[{index}]") for index, one in enumerate(value)]


def _shortened(text: str, limit: int = 40) -> str:
    return text if len(text) <= limit else f"{text[: limit - 3]}..."
