"""Owns the law of SDKs: of random answers they tell what was told, whole and streamed, in any pieces, over any API."""

from __future__ import annotations

from copy import deepcopy

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from tests.answers.answer import Answer, Asked
from tests.answers.seen import seen, without_made_up_ids
from tests.answers.test_agreement import ask_stream, check_stream
from tests.answers.verdict import Sdk
from tests.answers.wanted import wanted
from tests.answers.wires import APIS, Server, stream, whole
from tests.loopback import JSON
from tests.strategies import events as drawn
from turnscript.core.conversation import Refusal, Response, ToolCall
from turnscript.core.events import Event, MessageEnd, PartDelta, PartEnd, PartStart, fold

KINDS = ("text", "texts", "thinking", "call", "refusal", "custom", "idless")


def few() -> settings:
    """A tenth of the examples of the profile in use: each is asked of two SDKs, whole and in two sorts of pieces."""
    assert settings.default is not None
    quiet = [HealthCheck.function_scoped_fixture]  # the SDKs themselves are made once
    return settings(max_examples=max(1, settings.default.max_examples // 10), suppress_health_check=quiet)


def ending_of(response: Response) -> str:
    """The row of the table of endings."""
    if response.finish_reason == "length":
        return "max tokens"
    if response.finish_reason == "content_filter":
        return "filter"
    if any(isinstance(item, ToolCall) for item in response.items):
        return "tool calls (complete)"
    if response.stop_sequence is not None:
        return "client stop string"
    return "natural end"


def declines(response: Response) -> bool:
    """Whether it declines in words, which one API says as the reason."""
    return any(isinstance(part, Refusal) for item in response.items for part in getattr(item, "content", ()))


def answer_of(events: list[Event]) -> Answer:
    """The events as an answer to a client that named every stop string."""
    response = fold(events)
    ending = ending_of(response)
    if ending in ("natural end", "client stop string") and declines(response):
        ending = "refusal in words" if ending == "natural end" else ending
    asked = Asked(stop=drawn.STOPS)
    return Answer(name="drawn", steps=lambda: [*deepcopy(events)], covers=(), ending=ending, asked=asked)


HALF: list[Event] = [
    PartStart(0, ToolCall(name="get_weather", arguments="", id="call_cut"), ""),
    PartDelta(0, " {", ""),
    PartEnd(0, None, ""),
    MessageEnd("length", None, None, [], ""),
]
"""A call that the limit cuts behind white space and the brace of its arguments."""


@pytest.mark.parametrize("wire", APIS)
@few()
@given(events=drawn.event_lists(KINDS), size=st.integers(1, 2000))
@example(events=HALF, size=1)
def test_random_answers_are_told_as_they_were(
    sdk: Sdk, server: Server, wire: str, events: list[Event], size: int
) -> None:
    answer = answer_of(events)
    data = stream(wire, answer)
    for pieces in (0, max(size, len(data) // 800)):
        check_stream(sdk, wire, answer, ask_stream(sdk, server, wire, data, pieces))
    status, body = whole(wire, answer)
    server.serve(body, 0, JSON, status)
    expected = wanted(wire, answer, streamed=False)
    assert expected == without_made_up_ids(seen(wire, sdk.ask(wire, server), streamed=False), expected)
