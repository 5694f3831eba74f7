"""Owns the unit tests of what stands around the messages of a Messages request: tools, settings, errors, detection."""

from __future__ import annotations

from typing import Any

import pytest

import turnscript as ts
from turnscript.apis.anthropic_messages import AnthropicMessages
from turnscript.core.conversation import (
    Conversation,
    Request,
    ResponseFormat,
    Settings,
    Text,
    ThinkingMode,
    Tool,
    ToolChoice,
    User,
)
from turnscript.core.errors import InvalidRequest, LossyConversion, UnknownName
from turnscript.core.json_text import json_of, plain

API = AnthropicMessages()
CACHE = {"type": "ephemeral"}


def returned(body: Any) -> Any:
    """The body after reading and writing, which must not report anything."""
    rendered = API.render_request(API.parse_request(body))
    assert [] == rendered.losses
    return rendered.value


def request_of(**members: Any) -> Request:
    """A request without messages, which must also come back as it was."""
    body = {**members, "messages": []}
    assert body == returned(body)
    return API.parse_request(body)


def tool_of(tool: Any) -> Tool:
    body = {"messages": [], "tools": [tool]}
    assert body == returned(body)
    (found,) = API.parse_request(body).tools
    return found


def error_of(body: Any) -> str:
    with pytest.raises(InvalidRequest) as caught:
        API.parse_request(body)
    return str(caught.value)


# Tools.


def test_a_function_tool_is_typed() -> None:
    wire = {"name": "f", "description": "d", "input_schema": {"type": "object"}, "strict": True}
    assert Tool(name="f", description="d", parameters=json_of({"type": "object"}), strict=True) == tool_of(wire)


@pytest.mark.parametrize(
    "members",
    [
        {},
        {"type": "custom"},
        {"type": None},
        {"type": "function"},
        {"description": None, "strict": None, "cache_control": CACHE},
        {"input_examples": [{"a": 1}], "defer_loading": True, "eager_input_streaming": None, "cache_control": None},
    ],
)
def test_every_form_of_a_function_tool_returns(members: Any) -> None:
    tool = tool_of({"name": "f", "input_schema": {"type": "object", "properties": {}}, **members})
    assert ("function", "f") == (tool.type, tool.name)


@pytest.mark.parametrize("members", [{}, {"input_schema": None}])
def test_a_tool_without_a_schema_returns(members: Any) -> None:
    assert tool_of({"name": "f", **members}).parameters is None


@pytest.mark.parametrize(
    "wire",
    [
        {"type": "web_search_20250305", "name": "web_search", "max_uses": 5},
        {"type": "memory_20250818", "name": "memory", "strict": True, "input_examples": []},
        {"type": "mcp_toolset", "mcp_server_name": "m", "configs": None},
        {"type": "namespace", "name": "n", "tools": []},
    ],
)
def test_tools_of_the_api_itself_keep_their_type(wire: Any) -> None:
    tool = tool_of(wire)
    assert (wire["type"], wire.get("name")) == (tool.type, tool.name)


@pytest.mark.parametrize("nothing", [[], None])
def test_no_tools_are_kept_as_they_are(nothing: Any) -> None:
    body = {"messages": [], "tools": nothing}
    assert body == returned(body)


# Settings of a request of this API.


def test_plain_settings_are_typed() -> None:
    body = {
        "model": "m",
        "max_tokens": 0,
        "stop_sequences": ["a", ""],
        "stream": False,
        "temperature": 1.0,
        "top_p": 1,
        "top_k": 5,
        "service_tier": "standard_only",
        "metadata": {"user_id": "u"},
    }
    settings = Settings(
        model="m",
        max_tokens=0,
        stop=["a", ""],
        stream=False,
        temperature=1.0,
        top_p=1,
        top_k=5,
        service_tier="standard_only",
        user="u",
    )
    assert settings == request_of(**body).settings


@pytest.mark.parametrize(
    "members",
    [
        {"metadata": {}},
        {"metadata": {"user_id": None}},
        {"metadata": {"user_id": "u", "new": 1}},
        {"metadata": None, "max_tokens": None, "model": None, "thinking": None, "tool_choice": None},
        {"stop_sequences": [], "cache_control": {"type": "ephemeral", "ttl": "1h"}, "container": "c"},
        {"betas": ["b"], "speed": "fast", "mcp_servers": [], "context_management": {"edits": [{"type": "x"}]}},
        {"thread": {"type": "create"}, "fallbacks": [], "diagnostics": {"previous_message_id": None}},
        {"output_config": {}},
        {"output_config": {"effort": None, "format": None}},
        {"output_config": {"format": {"type": "grammar", "new": 1}}},
        {"output_config": {"format": {"type": "json_schema"}, "effort": "low"}},
        {"output_config": {"task_budget": {"type": "tokens", "total": 5}, "effort": "new"}},
    ],
)
def test_members_without_a_name_return(members: Any) -> None:
    request_of(**members)


