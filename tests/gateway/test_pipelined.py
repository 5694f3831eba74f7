"""Owns requests that a client sends before the one before them is answered: it may leave all of them at once."""

from __future__ import annotations

import asyncio

import pytest

from tests.gateway.scripted import HANG
from tests.gateway.stage import APIS, Stage, answer, body_of, connected, named, post
from turnscript.apis.api import Api

pytestmark = pytest.mark.usefixtures("nothing_goes_wrong")

EACH = pytest.mark.parametrize("api", APIS, ids=named)
STREAM = pytest.mark.parametrize("stream", [True, False], ids=["stream", "whole"])


@EACH
@STREAM
def test_who_leaves_several_requests_leaves_nothing_of_any(stage: Stage, api: Api, stream: bool) -> None:
    stage.play([HANG])

    async def run() -> None:
        async with connected(stage.url) as (_, writer):
            writer.write(3 * post(api, body_of(api, stream=stream)))
            await asyncio.to_thread(stage.until, lambda: stage.asks[0])

    asyncio.run(run())
    stage.until(stage.idle)
    assert 1 == len(stage.asks[0])


def test_no_more_is_read_of_requests_sent_ahead_than_a_little(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """They would fill the memory while the one before them is answered."""
    # Of a client whose bytes wait to be read, the gateway learns that it is gone by a sign of life that finds nobody.
    monkeypatch.setattr(stage.gateway.service.heart, "interval", 0.2)
    stage.play([HANG])
    [request, size] = [post(APIS[0], body_of(APIS[0], stream=True)), 64_000_000]

    async def run() -> int:
        async with connected(stage.url) as (_, writer), asyncio.timeout(20):
            writer.write(request * (size // len(request)))
            left, before = writer.transport.get_write_buffer_size(), size
            while left != before:
                await asyncio.sleep(0.2)
                left, before = writer.transport.get_write_buffer_size(), left
        return left

    assert asyncio.run(run()) > size / 2, "the rest is where the system keeps what is not read yet"
    stage.until(stage.idle)


@EACH
def test_a_request_may_come_in_part_before_the_answer_to_the_one_before_it(
    stage: Stage, api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its rest may take longer than that of one that was refused while it came."""
    monkeypatch.setattr("turnscript.gateway.connection.LINGER", 0.01)
    stage.play(answer("Hello"))
    request = post(api, body_of(api, stream=False))

    async def answered(reader: asyncio.StreamReader) -> bytes:
        head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 20)
        assert head.startswith(b"HTTP/1.1 200 ")
        return await reader.readexactly(int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0]))

    async def run() -> None:
        async with connected(stage.url) as (reader, writer):
            writer.write(request + request[:-7])
            assert b"Hello" in await answered(reader)
            await asyncio.sleep(0.1)
            writer.write(request[-7:])
            assert b"Hello" in await answered(reader)

    asyncio.run(run())
    stage.until(stage.idle)
