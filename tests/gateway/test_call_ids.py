"""Calls have ids of their own for a client, and those that its model wrote in the prompt."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnscript.conversation import Request, ToolCall, ToolResult, User
from turnscript.events import Event, PartEnd, PartStart
from turnscript.gateway.callids import CallIds, Unrepeated, without_marks

IDS = st.lists(st.sampled_from(["call_001", "call_001_again2", "a", "b"]), max_size=6)


def said(*ids: str | None) -> list[Event]:
    """The events of calls with these ids."""
    events: list[Event] = []
    for index, id_ in enumerate(ids):
        events += [PartStart(index, ToolCall(name="f", id=id_)), PartEnd(index, ToolCall(name="f", id=id_))]
    return events


def ids_of(events: list[Event]) -> list[str | None]:
    return [event.part.id for event in events if isinstance(event, PartEnd) and isinstance(event.part, ToolCall)]


def conversation(*ids: str) -> Request:
    request = Request()
    for id_ in ids:
        request.items.extend([ToolCall(name="f", id=id_), ToolResult(id=id_, name="f")])
    return request


def test_a_call_without_an_id_gets_one_that_stays() -> None:
    told = CallIds().feed(said(None, "mine", None))
    parts = [event.part for event in told if isinstance(event, PartStart | PartEnd)]
    starts, ends = parts[::2], parts[1::2]
    assert starts == ends
    first, second, third = ids_of(told)
    assert "mine" == second
    assert first is not None
    assert first.startswith("call_")
    assert first != third


def test_an_id_that_was_there_before_is_marked_and_one_that_was_not_is_not() -> None:
    stage = Unrepeated(conversation("call_001"))
    assert ["call_001_again2", "call_002"] == ids_of(stage.feed(said("call_001", "call_002")))


def test_the_same_id_twice_in_one_answer_is_told_apart() -> None:
    assert ["x", "x_again2", "x_again3"] == ids_of(Unrepeated(Request()).feed(said("x", "x", "x")))


@given(before=IDS, now=IDS)
def test_all_ids_that_a_client_sees_are_its_own_and_come_back_as_the_model_wrote_them(
    before: list[str], now: list[str]
) -> None:
    stage = Unrepeated(conversation(*before))
    told = ids_of(stage.feed(said(*now)))
    assert len(now) == len({*told} - set(before))
    back = without_marks(conversation(*[id_ for id_ in told if id_ is not None]))
    assert now == [item.id for item in back.items if isinstance(item, ToolCall)]
    assert now == [item.id for item in back.items if isinstance(item, ToolResult)]


@pytest.mark.parametrize("id_", ["call_001", "again2", "toolu_again", ""])
def test_an_id_without_a_mark_stays_as_it_is(id_: str) -> None:
    request = conversation(id_)
    request.items.append(User())
    assert request is without_marks(request)
