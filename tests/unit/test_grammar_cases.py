"""Owns that grammars of twenty schemas take valid instances and no others, as servers of each notation read them."""

import json
from typing import Any

import jsonschema_rs
import pytest

import turnscript as ts
from tests.acceptors import accepted_by_kbnf, accepted_by_llguidance
from tests.gbnf import read_gbnf
from tests.sampling import Writer
from tools.real.schemas import CASES, SchemaCase
from turnscript.core.json_text import json_of
from turnscript.grammar.rest import matches
from turnscript.grammar.schema import json_text

FORMAT = ts.get_format("batuta-chatml")  # its answers have no opening
NAMED = {case.name: case for case in CASES}


def taken(case: SchemaCase, values: list[Any], target: str) -> list[bool]:
    """Whether a server of the notation lets a model write each value."""
    told = FORMAT.answer_grammar(json_of(case.schema), target=target, bounded=True).text
    read = read_gbnf(told) if target == "gbnf" else None
    texts = [json_text(value) for value in values]
    if read is not None:
        return [matches(read, text) for text in texts]
    accepted = accepted_by_kbnf if target == "kbnf" else accepted_by_llguidance
    return [accepted(told, text) for text in texts]


@pytest.mark.parametrize("name", NAMED)
@pytest.mark.parametrize("target", ["gbnf", "kbnf", "lark"])
def test_valid_instances_are_taken_and_others_are_not(name: str, target: str) -> None:
    case = NAMED[name]
    assert taken(case, case.valid, target) == [True] * len(case.valid)
    assert taken(case, case.invalid, target) == [False] * len(case.invalid)


@pytest.mark.parametrize("name", NAMED)
def test_instances_are_what_they_are_said_to_be(name: str) -> None:
    case = NAMED[name]
    judge = jsonschema_rs.validator_for(case.schema, validate_formats=True)
    assert [judge.is_valid(one) for one in case.valid] == [True] * len(case.valid)
    assert [judge.is_valid(one) for one in case.invalid] == [False] * len(case.invalid)


@pytest.mark.parametrize("name", NAMED)
def test_what_a_grammar_writes_is_valid_or_it_says_what_it_does_not_tell(name: str) -> None:
    case = NAMED[name]
    told = FORMAT.answer_grammar(json_of(case.schema), bounded=True)
    assert [loss.path.removeprefix("$.schema.") for loss in told.losses] == case.lost
    judge = jsonschema_rs.validator_for(case.schema, validate_formats="format" not in " ".join(case.lost))
    for seed in range(30):
        written = Writer(told.rules, seed).text()
        assert judge.is_valid(json.loads(written)), written
