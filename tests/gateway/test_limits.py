"""Owns limits: how much runs and waits, how much a key may use, and what is behind a wrong door."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from itertools import pairwise
from typing import Any

import httpx2
import pytest
from msgspec.structs import replace

from tests.clocks import run_time, scaled
from tests.gateway.running import Running
from tests.gateway.scripted import HANG, STREAM, Asked, Script, chunk, event, said
from tests.gateway.stage import (
    APIS,
    CHATS,
    FORMAT,
    NO_TLS,
    Stage,
    Threaded,
    Told,
    answer,
    body_of,
    connected,
    is_refused,
    named,
    piece,
    post,
)
from turnscript.apis.api import Api
from turnscript.core.errors import NotFound, Overloaded, RateLimited, Unauthorized
from turnscript.gateway.config import Config, Limits, Model
from turnscript.gateway.keys import add_key
from turnscript.gateway.limits import Gate, Rate

pytestmark = pytest.mark.usefixtures("nothing_goes_wrong")

EACH = pytest.mark.parametrize("api", APIS, ids=named)
BOTH = pytest.mark.parametrize("stream", [True, False], ids=["stream", "whole"])


# How many run, and wait.


@pytest.fixture(scope="module")
def narrow() -> Iterator[Stage]:
    with Stage(limits={"backend_running": 1, "queue": 1, "wait": 0.6}) as made:
        yield made


@asynccontextmanager
async def running(stage: Stage, api: Api) -> AsyncIterator[None]:
    """Somebody else's request, which the only place is taken by."""
    async with connected(stage.url) as (_, writer):
        writer.write(post(api, body_of(api, stream=True, text="I was first")))
        while not stage.asks[0]:
            await asyncio.sleep(0.002)
        yield


@EACH
@BOTH
@scaled
def test_a_full_queue_refuses_and_a_long_wait_does_too(narrow: Stage, api: Api, stream: bool, scale: float) -> None:
    gate = narrow.gateway.service.models()[0].gate
    gate.change(Limits(queue=1, wait=0.6 * scale), 1)

    async def run() -> tuple[Told, Told, float]:
        async with running(narrow, api):
            waits = asyncio.ensure_future(asyncio.to_thread(narrow.ask, api, stream=stream))
            while not gate.waiting:
                await asyncio.sleep(0.002)
            began = run_time()
            full = await asyncio.to_thread(narrow.ask, api, stream=stream)
            return full, await waits, run_time() - began

    narrow.play([HANG])
    full, late, took = asyncio.run(run())
    for told in (full, late):
        is_refused(told, Overloaded("?", retry_after=1.0))
    assert b"1 requests run and 1 wait" in full.body
    assert f"no place became free within {0.6 * scale:g} s" in late.body.decode()
    assert took < 3 * scale
    narrow.until(narrow.idle)
    assert 1 == len(narrow.asks[0])


