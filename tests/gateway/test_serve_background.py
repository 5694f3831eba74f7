"""Owns answers that are made apart from their clients: asked for again, followed, cancelled, forgotten, and never lost
without a word."""

from __future__ import annotations

import asyncio
import re
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.clocks import run_time
from tests.gateway.background import BEGUN, EACH, ENDS, begun, events_of, look, until_over
from tests.gateway.running import Running
from tests.gateway.scripted import HANG, RESET, STREAM, Script, chunk, event
from tests.gateway.stage import Stage, Told, answer, body_of, connected, piece, post
from tests.sdks import openai_sdk
from turnscript.apis.api import Api
from turnscript.gateway.database import Bounds, Database
from turnscript.gateway.headers import LOSSES, REPORT
from turnscript.gateway.keeping import Keeping
from turnscript.gateway.limits import ANYBODY
from turnscript.gateway.store import SCHEMA, Answer, EventLog, Store

pytestmark = pytest.mark.usefixtures("nothing_goes_wrong")


@pytest.fixture(scope="module")
def stage() -> Iterator[Stage]:
    with Stage(server={"keepalive": 0.1}) as made:
        yield made


@EACH
def test_an_answer_is_made_whether_or_not_anybody_waits(stage: Stage, api: Api) -> None:
    stage.play([*BEGUN, 0.2, *ENDS])
    id_ = begun(stage, api)
    stage.until(lambda: stage.asks[0])
    assert "in_progress" == look(stage, api, id_)["status"]
    over = until_over(stage, api, id_)
    assert "completed" == over["status"]
    assert "Once upon a time there was a king." == over["output"][0]["content"][0]["text"]
    assert id_ == over["id"]
    next_ = stage.ask(api, stream=False, text="And then?", previous_response_id=id_)
    assert b"there was a king." in stage.asks[0][-1].body
    assert next_.error is None


@EACH
def test_a_stream_that_was_left_is_gone_on_with_from_any_event(stage: Stage, api: Api) -> None:
    stage.play([*BEGUN, 0.4, *ENDS])
    with stage.client.stream("POST", api.endpoint, content=body_of(api, stream=True, background=True)) as response:
        heard = b""
        for data in response.iter_raw():
            heard += data
            if b"Once upon" in heard:
                break
    first = [one for one in events_of(heard.rpartition(b"\n\n")[0]) if "sequence_number" in one]
    id_ = first[0]["response"]["id"]
    assert "in_progress" == look(stage, api, id_)["status"]
    at = first[-1]["sequence_number"]
    query = {"stream": "true", "starting_after": str(at)}
    rest = stage.client.get(f"{api.endpoint}/{id_}", params=query)
    assert b": keepalive" in rest.content
    again = stage.client.get(f"{api.endpoint}/{id_}", params=query)
    assert events_of(rest.content) == events_of(again.content)
    whole = stage.client.get(f"{api.endpoint}/{id_}", params={"stream": "true"}).content
    assert events_of(whole) == first + events_of(rest.content)
    assert list(range(len(events_of(whole)))) == [one["sequence_number"] for one in events_of(whole)]
    told = Told(api, 200, {"content-type": "text/event-stream"}, whole)
    assert "Once upon a time there was a king." == told.text
    assert look(stage, api, id_) == events_of(whole)[-1]["response"]
    assert 1 == len(stage.asks[0])


@EACH
def test_the_head_of_a_stream_does_not_wait_for_its_events(stage: Stage, api: Api) -> None:
    stage.play([*BEGUN, HANG])
    with stage.client.stream("POST", api.endpoint, content=body_of(api, stream=True, background=True)) as response:
        found = re.search(r'"id":"(\w+)"', next(response.iter_text()))
    assert found is not None
    path = f"{api.endpoint}/{found[1]}"
    told = stage.client.head(path, params={"stream": "true"})
    assert (200, b"") == (told.status_code, told.content)
    assert told.headers["content-type"].startswith("text/event-stream")
    assert "in_progress" == look(stage, api, found[1])["status"]
    assert 200 == stage.client.post(f"{path}/cancel").status_code


