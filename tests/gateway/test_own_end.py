"""Owns how the answer of a server that keeps what it has read ends: by itself, or because nobody reads on."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, Self

import pytest

from tests.gateway.scripted import END, HANG, STREAM, Asked, Script, chunk, event, said
from tests.gateway.stage import WEATHER, Stage, text_of_call
from turnscript.convert.registry import get_api
from turnscript.gateway import answers

pytestmark = pytest.mark.usefixtures("nothing_goes_wrong")

API = get_api("openai-chat")
BOTH = pytest.mark.parametrize("stream", [True, False], ids=["stream", "whole"])
PROPS = {"total_slots": 2, "default_generation_settings": {"n_ctx": 8192}, "model_path": "m.gguf"}
LAST = {"content": "", "stop": True, "stop_type": "word", "tokens_evaluated": 12, "tokens_predicted": 77}
PROGRESS = {"content": "", "stop": False, "prompt_progress": {"total": 12, "cache": 8, "processed": 12, "time_ms": 1}}
LONG = 60.0
"""Seconds that no test waits, and no client."""


class LlamaStage(Stage):
    """A stage whose model server is llama.cpp's, with two slots. `rest`: what it does behind the text."""

    def __init__(self, text: Callable[[str], str]) -> None:
        super().__init__(model={"kind": "llamacpp"})
        self.text = text
        self.rest: Script = ()

    def _script(self, number: int) -> Callable[[Asked], Script]:
        def choose(asked: Asked) -> Script:
            if "/completion" not in asked.line:
                return said({"tokens": []} if "/tokenize" in asked.line else PROPS)
            self.asks[number].append(asked)
            text = {"content": self.text(asked.json["prompt"]), "stop": False, "tokens_evaluated": 12}
            return [STREAM, chunk(event(PROGRESS)), chunk(event(text)), *self.rest]

        return choose

    def __enter__(self) -> Self:
        super().__enter__()
        [served] = self.gateway.service.models()
        self.until(lambda: served.pool.members[0].places)
        return self

    @property
    def asked(self) -> Asked:
        """The only completion that was asked for."""
        [asked] = self.asks[0]
        return asked


@pytest.fixture(autouse=True)
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(answers, "OWN_END", LONG)


def ended(_: str) -> str:
    """A turn and the beginning of the next one, where the server has not stopped yet."""
    return "Hello\n<<USER>>\n"


def called(prompt: str) -> str:
    """A call, as far as the prompt has not begun it, and the beginning of more."""
    call = text_of_call()
    begun = max(length for length in range(len(call) + 1) if prompt.endswith(call[:length]))
    return call[begun:] + call[:5]


def used(told: Any) -> int:
    """The tokens of the answer, as it tells them."""
    assert told.usage is not None
    return int(told.usage.output)


@BOTH
def test_a_turn_that_has_ended_waits_for_the_end_of_the_server(stream: bool) -> None:
    with LlamaStage(ended) as stage:
        stage.rest = [0.3, chunk(event(LAST)), END]
        options: dict[str, Any] = {"stream_options": {"include_usage": True}} if stream else {}
        told = stage.ask(API, stream=stream, **options)
        assert ("Hello", 77) == (told.text, used(told))
        stage.until(stage.idle)
        assert stage.asked.json["id_slot"] in (0, 1)
        assert stage.asked.gone is None


@BOTH
@pytest.mark.parametrize("choice", ["auto", "required"])
def test_behind_a_single_call_nothing_is_waited_for(stream: bool, choice: str) -> None:
    with LlamaStage(called) as stage:
        stage.rest = [HANG]
        one: dict[str, Any] = {"parallel_tool_calls": False, "tool_choice": choice}
        counted: dict[str, Any] = {"stream_options": {"include_usage": True}} if stream else {}
        told = stage.ask(API, stream=stream, tools=[WEATHER], **one, **counted)
        assert [{"city": "Paris"}] == [json.loads(call.arguments) for call in told.calls]
        assert told.usage is not None
        assert (12, 8) == (told.usage.input, told.usage.cached)
        stage.until(lambda: stage.asked.gone is not None)
        assert stage.asked.json["id_slot"] in (0, 1)


@BOTH
def test_behind_a_stop_string_that_the_server_does_not_know_nothing_is_waited_for(stream: bool) -> None:
    """It is told of none that may stand in a call."""
    with LlamaStage(lambda _: "Hello END and more") as stage:
        stage.rest = [HANG]
        told = stage.ask(API, stream=stream, tools=[WEATHER], stop=["END"])
        assert ("Hello", "stop") == (told.text.strip(), told.end.finish_reason if told.end else None)
        stage.until(lambda: stage.asked.gone is not None)
        assert "END" not in stage.asked.json["stop"]


@BOTH
def test_a_server_without_an_end_is_left_after_a_moment(stream: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(answers, "OWN_END", 0.01)
    with LlamaStage(ended) as stage:
        stage.rest = [HANG]
        assert "Hello" == stage.ask(API, stream=stream).text
        stage.until(lambda: stage.asked.gone is not None)
