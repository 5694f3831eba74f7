"""Owns hygiene: what does not reach a prompt, what appears later and where, and that the request itself stays."""

from __future__ import annotations

import json
from copy import deepcopy
from typing import Any

import pytest

import turnscript as ts
from turnscript.core.conversation import (
    Assistant,
    Conversation,
    Opaque,
    Request,
    System,
    Text,
    ToolResult,
    ToolsChange,
    User,
    text_content,
)
from turnscript.core.json_text import json_of, plain
from turnscript.gateway.hygiene import Hygiene, clean
from turnscript.gateway.offers import place_of

BILLING = "x-anthropic-billing-header: cc_version=2.1.329.b1; cc_entrypoint=cli; cch=00a1f;"
MARK = {"type": "ephemeral"}
SCHEMA = {"type": "object", "properties": {}}


def messages(**members: Any) -> Request:
    body = {"model": "m", "max_tokens": 9, "messages": [{"role": "user", "content": "Hi"}]} | members
    return ts.parse(json.dumps(body), "anthropic-messages")


def responses(items: list[Any], tools: list[Any] | None = None) -> Request:
    return ts.parse(json.dumps({"model": "m", "input": items, "tools": tools or []}), "openai-responses")


def texts(request: Request) -> list[str]:
    return [text_content(item.content) for item in request.items if isinstance(item, System | User | Assistant)]


def losses(request: Request, rules: Hygiene | None = None) -> list[tuple[str, str]]:
    return [(loss.path, loss.kind) for loss in clean(request, rules or Hygiene()).losses]


def deferred(name: str, **more: Any) -> dict[str, Any]:
    return {"name": name, "input_schema": SCHEMA, "defer_loading": True, **more}


# Blocks that change.


def test_the_billing_header_is_dropped_and_reported() -> None:
    request = messages(system=[{"type": "text", "text": BILLING}, {"type": "text", "text": "You are an agent."}])
    assert ["You are an agent.", "Hi"] == texts(clean(request).request)
    assert [("$.system[0]", "dropped")] == losses(request)


def test_only_the_line_of_the_header_is_dropped_from_a_text_with_more() -> None:
    request = messages(system=f"{BILLING}\nYou are an agent.\nBe kind.")
    assert ["You are an agent.\nBe kind.", "Hi"] == texts(clean(request).request)
    assert [("$.system", "dropped")] == [(path.split(".content")[0], kind) for path, kind in losses(request)]


@pytest.mark.parametrize("text", [f"Never send {BILLING}", "x-anthropic-billing: no"])
def test_instructions_that_speak_of_the_header_stay(text: str) -> None:
    request = messages(system=text)
    assert [text, "Hi"] == texts(clean(request).request)


def test_what_a_user_says_about_the_header_stays() -> None:
    request = messages(messages=[{"role": "user", "content": BILLING}])
    assert [BILLING] == texts(clean(request).request)


def test_patterns_of_changing_blocks_are_configurable() -> None:
    request = messages(system=f"{BILLING}\nDate: Monday\nBe kind.")
    rules = Hygiene(volatile=(r"Date:[^\n]*\n",))
    assert [f"{BILLING}\nBe kind.", "Hi"] == texts(clean(request, rules).request)
    assert ([f"{BILLING}\nDate: Monday\nBe kind.", "Hi"], []) == (
        texts(clean(request, Hygiene(volatile=())).request),
        losses(request, Hygiene(volatile=())),
    )


# What means nothing.


