"""Owns reading answers in HTTP: what aiohttp's client reads is read alike, whatever a server writes, none for ever."""

from __future__ import annotations

import asyncio
import gzip
import socket
import zlib
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import aiohttp
import pytest
from aiohttp.http import HttpProcessingError

from tests.gateway.scripted import CLOSE, END, FLOOD, HANG, STREAM, Scripted, chunk, head, said
from tests.gateway.upstreams import ANSWER, against, pieces_of, text_of
from turnscript.backend import HttpCall
from turnscript.errors import UpstreamError
from turnscript.gateway import transport as carrying
from turnscript.gateway.reading import LONGEST_HEAD, READ_SIZE, Headers, HttpConnection, Unpacker
from turnscript.gateway.transport import HttpTransport
from turnscript.gateway.upstream import Upstream

CALL = HttpCall("POST", "/any", b"{}")
BODY = b"Hello, all of you! " * 20
OK = b"HTTP/1.1 200 OK\r\n"
LENGTH = b"content-length: 5\r\n"
CHUNKED = b"transfer-encoding: chunked\r\n"
RAW = zlib.compressobj(wbits=-15)


def packed(coding: bytes, body: bytes) -> bytes:
    return OK + b"Content-Encoding: %b\r\ncontent-length: %d\r\n\r\n" % (coding, len(body)) + body


