"""Owns efforts that change in the middle of a conversation: what holds, what a prompt shows of it, what is reported."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.gateway.stage import APIS, Stage, Told, answer
from turnscript.gateway.config import Efforts
from turnscript.gateway.headers import REPORT

MESSAGES, RESPONSES = "/v1/messages", "/v1/responses"
PATHS = pytest.mark.parametrize("path", [MESSAGES, RESPONSES])


@pytest.fixture(scope="module")
def stage() -> Iterator[Stage]:
    with Stage(model={"efforts": Efforts(low=10)}) as made:
        yield made


def update(path: str, effort: Any, words: str = "", **more: Any) -> list[dict[str, Any]]:
    """What a client says of the effort."""
    if path == MESSAGES:
        return [{"role": "system", "content": words, "output_config": {"effort": effort, **more}}]
    return [{"type": "configuration_update", "reasoning": {"effort": effort}, **more}]


def ask(stage: Stage, path: str, *turns: Any, effort: str | None = None, **more: Any) -> Told:
    """A conversation of texts of the user, answers in between and updates. `effort`: what the request itself says."""
    stage.play(answer("Sunny."))
    said: list[Any] = []
    for turn in turns:
        said += [{"role": "user", "content": turn}] if isinstance(turn, str) else turn
    if path == MESSAGES:
        config = {"output_config": {"effort": effort}} if effort else {}
        body = {"max_tokens": 100, "messages": said, **config, **more}
    else:
        config = {"reasoning": {"effort": effort}} if effort else {}
        body = {"max_output_tokens": 100, "input": said, **config, **more}
    api = next(api for api in APIS if api.endpoint == path)
    return stage.post(api, json.dumps({"model": "m", **body}).encode())


def losses(stage: Stage, told: Told) -> list[tuple[str, str]]:
    report = stage.client.get(told.headers[REPORT]).json()
    return [(loss["path"], loss["kind"]) for loss in report["losses"]]


def prompt(stage: Stage) -> str:
    [asked] = stage.asks[0]
    return str(asked.json["prompt"])


def thinks(stage: Stage) -> bool:
    """Whether the prompt begins a thought."""
    return "THINK" in prompt(stage)


ANSWERED = [{"role": "assistant", "content": "Rain."}]


@PATHS
@pytest.mark.parametrize("first", [None, "high"])
def test_an_effort_holds_from_where_it_is_said(stage: Stage, path: str, first: str | None) -> None:
    told = ask(stage, path, "?", ANSWERED, update(path, "none"), "And now?", effort=first)
    assert (200, []) == (told.status, losses(stage, told))
    assert not thinks(stage)
    told = ask(stage, path, "?", ANSWERED, update(path, "high"), "And now?", effort=None if first is None else "none")
    assert thinks(stage)


@PATHS
def test_the_last_one_holds(stage: Stage, path: str) -> None:
    turns = ["?", update(path, "high"), "!", ANSWERED, update(path, "none"), "And now?"]
    ask(stage, path, *turns, effort="high")
    assert not thinks(stage)
    ask(stage, path, *turns, update(path, "high"))
    assert thinks(stage)


@PATHS
def test_what_becomes_of_it_is_told_where_it_was_said(stage: Stage, path: str) -> None:
    """An effort is a budget here, which no client has asked for."""
    told = ask(stage, path, "?", update(path, "low"), effort="high")
    place = "$.messages[1]" if path == MESSAGES else "$.input[1]"
    assert [(place, "approximated")] == losses(stage, told)


@PATHS
def test_a_prompt_shows_nothing_of_it(stage: Stage, path: str) -> None:
    """Not even an empty turn: the prompt is the one of the conversation without it."""
    ask(stage, path, "?", ANSWERED, "And now?", effort="high")
    without = prompt(stage)
    ask(stage, path, "?", ANSWERED, update(path, "high"), "And now?", effort="none")
    assert without == prompt(stage)


def test_instructions_beside_it_stay(stage: Stage) -> None:
    told = ask(stage, MESSAGES, "?", update(MESSAGES, "none", "Be brief."), effort="high")
    assert [] == losses(stage, told)
    assert "Be brief." in prompt(stage)
    assert not thinks(stage)


@pytest.mark.parametrize("content", [[], [{"type": "text", "text": ""}], ""])
def test_a_message_without_a_text_is_no_turn(stage: Stage, content: Any) -> None:
    ask(stage, MESSAGES, "?", effort="none")
    without = prompt(stage)
    said = [{"role": "system", "content": content, "output_config": {"effort": "none"}}]
    told = ask(stage, MESSAGES, "?", said, effort="high")
    assert without == prompt(stage)
    assert [] == losses(stage, told)


def test_what_else_an_update_says_is_a_loss(stage: Stage) -> None:
    told = ask(stage, MESSAGES, "?", update(MESSAGES, "none", "Be brief.", task_budget={"total": 5}), effort="high")
    assert [("$.messages[1].output_config.task_budget", "dropped")] == losses(stage, told)
    assert not thinks(stage)
    told = ask(stage, RESPONSES, "?", update(RESPONSES, "none", text={"format": {"type": "text"}}), effort="high")
    assert [("$.input[1]", "dropped")] == losses(stage, told)
    assert not thinks(stage)


@PATHS
@pytest.mark.parametrize("effort", [None, 5])
def test_what_is_no_effort_changes_nothing(stage: Stage, path: str, effort: Any) -> None:
    told = ask(stage, path, "?", update(path, effort, "Be brief."), effort="none")
    assert (200, 1) == (told.status, len(losses(stage, told)))
    assert not thinks(stage)


def test_what_is_kept_has_it_as_it_was(stage: Stage) -> None:
    first = ask(stage, RESPONSES, "?", update(RESPONSES, "none"), effort="high").json
    assert "high" == first["reasoning"]["effort"], "the request's own"
    items = stage.client.get(f"{RESPONSES}/{first['id']}/input_items", params={"order": "asc"}).json()["data"]
    assert update(RESPONSES, "none")[0].items() <= items[1].items()
    ask(stage, RESPONSES, "And now?", effort="high", previous_response_id=first["id"])
    assert not thinks(stage), "it still holds"
