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
from turnscript.apis.api import Api
from turnscript.gateway.database import StorageUnavailable
from turnscript.gateway.headers import REPORT

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
    assert told.streamed in (stream, False)  # not where it was known before
    error = StorageUnavailable("full", "?")
    assert (200 if told.streamed else told.api.render_error(error)[0]) == told.status


@contextmanager
def staged(folder: Path, **store: Any) -> Iterator[Stage]:
    kept = {"path": folder / "store.sqlite"} | store
    with Stage(store=kept, memory={"path": folder / "memory.sqlite"}) as stage:
        stage.play(answer("Hello"))
        yield stage


@pytest.mark.deep
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

        kept, told, noise = [], None, ""
        for number in range(60):
            noise = "".join([f"{number * 7919 + at * 104729:x}" for at in range(5000)])
            told = ask(api, stream=number % 2 == 0, text=noise)
            if told.error is not None:
                break
            kept.append(told)
        assert told is not None
        assert len(kept) > 2
        is_not_kept(told, stream=told.streamed)
        before = sum(asked.line.startswith("POST") for asked in server.asked)
        for stream in (True, False):
            told = ask(api, stream=stream, text=noise)
            is_not_kept(told, stream=False)
        assert before == sum(asked.line.startswith("POST") for asked in server.asked)
        all_answer(ask)
        health = process.client.get("/health").json()
        assert ("degraded", {"store"}) == (health["status"], set(health["storage"]))
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


@contextmanager
def gone(folder: Path) -> Iterator[None]:
    """The folder is not there, as a disk that was taken out: a file is in its place."""
    folder.rename(folder.with_name("aside"))
    folder.write_bytes(b"")
    yield
    folder.unlink()
    folder.with_name("aside").rename(folder)


@BOTH
@pytest.mark.parametrize("api", STORING, ids=named)
@pytest.mark.parametrize("policy", ["refuse", "memory"])
def test_while_the_file_cannot_be_used_nothing_passes_for_kept_and_nothing_for_lost(
    tmp_path: Path, api: Api, stream: bool, policy: str
) -> None:
    """The model is not asked where its answer cannot be kept; what is in the file is not said not to be."""
    folder = tmp_path / "disk"
    with staged(folder) as stage:
        old = stage.ask(api, stream=False).json["id"]
    paths = [f"{api.endpoint}/{old}", f"{api.endpoint}/{old}/input_items"]
    with gone(folder), staged(folder, unavailable=policy) as stage:
        all_answer(stage.ask)
        stage.asks[0].clear()
        told = stage.ask(api, stream=stream)
        if policy == "refuse":
            is_not_kept(told, stream=False)
            assert [] == stage.asks[0]
        else:
            assert "Hello" == told.text
            [loss] = stage.client.get(told.headers[REPORT]).json()["losses"]
            assert "$.store" == loss["path"]
            assert "kept in memory alone" in loss["detail"]
            kept = stage.ask(api, stream=False).json["id"]
            assert 200 == stage.client.get(f"{api.endpoint}/{kept}").status_code
        for path in paths:
            assert 503 == stage.client.get(path).status_code
        assert 503 == stage.client.delete(paths[0]).status_code
        assert 503 == stage.ask(api, stream=False, previous_response_id=old, store=False).status
        assert ("degraded", "unwritable") == (
            stage.client.get("/health").json()["status"],
            stage.client.get("/health").json()["storage"]["store"],
        )
    with staged(folder) as stage:
        assert [200, 200] == [stage.client.get(path).status_code for path in paths]
        assert "ok" == stage.client.get("/health").json()["status"]
        assert 404 == stage.client.get(f"{api.endpoint}/resp_nothing").status_code


@pytest.mark.deep
@pytest.mark.parametrize("api", STORING, ids=named)
def test_what_can_be_read_of_a_damaged_file_is_saved(tmp_path: Path, api: Api) -> None:
    """Whole conversations, or nothing of them: what is lost is 404, what is found is what it was."""
    path = tmp_path / "store.sqlite"
    with staged(tmp_path) as stage:
        told = [stage.ask(api, stream=False, text=f"{number:x}" * 3000).json for number in range(60)]
    data = bytearray(path.read_bytes())
    middle = len(data) // 2 // 4096 * 4096
    data[middle : middle + 2 * 4096] = b"\xa5" * 8192
    path.write_bytes(data)
    with staged(tmp_path) as stage:
        all_answer(stage.ask)
        paths = [f"{api.endpoint}/{one['id']}" for one in told]
        for place in paths:  # until it is known what is damaged
            stage.client.get(place)
            stage.client.get(f"{place}/input_items")
        stage.ask(api, stream=False)
        found = [stage.client.get(place) for place in paths]
        assert {200, 404} >= {got.status_code for got in found}
        saved = [at for at, got in enumerate(found) if got.status_code == 200]
        assert len(saved) > 30
        for at in saved:
            assert told[at]["output"] == found[at].json()["output"]
            [item] = stage.client.get(f"{paths[at]}/input_items").json()["data"]
            assert f"{at:x}" * 3000 == item["content"][0]["text"]
        goes_on = stage.ask(api, stream=False, previous_response_id=told[saved[0]]["id"])
        assert goes_on.error is None
    assert [one for one in tmp_path.iterdir() if "store.sqlite.corrupt-" in one.name]


@BOTH
@pytest.mark.parametrize("api", STORING, ids=named)
def test_a_file_that_somebody_else_holds_is_told_too_and_used_again_later(
    tmp_path: Path, api: Api, stream: bool, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("turnscript.gateway.database.PATIENCE", 0.2)
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
