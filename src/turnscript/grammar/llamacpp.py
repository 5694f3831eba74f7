"""Owns which JSON Schemas llama.cpp holds better than a grammar of ours, where it is sent one as `json_schema`.

Its build has one of two converters: its own to GBNF, or llguidance. Neither refuses all that it does not know. What the
first one passes over makes the second one leave the whole answer free, without a word. So a schema is for it only where
each word stands in a place in which both of them hold it, and where our grammar misses no more than counts.

Source: common/json-schema-to-grammar.cpp and common/llguidance.cpp of the llama.cpp project. Quirks of the first: what
stands beside alternatives, references and lists of values is passed over; `{}` is an object; integers alone have a
range; counts end at 2,000, and all of them are written out; patterns know no `\\d`. Of the second: an object is open
unless it says that it is not, and numbers are those of 64-bit floats.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from turnscript.core.json_text import Json, plain
from turnscript.core.losses import Loss
from turnscript.grammar.schema import is_of_type

_GAINS = frozenset({"minLength", "maxLength", "minItems", "maxItems"})
_ALIKE = frozenset({"format"})
"""What both may tell in part: that there is a 30th of February, for instance."""
_REMARKS = frozenset({"title", "description", "$comment", "default", "examples", "$defs"})
_DRAFTS = (None, "http://json-schema.org/draft-07/schema#", "https://json-schema.org/draft/2020-12/schema")
_FORMATS = ("date", "time", "date-time", "uuid")
_MOST_COUNTED, _MOST_OF_ALL = 2_000, 20_000
"""Characters or items that are counted in one place, and in all places of a schema: clients choose these."""
_FURTHEST, _DEEPEST = 1 << 53, 48


def left_of(data: Json, losses: Sequence[Loss]) -> list[Loss] | None:
    """Return which losses of our grammar are left where llama.cpp is sent the schema. None where it is not to be sent,
    because llama.cpp would not hold all the rest."""
    words = [loss.path.rpartition(".")[2] for loss in losses]
    schema: Any = plain(data) if _GAINS & {*words} and _GAINS | _ALIKE >= {*words} else None
    if not isinstance(schema, dict) or schema.get("$schema") not in _DRAFTS or _counted(schema) > _MOST_OF_ALL:
        return None
    if not _holds({word: value for word, value in schema.items() if word != "$schema"}, schema, 0):
        return None
    return [loss for loss, word in zip(losses, words, strict=True) if word not in _GAINS]


def _counted(schema: Any) -> int:
    """Return how many characters and items are counted in a schema."""
    count, waiting = 0, [schema]
    while waiting:
        one = waiting.pop()
        if isinstance(one, dict):
            count += max((number for word in _GAINS if type(number := one.get(word)) is int), default=0)
            waiting += one.values()
        elif isinstance(one, list):
            waiting += one
    return count


def _holds(schema: Any, root: dict[str, Any], depth: int) -> bool:
    """Return whether a part of a schema is held."""
    if not isinstance(schema, dict) or depth > _DEEPEST or not isinstance(schema.get("type", ""), str):
        return False
    said = schema.keys() - _REMARKS
    leading = next((word for word in _HIDING if word in said), schema.get("type"))
    words, holds, parts_of = _KNOWN.get(leading, _UNKNOWN)
    if not said <= words or not holds(schema, root):
        return False
    parts = [*parts_of(schema), *_members(schema, "$defs")]
    return all(_holds(one, root, depth + 1) for one in parts)


def _members(schema: dict[str, Any], word: str) -> list[Any]:
    """Return the schemas that an object of schemas has; None stands for what is no such object."""
    found = schema.get(word, {})
    return list(found.values()) if isinstance(found, dict) else [None]


def _leads(schema: dict[str, Any], root: dict[str, Any]) -> bool:
    """Return whether a reference leads, by a plain name, to a definition with a type, so that no circle is empty."""
    start, _, name = str(schema["$ref"]).rpartition("/")
    defined = root.get("$defs")
    found = defined.get(name) if isinstance(defined, dict) else None
    return start == "#/$defs" and name.isascii() and name.isidentifier() and isinstance(found, dict) and "type" in found


def _any_of(schema: dict[str, Any], root: dict[str, Any]) -> bool:
    return isinstance(schema["anyOf"], list) and bool(schema["anyOf"])


def _listed(schema: dict[str, Any], root: dict[str, Any]) -> bool:
    """Return whether each value that is allowed is of the type."""
    values = [schema["const"]] if "const" in schema else schema["enum"]
    return isinstance(values, list) and bool(values) and all(is_of_type(one, schema.get("type")) for one in values)


def _text(schema: dict[str, Any], root: dict[str, Any]) -> bool:
    if "format" in schema:
        return schema["format"] in _FORMATS and not schema.keys() & {"minLength", "maxLength"}
    return _counts(schema, "minLength", "maxLength")


def _counts(schema: dict[str, Any], least: str, most: str) -> bool:
    low, high = schema.get(least, 0), schema.get(most, _MOST_COUNTED)
    return type(low) is int and type(high) is int and 0 <= low <= high <= _MOST_COUNTED


def _integer(schema: dict[str, Any], root: dict[str, Any]) -> bool:
    """Return whether each side has one end at most, and a number is between them."""
    low, high = schema.get("minimum"), schema.get("maximum")
    for word, end in (("exclusiveMinimum", low), ("exclusiveMaximum", high)):
        if word in schema and (end is not None or type(schema[word]) is not int):
            return False
    low = schema["exclusiveMinimum"] + 1 if "exclusiveMinimum" in schema else low
    high = schema["exclusiveMaximum"] - 1 if "exclusiveMaximum" in schema else high
    ends = [one for one in (low, high) if one is not None]
    return all(type(one) is int and abs(one) < _FURTHEST for one in ends) and ends == sorted(ends)


def _array(schema: dict[str, Any], root: dict[str, Any]) -> bool:
    return "items" in schema and _counts(schema, "minItems", "maxItems")


def _object(schema: dict[str, Any], root: dict[str, Any]) -> bool:
    members, required = schema.get("properties"), schema.get("required", [])
    if schema.get("additionalProperties") is not False or not isinstance(members, dict) or not members:
        return False
    return isinstance(required, list) and all(isinstance(one, str) and one in members for one in required)


def _holds_always(schema: dict[str, Any], root: dict[str, Any]) -> bool:
    return True


def _no_parts(schema: dict[str, Any]) -> list[Any]:
    return []


Known = tuple[frozenset[str], Callable[[dict[str, Any], dict[str, Any]], bool], Callable[[dict[str, Any]], list[Any]]]
_HIDING = ("$ref", "anyOf", "const", "enum")
"""Words that hide what stands beside them."""
_UNKNOWN: Known = (frozenset(), _holds_always, _no_parts)
_SIMPLE: Known = (frozenset({"type"}), _holds_always, _no_parts)
_KNOWN: Mapping[Any, Known] = {
    "$ref": (frozenset({"$ref"}), _leads, _no_parts),
    "anyOf": (frozenset({"anyOf"}), _any_of, lambda schema: list(schema["anyOf"])),
    "const": (frozenset({"const", "type"}), _listed, _no_parts),
    "enum": (frozenset({"enum", "type"}), _listed, _no_parts),
    "boolean": _SIMPLE,
    "null": _SIMPLE,
    "number": _SIMPLE,
    "string": (frozenset({"type", "minLength", "maxLength", "format"}), _text, _no_parts),
    "integer": (
        frozenset({"type", "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"}),
        _integer,
        _no_parts,
    ),
    "array": (frozenset({"type", "items", "minItems", "maxItems"}), _array, lambda schema: [schema["items"]]),
    "object": (
        frozenset({"type", "properties", "required", "additionalProperties"}),
        _object,
        lambda schema: _members(schema, "properties"),
    ),
}
"""By the word that says most of a schema, or by its type: which words may stand there, whether their values are held,
and the schemas in it."""
