"""Owns the agreement of the official SDKs with us: of every answer, over every API, they tell what was told.

What an SDK cannot do is asserted as well, so that a change of it shows:

| what an SDK does | where it is asserted |
|--|--|
| Python, streams of Chat: the helper raises at `length` and `content_filter` | `LIMITS` |
| Python, streams of Responses: the helper raises at every end but `response.completed`, no error of its own | there |
| JavaScript, streams of Responses: `response.failed` is no error, but a response with that status | `check_failure` |
| JavaScript, streams of Chat: of a member that it does not know it keeps the last piece | `test_one_sdk_keeps_...` |
| JavaScript, Messages: numbers in arguments are doubles | `as_javascript`, and the probes of Messages |
| most: a stream that just ends passes for an answer, or raises no error of the SDK's own | `test_a_server_that_...` |
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.answers.answer import Answer
from tests.answers.corpus import ALL, BY_NAME, WHOLE
from tests.answers.javascript import JavaScript
from tests.answers.seen import chunks, seen, without_made_up_ids
from tests.answers.verdict import SDK_OF, Sdk, Verdict
from tests.answers.wanted import wanted
from tests.answers.wires import APIS, Server, awkward, stream, whole
from tests.every import every
from tests.loopback import JSON
from turnscript.core.conversation import ToolCall
from turnscript.core.json_text import is_object

LIMITS = {
    ("python", "chat", "length"): "LengthFinishReasonError",
    ("python", "chat", "content_filter"): "ContentFilterFinishReasonError",
    ("python", "responses", "incomplete"): "RuntimeError",
    ("python", "responses", "cancelled"): "RuntimeError",
}
"""Endings at which the helper of a stream raises although the answer is as it should be; it has all of it, though."""

OVERFLOW = {"messages": "prompt is too long"}
"""The words by which clients know a full context, where they are not `maximum context length`."""


def ask_stream(sdk: Sdk, server: Server, wire: str, data: bytes, size: int = 0, *, broken: bool = False) -> Verdict:
    """What an SDK makes of a stream in pieces of that size. One API has no helper that accumulates it."""
    server.serve(data, size, broken=broken)
    return sdk.ask("completions.events" if wire == "completions" else f"{wire}.stream", server)


# Answers.


@pytest.mark.parametrize("wire", APIS)
@every("name", [answer.name for answer in WHOLE])
def test_a_whole_answer_is_told_as_it_was(sdk: Sdk, server: Server, wire: str, name: str) -> None:
    answer = BY_NAME[name]
    status, body = whole(wire, answer)
    server.serve(body, 0, JSON, status)
    verdict = sdk.ask(wire, server)
    expected = wanted(wire, answer, streamed=False)
    if expected.finish is None:
        assert verdict.error is not None
        assert status == verdict.error.status
        check_error(wire, answer, verdict)
        return
    assert verdict.error is None
    assert expected == without_made_up_ids(seen(wire, verdict, streamed=False), expected)
    assert "" == lacking(json.loads(body), verdict.result)
    calls = [item for item in answer.response().items if isinstance(item, ToolCall) and is_object(item.arguments)]
    if wire == "messages":  # where arguments are an object: the same text all the same
        assert all(call.arguments.encode() in body for call in calls)


@pytest.mark.deep
@pytest.mark.parametrize("wire", APIS)
@every("name", [answer.name for answer in WHOLE])
def test_a_stream_is_told_as_it_was_in_any_pieces(sdk: Sdk, server: Server, wire: str, name: str) -> None:
    answer = BY_NAME[name]
    data = stream(wire, answer)
    for size in (0, awkward(data)):
        check_stream(sdk, wire, answer, ask_stream(sdk, server, wire, data, size))


@pytest.mark.parametrize("name", ["ends of lines", "text like frames", "arguments of odd characters"])
@pytest.mark.parametrize("wire", APIS)
def test_a_stream_is_told_as_it_was_byte_for_byte(sdk: Sdk, server: Server, wire: str, name: str) -> None:
    answer = BY_NAME[name]
    check_stream(sdk, wire, answer, ask_stream(sdk, server, wire, stream(wire, answer), 1))


def check_stream(sdk: Sdk, wire: str, answer: Answer, verdict: Verdict) -> None:
    """An SDK tells of a stream what was told, or raises where the answer failed."""
    expected = wanted(wire, answer, streamed=True)
    if expected.finish is None:
        check_failure(sdk, wire, answer, verdict)
        return
    word = expected.finish if isinstance(expected.finish, str) else expected.finish[0]
    assert LIMITS.get((sdk.language, wire, word)) == (verdict.error and verdict.error.name)
    assert expected == without_made_up_ids(seen(wire, verdict, streamed=True), expected)


def lacking(sent: Any, told: Any, path: str = "$") -> str:
    """The first member of a body that an SDK does not tell, or tells otherwise; empty if there is none."""
    if isinstance(sent, dict):
        members = (
            (f"{path}.{key}", value, told.get(key) if isinstance(told, dict) else told) for key, value in sent.items()
        )
    elif isinstance(sent, list) and isinstance(told, list) and len(sent) == len(told):
        members = ((f"{path}[{index}]", one, other) for index, (one, other) in enumerate(zip(sent, told, strict=True)))
    else:
        number = isinstance(sent, int | float) and isinstance(told, int | float)
        return "" if sent == told or (number and float(sent) == float(told)) else path
    return next((found for at, one, other in members if (found := lacking(one, other, at))), "")


# Failures.


def check_failure(sdk: Sdk, wire: str, answer: Answer, verdict: Verdict) -> None:
    """A stream that failed is an error of the SDK's own, but for one API: there it is the last event."""
    if wire != "responses":
        check_error(wire, answer, verdict)
        return
    if verdict.events:
        last = verdict.events[-1]
        assert ("response.failed", "failed") == (last["type"], last["response"]["status"])
        assert words_of(wire, answer) in last["response"]["error"]["message"]
    if sdk.language == "python":
        assert verdict.error is not None
        assert "RuntimeError" == verdict.error.name
    elif verdict.events:
        assert (None, "failed") == (verdict.error, verdict.result["status"])
    else:
        check_error(wire, answer, verdict)


