"""Owns answers of one text, which are written at once: they are what the writer of any answer makes of them."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnscript.apis.api import Reply
from turnscript.convert import registry
from turnscript.core.conversation import Assistant, Conversation, Hints, Request, Response, Settings, Text, User
from turnscript.core.conversation import Usage as Counts
from turnscript.core.errors import InvalidConversation

NAMES = ("openai-chat", "anthropic-messages", "openai-responses")
EACH = pytest.mark.parametrize("name", NAMES)

REQUESTS = st.builds(
    lambda settings, said: Request(
        conversation=Conversation(items=[User(content=[Text(text=said)])]), settings=Settings(**settings)
    ),
    st.fixed_dictionaries(
        {},
        optional={
            "model": st.sampled_from(["m", ""]),
            "max_tokens": st.integers(1, 9),
            "temperature": st.sampled_from([0, 1.0, 0.5]),
            "stop": st.sampled_from([["a"], []]),
            "store": st.booleans(),
            "parallel_tool_calls": st.booleans(),
            "user": st.sampled_from(["somebody", ""]),
        },
    ),
    st.text(max_size=3),
)
ANSWERS: Any = st.builds(
    lambda text, reason, counts, model: Response(
        items=[Assistant(content=[Text(text=text)])], finish_reason=reason, usage=counts, model=model
    ),
    st.text(max_size=8),
    st.sampled_from(["stop", "length", "tool_calls", "content_filter", "other", None]),
    st.none() | st.builds(Counts, st.integers(0, 9), st.integers(0, 9), st.integers(0, 9), st.integers(0, 3)),
    st.none() | st.just("its own"),
)
REPLIES = st.builds(
    Reply,
    id=st.just("id-1"),  # without one, it is made of all that the answer holds, hints too
    created=st.none() | st.just(7),
    completed=st.none() | st.just(lambda: 8),
    choice=st.integers(0, 2),
    direct=st.booleans(),
    incomplete_as=st.sampled_from(["incomplete", "completed"]),
)


@EACH
@given(request=REQUESTS, response=ANSWERS, reply=REPLIES)
def test_they_are_written_as_any_other_answer_is(name: str, request: Request, response: Response, reply: Reply) -> None:
    api = registry.get_api(name)
    at_once = api.render_response(response, request, reply=reply)
    response.items[0].hints = Hints()  # which says nothing, and has to be looked at
    thought_about = api.render_response(response, request, reply=reply)
    assert thought_about.data == at_once.data
    assert thought_about.losses == at_once.losses


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
