"""Owns the law of numbers: a choice keeps the index that its server gave it, in whatever order the list has them."""

from __future__ import annotations

from typing import Any

import pytest

import turnscript as ts

INDEXES = ([0], [0, 1], [1, 0], [0, 2], [2, 0, 1], [3], [1, 2], [0, 0])


def chat(indexes: list[int]) -> dict[str, Any]:
    choices = [
        {"index": index, "message": {"role": "assistant", "content": f"at {place}"}, "finish_reason": "stop"}
        for place, index in enumerate(indexes)
    ]
    return {"object": "chat.completion", "model": "m", "choices": choices}


def texts(indexes: list[int | None]) -> dict[str, Any]:
    choices = [
        {"text": f"at {place}", "finish_reason": "stop"} | ({} if index is None else {"index": index})
        for place, index in enumerate(indexes)
    ]
    return {"object": "text_completion", "model": "m", "choices": choices}


def said(response: ts.Response) -> str:
    return "".join(part.text for item in response.items for part in getattr(item, "content", []))


@pytest.mark.parametrize("indexes", INDEXES, ids=str)
def test_choices_are_written_with_the_indexes_that_they_had(indexes: list[int]) -> None:
    written = ts.convert(chat(indexes), "openai-chat", "openai-chat", side="response")
    assert [(index, f"at {place}") for place, index in enumerate(indexes)] == [
        (choice["index"], choice["message"]["content"]) for choice in written.value["choices"]
    ]


@pytest.mark.parametrize("indexes", [*INDEXES, [None], [None, None]], ids=str)
def test_the_first_answer_is_that_of_the_first_choice(indexes: list[int | None]) -> None:
    body = texts(indexes)
    response = ts.parse_response(body, "openai-completions")
    assert "at 0" == said(response) == said(ts.parse_exchange(body, "openai-completions").response)
    assert "stop" == response.finish_reason
    issues = [f"there are {len(indexes)} choices; only $.choices[0] is read"] if len(indexes) > 1 else []
    assert issues == [issue.detail for issue in response.issues]
    chosen = ts.parse_response(chat([index or 0 for index in indexes]), "openai-chat")
    assert "at 0" == said(chosen)
    assert issues == [issue.detail for issue in chosen.issues]