def check_error(wire: str, answer: Answer, verdict: Verdict) -> None:
    """The SDK raised an error of its own that says what went wrong, and returned nothing."""
    assert verdict.result is None
    assert verdict.error is not None
    assert {"APIError", {"openai": "OpenAIError", "anthropic": "AnthropicError"}[SDK_OF[wire]]} <= set(
        verdict.error.classes
    )
    assert words_of(wire, answer) in verdict.error.message


def words_of(wire: str, answer: Answer) -> str:
    """What the message of an error must say."""
    if "overflow" in answer.covers:
        return OVERFLOW.get(wire, "maximum context length")
    error = answer.error()
    return str(error) if error is not None else str(answer.response().finish_reason)


# Servers that are gone.

# What the SDKs make of a stream that ends in the middle: the error's class, or None where it passes for an answer.
ENDED = {
    ("python", "chat"): None,
    ("python", "responses"): "RuntimeError",
    ("python", "messages"): None,
    ("python", "completions"): None,
    ("javascript", "chat"): "OpenAIError",
    ("javascript", "responses"): None,
    ("javascript", "messages"): "AnthropicError",
    ("javascript", "completions"): None,
}


@pytest.mark.parametrize("name", [answer.name for answer in ALL if answer.is_gone()])
@pytest.mark.parametrize("wire", APIS)
def test_a_server_that_is_gone_may_pass_for_one_that_is_done(sdk: Sdk, server: Server, wire: str, name: str) -> None:
    """This is why no stream of ours ends without an end or an error: half of the SDKs would take it for an answer."""
    data = stream(wire, BY_NAME[name])
    verdict = ask_stream(sdk, server, wire, data)
    assert ENDED[sdk.language, wire] == (verdict.error and verdict.error.name)
    if ENDED[sdk.language, wire] is None and (wire != "completions" or verdict.events):
        assert seen(wire, verdict, streamed=True).finish in (None, (None, None), ("in_progress", None))
    broken = ask_stream(sdk, server, wire, data, broken=True)
    assert broken.error is not None


# One SDK.


@pytest.mark.parametrize("name", ["thought and text", "emoji", "a thousand deltas of thinking"])
def test_one_sdk_keeps_the_last_piece_of_a_member_that_it_does_not_know(
    javascript: JavaScript, server: Server, name: str
) -> None:
    """Thinking has no official member. Clients of that SDK must join the pieces themselves, as `seen` does."""
    verdict = ask_stream(javascript, server, "chat", stream("chat", BY_NAME[name]))
    pieces = [choice["delta"].get("reasoning_content") for chunk in chunks(verdict) for choice in chunk["choices"]]
    thought = [piece for piece in pieces if piece is not None]
    assert len(thought) > 2
    assert thought[-1] == verdict.result["choices"][0]["message"]["reasoning_content"]
