"""Owns the unit tests of OpenAI's tools that the client runs: functions to everybody, and themselves on the wire."""

from __future__ import annotations

import json
from typing import Any

import pytest
from openai.types.responses import Response as OfficialResponse
from openai.types.responses import ResponseStreamEvent
from pydantic import TypeAdapter

import turnscript as ts
from tests.responses import API, answer, last, of_payloads, parsed, payloads, stream
from turnscript.core.conversation import Item, Opaque, Request, Response, Text, ToolCall, ToolChoice, ToolResult
from turnscript.core.events import fold
from turnscript.core.json_text import json_of, plain

OFFICIAL: TypeAdapter[Any] = TypeAdapter(ResponseStreamEvent)
ASKED: Any = {"model": "m", "input": [{"role": "user", "content": "Hi"}]}
EXIT = {"type": "exit", "exit_code": 0}
SHELL: Any = {"type": "shell_call", "call_id": "c1", "action": {"commands": ["ls"]}}
SHELL_OUT: Any = {
    "type": "shell_call_output",
    "call_id": "c1",
    "output": [{"stdout": "a", "stderr": "", "outcome": EXIT}],
}
EXEC: Any = {"type": "exec", "command": ["ls"], "env": {"A": "b"}}
LOCAL: Any = {"type": "local_shell_call", "call_id": "c2", "id": "lsh_1", "action": EXEC, "status": "completed"}
LOCAL_OUT: Any = {"type": "local_shell_call_output", "id": "c2", "output": '{"stdout": "a"}'}
UPDATE: Any = {"type": "update_file", "path": "a", "diff": "@@\n-a\n+b"}
PATCH: Any = {"type": "apply_patch_call", "call_id": "c3", "operation": UPDATE, "status": "completed"}
PATCH_OUT: Any = {"type": "apply_patch_call_output", "call_id": "c3", "status": "failed", "output": "No."}
TYPES = ("shell", "local_shell", "apply_patch")
TOOLS: Any = [{"type": type_} for type_ in TYPES]
PAIRS: Any = [SHELL, SHELL_OUT, LOCAL, LOCAL_OUT, PATCH, PATCH_OUT]
CONTAINER = {"environment": {"type": "container_reference", "container_id": "x"}}
ARGUMENTS = {
    "shell": '{"commands":  ["ls", "é"], "timeout_ms": 1e3}',
    "local_shell": '{"command": ["ls"]}',
    "apply_patch": '{"path": "a", "type": "create_file", "diff": "+a"}',
}


def request(*items: Any, tools: Any = TOOLS, **more: Any) -> Request:
    return API.parse_request({**ASKED, "input": [*ASKED["input"], *items], "tools": list(tools), **more})


def test_the_tools_are_functions_and_their_calls_and_outputs_are_those_of_functions() -> None:
    read = request(*PAIRS)
    assert [("function", type_) for type_ in TYPES] == [(tool.type, tool.name) for tool in read.tools]
    assert all(tool.description and plain(tool.parameters or json_of(None))["type"] == "object" for tool in read.tools)
    calls = [(one.name, one.arguments, one.id) for one in read.items if isinstance(one, ToolCall)]
    assert [
        ("shell", '{"commands":["ls"]}', "c1"),
        ("local_shell", '{"command": ["ls"], "env": {"A": "b"}}', "c2"),
        ("apply_patch", json.dumps(UPDATE, separators=(",", ":")), "c3"),
    ] == calls
    results = [(one.name, one.id, one.content, one.status) for one in read.items if isinstance(one, ToolResult)]
    assert [
        ("shell", "c1", [Text(text=json.dumps(SHELL_OUT["output"], separators=(",", ":")))], None),
        ("local_shell", "c2", [Text(text='{"stdout": "a"}')], None),
        ("apply_patch", "c3", [Text(text="No.")], "error"),
    ] == results


