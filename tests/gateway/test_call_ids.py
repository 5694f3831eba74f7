"""Calls have ids of their own for a client, and those that its model wrote in the prompt."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.gateway.stage import CHATS, WEATHER, Stage, answer, named
from turnscript.apis.api import Api
from turnscript.core.call_pairing import legal_id
from turnscript.core.conversation import Conversation, Request, Text, ToolCall, ToolResult, User, calls
from turnscript.core.events import Event, PartEnd, PartStart
from turnscript.gateway.config import Config
from turnscript.gateway.naming import CallIds, Unrepeated, without_marks

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


NUMBERED = "kimi"
"""A format with ids that not every API takes as they are."""
CALL = (
    "<|tool_calls_section_begin|><|tool_call_begin|>functions.get_weather:0<|tool_call_argument_begin|>{}"
    "<|tool_call_end|><|tool_calls_section_end|>"
)


def as_given(api: Api, request: Request) -> bytes:
    """The body of a client, which sends ids as it got them; this package's writer spells again what looks spelled."""
    body = msgspec.json.encode(api.render_request(request).value).decode()
    for call in calls(request.items):
        body = body.replace(f'"{legal_id(call.id or "")}"', f'"{call.id}"')
    return body.encode()


class NumberedStage(Stage):
    """A gateway of such a model."""

    def configured(self, urls: Sequence[str]) -> Config:
        return Config.for_backend(urls[0], NUMBERED, **self._model)


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("api", CHATS, ids=named)
def test_ids_that_an_api_does_not_take_come_back_as_the_model_wrote_them(api: Api, stream: bool) -> None:
    request = Request(conversation=Conversation(items=[User(content=[Text(text="?")])], tools=[WEATHER]))
    request.settings.model, request.settings.max_tokens, request.settings.stream = "m", 64, stream
    seen: set[str | None] = set()
    with NumberedStage() as stage:
        for _ in range(3):
            stage.play(answer(CALL))
            [call] = stage.post(api, as_given(api, request)).calls
            assert call.id not in seen
            seen.add(call.id)
            request.items.extend([call, ToolResult(id=call.id, name=call.name, content=[Text(text="r")])])
        prompt = stage.asks[0][0].json["prompt"]
    assert 2 == prompt.count(f"{CALL}<|im_end|><|im_system|>tool<|im_middle|>## Return of functions.get_weather:0\nr")