@EACH
def test_a_stream_that_has_begun_is_told_of_a_long_wait_inside(
    narrow: Stage, api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("turnscript.gateway.answers.QUEUED", 0.05)

    async def run() -> Told:
        async with running(narrow, api):
            return await asyncio.to_thread(narrow.ask, api, stream=True)

    narrow.play([HANG])
    told = asyncio.run(run())
    assert told.streamed
    assert told.end is None
    assert "no place became free" in str(told.error)
    narrow.until(narrow.idle)


@pytest.mark.parametrize("api", CHATS[:1], ids=named)
def test_a_server_that_says_no_slots_has_those_of_the_configuration(api: Api) -> None:
    with Stage(model={"slots": 2}) as stage, ThreadPoolExecutor(4) as clients:
        stage.play([0.1, *answer("Hello")])
        gate = stage.gateway.service.models()[0].gate
        told = [clients.submit(stage.ask, api, stream=False, text=f"Hello {number}") for number in range(4)]
        stage.until(lambda: gate.waiting == 2 and len(stage.asks[0]) > 1)  # who has a place may not have asked yet
        assert 2 == len(stage.asks[0])
        assert ["Hello"] * 4 == [one.result().text for one in told]


@pytest.mark.parametrize("most", [None, 7])
def test_a_server_is_asked_no_more_at_once_than_it_has_slots(most: int | None) -> None:
    """Who is behind another in a slot disturbs that one's answer in servers that keep states beside their slots."""
    took = 0.05

    def script(asked: Asked) -> Script:
        if asked.line.startswith("GET"):
            return said({"total_slots": 2, "default_generation_settings": {"n_ctx": 4096}})
        if asked.line.endswith("/tokenize"):
            return said({"tokens": []})
        return [took, *said({"content": "Hello", "stop": True, "stop_type": "eos"})]

    with Threaded() as thread, thread.server(script) as server:
        config = Config.for_backend(server.url, FORMAT, kind="llamacpp")
        config = replace(config, limits=replace(config.limits, backend_running=most))
        with Running(config) as gateway, ThreadPoolExecutor(8) as clients:

            def ask(number: int) -> int:
                body = body_of(CHATS[0], stream=False, text=f"I am number {number}")
                return httpx2.post(gateway.url + CHATS[0].endpoint, content=body, verify=NO_TLS).status_code

            assert {200} == set(clients.map(ask, range(8)))
        begun: dict[int, list[float]] = {0: [], 1: []}
        for asked in server.asked:
            if asked.line == "POST /completion":
                begun[asked.json["id_slot"]].append(asked.at)
    assert 8 == sum(map(len, begun.values()))
    for times in begun.values():
        assert all(later - earlier >= took for earlier, later in pairwise(times))


def test_who_waits_comes_in_the_order_of_arrival_and_none_is_forgotten() -> None:
    async def run() -> list[int]:
        gate, order = Gate(Limits(queue=20, wait=5.0), 2, "x"), []

        async def one(number: int) -> None:
            async with gate:
                assert gate.running <= 2
                order.append(number)
                await asyncio.sleep(0)

        await asyncio.gather(*map(one, range(12)))
        assert gate.idle
        return order

    assert list(range(12)) == asyncio.run(run())


def test_more_of_what_was_let_in_waits_in_its_turn_and_is_not_refused() -> None:
    async def run() -> None:
        gate, order = Gate(Limits(queue=1, wait=0.01), 1, "x"), []

        async def more(name: str) -> None:
            async with gate.again():
                order.append(name)

        async def other() -> None:
            async with gate:
                order.append("other")

        async with gate:
            assert 0 == gate.room
            waiting = asyncio.create_task(other())
            await asyncio.sleep(0)
            tasks = [asyncio.create_task(more(name)) for name in ("more", "left", "again")]
            await asyncio.sleep(0)
            assert 4 == gate.waiting
            tasks[1].cancel()
        await asyncio.gather(waiting, *tasks, return_exceptions=True)
        assert (["other", "more", "again"], 1, True) == (order, gate.room, gate.idle)
        async with gate, asyncio.timeout(1):
            late = asyncio.create_task(more("late"))
            await asyncio.sleep(0.05)  # longer than anybody else may wait
        await late
        assert ("late", True) == (order[-1], gate.idle)
        assert 9 < Gate(Limits(), None, "x").room

    asyncio.run(run())


def test_other_limits_hold_from_now_on() -> None:
    async def run() -> None:
        gate, leave, inside = Gate(Limits(queue=9, wait=5.0), 1, "x"), asyncio.Event(), []

        async def one(number: int) -> None:
            async with gate:
                inside.append(number)
                await leave.wait()

        tasks = [asyncio.create_task(one(number)) for number in range(6)]
        await asyncio.sleep(0)
        assert [0] == inside
        gate.change(Limits(queue=9, wait=5.0), 3)
        await asyncio.sleep(0)
        assert ([0, 1, 2], 3, 3) == (inside, gate.running, gate.waiting)
        gate.change(Limits(queue=9, wait=5.0), 1)
        tasks[0].cancel()
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert ([0, 1, 2], 2, 3) == (inside, gate.running, gate.waiting)
        gate.change(Limits(queue=9, wait=5.0), None)
        leave.set()
        await asyncio.gather(*tasks, return_exceptions=True)
        assert ([0, 1, 2, 3, 4, 5], True) == (inside, gate.idle)

    asyncio.run(run())


def test_one_that_leaves_the_queue_in_the_moment_of_its_turn_gives_it_to_the_next() -> None:
    async def run(leave_first: bool) -> None:
        gate, leave, done = Gate(Limits(queue=9, wait=5.0), 1, "x"), asyncio.Event(), []

        async def first() -> None:
            async with gate:
                await leave.wait()

        async def later(number: int) -> None:
            async with gate:
                done.append(number)

        holder = asyncio.create_task(first())
        await asyncio.sleep(0)
        waiting = [asyncio.create_task(later(number)) for number in range(3)]
        await asyncio.sleep(0)
        assert 3 == gate.waiting
        if leave_first:
            leave.set()
            await asyncio.sleep(0)
            waiting[0].cancel()
        else:
            waiting[0].cancel()
            gate.leave()
            gate.running += 1
            leave.set()
        ended = await asyncio.gather(holder, *waiting, return_exceptions=True)
        assert [None, asyncio.CancelledError, None, None] == [one and type(one) for one in ended]
        assert [1, 2] == done
        assert gate.idle or not leave_first

    asyncio.run(run(leave_first=True))
    asyncio.run(run(leave_first=False))


# What a key may use.


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Stage, dict[str, str]]]:
    path = tmp_path_factory.mktemp("keys") / "keys"
    limits: dict[str, dict[str, Any]] = {
        "anna": {},
        "bert": {"requests_per_minute": 2},
        "cleo": {"tokens_per_minute": 20},
        "dora": {"running": 1, "queue": 0},
        "emil": {},
    }
    tokens = {name: add_key(path, name, limits=own).reveal() for name, own in limits.items()}
    with Stage(server={"keys": path}) as made:
        yield made, tokens