ODD_IDS: tuple[Any, ...] = (None, 7, "", "c9")
MORE = {
    "id": "x_1",
    "status": "completed",
    "caller": {"type": "direct"},
    "created_by": None,
    "never_heard_of": {"a": 1},
}
NO_ACTIONS: tuple[Any, ...] = (None, [], {}, {"commands": "ls"}, {"command": [1]}, {"type": "exec"}, {"type": "x"}, 7)
ODD_OUTPUTS: tuple[Any, ...] = (None, "", "a", [], [7], {}, 7)
NOT_SAID = (("output",), ("status",), ("output", "status"))
FORMS: dict[str, tuple[Any, ...]] = {
    "whole": tuple(PAIRS),
    "all members": tuple({**MORE, **one} for one in PAIRS),
    "odd ids": tuple(one | {"call_id": id_} for one in PAIRS for id_ in ODD_IDS),
    "odd item ids": tuple(one | {"id": id_} for one in PAIRS for id_ in ODD_IDS),
    "no ids": tuple({key: value for key, value in one.items() if key not in ("id", "call_id")} for one in PAIRS),
    "nulls": (
        SHELL | {"action": {"commands": [], "timeout_ms": None, "max_output_length": None}, "environment": None},
        LOCAL | {"action": EXEC | {"timeout_ms": None, "user": None, "working_directory": None, "env": {}}},
        PATCH_OUT | {"output": None},
    ),
    "unknown members": (
        SHELL | {"action": SHELL["action"] | {"x": 1.0}},
        LOCAL | {"action": EXEC | {"x": {"y": None}}},
        PATCH | {"operation": UPDATE | {"x": []}},
    ),
    "odd actions": tuple(
        one | {key: action}
        for one, key in ((SHELL, "action"), (LOCAL, "action"), (PATCH, "operation"))
        for action in NO_ACTIONS
    ),
    "operations": (
        PATCH | {"operation": {"type": "delete_file", "path": "a"}},
        PATCH | {"operation": {"type": "create_file", "path": "a"}},
    ),
    "environments": tuple(SHELL | {"environment": one} for one in (None, {"type": "local"}, {"type": "x"}, 7)),
    "skills": (SHELL | {"environment": {"type": "local", "skills": []}},),
    "of a server": (SHELL | CONTAINER, SHELL_OUT | MORE, SHELL_OUT),
    "statuses": tuple(PATCH_OUT | {"status": status} for status in ("completed", "failed", "x", None)),
    "bare": tuple({key: PATCH_OUT[key] for key in PATCH_OUT if key not in gone} for gone in NOT_SAID),
    "odd outputs": tuple(one | {"output": value} for one in PAIRS[1::2] for value in ODD_OUTPUTS),
    "unsaid": tuple({"type": one["type"]} for one in PAIRS),
}
DECLARED: tuple[Any, ...] = (
    *TOOLS,
    *({"type": type_, "allowed_callers": ["direct"], "name": "x", "never_heard_of": 1} for type_ in TYPES),
    {"type": "shell", "environment": None},
    {"type": "shell", "environment": {"type": "local", "skills": [{"name": "n", "description": "d", "path": "p"}, 7]}},
    {"type": "shell", "environment": {"type": "local", "skills": {}}},
    {"type": "shell", "environment": {"type": "container_auto"}},
    {"type": "shell", **CONTAINER},
    {"type": "shell", "environment": 7},
)


@pytest.mark.parametrize("through", ["openai-responses", "rwkv-universal"])
@pytest.mark.parametrize("name", FORMS)
def test_every_form_comes_back_as_it_was(name: str, through: str) -> None:
    body = {**ASKED, "input": [*ASKED["input"], *FORMS[name]]}
    there = ts.convert(body, "openai-responses", through)
    assert [] == there.losses
    assert body == json.loads(ts.convert(there.data, through, "openai-responses").data)


@pytest.mark.parametrize("through", ["openai-responses", "rwkv-universal"])
def test_every_declaration_comes_back_as_it_was(through: str) -> None:
    later = {"type": "additional_tools", "role": "developer", "tools": list(DECLARED)}
    body = {**ASKED, "input": [later], "tools": list(DECLARED)}
    there = ts.convert(body, "openai-responses", through)
    assert [] == there.losses
    assert body == json.loads(ts.convert(there.data, through, "openai-responses").data)


