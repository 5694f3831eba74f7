"""Owns the gateway as a process: how it stops, what survives when it is killed, how it takes a new configuration."""

from __future__ import annotations

import asyncio
import inspect
import random
import signal
import socket
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx2
import pytest

from tests.gateway.scripted import FLOOD, HANG, STREAM, Asked, Script, Scripted, chunk, event, said
from tests.gateway.serving import Serving
from tests.gateway.stage import APIS, Threaded, Told, answer, body_of, piece, post
from turnscript.apis.api import Api
from turnscript.core.errors import Overloaded

BEGUN: Script = [STREAM, chunk(event(piece("Once upon a time")))]
STORING = [api for api in APIS if api.serving.stored]


class Model:
    """A model server. A prompt that says `hang` gets no end, one that says `slow` gets it late."""

    def __init__(self) -> None:
        self.asks: list[Asked] = []
        self.late = 0.4

    def script(self, asked: Asked) -> Script:
        if asked.line.startswith("GET"):
            return said({"data": [{"id": "model"}]})
        self.asks.append(asked)
        if b"flood" in asked.body:
            return [STREAM, chunk(event(piece("And so on. " * 500))), FLOOD]
        if b"hang" in asked.body:
            return [*BEGUN, HANG]
        return [*BEGUN, self.late, *answer("")[2:]] if b"slow" in asked.body else answer("Hello")


@pytest.fixture
def model() -> Iterator[tuple[Model, Scripted]]:
    played = Model()
    with Threaded() as thread, thread.server(played.script) as server:
        yield played, server


def ask(client: httpx2.Client, api: Api, *, stream: bool, text: str, **members: Any) -> Told:
    """Ask, and wait for the whole answer."""
    response = client.post(api.endpoint, content=body_of(api, stream=stream, text=text, **members))
    return Told(api, response.status_code, dict(response.headers), response.content)


def until(holds: Callable[[], object], seconds: float = 20.0) -> None:
    end = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < end, f"not so in time: {inspect.getsource(holds)}"
        time.sleep(0.005)


def test_a_signal_to_stop_lets_answers_finish_and_ends_the_others_with_an_error(
    tmp_path: Path, model: tuple[Model, Scripted]
) -> None:
    played, server = model
    cases = [(api, stream, text) for api in APIS for stream in (True, False) for text in ("slow", "hang")]
    with Serving(tmp_path, server.url, server={"grace": 2.0}) as process, ThreadPoolExecutor(32) as pool:
        waiting = [pool.submit(ask, process.client, api, stream=stream, text=text) for api, stream, text in cases]
        idle = httpx2.Client(base_url=process.url, verify=NO_VERIFY)
        assert "ok" == idle.get("/health").json()["status"]
        until(lambda: len(played.asks) >= len(cases) and all(asked.written for asked in played.asks))
        process.signal(signal.SIGTERM)
        until(lambda: refuses(process.url))
        with pytest.raises(httpx2.TransportError):
            idle.get("/health")
        told = [one.result() for one in waiting]
        code, took = process.ended()
        assert 0 == code
        assert took < 5.0
        assert [] == process.complaints
        idle.close()
    for (api, stream, text), one in zip(cases, told, strict=True):
        if text == "slow":
            assert "Once upon a time" == one.text
            assert one.error is None
        else:
            assert one.error is not None
            assert one.end is None
            assert b"shutting down" in one.body
            assert (200 if stream else api.render_error(Overloaded("?"))[0]) == one.status
            assert stream or "retry-after" in one.headers
    assert not [asked for asked in played.asks if b"hang" in asked.body and asked.gone is None]


NO_VERIFY: Any = False


def refuses(url: str) -> bool:
    parts = httpx2.URL(url)

    async def run() -> bool:
        try:
            _, writer = await asyncio.open_connection(parts.host, parts.port)
        except OSError:
            return True
        writer.transport.abort()
        return False

    return asyncio.run(run())


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_second_signal_ends_all_at_once(
    tmp_path: Path, model: tuple[Model, Scripted], number: signal.Signals
) -> None:
    played, server = model
    with Serving(tmp_path, server.url, server={"grace": 60.0}) as process, ThreadPoolExecutor(16) as pool:
        deaf = takes_nothing(process.url)
        waiting = [pool.submit(ask, process.client, api, stream=True, text="hang") for api in APIS]
        until(lambda: len(played.asks) > len(APIS) and all(asked.written for asked in played.asks))
        process.signal(number)
        until(lambda: refuses(process.url))
        assert process.process.poll() is None
        process.signal(number)
        told = [one.result() for one in waiting]
        code, took = process.ended()
        deaf.close()
        assert (0, []) == (code, process.complaints)
        assert took < 2.0
    for one in told:
        assert one.error is not None
        assert one.end is None


