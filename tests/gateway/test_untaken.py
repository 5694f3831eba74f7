"""Owns clients that do not take what they are sent while they ask for more: what waits for them, and for how long."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Callable
from typing import Any
from weakref import ref

import pytest

from tests.gateway.stage import CHATS, SESSION, Stage, answer, body_of, connected, named, post
from turnscript.apis.api import Api

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
def test_a_request_that_was_answered_needs_no_collector_of_garbage(stage: Stage, api: Api) -> None:
    stage.play(answer("Hello"))
    request = post(api, body_of(api, stream=False))

    async def run() -> None:
        async with connected(stage.url) as (reader, writer), asyncio.timeout(20):
            writer.write(request)
            await told(reader)
            server = stage.gateway._server
            assert server is not None
            cycles: list[Any] = [getattr(one, "cycle", None) for one in list(server.server_state.connections)]
            [first] = [ref(one) for one in cycles if one is not None and one.scope["path"] == api.endpoint]
            cycles.clear()
            writer.write(request)
            await told(reader)
            await asyncio.to_thread(stage.until, lambda: first() is None)

    gc.disable()
    try:
        asyncio.run(run())
    finally:
        gc.enable()


# Who takes nothing at all. `hurry` sets the connection's clock once it is there, so that no slow start is cut.


def connection(stage: Stage, api: Api) -> Any:
    """The connection on which an API was asked."""
    server = stage.gateway._server
    assert server is not None
    there: list[Any] = list(server.server_state.connections)  # at once: it changes in another thread
    found = [one for one in there if getattr(one, "cycle", None) is not None]
    return next((one for one in found if one.cycle.scope["path"] == api.endpoint), None)


async def left_untaken(stage: Stage, request: bytes, api: Api, behind: bytes = b"") -> None:
    """Send requests, take nothing, send something behind the first answer, and wait until the connection is cut."""
    stage.play(LARGE)
    async with connected(stage.url, room=10_000) as (_, writer), asyncio.timeout(20):
        writer.transport.pause_reading()  # type: ignore[attr-defined]
        writer.write(request)
        await until(lambda: connection(stage, api))
        there = connection(stage, api)
        if behind:
            await until(lambda: there.cycle.response_complete)
        there.timeout_keep_alive = there.head_timeout = 0.1
        if behind:
            writer.write(behind)
        await until(lambda: stage.asks[0])
        await until(lambda: connection(stage, api) is None)


@EACH
@pytest.mark.parametrize("stream", [True, False], ids=["stream", "whole"])
def test_an_answer_does_not_wait_for_ever_for_its_client_to_take_the_one_before_it(
    stage: Stage, api: Api, stream: bool
) -> None:
    second = post(api, body_of(api, stream=stream))
    asyncio.run(left_untaken(stage, large(api) + second, api))
    stage.until(stage.idle)


@EACH
def test_a_connection_that_is_to_be_closed_does_not_wait_for_ever_for_its_client(stage: Stage, api: Api) -> None:
    asyncio.run(left_untaken(stage, large(api, connection="close"), api))


@EACH
@pytest.mark.parametrize("behind", [b"\r\n", b"GET /"], ids=["a blank line", "half a head"])
def test_who_sends_something_and_takes_nothing_is_cut(stage: Stage, api: Api, behind: bytes) -> None:
    asyncio.run(left_untaken(stage, large(api), api, behind))


@EACH
def test_who_takes_an_answer_slowly_has_the_time(stage: Stage, api: Api) -> None:
    """Some of it goes in each stretch of time in which all of it would have to go."""
    stage.play(LARGE)

    async def run() -> bytes:
        async with connected(stage.url, room=10_000) as (reader, writer), asyncio.timeout(60):
            writer.write(large(api, connection="close"))
            await until(lambda: connection(stage, api))
            mine = connection(stage, api)
            await until(lambda: mine._untaken)
            taken = b""
            for _ in range(2):
                left = mine.transport.get_write_buffer_size()
                while mine.transport.get_write_buffer_size() >= left:
                    taken += await reader.read(65536)
                mine.loop.call_soon_threadsafe(mine._look_at_untaken, left)
            return taken + await reader.read()

    head, _, body = asyncio.run(run()).partition(b"\r\n\r\n")
    assert b"content-length: %d\r\n" % len(body) in head + b"\r\n"
