"""Owns JSON Schemas as rules: the JSON texts that are valid under a schema, as far as rules can tell that.

What they cannot tell, such as a pattern or a range of numbers, is a loss, and is left to whoever checks the value
afterwards. The rules are no longer than the schema is: what is said once is one rule, and what would grow beyond
`MOST_NODES` is any value.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from turnscript.core.json_text import Json
from turnscript.grammar.keys import other_keys
from turnscript.grammar.nodes import (
    EMPTY,
    Choice,
    Literal,
    Node,
    Reference,
    Repeat,
    Sequence,
    choice,
    optional,
    sequence,
)
from turnscript.grammar.rules import (
    ARRAY,
    BOOLEAN,
    COMMA,
    NULL,
    OBJECT,
    STRING,
    VALUE,
    WS,
    Others,
    Rules,
    separated,
)
from turnscript.grammar.scalars import OF_NUMBERS, OF_TEXTS, length, number_node, text_node

MOST_TIMES = 100
"""How far items are counted."""
_DEEPEST = 48
_MOST_ALIKE = 32
_WORDS: Mapping[str, Reference] = {"boolean": BOOLEAN, "null": NULL}
_OF_VALUES = tuple(dict.fromkeys((*OF_TEXTS, *OF_NUMBERS)))
_UNTOLD = (
    *("uniqueItems", "contains", "patternProperties", "dependentRequired", "dependentSchemas", "dependencies", "if"),
    *("not", "unevaluatedProperties", "unevaluatedItems", "additionalItems", "$dynamicRef", "$recursiveRef"),
)
_OF_MEMBERS = ("propertyNames", "minProperties", "maxProperties")
"""What is told of objects whose schema says so much that their members are written one by one."""
_BESIDE = (*_UNTOLD, "anyOf", "oneOf")
"""What is not told of arguments, which are an object's members one by one."""
_ELSEWHERE = frozenset({"$ref", "const", "enum", "anyOf", "oneOf"})
"""Demands that are told instead of those that a type has."""
_SHAPING = frozenset({"type", "properties", "required", "items", "enum", "const", "additionalProperties", "$ref"})


class Member(Struct, frozen=True):
    """One member that an object may have: its schema, and where that stands."""

    key: str
    schema: Any
    required: bool
    path: str


class Members(Struct, frozen=True):
    """What an object may hold.

    `more`: the schema of other members; None where there are none. `names`: that of their keys. There are at least
    `least` and at most `most` of them.
    """

    known: list[Member]
    more: Any | None
    names: Any = None
    least: int = 0
    most: int | None = None

    @property
    def is_open(self) -> bool:
        """Whether there may be any, and the schema names none."""
        return not self.known and self.more is not None


class Items(Struct, frozen=True):
    """Says what an array holds: at least and at most so many such values, without an end where `most` is None."""

    item: Member
    least: int
    most: int | None