@pytest.mark.parametrize("format_name", ts.formats())
def test_marks_for_a_cache_and_the_shape_of_a_content_change_no_byte(format_name: str) -> None:
    plain_tools = [{"name": "f", "input_schema": SCHEMA}]
    plain = messages(
        system="Be kind.",
        tools=plain_tools,
        messages=[
            {"role": "user", "content": "Hi"},
            {"role": "assistant", "content": [{"type": "tool_use", "id": "t", "name": "f", "input": {}}]},
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t", "content": "ok"}]},
        ],
    )
    marked = messages(
        system=[{"type": "text", "text": "Be kind.", "cache_control": MARK}],
        tools=[{**plain_tools[0], "cache_control": MARK, "eager_input_streaming": True}],
        messages=[
            {"role": "user", "content": [{"type": "text", "text": "Hi", "cache_control": MARK}]},
            {
                "role": "assistant",
                "content": [{"type": "tool_use", "id": "t", "name": "f", "input": {}, "cache_control": MARK}],
            },
            {
                "role": "user",
                "content": [
                    {
                        "type": "tool_result",
                        "tool_use_id": "t",
                        "content": [{"type": "text", "text": "ok", "cache_control": MARK}],
                        "cache_control": MARK,
                    }
                ],
            },
        ],
    )
    format_ = ts.get_format(format_name)
    prompts = [format_.prompt(clean(request).request) for request in (plain, marked)]
    assert prompts[0].text == prompts[1].text
    assert "cache" not in prompts[1].text
    assert prompts[0].losses == prompts[1].losses
    assert [] == losses(marked)


def test_the_request_that_was_given_stays_as_it_is() -> None:
    request = messages(
        system=[{"type": "text", "text": BILLING}, {"type": "text", "text": "", "cache_control": MARK}],
        tools=[deferred("later", cache_control=MARK), {"name": "f", "input_schema": SCHEMA}],
        messages=[
            {"role": "user", "content": [{"type": "text", "text": ""}, {"type": "text", "text": "Hi"}]},
            {"role": "assistant", "content": [{"type": "tool_use", "id": "t", "name": "f", "input": {}}]},
            {
                "role": "user",
                "content": [
                    {
                        "type": "tool_result",
                        "tool_use_id": "t",
                        "content": [{"type": "tool_reference", "tool_name": "later"}],
                    }
                ],
            },
        ],
    )
    before = deepcopy(request)
    clean(request)
    assert before == request
    assert ts.render(before, "anthropic-messages").data == ts.render(request, "anthropic-messages").data


# Tools that are loaded later.


def tool_names(request: Request) -> list[str | None]:
    return [tool.name for tool in request.tools]


def changes(request: Request) -> list[tuple[int, list[str | None]]]:
    return [
        (index, [tool.name for tool in item.added])
        for index, item in enumerate(request.items)
        if isinstance(item, ToolsChange)
    ]


def searched(*, found: list[str], tools: list[Any], more: list[Any] | None = None) -> Request:
    return messages(
        tools=tools,
        messages=[
            {"role": "user", "content": "Hi"},
            {
                "role": "assistant",
                "content": [
                    {"type": "tool_use", "id": "t1", "name": "ToolSearch", "input": {}},
                    {"type": "tool_use", "id": "t2", "name": "f", "input": {}},
                ],
            },
            {
                "role": "user",
                "content": [
                    {
                        "type": "tool_result",
                        "tool_use_id": "t1",
                        "content": [{"type": "tool_reference", "tool_name": name} for name in found],
                    },
                    {"type": "tool_result", "tool_use_id": "t2", "content": "ok"},
                    {"type": "text", "text": "Go on"},
                ],
            },
            *(more or []),
        ],
    )


def test_a_deferred_tool_stays_out_until_it_is_named_and_then_stands_behind_all_results_of_the_turn() -> None:
    tools = [{"name": "f", "input_schema": SCHEMA}, deferred("mail"), deferred("notes"), {"name": "z"}]
    cleaned = clean(searched(found=["notes"], tools=tools))
    assert ["f", "z"] == tool_names(cleaned.request)
    assert ["mail"] == [tool.name for tool in cleaned.hidden]
    assert [(5, ["notes"])] == changes(cleaned.request)
    assert ["tool_result", "tool_result", "tools_change", "user"] == [item.kind for item in cleaned.request.items[3:]]
    assert "$.tools[2]" == place_of(cleaned.request.items[5].added[0])  # type: ignore[attr-defined]
    result = cleaned.request.items[3]
    assert isinstance(result, ToolResult)
    assert "Loaded: notes" == text_content(result.content)
    assert [] == cleaned.losses


def test_a_tool_is_told_once_however_often_it_is_named() -> None:
    again = {
        "role": "user",
        "content": [
            {"type": "tool_result", "tool_use_id": "t3", "content": [{"type": "tool_reference", "tool_name": "notes"}]}
        ],
    }
    call = {"role": "assistant", "content": [{"type": "tool_use", "id": "t3", "name": "ToolSearch", "input": {}}]}
    tools = [{"name": "f"}, deferred("notes")]
    cleaned = clean(searched(found=["notes", "notes", "f"], tools=tools, more=[call, again]))
    assert [(5, ["notes"])] == changes(cleaned.request)
    assert [] == cleaned.losses


