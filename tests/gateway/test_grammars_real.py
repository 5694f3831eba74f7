"""Owns that the real llama.cpp reads every format's grammars as we mean them: what it writes is of their rules."""

from __future__ import annotations

import json
from typing import Any

import httpx2
import jsonschema_rs
import pytest

import turnscript as ts
from tests.conformance.test_grammar_laws import NAMES, prompts
from tests.every import every
from tests.gateway.stage import NO_TLS
from tools.real.schemas import CASES, SchemaCase
from turnscript.backends.llamacpp import LlamaCpp
from turnscript.core.json_text import json_of
from turnscript.grammar.rest import behind, matches


@pytest.mark.deep
@every("name", NAMES)
def test_what_llama_cpp_writes_is_of_the_rules(name: str, llamacpp: str) -> None:
    """Whole texts, and the beginnings of those that met the limit."""
    with httpx2.Client(base_url=llamacpp, verify=NO_TLS, timeout=60) as client:
        for seed, prompt in enumerate(prompts(ts.get_format(name), len(name))):
            told = prompt.grammar("gbnf")
            assert told is not None
            ask = {"prompt": "Go.", "grammar": told.text, "n_predict": 120, "seed": seed, "temperature": 1.5}
            answer = client.post("/completion", json=ask).json()
            assert "content" in answer, (answer, told.text)
            # The limit may cut a character, of which the server shows no half.
            content = answer["content"].rstrip("\ufffd")
            if answer["stop_type"] == "eos":
                assert matches(told.rules, content), (told.text, content)
            else:
                assert behind(told.rules, content) is not None, (told.text, content)


MANY: dict[str, Any] = {"type": "array", "items": {"enum": [1, 2]}, "minItems": 101, "maxItems": 103}
RECORD: dict[str, Any] = {
    "type": "object",
    "properties": {
        "list": {"type": "array", "items": {"$ref": "#/$defs/one"}, "minItems": 101, "maxItems": 102},
        "day": {"type": "string", "format": "time"},
        "n": {"type": "integer", "minimum": 1, "exclusiveMaximum": 5},
        "x": {"anyOf": [{"type": "null"}, {"const": 3, "type": "integer"}]},
    },
    "required": ["list", "n"],
    "additionalProperties": False,
    "$defs": {"one": {"type": "boolean"}},
}
PASSED_ON: dict[str, dict[str, Any]] = {
    "a long list": MANY,
    "a long text": {"type": "string", "minLength": 1001, "maxLength": 1003},
    "a draft": {"$schema": "http://json-schema.org/draft-07/schema#", "title": "Many", **MANY},
    "a later draft": {"$schema": "https://json-schema.org/draft/2020-12/schema", **MANY},
    "a record": RECORD,
}


@pytest.mark.deep
@pytest.mark.parametrize("kind", PASSED_ON)
def test_what_llama_cpp_writes_by_a_schema_of_its_own_is_valid(kind: str, llamacpp: str) -> None:
    """Schemas of which our grammar loses something that llama.cpp holds: each of their words is held there."""
    schema = PASSED_ON[kind]
    told = ts.get_format("batuta-chatml").answer_grammar(json_of(schema), bounded=True)
    assert told.losses
    assert LlamaCpp().left_of(json_of(schema), told.losses) == []
    judge = jsonschema_rs.validator_for(schema)
    ended = 0
    with httpx2.Client(base_url=llamacpp, verify=NO_TLS, timeout=60) as client:
        for seed in range(3):
            ask = {"prompt": "Go.", "json_schema": schema, "n_predict": 1900, "seed": seed, "temperature": 0.7}
            answer = client.post("/completion", json=ask).json()
            assert "content" in answer, answer
            if answer["stop_type"] == "eos" and "\ufffd" not in answer["content"]:
                ended += 1
                assert judge.is_valid(json.loads(answer["content"])), answer["content"]
    assert ended


@pytest.mark.parametrize("case", CASES, ids=[case.name for case in CASES])
def test_what_llama_cpp_writes_is_valid_under_the_schema(case: SchemaCase, llamacpp: str) -> None:
    """Lengths, ranges and patterns too. Its tiny model writes bytes, and llama.cpp counts those of no character."""
    told = ts.get_format("batuta-chatml").answer_grammar(json_of(case.schema), bounded=True)
    judge = jsonschema_rs.validator_for(case.schema)
    with httpx2.Client(base_url=llamacpp, verify=NO_TLS, timeout=60) as client:
        for seed in range(3):
            ask = {"prompt": "Go.", "grammar": told.text, "n_predict": 200, "seed": seed, "temperature": 0.7}
            answer = client.post("/completion", json=ask).json()
            assert "content" in answer, (answer, told.text)
            content = answer["content"].rstrip("\ufffd")
            if "\ufffd" in content:
                continue
            assert behind(told.rules, content) is not None, (told.text, content)
            if answer["stop_type"] == "eos":
                assert judge.is_valid(json.loads(content)), content