def takes_nothing(url: str) -> socket.socket:
    """A client that reads nothing of a stream without an end."""
    parts, api = httpx2.URL(url), APIS[0]
    client = socket.create_connection((parts.host, parts.port))
    client.sendall(post(api, body_of(api, stream=True, text="flood", limit=10_000_000)))
    return client


@pytest.mark.parametrize("api", STORING, ids=lambda api: api.name)
def test_whatever_was_told_to_be_complete_is_there_after_a_kill(
    tmp_path: Path, model: tuple[Model, Scripted], api: Api
) -> None:
    played, server = model
    chance = random.Random(11)
    told: list[Any] = []
    behind: Any = None
    played.late = 5.0
    for _ in range(2):
        with Serving(tmp_path, server.url) as process, ThreadPoolExecutor(8) as pool:
            behind = ask(process.client, api, stream=False, text="slow", background=True, store=True).json
            assert "queued" == behind["status"]

            def store(client: httpx2.Client) -> None:
                for number in range(1000):
                    stream = number % 2 == 0
                    response = client.post(api.endpoint, content=body_of(api, stream=stream, text=f"Hello {number}"))
                    one = Told(api, response.status_code, dict(response.headers), response.content)
                    if one.end is not None:
                        told.append(last_of(one))

            work = [pool.submit(store, process.client) for _ in range(4)]
            before = len(told)
            until(lambda before=before: len(told) > before + 10)  # type: ignore[misc]
            time.sleep(chance.random() * 0.2)
            process.process.kill()
            assert [True] * 4 == [isinstance(one.exception(), httpx2.TransportError) for one in work]
    assert len(told) > 20
    with Serving(tmp_path, server.url) as process:
        for one in told:
            found = process.client.get(f"{api.endpoint}/{one['id']}")
            assert 200 == found.status_code, one
            assert ("completed", one["output"]) == (found.json()["status"], found.json()["output"])
            items = process.client.get(f"{api.endpoint}/{one['id']}/input_items").json()["data"]
            assert 1 == len(items)
        lost = process.client.get(f"{api.endpoint}/{behind['id']}").json()
        assert "failed" == lost["status"]
        assert "stopped while it worked" in lost["error"]["message"]
        assert 1 == len(process.client.get(f"{api.endpoint}/{behind['id']}/input_items").json()["data"])


def last_of(told: Told) -> Any:
    """The response that a client was told of."""
    if not told.streamed:
        return told.json
    data = [line for line in told.body.splitlines() if line.startswith(b"data: {")][-1]
    return httpx2.Response(200, content=data[6:]).json()["response"]


def test_a_hang_up_takes_a_better_configuration_and_drops_no_answer(
    tmp_path: Path, model: tuple[Model, Scripted]
) -> None:
    played, server = model
    with Serving(tmp_path, server.url) as process, ThreadPoolExecutor(16) as pool:

        def limited() -> bool:
            return ask(process.client, APIS[0], stream=False, text="x").status == 429

        def reload(number: int) -> None:
            process.signal(signal.SIGHUP)
            until(lambda: len(process.events("configuration")) == number)

        waiting = [pool.submit(ask, process.client, api, stream=True, text="slow") for api in APIS]
        until(lambda: len(played.asks) >= len(APIS) and all(asked.written for asked in played.asks))
        process.config.write_text("[server]\nnonsense = 1\n", encoding="utf-8")
        reload(1)
        assert "last good one stays" in process.events("configuration")[0]["said"]
        assert "nonsense" in process.events("configuration")[0]["said"]
        assert not limited()
        process.configure(limits={"backend_running": 7})  # the model is still the same
        reload(2)
        assert "limits.backend_running" in process.events("configuration")[1]["said"]
        assert len(APIS) == process.client.get("/health").json()["models"]["default"]["running"]
        process.backend = f"{server.url}/v1"  # another model: the servers of the first one are let go
        process.configure(limits={"requests_per_minute": 1})
        reload(3)
        assert [False, True] == [limited(), limited()]
        told = [one.result() for one in waiting]
        assert ["Once upon a time"] * len(APIS) == [one.text for one in told]
        assert not [one for one in told if one.error or not one.end]
        time.sleep(0.7)  # what is let go is let go by now
        process.signal(signal.SIGTERM)
        assert 0 == process.ended()[0]
        assert ["last good one stays" in line for line in process.complaints] == [True]
