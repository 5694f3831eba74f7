"""The clients of a gateway: raw connections in a process of their own, told by JSON lines what to do.

`load` sends requests one after the other on some connections; `paced` opens streams and reads from each piece when it
left the model's server; `hold` opens streams and keeps them until `release`; `sample` shows one whole answer. Where an
answer says when the model's server was asked and when it answered, its own time does not count.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import re
import sys
import time
from pathlib import Path
from typing import Any

import uvloop

_STAMP = re.compile(rb"@(?:(\d+):)?(\d+)@")
_TIMEOUT = 60.0


class Failed(Exception):
    """An answer that is none."""


class Connection(asyncio.Protocol):
    """One connection, kept for the next request."""

    def __init__(self) -> None:
        self.stamps: dict[int, int] = {}
        self.body = bytearray()
        self.first: asyncio.Future[None] | None = None
        self._reading_stamps = False
        self._keeping = False
        self._done: asyncio.Future[None] | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        self.transport = transport

    def connection_lost(self, exc: Exception | None) -> None:
        self._fail("the connection was closed in the middle of an answer")

    async def ask(self, request: bytes, *, stamps: bool = False, keep: bool = False) -> None:
        """Send a request and wait for the end of its answer."""
        self.begin(request, stamps=stamps, keep=keep)
        assert self._done is not None
        await asyncio.wait_for(self._done, _TIMEOUT)

    def begin(self, request: bytes, *, stamps: bool = False, keep: bool = False) -> None:
        loop = asyncio.get_running_loop()
        self._done, self.first = loop.create_future(), loop.create_future()
        self._head, self._left, self._last = b"", -1, b""
        self._reading_stamps, self._keeping = stamps, keep
        self._began = time.monotonic_ns()
        self.transport.write(request)

    def data_received(self, data: bytes) -> None:
        if self._reading_stamps:
            now = time.monotonic_ns()
            for found in _STAMP.finditer(data):
                left = int(found[2])
                # An API may say the whole text once more at the end.
                self.stamps.setdefault(left, now - left + (int(found[1]) - self._began if found[1] else 0))
        if self._head is not None:
            self._head += data
            end = self._head.find(b"\r\n\r\n")
            if end < 0:
                return
            head, data = self._head[:end].lower(), self._head[end + 4 :]
            self._head = None
            if not head.startswith(b"http/1.1 200"):
                self._fail(f"{head[:40]!r}: {data[:300]!r}")
                return
            at = head.find(b"content-length:")
            self._left = int(head[at + 15 :].split(b"\r\n", 1)[0]) if at >= 0 else -1
            if self.first is not None and not self.first.done():
                self.first.set_result(None)
        if self._keeping:
            self.body += data
        if self._left >= 0:
            self._left -= len(data)
            over = self._left == 0
        else:
            self._last = (self._last + data)[-5:] if len(data) < 5 else data[-5:]
            over = self._last == b"0\r\n\r\n"
        if over and self._done is not None and not self._done.done():
            self._done.set_result(None)

    def _fail(self, what: str) -> None:
        for future in (self._done, self.first):
            if future is not None and not future.done():
                future.set_exception(Failed(what))
                future.exception()  # one of the two may have nobody who waits for it


def request(path: str, body: bytes) -> bytes:
    """What goes over the wire."""
    head = (
        f"POST {path} HTTP/1.1\r\nhost: bench\r\ncontent-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body


class Client:
    """All commands."""

    def __init__(self) -> None:
        self._held: list[Connection] = []

    async def answer(self, question: dict[str, Any]) -> dict[str, Any]:
        found: dict[str, Any] = await getattr(self, f"do_{question.pop('do')}")(**question)
        return found

    async def _connected(self, port: int) -> Connection:
        _, connection = await asyncio.get_running_loop().create_connection(Connection, "127.0.0.1", port)
        return connection

    async def do_sample(self, port: int, path: str, body: str) -> dict[str, Any]:
        connection = await self._connected(port)
        await connection.ask(request(path, body.encode()), keep=True)
        connection.transport.close()
        return {"body": connection.body.decode()}

    async def do_load(self, port: int, path: str, count: int, connections: int, **what: Any) -> dict[str, Any]:
        """`body` as often as `count` says, or `bodies`: a file with one body a line, each of which is sent once."""
        body, bodies, stamps = what.get("body", ""), what.get("bodies", ""), what.get("stamps", False)
        lines = Path(bodies).read_bytes().splitlines() if bodies else []
        requests = iter(
            [request(path, line) for line in lines] or itertools.repeat(request(path, body.encode()), count)
        )
        took: list[int] = []
        told: list[int] = []

        async def work(connection: Connection) -> None:
            for one in requests:
                began = time.monotonic_ns()
                await connection.ask(one, stamps=stamps)
                took.append(time.monotonic_ns() - began)
            told.extend(connection.stamps.values())
            connection.transport.close()

        opened = [await self._connected(port) for _ in range(connections)]
        await asyncio.gather(*map(work, opened))
        return {"times": len(took), **_spread(told if stamps else took)}

    async def do_paced(self, port: int, path: str, body: str, streams: int) -> dict[str, Any]:
        opened = [await self._connected(port) for _ in range(streams)]
        began = time.monotonic()
        await asyncio.gather(*(one.ask(request(path, body.encode()), stamps=True) for one in opened))
        delays = [delay for one in opened for delay in one.stamps.values()]
        for one in opened:
            one.transport.close()
        return {"times": len(delays), "seconds": time.monotonic() - began, **_spread(delays)}

    async def do_hold(self, port: int, path: str, body: str, streams: int) -> dict[str, Any]:
        for _ in range(streams):
            connection = await self._connected(port)
            connection.begin(request(path, body.encode()))
            self._held.append(connection)
        await asyncio.wait_for(asyncio.gather(*[one.first for one in self._held if one.first is not None]), _TIMEOUT)
        await asyncio.sleep(2)
        return {}

    async def do_release(self) -> dict[str, Any]:
        for connection in self._held:
            connection.transport.abort()
        self._held = []
        await asyncio.sleep(0.2)
        return {}


def _spread(values: list[int]) -> dict[str, Any]:
    ordered = sorted(values) or [0]
    return {"p50": ordered[len(ordered) // 2], "p99": ordered[min(len(ordered) - 1, len(ordered) * 99 // 100)]}


def main() -> None:
    client = Client()
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        for line in sys.stdin:
            try:
                answer = runner.run(client.answer(json.loads(line)))
            except (Failed, OSError, TimeoutError) as error:
                answer = {"failed": f"{type(error).__name__}: {error}"}
            print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
