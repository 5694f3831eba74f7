"""Owns the unit tests of Chat tools and settings: each is typed where it has a name, and returns as it was."""

from __future__ import annotations

from typing import Any

import pytest

from turnscript.apis.openai_chat import OpenAIChat
from turnscript.core.conversation import Request, ResponseFormat, Settings, ThinkingMode, Tool, ToolChoice
from turnscript.core.errors import InvalidRequest
from turnscript.core.json_text import json_of, plain

API = OpenAIChat()
SCHEMA = {"type": "object", "properties": {}}
FUNCTION = {"name": "f", "description": "d", "parameters": SCHEMA, "strict": True}
GRAMMAR = {"definition": "start: x", "syntax": "lark"}


def request_of(**members: Any) -> Request:
    """The request of a body with these members, which must come back as it was."""
    body = {"messages": [], **members}
    rendered = API.render_request(API.parse_request(body))
    assert [] == rendered.losses
    assert body == rendered.value
    return API.parse_request(body)


def tool_of(tool: Any) -> Tool:
    (found,) = request_of(tools=[tool]).tools
    return found


def foreign(**settings: Any) -> tuple[Any, list[tuple[str, str]]]:
    """The body of a request that came from elsewhere, and its losses."""
    rendered = API.render_request(Request(origin="elsewhere", settings=Settings(**settings)))
    return rendered.value, [(loss.path, loss.kind) for loss in rendered.losses]


# Tools.


def test_a_function_tool_is_a_tool_with_unnamed_members_in_their_place() -> None:
    tool = tool_of({"type": "function", "function": {**FUNCTION, "x": 1}, "y": 2})
    assert (
        Tool(
            name="f", description="d", parameters=tool.parameters, strict=True, extra=tool.extra, envelope=tool.envelope
        )
        == tool
    )
    assert ({"x": 1}, {"y": 2}) == tuple(
        {key: plain(value) for key, value in one.items()} for one in (tool.extra, tool.envelope)
    )


@pytest.mark.parametrize("name", ["description", "parameters", "strict"])
@pytest.mark.parametrize("more", [{}, {"x": 1}])
def test_a_null_in_a_function_means_nothing_and_returns(name: str, more: dict[str, Any]) -> None:
    tool = tool_of({"type": "function", "function": {"name": "f", name: None, **more}})
    assert getattr(tool, name) is None


def test_a_custom_tool_has_its_grammar_without_the_wrapper() -> None:
    format_ = {"type": "grammar", "grammar": GRAMMAR}
    tool = tool_of({"type": "custom", "custom": {"name": "sh", "description": "d", "format": format_}})
    assert Tool(name="sh", description="d", type="custom", format=json_of({"type": "grammar", **GRAMMAR})) == tool


@pytest.mark.parametrize(
    "format_",
    [
        {"type": "text"},
        {"type": "text", "x": 1},
        {"grammar": GRAMMAR, "type": "grammar"},
        {"type": "grammar", "grammar": {**GRAMMAR, "x": 1}, "y": 2},
        {"type": "grammar", "grammar": {"definition": "x"}},
        {"type": "grammar", "grammar": 5},
        {"type": "gbnf", "grammar": GRAMMAR},
        {},
        5,
        None,
    ],
)
def test_every_format_of_a_custom_tool_returns(format_: Any) -> None:
    tool = tool_of({"type": "custom", "custom": {"name": "sh", "format": format_}, "z": 1})
    assert ("custom", {"z"}) == (tool.type, set(tool.envelope))


def test_a_custom_tool_may_have_no_format() -> None:
    assert Tool(name="sh", type="custom") == tool_of({"type": "custom", "custom": {"name": "sh"}})


def test_a_tool_of_another_type_keeps_all_its_members() -> None:
    tool = tool_of({"type": "web_search", "name": "w", "max_uses": 1.0})
    assert Tool(type="web_search", extra={"name": json_of("w"), "max_uses": json_of(1.0)}) == tool


def test_deprecated_functions_are_tools() -> None:
    request = request_of(functions=[FUNCTION], tools=[{"type": "function", "function": FUNCTION}])
    assert ["f", "f"] == [tool.name for tool in request.tools]
    assert ["", "functions"] == [tool.slot for tool in request.tools]


@pytest.mark.parametrize("members", [{"tools": []}, {"tools": None}, {"functions": []}, {"functions": None}])
def test_no_tools_in_many_words(members: dict[str, Any]) -> None:
    assert [] == request_of(**members).tools


# Settings.

PLAIN: dict[str, Any] = {
    "model": "m",
    "temperature": 0.5,
    "top_p": 1,
    "n": 2,
    "stream": True,
    "stream_options": {"include_usage": True},
    "parallel_tool_calls": False,
    "verbosity": "low",
    "seed": 2**70,
    "presence_penalty": -1.5,
    "frequency_penalty": 0,
    "logit_bias": {"50256": -100},
    "logprobs": True,
    "top_logprobs": 3,
    "user": "u",
    "metadata": {"k": "v"},
    "service_tier": "flex",
    "store": False,
    "safety_identifier": "s",
    "prompt_cache_key": "k",
    "prompt_cache_retention": "24h",
    "prompt_cache_options": {"mode": "explicit"},
    "moderation": {"model": "omni"},
}


