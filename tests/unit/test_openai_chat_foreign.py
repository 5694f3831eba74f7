"""Owns the unit tests of Chat bodies written from other requests: how they are arranged, and what is reported."""

from __future__ import annotations

from typing import Any

import pytest

import turnscript as ts
from turnscript.apis.openai_chat import OpenAIChat
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

API = OpenAIChat()
CALL = ToolCall(name="f", id="c1", at="$.call")
RESULT = ToolResult(content=[Text(text="r")], id="c1", name="f", at="$.result")


def say(text: str, at: str = "") -> Any:
    return Assistant(content=[Text(text=text)], at=at)


def ask(text: str, at: str = "") -> Any:
    return User(content=[Text(text=text)], at=at)


def written(*items: Item, profile: str = "official", tools: Any = ()) -> tuple[Any, list[tuple[str, str]]]:
    """The messages (and tools) of a request from elsewhere, and its losses."""
    for index, item in enumerate(items):
        item.at = item.at or f"$[{index}]"
    request = Request(conversation=Conversation(items=list(items), tools=list(tools)), origin="elsewhere")
    rendered = API.render_request(request, profile=profile)
    value: Any = rendered.value
    return value["tools"] if "tools" in value else value["messages"], [
        (loss.path, loss.kind) for loss in rendered.losses
    ]


def part_written(part: Part, item: type[Any] = User) -> tuple[Any, list[str]]:
    """The content of a message with one part, and the kinds of the losses at that part."""
    (message,), losses = written(item(content=[part], at="$.m"))
    assert all(path.startswith("$.m.content[0]") for path, _ in losses)
    return message["content"], [kind for _, kind in losses]


# Order.


def test_one_turn_is_one_message_in_the_apis_order() -> None:
    second = Thinking(content=[Text(text="t2")], turn="join", at="$.t2")
    last = Assistant(content=[Text(text="b")], turn="join", at="$.b")
    (message,), losses = written(Thinking(content=[Text(text="t1")]), say("a"), CALL, second, last)
    call = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    content = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
    expected = {"role": "assistant", "reasoning_content": "t1\n\nt2", "content": content, "tool_calls": [call]}
    assert (expected, [("$.t2", "moved"), ("$.b", "moved")]) == (message, losses)


def test_what_is_joined_is_reported() -> None:
    thought = Thinking(content=[Text(text="t2")], turn="join", at="$.t2")
    joined = Assistant(content=[Text(text="b")], name="bob", turn="join", at="$.b")
    named = Assistant(content=[Text(text="a")], name="al")
    (message,), losses = written(Thinking(content=[Text(text="t1")]), thought, named, joined)
    assert ("t1\n\nt2", "al") == (message["reasoning_content"], message["name"])
    assert [("$.t2", "approximated"), ("$.b", "approximated"), ("$.b.name", "dropped")] == losses


def test_tool_messages_come_right_after_their_call() -> None:
    messages, losses = written(ask("q"), CALL, ask("before", "$.before"), RESULT, ask("after"))
    assert ["user", "assistant", "tool", "user", "user"] == [message["role"] for message in messages]
    assert (["before", "after"], [("$.before", "moved")]) == ([one["content"] for one in messages[3:]], losses)


def test_a_result_that_answers_nothing_before_it_stays_where_it_is() -> None:
    messages, losses = written(ask("q"), RESULT, CALL, ask("p"), ToolResult(content=[Text(text="x")], id="c0"))
    assert ["user", "tool", "assistant", "user", "tool"] == [message["role"] for message in messages]
    assert [("$.result.name", "dropped")] == losses


def test_what_a_tool_message_cannot_hold_follows_in_a_user_message() -> None:
    other = ToolResult(content=[Image(url="https://x/b.png"), Text(text="b")], id="c2", at="$.other")
    items = (CALL, ToolCall(name="g", id="c2"), other, RESULT, ask("q"))
    messages, losses = written(*items)
    assert ["assistant", "tool", "tool", "user", "user"] == [message["role"] for message in messages]
    assert ["b", "r"] == [message["content"] for message in messages[1:3]]
    assert [{"type": "image_url", "image_url": {"url": "https://x/b.png"}}] == messages[3]["content"]
    assert [("$.other.content[0]", "moved")] == losses