@pytest.mark.parametrize("type_", TYPES)
def test_a_choice_by_type_comes_back_as_it_was_and_is_none_without_the_tool(type_: str) -> None:
    choice = {"type": type_, "never_heard_of": 1}
    read = request(tool_choice=choice)
    assert ToolChoice("named", type_, type_, extra={"never_heard_of": json_of(1)}) == read.settings.tool_choice
    assert choice == ts.render(read, "openai-responses").value["tool_choice"]
    chat = ts.render(read, "openai-chat")
    assert {"type": "function", "function": {"name": type_}} == chat.value["tool_choice"]
    assert "renamed" in [loss.kind for loss in chat.losses if loss.path == "$.tool_choice"]
    without = request(tools=[], tool_choice=choice)
    assert None is without.settings.tool_choice
    assert choice == ts.render(without, "openai-responses").value["tool_choice"]


@pytest.mark.parametrize("type_", TYPES)
def test_a_tool_that_is_allowed_by_its_type_is_allowed_in_every_api(type_: str) -> None:
    entry, other = {"type": type_}, {"type": "function", "name": "other", "parameters": {"type": "object"}}
    choice = {"type": "allowed_tools", "mode": "required", "tools": [entry]}
    read = request(tools=[{**other, "name": type_}, *TOOLS, other], tool_choice=choice)
    assert choice == ts.render(read, "openai-responses").value["tool_choice"]
    named = f"{type_}_2"  # a function has the name
    chat = ts.render(read, "openai-chat")
    allowed = {"mode": "required", "tools": [{"type": "function", "function": {"name": named}}]}
    assert {"type": "allowed_tools", "allowed_tools": allowed} == chat.value["tool_choice"]
    assert ["renamed"] == [loss.kind for loss in chat.losses if loss.path == "$.tool_choice"]
    messages = ts.render(read, "anthropic-messages").value
    assert {"type": "any"} == messages["tool_choice"]
    assert [named] == [tool["name"] for tool in messages["tools"]]


def test_what_a_server_ran_stays_verbatim() -> None:
    read = request(SHELL | CONTAINER, SHELL_OUT, tools=DECLARED[-3:])
    assert ["shell"] * 3 == [tool.type for tool in read.tools]
    assert [Opaque, Opaque] == [type(item) for item in read.items[1:]]
    body = {"id": "r", "object": "response", "status": "completed", "output": [SHELL | CONTAINER, SHELL_OUT | MORE]}
    response = API.parse_response(json.dumps(body))
    assert ([Opaque, Opaque], "stop") == ([type(item) for item in response.items], response.finish_reason)
    assert body["output"] == json.loads(API.render_response(response, request()).data)["output"]


def test_the_skills_of_a_shell_are_in_its_description() -> None:
    [tool] = request(tools=[DECLARED[7]]).tools
    assert "- p (n): d" in (tool.description or "")


def test_an_output_that_names_the_item_answers_its_call() -> None:
    *_, result = request(LOCAL, LOCAL_OUT | {"id": "lsh_1"}).items
    assert isinstance(result, ToolResult)
    assert ("c2", "local_shell") == (result.id, result.name)


# Answers.


@pytest.mark.parametrize("type_", TYPES)
def test_a_call_is_told_as_its_own_item_whole_and_in_pieces(type_: str) -> None:
    read, call = request(), ToolCall(name=type_, arguments=ARGUMENTS[type_])
    data = stream(answer(call), read)
    [told] = last(data)["output"]
    for event in payloads(data):
        OFFICIAL.validate_python(event)
    assert f"{type_}_call" == told["type"]
    member = "operation" if type_ == "apply_patch" else "action"
    assert json.loads(ARGUMENTS[type_]).items() <= told[member].items()
    added, done = (one for one in payloads(data) if "item" in one)
    assert ("in_progress", "completed") == (added["item"]["status"], done["item"]["status"])
    assert (told["id"], told["call_id"]) == (added["item"]["id"], added["item"]["call_id"])
    response = fold(answer(call))
    response.finish_reason = "tool_calls"
    whole = API.render_response(response, read)
    assert [] == whole.losses
    assert [told | {"id": 0, "call_id": 0}] == [
        one | {"id": 0, "call_id": 0} for one in json.loads(whole.data)["output"]
    ]
    assert f"{type_}_call" == OfficialResponse.model_validate_json(whole.data).output[0].type


