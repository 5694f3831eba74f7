"""Owns what an answer counts where the model was stopped and asked to go on: its prompt, and nothing of it twice."""

from __future__ import annotations

from typing import Any

import pytest

from tests.gateway.scripted import END, Script, sse
from tests.gateway.stage import CHATS, WEATHER, Stage, Told, named, piece, text_of_call
from turnscript.api import Api
from turnscript.registry import get_api

MESSAGES = get_api("anthropic-messages")
BUDGET = 1024
THINKING: dict[str, Any] = {"thinking": {"type": "enabled", "budget_tokens": BUDGET}}
QUESTION = "Why is it? " * 30
READ = 100
"""Tokens of the question's prompt."""


def used(read: int, written: int, cached: int = 0) -> Any:
    details = {"prompt_tokens_details": {"cached_tokens": cached}}
    return {"usage": {"prompt_tokens": read, "completion_tokens": written, **details}}


def thought(*, counted: bool) -> Script:
    """A thought that does not end by itself. `counted`: by a server that counts with each piece."""
    pieces = [piece(" hmm", **(used(READ, at + 1, 40) if counted else {})) for at in range(1100)]
    return sse(*pieces, "[DONE]", end=(END,))


def rest(read: int, text: str = "\n\n<<ASSISTANT>>\nThe answer.\n<<ASSISTANT_END>>") -> Script:
    """What the model writes then, of a server that has read all of that before and remembers it."""
    return sse(piece(text), piece("", "stop", **used(read, 8, read - 1)), "[DONE]", end=(END,))


def ask(stage: Stage, *, stream: bool = False, text: str = QUESTION, **more: Any) -> Told:
    return stage.ask(MESSAGES, stream=stream, text=text, limit=2000, **more)


@pytest.mark.parametrize("stream", [True, False], ids=["stream", "whole"])
@pytest.mark.parametrize("counted", [True, False])
def test_a_thought_that_was_ended_is_not_counted_as_input(stream: bool, counted: bool) -> None:
    with Stage() as stage:
        stage.play(thought(counted=counted), rest(READ + BUDGET))
        told = ask(stage, stream=stream, **THINKING)
        assert "The answer." == told.text.strip()
        assert 2 == len(stage.asks[0])
        assert told.usage is not None
        assert READ if counted else pytest.approx(READ, rel=0.3) == told.usage.input
        assert told.usage.cached <= told.usage.input
        assert not counted or 40 == told.usage.cached
        assert BUDGET < told.usage.output


def test_nothing_is_learnt_from_a_prompt_with_a_thought_behind_it() -> None:
    words = "word " * 2000
    with Stage(model={"context": 8192}) as stage:
        for _ in range(8):
            stage.play(thought(counted=False), rest(READ + BUDGET))
            assert 200 == ask(stage, **THINKING).status
        stage.play(rest(2000, "Hello\n<<ASSISTANT_END>>"))
        assert 200 == ask(stage, text=words).status


@pytest.mark.parametrize("api", CHATS, ids=named)
def test_what_was_kept_before_a_call_that_is_made_again_is_no_input(api: Api) -> None:
    before = "I look it up. " * 100
    bad, good = (text_of_call(city) for city in ("Rome", "Paris"))
    with Stage(policy={"invalid_calls": "retry"}) as stage:
        wrong = piece(f"{before}\n{bad.replace('city', 'town')}", **used(READ, 400))
        stage.play(sse(wrong, "[DONE]", end=(END,)), rest(READ + 400, f"\n{good}"))
        told = stage.ask(api, stream=False, text=QUESTION, tools=[WEATHER], limit=2000)
        assert 2 == len(stage.asks[0])
        assert ['{"city": "Paris"}'] == [call.arguments for call in told.calls]
        assert told.usage is not None
        assert READ == told.usage.input
