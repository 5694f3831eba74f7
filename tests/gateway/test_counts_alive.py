"""Owns counting while its client goes: a model server that is asked how many tokens a text has is let go, too."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator

import pytest

from tests.clocks import run_time
from tests.gateway.scripted import HANG, Asked, Script, said
from tests.gateway.stage import APIS, CHATS, Stage, body_of, connected, named, post, quiet
from turnscript.apis.api import Api
from turnscript.gateway.logs import LOGGER

COUNTED = [api for api in APIS if api.serving.count_path]
BOTH = pytest.mark.parametrize("stream", [True, False], ids=["stream", "whole"])
PROPS = {"total_slots": 2, "default_generation_settings": {"n_ctx": 4096}, "model_path": "m.gguf"}


class CountingStage(Stage):
    """A stage whose model server counts tokens. `mute`: it says nothing when it is asked to."""

    def __init__(self) -> None:
        super().__init__(model={"kind": "llamacpp"})
        self.mute = False

    def _script(self, number: int) -> Callable[[Asked], Script]:
        def choose(asked: Asked) -> Script:
            if "/tokenize" not in asked.line:
                return said(
                    PROPS if asked.line.startswith("GET") else {"content": "Hello", "stop": True, "stop_type": "eos"}
                )
            if not asked.json["content"]:  # what it puts before a prompt, which is asked once, whenever there is time
                return said({"tokens": [1]})
            self.asks[number].append(asked)
            return [HANG] if self.mute else said({"tokens": [1, 2, 3]})

        return choose


@pytest.fixture(scope="module")
def stage() -> Iterator[CountingStage]:
    with CountingStage() as made:
        yield made


@pytest.fixture(autouse=True)
def nothing_goes_wrong(stage: CountingStage, caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    stage.asks[0].clear()
    stage.mute = True
    with quiet(caplog):
        yield
        stage.until(stage.idle)
    stage.mute = False


def left_while_counting(stage: CountingStage, request: bytes) -> float:
    """Ask, go as soon as the model server counts, and return how long that goes on counting."""

    async def run() -> float:
        async with connected(stage.url) as (_, writer):
            writer.write(request)
            while not stage.asks[0]:
                await asyncio.sleep(0.002)
        return run_time()

    left = asyncio.run(asyncio.wait_for(run(), 20))
    stage.until(lambda: stage.asks[0][0].gone)
    return (stage.asks[0][0].gone or 0) - left


@pytest.mark.parametrize("api", COUNTED, ids=named)
def test_a_client_that_goes_ends_a_count(stage: CountingStage, api: Api) -> None:
    request = post(api, body_of(api, stream=False)).replace(
        api.endpoint.encode() + b" ", api.serving.count_path.encode() + b" "
    )
    assert left_while_counting(stage, request) < 1.0
    stage.mute = False
    told = stage.client.post(api.serving.count_path, content=body_of(api, stream=False))
    assert (200, 3) == (told.status_code, told.json()["input_tokens"])


@pytest.mark.parametrize("api", CHATS, ids=named)
@BOTH
def test_a_client_that_goes_while_its_prompt_is_counted_ends_that(stage: CountingStage, api: Api, stream: bool) -> None:
    """A prompt that may be too long is counted before its model is asked."""
    assert left_while_counting(stage, post(api, body_of(api, stream=stream, text="Hello you " * 1500))) < 1.0


@pytest.mark.parametrize("api", COUNTED, ids=named)
def test_a_client_that_goes_before_its_text_has_come_is_logged_as_gone(
    stage: CountingStage, api: Api, caplog: pytest.LogCaptureFixture
) -> None:
    whole = post(api, body_of(api, stream=False)).replace(
        api.endpoint.encode() + b" ", api.serving.count_path.encode() + b" "
    )

    async def run() -> None:
        async with connected(stage.url) as (_, writer):
            writer.write(whole[:-9])
            while not stage.gateway.service.room.taken:
                await asyncio.sleep(0.002)

    with caplog.at_level(logging.INFO, LOGGER):
        asyncio.run(asyncio.wait_for(run(), 20))
        stage.until(stage.idle)
        stage.until(lambda: [one for one in caplog.records if one.getMessage() == "counted"])
    (line,) = [one for one in caplog.records if one.getMessage() == "counted"]
    assert 499 == line.fields["status"]  # type: ignore[attr-defined]
    assert not stage.asks[0]
