"""Owns answers that a server ends without saying why: nobody can tell them from those that were cut off.

llama-cpp-python does it as soon as somebody else asks: the answer that it is at ends with `[DONE]`, and no reason.
"""

from __future__ import annotations

import contextlib
from typing import Any

import openai
import pytest

from tests.gateway.scripted import Script, Scripted, said, sse
from tests.gateway.stage import Stage
from tests.gateway.upstreams import ASK, WHOLE, against, failure, pieces_of, text, text_of
from tests.sdks import openai_sdk
from turnscript.backends.backend import Piece
from turnscript.core.errors import UpstreamError
from turnscript.gateway.upstream import Upstream

WITH = sse(text("one"), text(" two", "stop"), "[DONE]")
WITHOUT = sse(text("one"), text(" tw"), "[DONE]")


async def broken(upstream: Upstream) -> tuple[str, UpstreamError]:
    """What came before the answer was found to be broken off."""
    came: list[Piece] = []
    try:
        async with upstream.open(ASK) as answer:
            async for pieces in answer:
                came += pieces
    except UpstreamError as error:
        return text_of(came), error
    raise AssertionError(f"{came} passed for a whole answer")


@pytest.mark.parametrize("before", [[], [WITH], [WITHOUT], [sse(text("a", ""), "[DONE]")]], ids=len)
def test_an_end_without_a_reason_is_none_whatever_the_server_said_before(before: list[Script]) -> None:
    @against(*before, WITHOUT, WITHOUT, WITH)
    async def _(server: Scripted, upstream: Upstream) -> None:
        for _ in before:
            with contextlib.suppress(UpstreamError):
                await pieces_of(upstream)
        for _ in range(2):
            came, error = await broken(upstream)
            assert "one tw" == came
            assert "broke off before its end: it does not say why" in str(error)
            assert error.retryable
        assert "one two" == text_of(await pieces_of(upstream))
        assert len(before) + 3 == len(server.asked)


@pytest.mark.parametrize("body", [text("a"), text("a", ""), {"choices": [], "usage": {"prompt_tokens": 3}}])
def test_a_whole_answer_without_a_reason_is_none_either(body: Any) -> None:
    assert failure(said(body), ask=WHOLE).retryable


def test_clients_are_told_of_an_answer_that_was_cut_off_for_another() -> None:
    messages: Any = [{"role": "user", "content": "Hi"}]
    with Stage() as stage, openai_sdk(stage.url) as client:
        stage.play(WITH, WITHOUT)
        whole = client.chat.completions.create(model="m", messages=messages)
        assert "stop" == whole.choices[0].finish_reason
        with pytest.raises(openai.InternalServerError, match="broke off"):
            client.chat.completions.create(model="m", messages=messages)
        with pytest.raises(openai.APIError, match="broke off"):
            list(client.chat.completions.create(model="m", messages=messages, stream=True))