@pytest.mark.parametrize(
    ("wire", "mode"),
    [
        ({"type": "enabled", "budget_tokens": 2048}, ThinkingMode("enabled", 2048)),
        ({"type": "enabled", "budget_tokens": 2048, "display": "omitted"}, ThinkingMode("enabled", 2048, "omitted")),
        ({"type": "disabled"}, ThinkingMode("disabled")),
        ({"type": "adaptive", "display": None}, ThinkingMode("adaptive", extra={"display": json_of(None)})),
        ({"type": "between_tools", "new": 1}, ThinkingMode("between_tools", extra={"new": json_of(1)})),
    ],
)
def test_every_kind_of_thinking_is_typed(wire: Any, mode: ThinkingMode) -> None:
    assert mode == request_of(thinking=wire).settings.thinking


def test_effort_and_output_format_are_typed() -> None:
    schema = {"type": "object"}
    output = {"effort": "high", "format": {"type": "json_schema", "schema": schema, "new": 1}, "other": 2}
    request = request_of(output_config=output)
    assert "high" == request.settings.effort
    assert request.settings.response_format == ResponseFormat(
        "json_schema", schema=json_of(schema), extra={"new": json_of(1)}
    )
    assert {"other": 2} == plain(request.extra["output_config"])
    assert "$.output_config.format" == request.paths["response_format"]


def test_the_output_format_is_read_where_older_sdks_write_it() -> None:
    form, other = ({"type": "json_schema", "schema": {"type": one}} for one in ("object", "array"))
    request = request_of(output_format=form, output_config={"effort": "low"})
    assert ResponseFormat("json_schema", schema=json_of({"type": "object"})) == request.settings.response_format
    assert ("$.output_format", {}) == (request.paths["response_format"], request.extra)
    for members in ({"output_format": other, "output_config": {"format": form}}, {"output_config": {"format": form}}):
        both = request_of(**members, **({} if "output_format" in members else {"output_format": other}))
        assert request.settings.response_format == both.settings.response_format
        assert other == plain(both.extra["output_format"])
    request_of(output_format={"type": "grammar", "new": 1})
    for nothing in ({}, {"effort": None}, {"new": 1}):
        request_of(new=1, output_format=form, output_config=nothing)  # unnamed: in the order of the body
    request_of(output_format=None)
    assert "$.output_format" in error_of({"messages": [], "output_format": 7})


@pytest.mark.parametrize(
    ("wire", "choice", "parallel"),
    [
        ({"type": "auto"}, ToolChoice("auto"), None),
        ({"type": "any", "disable_parallel_tool_use": True}, ToolChoice("required"), False),
        ({"type": "auto", "disable_parallel_tool_use": False}, ToolChoice("auto"), True),
        ({"type": "none"}, ToolChoice("none"), None),
        ({"type": "none", "disable_parallel_tool_use": True}, ToolChoice("none"), False),
        ({"type": "auto", "name": "f"}, ToolChoice("auto", extra={"name": json_of("f")}), None),
        ({"type": "tool", "name": "f", "new": 1}, ToolChoice("named", "f", extra={"new": json_of(1)}), None),
        ({"type": "tool"}, None, None),
        ({"type": "new", "name": "f"}, None, None),
    ],
)
def test_every_tool_choice_returns(wire: Any, choice: ToolChoice | None, parallel: bool | None) -> None:
    settings = request_of(tool_choice=wire, tools=[{"name": "f", "input_schema": {}}]).settings
    assert (choice, parallel) == (settings.tool_choice, settings.parallel_tool_calls)


# Settings from elsewhere.


def written(settings: Settings, *tools: Tool, origin: str | None = "another") -> tuple[Any, list[tuple[str, str]]]:
    """The body for the settings of another API, without what is always there, and the losses."""
    conversation = Conversation(tools=list(tools))
    settings.max_tokens = 5
    rendered = API.render_request(Request(conversation=conversation, settings=settings, origin=origin))
    value: Any = rendered.value
    rest = {key: member for key, member in value.items() if key not in ("messages", "max_tokens", "tools")}
    return rest, [(loss.path, loss.kind) for loss in rendered.losses]