@pytest.mark.parametrize("type_", TYPES)
def test_a_call_in_an_answer_reads_back_whole_and_in_pieces(type_: str) -> None:
    data = stream(answer(ToolCall(name=type_, arguments=ARGUMENTS[type_], id="c1")), request())
    found = [fold(parsed(data)), API.parse_response(json.dumps(last(data)))]
    for response in found:
        [item] = response.items
        assert isinstance(item, ToolCall)
        assert (type_, "c1", {}, []) == (item.name, item.id, item.extra, response.issues)
        assert json.loads(ARGUMENTS[type_]).items() <= json.loads(item.arguments).items()
        assert "tool_calls" == response.finish_reason
        for declared in (request(), Request()):
            shown: Any = API.render_response(response, declared).value
            assert [f"{type_}_call"] == [one["type"] for one in shown["output"]]
        again = stream(parsed(data), Request())
        assert f"{type_}_call" == last(again)["output"][0]["type"]
        chat: Any = ts.get_api("openai-chat").render_response(response, request())
        assert type_ == chat.value["choices"][0]["message"]["tool_calls"][0]["function"]["name"]


HALF = '{"commands": ["ls"], "timeout_ms": 1.5}'


@pytest.mark.parametrize("arguments", ["", "[1]", "null", "{}", '{"commands": [1]}', '{"commands": "ls"}', "{", HALF])
def test_what_is_no_action_is_told_as_the_call_of_a_function(arguments: str) -> None:
    call = ToolCall(name="shell", arguments=arguments)
    data = stream(answer(call), request())
    response = fold(answer(call))
    response.finish_reason = "tool_calls"
    whole = API.render_response(response, request())
    for output in (last(data)["output"], json.loads(whole.data)["output"]):
        assert [("function_call", "shell", arguments)] == [
            (one["type"], one["name"], one["arguments"]) for one in output
        ]
    assert ["approximated"] == [loss.kind for loss in whole.losses]
    assert "response.function_call_arguments.done" in data.decode()


def test_the_events_of_another_server_are_read() -> None:
    body = {"id": "r", "object": "response", "status": "in_progress", "output": []}
    shell = SHELL | {"id": "sh_1", "status": "completed", "environment": {"type": "local"}}
    patch = PATCH | {"id": "apc_1"}
    begun = [shell | {"action": {"commands": []}}, patch | {"operation": UPDATE | {"diff": ""}}]
    told = of_payloads(
        {"type": "response.created", "response": body},
        {"type": "response.output_item.added", "output_index": 0, "item": begun[0] | {"status": "in_progress"}},
        {"type": "response.shell_call_command.added", "output_index": 0, "command_index": 0, "command": ""},
        {"type": "response.shell_call_command.delta", "output_index": 0, "command_index": 0, "delta": "ls"},
        {"type": "response.shell_call_command.done", "output_index": 0, "command_index": 0, "command": "ls"},
        {"type": "response.output_item.done", "output_index": 0, "item": shell},
        {"type": "response.output_item.added", "output_index": 1, "item": begun[1] | {"status": "in_progress"}},
        {"type": "response.apply_patch_call_operation_diff.delta", "output_index": 1, "delta": UPDATE["diff"]},
        {"type": "response.apply_patch_call_operation_diff.done", "output_index": 1, "diff": UPDATE["diff"]},
        {"type": "response.output_item.done", "output_index": 1, "item": patch},
        {"type": "response.completed", "response": body | {"status": "completed", "output": [shell, patch]}},
    )
    response = fold(parsed(told))
    assert [] == response.issues
    assert [("shell", "c1"), ("apply_patch", "c3")] == [(one.name, one.id) for one in response.items]  # type: ignore[attr-defined]
    assert UPDATE == json.loads(response.items[1].arguments)  # type: ignore[attr-defined]
    assert [shell, patch] == [
        {key: value for key, value in one.items() if value is not None}
        | ({"action": SHELL["action"]} if "action" in one else {})
        for one in json.loads(API.render_response(response, Request()).data)["output"]
    ]


