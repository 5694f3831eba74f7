"""Owns what clients send back of an answer that says nothing: the null for a refusal, the empty list of annotations."""

from __future__ import annotations

from typing import Any

import pytest

import turnscript as ts

CALL = {"id": "c1", "type": "function", "function": {"name": "look", "arguments": "{}"}}
NOTHING: dict[str, Any] = {"refusal": None, "annotations": [], "audio": None, "function_call": None}
"""What OpenAI's SDKs write beside the content of each answer."""
TARGETS = ("anthropic-messages", "openai-chat", "openai-responses", "rwkv-universal", "ai00-v1", "rwkv-goose")


def chat(*, with_nothing: bool) -> dict[str, Any]:
    """A session with two answers as the SDK appends them, or with no more than they say."""
    nothing = NOTHING if with_nothing else {}
    messages = [
        {"role": "user", "content": "Hi"},
        {"role": "assistant", "content": "Ho", "tool_calls": None, **nothing} if with_nothing else _said("Ho"),
        {"role": "user", "content": "Look"},
        {"role": "assistant", "content": None, "tool_calls": [CALL], **nothing},
        {"role": "tool", "tool_call_id": "c1", "content": "a door"},
        {"role": "user", "content": "And?"},
    ]
    return {"model": "m", "messages": messages}


def _said(text: str) -> dict[str, Any]:
    return {"role": "assistant", "content": text}


def responses(*, with_nothing: bool) -> dict[str, Any]:
    text: dict[str, Any] = {"type": "output_text", "text": "Ho"}
    thought: dict[str, Any] = {"type": "reasoning", "id": "rs_1", "summary": [{"type": "summary_text", "text": "hm"}]}
    call: dict[str, Any] = {"type": "function_call", "call_id": "c1", "name": "look", "arguments": "{}"}
    if with_nothing:
        text |= {"annotations": [], "logprobs": []}
        thought |= {"content": None, "encrypted_content": None, "status": None}
        call |= {"namespace": None, "caller": None}
    items: list[dict[str, Any]] = [
        {"role": "user", "content": "Hi"},
        thought,
        {"type": "message", "id": "msg_1", "role": "assistant", "status": "completed", "content": [text]},
        call,
        {"type": "function_call_output", "call_id": "c1", "output": "a door"},
    ]
    return {"model": "m", "input": items}


@pytest.mark.parametrize("name", TARGETS)
@pytest.mark.parametrize(("api", "body"), [("openai-chat", chat), ("openai-responses", responses)])
def test_a_member_that_says_nothing_is_no_loss(api: str, body: Any, name: str) -> None:
    options: dict[str, Any] = {"view": "prompt"} if name == "rwkv-universal" else {}
    usual = ts.convert(body(with_nothing=False), api, name, **options)
    back = ts.convert(body(with_nothing=True), api, name, **options)
    assert usual.losses == back.losses
    if name != api:
        assert usual.value == back.value


def test_the_same_api_gets_it_back() -> None:
    for body in (chat(with_nothing=True), responses(with_nothing=True)):
        assert body == ts.convert(body, "auto", ts.detect_api(body), strict=True).value


@pytest.mark.parametrize(
    ("member", "value", "path"),
    [("annotations", [{"type": "url_citation"}], "annotations"), ("x", None, "x"), ("refusal", [1], "refusal")],
)
def test_what_says_something_or_is_unknown_is_a_loss(member: str, value: Any, path: str) -> None:
    body = {"model": "m", "messages": [{"role": "user", "content": "Hi"}, {**_said("Ho"), member: value}]}
    if member == "refusal":  # which is a text
        with pytest.raises(ts.InvalidRequest):
            ts.parse(body, "openai-chat")
        return
    losses = ts.convert(body, "openai-chat", "anthropic-messages").losses
    assert f"$.messages[1].{path}" in [loss.path for loss in losses]


def test_settings_of_the_same_name_are_told() -> None:
    body = {"model": "m", "messages": [{"role": "user", "content": "Hi"}], "audio": None}
    assert "$.audio" in [loss.path for loss in ts.convert(body, "openai-chat", "anthropic-messages").losses]
