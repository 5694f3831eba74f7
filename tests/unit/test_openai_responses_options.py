"""Owns the unit tests of the settings of Responses requests, of their errors and of their recognition."""

from __future__ import annotations

from typing import Any

import pytest

from turnscript.apis.openai_responses import OpenAIResponses
from turnscript.core.conversation import (
    Conversation,
    Request,
    ResponseFormat,
    Settings,
    Text,
    ToolChoice,
    User,
)
from turnscript.core.errors import InvalidRequest, LossyConversion
from turnscript.core.json_text import json_of

API = OpenAIResponses()
SCHEMA = {"type": "json_schema", "name": "n", "schema": {"type": "object"}}


def read(body: Any) -> Request:
    """The request of a body, which must also come back as it was."""
    request = API.parse_request(body)
    rendered = API.render_request(request)
    assert ([], body) == (rendered.losses, rendered.value)
    return request


@pytest.mark.parametrize(
    ("body", "settings"),
    [
        ({"model": "m"}, Settings(model="m")),
        ({"max_output_tokens": 5}, Settings(max_tokens=5)),
        ({"temperature": 1.0, "top_p": 1}, Settings(temperature=1.0, top_p=1)),
        ({"stream": True}, Settings(stream=True)),
        ({"stream_options": {"x": 1}}, Settings(stream_options=json_of({"x": 1}))),
        ({"parallel_tool_calls": False, "store": False}, Settings(parallel_tool_calls=False, store=False)),
        ({"metadata": {"a": "b"}}, Settings(metadata=json_of({"a": "b"}))),
        ({"user": "u", "safety_identifier": "s"}, Settings(user="u", safety_identifier="s")),
        ({"service_tier": "flex"}, Settings(service_tier="flex")),
        (
            {"prompt_cache_key": "k", "prompt_cache_retention": "24h"},
            Settings(prompt_cache_key="k", prompt_cache_retention="24h"),
        ),
        ({"prompt_cache_options": {"ttl": "12h"}}, Settings(prompt_cache_options=json_of({"ttl": "12h"}))),
        (
            {"moderation": {"model": "m"}, "top_logprobs": 3},
            Settings(moderation=json_of({"model": "m"}), top_logprobs=3),
        ),
        ({"stop": "x"}, Settings(stop=["x"])),
        ({"stop": ["x"]}, Settings(stop=["x"])),
        ({"stop": []}, Settings(stop=[])),
        ({"include": ["message.output_text.logprobs"]}, Settings(logprobs=True)),
        ({"include": ["reasoning.encrypted_content", "message.output_text.logprobs"]}, Settings(logprobs=True)),
        ({"include": []}, Settings()),
        ({"reasoning": {"effort": "xhigh"}}, Settings(effort="xhigh")),
        ({"reasoning": {"summary": "auto", "mode": "pro", "effort": None}}, Settings(reasoning_summary="auto")),
        ({"reasoning": {}}, Settings()),
        ({"reasoning": {"context": "auto"}}, Settings()),
        ({"text": {"verbosity": "low"}}, Settings(verbosity="low")),
        ({"text": {"format": {"type": "text"}}}, Settings(response_format=ResponseFormat("text"))),
        (
            {"text": {"format": {"type": "json_object", "x": 1}}},
            Settings(response_format=ResponseFormat("json_object", extra={"x": json_of(1)})),
        ),
        ({"text": {"format": {"type": "hologram"}, "verbosity": "low"}}, Settings(verbosity="low")),
        ({"text": {}}, Settings()),
        ({"text": {"x": 1, "format": None, "verbosity": None}}, Settings()),
        (
            {"text": {"format": {**SCHEMA, "strict": True, "description": "d"}, "x": 1}},
            Settings(response_format=ResponseFormat("json_schema", "n", json_of({"type": "object"}), True, "d")),
        ),
        (
            {"text": {"format": {**SCHEMA, "strict": None}}},
            Settings(
                response_format=ResponseFormat(
                    "json_schema", "n", json_of({"type": "object"}), extra={"strict": json_of(None)}
                )
            ),
        ),
        ({"tool_choice": "auto"}, Settings(tool_choice=ToolChoice("auto"))),
        ({"tool_choice": "required"}, Settings(tool_choice=ToolChoice("required"))),
        ({"tool_choice": "sometimes"}, Settings()),
        (
            {"tool_choice": {"type": "function", "name": "f", "x": 1}},
            Settings(tool_choice=ToolChoice("named", "f", extra={"x": json_of(1)})),
        ),
        ({"tool_choice": {"type": "custom", "name": "p"}}, Settings(tool_choice=ToolChoice("named", "p", "custom"))),
        (
            {"tool_choice": {"type": "allowed_tools", "mode": "required", "tools": [{"type": "shell"}]}},
            Settings(tool_choice=ToolChoice("allowed", tools=json_of([{"type": "shell"}]), required=True)),
        ),
        ({"tool_choice": {"type": "allowed_tools", "mode": "maybe", "tools": []}}, Settings()),
        ({"tool_choice": {"type": "mcp", "server_label": "s", "name": None}}, Settings()),
        ({"tool_choice": {"type": "apply_patch"}}, Settings()),
    ],
)
def test_settings(body: Any, settings: Settings) -> None:
    assert settings == read(body).settings