def test_a_limit_is_invented_where_another_api_needs_none() -> None:
    rendered = API.render_request(Request(origin="another"))
    assert {"max_tokens": 4096, "messages": []} == rendered.value
    assert [("$.max_tokens", "invented")] == [(loss.path, loss.kind) for loss in rendered.losses]
    assert {"messages": []} == API.render_request(Request()).value


@pytest.mark.parametrize("name", ["openai-chat", "rwkv-universal"])
def test_a_limit_is_invented_for_a_request_wherever_it_comes_from(name: str) -> None:
    """What names a model or ends in the middle of an answer is one; without a limit, the end would be read as said."""
    spoken = [
        ts.User(content=[ts.Text(text="Hi")]),
        ts.Assistant(content=[ts.Text(text="Hello, I")], open=name == "rwkv-universal"),
    ]
    request = ts.Request(conversation=ts.Conversation(items=[*spoken]), settings=Settings(model="m"))
    source = ts.render(request, name).value
    rendered = ts.render(ts.parse(source, name), API.name)
    assert 4096 == rendered.value["max_tokens"]
    assert ("$.max_tokens", "invented") in [(loss.path, loss.kind) for loss in rendered.losses]
    assert ts.parse(rendered.data, API.name).items[-1].open


@pytest.mark.parametrize(
    ("effort", "member", "losses"),
    [
        ("none", {"thinking": {"type": "disabled"}}, [("$.effort", "approximated")]),
        ("minimal", {"output_config": {"effort": "low"}}, [("$.effort", "approximated")]),
        ("xhigh", {"output_config": {"effort": "xhigh"}}, []),
        ("odd", {}, [("$.effort", "dropped")]),
    ],
)
def test_efforts_of_other_apis_are_translated(effort: str, member: Any, losses: Any) -> None:
    assert (member, losses) == written(Settings(effort=effort))


def test_a_thinking_mode_wins_over_no_effort() -> None:
    settings = Settings(effort="none", thinking=ThinkingMode("adaptive", display="omitted"))
    expected = {"thinking": {"type": "adaptive", "display": "omitted"}}
    assert (expected, [("$.effort", "dropped")]) == written(settings)


def test_of_a_json_schema_only_the_schema_is_sent() -> None:
    form = ResponseFormat("json_schema", name="n", schema=json_of({}), strict=True)
    expected = {"output_config": {"format": {"type": "json_schema", "schema": {}}}}
    losses = [("$.response_format.name", "dropped"), ("$.response_format.strict", "dropped")]
    assert (expected, losses) == written(Settings(response_format=form))


@pytest.mark.parametrize("form", [ResponseFormat("json_object"), ResponseFormat("json_schema", name="n")])
def test_a_format_without_a_schema_is_dropped(form: ResponseFormat) -> None:
    assert ({}, [("$.response_format", "dropped")]) == written(Settings(response_format=form))


F, G = (Tool(name=name, parameters=json_of({"type": "object"})) for name in "fg")


@pytest.mark.parametrize(
    ("choice", "parallel", "member", "losses"),
    [
        (ToolChoice("required"), None, {"type": "any"}, []),
        (ToolChoice("named", "f"), False, {"type": "tool", "name": "f", "disable_parallel_tool_use": True}, []),
        (ToolChoice("named", "f", "custom"), None, {"type": "tool", "name": "f"}, [("$.tool_choice", "approximated")]),
        (ToolChoice("named", type="web"), None, None, [("$.tool_choice", "dropped")]),
        (None, False, {"type": "auto", "disable_parallel_tool_use": True}, []),
        (ToolChoice("none"), False, {"type": "none"}, [("$.parallel_tool_calls", "dropped")]),
    ],
)
def test_tool_choices_of_other_apis_are_translated(
    choice: ToolChoice | None, parallel: bool | None, member: Any, losses: Any
) -> None:
    body, found = written(Settings(tool_choice=choice, parallel_tool_calls=parallel), F)
    assert (member, losses) == (body.get("tool_choice"), found)


def test_parallel_calls_say_nothing_without_tools() -> None:
    assert ({}, [("$.parallel_tool_calls", "dropped")]) == written(Settings(parallel_tool_calls=False))


@pytest.mark.parametrize("entry", [{"type": "function", "name": "g"}, {"type": "function", "function": {"name": "g"}}])
def test_only_the_allowed_tools_are_offered(entry: Any) -> None:
    choice = ToolChoice("allowed", tools=json_of([entry, 5]), required=True)
    body, losses = written(Settings(tool_choice=choice), F, G)
    assert {"tool_choice": {"type": "any"}} == body
    assert [("$.tool_choice", "approximated"), ("$.tools[0]", "dropped")] == losses


