"""Owns thoughts that stand in a content of Chat Completions, as Mistral's models say them: a thought to everybody, and
the same content where they came from."""

from __future__ import annotations

import json
from typing import Any

import pytest

import turnscript as ts
from tests.chatstream import DONE, STOP, chunk, read, well_formed
from turnscript.core.conversation import Assistant, Raw, Thinking, ToolCall

CHAT = ts.get_api("openai-chat")
CALL = {"id": "c1", "type": "function", "function": {"name": "look", "arguments": "{}"}}
DONE_CALL = {"role": "tool", "tool_call_id": "c1", "content": "ok"}


def text(said: str, **members: Any) -> dict[str, Any]:
    return {"type": "text", "text": said, **members}


def thought(*said: str, **members: Any) -> dict[str, Any]:
    return {"type": "thinking", "thinking": [text(one) for one in said], **members}


REFERENCE = {"type": "reference", "reference_ids": [1]}
CONTENTS: dict[str, list[dict[str, Any]]] = {
    "usual": [thought("hm"), text("Ho")],
    "alone": [thought("hm")],
    "two texts": [thought("h", "m"), text("Ho")],
    "in turns": [thought("hm"), text("Ho"), thought("ha"), text("Hi")],
    "behind": [text("Ho"), thought("hm")],
    "two thoughts": [thought("hm"), thought("ha"), text("Ho")],
    "members": [thought("hm", closed=True), text("Ho")],
    "empty": [thought(), text("Ho")],
    "a reference": [{"type": "thinking", "thinking": [text("hm"), REFERENCE]}, text("Ho")],
}
each = pytest.mark.parametrize("content", CONTENTS.values(), ids=CONTENTS)


def asked(*messages: dict[str, Any]) -> dict[str, Any]:
    return {"model": "m", "messages": [{"role": "user", "content": "Hi"}, *messages]}


def answered(message: dict[str, Any]) -> dict[str, Any]:
    choice = {"index": 0, "message": {"role": "assistant", **message}, "finish_reason": "stop", "logprobs": None}
    return {"id": "c", "object": "chat.completion", "created": 1, "model": "m", "choices": [choice]}


def kinds(items: list[ts.Item]) -> list[str]:
    return [item.kind for item in items]


def thoughts(items: list[ts.Item]) -> list[str]:
    return ["".join(getattr(p, "text", "") for p in item.content) for item in items if isinstance(item, Thinking)]


# Requests.


@each
@pytest.mark.parametrize("calls", [False, True])
@pytest.mark.parametrize("members", [{}, {"name": "n", "refusal": "no", "x": 1}, {"reasoning_content": "first"}])
def test_a_message_comes_back_as_it_was(content: list[Any], calls: bool, members: dict[str, Any]) -> None:
    message = {"role": "assistant", "content": content, **members} | ({"tool_calls": [CALL]} if calls else {})
    body = asked(message, *([DONE_CALL] if calls else []), {"role": "user", "content": "And?"})
    assert body == ts.convert(body, "openai-chat", "openai-chat", strict=True).value


@each
def test_messages_of_one_side_stay_apart(content: list[Any]) -> None:
    body = asked(*({"role": "assistant", "content": one} for one in (content, "Ho", content, content)))
    assert body == ts.convert(body, "openai-chat", "openai-chat", strict=True).value


def test_a_thought_stands_where_it_stood_among_the_items() -> None:
    content = CONTENTS["in turns"]
    items = ts.parse(asked({"role": "assistant", "content": content, "tool_calls": [CALL]}), "openai-chat").items
    assert ["user", "thinking", "assistant", "thinking", "assistant", "tool_call"] == kinds(items)
    assert ["hm", "ha"] == thoughts(items)
    assert [f"$.messages[1].content[{index}]" for index in range(4)] == [item.at for item in items[1:5]]


@pytest.mark.parametrize("api", ["anthropic-messages", "openai-responses"])
def test_another_api_is_told_what_it_is_told_of_any_thought(api: str) -> None:
    within = asked({"role": "assistant", "content": CONTENTS["usual"], "tool_calls": [CALL]}, DONE_CALL)
    usual = asked({"role": "assistant", "content": "Ho", "reasoning_content": "hm", "tool_calls": [CALL]}, DONE_CALL)
    made, known = (ts.convert(body, "openai-chat", api) for body in (within, usual))
    assert known.value == made.value
    assert [(one.kind, one.detail) for one in known.losses] == [(one.kind, one.detail) for one in made.losses]


@pytest.mark.parametrize("name", ts.formats())
def test_a_format_shows_it_as_any_thought(name: str) -> None:
    within = ts.parse(asked({"role": "assistant", "content": CONTENTS["usual"]}), "openai-chat")
    usual = ts.parse(asked({"role": "assistant", "content": "Ho", "reasoning_content": "hm"}), "openai-chat")
    format_ = ts.get_format(name)
    assert format_.prompt(usual).text == format_.prompt(within).text


