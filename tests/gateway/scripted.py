"""Owns a model server that plays scripts on this machine: any bytes, pauses, resets, silence; and says who asked what.

    async with Scripted(sse('{"choices": [...]}', "[DONE]")) as server:
        async with Upstream(server.url, backend) as upstream: ...
        assert "POST /v1/completions" == server.asked[0].line

A script is a list of steps, played for one request: bytes are written as they are, a number is a pause in seconds, an
event (of threads) is a pause until it is set, and `RESET`, `CLOSE`, `HANG` and `FLOOD` are what their names say. Each
request takes the next script; the last is played again for every request after it. A function takes the request and
gives its script. The connection stays open for another request, unless the script ends it.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import ssl
import struct
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Self

from tests.clocks import run_time


class _Step(str):
    """A step with a name."""


RESET = _Step("reset the connection")
CLOSE = _Step("close the connection")
HANG = _Step("say nothing until the client has gone")
FLOOD = _Step("repeat the step before it until the client has gone, as fast as it reads")

Step = bytes | float | threading.Event | _Step
Script = Sequence[Step]


@dataclass
class Asked:
    """One request that arrived, and when. `gone`: when its client closed the connection before the script was over.
    `came` and `gone` are told by `tests.clocks.run_time`."""

    line: str
    headers: dict[str, str]
    body: bytes
    connection: int
    at: float = field(default_factory=time.monotonic)
    came: float = field(default_factory=run_time)
    gone: float | None = None
    written: int = 0

    @property
    def json(self) -> Any:
        """The body as data."""
        return json.loads(self.body)


class Scripted:
    """The server. `asked`: the requests so far, `connections`: how many there were. `tls`: what it shows."""

    def __init__(self, *scripts: Script | Callable[[Asked], Script], tls: ssl.SSLContext | None = None) -> None:
        self.asked: list[Asked] = []
        self.connections = 0
        self._scripts = list(scripts)
        self._tls = tls
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def url(self) -> str:
        """Where it listens; without a slash at the end."""
        assert self._server is not None
        scheme = "http" if self._tls is None else "https"
        return f"{scheme}://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    async def until_gone(self, number: int = -1, seconds: float = 20.0) -> float:
        """Wait until the client of a request has closed the connection; returns when that was."""
        async with asyncio.timeout(seconds):
            while not self.asked or self.asked[number].gone is None:
                await asyncio.sleep(0.002)
        gone = self.asked[number].gone
        assert gone is not None
        return gone

    async def until_asked(self, count: int = 1, seconds: float = 20.0) -> None:
        """Wait until so many requests have arrived."""
        async with asyncio.timeout(seconds):
            while len(self.asked) < count:
                await asyncio.sleep(0.002)

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._connected, "127.0.0.1", 0, limit=2**26, ssl=self._tls)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._server is not None
        for listening in self._server.sockets:
            asyncio.get_running_loop().remove_reader(listening.fileno())
        for _ in range(4):  # Python 3.11 loses a connection that is accepted already when its server closes
            await asyncio.sleep(0)
        self._server.close()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._server.wait_closed()

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        self.connections += 1
        number = self.connections
        try:
            with contextlib.suppress(OSError, asyncio.IncompleteReadError):
                while True:
                    asked = await _request(reader, number)
                    self.asked.append(asked)
                    script = self._scripts[min(len(self.asked), len(self._scripts)) - 1]
                    steps = script(asked) if callable(script) else script
                    if not await _play(steps, asked, reader, writer):
                        break
        except asyncio.CancelledError:
            writer.transport.abort()
        finally:
            writer.close()
            self._tasks.discard(task)


async def _request(reader: asyncio.StreamReader, connection: int) -> Asked:
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
    headers = {name.lower(): value for name, value in (line.split(": ", 1) for line in head[1:] if line)}
    body = b""
    if "chunked" in headers.get("transfer-encoding", ""):
        while size := int(await reader.readline(), 16):
            body += await reader.readexactly(size)
            await reader.readline()
        await reader.readline()
    else:
        body = await reader.readexactly(int(headers.get("content-length", 0)))
    return Asked(head[0].removesuffix(" HTTP/1.1"), headers, body, connection)


async def _play(steps: Script, asked: Asked, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
    """Play the steps; returns whether the connection goes on."""
    playing = asyncio.ensure_future(_write(steps, asked, writer))
    leaving = asyncio.ensure_future(_end_of(reader))
    try:
        await asyncio.wait((playing, leaving), return_when=asyncio.FIRST_COMPLETED)
        if playing.done() and not isinstance(playing.exception(), OSError):
            return playing.result()
        asked.gone = run_time()
        return False
    finally:
        playing.cancel()
        leaving.cancel()
        await asyncio.gather(playing, leaving, return_exceptions=True)


async def _end_of(reader: asyncio.StreamReader) -> None:
    """Wait until the client has gone. It sends nothing before it has its answer, so nothing is read here."""
    while not reader.at_eof() and reader.exception() is None:
        await asyncio.sleep(0.001)


async def _write(steps: Script, asked: Asked, writer: asyncio.StreamWriter) -> bool:
    before: Step = b""
    for step in steps:
        if isinstance(step, bytes):
            await _put(step, asked, writer)
        elif isinstance(step, float | int):
            await asyncio.sleep(step)
        elif isinstance(step, threading.Event):
            while not step.is_set():
                await asyncio.sleep(0.002)
        elif step is HANG:
            await asyncio.Event().wait()
        elif step is FLOOD:
            assert isinstance(before, bytes)
            while True:
                await _put(before, asked, writer)
        else:
            if step is RESET:
                made: socket.socket = writer.get_extra_info("socket")
                made.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                writer.transport.abort()
            return False
        before = step
    return True


async def _put(data: bytes, asked: Asked, writer: asyncio.StreamWriter) -> None:
    writer.write(data)
    await writer.drain()
    asked.written += len(data)


# Answers to play.


def head(status: int = 200, media: str = "application/json", **headers: str | int) -> bytes:
    """The head of an answer. Without a `content_length` the body ends where the connection is closed."""
    named = {"content-type": media} | {name.replace("_", "-"): str(value) for name, value in headers.items()}
    lines = [f"HTTP/1.1 {status} Said", *(f"{name}: {value}" for name, value in named.items())]
    return ("\r\n".join(lines) + "\r\n\r\n").encode()


def chunk(data: bytes | str) -> bytes:
    """A piece of a body that has `transfer_encoding="chunked"`; an empty one ends it."""
    body = data.encode() if isinstance(data, str) else data
    return b"%x\r\n%b\r\n" % (len(body), body)


def said(body: Any, status: int = 200, media: str = "application/json", **headers: str) -> list[Any]:
    """A whole answer: bytes or text as they are, anything else as JSON."""
    data = body if isinstance(body, bytes) else body.encode() if isinstance(body, str) else json.dumps(body).encode()
    return [head(status, media, content_length=len(data), **headers) + data]


def event(data: Any) -> bytes:
    """One server-sent event: text as it is, anything else as JSON."""
    return f"data: {data if isinstance(data, str) else json.dumps(data)}\n\n".encode()


STREAM = head(media="text/event-stream", transfer_encoding="chunked")
"""The head of a stream of chunks."""
END = chunk(b"")


def sse(*events: Any, pause: float = 0, end: Iterable[Any] = (END,)) -> list[Any]:
    """A stream of events, with a pause before each, and its end."""
    steps: list[Any] = [STREAM]
    for one in events:
        steps += [pause, chunk(event(one))] if pause else [chunk(event(one))]
    return [*steps, *end]