@EACH
def test_the_sdk_goes_on_with_a_stream(stage: Stage, api: Api) -> None:
    stage.play([*BEGUN, 0.15, *ENDS])
    with openai_sdk(stage.url) as client:
        with client.responses.create(model="m", input="Hello", background=True, stream=True) as stream:
            first = next(iter(stream))
        assert "response.created" == first.type
        with client.responses.retrieve(first.response.id, stream=True, starting_after=0) as rest:
            kinds = [one.type for one in rest]
        assert ["response.in_progress", "response.completed"] == [kinds[0], kinds[-1]]
        assert "Once upon a time there was a king." == client.responses.retrieve(first.response.id).output_text


@EACH
@pytest.mark.parametrize("stream", [True, False], ids=["stream", "whole"])
def test_a_cancelled_answer_ends_the_generation(stage: Stage, api: Api, stream: bool) -> None:
    stage.play([*BEGUN, HANG])
    if stream:
        body = body_of(api, stream=True, background=True)
        with stage.client.stream("POST", api.endpoint, content=body) as response:
            data = next(iter(response.iter_raw()))
        id_ = events_of(data)[0]["response"]["id"]
    else:
        id_ = begun(stage, api)
    stage.until(lambda: stage.asks[0] and stage.asks[0][0].written)
    began = run_time()
    told = [stage.client.post(f"{api.endpoint}/{id_}/cancel") for _ in range(2)]
    assert [200, 200] == [one.status_code for one in told]
    assert ["cancelled"] * 3 == [one["status"] for one in (*(one.json() for one in told), look(stage, api, id_))]
    stage.until(lambda: stage.asks[0][0].gone)
    assert run_time() - began < 1.0
    if stream:
        ends = events_of(stage.client.get(f"{api.endpoint}/{id_}", params={"stream": "true"}).content)
        assert "response.failed" == ends[-1]["type"]
    stage.until(stage.idle)


@pytest.fixture
def ending(monkeypatch: pytest.MonkeyPatch) -> threading.Event:
    """Set as soon as the end of a stream is about to be kept, which takes a while."""
    begun, keep = threading.Event(), Keeping.keep

    async def slow(self: Keeping, *given: Any, **more: Any) -> None:
        if more.get("events") is not None:
            begun.set()
            await asyncio.sleep(0.2)
        await keep(self, *given, **more)

    monkeypatch.setattr(Keeping, "keep", slow)
    return begun


@EACH
@pytest.mark.parametrize("complete", [False, True], ids=["in the middle", "at its end"])
def test_who_follows_is_told_the_end_however_often_it_is_cancelled(
    stage: Stage, api: Api, ending: threading.Event, complete: bool
) -> None:
    stage.play(answer("Hello") if complete else [*BEGUN, HANG])
    with stage.client.stream("POST", api.endpoint, content=body_of(api, stream=True, background=True)) as response:
        coming = response.iter_raw()
        heard = next(coming)
        path = f"{api.endpoint}/{events_of(heard)[0]['response']['id']}"
        stage.until(lambda: ending.is_set() if complete else stage.asks[0] and stage.asks[0][0].written)
        with ThreadPoolExecutor(4) as threads:
            told = list(threads.map(lambda _: stage.client.post(f"{path}/cancel"), range(4)))
        heard += b"".join(coming)
    last, status = ("response.completed", "completed") if complete else ("response.failed", "cancelled")
    assert last == events_of(heard)[-1]["type"]
    assert events_of(heard) == events_of(stage.client.get(path, params={"stream": "true"}).content)
    assert [status] * 4 == [one.json()["status"] for one in told]
    assert status == stage.client.get(path).json()["status"]


@pytest.fixture
def logs(monkeypatch: pytest.MonkeyPatch) -> list[EventLog]:
    """The logs of the streams that are made; they keep 5000 bytes each."""
    begun: list[EventLog] = []
    begin = Store.begin_events

    def small(self: Store, owner: str, id_: str) -> EventLog:
        begun.append(begin(self, owner, id_, limit=5000))
        return begun[-1]

    monkeypatch.setattr(Store, "begin_events", small)
    return begun


