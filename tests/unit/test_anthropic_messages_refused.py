"""Owns the unit tests of what Anthropic's server refuses though its types allow it, and how that is mended."""

from __future__ import annotations

import json
from typing import Any

import pytest
from msgspec import Raw

import turnscript as ts

WORD = {"type": "text", "text": "Hi"}
BLANK = {"type": "text", "text": " \n"}
PICTURE = {"type": "image_url", "image_url": {"url": "https://a/b.png"}}
CALL = {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}
RESULT = {"role": "tool", "tool_call_id": "c", "content": "1"}


def written(body: dict[str, Any]) -> tuple[dict[str, Any], list[tuple[str, str]]]:
    """The body for Messages of one for Chat, and its losses as (path, kind)."""
    rendered = ts.convert(json.dumps({"model": "m", "max_tokens": 1, **body}), "openai-chat", "anthropic-messages")
    return json.loads(rendered.data), [(loss.path, loss.kind) for loss in rendered.losses]


def said(*messages: dict[str, Any]) -> tuple[list[dict[str, Any]], list[tuple[str, str]]]:
    body, losses = written({"messages": list(messages)})
    return body["messages"], losses


# White space: refused where a message has no other text.


def test_white_space_alone_is_not_sent() -> None:
    messages, losses = said({"role": "user", "content": " "}, {"role": "user", "content": "Hi"})
    assert [{"role": "user", "content": [WORD]}] == messages
    assert [("$.messages[0].content", "dropped"), ("$.messages[0]", "dropped")] == losses


def test_white_space_beside_a_text_stays() -> None:
    messages, losses = said({"role": "user", "content": [BLANK, WORD, BLANK]})
    assert [{"role": "user", "content": [BLANK, WORD, BLANK]}] == messages
    assert [] == losses


def test_white_space_beside_a_picture_or_a_call_is_not_sent() -> None:
    user = {"role": "user", "content": [BLANK, PICTURE, BLANK]}
    messages, losses = said(user, {"role": "assistant", "content": "\n\n", "tool_calls": [CALL]}, RESULT)
    assert [["image"], ["tool_use"], ["tool_result"]] == [
        [block["type"] for block in message["content"]] for message in messages
    ]
    paths = ["$.messages[0].content[0]", "$.messages[0].content[2]", "$.messages[1].content"]
    assert [(path, "dropped") for path in paths] == losses


def test_a_refusal_of_white_space_is_told_like_a_text() -> None:
    answer = {"role": "assistant", "content": None, "refusal": " ", "tool_calls": [CALL]}
    messages, losses = said({"role": "user", "content": "Hi"}, answer, RESULT)
    assert ["tool_use"] == [block["type"] for block in messages[1]["content"]]
    assert ("$.messages[1].refusal", "dropped") in losses


def test_an_answer_of_white_space_is_not_gone_on_with() -> None:
    """The text before it is, and is named: what ends a request for Messages is the beginning of the answer."""
    hello, blank = ({"role": "assistant", "content": text} for text in ("Hi", " "))
    messages, losses = said({"role": "user", "content": "Hi"}, hello, blank)
    assert [("user", [WORD]), ("assistant", [WORD])] == [(one["role"], one["content"]) for one in messages]
    assert ("$.messages[1]", "approximated") in losses
    assert ("$.messages[2]", "approximated") not in losses


def test_white_space_of_the_same_api_is_the_clients_affair() -> None:
    body = {"model": "m", "max_tokens": 1, "messages": [{"role": "user", "content": " "}]}
    assert body == json.loads(ts.convert(json.dumps(body), "anthropic-messages", "anthropic-messages").data)


# The type of a schema: required.


def offered(parameters: dict[str, Any]) -> tuple[bytes, list[tuple[str, str]]]:
    """The schema of a tool as it is written, and the losses."""
    tool = {"type": "function", "function": {"name": "f", "parameters": parameters}}
    body = {"model": "m", "max_tokens": 1, "messages": [{"role": "user", "content": "Hi"}], "tools": [tool]}
    rendered = ts.convert(json.dumps(body), "openai-chat", "anthropic-messages")
    _, _, schema = rendered.data.partition(b'"input_schema":')
    return schema.removesuffix(b"}]}"), [(loss.path, loss.kind) for loss in rendered.losses]


@pytest.mark.parametrize(
    ("parameters", "schema"),
    [
        ({}, b'{"type":"object"}'),
        ({"properties": {"type": {}}}, b'{"type":"object","properties": {"type": {}}}'),
        ({"description": "type"}, b'{"type":"object","description": "type"}'),
    ],
)
def test_a_schema_says_that_it_is_of_an_object(parameters: dict[str, Any], schema: bytes) -> None:
    assert (schema, [("$.tools[0].function.parameters", "invented")]) == offered(parameters)


@pytest.mark.parametrize("parameters", [{"type": "object"}, {"properties": {}, "type": "object"}, {"type": "string"}])
def test_a_type_that_is_said_stays(parameters: dict[str, Any]) -> None:
    assert (json.dumps(parameters).encode(), []) == offered(parameters)


def test_white_space_around_a_schema_that_a_program_gave_is_no_member() -> None:
    body = {"model": "m", "messages": [], "tools": [{"type": "function", "function": {"name": "f"}}]}
    request = ts.parse(body, "openai-chat")
    request.tools[0].parameters = Raw(b"{}\n")
    (tool,) = json.loads(ts.render(request, "anthropic-messages").data)["tools"]
    assert {"type": "object"} == tool["input_schema"]
