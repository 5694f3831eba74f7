"""Owns calls as clients of Chat Completions send them back: with their place in the list, or without arguments."""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest

import turnscript as ts
from turnscript.core.conversation import ToolCall

UNSAID: list[dict[str, Any]] = [{}, {"arguments": None}, {"arguments": ""}]
OTHERS = ["openai-responses", "anthropic-messages", *ts.formats()]


def call(number: int, **members: Any) -> dict[str, Any]:
    function = {"name": "f", "arguments": "{}"}
    return {"id": f"c{number}", "type": "function", "function": function, **members}


def asked(*calls: dict[str, Any], **members: Any) -> dict[str, Any]:
    said: list[dict[str, Any]] = [{"role": "user", "content": "Hi"}]
    said.append({"role": "assistant", "content": None, "tool_calls": list(calls), **members})
    return {
        "model": "m",
        "messages": said + [{"role": "tool", "tool_call_id": c["id"], "content": "ok"} for c in calls],
    }


def same_to_others(body: dict[str, Any], usual: dict[str, Any]) -> None:
    for name in OTHERS:
        made, known = ts.convert(body, "openai-chat", name), ts.convert(usual, "openai-chat", name)
        if name != "rwkv-universal":  # whose archive says how it came
            assert known.value == made.value
        assert known.losses == made.losses


def test_the_place_of_a_call_says_nothing_new() -> None:
    """As OpenRouter, DeepSeek and Azure write it into whole answers, which clients send back."""
    body = asked(call(0, index=0), call(1, index=1))
    assert body == ts.convert(body, "openai-chat", "openai-chat", strict=True).value
    same_to_others(body, asked(call(0), call(1)))
    archived = ts.convert(body, "openai-chat", "rwkv-universal").value
    assert body["messages"] == ts.convert(archived, "rwkv-universal", "openai-chat").value["messages"]


@pytest.mark.parametrize("index", [1, -1, "0", None, 0.5])
def test_another_number_is_lost_where_there_is_none(index: Any) -> None:
    body = asked(call(0, index=index))
    assert body == ts.convert(body, "openai-chat", "openai-chat", strict=True).value
    for name in OTHERS:
        paths = [loss.path for loss in ts.convert(body, "openai-chat", name).losses]
        assert ("$.messages[1].tool_calls[0].index" in paths) == (name != "rwkv-universal")


def test_a_message_that_lost_a_call_says_no_place() -> None:
    request = ts.parse(asked(call(0, index=0), call(1, index=1)), "openai-chat")
    del request.items[1]
    (entry,) = ts.render(request, "openai-chat").value["messages"][1]["tool_calls"]
    assert ("c1", False) == (entry["id"], "index" in entry)


@pytest.mark.parametrize(("unsaid", "index"), list(product(UNSAID, [{}, {"index": 0}])))
def test_a_call_without_arguments_has_an_empty_object(unsaid: dict[str, Any], index: dict[str, Any]) -> None:
    """As most servers take it, and Azure's answers say it."""
    body = asked(call(0, function={"name": "f", **unsaid}, **index))
    assert ["{}"] == [item.arguments for item in ts.parse(body, "openai-chat").items if isinstance(item, ToolCall)]
    assert body == ts.convert(body, "openai-chat", "openai-chat", strict=True).value
    same_to_others(body, asked(call(0)))


@pytest.mark.parametrize("unsaid", UNSAID)
def test_nor_does_one_of_the_deprecated_form(unsaid: dict[str, Any]) -> None:
    answer = {"role": "assistant", "content": None, "function_call": {"name": "f", **unsaid}}
    result = {"role": "function", "name": "f", "content": "ok"}
    body = {"model": "m", "messages": [{"role": "user", "content": "Hi"}, answer, result]}
    assert ["{}"] == [item.arguments for item in ts.parse(body, "openai-chat").items if isinstance(item, ToolCall)]
    assert body == ts.convert(body, "openai-chat", "openai-chat", strict=True).value


@pytest.mark.parametrize("unsaid", UNSAID)
def test_it_comes_back_where_the_content_is_absent_too(unsaid: dict[str, Any]) -> None:
    body = asked(call(0, function={"name": "f", "x": 1, **unsaid}, index=0))
    del body["messages"][1]["content"]
    assert body == ts.convert(body, "openai-chat", "openai-chat", strict=True).value


def test_arguments_that_were_changed_are_written() -> None:
    request = ts.parse(asked(call(0, function={"name": "f"})), "openai-chat")
    assert isinstance(request.items[1], ToolCall)
    request.items[1].arguments = '{"a": 1}'
    (entry,) = ts.render(request, "openai-chat").value["messages"][1]["tool_calls"]
    assert {"name": "f", "arguments": '{"a": 1}'} == entry["function"]


def test_arguments_that_are_no_text_are_an_error() -> None:
    with pytest.raises(ts.InvalidRequest) as raised:
        ts.parse(asked(call(0, function={"name": "f", "arguments": 1})), "openai-chat")
    assert "$.messages[1].tool_calls[0].function.arguments" == raised.value.path