@EACH
def test_who_follows_a_stream_too_long_to_be_kept_gets_all_of_it(stage: Stage, api: Api, logs: list[EventLog]) -> None:
    texts = [f"word{number} " for number in range(100)]
    stage.play(answer(*texts, pause=0.001))
    told = stage.ask(api, stream=True, background=True)
    assert "".join(texts).strip() == told.text.strip()
    events = events_of(told.body)
    assert list(range(len(events))) == [one["sequence_number"] for one in events]
    path = f"{api.endpoint}/{events[0]['response']['id']}"
    assert 404 == stage.client.get(path, params={"stream": "true"}).status_code
    assert events[-1]["response"] == stage.client.get(path).json()
    assert logs[0].overflowed


@EACH
@pytest.mark.parametrize("again", [False, True], ids=["first", "again"])
def test_who_follows_too_slowly_is_told_so_and_the_answer_goes_on(
    stage: Stage, api: Api, logs: list[EventLog], again: bool
) -> None:
    async def rush() -> None:
        """Events come faster than anybody could read them."""
        for _ in range(3):
            logs[0].add(b"data: {}\n\n" * 1000)

    stage.play([*BEGUN, 0.4, *ENDS])
    with ExitStack() as open_:
        body = body_of(api, stream=True, background=True)
        coming = open_.enter_context(stage.client.stream("POST", api.endpoint, content=body)).iter_raw()
        heard = next(coming)
        path = f"{api.endpoint}/{events_of(heard)[0]['response']['id']}"
        if again:
            found = open_.enter_context(stage.client.stream("GET", path, params={"stream": "true"}))
            coming = found.iter_raw()
            heard = b""
        while b"Once upon" not in heard:
            heard += next(coming)
        stage.gateway.run(rush())
        heard += b"".join(coming)
    events = events_of(heard)
    assert ["response.created", "error"] == [events[0]["type"], events[-1]["type"]]
    assert "too slowly" in events[-1]["message"]
    assert list(range(len(events))) == [one["sequence_number"] for one in events]
    told = Told(api, 200, {"content-type": "text/event-stream"}, heard)
    assert (True, None) == (told.error is not None, told.end)
    stage.until(lambda: "completed" == stage.client.get(path).json()["status"])


@EACH
def test_who_follows_and_reads_nothing_is_kept_nothing_for_and_is_cut_off(
    stage: Stage, api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stage.gateway.service.heart, "stall", 0.5)
    stage.play(answer(*["And so on. " * 1000] * 200))

    def waiting(writer: asyncio.StreamWriter) -> int:
        """How much waits for a client, if it is there."""
        connection = stage.connection(writer)
        return connection.transport.get_write_buffer_size() if connection is not None else 0

    async def run() -> None:
        body = body_of(api, stream=True, background=True, limit=10_000_000)
        async with connected(stage.url) as (reader, writer):
            writer.write(post(api, body))
            found = re.search(rb'"id":"(\w+)"', await reader.readuntil(b'"object":"response"'))
        assert found is not None
        id_ = found[1].decode()
        size = len(str(await asyncio.to_thread(until_over, stage, api, id_)))
        assert size > 2_000_000
        async with connected(stage.url, room=10_000) as (_, writer):
            writer.transport.pause_reading()  # type: ignore[attr-defined]
            writer.write(f"GET {api.endpoint}/{id_}?stream=true HTTP/1.1\r\nhost: gateway\r\n\r\n".encode())
            await asyncio.to_thread(stage.until, lambda: waiting(writer))
            # The stream tells the answer five times, at most once in one event.
            assert waiting(writer) < 1.5 * size
            await asyncio.to_thread(stage.until, lambda: not waiting(writer))

    asyncio.run(run())


