"""Owns sizes and speeds: how large and how slow a request may be, and how slowly its answer may be taken."""

from __future__ import annotations

import asyncio
import json
import time
import tracemalloc
from collections.abc import Iterator
from typing import Any

import pytest

from tests.clocks import run_time
from tests.gateway.stage import APIS, Stage, Told, answer, body_of, connected, is_refused, named, post
from turnscript.apis.api import Api
from turnscript.core.errors import TooLarge
from turnscript.gateway.config import Server
from turnscript.gateway.visit import Pace, SlowBody

pytestmark = pytest.mark.usefixtures("nothing_goes_wrong")

EACH = pytest.mark.parametrize("api", APIS, ids=named)
LONGEST = 100_000


@pytest.fixture(scope="module")
def stage() -> Iterator[Stage]:
    with Stage(server={"max_body": LONGEST}) as made:
        yield made


@pytest.fixture(scope="module")
def hurried() -> Iterator[Stage]:
    """A gateway that soon has waited long enough for its clients."""
    with Stage(server={"header_timeout": 0.2, "body_timeout": 2.5, "idle_timeout": 0.25}) as made:
        yield made


@EACH
@pytest.mark.parametrize("declared", [True, False], ids=["declared", "chunked"])
def test_too_large_a_body_is_refused_and_its_client_hears_so(stage: Stage, api: Api, declared: bool) -> None:
    block = bytes(64 * 1024)

    def body() -> Iterator[bytes]:
        for _ in range(160):
            yield block

    headers = {"content-length": str(160 * len(block))} if declared else {}
    tracemalloc.start()
    response = stage.client.post(api.endpoint, content=body(), headers=headers)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    told = Told(api, response.status_code, dict(response.headers), response.content)
    is_refused(told, TooLarge(LONGEST))
    assert peak < 4_000_000
    stage.play(answer("Hello"))
    assert "Hello" == stage.ask(api, stream=False).text


@EACH
def test_too_large_a_body_is_refused_before_it_is_sent(stage: Stage, api: Api) -> None:
    async def run() -> bytes:
        async with connected(stage.url) as (reader, writer):
            head = post(api, b"", content_length=str(10**12), expect="100-continue")
            writer.write(head)
            return await asyncio.wait_for(reader.readuntil(b"\r\n"), 20)

    assert b"HTTP/1.1 413 " == asyncio.run(run())[:13]


MANY = [f"stop {number}" for number in range(256)]


@EACH
@pytest.mark.parametrize("stops", [[*MANY, "END"], ["x" * 8_193], MANY * 30], ids=["many", "long", "very many"])
def test_more_stop_strings_than_are_looked_for_are_refused(stage: Stage, api: Api, stops: list[str]) -> None:
    def asked(given: list[str]) -> Told:
        members: dict[str, Any] = {option.key: given for option in api.options if "stop" in option.fields}
        if "generationConfig" in members:  # an object with many settings
            members = {"generationConfig": {"stopSequences": given}}
        return stage.ask(api, stream=False, **members)

    stage.play(answer("Hello"))
    refused = asked(stops)
    assert (400, []) == (refused.status, stage.asks[0])
    assert "256 stop strings" in str(refused.json)
    assert "Hello" == asked(MANY).text


@EACH
def test_who_sends_for_ever_behind_the_answer_is_cut(stage: Stage, api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("turnscript.gateway.connection.LINGER", 0.2)
    assert asyncio.run(dripped(stage, post(api, b"", content_length=str(10**12)), b"x" * 1000)) < 2.0


async def dripped(stage: Stage, start: bytes, drop: bytes) -> float:
    """Send a start, then drop after drop, until the server has had enough: how long that took."""
    began = run_time()
    async with connected(stage.url) as (reader, writer):
        writer.write(start)
        gone = asyncio.ensure_future(reader.read())
        while not gone.done() and not writer.transport.is_closing():
            writer.write(drop)
            await asyncio.sleep(0.05)
            assert run_time() - began < 5, "never cut"
        await asyncio.gather(gone, return_exceptions=True)
    return run_time() - began


@pytest.mark.parametrize(
    ("start", "drop"),
    [(b"", b""), (b"", b"\r\n"), (b"GET / HTTP/1.1\r\n", b""), (b"GET / HTTP/1.1\r\nx: ", b"x")],
    ids=["nothing", "empty lines", "a line", "drop by drop"],
)
def test_a_head_that_comes_too_slowly_is_cut(hurried: Stage, start: bytes, drop: bytes) -> None:
    began = time.monotonic()
    assert asyncio.run(dripped(hurried, start, drop)) < 2.0
    assert time.monotonic() - began > 0.15


@EACH
@pytest.mark.parametrize("drop", [b"", b" "], ids=["silent", "dripping"])
def test_a_body_that_comes_too_slowly_is_refused(hurried: Stage, api: Api, drop: bytes) -> None:
    async def run() -> bytes:
        async with connected(hurried.url) as (reader, writer):
            writer.write(post(api, b"{", content_length="1000"))
            gone = asyncio.ensure_future(reader.readuntil(b"\r\n\r\n"))
            while not gone.done():
                writer.write(drop)
                await asyncio.sleep(0.05)
            return await gone

    head = asyncio.run(asyncio.wait_for(run(), 20))
    assert head.startswith(b"HTTP/1.1 408 "), head


@pytest.mark.deep
@EACH
def test_a_body_that_stalls_is_refused_however_fast_it_began(api: Api) -> None:
    """Who has sent much does not sit on it, in the time that all of a long body may have."""

    async def run(url: str) -> bytes:
        async with connected(url) as (reader, writer):
            writer.write(post(api, b" " * 50_000, content_length="90000"))
            head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 20)
            assert head.startswith(b"HTTP/1.1 408 "), head
            return await asyncio.wait_for(reader.read(1000), 20)

    with Stage(server={"body_timeout": 30.0, "body_rate": 5_000}) as patient:
        began = time.monotonic()
        body = asyncio.run(run(patient.url))
        assert 2.5 < time.monotonic() - began < 15
    assert b"slower than 5000 bytes a second" in body
    [error] = [json.loads(body)["error"]]
    assert api.render_error(SlowBody("?"))[0] == 408
    kind = "status" if api.name == "gemini" else "type"
    assert error[kind] == json.loads(api.render_error(SlowBody("?"))[1])["error"][kind]