def test_pictures_of_a_result_without_a_call_follow_it_too() -> None:
    found = [Image(url="u"), Image(file_id="i"), Raw(type="tool_reference", value=json_of({}))]
    messages, losses = written(ToolResult(content=[*found], id="c9"), ask("q"))
    assert ["tool", "user", "user"] == [message["role"] for message in messages]
    assert [{"type": "image_url", "image_url": {"url": "u"}}] == messages[1]["content"]
    assert ["dropped", "moved", "dropped"] == [kind for _, kind in losses]


# Items.


def test_members_that_no_message_has_are_reported() -> None:
    items = [
        System(content=[Text(text="s")], id="i", role="developer"),
        User(content=[Text(text="u")], id="i", extra={"x": json_of(1)}, envelope={"y": json_of(2)}),
        Assistant(content=[Text(text="a")], id="i", phase="commentary", at="$.input[2].content[1]"),
        ToolCall(name="f", id="c1", item_id="i", namespace="ns", extra={"caller": json_of("x")}),
    ]
    result = ToolResult(content=[Text(text="r")], id="c1", name="f", namespace="ns", status="error", item_id="i")
    messages, losses = written(*items, result)
    assert "ns__f" == messages[2]["tool_calls"][0]["function"]["name"]
    assert {"x", "y"}.isdisjoint(messages[1])
    assert {
        "$[0].id",
        "$[1].id",
        "$[1].x",
        "$[1].y",
        "$.input[2].content[1].id",
        "$.input[2].content[1].phase",
        "$[3].item_id",
        "$[3].namespace",
        "$[3].caller",
        "$[4].status",
        "$[4].item_id",
        "$[4].namespace",
        "$[4].name",
    } == {path for path, _ in losses}


def test_unnamed_members_of_a_message_are_reported_at_the_message() -> None:
    call = ToolCall(name="f", id="c", envelope={"x": json_of(1)}, at="$.messages[3].content[1]")
    assert [("$.messages[3].x", "dropped")] == written(call)[1]


def test_proofs_are_not_sent() -> None:
    thought = Thinking(content=[Text(text="t")], signature="s", encrypted="e", id="i", of="reflect", at="$.t")
    (message,), losses = written(thought, say("a"))
    assert "t" == message["reasoning_content"]
    assert {"signature", "encrypted", "id", "kind"} == {path.removeprefix("$.t.") for path, _ in losses}
    assert ([], [("$.t.redacted", "dropped"), ("$.t", "dropped")]) == written(Thinking(redacted="x", at="$.t"))


def test_a_summary_stands_in_for_thinking_that_is_not_there() -> None:
    summary: list[Part] = [Text(text="s1"), Text(text="s2")]
    (message,), losses = written(Thinking(summary=summary, at="$.t"))
    assert ("s1\n\ns2", None, [("$.t.summary", "approximated")]) == (
        message["reasoning_content"],
        message["content"],
        losses,
    )
    thought = Thinking(content=[Text(text="t"), Raw(type="x", value=json_of({}))], summary=summary, at="$.t")
    (message,), losses = written(thought)
    assert ("t", [("$.t.content[1]", "dropped"), ("$.t.summary", "dropped")]) == (message["reasoning_content"], losses)
    (message,), losses = written(Thinking(content=summary, at="$.t"))
    assert ("s1\n\ns2", [("$.t.content", "approximated")]) == (message["reasoning_content"], losses)


def test_what_only_its_own_api_knows_is_dropped() -> None:
    blocks = [Opaque(type="hologram", value=json_of({}), role=role) for role in ("assistant", "user", "")]
    messages, losses = written(say("a"), *blocks)
    assert ([{"role": "assistant", "content": "a"}], ["dropped"] * 3) == (messages, [kind for _, kind in losses])


def test_ids_are_generated_where_they_are_needed() -> None:
    call, result = ToolCall(name="f"), ToolResult(content=[Text(text="r")], name="f")
    messages, losses = written(call, result)
    assert "call_auto_001" == messages[0]["tool_calls"][0]["id"] == messages[1]["tool_call_id"]
    assert [] == losses
    orphan = ToolResult(content=[Text(text="r")], name="g")
    assert ([{"role": "function", "name": "g", "content": "r"}], []) == written(orphan)


