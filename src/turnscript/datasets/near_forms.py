"""Owns telling which form rows would be of if a key of theirs were spelled otherwise: most refusals are a typo."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from difflib import get_close_matches
from functools import cache
from typing import Any

from turnscript.datasets.form_registry import forms, get_form
from turnscript.datasets.members import CONVERSATIONAL

Records = Sequence[Mapping[str, Any]]

_OF_TURNS = frozenset({"role", "content", "from", "value"})
_ROWS, _DEPTH, _TRIES = 20, 4, 12
_NEAR = 0.7
"""How much of two keys must be alike: `form` and `from` are so, `text` and `test` too."""


def near_form(records: Records, form_of: Callable[[Records], str]) -> str:
    """Return what to spell otherwise and which form the rows are then, in words; empty where no single key does it.

    `form_of`: the form of records, empty where it cannot be told.
    """
    records = records[:_ROWS]
    for tried, (key, meant) in enumerate(_candidates(records)):
        if tried == _TRIES:
            break
        if name := form_of([_renamed(record, key, meant) for record in records]):
            return f"{key!r} is nearly {meant!r}, and with that they would be of the form {name}"
    return ""


def _candidates(records: Records) -> Iterator[tuple[str, str]]:
    """Keys that no form knows, each with those that it may be meant as, the nearest first."""
    known = _known()
    for key in dict.fromkeys(key for record in records for key in _keys(record, _DEPTH)):
        if key not in known:
            yield from ((key, meant) for meant in get_close_matches(key.lower(), known, 3, _NEAR))


def _keys(value: Any, depth: int) -> Iterator[str]:
    inside: Sequence[Any] = value[:_ROWS] if isinstance(value, list) else []
    if isinstance(value, Mapping):
        yield from value
        inside = list(value.values())
    for inner in inside if depth else ():
        yield from _keys(inner, depth - 1)


def _renamed(value: Any, key: str, meant: str, depth: int = _DEPTH) -> Any:
    """A value with another key in the place of one, unless it has both."""
    if not depth:
        return value
    if isinstance(value, Mapping):
        named = {meant if name == key and meant not in value else name: inner for name, inner in value.items()}
        return {name: _renamed(inner, key, meant, depth - 1) for name, inner in named.items()}
    if isinstance(value, list):
        return [_renamed(inner, key, meant, depth - 1) for inner in value]
    return value


@cache
def _known() -> tuple[str, ...]:
    members = {member for name in forms() for member in get_form(name).members}
    return tuple(sorted(members | CONVERSATIONAL | _OF_TURNS))


__all__ = ["near_form"]
