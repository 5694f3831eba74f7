"""Owns conversations beyond what a model was trained with: they are answered, and whoever should know is told."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

from tests.gateway.stage import APIS, FORMAT, Stage, answer, body_of, named
from turnscript.apis.api import Api
from turnscript.gateway import doctor
from turnscript.gateway.config import Config
from turnscript.gateway.doctor_findings import Check
from turnscript.gateway.headers import LOSSES, TRAINED

pytestmark = pytest.mark.usefixtures("nothing_goes_wrong")
LONG = "Tell me all of it. " * 200
EACH = pytest.mark.parametrize("api", APIS, ids=named)


@pytest.fixture
def stage() -> Iterator[Stage]:
    with Stage(model={"trained_context": 100}) as made:
        made.play(answer("Hello"))
        yield made


def warned(caplog: pytest.LogCaptureFixture) -> list[dict[str, Any]]:
    return [one.__dict__["fields"] for one in caplog.records if one.getMessage() == "longer than trained"]


@EACH
@pytest.mark.parametrize("stream", [True, False], ids=["stream", "whole"])
@pytest.mark.parametrize("policy", ["error", "report", "ignore"])
def test_a_prompt_beyond_it_is_answered_and_told_of(
    stage: Stage, api: Api, stream: bool, policy: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "turnscript")
    headers = {"x-session-id": "one", "x-turnscript-loss-policy": policy}
    for words, beyond in (("Hello", False), (LONG, True), (LONG, True)):
        told = stage.ask(api, stream=stream, headers=headers, text=words)
        assert (200, "Hello") == (told.status, told.text)
        assert beyond == (TRAINED in told.headers)
        assert ("0" if policy != "ignore" else None) == told.headers.get(LOSSES)
        report = stage.client.get(told.headers["x-turnscript-report"]).json()
        assert beyond == bool(report["warnings"])
        if beyond:
            tokens, trained = told.headers[TRAINED].split("/")
            assert (100, True) == (int(trained), int(tokens) > 100)
            assert f"about {tokens} tokens, and the model was trained with 100" in report["warnings"][0]
    assert [("default", 100)] == [(one["model"], one["trained"]) for one in warned(caplog)]


def test_each_session_is_worth_one_line(stage: Stage, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "turnscript")
    for session in ("one", "two", "one", "two", "three"):
        stage.ask(APIS[0], stream=False, headers={"x-session-id": session}, text=LONG)
    assert [3, 3] == [len({one["session"] for one in warned(caplog)}), len(warned(caplog))]
    stage.gateway.service.trained._most = 1
    for session in ("four", "five", "four"):
        stage.ask(APIS[0], stream=False, headers={"x-session-id": session}, text=LONG)
    assert 6 == len(warned(caplog))
    assert 1 == len(stage.gateway.service.trained._warned)


def test_nobody_is_told_where_nothing_is_configured(caplog: pytest.LogCaptureFixture) -> None:
    with Stage() as stage:
        told = stage.ask(APIS[0], stream=False, text=LONG)
        assert TRAINED not in told.headers
        assert [] == stage.client.get(told.headers["x-turnscript-report"]).json()["warnings"]
    assert [] == warned(caplog)


@pytest.mark.parametrize("api", [api for api in APIS if api.serving.count_path], ids=named)
def test_what_is_only_counted_is_told_nothing(stage: Stage, api: Api, caplog: pytest.LogCaptureFixture) -> None:
    told = stage.client.post(api.serving.count_path, content=body_of(api, stream=False, text=LONG))
    assert (200, False) == (told.status_code, TRAINED in told.headers)
    assert [] == warned(caplog)


@pytest.mark.parametrize(
    ("trained", "context", "state", "says"),
    [
        (1000, None, "ok", "trained with 1000 tokens, beyond which the gateway warns"),
        (1000, 2000, "ok", "trained with 1000 tokens, beyond which the gateway warns"),
        (1000, 1000, "warning", "nobody is warned before it is full"),
        (None, 1000, "ok", ""),
    ],
)
def test_the_doctor_looks_at_it(trained: int | None, context: int | None, state: str, says: str) -> None:
    told: list[Check] = []

    class Listening:
        def server(self, model: str, url: str) -> None:
            """Which server is looked at."""

        def begin(self, name: str) -> None:
            """Which check begins."""

        def tell(self, check: Check) -> None:
            told.append(check)

    with Stage() as stage:
        config = Config.for_backend(
            stage.models[0].url + "/v1", FORMAT, kind="completions", trained_context=trained, context=context
        )
        asyncio.run(doctor.examine(config.models[0], config, Listening(), quick=True))
    about = next(check for check in told if check.name == "about")
    assert (state, True) == (about.state if context else state, says in about.detail)
    assert (trained is None) == ("trained" not in about.detail)
