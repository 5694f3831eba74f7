"""Owns several answers to one request, as the openai SDK gets them: whole and streamed, side by side or in turn."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from threading import Event
from typing import Any

import openai
import pytest

from tests.gateway.scripted import CLOSE, END, HANG, STREAM, Asked, Script, chunk, event, said, sse
from tests.gateway.stage import (
    WEATHER,
    Stage,
    answer,
    body_of,
    connected,
    piece,
    post,
    quiet,
    text_of_call,
)
from tests.sdks import openai_sdk
from turnscript.convert.registry import get_api
from turnscript.gateway.headers import LOSSES, POLICY, REPORT

CHAT, TEXT = get_api("openai-chat"), get_api("openai-completions")
ASK: Any = [{"role": "user", "content": "Hello"}]
TOOLS: Any = [
    {"type": "function", "function": {"name": WEATHER.name, "parameters": json.loads(bytes(WEATHER.parameters or b""))}}
]
BOTH = pytest.mark.parametrize("stream", [True, False], ids=["stream", "whole"])
SEED = 7


@pytest.fixture(autouse=True)
def nothing_goes_wrong(caplog: pytest.LogCaptureFixture, stage: Stage) -> Iterator[None]:
    with quiet(caplog):
        yield
        stage.until(stage.idle)


@pytest.fixture(scope="module")
def sdk(stage: Stage) -> Iterator[openai.OpenAI]:
    with openai_sdk(stage.url) as made:
        yield made


def by_seed(*scripts: Script) -> Callable[[Asked], Script]:
    """A script for each answer of a request with the seed SEED."""
    return lambda asked: scripts[asked.json["seed"] - SEED]


def chunks_of(body: bytes) -> list[Any]:
    return [json.loads(line) for line in re.findall(rb"^data: (\{.*)$", body, re.MULTILINE)]


def report_of(stage: Stage, headers: Any) -> Any:
    return stage.client.get(headers[REPORT]).json()


# What the client is told.


def test_a_whole_answer_has_all_choices(stage: Stage, sdk: openai.OpenAI) -> None:
    stage.play_by(by_seed(answer("One"), answer("Two", " and", " more", finish="length"), answer("Three")))
    raw = sdk.chat.completions.with_raw_response.create(model="m", messages=ASK, n=3, seed=SEED)
    told = raw.parse()
    assert [0, 1, 2] == [one.index for one in told.choices]
    assert ["One", "Two and more", "Three"] == [one.message.content for one in told.choices]
    assert ["stop", "length", "stop"] == [one.finish_reason for one in told.choices]
    assert told.usage is not None
    assert (12, 5, 17) == (told.usage.prompt_tokens, told.usage.completion_tokens, told.usage.total_tokens)
    assert ("0", told.id[:9]) == (raw.headers[LOSSES], "chatcmpl-")
    report = report_of(stage, raw.headers)
    assert ("stop, length, stop", 5) == (report["finish_reason"], report["usage"]["output"])


def test_a_stream_has_all_choices_mixed_and_one_end(stage: Stage) -> None:
    stage.play_by(by_seed(*(answer(f"a{at}", f"b{at}", f"c{at}", pause=0.03) for at in range(3))))
    told = stage.ask(CHAT, stream=True, n=3, seed=SEED, stream_options={"include_usage": True})
    chunks = chunks_of(told.body)
    assert told.body.endswith(b"data: [DONE]\n\n")
    assert 1 == told.body.count(b"[DONE]")
    assert 1 == len({one["id"] for one in chunks})
    choices = [one["choices"][0] for one in chunks[:-1]]
    roles = [one["index"] for one in choices if "role" in one["delta"]]
    assert [0, 1, 2] == roles == [one["index"] for one in choices[:3]]
    texts = [(one["index"], text) for one in choices if (text := one["delta"].get("content"))]
    for at in range(3):
        assert [f"a{at}", f"b{at}", f"c{at}"] == [text for index, text in texts if index == at]
        assert ["stop"] == [one["finish_reason"] for one in choices if one["index"] == at and one["finish_reason"]]
    assert {"a0", "a1", "a2"} == {text for _, text in texts[:3]}  # side by side
    assert {"prompt_tokens": 12, "completion_tokens": 9, "total_tokens": 21}.items() <= chunks[-1]["usage"].items()
    assert [[]] == [one["choices"] for one in chunks if one["usage"] is not None]


def test_the_helper_of_the_sdk_gathers_every_choice(stage: Stage, sdk: openai.OpenAI) -> None:
    stage.play_by(by_seed(answer("On", "e"), answer(text_of_call("Rome")), answer("Thr", "ee"), answer(text_of_call())))
    with sdk.chat.completions.stream(model="m", messages=ASK, n=4, seed=SEED, tools=TOOLS) as stream:
        told = stream.get_final_completion()
    assert [0, 1, 2, 3] == [one.index for one in told.choices]
    assert ["One", None, "Three", None] == [one.message.content for one in told.choices]
    assert ["stop", "tool_calls"] * 2 == [one.finish_reason for one in told.choices]
    calls = [one.message.tool_calls or [] for one in told.choices]
    assert [0, 1, 0, 1] == [len(each) for each in calls]
    assert [{"city": "Rome"}, {"city": "Paris"}] == [json.loads(each[0].function.arguments) for each in calls if each]
    assert 2 == len({each[0].id for each in calls if each})


@BOTH
def test_each_choice_has_the_tokens_of_its_text(stage: Stage, sdk: openai.OpenAI, stream: bool) -> None:
    last = piece("", "stop")
    stage.play_by(by_seed(*(sse(scored(f"a{at}"), scored(f"b{at}"), last, "[DONE]", end=(END,)) for at in range(2))))
    told: Any = sdk.chat.completions.create(
        model="m", messages=ASK, n=2, seed=SEED, logprobs=True, top_logprobs=1, stream=stream
    )
    found: dict[int, list[str]] = {0: [], 1: []}
    for one in told if stream else [told]:
        for choice in one.choices:
            if choice.logprobs is not None:
                found[choice.index] += [token.token for token in choice.logprobs.content]
    assert {0: ["a0", "b0"], 1: ["a1", "b1"]} == found


def scored(text: str) -> Any:
    """A chunk of one token."""
    lists = {"tokens": [text], "token_logprobs": [-1.0], "top_logprobs": [{text: -1.0}], "text_offset": [0]}
    return {"choices": [{"text": text, "index": 0, "finish_reason": None, "logprobs": lists}]}


@BOTH
def test_empty_answers_are_choices_as_well(stage: Stage, sdk: openai.OpenAI, stream: bool) -> None:
    stage.play(answer())
    if not stream:
        told: Any = sdk.chat.completions.create(model="m", messages=ASK, n=3)
    else:
        with sdk.chat.completions.stream(model="m", messages=ASK, n=3) as events:
            told = events.get_final_completion()
    assert [(0, ""), (1, ""), (2, "")] == [(one.index, one.message.content) for one in told.choices]


@BOTH
def test_what_is_wrong_with_a_choice_says_which(stage: Stage, stream: bool) -> None:
    wrong = text_of_call().replace("city", "town")
    stage.play_by(by_seed(answer(text_of_call()), answer(wrong), answer("Hello"), answer(wrong)))
    told = stage.ask(CHAT, stream=stream, n=4, seed=SEED, tools=[WEATHER], temperature=3)
    report = report_of(stage, told.headers)
    found = [finding["path"].split(".")[0] for finding in report["findings"]]
    assert {"choices[1]", "choices[3]"} == set(found)
    assert "$.temperature" in [loss["path"] for loss in report["losses"]]
    assert 1 == [loss["path"] for loss in report["losses"]].count("$.temperature")


def test_only_one_call_is_made_in_each_choice_if_one_may_be(stage: Stage) -> None:
    two = text_of_call("Rome") + text_of_call("Oslo")
    stage.play_by(by_seed(answer(two), answer(two)))
    told = stage.ask(CHAT, stream=False, n=2, seed=SEED, tools=[WEATHER], parallel_tool_calls=False)
    assert [1, 1] == [len(one["message"]["tool_calls"]) for one in told.json["choices"]]


def test_whichever_choice_comes_back_is_the_text_that_its_model_wrote(stage: Stage, sdk: openai.OpenAI) -> None:
    spaced = [text_of_call(city).replace('":', '"  :') for city in ("Rome", "Oslo", "Bern")]
    for chosen in range(3):
        stage.play_by(by_seed(*map(answer, spaced)))
        told = sdk.chat.completions.create(model="m", messages=ASK, n=3, seed=SEED, tools=TOOLS)
        message = told.choices[chosen].message
        assert message.tool_calls is not None
        result = {"role": "tool", "tool_call_id": message.tool_calls[0].id, "content": "Rain"}
        messages: Any = [*ASK, message, result]
        stage.play(answer("It rains"))
        sdk.chat.completions.create(model="m", messages=messages, tools=TOOLS)
        assert spaced[chosen] in stage.asks[0][0].json["prompt"]


def test_one_answer_is_told_as_ever(stage: Stage) -> None:
    stage.play(answer("Hello"))
    for members in ({}, {"n": 1}, {"n": None}):
        told = stage.ask(CHAT, stream=False, **members)
        assert [0] == [one["index"] for one in told.json["choices"]]
        assert "0" == told.headers[LOSSES]


# How many, and what is asked for them.


@BOTH
@pytest.mark.parametrize("asked", [17, 0, -2])
def test_a_number_that_cannot_be_is_refused(stage: Stage, asked: int, stream: bool) -> None:
    stage.play(answer("Hello"))
    told = stage.ask(CHAT, stream=stream, n=asked)
    error = told.json["error"]
    assert (400, "invalid_request_error", "$.n") == (told.status, error["type"], error["param"])
    assert "from 1 to 16" in error["message"]
    assert [] == stage.asks[0]


def test_each_answer_has_a_seed_of_its_own(stage: Stage) -> None:
    stage.play(answer("Hello"))
    stage.ask(CHAT, stream=False, n=3, seed=SEED, headers={POLICY: "error"})
    assert [SEED, SEED + 1, SEED + 2] == sorted(asked.json["seed"] for asked in stage.asks[0])
    assert 1 == len({asked.json["prompt"] for asked in stage.asks[0]})
    stage.play(answer("Hello"))
    told = stage.ask(CHAT, stream=False, n=3, temperature=0)
    assert ["Hello"] * 3 == [one["message"]["content"] for one in told.json["choices"]]
    assert [None] * 3 == [asked.json.get("seed") for asked in stage.asks[0]]


@BOTH
def test_a_text_to_go_on_from_has_one_answer_and_a_loss(stage: Stage, stream: bool) -> None:
    stage.play(answer("Hello"))
    told = stage.ask(TEXT, stream=stream, n=3)
    assert ("Hello", 1) == (told.text, len(stage.asks[0]))
    assert "$.n" in [loss["path"] for loss in report_of(stage, told.headers)["losses"]]


# Where there is room.


def starts(stage: Stage) -> list[float]:
    """When the answers were begun, from the first on."""
    at = sorted(asked.at for asked in stage.asks[0])
    return [one - at[0] for one in at]


def test_answers_run_side_by_side_up_to_the_limit_and_those_left_in_turn() -> None:
    with Stage(limits={"backend_running": 2, "queue": 0, "wait": 0.01}) as stage:
        stage.play(answer("He", "llo", pause=0.05))
        told = stage.ask(CHAT, stream=False, n=5)
        assert ["Hello"] * 5 == [one["message"]["content"] for one in told.json["choices"]]
        at = starts(stage)
        assert at[1] < 0.1 <= at[2]
        assert all(at[later + 2] - at[later] >= 0.1 for later in range(3))


def test_a_key_has_the_places_that_it_has() -> None:
    with Stage(limits={"running": 1, "queue": 0, "wait": 0.01, "choices": 4}) as stage:
        stage.play(answer("He", "llo", pause=0.05))
        told = stage.ask(CHAT, stream=True, n=3)
        assert 3 == told.body.count(b'"role"')
        assert all(later - earlier >= 0.1 for earlier, later in zip(starts(stage), starts(stage)[1:], strict=False))
        assert 400 == stage.ask(CHAT, stream=True, n=5).status


def test_others_get_their_turn_between_the_answers_of_one_request() -> None:
    with Stage(limits={"backend_running": 1}) as stage, ThreadPoolExecutor(1) as pool:
        stage.play(answer("He", "llo", pause=0.02))
        many = pool.submit(stage.ask, CHAT, stream=False, n=6)
        stage.until(lambda: stage.asks[0])
        assert 200 == stage.ask(CHAT, stream=False, text="Somebody else").status
        assert 6 == len(many.result().json["choices"])
        assert any("Somebody else" in asked.json["prompt"] for asked in stage.asks[0][1:3])


def test_a_full_queue_refuses_all_of_them() -> None:
    with Stage(limits={"backend_running": 1, "queue": 0}) as stage, ThreadPoolExecutor(1) as pool:
        stage.play([STREAM, chunk(event(piece("First"))), 0.3, END], answer("Hello"))
        first = pool.submit(stage.ask, CHAT, stream=False)
        stage.until(lambda: stage.asks[0])
        assert 503 == stage.ask(CHAT, stream=False, n=2).status
        first.result()
        assert 200 == stage.ask(CHAT, stream=False, n=2).status


# Ends.


@BOTH
def test_a_failure_before_the_first_byte_is_one_error(
    stage: Stage, stream: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("turnscript.gateway.answers.SOON", 60.0)  # or the stream may have begun, on a busy machine
    full = said({"error": {"message": "no more memory"}}, status=500)
    stage.play_by(by_seed([HANG], full, [HANG]))
    told = stage.ask(CHAT, stream=stream, n=3, seed=SEED)
    assert (502, False) == (told.status, told.streamed)
    assert "no more memory" in told.json["error"]["message"]
    stage.until(lambda: all(asked.gone for asked in stage.asks[0] if asked.json["seed"] != SEED + 1))


def test_a_failure_in_the_middle_ends_the_stream_with_an_error(stage: Stage, sdk: openai.OpenAI) -> None:
    begun: Script = [STREAM, chunk(event(piece("Once upon"))), HANG]
    broken: Script = [STREAM, chunk(event(piece("Twice"))), 0.1, CLOSE]
    stage.play_by(by_seed(begun, answer("Done"), broken))
    told = stage.ask(CHAT, stream=True, n=3, seed=SEED)
    assert (200, True) == (told.status, told.streamed)
    *_, last = chunks_of(told.body)
    assert "error" in last
    assert 1 == told.body.count(b'"error"')
    assert b"[DONE]" not in told.body
    stage.until(lambda: all(asked.gone for asked in stage.asks[0] if asked.json["seed"] == SEED))
    with pytest.raises(openai.APIError), sdk.chat.completions.stream(model="m", messages=ASK, n=3, seed=SEED) as stream:
        stream.get_final_completion()


@BOTH
def test_a_client_that_leaves_ends_all_of_them(stage: Stage, stream: bool) -> None:
    async def run() -> None:
        async with connected(stage.url) as (_, writer):
            writer.write(post(CHAT, body_of(CHAT, stream=stream, n=3)))
            while len(stage.asks[0]) < 3:
                await asyncio.sleep(0.002)

    stage.play([STREAM, chunk(event(piece("Once upon"))), HANG])
    asyncio.run(run())
    stage.until(lambda: all(asked.gone for asked in stage.asks[0]))
    stage.until(stage.idle)


def test_a_shutdown_is_told_once() -> None:
    with Stage(server={"grace": 0.1}) as stage, ThreadPoolExecutor(1) as pool:
        stage.play([STREAM, chunk(event(piece("Once upon"))), HANG])
        told = pool.submit(stage.ask, CHAT, stream=True, n=3)
        stage.until(lambda: len(stage.asks[0]) == 3)
        stage.gateway.__exit__(None, None, None)
        assert 1 == told.result().body.count(b"shutting down")


def test_a_silent_stream_gives_signs_of_life_as_long_as_any_goes_on() -> None:
    with Stage(server={"keepalive": 0.1}) as stage:
        heard, body = Event(), b""
        silent: Script = [STREAM, chunk(event(piece("Well"))), heard, chunk(event(piece("", "stop"))), END]
        stage.play_by(by_seed(answer("One"), silent, answer("Three")))
        asked = body_of(CHAT, stream=True, n=3, seed=SEED)
        with stage.client.stream("POST", CHAT.endpoint, content=asked) as response:
            for data in response.iter_raw():
                body += data
                if body.count(b": keepalive") >= 2:
                    heard.set()
        assert heard.is_set()
        assert body.endswith(b"data: [DONE]\n\n")


def test_tokens_of_all_answers_are_used_up() -> None:
    with Stage(limits={"tokens_per_minute": 20}) as stage:
        stage.play(answer("a", "b", "c"))
        assert 200 == stage.ask(CHAT, stream=False, n=3).status  # 12 read once, and 9 written
        assert 429 == stage.ask(CHAT, stream=False).status
