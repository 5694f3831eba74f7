"""Owns how large a JSON Schema is where it is applied: with what it refers to in the place of each reference.

A validator follows each reference anew. Forty definitions that refer to the next one twice are two kilobytes, and would
keep it busy for days. A reference that leads into itself counts once: how often it is followed, the value decides.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from urllib.parse import unquote

_REFERENCES = ("$ref", "$dynamicRef", "$recursiveRef")
_ANCHORS = ("$anchor", "$dynamicAnchor")
_APART = frozenset({"$defs", "definitions", "const", "enum", "default", "examples"})
"""Members that are applied only where something refers to them, or never."""
_WALKED = 10
"""How many objects may be looked at for each reference that may be followed: large schemas have few references."""


def unrolled(schema: Any, most: int) -> int:
    """How many references are followed at most, those behind references included; `most` where it is that or more."""
    anchors = _anchors(schema)
    behind: dict[str, list[str]] = {}
    sizes: dict[str, int] = {}
    walked, waiting = 0, ["#"]
    while waiting:
        at = waiting[-1]
        if at in behind:
            waiting.pop()
            if at not in sizes:
                sizes[at] = min(most, 1 + sum(sizes.get(one, 1) for one in behind[at]))
            continue
        found: list[str] = []
        for value in _applied(_pointed(schema, at) if at == "#" or at[:2] == "#/" else anchors.get(at)):
            walked += 1
            found += [str(value[key]) for key in _REFERENCES if key in value]
        if walked > _WALKED * most:  # references into one another's insides
            return most
        behind[at] = found
        waiting += [one for one in dict.fromkeys(found) if one not in behind]
    return sizes["#"]


def _applied(schema: Any) -> Iterator[dict[str, Any]]:
    """A schema and all inside it."""
    waiting = [schema]
    while waiting:
        value = waiting.pop()
        if isinstance(value, dict):
            yield value
            waiting += [one for key, one in value.items() if key not in _APART]
        elif isinstance(value, list):
            waiting += value


def _anchors(schema: Any) -> dict[str, Any]:
    """What has a name of its own, by the reference that leads there."""
    found: dict[str, Any] = {}
    waiting = [schema]
    while waiting:
        value = waiting.pop()
        if isinstance(value, dict):
            found |= {f"#{value[key]}": value for key in _ANCHORS if key in value}
            found |= {str(value[key]): value for key in ("$id", "id") if isinstance(value.get(key), str)}
            waiting += value.values()
        elif isinstance(value, list):
            waiting += value
    return found


def _pointed(schema: Any, reference: str) -> Any:
    """What a pointer into a schema leads to; None where there is nothing."""
    value = schema
    for step in unquote(reference[2:]).split("/") if len(reference) > 1 else ():
        key = step.replace("~1", "/").replace("~0", "~")
        if isinstance(value, dict):
            value = value.get(key)
        elif isinstance(value, list) and key.isdecimal() and int(key[:9]) < len(value):
            value = value[int(key[:9])]
        else:
            return None
    return value
