"""Owns the checks of costly schemas: small ones that keep a validator for ever are known, and end in a finding."""

from __future__ import annotations

import tracemalloc
from typing import Any

import pytest

from turnscript.core.json_text import Json, json_of
from turnscript.gateway import checks
from turnscript.gateway.schemasize import References, applications, unrolled


def doubled(levels: int, last: object) -> Json:
    """A schema of definitions that refer to the next one twice."""
    steps = {f"a{at}": {"allOf": [{"$ref": f"#/$defs/a{at + 1}"}] * 2} for at in range(levels)}
    return json_of({"properties": {"city": {"$ref": "#/$defs/a0"}}, "$defs": steps | {f"a{levels}": last}})


def test_a_schema_whose_references_multiply_is_not_applied() -> None:
    (found,) = checks.check_value({"city": "Paris"}, doubled(21, {"type": "string"}))
    assert ("schema_unusable", "") == found[:2]


def test_of_a_schema_with_many_references_only_the_verdict_is_told() -> None:
    large, small = doubled(12, {"type": "integer"}), doubled(2, {"type": "integer"})
    assert [("schema_mismatch", "")] == [found[:2] for found in checks.check_value({"city": "Paris"}, large)]
    assert [("schema_mismatch", ".city")] * 4 == [found[:2] for found in checks.check_value({"city": "Paris"}, small)]
    assert [] == list(checks.check_value({"city": 1}, large))


