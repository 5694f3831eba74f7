"""Owns the unit tests of where losses say that something stood: in the source, as its API calls it."""

from typing import Any

import pytest

import turnscript as ts

ASK = {"role": "user", "content": "q"}
CHAT_CALLS = [
    {"id": "a", "type": "function", "function": {"name": "f", "arguments": "[]"}},
    {"id": "b", "type": "custom", "custom": {"name": "g", "input": "x"}},
]
CHAT: dict[str, Any] = {
    "model": "m",
    "messages": [
        ASK,
        {"role": "assistant", "content": "on it", "tool_calls": CHAT_CALLS, "refusal": "no"},
        {"role": "tool", "tool_call_id": "a", "content": "r"},
        {"role": "user", "content": [{"type": "image_url", "image_url": {"url": "https://x", "detail": "low"}}]},
    ],
    "tools": [{"type": "function", "function": {"name": "f", "strict": True, "new": 1}, "beside": 1}],
    "functions": [{"name": "h", "new": 1}],
}
MESSAGES: dict[str, Any] = {
    "model": "m",
    "max_tokens": 1,
    "system": [{"type": "text", "text": "s", "cache_control": {"type": "ephemeral"}}],
    "messages": [
        ASK,
        {
            "role": "assistant",
            "content": [
                {"type": "redacted_thinking", "data": "x"},
                {"type": "text", "text": "a", "citations": []},
                {"type": "tool_use", "id": "a", "name": "f", "input": {"b": [1.0]}},
            ],
        },
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "a", "content": "r", "is_error": True}]},
    ],
}
PICTURE = {"type": "input_image", "image_url": "https://x", "detail": "low"}
RESPONSES: dict[str, Any] = {
    "model": "m",
    "input": [
        {"role": "user", "content": "q"},
        {"type": "reasoning", "id": "r", "summary": [], "encrypted_content": "x"},
        {"type": "custom_tool_call", "id": "i", "call_id": "a", "name": "f", "input": "x"},
        {"type": "custom_tool_call_output", "id": "o", "call_id": "a", "output": [PICTURE]},
        {"type": "additional_tools", "role": "developer", "tools": [{"type": "function", "name": "g", "new": 1}]},
    ],
}

PLACES: list[tuple[dict[str, Any], str, str, set[str]]] = [
    (CHAT, "openai-chat", "openai-completions", {"$.tools[0]", "$.functions[0]"}),
    (
        CHAT,
        "openai-chat",
        "anthropic-messages",
        {
            "$.messages[1].refusal",
            "$.messages[3].content[0].image_url.detail",
            "$.tools[0].function.new",
            "$.tools[0].beside",
            "$.functions[0].new",
        },
    ),
    (
        CHAT,
        "openai-chat",
        "batuta-generic",
        {
            "$.messages[1].tool_calls[0].id",
            "$.messages[1].tool_calls[1].type",
            "$.messages[2].tool_call_id",
            "$.tools[0].function.strict",
        },
    ),
    (
        CHAT,
        "openai-chat",
        "ai00-v1",
        {"$.messages[1].tool_calls[0].function.arguments", "$.messages[1].tool_calls[1].custom.input"},
    ),
    (MESSAGES, "anthropic-messages", "ai00-v1", {"$.messages[1].content[2].input"}),
    (RESPONSES, "openai-responses", "ai00-v1", {"$.input[2].input"}),
    (
        MESSAGES,
        "anthropic-messages",
        "batuta-generic",
        {
            "$.system[0].cache_control",
            "$.messages[1].content[0].data",
            "$.messages[1].content[1].citations",
            "$.messages[2].content[0].tool_use_id",
            "$.messages[2].content[0].is_error",
        },
    ),
    (
        RESPONSES,
        "openai-responses",
        "batuta-generic",
        {
            "$.input[1].encrypted_content",
            "$.input[2].type",
            "$.input[2].id",
            "$.input[2].call_id",
            "$.input[3].id",
            "$.input[3].call_id",
            "$.input[3].output[0]",
        },
    ),
]


@pytest.mark.parametrize(("body", "source", "target", "places"), PLACES, ids=[f"{row[1]} {row[2]}" for row in PLACES])
def test_losses_name_the_members_of_the_source(body: Any, source: str, target: str, places: set[str]) -> None:
    lost = {loss.path for loss in ts.convert(body, source, target).losses}
    assert set() == places - lost, lost


def test_tools_that_come_later_are_found_where_they_came() -> None:
    losses = ts.convert(RESPONSES, "openai-responses", "rwkv-universal", view="prompt").losses
    assert "$.input[4].tools[0].new" in [loss.path for loss in losses]


def test_a_request_built_by_hand_is_told_in_words_of_the_model() -> None:
    items: list[ts.Item] = [ts.ToolCall(name="f", id="a"), ts.ToolResult(id="a", content=[ts.Text(text="r")])]
    rendered = ts.render(ts.Request(conversation=ts.Conversation(items=items)), "batuta-generic")
    assert ["items[0].id", "items[1].id"] == [loss.path for loss in rendered.losses if loss.path.endswith(".id")]
