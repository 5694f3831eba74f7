"""Owns what clients send back of an answer that says nothing: the null for a refusal, the empty list of annotations."""

from __future__ import annotations

from typing import Any

import pytest

import turnscript as ts
from tests.messages import SILENT, SILENT_USAGE
from turnscript.convert.recording import stream_of

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


def messages(*, with_nothing: bool) -> dict[str, Any]:
    text: dict[str, Any] = {"type": "text", "text": "Ho"}
    call: dict[str, Any] = {"type": "tool_use", "id": "c1", "name": "look", "input": {}}
    answer: dict[str, Any] = {"role": "assistant", "content": [text, call]}
    if with_nothing:
        text |= {"citations": None}
        call |= {"caller": None}
        answer |= dict.fromkeys(("stop_sequence", "stop_details", "container", "context_management"))
    result = {"type": "tool_result", "tool_use_id": "c1", "content": "a door"}
    said: list[dict[str, Any]] = [{"role": "user", "content": "Hi"}, answer, {"role": "user", "content": [result]}]
    return {"model": "m", "max_tokens": 9, "messages": said}


BODIES = [("openai-chat", chat), ("openai-responses", responses), ("anthropic-messages", messages)]


@pytest.mark.parametrize("name", TARGETS)
@pytest.mark.parametrize(("api", "body"), BODIES)
def test_a_member_that_says_nothing_is_no_loss(api: str, body: Any, name: str) -> None:
    options: dict[str, Any] = {"view": "prompt"} if name == "rwkv-universal" else {}
    usual = ts.convert(body(with_nothing=False), api, name, **options)
    back = ts.convert(body(with_nothing=True), api, name, **options)
    assert usual.losses == back.losses
    if name != api:
        assert usual.value == back.value


def test_the_same_api_gets_it_back() -> None:
    for _, made in BODIES:
        body = made(with_nothing=True)
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


FUNCTION = {"name": "look", "parameters": {"type": "object"}}


@pytest.mark.parametrize(
    ("api", "members", "path"),
    [
        ("openai-chat", {"audio": None}, "$.audio"),
        ("openai-chat", {"tools": [{"type": "function", "function": FUNCTION, "audio": {}}]}, "$.tools[0].audio"),
        (
            "openai-chat",
            {"tools": [{"type": "function", "function": {**FUNCTION, "audio": []}}]},
            "$.tools[0].function.audio",
        ),
        ("openai-responses", {"tools": [{"type": "function", **FUNCTION, "status": None}]}, "$.tools[0].status"),
        ("openai-responses", {"reasoning": {"effort": "low", "content": None}}, "$.reasoning.content"),
    ],
)
def test_settings_and_members_of_tools_that_are_called_the_same_are_told(
    api: str, members: dict[str, Any], path: str
) -> None:
    said = "input" if api == "openai-responses" else "messages"
    body = {"model": "m", said: [{"role": "user", "content": "Hi"}], **members}
    assert path in [loss.path for loss in ts.convert(body, api, "anthropic-messages").losses]


def test_an_empty_member_of_an_answer_is_called_empty_as_that_of_a_request_is() -> None:
    body: dict[str, Any] = {"id": "msg_1", "type": "message", "role": "assistant", "model": "m", "content": []}
    body |= {"stop_reason": "end_turn", "diagnostics": None, "usage": {"input_tokens": 1, "output_tokens": 1}}
    asked = {"model": "m", "max_tokens": 9, "messages": [{"role": "user", "content": "Hi"}], "diagnostics": None}
    of_each = [ts.convert(one, "anthropic-messages", "openai-chat").losses for one in (body, asked)]
    assert [["it is empty, which says nothing, and is left out"]] * 2 == [
        [loss.detail for loss in losses if loss.path == "$.diagnostics"] for losses in of_each
    ]


@pytest.mark.parametrize("name", ["openai-chat", "openai-responses", "anthropic-messages"])
def test_an_answer_and_its_stream_lose_nothing_by_what_they_do_not_say(name: str) -> None:
    nothing: tuple[list[Any] | None, ...] = (None, [], None)
    texts: list[Any] = [{"type": "text", "text": "Ho", "citations": none} for none in nothing]
    call: dict[str, Any] = {"type": "tool_use", "id": "toolu_1", "name": "look", "input": {}, "caller": None}
    body: dict[str, Any] = {"id": "msg_1", "type": "message", "role": "assistant", "model": "m"}
    body["content"] = [*texts, call]
    body |= {"stop_reason": "tool_use", "stop_sequence": None, "usage": SILENT_USAGE | {"input_tokens": 1}} | SILENT
    body["usage"]["output_tokens"] = 1
    whole = ts.convert(body, "anthropic-messages", name).losses
    response = ts.get_api("anthropic-messages").parse_response(body)
    _, streamed = stream_of(response, ts.Request(), ts.get_api(name))
    named = ("citations", "caller", *SILENT, *SILENT_USAGE)
    assert not [loss for loss in (*whole, *streamed) if loss.path.endswith(named)]


CALLS: dict[str, dict[str, Any]] = {
    "anthropic-messages": {"type": "tool_use", "id": "c1", "name": "look", "input": {}},
    "openai-responses": {"type": "function_call", "call_id": "c1", "name": "look", "arguments": "{}"},
}


def calling(api: str, caller: Any) -> dict[str, Any]:
    """A session with a call of which is said who makes it."""
    call = CALLS[api] | {"caller": caller}
    if api == "openai-responses":
        items = [
            {"role": "user", "content": "Hi"},
            call,
            {"type": "function_call_output", "call_id": "c1", "output": ""},
        ]
        return {"model": "m", "input": items}
    result = {"type": "tool_result", "tool_use_id": "c1", "content": "a door"}
    said = [("user", "Hi"), ("assistant", [call]), ("user", [result])]
    return {"model": "m", "max_tokens": 9, "messages": [{"role": role, "content": content} for role, content in said]}


def told_of_callers(api: str, target: str, caller: Any) -> list[str]:
    return [loss.path for loss in ts.convert(calling(api, caller), api, target).losses if "caller" in loss.path]


@pytest.mark.parametrize("target", ["openai-chat", "openai-responses", "anthropic-messages"])
@pytest.mark.parametrize("api", CALLS)
def test_a_call_that_the_model_makes_itself_is_what_it_is_everywhere(api: str, target: str) -> None:
    """Anthropic's API writes it beside every call, so each was a loss, and none of its sessions were strict."""
    assert [] == told_of_callers(api, target, {"type": "direct"})
    elsewhere = [
        {"type": "program", "caller_id": "p"},
        {"type": "direct", "tool_id": "t"},
        {"type": ["direct"]},
        "direct",
    ]
    for caller in elsewhere:
        assert (target != api) == bool(told_of_callers(api, target, caller)), caller