ANSWERS = {
    "a length": OK + LENGTH + b"\r\nHello",
    "no body": OK + b"content-length: 0\r\n\r\n",
    "no content": b"HTTP/1.1 204 No Content\r\n\r\n",
    "not changed": b"HTTP/1.1 304 Not Modified\r\n" + LENGTH + b"\r\n",
    "chunks": OK + CHUNKED + b"\r\n5\r\nHello\r\n2\r\n, \r\n3\r\nall\r\n0\r\n\r\n",
    "chunks with extensions": OK + CHUNKED + b"\r\n5;a=b\r\nHello\r\n0;c\r\n\r\n",
    "spaces behind the size of a chunk": OK + CHUNKED + b"\r\n5  \r\nHello\r\n0\r\n\r\n",
    "lines behind the chunks": OK + CHUNKED + b"\r\n5\r\nHello\r\n0\r\nx-sum: 1\r\ncontent-type: a/b\r\n\r\n",
    "an end with the connection": OK + b"\r\nHello",
    "an older protocol": b"HTTP/1.0 200 OK\r\n\r\nHello",
    "an older protocol that keeps the connection": b"HTTP/1.0 200 OK\r\nconnection: keep-alive\r\n"
    + LENGTH
    + b"\r\nHello",
    "a connection that is to be closed": OK + b"connection: close\r\n" + LENGTH + b"\r\nHello",
    "lines that end with LF": b"HTTP/1.1 200 OK\ncontent-length: 5\n\nHello",
    "chunks that end with LF": OK + CHUNKED + b"\r\n5\nHello\n0\n\n",
    "no reason": b"HTTP/1.1 200\r\n" + LENGTH + b"\r\nHello",
    "a space for a reason": b"HTTP/1.1 200 \r\n" + LENGTH + b"\r\nHello",
    "blank lines first": b"\r\n\r\n" + OK + LENGTH + b"\r\nHello",
    "a header on two lines": OK + b"x-long: a\r\n  b\r\n" + LENGTH + b"\r\nHello",
    "a header with nothing": OK + b"x-none:\r\n" + LENGTH + b"\r\nHello",
    "a header with anything": OK + b"x-any: \x01\xff\t \r\n" + LENGTH + b"\r\nHello",
    "a space before a colon": OK + b"x-any : 1\r\n" + LENGTH + b"\r\nHello",
    "names in capitals": OK + b"CONTENT-LENGTH: 5\r\n\r\nHello",
    "two headers of one name": OK + b"x-two: 1\r\nX-Two: 2\r\n" + LENGTH + b"\r\nHello",
    "an offer of another protocol": OK
    + b"upgrade: h2,h2c\r\nconnection: Upgrade, Keep-Alive\r\n"
    + LENGTH
    + b"\r\nHello",
    "news before it": b"HTTP/1.1 103 Early Hints\r\nlink: <a>\r\n\r\n" + OK + LENGTH + b"\r\nHello",
    "a number that nobody knows": b"HTTP/1.1 999 What\r\n" + LENGTH + b"\r\nHello",
    "a small number": b"HTTP/1.1 099 What\r\n" + LENGTH + b"\r\nHello",
    "a number that is none": b"HTTP/1.1 2x0 OK\r\n" + LENGTH + b"\r\nHello",
    "two spaces": b"HTTP/1.1  200 OK\r\n" + LENGTH + b"\r\nHello",
    "a length twice": OK + LENGTH + LENGTH + b"\r\nHello",
    "a length that is none": OK + b"content-length: five\r\n\r\nHello",
    "a length and chunks": OK + CHUNKED + LENGTH + b"\r\n5\r\nHello\r\n0\r\n\r\n",
    "chunks twice": OK + CHUNKED + CHUNKED + b"\r\n5\r\nHello\r\n0\r\n\r\n",
    "another coding of the transfer": OK + b"transfer-encoding: gzip\r\n\r\nHello",
    "chunks of another coding": OK + b"transfer-encoding: identity, chunked\r\n\r\n5\r\nHello\r\n0\r\n\r\n",
    "chunks in two headers": OK + b"transfer-encoding: identity\r\n" + CHUNKED + b"\r\n5\r\nHello\r\n0\r\n\r\n",
    "a size that is none": OK + CHUNKED + b"\r\nfive\r\nHello\r\n0\r\n\r\n",
    "a chunk that is longer": OK + CHUNKED + b"\r\n5\r\nHello, all\r\n0\r\n\r\n",
    "less than its length": OK + LENGTH + b"\r\nHel",
    "nothing of its length": OK + LENGTH + b"\r\n",
    "no last chunk": OK + CHUNKED + b"\r\n5\r\nHello\r\n",
    "no chunk": OK + CHUNKED + b"\r\n",
    "no chunk in two headers": OK + b"transfer-encoding: identity\r\n" + CHUNKED + b"\r\n",
    "half a chunk": OK + CHUNKED + b"\r\n5\r\nHel",
    "half a head": OK + b"content-le",
    "half a line": b"HTTP/1.",
    "nothing": b"",
    "a page": b"<html>Hello</html>",
    "a newer protocol": b"HTTP/2 200 OK\r\n\r\n",
    "another protocol": b"SSH-2.0-OpenSSH_9.9\r\n",
    "a secure one": b"\x15\x03\x01\x00\x02\x02\x46",
    "gzip": packed(b"gzip", gzip.compress(BODY, mtime=0)),
    "gzip in capitals": packed(b"GZIP", gzip.compress(BODY, mtime=0)),
    "gzip in several parts": packed(
        b"gzip", b"".join(gzip.compress(BODY[at : at + 9], mtime=0) for at in range(0, 99, 9))
    ),
    "gzip of nothing": packed(b"gzip", gzip.compress(b"", mtime=0)),
    "deflate": packed(b"deflate", zlib.compress(BODY)),
    "deflate without its head": packed(b"deflate", RAW.compress(BODY) + RAW.flush()),
    "an empty body that was packed": packed(b"gzip", b""),
    "what was not packed": packed(b"gzip", BODY),
    "a coding that nobody knows": packed(b"utf-8", BODY),
}
EACH = pytest.mark.parametrize("answer", ANSWERS.values(), ids=ANSWERS)
NONE: tuple[int, dict[str, str], bytes] = (0, {}, b"")


async def all_of(reply: Any) -> bytes:
    body = b""
    while data := await reply.read():
        body += data
    return body


async def ours(url: str) -> tuple[int, dict[str, str], bytes]:
    transport = HttpTransport(url, url)
    try:
        reply = await transport.send(CALL)
        try:
            return reply.status, dict(reply.headers), await all_of(reply)
        finally:
            reply.close()
    except UpstreamError:
        return NONE
    finally:
        await transport.close()


async def theirs(url: str) -> tuple[int, dict[str, str], bytes]:
    try:
        async with aiohttp.ClientSession() as session, session.post(url + "/any", data=b"{}") as reply:
            headers = {name.lower(): reply.headers[name] for name in reply.headers}
            return reply.status, headers, await reply.read()
    except (aiohttp.ClientError, HttpProcessingError):
        return NONE


