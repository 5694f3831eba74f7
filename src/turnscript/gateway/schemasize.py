"""Owns how much there is to a JSON Schema where it is applied: with what it refers to in the place of each reference.

A validator follows each reference anew. Forty definitions that refer to the next one twice are two kilobytes, and would
keep it busy for days. A reference that leads into itself is followed as often as the value is deep: to say whether a
value fits, a validator remembers what it has found, but to say what is wrong it follows each one again at each level.
And what is said of members that nothing has evaluated makes it look again at all that may have evaluated some.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Any
from urllib.parse import unquote, urldefrag, urljoin

_REFERENCES = ("$ref", "$dynamicRef", "$recursiveRef")
_ANCHORS = ("$anchor", "$dynamicAnchor")
_DYNAMIC = ("$dynamicAnchor", "$recursiveAnchor")
"""With the same one below several ids, the way that a validator came decides where a reference leads."""
_DIALECT = "$schema"
_OLD = "draft-04"
"""Of the dialect in which an id is called `id`; in later ones that is a member like any other."""
_APART = frozenset({"$defs", "definitions", "const", "enum", "default", "examples"})
"""Members that are applied only where something refers to them, or never."""
_BY_NAME = frozenset({"properties", "patternProperties", "dependentSchemas", "dependencies"})
"""Members that hold a schema under each name, whatever it is."""
_ITEMS = frozenset({"items", "prefixItems", "additionalItems", "unevaluatedItems", "contains"})
_MEMBERS = frozenset({"additionalProperties", "unevaluatedProperties", "propertyNames"})
_UNEVALUATED = ("unevaluatedProperties", "unevaluatedItems")
_IN_PLACE = ("allOf", "anyOf", "oneOf", "not", "if", "then", "else", "dependentSchemas", "dependencies")
"""Members whose schemas are applied to the value itself, and may evaluate members of it."""
_KNOWN = ("http://json-schema.org/", "https://json-schema.org/")
"""Where the schemas of schemas are, which a validator brings along."""
_WALKED = 10
"""How many objects may be looked at for each reference that may be followed: large schemas have few references."""
_DEEPEST = 10_000
"""How many parts of a schema may be applied one inside the other. Each stands on the validator's stack, which has no
bound of its own: where 8 MB of it are full, at 20,000 to 300,000 parts, the process is gone."""
_DEEPEST_IN_PLACE = 200
"""The same of parts that are looked at again: those are compiled one inside the other, which 1,000 end."""
_OBJECTS_KNOWN = 10
"""How many parts of a schema of schemas are applied to a level of a value: one is applied, whoever refers to it."""

Schema = dict[str, Any]


class References:
    """Where the references of a schema lead. `unclear`: a validator may take one for another, or find one that is not
    found here, so that nobody can say what there is behind it."""

    def __init__(self, schema: Any) -> None:
        self.schema = schema
        self.unclear = False
        self.unevaluated: list[Schema] = []  # the objects that say something of what nothing has evaluated
        self.leads_out = False  # to a schema of schemas, of which nothing is known here
        self._objects = 0  # with something inside, or behind a reference: none other leads further
        self._dialect = str(schema.get(_DIALECT)) if isinstance(schema, dict) else ""
        self._id = "id" if _OLD in self._dialect else "$id"
        self._bases: dict[int, str] = {}  # of each object that refers to something, by its identity
        self._named: dict[str, Any] = {"": schema}
        self._targets: dict[int, list[Any]] = {}
        self._dynamic: dict[str | bool, str] = {}
        waiting: list[tuple[Any, str]] = [(schema, "")]
        while waiting:
            value, base = waiting.pop()
            if isinstance(value, dict):
                base = self._enter(value, base)
                refers = any(key in value for key in _REFERENCES)
                if refers:
                    self._bases[id(value)] = base
                if any(key in value for key in _UNEVALUATED):
                    self.unevaluated.append(value)
                self._objects += refers or any(isinstance(one, dict | list) for one in value.values())
                waiting += [(one, base) for one in value.values()]
            elif isinstance(value, list):
                waiting += [(one, base) for one in value]

    def deepest(self, value: Any) -> int:
        """How many parts of the schema are applied one inside the other at most: for each level of the value, all."""
        objects = self._objects + _OBJECTS_KNOWN * self.leads_out
        return objects * _levels(value) if self._bases else objects

    def of(self, schema: Schema) -> list[str]:
        """The references of an object itself, as absolute as they can be."""
        base = self._bases.get(id(schema), "")
        found = [str(schema[key]) for key in _REFERENCES if key in schema]
        # `urljoin` knows no base but those of the web.
        return [f"{base}{one}" if one[:1] == "#" else urljoin(base, one) for one in found]

    def targets(self, schema: Schema) -> list[Any]:
        """What the references of an object itself lead to."""
        if id(schema) not in self._bases:
            return []
        found = self._targets.get(id(schema))
        if found is None:
            found = self._targets[id(schema)] = [self.target(one) for one in self.of(schema)]
        return found

    def target(self, reference: str) -> Any:
        """What a reference leads to; None where there is nothing."""
        uri, fragment = urldefrag(reference)
        if fragment and fragment[0] != "/":
            found = self._named.get(reference)
        else:
            found = _pointed(self._named.get(uri), fragment)
        if found is None and uri.startswith(_KNOWN):
            self.leads_out = True
        elif found is None:
            self.unclear = True
        return found

    def _enter(self, schema: Schema, base: str) -> str:
        """Note the names that an object has; returns the base of what is in it."""
        id_ = schema.get(self._id)
        if isinstance(id_, str) and id_[:1] == "#":  # what older dialects say for an anchor
            self._note(f"{base}{id_}", schema)
        elif isinstance(id_, str):
            name = urljoin(base, id_)
            base = urldefrag(name)[0] or base
            self._note(name, schema)
            self._note(base, schema)
        for key in _ANCHORS:
            if isinstance(schema.get(key), str):
                self._note(f"{base}#{schema[key]}", schema)
        for key in _DYNAMIC:
            if isinstance(schema.get(key), str) or schema.get(key) is True:
                self.unclear = self.unclear or self._dynamic.setdefault(schema[key], base) != base
        if schema is not self.schema:
            # Dialects differ in what is an id. Older ones see nothing beside a reference, newer ones do.
            dialect = schema.get(_DIALECT)
            other = isinstance(dialect, str) and (_OLD in dialect) != (_OLD in self._dialect)
            beside = isinstance(id_, str) and isinstance(schema.get("$ref"), str)
            self.unclear = self.unclear or other or beside
        return base

    def _note(self, name: str, schema: Schema) -> None:
        # Who puts a schema in at each place that needs it has the same one under one name.
        self.unclear = self.unclear or self._named.setdefault(name, schema) != schema


def unrolled(references: References, most: int) -> int:
    """How many references are followed at most, those behind references included; `most` where it is that or more. One
    that leads into itself counts once: that is what it takes to say whether a value fits."""
    start = "#"
    behind: dict[str, list[str]] = {}
    sizes: dict[str, int] = {}
    walked, waiting = 0, [start]
    while waiting:
        at = waiting[-1]
        if at in behind:
            waiting.pop()
            if at not in sizes:
                sizes[at] = min(most, 1 + sum(sizes.get(one, 1) for one in behind[at]))
            continue
        found: list[str] = []
        for value in _applied(references.schema if at == start else references.target(at)):
            walked += 1
            found += references.of(value)
        if walked > _WALKED * most:  # references into one another's insides
            return most
        behind[at] = found
        waiting += [one for one in dict.fromkeys(found) if one not in behind]
    return sizes[start]


def revisited(references: References, most: int) -> int:
    """How many parts of the schema are looked at to know what they have evaluated, for the one that asks for most;
    `most` where it is that or more, or where they lie too deep. One that asks itself makes each part behind it be
    looked at once more."""
    largest = walked = 0
    for start in references.unevaluated:
        count, waiting = 0, [(start, 0)]
        while waiting:
            schema, depth = waiting.pop()
            count += 1
            if depth > _DEEPEST_IN_PLACE or count + len(waiting) >= most:
                return most
            inner = [(one, depth + 1) for one in _in_place(references, schema)]
            waiting += inner
            if schema is not start and any(key in schema for key in _UNEVALUATED):
                waiting += inner
        largest, walked = max(largest, count), walked + count
        if walked > _WALKED * most:
            return most
    return largest


def _in_place(references: References, schema: Schema) -> Iterator[Schema]:
    """The objects of a schema that are applied to the same value as the schema itself."""
    found = list(references.targets(schema))
    for key in _IN_PLACE:
        inner = schema.get(key)
        if key in _BY_NAME and isinstance(inner, dict):
            found += inner.values()
        else:
            found += inner if isinstance(inner, list) else [inner]
    return (one for one in found if isinstance(one, dict))


def applications(references: References, value: Any, most: int) -> int:
    """How often a part of the schema is applied to a part of a value, where nothing is remembered; `most` where it is
    that or more."""
    count, waiting = 0, [(references.schema, value)]
    while waiting:
        schema, part = waiting.pop()
        count += 1
        if count + len(waiting) >= most:
            return most
        if isinstance(schema, dict):
            waiting += [(one, part) for one in references.targets(schema)]
            waiting += islice(_inside(schema, part), most)
    return count


def too_deep(references: References, value: Any) -> bool:
    """Whether a schema may lead so deep into a value that a validator's stack cannot hold it."""
    # To count is slow, so first what cannot be too deep, which is nearly everything.
    if references.deepest(value) <= _DEEPEST:
        return False
    return references.leads_out or applications(references, value, _DEEPEST) >= _DEEPEST