def test_a_name_that_is_not_declared_is_reported_with_its_place() -> None:
    request = searched(found=["nobody"], tools=[{"name": "f"}])
    assert [("$.messages[2].content[0].content[0]", "dropped")] == losses(request)


def test_deferred_tools_can_be_offered_from_the_start() -> None:
    request = messages(tools=[{"name": "f"}, deferred("notes")])
    cleaned = clean(request, Hygiene(deferred="front"))
    assert ["f", "notes"] == tool_names(cleaned.request)
    assert [("$.tools[1]", "moved")] == [(loss.path, loss.kind) for loss in cleaned.losses]
    assert {} == cleaned.request.tools[1].extra


def test_what_only_a_vendors_search_could_find_is_offered_from_the_start() -> None:
    request = messages(tools=[{"type": "tool_search_tool_regex_20251119", "name": "s"}, deferred("notes")])
    cleaned = clean(request)
    assert ["s", "notes"] == tool_names(cleaned.request)
    assert [] == cleaned.hidden
    assert [("$.tools[1]", "moved")] == [(loss.path, loss.kind) for loss in cleaned.losses]


def test_a_namespace_is_split_into_what_is_there_and_what_comes_later() -> None:
    inner = {"type": "function", "name": "now", "parameters": SCHEMA}
    later = {"type": "function", "name": "late", "parameters": SCHEMA, "defer_loading": True}
    whole = {"type": "namespace", "name": "b", "description": "", "defer_loading": True, "tools": [inner]}
    request = responses(
        [{"role": "user", "content": "Hi"}],
        [{"type": "namespace", "name": "a", "description": "", "tools": [inner, later]}, whole],
    )
    cleaned = clean(request)
    assert [("a", ["now"])] == [(tool.name, [one.name for one in tool.tools]) for tool in cleaned.request.tools]
    assert [("a", ["late"]), ("b", ["now"])] == [
        (tool.name, [one.name for one in tool.tools]) for tool in cleaned.hidden
    ]
    assert ["$.tools[0].tools[1]", "$.tools[1]"] == [place_of(tool) for tool in cleaned.hidden]


def test_definitions_that_a_search_brought_stand_where_it_stood() -> None:
    found = {
        "type": "tool_search_output",
        "call_id": "c",
        "execution": "client",
        "tools": [
            {"type": "function", "name": "send", "description": "Send.", "parameters": SCHEMA, "defer_loading": True},
            {"type": "namespace", "name": "n", "tools": [{"type": "custom", "name": "x"}]},
            {"no": "tool", "type": 7},
        ],
    }
    request = responses([{"role": "user", "content": "Hi"}, found, {"role": "user", "content": "Go"}])
    cleaned = clean(request)
    assert ["user", "tools_change", "user"] == [item.kind for item in cleaned.request.items]
    change = cleaned.request.items[1]
    assert isinstance(change, ToolsChange)
    assert ["function", "namespace"] == [tool.type for tool in change.added]
    assert SCHEMA == plain(change.added[0].parameters or json_of(None))
    assert {} == change.added[0].extra
    assert "$.input[1].tools[0]" == place_of(change.added[0])
    assert [("$.input[1].tools[2]", "dropped")] == [(loss.path, loss.kind) for loss in cleaned.losses]


def test_of_a_namespace_only_what_is_new_is_told_again() -> None:
    def found(*names: str) -> dict[str, Any]:
        tools = [{"type": "function", "name": name, "parameters": SCHEMA, "defer_loading": True} for name in names]
        space = {"type": "namespace", "name": "n", "tools": tools}
        return {"type": "tool_search_output", "call_id": "c", "execution": "client", "tools": [space]}

    user = {"role": "user", "content": "Hi"}
    cleaned = clean(responses([user, found("a", "b"), user, found("b", "c"), user, found("a"), user]))
    added = [item.added for item in cleaned.request.items if isinstance(item, ToolsChange)]
    assert [[["a", "b"]], [["c"]]] == [[[one.name for one in tool.tools] for tool in tools] for tools in added]
    assert [] == cleaned.losses


