"""Owns the unit tests of Responses requests written from other APIs: what fits, and what is reported."""

from __future__ import annotations

from typing import Any

import pytest

import turnscript as ts
from turnscript.apis.openai_responses import OpenAIResponses
from turnscript.convert.registry import get_api
from turnscript.core.conversation import (
    Assistant,
    Audio,
    Conversation,
    Document,
    Image,
    Item,
    Opaque,
    Part,
    Raw,
    Request,
    ResponseFormat,
    Settings,
    System,
    Text,
    Thinking,
    ThinkingMode,
    Tool,
    ToolCall,
    ToolChoice,
    ToolResult,
    ToolsChange,
    User,
)
from turnscript.core.json_text import json_of

API = OpenAIResponses()
ONE = json_of(1)


def written(
    *items: Item, origin: str | None = "another", profile: str = "official"
) -> tuple[Any, list[tuple[str, str]]]:
    """The input written for items of another API, and the losses as (path, kind)."""
    request = Request(conversation=Conversation(items=list(items)), origin=origin)
    rendered = API.render_request(request, profile=profile)
    value: Any = rendered.value
    return value.get("input"), [(loss.path, loss.kind) for loss in rendered.losses]


def part(given: Part) -> tuple[Any, list[tuple[str, str]]]:
    """What one part of a user message becomes."""
    (message,), losses = written(User(content=[given], at="$.messages[0]"))
    return message["content"], losses


def option(settings: Settings) -> tuple[Any, list[tuple[str, str]]]:
    rendered = API.render_request(Request(settings=settings, origin="another"))
    return rendered.value, [(loss.path, loss.kind) for loss in rendered.losses]


# Items.


def test_where_a_text_of_another_api_stood_means_nothing_here() -> None:
    user = User(content=[Text(text="x")], at="$.instructions")
    assert ([{"role": "user", "content": [{"type": "input_text", "text": "x"}]}], []) == written(user)
    result = ToolResult(content=[Text(text="x")], id="c")
    assert ([{"type": "function_call_output", "call_id": "c", "output": "x"}], []) == written(result)


def test_message_boundaries_and_members_around_a_block_are_reported() -> None:
    user = User(
        content=[Text(text="x")], turn="join", envelope={"x": ONE}, extra={"y": ONE}, at="$.messages[2].content[1]"
    )
    expected = [
        ("$.messages[2].content[1].y", "dropped"),
        ("$.messages[2].content[1]", "approximated"),
        ("$.messages[2].x", "dropped"),
    ]
    assert expected == written(user)[1]


def test_participant_names_are_reported() -> None:
    items = [User(content=[], name="a", at="$.messages[0]"), Assistant(content=[], name="b", at="$.messages[1]")]
    expected = [{"role": "user", "content": []}, {"role": "assistant", "content": []}]
    assert (expected, [("$.messages[0].name", "dropped"), ("$.messages[1].name", "dropped")]) == written(*items)


def test_developer_and_system_stay_where_they_are() -> None:
    items = [User(), System(role="developer"), System()]
    assert ["user", "developer", "system"] == [message["role"] for message in written(*items)[0]]


def test_a_text_to_be_continued_is_reported() -> None:
    assert [("items[0]", "approximated")] == written(Assistant(content=[Text(text="(")], open=True), origin=None)[1]


def test_thinking_gets_ids_and_loses_its_proofs() -> None:
    input_, losses = written(
        Thinking(redacted="AbC=", at="$.a"),
        Thinking(content=[Text(text="t")], signature="EqQB", at="$.b"),
        Thinking(content=[Text(text="u")], of="reflect", encrypted="e", at="$.c"),
        Thinking(content=[Text(text="v")], id="rs_auto_001", redacted="AbC=", at="$.d"),
    )
    assert ["rs_auto_002", "rs_auto_003", "rs_auto_001"] == [item["id"] for item in input_]
    expected = [
        ("$.a.redacted", "dropped"),
        ("$.a", "dropped"),
        ("$.b.signature", "dropped"),
        ("$.c.kind", "approximated"),
        ("$.c.encrypted", "dropped"),
        ("$.d.redacted", "dropped"),
    ]
    assert expected == losses


