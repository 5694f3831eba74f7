"""Owns members of Chat messages that are there and empty, as some servers write them into every answer."""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest

import turnscript as ts

EMPTY_SOUND = {"id": "", "data": "", "expires_at": 0, "transcript": ""}
EMPTY: list[dict[str, Any]] = [
    {"refusal": ""},
    {"audio": {}},
    {"audio": EMPTY_SOUND},
    {"refusal": "", "audio": {"id": "", "data": None}},
]
OTHERS = ["openai-responses", "anthropic-messages", "rwkv-goose", "batuta-chatml"]


def asked(**members: Any) -> dict[str, Any]:
    answer = {"role": "assistant", "content": "Ho", **members}
    return {"model": "m", "messages": [{"role": "user", "content": "Hi"}, answer, {"role": "user", "content": "A"}]}


def answered(reason: str = "stop", **members: Any) -> dict[str, Any]:
    message = {"role": "assistant", "content": "Ho", **members}
    choice = {"index": 0, "message": message, "finish_reason": reason}
    return {"id": "c", "object": "chat.completion", "created": 1, "model": "m", "choices": [choice]}


@pytest.mark.parametrize(("empty", "name"), list(product(EMPTY, OTHERS)))
def test_what_is_empty_and_sent_back_says_nothing(empty: dict[str, Any], name: str) -> None:
    """As Snowflake's Cortex writes it, and its clients send it back."""
    body = asked(**empty)
    made, plain = ts.convert(body, "openai-chat", name), ts.convert(asked(), "openai-chat", name)
    assert plain.value == made.value
    assert plain.losses == made.losses
    assert body == ts.convert(body, "openai-chat", "openai-chat", strict=True).value


@pytest.mark.parametrize(("empty", "name"), list(product(EMPTY, OTHERS[:2])))
def test_nor_does_it_in_an_answer(empty: dict[str, Any], name: str) -> None:
    made, plain = (ts.convert(one, "openai-chat", name, side="response") for one in (answered(**empty), answered()))
    assert plain.value == made.value
    assert plain.losses == made.losses


def test_what_is_not_empty_says_something() -> None:
    for said in ({"refusal": "no"}, {"audio": {"id": "a"}}, {"audio": EMPTY_SOUND | {"id": "a"}}):
        made = ts.convert(asked(**said), "openai-chat", "anthropic-messages")
        assert any(loss.path.startswith("$.messages[1].") for loss in made.losses)


def test_a_sound_without_its_id_is_an_error() -> None:
    with pytest.raises(ts.InvalidRequest) as raised:
        ts.parse(asked(audio={"data": "AAAA"}), "openai-chat")
    assert "$.messages[1].audio.id" == raised.value.path


def test_an_empty_reason_is_none() -> None:
    """Nobody knows why the answer ended, and who makes up a reason says so."""
    made = ts.convert(answered(reason=""), "openai-chat", "openai-chat", side="response")
    assert "stop" == made.value["choices"][0]["finish_reason"]
    assert [("$.choices[0].finish_reason", "invented")] == [(loss.path, loss.kind) for loss in made.losses]
