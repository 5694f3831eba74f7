"""Owns token counts as servers tell them: what is no count is an issue, and no response has one that nobody told."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

import turnscript as ts
from tests.messages import SILENT_USAGE
from tests.messages import STOP as MESSAGE_STOP
from tests.messages import stream as messages_stream
from tests.messages import text as messages_text
from tests.responses import of_payloads
from turnscript.convert.recording import stream_of
from turnscript.core.conversation import text_content
from turnscript.core.sse import SseReader, frame

ABSENT = object()
Said = Callable[[str, Any], ts.Response]
CHAT = {"prompt_tokens": 5, "completion_tokens": 2, "total_tokens": 7}
RESPONSES = {"input_tokens": 5, "output_tokens": 2, "total_tokens": 7}
GOOD = {
    "anthropic-messages": {"input_tokens": 5, "output_tokens": 2},
    "openai-chat": CHAT,
    "openai-completions": CHAT,
    "openai-responses": RESPONSES,
}
NESTED = {
    "anthropic-messages": ("output_tokens_details", "thinking_tokens"),
    "openai-chat": ("prompt_tokens_details", "cached_tokens"),
    "openai-completions": ("completion_tokens_details", "reasoning_tokens"),
    "openai-responses": ("input_tokens_details", "cache_write_tokens"),
}
NO_COUNTS = ["7", "", 1.5, -1, True, [], {}, [7], {"n": 7}]


def with_usage(body: dict[str, Any], usage: Any) -> dict[str, Any]:
    """A body with a usage, or without one."""
    return body if usage is ABSENT else body | {"usage": usage}


def whole(api: str, usage: Any) -> ts.Response:
    """A whole answer with that usage."""
    bodies: dict[str, dict[str, Any]] = {
        "anthropic-messages": {
            "type": "message",
            "role": "assistant",
            "content": [{"type": "text", "text": "Hi"}],
            "stop_reason": "end_turn",
        },
        "openai-chat": {"choices": [{"message": {"content": "Hi"}, "finish_reason": "stop"}]},
        "openai-completions": {"choices": [{"text": "Hi", "finish_reason": "stop"}]},
        "openai-responses": {"status": "completed", "output": [message()]},
    }
    return ts.get_api(api).parse_response(json.dumps(with_usage(bodies[api], usage)))


def message() -> dict[str, Any]:
    """An output item that says `Hi`."""
    return {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "Hi"}]}


def streamed(api: str, usage: Any) -> ts.Response:
    """The same answer as a stream, its usage where that API has it."""
    if api == "anthropic-messages":
        opening = {"type": "message_start", "message": {"role": "assistant", "content": []}}
        closing = with_usage({"type": "message_delta", "delta": {"stop_reason": "end_turn"}}, usage)
        data = messages_stream(opening, *messages_text(0, "Hi"), closing, MESSAGE_STOP)
    elif api == "openai-responses":
        over = with_usage({"status": "completed", "output": [message()]}, usage)
        data = of_payloads({"type": "response.created"}, {"type": "response.completed", "response": over})
    else:
        said: dict[str, Any] = {"text": "Hi"} if api == "openai-completions" else {"delta": {"content": "Hi"}}
        chunks = [{"choices": [said]}, {"choices": [{"finish_reason": "stop"}]}, with_usage({"choices": []}, usage)]
        data = b"".join([frame(json.dumps(chunk)) for chunk in chunks]) + frame("[DONE]")
    return read(api, data)


def read(api: str, data: bytes) -> ts.Response:
    """What a stream tells."""
    parser = ts.get_api(api).stream_parser()
    return ts.fold([*parser.feed(data), *parser.close()])


def kinds(response: ts.Response) -> set[str]:
    """The kinds of issues that a response has."""
    return {issue.kind for issue in response.issues}


@pytest.mark.parametrize("said", [whole, streamed])
@pytest.mark.parametrize("api", sorted(GOOD))
def test_a_usage_that_is_whole_or_not_there_is_no_issue(api: str, said: Said) -> None:
    assert (ts.Usage(5, 2), set()) == ((response := said(api, GOOD[api])).usage, kinds(response))
    for nothing in (ABSENT, None):
        response = said(api, nothing)
        assert (None, set()) == (response.usage, kinds(response))


@pytest.mark.parametrize("said", [whole, streamed])
@pytest.mark.parametrize("which", [0, 1])
@pytest.mark.parametrize("api", sorted(GOOD))
def test_a_count_that_is_required_and_missing_or_null_is_an_issue_and_not_a_zero(
    api: str, which: int, said: Said
) -> None:
    name = list(GOOD[api])[which]
    for usage in ({}, GOOD[api] | {name: None}, {key: one for key, one in GOOD[api].items() if key != name}):
        response = said(api, usage)
        assert "Hi" == text_content(response.items[0].content)  # type: ignore[attr-defined]
        assert (None, {"missing_count"}) == (response.usage, kinds(response))
        assert any(name in issue.detail for issue in response.issues)


@pytest.mark.parametrize("said", [whole, streamed])
@pytest.mark.parametrize("value", NO_COUNTS, ids=repr)
@pytest.mark.parametrize("api", sorted(GOOD))
def test_a_value_that_is_no_count_is_an_issue_wherever_it_stands(api: str, value: Any, said: Said) -> None:
    for name in GOOD[api]:
        response = said(api, GOOD[api] | {name: value})
        assert "invalid_count" in kinds(response)
        assert response.usage == (ts.Usage(5, 2) if name == "total_tokens" else None)
        assert any(name in issue.detail for issue in response.issues)
    outer, inner = NESTED[api]
    response = said(api, GOOD[api] | {outer: {inner: value}})
    assert (ts.Usage(5, 2), {"invalid_count"}) == (response.usage, kinds(response))
    if value != {}:
        response = said(api, GOOD[api] | {outer: value})
        assert response.usage == ts.Usage(5, 2)
        assert ({"invalid_count"} if not isinstance(value, dict) else set()) == kinds(response)


@pytest.mark.parametrize("said", [whole, streamed])
@pytest.mark.parametrize("value", [7, "7", [], True], ids=repr)
@pytest.mark.parametrize("api", sorted(GOOD))
def test_a_usage_that_is_no_object_is_an_issue(api: str, value: Any, said: Said) -> None:
    response = said(api, value)
    assert (None, {"invalid_count"}) == (response.usage, kinds(response))


@pytest.mark.parametrize("api", sorted(GOOD))
def test_a_count_with_a_point_and_no_fraction_is_one(api: str) -> None:
    assert ts.Usage(5, 2) == whole(api, {name: float(count) for name, count in GOOD[api].items()}).usage


@pytest.mark.parametrize("api", ["openai-chat", "openai-completions"])
def test_of_several_usages_in_chunks_the_last_one_counts(api: str) -> None:
    said: dict[str, Any] = {"text": "Hi"} if api == "openai-completions" else {"delta": {"content": "Hi"}}
    chunks = [{"choices": [said], "usage": {}}, {"choices": [said | {"finish_reason": "stop"}], "usage": CHAT}]
    response = read(api, b"".join([frame(json.dumps(chunk)) for chunk in chunks]))
    assert (ts.Usage(5, 2), []) == (response.usage, response.issues)


def test_the_count_at_the_start_of_a_message_is_not_what_the_answer_cost() -> None:
    opening = {"role": "assistant", "content": [], "usage": {"input_tokens": 5, "output_tokens": 1}}
    for usage in (ABSENT, None, {}, {"output_tokens": None}):
        closing = with_usage({"type": "message_delta", "delta": {"stop_reason": "end_turn"}}, usage)
        started = {"type": "message_start", "message": opening}
        response = read("anthropic-messages", messages_stream(started, *messages_text(0, "Hi"), closing, MESSAGE_STOP))
        assert (None, {"missing_count"}) == (response.usage, kinds(response))


def test_a_count_that_is_put_right_later_in_the_stream_is_no_issue() -> None:
    opening = {"role": "assistant", "content": [], "usage": {"input_tokens": "5", "output_tokens": None}}
    closing = {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": GOOD["anthropic-messages"]}
    started = {"type": "message_start", "message": opening}
    response = read("anthropic-messages", messages_stream(started, *messages_text(0, "Hi"), closing, MESSAGE_STOP))
    assert (ts.Usage(5, 2), []) == (response.usage, response.issues)


@pytest.mark.parametrize("api", sorted(GOOD))
def test_members_beside_counts_that_are_not_told_are_listed_where_they_are_left_out(api: str) -> None:
    response = whole(api, {"cost": 0.5})
    request = ts.Request(origin=response.origin, settings=ts.Settings(model="m"))
    rendered = ts.get_api(api).render_response(response, request)
    assert json.loads(rendered.data).get("usage") is not None or "$.usage" in [loss.path for loss in rendered.losses]


@pytest.mark.parametrize(("input_", "paths"), [(9, ["$.usage"]), (10, []), (11, [])])
def test_a_cache_of_more_than_the_prompt_is_reported_where_the_rest_is_told(input_: int, paths: list[str]) -> None:
    """Some servers count without what was cached. A count below 0 would be none."""
    response = ts.Response(items=[ts.Assistant(content=[ts.Text(text="a")])], finish_reason="stop")
    response.usage = ts.Usage(input_, 4, 3, 7)
    rendered = ts.get_api("anthropic-messages").render_response(response, ts.Request())
    assert max(0, input_ - 10) == rendered.value["usage"]["input_tokens"]
    assert paths == [loss.path for loss in rendered.losses]


@pytest.mark.parametrize("said", [whole, streamed])
@pytest.mark.parametrize("missing", ["input_tokens", "output_tokens"])
def test_counts_that_are_not_all_are_told_again_by_the_api_that_told_them(missing: str, said: Said) -> None:
    """Only the one that nobody told is made up, which is a loss. Another API has no place for any of them."""
    name = "anthropic-messages"
    details = {"output_tokens_details": {"thinking_tokens": 1, "new": 7}}
    counts = {"input_tokens": 5, "cache_read_input_tokens": 3, "output_tokens": 2, **details}
    response = said(name, {key: count for key, count in counts.items() if key != missing})
    assert response.usage is None
    rendered = ts.get_api(name).render_response(response, ts.Request())
    streamed_, losses = stream_of(response, ts.Request(), ts.get_api(name))
    ends = [json.loads(text) for kind, text in SseReader().feed(streamed_) if kind == "message_delta"]
    expected = {"cache_creation_input_tokens": 0, **counts, missing: 0}
    whole_, last = expected | SILENT_USAGE, expected | {"server_tool_use": None}
    assert [whole_, last] == [json.loads(rendered.data)["usage"], ends[0]["usage"]]
    for lost in (rendered.losses, losses):
        assert [("$.usage", "invented")] == [(loss.path, loss.kind) for loss in lost if loss.path == "$.usage"]
    other = ts.get_api("openai-responses").render_response(response, ts.Request())
    assert "$.usage" in [loss.path for loss in other.losses]
