"""Owns the checks of calls without a name in whole answers: each becomes an issue, however many there are."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

import turnscript as ts
from tests.growth import assert_grows_below


def _called(count: int) -> list[tuple[str, str]]:
    """As many calls with a name as without one behind them, each with its arguments."""
    return [(name, f'{{"a":{at}}}') for name in ("f", "") for at in range(count)]


def _messages(count: int) -> Any:
    calls = [
        {"type": "tool_use", "id": f"c{at}", "name": name, "input": json.loads(arguments)}
        for at, (name, arguments) in enumerate(_called(count))
    ]
    usage = {"input_tokens": 1, "output_tokens": 1}
    return {"id": "m", "type": "message", "role": "assistant", "content": calls, "stop_reason": "stop", "usage": usage}


def _chat(count: int) -> Any:
    calls = [
        {"id": f"c{at}", "type": "function", "function": {"name": name, "arguments": arguments}}
        for at, (name, arguments) in enumerate(_called(count))
    ]
    message = {"role": "assistant", "content": None, "tool_calls": calls}
    return {"object": "chat.completion", "choices": [{"index": 0, "message": message, "finish_reason": "stop"}]}


def _responses(count: int) -> Any:
    calls = [
        {"type": "function_call", "call_id": f"c{at}", "name": name, "arguments": arguments}
        for at, (name, arguments) in enumerate(_called(count))
    ]
    return {"object": "response", "status": "completed", "output": calls}


ANSWERS: dict[str, Callable[[int], Any]] = {
    "anthropic-messages": _messages,
    "openai-chat": _chat,
    "openai-responses": _responses,
}


@pytest.mark.parametrize("api", ANSWERS)
def test_calls_without_a_name_are_issues_and_the_rest_stays(api: str) -> None:
    response = ts.get_api(api).parse_response(ANSWERS[api](3))
    assert ["f"] * 3 == [item.name for item in response.items if isinstance(item, ts.ToolCall)]
    told = [issue.detail for issue in response.issues if issue.kind == "invalid_call"]
    assert [f'"a":{at}' for at in range(3)] == [detail.replace(" ", "")[-6:-1] for detail in told]


@pytest.mark.deep
@pytest.mark.parametrize("api", ANSWERS)
def test_reading_takes_time_in_proportion_to_how_many_calls_have_no_name(api: str) -> None:
    def work(count: int) -> Callable[[], object]:
        body = json.dumps(ANSWERS[api](count)).encode()
        return lambda: ts.get_api(api).parse_response(body)

    assert_grows_below(12, work, 1_000, 4_000)
