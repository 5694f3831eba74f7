"""Owns what a whole answer costs a connection: one write."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.gateway.stage import APIS, Stage, answer, body_of, connected, named, post
from turnscript.api import Api
from turnscript.gateway.connection import Protocol

pytestmark = pytest.mark.usefixtures("nothing_goes_wrong")

EACH = pytest.mark.parametrize("api", APIS, ids=named)


class Counting:
    """A connection's transport, and how much was given to it at a time."""

    def __init__(self, transport: Any) -> None:
        self.transport = transport
        self.writes: list[bytes] = []

    def write(self, data: bytes) -> None:
        self.writes.append(bytes(data))
        self.transport.write(data)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.transport, name)


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> list[Counting]:
    """The transports of all connections from now on."""
    found: list[Counting] = []
    made = Protocol.connection_made

    def connection_made(protocol: Protocol, transport: Any) -> None:
        found.append(Counting(transport))
        made(protocol, found[-1])  # type: ignore[arg-type]

    monkeypatch.setattr(Protocol, "connection_made", connection_made)
    return found


def sent(stage: Stage, *requests: bytes) -> None:
    """Send requests on one connection, each behind the answer to the one before."""

    async def run() -> None:
        async with connected(stage.url) as (reader, writer), asyncio.timeout(20):
            for request in requests:
                writer.write(request)
                head = await reader.readuntil(b"\r\n\r\n")
                lines = dict(line.split(b": ") for line in head.split(b"\r\n")[1:-2])
                await reader.readexactly(int(lines[b"content-length"]))

    asyncio.run(run())


@EACH
def test_head_and_body_leave_together(stage: Stage, counted: list[Counting], api: Api) -> None:
    stage.play(answer("Hello"))
    request = post(api, body_of(api, stream=False))
    sent(stage, request, post(api, b"{"), request, post(api, body_of(api, stream=False), connection="close"))
    writes = counted[0].writes
    assert [b"200", b"400", b"200", b"200"] == [data[9:12] for data in writes]
    for data in writes:
        head, _, body = data.partition(b"\r\n\r\n")
        assert b"content-length: %d" % len(body) in head
        assert body.endswith(b"}")
