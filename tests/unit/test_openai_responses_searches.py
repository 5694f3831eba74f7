"""Owns the unit tests of searches for tools that the client runs: a function to everybody, and a search on the wire."""

from __future__ import annotations

import json
from typing import Any

import pytest
from openai.types.responses import Response as OfficialResponse
from openai.types.responses import ResponseStreamEvent, ResponseToolSearchCall
from pydantic import TypeAdapter

import turnscript as ts
from tests.responses import API, answer, last, of_payloads, parsed, payloads, stream, types_of
from turnscript.core.conversation import (
    Assistant,
    Item,
    Opaque,
    Request,
    Response,
    Text,
    ToolCall,
    ToolResult,
    ToolsChange,
)
from turnscript.core.events import fold
from turnscript.core.json_text import json_of, plain

PARAMETERS = {"type": "object", "properties": {"query": {"type": "string"}}, "required": ["query"]}
SEARCH: Any = {"type": "tool_search", "execution": "client", "description": "Finds tools.", "parameters": PARAMETERS}
CALL: Any = {"type": "tool_search_call", "call_id": "c1", "execution": "client", "arguments": {"query": "notes"}}
READ: Any = {"type": "function", "name": "read", "parameters": PARAMETERS, "strict": False, "defer_loading": True}
NOTES: Any = {"type": "namespace", "name": "notes", "description": "Notes.", "tools": [READ]}
OUTPUT: Any = {"type": "tool_search_output", "call_id": "c1", "execution": "client", "tools": [NOTES]}
NAMESAKE: Any = {"type": "function", "name": "tool_search", "parameters": None, "strict": None}
ASKED: Any = {"model": "m", "input": [{"role": "user", "content": "Hi"}], "tools": [SEARCH]}
OFFICIAL: TypeAdapter[Any] = TypeAdapter(ResponseStreamEvent)
WANTED = '{"query": "no\\u0074es", "limit": 1.0}'


def request(*items: Any, tools: Any = (SEARCH,)) -> Request:
    return API.parse_request({**ASKED, "input": [*ASKED["input"], *items], "tools": list(tools)})


def test_a_search_is_a_function_its_call_a_call_and_its_output_a_result_with_what_was_found() -> None:
    read = request(CALL, OUTPUT)
    [tool] = read.tools
    assert ("function", "tool_search", "Finds tools.", PARAMETERS) == (
        tool.type,
        tool.name,
        tool.description,
        plain(tool.parameters or json_of(None)),
    )
    _, call, result, change = read.items
    assert isinstance(call, ToolCall)
    assert isinstance(result, ToolResult)
    assert isinstance(change, ToolsChange)
    assert ("tool_search", '{"query":"notes"}', "c1") == (call.name, call.arguments, call.id)
    assert ("tool_search", [Text(text="Loaded: notes__read")], "c1") == (result.name, result.content, result.id)
    assert ["notes"] == [tool.name for tool in change.added]


def test_tools_that_a_search_found_stay_beside_others_that_came_before_its_output() -> None:
    """In Messages the result moves to its call, and the two changes of the tools become neighbours."""
    more = {"type": "additional_tools", "role": "developer", "tools": [{**READ, "name": "write"}]}
    rendered = ts.render(request(CALL, more, OUTPUT), "anthropic-messages")
    assert ["tool_search", "write", "notes__read"] == [tool["name"] for tool in rendered.value["tools"]]