def test_a_body_has_its_least_rate_in_each_tenth_of_its_time_and_an_end() -> None:
    async def run() -> None:
        pace = Pace(Server(body_timeout=100.0, body_rate=50))
        first = pace.due
        assert [False, True, False] == [pace.came(size) for size in (499, 1, 10)]
        assert first <= pace.due < first + 1
        assert "slower than 50 bytes a second for 10 s" in str(pace.slow())
        endless = Pace(Server(body_timeout=100.0, body_rate=None))
        assert not endless.came(10_000_000)
        assert endless.due > first + 80
        assert "did not arrive within 100 s" in str(endless.slow())

    asyncio.run(run())


@EACH
def test_a_slow_body_behind_a_whole_request_is_refused(hurried: Stage, api: Api) -> None:
    """All of the first has come: that says nothing of the one behind it, which came in the same read."""

    async def run() -> bytes:
        async with connected(hurried.url) as (reader, writer):
            writer.write(post(api, body_of(api, stream=False)) + post(api, b"{", content_length="1000"))
            return await asyncio.wait_for(reader.readuntil(b"HTTP/1.1 408 "), 20)

    hurried.play(answer("The first."))
    assert b"The first." in asyncio.run(run())


def test_an_idle_connection_is_closed(hurried: Stage) -> None:
    async def run() -> None:
        async with connected(hurried.url) as (reader, writer):
            writer.write(b"GET /health HTTP/1.1\r\nhost: x\r\n\r\n")
            await reader.readuntil(b"}}}")
            assert b"" == await asyncio.wait_for(reader.read(), 20)

    at_least, at_most = time.monotonic(), run_time()
    asyncio.run(run())
    assert time.monotonic() - at_least > 0.2
    assert run_time() - at_most < 2.0


@EACH
def test_who_does_not_take_a_whole_answer_is_cut(hurried: Stage, api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("turnscript.gateway.connection.UNTAKEN", 0.25)
    hurried.play(answer(*["And so on. " * 10_000] * 100))

    async def run() -> bytes:
        async with connected(hurried.url, room=10_000) as (_, writer):
            writer.write(post(api, body_of(api, stream=False, limit=10_000_000)))
            writer.transport.pause_reading()  # type: ignore[attr-defined]
            while not hurried.asks[0] or hurried.gateway.service.visits:
                await asyncio.sleep(0.01)
            while hurried.connection(writer):
                await asyncio.sleep(0.01)
            return b""

    asyncio.run(asyncio.wait_for(run(), 20))


@pytest.mark.parametrize(
    "head",
    [
        b"POST /v1/messages HTTP/1.1\r\n" + b"".join(b"x-%d: %s\r\n" % (at, bytes([120]) * 1000) for at in range(100)),
        b"POST /v1/messages HTTP/1.1\r\nx-one: " + b"x" * 200_000,
        b"GET /" + b"x" * 200_000,
        b"POST /v1/messages HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n1\r\n{\r\n0\r\nx-late: " + b"x" * 600_000,
    ],
    ids=["many", "long", "path", "behind a body"],
)
def test_too_large_a_head_is_refused(stage: Stage, head: bytes) -> None:
    async def run() -> bytes:
        async with connected(stage.url) as (reader, writer):
            writer.write(head)
            try:
                return await asyncio.wait_for(reader.read(), 20)
            except ConnectionResetError:
                return b"HTTP/1.1 431 (its bytes were overtaken by the end of the connection)"

    assert asyncio.run(run()).startswith(b"HTTP/1.1 431 ")
    assert 200 == stage.client.get("/health").status_code