@pytest.mark.parametrize(
    ("schema", "expected"),
    [
        (True, 1),
        ({"properties": {f"p{at}": {} for at in range(500)} | {"a": {"$ref": "#"}}}, 2),
        ({"$ref": "#/$defs/a~1b%20c", "$defs": {"a/b c": {"items": {"$ref": "#x"}}, "d": {"$anchor": "x"}}}, 3),
        ({"items": [{"$ref": "#/items/1"}, {"$ref": "https://other/"}], "enum": [{"$ref": "#"}]}, 4),
        ({"$ref": "one", "$defs": {"a": {"$id": "one", "not": {"$ref": "#/$defs/none"}}}}, 3),
        ({"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}}, 4),
        ({"properties": {f"p{at}": {"$ref": "#/$defs/a"} for at in range(5)}, "$defs": {"a": {}}}, 6),
    ],
)
def test_references_are_counted_in_the_places_that_they_stand_for(schema: object, expected: int) -> None:
    assert expected == unrolled(References(schema), 100)


def test_a_chain_of_references_of_any_length_is_counted() -> None:
    chain = {f"a{at}": {"$ref": f"#/$defs/a{at + 1}"} for at in range(20_000)}
    assert 20_002 == unrolled(References({"$ref": "#/$defs/a0", "$defs": chain}), 100_000)


ROOT = {"$ref": "#"}
RECURSIVE: dict[str, dict[str, Any]] = {
    "anyOf": {"type": "object", "properties": {"a": {"anyOf": [ROOT, ROOT]}}, "required": ["a"]},
    "oneOf": {"type": "object", "properties": {"a": {"oneOf": [ROOT, ROOT]}}, "required": ["a"]},
    "allOf": {"type": "object", "properties": {"a": {"allOf": [ROOT, ROOT]}}, "required": ["a"]},
    "pattern": {"type": "object", "properties": {"a": ROOT}, "patternProperties": {"^a": ROOT}, "required": ["a"]},
    "additional": {"type": "object", "additionalProperties": {"anyOf": [ROOT, ROOT]}, "minProperties": 1},
    "two": {
        "$ref": "#/$defs/x",
        "$defs": {
            "x": {"type": "object", "properties": {"a": {"anyOf": [{"$ref": "#/$defs/x"}, {"$ref": "#/$defs/y"}]}}},
            "y": {"$ref": "#/$defs/x", "required": ["a"]},
        },
        "required": ["a"],
    },
    "dynamic": {
        "$dynamicAnchor": "n",
        "type": "object",
        "properties": {"a": {"anyOf": [{"$dynamicRef": "#n"}, {"$dynamicRef": "#n"}]}},
        "required": ["a"],
    },
}


def nested(levels: int, leaf: object, key: str = "a") -> Any:
    value = leaf
    for _ in range(levels):
        value = {key: value}
    return value


@pytest.mark.parametrize("schema", RECURSIVE.values(), ids=RECURSIVE)
def test_of_deep_arguments_only_the_verdict_is_told_where_the_schema_branches_into_itself(schema: Any) -> None:
    """To say what is wrong doubles with each level: 30 of them would take a day."""
    told = list(checks.check_value(nested(30, 1), json_of(schema)))
    assert [("schema_mismatch", "", "not what the schema allows")] == told
    (shallow, *_) = checks.check_value(nested(2, 1), json_of(schema))
    assert shallow[1].startswith(".a")


def test_deep_arguments_of_a_schema_that_leads_into_itself_once_are_explained() -> None:
    schema = json_of({"type": "object", "properties": {"a": ROOT, "b": {"items": ROOT}}})
    (found,) = checks.check_value(nested(30, 1), schema)
    assert ".a" * 30 == found[1]


def test_a_part_of_a_schema_is_counted_for_each_part_of_a_value_that_it_is_applied_to() -> None:
    schema: dict[str, Any] = {
        "properties": {"a": {"items": {"$ref": "#/$defs/x"}}, "b": {"prefixItems": [True, False]}},
        "additionalProperties": {"enum": [{"$ref": "#"}]},
        "$defs": {"x": {"not": {"const": {}}}},
    }

    def count(value: Any, most: int = 1_000) -> int:
        return applications(References(schema), value, most)

    assert [1, 1, 3] == [count(value) for value in (1, {}, {"a": 1})]
    assert 3 + 3 * 3 == count({"a": [1, 2, 3]})
    assert 50 == count({"a": [1, 2, 3] * 1_000}, 50)
    assert 4 == applications(References({"not": {"not": {"type": "null"}}, "if": True, "then": {}}), 1, 100)


@pytest.mark.parametrize("key", ["dependentSchemas", "patternProperties", "properties"])
def test_a_schema_under_a_name_is_applied_as_its_keyword_says(key: str) -> None:
    schema = {key: {"a": {"type": "integer"}, "b": {"type": "integer"}}}
    value = {"a": 1, "c": 2, "d": 3}
    expected = {"dependentSchemas": 1 + 2, "patternProperties": 1 + 2 * 3, "properties": 1 + 1}[key]
    assert expected == applications(References(schema), value, 100)


def test_references_into_one_anothers_insides_are_followed_only_so_far() -> None:
    """Each is walked through anew: a thousand of them in one another, a few kilobytes, would be a million objects."""
    schema: dict[str, Any] = {}
    inside: Any = True
    for _ in range(60):
        inside = {"properties": {"a": inside}}
    schema |= inside
    schema["allOf"] = [{"$ref": "#" + "/properties/a" * level} for level in range(1, 60)]
    assert 100 == unrolled(References(schema), 100)
    assert 60 == unrolled(References(schema), 1_000)


def chain(levels: int, reference: str) -> dict[str, Any]:
    """Definitions that refer to the next one twice, by `reference` with its number."""
    steps = {f"d{at}": {"anyOf": [{"$ref": reference.format(at + 1)}] * 2} for at in range(levels)}
    return steps | {f"d{levels}": {"type": "integer"}}


WAYS: dict[str, dict[str, Any]] = {
    "under a name that is a keyword": {
        "$ref": "#/$defs/d0",
        "$defs": {
            f"d{at}": {"properties": {"enum": {"anyOf": [{"$ref": f"#/$defs/d{at + 1}"}] * 2}}} for at in range(40)
        }
        | {"d40": {"type": "integer"}},
    },
    "by the id of the whole": {"$id": "http://x/s", "$ref": "#/$defs/d0", "$defs": chain(40, "http://x/s#/$defs/d{}")},
    "in a part with an id": {
        "$ref": "http://x/n",
        "$defs": {"n": {"$id": "http://x/n", "allOf": [{"$ref": "#/$defs/d0"}], "$defs": chain(40, "#/$defs/d{}")}},
    },
    "by relative ids": {
        "$id": "http://x/a/b",
        "$ref": "d0",
        "$defs": {name: {"$id": f"/a/{name}", **one} for name, one in chain(40, "d{}").items()},
    },
    "by an id of no web": {"$id": "urn:x:y", "$ref": "#/$defs/d0", "$defs": chain(40, "#/$defs/d{}")},
    "past a member called id": {"id": "http://y/", "$ref": "#/$defs/d0", "$defs": chain(40, "#/$defs/d{}")},
}


@pytest.mark.parametrize("schema", WAYS.values(), ids=WAYS)
def test_references_that_multiply_are_found_whatever_they_are_called(schema: Any) -> None:
    value = nested(40, "x", "enum") if "id" not in str(schema) else "x"
    (found,) = checks.check_value(value, json_of(schema))
    assert "schema_unusable" == found[0]


UNCLEAR: list[dict[str, Any]] = [
    {"$defs": {"a": {"$id": "n"}, "b": {"$id": "n", "type": "object"}}, "$ref": "n"},
    {"$defs": {"a": {"$id": "n", "$ref": "#"}}, "$ref": "n"},
    {"$defs": {"a": {"$schema": "http://json-schema.org/draft-04/schema#"}}},
    {"$ref": "#/$defs/none"},
    {"$dynamicAnchor": "n", "$defs": {"a": {"$id": "a", "$dynamicRef": "#n", "$defs": {"b": {"$dynamicAnchor": "n"}}}}},
    {"$recursiveAnchor": True, "$defs": {"a": {"$id": "a", "$recursiveAnchor": True, "$recursiveRef": "#"}}},
]


@pytest.mark.parametrize("schema", UNCLEAR)
def test_a_schema_of_which_it_is_not_clear_where_it_leads_is_not_applied(schema: Any) -> None:
    references = References(schema)
    unrolled(references, 100)
    assert references.unclear
    (found,) = checks.check_value({}, json_of(schema))
    assert "schema_unusable" == found[0]


_DRAFT = "http://json-schema.org/draft-07/schema#"
CLEAR: dict[str, dict[str, Any]] = {
    "an id that is an anchor": {
        "$schema": _DRAFT,
        "definitions": {"a": {"$id": "#a", "type": "string"}},
        "properties": {"x": {"$ref": "#a"}},
    },
    "an id that is an anchor below another": {
        "$schema": _DRAFT,
        "$id": "urn:x:y",
        "definitions": {"a": {"$id": "#a", "type": "string"}},
        "properties": {"x": {"$ref": "#a"}},
    },
    "ids as generators of schemas write them": {
        "$schema": _DRAFT,
        "$id": "http://x/root.json",
        "properties": {"x": {"$id": "#/properties/x", "type": "string"}, "y": {"$id": "#/properties/y"}},
    },
    "a part that says its dialect": {"properties": {"x": {"$schema": _DRAFT, "type": "string"}}},
    "a part that says its dialect in other words": {
        "$schema": _DRAFT,
        "properties": {"x": {"$schema": _DRAFT[:-1], "type": "string"}},
    },
    "a value with a dialect": {
        "properties": {"x": {"type": "string"}, "y": {"default": {"$schema": "https://x/config.json"}}}
    },
    "a dynamic anchor that stands below one id": {
        "$id": "http://x/r",
        "$dynamicAnchor": "n",
        "properties": {"x": {"type": "string"}, "y": {"$dynamicRef": "#n"}},
    },
    "members called like keywords": {
        "properties": {"x": {"type": "string"}, "$id": {"type": "string"}, "$ref": {"type": "string"}}
    },
}


@pytest.mark.parametrize("schema", CLEAR.values(), ids=CLEAR)
def test_a_schema_of_which_it_is_clear_where_it_leads_is_applied(schema: Any) -> None:
    (found,) = checks.check_value({"x": 1}, json_of(schema))
    assert ("schema_mismatch", ".x") == found[:2]


def test_a_schema_that_stands_twice_under_its_name_is_applied() -> None:
    one = {"$id": "http://x/n", "type": "string"}
    (found,) = checks.check_value({"a": 1}, json_of({"$defs": {"a": one, "b": one}, "properties": {"a": one}}))
    assert ("schema_mismatch", ".a") == found[:2]


def test_a_schema_of_many_parts_takes_no_memory_for_those_that_refer_to_nothing() -> None:
    schema = {"allOf": [{"type": "string"} for _ in range(20_000)]}
    tracemalloc.start()
    try:
        references = References(schema)
        held, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert references.schema is schema
    assert held < 20 * 20_000


@pytest.mark.parametrize("levels", [400, 900, 1_500, 5_000])
def test_a_schema_of_any_depth_ends_in_a_finding(levels: int) -> None:
    deep = b'{"not":' * levels + b'{"$id":"http://x/n","type":"string"}' + b"}" * levels
    (found,) = checks.check_value({"a": 1}, Json(b'{"properties":{"a":%b,"b":%b}}' % (deep, deep)))
    assert found[0] in ("schema_unusable", "schema_mismatch")


@pytest.mark.parametrize(
    "uri", ["https://json-schema.org/draft/2020-12/schema", "http://json-schema.org/draft-07/schema#"]
)
def test_a_value_may_be_a_schema_itself(uri: str) -> None:
    schema = json_of({"$schema": uri, "properties": {"schema": {"$ref": uri}}})
    assert [] == list(checks.check_value({"schema": {"type": "object"}}, schema))
    (found,) = checks.check_value({"schema": {"type": "thing"}}, schema)
    assert "schema_mismatch" == found[0]
