"""Owns the unit tests of legacy completions: a prompt is one user text, and a conversation is more than a prompt."""

from __future__ import annotations

from typing import Any

import pytest

import turnscript as ts
from turnscript.apis.openai_completions import OpenAICompletions
from turnscript.core.conversation import (
    Assistant,
    Conversation,
    Image,
    Item,
    Request,
    Settings,
    System,
    Text,
    Tool,
    ToolCall,
    User,
)
from turnscript.core.errors import InvalidRequest
from turnscript.core.json_text import json_of, plain

API = OpenAICompletions()


def request_of(**body: Any) -> Request:
    """The request of a body, which must come back as it was."""
    rendered = API.render_request(API.parse_request(body))
    assert [] == rendered.losses
    assert body == rendered.value
    return API.parse_request(body)


def foreign(*items: Item, tools: Any = (), **settings: Any) -> tuple[Any, list[tuple[str, str]]]:
    """The body of a request from elsewhere, and its losses."""
    for index, item in enumerate(items):
        item.at = f"$.messages[{index}]"
    conversation = Conversation(items=list(items), tools=list(tools))
    rendered = API.render_request(Request(conversation=conversation, settings=Settings(**settings), origin="elsewhere"))
    return rendered.value, [(loss.path, loss.kind) for loss in rendered.losses]


# The prompt.


def test_a_prompt_is_one_user_text() -> None:
    """R-U-37."""
    (item,) = request_of(model="m", prompt="Once upon ").items
    assert ("$.prompt", User(content=[Text(text="Once upon ")])) == (item.at, item)


def test_a_list_of_one_prompt_is_the_same_in_another_shape() -> None:
    (item,) = request_of(prompt=["a"]).items
    assert isinstance(item, User)
    assert User(content=[Text(text="a")]) == item


def test_an_extension_puts_a_system_text_before_it() -> None:
    """R-U-37, D-U-22."""
    items = request_of(system="Be brief.", prompt="q").items
    assert [System(content=[Text(text="Be brief.")]), User(content=[Text(text="q")])] == items
    request = Request(conversation=Conversation(items=items))
    assert b'{"system":"Be brief.","prompt":"q"}' == API.render_request(request, strict=True).data


@pytest.mark.parametrize("prompt", [["a", "b"], [1, 2], [[1], [2]], [], None, 5, {"id": "pmpt_1"}])
def test_a_prompt_that_is_not_one_text_is_kept_as_it_is(prompt: Any) -> None:
    request = request_of(prompt=prompt)
    assert ([], {"prompt": prompt}) == (request.items, {key: plain(value) for key, value in request.extra.items()})


@pytest.mark.parametrize("system", [["a"], None, 5])
def test_a_system_text_that_is_none_is_kept_as_it_is(system: Any) -> None:
    assert {"system"} == set(request_of(system=system, prompt="q").extra)


def test_a_body_without_a_prompt_comes_back_without_one() -> None:
    assert [] == request_of(model="m").items


# Settings.

PLAIN: dict[str, Any] = {
    "model": "m",
    "max_tokens": 16,
    "temperature": 0.5,
    "top_p": 1,
    "n": 2,
    "stream": True,
    "stream_options": {"include_usage": True},
    "seed": 7,
    "presence_penalty": -1.5,
    "frequency_penalty": 0,
    "logit_bias": {"50256": -100},
    "user": "u",
}


@pytest.mark.parametrize("key", PLAIN)
def test_a_setting_of_the_same_name_is_typed(key: str) -> None:
    found = getattr(request_of(prompt="q", **{key: PLAIN[key]}).settings, key)
    assert PLAIN[key] == (plain(found) if isinstance(PLAIN[key], dict) else found)


@pytest.mark.parametrize("key", ["suffix", "echo", "best_of", "grammar", "logprobs", "stop"])
def test_a_member_without_a_name_or_a_value_stays_unnamed(key: str) -> None:
    value = None if key in ("logprobs", "stop") else {"a": 1.0}
    assert {key} == set(request_of(prompt="q", **{key: value}).extra)


def test_stop_is_a_string_or_a_list() -> None:
    assert ["a"] == request_of(prompt="q", stop="a").settings.stop
    assert ["a", "b"] == request_of(prompt="q", stop=["a", "b"]).settings.stop
    assert ["a"] == foreign(User(content=[Text(text="q")]), stop=["a"])[0]["stop"]


def test_logprobs_is_a_number_here() -> None:
    settings = request_of(prompt="q", logprobs=3).settings
    assert (True, 3) == (settings.logprobs, settings.top_logprobs)
    assert 0 == request_of(prompt="q", logprobs=0).settings.top_logprobs


@pytest.mark.parametrize(
    ("settings", "value", "losses"),
    [
        ({"logprobs": True, "top_logprobs": 2}, 2, []),
        ({"logprobs": True}, 0, [("$.logprobs", "approximated")]),
        ({"logprobs": False}, None, [("$.logprobs", "dropped")]),
        ({"top_logprobs": 2}, None, [("$.top_logprobs", "dropped")]),
    ],
)
def test_logprobs_of_other_apis(settings: dict[str, Any], value: int | None, losses: Any) -> None:
    body, found = foreign(User(content=[Text(text="q")]), **settings)
    assert (value, losses) == (body.get("logprobs"), found)


