"""Owns the table of efforts and budgets: what becomes of how much to think in another API, and that it is told."""

from __future__ import annotations

from typing import Any

import pytest

import turnscript as ts

OPENAI = ["openai-chat", "openai-responses"]
MESSAGES: dict[str, Any] = {
    "model": "m",
    "max_tokens": 99_999,
    "messages": [{"role": "user", "content": [{"type": "text", "text": "Hi"}]}],
}
EFFORTS = {
    "none": ({"thinking": {"type": "disabled"}}, ["approximated"]),
    "minimal": ({"output_config": {"effort": "low"}}, ["approximated"]),
    **{word: ({"output_config": {"effort": word}}, []) for word in ("low", "medium", "high", "xhigh", "max")},
}
BUDGETS = {1024: "low", 2047: "low", 2048: "medium", 8191: "medium", 8192: "high", 24_575: "high", 24_576: "xhigh"}


def asking(api: str, effort: str) -> dict[str, Any]:
    """A body of one of OpenAI's APIs that asks for an effort."""
    if api == "openai-chat":
        return {"model": "m", "messages": [{"role": "user", "content": "Hi"}], "reasoning_effort": effort}
    return {"model": "m", "input": "Hi", "reasoning": {"effort": effort}}


def effort_of(body: dict[str, Any]) -> Any:
    """The effort that a body of one of OpenAI's APIs asks for."""
    return body.get("reasoning_effort", body.get("reasoning", {}).get("effort"))


def told(thinking: dict[str, Any], api: str, **members: Any) -> tuple[Any, list[tuple[str, str]]]:
    """The effort that a thinking mode becomes, and the losses."""
    rendered = ts.convert(MESSAGES | {"thinking": thinking} | members, "anthropic-messages", api)
    return effort_of(rendered.value), [(loss.path, loss.kind) for loss in rendered.losses]


@pytest.mark.parametrize("effort", EFFORTS)
@pytest.mark.parametrize("api", OPENAI)
def test_an_effort_is_the_same_word_or_told_as_another(api: str, effort: str) -> None:
    rendered = ts.convert(asking(api, effort), api, "anthropic-messages")
    members, kinds = EFFORTS[effort]
    found = {name: value for name, value in rendered.value.items() if name in ("thinking", "output_config")}
    assert members == found
    assert kinds == [loss.kind for loss in rendered.losses if "effort" in loss.path]
    (other,) = {*OPENAI} - {api}
    assert effort == effort_of(ts.convert(asking(api, effort), api, other, strict=True).value)


@pytest.mark.parametrize("effort", [word for word, (_, kinds) in EFFORTS.items() if not kinds])
@pytest.mark.parametrize("api", OPENAI)
def test_an_effort_comes_back(api: str, effort: str) -> None:
    body = MESSAGES | {"output_config": {"effort": effort}}
    assert effort == effort_of(ts.convert(body, "anthropic-messages", api, strict=True).value)


@pytest.mark.parametrize("budget", BUDGETS)
@pytest.mark.parametrize("api", OPENAI)
def test_a_budget_is_the_nearest_effort_and_told_as_that(api: str, budget: int) -> None:
    thinking = {"type": "enabled", "budget_tokens": budget}
    assert (BUDGETS[budget], [("$.thinking", "approximated")]) == told(thinking, api)


@pytest.mark.parametrize("api", OPENAI)
def test_other_modes_are_no_effort(api: str) -> None:
    assert ("none", [("$.thinking", "approximated")]) == told({"type": "disabled"}, api)
    for mode in ("adaptive", "between_tools"):
        assert (None, [("$.thinking", "dropped")]) == told({"type": mode}, api)


@pytest.mark.parametrize("api", OPENAI)
def test_an_effort_goes_before_a_budget(api: str) -> None:
    thinking = {"type": "enabled", "budget_tokens": 2000}
    found = told(thinking, api, output_config={"effort": "xhigh"})
    assert ("xhigh", [("$.thinking", "dropped")]) == found
