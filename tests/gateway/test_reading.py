"""Owns reading answers in HTTP: what is whole is read, whatever a server writes; what is cut is an error; none goes on
for ever."""

from __future__ import annotations

import asyncio
import gzip
import zlib
from collections.abc import Callable
from typing import Any

import pytest
import uvloop

from tests.gateway.scripted import CLOSE, FLOOD, HANG, STREAM, Script, Scripted, chunk, head, said
from tests.gateway.upstreams import ANSWER, against, failure, pieces_of, text_of
from turnscript.backends.backend import HttpCall
from turnscript.core.errors import UpstreamError, UpstreamTimeout
from turnscript.gateway.transport import READ_SIZE, HttpReply, HttpTransport
from turnscript.gateway.upstream import Timeouts, Upstream

CALL = HttpCall("POST", "/any", b"{}")
LONG = b"Hello, all of you! " * 20
OK = b"HTTP/1.1 200 OK\r\n"
LENGTH = b"content-length: 5\r\n"
CHUNKED = b"transfer-encoding: chunked\r\n"
RAW = zlib.compressobj(wbits=-15)


def packed(coding: bytes, body: bytes) -> bytes:
    return OK + b"Content-Encoding: %b\r\ncontent-length: %d\r\n\r\n" % (coding, len(body)) + body


ANSWERS = {
    "a length": (OK + LENGTH + b"\r\nHello", b"Hello"),
    "no body": (OK + b"content-length: 0\r\n\r\n", b""),
    "no content": (b"HTTP/1.1 204 No Content\r\n\r\n", b""),
    "chunks": (OK + CHUNKED + b"\r\n5\r\nHello\r\n2\r\n, \r\n3\r\nall\r\n0\r\n\r\n", b"Hello, all"),
    "chunks with extensions": (OK + CHUNKED + b"\r\n5;a=b\r\nHello\r\n0;c\r\n\r\n", b"Hello"),
    "spaces behind the size of a chunk": (OK + CHUNKED + b"\r\n5  \r\nHello\r\n0\r\n\r\n", b"Hello"),
    "lines behind the chunks": (OK + CHUNKED + b"\r\n5\r\nHello\r\n0\r\nx-sum: 1\r\n\r\n", b"Hello"),
    "an end with the connection": (OK + b"\r\nHello", b"Hello"),
    "an older protocol": (b"HTTP/1.0 200 OK\r\n\r\nHello", b"Hello"),
    "lines that end with LF": (b"HTTP/1.1 200 OK\ncontent-length: 5\n\nHello", b"Hello"),
    "no reason": (b"HTTP/1.1 200\r\n" + LENGTH + b"\r\nHello", b"Hello"),
    "blank lines first": (b"\r\n\r\n" + OK + LENGTH + b"\r\nHello", b"Hello"),
    "news before it": (b"HTTP/1.1 103 Early Hints\r\nlink: <a>\r\n\r\n" + OK + LENGTH + b"\r\nHello", b"Hello"),
    "an offer of another protocol": (
        OK + b"upgrade: h2,h2c\r\nconnection: Upgrade, Keep-Alive\r\n" + LENGTH + b"\r\nHello",
        b"Hello",
    ),
    "a long head": (OK + b"".join(b"x-%d: %b\r\n" % (at, b"y" * 4000) for at in range(12)) + b"\r\nHello", b"Hello"),
    "gzip": (packed(b"gzip", gzip.compress(LONG, mtime=0)), LONG),
    "gzip in several parts": (packed(b"gzip", gzip.compress(LONG, mtime=0) * 3), LONG * 3),
    "deflate": (packed(b"deflate", zlib.compress(LONG)), LONG),
    "deflate without its head": (packed(b"deflate", RAW.compress(LONG) + RAW.flush()), LONG),
    "less than its length": (OK + LENGTH + b"\r\nHel", None),
    "nothing of its length": (OK + LENGTH + b"\r\n", None),
    "a length that is none": (OK + b"content-length: five\r\n\r\nHello", None),
    "no last chunk": (OK + CHUNKED + b"\r\n5\r\nHello\r\n", None),
    "no chunk": (OK + CHUNKED + b"\r\n", None),
    "no chunk in two headers": (OK + b"transfer-encoding: identity\r\n" + CHUNKED + b"\r\n", None),
    "half a chunk": (OK + CHUNKED + b"\r\n5\r\nHel", None),
    "a size that is none": (OK + CHUNKED + b"\r\nfive\r\nHello\r\n0\r\n\r\n", None),
    "a chunk that is longer": (OK + CHUNKED + b"\r\n5\r\nHello, all\r\n0\r\n\r\n", None),
    "half a head": (OK + b"content-le", None),
    "half a line": (b"HTTP/1.", None),
    "nothing": (b"", None),
    "a page": (b"<html>Hello</html>", None),
    "a newer protocol": (b"HTTP/2 200 OK\r\n\r\n", None),
    "a secure one": (b"\x15\x03\x01\x00\x02\x02\x46", None),
    "what was not packed": (packed(b"gzip", LONG), None),
}
"""What a server writes before it closes the connection, and the body; None where there is no whole one."""


def asked(script: Script, test: Callable[[Scripted, HttpReply], Any]) -> Any:
    """What a test makes of the answer to a call."""

    async def run() -> Any:
        async with Scripted(script) as server:
            transport = HttpTransport(server.url, server.url)
            reply = await transport.send(CALL)
            try:
                return await test(server, reply)
            finally:
                reply.close()
                await transport.close()

    return asyncio.run(run())


async def body_of(reply: HttpReply) -> bytes:
    body = b""
    try:
        while data := await reply.read():
            body += data
    finally:
        reply.close()
    return body


