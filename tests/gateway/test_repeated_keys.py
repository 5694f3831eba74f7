"""Owns the key for a model server, where that repeats what it was sent: neither clients nor the log get it."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from tests.gateway.scripted import CLOSE, Asked, Script, said, sse
from tests.gateway.stage import APIS, Stage, answer, named
from turnscript.apis.api import Api
from turnscript.gateway.kinds import Secret

EACH = pytest.mark.parametrize("api", APIS, ids=named)
KEY = "sk-xyzzy-plugh-0123456789"
REPEATS: dict[str, Callable[[str], Script]] = {
    "object": lambda got: said({"error": {"message": f"Incorrect API key provided: {got}"}}, status=401),
    "detail": lambda got: said({"detail": f"unknown {got}"}, status=403),
    "text": lambda got: said(f"unknown {got}", status=500, media="text/plain"),
    "cut": lambda got: said("x" * 290 + got, status=500, media="text/plain"),
    "page": lambda got: said(f"<html><title>{got}</title>{got}</html>", status=500, media="text/html"),
    "event": lambda got: sse({"error": {"message": f"unknown {got}"}}),
    "no event": lambda got: sse(f"unknown {got}"),
    "no stream": lambda got: said(f"unknown {got}", media="text/plain"),
    "head": lambda got: [f"HTTP/1.1 200 OK\r\nx y: {got}\r\n\r\n".encode(), CLOSE],
}


@pytest.fixture(scope="module")
def stage() -> Iterator[Stage]:
    with Stage(model={"api_key": Secret(KEY)}, logs={"redact": False}) as made:
        yield made


@EACH
@pytest.mark.parametrize("repeat", REPEATS.values(), ids=REPEATS)
def test_a_server_that_repeats_its_key_tells_it_nobody(
    stage: Stage, api: Api, repeat: Callable[[str], Script], caplog: pytest.LogCaptureFixture
) -> None:
    def repeated(asked: Asked) -> Script:
        return repeat(asked.headers["authorization"])

    for stream in (False, True):
        stage.play_by(repeated)
        told = stage.ask(api, stream=stream)
        assert f"Bearer {KEY}" == stage.asks[0][-1].headers["authorization"]
        assert told.error is not None
        assert KEY[:8] not in told.body.decode()
    assert KEY[:8] not in str([record.__dict__.get("fields") for record in caplog.records])
    assert KEY not in caplog.text


@EACH
def test_what_was_no_key_stays(api: Api) -> None:
    with Stage(model={"api_key": Secret("none")}) as stage:
        stage.play(said({"error": {"message": "none of this is known"}}, status=400))
        assert "none of this is known" in stage.ask(api, stream=False).body.decode()
        assert "Bearer none" == stage.asks[0][-1].headers["authorization"]
        stage.play(answer("Hello"))
        assert "Hello" == stage.ask(api, stream=False).text
