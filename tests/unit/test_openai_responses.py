"""Owns the unit tests of Responses requests: what each item, part and tool becomes, and that it returns."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests import goldens
from turnscript.apis.openai_responses import OpenAIResponses
from turnscript.core.conversation import (
    Audio,
    Conversation,
    Document,
    Image,
    Item,
    Raw,
    Refusal,
    Request,
    System,
    Text,
    Tool,
    ToolCall,
    ToolResult,
    ToolsChange,
)
from turnscript.core.json_text import json_of, plain

API = OpenAIResponses()


def golden(name: str) -> str:
    return goldens.golden("openai_responses", name)


def returned(body: Any) -> Any:
    """The body after reading and writing, which must not report anything."""
    rendered = API.render_request(API.parse_request(body))
    assert [] == rendered.losses
    return rendered.value


def items_of(*given: Any) -> list[Item]:
    """The items of an input, which must also come back as it was."""
    body = {"input": list(given)}
    assert body == returned(body)
    return API.parse_request(body).items


def item_of(given: Any) -> Any:
    (item,) = items_of(given)
    return item


def part_of(part: Any, role: str = "user") -> Any:
    (found,) = item_of({"role": role, "content": [part]}).content
    return found


def tool_of(tool: Any) -> Tool:
    body = {"tools": [tool]}
    assert body == returned(body)
    return API.parse_request(body).tools[0]


# The conversations of the requirements' goldens, built by hand.

C1 = goldens.c1()
C2 = goldens.c2()
C3 = goldens.c3()


@pytest.mark.parametrize(
    ("name", "items", "tools"), [("c1", C1, [goldens.WEATHER]), ("c2", C2, []), ("c3", C3, [goldens.WEATHER])]
)
def test_golden_conversations_are_written_and_read_exactly(name: str, items: list[Item], tools: list[Tool]) -> None:
    request = Request(conversation=Conversation(items=items, tools=tools))
    assert golden(name) == API.render_request(request, strict=True).data.decode()
    assert request.conversation == API.parse_request(golden(name)).conversation


def test_the_seed_profile_writes_the_universal_documents_table() -> None:
    """R-U-22..27, D-U-14."""
    request = Request(conversation=Conversation(items=C1))
    assert golden("c1_seed") == API.render_request(request, profile="seed", strict=True).data.decode()


def test_the_seed_shapes_are_read_and_come_back_in_the_official_profile() -> None:
    """R-U-22..27, D-U-14."""
    body = golden("c1_seed")
    assert json.loads(body) == returned(body)
    request = API.parse_request(body)
    assert ["tool_call", "tool_result"] == [item.kind for item in request.items[3:5]]
    assert C1 == request.items


def test_a_string_of_input_becomes_a_message_where_others_join_it() -> None:
    request = API.parse_request({"input": "Again?", "instructions": "Be kind."})
    request.items.insert(1, System(content=[Text(text="s")]))
    text = [{"type": "input_text", "text": "Again?"}]
    added = {"role": "system", "content": [{"type": "input_text", "text": "s"}]}
    expected = {"instructions": "Be kind.", "input": [added, {"role": "user", "content": text}]}
    assert expected == API.render_request(request, strict=True).value


def test_the_seed_profile_has_no_tools() -> None:
    request = Request(conversation=Conversation(items=C1, tools=[goldens.WEATHER]))
    rendered = API.render_request(request, profile="seed")
    assert json.loads(golden("c1_seed")) == rendered.value
    assert ["$.tools[0]"] == [loss.path for loss in rendered.losses]


# Input and instructions.


def test_a_string_input_is_one_user_item() -> None:
    assert {"input": "Hi"} == returned({"input": "Hi"})
    (user,) = API.parse_request({"input": "Hi"}).items
    assert ("$.input", [Text(text="Hi")]) == (user.at, user.content)  # type: ignore[attr-defined]


@pytest.mark.parametrize("body", [{}, {"input": None}, {"input": []}, {"instructions": None}, {"instructions": []}])
def test_no_input_stays_the_kind_of_nothing_it_was(body: Any) -> None:
    assert [] == API.parse_request(body).items
    assert body == returned(body)


def test_instructions_come_first_and_return_to_their_place() -> None:
    body = {"input": "Hi", "instructions": "Be brief."}
    assert body == returned(body)
    assert ["$.instructions", "$.input"] == [item.at for item in API.parse_request(body).items]


@pytest.mark.parametrize(
    "item",
    [
        {"role": "developer", "content": "x"},
        {"role": "system", "content": [{"type": "input_text", "text": "x"}]},
        {"type": "message", "role": "user", "content": "x"},
        {"type": "item_reference", "id": "msg_1"},
        {"type": "function_call", "name": "f", "arguments": "{}"},
        {"role": "assistant", "content": [{"type": "tool_call", "id": "c", "name": "f", "arguments": "{}"}]},
    ],
)
def test_an_instructions_list_returns_as_a_list(item: Any) -> None:
    body = {"instructions": [item], "input": [{"role": "user", "content": "Hi"}]}
    assert body == returned(body)


# Messages.


@pytest.mark.parametrize("role", ["user", "assistant", "system", "developer"])
@pytest.mark.parametrize("content", ["", "Hi", [], [{"type": "input_text", "text": "Hi"}]])
@pytest.mark.parametrize("more", [{}, {"type": "message"}, {"type": None}, {"id": "m", "status": "completed", "x": 1}])
def test_messages_return_whatever_their_shape(role: str, content: Any, more: Any) -> None:
    item = item_of({"role": role, "content": content, **more})
    assert {"user": "user", "assistant": "assistant"}.get(role, "system") == item.kind
    assert "id" not in more or item.id == "m"


def test_developer_is_a_role_of_its_own() -> None:
    assert "developer" == item_of({"role": "developer", "content": "x"}).role


def test_phase_has_a_name_on_assistants_only() -> None:
    assistant, user = items_of(
        {"role": "assistant", "content": "x", "phase": "commentary"},
        {"role": "user", "content": "x", "phase": "commentary"},
    )
    assert "commentary" == assistant.phase  # type: ignore[attr-defined]
    assert ["phase"] == list(user.extra)


def test_an_output_message_keeps_annotations_and_status() -> None:
    output = {
        "id": "msg_1",
        "content": [{"type": "output_text", "text": "Hi", "annotations": [], "logprobs": []}],
        "role": "assistant",
        "status": "completed",
        "type": "message",
    }
    item = item_of(output)
    assert ("msg_1", ["status"], None) == (item.id, list(item.extra), item.envelope)
    assert {"annotations", "logprobs"} == set(item.content[0].extra)


def test_a_trailing_unfinished_answer_is_open() -> None:
    answer = {"role": "assistant", "content": "The best answer is (", "status": "in_progress"}
    assert [True] == [item.open for item in items_of(answer)]
    assert [False, False] == [item.open for item in items_of(answer, {"role": "user", "content": "?"})]


def test_an_unknown_role_is_kept_verbatim() -> None:
    item = item_of({"role": "critic", "content": "x"})
    assert ("opaque", "message") == (item.kind, item.type)


# Parts.


@pytest.mark.parametrize(
    ("wire", "part"),
    [
        ({"type": "input_text", "text": "a"}, Text(text="a")),
        (
            {"type": "input_text", "text": "a", "prompt_cache_breakpoint": {"mode": "explicit"}},
            Text(text="a", extra={"prompt_cache_breakpoint": json_of({"mode": "explicit"})}),
        ),
        ({"type": "output_text", "text": "a"}, Text(text="a")),
        ({"type": "text", "text": "a"}, Text(text="a")),
        ({"type": "refusal", "refusal": "no", "x": 1}, Refusal(text="no", extra={"x": json_of(1)})),
        (
            {"type": "input_image", "image_url": "https://x/a.png", "detail": "low"},
            Image(url="https://x/a.png", detail="low"),
        ),
        (
            {"type": "input_image", "image_url": "data:image/png;base64,aGk="},
            Image(data="aGk=", media_type="image/png"),
        ),
        ({"type": "input_image", "image_url": "data:;base64,aGk="}, Image(url="data:;base64,aGk=")),
        (
            {"type": "input_image", "file_id": "f", "image_url": None},
            Image(file_id="f", extra={"image_url": json_of(None)}),
        ),
        ({"type": "input_image"}, Image()),
        (
            {"type": "input_file", "file_data": "data:application/pdf;base64,aGk=", "filename": "a.pdf"},
            Document(data="aGk=", media_type="application/pdf", filename="a.pdf"),
        ),
        ({"type": "input_file", "file_data": "aGk="}, Document(data="aGk=")),
        ({"type": "input_file", "file_url": "https://x/a.pdf"}, Document(url="https://x/a.pdf")),
        (
            {"type": "input_file", "file_id": "f", "detail": "high"},
            Document(file_id="f", extra={"detail": json_of("high")}),
        ),
        ({"type": "input_audio", "input_audio": {"data": "aGk=", "format": "wav"}}, Audio(data="aGk=", format="wav")),
        (
            {"type": "input_audio", "input_audio": {"data": "aGk=", "rate": 8000}},
            Audio(data="aGk=", extra={"input_audio": json_of({"rate": 8000})}),
        ),
        ({"type": "hologram", "x": 1.0}, Raw(type="hologram", value=json_of({"type": "hologram", "x": 1.0}))),
    ],
)
def test_parts(wire: Any, part: Any) -> None:
    assert part == part_of(wire)


def test_a_refusal_is_a_part_of_an_answer() -> None:
    assert Refusal(text="no") == part_of({"type": "refusal", "refusal": "no"}, "assistant")


def test_a_text_of_another_roles_type_is_a_text_and_comes_back() -> None:
    assert Text(text="a") == part_of({"type": "input_text", "text": "a"}, "assistant")


# Reasoning.


def test_reasoning_keeps_summary_content_and_proof_apart() -> None:
    item = item_of(
        {
            "type": "reasoning",
            "id": "rs_1",
            "summary": [{"type": "summary_text", "text": "S"}],
            "content": [{"type": "reasoning_text", "text": "T", "x": 1}],
            "encrypted_content": "gAAA",
            "status": "completed",
        }
    )
    assert ([Text(text="S")], "gAAA", "rs_1") == (item.summary, item.encrypted, item.id)
    assert [Text(text="T", extra={"x": json_of(1)})] == item.content


@pytest.mark.parametrize("more", [{}, {"content": []}, {"content": None}, {"encrypted_content": None}, {"id": None}])
def test_reasoning_without_text_says_so_as_it_did(more: Any) -> None:
    assert [] == item_of({"type": "reasoning", "summary": [], **more}).content


def test_generated_reasoning_ids_are_dropped_and_others_kept() -> None:
    first = {"type": "reasoning", "id": "rs_auto_001", "summary": []}
    assert item_of(first).id is None
    assert "rs_auto_007" == item_of({**first, "id": "rs_auto_007"}).id
    assert "rs_1" == item_of({**first, "id": "rs_1", "encrypted_content": "rs_auto_001"}).id
    kept = [item.id for item in items_of(first, first)]  # type: ignore[attr-defined]
    assert ["rs_auto_001", "rs_auto_001"] == kept


# Calls and results.


def test_a_function_call_has_two_ids_and_verbatim_arguments() -> None:
    arguments = '{"b":1.0, "é": 1e400, "b": "\\u00e9"'
    item = item_of(
        {
            "type": "function_call",
            "call_id": "call_1",
            "id": "fc_1",
            "name": "f",
            "arguments": arguments,
            "namespace": "crm",
            "status": "completed",
            "caller": {"type": "direct"},
        }
    )
    assert ("call_1", "fc_1", arguments, "crm") == (item.id, item.item_id, item.arguments, item.namespace)
    assert {"status", "caller"} == set(item.extra)


def test_custom_calls_and_their_outputs_are_free_text() -> None:
    call, result = items_of(
        {"type": "custom_tool_call", "call_id": "c", "name": "patch", "input": "*** Begin"},
        {"type": "custom_tool_call_output", "call_id": "c", "output": "ok"},
    )
    assert ToolCall(name="patch", arguments="*** Begin", id="c", custom=True) == call
    assert ToolResult(content=[Text(text="ok")], id="c", name="patch", custom=True) == result


@pytest.mark.parametrize(
    "output",
    [
        "",
        "x",
        [],
        [{"type": "input_text", "text": "x"}],
        [{"type": "input_text", "text": "x"}, {"type": "input_image", "image_url": "https://x/a.png"}],
        [{"type": "hologram"}],
    ],
)
def test_results_return_whatever_their_shape(output: Any) -> None:
    assert "tool_result" == item_of({"type": "function_call_output", "call_id": "c", "output": output}).kind


@pytest.mark.parametrize("more", [{}, {"call_id": None}, {"name": "f"}, {"id": None, "name": "f", "namespace": "n"}])
def test_calls_and_results_without_a_call_id_get_none(more: Any) -> None:
    items = items_of(
        {"type": "function_call", "name": "f", "arguments": "{}", **more},
        {"type": "function_call_output", "output": "x", **more},
    )
    assert [None, None] == [item.id for item in items]  # type: ignore[attr-defined]


def test_a_result_says_its_tools_name_only_if_it_did() -> None:
    call = {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"}
    result = {"type": "function_call_output", "call_id": "c", "output": "x"}
    for more in ({}, {"name": "f"}, {"name": "g", "namespace": "n", "id": "fco_1"}):
        named = items_of(call, {**result, **more})[1]
        assert more.get("name", "f") == named.name  # type: ignore[attr-defined]


def test_an_id_that_only_looks_generated_changes_no_generated_one() -> None:
    body = {
        "input": [
            {"type": "function_call", "call_id": "call_auto_001", "name": "f", "arguments": "{}"},
            {"type": "function_call", "call_id": "call_auto_001_1", "name": "f", "arguments": "{}"},
            {"type": "function_call_output", "call_id": "call_auto_001_1", "output": "x"},
        ]
    }
    assert body == returned(body)


def test_generated_call_ids_are_dropped_and_written_again() -> None:
    call, result = items_of(
        {"type": "function_call", "call_id": "call_auto_001", "name": "f", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "call_auto_001", "output": "x"},
    )
    assert (None, None, "f") == (call.id, result.id, result.name)  # type: ignore[attr-defined]


def test_blocks_of_the_seed_share_a_message_with_text() -> None:
    message = {
        "type": "message",
        "role": "assistant",
        "status": "completed",
        "content": [
            {"type": "tool_call", "name": "f", "arguments": {"a": 1.0}},
            {"type": "output_text", "text": "and"},
            {"type": "tool_call", "id": "c2", "name": "g", "arguments": "{}", "x": 1},
            {"type": "tool_result", "tool_call_id": "c2", "output": "not the assistant's"},
        ],
    }
    items = items_of(message)
    assert ["tool_call", "assistant", "tool_call", "assistant"] == [item.kind for item in items]
    assert [f"$.input[0].content[{index}]" for index in range(4)] == [item.at for item in items]
    assert '{"a":1.0}' == items[0].arguments.replace(" ", "")  # type: ignore[attr-defined]


def test_text_before_a_block_of_the_seed_keeps_the_members_of_the_message() -> None:
    content = [{"type": "output_text", "text": "a"}, {"type": "tool_call", "id": "c", "name": "f", "arguments": "{}"}]
    for more in ({}, {"type": "message"}):
        text, call = items_of({"role": "assistant", "content": content, "id": "m", "phase": "commentary", **more})
        assert ("m", "commentary", "tool_call") == (text.id, text.phase, call.kind)  # type: ignore[attr-defined]


@pytest.mark.parametrize("output", ["x", {"result": 5}, [{"type": "input_text", "text": "x"}], [], 7])
@pytest.mark.parametrize("more", [{}, {"tool_call_id": "c"}, {"tool_call_id": None}])
def test_results_of_the_seed_may_be_json(output: Any, more: Any) -> None:
    content = [{"type": "tool_result", "output": output, **more}, {"type": "input_text", "text": "go on"}]
    result, user = items_of({"role": "user", "content": content, "id": "m", "phase": "p"})
    assert ("tool_result", "user") == (result.kind, user.kind)


# Other items.


def test_additional_tools_change_the_tools() -> None:
    change = {"type": "additional_tools", "role": "developer", "tools": [{"type": "custom", "name": "p"}], "id": "a"}
    item = item_of(change)
    assert ToolsChange(added=[Tool(name="p", type="custom")], extra={"id": json_of("a")}) == item
    item_of({**change, "role": "system", "tools": []})


@pytest.mark.parametrize(
    "item",
    [
        {"type": "item_reference", "id": "msg_1"},
        {"id": "msg_1"},
        {"type": None, "id": "msg_1"},
        {"type": "web_search_call", "id": "ws_1", "status": "completed", "action": {"type": "search", "query": "q"}},
        {"type": "compaction", "encrypted_content": "x"},
        {"type": "configuration_update", "reasoning": {"effort": "low"}},
        {"type": "hologram"},
    ],
)
def test_every_other_item_is_kept_verbatim(item: Any) -> None:
    opaque = item_of(item)
    assert (item.get("type") or "item_reference", item) == (opaque.type, plain(opaque.value))


# Tools.


@pytest.mark.parametrize(
    ("wire", "tool"),
    [
        (
            {"type": "function", "name": "f", "parameters": {}, "strict": True},
            Tool(name="f", parameters=json_of({}), strict=True),
        ),
        ({"type": "function", "name": "f", "parameters": None, "strict": None}, Tool(name="f")),
        ({"type": "function", "name": "f"}, Tool(name="f")),
        (
            {"type": "function", "name": "f", "parameters": None, "strict": None, "description": None, "async": True},
            Tool(name="f", extra={"description": json_of(None), "async": json_of(True)}),
        ),
        (
            {"type": "custom", "name": "p", "description": "d", "format": {"type": "text"}},
            Tool(name="p", type="custom", description="d", format=json_of({"type": "text"})),
        ),
        (
            {"type": "custom", "name": "p", "format": None},
            Tool(name="p", type="custom", extra={"format": json_of(None)}),
        ),
        (
            {"type": "namespace", "name": "n", "description": "d", "tools": [{"type": "custom", "name": "p"}]},
            Tool(name="n", type="namespace", description="d", tools=[Tool(name="p", type="custom")]),
        ),
        ({"type": "namespace", "name": "n", "tools": []}, Tool(name="n", type="namespace")),
        ({"type": "web_search"}, Tool(type="web_search")),
        ({"type": "hosted", "name": "h", "x": 1}, Tool(type="hosted", name="h", extra={"x": json_of(1)})),
        ({"type": "hosted", "name": 5}, Tool(type="hosted", extra={"name": json_of(5)})),
    ],
)
def test_tools(wire: Any, tool: Tool) -> None:
    assert tool == tool_of(wire)


@pytest.mark.parametrize("tools", [[], None])
def test_no_tools_stay_the_kind_of_nothing_they_were(tools: Any) -> None:
    assert {"tools": tools} == returned({"tools": tools})
