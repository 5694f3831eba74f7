"""Owns arguments as elements: how a JSON value is written inside one, and what the text of one stands for.

An object is an element for each member, an array one called `item` for each of its values; what a schema says of a
value decides how its text is read. A value that would not come back so is written as JSON.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any, NamedTuple

from turnscript.core.json_text import json_string
from turnscript.engine.escape import Escape
from turnscript.engine.spans import Writer
from turnscript.engine.xmlcalls import Kind, argument_text, kind_of, shown_text
from turnscript.grammar.schema import listed_strings

ITEM = "item"
"""The element of a value in an array."""
_KEY = re.compile(r"(?!item\Z)[^\s<>/\"\\]+")
_HALF = re.compile("[\ud800-\udfff]")
_DEEPEST = 50
"""Values further down are written as JSON, which takes no element for a level."""
_POINTERS = 8


class Number(str):
    """A number as it was spelled."""

    __slots__ = ()


class Told(NamedTuple):
    """What a schema says of a value: its schema, and the whole one in which it stands."""

    schema: Any
    root: Any

    @property
    def kind(self) -> Kind:
        """Return how its text is read."""
        return kind_of(self.schema)

    @property
    def type(self) -> str:
        """Return `object`, `array`, or nothing where it is neither for sure."""
        declared = self.schema.get("type") if isinstance(self.schema, dict) else None
        return declared if declared in ("object", "array") else ""

    def words(self) -> list[str]:
        """Return the strings that it allows, if it lists them."""
        return listed_strings(self.schema)

    def member(self, key: str) -> Told:
        """Return what it says of a member of an object."""
        properties = self.schema.get("properties") if isinstance(self.schema, dict) else None
        if isinstance(properties, dict) and key in properties:
            return self._of(properties[key])
        return self._of(self.schema.get("additionalProperties") if isinstance(self.schema, dict) else None)

    def item(self) -> Told:
        """Return what it says of the values of an array."""
        return self._of(self.schema.get("items") if isinstance(self.schema, dict) else None)

    def _of(self, schema: Any) -> Told:
        for _ in range(_POINTERS):
            pointer = schema.get("$ref") if isinstance(schema, dict) else None
            if not isinstance(pointer, str):
                break
            schema = _pointed(self.root, pointer)
        return Told(schema, self.root)


def told_of(tools: Mapping[str, Any], name: str | None) -> Told:
    """Return what the schema of a tool says of its arguments; nothing where that is not known."""
    tool = tools.get(name) if name is not None else None
    if tool is None or tool.parameters is None:
        return Told(None, None)
    try:
        schema = json.loads(bytes(tool.parameters))
    except (ValueError, RecursionError):
        return Told(None, None)
    return Told(schema, schema)


def _pointed(root: Any, pointer: str) -> Any:
    """Return what a reference within a schema leads to; None where it leads nowhere."""
    if not pointer.startswith("#/"):
        return None
    for step in pointer[2:].split("/"):
        root = root.get(step.replace("~1", "/").replace("~0", "~")) if isinstance(root, dict) else None
    return root


def read_value(text: str) -> Any:
    """Return a JSON value with its numbers as they are spelled; None of Python where it has too many levels."""
    try:
        return json.loads(text, parse_float=Number, parse_int=Number, object_pairs_hook=_pairs)
    except RecursionError:
        return None


class _Pairs(dict[str, Any]):
    """An object. `whole`: no key comes twice."""

    whole = True


def _pairs(pairs: list[tuple[str, Any]]) -> _Pairs:
    made = _Pairs(pairs)
    made.whole = len(made) == len(pairs)
    return made


def write_value(text: str, told: Told, mark: str, out: Writer) -> str:
    """Write a JSON value between its tags; returns how it will be read."""
    value = read_value(text)
    if told.kind != "string" and _fits(value, told, _DEEPEST):
        return _write(value, told, mark, out)
    shown = shown_text(text, told.kind)
    out.content(shown)
    return argument_text(shown, told.kind)


def read_again(text: str, told: Told, mark: str, escape: Escape) -> str:
    """Return how a JSON value will be read where it is written so."""
    return write_value(text, told, mark, Writer(escape, archive=False))


def _fits(value: Any, told: Told, levels: int) -> bool:
    """Return whether elements say a value, so that it comes back as it is."""
    if isinstance(value, _Pairs):
        if not (levels and value and value.whole) or told.type == "array" or told.kind == "string":
            return False
        named = all(_KEY.fullmatch(key) or (key == ITEM and told.type == "object") for key in value)
        return named and all(_fits(one, told.member(key), levels - 1) for key, one in value.items())
    if isinstance(value, list):
        if not (levels and value) or told.type == "object" or told.kind == "string":
            return False
        return all(_fits(one, told.item(), levels - 1) for one in value)
    if told.kind == "string" and (isinstance(value, Number) or not isinstance(value, str)):
        return False
    return not isinstance(value, str) or _HALF.search(value) is None


def _write(value: Any, told: Told, mark: str, out: Writer) -> str:
    if isinstance(value, _Pairs):
        said = []
        for key, one in value.items():
            said.append(f"{json_string(key)}: {_element(key, one, told.member(key), mark, out)}")
        return "{" + ", ".join(said) + "}"
    if isinstance(value, list):
        return "[" + ", ".join([_element(ITEM, one, told.item(), mark, out) for one in value]) + "]"
    shown = shown_text(_spelled(value), told.kind)
    out.content(shown)
    return argument_text(shown, told.kind)


def _element(key: str, value: Any, told: Told, mark: str, out: Writer) -> str:
    tag(f"{mark}<", key, out)
    read = _write(value, told, mark, out)
    tag(f"{mark}</", key, out)
    return read


def tag(begin: str, word: str, out: Writer) -> None:
    """Write a tag of a key."""
    out.control(begin)
    out.content(word)
    out.control(">")


def _spelled(value: Any) -> str:
    if isinstance(value, Number):
        return str(value)
    return json_string(value) if isinstance(value, str) else json.dumps(value)