def test_members_beside_the_text_of_a_thought_are_told_where_they_stood() -> None:
    body = asked({"role": "assistant", "content": CONTENTS["members"], "weight": 1})
    paths = {loss.path for loss in ts.convert(body, "openai-chat", "anthropic-messages").losses}
    assert {"$.messages[1].content[0].closed", "$.messages[1].weight"} <= paths


@pytest.mark.parametrize("said", ["hm", None, {"text": "hm"}, [{"text": "hm"}], ["hm"]])
def test_a_part_that_holds_no_list_of_parts_is_another_makers(said: Any) -> None:
    body = asked({"role": "assistant", "content": [{"type": "thinking", "thinking": said}, text("Ho")]})
    items = ts.parse(body, "openai-chat").items
    assert isinstance(items[1], Assistant)
    assert isinstance(items[1].content[0], Raw)
    assert body == ts.convert(body, "openai-chat", "openai-chat", strict=True).value


def test_nobody_but_the_assistant_thinks() -> None:
    body = {"model": "m", "messages": [{"role": "user", "content": CONTENTS["usual"]}]}
    assert ["user"] == kinds(ts.parse(body, "openai-chat").items)
    assert body == ts.convert(body, "openai-chat", "openai-chat", strict=True).value


# Answers.


@each
@pytest.mark.parametrize("calls", [False, True])
def test_a_whole_answer_comes_back_as_it_was(content: list[Any], calls: bool) -> None:
    body = answered(
        {"content": content, "refusal": None, "annotations": []} | ({"tool_calls": [CALL]} if calls else {})
    )
    response = CHAT.parse_response(body)
    assert [] == response.issues
    assert sum(one["type"] == "thinking" for one in content) == kinds(response.items).count("thinking")
    rendered = CHAT.render_response(response, ts.Request(origin="openai-chat"))
    assert [] == rendered.losses
    assert body["choices"][0]["message"] == rendered.value["choices"][0]["message"]


def types(body: dict[str, Any]) -> list[str]:
    return [one["type"] for one in body.get("content") or body["output"]]


def test_an_answer_to_another_client_has_the_thought_as_its_own() -> None:
    within = CHAT.parse_response(answered({"content": CONTENTS["usual"]}))
    usual = CHAT.parse_response(answered({"content": "Ho", "reasoning_content": "hm"}))
    for name in ("anthropic-messages", "openai-responses"):
        made, known = (ts.get_api(name).render_response(one, ts.Request()) for one in (within, usual))
        assert known.losses == made.losses
        assert types(known.value) == types(made.value)
        assert "hm" in str(made.value)


# Streams.

STREAM: list[dict[str, Any]] = [
    {"content": [thought("h")]},
    {"content": [thought("m")]},
    {"content": "H"},
    {"content": "o"},
]


@pytest.mark.parametrize("size", [0, 1, 7])
def test_a_stream_is_read_as_a_thought_and_a_text(size: int) -> None:
    events = read(b"".join(map(chunk, STREAM)) + STOP + DONE, size)
    assert well_formed(events)
    response = ts.fold(events)
    assert ["thinking", "assistant"] == kinds(response.items)
    assert (["hm"], []) == (thoughts(response.items), response.issues)


def deltas(data: bytes) -> list[Any]:
    lines = [line[6:] for line in data.decode().split("\n") if line.startswith("data: {")]
    return [one for line in lines for choice in json.loads(line)["choices"] if (one := choice["delta"])]


def test_a_stream_comes_back_as_it_was() -> None:
    events = read(b"".join(map(chunk, STREAM)) + STOP + DONE, 0)
    renderer = CHAT.stream_renderer(ts.Request(origin="openai-chat"))
    assert STREAM == deltas(renderer.send(events) + renderer.close())[1:]
    assert ["$.id"] == [loss.path for loss in renderer.losses]


@pytest.mark.parametrize("pieces", [[thought("hm", closed=True)], [{"type": "thinking", "thinking": [REFERENCE]}]])
def test_nothing_that_a_stream_says_of_a_thought_is_lost(pieces: list[Any]) -> None:
    events = read(chunk({"content": [thought("h")]}) + chunk({"content": pieces}) + STOP + DONE, 0)
    renderer = CHAT.stream_renderer(ts.Request(origin="openai-chat"))
    again = read(renderer.send(events) + renderer.close(), 0)
    assert ts.fold(events).items == ts.fold(again).items
    assert ["$.id"] == [loss.path for loss in renderer.losses]


def test_calls_come_behind_a_thought() -> None:
    call = {"tool_calls": [{"index": 0, **CALL}]}
    events = read(chunk({"content": [thought("hm")]}) + chunk(call) + STOP + DONE, 0)
    items = ts.fold(events).items
    assert ["thinking", "tool_call"] == kinds(items)
    assert isinstance(items[1], ToolCall)
