"""Owns the test that the id of a file is reported where it goes to a provider that did not give it."""

from __future__ import annotations

from typing import Any

import pytest

import turnscript as ts

PARTS: dict[str, list[dict[str, Any]]] = {
    "openai-chat": [{"type": "file", "file": {"file_id": "file-1"}}],
    "openai-responses": [{"type": "input_file", "file_id": "file-1"}, {"type": "input_image", "file_id": "file-2"}],
    "anthropic-messages": [
        {"type": "document", "source": {"type": "file", "file_id": "file_1"}},
        {"type": "image", "source": {"type": "file", "file_id": "file_2"}},
    ],
}


@pytest.mark.parametrize("target", PARTS)
@pytest.mark.parametrize("source", PARTS)
def test_the_id_of_a_file_is_known_to_its_provider_alone(source: str, target: str) -> None:
    member = "input" if source == "openai-responses" else "messages"
    body = {"model": "m", "max_tokens": 9, member: [{"role": "user", "content": PARTS[source]}]}
    losses = ts.convert(body, source, target).losses
    told = [loss.path for loss in losses if loss.kind == "approximated" and "file id" in loss.detail]
    crossed = source.split("-", maxsplit=1)[0] != target.split("-", maxsplit=1)[0]
    count = 1 if target == "openai-chat" else len(PARTS[source])  # which has no place for the id of a picture
    assert [f"$.{member}[0].content[{index}]" for index in range(count if crossed else 0)] == told
