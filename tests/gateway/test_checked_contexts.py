"""Owns servers that check whether prompt and answer fit their context: they are asked for what fits.

That holds for every kind, in whatever words they refuse. Where nothing fits, a client is told their own numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from tests.gateway.scripted import END, Asked, Script, said, sse
from tests.gateway.stage import CHATS, Stage, named
from turnscript.apis.api import Api
from turnscript.convert.registry import backends
from turnscript.core.error_kinds import fault_of
from turnscript.core.errors import UpstreamError

BOTH = pytest.mark.parametrize("stream", [True, False], ids=["stream", "whole"])
EACH = pytest.mark.parametrize("api", CHATS, ids=named)
HERE = "This model's maximum context length is {limit} tokens"
WORDS = {
    "openai": f"{HERE}. However, you requested {{total}} tokens ({{asked}} in the messages, "
    "{output} in the completion).",
    "a total": f"{HERE}. However, you requested {{total}} tokens.",
    "the prompt": f"{HERE}. However, you requested {{asked}} tokens.",
    "llama.cpp": "request ({asked} tokens) exceeds the available context size ({limit} tokens), try increasing it",
    "vllm": "You passed {asked} input tokens and requested {output} output tokens. However, the model's context length "
    "is only {limit} tokens, resulting in a maximum input length of 0 tokens.",
    "tgi": "`inputs` tokens + `max_new_tokens` must be <= {limit}. Given: {asked} `inputs` tokens and {output} "
    "`max_new_tokens`",
    "sglang": "Requested token count exceeds the model's maximum context length of {limit} tokens. You requested a "
    "total of {total} tokens: {asked} tokens from the input messages and {output} tokens for the completion.",
    "llama-cpp-python": "Requested tokens ({asked}) exceed context window of {limit}",
    "one number": "max_tokens={output} cannot be greater than max_model_len={limit}",
}


def checking(
    kind: str, words: str, limit: int, asked: int, *, late: bool, announced: bool = False
) -> Callable[[Asked], Script]:
    """A server with a context of `limit` tokens that counts `asked` in each prompt. `late`: it checks in the stream."""

    def play(request: Asked) -> Script:
        if request.line.startswith("GET"):
            return said({"data": [{"id": "m"} | ({"max_model_len": limit} if announced else {})]})
        if "tokenize" in request.line:
            return said({}, status=404)
        body = request.json
        output = body.get("max_tokens", body.get("n_predict"))
        if output + asked > limit:
            spoken = WORDS["openai"] if words == "one number" and output < limit else WORDS[words]
            told = {"error": {"message": spoken.format(limit=limit, asked=asked, output=output, total=asked + output)}}
            return sse(told, end=(END,)) if late and body["stream"] else said(told, status=400)
        if kind == "llamacpp":
            last: Any = {"content": "Hello", "stop": True, "stop_type": "eos"}
        else:
            last = {"choices": [{"index": 0, "text": "Hello", "finish_reason": "stop"}]}
        return sse(last, *([] if kind == "llamacpp" else ["[DONE]"]), end=(END,)) if body["stream"] else said(last)

    return play


def most_of(request: Asked) -> int:
    """How many tokens a server was asked for."""
    found: int = request.json.get("max_tokens", request.json.get("n_predict"))
    return found


@pytest.fixture(scope="module", params=backends())
def stage(request: pytest.FixtureRequest) -> Iterator[Stage]:
    with Stage(model={"kind": request.param}) as made:
        yield made


@EACH
@BOTH
@pytest.mark.parametrize("late", [False, True], ids=["at once", "late"])
def test_a_server_that_checks_is_asked_again_for_what_fits(stage: Stage, api: Api, stream: bool, late: bool) -> None:
    limit, asked = 262_144, 76
    kind = stage.config.models[0].kind
    for words in WORDS:
        stage.play_by(checking(kind, words, limit, asked, late=late))
        told = stage.ask(api, stream=stream, limit=-1)
        assert "Hello" == told.text, (words, told.body)
        asks = [most_of(one) for one in stage.asks[0] if one.body]
        assert limit not in asks, words
        assert 0 < asks[-1] <= limit - asked, words


@EACH
@BOTH
def test_where_the_prompt_does_not_fit_its_numbers_are_told(stage: Stage, api: Api, stream: bool) -> None:
    kind = stage.config.models[0].kind
    for words in WORDS:
        if words != "one number":
            stage.play_by(checking(kind, words, 4096, 5000, late=False))
            told = stage.ask(api, stream=stream, limit=64)
            assert told.error is not None, words
            assert "4096" in str(told.error), words
            assert "5000" in str(told.error) or "5064" in str(told.error), words


@given(st.sampled_from(sorted(WORDS)), st.integers(1, 300_000), st.integers(1, 300_000), st.integers(0, 300_000))
@example("llama.cpp", 262_144, 76, 64)
@settings(suppress_health_check=[HealthCheck.too_slow])
def test_no_client_is_told_that_less_is_more_than_there_is(words: str, limit: int, asked: int, output: int) -> None:
    spoken = WORDS[words].format(limit=limit, asked=asked, output=output, total=asked + output)
    fault = fault_of(UpstreamError(f"the server says: {spoken}", upstream=400))
    if fault.kind == "overflow" and fault.limit is not None and fault.asked is not None:
        assert fault.asked + fault.output > fault.limit
