"""Owns signs of life, of both sides: a client hears soon and again that its answer is being made, and whoever has gone
away costs nothing any more."""

from __future__ import annotations

import asyncio
import random
import re
import time
from collections.abc import Iterator
from contextlib import suppress
from threading import Event
from typing import Any
from weakref import ref

import pytest

from tests.clocks import run_time
from tests.gateway.scripted import FLOOD, HANG, STREAM, Script, chunk, event
from tests.gateway.stage import APIS, SESSION, Stage, Told, answer, body_of, connected, named, piece, post, quiet
from tests.sdks import anthropic_sdk, openai_sdk
from turnscript.apis.api import Api
from turnscript.gateway.visit import Visit

EACH = pytest.mark.parametrize("api", APIS, ids=named)
BOTH = pytest.mark.parametrize("stream", [True, False], ids=["stream", "whole"])
SILENT: Script = [HANG]
BEGUN: Script = [STREAM, chunk(event(piece("Once upon a time"))), HANG]
LARGE = chunk(event(piece("And so on. " * 200)))
ENDLESS: Script = [STREAM, LARGE, FLOOD]
SIGNS = {
    "anthropic-messages": b'event: ping\ndata: {"type":"ping"}\n\n',
    "openai-responses": b"event: response.in_progress\n",
    "gemini": b'data: {"candidates":[{"content":{"parts":[{"text":""}],"role":"model"},"index":0}],',
}
"""What an API says while it waits; the others comment."""
KEEPALIVE = 0.1


@pytest.fixture(scope="module")
def stage() -> Iterator[Stage]:
    with Stage(server={"keepalive": KEEPALIVE}, limits={"backend_running": 2}) as made:
        yield made


@pytest.fixture(autouse=True)
def nothing_goes_wrong(caplog: pytest.LogCaptureFixture, stage: Stage) -> Iterator[None]:
    with quiet(caplog):
        yield
        stage.until(stage.idle)


def sign_of(api: Api) -> bytes:
    return SIGNS.get(api.name, b": keepalive\n\n")


# Of the gateway.


@EACH
def test_a_stream_begins_before_the_model_does(stage: Stage, api: Api) -> None:
    async def run() -> tuple[float, bytes]:
        async with connected(stage.url) as (reader, writer):
            began = run_time()
            writer.write(post(api, body_of(api, stream=True)))
            head = await reader.readuntil(b"\r\n\r\n")
            assert head.startswith(b"HTTP/1.1 200 ")
            first = await asyncio.wait_for(reader.readuntil(b"\n\n"), 20)
            return run_time() - began, first

    stage.play(SILENT)
    took, first = asyncio.run(run())
    assert took < 2.0
    assert (b": keepalive" if api.serving.bare else b"data: {") in first


@EACH
def test_what_waits_gives_signs_of_life_before_the_first_piece_and_between_pieces(stage: Stage, api: Api) -> None:
    """As many as the client waits for, and not faster than its settings say. One may say that the answer begins."""
    first, *rest = answer("Hello", " you")[1:]
    waits = [Event(), Event()]
    stage.play([waits[0], STREAM, first, waits[1], *rest])
    body, began, times = b"", time.monotonic(), []
    with stage.client.stream("POST", api.endpoint, content=body_of(api, stream=True)) as response:
        for data in response.iter_raw():
            body += data
            before, _, behind = body.partition(b"Hello")
            for wait, seen, signs in ((waits[0], before, 3), (waits[1], behind, 2)):
                if not wait.is_set() and seen.count(sign_of(api)) >= signs:
                    times.append(time.monotonic() - began)
                    wait.set()
    told = Told(api, 200, {"content-type": "text/event-stream"}, body)
    assert "Hello you" == told.text
    assert told.error is None
    assert times[0] > 2 * KEEPALIVE
    assert times[1] - times[0] > KEEPALIVE
    numbers = [int(one) for one in re.findall(rb'"sequence_number":(\d+)', body)]
    assert list(range(len(numbers))) == numbers


def test_the_sdks_take_signs_of_life_anywhere(stage: Stage) -> None:
    ask: Any = [{"role": "user", "content": "Hello"}]
    steps = answer("Hello", " you")
    waits = [Event(), Event(), Event()]
    with (
        openai_sdk(stage.url) as client,
        anthropic_sdk(stage.url) as other,
    ):
        stage.play([step for pair in zip(steps, waits, strict=False) for step in pair] + list(steps[3:]))
        signs = 0
        with client.responses.stream(model="m", input="Hello") as stream:
            for one in stream:
                signs += one.type == "response.in_progress"
                for wait in waits[: signs - 1]:  # the first says that the answer has begun
                    wait.set()
            assert "Hello you" == stream.get_final_response().output_text
        assert all(wait.is_set() for wait in waits)
        stage.play([*[step for one in steps[:3] for step in (one, 1.6 * KEEPALIVE)], *steps[3:]])
        with client.chat.completions.stream(model="m", messages=ask) as chat:
            assert "Hello you" == chat.get_final_completion().choices[0].message.content
        with other.messages.stream(model="m", max_tokens=64, messages=ask) as messages:
            assert "Hello you" == messages.get_final_text()


