"""Owns the unit tests of Messages requests written from elsewhere: what fits, and what is reported."""

from __future__ import annotations

from typing import Any

import pytest

from turnscript.apis.anthropic_messages import AnthropicMessages
from turnscript.core.call_pairing import legal_id, original_id
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
    Refusal,
    Request,
    System,
    Text,
    Thinking,
    Tool,
    ToolCall,
    ToolResult,
    ToolsChange,
    User,
)
from turnscript.core.json_text import json_of

API = AnthropicMessages()
ONE = json_of(1)
SCHEMA = json_of({"type": "object"})
Losses = list[tuple[str, str]]


def written(*items: Item, tools: tuple[Tool, ...] = (), origin: str | None = "another", **flags: Any) -> Any:
    """The body for a conversation from another API, without the invented limit, and the losses as (path, kind)."""
    request = Request(conversation=Conversation(items=list(items), tools=list(tools)), origin=origin)
    rendered = API.render_request(request, **flags)
    value: Any = rendered.value
    value.pop("max_tokens", None)
    return value, [(loss.path, loss.kind) for loss in rendered.losses if loss.path != "$.max_tokens"]


def messages(*items: Item, origin: str | None = "another") -> tuple[Any, Losses]:
    body, losses = written(*items, origin=origin)
    return body["messages"], losses


def part(given: Part, origin: str | None = "another") -> tuple[Any, Losses]:
    """What one part of a user message becomes, and the losses."""
    (message,), losses = messages(User(content=[Text(text="t"), given], at="$.m[0]"), origin=origin)
    return (message["content"][1:] or [None])[0], losses


def tools_of(*tools: Tool, origin: str | None = "another") -> tuple[Any, Losses]:
    body, losses = written(tools=tools, origin=origin)
    return body.get("tools", []), losses


def text(value: str) -> dict[str, str]:
    return {"type": "text", "text": value}


def system(value: str, at: str = "", **fields: Any) -> System:
    return System(content=[Text(text=value)], at=at, **fields)


def user(value: str, **fields: Any) -> User:
    return User(content=[Text(text=value)], **fields)


# System.


def test_several_system_texts_are_joined_by_blank_lines_and_each_is_listed() -> None:
    body, losses = written(system("a", "$.messages[0]"), system("b", "$.messages[1]", role="developer"))
    assert "a\n\nb" == body["system"]
    assert [
        ("$.messages[1].role", "renamed"),
        ("$.messages[0]", "approximated"),
        ("$.messages[1]", "approximated"),
    ] == losses


def test_system_blocks_keep_several_system_texts_apart() -> None:
    body, losses = written(system("a"), system("b"), system="blocks")
    assert ([text("a"), text("b")], []) == (body["system"], losses)


def test_a_system_text_of_several_parts_becomes_blocks() -> None:
    item = System(content=[Text(text="a"), Text(text="b")], at="$.messages[0]")
    body, losses = written(item)
    assert ([text("a"), text("b")], [("$.messages[0]", "approximated")]) == (body["system"], losses)


def test_a_system_text_made_by_hand_keeps_its_members() -> None:
    item = System(content=[Text(text="a", extra={"cache_control": ONE})], extra={"x": ONE})
    body, losses = written(item, origin=None)
    assert ([{**text("a"), "cache_control": 1, "x": 1}], []) == (body["system"], losses)


def test_a_later_system_text_becomes_a_message_or_is_hoisted() -> None:
    items = (system("a"), user("q"), system("b", "$.messages[2]"))
    body, losses = written(*items)
    assert ("a", {"role": "system", "content": [text("b")]}, []) == (body["system"], body["messages"][1], losses)
    body, losses = written(*items, mid_system="hoist")
    assert ("a\n\nb", 1) == (body["system"], len(body["messages"]))
    assert ("$.messages[2]", "moved") in losses