def test_no_tool_may_be_called_when_none_of_them_is_among_the_allowed() -> None:
    choice = ToolChoice("allowed", tools=json_of([{"type": "web"}]))
    told = [("$.tool_choice", "approximated")]
    assert ({"tool_choice": {"type": "none"}}, told) == written(Settings(tool_choice=choice), F)


def test_a_service_tier_of_another_api_is_dropped() -> None:
    assert ({"service_tier": "auto"}, []) == written(Settings(service_tier="auto"))
    assert ({}, [("$.service_tier", "dropped")]) == written(Settings(service_tier="flex"))


@pytest.mark.parametrize(("stop", "left"), [(["\n", "END", ""], ["END"]), ([" \t"], None), (["\nQ:"], ["\nQ:"])])
@pytest.mark.parametrize("origin", ["another", None])
def test_a_stop_sequence_of_white_space_is_dropped(stop: list[str], left: list[str] | None, origin: str | None) -> None:
    """The server refuses a request that has one."""
    body, losses = written(Settings(stop=stop), origin=origin)
    assert ({} if left is None else {"stop_sequences": left}) == body
    assert ([] if stop == left else [("$.stop", "dropped")]) == losses


def test_settings_without_a_counterpart_are_listed() -> None:
    body, losses = written(Settings(seed=1, user="u", metadata=json_of({"a": "b"})))
    assert {"metadata": {"user_id": "u"}} == body
    assert [("$.metadata", "dropped"), ("$.seed", "dropped")] == sorted(losses)


# Errors and detection.


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ({"model": "m"}, "$.messages: required, but missing; expected an array of messages"),
        ({"messages": "hi"}, "$.messages: expected an array of objects, got a string"),
        ({"messages": [{"content": "q"}]}, "$.messages[0].role: required, but missing"),
        ({"messages": [{"role": "user"}]}, "$.messages[0].content: required, but missing"),
        ({"messages": [{"role": "user", "content": 5}]}, "$.messages[0].content: expected a string or an array"),
        ({"messages": [{"role": "user", "content": [{"text": "t"}]}]}, "$.messages[0].content[0].type: required"),
        (
            {"messages": [{"role": "user", "content": [{"type": "text", "text": 5}]}]},
            "$.messages[0].content[0].text: expected a string, got a number (5)",
        ),
        (
            {"messages": [{"role": "assistant", "content": [{"type": "tool_use", "id": "c", "name": "f"}]}]},
            "$.messages[0].content[0].input: required, but missing",
        ),
        (
            {
                "messages": [
                    {"role": "assistant", "content": [{"type": "tool_use", "id": "c", "name": "f", "input": []}]}
                ]
            },
            "$.messages[0].content[0].input: expected an object, got an array",
        ),
        ({"messages": [], "system": 5}, "$.system: expected a string or an array"),
        ({"messages": [], "tools": [{"input_schema": {}}]}, "$.tools[0].name: required, but missing"),
        ({"messages": [], "tools": {"a": 1}}, "$.tools: expected an array"),
        ({"messages": [], "max_tokens": "5"}, "$.max_tokens: expected an integer"),
    ],
)
def test_an_error_names_the_path_and_what_was_expected(body: Any, message: str) -> None:
    assert message in error_of(body)


def test_an_unknown_flag_is_an_error_with_the_known_ones() -> None:
    with pytest.raises(UnknownName, match="mid_system"):
        API.render_request(Request(), middle="hoist")


def test_strict_raises_what_would_be_lost() -> None:
    request = Request(conversation=Conversation(items=[User(content=[Text(text="q")], name="ann")]))
    with pytest.raises(LossyConversion, match=r"items\[0\]\.name"):
        API.render_request(request, strict=True)


@pytest.mark.parametrize(
    ("body", "sure"),
    [
        ({"messages": [], "system": "s"}, True),
        ({"messages": [], "anthropic_version": "v"}, True),
        ({"messages": [{"role": "user", "content": [{"type": "tool_result"}]}]}, True),
        ({"messages": [{"role": "user", "content": [{"type": "image", "source": {}}]}]}, True),
        ({"messages": [], "tools": [{"name": "f", "input_schema": {}}]}, True),
        ({"messages": [{"role": "user", "content": "q"}], "max_tokens": 5}, False),
        ({"messages": 5, "tools": "x"}, False),
        ({"input": "q", "system": "s"}, False),
    ],
)
def test_bodies_are_claimed_by_what_only_this_api_has(body: dict[str, Any], sure: bool) -> None:
    assert sure == bool(API.claims({key: json_of(value) for key, value in body.items()}))
