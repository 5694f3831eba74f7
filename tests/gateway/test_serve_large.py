"""Owns large requests from where others see them: their streams go on while one is read and its prompt is made."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import msgspec
import pytest

from tests.gateway.scripted import Asked, Script, said
from tests.gateway.serving import Serving
from tests.gateway.stage import CHATS, Threaded, answer, body_of, named, post
from turnscript.apis.api import Api
from turnscript.core.conversation import Assistant, Request, Text, User

NOT_KEPT: dict[str, Any] = {"store": False}
KEEPING = [api for api in CHATS if api.serving.stored]
MOST = 0.25
"""Seconds that the gateway may run while its loop has no turn: a stream has a piece every ten milliseconds."""
WATCH = """
import asyncio, time
from turnscript.gateway.server import Server
start = Server.startup
async def watch():
    with open({file!r}, "a", buffering=1) as file:
        while True:
            before = time.process_time()
            await asyncio.sleep(0.01)
            print(time.process_time() - before, file=file)
async def startup(self, sockets=None):
    self.watching = asyncio.create_task(watch())
    await start(self, sockets)
Server.startup = startup
"""
"""What a gateway tells: how long it ran from turn to turn of its loop. Wall clocks would tell of the machine."""


def written(asked: Asked) -> Script:
    """What the model server does: one answer comes for as long as its client stays, all others at once."""
    if asked.line.startswith("GET"):
        return said({"data": [{"id": "model"}]})
    return answer(*["tick "] * 10_000, pause=0.01) if b"Tick" in asked.body[:1000] else answer("Hello")


@pytest.fixture(scope="module")
def process(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    with Threaded() as thread, thread.server(written) as server:
        folder: Path = tmp_path_factory.mktemp("large")
        with Serving(folder, server.url, prepare=WATCH.format(file=str(folder / "turns"))) as made:
            yield made
            assert [] == made.complaints


def connected(process: Serving) -> socket.socket:
    url = httpx2.URL(process.url)
    assert url.port is not None
    return socket.create_connection((url.host, url.port), timeout=60)


def of_one_text(api: Api, size: int) -> bytes:
    return body_of(api, stream=False, text="words " * (size // 6), **(NOT_KEPT if api.serving.stored else {}))


def of_many_items(api: Api, size: int, **members: Any) -> bytes:
    request = Request()
    request.settings.model, request.settings.max_tokens = "m", 64
    for _ in range(size // 300):
        request.conversation.items += [
            User(content=[Text(text="words " * 16)]),
            Assistant(content=[Text(text="words " * 16)]),
        ]
    request.conversation.items.append(User(content=[Text(text="Hello")]))
    body: Any = api.render_request(request).value
    return msgspec.json.encode(body | (members or (NOT_KEPT if api.serving.stored else {})))


def goes_on(process: Serving, data: bytes) -> bool:
    """Whether a stream goes on while a request is sent and answered: its loop has its turns.

    Other work of the machine only ever makes a turn longer, so the best of three counts.
    """
    return any(longest_turn(process, data) < MOST for _ in range(3))


def longest_turn(process: Serving, data: bytes) -> float:
    """For how long the loop had no turn while a stream went on and a request was sent and answered."""
    told: list[bytes] = []

    def ask() -> None:
        with connected(process) as connection:
            connection.sendall(data)
            told.append(connection.recv(1000))

    with connected(process) as stream:
        stream.sendall(post(CHATS[0], body_of(CHATS[0], stream=True, text="Tick", limit=100_000)))
        while b"tick" not in stream.recv(100_000):
            pass
        before = len(turns(process))
        thread = threading.Thread(target=ask)
        thread.start()
        while thread.is_alive():
            assert stream.recv(100_000)
        thread.join()
    assert told[0].startswith(b"HTTP/1.1 200 "), told[0]
    return max(turns(process)[before:])


def turns(process: Serving) -> list[float]:
    """For how long the gateway ran between turns of its loop, in order."""
    return list(map(float, (process.folder / "turns").read_text().split()))


@pytest.mark.parametrize("api", CHATS, ids=named)
def test_streams_go_on_while_a_long_conversation_comes_in(process: Serving, api: Api) -> None:
    assert goes_on(process, post(api, of_many_items(api, 5_000_000)))


@pytest.mark.deep
@pytest.mark.long
@pytest.mark.parametrize("api", KEEPING, ids=named)
def test_streams_go_on_while_a_long_conversation_is_kept(process: Serving, api: Api) -> None:
    assert goes_on(process, post(api, of_many_items(api, 15_000_000, store=True)))


@pytest.mark.deep
@pytest.mark.parametrize("api", KEEPING, ids=named)
def test_streams_go_on_while_a_long_conversation_that_was_kept_goes_on(process: Serving, api: Api) -> None:
    first = process.client.post(api.endpoint, content=of_many_items(api, 5_000_000, store=True)).json()["id"]
    assert goes_on(process, post(api, body_of(api, stream=False, previous_response_id=first, store=False)))


@pytest.mark.deep
@pytest.mark.long
@pytest.mark.parametrize("api", CHATS, ids=named)
def test_streams_go_on_while_a_huge_text_comes_in(process: Serving, api: Api) -> None:
    assert goes_on(process, post(api, of_one_text(api, 50_000_000)))