@EACH
@BOTH
def test_a_request_in_the_queue_hears_of_it_too(
    stage: Stage, api: Api, stream: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("turnscript.gateway.answers.QUEUED", 0.05)

    async def run() -> bytes:
        async with connected(stage.url) as first, connected(stage.url) as second, connected(stage.url) as third:
            for number, (_, writer) in enumerate((first, second)):
                writer.write(post(api, body_of(api, stream=True, text=f"Hello {number}")))
            while len(stage.asks[0]) < 2:
                await asyncio.sleep(0.005)
            third[1].write(post(api, body_of(api, stream=stream, text="I wait")))
            told = await third[0].readuntil(sign_of(api)) if stream else b""
            await asyncio.sleep(2 * KEEPALIVE)
            assert 2 == len(stage.asks[0])
            first[1].transport.abort()
            return told + await third[0].readuntil(b"Hello you")

    stage.play(SILENT, SILENT, answer("Hello you"))
    told = asyncio.run(asyncio.wait_for(run(), 20))
    assert told.startswith(b"HTTP/1.1 200 ")
    assert (sign_of(api) in told) == stream
    assert (b": waiting, 0 before you\n\n" in told) == stream
    assert 3 == len(stage.asks[0])


# Of the client.


@EACH
@BOTH
@pytest.mark.parametrize("script", [SILENT, BEGUN], ids=["before the first byte", "in the middle"])
def test_a_client_that_goes_ends_the_generation(stage: Stage, api: Api, stream: bool, script: Script) -> None:
    async def run() -> float:
        async with connected(stage.url) as (reader, writer):
            writer.write(post(api, body_of(api, stream=stream)))
            if script is BEGUN and stream:
                await asyncio.wait_for(reader.readuntil(b"Once"), 20)
            while not stage.asks[0] or (script is BEGUN and not stage.asks[0][0].written):
                await asyncio.sleep(0.002)
        return run_time()

    stage.play(script)
    left = asyncio.run(run())
    stage.until(lambda: stage.asks[0][0].gone)
    assert (stage.asks[0][0].gone or 0) - left < 1.0
    assert 1 == len(stage.asks[0])


@EACH
@BOTH
def test_a_client_that_goes_while_it_waits_is_never_answered(stage: Stage, api: Api, stream: bool) -> None:
    gates = [served.gate for served in stage.gateway.service.models()]

    async def run() -> None:
        async with connected(stage.url) as first, connected(stage.url) as second:
            for number, (_, writer) in enumerate((first, second)):
                writer.write(post(api, body_of(api, stream=False, text=f"Hello {number}")))
            while len(stage.asks[0]) < 2:
                await asyncio.sleep(0.002)
            async with connected(stage.url) as third:
                third[1].write(post(api, body_of(api, stream=stream, text="I wait")))
                while not gates[0].waiting:
                    await asyncio.sleep(0.002)
            while gates[0].waiting:
                await asyncio.sleep(0.002)

    stage.play(SILENT)
    asyncio.run(asyncio.wait_for(run(), 20))
    stage.until(stage.idle)
    assert 2 == len(stage.asks[0])


@BOTH
def test_clients_that_are_killed_at_any_point_leave_nothing(stage: Stage, stream: bool) -> None:
    """The model would go on for minutes: each of its slots is free within a second of its client's leaving."""
    chance, left = random.Random(7), dict[int, float]()

    async def one(number: int) -> None:
        api = APIS[number % len(APIS)]
        request = post(api, body_of(api, stream=stream, text=f"I am {number}. " * 50))
        async with connected(stage.url) as (reader, writer):
            cut = chance.randrange(2 * len(request))
            writer.write(request[:cut])
            await asyncio.sleep(chance.random() * 0.08)
            if chance.random() < 0.5 and cut > len(request):
                with suppress(TimeoutError):
                    await asyncio.wait_for(reader.read(2000), 0.1)
        left[number] = run_time()

    async def run() -> None:
        start = 0
        while start < 8 * len(APIS) or len(stage.asks[0]) <= len(APIS):  # some have to come as far as the model
            await asyncio.gather(*map(one, range(start, start + 2 * len(APIS))))
            start += 2 * len(APIS)

    stage.play(answer(*["And so on. "] * 10_000, pause=0.01))
    asyncio.run(asyncio.wait_for(run(), 60))
    stage.until(stage.idle)
    for asked in stage.asks[0]:
        stage.until(lambda asked=asked: asked.gone)  # type: ignore[misc]
        number = int(re.findall(rb"I am (\d+)\.", asked.body)[0])
        assert (asked.gone or 0) - max(asked.came, left[number]) < 1.0
    stage.play(answer("Hello"))
    assert ["Hello"] * len(APIS) == [stage.ask(api, stream=stream).text for api in APIS]


@EACH
def test_a_client_that_reads_slowly_pauses_the_model(stage: Stage, api: Api) -> None:
    async def settled() -> int:
        was = -1
        while was != stage.asks[0][0].written:
            was = stage.asks[0][0].written
            await asyncio.sleep(0.06)
        return was

    async def run() -> None:
        async with connected(stage.url, room=10_000) as (reader, writer):
            writer.write(post(api, body_of(api, stream=True, limit=10_000_000)))
            while not stage.asks[0] or not stage.asks[0][0].written:
                await asyncio.sleep(0.005)
            paused = await asyncio.wait_for(settled(), 20)
            assert paused < 16_000_000
            while stage.asks[0][0].written == paused:
                assert await reader.read(100_000)

    stage.play(ENDLESS)
    asyncio.run(run())
    stage.until(lambda: stage.asks[0][0].gone)


@EACH
def test_a_client_that_reads_nothing_is_given_up(stage: Stage, api: Api) -> None:
    heart = stage.gateway.service.heart

    async def run() -> None:
        async with connected(stage.url, room=10_000) as (reader, writer):
            writer.write(post(api, body_of(api, stream=True, limit=10_000_000)))
            writer.transport.pause_reading()  # type: ignore[attr-defined]
            while not stage.asks[0] or not stage.asks[0][0].gone:
                await asyncio.sleep(0.01)
            writer.transport.resume_reading()  # type: ignore[attr-defined]
            told = b""
            with suppress(ConnectionResetError):
                while data := await reader.read(1_000_000):
                    told = told[-10:] + data
            assert not told.endswith(b"0\r\n\r\n")

    stage.play(ENDLESS)
    was, heart.stall = heart.stall, 0.3
    try:
        asyncio.run(asyncio.wait_for(run(), 20))
    finally:
        heart.stall = was


@EACH
def test_whoever_looks_after_a_stream_lets_go_of_it_when_it_is_over(stage: Stage, api: Api) -> None:
    """A request may be long, and the next one may be long in coming."""
    stage.play(BEGUN)

    async def run() -> ref[Visit]:
        async with connected(stage.url) as (reader, writer):
            writer.write(post(api, body_of(api, stream=True)))
            await asyncio.wait_for(reader.readuntil(sign_of(api)), 20)
            [visit] = stage.gateway.service.visits
            return ref(visit)

    left = asyncio.run(run())
    stage.until(lambda: left() is None)


# The same once more.


@EACH
@BOTH
def test_the_same_request_of_a_session_takes_the_place_of_the_first(stage: Stage, api: Api, stream: bool) -> None:
    body = body_of(api, stream=stream)
    told, second = twice(stage, api, body, body, SESSION, SESSION)
    assert "Hello" == second.text
    assert told.error is not None
    assert told.end is None
    if stream:
        assert told.streamed
    else:
        assert 409 == told.status
        assert "false" == told.headers["x-should-retry"]
    stage.until(lambda: stage.asks[0][0].gone)
    assert 2 == len(stage.asks[0])


@EACH
@pytest.mark.parametrize("differs", ["session", "agent", "body", "no session", "one key for a cache"])
def test_what_is_not_the_same_request_stays(stage: Stage, api: Api, differs: str) -> None:
    body = body_of(api, stream=True)
    other = body_of(api, stream=True, text="Hallo") if differs == "body" else body
    if differs == "one key for a cache":  # of all users of a program, who may well begin with the same words
        body = other = body_of(api, stream=True, prompt_cache_key="my-program")
    sessions: list[dict[str, str]] = [SESSION, SESSION | ({"x-session-id": "two"} if differs == "session" else {})]
    if differs == "agent":  # two with the same task, which one that leads them has started at the same time
        sessions = [SESSION | {"x-claude-code-agent-id": name} for name in ("a1", "a2")]
    if differs in ("no session", "one key for a cache"):
        sessions = [{}, {}]
    first, second = twice(stage, api, body, other, *sessions, ends=True)
    assert ["Once upon a time", "Hello"] == [first.text, second.text]


def twice(
    stage: Stage, api: Api, body: bytes, other: bytes, *headers: dict[str, str], ends: bool = False
) -> tuple[Told, Told]:
    """A request, and while it is answered another one: what both clients are told."""
    begun = [STREAM, chunk(event(piece("Once upon a time")))]
    stage.play([*begun, 0.12, *answer("")[2:]] if ends else [*begun, HANG], answer("Hello"))

    async def one(body: bytes, headers: dict[str, str]) -> Told:
        return await asyncio.to_thread(stage.post, api, body, headers)

    async def run() -> tuple[Told, Told]:
        first = asyncio.ensure_future(one(body, headers[0]))
        while not stage.asks[0] or not stage.asks[0][0].written:
            await asyncio.sleep(0.005)
        second = await one(other, headers[1])
        return await first, second

    return asyncio.run(asyncio.wait_for(run(), 20))