@EACH
def test_only_what_was_asked_for_apart_can_be_cancelled(stage: Stage, api: Api) -> None:
    stage.play(answer("Hello"))
    id_ = stage.ask(api, stream=False).json["id"]
    assert 409 == stage.client.post(f"{api.endpoint}/{id_}/cancel").status_code
    assert 404 == stage.client.post(f"{api.endpoint}/resp_none/cancel").status_code
    assert "completed" == look(stage, api, id_)["status"]
    told = stage.ask(api, stream=False, background=True, store=False)
    assert 400 == told.status
    assert "$.background" in str(told.json["error"]["param"])


@EACH
def test_a_deleted_answer_ends_and_stays_deleted(stage: Stage, api: Api) -> None:
    stage.play([*BEGUN, HANG])
    id_ = begun(stage, api)
    stage.until(lambda: stage.asks[0] and stage.asks[0][0].written)
    assert stage.client.delete(f"{api.endpoint}/{id_}").json()["deleted"]
    stage.until(lambda: stage.asks[0][0].gone)
    stage.until(stage.idle)
    for path in ("", "/input_items", "?stream=true"):
        assert 404 == stage.client.get(f"{api.endpoint}/{id_}{path}").status_code
    assert 404 == stage.client.delete(f"{api.endpoint}/{id_}").status_code


@EACH
@pytest.mark.parametrize("stream", [True, False], ids=["stream", "whole"])
def test_a_failure_is_kept_with_its_reason(stage: Stage, api: Api, stream: bool) -> None:
    stage.play([*BEGUN, RESET])
    told = stage.ask(api, stream=stream, background=True)
    if stream:
        assert told.error is not None
        assert told.end is None
        last = events_of(told.body)[-1]
        assert "response.failed" == last["type"]
        id_ = last["response"]["id"]
    else:
        id_ = told.json["id"]
    over = until_over(stage, api, id_)
    assert ("failed", "server_error") == (over["status"], over["error"]["code"])
    assert "broke off" in over["error"]["message"]
    assert 400 <= stage.ask(api, stream=False, previous_response_id="resp_none").status < 500


@EACH
@pytest.mark.parametrize("ending", ["cancelled", "failed", "completed"])
def test_what_an_answer_took_is_counted_once_however_it_ends(api: Api, ending: str) -> None:
    tale: Script = [STREAM, chunk(event(piece("Once upon a time there was a king. " * 20)))]
    rest = {"cancelled": [HANG], "failed": [RESET], "completed": ENDS}[ending]
    with Stage(limits={"tokens_per_minute": 100}) as stage:
        stage.play([*tale, *rest])
        told = stage.ask(api, stream=False, background=True)
        id_ = told.json["id"]
        if ending == "cancelled":
            stage.until(lambda: stage.asks[0] and stage.asks[0][0].written)
            time.sleep(0.1)  # the gateway is to have read it
            stage.client.post(f"{api.endpoint}/{id_}/cancel")
        assert ending == until_over(stage, api, id_)["status"]
        text = stage.client.get("/metrics").text
        wrote = re.findall(r'^turnscript_tokens_total.*"output".* ([\d.]+)$', text, re.MULTILINE)
        assert [pytest.approx(2 if ending == "completed" else 200, rel=0.3)] == [float(one) for one in wrote]
        assert 200 == stage.client.get(f"/turnscript/reports/{told.headers[api.request_id]}").status_code
        next_ = stage.ask(api, stream=False, background=True)
        assert (200 if ending == "completed" else 429) == next_.status


@EACH
def test_nobody_goes_on_from_an_answer_that_is_still_made(stage: Stage, api: Api) -> None:
    stage.play([*BEGUN, 0.3, *ENDS], answer("Hello"))
    id_ = begun(stage, api)
    early = stage.ask(api, stream=False, text="What was that?", previous_response_id=id_)
    assert (409, True) == (early.status, id_ in str(early.error))
    assert "completed" == until_over(stage, api, id_)["status"]
    assert None is stage.ask(api, stream=False, text="What was that?", previous_response_id=id_).error
    prompt = stage.asks[0][-1].json["prompt"]
    assert prompt.index("Once upon a time there was") < prompt.index("What was that?")