@pytest.mark.parametrize(
    "member",
    [
        {"background": True},
        {"previous_response_id": "resp_1"},
        {"conversation": {"id": "c"}},
        {"truncation": "auto"},
        {"prompt": {"id": "p", "variables": {"a": "b"}}},
        {"context_management": [{"type": "compaction", "compact_threshold": 1.0}]},
        {"max_tool_calls": 3},
        {"access_programs": {"cyber": "standard"}, "image": {"context_compression": "auto"}},
        {"model": None, "text": None, "reasoning": None, "tool_choice": None, "stop": None, "metadata": None},
        {"unknown": [1.0, {"a": None}]},
    ],
)
def test_members_without_a_setting_come_back(member: Any) -> None:
    assert Settings() == read(member).settings


def test_paths_name_the_source_of_a_setting() -> None:
    body = {"max_output_tokens": 5, "text": {"format": SCHEMA}, "reasoning": {"effort": "low", "summary": "auto"}}
    expected = {
        "max_tokens": "$.max_output_tokens",
        "response_format": "$.text.format",
        "effort": "$.reasoning.effort",
        "reasoning_summary": "$.reasoning.summary",
    }
    assert expected == read(body).paths


def test_settings_fold_into_members_and_unfold_again() -> None:
    body = {
        "reasoning": {"effort": "low", "mode": "pro"},
        "text": {"verbosity": "low"},
        "stop": "x",
        "truncation": "auto",
    }
    request = read(body)
    folded = API.fold(request)
    API.unfold(folded)
    assert request == folded


# Errors.


@pytest.mark.parametrize(
    ("body", "path"),
    [
        ({"input": 5}, "$.input"),
        ({"instructions": 5}, "$.instructions"),
        ({"input": ["x"]}, "$.input[0]"),
        ({"input": [{"content": "x"}]}, "$.input[0].type"),
        ({"input": [{"role": "user"}]}, "$.input[0].content"),
        ({"input": [{"role": "user", "content": None}]}, "$.input[0].content"),
        ({"input": [{"role": "user", "content": [{"type": "input_text"}]}]}, "$.input[0].content[0].text"),
        ({"input": [{"role": "user", "content": [{"text": "x"}]}]}, "$.input[0].content[0].type"),
        ({"input": [{"type": "function_call", "name": "f", "arguments": {}}]}, "$.input[0].arguments"),
        ({"input": [{"type": "function_call_output", "output": {}}]}, "$.input[0].output"),
        ({"input": [{"type": "reasoning", "id": "r"}]}, "$.input[0].summary"),
        ({"input": [{"type": "additional_tools", "tools": []}]}, "$.input[0].role"),
        ({"input": [{"type": 5}]}, "$.input[0].type"),
        ({"tools": {}}, "$.tools"),
        ({"tools": [{"name": "f"}]}, "$.tools[0].type"),
        ({"tools": [{"type": "function"}]}, "$.tools[0].name"),
        ({"tools": [{"type": "namespace", "name": "n", "tools": [5]}]}, "$.tools[0].tools[0]"),
        ({"max_output_tokens": "many"}, "$.max_output_tokens"),
        ({"text": {"format": {"type": "json_schema", "name": "n"}}}, "$.text.format.schema"),
        ({"reasoning": "high"}, "$.reasoning"),
        ({"stop": [1]}, "$.stop"),
        ({"include": "x"}, "$.include"),
        ({"tool_choice": {"type": "function"}}, "$.tool_choice.name"),
    ],
)
def test_errors_name_the_place(body: Any, path: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        API.parse_request(body)
    assert path == caught.value.path


def test_strict_refuses_what_would_be_lost() -> None:
    request = Request(conversation=Conversation(items=[User(content=[Text(text="x")], name="alice")]))
    with pytest.raises(LossyConversion, match=r"items\[0\]\.name"):
        API.render_request(request, strict=True)


def test_a_body_with_an_input_is_surely_of_this_api() -> None:
    claims = [API.claims({key: json_of(None)}) for key in ("input", "previous_response_id", "messages")]
    assert [3, 1, 0] == claims
