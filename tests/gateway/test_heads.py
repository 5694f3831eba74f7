"""Owns heads that come slowly, or with what is before them on a connection: what is cut then, and what is not."""

from __future__ import annotations

import asyncio
import logging

import pytest

from tests.gateway.stage import APIS, Stage, answer, body_of, connected, named, post
from turnscript.apis.api import Api

pytestmark = pytest.mark.usefixtures("nothing_goes_wrong")

EACH = pytest.mark.parametrize("api", APIS, ids=named)
SLOW = answer(*["Hello "] * 6, pause=0.05)
SHORT = 0.02


async def answered(reader: asyncio.StreamReader) -> bytes:
    """A whole answer: its head and its body."""
    head = await reader.readuntil(b"\r\n\r\n")
    return head + await reader.readexactly(int(head.partition(b"content-length: ")[2].partition(b"\r\n")[0]))


@pytest.mark.parametrize("blank", [b"\r\n", b"\r\n\r\n", b"\n"], ids=repr)
def test_blank_lines_behind_an_answer_keep_no_connection(stage: Stage, blank: bytes) -> None:
    async def run() -> bytes:
        async with connected(stage.url) as (reader, writer), asyncio.timeout(20):
            writer.write(b"GET /health HTTP/1.1\r\nhost: x\r\n\r\n")
            await answered(reader)
            stage.hurry(writer, header_timeout=SHORT)
            writer.write(blank)
            return await reader.read()

    assert b"" == asyncio.run(run())


@EACH
def test_a_slow_head_behind_a_request_does_not_end_the_answer_to_that(stage: Stage, api: Api) -> None:
    """It has its time once the answer is over."""
    stage.play(SLOW)

    async def run() -> bytes:
        async with connected(stage.url) as (reader, writer), asyncio.timeout(20):
            writer.write(post(api, body_of(api, stream=True)))
            first = await reader.read(20)
            stage.hurry(writer, header_timeout=SHORT)
            writer.write(b"GET /hea")
            return first + await reader.read()

    body = asyncio.run(run()).partition(b"\r\n\r\n")[2]
    assert body.endswith(b"\r\n0\r\n\r\n")


@EACH
def test_a_later_head_that_comes_too_slowly_is_cut(stage: Stage, api: Api) -> None:
    stage.play(answer("Hello"))

    async def run() -> bytes:
        async with connected(stage.url) as (reader, writer), asyncio.timeout(20):
            writer.write(post(api, body_of(api, stream=False)))
            assert b"Hello" in await answered(reader)
            stage.hurry(writer, header_timeout=SHORT)
            writer.write(b"POST")
            return await reader.read()

    assert b"" == asyncio.run(run())


@EACH
@pytest.mark.parametrize("size", [60_000, 100_000, 400_000])
def test_a_long_body_is_no_part_of_the_head_that_begins_behind_it(stage: Stage, api: Api, size: int) -> None:
    stage.play(answer("Hello"))
    request = post(api, body_of(api, stream=False, text="x" * size))

    async def run() -> list[bytes]:
        async with connected(stage.url) as (reader, writer), asyncio.timeout(20):
            writer.write(request + request[:30])
            first = await answered(reader)
            writer.write(request[30:])
            return [first, await answered(reader)]

    assert [b"HTTP/1.1 200 OK"] * 2 == [one[:15] for one in asyncio.run(run())]


@EACH
def test_the_rest_of_a_refused_body_sets_no_clock_for_the_request_behind_it(api: Api) -> None:
    refused = post(api, b"x" * 1001)

    async def run(stage: Stage) -> bytes:
        async with connected(stage.url) as (reader, writer), asyncio.timeout(20):
            writer.write(refused[:-10])
            assert (await answered(reader)).startswith(b"HTTP/1.1 413 ")
            stage.hurry(writer, idle_timeout=SHORT)
            writer.write(refused[-10:] + post(api, body_of(api, stream=True)))
            return await reader.readuntil(b"\r\n0\r\n\r\n")

    with Stage(server={"max_body": 1000}) as stage:
        stage.play(SLOW)
        assert b"Hello" in asyncio.run(run(stage))


def test_a_client_that_begins_with_tls_is_named_in_the_log(stage: Stage, caplog: pytest.LogCaptureFixture) -> None:
    """An address with `https://` by mistake. The client can read nothing that is said to it."""

    async def run(hello: bytes) -> bytes:
        async with connected(stage.url) as (reader, writer), asyncio.timeout(20):
            writer.write(hello)
            return await reader.read()

    with caplog.at_level(logging.WARNING):
        assert b"" == asyncio.run(run(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(505)))
        assert asyncio.run(run(b"\x16 / HTTP/1.1\r\n\r\n")).startswith(b"HTTP/1.1 400 ")
    assert ["TLS where there is none", "Invalid HTTP request received."] == [one.getMessage() for one in caplog.records]
