"""Owns what is left behind: nothing, after thousands of requests, and after hundreds of streams at the same time."""

from __future__ import annotations

import asyncio
import gc
import itertools
import signal
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest
from hypothesis import settings

from tests.gateway.crowd import Cheap, Client, Line, crowd
from tests.gateway.serving import Serving
from tests.gateway.small import SMALL
from tests.gateway.stage import APIS, Stage, Told, answer, body_of, connected, post, quiet
from turnscript.core.conversation import Text, User
from turnscript.gateway.server import allow_open_files

NOT_KEPT: dict[str, Any] = {"store": False}
REQUESTS = [
    (post(api, body_of(api, stream=stream, text="Say 1", **(NOT_KEPT if api.serving.stored else {}))), stream)
    for api in APIS
    for stream in (True, False)
]
LONG = settings.get_current_profile_name() == "fuzz"
CLIENTS, SPREAD = 3300 if LONG else 660, 1_200_000
"""How many come, each with three requests and more, and how many bytes more a settled process may have at their end."""
pytestmark = pytest.mark.filterwarnings("error")


@asynccontextmanager
async def serving(folder: Path, prepare: str = "", **sections: dict[str, Any]) -> AsyncIterator[Serving]:
    """The gateway as a process, before a cheap model server."""
    server = await asyncio.get_running_loop().create_server(Cheap, "127.0.0.1", 0, backlog=1000)
    process = Serving(folder, f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}", prepare=prepare)
    process.sections = sections
    await asyncio.to_thread(process.__enter__)
    try:
        yield process
        assert [] == process.complaints
    finally:
        await asyncio.to_thread(process.__exit__, None, None, None)
        server.close()
        await server.wait_closed()


def memory(process: Serving) -> int:
    """Bytes that a process has in memory."""
    return psutil.Process(process.process.pid).memory_info().rss


def files(process: Serving) -> int:
    """How many files and connections it has open."""
    seen = psutil.Process(process.process.pid)
    return len(seen.open_files()) + len(seen.net_connections("all"))


@asynccontextmanager
async def sampled(process: Serving) -> AsyncIterator[list[int]]:
    """The memory of a process at many times inside, the last of them at the end."""
    found: list[int] = []

    async def sample() -> None:
        while True:
            found.append(memory(process))
            await asyncio.sleep(0.002)

    task = asyncio.create_task(sample())
    try:
        yield found
    finally:
        task.cancel()
        found.append(memory(process))


async def until(holds: Callable[[], object]) -> None:
    async with asyncio.timeout(10):
        while not holds():
            await asyncio.sleep(0.02)


async def many(url: str, times: int) -> None:
    """Every request of REQUESTS so many times, on one connection."""
    async with connected(url) as (reader, writer):
        for _ in range(times):
            for request, stream in REQUESTS:
                writer.write(request)
                head = (await reader.readuntil(b"\r\n\r\n")).lower()
                assert head.startswith(b"http/1.1 200 ")
                if stream:
                    await reader.readuntil(b"\r\n0\r\n\r\n")
                else:
                    await reader.readexactly(int(head.partition(b"content-length: ")[2].partition(b"\r\n")[0]))


