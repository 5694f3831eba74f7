"""Owns kinds of thought that a client or the settings of a model ask for, in a format that has a flag for each."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

import turnscript as ts
from tests.gateway.stage import Stage, Told, answer, body_of
from turnscript.core.conversation import text_content
from turnscript.gateway.headers import REPORT
from turnscript.gateway.nearness import sentences

APIS = [ts.get_api(name) for name in ("openai-chat", "openai-responses", "anthropic-messages")]
EVERY_API = pytest.mark.parametrize("api", APIS, ids=lambda api: str(api.name))
ALL = ["reflect", "introspect", "reason"]
FLAGS = "".join(f"<|{kind}|>" for kind in ALL)
THOUGHTS = "Why?<|end_reflect|>\n<|start_introspect|>Calm.<|end_introspect|>\n<|start_reason|>So.<|end_reason|>\nHi."


@pytest.fixture(scope="module")
def stage() -> Iterator[Stage]:
    """A model whose settings ask for nothing."""
    with Stage(format_="openchatml") as made:
        yield made


@pytest.fixture(scope="module")
def asking() -> Iterator[Stage]:
    """A model whose settings ask for one kind."""
    with Stage(model={"thoughts": ("reflect",)}, format_="openchatml") as made:
        yield made


def ask(stage: Stage, api: Any, **members: Any) -> Told:
    """What a client is told."""
    return stage.post(api, body_of(api, stream=False, **members))


def prompt(stage: Stage) -> str:
    """The prompt that the model has got."""
    return str(stage.asks[0][0].json["prompt"])


def lost(stage: Stage, told: Told) -> list[str]:
    """The places of what was lost."""
    return [loss["path"] for loss in stage.client.get(told.headers[REPORT]).json()["losses"]]


@EVERY_API
def test_a_request_asks_for_kinds_of_thought(stage: Stage, api: Any) -> None:
    stage.play(answer("Hi."))
    told = ask(stage, api, thoughts=ALL)
    assert "Hi." == told.text
    assert prompt(stage).startswith(f"<|im_start|>system\n{FLAGS}\n<|im_end|>\n")
    assert prompt(stage).endswith("<|im_start|>assistant\n")
    assert "$.thoughts" not in lost(stage, told)


def test_a_thought_that_is_opened_is_of_the_first_kind(stage: Stage) -> None:
    stage.play(answer(*THOUGHTS))
    told = ask(stage, APIS[2], thoughts=ALL, thinking={"type": "enabled", "budget_tokens": 40}, limit=60)
    assert prompt(stage).endswith("<|im_start|>assistant\n<|start_reflect|>")
    thoughts = [text_content(item.content) for item in told.items if isinstance(item, ts.Thinking)]
    assert (["Why?", "Calm.", "So."], "Hi.") == (thoughts, told.text)


def test_a_thought_without_tokens_left_is_ended_in_its_own_words(stage: Stage) -> None:
    stage.play(answer("They ask " * 40, "and", finish="length"), answer("\nHi."))
    told = ask(stage, APIS[2], thoughts=["reflect"], thinking={"type": "enabled", "budget_tokens": 9}, limit=60)
    assert "Hi." == told.text
    assert stage.asks[0][1].json["prompt"].endswith("<|end_reflect|>")


@pytest.mark.parametrize(
    ("members", "flags"),
    [
        ({}, "<|reflect|>"),
        ({"thoughts": ["reason"]}, "<|reason|>"),
        ({"thoughts": []}, ""),
        ({"reasoning_effort": "high"}, "<|reflect|><|reason|>"),
        ({"reasoning_effort": "none"}, ""),
    ],
    ids=str,
)
def test_the_settings_ask_where_the_request_does_not(asking: Stage, members: dict[str, Any], flags: str) -> None:
    asking.play(answer("Hi."))
    ask(asking, APIS[0], **members)
    system = f"<|im_start|>system\n{flags}\n<|im_end|>\n" if flags else ""
    assert prompt(asking).startswith(f"{system}<|im_start|>user")


def test_a_kind_that_is_none_is_a_loss_and_what_is_no_list_an_error(stage: Stage) -> None:
    stage.play(answer("Hi."))
    assert "$.thoughts[1]" in lost(stage, ask(stage, APIS[0], thoughts=["reason", "dream"]))
    refused = ask(stage, APIS[0], thoughts="reason")
    assert (400, "$.thoughts") == (refused.status, json.loads(refused.body)["error"]["param"])


def test_another_format_says_that_it_has_no_flags() -> None:
    with Stage(model={"thoughts": ("reason",)}, format_="rwkv-goose") as stage:
        stage.play(answer("Hi."))
        assert "$.thoughts" in lost(stage, ask(stage, APIS[0], thoughts=["reason"]))
        assert "$.thoughts" not in lost(stage, ask(stage, APIS[0]))
        told = sentences(stage.config.models[0])
        assert "thoughts: the format rwkv-goose has no flag for reason; it has none" in told
