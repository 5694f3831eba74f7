"""Owns the checks that no schema leads a validator deeper than its stack holds: that would end the whole gateway."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest

from turnscript.core.json_text import json_of
from turnscript.gateway import checks
from turnscript.gateway.schemasize import References, applications, too_deep

TOO_DEEP = ("unchecked", "", "the schema could not be applied: nested too deep")

# In a process of its own: a stack that is too small for it takes the process along.
APPLY = """
import json, sys
from turnscript.gateway import checks
from turnscript.core.json_text import json_of
value, schema = json.load(sys.stdin)
print(json.dumps(list(checks.check_value(value, json_of(schema)))))
"""


def nested(depth: int) -> Any:
    value: Any = {}
    for _ in range(depth):
        value = {"a": value}
    return value


def chain(length: int, step: str) -> dict[str, Any]:
    """Definitions, each of which applies the next; the last one applies the first to what is inside the value."""

    def one(at: int) -> dict[str, Any]:
        inner = {"$ref": f"#/$defs/n{at + 1}"} if at + 1 < length else {"properties": {"a": {"$ref": "#/$defs/n0"}}}
        return {"not": {"not": inner}} if step == "not" else {step: [{"minProperties": 9}, inner]}

    return {"$ref": "#/$defs/n0", "$defs": {f"n{at}": one(at) for at in range(length)}}


@pytest.mark.parametrize("step", ["anyOf", "oneOf", "not"])
def test_a_schema_that_leads_deep_into_deep_arguments_is_not_applied(step: str) -> None:
    # As many levels as every Python reads. Spelled by hand: not every one writes so many.
    asked = json.dumps([{}, chain(300, step)]).replace("{}", '{"a":' * 900 + "{}" + "}" * 900, 1)
    done = subprocess.run([sys.executable, "-c", APPLY], input=asked.encode(), capture_output=True, check=False)
    assert (0, [list(TOO_DEEP)]) == (done.returncode, json.loads(done.stdout or "null")), done.stderr


def test_a_value_deeper_than_a_validator_goes_is_not_checked() -> None:
    """Python 3.14 reads as many levels as its stack holds: more than a validator's does."""
    schema = json_of({"type": "object", "properties": {"a": {"$ref": "#"}}})
    assert [TOO_DEEP] == list(checks.check_value(nested(30_000), schema))
    assert [] == list(checks.check_value(nested(2_000), schema))


def test_a_schema_that_leads_nowhere_deep_is_applied_to_any_value() -> None:
    large = {"properties": {f"p{at}": {"items": {"type": "string"}} for at in range(9_000)}}
    assert not too_deep(References(large), nested(900))
    # By its size alone it could lead deep, so it is counted: it does not.
    referring = large | {"$defs": {"n": {"properties": {"a": {"$ref": "#/$defs/n"}}}}, "$ref": "#/$defs/n"}
    assert References(referring).deepest(nested(50)) > 10_000 > applications(References(referring), nested(50), 10_000)
    assert not too_deep(References(referring), nested(50))
    (found,) = checks.check_value({"p7": [1]}, json_of(referring))
    assert ("schema_mismatch", ".p7[0]") == found[:2]


@pytest.mark.parametrize("dialect", ["2019-09", "2020-12"])
def test_a_schema_of_schemas_is_not_applied_to_a_value_that_is_too_deep_for_it(dialect: str) -> None:
    """It is the validator's own, so nobody sees here what there is to it."""
    address = f"https://json-schema.org/draft/{dialect}/schema"
    schema = {"$schema": address, "$ref": address}
    script = f"""
import json
from turnscript.gateway import checks
from turnscript.core.json_text import json_of
value = {{"type": 5}}
for _ in range(9_900):
    value = {{"not": value}}
print(json.dumps(list(checks.check_value(value, json_of({schema!r})))), flush=True)
while value:
    value = value.get("not")
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, check=False)
    assert (0, [list(TOO_DEEP)]) == (done.returncode, json.loads(done.stdout or "null")), done.stderr
    (found,) = checks.check_value({"not": {"not": {"type": 5}}}, json_of(schema))
    assert ("schema_mismatch", ".not.not.type") == found[:2]
