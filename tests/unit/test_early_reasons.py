"""Owns the law of early reasons: one told before the end of an answer makes no whole answer of a broken one."""

from __future__ import annotations

import json
from typing import Any

import pytest

import turnscript as ts
from tests.chatstream import DONE, call_delta, chunk, until_error
from tests.messages import STOP, call, end, read, start, stream, text
from turnscript.core.sse import frame

REASON = end("end_turn")[0]
CALLED = end("tool_use")[0]
CUT = end("max_tokens")[0]


def completion(said: str, reason: str | None = None) -> bytes:
    return frame(json.dumps({"choices": [{"index": 0, "text": said, "finish_reason": reason}]}))


BROKEN_OFF = {
    "chat, in every chunk": ("openai-chat", [chunk({"content": one}, "stop") for one in ("He", "llo")]),
    "chat, once": ("openai-chat", [chunk({"content": "He"}, "stop"), chunk({"content": "llo"})]),
    "completions": ("openai-completions", [completion("He", "stop"), completion("llo", "stop")]),
    "messages, in the start": ("anthropic-messages", [stream(start(stop_reason="end_turn"), *text(0, "He", "llo"))]),
    "messages, before a text": ("anthropic-messages", [stream(start(), *text(0, "He"), REASON, *text(1, "llo"))]),
}


@pytest.mark.parametrize("case", BROKEN_OFF)
def test_an_answer_that_goes_on_behind_its_reason_and_breaks_off_is_an_error(case: str) -> None:
    name, pieces = BROKEN_OFF[case]
    events, error = until_error(ts.get_api(name).stream_parser(), pieces)
    said = [event.text for event in events if isinstance(event, ts.PartDelta)]
    assert ["He", "llo"] == said
    assert error.retryable


@pytest.mark.parametrize("case", BROKEN_OFF)
def test_what_is_kept_of_it_has_its_text_and_no_reason(case: str) -> None:
    name, pieces = BROKEN_OFF[case]
    parser = ts.get_api(name).stream_parser()
    events, _ = until_error(parser, pieces)
    kept = ts.fold([*events, *parser.salvage()])
    assert "Hello" == "".join(part.text for item in kept.items for part in getattr(item, "content", []))
    assert kept.finish_reason is None


def test_no_half_call_is_told_of_it() -> None:
    half = chunk(call_delta(0, '{"path": "/ho', id="c", name="rm"), "tool_calls")
    parser = ts.get_api("openai-chat").stream_parser()
    events, _ = until_error(parser, [chunk({"content": "a"}, "stop"), half])
    kept = ts.fold([*events, *parser.salvage()])
    assert [] == [item for item in kept.items if isinstance(item, ts.ToolCall)]


def test_with_its_end_it_is_whole() -> None:
    told = ts.get_api("openai-chat").stream_parser()
    chat = told.feed(chunk({"content": "He"}, "stop") + chunk({"content": "llo"}, "stop") + DONE) + told.close()
    messages = read(stream(start(stop_reason="end_turn"), *text(0, "He", "llo"), REASON, STOP))
    for events in (chat, messages):
        response = ts.fold(events)
        assert [ts.Assistant(content=[ts.Text(text="Hello")])] == response.items
        assert "stop" == response.finish_reason


def test_what_comes_behind_the_reason_of_a_message_is_an_issue() -> None:
    """One that stands in its start, as some servers have it, says nothing of the order."""
    late = ts.fold(read(stream(start(), *text(0, "He"), CUT, *text(1, "llo"), STOP)))
    assert ("length", ["late_content"]) == (late.finish_reason, [issue.kind for issue in late.issues])
    early = ts.fold(read(stream(start(stop_reason="end_turn"), *text(0, "He"), REASON, STOP)))
    assert [] == early.issues


@pytest.mark.parametrize(
    ("reason", "arguments"), [(CALLED, ["{}"]), (CUT, [])], ids=["it is complete", "it was cut off"]
)
def test_a_call_without_arguments_behind_the_reason_is_told_or_said_to_be_cut(
    reason: dict[str, Any], arguments: list[str]
) -> None:
    events = read(stream(start(), reason, *call(0), STOP))
    response = ts.fold(events)
    assert arguments == [item.arguments for item in response.items if isinstance(item, ts.ToolCall)]
    assert ["late_content"] + ["cut_call"] * (not arguments) == [issue.kind for issue in response.issues]
    assert isinstance(events[-2], ts.PartEnd)