@EACH
def test_a_second_gateway_with_the_same_file_ends_no_answer_of_the_first(tmp_path: Path, api: Api) -> None:
    with Stage(store={"path": tmp_path / "store.sqlite"}) as stage:
        stage.play([*BEGUN, 0.5, *ENDS])
        id_ = begun(stage, api)
        with Running(stage.config):
            assert "in_progress" == look(stage, api, id_)["status"]
            assert look(stage, api, id_)["error"] is None
        assert "completed" == until_over(stage, api, id_)["status"]
        assert id_ == look(stage, api, id_)["id"]


@EACH
def test_a_gateway_starts_though_it_cannot_say_of_an_answer_that_it_failed(tmp_path: Path, api: Api) -> None:
    path = tmp_path / "store.sqlite"

    async def leave(text: str) -> None:
        """What is left of a gateway that was killed."""
        database = Database(path, SCHEMA, Bounds())
        body = body_of(api, stream=False, text=text, background=True)
        await Store(database).put(ANYBODY, Answer(id=f"resp_{text[:4]}", request=body, body=b"{}", finished=False))
        await database.close()

    asyncio.run(leave("long" * 100_000))
    asyncio.run(leave("short"))
    with Stage(store={"path": path, "size": 1_200_000}) as stage:
        for name in ("long", "shor"):
            assert "failed" == look(stage, api, f"resp_{name}")["status"]
        assert "Hello" == stage.ask(api, stream=False).text


@EACH
def test_a_fault_of_the_gateway_leaves_no_answer_open(
    stage: Stage, api: Api, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(*given: object) -> bytes:
        raise KeyError("a bug")

    monkeypatch.setattr("turnscript.gateway.generation.Generation.close", broken)
    stage.play(answer("Hello"))
    over = until_over(stage, api, begun(stage, api))
    assert "failed" == over["status"]
    assert "a bug" not in over["error"]["message"]
    stage.until(stage.idle)
    caplog.clear()


@EACH
def test_an_answer_whose_follower_has_left_counts_as_any_other(stage: Stage, api: Api) -> None:
    left = threading.Event()
    stage.play([*BEGUN, left, *ENDS])
    with stage.client.stream("POST", api.endpoint, content=body_of(api, stream=True, background=True)) as response:
        report = response.headers[REPORT]
        begun = events_of(next(response.iter_raw()))[0]["response"]["id"]
    stage.until(lambda: not stage.gateway.service.visits)
    left.set()
    over = until_over(stage, api, begun)
    stage.until(lambda: 200 == stage.client.get(report).status_code)
    told = stage.client.get(report).json()["usage"]
    assert (over["usage"]["input_tokens"], over["usage"]["output_tokens"]) == (told["input"], told["output"])
    assert "0" == stage.client.get(f"{api.endpoint}/{begun}").headers[LOSSES]


def cancelled(stage: Stage) -> dict[str, float]:
    """How many answers were broken off, for each reason."""
    text = stage.client.get("/metrics").text
    found = re.findall(r'^turnscript_cancelled_total{.*reason="(.*)"} (.*)$', text, re.MULTILINE)
    return {reason: float(count) for reason, count in found}


@EACH
def test_an_answer_counts_as_broken_off_if_it_is_cancelled_and_not_if_it_is_left(api: Api) -> None:
    left = threading.Event()
    with Stage() as stage:
        stage.play([*BEGUN, left, *ENDS], [*BEGUN, HANG])
        with stage.client.stream("POST", api.endpoint, content=body_of(api, stream=True, background=True)) as response:
            followed = events_of(next(response.iter_raw()))[0]["response"]["id"]
        stage.until(lambda: not stage.gateway.service.visits)
        left.set()
        assert "completed" == until_over(stage, api, followed)["status"]
        assert {} == cancelled(stage)
        id_ = begun(stage, api)
        stage.until(lambda: 2 == len(stage.asks[0]))
        stage.client.post(f"{api.endpoint}/{id_}/cancel")
        assert {"client": 1.0} == cancelled(stage)
