"""Owns marks: texts that stand nowhere else, put into a body in place of its own, so that each can be followed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from tests.strategies import jsontext
from tests.strategies.shapes import ListOf, OneOf, Options, Shape, Typed

NAMES = {"id", "call_id", "tool_call_id", "tool_use_id", "approval_request_id", "name", "function"}
"""Texts that say which other thing is meant: those that were equal stay so."""

SEEN = {"type"}
"""Members of the objects of people that a converter looks at: JSON Schemas."""


class Marks:
    """Takes the texts of a body for marks. `places`: the mark of each text, by the path of the text."""

    def __init__(self) -> None:
        self.places: dict[str, str] = {}
        self._names: dict[str, str] = {}

    def _mark(self, path: str) -> str:
        self.places[path] = mark = f"mark{len(self.places)}z"
        return mark

    def _text(self, name: str, value: str, path: str) -> str:
        """What stands for a text: a mark of its own, and for a name the one that it had before."""
        if name == "arguments":
            return f'{{"a": "{self._mark(path)}"}}'
        if name not in NAMES:
            return self._mark(path)
        self.places[path] = mark = self._names.setdefault(value, f"name{len(self._names)}z")
        return mark

    def put(self, value: Any, path: str = "$", shapes: Sequence[Shape] = (), name: str = "") -> Any:
        """A body, or a value of one of those shapes, with marks for its texts. Without shapes, any text may be one."""
        if isinstance(value, jsontext.Spelled):
            return jsontext.Spelled(f'{{"a": "{self._mark(path)}"}}')
        if isinstance(value, Typed):
            fields = {field.name: _members(field.shape) for field in value.record.fields}
            members = [(key, self.put(one, f"{path}.{key}", fields[key], key)) for key, one in value.items()]
            return Typed(members, value.record)
        if isinstance(value, dict):
            return {key: one if key in SEEN else self.put(one, f"{path}.{key}") for key, one in value.items()}
        if isinstance(value, list):
            items = [one for shape in shapes if isinstance(shape, ListOf) for one in _members(shape.item)]
            return [self.put(one, f"{path}[{index}]", items) for index, one in enumerate(value)]
        if isinstance(value, str) and not any(isinstance(one, Options) and value in one.values for one in shapes):
            return self._text(name, value, path)
        return value


def _members(shape: Shape) -> list[Shape]:
    return [one for member in shape.members for one in _members(member.shape)] if isinstance(shape, OneOf) else [shape]


def above(path: str) -> Iterator[str]:
    """A path and all above it, but for the body."""
    for end in (*(index for index, sign in enumerate(path) if sign in ".["), len(path)):
        if end > 1:
            yield path[:end]
