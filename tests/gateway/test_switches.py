"""Owns switches for thinking that no official API has: what they mean, which counts, and what is reported."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import permutations
from typing import Any

import pytest

import turnscript as ts
from tests.gateway.stage import Stage, answer
from turnscript.gateway.config import Efforts
from turnscript.gateway.headers import REPORT
from turnscript.gateway.thinking import switched

CHAT = ts.get_api("openai-chat")
TURNS = {"messages": [{"role": "user", "content": "Hi"}]}


@pytest.fixture(scope="module")
def stage() -> Iterator[Stage]:
    with Stage(model={"efforts": Efforts(low=10)}) as made:
        yield made


def meant(**members: Any) -> Any:
    """What a request asks for: whether to think, in how many tokens, or with which effort; and where it says so."""
    settings = (made := switched(ts.parse(TURNS | members, CHAT.name))).settings
    if settings.thinking is None:
        return settings.effort, made.paths.get("effort")
    assert settings.effort is None
    return settings.thinking.budget or settings.thinking.mode == "enabled", made.paths["thinking"]


@pytest.mark.parametrize(
    ("members", "wish", "path"),
    [
        ({"chat_template_kwargs": {"enable_thinking": False}}, False, "$.chat_template_kwargs.enable_thinking"),
        ({"chat_template_kwargs": {"enable_thinking": True, "x": 1}}, True, "$.chat_template_kwargs.enable_thinking"),
        ({"chat_template_kwargs": {"thinking": True}}, True, "$.chat_template_kwargs.thinking"),
        ({"chat_template_kwargs": {"reasoning_effort": "low"}}, "low", "$.chat_template_kwargs.reasoning_effort"),
        ({"enable_thinking": False}, False, "$.enable_thinking"),
        ({"enable_thinking": True, "thinking_budget": 50}, 50, "$.thinking_budget"),
        ({"enable_thinking": False, "thinking_budget": 50}, False, "$.enable_thinking"),
        ({"thinking_budget": 0}, False, "$.thinking_budget"),
        ({"thinking_budget": -1}, True, "$.thinking_budget"),
        ({"thinking": {"type": "disabled"}}, False, "$.thinking"),
        ({"thinking": {"type": "enabled"}}, True, "$.thinking"),
        ({"thinking": {"type": "enabled", "budget_tokens": 50}}, 50, "$.thinking"),
        ({"reasoning": {"effort": "high"}}, "high", "$.reasoning.effort"),
        ({"reasoning": {"enabled": True, "effort": "high"}}, "high", "$.reasoning.effort"),
        ({"reasoning": {"enabled": False}}, False, "$.reasoning.enabled"),
        ({"reasoning": {"max_tokens": 50, "exclude": True}}, 50, "$.reasoning.max_tokens"),
    ],
    ids=str,
)
def test_a_switch_is_a_setting(members: dict[str, Any], wish: Any, path: str) -> None:
    assert (wish, path) == meant(**members)


@pytest.mark.parametrize(
    "members",
    [
        {"thinking": {"type": "surprise"}},
        {"thinking": "yes"},
        {"enable_thinking": "no"},
        {"thinking_budget": True},
        {"reasoning": {"effort": None, "enabled": 1}},
        {"reasoning": "high"},
        {"chat_template_kwargs": {"x": 1}},
        {"chat_template_kwargs": [1]},
    ],
    ids=str,
)
def test_what_is_no_switch_stays_as_it_was(members: dict[str, Any]) -> None:
    request = ts.parse(TURNS | members, CHAT.name)
    assert switched(request) is request


def test_what_the_api_itself_has_counts() -> None:
    request = ts.parse(TURNS | {"reasoning_effort": "low", "enable_thinking": False}, CHAT.name)
    assert switched(request) is request


@pytest.mark.parametrize(
    "paths", [*permutations(["$.thinking_budget", "$.reasoning.max_tokens", "$.thinking"])], ids=" ".join
)
def test_of_several_that_say_as_much_the_first_counts(paths: tuple[str, ...]) -> None:
    """So a request means the same in every process."""
    said: dict[str, dict[str, Any]] = {
        "$.thinking_budget": {"thinking_budget": 50},
        "$.reasoning.max_tokens": {"reasoning": {"max_tokens": 60}},
        "$.thinking": {"thinking": {"type": "enabled", "budget_tokens": 70}},
    }
    members = {key: value for path in paths for key, value in said[path].items()}
    assert paths[0] == meant(**members)[1]


def test_the_request_that_is_given_stays() -> None:
    body = TURNS | {"reasoning": {"effort": "high", "exclude": True}, "enable_thinking": True}
    request = ts.parse(body, CHAT.name)
    assert {"exclude": True} == json.loads(bytes(switched(request).extra["reasoning"]))
    assert body == ts.render(request, CHAT.name).value


@pytest.mark.parametrize(
    ("members", "thinks", "lost"),
    [
        ({}, False, []),
        ({"reasoning": {"effort": "xhigh"}}, True, []),
        ({"reasoning": {"effort": "low"}}, True, ["$.reasoning.effort"]),
        ({"thinking": {"type": "enabled"}, "include_reasoning": True}, True, []),
        ({"chat_template_kwargs": {"enable_thinking": True}}, True, []),
        ({"chat_template_kwargs": {"enable_thinking": True, "x": 1}}, True, ["$.chat_template_kwargs"]),
        ({"chat_template_kwargs": {"enable_thinking": False}, "add_generation_prompt": True}, False, []),
        ({"thinking": {"type": "surprise"}}, False, ["$.thinking"]),
    ],
    ids=str,
)
def test_a_model_thinks_where_a_switch_says_so(
    members: dict[str, Any], thinks: bool, lost: list[str], stage: Stage
) -> None:
    stage.play(answer("Sunny."))
    told = stage.post(CHAT, json.dumps({"model": "m", "max_tokens": 100, **TURNS, **members}).encode())
    report = stage.client.get(told.headers[REPORT]).json()
    assert (200, lost) == (told.status, [loss["path"] for loss in report["losses"]])
    [asked] = stage.asks[0]
    assert thinks == ("THINK" in asked.json["prompt"])


@pytest.mark.parametrize("beside", ["1e999", "9" * 5000, "[1.0,  1e5]", '{"a": 1, "a": 2}', '"\\u00e9"'])
def test_what_stands_beside_a_switch_stays_as_it_was_written(beside: str) -> None:
    """Some of it no program can hold: numbers without a double, integers of thousands of digits."""
    for key, switch in (("chat_template_kwargs", "enable_thinking"), ("reasoning", "enabled")):
        body = f'{{"messages": [], "{key}": {{"{switch}": false, "x": {beside}}}}}'
        made = switched(ts.parse(body, CHAT.name))
        assert made.settings.thinking is not None
        assert "disabled" == made.settings.thinking.mode
        assert f'{{"x":{beside}}}' == bytes(made.extra[key]).decode()


def test_of_two_switches_in_one_object_that_say_as_much_the_first_counts() -> None:
    for first, second in permutations(("thinking", "enable_thinking")):
        assert (False, f"$.chat_template_kwargs.{first}") == meant(chat_template_kwargs={first: False, second: False})
