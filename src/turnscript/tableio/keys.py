"""Owns which keys a table of a format has in TOML: the fields of the engine's structs, read off their types.

Nothing is listed here but a few names: a field that the engine's table gains is a key at once.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from msgspec import NODEFAULT, Struct
from msgspec.structs import fields

from turnscript.engine.escape import Escape, Rule
from turnscript.engine.table import Body, Document, Segment, ToolsBody
from turnscript.formats.format import Format

REQUIRED: Any = NODEFAULT
"""The default of a key that must be there."""

# Names in a file, where they are not those of the fields: a list of tables is named like one of them.
_NAMES = {
    "turns": "turn",
    "segments": "segment",
    "clues": "clue",
    "tools": "tools_section",
    "tools_place": "tools",
    "orders": "order",
}
# What follows from other keys: the class of items from `kind`, the table from all the rest. A file has no variants, and
# no template beside it; what its models want of a server is said in the server's configuration.
_IMPLIED: Mapping[type[Struct], frozenset[str]] = {
    Segment: frozenset({"item"}),
    Format: frozenset({"document", "history", "prepend_tokens", "presets", "template", "variants", "words"}),
}
# Keys that the engine wants and a file may leave out; what they are then, `struct` knows.
_OPTIONAL = {(Format, "title")}


class Key(Struct, frozen=True):
    """A key: its name in a file, the field it fills, what stands there, and what it is when it does not."""

    name: str
    field: str
    type: KeyType
    default: Any
    optional: bool


class KeyType(Struct, frozen=True):
    """What stands at a key. `form` is one of the words below; `inner` a struct or the allowed words."""

    form: str
    inner: Any = None


# The forms, by the type of a field. A field of any other type cannot be written in a file, and says so at once.
_FORMS: Mapping[Any, str] = {
    str: "text",
    bool: "flag",
    int: "number",
    Escape: "escape",
    Body: "body",
    ToolsBody: "tool list",
    tuple[str, ...]: "texts",
    tuple[Rule, ...]: "rules",
    tuple[tuple[str, str], ...]: "pairs",
    Mapping[str, str]: "words",
    Mapping[tuple[str, str], str]: "joints",
}


@cache
def keys_of(struct: type[Struct]) -> Mapping[str, Key]:
    """The keys of a struct by name, in the order of its fields."""
    hints = get_type_hints(struct)
    implied = _IMPLIED.get(struct, frozenset())
    found = [_key(struct, one, hints[one.name]) for one in fields(struct) if one.name not in implied]
    return {key.name: key for key in found}


def _key(struct: type[Struct], field: Any, hint: Any) -> Key:
    default = field.default_factory() if field.default_factory is not NODEFAULT else field.default
    name = _NAMES.get(field.name, field.name)
    optional = default is not REQUIRED or (struct, field.name) in _OPTIONAL
    return Key(name=name, field=field.name, type=_type(hint), default=default, optional=optional)


def _type(hint: Any) -> KeyType:
    if get_origin(hint) in (Union, UnionType):
        hint = next(one for one in get_args(hint) if one is not NoneType)
    if get_origin(hint) is Literal:
        return KeyType("word", get_args(hint))
    if get_origin(hint) is tuple and isinstance(get_args(hint)[0], type) and issubclass(get_args(hint)[0], Struct):
        return KeyType("tables", get_args(hint)[0])
    if isinstance(hint, type) and issubclass(hint, Struct):
        return KeyType("table", hint)
    if hint not in _FORMS:
        raise TypeError(f"no way to write {hint} in TOML; give it a form in {__name__}")
    return KeyType(_FORMS[hint])


def document_keys() -> Mapping[str, Key]:
    """The keys of a whole format: its own, and those of its document."""
    return {**keys_of(Format), **keys_of(Document)}


__all__ = ["REQUIRED", "Key", "KeyType", "document_keys", "keys_of"]
