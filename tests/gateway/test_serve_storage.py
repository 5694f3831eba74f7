"""Owns storage that fails under the gateway: answers go on, and only who asked for storing is told."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.gateway.scripted import Script, said
from tests.gateway.serving import Serving
from tests.gateway.stage import APIS, Stage, Threaded, Told, answer, body_of, named, quiet
from turnscript.api import Api
from turnscript.gateway.database import StorageUnavailable

BOTH = pytest.mark.parametrize("stream", [True, False], ids=["stream", "whole"])
STORING = [api for api in APIS if api.serving.stored]
ROOM = 400_000


def all_answer(ask: Any) -> None:
    """Every API answers who asks for nothing to be kept."""
    for api in APIS:
        for stream in (True, False):
            more = {"store": False} if api in STORING else {}
            told = ask(api, stream=stream, **more)
            assert told.error is None, told.body
            assert "Hello" in told.text


def is_not_kept(told: Told, stream: bool) -> None:
    """The client knows that its answer was not kept, and why."""
    assert told.error is not None
    assert told.end is None
    assert b"the gateway cannot keep this" in told.body
    assert told.streamed == stream
    assert (200 if stream else told.api.render_error(StorageUnavailable("full", "?"))[0]) == told.status


@contextmanager
def staged(folder: Path) -> Iterator[Stage]:
    with Stage(store={"path": folder / "store.sqlite"}, memory={"path": folder / "memory.sqlite"}) as stage:
        stage.play(answer("Hello"))
        yield stage


@pytest.mark.parametrize("api", STORING, ids=named)
def test_a_full_disk_is_told_to_those_who_wanted_to_keep_something(tmp_path: Path, api: Api) -> None:
    def script(asked: Any) -> Script:
        return said({"data": []}) if asked.line.startswith("GET") else answer("Hello")

    full = f"import resource; resource.setrlimit(resource.RLIMIT_FSIZE, ({ROOM}, {ROOM}))"
    with (
        Threaded() as thread,
        thread.server(script) as server,
        Serving(tmp_path, server.url, prepare=full) as process,
    ):

        def ask(api: Api, *, stream: bool, **more: Any) -> Told:
            response = process.client.post(api.endpoint, content=body_of(api, stream=stream, **more))
            return Told(api, response.status_code, dict(response.headers), response.content)

        kept, told = [], None
        for number in range(60):
            noise = "".join([f"{number * 7919 + at * 104729:x}" for at in range(5000)])
            told = ask(api, stream=number % 2 == 0, text=noise)
            if told.error is not None:
                break
            kept.append(told)
        assert told is not None
        assert len(kept) > 2
        is_not_kept(told, stream=told.streamed)
        all_answer(ask)
        assert "ok" == process.client.get("/health").json()["status"]
        whole = [one.json for one in kept if not one.streamed]
        for one in whole:
            assert one["output"] == process.client.get(f"{api.endpoint}/{one['id']}").json()["output"]
        assert whole


@pytest.mark.parametrize("damage", [b"this is no database", b"SQLite format 3\x00" + bytes(range(256)) * 40])
def test_a_file_that_is_damaged_is_put_aside(tmp_path: Path, damage: bytes) -> None:
    for name in ("store.sqlite", "memory.sqlite"):
        (tmp_path / name).write_bytes(damage)
    with staged(tmp_path) as stage:
        all_answer(stage.ask)
        for api in STORING:
            told = stage.ask(api, stream=False)
            assert 200 == stage.client.get(f"{api.endpoint}/{told.json['id']}").status_code
    assert 2 == len([one for one in tmp_path.iterdir() if damage in one.read_bytes()])


def test_where_no_file_can_be_answers_are_kept_in_memory(tmp_path: Path) -> None:
    (tmp_path / "no folder").write_bytes(b"")
    with staged(tmp_path / "no folder") as stage:
        all_answer(stage.ask)
        for api in STORING:
            told = stage.ask(api, stream=False)
            assert 200 == stage.client.get(f"{api.endpoint}/{told.json['id']}").status_code


@BOTH
@pytest.mark.parametrize("api", STORING, ids=named)
def test_a_file_that_somebody_else_holds_is_told_too_and_used_again_later(
    tmp_path: Path, api: Api, stream: bool, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("turnscript.gateway.jobs.PATIENCE", 0.2)
    with quiet(caplog), staged(tmp_path) as stage:
        first = stage.ask(api, stream=False)
        with closing(sqlite3.connect(tmp_path / "store.sqlite", isolation_level=None)) as holder:
            holder.execute("BEGIN EXCLUSIVE")
            is_not_kept(stage.ask(api, stream=stream), stream)
            all_answer(stage.ask)
            holder.execute("ROLLBACK")
        with closing(sqlite3.connect(tmp_path / "memory.sqlite", isolation_level=None)) as holder:
            holder.execute("BEGIN EXCLUSIVE")
            all_answer(stage.ask)
            assert None is stage.ask(api, stream=stream).error
        told = stage.ask(api, stream=False, previous_response_id=first.json["id"])
        assert told.error is None
        assert 200 == stage.client.get(f"{api.endpoint}/{told.json['id']}").status_code
