"""Owns the official JavaScript SDKs before the gateway: a call, its result, an answer, and what they make of errors."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import turnscript as ts
from tests.answers.javascript import JavaScript
from tests.gateway.echo import ECHOES, Body, asking, result, user
from tests.gateway.scripted import END, RESET, STREAM, chunk, event, said
from tests.gateway.speaker import Speaker, Talk, call, speaking, text
from tests.gateway.stage import WEATHER, Stage, answer, piece
from turnscript.gateway.keys import add_key

APIS = {"chat": "openai-chat", "responses": "openai-responses", "messages": "anthropic-messages"}
EACH = pytest.mark.parametrize("method", APIS)
ALL = pytest.mark.parametrize("method", [*APIS, "completions"])
BOTH = pytest.mark.parametrize("way", ["", ".stream"], ids=["whole", "stream"])
TOOLS = [{"name": "get_weather", "input_schema": json.loads(bytes(WEATHER.parameters or b"{}"))}]


@pytest.fixture(scope="module")
def javascript() -> Iterator[JavaScript]:
    with JavaScript() as opened:  # fails, and says what to do, where the SDKs are not installed
        yield opened


@pytest.fixture(scope="module")
def talk() -> Iterator[Talk]:
    with speaking(Speaker(ts.get_format("rwkv-universal"), [WEATHER])) as made:
        yield made


def calls_of(answer: Body) -> list[tuple[str, Any]]:
    """The ids and the arguments of an answer's calls, as each SDK gives them to a program."""
    if "choices" in answer:
        made = answer["choices"][0]["message"].get("tool_calls") or []
        return [(one["id"], json.loads(one["function"]["arguments"])) for one in made]
    if "output" in answer:
        made = [one for one in answer["output"] if one["type"] == "function_call"]
        return [(one["call_id"], json.loads(one["arguments"])) for one in made]
    return [(one["id"], one["input"]) for one in answer["content"] if one["type"] == "tool_use"]


def text_of(answer: Body) -> str:
    """What an answer says."""
    if "choices" in answer:
        return str(answer["choices"][0]["message"]["content"])
    parts = answer["output"][-1]["content"] if "output" in answer else answer["content"]
    return "".join([part["text"] for part in parts])


@EACH
@BOTH
def test_a_tool_loop_runs(javascript: JavaScript, talk: Talk, method: str, way: str) -> None:
    api, speaker = APIS[method], talk.speaker
    speaker.clear()
    speaker.say(call("get_weather", city="Tokyo"))
    speaker.say(text("It is clear."))
    messages = [user(api, f"Weather in Tokyo, {method}{way}?")]
    first = javascript.ask(method + way, talk, **asking(api, messages, TOOLS))
    assert first.error is None, first.error
    [(call_id, arguments)] = calls_of(first.result)
    assert {"city": "Tokyo"} == arguments
    messages += [*ECHOES[api][0](first.result), result(api, call_id, '{"sky": "clear"}')]
    second = javascript.ask(method + way, talk, **asking(api, messages, TOOLS))
    assert second.error is None, second.error
    assert "It is clear." == text_of(second.result)
    assert bool(way) == bool(second.events)
    before, last = speaker.said
    assert last.prompt.startswith(before.prompt + before.written)


@ALL
def test_a_wrong_key_is_an_authentication_error(javascript: JavaScript, tmp_path: Path, method: str) -> None:
    add_key(tmp_path / "keys", "anna")
    with Stage(server={"keys": tmp_path / "keys"}) as stage:
        told = javascript.ask(method, stage)
    assert told.error is not None
    assert ("AuthenticationError", 401) == (told.error.name, told.error.status)


@pytest.mark.deep
@ALL
def test_what_a_server_refuses_is_an_error_with_its_status(javascript: JavaScript, stage: Stage, method: str) -> None:
    stage.play(said({"error": {"message": "slow down", "type": "rate_limit_error"}}, status=429))
    told = javascript.ask(method, stage)
    assert told.error is not None
    assert ("RateLimitError", 429) == (told.error.name, told.error.status)
    assert "slow down" in told.error.message
    stage.play(said({"error": {"message": "slow down", "type": "rate_limit_error"}}, status=429), answer("Hello"))
    assert javascript.ask(method, stage, retries=1).error is None


@EACH
@pytest.mark.parametrize("rest", [[RESET], [chunk(event({"error": "out of memory"})), END]], ids=["reset", "an error"])
def test_a_stream_that_breaks_off_is_no_answer(
    javascript: JavaScript, stage: Stage, method: str, rest: list[Any]
) -> None:
    stage.play([STREAM, chunk(event(piece("Once upon a time"))), 0.05, *rest])
    told = javascript.ask(f"{method}.stream", stage)
    assert told.events
    if told.error is None:  # this one says it in the answer itself
        assert "failed" == told.result["status"]
        assert told.result["error"]["message"]
