"""Owns that arguments which came as an object have one spelling wherever they are a text, and go back as they stood."""

from __future__ import annotations

import json
from typing import Any

import pytest

import turnscript as ts

GIVEN: dict[str, Any] = {"city": "Göteborg", "n": [1.0, {"a": None}], "s": " { \n"}
ONCE = r'{"city": "Göteborg", "n": [1.0, {"a": null}], "s": " { \n"}'
PRINTED: list[dict[str, Any]] = [{}, {"separators": (",", ":")}, {"indent": 2}, {"indent": "\t", "ensure_ascii": False}]
TO_STRINGS = ("openai-chat", "openai-responses")
EVERY_WAY = pytest.mark.parametrize("shape", PRINTED, ids=str)

BODY = {
    "model": "m",
    "max_tokens": 9,
    "messages": [
        {"role": "user", "content": "q"},
        {"role": "assistant", "content": [{"type": "tool_use", "id": "t1", "name": "f", "input": GIVEN}]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t1", "content": "ok"}]},
    ],
}
ANSWER = {
    "id": "msg_1",
    "type": "message",
    "role": "assistant",
    "model": "m",
    "content": BODY["messages"][1]["content"],  # type: ignore[index]
    "stop_reason": "tool_use",
    "usage": {"input_tokens": 1, "output_tokens": 1},
}


def call_in(request: ts.Request) -> ts.ToolCall:
    return next(item for item in request.items if isinstance(item, ts.ToolCall))


@EVERY_WAY
@pytest.mark.parametrize("api", TO_STRINGS)
def test_a_string_of_another_api_has_one_spelling_however_the_body_is_printed(api: str, shape: dict[str, Any]) -> None:
    for body in (BODY, ANSWER):
        rendered = ts.convert(json.dumps(body, **shape), "anthropic-messages", api)
        assert json.dumps(ONCE, ensure_ascii=False) in rendered.data.decode()
        assert not [loss for loss in rendered.losses if "input" in loss.path or "arguments" in loss.path]


@EVERY_WAY
@pytest.mark.parametrize("name", [*ts.formats(), *ts.model_formats()])
def test_a_prompt_is_the_same_however_the_body_is_printed(name: str, shape: dict[str, Any]) -> None:
    format_ = ts.get_format(name)
    first, request = (ts.parse(json.dumps(BODY, **one), "anthropic-messages") for one in ({}, shape))
    assert format_.prompt(first).text == format_.prompt(request).text
    one, other = (format_.render(each, view="prompt") for each in (first, request))
    assert (one.value, one.losses) == (other.value, other.losses)


@EVERY_WAY
def test_the_api_of_an_object_and_an_archive_have_it_as_it_stood(shape: dict[str, Any]) -> None:
    body = json.dumps(BODY, **shape)
    stood = call_in(ts.parse(body, "anthropic-messages")).arguments
    assert stood in body
    archive = ts.convert(body, "anthropic-messages", "rwkv-universal").data
    for text, name in ((body, "anthropic-messages"), (archive, "rwkv-universal")):
        assert stood == call_in(ts.parse(ts.convert(text, name, "anthropic-messages").data)).arguments
        assert ONCE == call_in(ts.parse(ts.convert(text, name, "openai-chat").data)).arguments


TRANSCRIPT = """<<USER>>
q
<<USER_END>>

<<TOOL_CALL name="f" id="c1">>
{
  "a": 1.0, "a": 1e5,
  "b": [1,2], "c": "\\u00e9"
}
<<END_TOOL_CALL>>"""
LAID_OUT = '{"a": 1.0, "a": 1e5, "b": [1, 2], "c": "é"}'


@pytest.mark.parametrize("api", TO_STRINGS)
def test_a_transcript_that_is_laid_out_says_one_line_to_an_api_and_a_model(api: str) -> None:
    body = ts.convert(TRANSCRIPT, "rwkv-universal", api)
    assert json.dumps(LAID_OUT, ensure_ascii=False) in body.data.decode()
    prompt = ts.convert(TRANSCRIPT, "rwkv-universal", "rwkv-universal", view="prompt", strict=True).value
    assert f'"c1">>\n{LAID_OUT}\n<<END' in str(prompt)
    assert TRANSCRIPT == ts.convert(TRANSCRIPT, "rwkv-universal", "rwkv-universal", strict=True).value


@pytest.mark.parametrize("text", ['{"a":1}', '{"a": 1}', '{\n "a" : 1}', ' {"a":1}\n'])
def test_a_text_of_arguments_stays_as_a_model_wrote_it(text: str) -> None:
    """Whatever it is: in the other API that has a text there, in prompts, and back from an archive."""
    call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": text}}
    messages = [{"role": "user", "content": "q"}, {"role": "assistant", "content": None, "tool_calls": [call]}]
    body = {"messages": messages}
    assert text == call_in(ts.parse(ts.convert(body, "openai-chat", "openai-responses").data)).arguments
    archive = ts.convert(body, "openai-chat", "rwkv-universal", strict=True)
    assert body == ts.convert(archive.data, "rwkv-universal", "openai-chat", strict=True).value
    assert f'id="c">>\n{text}\n<<END' in ts.get_format("rwkv-universal").prompt(ts.parse(body)).text
