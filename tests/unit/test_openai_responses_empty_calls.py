"""Owns calls of the Responses API whose arguments are an empty text, as models write them where a tool takes none."""

from __future__ import annotations

from typing import Any

import pytest

import turnscript as ts
from turnscript.core.conversation import ToolCall

CALL = {"type": "function_call", "call_id": "c", "name": "f", "arguments": ""}
NAMELESS = {"type": "function_call", "name": "f", "arguments": ""}
BLOCK = {"role": "assistant", "content": [{"type": "tool_call", "id": "c", "name": "f", "arguments": ""}]}
OTHERS = ["openai-chat", "anthropic-messages", *ts.formats()]


def asked(call: dict[str, Any]) -> dict[str, Any]:
    return {"model": "m", "input": [{"role": "user", "content": "Hi"}, call]}


def with_object(call: dict[str, Any]) -> dict[str, Any]:
    if "content" in call:
        return call | {"content": [one | {"arguments": "{}"} for one in call["content"]]}
    return call | {"arguments": "{}"}


@pytest.mark.parametrize("call", [CALL, NAMELESS, BLOCK], ids=["call", "without id", "block"])
def test_empty_arguments_are_an_empty_object_everywhere_and_come_back(call: dict[str, Any]) -> None:
    body, usual = asked(call), asked(with_object(call))
    assert ["{}"] == [one.arguments for one in ts.parse(body, "openai-responses").items if isinstance(one, ToolCall)]
    assert body == ts.convert(body, "openai-responses", "openai-responses", strict=True).value
    archived = ts.convert(body, "openai-responses", "rwkv-universal").value
    assert body == ts.convert(archived, "rwkv-universal", "openai-responses").value
    for name in OTHERS:
        made, known = ts.convert(body, "openai-responses", name), ts.convert(usual, "openai-responses", name)
        if name != "rwkv-universal":  # whose archive says how it came
            assert known.value == made.value
        assert known.losses == made.losses


def test_arguments_that_were_changed_are_written() -> None:
    request = ts.parse(asked(CALL), "openai-responses")
    assert isinstance(request.items[1], ToolCall)
    request.items[1].arguments = '{"a": 1}'
    assert '{"a": 1}' == ts.render(request, "openai-responses").value["input"][1]["arguments"]


def test_an_empty_text_of_a_free_tool_is_one() -> None:
    free = {"type": "custom_tool_call", "call_id": "c", "name": "f", "input": ""}
    assert [""] == [i.arguments for i in ts.parse(asked(free), "openai-responses").items if isinstance(i, ToolCall)]


def test_an_answer_keeps_what_it_says() -> None:
    """Whole as streamed: a stream cannot take back that nothing came."""
    output = [CALL | {"id": "fc", "status": "completed"}]
    body = {"id": "r", "object": "response", "model": "m", "status": "completed", "output": output}
    answer = ts.parse_response(body, "openai-responses")
    assert [""] == [one.arguments for one in answer.items if isinstance(one, ToolCall)]
    assert "" == ts.render(answer, "openai-responses").value["output"][0]["arguments"]