def test_what_is_no_text_has_no_place_in_a_system_text() -> None:
    item = System(content=[Text(text="a"), Image(url="u")], at="$.input[0]", name="n", id="i")
    body, losses = written(item)
    assert ["$.input[0].name", "$.input[0].id", "$.input[0].content[1]"] == [path for path, _ in losses[:3]]
    assert "a" == body["system"]
    body, losses = written(user("q"), System(at="$.input[1]"))
    assert (1, [("$.input[1]", "dropped")]) == (len(body["messages"]), losses)


# Turns.


def test_an_empty_text_next_to_something_else_is_dropped() -> None:
    call = ToolCall(name="f", id="c")
    (message,), losses = messages(Assistant(content=[Text(text="")], at="$.messages[0]"), call)
    assert (["tool_use"], [("$.messages[0].content[0]", "dropped")]) == (
        [block["type"] for block in message["content"]],
        losses,
    )
    (message,), losses = messages(User(content=[Text(text=""), Text(text="a")], at="$.messages[0]"))
    assert ([text("a")], [("$.messages[0].content[0]", "dropped")]) == (message["content"], losses)
    (message,), losses = messages(Assistant(at="$.messages[0]"), call)
    assert [("$.messages[0].content", "dropped")] == losses


def test_an_empty_text_alone_is_dropped_with_its_message() -> None:
    """Upstreams refuse an empty text block (apis B4, opencode#24087)."""
    for item in (User, Assistant):
        empty = item(content=[Text(text="")], at="$.messages[0]")
        assert ([], [("$.messages[0].content[0]", "dropped"), ("$.messages[0]", "dropped")]) == messages(empty)
    assert ([], [("$.messages[0]", "dropped")]) == messages(Assistant(at="$.messages[0]"))
    refused = Assistant(content=[Refusal(text="")], at="$.messages[0]")
    assert ("$.messages[0].content[0]", "dropped") in messages(refused)[1]


def test_an_empty_text_of_a_result_is_dropped_but_for_an_empty_string() -> None:
    empty = Text(text="")
    (message,), losses = messages(ToolResult(id="c", content=[empty, Text(text="a")], at="$.messages[0]"))
    assert ("a", [("$.messages[0].content[0]", "dropped")]) == (message["content"][0]["content"], losses)
    (message,), losses = messages(ToolResult(id="c", content=[empty]))
    assert ("", []) == (message["content"][0]["content"], losses)


def test_an_empty_system_text_is_dropped() -> None:
    body, losses = written(system(""), user("q"), system("", "$.messages[2]"))
    assert (False, 1) == ("system" in body, len(body["messages"]))
    assert {"$.messages[2]"} <= {path for path, kind in losses if kind == "dropped"}


def test_a_text_is_a_block_wherever_it_came_from() -> None:
    for origin in ("elsewhere", None, API.origin):
        assert [text("q")] == messages(user("q"), origin=origin)[0][0]["content"]


def test_members_and_fields_without_a_place_are_listed() -> None:
    item = Assistant(
        content=[Text(text="a", extra={"annotations": ONE})],
        at="$.input[0]",
        name="n",
        id="i",
        phase="commentary",
        extra={"status": ONE},
        envelope={"z": ONE},
    )
    _, losses = messages(item)
    assert [
        "$.input[0]",
        "$.input[0].content[0].annotations",
        "$.input[0].id",
        "$.input[0].name",
        "$.input[0].phase",
        "$.input[0].status",
        "$.input[0].z",
    ] == sorted(path for path, _ in losses)


def test_results_come_directly_after_the_calls_that_they_answer() -> None:
    calls = (ToolCall(name="f", id="a"), ToolCall(name="f", id="b"))
    results = (ToolResult(id="b"), ToolResult(id="a", at="$.input[4]"), ToolResult(id="other", at="$.input[5]"))
    body, losses = messages(*calls, results[0], user("wait"), results[1], results[2])
    assert ["b", "a"] == [block["tool_use_id"] for block in body[1]["content"]]
    assert [["tool_result", "tool_result"], ["text"], ["tool_result"]] == [
        [block["type"] for block in message["content"]] for message in body[1:]
    ]
    assert [("$.input[4]", "moved")] == losses


