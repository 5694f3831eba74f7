"""Owns what becomes of answers made apart from their clients when the gateway stops: they finish, or are told to have
failed."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import httpx2
import pytest

from tests.clocks import run_time, scaled
from tests.gateway.background import BEGUN, EACH, ENDS, begun, events_of, look
from tests.gateway.scripted import HANG
from tests.gateway.stage import NO_TLS, Stage, body_of
from turnscript.apis.api import Api
from turnscript.core.errors import Overloaded

pytestmark = pytest.mark.usefixtures("nothing_goes_wrong")


@EACH
@scaled
def test_when_the_gateway_stops_answers_finish_or_are_told_to_have_failed(
    tmp_path: Path, api: Api, scale: float
) -> None:
    store = {"path": tmp_path / f"{scale:g}.sqlite"}
    with Stage(store=store, server={"grace": 0.5 * scale}) as stage:
        stage.play([*BEGUN, 0.2 * scale, *ENDS], [*BEGUN, HANG])
        short = begun(stage, api)
        stage.until(lambda: stage.asks[0])
        long = begun(stage, api, text="And so on.")
        stage.until(lambda: 2 == len(stage.asks[0]))
        began = run_time()
    assert run_time() - began < 3.0 * scale
    with Stage(store=store) as stage:
        assert "completed" == look(stage, api, short)["status"]
        over = look(stage, api, long)
        assert "failed" == over["status"]
        assert "shutting down" in over["error"]["message"]


@EACH
def test_who_follows_an_answer_when_the_gateway_stops_is_told_its_end(tmp_path: Path, api: Api) -> None:
    heard: list[bytes] = []
    with Stage(store={"path": tmp_path / "store.sqlite"}, server={"grace": 0.2}) as stage:
        stage.play([*BEGUN, HANG])
        body, begins = body_of(api, stream=True, background=True), threading.Event()

        def follow() -> None:
            url = f"{stage.url}{api.endpoint}"
            with httpx2.Client(timeout=20, verify=NO_TLS) as client, client.stream("POST", url, content=body) as told:
                for data in told.iter_raw():
                    heard.append(data)
                    begins.set()

        follower = threading.Thread(target=follow)
        follower.start()
        assert begins.wait(10)
    follower.join(10)
    events = events_of(b"".join(heard))
    assert list(range(len(events))) == [one["sequence_number"] for one in events]
    assert "failed" == events[-1]["response"]["status"]
    assert "shutting down" in events[-1]["response"]["error"]["message"]


@EACH
@pytest.mark.parametrize("stream", [True, False], ids=["stream", "whole"])
def test_an_answer_that_is_ended_in_the_moment_it_begins_is_told_to_have_failed(
    api: Api, stream: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A task that is cancelled before its first step takes none, not even the last ones."""
    with Stage() as stage:
        apart = stage.gateway.service.apart
        start = apart.start

        async def ended(*how: Any) -> bytes:
            body = await start(*how)
            apart.cancel_all(Overloaded("the gateway is shutting down", retry_after=1.0))
            return body

        monkeypatch.setattr(apart, "start", ended)
        stage.play([HANG])
        told = stage.ask(api, stream=stream, background=True)
        id_ = events_of(told.body)[0]["response"]["id"] if stream else told.json["id"]
        stage.until(lambda: not apart._making)
        assert [] == stage.asks[0]
        over = look(stage, api, str(id_))
        assert "failed" == over["status"]
        assert "shutting down" in over["error"]["message"]
        assert stream == ("shutting down" in str(told.error))
