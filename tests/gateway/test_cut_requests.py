"""Owns requests on their way through a connection: in whichever pieces they come, an application is asked the same."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from typing import Any

import pytest
import uvicorn
from uvicorn.server import ServerState

from turnscript.gateway.config import Server as Settings
from turnscript.gateway.connection import Connection, through

PLAIN = b"POST /a%20b?c=d HTTP/1.1\r\nHost: x\r\nX-One:  two\r\nContent-Length: 9\r\n\r\nGET / HTT"
CHUNKS = b"3;f=g\r\nh\r\n\r\n2\r\nij\r\n0\r\nhost: y\r\n\r\n"
CHUNKED = b"POST /e HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n%b" % CHUNKS
OFFER = b"POST /k HTTP/1.1\r\nhost: x\r\nconnection: upgrade, keep-alive\r\nupgrade: h2c\r\ncontent-length: 2\r\n\r\nlm"
SOCKET = b"GET /n HTTP/1.1\r\nhost: x\r\nconnection: Upgrade\r\nupgrade: websocket\r\n\r\n"
LAST = b"GET /o HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n"
ALL = (
    b"\r\n" + PLAIN + CHUNKED + b"\r\n\r\n" + OFFER + SOCKET + PLAIN + LAST + b"\r\nwhat is behind the last is not read"
)


class Wire(asyncio.Transport):
    """A client that takes all, and remembers it."""

    def __init__(self) -> None:
        super().__init__()
        self.taken = b""
        self.closed = False

    def write(self, data: Any) -> None:
        self.taken += b"" if self.closed else bytes(data)

    def close(self) -> None:
        self.closed = True

    abort = close

    def is_closing(self) -> bool:
        return self.closed

    def get_write_buffer_size(self) -> int:
        return 0

    def pause_reading(self) -> None:
        """It sends what it sends."""

    resume_reading = pause_reading


async def repeat(scope: Any, receive: Any, send: Any) -> None:
    """Answer with what was asked."""
    body, more = b"", True
    while more:
        message = await receive()
        body, more = body + message["body"], message["more_body"]
    asked = [scope["method"], scope["raw_path"], scope["query_string"], *sorted(scope["headers"]), body]
    answer = json.dumps(asked, default=repr).encode() + b"\n"
    length = b"%d" % len(answer)
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", length)]})
    await send({"type": "http.response.body", "body": answer})


def answered(pieces: Sequence[bytes]) -> list[Any]:
    """What an application was asked by a client that sends these pieces, and whether the connection is closed then."""

    async def run() -> list[Any]:
        kind = type("Here", (Connection,), {"settings": Settings(), "there": set()})
        config = uvicorn.Config(through(repeat), http=kind, ws="none", lifespan="off", log_config=None)
        config.load()
        given: Any = {"config": config, "server_state": ServerState(), "app_state": {}}
        connection, wire = kind(**given, _loop=asyncio.get_running_loop()), Wire()
        connection.connection_made(wire)
        for piece in pieces:
            if not wire.is_closing():
                connection.data_received(piece)
            await asyncio.sleep(0)
        for _ in range(100):
            await asyncio.sleep(0)
        connection.connection_lost(None)
        return [json.loads(line) for line in wire.taken.splitlines() if line.startswith(b"[")] + [wire.closed]

    return asyncio.run(run())


def asked(method: str, path: str, query: str, body: str, **headers: str) -> list[Any]:
    named = sorted([repr(name.replace("_", "-").encode()), repr(value.encode())] for name, value in headers.items())
    return [method, repr(path.encode()), repr(query.encode()), *named, repr(body.encode())]


FIRST = asked("POST", "/a%20b", "c=d", "GET / HTT", host="x", x_one="two", content_length="9")
EXPECTED = [
    FIRST,
    asked("POST", "/e", "", "h\r\nij", host="x", transfer_encoding="chunked"),
    asked("POST", "/k", "", "lm", host="x", connection="keep-alive", upgrade="h2c", content_length="2"),
    asked("GET", "/n", "", "", host="x", connection="", upgrade="websocket"),
    FIRST,
    asked("GET", "/o", "", "", host="x", connection="close"),
    True,
]


def test_requests_are_the_same_in_one_piece_and_byte_by_byte() -> None:
    assert EXPECTED == answered([ALL])
    assert EXPECTED == answered([ALL[at : at + 1] for at in range(len(ALL))])


@pytest.mark.parametrize("step", [2, 3, 7, 50])
def test_requests_are_the_same_in_pieces_of_any_size(step: int) -> None:
    assert EXPECTED == answered([ALL[at : at + step] for at in range(0, len(ALL), step)])


@pytest.mark.long
def test_requests_are_the_same_wherever_they_are_cut_in_two() -> None:
    for cut in range(1, len(ALL)):
        assert EXPECTED == answered([ALL[:cut], ALL[cut:]]), ALL[:cut]


@pytest.mark.parametrize("wrong", [b"\r\n x", b"G@T / HTTP/1.1\r\n\r\n", b"GET / HTTP/1.1\r\na b: c\r\n\r\n"], ids=repr)
def test_what_is_no_request_ends_the_connection_behind_those_that_were_answered(wrong: bytes) -> None:
    assert [FIRST, True] == answered([PLAIN, b"", *[b""] * 20, wrong])
