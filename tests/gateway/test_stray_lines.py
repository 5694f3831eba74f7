"""Owns what is told of lines that a model server sends and that are no part of a stream of events."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest

from tests.gateway.scripted import END, STREAM, Script, chunk, event
from tests.gateway.stage import APIS, Stage, named, piece
from turnscript.apis.api import Api
from turnscript.gateway.headers import REPORT
from turnscript.gateway.kinds import Secret
from turnscript.gateway.logs import LOGGER

EACH = pytest.mark.parametrize("api", APIS, ids=named)
BOTH = pytest.mark.parametrize("stream", [True, False], ids=["stream", "whole"])
KEY = "a-key-that-nobody-may-see"
GOOD = [b": all is well\n\n", b"event: ping\n\n", b"id: 5\nretry: 7\n\n"]


@pytest.fixture
def stage() -> Iterator[Stage]:
    with Stage() as made:
        yield made


def script(*between: bytes) -> Script:
    """An answer with something between two of its pieces."""
    said = [event(piece("Hello")), *between, event(piece(" you")), event(piece("", "stop"))]
    return [STREAM, *map(chunk, said), chunk(event("[DONE]")), END]


def counted(stage: Stage) -> float:
    """How many such lines the metrics have counted."""
    lines = stage.client.get("/metrics").text.splitlines()
    return sum(float(line.rpartition(" ")[2]) for line in lines if 'kind="stray_line"' in line)


@EACH
@BOTH
def test_a_line_that_is_passed_over_is_reported_and_counted_and_logged_once(
    stage: Stage, api: Api, stream: bool, caplog: pytest.LogCaptureFixture
) -> None:
    stage.play(script(b"INFO: 3 requests wait\n\n"))
    with caplog.at_level(logging.WARNING, LOGGER):
        for times in (1, 2):
            told = stage.ask(api, stream=stream)
            issues = stage.client.get(told.headers[REPORT]).json()["issues"]
            found = [issue["detail"] for issue in issues if issue["kind"] == "stray_line"]
            assert ["the model server sent what is no part of a stream of events: 'INFO: 3 requests wait'"] == found
            assert times == counted(stage)
            assert told.end is not None
    logged = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    assert ["lines passed over"] == logged


@EACH
@BOTH
def test_what_belongs_to_a_stream_of_events_is_not_told(stage: Stage, api: Api, stream: bool) -> None:
    stage.play(script(*GOOD))
    told = stage.ask(api, stream=stream)
    assert [] == stage.client.get(told.headers[REPORT]).json()["issues"]
    assert 0 == counted(stage)


def test_a_line_is_shown_without_the_key_of_its_server() -> None:
    with Stage(model={"headers": {"X-Api-Key": Secret(KEY)}}) as stage:
        stage.play(script(f"DEBUG: {KEY} is welcome\n\n".encode()))
        told = stage.ask(APIS[0], stream=True)
        assert KEY == stage.asks[0][0].headers["x-api-key"]
        report = stage.client.get(told.headers[REPORT]).text
        assert "is welcome" in report
        assert KEY not in report