@pytest.mark.parametrize("given", [SHELL, LOCAL, PATCH], ids=lambda given: given["type"])
def test_a_call_that_was_cut_off_is_left_out(given: Any) -> None:
    cut = given | {"id": "x_1", "status": "incomplete"}
    body = {"id": "r", "object": "response", "status": "incomplete", "output": [cut]}
    ended = body | {"incomplete_details": {"reason": "max_output_tokens"}}
    told = of_payloads(
        {"type": "response.created", "response": body},
        {"type": "response.output_item.added", "output_index": 0, "item": cut},
        {"type": "response.output_item.done", "output_index": 0, "item": cut},
        {"type": "response.incomplete", "response": ended},
    )
    for response in (fold(parsed(told)), API.parse_response(json.dumps(ended))):
        assert [] == response.items
        assert ["unclosed_call"] == [issue.kind for issue in response.issues]


# Other APIs.


@pytest.mark.parametrize("other", ["openai-chat", "anthropic-messages"])
def test_another_api_gets_functions_and_is_told_what_is_gone(other: str) -> None:
    there = ts.render(request(*PAIRS), other)
    lost = {(loss.path, loss.kind) for loss in there.losses}
    places = [*(f"$.tools[{index}]" for index in range(3)), *(f"$.input[{index}]" for index in range(1, 7))]
    assert {(f"{place}.type", "dropped") for place in places} <= lost
    back = ts.parse(there.data, other)
    assert list(TYPES) == [tool.name for tool in back.tools]
    kinds: tuple[type[Item], ...] = (ToolCall, ToolResult)
    assert [name for name in TYPES for _ in kinds] == [one.name for one in back.items if isinstance(one, kinds)]  # type: ignore[attr-defined]
    again: Any = ts.render(back, "openai-responses").value
    assert {"function_call", "function_call_output"} == {one["type"] for one in again["input"] if "type" in one}


def test_an_answer_of_another_api_is_told_in_the_words_of_the_request() -> None:
    arguments = ARGUMENTS["shell"]
    called = {"id": "c1", "type": "function", "function": {"name": "shell", "arguments": arguments}}
    message = {"role": "assistant", "content": None, "tool_calls": [called]}
    body = {"id": "x", "object": "chat.completion", "choices": [{"message": message, "finish_reason": "tool_calls"}]}
    response = ts.get_api("openai-chat").parse_response(json.dumps(body))
    [item] = json.loads(API.render_response(response, request()).data)["output"]
    assert ("shell_call", "c1", ["ls", "é"]) == (item["type"], item["call_id"], item["action"]["commands"])


def test_what_a_program_has_changed_is_written_as_what_it_is_now() -> None:
    read = request(*PAIRS)
    _, shell, shell_out, _, _, patch, patch_out = read.items
    assert isinstance(shell, ToolCall)
    assert isinstance(patch, ToolCall)
    assert isinstance(shell_out, ToolResult)
    assert isinstance(patch_out, ToolResult)
    shell.arguments, patch.arguments = "{}", '{"type": "delete_file", "path": "b"}'
    shell_out.content, patch_out.content = [Text(text="a")], [Text(text="b")]
    patch_out.status = None
    written: Any = ts.render(read, "openai-responses").value["input"]
    assert ("function_call", "shell", "{}") == (written[1]["type"], written[1]["name"], written[1]["arguments"])
    assert ("function_call_output", "a") == (written[2]["type"], written[2]["output"])
    operation = json.loads(ts.render(read, "openai-responses").data)["input"][5]["operation"]
    assert {"type": "delete_file", "path": "b"} == operation
    assert ("completed", "b") == (written[6]["status"], written[6]["output"])
    patch_out.status = "skipped"
    written = ts.render(read, "openai-responses").value["input"]
    assert "function_call_output" == written[6]["type"]


def test_a_name_that_is_taken_gets_a_number() -> None:
    namesake = {"type": "function", "name": "shell", "parameters": None, "strict": None}
    read = request(SHELL, SHELL_OUT, tools=[*TOOLS, namesake])
    assert ["shell_2", "local_shell", "apply_patch", "shell"] == [tool.name for tool in read.tools]
    assert ["shell_2", "shell_2"] == [one.name for one in read.items if isinstance(one, ToolCall | ToolResult)]
    calls: list[Item] = [ToolCall(name=name, arguments=ARGUMENTS["shell"]) for name in ("shell_2", "shell")]
    told: Any = API.render_response(Response(items=calls, finish_reason="tool_calls"), read).value
    assert ["shell_call", "function_call"] == [item["type"] for item in told["output"]]