NAMED = {"id": "x_1", "status": "completed", "created_by": None, "never_heard_of": {"a": 1}}
ITEMS: tuple[Any, ...] = (CALL, OUTPUT)
NO_OBJECTS: tuple[Any, ...] = (None, [], 1, {}, {"a": {"b": 1.0}})
NO_TOOLS: tuple[Any, ...] = (None, {}, [{"type": 7}], [7], [SEARCH, NAMESAKE])
FORMS: dict[str, tuple[Any, ...]] = {
    "whole": (CALL, OUTPUT),
    "all members": (CALL | NAMED, OUTPUT | NAMED),
    "nothing found": (CALL, OUTPUT | {"tools": []}),
    "output alone": (OUTPUT,),
    "two at once": (CALL, CALL | {"call_id": "c2"}, OUTPUT, OUTPUT | {"call_id": "c2"}),
    "another tool between": (OUTPUT, {"type": "additional_tools", "role": "developer", "tools": [READ]}),
    "words for arguments": (CALL | {"arguments": "notes"}, CALL | {"arguments": "{}"}),
    "odd arguments": tuple(CALL | {"arguments": one} for one in NO_OBJECTS),
    "odd ids": tuple(one | {"call_id": id_} for one in ITEMS for id_ in (None, 7, "")),
    "odd item ids": tuple(one | {"id": id_} for one in ITEMS for id_ in (None, 7, "")),
    "odd tools": tuple(OUTPUT | {"tools": one} for one in NO_TOOLS),
    "of the server": tuple(one | {"execution": by} for one in ITEMS for by in ("server", None, 7)),
    "unsaid": ({"type": "tool_search_call"}, {"type": "tool_search_output"}),
}
DECLARED: tuple[Any, ...] = (
    SEARCH,
    {"type": "tool_search", "execution": "client"},
    SEARCH | {"description": None, "parameters": None, "name": "x", "strict": True, "never_heard_of": 1},
    SEARCH | {"description": 7, "parameters": []},
    {"type": "tool_search"},
    SEARCH | {"execution": "server"},
    SEARCH | {"execution": None},
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


def test_a_search_of_the_server_stays_what_it_is() -> None:
    read = request(*FORMS["of the server"], tools=[{"type": "tool_search"}])
    assert ["tool_search"] == [tool.type for tool in read.tools]
    assert all(isinstance(item, Opaque) for item in read.items[1:])


@pytest.mark.parametrize("at", ["tools", "input"])
def test_a_search_has_another_name_where_a_tool_has_that_one(at: str) -> None:
    taken = {"tools": [NAMESAKE]} if at == "tools" else {"input": [READ | NAMESAKE]}
    later = {"type": "additional_tools", "role": "developer", "tools": taken.get("input", [])}
    read = request(CALL, OUTPUT, later, tools=[SEARCH, *taken.get("tools", [])])
    names = [item.name for item in read.items if isinstance(item, ToolCall | ToolResult)]
    assert ("tool_search_2", ["tool_search_2", "tool_search_2"]) == (read.tools[0].name, names)
    calls: list[Item] = [ToolCall(name="tool_search_2"), ToolCall(name="tool_search")]
    told: Any = API.render_response(Response(items=calls, finish_reason="tool_calls"), read).value
    assert ["tool_search_call", "function_call"] == [item["type"] for item in told["output"]]


# Answers.


def test_a_call_of_a_search_is_told_by_its_item_alone() -> None:
    read = request()
    data = stream(answer(Assistant(content=[Text(text="H")]), ToolCall(name="tool_search", arguments=WANTED)), read)
    types = types_of(data)
    assert ["output_item.added", "output_item.done", "completed"] == types[types.index("output_item.done") + 1 :]
    added, done = (one for one in payloads(data) if one.get("output_index") == 1)
    call = done["item"]
    assert ({}, "in_progress") == (added["item"]["arguments"], added["item"]["status"])
    assert (json.loads(WANTED), "completed", "client") == (call["arguments"], call["status"], call["execution"])
    assert call["id"].startswith("tsc_")
    assert WANTED.encode() in data
    assert {"name"}.isdisjoint(call)
    assert (added["item"]["id"], added["item"]["call_id"]) == (call["id"], call["call_id"])
    events = [OFFICIAL.validate_python(one) for one in payloads(data)]
    assert [ResponseToolSearchCall] * 2 == [type(one.item) for one in events if getattr(one, "output_index", 0) == 1]
    told = fold(answer(ToolCall(name="tool_search", arguments=WANTED)))
    told.finish_reason = "tool_calls"
    whole = API.render_response(told, read)
    official = OfficialResponse.model_validate_json(whole.data)
    assert isinstance(official.output[0], ResponseToolSearchCall)
    assert [] == whole.losses


def test_a_search_that_is_declared_in_the_conversation_is_one_too() -> None:
    read = request({"type": "additional_tools", "role": "developer", "tools": [SEARCH]}, tools=[])
    [item] = last(stream(answer(ToolCall(name="tool_search", arguments=WANTED)), read))["output"]
    assert "tool_search_call" == item["type"]


def test_what_is_no_object_is_passed_on_as_words_and_reads_back() -> None:
    read = request()
    for arguments in ("[1", '["a"]', "", "null"):
        [item] = last(stream(answer(ToolCall(name="tool_search", arguments=arguments)), read))["output"]
        assert arguments == item["arguments"]
        again = request(item).items[-1]
        assert isinstance(again, ToolCall)
        assert arguments == again.arguments


def test_a_call_in_an_answer_reads_back_whole_and_in_pieces() -> None:
    call = ToolCall(name="tool_search", arguments=WANTED, id="c1")
    data = stream(answer(call), request())
    found = [fold(parsed(data)), API.parse_response(json.dumps(last(data)))]
    for response in found:
        [item] = response.items
        assert isinstance(item, ToolCall)
        assert ("c1", last(data)["output"][0]["id"], {}) == (item.id, item.item_id, item.extra)
        assert json.loads(WANTED) == json.loads(item.arguments)
        assert "tool_calls" == response.finish_reason
        shown: Any = API.render_response(response, request()).value
        assert ["tool_search_call"] == [one["type"] for one in shown["output"]]
        chat: Any = ts.get_api("openai-chat").render_response(response, request())
        assert "tool_search" == chat.value["choices"][0]["message"]["tool_calls"][0]["function"]["name"]


def test_a_call_that_was_cut_off_is_left_out() -> None:
    cut = CALL | {"id": "tsc_1", "status": "incomplete", "arguments": {}}
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
def test_another_api_gets_a_function_its_call_and_its_result_and_is_told_what_is_gone(other: str) -> None:
    given = request(CALL, OUTPUT)
    there = ts.render(given, other)
    lost = {(loss.path, loss.kind) for loss in there.losses}
    assert {(path, "dropped") for path in ("$.tools[0].execution", "$.input[1].execution")} <= lost
    back = ts.parse(there.data, other)
    assert ["tool_search", "read"] == [(tool.name or "").removeprefix("notes__") for tool in back.tools]
    kinds: list[type[Item]] = [ToolCall, ToolResult]
    assert [("tool_search", "c1")] * 2 == [(one.name, one.id) for one in back.items if type(one) in kinds]  # type: ignore[attr-defined]
    again: Any = ts.render(back, "openai-responses").value
    assert ["function_call", "function_call_output"] == [one["type"] for one in again["input"] if "type" in one]