def read_schema(data: Json | None, rules: Rules, path: str) -> Any:
    """A schema as Python has it; None where there is none, or one that nobody can read."""
    if data is None:
        return None
    try:
        schema = json.loads(bytes(data), parse_constant=_no_json)
        if b"\\ud" in bytes(data).lower():
            json.dumps(schema, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        rules.lose(path, "it holds half of a character, which no grammar can name")
        return None
    except (ValueError, RecursionError):
        rules.lose(path, "it has too many levels, or is no JSON")
        return None
    return schema


def _no_json(word: str) -> None:
    """NaN and its like, which Python reads and JSON does not have."""
    raise ValueError(f"{word} is no JSON")


def json_text(value: Any) -> str:
    """A value as JSON on one line, without spaces. Raises ValueError for a number that is too large to be one here."""
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return text if text.isprintable() else json.dumps(value, separators=(",", ":"))


class Schema:
    """The rules of one schema. `name`: what its rules are called after; `path`: where it stands. `protect`: how a text
    of the schema is written in the place for which the rules are.
    """

    def __init__(self, rules: Rules, schema: Any, name: str, path: str, protect: Callable[[str], str] = str) -> None:
        self._rules, self._root, self._name, self._path, self._protect = rules, schema, name, path, protect
        self._referred: dict[str, Reference] = {}
        self._pointers: dict[int, str] = {}
        self._open: frozenset[str] = frozenset()  # rules that nothing stands before yet: none of them may begin there
        self._deep = self._merging = 0

    def value(self) -> Node:
        """The JSON texts of the schema."""
        return self.node(self._root, self._path)

    def arguments(self) -> Node:
        """The same for the arguments of a call, which are an object whatever their schema says."""
        members = self.members()
        if members is None:
            node = self.node(self._root, self._path) if _is_alternative(self._root) else self._rules.shared(OBJECT)
            return node if isinstance(node, Reference) and node == OBJECT else self._objects_only(node)
        name = self._rules.named(self._name, "args")
        return self._rules.add(name, self._object(members, self._name))

    def _objects_only(self, node: Node) -> Node:
        return node if _begins_object(self._rules, node, 0) else self._rules.shared(OBJECT)

    def members(self) -> Members | None:
        """The members of the schema, None where it says nothing of them."""
        schema, path = self._resolved(self._root, self._path)
        if not isinstance(schema, dict):
            return None
        if _is_object(schema) or not _is_alternative(schema):
            self._lose(schema, _BESIDE, path)
        return self._members_of(schema, path) if _is_object(schema) else None

    def lose_alternatives(self) -> None:
        """Book alternatives for the whole, where arguments are written one by one and none of them is told."""
        if _is_alternative(self._root):
            self._lose(self._root, _BESIDE, self._path)

    def few_objects(self, most: int) -> list[dict[str, Any]]:
        """Return a schema for each object that is valid, if there are at most so many; else nothing."""
        if not isinstance(self._root, dict) or self._root.keys() - _REMARKS - {"type", "$defs", *_NAMING}:
            return []
        found = self.members()
        if found is None or found.more is not None:
            return []
        made: list[dict[str, Any]] = [{}]
        for member in found.known:
            ways = [{member.key: one} for one in _each(self._resolved(member.schema, member.path)[0])]
            ways += [] if member.required or not ways else [{}]
            if not 0 < len(made) * len(ways) <= most:
                return []
            made = [{**before, **way} for before in made for way in ways]
        closed = {"type": "object", "additionalProperties": False}
        return [{**closed, "properties": one, "required": list(one)} for one in made]

    def member(self, member: Member) -> Node:
        """The JSON texts of one member's value."""
        return self._inside(member.schema, member.path)

    def lose_text(self, member: Member) -> None:
        """Book what a schema demands of a value that is written without quotes: nothing of it is told."""
        self._rules.lose_text(self.member(member))

    def inner(self, member: Member) -> Members | None:
        """The members of one member that is an object, None where it is something else, or the schema does not say."""
        schema, path = self._resolved(member.schema, member.path)
        return self._members_of(schema, path) if isinstance(schema, dict) and _is_object(schema) else None

    def items(self, member: Member) -> Items | None:
        """Return what a member holds that is an array of values all alike; None where it is something else."""
        schema, path = self._resolved(member.schema, member.path)
        if not isinstance(schema, dict) or not isinstance(schema.get("items"), dict) or schema.get("prefixItems"):
            return None
        least, most = length(schema.get("minItems")) or 0, length(schema.get("maxItems"))
        if least > MOST_TIMES or (most is not None and not max(least, 1) <= most <= MOST_TIMES):
            return None
        return Items(Member(f"{member.key}_item", schema["items"], True, f"{path}.items"), least, most)

    def node(self, schema: Any, path: str) -> Node:
        """The JSON texts of a schema."""
        if not isinstance(schema, dict) or not self._rules.spend() or self._deep > _DEEPEST:
            if schema is False:
                self._rules.lose(path, "nothing is valid here, and any value is taken")
            elif isinstance(schema, dict):
                self._rules.lose(path, "too large or too deep for a grammar; any value is taken")
            return self._rules.shared(VALUE)
        self._deep += 1
        try:
            return self._told(schema, path)
        finally:
            self._deep -= 1

    def _told(self, schema: dict[str, Any], path: str) -> Node:
        self._lose(schema, _UNTOLD, path)
        if not _is_object(schema) or schema.keys() & _ELSEWHERE:
            self._lose(schema, _OF_MEMBERS, path)
        if not isinstance(schema.get("type"), str | list) or schema.keys() & _ELSEWHERE:
            self._lose(schema, _OF_VALUES, path)
        if isinstance(schema.get("$ref"), str):
            return self._reference(schema["$ref"], path)
        if "const" in schema:
            return self._words([schema["const"]], schema, path)
        if isinstance(schema.get("enum"), list):
            return self._words(schema["enum"], schema, path)
        for word in ("anyOf", "oneOf"):
            if isinstance(schema.get(word), list) and schema[word]:
                return self._alternatives(schema, word, path)
        if isinstance(schema.get("allOf"), list) and schema["allOf"]:
            return self.node(self._merged(schema, path), path)
        return self._typed(schema, path)

    def _lose(self, schema: dict[str, Any], words: Iterable[str], path: str) -> None:
        for word in words:
            if word in schema and schema[word] not in (None, {}):
                self._rules.lose(f"{path}.{word}", "a grammar does not tell it")

    def _typed(self, schema: dict[str, Any], path: str) -> Node:
        type_ = schema.get("type")
        if isinstance(type_, list):
            names = dict.fromkeys(one for one in type_ if isinstance(one, str))
            options = [self._typed({**schema, "type": one}, path) for one in list(names)[:_MOST_TYPES]]
            return choice(*options) if options else self._rules.shared(VALUE)
        if type_ == "string":
            return text_node(schema, self._rules, self._name, path)
        if type_ in ("integer", "number"):
            return number_node(schema, self._rules, path, whole=type_ == "integer")
        if isinstance(type_, str) and type_ in _WORDS:
            return self._rules.shared(_WORDS[type_])
        if type_ == "object" or (type_ is None and _is_object(schema)):
            members = self._members_of(schema, path) if _is_object(schema) else None
            if members is None:
                return self._rules.shared(OBJECT)
            name = self._rules.named(self._name, "object")
            return self._rules.add(name, self._object(members, self._name))
        if type_ == "array" or (type_ is None and schema.keys() & {"items", "prefixItems"}):
            return self._array(schema, path)
        if type_ is not None:
            self._rules.lose(f"{path}.type", f"{type_!r} is no type that is known here; any value is taken")
        return self._rules.shared(VALUE)

    def _words(self, values: list[Any], schema: dict[str, Any], path: str) -> Node:
        """Values as they stand in the schema, those of its type."""
        fitting = [one for one in values if is_of_type(one, schema.get("type"))]
        if not fitting or not self._rules.spend(len(fitting)):
            self._rules.lose(path, "the values that are allowed are too many for a grammar, or none")
            return self._rules.shared(VALUE)
        try:
            return choice(*(Literal(self._protect(json_text(one))) for one in fitting))
        except (ValueError, RecursionError):
            self._rules.lose(path, "a value is too large a number, or too deep; any value is taken")
            return self._rules.shared(VALUE)

    def _alternatives(self, schema: dict[str, Any], word: str, path: str) -> Node:
        beside = (_SHAPING | {"anyOf", "oneOf", "allOf"}) - {word, "type"}
        if beside & schema.keys():
            self._rules.lose(f"{path}.{word}", "a grammar does not tell alternatives beside other demands")
            return self._typed(schema, path) if "allOf" not in schema else self.node(_less(schema, word), path)
        if word == "oneOf" and len(schema[word]) > 1:
            self._rules.lose(f"{path}.{word}", "a value may be valid under more than one")
        options = []
        for index, one in enumerate(schema[word]):
            if isinstance(one, dict) and "type" in schema and not _SHAPING & one.keys():
                one = {**one, "type": schema["type"]}  # noqa: PLW2901
            option = self._option(one, f"{path}.{word}[{index}]")
            if option is not None:
                options.append(option)
        return choice(*options) if options else self._rules.shared(VALUE)

    def _option(self, schema: Any, path: str) -> Node | None:
        """An alternative; None for one that is the whole once more, which adds nothing."""
        if isinstance(schema, dict) and isinstance(schema.get("$ref"), str) and schema["$ref"] in self._open:
            return None
        return self.node(schema, path)

    def _reference(self, pointer: str, path: str) -> Node:
        """A schema that stands elsewhere: one rule, wherever it is referred to."""
        target = self._find(pointer)
        if target is not None:  # of the ways to spell a pointer, the first one that came
            pointer = self._pointers.setdefault(id(target[0]), pointer)
        known = self._referred.get(pointer)
        if pointer in self._open:
            self._rules.lose(path, f"{pointer!r} leads back to itself; any value is taken")
            return self._rules.shared(VALUE)
        if known is not None:
            return known
        if target is None:
            self._rules.lose(path, f"{pointer!r} leads nowhere in this schema; any value is taken")
            return self._rules.shared(VALUE)
        name = self._rules.named(self._name, pointer.rpartition("/")[2].lstrip("#") or "whole")
        self._referred[pointer] = Reference(name)
        before, self._open = self._open, self._open | {pointer}
        node = self.node(target[0], f"{self._path}{pointer.replace('/', '.')[1:]}")
        self._open = before
        return self._rules.add(name, node)

    def _find(self, pointer: str) -> tuple[Any] | None:
        if not pointer.startswith("#") or pointer[1:2] not in ("", "/"):
            return None
        found = self._root
        for step in pointer.split("/")[1:]:
            key = step.replace("~1", "/").replace("~0", "~")
            if isinstance(found, dict) and key in found:
                found = found[key]
            elif isinstance(found, list) and key.isdecimal() and len(key) <= _LONGEST_INDEX and int(key) < len(found):
                found = found[int(key)]
            else:
                return None
        return (found,)

    def _resolved(self, schema: Any, path: str) -> tuple[Any, str]:
        """A schema with what it only refers to, or is merged of, in its place."""
        for _ in range(_MOST_ALIKE):
            if not isinstance(schema, dict):
                break
            if isinstance(schema.get("$ref"), str):
                found = self._find(schema["$ref"])
                if found is None:
                    break
                schema = found[0]
            elif isinstance(schema.get("allOf"), list) and schema["allOf"]:
                schema = self._merged(schema, path)
            else:
                break
        return schema, path

    def _merged(self, schema: dict[str, Any], path: str) -> dict[str, Any]:
        """One schema for what must be valid under several: their members together."""
        merged = {key: value for key, value in schema.items() if key != "allOf"}
        if self._merging == _MOST_MERGED:
            self._rules.lose(f"{path}.allOf", "it leads back to itself, or too far")
            return merged
        self._merging += 1
        for key, copied in (("properties", dict), ("required", list)):
            if isinstance(merged.get(key), copied):
                merged[key] = copied(merged[key])
        for index, one in enumerate(schema["allOf"]):
            here = f"{path}.allOf[{index}]"
            if not self._rules.spend():
                self._rules.lose(here, "too much for a grammar")
                break
            part, _ = self._resolved(one, path)
            if isinstance(part, dict) and self._rules.spend(_weight(part)):
                self._merge(merged, part, here)
            else:
                self._rules.lose(here, "too much for a grammar")
        self._merging -= 1
        return merged

    def _merge(self, merged: dict[str, Any], part: dict[str, Any], path: str) -> None:
        """Add the demands of one more schema. The members of `merged` are its own."""
        for key, value in part.items():
            mine = merged.get(key)
            if key == "properties" and isinstance(mine, dict) and isinstance(value, dict):
                for name in value.keys() & mine.keys():
                    if _differ(mine[name], value[name]):
                        self._rules.lose(f"{path}.properties.{name}", "a grammar tells one of several demands alone")
                mine.update(value)
            elif key == "required" and isinstance(mine, list) and isinstance(value, list):
                mine.extend(value)
            elif key not in merged:
                merged[key] = value.copy() if key in ("properties", "required") and _is_copied(value) else value
            elif key not in _REMARKS and _differ(mine, value):
                self._rules.lose(f"{path}.{key}", "a grammar tells one of several demands alone")

    def _members_of(self, schema: dict[str, Any], path: str) -> Members:
        properties = schema.get("properties")
        properties = properties if isinstance(properties, dict) else {}
        required = [one for one in schema.get("required") or () if isinstance(one, str)] if _lists(schema) else []
        demanded = frozenset(required)
        known = [Member(key, value, key in demanded, f"{path}.properties.{key}") for key, value in properties.items()]
        more = schema.get("additionalProperties")
        if more is None and not known and not required:
            more = True
        more = None if more is None or more is False else more
        names, _ = self._resolved(schema.get("propertyNames"), path)
        listed = listed_strings(names) if more is not None else []
        value = True if more is None else more
        others = [key for key in dict.fromkeys([*required, *listed]) if key not in properties]
        known += [Member(key, value, key in demanded, path) for key in others]
        return self._counted(Members(known, None if listed else more, names), schema, path)

    def _counted(self, members: Members, schema: dict[str, Any], path: str) -> Members:
        """Return them with how many others there are. A key that comes twice counts once, which no grammar can tell."""
        needed, named = sum(member.required for member in members.known), len(members.known)
        least, most = length(schema.get("minProperties")) or 0, length(schema.get("maxProperties"))
        fixed, others = needed == named, members.more is not None
        if least > needed + (fixed and others):
            self._lose(schema, ("minProperties",), path)
        if most is not None and not (needed <= most <= MOST_TIMES if fixed and others else most >= named):
            self._lose(schema, ("maxProperties",), path)
        if not others:
            return members
        if members.known and members.names is not None:
            self._lose(schema, ("propertyNames",), path)
        fewest = min(max(least - needed, 0), MOST_TIMES) if fixed else 0
        bound = self._rules.most_others
        if most is not None and needed <= most <= MOST_TIMES:
            bound = most - needed
        if bound is not None and (bound < fewest or not self._rules.count(bound)):
            bound = None
        return replace(members, least=fewest, most=bound)

    def _object(self, members: Members, name: str) -> Node:
        """An object: the members that the schema names in their order, then others if it allows them."""
        rows: list[tuple[Node, bool]] = []
        for member in members.known:
            if not self._rules.spend():
                self._rules.lose(member.path, "too large for a grammar")
                if member.required:
                    return self._rules.shared(OBJECT)
                continue
            label = self._rules.named(name, member.key, "kv")
            key = self._protect(json_text(member.key))
            node = sequence(key, WS, ":", WS, self._inside(member.schema, member.path))
            rows.append((self._rules.add(label, node), member.required))
        row = separated(self._rules, rows, COMMA, name, self._others(members, name))
        return sequence("{", WS, row, WS, "}") if row != EMPTY else sequence("{", WS, "}")

    def _others(self, members: Members, name: str) -> Others | None:
        """Members that the schema does not name."""
        if members.more is None or members.most == 0:
            return None
        known = [member.key for member in members.known]
        room = self._rules.spend(sum(map(len, known)))
        if known:
            key = other_keys(known) if room else None
        elif isinstance(members.names, dict):
            key = self._inside({**members.names, "type": "string"}, f"{self._path}.propertyNames")
        else:
            key = self._rules.shared(STRING)
        if key is None:
            self._rules.lose(self._path, "other members than those that are named are too many to tell")
            return None
        label = self._rules.named(name, "more")
        node = sequence(key, WS, ":", WS, self._inside(members.more, self._path))
        return Others(self._rules.add(label, node), members.least, members.most)

    def _array(self, schema: dict[str, Any], path: str) -> Node:
        items = schema.get("items")
        least, most = length(schema.get("minItems")) or 0, length(schema.get("maxItems"))
        first = schema["prefixItems"] if isinstance(schema.get("prefixItems"), list) else []
        if items is False:
            most = min(len(first), len(first) if most is None else most)
        if most is not None and most < least:
            self._rules.lose(path, "there can be no such array; a longer one is taken")
            most = None
        for word, count in (("minItems", least), ("maxItems", most or 0)):
            if count > MOST_TIMES:
                self._rules.lose(f"{path}.{word}", f"items are counted up to {MOST_TIMES}")
        least, most = min(least, MOST_TIMES), None if (most or 0) > MOST_TIMES else most
        if not isinstance(items, dict) and not first and not least and most is None:
            return self._rules.shared(ARRAY)
        if most == 0:
            return sequence("[", WS, "]")
        named = [self._item(one, f"{path}.prefixItems[{at}]") for at, one in enumerate(first[:most])]
        item = self._item(items if isinstance(items, dict) else True, path + ".items") if most != len(named) else EMPTY
        return self._rules.add(self._rules.named(self._name, "array"), _listed(named, item, least, most))

    def _item(self, schema: Any, path: str) -> Node:
        item = self._inside(schema, path)
        if isinstance(item, Reference | Literal):
            return item
        return self._rules.add(self._rules.named(self._name, "item"), item)

    def _inside(self, schema: Any, path: str) -> Node:
        """A schema behind something: whatever is open may begin again there."""
        before, self._open = self._open, frozenset()
        node = self.node(schema, path)
        self._open = before
        return node


def _listed(first: list[Node], item: Node, least: int, most: int | None) -> Node:
    """Return an array of the `first` items and then of others, at least and at most so many of all."""
    first = first or [item]
    size = len(first)
    row: Node = EMPTY
    if most is None or most > size:
        row = Repeat(sequence(COMMA, item), max(least - size, 0), None if most is None else most - size)
    for at in reversed(range(size)):
        row = sequence(COMMA if at else EMPTY, first[at], row)
        row = row if at < least else optional(row)
    return sequence("[", WS, row, WS, "]")


_MOST_TYPES = 7
_LONGEST_INDEX = 9
_MOST_MERGED = 8
_NAMING = ("properties", "required", "additionalProperties")
_OF_OBJECTS = (*_NAMING, *_OF_MEMBERS)
_REMARKS = frozenset({"title", "description", "$schema", "$id", "$comment", "default", "examples", "deprecated"})


def listed_strings(schema: Any) -> list[str]:
    """Return the strings that a schema allows, if it lists them."""
    if not isinstance(schema, dict):
        return []
    listed = [schema["const"]] if "const" in schema else schema.get("enum")
    return [one for one in listed if isinstance(one, str)] if isinstance(listed, list) else []


def _each(schema: Any) -> list[dict[str, Any]]:
    """Return a schema for each value that is valid, where a schema says so plainly; nothing where it does not."""
    said = schema.keys() - _REMARKS if isinstance(schema, dict) else set()
    type_ = schema.get("type") if "type" in said else None
    if "const" in said and said <= {"const", "type"} and _is_simple(schema["const"]):
        return [schema]
    listed = schema.get("enum") if "enum" in said else {"boolean": [True, False], "null": [None]}.get(str(type_))
    if not said <= {"enum", "type"} or not isinstance(listed, list) or not all(map(_is_simple, listed)):
        return []
    if type_ is None and not all(isinstance(one, str) for one in listed):  # such a text may be a string or JSON
        return []
    typed = {} if type_ is None else {"type": type_}
    return [{**typed, "enum": [one]} for one in listed if is_of_type(one, type_)]


def _is_simple(value: Any) -> bool:
    return value is None or isinstance(value, str | int)


def _weight(schema: dict[str, Any]) -> int:
    """What it costs to merge a schema with others."""
    return len(schema) + sum(len(schema[key]) for key in ("properties", "required") if _is_copied(schema.get(key)))


def _is_copied(value: Any) -> bool:
    return isinstance(value, dict | list)


def _differ(one: Any, other: Any) -> bool:
    """Whether two demands are not the same, as far as that can be told."""
    try:
        return bool(one != other)
    except RecursionError:
        return True


def _less(schema: dict[str, Any], word: str) -> dict[str, Any]:
    return {key: value for key, value in schema.items() if key != word}


def _lists(schema: dict[str, Any]) -> bool:
    return isinstance(schema.get("required"), list)


def _is_object(schema: dict[str, Any]) -> bool:
    """Whether a schema says something of an object's members."""
    said = schema.get("type") in (None, "object") or (isinstance(schema["type"], list) and "object" in schema["type"])
    return said and any(schema.get(word) not in (None, [], {}) for word in _OF_OBJECTS)


def _is_alternative(schema: Any) -> bool:
    return isinstance(schema, dict) and bool(schema.get("anyOf") or schema.get("oneOf"))


def _begins_object(rules: Rules, node: Node, depth: int) -> bool:
    """Whether all texts of a node are objects."""
    if depth > _MOST_ALIKE:
        return False
    if isinstance(node, Reference):
        inner = rules.rule(node.name)
        return node == OBJECT or (inner is not None and _begins_object(rules, inner, depth + 1))
    if isinstance(node, Choice):
        return all(_begins_object(rules, option, depth + 1) for option in node.options)
    first = node.parts[0] if isinstance(node, Sequence) and node.parts else node
    return isinstance(first, Literal) and first.text.startswith("{")


def is_of_type(value: Any, types: Any) -> bool:
    """Return whether a value is of a type, or of one of several."""
    if isinstance(types, list):
        return any(is_of_type(value, one) for one in types if not isinstance(one, list))
    if types == "integer":
        return type(value) is int or (type(value) is float and value.is_integer())
    if types == "number":
        return type(value) in (int, float)
    known: Any = _PYTHON.get(types) if isinstance(types, str) else None
    return known is None or type(value) in known


_PYTHON: Mapping[str, tuple[type[Any], ...]] = {
    "string": (str,),
    "boolean": (bool,),
    "null": (type(None),),
    "object": (dict,),
    "array": (list,),
}