def test_calls_and_results_without_ids_get_some_that_the_reader_drops() -> None:
    items: list[Item] = [ToolCall(name="f"), ToolResult(content=[Text(text="x")], name="f")]
    input_, losses = written(*items)
    assert (["call_auto_001"] * 2, []) == ([item["call_id"] for item in input_], losses)
    assert items == API.parse_request({"input": input_}).items


def test_an_id_generated_beside_one_that_looks_so_is_another() -> None:
    input_, losses = written(ToolCall(name="f", at="$.a"), ToolCall(name="f", id="call_auto_001"))
    assert ["call_auto_002", "call_auto_001"] == [item["call_id"] for item in input_]
    assert [("$.a", "invented")] == losses


def test_the_result_of_a_custom_call_is_a_custom_one() -> None:
    input_, _ = written(ToolCall(name="p", arguments="x", id="c", custom=True), ToolResult(id="c"), ToolResult(id="d"))
    expected = ["custom_tool_call", "custom_tool_call_output", "function_call_output"]
    assert expected == [item["type"] for item in input_]


def test_a_name_that_no_call_gives_is_written() -> None:
    assert "f" == written(ToolResult(id="c", name="f"))[0][0]["name"]
    assert "name" not in written(ToolCall(name="f", id="c"), ToolResult(id="c", name="f"))[0][1]


@pytest.mark.parametrize("status", ["error", "ok", "slow"])
def test_whether_a_tool_failed_is_reported(status: str) -> None:
    assert [("$.r.status", "dropped")] == written(ToolResult(id="c", status=status, at="$.r"))[1]


def test_tool_changes_become_additional_tools() -> None:
    change = ToolsChange(added=[Tool(name="f")], removed=["g"], extra={"x": ONE}, at="$.c")
    tool = {"type": "function", "name": "f", "parameters": None, "strict": None}
    input_, losses = written(change, ToolsChange(removed=["h"], extra={"x": ONE}, at="$.d"))
    assert [{"type": "additional_tools", "role": "developer", "tools": [tool]}] == input_
    assert [("$.c", "dropped"), ("$.c.x", "dropped"), ("$.d", "dropped"), ("$.d.x", "dropped")] == losses


def test_what_only_another_api_knows_is_dropped() -> None:
    opaque = Opaque(type="server_tool_use", value=json_of({"type": "server_tool_use"}), at="$.o")
    assert ([], [("$.o", "dropped")]) == written(opaque)


# Conversations that were read here and changed since.


@pytest.mark.parametrize(
    "item",
    [
        User(content=[Text(text="a"), Text(text="b")], at="$.input"),
        System(content=[Text(text="a"), Text(text="b")], at="$.instructions"),
    ],
)
def test_an_item_without_the_body_that_it_came_from_is_written_anew(item: Any) -> None:
    role = "user" if isinstance(item, User) else "system"
    content = [{"type": "input_text", "text": "a"}, {"type": "input_text", "text": "b"}]
    assert ([{"role": role, "content": content}], []) == written(item, origin=API.origin)


