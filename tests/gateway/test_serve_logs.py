"""Owns what operators see: logs without a secret, ids that lead from an answer to its line, metrics that move."""

from __future__ import annotations

import asyncio
import errno
import io
import json
import logging
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TextIO

import httpx2
import pytest
from msgspec.structs import replace
from prometheus_client import Counter, Gauge, Histogram
from prometheus_client.parser import text_string_to_metric_families

from tests.gateway.running import Running
from tests.gateway.scripted import END, HANG, RESET, STREAM, Asked, Script, chunk, event, said, sse
from tests.gateway.serving import Serving
from tests.gateway.stage import (
    APIS,
    NO_TLS,
    WEATHER,
    Stage,
    Threaded,
    answer,
    body_of,
    connected,
    piece,
    post,
    text_of_call,
)
from turnscript.core.losses import Loss
from turnscript.gateway.config import Config, Model
from turnscript.gateway.keys import add_key
from turnscript.gateway.logs import LOGGER, say, set_up
from turnscript.gateway.metrics import Metrics

SECRET = "xyzzy-plugh"  # what somebody says
ANSWERED = "frobozz-grue"  # what the model says
FAILURES: list[Script] = [
    said({"error": {"message": f"cannot read {ANSWERED}"}}, status=500),
    said(f"<html>{ANSWERED}</html>", status=502, media="text/html"),
    said(f"<html>{ANSWERED}</html>", media="text/html"),
    said({"detail": f"cannot read {ANSWERED}"}, status=400),
    sse({"error": f"cannot read {ANSWERED}"}),
    sse(piece(ANSWERED), {"error": {"message": ANSWERED}}),
    [STREAM, chunk(event(piece(ANSWERED))), RESET],
    [STREAM, chunk(f"data: {ANSWERED}\n\n"), END],
    [STREAM, chunk(f"{ANSWERED}\n\n"), END],
    [STREAM, chunk(f'data: {{"choices": "{ANSWERED}"}}\n\n'), END],
    [STREAM, chunk(f"data: {ANSWERED}".encode() + b"\xff\xfe\n\n"), END],
    [f"HTTP/1.1 200 OK\r\nx y: {ANSWERED}\r\n\r\n".encode()],
    answer(f'<<TOOL_CALL name="{ANSWERED}">>\n{{"{ANSWERED}": \n<<END_TOOL_CALL>>\n'),
    answer(ANSWERED),
]


@pytest.mark.parametrize("as_json", [True, False], ids=["json", "lines"])
def test_no_key_and_no_word_of_a_conversation_is_in_the_log(tmp_path: Path, as_json: bool) -> None:
    scripts: list[Script] = []

    def script(asked: Asked) -> Script:
        return said({"data": []}) if asked.line.startswith("GET") else scripts[0]

    key = add_key(tmp_path / "keys", "anna").reveal()
    keys, logs = {"keys": str(tmp_path / "keys")}, {"json": as_json, "level": "debug"}
    with (
        Threaded() as thread,
        thread.server(script) as server,
        Serving(tmp_path, server.url, server=keys, logs=logs) as process,
    ):
        ids = [one for failure in FAILURES for one in all_of(process, key, failure, scripts)]
        ids += wrong_ones(process, key) + small_ones(process, key)
        asyncio.run(broken_off(process.url))
        time.sleep(0.1)
        for word in (SECRET, ANSWERED, key, key[-20:]):
            assert [] == [line for line in process.lines if word in line]
        for one in ids:
            assert any(one in line for line in process.lines)
        if as_json:
            told = [json.loads(line) for line in process.lines if line.startswith("{")]
            assert {"answered", "counted", "refused", "told", "backend failed"} <= {line["event"] for line in told}
            assert {"time", "level", "event"} <= set.intersection(*map(set, told))
    assert len(ids) > 100
    assert len(set(ids)) == len(ids)


def send(process: Serving, path: str, body: bytes, key: str) -> str:
    """Send a request that is full of secrets; returns its id."""
    headers = {"authorization": f"Bearer {key}", "x-session-id": SECRET, "cookie": SECRET}
    told = process.client.post(f"{path}?api_key={SECRET}", content=body, headers=headers)
    return next(value for name, value in told.headers.items() if name in ("request-id", "x-request-id"))


def all_of(process: Serving, key: str, failure: Script, scripts: list[Script]) -> list[str]:
    """Every API in both ways, while the model server does one thing."""
    scripts[:] = [failure]
    bodies = [
        (api, body_of(api, stream=stream, text=SECRET, tools=[WEATHER])) for api in APIS for stream in (True, False)
    ]
    return [send(process, api.endpoint, body, key) for api, body in bodies]