@EACH
def test_an_answer_is_read_as_aiohttp_reads_it(answer: bytes) -> None:
    async def run() -> None:
        async with Scripted([answer, CLOSE]) as server:
            assert await theirs(server.url) == await ours(server.url)

    asyncio.run(run())


# By itself.


def read(pieces: Sequence[bytes], *, ends: bool = True) -> Any:
    """What a connection makes of an answer that comes in these pieces, and whether it can be used again."""

    async def run() -> Any:
        loop = asyncio.get_running_loop()
        mine, other = socket.socketpair()
        with other:
            transport, connection = await loop.create_connection(lambda: HttpConnection(loop), sock=mine)
            connection.ask()
            for piece in pieces:
                connection.data_received(piece)
            if ends and connection.transport is not None:
                transport.close()
                await asyncio.sleep(0)
                await asyncio.sleep(0)
            lines = dict(Headers(connection.lines)) if connection.answered else {}
            found = (connection.status, lines, connection.take(), connection.whole, type(connection.fault).__name__)
            kept = connection.leave()
            transport.close()
            return (*found, kept)

    return asyncio.run(run())


@EACH
def test_an_answer_that_comes_in_pieces_is_the_same(answer: bytes) -> None:
    whole = read([answer])
    assert whole == read([answer[at : at + 1] for at in range(len(answer))])
    for at in range(0, len(answer), 7):
        assert whole == read([answer[:at], answer[at:]])


KEPT = [OK + LENGTH + b"\r\nHello", OK + CHUNKED + b"\r\n5\r\nHello\r\n0\r\n\r\n", ANSWERS["news before it"]]
CLOSED = [
    "an older protocol",
    "an end with the connection",
    "a connection that is to be closed",
    "half a chunk",
    "less than its length",
    "a page",
]


@pytest.mark.parametrize("answer", KEPT, ids=range(len(KEPT)))
@pytest.mark.parametrize("behind", [b"", b"\r\n", b"\r\n\r\n"], ids=repr)
def test_a_connection_with_a_whole_answer_is_kept(answer: bytes, behind: bytes) -> None:
    for pieces in ([answer + behind], [answer, behind]):
        assert (200, b"Hello", True, True) == tuple(read(pieces, ends=False)[at] for at in (0, 2, 3, 5))


@pytest.mark.parametrize("name", CLOSED)
def test_a_connection_without_one_is_not_kept(name: str) -> None:
    assert not read([ANSWERS[name]], ends=False)[5]


@pytest.mark.parametrize(
    "behind", [b"H", b"x", OK, OK + LENGTH + b"\r\nagain", b"\0", b"\r\n\r\nHTTP/1.1 100"], ids=repr
)
def test_what_follows_an_answer_is_no_part_of_it_and_ends_the_connection(behind: bytes) -> None:
    for answer in KEPT:
        for pieces in ([answer + behind], [answer, behind]):
            assert (200, b"Hello", True, False) == tuple(read(pieces, ends=False)[at] for at in (0, 2, 3, 5))


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
    headers = Headers([(b"Retry-After", b"1 \t"), (b"RETRY-AFTER", b"2"), (b"x", b"\xff")])
    assert ("1", "1", "\udcff") == (headers["retry-after"], headers.get("Retry-AFTER"), headers["X"])
    assert ["retry-after", "x"] == list(headers)
    assert (2, None) == (len(headers), headers.get("date"))


# Limits.

ENDLESS = {
    "a line": [b"HTTP/1.1 200 ", b"x" * 1000, FLOOD],
    "a name": [OK, b"x" * 1000, FLOOD],
    "a value": [OK + b"x: ", b"x" * 1000, FLOOD],
    "headers": [OK, b"x: 1\r\n" * 100, FLOOD],
    "blank lines": [b"\r\n" * 1000, FLOOD],
}


@pytest.mark.parametrize("script", ENDLESS.values(), ids=ENDLESS)
def test_a_head_without_an_end_is_given_up(script: Any) -> None:
    async def run() -> None:
        async with Scripted(script) as server:
            transport = HttpTransport(server.url, server.url)
            with pytest.raises(
                UpstreamError, match=f"does not answer in HTTP .*more than {LONGEST_HEAD} bytes"
            ) as caught:
                await transport.send(CALL)
            assert len(str(caught.value)) < 1000
            await server.until_gone()
            await transport.close()

    asyncio.run(run())


