"""Owns answers of one text, as most are: what else an item says is written or lost, and half a character is refused."""

from __future__ import annotations

from typing import Any

import pytest

from turnscript.apis.api import Reply
from turnscript.convert import registry
from turnscript.core.conversation import Assistant, Request, Response, Text
from turnscript.core.conversation import Usage as Counts
from turnscript.core.errors import InvalidConversation

NAMES = ("openai-chat", "anthropic-messages", "openai-responses")
EACH = pytest.mark.parametrize("name", NAMES)


@EACH
@pytest.mark.parametrize(
    "more",
    [
        {"name": "n"},
        {"id": "i"},
        {"phase": "commentary"},
        {"content": []},
        {"content": [Text(text="a"), Text(text="b")]},
    ],
)
def test_what_else_an_item_says_is_written_or_lost(name: str, more: dict[str, Any]) -> None:
    api, reply = registry.get_api(name), Reply(id="id-1", created=7)
    item = Assistant(**({"content": [Text(text="a")]} | more))
    plain = Response(items=[Assistant(content=[Text(text="a")])], finish_reason="stop", usage=Counts(1, 2))
    other = Response(items=[item], finish_reason="stop", usage=Counts(1, 2))
    first = api.render_response(plain, Request(), reply=reply)
    second = api.render_response(other, Request(), reply=reply)
    assert (first.data, first.losses) != (second.data, second.losses)


@EACH
def test_half_a_character_is_none(name: str) -> None:
    response = Response(items=[Assistant(content=[Text(text="\ud800")])], finish_reason="stop", usage=Counts(1, 2))
    with pytest.raises(InvalidConversation):
        assert registry.get_api(name).render_response(response, Request(), reply=Reply(id="i", created=1)).data