def wrong_ones(process: Serving, key: str) -> list[str]:
    """Requests that are refused, and some that are counted."""
    ids = []
    for api in APIS:
        good = body_of(api, stream=False, text=SECRET)
        other = good.replace(b'"m"', json.dumps({SECRET: [SECRET]}).encode())
        half = good.replace(SECRET.encode(), b"\\ud800" + SECRET.encode())
        ids += [send(process, api.endpoint, body, key) for body in (good[:-20], other, half)]
        ids += [send(process, api.endpoint, good, SECRET), send(process, f"{api.endpoint}/none", good, key)]
        if api.serving.count_path:
            ids += [send(process, api.serving.count_path, body, key) for body in (good, good[:-5])]
    return ids


def small_ones(process: Serving, key: str) -> list[str]:
    """Lists, and what is done with answers that are kept. The last failure is none."""
    [api] = [api for api in APIS if api.serving.stored is not None]
    headers = {"authorization": f"Bearer {key}"}
    told = process.client.post(api.endpoint, content=body_of(api, stream=False, text=SECRET), headers=headers)
    kept = f"{api.endpoint}/{told.json()['id']}"
    asks = [("GET", "/v1/models"), ("GET", f"/v1/models/{SECRET}"), ("GET", kept), ("DELETE", kept)]
    answers = [process.client.request(method, path, headers=headers) for method, path in asks]
    assert [200] * len(asks) == [one.status_code for one in answers]
    return [one.headers["x-request-id"] for one in answers]


async def broken_off(url: str) -> None:
    """What is no request at all."""
    for head in (f"{SECRET}\r\n\r\n", f"GET /{SECRET} HTTP/9.9\r\n\r\n", f"POST / HTTP/1.1\r\n{SECRET}\r\n\r\n"):
        async with connected(url) as (reader, writer):
            writer.write(head.encode())
            await reader.read()