@pytest.mark.parametrize("behind", [b"0\r\nx: ", b"5;"], ids=["lines behind a body", "an extension"])
def test_what_is_no_body_and_has_no_end_is_given_up(behind: bytes) -> None:
    async def run() -> None:
        async with Scripted([STREAM + chunk(b"Hello"), behind, b"x" * 1000, FLOOD]) as server:
            transport = HttpTransport(server.url, server.url)
            reply = await transport.send(CALL)
            assert b"Hello" == await reply.read()
            with pytest.raises(UpstreamError, match="broke off"):
                await reply.read()
            reply.close()
            await server.until_gone()
            await transport.close()

    asyncio.run(run())


def test_a_long_head_is_read() -> None:
    names = "".join(f"x-{number}: {'y' * 4000}\r\n" for number in range(12))
    found = read([OK + names.encode() + LENGTH + b"\r\nHello"])
    assert (200, 13, b"Hello") == (found[0], len(found[1]), found[2])


def test_an_error_shows_the_beginning_of_what_came_instead() -> None:
    async def run() -> None:
        async with Scripted([b"220 mail for all\r\n" + b"x" * 10**6, HANG]) as server:
            transport = HttpTransport(server.url, server.url)
            with pytest.raises(UpstreamError, match="220 mail for all") as caught:
                await transport.send(CALL)
            assert "x" * 200 not in caught.value.body + str(caught.value)
            await transport.close()

    asyncio.run(run())


# What is packed.


def unpacked(data: bytes, *, gzip: bool = True) -> list[bytes]:
    unpacks = Unpacker(gzip=gzip)
    found = [unpacks.feed(data)]
    while unpacks.full:
        found.append(unpacks.feed(b""))
    return found


@pytest.mark.parametrize("size", [0, 1, 2 * READ_SIZE - 1, 2 * READ_SIZE, 2 * READ_SIZE + 1, 10**7])
def test_what_is_packed_is_unpacked_in_pieces(size: int) -> None:
    for data, gzipped in ((gzip.compress(b"x" * size, mtime=0), True), (zlib.compress(b"x" * size), False)):
        pieces = unpacked(data, gzip=gzipped)
        assert b"x" * size == b"".join(pieces)
        assert max(map(len, pieces)) <= 2 * READ_SIZE


def test_little_that_unpacks_to_much_waits_until_it_is_read() -> None:
    """Nothing more of it is taken in the meantime, so the server is paused."""
    part = gzip.compress(b"\0" * 10**7, mtime=0)
    begun = head(media="text/event-stream", content_encoding="gzip", transfer_encoding="chunked")

    async def run() -> None:
        async with Scripted([begun, chunk(part), FLOOD]) as server:
            transport = HttpTransport(server.url, server.url)
            reply = await transport.send(CALL)
            for _ in range(100):
                assert 0 < len(await reply.read()) <= 2 * READ_SIZE
            await asyncio.sleep(0.05)
            assert server.asked[0].written < 16 * 1024 * 1024
            reply.close()
            await transport.close()

    asyncio.run(run())


@pytest.mark.parametrize("beyond", [0, 10 * READ_SIZE])
def test_what_comes_behind_a_piece_that_is_just_full_is_read(beyond: int) -> None:
    """As much as may be told at once was told, and nothing of it is left: that is not the end."""
    packs = zlib.compressobj(level=0, wbits=31)
    first = packs.compress(b"x" * 2 * READ_SIZE) + packs.flush(zlib.Z_SYNC_FLUSH)
    last = packs.compress(b"y" * (beyond + 1)) + packs.flush()
    size = b"%d" % (len(first) + len(last))

    async def run() -> None:
        begun = OK + b"content-encoding: gzip\r\ncontent-length: " + size + b"\r\n\r\n"
        async with Scripted([begun + first, 0.1, last]) as server:
            transport = HttpTransport(server.url, server.url)
            reply = await transport.send(CALL)
            await asyncio.sleep(0.05)
            read = await reply.read()
            assert 2 * READ_SIZE == len(read)
            await asyncio.sleep(0.2)
            async with asyncio.timeout(5):
                assert beyond + 1 == len(await all_of(reply))
            reply.close()
            await transport.close()

    asyncio.run(run())