def test_opaque_items_of_another_api_are_dropped_and_part_nothing() -> None:
    opaque = Opaque(type="reference", value=json_of({"type": "reference"}), at="$.input[1]")
    body, losses = messages(ToolCall(name="f", id="a"), opaque, ToolCall(name="f", id="b"))
    assert (1, [("$.input[1]", "dropped")]) == (len(body), losses)


def test_opaque_blocks_made_by_hand_are_written() -> None:
    value = {"type": "server_tool_use", "id": "s"}
    opaque = Opaque(type="server_tool_use", value=json_of(value), role="assistant", turn="join")
    body, losses = messages(Assistant(content=[Text(text="a")]), opaque, origin=None)
    assert ([text("a"), value], []) == (body[0]["content"], losses)


# Parts.


@pytest.mark.parametrize(
    ("given", "block", "losses"),
    [
        (Image(url="u", detail="low"), {"source": {"type": "url", "url": "u"}}, [(".detail", "dropped")]),
        (
            Image(data="d", media_type="image/gif"),
            {"source": {"type": "base64", "media_type": "image/gif", "data": "d"}},
            [],
        ),
        (
            Image(data="d", url="u"),
            {"source": {"type": "base64", "media_type": "image/png", "data": "d"}},
            [(".url", "dropped"), ("", "invented")],
        ),
        (Image(file_id="f"), {"source": {"type": "file", "file_id": "f"}}, [("", "approximated")]),
        (Image(), None, [("", "dropped")]),
        (
            Image(url="u", media_type="m", extra={"x": ONE}),
            {"source": {"type": "url", "url": "u"}},
            [("", "dropped"), (".x", "dropped")],
        ),
    ],
)
def test_images_are_written_by_what_they_have(given: Image, block: Any, losses: Losses) -> None:
    expected = None if block is None else {"type": "image", **block}
    assert (expected, [(f"$.m[0].content[1]{path}", kind) for path, kind in losses]) == part(given)


def test_a_file_id_made_by_hand_is_sent() -> None:
    assert ({"type": "image", "source": {"type": "file", "file_id": "f"}}, []) == part(Image(file_id="f"), origin=None)


def test_the_file_name_of_a_document_becomes_its_title() -> None:
    block, losses = part(Document(data="d", media_type="application/pdf", filename="a.pdf"))
    assert ("a.pdf", [("$.m[0].content[1].filename", "renamed")]) == (block["title"], losses)
    block, losses = part(Document(url="u", filename="a.pdf", title="t", context="c"))
    assert ("t", "c", [("$.m[0].content[1].filename", "dropped")]) == (block["title"], block["context"], losses)


def test_documents_of_text_or_of_nothing() -> None:
    source = {"type": "text", "media_type": "text/plain", "data": "abc"}
    assert ({"type": "document", "source": source}, []) == part(Document(text="abc"))
    assert (None, [("$.m[0].content[1]", "dropped")]) == part(Document())


def test_a_text_that_came_as_bytes_is_a_text() -> None:
    """Bytes are taken of PDF alone."""
    source = {"type": "text", "media_type": "text/plain", "data": "Hé"}
    lost = [("$.m[0].content[1].data", "renamed")]
    assert ({"type": "document", "source": source}, lost) == part(Document(data="SMOp", media_type="text/plain"))
    assert [("$.m[0].content[1]", "approximated")] == part(Document(data="SMOp", media_type="text/csv"))[1]
    for data in ("SOk=", "?"):  # no UTF-8, and no base64
        bytes_ = {"type": "base64", "media_type": "text/plain", "data": data}
        assert bytes_ == part(Document(data=data, media_type="text/plain"))[0]["source"]


