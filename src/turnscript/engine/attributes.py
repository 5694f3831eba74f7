r"""Owns the attributes of opening tags: ` key="value"`, each value JSON on one line without `<` and `>`.

Strings are the ordinary case. `<` and `>` are written `\u003c` and `\u003e`, so no tag can appear in a value and the
first `>>` ends the opening. Of tags without these, such as `[/USER]`, the first character is written so. A key that the
table does not name is kept in `attributes` of the item, in order.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Sequence
from typing import Any

import msgspec
from msgspec import Raw as RawJson

from turnscript.core.conversation import Item
from turnscript.core.errors import InvalidTranscript
from turnscript.core.json_text import Json, compact, json_string, plain, text_of, type_name, without_angles
from turnscript.core.losses import UnnamedLoss
from turnscript.core.source_paths import message_path
from turnscript.engine.escape import Escape
from turnscript.engine.lines import Lines
from turnscript.engine.spans import Writer
from turnscript.engine.table import Attribute, AttributeType

SPOKEN = ("system", "user", "assistant")
"""Kinds of items that are a turn's text, and say who speaks."""

AROUND = frozenset({"turn", "slot", "envelope"})
"""Fields of every item that say how it stood in its source: empty, they say nothing; no prompt misses a word there."""

_KEY = re.compile(r"[ \t]+([A-Za-z_][A-Za-z0-9_.-]*)=")
_PLAIN_STRING = re.compile(r'"[^"\\\x00-\x1f]*"')
_SPACES = re.compile(r"\s+")
_scan = json.JSONDecoder().raw_decode

_TYPES: dict[AttributeType, tuple[Any, str]] = {
    "text": (str, "a string in double quotes"),
    "flag": (bool, "true or false"),
    "number": (int, "a whole number"),
    "json": (RawJson, "a JSON value"),
    "object": (dict[str, RawJson], "a JSON object"),
    "names": (list[str], "a list of strings"),
}


def write_attributes(item: Any, attributes: Sequence[Attribute], out: Writer) -> str:
    """Return the attributes of an item's opening tag. In a prompt, archive-only ones become losses."""
    written: list[str] = []
    for attribute in attributes:
        if not attribute.written:
            continue
        value = getattr(item, attribute.path)
        if value is None:  # what most attributes are
            if not attribute.fallback:
                continue
            value = getattr(item, attribute.fallback)
        if (not value and attribute.path in AROUND) or _is_unsaid(attribute, value):
            continue
        if attribute.words:
            value = dict(attribute.words).get(value)
        if value is None:
            out.lose(f".{attribute.path}", "dropped", "this format has no word for it")
        elif out.archive or attribute.prompt:
            written.append(f" {attribute.key}={attribute_text(value)}")
        else:
            _lose(attribute, value, out)
    return out.escape.spelled("".join(written))


def _is_unsaid(attribute: Attribute, value: Any) -> bool:
    """Return whether a field holds nothing to be written. An empty text is something."""
    if value is None or value is False or value == attribute.default:
        return True
    return not value and attribute.type != "text"


def attribute_text(value: Any) -> str:
    """Return a value as it stands after `key=`."""
    if isinstance(value, str):
        return without_angles(json_string(value))
    text = text_of(value) if isinstance(value, RawJson) else msgspec.json.encode(value).decode()
    return without_angles(compact(text))


def bare_attributes(item: Any, attributes: Sequence[Attribute], out: Writer, escape: Escape) -> str:
    """Return attributes without quotes: ` name=Eric`. A value cannot hold white space, which becomes `_`.

    `escape`: the format's own, whatever that of the text before is.
    """
    written = []
    for attribute in attributes:
        value = turn_value(item, attribute) if item is not None else None
        if _is_unsaid(attribute, value):
            continue
        if not value:
            out.lose(f".{attribute.key}", "dropped", "nothing stands for an empty one here")
            continue
        shown = _SPACES.sub("_", str(value))
        if shown != value:
            out.lose(f".{attribute.key}", "approximated", "white space in it becomes _")
        written.append(f" {attribute.key}={escape.apply(shown)}")
    return "".join(written)


def turn_value(item: Item, attribute: Attribute) -> str | None:
    """Return what a turn's opening says for its text, or, where no text speaks, for the message around its first item.

    Calls and results have names that are no speaker's.
    """
    if item.kind in SPOKEN:
        said: str | None = getattr(item, attribute.path)
        return said
    value = (item.envelope or {}).get(attribute.path)
    return None if value is None or bytes(value)[:1] != b'"' else str(plain(value))