def test_what_is_packed_in_very_many_parts_is_given_up() -> None:
    with pytest.raises(aiohttp.ClientPayloadError, match="too many parts"):
        Unpacker(gzip=True).feed(gzip.compress(b"", mtime=0) * 5000)


# Idle connections.


async def _asked(transport: HttpTransport, count: int = 1) -> None:
    replies = [await transport.send(CALL) for _ in range(count)]
    for reply in replies:
        assert b"Hello" == await all_of(reply)
        reply.close()


def idle(test: Callable[[Scripted, HttpTransport], Awaitable[None]], seconds: float, patch: pytest.MonkeyPatch) -> None:
    """Ask a server over connections that may be idle for so long."""
    patch.setattr(carrying, "IDLE", seconds)

    async def run() -> None:
        async with Scripted(said("Hello")) as server:
            transport = HttpTransport(server.url, server.url)
            await test(server, transport)
            await transport.close()

    asyncio.run(run())


def test_as_many_connections_are_kept_as_were_used_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test(server: Scripted, transport: HttpTransport) -> None:
        for _ in range(3):
            await _asked(transport, 4)
        assert 4 == server.connections

    idle(test, 60.0, monkeypatch)


def test_connections_that_are_idle_for_long_are_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test(server: Scripted, transport: HttpTransport) -> None:
        await _asked(transport, 3)
        await asyncio.sleep(0.3)
        assert 0 == len(transport._idle)
        connector = transport._connector
        assert connector is not None
        assert not connector._acquired
        await _asked(transport)
        assert 4 == server.connections

    idle(test, 0.05, monkeypatch)


def test_one_that_was_idle_for_too_long_carries_no_call(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test(server: Scripted, transport: HttpTransport) -> None:
        for _ in range(2):
            await _asked(transport)
        assert 2 == server.connections

    idle(test, -1.0, monkeypatch)


@pytest.mark.parametrize(
    ("broken", "asked"),
    [([], 2), ([b"HTTP/1.1 103 Early Hints\r\n\r\n", 0.02], 1), ([b"HTTP/1.1 200 O", 0.02], 1)],
    ids=["nothing", "news", "a part of a head"],
)
def test_a_call_is_sent_once_more_and_not_if_anything_has_answered_it(broken: Sequence[Any], asked: int) -> None:
    """The server may have begun with it, however many connections are idle."""

    async def run() -> None:
        async with Scripted(*[said("Hello")] * 4, [*broken, CLOSE]) as server:
            transport = HttpTransport(server.url, server.url)
            await _asked(transport, 4)
            with pytest.raises(UpstreamError, match="closed the connection without an answer"):
                await transport.send(CALL)
            assert 4 + asked == len(server.asked)
            await transport.close()

    asyncio.run(run())


def test_a_transport_that_is_closed_keeps_nothing() -> None:
    async def run() -> None:
        async with Scripted(said("Hello")) as server:
            transport = HttpTransport(server.url, server.url)
            reply = await transport.send(CALL)
            await transport.close()
            reply.close()
            assert 0 == len(transport._idle)
            with pytest.raises(UpstreamError, match="broke off"):
                await reply.read()
            await _asked(transport)
            await transport.close()
            assert 2 == server.connections

    asyncio.run(run())


def test_who_waits_for_a_body_that_is_given_up_is_told_so() -> None:
    async def run() -> None:
        async with Scripted([STREAM, HANG]) as server:
            transport = HttpTransport(server.url, server.url)
            reply = await transport.send(CALL)
            waits = asyncio.create_task(reply.read())
            await asyncio.sleep(0.01)
            reply.close()
            with pytest.raises(UpstreamError, match="broke off"):
                await waits
            await transport.close()

    asyncio.run(run())


def test_what_came_before_a_break_is_read_before_it_is_told() -> None:
    async def run() -> None:
        async with Scripted([STREAM + chunk(b"Hello"), 0.05, chunk(b", all"), CLOSE], [STREAM + END]) as server:
            transport = HttpTransport(server.url, server.url)
            reply = await transport.send(CALL)
            await asyncio.sleep(0.2)
            assert b"Hello, all" == await reply.read()
            with pytest.raises(UpstreamError, match="broke off"):
                await reply.read()
            reply.close()
            await transport.close()

    asyncio.run(run())
