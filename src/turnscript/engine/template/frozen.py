"""Owns values that remember their JSON: the tools of a session are written into many prompts, and never change."""

from __future__ import annotations

from typing import Any


class FrozenDict(dict[Any, Any]):
    """A dictionary that nobody changes any more. It remembers its JSON for each set of options."""

    __slots__ = ("_texts",)

    def __init__(self, *args: Any, **members: Any) -> None:
        super().__init__(*args, **members)
        self._texts: dict[Any, str] = {}


class FrozenList(list[Any]):
    """A list that nobody changes any more. It remembers its JSON for each set of options."""

    __slots__ = ("_texts",)

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._texts: dict[Any, str] = {}


def frozen(value: Any) -> Any:
    """Return a copy of JSON data, all the way down, that remembers its JSON."""
    if isinstance(value, dict):
        return FrozenDict((key, frozen(member)) for key, member in value.items())
    if isinstance(value, list):
        return FrozenList(map(frozen, value))
    return value