def test_whether_a_result_is_of_free_text_follows_from_its_call() -> None:
    sh = ToolCall(name="sh", arguments="ls", id="c", custom=True)
    assert [] == written(sh, ToolResult(content=[Text(text="r")], id="c", name="sh", custom=True))[1]
    assert ["approximated"] == [kind for _, kind in written(sh, ToolResult(content=[Text(text="r")], id="c"))[1]]


def test_what_is_not_finished_is_reported() -> None:
    items = [
        ask("q"),
        Assistant(content=[Text(text="The")], open=True, at="$.a"),
        ToolCall(name="f", id="c", open=True, at="$.c"),
    ]
    assert [("$.a", "approximated"), ("$.c", "approximated")] == written(*items)[1]


@pytest.mark.parametrize("item", [User(at="$.m"), System(at="$.m"), Assistant(at="$.m"), ToolResult(id="c", at="$.m")])
def test_a_content_without_parts_is_an_empty_text(item: Item) -> None:
    (message,), losses = written(item)
    assert ("", [("$.m.content", "approximated")]) == (message["content"], losses)


# Parts.


@pytest.mark.parametrize(
    ("part", "content", "kinds"),
    [
        (Text(text="a", extra={"cache_control": json_of({})}), "a", ["dropped"]),
        (Image(media_type="image/gif", data="R0"), {"image_url": {"url": "data:image/gif;base64,R0"}}, []),
        (Image(data="R0"), {"image_url": {"url": "data:image/png;base64,R0"}}, ["invented"]),
        (Image(url="u", detail="low"), {"image_url": {"url": "u", "detail": "low"}}, []),
        (Image(file_id="f"), "", ["dropped"]),
        (Audio(data="U", format="mp3"), {"input_audio": {"data": "U", "format": "mp3"}}, []),
        (Audio(id="au"), "", ["dropped"]),
        (Document(data="J", media_type="a/b"), {"file": {"file_data": "data:a/b;base64,J"}}, []),
        (Document(data="J", title="T"), {"file": {"file_data": "J", "filename": "T"}}, ["renamed"]),
        (Document(data="J", filename="n", title="T"), {"file": {"file_data": "J", "filename": "n"}}, ["dropped"]),
        (Document(file_id="f", context="c"), {"file": {"file_id": "f"}}, ["approximated", "dropped"]),
        (Document(url="u"), "", ["dropped"]),
        (Document(url="u", file_id="f"), {"file": {"file_id": "f"}}, ["approximated", "dropped"]),
        (Document(), "", ["dropped"]),
        (Document(text="plain", title="T"), "plain", ["approximated", "dropped"]),
        (Document(text="plain", extra={"citations": json_of({})}), "plain", ["approximated", "dropped"]),
        (Refusal(text="no"), "", ["dropped"]),
        (Raw(type="x", value=json_of({})), "", ["dropped"]),
    ],
)  # fmt: skip
def test_a_part_of_a_user_message(part: Part, content: Any, kinds: list[str]) -> None:
    found, losses = part_written(part)
    if isinstance(found, list):
        (found,) = found
        del found["type"]
    assert (content, kinds) == (found, losses)


def test_what_a_text_document_says_beside_its_text_is_listed() -> None:
    document = Document(text="a", media_type="text/plain", title="t", context="c", filename="f")
    _, losses = written(User(content=[document], at="$.m"))
    dropped = [f"$.m.content[0].{name}" for name in ("title", "context", "filename")]
    assert dropped == [path for path, kind in losses if kind == "dropped"]


def test_system_and_assistant_messages_hold_text_only() -> None:
    assert ("", ["dropped"]) == part_written(Image(url="u"), System)
    assert ("", ["dropped"]) == part_written(Image(url="u"), Assistant)
    assert ([{"type": "refusal", "refusal": "no"}], []) == part_written(Refusal(text="no"), Assistant)


def test_a_search_result_is_written_as_its_text() -> None:
    found = {
        "type": "search_result",
        "source": "https://x",
        "title": "T",
        "content": [{"type": "text", "text": "a"}, 5],
    }
    assert ("T\n\nhttps://x\n\na", ["approximated"]) == part_written(Raw(type="search_result", value=json_of(found)))
    assert ("", ["dropped"]) == part_written(Raw(type="search_result", value=json_of([])))


