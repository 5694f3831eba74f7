"""Owns streams that a server ends without saying why, though it says so at other times: they were cut off.

llama-cpp-python does it as soon as somebody else asks: the answer that it is at ends with `[DONE]`, and no reason.
"""

from __future__ import annotations

from typing import Any

import openai
import pytest

from tests.gateway.ailing import Model
from tests.gateway.scripted import Asked, Script, Scripted, said, sse
from tests.gateway.stage import Stage
from tests.gateway.upstreams import ASK, BACKEND, WHOLE, against, pieces_of, text, text_of
from tests.sdks import openai_sdk
from turnscript.backend import Completion, Piece
from turnscript.errors import UpstreamError
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


def test_an_end_without_a_reason_is_none_where_the_server_says_reasons() -> None:
    @against(WITH, WITHOUT, WITHOUT, WITH)
    async def _(server: Scripted, upstream: Upstream) -> None:
        assert "one two" == text_of(await pieces_of(upstream))
        for _ in range(2):
            came, error = await broken(upstream)
            assert "one tw" == came
            assert "broke off before its end" in str(error)
            assert error.retryable
        assert "one two" == text_of(await pieces_of(upstream))
        assert 4 == len(server.asked)


@pytest.mark.parametrize(
    ("before", "ask"),
    [(WITHOUT, ASK), (said(text("a", "stop")), WHOLE), (sse(text("a", ""), "[DONE]"), ASK)],
    ids=["none", "in a whole one", "empty"],
)
def test_an_end_without_a_reason_is_one_where_the_server_never_says_any_in_a_stream(
    before: Script, ask: Completion
) -> None:
    @against(before, WITHOUT)
    async def _(server: Scripted, upstream: Upstream) -> None:
        await pieces_of(upstream, ask)
        assert "one tw" == text_of(await pieces_of(upstream))


def test_a_server_that_is_another_one_now_may_have_other_ways() -> None:
    tells, cards = Model(), [{"id": "a"}, {"id": "b"}]

    def play(asked: Asked) -> Script:
        if asked.line.startswith("GET"):
            return said({"data": [cards.pop(0)]})
        return WITHOUT if len(cards) == 0 else tells(asked)

    @against(play, backend=BACKEND)
    async def _(server: Scripted, upstream: Upstream) -> None:
        assert "a" == (await upstream.facts()).model
        assert await pieces_of(upstream)
        assert await upstream.renew()
        assert "one tw" == text_of(await pieces_of(upstream))


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