@EACH
@BOTH
@pytest.mark.parametrize(
    ("headers", "known"),
    [
        ({}, False),
        ({"authorization": "Bearer tsk-nobody"}, False),
        ({"x-api-key": "sk-ant-1"}, False),
        ({"authorization": "Basic {anna}"}, False),
        ({"authorization": "Bearer {anna}"}, True),
        ({"authorization": "bearer  {anna}"}, True),
        ({"x-api-key": "{anna}"}, True),
        ({"x-api-key": "{anna}", "authorization": "Bearer stale"}, True),
        ({"x-api-key": "stale", "authorization": "Bearer {anna}"}, True),
    ],
)
def test_a_key_is_needed_and_both_headers_carry_it(
    keys: tuple[Stage, dict[str, str]], api: Api, stream: bool, headers: dict[str, str], known: bool
) -> None:
    stage, tokens = keys
    stage.play(answer("Hello"))
    told = stage.ask(api, stream=stream, headers={name: said.format(**tokens) for name, said in headers.items()})
    if known:
        assert "Hello" == told.text
    else:
        is_refused(told, Unauthorized("?"))
        assert not stage.asks[0]


@pytest.mark.parametrize("path", ["/v1/models", "/v1/models/m", "/metrics", "/turnscript/reports/req_1"])
def test_a_key_is_needed_for_everything_that_says_something(keys: tuple[Stage, dict[str, str]], path: str) -> None:
    stage, tokens = keys
    assert 401 == stage.client.get(path).status_code
    assert stage.client.get(path, headers={"x-api-key": tokens["anna"]}).status_code in (200, 404)
    assert 200 == stage.client.get("/health").status_code


