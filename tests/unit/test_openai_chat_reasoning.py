"""Owns the checks of thoughts under the name `reasoning`: an answer of this API that has them there keeps them."""

from __future__ import annotations

import json
from typing import Any

import pytest

import turnscript as ts
from turnscript.convert.recording import stream_of as stream_of_answer

CHAT = ts.get_api("openai-chat")
DETAILS = [{"type": "reasoning.text", "text": "hm", "signature": "s"}]


def body_of(**message: Any) -> dict[str, Any]:
    choice = {"index": 0, "message": {"role": "assistant", "content": "Hi", **message}, "finish_reason": "stop"}
    return {"id": "c", "object": "chat.completion", "created": 1, "model": "m", "choices": [choice]}


def stream_of(*names: str) -> bytes:
    deltas = [{"role": "assistant"}, *({name: text} for text in ("h", "m") for name in names)]
    chunks: list[dict[str, Any]] = [
        {"index": 0, "delta": one, "finish_reason": None} for one in [*deltas, {"content": "Hi"}]
    ]
    chunks.append({"index": 0, "delta": {}, "finish_reason": "stop"})
    head = {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m"}
    return (
        b"".join([b"data: %b\n\n" % json.dumps(head | {"choices": [one]}).encode() for one in chunks]) + b"data: [DONE]"
    )


def message_of(source: Any, *, to: str = "openai-chat") -> Any:
    rendered = ts.convert(source, "openai-chat", to, side="response")
    assert [] == rendered.losses
    value: Any = rendered.value
    return value["choices"][0]["message"]


def test_thinking_is_read_from_the_other_member_as_well() -> None:
    thought, text = CHAT.parse_response(body_of(reasoning="hm")).items
    assert ts.Thinking(content=[ts.Text(text="hm")], slot="reasoning") == thought
    assert ts.Assistant(content=[ts.Text(text="Hi")]) == text


@pytest.mark.parametrize(
    "message",
    [
        {"reasoning": "hm"},
        {"reasoning": "hm", "reasoning_details": DETAILS},
        {"reasoning_content": "hm"},
        {"reasoning_content": "hm", "reasoning": "hm"},
        {"reasoning_content": "hm", "reasoning": "other"},
    ],
)
def test_an_answer_has_its_thoughts_where_they_were(message: dict[str, Any]) -> None:
    assert message == {key: one for key, one in message_of(body_of(**message)).items() if key.startswith("reasoning")}


@pytest.mark.parametrize("name", ["reasoning", "reasoning_content"])
def test_a_stream_has_its_thoughts_where_they_were(name: str) -> None:
    assert "hm" == message_of(stream_of(name))[name]
    whole = CHAT.parse_response(body_of(**{name: "hm"}))
    parser = CHAT.stream_parser()
    events = parser.feed(stream_of(name)) + parser.close()
    assert whole.items == ts.fold(events).items
    renderer = CHAT.stream_renderer(ts.Request())
    told = renderer.send(events) + renderer.close()
    assert 2 == told.count(b'"%b":' % name.encode())
    renderer = CHAT.stream_renderer(ts.Request())
    waited = renderer.send([one for one in events if not hasattr(one, "text")]) + renderer.close()
    assert b'"%b":"hm"' % name.encode() in waited
    assert 2 + 1 == (told + waited).count(b'"reasoning')


@pytest.mark.parametrize("first", ["reasoning", "reasoning_content"])
def test_all_thoughts_of_an_answer_are_where_the_first_one_was(first: str) -> None:
    """Readers take the two members for one thought that is told twice."""
    thoughts = [ts.Thinking(content=[ts.Text(text=one)]) for one in ("h", "m")]
    thoughts[first == "reasoning_content"].slot = "reasoning"
    response = ts.Response(items=[*thoughts], finish_reason="stop", origin="openai-chat")
    message = CHAT.render_response(response, ts.Request()).value["choices"][0]["message"]
    streamed, _ = stream_of_answer(response, ts.Request(), CHAT)
    told = [json.loads(line[6:]) for line in streamed.splitlines() if line.startswith(b"data: {")]
    deltas = [chunk["choices"][0]["delta"] for chunk in told if chunk["choices"]]
    for members in (message, *deltas):
        assert {first} >= {name for name in members if name.startswith("reasoning")}
    assert "hm" == message[first] == "".join([delta.get(first, "") for delta in deltas])


def test_an_archive_keeps_where_they_were_and_other_apis_are_told_nothing_of_it() -> None:
    body = body_of(reasoning="hm")
    archive: Any = ts.convert(body, "openai-chat", "rwkv-universal", side="response").value
    again: Any = ts.convert(archive, "rwkv-universal", "openai-chat", side="response").value
    assert "hm" == again["choices"][0]["message"]["reasoning"]
    for api in ("openai-responses", "anthropic-messages"):
        under = [ts.convert(body_of(**{name: "hm"}), "openai-chat", api) for name in ("reasoning", "reasoning_content")]
        assert under[0].value == under[1].value
        assert under[0].losses == under[1].losses
