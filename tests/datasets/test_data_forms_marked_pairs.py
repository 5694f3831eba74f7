"""Owns the checks of marks on rows of answers and of pairs, and of a worse answer that stands beside messages."""

from typing import Any

import pytest

from tests.datasets.test_data_detection import detect
from tests.datasets.test_data_forms_kinds import read, refused, said
from turnscript.datasets.problems import Code

QUESTION = {"role": "user", "content": "q"}
GOOD, BAD = {"role": "assistant", "content": "good"}, {"role": "assistant", "content": "bad"}
TEXTS = {"prompt": "q", "chosen": "good", "rejected": "bad"}
LISTS = {"prompt": [QUESTION], "chosen": [GOOD], "rejected": [BAD]}
WHOLE = {"chosen": [QUESTION, GOOD], "rejected": [QUESTION, BAD]}
BEHIND = {"prompt": "q", "chosen": [GOOD], "rejected": [BAD]}
OUTPUTS = {"input": {"messages": [QUESTION]}, "preferred_output": [GOOD], "non_preferred_output": [BAD]}
TURNS = {
    "conversations": [{"from": "human", "value": "q"}],
    "chosen": {"from": "gpt", "value": "good"},
    "rejected": {"from": "gpt", "value": "bad"},
}
PAIRS = [TEXTS, LISTS, WHOLE, BEHIND, OUTPUTS, TURNS]
COMPLETED = {"prompt": [QUESTION], "completion": [GOOD]}
ROWS = [*(("preference", row) for row in PAIRS), ("prompt-completion", COMPLETED)]


@pytest.mark.parametrize(("form", "row"), ROWS)
@pytest.mark.parametrize(("mark", "weight"), [({"weight": 0.5}, 0.5), ({"train": False}, 0.0), ({"masked": True}, 0.0)])
def test_a_mark_of_a_row_is_that_of_its_answer(form: str, row: Any, mark: Any, weight: float) -> None:
    (example,) = read(form, row | mark)
    assert ("assistant", "good") == said(example)[-1]
    assert weight == example.weights[len(example.request.items) - 1]


@pytest.mark.parametrize("row", [WHOLE, {"messages": [QUESTION, GOOD], "rejected_response": "bad"}])
@pytest.mark.parametrize("mark", [{"weight": 1}, {"train": True}])
def test_a_mark_of_a_row_trains_nothing_but_its_answer(row: Any, mark: Any) -> None:
    """A weight that an item has counts whatever is trained by the plan: the question would be learned, too."""
    (example,) = read("preference", row | mark)
    assert {1: 1.0} == example.weights


def test_the_mark_of_a_question_is_not_about_its_answer() -> None:
    (example,) = read("preference", WHOLE | {"chosen": [QUESTION | {"weight": 0}, GOOD], "weight": 1})
    assert {0: 0.0, 1: 1.0} == example.weights


@pytest.mark.parametrize(("form", "row"), ROWS)
@pytest.mark.parametrize("mark", [{"weight": 7}, {"train_detail": [{"startOffset": 0}]}])
def test_a_mark_that_cannot_be_used_sets_the_row_aside(form: str, row: Any, mark: Any) -> None:
    assert (Code.WEIGHT, f"$.{next(iter(mark))}") == refused(form, row | mark)


def test_the_mark_of_a_turn_is_read() -> None:
    row = TURNS | {"chosen": {"from": "gpt", "value": "good", "weight": 0.25}}
    (example,) = read("preference", row)
    assert 0.25 == example.weights[1]
    row = TURNS | {"chosen": {"from": "gpt", "value": "good", "loss_mask": 1}}
    assert (Code.WEIGHT, "$.chosen.loss_mask") == refused("preference", row)


def test_marks_of_a_row_and_its_messages_agree() -> None:
    half = GOOD | {"weight": 0.5}
    (example,) = read("preference", LISTS | {"chosen": [half], "weight": 0.5})
    assert {1: 0.5} == example.weights
    assert (Code.WEIGHT, "$") == refused("preference", LISTS | {"chosen": [half], "weight": 1})


REJECTED = [{"rejected_response": "bad"}, {"rejected_messages": [QUESTION, BAD]}]


@pytest.mark.parametrize("worse", REJECTED)
def test_a_worse_answer_beside_messages_makes_a_pair(worse: Any) -> None:
    """ms-swift's: the messages end with the better answer."""
    row = {"messages": [QUESTION, GOOD]} | worse
    (example,) = read("preference", row)
    assert [("user", "q"), ("assistant", "good")] == said(example)
    assert "$.messages[1]" == example.request.items[1].at
    (weighed,) = read("preference", row | {"weight": 0.5})
    assert 0.5 == weighed.weights[1]
    assert (Code.FORM, f"$.{next(iter(worse))}") == refused("messages", row)
    assert (Code.FORM, "$.images") == refused("preference", row | {"images": ["x"]})


def test_a_worse_answer_beside_a_response_makes_a_pair() -> None:
    row = {"system": "s", "query": "q", "response": "good", "rejected_response": "bad"}
    (example,) = read("preference", row)
    assert [("system", "s"), ("user", "q"), ("assistant", "good")] == said(example)
    assert "$.response" == example.request.items[2].at
    assert (Code.FORM, "$.rejected_response") == refused("prompt-completion", row)


@pytest.mark.parametrize("worse", REJECTED)
def test_a_pair_in_messages_is_told_from_messages(worse: Any) -> None:
    assert "preference" == detect(*[{"messages": [QUESTION, GOOD]} | worse] * 5).form
    assert "preference" == detect(*[{"query": "q", "response": "good", "rejected_response": "bad"}] * 5).form