def _levels(value: Any) -> int:
    """How deep lists and objects are nested."""
    levels, row = 0, [value]
    while row:
        levels += 1
        held = [one.values() if isinstance(one, dict) else one for one in row]
        row = [part for parts in held for part in parts if isinstance(part, dict | list)]
    return levels


def _inside(schema: Schema, value: Any) -> Iterator[tuple[Any, Any]]:
    """The schemas inside one, each with what it is applied to."""
    values = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    for key, inner in schema.items():
        schemas = inner if isinstance(inner, list) else [inner]
        if key in _BY_NAME and isinstance(inner, dict):
            yield from _by_name(key, inner, value)
        elif key in _ITEMS or key in _MEMBERS:
            yield from ((one, part) for one in schemas for part in values)
        elif key not in _APART and key not in _REFERENCES:
            yield from ((one, value) for one in schemas if isinstance(one, dict))


def _by_name(key: str, schemas: Schema, value: Any) -> Iterator[tuple[Any, Any]]:
    if key == "properties":
        members = value if isinstance(value, dict) else {}
        yield from ((schemas[name], members[name]) for name in members if name in schemas)
    elif key == "patternProperties":
        members = value if isinstance(value, dict) else {}
        yield from ((schema, part) for schema in schemas.values() for part in members.values())
    else:
        yield from ((schema, value) for schema in schemas.values())


def _applied(schema: Any) -> Iterator[Schema]:
    """A schema and all inside it."""
    waiting = [schema]
    while waiting:
        value = waiting.pop()
        if isinstance(value, dict):
            yield value
            for key, one in value.items():
                if key in _BY_NAME and isinstance(one, dict):
                    waiting += one.values()
                elif key not in _APART:
                    waiting.append(one)
        elif isinstance(value, list):
            waiting += value


def _pointed(schema: Any, pointer: str) -> Any:
    """What a pointer into a schema leads to; None where there is nothing."""
    value = schema
    for step in unquote(pointer).split("/")[1:]:
        key = step.replace("~1", "/").replace("~0", "~")
        if isinstance(value, dict):
            value = value.get(key)
        elif isinstance(value, list) and key.isdecimal() and int(key[:9]) < len(value):
            value = value[int(key[:9])]
        else:
            return None
    return value