def test_the_requests_of_a_key_in_a_minute_are_counted(keys: tuple[Stage, dict[str, str]]) -> None:
    stage, tokens = keys
    stage.play(answer("Hello"))
    told = [stage.ask(api, stream=False, headers={"x-api-key": tokens["bert"]}) for api in [*CHATS, *CHATS]]
    assert [200] * 2 == [one.status for one in told[:2]]
    for one in told[2:]:
        is_refused(one, RateLimited("?", retry_after=1.0))
    assert 2 == len(stage.asks[0])
    assert 200 == stage.ask(APIS[0], stream=False, headers={"x-api-key": tokens["anna"]}).status


def test_the_tokens_of_a_key_in_a_minute_are_counted(keys: tuple[Stage, dict[str, str]]) -> None:
    stage, tokens = keys
    stage.play(answer(*["Hello"] * 20))
    told = [stage.ask(api, stream=True, headers={"x-api-key": tokens["cleo"]}) for api in APIS]
    assert 200 == told[0].status
    for one in told[1:]:
        is_refused(one, RateLimited("?", retry_after=1.0))


def test_tokens_of_an_answer_that_nobody_waited_for_are_counted_too(keys: tuple[Stage, dict[str, str]]) -> None:
    stage, tokens = keys

    def used() -> float:
        text = stage.client.get("/metrics", headers={"x-api-key": tokens["anna"]}).text
        found = [line for line in text.splitlines() if line.startswith("turnscript_tokens_total") and "output" in line]
        return sum(float(line.rpartition(" ")[2]) for line in found)

    async def run() -> None:
        async with connected(stage.url) as (reader, writer):
            api = CHATS[0]
            writer.write(post(api, body_of(api, stream=True), x_api_key=tokens["emil"]))
            await reader.readuntil(b"Once")

    before = used()
    stage.play([STREAM, chunk(event(piece("Once upon a time there was a king. " * 20))), HANG])
    asyncio.run(run())
    stage.until(stage.idle)
    assert used() - before > 20


@EACH
def test_how_many_of_a_key_run_is_its_own_affair(keys: tuple[Stage, dict[str, str]], api: Api) -> None:
    stage, tokens = keys
    stage.play([HANG], answer("Hello"))

    async def run() -> tuple[Told, Told]:
        async with connected(stage.url) as (_, writer):
            writer.write(post(api, body_of(api, stream=True), x_api_key=tokens["dora"]))
            while not stage.asks[0]:
                await asyncio.sleep(0.002)
            ask = {name: {"x-api-key": tokens[name]} for name in ("dora", "anna")}
            full = await asyncio.to_thread(stage.ask, api, stream=False, headers=ask["dora"])
            return full, await asyncio.to_thread(stage.ask, api, stream=False, headers=ask["anna"])

    full, good = asyncio.run(run())
    is_refused(full, Overloaded("?", retry_after=1.0))
    assert "Hello" == good.text
    stage.until(stage.idle)