def test_a_refusal_becomes_text_and_sound_and_unknown_parts_are_dropped() -> None:
    assert (text("no"), [("$.m[0].content[1]", "approximated")]) == part(Refusal(text="no"))
    assert (None, [("$.m[0].content[1]", "dropped")]) == part(Audio(data="d", format="wav"))
    raw = Raw(type="video", value=json_of({"type": "video"}))
    assert (None, [("$.m[0].content[1]", "dropped")]) == part(raw)
    assert ({"type": "video"}, []) == part(raw, origin=None)


# Thinking.


def thought(item: Thinking, origin: str | None = "another") -> tuple[Any, Losses]:
    item.at = "$.input[0]"
    found, losses = messages(item, origin=origin)
    return (found[0]["content"][0] if found else None), losses


def test_proofs_are_never_sent_to_another_api() -> None:
    item = Thinking(content=[Text(text="t")], signature="s", encrypted="e", id="i")
    assert {"type": "thinking", "thinking": "t", "signature": ""} == thought(item)[0]
    assert ["$.input[0].encrypted", "$.input[0].id", "$.input[0].signature"] == sorted(
        path for path, _ in thought(item)[1]
    )


def test_a_thought_without_text_is_dropped() -> None:
    for item in (Thinking(redacted="d"), Thinking(encrypted="e"), Thinking(content=[Text(text="")])):
        block, losses = thought(item)
        assert block is None
        assert ("$.input[0]", "dropped") == losses[-1]
    assert ({"type": "redacted_thinking", "data": "d"}, []) == thought(Thinking(redacted="d"), origin=None)


def test_a_summary_stands_for_a_thought_without_text() -> None:
    summary: list[Part] = [Text(text="a"), Text(text="b")]
    block, losses = thought(Thinking(summary=summary))
    assert ("a\n\nb", [("$.input[0].summary", "approximated")]) == (block["thinking"], losses)
    block, losses = thought(Thinking(content=[Text(text="t")], summary=summary))
    assert ("t", [("$.input[0].summary", "dropped")]) == (block["thinking"], losses)


def test_other_kinds_and_several_texts_of_a_thought_are_approximated() -> None:
    item = Thinking(content=[Text(text="a", extra={"x": ONE}), Text(text="b")], of="reflect")
    block, losses = thought(item)
    assert ("ab", ["approximated", "approximated", "dropped"]) == (block["thinking"], [kind for _, kind in losses])


# Calls, results and tools.


@pytest.mark.parametrize(
    ("call", "name", "given", "losses"),
    [
        (ToolCall(name="f", arguments='{"a":1.0}'), "f", {"a": 1.0}, []),
        (ToolCall(name="f", arguments=" {} "), "f", {}, ["approximated"]),
        (ToolCall(name="f", arguments='{"a":'), "f", {"input": '{"a":'}, ["approximated"]),
        (ToolCall(name="f", arguments="[1]"), "f", {"input": "[1]"}, ["approximated"]),
        (ToolCall(name="f", arguments="{}", custom=True), "f", {"input": "{}"}, ["approximated"]),
        (ToolCall(name="f", namespace="n"), "n__f", {}, ["renamed"]),
        (ToolCall(name="f", item_id="fc"), "f", {}, ["dropped"]),
    ],
)
def test_calls_are_written_with_an_object(call: ToolCall, name: str, given: Any, losses: list[str]) -> None:
    call.id = "c"
    (message,), found = messages(call)
    (block,) = message["content"]
    assert (name, given, losses) == (block["name"], block["input"], [kind for _, kind in found])


def test_the_white_space_around_arguments_is_told_and_not_sent() -> None:
    call = ToolCall(name="f", arguments=' {"a": 1.0}\n', id="c")
    rendered = API.render_request(Request(conversation=Conversation([call]), origin="another"))
    assert b'"input":{"a": 1.0}}' in rendered.data


