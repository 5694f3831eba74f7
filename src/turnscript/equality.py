"""Owns when two structs of a conversation are equal: in all that they say, wherever they were read from."""

from __future__ import annotations

from functools import cache
from typing import Any

from msgspec import Struct

from turnscript.jsontext import Json, same

_NOT_COMPARED = frozenset({"at", "paths", "words", "generated"})


def equal(first: Struct, second: Struct) -> bool:
    """Field by field; JSON texts by meaning, provenance not at all."""
    for name in _compared(type(first)):
        one, other = getattr(first, name), getattr(second, name)
        if one is not other and not _same_value(one, other):
            return False
    return True


@cache
def _compared(kind: type[Struct]) -> tuple[str, ...]:
    return tuple(name for name in kind.__struct_fields__ if name not in _NOT_COMPARED)


def _same_value(first: Any, second: Any) -> bool:
    if type(first) is str:  # most of what differs in identity
        return bool(first == second)
    if isinstance(first, Json) and isinstance(second, Json):
        return same(first, second)
    if isinstance(first, dict) and isinstance(second, dict):
        return first.keys() == second.keys() and all(_same_value(first[key], second[key]) for key in first)
    return bool(first == second)
