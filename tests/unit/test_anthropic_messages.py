"""Owns the unit tests of Messages requests: what each block, message and tool becomes, and that it returns."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests import goldens
from turnscript.apis.anthropic_messages import AnthropicMessages
from turnscript.core.conversation import (
    Assistant,
    Conversation,
    Document,
    Image,
    Item,
    Opaque,
    Raw,
    Request,
    System,
    Text,
    Thinking,
    Tool,
    ToolCall,
    ToolResult,
    User,
)
from turnscript.core.json_text import plain

API = AnthropicMessages()
CACHE = {"type": "ephemeral"}


def golden(name: str) -> str:
    return goldens.golden("anthropic_messages", name)


def returned(body: Any) -> Any:
    """The body after reading and writing, which must not report anything."""
    rendered = API.render_request(API.parse_request(body))
    assert [] == rendered.losses
    return rendered.value


def items_of(*messages: Any, **members: Any) -> list[Item]:
    """The items of messages, which must also come back as they were."""
    body = {**members, "messages": list(messages)}
    assert body == returned(body)
    return API.parse_request(body).items


def blocks_of(*blocks: Any, role: str = "user") -> list[Item]:
    """The items of one message."""
    return items_of({"role": role, "content": list(blocks)})


def part_of(block: Any, role: str = "user") -> Any:
    (item,) = blocks_of(block, role=role)
    (part,) = item.content  # type: ignore[attr-defined]
    return part


# Goldens.

C1 = goldens.c1(goldens.COMPACT)
C2 = goldens.c2("")
C3 = goldens.c3(goldens.COMPACT)


@pytest.mark.parametrize(
    ("name", "items", "tools"), [("c1", C1, [goldens.WEATHER]), ("c2", C2, []), ("c3", C3, [goldens.WEATHER])]
)
def test_the_golden_payloads_are_read_and_written(name: str, items: list[Item], tools: list[Tool]) -> None:
    """R-U-28..32, in the official profile."""
    request = API.parse_request(golden(name))
    assert (items, tools) == (request.items, request.tools)
    by_hand = API.render_request(Request(conversation=Conversation(items=items, tools=tools)))
    assert golden(name) == by_hand.data.decode()
    assert [] == by_hand.losses


def test_the_seed_profile_writes_each_item_as_a_message_of_its_own() -> None:
    """R-U-28..32."""
    by_hand = Request(conversation=Conversation(items=list(C1), tools=[goldens.WEATHER]))
    rendered = API.render_request(by_hand, profile="seed")
    assert golden("c1_seed") == rendered.data.decode()
    assert [] == rendered.losses


def test_a_thought_made_by_hand_gets_an_empty_signature() -> None:
    by_hand = Request(conversation=Conversation(items=[Thinking(content=[Text(text="t")])]))
    (message,) = json.loads(API.render_request(by_hand).data)["messages"]
    assert [{"type": "thinking", "thinking": "t", "signature": ""}] == message["content"]


# System.


def test_a_system_string_is_one_item() -> None:
    assert [System(content=[Text(text="s")])] == items_of(system="s")


def test_an_empty_system_string_is_an_item() -> None:
    assert [System(content=[Text(text="")])] == items_of(system="")


def test_each_system_block_is_an_item_and_keeps_its_members() -> None:
    block = {"type": "text", "text": "a", "cache_control": CACHE, "citations": None, "new": 1}
    first, second = items_of(system=[block, {"type": "text", "text": "b"}])
    assert [("", None), ("", None)] == [(item.turn, item.envelope) for item in (first, second)]
    assert ["cache_control", "citations", "new"] == sorted(first.content[0].extra)  # type: ignore[attr-defined]
    assert ["$.system[0]", "$.system[1]"] == [first.at, second.at]


def test_one_system_block_stays_a_list() -> None:
    assert 1 == len(items_of(system=[{"type": "text", "text": "a"}]))


@pytest.mark.parametrize("nothing", [[], None])
def test_a_system_without_anything_is_kept_as_it_is(nothing: Any) -> None:
    assert [] == items_of(system=nothing)


def test_a_system_block_of_an_unknown_type_is_a_raw_part() -> None:
    (item,) = items_of(system=[{"type": "new", "x": 1}])
    assert isinstance(item, System)
    assert isinstance(item.content[0], Raw)


def test_a_system_message_keeps_its_place_among_the_turns() -> None:
    user = {"role": "user", "content": "q"}
    items = items_of(user, {"role": "system", "content": [{"type": "text", "text": "s"}]}, user, system="top")
    assert ["system", "user", "system", "user"] == [item.kind for item in items]


def test_a_system_message_before_all_others_is_not_taken_for_the_top_level_one() -> None:
    message = {"role": "system", "content": "s"}
    messages = [message, message, {"role": "user", "content": "q"}]
    items = items_of(*messages, system="top")
    assert ["$.system", "$.messages[0]", "$.messages[1]"] == [item.at for item in items[:3]]
    body = {"model": "m", "max_tokens": 5, "system": "top", "messages": messages}
    request = API.parse_request(body)
    request.items[1].content[0].text = "t"  # type: ignore[attr-defined]
    changed = [{"role": "system", "content": [{"type": "text", "text": "t"}]}, *messages[1:]]
    assert body | {"messages": changed} == API.render_request(request).value


@pytest.mark.parametrize(
    "members",
    [
        {"content": "s"},
        {"content": []},
        {"content": None},
        {"output_config": {"effort": "low"}},
        {"content": [{"type": "text", "text": "s", "cache_control": CACHE}], "clear_at": "next_user_message"},
        {"content": [{"type": "tool_addition", "tool": {"type": "tool_reference", "name": "f"}}]},
        {"content": [{"type": "text", "text": "s"}, {"type": "tool_removal", "tool": {"name": "f"}}]},
    ],
)
def test_every_form_of_a_system_message_returns(members: Any) -> None:
    (_, item) = items_of({"role": "user", "content": "q"}, {"role": "system", **members})
    assert isinstance(item, System)


def test_a_tool_addition_is_a_raw_part_of_its_system_message() -> None:
    block = {"type": "tool_addition", "tool": {"type": "tool_reference", "name": "f"}}
    (item,) = items_of({"role": "system", "content": [block]})
    (part,) = item.content  # type: ignore[attr-defined]
    assert ("tool_addition", block) == (part.type, plain(part.value))


# Messages and their parts.


@pytest.mark.parametrize(("role", "kind"), [("user", User), ("assistant", Assistant)])
def test_a_content_may_be_a_string_a_list_or_empty(role: str, kind: type[User | Assistant]) -> None:
    for content, parts in (("t", ["t"]), ("", [""]), ([], []), ([{"type": "text", "text": "t"}], ["t"])):
        (item,) = items_of({"role": role, "content": content})
        assert kind(content=[Text(text=text) for text in parts]).content == item.content  # type: ignore[attr-defined]


def test_messages_of_one_role_in_a_row_stay_apart() -> None:
    one = {"role": "assistant", "content": [{"type": "text", "text": "a"}]}
    thought = {"role": "assistant", "content": [{"type": "thinking", "thinking": "t", "signature": "s"}]}
    call = {"role": "assistant", "content": [{"type": "tool_use", "id": "c", "name": "f", "input": {}}]}
    assert 5 == len(items_of(one, one, thought, one, call))


def test_results_in_messages_of_their_own_stay_apart() -> None:
    result = {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c"}]}
    items = items_of(result, result)
    assert ["", "new"] == [item.turn for item in items]


def test_results_and_texts_of_one_message_keep_their_order() -> None:
    result = {"type": "tool_result", "tool_use_id": "c", "content": "r"}
    items = blocks_of(result, {"type": "text", "text": "a"}, result, result)
    assert ["tool_result", "user", "tool_result", "tool_result"] == [item.kind for item in items]
    assert ["$.messages[0].content[0]", "$.messages[0].content[1]"] == [item.at for item in items[:2]]


def test_text_thinking_and_calls_of_one_message_keep_their_order() -> None:
    thought = {"type": "thinking", "thinking": "t", "signature": "s"}
    call = {"type": "tool_use", "id": "c", "name": "f", "input": {}}
    text = {"type": "text", "text": "a"}
    items = blocks_of(thought, text, call, thought, text, text, call, role="assistant")
    assert ["thinking", "assistant", "tool_call", "thinking", "assistant", "tool_call"] == [item.kind for item in items]


def test_members_of_a_message_stay_with_the_message() -> None:
    (item,) = items_of({"role": "user", "content": "q", "new": 1})
    assert ["new"] == list(item.extra)
    (item,) = items_of({"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c", "x": 2}], "new": 1})
    assert ["x"] == list(item.extra)
    assert ["new"] == list(item.envelope or ())


def test_a_message_of_an_unknown_role_is_kept_whole() -> None:
    (item, _) = items_of({"role": "critic", "content": 5}, {"role": "user", "content": "q"})
    assert isinstance(item, Opaque)
    assert ("critic", "") == (item.type, item.role)


def test_images_are_typed_by_their_source() -> None:
    data = {"type": "base64", "media_type": "image/png", "data": "iVBO Rw0="}
    assert Image(media_type="image/png", data="iVBO Rw0=") == part_of({"type": "image", "source": data})
    assert Image(url="u") == part_of({"type": "image", "source": {"type": "url", "url": "u"}})
    assert Image(file_id="f") == part_of({"type": "image", "source": {"type": "file", "file_id": "f"}})


def test_members_of_a_source_stay_with_the_source() -> None:
    source = {"type": "url", "url": "u", "new": 1}
    part = part_of({"type": "image", "source": source, "transformations": {"oversized_image": "x"}})
    assert {"source": {"new": 1}, "transformations": {"oversized_image": "x"}} == {
        key: plain(value) for key, value in part.extra.items()
    }


@pytest.mark.parametrize("type_", ["image", "document"])
def test_a_block_with_an_unknown_source_is_kept_whole(type_: str) -> None:
    block = {"type": type_, "source": {"type": "tape", "reel": 2}, "cache_control": CACHE, "title": "t"}
    part = part_of(block)
    assert (type_, block) == (part.type, plain(part.value))


def test_documents_are_typed_by_their_source() -> None:
    data = {"type": "base64", "media_type": "application/pdf", "data": "JVBE"}
    part = part_of({"type": "document", "source": data, "title": "t", "context": "c", "citations": {"enabled": True}})
    assert ("JVBE", "application/pdf", "t", "c", ["citations"]) == (
        part.data,
        part.media_type,
        part.title,
        part.context,
        list(part.extra),
    )
    text = {"type": "text", "media_type": "text/plain", "data": "abc"}
    assert Document(text="abc", media_type="text/plain") == part_of({"type": "document", "source": text})
    assert Document(url="u") == part_of({"type": "document", "source": {"type": "url", "url": "u"}})
    assert Document(file_id="f") == part_of({"type": "document", "source": {"type": "file", "file_id": "f"}})
    part_of({"type": "document", "source": data, "title": None, "context": None, "citations": None})


@pytest.mark.parametrize(
    ("content", "text"),
    [
        ("abc", "abc"),
        ([{"type": "text", "text": "a"}, {"type": "image", "source": {}}, {"type": "text", "text": "b"}], "a\n\nb"),
        ([3, {"text": 4}], ""),
        (None, ""),
    ],
)
def test_a_document_made_of_blocks_has_their_text_and_keeps_its_structure(content: Any, text: str) -> None:
    block = {"type": "document", "source": {"type": "content", "content": content, "x": 1}}
    assert text == part_of(block).text


def test_a_changed_text_of_a_document_made_of_blocks_is_written() -> None:
    source = {"type": "content", "content": "abc"}
    request = API.parse_request(
        {"messages": [{"role": "user", "content": [{"type": "document", "source": source}]}]},
    )
    request.items[0].content[0].text = "new"  # type: ignore[attr-defined]
    (message,) = json.loads(API.render_request(request).data)["messages"]
    assert ("text", "new") == (message["content"][0]["source"]["type"], message["content"][0]["source"]["data"])


def test_search_results_and_uploads_are_raw_parts_among_the_texts() -> None:
    search = {"type": "search_result", "source": "s", "title": "t", "content": []}
    upload = {"type": "container_upload", "file_id": "f"}
    (item,) = blocks_of({"type": "text", "text": "a"}, search, upload, {"type": "text", "text": "b"})
    assert isinstance(item, User)
    assert [Text, Raw, Raw, Text] == [type(part) for part in item.content]


def test_thinking_keeps_its_proof() -> None:
    signed = {"type": "thinking", "thinking": "t", "signature": "s"}
    (thought, redacted) = blocks_of(signed, {"type": "redacted_thinking", "data": "d", "x": 1}, role="assistant")
    assert Thinking(content=[Text(text="t")], signature="s") == thought
    assert isinstance(redacted, Thinking)
    assert "d" == redacted.redacted


@pytest.mark.parametrize("members", [{}, {"signature": None}, {"signature": "", "new": 1}])
def test_thinking_without_a_signature_returns(members: Any) -> None:
    assert 1 == len(blocks_of({"type": "thinking", "thinking": "t", **members}, role="assistant"))


@pytest.mark.parametrize("type_", ["server_tool_use", "web_search_tool_result", "mcp_tool_use", "compaction", "new"])
def test_blocks_of_other_kinds_are_opaque(type_: str) -> None:
    block = {"type": type_, "id": "srv", "content": [1], "input": {"q": 1.0}}
    text = {"type": "text", "text": "a"}
    for role in ("user", "assistant"):
        (_, item, _) = blocks_of(text, block, text, role=role)
        assert isinstance(item, Opaque)
        assert (type_, role, block) == (item.type, item.role, plain(item.value))


@pytest.mark.parametrize(
    ("role", "block"),
    [
        ("user", {"type": "tool_use", "id": "c", "name": "f", "input": {}}),
        ("user", {"type": "thinking", "thinking": "t", "signature": "s"}),
        ("assistant", {"type": "tool_result", "tool_use_id": "c"}),
    ],
)
def test_a_block_on_the_wrong_side_is_opaque(role: str, block: Any) -> None:
    (item,) = blocks_of(block, role=role)
    assert isinstance(item, Opaque)


# Calls and results.


def test_the_input_of_a_call_is_kept_byte_for_byte() -> None:
    arguments = '{"b" : 1.0,\n"a":1e5, "n":1152921504606846976,"\\u00e9":"é", "b":2}'
    head = '{"messages":[{"role":"assistant","content":[{"type":"tool_use","id":"c","name":"f","input":'
    body = f'{head}{arguments},"caller":{{"type":"direct"}}}}]}}]}}'
    request = API.parse_request(body)
    (item,) = request.items
    assert isinstance(item, ToolCall)
    assert (arguments, ["caller"]) == (item.arguments, list(item.extra))
    assert f'"input":{arguments}' in API.render_request(request).data.decode()


@pytest.mark.parametrize(
    ("members", "texts", "status"),
    [
        ({}, [], None),
        ({"content": "r"}, ["r"], None),
        ({"content": ""}, [""], None),
        ({"content": []}, [], None),
        ({"content": None}, [], None),
        ({"content": [{"type": "text", "text": "r"}]}, ["r"], None),
        ({"content": [{"type": "text", "text": "r", "cache_control": CACHE}]}, None, None),
        ({"content": "r", "is_error": True}, ["r"], "error"),
        ({"content": "r", "is_error": False, "toolset_name": "t"}, ["r"], "ok"),
        ({"content": "r", "is_error": None, "cache_control": None}, ["r"], None),
    ],
)
def test_every_form_of_a_result_returns(members: Any, texts: Any, status: str | None) -> None:
    (item,) = blocks_of({"type": "tool_result", "tool_use_id": "c", **members})
    assert isinstance(item, ToolResult)
    assert status == item.status
    if texts is not None:
        assert [Text(text=text) for text in texts] == item.content


def test_a_result_may_hold_pictures_and_kinds_without_a_name() -> None:
    image = {"type": "image", "source": {"type": "url", "url": "u"}}
    reference = {"type": "tool_reference", "tool_name": "f"}
    (item,) = blocks_of({"type": "tool_result", "tool_use_id": "c", "content": [image, reference]})
    assert isinstance(item, ToolResult)
    assert [Image, Raw] == [type(part) for part in item.content]


def test_a_result_carries_the_name_of_its_call() -> None:
    call = {"role": "assistant", "content": [{"type": "tool_use", "id": "c", "name": "f", "input": {}}]}
    results = [{"type": "tool_result", "tool_use_id": id_} for id_ in ("c", "other")]
    items = items_of(call, {"role": "user", "content": results})
    assert ["f", "f", None] == [item.name for item in items if isinstance(item, ToolCall | ToolResult)]


def test_generated_ids_are_taken_off_again() -> None:
    by_hand = [ToolCall(name="now"), ToolResult(name="now", status="error", content=[Text(text="broken")])]
    request = Request(conversation=Conversation(items=by_hand))
    rendered = API.render_request(request)
    assert b'"id":"call_auto_001"' in rendered.data
    assert b'"tool_use_id":"call_auto_001","content":"broken","is_error":true' in rendered.data
    assert by_hand == API.parse_request(rendered.data).items
