"""Owns reading a format's table from TOML data and writing it as such: each value by what its key takes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from turnscript.core.clues import Clue
from turnscript.core.conversation import Item
from turnscript.core.errors import InvalidInput
from turnscript.engine.escape import Escape
from turnscript.engine.table import Attribute, Document, Group, Segment
from turnscript.formats.format import Format
from turnscript.tableio.bodies import BODIES, TOOL_LISTS, read_body, write_body
from turnscript.tableio.keys import Key, document_keys, keys_of
from turnscript.tableio.looks import as_looks, opening_of
from turnscript.tableio.tables import (
    InvalidFormat,
    Table,
    not_among,
    table_at,
    tables_at,
    text_at,
    texts_at,
    type_words,
    wrong_type,
)

ITEMS: Mapping[str, type[Item]] = {item.kind: item for item in Item.__subclasses__()}
"""The class of each kind of item."""
RULE = ("lead", "rest")
"""The keys of a rule of an escape: what begins a tag, and what the rest of one begins with."""


# Reading.


def read_format(table: Table) -> Format:
    """The format that a table declares. Raises InvalidFormat for what is missing, unknown or of another type."""
    given = _Reader().members(document_keys(), table)
    own = {key.field for key in keys_of(Format).values()}
    document = Document(**{field: value for field, value in given.items() if field not in own})
    outline = _outline(given)
    return Format(name=outline.name, title=outline.title, document=document, clues=outline.clues)


class Outline(Struct, frozen=True):
    """What a format is called, and what tells that a model wants it: all of it but what is written and read.

    `openings`: what opens the turns that it declares itself, by which a text can be seen not to be of it; `based_on`
    names the format that has the others.
    """

    name: str
    title: str
    clues: tuple[Clue, ...]
    openings: tuple[str, ...] = ()
    based_on: str = ""


def read_outline(table: Table) -> Outline:
    """The outline of the format that a table declares. What else stands in the table is not looked at."""
    keys = keys_of(Format)
    outline = _outline(_Reader().members(keys, Table({key: table[key] for key in keys if key in table}, table.path)))
    turns = table.get("turn", ())
    turns = turns if isinstance(turns, list) else []
    openings = tuple(opening.strip() for turn in turns if (opening := turn.get("open") or opening_of(turn)))
    return replace(outline, openings=openings, based_on=table.get("based_on", ""))


def _outline(given: Mapping[str, Any]) -> Outline:
    return Outline(given["name"], given.get("title", given["name"]), given.get("clues", ()))


class _Reader:
    """Reads one format. Groups with the same literals become one object, which is how the engine tells them apart."""

    def __init__(self) -> None:
        self._groups: dict[Group, Group] = {}

    def members(self, keys: Mapping[str, Key], table: Table) -> dict[str, Any]:
        """The fields that a table gives."""
        for name in table:
            if name not in keys:
                raise not_among(table.at(name), "unknown key", name, keys)
        for key in keys.values():
            if key.name not in table and not key.optional:
                message = f"{key.name!r} is missing"
                raise InvalidFormat(message, path=table.path, expected=f"the key {key.name}")
        return {keys[name].field: self._value(keys[name], value, table) for name, value in table.items()}

    def _value(self, key: Key, value: Any, table: Table) -> Any:
        path, form, inner = table.at(key.name), key.type.form, key.type.inner
        if form == "table":
            return self.struct(inner, table_at(value, path))
        if form == "tables":
            return tuple(self.struct(inner, one) for one in tables_at(value, path))
        if form == "body":
            return read_body(value, path, BODIES, implied_options(table))
        if form == "tool list":
            return read_body(value, path, TOOL_LISTS, {})
        if form == "word":
            word = text_at(value, path)
            if word not in inner:
                raise not_among(path, "no such word", word, inner)
            return word
        return _SIMPLE[form](value, path)

    def struct(self, made: type[Struct], table: Table) -> Any:
        """A part of a table."""
        given = self.members(keys_of(made), table)
        if made is Segment:
            kind = given["kind"]
            if kind not in ITEMS:
                raise not_among(table.at("kind"), "no such kind of item", kind, ITEMS)
            given["item"] = ITEMS[kind]
        if made is Attribute:
            given["path"] = given["path"].removeprefix("hints.")  # as tables of before call fields of every item
        try:
            built = made(**given)
        except InvalidInput as error:
            path = table.at("pattern") if made is Clue else table.path
            raise InvalidFormat(error.message, path=path, expected=error.expected, got=error.got) from None
        return self._groups.setdefault(built, built) if isinstance(built, Group) else built


def _flag(value: Any, path: str) -> bool:
    if not isinstance(value, bool):
        raise wrong_type(path, "true or false", value)
    return value


def _number(value: Any, path: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise wrong_type(path, "a whole number", value)
    return value


def _words(value: Any, path: str) -> dict[str, str]:
    table = table_at(value, path)
    return {key: text_at(one, table.at(key)) for key, one in table.items()}


def _joints(value: Any, path: str) -> dict[tuple[str, str], str]:
    table = table_at(value, path)
    found: dict[tuple[str, str], str] = {}
    for key, one in table.items():
        kinds = tuple(key.split())
        if len(kinds) != 2:
            message = f"{key!r} must be two kinds of items, the one before and the one behind"
            raise InvalidFormat(message, path=table.at(key), expected='a key such as "assistant tool_call"', got=key)
        for kind in kinds:
            if kind not in ITEMS:
                raise not_among(table.at(key), "no such kind of item", kind, ITEMS)
        found[kinds[0], kinds[1]] = text_at(one, table.at(key))
    return found


def _rules(value: Any, path: str) -> tuple[tuple[str, tuple[str, ...]], ...]:
    found: list[tuple[str, tuple[str, ...]]] = []
    for table in tables_at(value, path):
        for key in table:
            if key not in RULE:
                raise not_among(table.at(key), "unknown key", key, RULE)
        for key in RULE:
            if not table.get(key):
                message = f"a rule has a {RULE[0]!r} and a {RULE[1]!r}, and neither may be empty"
                raise InvalidFormat(message, path=table.path, expected='{ lead = "<", rest = ["name>"] }')
        lead, rests = text_at(table["lead"], table.at("lead")), texts_at(table["rest"], table.at("rest"))
        for index, rest in enumerate(rests):
            if not rest:
                message = f"an empty rest would break every {lead!r}"
                raise InvalidFormat(message, path=f"{table.at('rest')}[{index}]", expected="some text", got="nothing")
        found.append((lead, rests))
    return tuple(found)


_SIMPLE: Mapping[str, Any] = {
    "text": text_at,
    "texts": texts_at,
    "flag": _flag,
    "number": _number,
    "words": _words,
    "pairs": lambda value, path: tuple(_words(value, path).items()),
    "joints": _joints,
    "rules": _rules,
    "escape": lambda value, path: Escape(*_rules(value, path)),
}


def implied_options(segment: Mapping[str, Any]) -> dict[str, str]:
    """Options of a body that follow from its segment: a call ends with what closes it."""
    close = segment.get("close", "")
    return {"end": close.strip()} if isinstance(close, str) else {}


# Writing.


def data_of(format_: Format) -> dict[str, Any]:
    """A format as TOML data, what is as it always is left out."""
    own = _written(keys_of(Format), format_)
    clues = {key: own.pop(key) for key in list(own) if key not in ("name", "title")}
    document = _written(keys_of(Document), format_.document)
    generation = document["generation"]
    if generation.get("stops_with_tools") == generation["stops"]:
        del generation["stops_with_tools"]  # with other stops, a format that is based on this one has those here, too
    return own | document | clues


def seen_data(data: dict[str, Any]) -> dict[str, Any]:
    """The same data with turns as they look, where a look can say them."""
    joints = dict(data.get("joints", {}))
    turns = [as_looks(turn, joints) for turn in data["turn"]]
    said = data | {"turn": turns} | ({"joints": joints} if joints else {})
    return {key: value for key, value in said.items() if key != "joints" or joints}


def _written(keys: Mapping[str, Key], struct: Any) -> dict[str, Any]:
    said: dict[str, Any] = {}
    for key in keys.values():
        value = getattr(struct, key.field)
        if value is not None and (not key.optional or value != key.default):
            said[key.name] = _data(key, value, struct)
    return said


def _data(key: Key, value: Any, struct: Any) -> Any:
    form, inner = key.type.form, key.type.inner
    if form == "table":
        return _written(keys_of(inner), value)
    if form == "tables":
        return [_written(keys_of(inner), one) for one in value]
    if form == "body":
        return write_body(value, BODIES, implied_options({"close": struct.close}))
    if form == "tool list":
        return write_body(value, TOOL_LISTS, {})
    if form in ("escape", "rules"):
        rules = value.rules if isinstance(value, Escape) else value
        return [{"lead": lead, "rest": list(rests)} for lead, rests in rules]
    if form == "joints":
        return {f"{before} {after}": text for (before, after), text in value.items()}
    if form in ("words", "pairs"):
        return dict(value)
    return list(value) if form == "texts" else value


__all__ = ["ITEMS", "data_of", "implied_options", "read_format", "type_words"]