def extra_attributes(item: Item, out: Writer, named: Sequence[Attribute]) -> str:
    """Return the attributes that the table does not name, as they were read. What can be no key is a loss."""
    if not item.attributes:
        return ""
    if out.archive:
        known = {attribute.key for attribute in named}
        for key in item.attributes:
            if key in known or not _KEY.fullmatch(f" {key}="):
                out.lose(f".{key}", "dropped", "no attribute without a name here can be called so")
                known.add(key)
        given = [(key, value) for key, value in item.attributes.items() if key not in known]
        return out.escape.spelled("".join([f" {key}={without_angles(compact(value))}" for key, value in given]))
    for key in item.attributes:
        out.lose(f".{key}", "dropped", "a prompt shows only attributes that the format names")
    return ""


def scan_attributes(text: str, start: int, end: int, line: int, column: int) -> dict[str, Json]:
    """Return the attributes in `text[start:end]`, each value JSON text. `line` and `column` are those of `start`."""
    found: dict[str, Json] = {}
    position = start
    while position < end:
        match = _KEY.match(text, position, end)
        if match is None:
            if not text[position:end].strip():
                break
            raise _malformed(text[position:end], line, column + position - start)
        position = _value_end(text, match.end(), end)
        if position < 0:
            raise _malformed(text[match.end() : end], line, column + match.end() - start)
        if match[1] in found:
            message = f"the attribute {match[1]!r} is given twice"
            raise InvalidTranscript(message, line=line, column=column + match.start() - start)
        found[match[1]] = RawJson(_utf8(text[match.end() : position], line, column + match.end() - start))
    return found


def read_attributes(found: dict[str, Json], attributes: Sequence[Attribute], line: int) -> dict[str, Any]:
    """Return fields of an item from the attributes of its tag; unnamed ones go to its `attributes`."""
    fields: dict[str, Any] = {}
    for attribute in attributes:
        value = found.pop(attribute.key, None)
        if value is None:
            continue
        type_, expected = _TYPES[attribute.type]
        try:
            read = msgspec.json.decode(value, type=type_)
        except msgspec.ValidationError:
            message = f"the attribute {attribute.key!r} must be {expected}, not {type_name(value)}"
            raise InvalidTranscript(message, line=line, column=1, expected=expected, got=type_name(value)) from None
        read = {word: meant for meant, word in attribute.words}.get(read, read) if attribute.words else read
        if attribute.path:
            fields[attribute.path] = read
    if found:
        fields["attributes"] = dict(found)
    return fields


def _lose(attribute: Attribute, value: Any, out: Writer) -> None:
    if attribute.path in AROUND and attribute.type == "text":
        return  # how it stood in its source; nothing that it says
    if attribute.type == "object":
        place = message_path(out.place) if attribute.path == "envelope" else out.place
        missing = "a prompt has no place for it"
        out.losses += [UnnamedLoss(f"{place}.{key}", "dropped", missing) for key in value]
    else:
        member = attribute.key if attribute.path == "of" else attribute.path
        out.lose(f".{member}", "dropped", "a prompt does not show it")


def _value_end(text: str, start: int, end: int) -> int:
    """Return where the JSON value at `start` ends, -1 if there is none. Only white space or `end` may follow."""
    plain = _PLAIN_STRING.match(text, start, end)
    if plain:
        return plain.end()
    try:
        position: int = _scan(text, start)[1]
    except (ValueError, RecursionError):
        return -1
    return position if position <= end else -1


def _utf8(value: str, line: int, column: int) -> bytes:
    try:
        data = value.encode()
        msgspec.json.decode(data, type=RawJson)
    except (UnicodeEncodeError, msgspec.DecodeError):
        message = "the attribute's value is not JSON"
        raise InvalidTranscript(message, line=line, column=column, expected="a JSON value") from None
    return data


def _malformed(text: str, line: int, column: int) -> InvalidTranscript:
    got = text[:20].split("\n", maxsplit=1)[0]
    message = f'malformed attribute at {got!r}; attributes are written key="value", values as JSON'
    return InvalidTranscript(message, line=line, column=column, expected='key="value"', got=got)


def read_word(
    known: Sequence[Attribute], opening: str, found: re.Match[str], said: Collection[str], lines: Lines
) -> tuple[str, str] | None:
    """Return key and value of a word behind the opening of a speaker's turn, where attributes are words: `name=Ann`.

    None for a word that is no attribute. `said`: the keys before it.
    """
    word, at, keys = found[0], found.start(), sorted(attribute.key for attribute in known)
    key, equals, value = word.partition("=")
    if not equals or key not in keys:
        expected = " or ".join(f"{one}=..." for one in keys)
        remedy = "" if equals and said else f"; write {expected}"
        remedy = "; a value holds no white space, in quotes or not" if said and not equals else remedy
        lines.note(at, f"{word!r} is no attribute of {opening}{remedy}", expected)
        return None
    if not value:
        lines.note(at, f"{word!r} has no value; write one, or leave it out", f"{word}...")
    if value[:1] in ("'", '"') and value[:1] == value[-1:]:
        lines.warn(at, f"the quotes are read as a part of the value {value}; leave them out if they are none")
    if key in said:
        lines.note(at, f"the attribute {key!r} is given twice", "each attribute once")
    return key, value
