"""Owns several answers to one request as the official SDKs of both languages understand them, from the real gateway."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.answers.verdict import Sdk
from tests.gateway.scripted import CLOSE, STREAM, Asked, Script, chunk, event
from tests.gateway.stage import Stage, answer, piece, text_of_call

TOOLS = [{"type": "function", "function": {"name": "get_weather", "parameters": {"type": "object", "properties": {}}}}]
ANSWERS: list[Script] = [
    answer("On", "e", pause=0.01),
    answer(text_of_call(), pause=0.01),
    answer("Thr", "ee", pause=0.01),
]


@pytest.fixture(scope="module")
def gateway() -> Iterator[Any]:
    """Of which an SDK wants nothing but its URL."""
    with Stage() as made:
        yield made


def by_seed(asked: Asked) -> Script:
    number: int = asked.json["seed"]
    return ANSWERS[number]


@pytest.mark.parametrize("way", ["chat", "chat.stream"])
def test_each_choice_is_whole_and_in_its_place(gateway: Any, sdk: Sdk, way: str) -> None:
    gateway.play_by(by_seed)
    more: Any = {"stream_options": {"include_usage": True}} if way == "chat.stream" else {}
    verdict = sdk.ask(way, gateway, n=3, seed=0, tools=TOOLS, **more)
    assert verdict.error is None
    choices = verdict.result["choices"]
    assert [0, 1, 2] == [one["index"] for one in choices]
    assert ["stop", "tool_calls", "stop"] == [one["finish_reason"] for one in choices]
    assert ["assistant"] * 3 == [one["message"]["role"] for one in choices]
    assert ["One", None, "Three"] == [one["message"].get("content") for one in choices]
    (call,) = choices[1]["message"]["tool_calls"]
    assert ("get_weather", '{"city": "Paris"}') == (call["function"]["name"], call["function"]["arguments"])
    usage = verdict.result["usage"]
    assert (12, 5) == (usage["prompt_tokens"], usage["completion_tokens"])


def test_a_failure_of_one_is_an_error_of_the_stream(gateway: Any, sdk: Sdk) -> None:
    broken: Script = [STREAM, chunk(event(piece("Hm"))), CLOSE]
    gateway.play_by(lambda asked: broken if asked.json["seed"] == 1 else answer("One"))
    verdict = sdk.ask("chat.stream", gateway, n=2, seed=0)
    assert verdict.error is not None
    assert verdict.result is None


def test_a_number_that_is_too_large_is_a_bad_request(gateway: Any, sdk: Sdk) -> None:
    verdict = sdk.ask("chat", gateway, n=1000)
    assert verdict.error is not None
    assert ("BadRequestError", 400) == (verdict.error.name, verdict.error.status)
