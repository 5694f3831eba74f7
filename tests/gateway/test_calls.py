"""Owns how a call goes over a connection: its bytes, large bodies, and answers that come early, in parts, or packed."""

from __future__ import annotations

import asyncio
import gzip
import json
import os
import subprocess
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from tests.gateway import behind_tls
from tests.gateway.scripted import CLOSE, Scripted, chunk, event, head, sse
from tests.gateway.upstreams import ANSWER, ASK, BACKEND, against, failure, pieces_of, text, text_of
from turnscript.backends.backend import Completion
from turnscript.core.errors import BackendDown, InvalidInput, UpstreamError
from turnscript.gateway.transport import HttpTransport
from turnscript.gateway.upstream import Upstream

ROOT = Path(__file__).resolve().parents[2]
LARGE = Completion(prompt="word " * 4_000_000, max_tokens=1)
"""More than lies in the buffers between two programs."""
WORDS = 20_000
"""Each in an event of its own: far more than is read ahead."""


def test_a_call_says_what_it_is_and_no_more() -> None:
    @against(ANSWER)
    async def _(server: Scripted, upstream: Upstream) -> None:
        await pieces_of(upstream)
        [asked] = server.asked
        assert {
            "host": server.url.removeprefix("http://"),
            "user-agent": "turnscript",
            "accept": "application/json, text/event-stream",
            "accept-encoding": "identity",
            "connection": "close",
            "content-length": str(len(asked.body)),
            "content-type": "application/json",
        } == asked.headers


@pytest.mark.parametrize("key", ["key\r\nx-planted: 1", "key\nx-planted: 1", "key\0", "schl\u00fcssel\u2028"])
def test_a_key_plants_no_header(key: str) -> None:
    """Nor does any other value, or a name; of a value, which may be a secret, the error says nothing."""
    for given in ({"key": key}, {"headers": {"x-guard": key}}, {"headers": {key: "1"}}):
        with pytest.raises(InvalidInput, match="cannot carry") as caught:
            HttpTransport("http://127.0.0.1:9", "http://127.0.0.1:9", **given)
        shown = repr(next(iter(given["headers"]))) if "headers" in given else "'Authorization'"
        assert f"the header {shown} of http://127.0.0.1:9 has characters that a header cannot carry" == str(
            caught.value
        )


@pytest.mark.parametrize("news", [b"HTTP/1.1 100 Continue\r\n\r\n", b"HTTP/1.1 103 Early Hints\r\nlink: </a>\r\n\r\n"])
def test_what_comes_before_an_answer_is_none(news: bytes) -> None:
    @against([news, news, 0.01, *ANSWER])
    async def _(server: Scripted, upstream: Upstream) -> None:
        assert "one two" == text_of(await pieces_of(upstream))


def test_another_protocol_is_no_answer() -> None:
    error = failure([b"HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: h2c\r\n\r\n", b"PRI", CLOSE])
    assert "broke off" in str(error)


def test_an_answer_that_is_read_slowly_is_whole() -> None:
    """The server is paused again and again, and the parser with it; it closes the connection when all is written."""
    words = [f"{number} " for number in range(WORDS)]

    @against([b"".join(sse(*map(text, words), text("", "stop"))), CLOSE])
    async def _(server: Scripted, upstream: Upstream) -> None:
        found = []
        async with upstream.open(ASK) as answer:
            async for pieces in answer:
                found += [piece.text for piece in pieces]
                await asyncio.sleep(0)
        assert "".join(words) == "".join(found)


def test_an_answer_that_was_packed_is_unpacked_as_it_is_read() -> None:
    words = [f"{number} " for number in range(WORDS)]
    packed = gzip.compress(b"".join(map(event, [*map(text, words), text("", "stop")])), mtime=0)
    parts = [chunk(packed[at : at + 1000]) for at in range(0, len(packed), 1000)]
    begun = head(media="text/event-stream", content_encoding="gzip", transfer_encoding="chunked")

    @against([begun, *parts, chunk(b"")])
    async def _(server: Scripted, upstream: Upstream) -> None:
        assert "".join(words) == text_of(await pieces_of(upstream))


# Secure ones.


def test_a_server_behind_tls_is_asked() -> None:
    """In a process of its own: which certificates are trusted is read once."""
    environment = {**os.environ, "SSL_CERT_FILE": str(behind_tls.CERTIFICATE)}
    command = [sys.executable, "-m", behind_tls.__name__]
    done = subprocess.run(command, env=environment, cwd=ROOT, capture_output=True, text=True, check=False)
    assert (0, "") == (done.returncode, done.stderr)


def test_a_server_that_nobody_vouches_for_is_not_asked() -> None:
    async def run() -> None:
        async with Scripted(ANSWER, tls=behind_tls.context()) as server, Upstream(server.url, BACKEND) as upstream:
            with pytest.raises(BackendDown, match="no secure connection"):
                await pieces_of(upstream)
            assert [] == server.asked

    asyncio.run(run())


# Large calls.

Serving = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


async def _with(serve: Serving, ask: Callable[[Upstream], Awaitable[None]]) -> None:
    """Ask a server that need not read what it is sent."""
    done: list[asyncio.Task[None]] = []

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        done.append(asyncio.ensure_future(serve(reader, writer)))
        await done[-1]
        writer.close()

    async with await asyncio.start_server(connected, "127.0.0.1", 0) as server:
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        async with Upstream(url, BACKEND) as upstream:
            await ask(upstream)
        await asyncio.wait_for(asyncio.gather(*done), 20)


def test_a_large_call_may_be_refused_before_it_has_come() -> None:
    """The rest of it is not sent: the connection is closed, and the next call goes over another one."""
    came: list[int] = []
    why = json.dumps({"error": {"message": "too much"}}).encode()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(head(413, content_length=len(why)) + why)
        await writer.drain()
        came.append(await _to_its_end(reader))

    async def ask(upstream: Upstream) -> None:
        for _ in range(2):
            with pytest.raises(UpstreamError, match="too much") as caught:
                await pieces_of(upstream, LARGE)
            assert 413 == caught.value.upstream

    asyncio.run(_with(serve, ask))
    assert 2 == len(came)
    assert max(came) < len(LARGE.prompt)


def test_a_large_call_that_is_given_up_is_not_sent_to_its_end() -> None:
    """A server that got all of it would begin to write."""
    came: list[int] = []
    begun, given_up = asyncio.Event(), asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        begun.set()
        await given_up.wait()
        came.append(await _to_its_end(reader))

    async def ask(upstream: Upstream) -> None:
        task = asyncio.create_task(pieces_of(upstream, LARGE))
        await begun.wait()
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await asyncio.sleep(0.01)
        given_up.set()

    asyncio.run(_with(serve, ask))
    assert [True] == [size < len(LARGE.prompt) for size in came]


async def _to_its_end(reader: asyncio.StreamReader) -> int:
    size = 0
    try:
        while data := await reader.read(2**20):
            size += len(data)
    except ConnectionError:
        pass
    return size
