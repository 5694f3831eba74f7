"""Owns endings as the official SDKs see them: each failure is the exception that their users catch."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import anthropic
import openai
import pytest

from tests.gateway.scripted import CLOSE, END, RESET, STREAM, Script, chunk, event, said
from tests.gateway.stage import WEATHER, Stage, answer, piece, text_of_call
from tests.sdks import anthropic_sdk, openai_sdk

MESSAGES: Any = [{"role": "user", "content": "Hello"}]
PARAMETERS = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
FULL = said({"error": {"message": "the request exceeds the available context size (4096 tokens)"}}, status=400)
BUSY = said({"error": {"message": "loading the model"}}, status=503)
OFTEN = said({"error": {"message": "slow down", "type": "rate_limit_error"}}, status=429)
BROKEN = said({"error": {"message": "out of memory", "type": "server_error"}}, status=502)
BEHIND: dict[str, Script] = {
    "reset": [RESET],
    "closed": [CLOSE],
    "ended": [END],
    "an error": [chunk(event({"error": {"message": "out of memory", "code": 500}})), END],
}


class Sdks:
    """A client of each SDK, which tries once, and what it does."""

    def __init__(self, stage: Stage) -> None:
        self.openai = openai_sdk(stage.url)
        self.anthropic = anthropic_sdk(stage.url)

    def chat(self) -> Any:
        return self.openai.chat.completions.create(model="m", messages=MESSAGES)

    def chat_stream(self) -> Any:
        with self.openai.chat.completions.stream(model="m", messages=MESSAGES) as stream:
            return [*stream, stream.get_final_completion()]

    def text(self) -> Any:
        return self.openai.completions.create(model="m", prompt="Hello")

    def text_stream(self) -> Any:
        return list(self.openai.completions.create(model="m", prompt="Hello", stream=True))

    def responses(self) -> Any:
        return self.openai.responses.create(model="m", input="Hello")

    def responses_stream(self) -> Any:
        with self.openai.responses.stream(model="m", input="Hello") as stream:
            return [*stream, stream.get_final_response()]

    def messages(self) -> Any:
        return self.anthropic.messages.create(model="m", max_tokens=64, messages=MESSAGES)

    def messages_stream(self) -> Any:
        with self.anthropic.messages.stream(model="m", max_tokens=64, messages=MESSAGES) as stream:
            return [*stream, stream.get_final_message()]


CALLS = ["chat", "chat_stream", "text", "text_stream", "responses", "responses_stream", "messages", "messages_stream"]
STREAMS = [name for name in CALLS if name.endswith("_stream")]


@pytest.fixture(scope="module")
def sdks(stage: Stage) -> Iterator[Sdks]:
    made = Sdks(stage)
    with made.openai, made.anthropic:
        yield made


@pytest.fixture(autouse=True)
def late(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("turnscript.gateway.answers.SOON", 60.0)


def of(sdk: Any, call: str) -> Any:
    """The module of the SDK that a call belongs to."""
    return anthropic if call.startswith("messages") else openai


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize(
    ("script", "kind", "status"),
    [
        (FULL, "BadRequestError", 400),
        (OFTEN, "RateLimitError", 429),
        (BUSY, "InternalServerError", 503),
        (BROKEN, "InternalServerError", 502),
        ([CLOSE], "InternalServerError", 502),
    ],
    ids=["full", "often", "busy", "broken", "closed"],
)
def test_an_error_with_a_status_is_its_own_exception(
    stage: Stage, sdks: Sdks, call: str, script: Script, kind: str, status: int
) -> None:
    stage.play(script)
    module = of(sdks, call)
    with pytest.raises(getattr(module, kind)) as told:
        getattr(sdks, call)()
    assert status == told.value.status_code or (module is anthropic and {503: 529, 502: 500}[status])
    assert told.value.request_id.startswith("req_")
    if script is FULL and module is openai:
        assert "context_length_exceeded" == told.value.code
    if script is FULL and module is anthropic:
        assert "prompt is too long" in str(told.value)


@pytest.mark.parametrize("call", STREAMS)
@pytest.mark.parametrize("case", BEHIND)
def test_a_stream_that_breaks_off_is_an_exception(stage: Stage, sdks: Sdks, call: str, case: str) -> None:
    stage.play([STREAM, chunk(event(piece("Once upon a time"))), 0.01, *BEHIND[case]])
    raised = RuntimeError if call == "responses_stream" else of(sdks, call).APIError
    with pytest.raises(raised) as told:
        getattr(sdks, call)()
    if call != "responses_stream":
        assert "out of memory" in str(told.value) or case != "an error"


@pytest.mark.parametrize("case", BEHIND)
def test_a_response_that_breaks_off_is_told_to_have_failed(stage: Stage, sdks: Sdks, case: str) -> None:
    stage.play([STREAM, chunk(event(piece("Once upon a time"))), 0.01, *BEHIND[case]])
    with sdks.openai.responses.create(model="m", input="Hello", stream=True) as stream:
        last = list(stream)[-1]
    assert "response.failed" == last.type
    assert last.response.error is not None
    assert "server_error" == last.response.error.code


@pytest.mark.parametrize("case", BEHIND)
def test_no_sdk_gets_a_call_that_was_cut_off(stage: Stage, sdks: Sdks, case: str) -> None:
    cut = text_of_call().partition("ris")[0]
    stage.play([STREAM, chunk(event(piece(cut))), 0.01, *BEHIND[case]])
    chat: Any = {"type": "function", "function": {"name": WEATHER.name, "parameters": PARAMETERS}}
    flat: Any = {"type": "function", "name": WEATHER.name, "parameters": PARAMETERS, "strict": False}
    own: Any = {"name": WEATHER.name, "input_schema": PARAMETERS}
    asked: list[Callable[[], Any]] = [
        lambda: list(sdks.openai.chat.completions.create(model="m", messages=MESSAGES, tools=[chat], stream=True)),
        lambda: list(
            sdks.anthropic.messages.create(model="m", max_tokens=64, messages=MESSAGES, tools=[own], stream=True)
        ),
    ]
    for ask in asked:
        with pytest.raises((openai.APIError, anthropic.APIError)):
            ask()
    done = [one.type for one in sdks.openai.responses.create(model="m", input="Hello", tools=[flat], stream=True)]
    assert "response.failed" == done[-1]
    assert not {"response.function_call_arguments.done", "response.output_item.done"} & set(done)


def test_a_good_answer_is_none_of_these(stage: Stage, sdks: Sdks) -> None:
    stage.play(answer("Hello", " you"))
    assert len(CALLS) == len([getattr(sdks, call)() for call in CALLS])
