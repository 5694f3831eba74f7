"""Owns summaries that a client brings along from Anthropic's servers: the model goes on from the last of them."""

from __future__ import annotations

import json
from typing import Any

import pytest

import turnscript as ts
from tests.gateway.stage import Stage, answer
from turnscript.gateway.compacting import SUMMARY
from turnscript.gateway.headers import REPORT

API = ts.get_api("anthropic-messages")


def summary(text: str | None, **more: Any) -> dict[str, Any]:
    return {"type": "compaction", "content": text, **more}


def asked(stage: Stage, *turns: tuple[str, Any]) -> tuple[str, list[str]]:
    """The prompt for a conversation, and the paths of what was lost."""
    stage.play(answer("Sunny."))
    said = [{"role": role, "content": content} for role, content in turns]
    body = {"model": "m", "max_tokens": 9, "system": "Be brief.", "messages": said}
    told = stage.post(API, json.dumps(body).encode())
    report = stage.client.get(told.headers[REPORT]).json()
    [one] = stage.asks[0]
    return str(one.json["prompt"]), [loss["path"] for loss in report["losses"]]


def test_the_model_reads_a_summary_in_the_place_of_what_was_before_it(stage: Stage) -> None:
    kept = [summary("The city is Paris."), {"type": "text", "text": "Go on."}]
    prompt, lost = asked(stage, ("user", "Long ago"), ("assistant", kept), ("user", "And now?"))
    assert [] == lost
    assert f"{SUMMARY}The city is Paris." in prompt
    assert prompt.index("Be brief.") < prompt.index("Paris") < prompt.index("Go on.") < prompt.index("And now?")
    assert "Long ago" not in prompt


def test_of_several_summaries_the_last_one_counts(stage: Stage) -> None:
    first, second = ([summary(f"It was {city}.", signature="s")] for city in ("Paris", "Rome"))
    prompt, _ = asked(stage, ("assistant", first), ("user", "Long ago"), ("assistant", second), ("user", "And now?"))
    assert "It was Rome." in prompt
    assert "Paris" not in prompt
    assert "Long ago" not in prompt


@pytest.mark.parametrize("nothing", [summary(None), summary(None, encrypted_content="e"), {"type": "compaction"}])
def test_a_summary_that_says_nothing_stands_for_nothing(nothing: dict[str, Any], stage: Stage) -> None:
    prompt, lost = asked(stage, ("user", "Long ago"), ("assistant", [nothing]), ("user", "And now?"))
    assert ["$.messages[1].content[0]"] == lost
    assert "Long ago" in prompt


def test_a_later_summary_that_failed_leaves_the_one_before_it(stage: Stage) -> None:
    turns: list[tuple[str, Any]] = [("assistant", [summary("It was Rome.")]), ("user", "Since then")]
    prompt, _ = asked(stage, *turns, ("assistant", [summary(None)]), ("user", "And now?"))
    assert prompt.index("It was Rome.") < prompt.index("Since then") < prompt.index("And now?")