@pytest.mark.parametrize(
    ("id_", "legal"),
    [
        ("toolu_01-A", "toolu_01-A"),
        ("call:1", "call-x3a-1"),
        ("call-x3a-1", "call-x2d-x3a-1"),
        ("", "-x-"),
        ("-x-", "-x2d-x-"),
        ("é ", "-xe9--x20-"),
        ("-x3a:", "-x2d-x3a-x3a-"),
    ],
)
def test_ids_are_put_into_the_allowed_characters_and_stay_distinct(id_: str, legal: str) -> None:
    assert legal == legal_id(id_)
    if id_ and id_.isascii() and id_.isprintable():
        assert id_ == original_id(legal)


def test_a_renamed_id_still_pairs_a_call_with_its_result() -> None:
    body, losses = messages(ToolCall(name="f", id="a b", at="$.x"), ToolResult(id="a b", name="f", at="$.y"))
    assert body[0]["content"][0]["id"] == body[1]["content"][0]["tool_use_id"] == "a-x20-b"
    assert [("$.x", "renamed"), ("$.y", "renamed")] == losses


def test_a_result_without_an_id_gets_that_of_its_call() -> None:
    body, losses = messages(ToolCall(name="f", id="c"), ToolResult(name="f", at="$.input[1]"))
    assert ("c", [("$.input[1]", "invented")]) == (body[1]["content"][0]["tool_use_id"], losses)


def test_what_a_result_cannot_say_is_listed() -> None:
    result = ToolResult(
        id="c", name="stranger", status="incomplete", item_id="o", namespace="n", custom=True, at="$.input[0]"
    )
    (message,), losses = messages(result)
    assert [{"type": "tool_result", "tool_use_id": "c", "content": []}] == message["content"]
    assert [
        ("$.input[0].custom", "approximated"),
        ("$.input[0].item_id", "dropped"),
        ("$.input[0].name", "dropped"),
        ("$.input[0].namespace", "dropped"),
        ("$.input[0].status", "dropped"),
    ] == sorted(losses)


def test_parts_of_a_result_are_written_as_blocks_and_listed_at_their_place() -> None:
    result = ToolResult(id="c", content=[Text(text="r"), Audio(data="d")], at="$.input[1]")
    (message,), losses = messages(result)
    assert ("r", [("$.input[1].output[1]", "dropped")]) == (message["content"][0]["content"], losses)


def test_custom_tools_become_functions_of_one_string() -> None:
    (tool,), losses = tools_of(Tool(name="p", type="custom", description="d", format=json_of({"type": "grammar"})))
    assert {"name", "description", "input_schema"} == set(tool)
    assert ["input"] == tool["input_schema"]["required"]
    assert [("$.tools[0]", "approximated"), ("$.tools[0].format", "dropped")] == losses


def test_namespaces_are_flattened() -> None:
    inner = [Tool(name="a", parameters=SCHEMA), Tool(name="b", type="custom")]
    tools, losses = tools_of(Tool(name="n", type="namespace", description="d", tools=inner, extra={"x": ONE}))
    assert ["n__a", "n__b"] == [tool["name"] for tool in tools]
    assert ["", ".description", ".x", ".tools[1]"] == [path.removeprefix("$.tools[0]") for path, _ in losses]
    assert [("$.tools[0]", "renamed")] == tools_of(Tool(name="n", type="namespace", tools=inner[:1]))[1]


def test_tools_that_another_api_runs_are_dropped_and_those_made_by_hand_are_not() -> None:
    tool = Tool(name="web_search", type="web_search_20250305", strict=True, envelope={"x": ONE})
    assert ([], [("$.tools[0]", "dropped")]) == tools_of(tool)
    assert ({"type": tool.type, "name": tool.name, "strict": True, "x": 1}, []) == (
        tools_of(tool, origin=None)[0][0],
        tools_of(tool, origin=None)[1],
    )