def test_a_request_built_by_hand_keeps_members_that_it_was_given() -> None:
    user = User(content=[Text(text="a", extra={"cache_control": json_of({})})], extra={"x": json_of(1)})
    rendered = API.render_request(Request(conversation=Conversation(items=[user])))
    part = {"type": "text", "text": "a", "cache_control": {}}
    assert ({"messages": [{"role": "user", "content": [part], "x": 1}]}, []) == (rendered.value, rendered.losses)


def test_losses_of_a_request_built_by_hand_name_the_item() -> None:
    items: list[Item] = [ask("q"), Assistant(id="i", content=[Text(text="a")])]
    rendered = API.render_request(Request(conversation=Conversation(items=items)))
    assert ["items[1].id"] == [loss.path for loss in rendered.losses]


# Tools.


def test_tools_of_other_kinds() -> None:
    inner = [Tool(name="f"), Tool(name="sh", type="custom", description="d", format=json_of({"type": "text"}))]
    space = Tool(name="ns", type="namespace", description="d", tools=inner, extra={"x": json_of(1)})
    tools, losses = written(tools=[space, Tool(type="file_search"), Tool(name="g", envelope={"y": json_of(2)})])
    assert [
        {"type": "function", "function": {"name": "ns__f"}},
        {"type": "custom", "custom": {"name": "ns__sh", "description": "d", "format": {"type": "text"}}},
        {"type": "function", "function": {"name": "g"}},
    ] == tools
    assert [
        ("$.tools[0]", "renamed"),
        ("$.tools[0].description", "dropped"),
        ("$.tools[0].x", "dropped"),
        ("$.tools[1]", "dropped"),
        ("$.tools[2].y", "dropped"),
    ] == losses


def test_a_namespace_built_by_hand_is_opened_too() -> None:
    space = Tool(name="ns", type="namespace", tools=[Tool(name="f")])
    value: Any = API.render_request(Request(conversation=Conversation(tools=[space]))).value
    assert ["ns__f"] == [tool["function"]["name"] for tool in value["tools"]]
    own: Any = API.render_request(Request(conversation=Conversation(tools=[Tool(type="web_search", name="w")]))).value
    assert [{"type": "web_search", "name": "w"}] == own["tools"]


def test_tools_that_change_on_the_way_are_those_of_the_end() -> None:
    change = ToolsChange(added=[Tool(name="b"), Tool(name="c", description="new")], removed=["a"], at="$.change")
    tools, losses = written(change, tools=[Tool(name="a"), Tool(name="c"), Tool(name="d")])
    assert ["d", "b", "c"] == [tool["function"]["name"] for tool in tools]
    assert {("$.change", "moved"), ("$.tools[0]", "dropped"), ("$.tools[1]", "dropped")} == set(losses)


# The seed profile.


def test_each_call_is_a_message_of_its_own_in_the_seed_profile() -> None:
    custom = ToolCall(name="sh", arguments='"x"', id="c2", custom=True, at="$.sh")
    opaque = Opaque(type="x", value=json_of({}), role="assistant", turn="join", at="$.x")
    messages, losses = written(say("a"), CALL, custom, opaque, RESULT, profile="seed")
    assert ["assistant", "assistant", "assistant", "tool"] == [message["role"] for message in messages]
    assert {"name": "sh", "arguments": '{"input": "\\"x\\""}', "id": "c2"} == messages[2]["function_call"]
    assert ["role", "name", "content", "tool_call_id"] == list(messages[3])
    assert [("$.sh", "approximated"), ("$.x", "dropped")] == losses


# Other APIs, through and through.

MESSAGES, RESPONSES = "anthropic-messages", "openai-responses"


def there_and_back(body: dict[str, Any], api: str) -> tuple[Any, list[str]]:
    """The body after a visit to another API, and the paths lost on the way there."""
    there = ts.convert(body, "openai-chat", api)
    back: Any = ts.convert(there.data, api, "openai-chat").value
    return back, [loss.path for loss in there.losses]


