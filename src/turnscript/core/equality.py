"""Owns when two structs of a conversation are equal: in all that they say, wherever they were read from."""

from __future__ import annotations

from functools import cache
from typing import Any, cast

from msgspec import Struct

from turnscript.core.json_text import Json, same

_NOT_COMPARED = frozenset({"as_object", "at", "paths", "words", "generated", "unread", "proofs"})


class Comparable:
    """Makes structs equal to those of their own kind that say the same. They may change, so they have no hash."""

    __slots__ = ()
    __hash__ = None  # type: ignore[assignment]

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and equal(cast(Struct, self), cast(Struct, other))

    def __ne__(self, other: object) -> bool:  # msgspec's own compares identities
        return not self == other


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
