"""Owns the check that no client and no log reads a secret of the gateway's, though a model server repeats it."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from typing import Any

import pytest

from tests.gateway.scripted import Asked, Script, said, sse
from tests.gateway.stage import APIS, Stage, body_of, piece
from turnscript.backends.backend import Completion
from turnscript.convert.registry import backends, get_backend
from turnscript.core.errors import UpstreamError
from turnscript.gateway.kinds import SHOWN, Secret
from turnscript.gateway.upstream import Mask

KEY = "planted-key+1/2=="
MODELS: dict[str, dict[str, Any]] = {
    "a key": {"api_key": Secret(KEY)},
    "headers": {"headers": {"Authorization": Secret("Basic cGxhbnRlZA=="), "X-Api-Key": Secret(KEY)}},
}
SECRETS = ("planted", "cGxhbnRlZA")


def _repeated(asked: Asked) -> str:
    return f"these are wrong: {asked.headers.get('authorization')} {asked.headers.get('x-api-key')}."


def _wrong_key(asked: Asked) -> Script:
    return said({"error": {"message": _repeated(asked)}}, status=401)


def _page(asked: Asked) -> Script:
    return said(f"{'.' * 255}{_repeated(asked)}", status=500)


def _in_a_stream(asked: Asked) -> Script:
    return sse(piece("Some"), {"error": {"message": _repeated(asked)}})


def _no_completion(asked: Asked) -> Script:
    return said({"oops": _repeated(asked)})


@pytest.fixture(scope="module", params=list(MODELS))
def stage(request: pytest.FixtureRequest) -> Any:
    with Stage(model=MODELS[request.param]) as made:
        yield made


@pytest.mark.parametrize("play", [_wrong_key, _page, _in_a_stream, _no_completion])
@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
def test_nobody_reads_a_secret_that_a_server_repeats(
    stage: Stage, play: Callable[[Asked], Script], stream: bool, caplog: pytest.LogCaptureFixture
) -> None:
    stage.play_by(play)
    with caplog.at_level(logging.DEBUG):
        for api in APIS:
            told = stage.client.post(api.endpoint, content=body_of(api, stream=stream))
            assert "error" in told.text
            assert SHOWN in told.text
            report = told.headers.get("x-turnscript-report")
            also = stage.client.get(report).text if report else ""
            for secret in SECRETS:
                assert secret not in told.text + also + stage.client.get("/metrics").text
    for secret in SECRETS:
        assert secret not in "".join(f"{record.getMessage()} {record.__dict__}" for record in caplog.records)
    [sent] = {ask.headers.get("x-api-key") or ask.headers["authorization"] for ask in stage.asks[0]}
    assert KEY in sent


def test_a_short_key_hides_where_it_stands_alone() -> None:
    mask = Mask(["sk-1234", "none-of-your-business"])
    error = UpstreamError("the key sk-1234 is wrong; none-of-your-business, sk-12345", body="x=sk-1234")
    assert f"the key {SHOWN} is wrong; {SHOWN}, sk-12345" == str(mask.error(error))
    assert (f"x={SHOWN}", f"x={SHOWN}") == (error.body, error.args[2])
    assert SHOWN.encode() == mask.body(b"sk-1234")


CUT: dict[str, Callable[[str], bytes]] = {
    "whole": lambda text: json.dumps({"oops": text}).encode(),
    "event": lambda text: b"data: %b\n\n" % json.dumps({"oops": text}).encode(),
    "failure": lambda text: b"data: %b\n\n" % json.dumps({"error": {"message": text}}).encode(),
    "named": lambda text: b"event: error\ndata: %b\n\n" % text.encode(),
    "bare": lambda text: b"error: %b\n\n" % json.dumps({"message": text}).encode(),
    "page": lambda text: b"! %b\n\n" % text.encode(),
}


def _read(backend: str, answer: bytes) -> None:
    reader = get_backend(backend).reader(Completion(prompt="x", stream=True, max_tokens=5))
    reader.feed(answer)
    reader.close()


@pytest.mark.parametrize("shape", list(CUT))
@pytest.mark.parametrize("backend", backends())
def test_an_error_that_is_cut_in_the_middle_of_a_secret_shows_no_half_of_it(shape: str, backend: str) -> None:
    key = "".join(chr(0x41 + number) for number in range(26))
    mask, halves = Mask([key]), [key[:length] for length in range(8, 27)]
    for before in (*range(100, 220, 5), *range(1900, 2020, 5)):
        with pytest.raises(UpstreamError) as caught:
            _read(backend, CUT[shape]("." * before + key))
        error = mask.error(caught.value)
        shown = f"{error} {error.message} {error.body} {error.args}"
        assert not [half for half in halves if half in shown], before


def test_without_secrets_all_is_as_it_was() -> None:
    error = UpstreamError("a b", body="c")
    assert (b"a b", "a b", "c") == (Mask([]).body(b"a b"), str(Mask([]).error(error)), error.body)
    assert json.dumps("x") == Mask(["y"]).body(json.dumps("x").encode()).decode()
