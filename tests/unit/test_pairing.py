"""Owns the tests of pairing calls and results, where all APIs must agree."""

import itertools
import re
from typing import Any

import pytest

import turnscript as ts
from turnscript.core.call_pairing import ANSWERED, GUESSED

OLD_CALL = {"role": "assistant", "content": None, "function_call": {"name": "f", "arguments": "{}"}}
CHAT = {"messages": [OLD_CALL, {"role": "function", "name": "f", "content": "r"}, {"role": "tool", "content": "o"}]}
RESPONSES = {"input": [{"type": "function_call", "name": "f", "arguments": "{}"}]}
RESPONSES["input"] += [{"type": "function_call_output", "output": "r"}] * 2
WITHOUT_IDS: dict[str, tuple[dict[str, Any], list[str]]] = {
    "openai-chat": (CHAT, ["$.messages[0].function_call", "$.messages[1]", "$.messages[2]"]),
    "openai-responses": (RESPONSES, ["$.input[0]", "$.input[1]", "$.input[2]"]),
}
WITH_IDS = [name for name in ts.apis() if name not in ("openai-completions", "gemini")]
PAIRS = [(source, target) for source in WITHOUT_IDS for target in WITH_IDS if source != target]


@pytest.mark.parametrize("target", ts.apis())
def test_a_result_that_gets_the_id_of_a_call_is_listed_wherever_results_have_ids(target: str) -> None:
    items: list[ts.Item] = [
        ts.ToolCall(name="f", arguments="{}", id="call_1", at="$.a[0]"),
        ts.ToolResult(content=[ts.Text(text="x")], at="$.a[1]"),
    ]
    rendered = ts.render(ts.Request(conversation=ts.Conversation(items=items)), target)
    told = [loss.detail for loss in rendered.losses if loss.path == "$.a[1]"]
    assert (GUESSED in told) == (rendered.data.count(b'"call_1"') == 2)


@pytest.mark.parametrize(("source", "target"), PAIRS)
def test_an_id_that_pairs_is_none_but_one_that_pairs_nothing_is_listed(source: str, target: str) -> None:
    """An id for a call and its result says what their order has said, and readers take it off again."""
    body, places = WITHOUT_IDS[source]
    rendered = ts.convert(body, source, target)
    assert b'"call_auto_001"' in rendered.data
    assert b'"call_auto_orphan_001"' in rendered.data
    told = {
        loss.path: loss.detail for loss in rendered.losses if loss.kind == "invented" and "call_auto" in loss.detail
    }
    assert [places[2]] == list(told)
    assert "call_auto_orphan_001" in told[places[2]]


@pytest.mark.parametrize("target", WITH_IDS)
def test_a_result_whose_source_says_no_id_is_listed_with_the_one_that_it_gets(target: str) -> None:
    calls = [{"id": "call_1", "type": "function", "function": {"name": "f", "arguments": "{}"}}]
    said = [{"role": "assistant", "content": None, "tool_calls": calls}, {"role": "tool", "content": "r"}]
    rendered = ts.convert({"messages": said}, "openai-chat", target)
    guessed = [loss.path for loss in rendered.losses if loss.detail == GUESSED]
    assert guessed == (["$.messages[1]"] if target != "openai-chat" else [])


@pytest.mark.parametrize("source", WITH_IDS)
@pytest.mark.parametrize("target", WITH_IDS)
def test_an_id_that_only_looks_made_up_was_in_the_source(source: str, target: str) -> None:
    items: list[ts.Item] = [ts.ToolCall(name="f"), ts.ToolResult(content=[ts.Text(text="r")])]
    items.append(ts.ToolResult(content=[ts.Text(text="more")]))
    by_hand = ts.Request(conversation=ts.Conversation(items=items), settings=ts.Settings(model="m"))
    body = ts.render(by_hand, source)
    assert ["items[2]"] == [one.path for one in body.losses if "call_auto" in one.detail]
    again = ts.convert(body.data, source, target)
    assert b"call_auto_orphan_001" in again.data
    assert [] == [one for one in again.losses if "call_auto" in one.detail]
    archive = ts.convert(body.data, source, "rwkv-universal")
    assert [] == ts.convert(archive.data, "rwkv-universal", source).losses


IDS = [None, "a", "b"]
TWO_CALLS = sorted(set(itertools.product([None, "a"], [None, "b"], IDS, IDS)), key=repr)


@pytest.mark.parametrize("target", WITH_IDS)
def test_every_result_answers_a_call_whichever_of_them_have_ids(target: str) -> None:
    """As it does in a format, which pairs them by their order: where APIs are strict, another id is refused."""
    for first, second, *answers in TWO_CALLS:
        if answers[0] == answers[1] is not None:
            continue
        items: list[ts.Item] = [ts.ToolCall(name="f", id=first), ts.ToolCall(name="f", id=second)]
        items += [ts.ToolResult(name="f", id=one, content=[ts.Text(text="x")]) for one in answers]
        rendered = ts.render(ts.Request(conversation=ts.Conversation(items=items)), target)
        body = rendered.data.decode()
        called = re.findall(r'"(?:id|call_id)":"([^"]*)","(?:type|name)":"f', body)
        answered = re.findall(r'"(?:tool_call_id|tool_use_id|call_id)":"([^"]*)","(?:content|output)"', body)
        assert (2, 2) == (len(called), len(answered)), body
        known = {one for one in answers if one in (first, second)}
        if not known:  # else somebody says what answers what
            assert sorted(called) == sorted(answered), (first, second, answers, body)
        told = [loss.detail for loss in rendered.losses]
        assert (ANSWERED in told) == any(one in called and one not in (first, second, None) for one in answers)
