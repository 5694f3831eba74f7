"""Owns the tests of pairing calls and results, where all APIs must agree."""

import pytest

import turnscript as ts
from turnscript.pairing import GUESSED


@pytest.mark.parametrize("target", ts.apis())
def test_a_result_that_gets_the_id_of_a_call_is_listed_wherever_results_have_ids(target: str) -> None:
    items: list[ts.Item] = [
        ts.ToolCall(name="f", arguments="{}", id="call_1", at="$.a[0]"),
        ts.ToolResult(content=[ts.Text(text="x")], at="$.a[1]"),
    ]
    rendered = ts.render(ts.Request(conversation=ts.Conversation(items=items)), target)
    told = [loss.detail for loss in rendered.losses if loss.path == "$.a[1]"]
    assert (GUESSED in told) == (rendered.data.count(b'"call_1"') == 2)
