"""Owns refusals that a stream cannot tell: it is over before it began, and only the whole answer would say why.

llama-cpp-python answers 200, finds that the prompt does not fit, and ends the stream: the reason is in its log alone.
"""

from __future__ import annotations

import asyncio
import json
from typing import Any

import anthropic
import openai
import pytest

from tests.gateway.scripted import CLOSE, END, HANG, RESET, STREAM, Asked, Script, Scripted, chunk, said
from tests.gateway.stage import Stage
from tests.gateway.upstreams import ASK, WHOLE, against, pieces_of
from tests.sdks import anthropic_sdk, openai_sdk
from turnscript.core.error_kinds import fault_of
from turnscript.core.errors import UpstreamError
from turnscript.gateway.doctor_findings import remedy_for
from turnscript.gateway.upstream import Upstream

TOO_LONG = {
    "error": {
        "message": "This model's maximum context length is 1024 tokens, however you requested 1504 tokens "
        "(1503 in your prompt; 1 for the completion). Please reduce your prompt; or completion length.",
        "type": "invalid_request_error",
        "param": "messages",
        "code": "context_length_exceeded",
    }
}
NOTHING: Script = [STREAM, END]


def mute(asked: Asked) -> Script:
    """A server that says why in one piece, and nothing in a stream."""
    return NOTHING if asked.json["stream"] else said(TOO_LONG, status=400)


@pytest.mark.parametrize("nothing", [NOTHING, [STREAM, CLOSE], [STREAM, RESET]], ids=["ended", "closed", "reset"])
def test_a_stream_that_ends_before_it_began_is_asked_about_once(nothing: Script) -> None:
    @against(nothing, said(TOO_LONG, status=400))
    async def asked(server: Scripted, upstream: Upstream) -> list[Any]:
        with pytest.raises(UpstreamError) as caught:
            await pieces_of(upstream, ASK)
        assert ("overflow", 1024, 1504) == (
            (fault := fault_of(caught.value)).kind, fault.limit, fault.asked,
        )  # fmt: skip
        return [one.json for one in server.asked]

    first, why = asked
    assert (True, 5) == (first["stream"], first["max_tokens"])
    assert (False, 1, first["prompt"]) == (why["stream"], why["max_tokens"], why["prompt"])


@pytest.mark.parametrize("answer", [said({"choices": [{"text": "a", "finish_reason": "length"}]}), [RESET]])
def test_where_nothing_says_why_it_broke_off(answer: Script) -> None:
    @against(NOTHING, answer)
    async def told(server: Scripted, upstream: Upstream) -> tuple[UpstreamError, list[bool]]:
        with pytest.raises(UpstreamError) as caught:
            await pieces_of(upstream, ASK)
        return caught.value, [one.json["stream"] for one in server.asked]

    error, streams = told
    assert "broke off before its end" in str(error)
    assert error.retryable
    assert [True, False] == streams[:2]
    assert True not in streams[1:]


@pytest.mark.parametrize(
    ("script", "ask"),
    [([STREAM, chunk(b": ping\n\n"), END], ASK), ([STREAM, chunk(b"out of memory"), END], ASK), (NOTHING, WHOLE)],
    ids=["said something", "said what", "was whole"],
)
def test_what_broke_off_otherwise_is_not_asked_about(script: Script, ask: Any) -> None:
    @against(script)
    async def count(server: Scripted, upstream: Upstream) -> int:
        with pytest.raises(UpstreamError):
            await pieces_of(upstream, ask)
        return len(server.asked)

    assert 1 == count


def test_who_leaves_while_it_is_asked_stops_the_question() -> None:
    @against(NOTHING, [HANG])
    async def _(server: Scripted, upstream: Upstream) -> None:
        task = asyncio.create_task(pieces_of(upstream, ASK))
        await server.until_asked(2)
        task.cancel()
        await server.until_gone(1)
        await asyncio.gather(task, return_exceptions=True)


def test_clients_are_told_to_shorten_and_the_server_stays_in_use() -> None:
    messages: Any = [{"role": "user", "content": "Hi"}]
    with Stage() as stage, openai_sdk(stage.url) as chats, anthropic_sdk(stage.url) as others:
        stage.play_by(mute)
        for _ in range(3):
            with pytest.raises(openai.BadRequestError) as chat:
                chats.chat.completions.create(model="m", messages=messages, stream=True)
            assert "context_length_exceeded" == chat.value.code
        with pytest.raises(anthropic.BadRequestError) as message:
            others.messages.create(model="m", messages=messages, max_tokens=5)
        assert "prompt is too long: 1504 tokens > 1024 maximum" in message.value.message
        health = json.loads(stage.client.get("/health").content)
        assert all(model["up"] for model in health["models"].values())


def test_the_doctor_says_what_to_do_where_its_own_prompt_does_not_fit() -> None:
    """It said to name another kind of server, or the model."""

    @against(NOTHING, said(TOO_LONG, status=400))
    async def error(server: Scripted, upstream: Upstream) -> UpstreamError:
        with pytest.raises(UpstreamError) as caught:
            await pieces_of(upstream, ASK)
        return caught.value

    assert "give the model server a longer context" == remedy_for(error)