def test_a_block_of_a_message_is_an_item_of_its_own_once_the_message_was_changed() -> None:
    """The Universal document has calls in messages; what is written anew is written as all calls are."""
    call = {"type": "tool_call", "id": "c", "name": "f", "arguments": "{}"}
    message = {"role": "assistant", "content": [{"type": "output_text", "text": "a"}, call], "x": 1}
    request = API.parse_request({"input": [message, message]})
    assert [message, message] == API.render_request(request, strict=True).value["input"]
    request.items[2].content[0].text = "b"  # type: ignore[attr-defined]
    rendered = API.render_request(request)
    expected = [
        message,
        {"role": "assistant", "content": [{"type": "output_text", "text": "b"}], "x": 1},
        {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"},
    ]
    assert expected == rendered.value["input"]
    assert [("$.input[1].content[1]", "approximated")] == [(loss.path, loss.kind) for loss in rendered.losses]


# The seed profile.


def test_the_seed_profile_reports_what_its_tables_cannot_say() -> None:
    input_, losses = written(
        ToolCall(name="f", arguments="x", id="c", item_id="ctc_1", namespace="ns", custom=True, at="$.a"),
        ToolResult(content=[Text(text="x")], id="c", status="error", at="$.b"),
        ToolsChange(added=[Tool(name="f")], at="$.c"),
        profile="seed",
    )
    call = {"type": "tool_call", "id": "c", "name": "ns__f", "arguments": "x"}
    result = {"type": "tool_result", "tool_call_id": "c", "output": "x"}
    assert [{"role": "assistant", "content": [call]}, {"role": "user", "content": [result]}] == input_
    expected = [
        ("$.a.namespace", "renamed"),
        ("$.a", "approximated"),
        ("$.a.item_id", "dropped"),
        ("$.b.status", "dropped"),
        ("$.c", "dropped"),
    ]
    assert expected == losses


# Parts.

AT = "$.messages[0].content[0]"


@pytest.mark.parametrize(
    ("given", "expected", "losses"),
    [
        (Text(text="x", extra={"type": ONE}), [{"type": "input_text", "text": "x"}], [(f"{AT}.type", "dropped")]),
        (Image(data="aGk="), [{"type": "input_image", "image_url": "data:image/png;base64,aGk="}], [(AT, "invented")]),
        (
            Image(data="aGk=", media_type="image/gif", url="https://x"),
            [{"type": "input_image", "image_url": "data:image/gif;base64,aGk="}],
            [(f"{AT}.url", "dropped")],
        ),
        (Audio(data="aGk=", format="wav", id="audio_1"), [], [(AT, "dropped")]),
        (Image(), [], [(AT, "dropped")]),
        (Document(), [], [(AT, "dropped")]),
        (
            Document(url="https://x", title="t", context="c", extra={"citations": ONE}),
            [{"type": "input_file", "file_url": "https://x", "filename": "t"}],
            [(f"{AT}.title", "renamed"), (f"{AT}.context", "dropped"), (f"{AT}.citations", "dropped")],
        ),
        (
            Document(file_id="f", filename="a.pdf", title="t"),
            [{"type": "input_file", "file_id": "f", "filename": "a.pdf"}],
            [(AT, "approximated"), (f"{AT}.title", "dropped")],
        ),
        (
            Document(text="x", title="t", filename="n"),
            [{"type": "input_text", "text": "x"}],
            [(AT, "approximated"), (f"{AT}.filename", "dropped"), (f"{AT}.title", "dropped")],
        ),
        (Document(text="x"), [{"type": "input_text", "text": "x"}], [(AT, "approximated")]),
        (Audio(id="audio_1"), [], [(AT, "dropped")]),
        (Raw(type="search_result", value=json_of({"type": "search_result"})), [], [(AT, "dropped")]),
        (
            Raw(type="search_result", value=json_of({"title": "T", "source": "s", "content": [{"text": "a"}]})),
            [{"type": "input_text", "text": "T\n\ns\n\na"}],
            [(AT, "approximated")],
        ),
    ],
)
def test_parts_of_another_api(given: Part, expected: Any, losses: Any) -> None:
    assert (expected, losses) == part(given)


def test_a_part_of_a_result_lies_below_the_result() -> None:
    raw = Raw(type="tool_reference", value=json_of({"type": "tool_reference"}))
    result = ToolResult(content=[Text(text="x"), raw], id="c", at="$.messages[2].content[0]")
    assert [("$.messages[2].content[0].content[1]", "dropped")] == written(result)[1]
    user = User(content=[Text(text="x"), raw], at="$.messages[2].content[3]")
    assert [("$.messages[2].content[4]", "dropped")] == written(user)[1]


# Tools and settings.


def test_hosted_tools_are_dropped_and_slots_ignored() -> None:
    tools = [
        Tool(type="bash_20250124", name="bash"),
        Tool(name="f", slot="functions", extra={"x": ONE}, envelope={"y": ONE}),
    ]
    rendered = API.render_request(Request(conversation=Conversation(tools=tools), origin="another"))
    assert {"tools": [{"type": "function", "name": "f", "parameters": None, "strict": None}]} == rendered.value
    assert ["$.tools[0]", "$.tools[1].x", "$.tools[1].y"] == [loss.path for loss in rendered.losses]


def test_hosted_tools_built_by_hand_are_written_whole() -> None:
    tool = Tool(type="tool_search", description="d", parameters=json_of({}), strict=True)
    rendered = API.render_request(Request(conversation=Conversation(tools=[tool])))
    expected = {"type": "tool_search", "description": "d", "parameters": {}, "strict": True}
    assert ({"tools": [expected]}, []) == (rendered.value, rendered.losses)


@pytest.mark.parametrize(
    ("settings", "body", "losses"),
    [
        (
            Settings(thinking=ThinkingMode("disabled")),
            {"reasoning": {"effort": "none"}},
            [("$.thinking", "approximated")],
        ),
        (
            Settings(thinking=ThinkingMode("disabled"), effort="high"),
            {"reasoning": {"effort": "none"}},
            [("$.effort", "dropped"), ("$.thinking", "approximated")],
        ),
        (
            Settings(thinking=ThinkingMode("enabled", budget=2000, display="omitted", extra={"x": ONE})),
            {"reasoning": {"effort": "low"}},
            [("$.thinking.x", "dropped"), ("$.thinking.display", "dropped"), ("$.thinking", "approximated")],
        ),
        (
            Settings(thinking=ThinkingMode("enabled", budget=24576)),
            {"reasoning": {"effort": "xhigh"}},
            [("$.thinking", "approximated")],
        ),
        (
            Settings(thinking=ThinkingMode("enabled", budget=2000), effort="xhigh"),
            {"reasoning": {"effort": "xhigh"}},
            [("$.thinking", "dropped")],
        ),
        (Settings(thinking=ThinkingMode("adaptive")), {}, [("$.thinking", "dropped")]),
        (Settings(stop=["x"]), {}, [("$.stop", "dropped")]),
        (Settings(logprobs=True, top_logprobs=2), {"include": ["message.output_text.logprobs"], "top_logprobs": 2}, []),
        (Settings(logprobs=False), {}, [("$.logprobs", "dropped")]),
        (Settings(seed=1), {}, [("$.seed", "dropped")]),
        (Settings(service_tier="standard_only"), {"service_tier": "default"}, [("$.service_tier", "approximated")]),
        (
            Settings(stream_options=json_of({"include_usage": True})),
            {},
            [("$.stream_options.include_usage", "dropped")],
        ),
        (
            Settings(stream_options=json_of({"include_obfuscation": False})),
            {"stream_options": {"include_obfuscation": False}},
            [],
        ),
        (
            Settings(response_format=ResponseFormat("json_schema", extra={"x": ONE})),
            {"text": {"format": {"type": "json_schema", "name": "response", "schema": {}}}},
            [("$.response_format", "invented"), ("$.response_format", "invented"), ("$.response_format.x", "dropped")],
        ),
        (
            Settings(tool_choice=ToolChoice("auto", extra={"x": ONE})),
            {"tool_choice": "auto"},
            [("$.tool_choice.x", "dropped")],
        ),
        (
            Settings(
                tool_choice=ToolChoice("allowed", tools=json_of([{"type": "function", "function": {"name": "f"}}, 5]))
            ),
            {"tool_choice": {"type": "allowed_tools", "mode": "auto", "tools": [{"type": "function", "name": "f"}, 5]}},
            [],
        ),
        (
            Settings(tool_choice=ToolChoice("allowed", tools=json_of([{"type": "shell"}]))),
            {"tool_choice": {"type": "allowed_tools", "mode": "auto", "tools": [{"type": "shell"}]}},
            [],
        ),
        (
            Settings(tool_choice=ToolChoice("allowed")),
            {"tool_choice": {"type": "allowed_tools", "mode": "auto", "tools": []}},
            [],
        ),
    ],
)
def test_settings_of_another_api(settings: Settings, body: Any, losses: Any) -> None:
    assert (body, losses) == option(settings)


# Real bodies of the other APIs, through here and back.


def there_and_back(name: str, body: Any) -> tuple[Any, list[str]]:
    other = get_api(name)
    rendered = API.render_request(other.parse_request(body))
    back = other.render_request(API.parse_request(rendered.data))
    return back.value, [loss.path for loss in (*rendered.losses, *back.losses)]


def test_a_chat_session_comes_back_whole() -> None:
    call = {"id": "call_1", "type": "function", "function": {"name": "f", "arguments": '{"b":1.0, "a": 1e5}'}}
    custom = {"id": "call_2", "type": "custom", "custom": {"name": "p", "input": "*** Begin"}}
    body = {
        "model": "m",
        "messages": [
            {"role": "developer", "content": "Be brief."},
            {"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]},
            {"role": "assistant", "content": "ok", "tool_calls": [call, custom], "reasoning_content": "hm"},
            {"role": "tool", "tool_call_id": "call_1", "content": "1"},
            {"role": "tool", "tool_call_id": "call_2", "content": "2"},
            {"role": "assistant", "content": "done"},
        ],
        "tools": [{"type": "function", "function": {"name": "f", "parameters": {"type": "object"}, "strict": True}}],
        "tool_choice": {"type": "function", "function": {"name": "f"}},
        "response_format": {"type": "json_schema", "json_schema": {"name": "n", "schema": {}, "strict": True}},
        "max_completion_tokens": 100,
        "reasoning_effort": "high",
        "logprobs": True,
    }
    assert (body, []) == there_and_back("openai-chat", body)


def test_an_anthropic_session_comes_back_but_for_its_proofs() -> None:
    thinking = {"type": "thinking", "thinking": "hm", "signature": "EqQB"}
    call = {"type": "tool_use", "id": "toolu_1", "name": "f", "input": {"b": 1.0}}
    result = {"type": "tool_result", "tool_use_id": "toolu_1", "content": "1", "is_error": True}
    body = {
        "model": "m",
        "max_tokens": 100,
        "system": "Be brief.",
        "messages": [
            {"role": "user", "content": [{"type": "text", "text": "Hi"}]},
            {"role": "assistant", "content": [thinking, {"type": "text", "text": "ok"}, call]},
            {"role": "user", "content": [result]},
        ],
        "tools": [{"name": "f", "input_schema": {"type": "object"}}],
        "tool_choice": {"type": "any", "disable_parallel_tool_use": True},
    }
    back, losses = there_and_back("anthropic-messages", body)
    assert ["$.messages[1].content[0].signature", "$.messages[2].content[0].is_error"] == losses
    thinking["signature"] = ""
    del result["is_error"]
    assert body == back


@pytest.mark.parametrize(("name", "lost"), [("calc", ["items[1].name"]), ("calculator", []), (None, [])])
def test_the_seed_profile_loses_the_name_of_a_result_that_its_call_does_not_give(
    name: str | None, lost: list[str]
) -> None:
    call = ts.ToolCall(name="calculator", arguments='{"a": 2}', id="c1")
    result = ts.ToolResult(content=[ts.Text(text="5")], id="c1", name=name)
    asked = ts.Request(conversation=ts.Conversation(items=[call, result]))
    assert lost == [loss.path for loss in ts.render(asked, "openai-responses", profile="seed").losses]