@pytest.mark.parametrize("key", PLAIN)
def test_a_setting_of_the_same_name_is_typed(key: str) -> None:
    found = getattr(request_of(**{key: PLAIN[key]}).settings, key)
    assert PLAIN[key] == (plain(found) if isinstance(PLAIN[key], dict) else found)


@pytest.mark.parametrize("key", [*PLAIN, "stop", "tool_choice", "response_format", "reasoning_effort", "max_tokens"])
def test_a_null_is_kept_apart_from_nothing(key: str) -> None:
    assert {key} == request_of(**{key: None}).extra.keys()


@pytest.mark.parametrize("key", ["audio", "modalities", "prediction", "web_search_options", "top_k", "chat_template"])
def test_other_members_stay_unnamed(key: str) -> None:
    assert {key} == request_of(**{key: {"a": 1.0}}).extra.keys()


def test_both_limits_are_one_setting() -> None:
    assert 5 == request_of(max_completion_tokens=5).settings.max_tokens
    request = request_of(max_tokens=6)
    assert 6 == request.settings.max_tokens
    request.settings.max_tokens = 7
    assert {"max_completion_tokens": 7, "messages": []} == API.render_request(request, strict=True).value
    request = request_of(max_tokens=6, max_completion_tokens=5)
    assert (5, {"max_tokens"}) == (request.settings.max_tokens, set(request.extra))
    assert 6 == request_of(max_tokens=6, max_completion_tokens=None).settings.max_tokens
    assert ({"max_completion_tokens": 7, "messages": []}, []) == foreign(max_tokens=7)


def test_one_stop_string_is_a_list_of_one() -> None:
    assert ["a"] == request_of(stop="a").settings.stop
    assert ["a"] == request_of(stop=["a"]).settings.stop
    assert [] == request_of(stop=[]).settings.stop
    assert ["a"] == foreign(stop=["a"])[0]["stop"]


@pytest.mark.parametrize("mode", ["none", "auto", "required"])
def test_a_tool_choice_in_a_word(mode: str) -> None:
    assert ToolChoice(mode=mode) == request_of(tool_choice=mode).settings.tool_choice


@pytest.mark.parametrize(
    ("value", "choice"),
    [
        ({"type": "function", "function": {"name": "f"}}, ToolChoice(mode="named", name="f")),
        ({"type": "custom", "custom": {"name": "c"}}, ToolChoice(mode="named", name="c", type="custom")),
        (
            {"type": "allowed_tools", "allowed_tools": {"mode": "required", "tools": []}},
            ToolChoice(mode="allowed", tools=json_of([]), required=True),
        ),
        ({"type": "function", "function": {"name": "f", "x": 1}, "y": 2}, ToolChoice(mode="named", name="f")),
        (
            {"type": "allowed_tools", "allowed_tools": {"mode": "auto", "tools": [], "x": 1}},
            ToolChoice(mode="allowed", tools=json_of([])),
        ),
        ({"type": "allowed_tools", "allowed_tools": {"mode": "maybe", "tools": []}}, None),
        ({"type": "mcp", "server_label": "s"}, None),
        ("perhaps", None),
    ],
)
def test_a_tool_choice_in_an_object(value: Any, choice: ToolChoice | None) -> None:
    assert choice == request_of(tool_choice=value).settings.tool_choice


def test_the_deprecated_function_call_is_a_tool_choice() -> None:
    assert ToolChoice(mode="none") == request_of(function_call="none").settings.tool_choice
    assert ToolChoice(mode="named", name="f") == request_of(function_call={"name": "f", "x": 1}).settings.tool_choice
    assert ToolChoice(mode="named", name="f") == request_of(function_call={"name": "f"}).settings.tool_choice
    assert request_of(function_call="required").settings.tool_choice is None
    both = request_of(function_call="auto", tool_choice="none")
    assert (ToolChoice(mode="none"), {"function_call"}) == (both.settings.tool_choice, set(both.extra))


@pytest.mark.parametrize(
    ("value", "format_"),
    [
        ({"type": "text"}, ResponseFormat(type="text")),
        ({"type": "json_object", "x": 1}, ResponseFormat(type="json_object")),
        (
            {"type": "json_object", "schema": SCHEMA, "x": 1},
            ResponseFormat(type="json_schema", schema=json_of(SCHEMA)),
        ),
        (
            {"type": "json_schema", "json_schema": {"name": "n", "description": "d", "schema": SCHEMA, "strict": True}},
            ResponseFormat(type="json_schema", name="n", description="d", schema=json_of(SCHEMA), strict=True),
        ),
        (
            {"type": "json_schema", "json_schema": {"name": "n", "strict": None, "x": 1}, "y": 2},
            ResponseFormat(type="json_schema", name="n"),
        ),
        ({"type": "json_schema", "schema": {}}, None),
        ({"type": "regex", "regex": "a*"}, None),
    ],
)
def test_a_response_format(value: Any, format_: ResponseFormat | None) -> None:
    assert format_ == request_of(response_format=value).settings.response_format


