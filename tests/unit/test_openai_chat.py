"""Owns the unit tests of Chat messages: what each message, part and call becomes, and that it returns as it was."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests import goldens
from turnscript.apis.openai_chat import OpenAIChat
from turnscript.core.conversation import (
    Audio,
    Conversation,
    Document,
    Image,
    Item,
    Opaque,
    Raw,
    Refusal,
    Request,
    System,
    Text,
    Thinking,
    Tool,
    ToolCall,
    ToolResult,
    User,
)
from turnscript.core.errors import InvalidRequest
from turnscript.core.json_text import json_of, plain

API = OpenAIChat()
CALL = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{}"}}
CUSTOM = {"id": "c2", "type": "custom", "custom": {"name": "sh", "input": "ls *"}}
ANSWER = {"role": "tool", "tool_call_id": "c1", "content": "r"}


def golden(name: str) -> str:
    return goldens.golden("openai_chat", name)


def returned(body: Any) -> Any:
    """The body after reading and writing, which must not report anything."""
    rendered = API.render_request(API.parse_request(body))
    assert [] == rendered.losses
    return rendered.value


def items_of(*messages: Any) -> list[Any]:
    """The items of the messages, which must also come back as they were."""
    body = {"messages": list(messages)}
    assert body == returned(body)
    return list(API.parse_request(body).items)


def part_of(part: Any, role: str = "user") -> Any:
    (item,) = items_of({"role": role, "content": [part]})
    (found,) = item.content
    return found


def assistant(**members: Any) -> dict[str, Any]:
    return {"role": "assistant", **members}


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
    """R-U-17..21, D-U-13."""
    request = Request(conversation=Conversation(items=C1))
    assert golden("c1_seed") == API.render_request(request, profile="seed", strict=True).data.decode()


def test_the_seed_shapes_are_read_and_come_back_in_both_profiles() -> None:
    """R-U-17..21, D-U-13."""
    body = golden("c1_seed")
    assert json.loads(body) == returned(body)
    request = API.parse_request(body)
    assert body == API.render_request(request, profile="seed", strict=True).data.decode()
    assert ["tool_call", "tool_result"] == [item.kind for item in request.items[3:5]]
    for item in request.items:
        item.turn, item.extra = "", {}
    assert C1 == request.items


def test_the_seed_profile_has_no_tools() -> None:
    request = Request(conversation=Conversation(items=C1, tools=[goldens.WEATHER]))
    rendered = API.render_request(request, profile="seed")
    assert json.loads(golden("c1_seed")) == rendered.value
    assert ["$.tools[0]"] == [loss.path for loss in rendered.losses]


# Messages.


@pytest.mark.parametrize("role", ["system", "developer"])
def test_a_system_message_keeps_its_role_and_name(role: str) -> None:
    (item,) = items_of({"role": role, "content": "Be brief.", "name": "boss"})
    assert System(content=[Text(text="Be brief.")], role=role, name="boss") == item


def test_a_user_message_keeps_its_name_and_what_nobody_named() -> None:
    (item,) = items_of({"role": "user", "content": "hi", "name": "alice", "weight": 1.0})
    assert User(content=[Text(text="hi")], name="alice", extra={"weight": json_of(1.0)}) == item
    assert "$.messages[0]" == item.at


SHAPES: dict[str, Any] = {"string": "a", "list": [{"type": "text", "text": "a"}], "empty": [], "null": None}


@pytest.mark.parametrize("role", ["system", "developer", "user", "assistant", "tool", "function"])
@pytest.mark.parametrize("shape", [*SHAPES, "absent"])
def test_every_role_keeps_the_shape_of_its_content(role: str, shape: str) -> None:
    message = {"role": role} if shape == "absent" else {"role": role, "content": SHAPES[shape]}
    (item,) = items_of(message)
    assert ([Text(text="a")] if shape in ("string", "list") else []) == item.content
    assert {"messages": [message]} == returned({"messages": [message]})


@pytest.mark.parametrize("shape", ["empty", "null", "absent"])
def test_every_shape_survives_beside_an_unknown_member(shape: str) -> None:
    message = {"role": "user", "x": None} | ({} if shape == "absent" else {"content": SHAPES[shape]})
    (item,) = items_of(message)
    assert [] == item.content


def test_two_texts_stay_two_and_one_with_members_stays_a_list() -> None:
    texts = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
    (item,) = items_of({"role": "user", "content": texts})
    assert [Text(text="a"), Text(text="b")] == item.content
    part = part_of({"type": "text", "text": "a", "prompt_cache_breakpoint": {"mode": "explicit"}})
    assert {"prompt_cache_breakpoint": {"mode": "explicit"}} == {key: plain(one) for key, one in part.extra.items()}


def test_a_message_of_an_unknown_role_is_opaque() -> None:
    (item,) = items_of({"role": "narrator", "content": "Night falls.", "n": 1.0})
    assert Opaque(type="narrator", value=json_of({"role": "narrator", "content": "Night falls.", "n": 1.0})) == item


# Parts.


def test_images_by_url_keep_their_detail_and_unnamed_members() -> None:
    image = part_of({"type": "image_url", "image_url": {"url": "https://x/a.png", "detail": "low", "k": 1}, "z": None})
    assert Image(url="https://x/a.png", detail="low", extra=image.extra) == image
    assert {"image_url": {"k": 1}, "z": None} == {key: plain(value) for key, value in image.extra.items()}


def test_a_base64_image_is_split_and_put_together_again() -> None:
    url = "data:image/png;base64,iVBOR w0KGgo="
    assert Image(media_type="image/png", data="iVBOR w0KGgo=") == part_of(
        {"type": "image_url", "image_url": {"url": url}}
    )


@pytest.mark.parametrize("url", ["data:,x", "data:image/png,x", "data:;base64,AA", "data:a/b;c=d;base64,AA", ""])
def test_any_other_data_url_stays_a_url(url: str) -> None:
    assert Image(url=url) == part_of({"type": "image_url", "image_url": {"url": url}})


def test_sound_is_audio() -> None:
    audio = part_of({"type": "input_audio", "input_audio": {"data": "UklG", "format": "wav", "rate": 8000}})
    assert Audio(data="UklG", format="wav", extra={"input_audio": json_of({"rate": 8000})}) == audio


@pytest.mark.parametrize(
    ("file", "document"),
    [
        ({"file_id": "f1"}, Document(file_id="f1")),
        ({"file_data": "JVBE", "filename": "a.pdf"}, Document(data="JVBE", filename="a.pdf")),
        ({"file_data": "data:application/pdf;base64,JVBE"}, Document(data="JVBE", media_type="application/pdf")),
        ({"pages": 3}, Document(extra={"file": json_of({"pages": 3})})),
        ({}, Document()),
    ],
)
def test_files_are_documents(file: dict[str, Any], document: Document) -> None:
    assert document == part_of({"type": "file", "file": file})


def test_a_refusal_part_and_an_unknown_part_return() -> None:
    assert Refusal(text="no") == part_of({"type": "refusal", "refusal": "no"}, "assistant")
    hologram = {"type": "hologram", "size": 1.0}
    assert Raw(type="hologram", value=json_of(hologram)) == part_of(hologram)


# The assistant's message.


def test_thinking_text_and_calls_of_one_message_are_items_in_this_order() -> None:
    items = items_of(assistant(reasoning_content="hm", content="a", tool_calls=[CALL, CUSTOM]), ANSWER)
    assert ["thinking", "assistant", "tool_call", "tool_call", "tool_result"] == [item.kind for item in items]
    assert [""] * 5 == [item.turn for item in items]
    assert ToolCall(name="sh", arguments="ls *", id="c2", custom=True) == items[3]
    assert ("$.messages[0].reasoning_content", "$.messages[0].tool_calls[1]") == (items[0].at, items[3].at)


def test_null_content_beside_calls_is_no_text_and_an_empty_string_is_one() -> None:
    assert ["tool_call"] == [item.kind for item in items_of(assistant(content=None, tool_calls=[CALL]))]
    assert ["tool_call"] == [item.kind for item in items_of(assistant(tool_calls=[CALL]))]
    assert [Text(text="")] == items_of(assistant(content="", tool_calls=[CALL]))[0].content


def test_calls_of_a_message_of_their_own_stay_there() -> None:
    items = items_of(assistant(content="a"), assistant(content=None, tool_calls=[CALL]))
    assert "new" == items[1].turn


def test_either_name_of_the_thinking_member_is_read() -> None:
    assert [Text(text="hm")] == items_of(assistant(reasoning="hm", content="a"))[0].content
    both = items_of(assistant(reasoning_content="x", reasoning="y", content="a"))
    assert ([Text(text="x")], json_of("y")) == (both[0].content, both[1].extra["reasoning"])
    assert ["assistant"] == [item.kind for item in items_of(assistant(reasoning={"effort": 1}, content="a"))]
    assert ["thinking"] == [item.kind for item in items_of(assistant(reasoning_content="hm", content=None))]


def test_the_flag_chooses_the_member_for_thinking() -> None:
    request = Request(conversation=Conversation(items=[Thinking(content=[Text(text="hm")])]))
    value: Any = API.render_request(request, reasoning="reasoning").value
    assert "hm" == value["messages"][0]["reasoning"]


@pytest.mark.parametrize(
    "members",
    [
        {"content": None, "refusal": "no"},
        {"content": "a", "refusal": "no"},
        {"content": [], "refusal": "no"},
        {"refusal": "no"},
        {"content": [{"type": "refusal", "refusal": "a"}], "refusal": "no"},
        {"content": None, "refusal": "no", "tool_calls": [CALL]},
        {"content": None, "audio": {"id": "au1", "transcript": "hi"}, "refusal": "no"},
    ],
)
def test_a_refusal_beside_the_content_is_its_last_part(members: dict[str, Any]) -> None:
    items = items_of(assistant(**members))
    assert Refusal(text="no") == items[0].content[-1]


def test_audio_said_before_is_a_part_with_its_id() -> None:
    (item,) = items_of(assistant(content=None, audio={"id": "au1", "expires_at": 1}))
    assert [Audio(id="au1", extra={"expires_at": json_of(1)})] == item.content


NULLS = {"refusal": None, "audio": None, "tool_calls": None, "function_call": None, "reasoning_content": None}


@pytest.mark.parametrize("members", [NULLS, {"tool_calls": []}, {"reasoning": None}, {"audio": {"id": ""}}])
def test_members_that_say_nothing_are_no_part_of_the_items_and_go_back(members: dict[str, Any]) -> None:
    said = assistant(content="a", **members)
    assert items_of(assistant(content="a")) == items_of(said)
    assert {"messages": [said]} == returned({"messages": [said]})


@pytest.mark.parametrize("members", [{"annotations": []}, {"name": None}])
def test_members_that_say_nothing_stay_unnamed(members: dict[str, Any]) -> None:
    (item,) = items_of(assistant(content="a", **members))
    assert members == {key: plain(value) for key, value in item.extra.items()}


def test_members_of_a_message_without_a_text_wait_on_its_first_item() -> None:
    items = items_of(assistant(content=None, tool_calls=[CALL], name="bob", annotations=[], x=1))
    assert {"name", "annotations", "x"} == items[0].envelope.keys()
    items = items_of(assistant(reasoning_content="hm", tool_calls=[CALL], x=1))
    assert {"x": json_of(1)} == items[0].envelope


def test_a_call_of_an_unknown_type_stays_among_the_calls() -> None:
    psychic = {"type": "psychic", "id": "c0"}
    items = items_of(assistant(content=None, tool_calls=[psychic, CALL], x=1))
    assert ("psychic", "assistant", psychic) == (items[0].type, items[0].role, plain(items[0].value))
    assert "join" == items[1].turn


def test_unnamed_members_of_a_call_return_to_their_place() -> None:
    call = {**CALL, "index": 1, "function": {**CALL["function"], "parsed": {}}}  # type: ignore[dict-item]
    (item,) = items_of(assistant(content=None, tool_calls=[call]))
    assert {"index": 1, "function": {"parsed": {}}} == {key: plain(value) for key, value in item.extra.items()}


def test_arguments_are_not_touched() -> None:
    spelled = ' {"a":1.0,"é":1e5, "a":1152921504606846976'
    call = {**CALL, "function": {"name": "f", "arguments": spelled}}
    assert spelled == items_of(assistant(content=None, tool_calls=[call]))[0].arguments


# Results, ids and the deprecated forms.


def test_a_result_takes_the_name_of_its_call() -> None:
    items = items_of(assistant(content=None, tool_calls=[CALL, CUSTOM]), ANSWER, {**ANSWER, "tool_call_id": "c2"})
    assert [("f", False), ("sh", True)] == [(item.name, item.custom) for item in items[2:]]


def test_an_unofficial_name_of_a_result_is_kept_and_used() -> None:
    (item,) = items_of({**ANSWER, "name": "g"})
    assert ("g", {"name": json_of("g")}) == (item.name, item.extra)
    (item,) = items_of({**ANSWER, "name": 5})
    assert item.name is None


def test_the_deprecated_call_and_its_result_are_a_call_and_a_result() -> None:
    call = {"name": "f", "arguments": "{}", "x": 1}
    items = items_of(assistant(content=None, function_call=call), {"role": "function", "name": "f", "content": "r"})
    assert (None, "$.messages[0].function_call") == (items[0].id, items[0].at)
    assert ToolResult(content=[Text(text="r")], name="f") == items[1]


def test_a_function_message_without_its_name_has_that_of_its_call_and_comes_back_without() -> None:
    call = {"name": "f", "arguments": "{}"}
    messages = [assistant(content=None, function_call=call), {"role": "function", "content": "r"}]
    assert (None, "f") == ((item := items_of(*messages)[1]).id, item.name)
    assert {"messages": messages} == returned({"messages": messages})


def test_a_deprecated_call_may_stand_beside_usual_ones_and_may_have_an_id() -> None:
    items = items_of(assistant(content="a", tool_calls=[CALL], function_call={"name": "g", "arguments": "", "id": "i"}))
    assert ["c1", "i"] == [item.id for item in items[1:]]


def test_calls_and_results_without_ids_stay_without() -> None:
    call = {"type": "function", "function": {"name": "f", "arguments": "{}"}}
    items = items_of(assistant(content=None, tool_calls=[call]), {"role": "tool", "content": "r"})
    assert [(None, "f"), (None, "f")] == [(item.id, item.name) for item in items]
    items = items_of(assistant(content=None, tool_calls=[CALL]), {"role": "function", "name": "f", "content": "r"})
    assert ["c1", None] == [item.id for item in items]


def test_generated_ids_are_taken_off_and_given_again() -> None:
    call = {**CALL, "id": "call_auto_001"}
    items = items_of(assistant(content=None, tool_calls=[call]), {**ANSWER, "tool_call_id": "call_auto_001"})
    assert [None, None] == [item.id for item in items]
    items_of(assistant(content=None, function_call={"name": "f", "arguments": "{}", "id": "call_auto_001"}))
    assert "call_auto_007" == items_of(assistant(content=None, tool_calls=[{**CALL, "id": "call_auto_007"}]))[0].id


def test_results_without_a_call_and_repeated_ids_are_kept_in_place() -> None:
    items = items_of(ANSWER, assistant(content=None, tool_calls=[CALL, CALL]), {"role": "user", "content": "q"}, ANSWER)
    assert ["c1"] * 4 == [item.id for item in items if not isinstance(item, User)]


@pytest.mark.parametrize(
    ("members", "messages"),
    [({"continue_final_message": True}, {}), ({}, {"prefix": True}), ({"continue_final_message": False}, {})],
)
def test_a_text_to_be_continued_is_open(members: dict[str, Any], messages: dict[str, Any]) -> None:
    body = {"messages": [assistant(content="The answer is (", **messages)], **members}
    assert body == returned(body)
    assert (members.get("continue_final_message", True)) == API.parse_request(body).items[-1].open


# Errors.


@pytest.mark.parametrize(
    ("body", "path"),
    [
        ({}, "$.messages"),
        ({"messages": None}, "$.messages"),
        ({"messages": "hi"}, "$.messages"),
        ({"messages": ["hi"]}, "$.messages[0]"),
        ({"messages": [{"content": "hi"}]}, "$.messages[0].role"),
        ({"messages": [{"role": "user", "content": 5}]}, "$.messages[0].content"),
        ({"messages": [{"role": "user", "content": [{"type": "text"}]}]}, "$.messages[0].content[0].text"),
        ({"messages": [{"role": "user", "content": ["a"]}]}, "$.messages[0].content[0]"),
        ({"messages": [assistant(tool_calls={})]}, "$.messages[0].tool_calls"),
        ({"messages": [assistant(tool_calls=[{**CALL, "function": {"name": "f", "arguments": 1}}])]}, None),
        ({"messages": [assistant(audio="x")]}, "$.messages[0].audio"),
        ({"messages": [], "tools": {}}, "$.tools"),
        ({"messages": [], "tools": [{"type": "function"}]}, "$.tools[0].function"),
        ({"messages": [], "functions": [{}]}, "$.functions[0].name"),
    ],
)
def test_what_cannot_be_read_is_an_error_with_its_path(body: dict[str, Any], path: str | None) -> None:
    with pytest.raises(InvalidRequest) as caught:
        API.parse_request(body)
    assert (path or "$.messages[0].tool_calls[0].function.arguments") == caught.value.path


def test_a_body_with_messages_is_claimed() -> None:
    assert (1, 0) == (API.claims({"messages": json_of([])}), API.claims({"input": json_of("")}))