def test_a_schema_is_invented_and_a_tool_without_a_name_is_dropped() -> None:
    tools, losses = tools_of(Tool(name="f"), Tool(name=None))
    assert [{"name": "f", "input_schema": {"type": "object"}}] == tools
    assert [("$.tools[0]", "invented"), ("$.tools[1]", "dropped")] == losses
    by_hand, losses = tools_of(Tool(name="f"), origin=None)
    assert [{"name": "f", "input_schema": {"type": "object"}}] == by_hand
    assert [("$.tools[0]", "invented")] == losses


def test_tools_that_come_later_are_offered_from_the_start() -> None:
    tools = (Tool(name="f", parameters=SCHEMA), Tool(name="g", parameters=SCHEMA), Tool(name=None))
    change = ToolsChange(added=list(tools), removed=["h"], at="$.input[2]")
    body, losses = written(user("q"), change, ToolsChange(at="$.input[3]"), tools=tools[:1])
    assert ["f", "g"] == [tool["name"] for tool in body["tools"]]
    assert [
        ("$.input[2].tools[0]", "dropped"),
        ("$.input[2].tools[1]", "moved"),
        ("$.input[2].tools[2]", "moved"),
        ("$.input[2].tools[2]", "dropped"),
        ("$.input[2]", "dropped"),
        ("$.input[3]", "dropped"),
    ] == losses


# The profile of the seed.


def test_the_seed_profile_joins_every_system_text_and_every_text_of_a_result() -> None:
    """R-U-28: several system texts are joined by a blank line."""
    result = ToolResult(id="c", content=[Text(text="a"), Text(text="b")])
    marked = System(content=[Text(text="s", extra={"x": ONE}), Raw(type="r", value=json_of({"type": "r"}))])
    body, losses = written(marked, user("q"), system("t"), result, profile="seed")
    assert "s\n\nt" == body["system"]
    assert ([text("q")], "ab") == (body["messages"][0]["content"], body["messages"][1]["content"][0]["content"])
    assert {"items[0]", "items[0].content[0].x", "items[0].content[1]", "items[2]", "items[3]"} == {
        path for path, _ in losses
    }
    body, losses = written(marked, origin=None, profile="seed")
    assert ("s", {"items[0].content[0].x", "items[0].content[1]"}) == (body["system"], {path for path, _ in losses})


def test_unnamed_members_of_tools_that_come_later_are_reported() -> None:
    change = ToolsChange(added=[Tool(name="f", parameters=SCHEMA)], extra={"id": ONE, "x": ONE}, at="$.input[1]")
    _, losses = written(User(content=[Text(text="q")]), change)
    assert {("$.input[1].id", "dropped"), ("$.input[1].x", "dropped")} <= set(losses)


# The end.


def test_a_last_text_that_would_be_gone_on_with_is_named_though_an_empty_message_follows_it() -> None:
    said = Assistant(content=[Text(text="a")], at="$.messages[0]")
    (_,), losses = messages(said, Assistant(content=[], at="$.messages[1]"))
    assert [("$.messages[1]", "dropped"), ("$.messages[0]", "approximated")] == losses


@pytest.mark.parametrize("gone", [Audio(id="a"), Text(text="")])
def test_a_last_text_is_named_though_an_answer_of_which_nothing_is_left_follows_it(gone: Part) -> None:
    said = Assistant(content=[Text(text="a")], at="$.messages[0]")
    (_,), losses = messages(said, Assistant(content=[gone], at="$.messages[1]"))
    assert [path for path, kind in losses if kind == "approximated"] == ["$.messages[0]"]


def test_an_answer_that_ends_with_a_file_is_not_gone_on_with() -> None:
    """Neither where it is written nor where it is read, or they would tell different things of one body."""
    said = Assistant(content=[Text(text="a"), Document(url="https://a/b")], at="$.input[0]")
    body, losses = written(said)
    assert [] == losses
    (again,) = API.parse_request({"model": "m", "max_tokens": 1, **body}).items
    assert said == again