@pytest.mark.parametrize("effort", ["none", "minimal", "high", "max", "cosmic"])
def test_an_effort(effort: str) -> None:
    assert effort == request_of(reasoning_effort=effort).settings.effort


@pytest.mark.parametrize(
    ("members", "path"),
    [
        ({"temperature": "hot"}, "$.temperature"),
        ({"n": 1.5}, "$.n"),
        ({"stop": [1]}, "$.stop"),
        ({"metadata": []}, "$.metadata"),
        ({"logit_bias": "x"}, "$.logit_bias"),
        ({"max_tokens": "5"}, "$.max_tokens"),
        ({"max_completion_tokens": True}, "$.max_completion_tokens"),
        ({"tool_choice": {"type": "function", "function": {}}}, "$.tool_choice.function.name"),
        ({"tool_choice": {}}, "$.tool_choice.type"),
        ({"function_call": {"name": 1}}, "$.function_call.name"),
        ({"response_format": {"type": "json_schema", "json_schema": []}}, "$.response_format.json_schema"),
        ({"reasoning_effort": 3}, "$.reasoning_effort"),
    ],
)
def test_a_setting_of_the_wrong_type_is_an_error_with_its_path(members: dict[str, Any], path: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        API.parse_request({"messages": [], **members})
    assert path == caught.value.path


# Settings of other APIs.


@pytest.mark.parametrize(
    ("budget", "effort"),
    [
        (1024, "low"),
        (2047, "low"),
        (2048, "medium"),
        (8191, "medium"),
        (8192, "high"),
        (24575, "high"),
        (24576, "xhigh"),
    ],
)
def test_a_thinking_budget_becomes_the_nearest_effort(budget: int, effort: str) -> None:
    value, losses = foreign(thinking=ThinkingMode(mode="enabled", budget=budget, display="omitted"))
    assert effort == value["reasoning_effort"]
    assert [("$.thinking.display", "dropped"), ("$.thinking", "approximated")] == losses


def test_other_thinking_modes_are_reported() -> None:
    assert [("$.thinking", "dropped")] == foreign(thinking=ThinkingMode(mode="adaptive"))[1]
    value, losses = foreign(thinking=ThinkingMode(mode="disabled"), effort="high")
    assert ("none", [("$.effort", "dropped"), ("$.thinking", "approximated")]) == (value["reasoning_effort"], losses)
    assert [("$.thinking", "approximated")] == foreign(thinking=ThinkingMode(mode="disabled"))[1]
    value, losses = foreign(thinking=ThinkingMode(mode="enabled", budget=2000), effort="xhigh")
    assert ("xhigh", [("$.thinking", "dropped")]) == (value["reasoning_effort"], losses)


def test_a_choice_among_allowed_tools_gets_the_wrapper_of_this_api() -> None:
    tools = [{"type": "function", "name": "f"}, {"type": "mcp", "server_label": "s"}, 5]
    value, losses = foreign(tool_choice=ToolChoice(mode="allowed", tools=json_of(tools), extra={"x": json_of(1)}))
    expected = [{"type": "function", "function": {"name": "f"}}, *tools[1:]]
    assert {"mode": "auto", "tools": expected} == value["tool_choice"]["allowed_tools"]
    assert [("$.tool_choice.x", "dropped")] == losses
    assert [] == foreign(tool_choice=ToolChoice(mode="allowed"))[0]["tool_choice"]["allowed_tools"]["tools"]


def test_a_choice_of_a_tool_that_the_api_runs_itself_is_dropped() -> None:
    value, losses = foreign(tool_choice=ToolChoice(mode="named", type="file_search"))
    assert ({"messages": []}, [("$.tool_choice", "dropped")]) == (value, losses)


def test_a_schema_without_a_name_gets_one() -> None:
    value, losses = foreign(response_format=ResponseFormat(type="json_schema", schema=json_of(SCHEMA)))
    assert {"name": "response", "schema": SCHEMA} == value["response_format"]["json_schema"]
    assert [("$.response_format", "invented")] == losses
    assert [("$.response_format", "dropped")] == foreign(response_format=ResponseFormat(type="yaml"))[1]


def test_service_tiers_of_other_apis() -> None:
    assert ("auto", []) == ((given := foreign(service_tier="auto"))[0]["service_tier"], given[1])
    value, losses = foreign(service_tier="standard_only")
    assert ("default", [("$.service_tier", "approximated")]) == (value["service_tier"], losses)
    assert [("$.service_tier", "dropped")] == foreign(service_tier="ultrafast")[1]


def test_settings_without_a_counterpart_are_reported() -> None:
    value, losses = foreign(top_k=5, reasoning_summary="auto")
    assert ({"messages": []}, {("$.top_k", "dropped"), ("$.reasoning_summary", "dropped")}) == (value, set(losses))
