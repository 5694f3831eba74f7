"""Owns connections: whatever a client sends on one, and in whichever pieces, each request of it is answered."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from tests.gateway.stage import APIS, Stage, Told, answer, body_of, connected, named, post
from turnscript.apis.api import Api

pytestmark = pytest.mark.usefixtures("nothing_goes_wrong")

EACH = pytest.mark.parametrize("api", APIS, ids=named)
OFFER = {"connection": "Upgrade, HTTP2-Settings", "upgrade": "h2c", "http2_settings": "AAEAAEAAAAIAAAAB"}
"""What Java's own client sends with its first request to a server without TLS."""


def told(stage: Stage, *pieces: bytes, count: int = 1) -> list[bytes]:
    """The heads and bodies of so many whole answers, to a client that sends its requests in these pieces."""

    async def run() -> list[bytes]:
        async with connected(stage.url) as (reader, writer), asyncio.timeout(10):
            for piece in pieces:
                writer.write(piece)
                await asyncio.sleep(0.05)
            return [await _answer(reader) for _ in range(count)]

    return asyncio.run(run())


async def _answer(reader: asyncio.StreamReader) -> bytes:
    head = await reader.readuntil(b"\r\n\r\n")
    length = next(line for line in head.split(b"\r\n") if line.startswith(b"content-length: "))
    return head + await reader.readexactly(int(length.removeprefix(b"content-length: ")))


def chunked(request: bytes) -> bytes:
    """The same request, its body in two chunks."""
    head, _, body = request.partition(b"\r\n\r\n")
    lines = [line for line in head.split(b"\r\n") if not line.startswith(b"content-length")]
    chunks = b"".join(b"%x\r\n%b\r\n" % (len(part), part) for part in (body[:9], body[9:]))
    return b"\r\n".join([*lines, b"transfer-encoding: chunked"]) + b"\r\n\r\n" + chunks + b"0\r\n\r\n"


def cut(request: bytes) -> Sequence[Sequence[bytes]]:
    """A request whole, its head alone, and cut in the middle of head and body."""
    end = request.index(b"\r\n\r\n") + 4
    return [request], [request[:end], request[end:]], [request[:20], request[20 : end + 9], request[end + 9 :]]


@EACH
def test_an_offer_of_another_protocol_is_passed_over_and_the_body_read(stage: Stage, api: Api) -> None:
    stage.play(answer("Hello"))
    request = post(api, body_of(api, stream=False), **OFFER)
    plain = post(api, body_of(api, stream=False))
    for one in (request, chunked(request)):
        for pieces in cut(one):
            first, second = told(stage, *pieces, plain, count=2)
            assert (b"HTTP/1.1 200", True) == (first[:12], b"Hello" in first), first
            assert (b"HTTP/1.1 200", True) == (second[:12], b"Hello" in second), second


def test_requests_behind_an_offer_without_a_body_are_answered(stage: Stage) -> None:
    offer = b"GET /v1/models HTTP/1.1\r\nhost: x\r\nconnection: Upgrade\r\nupgrade: h2c\r\n\r\n"
    assert {b"HTTP/1.1 200"} == {one[:12] for one in told(stage, offer * 1500, count=1500)}


def test_a_tunnel_is_refused_whatever_follows(stage: Stage) -> None:
    for size in (b"content-length: 5", b"upgrade: h2c\r\nconnection: upgrade\r\ncontent-length: 5"):
        request = b"CONNECT another:80 HTTP/1.1\r\nhost: x\r\n%b\r\n\r\nhello" % size
        assert [b"HTTP/1.1 400"] == [one[:12] for one in told(stage, request)]


@EACH
def test_requests_that_follow_each_other_at_once_are_answered_in_turn(stage: Stage, api: Api) -> None:
    stage.play(answer("one"), answer("two"), answer("three"))
    request = post(api, body_of(api, stream=False))
    words = [b"one", b"two", b"three"]
    assert words == [word for word, one in zip(words, told(stage, request * 3, count=3), strict=True) if word in one]


@EACH
def test_what_stands_behind_a_body_is_no_header_of_its_request(stage: Stage, api: Api) -> None:
    stage.play(answer("Hello"))
    request = chunked(post(api, body_of(api, stream=False)))
    for late in (b"origin: https://example.org", b"host: example.org", b"x-turnscript-loss-policy: no such word"):
        with_trailer = request.removesuffix(b"\r\n") + late + b"\r\n\r\n"
        early = request.replace(b"\r\n\r\n", b"\r\n" + late + b"\r\n\r\n", 1)
        assert [b"HTTP/1.1 200 OK", b"HTTP/1.1 200 OK"] == [
            one[:15] for one in told(stage, with_trailer, request, count=2)
        ]
        assert told(stage, early)[0][:12] in (b"HTTP/1.1 400", b"HTTP/1.1 403")
        behind = told(stage, with_trailer, early, count=2)[1]
        assert behind[:12] in (b"HTTP/1.1 400", b"HTTP/1.1 403"), "the next head on the connection is one"


@EACH
def test_who_waits_to_be_told_to_send_is_told_so_although_the_body_is_there(stage: Stage, api: Api) -> None:
    stage.play(answer("Hello"))
    request = post(api, body_of(api, stream=False), expect="100-continue")

    async def run() -> tuple[bytes, bytes]:
        async with connected(stage.url) as (reader, writer), asyncio.timeout(10):
            writer.write(request)
            return await reader.readuntil(b"\r\n\r\n"), await _answer(reader)

    told_to_send, answered = asyncio.run(run())
    assert b"HTTP/1.1 100 Continue\r\n\r\n" == told_to_send
    assert b"Hello" in answered


@EACH
@pytest.mark.parametrize("stream", [True, False], ids=["stream", "whole"])
def test_a_client_of_http_1_0_gets_no_chunks(stage: Stage, api: Api, stream: bool) -> None:
    """It knows none, and takes their lengths for text. Its answer ends where the connection does."""
    stage.play(answer("Hello", " you"))
    request = post(api, body_of(api, stream=stream)).replace(b" HTTP/1.1\r\n", b" HTTP/1.0\r\n")

    async def run() -> bytes:
        async with connected(stage.url) as (reader, writer), asyncio.timeout(10):
            writer.write(request)
            return await reader.read()

    head, _, body = asyncio.run(run()).partition(b"\r\n\r\n")
    lines = head.lower().split(b"\r\n")
    assert b"connection: close" in lines
    assert not any(line.startswith(b"transfer-encoding") for line in lines)
    told = Told(api, 200, {"content-type": "text/event-stream" if stream else "application/json"}, body)
    assert ("Hello you", None) == (told.text, told.error)
    assert body.startswith((b"event: ", b"data: ") if stream else b"{")