def test_a_fault_of_the_gateway_is_logged_without_its_message(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def script(asked: Asked) -> Script:
        return said({"data": []}) if asked.line.startswith("GET") else answer(ANSWERED)

    bug = "import turnscript.gateway.generation as g\n"
    bug += "def broken(self): raise KeyError(self.text)\n"
    bug += "g.Generation.close = broken"
    with (
        Threaded() as thread,
        thread.server(script) as server,
        Serving(tmp_path, server.url, prepare=bug) as process,
    ):
        told = process.client.post(APIS[0].endpoint, content=body_of(APIS[0], stream=False))
        assert 500 == told.status_code
        time.sleep(0.1)
        lines = [line for line in process.lines if "traceback" in line]
        assert 1 == len(lines)
        assert "KeyError" in lines[0]
        assert "answers.py" in lines[0]
        assert ANSWERED not in lines[0]


NOWHERE = {
    "full disk": "os.dup2(os.open('/dev/full', os.O_WRONLY), 2)",
    "nobody reads": "read, write = os.pipe(); os.dup2(write, 2); os.close(read)",
}


@pytest.mark.deep
@pytest.mark.parametrize("where", NOWHERE)
@pytest.mark.parametrize("when", ["at the start", "later"])
def test_a_log_that_cannot_be_written_stops_nothing(tmp_path: Path, where: str, when: str) -> None:
    def script(asked: Asked) -> Script:
        if asked.line.startswith("GET"):
            return said({"data": []})
        return said({"error": {"message": "no"}}, status=500) if b"fail" in asked.body else answer("Hello")

    lines = [
        "import os, turnscript.cli.serve as serve",
        "banner = serve._banner",
        f"def lose(): {NOWHERE[where]}",
        "def now(*given): os.write(2, f'listening on {given[1]}\\n'.encode()); lose(); banner(*given)",
        "def later(*given): banner(*given); lose()",
        f"serve._banner = {'later' if when == 'later' else 'now'}",
    ]
    with (
        Threaded() as thread,
        thread.server(script) as server,
        Serving(tmp_path, server.url, prepare="\n".join(lines)) as process,
    ):
        for api in APIS * 5:
            bad, good = (body_of(api, stream=False, text=text) for text in ("fail", "Hello"))
            told = process.client.post(api.endpoint, content=bad)
            assert b"the model server answers 500" in told.content
            assert 200 == process.client.post(api.endpoint, content=good).status_code
        process.signal(signal.SIGTERM)
        assert process.ended()[0] in (0, 120)  # the interpreter tells of a stream that it cannot flush by the latter


@pytest.mark.deep
def test_a_server_that_was_started_with_its_stderr_closed_serves(tmp_path: Path) -> None:
    lines = [
        "import os, sys, turnscript.cli.serve as serve",
        "sys.stderr = None  # which is what Python makes of it",
        "serve._banner = lambda _, address: os.write(2, f'listening on {address}\\n'.encode())",
    ]
    with (
        Threaded() as thread,
        thread.server(lambda asked: answer("Hello")) as server,
        Serving(tmp_path, server.url, prepare="\n".join(lines)) as process,
    ):
        body = body_of(APIS[0], stream=False)
        assert 200 == process.client.post(APIS[0].endpoint, content=body).status_code
        process.signal(signal.SIGTERM)
        process.ended()
        assert [f"listening on {process.url}\n"] == process.lines


def test_the_number_of_a_closed_stderr_goes_to_nothing_that_could_be_damaged() -> None:
    code = """
import os, turnscript.cli.serve as serve
serve._fill_stderr()
before = os.fstat(2).st_ino
os.close(2)
serve._fill_stderr()
print(before != os.fstat(2).st_ino, os.fstat(2).st_rdev == os.stat(os.devnull).st_rdev)
"""
    for first in ("", "import os; os.close(0)"):
        done = subprocess.run([sys.executable, "-c", f"{first}{code}"], stdout=subprocess.PIPE, timeout=60, check=True)
        assert b"True True\n" == done.stdout


@pytest.mark.deep
def test_a_reader_of_the_log_that_has_stopped_holds_up_nobody(tmp_path: Path) -> None:
    with (
        Threaded() as thread,
        thread.server(lambda asked: answer("Hello")) as server,
        Serving(tmp_path, server.url, deaf=True) as process,
    ):
        for number in range(400):  # a pipe holds 64 KB
            told = process.client.get(f"/v1/responses/{number:0>1000}", timeout=2)
            assert 404 == told.status_code
        body = body_of(APIS[0], stream=False)
        assert 200 == process.client.post(APIS[0].endpoint, content=body, timeout=2).status_code
        process.signal(signal.SIGTERM)
        assert process.ended()[1] < 5


@contextmanager
def logging_to(stream: TextIO) -> Iterator[None]:
    root = logging.getLogger(LOGGER)
    was = root.handlers, root.propagate, root.level
    try:
        set_up("info", stream=stream)
        yield
    finally:
        root.handlers, root.propagate = was[:2]
        root.setLevel(was[2])


def test_lines_that_nobody_takes_wait_and_some_are_lost_and_counted() -> None:
    ours, theirs = os.pipe()
    read = bytearray()
    with open(ours, "rb", buffering=0) as reader, open(theirs, "w") as writer, logging_to(writer):
        number = 0
        for number in range(2000):
            say(logging.ERROR, "event", number=number, text="x" * 1000)
        os.set_blocking(ours, False)
        while b"could not be written" not in read:
            read += reader.read(100_000) or b""
            number += 1
            say(logging.ERROR, "event", number=number)
    told = [json.loads(line) for line in read.splitlines()]
    (at,) = [at for at, line in enumerate(told) if line["event"] == "the log could not be written"]
    before = [line["number"] for line in told[:at]]
    assert list(range(200)) == before[:200]
    assert before[-1] + 1 == len(before) + told[at]["lines"]


def test_lines_that_were_not_written_are_counted_once_others_are() -> None:
    class Disk(io.StringIO):
        full = False

        def write(self, text: str) -> int:
            if self.full:
                raise OSError(errno.ENOSPC, "no space left")
            return super().write(text)

    disk = Disk()
    with logging_to(disk):
        for disk.full in (False, True, True, False):
            say(logging.ERROR, "event", number=1)
    told = [json.loads(line) for line in disk.getvalue().splitlines()]
    assert ["event", "event", "the log could not be written"] == [line["event"] for line in told]
    assert 2 == told[-1]["lines"]


# Metrics.


@pytest.mark.parametrize(
    ("metrics", "without", "with_key"),
    [({}, 401, 200), ({"public": True}, 200, 200), ({"enabled": False}, 404, 404)],
    ids=["usual", "public", "off"],
)
def test_metrics_are_shown_to_whom_the_configuration_says(
    tmp_path: Path, metrics: dict[str, Any], without: int, with_key: int
) -> None:
    key = add_key(tmp_path / "keys", "anna").reveal()
    with Stage(server={"keys": tmp_path / "keys"}, metrics=metrics) as stage:
        told = [stage.client.get("/metrics", headers=headers) for headers in ({}, {"x-api-key": key})]
        assert [without, with_key] == [one.status_code for one in told]
        assert [one.status_code == 200 for one in told] == ["turnscript_requests" in one.text for one in told]


@pytest.fixture(scope="module")
def stage() -> Iterator[Stage]:
    with Stage(limits={"backend_running": 1}) as made:
        yield made


def numbers(client: httpx2.Client) -> dict[str, float]:
    """Every number that Prometheus reads, by its name and labels."""
    text = client.get("/metrics").text
    found = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            labels = ",".join(f"{name}={value}" for name, value in sorted(sample.labels.items()) if name != "le")
            found[f"{sample.name}{{{labels}}}"] = sample.value
    return found


def moved(before: dict[str, float], after: dict[str, float]) -> dict[str, float]:
    return {name: value - before.get(name, 0) for name, value in after.items() if value != before.get(name, 0)}


def test_each_of_what_was_found_is_counted_by_its_kind() -> None:
    metrics = Metrics()
    metrics.count_each(metrics.losses, "a", [Loss("$", kind, "") for kind in ("dropped", "moved", "dropped")])
    metrics.count_each(metrics.losses, "a", [Loss("$", "dropped", "")])
    told = metrics.text().decode()
    assert 'turnscript_losses_total{api="a",kind="dropped"} 3.0' in told
    assert 'turnscript_losses_total{api="a",kind="moved"} 1.0' in told


def test_every_metric_moves_as_it_should(stage: Stage) -> None:
    api = next(one for one in APIS if not one.serving.bare)
    of_api, model = f"api={api.name},model=default", "model=default"
    start = numbers(stage.client)

    stage.play(answer("Hello", " you", pause=0.01))
    stage.ask(api, stream=True)
    done = moved(start, after := numbers(stage.client))
    assert 1 == done[f"turnscript_requests_total{{{of_api},status=200}}"]
    assert 12 == done[f"turnscript_tokens_total{{direction=input,{model}}}"]
    assert 2 == done[f"turnscript_tokens_total{{direction=output,{model}}}"]
    for name in ("first_token_seconds", "answer_seconds"):
        assert 1 == done[f"turnscript_{name}_count{{{of_api}}}"]
    for name in ("tokens_per_second", "prefix_reuse_ratio"):
        assert 1 == done[f"turnscript_{name}_count{{{model}}}"]
    assert 0 == after[f"turnscript_running{{{of_api}}}"]
    assert 1 == after[f"turnscript_backend_up{{{model},url={stage.models[0].url}/v1}}"]

    stage.play(said({"error": {"message": "no"}}, status=500))
    stage.ask(api, stream=False)
    done = moved(after, after := numbers(stage.client))
    assert 1 == done[f"turnscript_backend_errors_total{{kind=upstream_error,{model}}}"]
    assert 1 == done[f"turnscript_requests_total{{{of_api},status=502}}"]

    stage.play(answer(text_of_call().replace("city", "town")))
    stage.ask(api, stream=False, tools=[WEATHER], made_up_member=1)
    done = moved(after, after := numbers(stage.client))
    assert done[next(name for name in done if name.startswith("turnscript_call_findings_total"))] >= 1
    assert done[next(name for name in done if name.startswith("turnscript_losses_total"))] >= 1

    stage.play(answer(text_of_call()[:-10]))
    stage.ask(api, stream=False, tools=[WEATHER])
    done = moved(after, after := numbers(stage.client))
    assert done[next(name for name in done if name.startswith("turnscript_parse_issues_total"))] >= 1

    stage.play([HANG])
    asyncio.run(two_at_once(stage, api, of_api, model))
    stage.until(stage.idle)
    done = moved(after, numbers(stage.client))
    assert 2 == done[f"turnscript_cancelled_total{{{of_api},reason=client}}"]
    assert 2 == done[f"turnscript_requests_total{{{of_api},status=499}}"]

    kinds = (Counter, Gauge, Histogram)
    known = {one._name for one in vars(Metrics()).values() if isinstance(one, kinds)}
    seen = {name.partition("{")[0] for name in moved({}, numbers(stage.client))} | {
        "turnscript_running",
        "turnscript_queue",
    }
    assert not {name for name in known if not any(one.startswith(name) for one in seen)}


@pytest.mark.parametrize("n", [1, 2])
def test_a_request_that_waits_for_the_turn_of_its_key_is_seen_to_wait(n: int) -> None:
    api = next(one for one in APIS if one.serving.together is not None)
    with Stage(limits={"running": 1}) as stage:
        stage.play([HANG])
        (model,) = stage.gateway.service.models()

        async def three() -> None:
            async with (
                connected(stage.url) as (_, one),
                connected(stage.url) as (_, two),
                connected(stage.url) as (_, three),
            ):
                for writer in (one, two, three):
                    writer.write(post(api, body_of(api, stream=False, n=n)))
                while model.waiting < 2:
                    await asyncio.sleep(0.005)
                assert 2 == numbers(stage.client)["turnscript_queue{model=default}"]
                health = stage.client.get("/health").json()["models"]["default"]
                assert (1, 2) == (health["running"], health["waiting"])

        asyncio.run(asyncio.wait_for(three(), 60))
        stage.until(lambda: stage.idle() and not model.waiting)
        assert 0 == numbers(stage.client)["turnscript_queue{model=default}"]


def test_the_line_of_a_broken_off_answer_counts_as_the_metrics_do(
    stage: Stage, caplog: pytest.LogCaptureFixture
) -> None:
    stage.play([*sse(piece("Once upon a time there was "))[:-1], HANG])
    caplog.set_level(logging.INFO, LOGGER)
    before, api = numbers(stage.client), next(one for one in APIS if not one.serving.bare)
    with stage.client.stream("POST", api.endpoint, content=body_of(api, stream=True)) as told:
        assert any(b"Once" in data for data in told.iter_bytes())
    stage.until(stage.idle)
    done = moved(before, numbers(stage.client))
    line = next(one.__dict__["fields"] for one in caplog.records if one.getMessage() == "answered")
    assert 499 == line["status"]
    for direction in ("input", "output"):
        assert line[direction] == done[f"turnscript_tokens_total{{direction={direction},model=default}}"] > 0


def test_a_server_that_never_was_there_counts_for_its_model(caplog: pytest.LogCaptureFixture) -> None:
    """The model is known by its name, whether or not anybody could be asked what runs there."""
    url = "http://127.0.0.1:9"  # nothing listens there
    caplog.set_level(logging.INFO, LOGGER)
    with (
        Running(Config.for_backend(url, "rwkv-universal")) as gateway,
        httpx2.Client(base_url=gateway.url, verify=NO_TLS) as client,
    ):
        for api in APIS:
            assert 502 == client.post(api.endpoint, content=body_of(api, stream=True)).status_code
        done = numbers(client)
    for api in APIS:
        assert 1 == done[f"turnscript_requests_total{{api={api.name},model=default,status=502}}"]
    assert len(APIS) == done["turnscript_backend_errors_total{kind=backend_down,model=default}"]
    assert not [name for name in done if "model=none" in name]
    told = [(one.getMessage(), one.__dict__["fields"]) for one in caplog.records]
    for event_, code in (("backend failed", "code"), ("answered", "error")):
        found = [(said["model"], said[code]) for name, said in told if name == event_]
        assert [("default", "backend_down")] * len(APIS) == found
    assert {url} == {said["url"] for name, said in told if name == "backend failed"}


async def two_at_once(stage: Stage, api: Any, of_api: str, model: str) -> None:
    """One that runs and one that waits, as the metrics show them."""
    async with connected(stage.url) as (_, first), connected(stage.url) as (_, second):
        first.write(post(api, body_of(api, stream=True)))
        while not stage.asks[0]:
            await asyncio.sleep(0.005)
        second.write(post(api, body_of(api, stream=False)))
        while not stage.gateway.service.models()[0].gate.waiting:
            await asyncio.sleep(0.005)
        now = numbers(stage.client)
        assert 2 == now[f"turnscript_running{{{of_api}}}"]
        assert 1 == now[f"turnscript_queue{{{model}}}"]


def test_what_was_taken_away_is_no_longer_said_to_be_up_or_down(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever is told of a server that is down would be told for ever."""
    monkeypatch.setattr("turnscript.gateway.service.set_up", lambda *levels, **looks: None)  # for other tests, too
    with Stage(servers=2) as stage:
        service, base = stage.gateway.service, stage.gateway.service.config
        model, left = base.models[0], base.models[0].backend[0]

        async def take(*models: Model) -> None:
            service._take(replace(base, models=models))

        def told(name: str) -> dict[str, float]:
            found = numbers(stage.client).items()
            return {labels: value for labels, value in found if labels.startswith(f"turnscript_{name}{{")}

        stage.gateway.run(take(model, replace(model, name="other")))
        stage.until(lambda: len(told("backend_up")) == 4)
        stage.gateway.run(take(replace(model, backend=(left,))))
        stage.until(lambda: len(told("backend_up")) == 1)
        assert [f"turnscript_backend_up{{model=default,url={left}}}"] == list(told("backend_up"))
        assert ["turnscript_queue{model=default}"] == list(told("queue"))
