"""Owns the end of an answer that was made apart and cannot be kept: whoever asks or listens is told so."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tests.gateway.background import EACH, events_of, until_over
from tests.gateway.scripted import Asked, Script
from tests.gateway.stage import Stage, answer
from turnscript.apis.api import Api


@EACH
@pytest.mark.parametrize("stream", [True, False], ids=["stream", "whole"])
def test_an_end_that_cannot_be_kept_is_told(
    tmp_path: Path, api: Api, stream: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("turnscript.gateway.database.PATIENCE", 0.2)
    path = tmp_path / "store.sqlite"
    with closing(sqlite3.connect(path, isolation_level=None, check_same_thread=False)) as holder:

        def script(asked: Asked) -> Script:
            holder.execute("BEGIN IMMEDIATE")
            return answer("Once", " upon", " a time")

        with Stage(store={"path": path}) as stage:
            stage.play_by(script)
            told: Any = stage.ask(api, stream=stream, background=True)
            if stream:
                events = events_of(told.body)
                id_ = str(events[0]["response"]["id"])
                assert "error" == events[-1]["type"]
                assert "the gateway cannot keep this" in events[-1]["message"]
                assert list(range(len(events))) == [event["sequence_number"] for event in events]
            else:
                id_ = str(told.json["id"])
            stage.until(stage.idle)
            found = until_over(stage, api, id_)
            assert "failed" == found["status"]
            assert "could not be kept" in found["error"]["message"]
            holder.execute("ROLLBACK")
            assert "failed" == until_over(stage, api, id_)["status"]
