"""Owns the checks of marks that stand beside the turns of a row: each counts for what the row says, or is refused."""

import json
from typing import Any

import pytest

import turnscript as ts
from tests.datasets.samples import rows_of
from tests.datasets.test_data_forms_kinds import read, refused
from turnscript.datasets.encoding import Encoder
from turnscript.datasets.problems import Code
from turnscript.datasets.tokenizers import get_tokenizer
from turnscript.datasets.train import MODEL, parse_train

QUESTION = {"role": "user", "content": "q"}
CALL = {"type": "function", "function": {"name": "f", "arguments": "{}"}, "id": "1"}
TALK = [
    QUESTION,
    {"role": "assistant", "content": "<think>hm</think>a"},
    QUESTION,
    {"role": "assistant", "content": None, "tool_calls": [CALL]},
    {"role": "tool", "content": "x", "tool_call_id": "1"},
    {"role": "assistant", "content": "b"},
]
FORMS = ["messages", "sharegpt", "hermes", "glaive", "exchanges"]
NO = [{"weight": 0}, {"loss": False}, {"train": False}, {"loss_weight": 0.0}, {"masked": True}]


def unmarked(form: str) -> list[dict[str, Any]]:
    """The sample rows of a form whose turns say nothing of what is trained."""
    rows = [row for row in map(json.loads, rows_of(form)) if isinstance(row, dict)]
    found = [row for row in rows if not any(example.weights for example in read(form, row))]
    assert found
    return found


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("mark", NO)
def test_a_row_that_is_not_to_be_trained_is_not(form: str, mark: dict[str, Any]) -> None:
    """No turn of it, whoever says it: a plan may train what users say, too."""
    for row in unmarked(form):
        for example in read(form, row | mark):
            assert dict.fromkeys(range(len(example.request.items)), 0.0) == example.weights


@pytest.mark.parametrize("form", FORMS)
def test_a_weight_of_a_row_is_that_of_all_that_the_model_says(form: str) -> None:
    for row in unmarked(form):
        for example in read(form, row | {"weight": 0.5}):
            said = [index for index, item in enumerate(example.request.items) if item.kind in MODEL]
            assert dict.fromkeys(said, 0.5) == example.weights


def test_a_mark_counts_for_thoughts_calls_and_every_answer() -> None:
    (example,) = read("messages", {"messages": TALK, "system": "Be brief.", "weight": 0.5})
    kinds = [example.request.items[index].kind for index in example.weights]
    assert ["thinking", "assistant", "tool_call", "assistant"] == kinds


def test_llama_factory_has_such_marks_too() -> None:
    talk = [{"role": role, "content": [{"type": "text", "value": "a"}]} for role in ("user", "assistant")]
    (example,) = read("llama-factory", {"messages": talk, "loss_weight": 0.25})
    assert {1: 0.25} == example.weights


def test_nothing_is_learned_of_a_row_that_says_so() -> None:
    """As far as the mask: not even where everything is to be trained, unless marks are not to count."""
    (example,) = read("messages", {"messages": TALK[:2], "loss": False})
    for plan, learned in (("answers,user", False), ("answers,no-flags", True)):
        encoder = Encoder(ts.get_format("rwkv-goose"), get_tokenizer("rwkv-world"), parse_train(plan))
        assert learned == any(token.weight for token in encoder.explain(example))


@pytest.mark.parametrize(
    "mark", [{"weight": 7}, {"loss": 1.31}, {"train": "no"}, {"train_detail": [{"end_offset": 1}]}]
)
def test_a_mark_of_a_row_that_cannot_be_used_sets_it_aside(mark: dict[str, Any]) -> None:
    for form, row in (("messages", {"messages": TALK[:2]}), ("sharegpt", unmarked("sharegpt")[0])):
        assert (Code.WEIGHT, f"$.{next(iter(mark))}") == refused(form, row | mark)


def test_a_row_and_its_turns_must_agree() -> None:
    own = {"role": "assistant", "content": "a", "weight": 0}
    assert (Code.WEIGHT, "$") == refused("messages", {"messages": [QUESTION, own], "weight": 1})
    (example,) = read("messages", {"messages": [QUESTION, own], "train": False})
    assert {0: 0.0, 1: 0.0} == example.weights


def test_a_text_alone_that_is_not_to_be_trained_is_set_aside() -> None:
    row = {"conversation": [{"input": "", "output": "Once."}], "train": False}
    assert (Code.UNWANTED, "$") == refused("exchanges", row)


def test_marks_that_say_nothing_and_notes_of_other_names_are_none() -> None:
    row = {"messages": TALK, "weight": None, "eval_loss": 1.25, "attention_mask": [1, 1]}
    assert {} == read("messages", row)[0].weights


def test_a_list_beside_tokens_is_theirs() -> None:
    """So a build reads what a build has written. Beside turns alone, nobody knows whose a list is."""
    row = {"messages": TALK, "loss_weight": [0, 1, 1]}
    assert {} == read("messages", row | {"input_ids": [5, 6, 7]})[0].weights
    assert (Code.WEIGHT, "$.loss_weight") == refused("messages", row)
