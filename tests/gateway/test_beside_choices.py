"""Owns the law of what stands beside a tool choice: the gateway tells what of it has no effect, as conversions do."""

from typing import Any

import pytest

import turnscript as ts
from turnscript.gateway.hygiene import unread
from turnscript.gateway.offers import Offering, offer

FUNCTION = {"name": "f", "parameters": {"type": "object"}}
CHAT: dict[str, Any] = {
    "messages": [{"role": "user", "content": "Hi"}],
    "tools": [{"type": "function", "function": FUNCTION}],
}
RESPONSES: dict[str, Any] = {"input": "Hi", "tools": [{"type": "function", **FUNCTION}]}
MESSAGES: dict[str, Any] = {
    "max_tokens": 9,
    "messages": [{"role": "user", "content": "Hi"}],
    "tools": [{"name": "f", "input_schema": {"type": "object"}}],
}
BODIES = {"openai-chat": CHAT, "openai-responses": RESPONSES, "anthropic-messages": MESSAGES}
ONE = {"disable_parallel_tool_use": True}


def told(api: str, choice: Any) -> list[str]:
    """The paths below the choice that the gateway reports of it."""
    request = ts.parse(BODIES[api] | {"tool_choice": choice}, api)
    losses = [*unread(request, ("tool_choice",)), *offer(request, ts.get_format("rwkv-universal"), Offering()).losses]
    return [loss.path for loss in losses if loss.path.startswith("$.tool_choice")]


@pytest.mark.parametrize("api", ["openai-chat", "openai-responses"])
@pytest.mark.parametrize("word", ["auto", "any", "none"])
def test_a_member_in_the_words_of_another_api_is_told(api: str, word: str) -> None:
    assert ["$.tool_choice.disable_parallel_tool_use"] == told(api, {"type": word} | ONE)
    assert [] == told(api, {"type": word})


@pytest.mark.parametrize("nothing", [None, False, "", [], {}])
def test_a_member_that_says_nothing_is_not(nothing: Any) -> None:
    for api in ("openai-chat", "openai-responses"):
        assert [] == told(api, {"type": "auto", "disable_parallel_tool_use": nothing})


def test_where_the_member_is_known_nothing_is_lost() -> None:
    for choice in ({"type": "auto"}, {"type": "any"}, {"type": "tool", "name": "f"}):
        assert [] == told("anthropic-messages", choice | ONE)
        assert ["$.tool_choice.mood"] == told("anthropic-messages", choice | ONE | {"mood": "good"})


def test_what_stands_beside_the_name_of_a_tool_is_told_at_its_place() -> None:
    chat = {"type": "function", "function": {"name": "f", "y": 1}, "x": 2}
    assert ["$.tool_choice.x", "$.tool_choice.function.y"] == told("openai-chat", chat)
    assert ["$.tool_choice.x"] == told("openai-responses", {"type": "function", "name": "f", "x": 2})


@pytest.mark.parametrize("api", BODIES)
def test_the_gateway_tells_what_a_conversion_tells(api: str) -> None:
    choice = {"type": "auto", "mood": "good"} | ({} if api == "anthropic-messages" else ONE)
    other = "openai-chat" if api == "anthropic-messages" else "anthropic-messages"
    converted = ts.convert(BODIES[api] | {"tool_choice": choice}, api, other).losses
    paths = [loss.path for loss in converted if loss.path.startswith("$.tool_choice")]
    assert sorted(paths) == sorted(told(api, choice))
