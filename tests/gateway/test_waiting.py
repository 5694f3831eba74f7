"""Owns waiting for a turn: a stream is told how many wait before it, and the metrics how many did and how long."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator
from typing import Any

import pytest

from tests.gateway.scripted import END, HANG, Asked, Script, sse
from tests.gateway.stage import APIS, CHATS, Stage, answer, body_of, connected, named, piece, post
from tests.sdks import anthropic_sdk, openai_sdk
from turnscript.apis.api import Api
from turnscript.gateway import answers
from turnscript.gateway.config import Limits
from turnscript.gateway.limits import Gate

pytestmark = pytest.mark.usefixtures("nothing_goes_wrong")
WAITING = re.compile(rb": waiting, (\d+) before you\n\n")


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(answers, "QUEUED", 0.1)


@pytest.fixture
def narrow() -> Iterator[Stage]:
    with Stage(server={"keepalive": 0.1}, limits={"backend_running": 1}) as made:
        yield made


def first_hangs(asked: Asked) -> Script:
    return [HANG] if "I was first" in str(asked.json["prompt"]) else answer("Hello")


async def heard(reader: asyncio.StreamReader, pattern: bytes, before: bytes = b"") -> bytes:
    """What comes until a pattern does."""
    async with asyncio.timeout(20):
        while not re.search(pattern, before):
            data = await reader.read(4096)
            assert data, before
            before += data
    return before


@pytest.mark.parametrize("api", APIS, ids=named)
def test_a_stream_that_waits_is_told_its_place(narrow: Stage, api: Api) -> None:
    narrow.play_by(first_hangs)
    served = narrow.gateway.service.models()[0]

    async def run() -> bytes:
        async with connected(narrow.url) as (_, blocker):
            blocker.write(post(api, body_of(api, stream=True, text="I was first")))
            await asyncio.to_thread(narrow.until, lambda: served.gate.running == 1)
            async with connected(narrow.url) as (_, second), connected(narrow.url) as (reader, third):
                second.write(post(api, body_of(api, stream=True, text="I was second")))
                await asyncio.to_thread(narrow.until, lambda: served.waiting == 1)
                third.write(post(api, body_of(api, stream=True, text="I was third")))
                said = await heard(reader, rb"waiting, 1 before you")
                assert b"waiting, 0" not in said
                second.close()
                said = await heard(reader, rb"waiting, 0 before you", said)
                blocker.close()
                return await heard(reader, rb"\[DONE\]|message_stop|response.completed|finishReason", said)

    said = asyncio.run(run())
    assert b"Hello" in said
    places = [int(one) for one in WAITING.findall(said)]
    assert (1, 0) == (places[0], places[-1])
    assert sorted(places, reverse=True) == places
    assert said.rindex(b": waiting") < said.index(b"Hello")
    text = narrow.client.get("/metrics").text
    assert 'turnscript_queue_place_count{model="default"} 2.0' in text
    assert 'turnscript_queue_place_bucket{le="0.0",model="default"} 1.0' in text
    assert 'turnscript_queue_seconds_count{model="default"} 2.0' in text
    assert float(re.findall(r'queue_seconds_sum\{model="default"\} (\S+)', text)[0]) > 0.1


@pytest.mark.parametrize("api", CHATS, ids=named)
def test_who_need_not_wait_is_told_nothing_of_it(narrow: Stage, api: Api) -> None:
    narrow.play(sse(piece("He"), piece("llo"), piece("", "stop"), "[DONE]", pause=0.3, end=(END,)))
    told = narrow.ask(api, stream=True)
    assert ("Hello", False) == (told.text, b"waiting" in told.body)
    assert "turnscript_queue_place_count" not in narrow.client.get("/metrics").text


def test_a_place_in_the_queue_of_a_key_is_told_too() -> None:
    with Stage(server={"keepalive": 0.1}, limits={"running": 1}) as stage:
        stage.play_by(first_hangs)
        api = CHATS[0]

        async def run() -> None:
            async with connected(stage.url) as (_, blocker), connected(stage.url) as (reader, second):
                blocker.write(post(api, body_of(api, stream=True, text="I was first")))
                await asyncio.to_thread(stage.until, lambda: len(stage.asks[0]) == 1)
                second.write(post(api, body_of(api, stream=True, text="I was second")))
                await heard(reader, rb"waiting, 0 before you")

        asyncio.run(run())


@pytest.mark.deep
def test_the_sdks_take_no_word_of_it_for_an_answer(narrow: Stage) -> None:
    """Each waits for a request that ends by itself after a while."""

    def slow(asked: Asked) -> Script:
        pause = 0.8 if "I was first" in str(asked.json["prompt"]) else 0.0
        return sse(piece("He"), piece("llo"), piece("", "stop"), "[DONE]", pause=pause, end=(END,))

    narrow.play_by(slow)
    served = narrow.gateway.service.models()[0]
    api = CHATS[0]
    ask: Any = [{"role": "user", "content": "Hi"}]

    def behind(told: Any) -> None:
        async def run() -> None:
            async with connected(narrow.url) as (_, blocker):
                blocker.write(post(api, body_of(api, stream=True, text="I was first")))
                await asyncio.to_thread(narrow.until, lambda: served.gate.running == 1)
                assert "Hello" == await asyncio.to_thread(told)

        asyncio.run(run())
        narrow.until(narrow.idle)

    with openai_sdk(narrow.url) as openai, anthropic_sdk(narrow.url) as anthropic:

        def chat() -> str:
            chunks = openai.chat.completions.create(model="m", messages=ask, stream=True)
            return "".join([chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices])

        def responses() -> str:
            with openai.responses.stream(model="m", input="Hi") as stream:
                return stream.get_final_response().output_text

        def messages() -> str:
            with anthropic.messages.stream(model="m", max_tokens=99, messages=ask) as stream:
                return stream.get_final_text()

        for told in (chat, responses, messages):
            behind(told)
    assert 'turnscript_queue_place_count{model="default"} 3.0' in narrow.client.get("/metrics").text


def test_a_gate_tells_places_as_they_change_and_when_waiting_is_over() -> None:
    async def run() -> None:
        gate = Gate(Limits(), 1, "the model")
        assert gate.passes()
        told: list[list[Any]] = [[], [], []]
        waits = [asyncio.create_task(gate.enter(one.append)) for one in told]
        await asyncio.sleep(0)
        assert [0, 1, 2] == [one[0]() for one in told]
        waits[1].cancel()
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert (1, None) == (told[2][0](), told[1][-1])
        gate.leave()
        await waits[0]
        assert (0, None) == (told[2][0](), told[0][-1])
        gate.leave()
        await waits[2]
        assert [2, 2, 2] == [len(one) for one in told]
        gate.leave()
        assert gate.idle

    asyncio.run(run())