@pytest.mark.parametrize("loop", [asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"])
@pytest.mark.parametrize(("answer", "body"), ANSWERS.values(), ids=ANSWERS)
def test_what_is_whole_is_read_and_what_is_cut_is_an_error(answer: bytes, body: bytes | None, loop: Any) -> None:
    """In one piece, and cut in the middle."""

    async def read(script: Script) -> bytes | None:
        async with Scripted(script) as server:
            transport = HttpTransport(server.url, server.url)
            try:
                return await body_of(await transport.send(CALL))
            except UpstreamError:
                return None
            finally:
                await transport.close()

    with asyncio.Runner(loop_factory=loop) as runner:
        at = len(answer) // 2
        assert body == runner.run(read([answer, CLOSE]))
        assert body == runner.run(read([answer[:at], 0.01, answer[at:], CLOSE]))


def test_what_nobody_asked_for_answers_no_call() -> None:
    """It may come when the connection has been idle for a while."""
    other = said({"choices": [{"text": "wrong", "finish_reason": "stop"}]})[0]

    @against([*ANSWER, 0.02, other], ANSWER)
    async def _(server: Scripted, upstream: Upstream) -> None:
        assert "one two" == text_of(await pieces_of(upstream))
        await asyncio.sleep(0.1)
        assert "one two" == text_of(await pieces_of(upstream))
        assert 2 == server.connections


def test_of_two_headers_of_one_name_the_first_counts_in_any_letters() -> None:
    async def headers(_: Scripted, reply: HttpReply) -> list[str | None]:
        return [reply.headers.get(name) for name in ("retry-after", "RETRY-AFTER", "x", "date")]

    lines = b"Retry-After: 1 \t\r\nRETRY-AFTER: 2\r\nx: \xff\r\n"
    assert ["1", "1", "\udcff", None] == asked([OK + lines + LENGTH + b"\r\nHello"], headers)


# Limits.

ENDLESS: dict[str, Script] = {
    "a line": [b"HTTP/1.1 200 ", b"x" * 1000, FLOOD],
    "a name": [OK, b"x" * 1000, FLOOD],
    "a value": [OK + b"x: ", b"x" * 1000, FLOOD],
    "headers": [OK, b"x: 1\r\n" * 100, FLOOD],
}


@pytest.mark.parametrize("script", ENDLESS.values(), ids=ENDLESS)
def test_a_head_without_an_end_is_given_up(script: Script) -> None:
    async def run() -> None:
        async with Scripted(script) as server:
            transport = HttpTransport(server.url, server.url)
            with pytest.raises(UpstreamError, match="does not answer in HTTP") as caught:
                await transport.send(CALL)
            assert len(str(caught.value)) < 1000
            await server.until_gone()
            await transport.close()

    asyncio.run(run())


def test_lines_without_an_end_behind_a_body_are_given_up() -> None:
    async def broken(server: Scripted, reply: HttpReply) -> None:
        assert b"Hello" == await reply.read()
        with pytest.raises(UpstreamError, match="broke off"):
            await reply.read()
        await server.until_gone()

    asked([STREAM + chunk(b"Hello"), 0.01, b"0\r\nx: ", b"x" * 1000, FLOOD], broken)


@pytest.mark.parametrize(
    "script",
    [[b"\r\n" * 1000, FLOOD], [STREAM + chunk(b": no piece\n\n"), b"5;", b"x" * 1000, FLOOD]],
    ids=["blank lines before a head", "an extension of a chunk"],
)
def test_what_has_no_end_and_is_not_kept_is_given_up_by_the_clock(script: Script) -> None:
    error = failure(script, timeouts=Timeouts(first_byte=0.2))
    assert isinstance(error, UpstreamTimeout)


def test_an_error_shows_the_beginning_of_what_came_instead() -> None:
    async def run() -> None:
        async with Scripted([b"220 mail for all\r\n" + b"x" * 10**6, HANG]) as server:
            transport = HttpTransport(server.url, server.url)
            with pytest.raises(UpstreamError, match="220 mail for all") as caught:
                await transport.send(CALL)
            assert "x" * 200 not in caught.value.body + str(caught.value)
            await transport.close()

    asyncio.run(run())


def test_little_that_unpacks_to_much_waits_until_it_is_read() -> None:
    """Nothing more of it is taken in the meantime, so the server is paused."""
    part = gzip.compress(b"\0" * 10**7, mtime=0)
    begun = head(media="text/event-stream", content_encoding="gzip", transfer_encoding="chunked")

    async def bounded(server: Scripted, reply: HttpReply) -> None:
        for _ in range(100):
            assert 0 < len(await reply.read()) <= 4 * READ_SIZE
        await asyncio.sleep(0.05)
        assert server.asked[0].written < 16 * 1024 * 1024

    asked([begun, chunk(part), FLOOD], bounded)


# Ends.


def test_a_transport_that_is_closed_keeps_nothing_and_can_be_used_again() -> None:
    async def run() -> None:
        async with Scripted([STREAM, HANG], said("Hello")) as server:
            transport = HttpTransport(server.url, server.url)
            reply = await transport.send(CALL)
            await transport.close()
            await server.until_gone()
            with pytest.raises(UpstreamError, match="broke off"):
                await reply.read()
            reply.close()
            assert b"Hello" == await body_of(await transport.send(CALL))
            await transport.close()

    asyncio.run(run())


def test_who_waits_for_a_body_that_is_given_up_is_told_so() -> None:
    async def given_up(_: Scripted, reply: HttpReply) -> None:
        waits = asyncio.create_task(reply.read())
        await asyncio.sleep(0.01)
        reply.close()
        with pytest.raises(UpstreamError, match="broke off"):
            await waits

    asked([STREAM, HANG], given_up)