@pytest.mark.parametrize(
    ("members", "path"),
    [({"logprobs": True}, "$.logprobs"), ({"stop": {}}, "$.stop"), ({"stream_options": 7}, "$.stream_options")],
)
def test_a_setting_of_the_wrong_type_is_an_error_with_its_path(members: dict[str, Any], path: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        API.parse_request({"prompt": "q", **members})
    assert path == caught.value.path


# Conversations of other APIs.


def test_one_system_and_one_user_text_are_exact() -> None:
    items: list[Item] = [System(content=[Text(text="s")]), User(content=[Text(text="q")])]
    assert ({"system": "s", "prompt": "q"}, []) == foreign(*items)


def test_every_other_item_and_tool_is_reported() -> None:
    items: list[Item] = [
        User(content=[Text(text="first")]),
        Assistant(content=[Text(text="a")]),
        ToolCall(name="f"),
        User(content=[Text(text="last")]),
        System(content=[Text(text="s")]),
        System(content=[Text(text="t")]),
    ]
    body, losses = foreign(*items, tools=[Tool(name="f")], top_k=1)
    assert {"prompt": "last", "system": "s"} == body
    dropped = {"$.top_k", *(f"$.messages[{index}]" for index in (0, 1, 2, 5)), "$.tools[0]"}
    assert {*((path, "dropped") for path in dropped), ("$.messages[4]", "moved")} == set(losses)


def test_what_stands_beside_an_item_in_its_source_is_reported_with_it() -> None:
    """The blocks of one text are one item, and the name of a message that only calls stands around its calls."""
    blocks = [{"type": "redacted_thinking", "data": "x"}, {"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
    turns = [{"role": "user", "content": "q"}, {"role": "assistant", "content": blocks}]
    losses = ts.convert({"model": "m", "max_tokens": 1, "messages": turns}, "anthropic-messages", API.name).losses
    assert [f"$.messages[1].content[{n}]" for n in range(3)] == [loss.path for loss in losses if "[1]" in loss.path]
    call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    turns[1] = {"role": "assistant", "name": "ada", "tool_calls": [call]}
    losses = ts.convert({"model": "m", "messages": turns}, "openai-chat", API.name).losses
    assert ["$.messages[1].tool_calls[0]", "$.messages[1].name"] == [loss.path for loss in losses]


def test_a_prompt_has_texts_only_and_no_members() -> None:
    texts = [Text(text="a", extra={"x": json_of(1)}), Image(url="u"), Text(text="b")]
    body, losses = foreign(User(content=[*texts], name="al", id="i", open=True, extra={"y": json_of(1)}))
    assert {"prompt": "a\n\nb"} == body
    expected = {"content[0].x", "content[1]", "content", "name", "id", "y"}
    assert expected == {path.removeprefix("$.messages[0].") for path, _ in losses}


def test_texts_that_are_joined_are_named_where_they_stood() -> None:
    result = {"type": "tool_result", "tool_use_id": "a", "content": "x"}
    texts = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
    for content, place in (([result, *texts], "$.messages[0].content[1]"), (texts, "$.messages[0].content")):
        body = {"messages": [{"role": "user", "content": content}], "max_tokens": 9}
        losses = ts.convert(body, "anthropic-messages", "openai-completions").losses
        assert place in [loss.path for loss in losses if loss.kind == "approximated"]


def test_a_system_text_behind_the_prompt_is_written_before_it() -> None:
    said = [{"role": "user", "content": "q"}, {"role": "system", "content": "s"}]
    once = ts.convert({"messages": said}, "openai-chat", API.name)
    assert b'{"system":"s","prompt":"q"}' == once.data
    assert once.data == ts.convert(once.data, API.name, API.name).data


def test_a_developer_is_written_as_the_system() -> None:
    items: list[Item] = [System(content=[Text(text="s")], role="developer"), User(content=[Text(text="q")])]
    assert [("$.messages[0].role", "approximated")] == foreign(*items)[1]


def test_a_conversation_without_a_user_gets_an_empty_prompt() -> None:
    body, losses = foreign(Assistant(content=[Text(text="a")]))
    assert ({"prompt": ""}, [("$.messages[0]", "dropped"), ("$.prompt", "invented")]) == (body, losses)


@pytest.mark.parametrize(
    ("body", "claim"),
    [
        ({"prompt": "q"}, 1),
        ({"prompt": [1]}, 1),
        ({"prompt": {"id": "p"}}, 0),
        ({"prompt": "q", "messages": []}, 0),
        ({"prompt": "q", "input": ""}, 0),
        ({}, 0),
    ],
)
def test_a_body_with_a_text_prompt_is_claimed(body: dict[str, Any], claim: int) -> None:
    assert claim == API.claims({key: json_of(value) for key, value in body.items()})
