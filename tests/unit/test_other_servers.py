"""Owns what servers of other makers write in their own way, and their clients: it is read as meant."""

from __future__ import annotations

import json
from typing import Any

import pytest

import turnscript as ts
from tests.chatstream import DONE, HELLO, STOP, chunk, read, well_formed
from turnscript.core.errors import InvalidRequest
from turnscript.core.sse import frame

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


# Streams of chunks.


def told(delta: dict[str, Any] | None, so_far: str, **members: Any) -> bytes:
    choice = {"index": 0, "delta": delta, "message": {"role": "assistant", "content": so_far}} | members
    return frame(json.dumps({"id": "p", "object": "chat.completion.chunk", "choices": [choice]}))


@pytest.mark.parametrize("size", [0, 1])
def test_what_was_said_so_far_beside_a_delta_is_not_said_again(size: int) -> None:
    """As Perplexity sends it."""
    data = told({"role": "assistant", "content": "1"}, "1") + told({"content": " 2"}, "1 2")
    data += told({"role": "assistant", "content": ""}, "1 2", finish_reason="stop")
    events = read(data, size)
    response = ts.fold(events)
    assert well_formed(events)
    assert ["1 2"] == [part.text for item in response.items for part in item.content]  # type: ignore[attr-defined]
    assert ("stop", []) == (response.finish_reason, response.issues)


@pytest.mark.parametrize("delta", [{}, {"role": "assistant", "content": ""}, None])
def test_a_whole_message_in_the_only_chunk_of_a_stream_is_the_answer(delta: Any) -> None:
    """As a server sends it that cannot stream."""
    response = ts.fold(read(told(delta, "Hi", finish_reason="stop"), 7))
    assert ["Hi"] == [part.text for item in response.items for part in item.content]  # type: ignore[attr-defined]


def test_a_whole_answer_with_an_empty_delta_is_its_message() -> None:
    response = CHAT.parse_response(answered({"content": "Hi"}, delta={"role": "assistant", "content": ""}))
    assert [ts.Assistant(content=[ts.Text(text="Hi")])] == response.items
    assert [] == response.issues


def test_a_chunk_that_tells_only_what_a_filter_found_says_something() -> None:
    """As Azure sends them, before the first delta or behind the last."""
    found = frame(
        json.dumps({"choices": [{"index": 0, "finish_reason": None, "content_filter_results": {"hate": {}}}]})
    )
    response = ts.fold(read(found + HELLO + found + STOP + DONE))
    assert [] == response.issues
    assert b"content_filter_results" in bytes(response.extra["choices"])


def test_a_filter_that_leaves_no_message_is_the_end_of_an_answer() -> None:
    """As Azure answers, whole."""
    body = answered(None, "content_filter", content_filter_results={"hate": {"filtered": True}})
    response = CHAT.parse_response(body)
    assert ([], "content_filter", []) == (response.items, response.finish_reason, response.issues)
    with pytest.raises(InvalidRequest, match="expected a message"):
        CHAT.parse_response(answered(None, "stop"))


@pytest.mark.parametrize("empty", [{"name": "", "arguments": ""}, {"name": None, "arguments": None}])
def test_an_empty_function_call_is_no_call(empty: dict[str, Any]) -> None:
    """As servers in Go write a member that has no value."""
    whole = CHAT.parse_response(answered({"content": "4", "function_call": empty, "tool_calls": None}))
    streamed = ts.fold(read(chunk({"content": "4", "function_call": empty}) + STOP + DONE))
    for response in (whole, streamed):
        assert [ts.Assistant(content=[ts.Text(text="4")])] == response.items
        assert [] == response.issues


# Thoughts under two names.


def test_a_thought_under_two_names_is_lost_under_neither() -> None:
    thought = {"reasoning_content": "hm", "reasoning": "hm"}
    body = asked({"role": "assistant", "content": "Ho", **thought}, {"role": "user", "content": "And?"})
    assert body == written(body)
    one = asked({"role": "assistant", "content": "Ho", "reasoning_content": "hm"}, {"role": "user", "content": "And?"})
    answer = answered({"content": "Ho", **thought})
    for name in ("openai-responses", "anthropic-messages", "rwkv-universal"):
        both, single = ts.convert(body, "openai-chat", name), ts.convert(one, "openai-chat", name)
        assert single.losses == both.losses
        losses = ts.convert(answer, "openai-chat", name, side="response").losses
        assert not [loss for loss in losses if "reasoning" in loss.path]


def test_a_stream_does_not_say_a_thought_of_two_names_again_at_its_end() -> None:
    pieces = [{"reasoning_content": text, "reasoning": text} for text in ("h", "m")]
    events = read(b"".join(map(chunk, pieces)) + HELLO + STOP + DONE)
    renderer = CHAT.stream_renderer(ts.Request(origin="openai-chat"))
    out = renderer.send(events) + renderer.close()
    assert 2 == out.count(b'"reasoning_content":')
    assert b'"reasoning":' not in out


# Requests.


def test_a_function_without_its_type_is_a_function() -> None:
    """As Mistral's clients leave it out, and its answers do."""
    messages = [{"role": "assistant", "content": "", "tool_calls": [CALL]}]
    messages.append({"role": "tool", "tool_call_id": "c1", "content": "ok"})
    body = asked(*messages, tools=[{"function": FUNCTION}], tool_choice={"function": {"name": "look"}})
    assert "openai-chat" == ts.parse(body).origin
    assert body == written(body)
    messages[0] = messages[0] | {"tool_calls": [{"type": "function", **CALL}]}
    choice = {"type": "function", "function": {"name": "look"}}
    typed = asked(*messages, tools=[{"type": "function", "function": FUNCTION}], tool_choice=choice)
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

    for name in ("openai-responses", "anthropic-messages", "rwkv-universal", "openchatml"):
        alone, usual = ts.convert(body(url), "openai-chat", name), ts.convert(body({"url": url}), "openai-chat", name)
        assert usual.losses == alone.losses
        if name in ts.apis():
            assert usual.value == alone.value
    for through in ("openai-chat", "rwkv-universal"):  # and comes back as it was
        there = ts.convert(body(url), "openai-chat", through).value
        assert body(url) == ts.convert(there, through, "openai-chat").value


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


@pytest.mark.parametrize("prompt", [[], "Once", ["Once"]])
def test_an_answer_that_repeats_its_prompt_is_an_answer(prompt: Any) -> None:
    """As Together's do, those to chats with an empty one."""
    assert "openai-chat" == ts.parse_response(answered({"content": "Hi"}) | {"prompt": prompt}).origin
    body = answered({"content": "Hi"}) | {"prompt": prompt}
    assert [ts.Assistant(content=[ts.Text(text="Hi")])] == ts.parse_exchange(body).response.items
    assert "Hi" == ts.convert(body, "auto", "anthropic-messages").value["content"][0]["text"]
    text = {"object": "text_completion", "choices": [{"index": 0, "text": "upon", "finish_reason": "stop"}]}
    assert "openai-completions" == ts.parse_exchange(text | {"prompt": prompt}).response.origin
    assert "upon" == ts.convert(text | {"prompt": prompt}, "auto", "anthropic-messages").value["content"][0]["text"]


def test_an_answer_that_repeats_its_input_is_an_answer() -> None:
    message = {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "Hi"}]}
    body = {"object": "response", "status": "completed", "model": "m", "output": [message], "input": [], "prompt": None}
    assert "Hi" == ts.convert(body, "auto", "anthropic-messages").value["content"][0]["text"]


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
