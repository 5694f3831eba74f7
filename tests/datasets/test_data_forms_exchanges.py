"""Owns the checks of rows of exchanges, as ms-swift and XTuner have them: each pair is two turns, or a text alone."""

from typing import Any

import pytest

from tests.datasets.samples import rows_of
from tests.datasets.test_data_forms_kinds import read, refused, said
from turnscript.datasets.form_registry import get_form
from turnscript.datasets.problems import Code


def test_each_exchange_is_what_was_said_and_its_answer() -> None:
    first, second, third = (get_form("exchanges").read(row)[0] for row in rows_of("exchanges"))
    assert said(first) == [
        ("system", "Be brief."),
        ("user", "Name a colour."),
        ("assistant", "Red."),
        ("user", "Another."),
        ("assistant", "Blue."),
    ]
    assert ["system", "user", "assistant", "user", "assistant"] == [item.kind for item in second.request.items]
    assert "$.conversation[1].output" == second.request.items[-1].at
    assert [("thinking", "A small one."), ("assistant", "Wren.")] == said(third)[1:]


def test_a_text_that_nobody_asked_for_is_a_text() -> None:
    (example,) = read("exchanges", {"conversation": [{"system": "", "input": "", "output": "Once upon a time."}]})
    assert "Once upon a time." == example.text
    assert [] == example.request.items


def test_an_answer_counts_as_its_exchange_says() -> None:
    row = {
        "conversation": [{"input": "a", "output": "b", "loss": False}, {"input": "c", "output": "<think>t</think>d"}]
    }
    assert {1: 0.0} == read("exchanges", row)[0].weights


@pytest.mark.parametrize(
    ("row", "code", "at"),
    [
        ({}, Code.SHAPE, "$.conversation"),
        ({"conversation": []}, Code.EMPTY, "$"),
        ({"conversation": [{"input": "", "output": ""}]}, Code.EMPTY, "$.conversation[0].input"),
        ({"conversation": [{"human": "a"}]}, Code.SHAPE, "$.conversation[0].assistant"),
        ({"conversation": [{"assistant": "a"}]}, Code.SHAPE, "$.conversation[0].human"),
        ({"conversation": [{"human": "a", "assistant": "b"}, {"human": "", "assistant": "c"}]}, Code.EMPTY, None),
        ({"conversation": [{"input": "a", "output": "b", "images": ["x"]}]}, Code.FORM, "$.conversation[0].images"),
        ({"conversation": [{"input": "a", "output": "b", "output_with_loss": False}]}, Code.WEIGHT, None),
        ({"conversation": [{"input": "", "output": "b", "loss": False}]}, Code.UNWANTED, "$.conversation[0]"),
        ({"conversation": [{"human": "a", "assistant": "b"}], "tools": "[1]"}, Code.FORM, "$.tools"),
        ({"conversation": [{"human": "a", "assistant": "b"}], "label": False}, Code.UNWANTED, "$.label"),
    ],
)
def test_what_is_no_exchange_is_refused(row: dict[str, Any], code: Code, at: str | None) -> None:
    found = refused("exchanges", row)
    assert (code, at or found[1]) == found