@pytest.mark.deep
@pytest.mark.long
@pytest.mark.hypothesis
def test_thousands_of_clients_leave_no_memory_and_no_connection(tmp_path: Path) -> None:
    """No two ask the same. What is kept for clients to come back to is bounded, and soon full."""

    async def run() -> None:
        async with serving(tmp_path, SMALL, memory={"size": 300_000}, store={"size": 300_000}) as process:
            numbers, asked, found = itertools.count(), 0, list[int]()
            for _ in range(20):
                asked += await crowd(process.url, itertools.islice(numbers, CLIENTS // 10))
                process.signal(signal.SIGUSR1)
                await until(lambda: len(process.events("collected")) > len(found))
                found.append(memory(process))
            assert asked > 6 * CLIENTS
            # What the allocator holds settles slowly. A kilobyte that each request left would be twice the bound.
            assert max(found[8:]) - found[8] < SPREAD, found
            assert files(process) < 40

    asyncio.run(run())


@pytest.mark.deep
@pytest.mark.parametrize("how", ["refused", "failed", "left", "counted"])
def test_large_requests_that_come_to_nothing_leave_nothing(tmp_path: Path, how: str) -> None:
    """Their errors and what is around these must not keep them until the collector of garbage comes round."""

    async def come(line: Line, number: int) -> None:
        client = Client(line, number)
        client.add(User(content=[Text(text=f"{number} words " * 100_000)]))
        client.say("Hang" if how == "left" else "Fail")
        body = client.body(stream=number % 8 < 4)
        if how == "left":
            reader = await line.begin(client.post(body))
            if number % 8 < 4:
                await reader.readuntil(b"Hello")
            await line.leave()
        elif how == "failed":
            await line.ask(client.post(body), 503, 529, 200)  # the last where a stream has begun
        elif how == "refused":
            await line.ask(client.post(body[:-1]), 400)
        elif client.api.serving.count_path:
            counted = client.post(body[:-1])
            counted = counted.replace(client.api.endpoint.encode(), client.api.serving.count_path.encode(), 1)
            await line.ask(counted, 400)

    async def run() -> None:
        async with serving(tmp_path, SMALL) as process:
            line = Line(process.url)
            for number in range(16):
                await come(line, number)
            before = memory(process)
            for number in range(16, 80):
                await come(line, number)
            await line.leave()
            assert memory(process) - before < 30_000_000
            process.lines[:] = [told for told in process.lines if "backend failed" not in told]

    asyncio.run(run())


@pytest.mark.deep
def test_hundreds_of_streams_at_once_are_answered_and_cost_little(tmp_path: Path) -> None:
    count = 500
    allow_open_files()
    few = "import resource; hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]"
    few += "; resource.setrlimit(resource.RLIMIT_NOFILE, (256, hard))"

    async def stream(stack: AsyncExitStack, url: str, number: int) -> None:
        reader, writer = await stack.enter_async_context(connected(url))
        api = APIS[number % len(APIS)]
        writer.write(post(api, body_of(api, stream=True, text=f"Hang {number}")))
        head = await reader.readuntil(b"Hello")
        assert head.startswith(b"HTTP/1.1 200 ")

    async def run() -> None:
        async with serving(tmp_path, few) as process:
            await many(process.url, 3)
            before, open_before = memory(process), files(process)
            async with AsyncExitStack() as stack:
                await asyncio.gather(*(stream(stack, process.url, number) for number in range(count)))
                assert files(process) >= 2 * count
                assert (memory(process) - before) / count < 100_000
                async with asyncio.timeout(3):
                    await many(process.url, 1)
            await until(lambda: files(process) < open_before + 20)
            health = await asyncio.to_thread(process.client.get, "/health")
            assert (0, 0) == (
                health.json()["models"]["default"]["running"],
                health.json()["models"]["default"]["waiting"],
            )

    asyncio.run(run())


def test_no_task_is_left_of_any_request(caplog: pytest.LogCaptureFixture) -> None:
    async def tasks() -> int:
        return len(asyncio.all_tasks())

    with quiet(caplog), Stage() as stage:
        stage.play(answer("Hello"))

        def each() -> None:
            for api in APIS:
                for stream in (True, False):
                    told: Told = stage.ask(api, stream=stream)
                    assert "Hello" == told.text
            stage.until(stage.idle)

        each()
        before = stage.gateway.run(tasks())
        for _ in range(5):
            each()
        stage.until(lambda: stage.gateway.run(tasks()) <= before)
        assert not len(stage.gateway.service.heart)
        gc.collect()
    gc.collect()


@pytest.mark.deep
def test_a_large_request_takes_a_small_multiple_of_its_size(tmp_path: Path) -> None:
    size = 20_000_000

    async def run() -> None:
        async with serving(tmp_path) as process:
            before = memory(process)
            async with sampled(process) as found:
                for api in APIS:
                    body = body_of(api, stream=False, text="Hello you " * (size // 10) + "Say 1")
                    told = await asyncio.to_thread(process.client.post, api.endpoint, content=body)
                    assert 200 == told.status_code
            assert len(found) > 10
            assert max(found) - before < 16 * size

    asyncio.run(run())
