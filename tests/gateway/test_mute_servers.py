"""Owns waiting for a model server that is mute: whoever waits for it shares one question, and what comes of it."""

from __future__ import annotations

import asyncio
import threading

import pytest

from tests.gateway.ailing import Model
from tests.gateway.scripted import Asked, Script, Scripted, said
from turnscript.errors import UpstreamError
from turnscript.gateway.config import Config
from turnscript.gateway.served import Served

WAITING = 5


def waited(script: Script | None) -> tuple[list[object], int, int]:
    """What several requests get that wait for a server at the same time, and how often it was asked: first by one of
    them alone, then by all. The server says nothing until all of them wait."""
    speaks, speaking = threading.Event(), Model()

    def play(asked: Asked) -> Script:
        return [speaks, *(speaking(asked) if script is None else script)]

    async def run() -> tuple[list[object], int, int]:
        found: list[object] = []
        counts = []
        for waiting in (1, WAITING):
            speaks.clear()
            async with Scripted(play) as server:
                config = Config.for_backend(server.url, "rwkv-universal")
                served = Served(config.models[0], config, 0)
                tasks = [asyncio.create_task(served.ready()) for _ in range(waiting)]
                await server.until_asked()
                speaks.set()
                found = await asyncio.gather(*tasks, return_exceptions=True)
                await served.close()
                counts.append(len(server.asked))
        return found, counts[0], counts[1]

    return asyncio.run(run())


def test_all_who_wait_for_a_server_that_fails_are_told_at_once() -> None:
    """Each used to ask anew when the one before it had been told: of four requests the last waited 80 seconds."""
    found, alone, together = waited(said("", status=503))
    assert WAITING == sum(isinstance(one, UpstreamError) and "503" in str(one) for one in found)
    assert alone == together


def test_all_who_wait_for_a_server_that_answers_go_on() -> None:
    found, alone, together = waited(None)
    assert WAITING == sum(isinstance(one, Served) for one in found)
    assert alone == together


def test_who_does_not_wait_any_longer_takes_nothing_from_the_others() -> None:
    speaks, speaking = threading.Event(), Model()

    async def run() -> None:
        async with Scripted(lambda asked: [speaks, *speaking(asked)]) as server:
            config = Config.for_backend(server.url, "rwkv-universal")
            served = Served(config.models[0], config, 0)
            first, second = (asyncio.create_task(served.ready()) for _ in range(2))
            await server.until_asked()
            first.cancel()
            with pytest.raises(asyncio.CancelledError):
                await first
            speaks.set()
            assert served is await second
            await served.close()

    asyncio.run(run())


def test_a_model_that_is_closed_asks_no_more() -> None:
    async def run() -> None:
        silence = threading.Event()
        async with Scripted(lambda asked: [silence]) as server:
            config = Config.for_backend(server.url, "rwkv-universal")
            served = Served(config.models[0], config, 0)
            asking = asyncio.create_task(served.ready())
            await server.until_asked()
            asking.cancel()
            await asyncio.gather(asking, return_exceptions=True)
            await served.close()
            await server.until_gone()

    asyncio.run(run())