@pytest.mark.parametrize("apart", [True, False], ids=["background", "waiting"])
def test_who_waits_is_answered_although_the_model_is_taken_away(apart: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("turnscript.gateway.service.set_up", lambda *levels, **looks: None)  # for other tests, too
    api = next(api for api in APIS if api.serving.stored)
    with Stage(limits={"running": 1}) as stage:
        service, base = stage.gateway.service, stage.gateway.service.config
        first, second = (replace(base.models[0], name=name) for name in ("m", "other"))

        async def take(*models: Model) -> None:
            service._take(replace(base, models=models))

        stage.gateway.run(take(first, second))
        taken = service.served_for("other")
        stage.play([STREAM, chunk(event(piece("One"))), 1.2, *answer(" two")[1:]], answer("Hello"))
        with ThreadPoolExecutor() as pool:
            running = pool.submit(stage.ask, api, stream=False)
            stage.until(lambda: stage.asks[0])
            waiting = pool.submit(stage.ask, api, stream=False, model="other", background=apart)
            stage.until(lambda: service._callers._anybody.gate.waiting)
            stage.gateway.run(take(first, replace(second, max_tokens=500)))
            assert "One two" == running.result().text
            told = waiting.result()
        assert 200 == told.status
        seen = stage.client.get
        under_way = ("queued", "in_progress")
        stage.until(lambda: seen(f"{api.endpoint}/{told.json['id']}").json()["status"] not in under_way)
        assert "Hello" in seen(f"{api.endpoint}/{told.json['id']}").text
        stage.until(lambda: taken._pool is None)
        assert 0 == taken.users == service.served_for("other").users


def test_a_rate_forgets_what_is_older_than_a_minute() -> None:
    rate = Rate(3)
    for now in (0.0, 10.0, 20.0):
        assert 0 == rate.wait(now)
        rate.spend(1, now)
    assert [40.0, 1.0] == [rate.wait(20.0), rate.wait(59.0)]
    assert 0 == rate.wait(60.0)
    rate.spend(5, 60.0)
    assert 60.0 == rate.wait(60.0)


# Wrong doors.


@EACH
@pytest.mark.parametrize("method", ["GET", "PUT", "DELETE", "PATCH"])
def test_another_method_is_refused_in_the_words_of_the_api(stage: Stage, api: Api, method: str) -> None:
    response = stage.client.request(method, api.endpoint)
    told = Told(api, response.status_code, dict(response.headers), response.content)
    assert 405 == told.status
    allowed = told.headers["allow"].split(", ")
    assert "POST" in allowed
    assert method not in allowed
    assert told.json["error"].get("param") is None  # the path is none of the body
    _, like = api.render_error(NotFound("path", "?"))
    assert set(httpx2.Response(200, content=like).json()) - {"request_id"} == set(told.json) - {"request_id"}
    assert told.error is not None
    assert told.headers[api.request_id].startswith("req_")


@EACH
@pytest.mark.parametrize("body", [b"{}", b'{"model":"default","max_tokens":9,"nothing":"here"}'])
def test_a_request_that_asks_nothing_is_refused(stage: Stage, api: Api, body: bytes) -> None:
    response = stage.client.post(api.endpoint, content=body)
    told = Told(api, response.status_code, dict(response.headers), response.content)
    assert (400, []) == (told.status, told.items)
    assert told.error is not None


@pytest.mark.parametrize("api", [api for api in APIS if not api.serving.paths], ids=named)
def test_another_path_is_refused_in_the_words_of_the_api(stage: Stage, api: Api) -> None:
    response = stage.client.post(f"{api.endpoint}/no/such/path", content=b"{}")
    told = Told(api, response.status_code, dict(response.headers), response.content)
    is_refused(told, NotFound("path", "?"))
    assert b"/no/such/path" in told.body


@EACH
@pytest.mark.parametrize("body", [b"", b"{", b"[]", b"nothing", b"\xff\xfe", b'{"model":"m"', b"null"])
def test_a_body_that_is_none_is_a_bad_request(stage: Stage, api: Api, body: bytes) -> None:
    told = stage.post(api, body)
    assert 400 == told.status
    assert told.error is not None
    assert 1 == len(stage.client.get("/v1/models").json()["data"])


@pytest.mark.parametrize("api", [api for api in APIS if api.serving.count_path], ids=named)
def test_many_counts_at_once_are_no_burden(stage: Stage, api: Api) -> None:
    body = body_of(api, stream=False, text="Hello " * 100)

    async def run() -> list[httpx2.Response]:
        async with httpx2.AsyncClient(base_url=stage.url, verify=False, timeout=10) as client:
            return await asyncio.gather(*(client.post(api.serving.count_path, content=body) for _ in range(25)))

    stage.play([HANG])
    began = run_time()
    told = asyncio.run(run())
    assert {200} == {one.status_code for one in told}
    assert 1 == len({one.content for one in told})
    assert run_time() - began < 3.0
    assert not stage.asks[0]
