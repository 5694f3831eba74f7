"""Owns the checks of members that a form could pass over in silence: marks of what is trained, and pieces of talk."""

import json
from typing import Any

import pytest

from tests.datasets.test_data_forms_kinds import read, refused
from turnscript.datasets.form_detection import detect_form
from turnscript.datasets.problems import Code
from turnscript.datasets.rows import RawRow


def answer(**more: Any) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": "q"}, {"role": "assistant", "content": "a", **more}]}


def turns_with(**more: Any) -> dict[str, Any]:
    return {"conversations": [{"from": "human", "value": "q"}, {"from": "gpt", "value": "a", **more}]}


def form_of(*rows: Any) -> str:
    raw = [RawRow(line=at, byte=0, data=json.dumps(row).encode()) for at, row in enumerate(rows, 1)]
    return detect_form(raw, "x.jsonl").form


# Marks.


@pytest.mark.parametrize("form", ["messages", "sharegpt"])
def test_the_scale_of_a_loss_is_a_weight(form: str) -> None:
    row = answer if form == "messages" else turns_with
    assert [{1: 0.0}, {1: 1.0}] == [read(form, row(loss_scale=scale))[0].weights for scale in (0.0, 1)]
    assert Code.WEIGHT == refused(form, row(loss_scale=2.0))[0]
    assert Code.WEIGHT == refused(form, row(loss_scale=1.0, loss=False))[0]


@pytest.mark.parametrize("mark", ["loss_mask", "mask", "is_masked", "compute_loss", "calculate_loss"])
def test_a_mark_that_nobody_knows_is_refused_rather_than_trained(mark: str) -> None:
    for value in (True, 0, [0, 1]):
        assert (Code.WEIGHT, f"$.messages[1].{mark}") == refused("messages", answer(**{mark: value}))
        assert (Code.WEIGHT, f"$.conversations[1].{mark}") == refused("sharegpt", turns_with(**{mark: value}))
    assert {} == read("messages", answer(**{mark: None}))[0].weights


def test_measures_of_a_row_are_no_marks() -> None:
    row = {"instruction": "q", "output": "a", "eval_loss": 1.25, "attention_mask": [1, 1]}
    assert {} == read("alpaca", row)[0].weights
    assert {} == read("messages", answer(glossary=True, mask_token="[MASK]"))[0].weights
