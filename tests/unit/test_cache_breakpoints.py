"""Owns the law of breakpoints: where a cached prompt ends is told to both APIs that can be told it, part by part."""

from __future__ import annotations

from typing import Any

import pytest
from openai.types import chat, responses
from pydantic import TypeAdapter

import turnscript as ts

MARK = {"mode": "explicit", "ttl": "12h"}
MARKED = {"prompt_cache_breakpoint": MARK}
OPTIONS = {"mode": "explicit", "ttl": "30m"}
PNG = "data:image/png;base64,iVBORw0KGgo="
PDF = {"filename": "a.pdf", "file_data": "data:application/pdf;base64,JVBERi0="}
CALL = {"id": "call_1", "type": "function", "function": {"name": "f", "arguments": "{}"}}

CHAT: dict[str, Any] = {
    "model": "m",
    "prompt_cache_options": OPTIONS,
    "messages": [
        {"role": "developer", "content": [{"type": "text", "text": "Long.", **MARKED}]},
        {
            "role": "user",
            "content": [
                {"type": "text", "text": "See", **MARKED},
                {"type": "image_url", "image_url": {"url": PNG, "detail": "auto"}, **MARKED},
                {"type": "file", "file": PDF, **MARKED},
            ],
        },
        {"role": "assistant", "content": None, "tool_calls": [CALL]},
        {"role": "tool", "tool_call_id": "call_1", "content": [{"type": "text", "text": "ok", **MARKED}]},
    ],
}
RESPONSES: dict[str, Any] = {
    "model": "m",
    "prompt_cache_options": OPTIONS,
    "input": [
        {"role": "developer", "content": [{"type": "input_text", "text": "Long.", **MARKED}]},
        {
            "role": "user",
            "content": [
                {"type": "input_text", "text": "See", **MARKED},
                {"type": "input_image", "image_url": PNG, "detail": "auto", **MARKED},
                {"type": "input_file", **PDF, **MARKED},
            ],
        },
        {"type": "function_call", "call_id": "call_1", "name": "f", "arguments": "{}"},
        {
            "type": "function_call_output",
            "call_id": "call_1",
            "output": [{"type": "input_text", "text": "ok", **MARKED}],
        },
    ],
}
BODIES = {"openai-chat": CHAT, "openai-responses": RESPONSES}


@pytest.mark.parametrize(("source", "target"), [tuple(BODIES), tuple(reversed(BODIES))], ids=["there", "back"])
def test_a_breakpoint_is_told_in_the_other_api(source: str, target: str) -> None:
    written = ts.convert(BODIES[source], source, target, strict=True)
    assert BODIES[target] == written.value


def test_the_official_types_have_what_is_written() -> None:
    messages = ts.convert(RESPONSES, "openai-responses", "openai-chat").value["messages"]
    TypeAdapter(list[chat.ChatCompletionMessageParam]).validate_python(messages)
    items = ts.convert(CHAT, "openai-chat", "openai-responses").value["input"]
    TypeAdapter(responses.ResponseInputParam).validate_python(items)


@pytest.mark.parametrize("target", ["anthropic-messages", "openai-completions"])
def test_where_there_are_none_each_is_a_loss(target: str) -> None:
    losses = {loss.path for loss in ts.convert(CHAT, "openai-chat", target).losses}
    assert "$.messages[0].content[0].prompt_cache_breakpoint" in losses


def test_what_the_model_said_has_no_breakpoint_in_an_input_item() -> None:
    said = {"role": "assistant", "content": [{"type": "text", "text": "Yes", **MARKED}]}
    written = ts.convert({"model": "m", "messages": [said]}, "openai-chat", "openai-responses")
    assert [{"type": "output_text", "text": "Yes"}] == written.value["input"][0]["content"]
    assert ["$.messages[0].content[0].prompt_cache_breakpoint"] == [loss.path for loss in written.losses]


def test_none_at_all_is_not_written_for_a_type_that_has_no_null() -> None:
    output = [{"type": "input_text", "text": "ok", "prompt_cache_breakpoint": None}]
    call = {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"}
    body = {"model": "m", "input": [call, {"type": "function_call_output", "call_id": "c", "output": output}]}
    assert "ok" == ts.convert(body, "openai-responses", "openai-chat").value["messages"][1]["content"]