def agent() -> dict[str, Any]:
    """A session with two calls at once, thinking, a picture and a tool."""
    calls = [
        {"id": f"c{n}", "type": "function", "function": {"name": "f", "arguments": f'{{"n": {n}.0}}'}} for n in (1, 2)
    ]
    picture = [
        {"type": "text", "text": "see"},
        {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBO"}},
    ]
    return {
        "model": "m",
        "max_completion_tokens": 100,
        "tool_choice": "auto",
        "messages": [
            {"role": "system", "content": "s"},
            {"role": "user", "content": picture},
            {"role": "assistant", "reasoning_content": "t", "content": "a", "tool_calls": calls},
            {"role": "tool", "tool_call_id": "c1", "content": "1"},
            {"role": "tool", "tool_call_id": "c2", "content": "2"},
            {"role": "user", "content": "go on"},
        ],
        "tools": [{"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}],
    }


@pytest.mark.parametrize("api", [MESSAGES, RESPONSES])
def test_an_ordinary_session_comes_back_whole_from_another_api(api: str) -> None:
    assert (agent(), []) == there_and_back(agent(), api)


def test_text_around_results_in_one_message_of_another_api() -> None:
    use = {"type": "tool_use", "id": "t1", "name": "f", "input": {}}
    result = {"type": "tool_result", "tool_use_id": "t1", "content": "r", "is_error": True}
    text = [{"type": "text", "text": word} for word in ("before", "after")]
    messages = [{"role": "assistant", "content": [use]}, {"role": "user", "content": [text[0], result, text[1]]}]
    rendered = ts.convert({"model": "m", "max_tokens": 9, "messages": messages}, MESSAGES, "openai-chat")
    value: Any = rendered.value
    assert ["r", "before", "after"] == [message["content"] for message in value["messages"][1:]]
    paths = {(loss.path, loss.kind) for loss in rendered.losses}
    assert {("$.messages[1].content[1].is_error", "dropped"), ("$.messages[1]", "moved")} == paths


def test_free_text_calls_and_grammars_pass_between_the_two_apis_that_have_them() -> None:
    grammar = {"type": "grammar", "grammar": {"definition": "start: x", "syntax": "lark"}}
    body = {
        "model": "m",
        "tool_choice": {"type": "allowed_tools", "allowed_tools": {"mode": "required", "tools": [
            {"type": "custom", "custom": {"name": "sh"}},
        ]}},
        "messages": [
            {"role": "assistant", "content": None, "tool_calls": [
                {"id": "c1", "type": "custom", "custom": {"name": "sh", "input": "ls"}},
            ]},
            {"role": "tool", "tool_call_id": "c1", "content": "a.txt"},
        ],
        "tools": [{"type": "custom", "custom": {"name": "sh", "format": grammar}}],
    }  # fmt: skip
    assert (body, []) == there_and_back(body, RESPONSES)


def test_deprecated_functions_reach_other_apis() -> None:
    body = {"model": "m", "messages": [], "functions": [{"name": "f", "parameters": {"type": "object"}}]}
    value: Any = ts.convert(body, "openai-chat", MESSAGES).value
    assert ["f"] == [tool["name"] for tool in value["tools"]]


def test_what_an_image_says_beside_its_url_or_data_is_reported() -> None:
    (message,), losses = written(User(content=[Image(url="http://x/y.png", data="AA==", file_id="file_1")]))
    assert [{"type": "image_url", "image_url": {"url": "http://x/y.png"}}] == message["content"]
    assert [("$[0].content[0].data", "dropped"), ("$[0].content[0].file_id", "dropped")] == losses
    _, losses = written(User(content=[Image(data="AA==", media_type="image/png", file_id="file_1")]))
    assert [("$[0].content[0].file_id", "dropped")] == losses
    part = {"type": "input_image", "image_url": "http://x/y.png", "file_id": "file_1"}
    with pytest.raises(ts.LossyConversion, match="file_id"):
        ts.convert(
            {"model": "m", "input": [{"role": "user", "content": [part]}]}, "openai-responses", API.name, strict=True
        )


def test_a_result_of_no_call_that_stands_before_an_answer_is_moved_behind_it_and_said_so() -> None:
    items: list[Item] = [
        ToolCall(name="f", arguments="{}", id="call_1"),
        ToolResult(content=[Text(text="whose?")], id="call_9"),
        ToolResult(content=[Text(text="22")], id="call_1"),
        ToolResult(content=[Text(text="whose, too?")], id="call_8"),
    ]
    rendered = ts.render(Request(conversation=Conversation(items=items)), "openai-chat")
    messages: Any = rendered.value["messages"]
    assert ["call_1", "call_9", "call_8"] == [message["tool_call_id"] for message in messages[1:]]
    assert [("items[1]", "moved")] == [(loss.path, loss.kind) for loss in rendered.losses if loss.kind == "moved"]
