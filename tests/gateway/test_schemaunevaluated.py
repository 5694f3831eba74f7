"""Owns the checks of schemas that ask what was evaluated: none of them keeps a validator, or ends the gateway."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest

from turnscript.core.json_text import json_of
from turnscript.gateway import checks
from turnscript.gateway.schemasize import References, revisited

# In a process of its own: a stack that is too small takes the process along, and what never ends can be ended.
APPLY = """
import json, sys
from turnscript.gateway import checks
from turnscript.core.json_text import json_of
value, schema = json.load(sys.stdin)
print(json.dumps([kind for kind, _, _ in checks.check_value(value, json_of(schema))]))
"""
CLOSED = {"unevaluatedProperties": False}
STEPS: dict[str, Any] = {
    "allOf": lambda inner: {"allOf": [inner]},
    "anyOf": lambda inner: {"anyOf": [{"not": True}, inner]},
    "oneOf": lambda inner: {"oneOf": [inner]},
    "if": lambda inner: {"if": inner},
    "then": lambda inner: {"if": True, "then": inner},
    "else": lambda inner: {"if": False, "else": inner},
    "dependentSchemas": lambda inner: {"dependentSchemas": {"a": inner}},
    "$ref": dict,
}


def chain(length: int, step: Any, beside: dict[str, Any]) -> dict[str, Any]:
    """Definitions, each of which applies the next one in its own place."""
    steps = {f"n{at}": step({"$ref": f"#/$defs/n{at + 1}"}) | beside for at in range(length)}
    return {"$ref": "#/$defs/n0", "$defs": steps | {f"n{length}": {"properties": {"a": {}}}}}


def applied(schema: Any) -> tuple[int, Any]:
    """How the process ended that applied a schema, and what it found."""
    asked = json.dumps([{"a": 1}, schema]).encode()
    done = subprocess.run([sys.executable, "-c", APPLY], input=asked, capture_output=True, check=False, timeout=120)
    return done.returncode, json.loads(done.stdout or "null")


@pytest.mark.parametrize("step", STEPS)
def test_a_chain_in_which_each_looks_at_what_the_next_has_evaluated_is_not_applied(step: str) -> None:
    """Of 30, each takes up to three times what the next one does; of thousands, compiling fills the stack."""
    assert 10_000 == revisited(References(chain(30, STEPS[step], CLOSED)), 10_000)
    assert (0, ["schema_unusable"]) == applied(chain(4_000, STEPS[step], CLOSED))


@pytest.mark.parametrize("step", ["allOf", "if", "$ref"])
def test_one_look_at_what_a_long_chain_has_evaluated_is_not_compiled(step: str) -> None:
    assert (0, ["schema_unusable"]) == applied(chain(4_000, STEPS[step], {}) | CLOSED)


def extending(more: dict[str, Any]) -> dict[str, Any]:
    """As documents of OpenAPI 3.1 have them: kinds of objects, each of which extends another, inside one another."""
    kinds: dict[str, Any] = {
        f"k{at}": {"allOf": [{"$ref": f"#/$defs/k{at + 1}"}], "properties": {f"p{at}": {}, "in": {"$ref": "#"}}} | more
        for at in range(5)
    }
    return {"$ref": "#/$defs/k0", "$defs": kinds | {"k5": {"properties": {"city": {"type": "string"}}}}}


def test_schemas_that_are_closed_over_others_are_applied() -> None:
    assert 100 > revisited(References(extending(CLOSED)), 10_000)
    extended = json_of(extending({"unevaluatedProperties": True}))
    assert [] == list(checks.check_value({"city": "Rome", "p0": 1}, extended))
    (found,) = checks.check_value({"city": 1, "in": {"in": {"city": "Rome"}}}, extended)
    assert ("schema_mismatch", ".city") == found[:2]
    wide = {"anyOf": [{"properties": {f"p{at}": {}}, "required": [f"p{at}"]} for at in range(4_000)]} | CLOSED
    assert [] == list(checks.check_value({"p7": 1}, json_of(wide)))
    assert ["schema_mismatch"] == [kind for kind, _, _ in checks.check_value({"p7": 1, "q": 1}, json_of(wide))]


def test_many_closed_objects_inside_one_another_are_not_many_looks() -> None:
    schema: dict[str, Any] = {}
    for _ in range(40):
        schema = {"properties": {"a": schema}} | CLOSED
    assert 1 == revisited(References(schema), 10_000)
    assert [] == list(checks.check_value({"a": {"a": {}}}, json_of(schema)))
    many = {"properties": {f"p{at}": {"allOf": [{"minProperties": 0}] * 3} | CLOSED for at in range(5_000)}}
    assert 4 == revisited(References(many), 10_000)
    assert [] == list(checks.check_value({"p1": {}}, json_of(many)))
