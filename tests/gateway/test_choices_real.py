"""Owns several answers to one request by the real llama.cpp: its slots, its seeds, its counts."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import openai
import pytest

from tests.gateway.conftest import SLOTS
from tests.gateway.running import Running
from tests.sdks import openai_sdk
from turnscript.gateway.config import Config

ASK: Any = [{"role": "user", "content": "Say something."}]
KINDS = ["llamacpp", "completions"]


@pytest.fixture(scope="module", params=KINDS)
def gateway(llamacpp: str, request: pytest.FixtureRequest) -> Iterator[Running]:
    with Running(Config.for_backend(llamacpp, "openchatml", kind=request.param)) as made:
        yield made


@pytest.fixture(scope="module")
def sdk(gateway: Running) -> Iterator[openai.OpenAI]:
    with openai_sdk(gateway.url, timeout=60) as made:
        yield made


def texts(told: Any) -> list[str]:
    return [one.message.content for one in told.choices]


def test_answers_differ_by_their_seeds_and_their_prompt_counts_once(sdk: openai.OpenAI) -> None:
    one = sdk.chat.completions.create(model="m", messages=ASK, max_tokens=20, seed=3, temperature=1)
    told = sdk.chat.completions.create(model="m", messages=ASK, max_tokens=20, seed=3, temperature=1, n=5)
    assert [0, 1, 2, 3, 4] == [choice.index for choice in told.choices]
    assert texts(one)[0] == texts(told)[0]
    assert 5 == len(set(texts(told)))
    assert one.usage is not None
    assert told.usage is not None
    assert one.usage.prompt_tokens == told.usage.prompt_tokens
    assert one.usage.completion_tokens < told.usage.completion_tokens <= 100


def test_at_temperature_0_they_are_alike_and_streamed_as_they_are_whole(sdk: openai.OpenAI) -> None:
    told = sdk.chat.completions.create(model="m", messages=ASK, max_tokens=20, temperature=0, n=3)
    assert 1 == len(set(texts(told)))
    with sdk.chat.completions.create(
        model="m", messages=ASK, max_tokens=20, temperature=0, n=3, stream=True, stream_options={"include_usage": True}
    ) as stream:
        *chunks, last = stream
    said = ["", "", ""]
    for chunk in chunks:
        said[chunk.choices[0].index] += chunk.choices[0].delta.content or ""
    assert texts(told) == said
    assert told.usage is not None
    assert last.usage is not None
    assert told.usage.completion_tokens == last.usage.completion_tokens


@pytest.mark.parametrize("gateway", ["llamacpp"], indirect=True)
def test_no_more_run_than_there_are_slots(gateway: Running, sdk: openai.OpenAI) -> None:
    (served,) = gateway.service.models()
    assert SLOTS == served.pool.capacity
    seen, pause = set(), threading.Event()
    with ThreadPoolExecutor(1) as pool:
        made = pool.submit(sdk.chat.completions.create, model="m", messages=ASK, max_tokens=40, n=6)
        while not made.done():
            seen.add(served.pool.running)
            pause.wait(0.001)
        assert 6 == len(made.result().choices)
    assert SLOTS == max(seen)
