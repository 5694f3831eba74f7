"""Owns that a server which goes on writing is not asked whether it is well: some cut the answer off for that."""

from __future__ import annotations

import asyncio
import threading

import pytest

from tests.gateway.ailing import Model
from tests.gateway.scripted import STREAM, Asked, Script, Scripted, chunk, event, sse
from tests.gateway.upstreams import ASK, BACKEND, text
from turnscript.backends.backend import Backend
from turnscript.convert import registry
from turnscript.core.errors import UpstreamError
from turnscript.gateway.pool import Pool, open_any
from turnscript.gateway.upstream import Upstream


def questions(server: Scripted) -> int:
    return sum(asked.line.startswith("GET") for asked in server.asked)


def test_a_server_that_writes_is_not_asked_and_one_that_is_silent_is() -> None:
    goes_on, ends = threading.Event(), threading.Event()

    def play(asked: Asked) -> Script:
        if asked.line.startswith("GET"):
            return Model()(asked)
        last = chunk(event(text("c", "stop")))
        return [STREAM, chunk(event(text("a"))), goes_on, chunk(event(text("b"))), ends, last, chunk(b"")]

    async def run() -> list[bool]:
        async with Scripted(play) as server:
            pool = Pool([Upstream(server.url, BACKEND)])
            asked: list[bool] = []

            async def check() -> None:
                before = questions(server)
                await pool.check()
                asked.append(questions(server) > before)

            async with open_any(pool, ASK) as (answer, _):
                for before in (None, None, goes_on, None):
                    if before is not None:
                        before.set()
                    if before is not None or not asked:
                        await anext(answer)
                    await check()
                ends.set()
                assert ["c"] == [piece.text for pieces in [await anext(answer)] for piece in pieces]
            await check()
            await pool.close()
            return asked

    assert [False, True, False, True, True] == asyncio.run(run())


@pytest.mark.parametrize("backend", [BACKEND, registry.get_backend("llamacpp")], ids=["failed", "tells of itself"])
def test_a_server_that_may_be_another_one_is_asked_though_it_writes(backend: Backend) -> None:
    ends = threading.Event()

    def play(asked: Asked) -> Script:
        if asked.line.startswith("GET"):
            return Model()(asked)
        if len([one for one in server_asked if one.line.startswith("POST")]) == 1 and backend is BACKEND:
            return sse({"error": "out of order"})
        piece = text("a") | {"content": "a"}
        return [STREAM, chunk(event(piece)), ends, chunk(b"")]

    server_asked: list[Asked] = []

    async def run() -> int:
        async with Scripted(play) as server:
            server_asked[:] = ()
            server.asked = server_asked
            pool = Pool([Upstream(server.url, backend)])
            if backend is BACKEND:
                with pytest.raises(UpstreamError, match="out of order"):
                    async with open_any(pool, ASK):
                        pass
            async with open_any(pool, ASK) as (answer, _):
                await anext(answer)
                await pool.check()
                found = questions(server)
            ends.set()
            await pool.close()
            return found

    assert asyncio.run(run()) >= 1