def test_references_in_the_answer_of_a_vendors_search_count() -> None:
    block = {
        "type": "tool_search_tool_result",
        "tool_use_id": "s",
        "content": {"tool_references": [{"type": "tool_reference", "tool_name": "notes"}]},
    }
    said = {"role": "assistant", "content": [block, {"type": "text", "text": "Found."}]}
    request = messages(
        tools=[{"name": "f"}, deferred("notes")],
        messages=[{"role": "user", "content": "Hi"}, said, {"role": "user", "content": "Go"}],
    )
    cleaned = clean(request)
    assert [(1, ["notes"])] == changes(cleaned.request)
    assert not any(isinstance(item, Opaque) for item in cleaned.request.items)


def test_additions_and_removals_in_a_system_message_change_the_tools_there() -> None:
    directives = [
        {"type": "tool_addition", "tool": {"type": "tool_reference", "name": "notes"}},
        {
            "type": "tool_addition",
            "tool": {"type": "tool_definition", "definition": {"name": "new", "input_schema": SCHEMA}},
        },
        {"type": "tool_removal", "tool": {"type": "tool_reference", "name": "f"}},
        {"type": "text", "text": "Changed."},
    ]
    request = messages(
        tools=[{"name": "f"}, deferred("notes")],
        messages=[{"role": "user", "content": "Hi"}, {"role": "system", "content": directives}],
    )
    cleaned = clean(request)
    change = cleaned.request.items[2]
    assert isinstance(change, ToolsChange)
    assert (["notes", "new"], ["f"]) == ([tool.name for tool in change.added], change.removed)
    assert SCHEMA == plain(change.added[1].parameters or json_of(None))
    assert ["Hi", "Changed."] == texts(cleaned.request)
    assert ["f"] == tool_names(cleaned.request)


def test_tools_that_come_before_anybody_speaks_are_the_list_of_tools() -> None:
    change = {"type": "additional_tools", "role": "developer", "tools": [{"type": "function", "name": "f"}]}
    request = responses([change, {"role": "developer", "content": "Be kind."}, {"role": "user", "content": "Hi"}])
    cleaned = clean(request)
    assert ["f"] == tool_names(cleaned.request)
    assert ["system", "user"] == [item.kind for item in cleaned.request.items]
    assert ["$.input[0].tools[0]"] == [place_of(tool) for tool in cleaned.request.tools]
    assert [] == cleaned.losses


# Empty texts.


CALL = {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}


def chat(*said: dict[str, Any]) -> Request:
    return ts.parse(json.dumps({"messages": [{"role": "user", "content": "Hi"}, *said]}), "openai-chat")


def test_an_empty_answer_beside_a_call_is_dropped_so_that_the_call_stands_as_the_model_wrote_it() -> None:
    cleaned = clean(chat({"role": "assistant", "content": "", "tool_calls": [CALL]}))
    assert ["user", "tool_call"] == [item.kind for item in cleaned.request.items]
    assert [] == cleaned.losses


def test_an_answer_that_is_nothing_but_empty_is_dropped_and_told() -> None:
    cleaned = clean(chat({"role": "assistant", "content": ""}, {"role": "assistant", "tool_calls": [CALL]}))
    assert ["user", "tool_call"] == [item.kind for item in cleaned.request.items]
    assert [("$.messages[1].content", "dropped")] == [(loss.path, loss.kind) for loss in cleaned.losses]


@pytest.mark.parametrize("system", ["", [{"type": "text", "text": ""}]], ids=["a string", "a list"])
def test_instructions_without_a_character_are_dropped_and_nothing_is_lost(system: Any) -> None:
    request = messages(system=system)
    assert (["Hi"], []) == (texts(clean(request).request), losses(request))


