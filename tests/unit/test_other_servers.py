"""Owns what servers of other makers write in their own way, and their clients: it is read as meant."""

from __future__ import annotations

import json
from typing import Any

import pytest

import turnscript as ts
from tests.chatstream import DONE, HELLO, STOP, chunk, read, well_formed
from turnscript.errors import InvalidRequest
from turnscript.sse import frame

CHAT = ts.get_api("openai-chat")
RESPONSES = ts.get_api("openai-responses")
FUNCTION = {"name": "look", "parameters": {"type": "object"}}
CALL = {"id": "c1", "function": {"name": "look", "arguments": '{"a": 1.0}'}}


def asked(*messages: dict[str, Any], **members: Any) -> dict[str, Any]:
    return {"model": "m", "messages": [{"role": "user", "content": "Hi"}, *messages], **members}


def answered(message: dict[str, Any] | None, reason: str = "stop", **members: Any) -> dict[str, Any]:
    choice = {"index": 0, "finish_reason": reason, **members}
    choice |= {} if message is None else {"message": {"role": "assistant", **message}}
    return {"id": "c", "object": "chat.completion", "created": 1, "model": "m", "choices": [choice]}


def written(body: dict[str, Any]) -> Any:
    rendered = ts.convert(body, "openai-chat", "openai-chat", strict=True)
    return rendered.value


# Requests.


def test_a_function_without_its_type_is_a_function() -> None:
    """As Mistral's clients leave it out, and its answers do."""
    messages = [{"role": "assistant", "content": "", "tool_calls": [CALL]}]
    messages.append({"role": "tool", "tool_call_id": "c1", "content": "ok"})
    body = asked(*messages, tools=[{"function": FUNCTION}], tool_choice={"function": {"name": "look"}})
    assert "openai-chat" == ts.parse(body).origin
    value = written(body)
    assert [{"type": "function", "function": FUNCTION}] == value["tools"]
    assert {"type": "function", "function": {"name": "look"}} == value["tool_choice"]
    assert [{"type": "function", **CALL}] == value["messages"][1]["tool_calls"]
    typed = asked(*value["messages"][1:], tools=value["tools"], tool_choice=value["tool_choice"])
    for name in ("openai-responses", "anthropic-messages"):
        assert ts.convert(typed, "openai-chat", name).value == ts.convert(body, "openai-chat", name).value


@pytest.mark.parametrize("entry", [{}, {"": 1}, {"name": "look"}, {"custom": {"name": "look"}}])
def test_what_has_neither_a_type_nor_a_function_is_an_error_with_its_place(entry: dict[str, Any]) -> None:
    with pytest.raises(InvalidRequest) as raised:
        CHAT.parse_request(asked(tools=[entry]))
    assert "$.tools[0].type" == raised.value.path


@pytest.mark.parametrize("url", ["https://x.test/a.png", "data:image/png;base64,AAAA"])
def test_a_picture_by_its_url_alone_is_a_picture(url: str) -> None:
    def body(image: Any) -> dict[str, Any]:
        return asked({"role": "user", "content": [{"type": "image_url", "image_url": image}]})

    for name in ("openai-chat", "openai-responses", "anthropic-messages"):
        alone, usual = ts.convert(body(url), "auto", name), ts.convert(body({"url": url}), "auto", name)
        assert usual.value == alone.value
        assert usual.losses == alone.losses


# Telling what an unlabelled body is.


def test_a_thought_that_is_a_list_is_no_block_of_messages() -> None:
    """As Mistral's reasoning models say them, and want them back."""
    thought = {"type": "thinking", "thinking": [{"type": "text", "text": "hm"}]}
    body = asked({"role": "assistant", "content": [thought, {"type": "text", "text": "Ho"}]})
    assert "openai-chat" == ts.parse(body).origin
    assert body == ts.convert(body, "auto", "openai-chat", strict=True).value
    own = asked({"role": "assistant", "content": [{"type": "thinking", "thinking": "hm", "signature": "s"}]})
    assert "anthropic" == ts.parse(own).origin


def test_a_prompt_by_its_id_is_for_responses() -> None:
    body = {"prompt": {"id": "pmpt_1", "variables": {"city": "Rome"}}, "include": []}
    assert "openai-responses" == ts.parse(body).origin
    assert body == ts.convert(body, "auto", "openai-responses", strict=True).value
    assert "openai-completions" == ts.parse({"model": "m", "prompt": "Once"}).origin


# Events of Responses.


def test_a_part_of_a_thought_has_events_of_its_own_name() -> None:
    """As vLLM sends them."""
    item = {"type": "reasoning", "id": "rs_1", "summary": [], "status": "in_progress"}
    part = {"type": "reasoning_text", "text": "hm"}
    place = {"item_id": "rs_1", "output_index": 0, "content_index": 0}
    response = {"id": "resp_1", "object": "response", "status": "in_progress", "model": "m", "output": []}
    done = item | {"status": "completed", "content": [part]}
    told: list[dict[str, Any]] = [
        {"type": "response.created", "response": response},
        {"type": "response.output_item.added", "output_index": 0, "item": item},
        {"type": "response.reasoning_part.added", **place, "part": part | {"text": ""}},
        {"type": "response.reasoning_text.delta", **place, "delta": "hm"},
        {"type": "response.reasoning_text.done", **place, "text": "hm"},
        {"type": "response.reasoning_part.done", **place, "part": part},
        {"type": "response.output_item.done", "output_index": 0, "item": done},
        {"type": "response.completed", "response": response | {"status": "completed", "output": [done]}},
    ]
    parser = RESPONSES.stream_parser()
    events = parser.feed(b"".join([frame(json.dumps(one), one["type"]) for one in told])) + parser.close()
    folded = ts.fold(events)
    assert [] == folded.issues
    assert [("thinking", "hm")] == [(item.kind, item.content[0].text) for item in folded.items]  # type: ignore[attr-defined]
