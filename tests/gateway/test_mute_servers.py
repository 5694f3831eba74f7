"""Owns waiting for a model server that is mute: whoever waits for it shares one question, and what comes of it."""

from __future__ import annotations

import asyncio
import threading

import pytest
from msgspec.structs import replace

from tests.gateway.ailing import Model
from tests.gateway.scripted import HANG, Asked, Script, Scripted, said
from turnscript.core.errors import UpstreamError
from turnscript.gateway import upstream
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


def test_a_server_that_does_not_answer_yet_is_taken_for_what_the_others_are() -> None:
    """They serve the same model: one of them is enough to begin with, and the others are asked again later."""

    async def run() -> tuple[list[str], list[bool]]:
        async with Scripted(Model()) as server:
            config = Config.for_backend(server.url, "rwkv-universal")
            away = Config.for_backend("http://127.0.0.1:9", "rwkv-universal").models[0].backend
            model = replace(config.models[0], backend=(*away, *config.models[0].backend))
            served = Served(model, config, 0)
            await served.ready()
            members = served.pool.members
            await served.close()
            return [one.upstream.backend.name for one in members], [one.healthy for one in members]

    kinds, healthy = asyncio.run(run())
    assert 1 == len(set(kinds))
    assert 2 == len(kinds)
    assert healthy[1]


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


@pytest.mark.parametrize(("path", "places"), [("", 4), ("/v1", 2)])
def test_a_server_whose_kind_is_not_known_is_asked_everything_at_once(path: str, places: int) -> None:
    """One question waited for the other: a server that is mute held up the start for twice as long."""

    async def run() -> None:
        async with Scripted([HANG]) as server:
            config = Config.for_backend(server.url + path, "rwkv-universal")
            served = Served(config.models[0], config, 0)
            asking = asyncio.create_task(served.ready())
            await server.until_asked(places)
            assert [None] * places == [asked.gone for asked in server.asked]
            asking.cancel()
            await served.close()
            await asyncio.gather(asking, return_exceptions=True)

    asyncio.run(run())


def test_a_server_that_was_mute_is_not_waited_for_again_before_a_request_comes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(upstream, "_SHORT", 0.2)
    answering, speaking = threading.Event(), Model()

    def play(asked: Asked) -> Script:
        return speaking(asked) if answering.is_set() else [HANG]

    async def run() -> tuple[int | None, int | None]:
        async with Scripted(play) as server:
            config = Config.for_backend(f"{server.url}/v1", "rwkv-universal")
            served = await Served(config.models[0], config, 0).ready()
            early = served.context
            assert {"GET /props", "GET /v1/models"} == {asked.line for asked in server.asked}
            answering.set()
            await served._learned()
            late = served.context
            await served.close()
            return early, late

    assert (None, 1000) == asyncio.run(run())


def test_what_the_first_of_several_servers_tells_counts_though_another_is_mute() -> None:
    async def run() -> int | None:
        async with Scripted([HANG]) as mute, Scripted(Model(context=700)) as first, Scripted(Model()) as second:
            urls = [f"{server.url}/v1" for server in (first, mute, second)]
            config = Config.for_backend(urls[0], "rwkv-universal", kind="completions")
            backends = tuple(Config.for_backend(url).models[0].backend[0] for url in urls)
            served = Served(replace(config.models[0], backend=backends), config, 0)
            context = (await served.ready()).context
            await served.close()
            return context

    assert 700 == asyncio.run(run())
