"""Owns clients that do not take what they are sent while they ask for more: what waits for them, and for how long."""

from __future__ import annotations

import asyncio
import gc
import time
from collections.abc import Callable
from typing import Any
from weakref import ref

import pytest

from tests.gateway.running import Running
from tests.gateway.stage import CHATS, SESSION, Stage, answer, body_of, connected, named, post
from turnscript.apis.api import Api
from turnscript.gateway.connection import Connection
from turnscript.gateway.visit import Visit

pytestmark = pytest.mark.usefixtures("nothing_goes_wrong")

EACH = pytest.mark.parametrize("api", CHATS, ids=named)
LARGE = answer(*["And so on. " * 10_000] * 100)


def large(api: Api, **headers: str) -> bytes:
    """A request for an answer that is longer than what the system takes of it."""
    return post(api, body_of(api, stream=False, limit=10_000_000), **headers)


async def told(reader: asyncio.StreamReader) -> tuple[bytes, bytes]:
    """The head and the body of an answer."""
    head = await reader.readuntil(b"\r\n\r\n")
    return head, await reader.readexactly(int(head.partition(b"content-length: ")[2].partition(b"\r\n")[0]))


async def until(holds: Callable[[], object]) -> None:
    while not holds():
        await asyncio.sleep(0.01)


def whole(stage: Stage) -> list[Any]:
    """The answers that are whole and wait for their client."""
    return [one for one in list(stage.gateway.service.visits) if getattr(one.generation, "last", None)]


@EACH
def test_an_answer_that_is_broken_off_while_it_waits_for_its_client_is_told_so(stage: Stage, api: Api) -> None:
    """Its client has yet to take the one before it. Its head would have left with its body, and so does the error's."""
    stage.play(LARGE, answer("Hello"))
    again = post(api, body_of(api, stream=False), **{name.replace("-", "_"): of for name, of in SESSION.items()})

    async def run() -> None:
        async with connected(stage.url, room=10_000) as (reader, writer), asyncio.timeout(20):
            writer.transport.pause_reading()  # type: ignore[attr-defined]
            writer.write(large(api) + again)
            await until(lambda: len(stage.asks[0]) == 2)
            await until(lambda: whole(stage))
            async with connected(stage.url) as (other_reader, other):
                other.write(again)
                assert b"Hello" in (await told(other_reader))[1]
            writer.transport.resume_reading()  # type: ignore[attr-defined]
            assert b"And so on." in (await told(reader))[1]
            head, body = await told(reader)
            assert (b"HTTP/1.1 409 ", True) == (head[:13], b"came again" in body)

    asyncio.run(run())
    stage.until(stage.idle)


@EACH
def test_a_request_that_was_answered_and_its_connection_need_no_collector_of_garbage(stage: Stage, api: Api) -> None:
    stage.play(answer("Hello", " you", pause=0.05))
    visits = stage.gateway.service.visits

    async def run() -> tuple[ref[Visit], ref[Connection]]:
        async with connected(stage.url) as (reader, writer), asyncio.timeout(20):
            writer.write(post(api, body_of(api, stream=False)))
            await until(lambda: visits)
            [visit] = [ref(one) for one in list(visits)]
            await told(reader)
            await asyncio.to_thread(stage.until, lambda: visit() is None)
            connection = stage.connection(writer)
            assert connection is not None
            return visit, ref(connection)

    gc.disable()
    try:
        _, connection = asyncio.run(run())
        stage.until(lambda: connection() is None)
    finally:
        gc.enable()


# Who takes nothing at all.


async def left_untaken(stage: Stage, monkeypatch: pytest.MonkeyPatch, request: bytes, behind: bytes = b"") -> None:
    """Send requests, take nothing, send something behind the first answer, and wait until the connection is cut."""
    stage.play(LARGE)
    async with connected(stage.url, room=10_000) as (_, writer), asyncio.timeout(20):
        writer.transport.pause_reading()  # type: ignore[attr-defined]
        writer.write(request)
        await until(lambda: stage.asks[0])
        if behind:
            await until(lambda: not stage.gateway.service.visits)
        monkeypatch.setattr("turnscript.gateway.connection.UNTAKEN", 0.1)
        if behind:
            writer.write(behind)
        await until(lambda: stage.connection(writer) is None)


@EACH
@pytest.mark.parametrize("stream", [True, False], ids=["stream", "whole"])
def test_an_answer_does_not_wait_for_ever_for_its_client_to_take_the_one_before_it(
    stage: Stage, api: Api, stream: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    second = post(api, body_of(api, stream=stream))
    asyncio.run(left_untaken(stage, monkeypatch, large(api) + second))
    stage.until(stage.idle)


@EACH
def test_a_connection_that_is_to_be_closed_does_not_wait_for_ever_for_its_client(
    stage: Stage, api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    asyncio.run(left_untaken(stage, monkeypatch, large(api, connection="close")))


@EACH
@pytest.mark.parametrize("behind", [b"\r\n", b"GET /"], ids=["a blank line", "half a head"])
def test_who_sends_something_and_takes_nothing_is_cut(
    stage: Stage, api: Api, behind: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    asyncio.run(left_untaken(stage, monkeypatch, large(api), behind))


@EACH
def test_who_takes_an_answer_slowly_has_the_time(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    """Some of it goes in each stretch of time in which all of it would have to go."""

    async def run(stage: Stage) -> bytes:
        async with connected(stage.url, room=10_000) as (reader, writer), asyncio.timeout(60):
            writer.write(large(api, connection="close"))
            await until(lambda: stage.asks[0] and not stage.gateway.service.visits)
            mine: Any = stage.connection(writer)

            async def looked_at(at: float) -> int:
                mine.look(at)
                return int(mine.transport.get_write_buffer_size())

            taken = b""
            for hours in range(3):
                left = await asyncio.to_thread(stage.gateway.run, looked_at(time.monotonic() + 3600 * hours))
                while mine.transport.get_write_buffer_size() >= left:
                    taken += await reader.read(65536)
            return taken + await reader.read()

    monkeypatch.setattr(Running, "pause", 3600)
    with Stage() as stage:
        stage.play(LARGE)
        head, _, body = asyncio.run(run(stage)).partition(b"\r\n\r\n")
    assert b"content-length: %d\r\n" % len(body) in head + b"\r\n"
