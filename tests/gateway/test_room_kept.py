"""Owns the room for what is kept and fetched: a short question brings as much into memory as a long request did."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import pytest

from tests.gateway.background import begun
from tests.gateway.scripted import HANG
from tests.gateway.stage import APIS, Stage, Told, answer, connected, is_refused, named
from turnscript.apis.api import Api
from turnscript.core.errors import Overloaded

pytestmark = pytest.mark.usefixtures("nothing_goes_wrong")

STORING = pytest.mark.parametrize("api", [api for api in APIS if api.serving.stored], ids=named)
LONG = "word " * 1_800_000
FULL = Overloaded("no room", retry_after=1.0)


@pytest.fixture(scope="module")
def stage() -> Iterator[Stage]:
    with Stage(server={"max_body": 10_000_000, "max_body_total": 20_000_000}) as made:
        yield made


def kept(stage: Stage, api: Api, **members: Any) -> list[str]:
    """The paths that a long answer is fetched at, and what it was asked with."""
    stage.play(answer("Hello"))
    told = stage.ask(api, stream=False, text=LONG, store=True, instructions=LONG[:100], **members)
    path = f"{api.endpoint}/{told.json['id']}"
    return [path, f"{path}/input_items"]


@asynccontextmanager
async def fetched(stage: Stage, path: str, count: int) -> AsyncIterator[list[asyncio.StreamReader]]:
    """So many clients that ask for something long and take nothing of it; each has its share of the room by then."""
    room = stage.gateway.service.room
    readers: list[asyncio.StreamReader] = []

    def in_room() -> bool:
        return room.taken > len(readers) * len(LONG)

    async with AsyncExitStack() as stack:
        for _ in range(count):
            reader, writer = await stack.enter_async_context(connected(stage.url, room=10_000))
            writer.write(f"GET {path} HTTP/1.1\r\nhost: gateway\r\n\r\n".encode())
            readers.append(reader)
            await asyncio.to_thread(stage.until, in_room)
        yield readers


@STORING
def test_what_nobody_takes_has_its_share_and_who_does_not_fit_comes_again(stage: Stage, api: Api) -> None:
    _, items = kept(stage, api)
    stage.until(stage.idle)

    async def run() -> tuple[Any, Any]:
        async with fetched(stage, items, 2) as readers:
            refused = await asyncio.to_thread(stage.client.get, items)
            head = await asyncio.wait_for(readers[0].readuntil(b"\r\n\r\n"), 30)
            size = int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0])
            return refused, json.loads(await asyncio.wait_for(readers[0].readexactly(size), 30))

    refused, page = asyncio.run(run())
    is_refused(Told(api, refused.status_code, dict(refused.headers), refused.content), FULL)
    assert LONG == page["data"][0]["content"][0]["text"]
    stage.until(stage.idle)
    assert page == stage.client.get(items).json()
    stage.until(stage.idle)


@STORING
def test_what_is_fetched_is_whole_and_gives_its_room_back(stage: Stage, api: Api) -> None:
    answered, items = kept(stage, api, metadata={"long": "x" * 100_000})
    for path in (answered, items):
        found = stage.client.get(path)
        assert len(found.content) == int(found.headers["content-length"]) > 100_000
        assert found.json()["object"] in ("response", "list")
        stage.until(stage.idle)
        head = stage.client.head(path)
        assert (200, b"") == (head.status_code, head.content)
        stage.until(stage.idle)


@STORING
def test_an_answer_that_is_still_being_made_gives_its_room_back(stage: Stage, api: Api) -> None:
    stage.play([HANG])
    id_ = begun(stage, api, metadata={"long": "x" * 100_000})
    room = stage.gateway.service.room
    before = room.taken
    assert "in_progress" == stage.client.get(f"{api.endpoint}/{id_}").json()["status"]
    stage.until(lambda: room.taken == before)
    assert "cancelled" == stage.client.post(f"{api.endpoint}/{id_}/cancel").json()["status"]
    stage.until(stage.idle)


@STORING
def test_who_takes_nothing_is_cut_off(stage: Stage, api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    _, items = kept(stage, api)
    stage.until(stage.idle)
    monkeypatch.setattr(stage.gateway.service.heart, "stall", 0.2)

    async def run() -> None:
        async with connected(stage.url, room=10_000) as (_, writer):
            await asyncio.to_thread(stage.until, lambda: stage.connection(writer))
            writer.write(f"GET {items} HTTP/1.1\r\nhost: gateway\r\n\r\n".encode())
            writer.transport.pause_reading()  # type: ignore[attr-defined]
            await asyncio.to_thread(stage.until, lambda: not stage.connection(writer))
        await asyncio.to_thread(stage.until, stage.idle)

    asyncio.run(run())
