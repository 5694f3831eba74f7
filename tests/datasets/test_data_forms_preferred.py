"""Owns the checks of pairs as OpenAI and version 1 of LLaMA-Factory have them: the better answer is read alone."""

from typing import Any

import pytest

from tests.datasets.test_data_forms_kinds import read, refused, said
from turnscript.datasets.problems import Code

QUESTION = {"role": "user", "content": "q"}
GOOD, BAD = {"role": "assistant", "content": "good"}, {"role": "assistant", "content": "bad"}
TOOL = {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}


def outputs(asked: Any = None, good: Any = None, **more: Any) -> dict[str, Any]:
    earlier = [QUESTION, {"role": "assistant", "content": "earlier"}, QUESTION]
    request = {"messages": earlier, "tools": [TOOL], "parallel_tool_calls": True} if asked is None else asked
    return {
        "input": request,
        "preferred_output": [GOOD] if good is None else good,
        "non_preferred_output": [BAD],
    } | more


def typed(role: str, text: str, weight: float) -> dict[str, Any]:
    return {"role": role, "content": [{"type": "text", "value": text}], "loss_weight": weight}


def test_the_preferred_output_is_trained_and_its_request_is_not() -> None:
    (example,) = read("preference", outputs())
    assert [("user", "q"), ("assistant", "earlier"), ("user", "q"), ("assistant", "good")] == said(example)
    assert frozenset({0, 1, 2}) == example.context
    assert ["f"] == [tool.name for tool in example.request.tools]
    assert ["$.input.messages[2]", "$.preferred_output[0]"] == [item.at for item in example.request.items[2:]]


@pytest.mark.parametrize(
    ("row", "code", "at"),
    [
        (outputs(asked={}), Code.SHAPE, "$.input.messages"),
        (outputs(asked=[]), Code.SHAPE, "$.input"),
        (outputs(asked={"messages": [QUESTION], "images": ["x"]}), Code.FORM, "$.input.images"),
        (outputs(good=[]), Code.SHAPE, "$.preferred_output"),
        (outputs(good=[{"role": "bot", "content": "x"}]), Code.ROLE, "$.preferred_output[0].role"),
        (outputs(prompt="q"), Code.FORM, "$.prompt"),
        ({"input": {"messages": [QUESTION]}, "preferred_output": [GOOD]}, Code.SHAPE, "$.non_preferred_output"),
    ],
)
def test_half_a_pair_and_what_is_more_than_one_is_refused(row: dict[str, Any], code: Code, at: str) -> None:
    assert (code, at) == refused("preference", row)


def test_of_two_conversations_of_typed_values_the_chosen_one_is_read() -> None:
    good, bad = [[typed("user", "q", 0.0), typed("assistant", text, 1.0)] for text in ("good", "bad")]
    row = {"chosen_messages": good, "rejected_messages": bad}
    (example,) = read("llama-factory", row)
    assert [("user", "q"), ("assistant", "good")] == said(example)
    assert {0: 0.0, 1: 1.0} == example.weights
    assert "$.chosen_messages[1]" == example.request.items[1].at
    assert (Code.SHAPE, "$.rejected_messages") == refused("llama-factory", {"chosen_messages": good})
    assert (Code.FORM, "$.messages") == refused("llama-factory", row | {"messages": good})