@pytest.mark.parametrize(
    ("name", "left"),
    [("f", {}), ("g", {}), (None, {}), (5, {"name": 5})],
    ids=["its own", "another", "null", "no name"],
)
def test_the_name_that_a_result_says_itself_is_not_told_twice(name: Any, left: dict[str, Any]) -> None:
    result = {"role": "tool", "tool_call_id": "c", "name": name, "content": "r"}
    *_, cleaned = clean(chat({"role": "assistant", "tool_calls": [CALL]}, result)).request.items
    assert left == {key: plain(value) for key, value in cleaned.extra.items()}
    assert name in (cleaned.name, None, 5)  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("item", "expected"),
    [
        (User(content=[Text(text="")]), [""]),
        (User(content=[Text(text=""), Text(text="a"), Text(text="")]), ["a"]),
        (User(content=[]), []),
        (ToolResult(content=[Text(text="")]), [""]),
        (ToolResult(content=[Text(text=""), Text(text="a")]), ["a"]),
        (Assistant(content=[Text(text=" ")]), [" "]),
        (Assistant(content=[Text(text="a"), Text(text="")]), ["a"]),
    ],
)
def test_of_empty_texts_only_what_says_nothing_is_dropped(item: Any, expected: list[str]) -> None:
    (kept,) = clean(Request(conversation=Conversation([item]))).request.items
    assert expected == [part.text for part in kept.content]  # type: ignore[attr-defined]


def test_empty_texts_can_be_kept() -> None:
    item = Assistant(content=[Text(text="")])
    cleaned = clean(Request(conversation=Conversation([item])), Hygiene(empty_texts=False))
    assert ([item], []) == (cleaned.request.items, cleaned.losses)


def test_additions_beside_what_a_user_says_count_too_and_definitions_may_be_wrapped() -> None:
    definition = {"type": "function", "function": {"name": "new", "parameters": SCHEMA}}
    block = {"type": "tool_addition", "tool": {"type": "tool_definition", "definition": definition}}
    said = {"role": "user", "content": [{"type": "text", "text": "Hi"}, block, {"type": "text", "text": "Go"}]}
    cleaned = clean(messages(messages=[said]))
    assert ["user", "tools_change", "user"] == [item.kind for item in cleaned.request.items]
    assert [(1, ["new"])] == changes(cleaned.request)


def test_a_namespace_of_tools_that_all_come_later_is_not_there_yet() -> None:
    later = {"type": "function", "name": "late", "parameters": SCHEMA, "defer_loading": True}
    space = {"type": "namespace", "name": "a", "description": "", "tools": [later]}
    cleaned = clean(responses([{"role": "user", "content": "Hi"}], [space]))
    assert ([], ["a"]) == (tool_names(cleaned.request), [tool.name for tool in cleaned.hidden])


def test_deferred_tools_among_those_that_come_in_the_middle_are_hidden_too() -> None:
    later = {"type": "function", "name": "late", "parameters": SCHEMA, "defer_loading": True}
    change = {"type": "additional_tools", "role": "developer", "tools": [later]}
    cleaned = clean(responses([{"role": "user", "content": "Hi"}, change]))
    assert (["user"], ["late"]) == (
        [item.kind for item in cleaned.request.items],
        [tool.name for tool in cleaned.hidden],
    )


def test_a_removed_tool_can_come_back_by_its_name() -> None:
    def said(kind: str) -> dict[str, Any]:
        return {"role": "system", "content": [{"type": kind, "tool": {"type": "tool_reference", "name": "f"}}]}

    user = {"role": "user", "content": "Hi"}
    turns = [user, said("tool_removal"), user, said("tool_addition"), user]
    cleaned = clean(messages(tools=[{"name": "f"}], messages=turns))
    assert ["user", "tools_change", "user", "tools_change", "user"] == [item.kind for item in cleaned.request.items]
    assert [(1, []), (3, ["f"])] == changes(cleaned.request)
    assert [] == cleaned.losses


def test_a_change_that_stands_in_the_conversation_stays_there_and_what_a_search_found_waits_for_the_results() -> None:
    change = {"type": "additional_tools", "role": "developer", "tools": [{"type": "function", "name": "a"}]}
    found = {"type": "tool_search_output", "tools": [{"type": "function", "name": "b"}]}
    result = {"type": "function_call_output", "call_id": "c", "output": "ok"}
    cleaned = clean(responses([{"role": "user", "content": "Hi"}, change, result, found, result]))
    assert [(1, ["a"]), (4, ["b"])] == changes(cleaned.request)
    assert cleaned.request == clean(cleaned.request).request
