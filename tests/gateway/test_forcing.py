"""Owns what a request forces on a generation: lengths, calls, thoughts, shapes of answers, stops and sampling."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

import turnscript as ts
from tests.strategies import events as told_events
from turnscript.core.conversation import (
    Assistant,
    Conversation,
    Image,
    Refusal,
    Request,
    Response,
    ResponseFormat,
    Settings,
    System,
    Text,
    Thinking,
    ThinkingMode,
    ToolCall,
    ToolChoice,
    User,
)
from turnscript.core.errors import InvalidRequest
from turnscript.core.events import Event, MessageEnd, PartDelta, PartEnd, PartStart, fold
from turnscript.core.json_text import json_of
from turnscript.core.presets import get_preset
from turnscript.gateway.forcing import (
    UNLIMITED,
    Fit,
    OneCall,
    Overflow,
    check_answer,
    choices,
    estimated_tokens,
    fit,
    sampling,
    sampling_of,
    stops,
    structured,
)
from turnscript.gateway.thinking import ThoughtMeter, can_think, closing, plan_thinking

FORMAT = ts.get_format("rwkv-universal")
HI = User(content=[Text(text="Hi")])


def request(*items: Any, **settings: Any) -> Request:
    return Request(conversation=Conversation([*items, HI]), settings=Settings(**settings))


# Length.


@pytest.mark.parametrize(
    ("asked", "prompt", "context", "allowed", "lost", "overflow"),
    [
        (100, 10, 1000, 100, 0, None),
        (990, 10, 1000, 990, 0, None),
        (991, 10, 1000, 990, 1, None),
        (32000, 999, 1000, 1, 1, None),
        (None, 10, 1000, 990, 0, None),
        (None, 10, None, UNLIMITED, 0, None),
        (7, 10, None, 7, 0, None),
        (0, 10, 1000, 0, 0, None),
        (100, 1000, 1000, 0, 0, Overflow(1001, 1000)),
        (None, 5000, 1000, 0, 0, Overflow(5000, 1000)),
    ],
)
def test_what_is_generated_fits_behind_the_prompt(
    asked: int | None, prompt: int, context: int | None, allowed: int, lost: int, overflow: Overflow | None
) -> None:
    found = fit(asked, prompt, context, path="$.max_output_tokens")
    assert (allowed, lost, overflow) == (found.allowed, len(found.losses), found.overflow)
    assert {"$.max_output_tokens"} >= {loss.path for loss in found.losses}


def test_fewer_tokens_than_none_are_an_error_with_a_place() -> None:
    with pytest.raises(ts.InvalidRequest) as caught:
        fit(-1, 1, 10)
    assert "$.max_tokens" == caught.value.path


@given(st.none() | st.integers(0, 10_000), st.integers(0, 10_000), st.integers(1, 10_000))
def test_prompt_and_answer_never_exceed_the_context(asked: int | None, prompt: int, context: int) -> None:
    found: Fit = fit(asked, prompt, context)
    if found.overflow is None:
        assert 0 <= found.allowed <= context - prompt
        assert found.allowed > 0 or asked == 0
    else:
        assert found.overflow.asked > found.overflow.limit == context <= prompt


# One call.


def told(*calls: ToolCall, **more: Any) -> list[Event]:
    items = [Assistant(content=[Text(text="Now.")]), *calls, Assistant(content=[Text(text="Done.")])]
    return told_events.told(Response(items=list(items), finish_reason="stop", **more), told_events.in_pieces(3))


def test_an_answer_ends_behind_its_first_call() -> None:
    one = OneCall()
    response = fold(one.feed(told(ToolCall(name="f", id="1"), ToolCall(name="g", id="2"), stop_sequence="END")))
    assert ["assistant", "tool_call"] == [item.kind for item in response.items]
    assert ("tool_calls", None, True) == (response.finish_reason, response.stop_sequence, one.done)


def test_an_answer_without_a_call_is_whole() -> None:
    one, events = OneCall(), told()
    assert (events, False) == (one.feed(events), one.done)


def test_a_call_that_was_none_does_not_count() -> None:
    events: list[Event] = [PartStart(0, ToolCall(name="f", arguments="")), PartEnd(0, None), *told(ToolCall(name="g"))]
    assert ["assistant", "tool_call"] == [item.kind for item in fold(OneCall().feed(events)).items]


@given(data=st.data(), events=told_events.event_lists(("text", "texts", "call", "thinking", "custom")))
def test_one_call_is_the_same_whole_and_in_pieces(data: st.DataObject, events: list[Event]) -> None:
    expected = OneCall().feed(events)
    one = OneCall()
    assert expected == [event for part in told_events.cut_anywhere(data.draw, events) for event in one.feed(part)]
    calls = [event for event in expected if isinstance(event, PartEnd) and isinstance(event.part, ToolCall)]
    assert len(calls) <= 1
    assert isinstance(expected[-1], MessageEnd)


# Thinking.


@pytest.mark.parametrize(
    ("settings", "opens", "budget", "kinds"),
    [
        ({}, None, None, []),
        ({"effort": "none"}, False, None, []),
        ({"effort": "minimal"}, False, None, []),
        ({"effort": "low"}, True, 2048, ["approximated"]),
        ({"effort": "medium"}, True, 8192, ["approximated"]),
        ({"effort": "high"}, True, 24576, ["approximated"]),
        ({"effort": "xhigh"}, True, None, []),
        ({"effort": "huge"}, True, None, ["dropped"]),
        ({"thinking": ThinkingMode("enabled", 5000)}, True, 5000, []),
        ({"thinking": ThinkingMode("enabled", 5000), "effort": "low"}, True, 5000, ["dropped"]),
        ({"thinking": ThinkingMode("adaptive")}, True, None, []),
        ({"thinking": ThinkingMode("adaptive"), "effort": "high"}, True, 24576, ["approximated"]),
        ({"thinking": ThinkingMode("between_tools")}, True, None, ["approximated"]),
        ({"thinking": ThinkingMode("disabled"), "effort": "high"}, False, None, []),
        ({"effort": "high", "tool_choice": ToolChoice("required")}, False, None, ["approximated"]),
        ({"effort": "high", "tool_choice": ToolChoice("auto")}, True, 24576, ["approximated"]),
    ],
)
def test_mode_budget_and_effort_become_whether_and_how_long_to_think(
    settings: dict[str, Any], opens: bool | None, budget: int | None, kinds: list[str]
) -> None:
    plan = plan_thinking(request(**settings), FORMAT)
    assert (opens, budget, kinds) == (plan.opens, plan.budget, [loss.kind for loss in plan.losses])


@pytest.mark.parametrize("default", [True, False])
def test_what_the_request_does_not_say_is_the_default(default: bool) -> None:
    assert default is plan_thinking(request(), FORMAT, default=default).opens


def test_a_thought_leaves_room_for_an_answer() -> None:
    plan = plan_thinking(request(thinking=ThinkingMode("enabled", 5000)), FORMAT, max_tokens=4000)
    assert (3999, ["approximated"]) == (plan.budget, [loss.kind for loss in plan.losses])


@pytest.mark.parametrize("format_name", ts.formats())
def test_every_format_takes_what_is_planned(format_name: str) -> None:
    format_ = ts.get_format(format_name)
    asked = request(effort="high")
    plan = plan_thinking(asked, format_)
    assert can_think(format_) is plan.opens
    prompt = format_.prompt(asked, thinking=plan.opens)
    thought = [one for one in format_.document.model_turn.segments if one.kind == "thinking"][-1]
    opening = f"{thought.open}{thought.head_end}".strip()
    said = ts.Conversation([*asked.items, Thinking(content=[Text("hm")]), Assistant(content=[Text("Hello")])])
    whole = str(format_.remembering().render(ts.Request(conversation=said)).value)
    behind = whole.rpartition("hm")[2].rpartition("Hello")[0].removeprefix(thought.close)
    begun = next(size for size in range(len(opening), 0, -1) if prompt.text.rstrip().endswith(opening[:size]))
    parser = prompt.parser()
    events = [*parser.feed(f"{opening[begun:]}\n{'hm' * 50}"), *parser.feed(closing(format_))]
    events += [*parser.feed(f"{behind}Hello"), *parser.close()]
    assert ["thinking", "assistant"] == [item.kind for item in fold(events).items]


def thought(text: str, *, ended: bool = False) -> list[Event]:
    events: list[Event] = [PartStart(0, Thinking()), *(PartDelta(0, one) for one in text)]
    return [*events, PartEnd(0, Thinking(content=[Text(text=text)]))] if ended else events


def test_a_thought_is_over_when_its_budget_is_spent() -> None:
    meter = ThoughtMeter(3)
    assert thought("x" * 8) == meter.feed(thought("x" * 8))
    assert (2, False) == (meter.spent, meter.over)
    meter.feed([PartDelta(0, "y")])
    assert (3, True) == (meter.spent, meter.over)


def test_a_thought_that_has_ended_and_a_text_cost_nothing() -> None:
    meter = ThoughtMeter(3)
    meter.feed([*thought("x" * 400, ended=True), PartStart(1, Assistant()), PartDelta(1, "y" * 400)])
    assert (100, False) == (meter.spent, meter.over)
    meter.feed([PartStart(2, Thinking())])
    assert meter.over


def test_without_a_budget_a_thought_is_never_over() -> None:
    meter = ThoughtMeter(None)
    meter.feed(thought("x" * 9999))
    assert not meter.over


def test_long_thoughts_are_counted_piece_by_piece() -> None:
    counted: list[int] = []

    def count(text: str) -> int:
        counted.append(len(text))
        return len(text)

    meter = ThoughtMeter(10**9, count)
    for _ in range(100):
        meter.feed(thought("x" * 500))
        assert not meter.over
    assert 50_000 == meter.spent
    assert sum(counted) < 50_000 * 4


# The shape of the answer.

SHAPE = ResponseFormat("json_schema", name="p", schema=json_of({"type": "object", "required": ["a"]}))


def test_a_shape_is_asked_for_at_the_end_of_the_first_instructions_and_not_enforced() -> None:
    asked = request(
        System(content=[Text(text="Be kind.")]), System(content=[Text(text="Be brief.")]), response_format=SHAPE
    )
    made = structured(asked)
    assert [("$.response_format", "approximated")] == [(loss.path, loss.kind) for loss in made.losses]
    assert "structured output is not enforced" in made.losses[0].detail
    first, second, user = made.request.items
    assert (asked.items[0], HI) == (first, user)
    assert isinstance(second, System)
    (part,) = second.content
    assert isinstance(part, Text)
    assert part.text.startswith("Be brief.\n\n")
    assert part.text.endswith('{"type":"object","required":["a"]}')
    assert "Be brief." == asked.items[1].content[0].text  # type: ignore[attr-defined]


def test_a_shape_without_instructions_makes_some() -> None:
    made = structured(request(response_format=ResponseFormat("json_object")))
    assert ["system", "user"] == [item.kind for item in made.request.items]
    assert made.shape is not None


@pytest.mark.parametrize(
    ("shape", "lost", "changed", "kept"),
    [
        (None, 0, False, False),
        (ResponseFormat("text"), 0, False, False),
        (SHAPE, 1, True, True),
        (ResponseFormat("grammar"), 1, False, False),
    ],
)
def test_what_is_asked_for_is_what_there_is_to_ask(
    shape: ResponseFormat | None, lost: int, changed: bool, kept: bool
) -> None:
    asked = request(response_format=shape)
    made = structured(asked)
    assert (lost, changed, kept) == (len(made.losses), made.request is not asked, made.shape is not None)


def test_a_shape_whose_schema_is_none_is_refused() -> None:
    asked = request(response_format=ResponseFormat("json_schema", schema=json_of(123)))
    with pytest.raises(InvalidRequest, match=r"expected a JSON Schema.*got a number \(123\)") as refused:
        structured(asked)
    assert "$.response_format.schema" == refused.value.path


@pytest.mark.parametrize(
    ("text", "shape", "expected"),
    [
        ('{"a": 1}', SHAPE, []),
        (' {"a": 1}\n', SHAPE, []),
        ("{}", SHAPE, [("schema_mismatch", "$")]),
        ("[]", SHAPE, [("schema_mismatch", "$")]),
        ('```json\n{"a": 1}\n```', SHAPE, [("invalid_json", "$")]),
        ("", SHAPE, [("invalid_json", "$")]),
        ("[]", ResponseFormat("json_object"), [("not_an_object", "$")]),
        ('{"b": 1}', ResponseFormat("json_object"), []),
        ("hello", ResponseFormat("text"), []),
        ("hello", None, []),
        ("1", ResponseFormat("json_schema", schema=json_of({"$ref": "http://x/y"})), [("schema_unusable", "$")]),
        (
            '{"a": "x"}',
            ResponseFormat("json_schema", schema=json_of({"properties": {"a": {"type": "null"}}})),
            [("schema_mismatch", "$.a")],
        ),
        ('{"a": 1, "a": 2}', SHAPE, [("duplicate_key", "$")]),
    ],
)
def test_the_final_answer_is_looked_at(
    text: str, shape: ResponseFormat | None, expected: list[tuple[str, str]]
) -> None:
    half = len(text) // 2
    items: list[Any] = [Thinking(content=[Text(text="{")]), Assistant(content=[Text(text=text[:half])])]
    response = Response(items=[*items, Assistant(content=[Text(text=text[half:])])])
    assert expected == [(finding.kind, finding.path) for finding in check_answer(response, shape)]


def test_an_answer_that_calls_a_tool_is_not_final() -> None:
    assert [] == check_answer(Response(items=[Assistant(content=[Text(text="no")]), ToolCall(name="f")]), SHAPE)


# Stops and sampling.


@pytest.mark.parametrize(
    ("own", "client", "limit", "sent", "lost"),
    [
        (["\n\nUser:"], ["END", "\n\nUser:"], None, ["\n\nUser:", "END"], []),
        (["a", "a"], None, None, ["a"], []),
        (["a"], ["b", "c", "d", "e"], 3, ["a", "b", "c"], []),
        ([], ["", " "], None, [" "], ["$.stop_sequences[0]"]),
    ],
)
def test_a_formats_own_stops_come_first(
    own: list[str], client: list[str] | None, limit: int | None, sent: list[str], lost: list[str]
) -> None:
    found = stops(own, client, limit=limit, path="$.stop_sequences")
    assert (sent, lost) == (found.sent, [loss.path for loss in found.losses])


@pytest.mark.parametrize("client", [["a"] * 257, ["a" * 4_096, "b" * 4_097], ["stop"] * 100_000])
def test_there_is_a_bound_on_stop_strings(client: list[str]) -> None:
    with pytest.raises(ts.InvalidRequest, match="256 stop strings") as caught:
        stops(["\n\nUser:"], client, path="$.stop_sequences")
    assert "$.stop_sequences" == caught.value.path
    assert ["a" * 4_096, "b" * 4_096] == stops([], ["a" * 4_096, "b" * 4_096]).sent
    assert 256 == len(stops([], [str(number) for number in range(256)]).sent)


@pytest.mark.parametrize(
    ("settings", "values", "lost"),
    [
        ({}, {}, []),
        (
            {"temperature": 0.5, "top_p": 1, "top_k": 40, "seed": 7},
            {"temperature": 0.5, "top_p": 1, "top_k": 40, "seed": 7},
            [],
        ),
        ({"temperature": 3}, {"temperature": 2}, ["$.temperature"]),
        ({"temperature": -1, "top_p": 1.5}, {"temperature": 0, "top_p": 1}, ["$.temperature", "$.top_p"]),
        ({"top_k": -1}, {"top_k": 0}, ["$.top_k"]),
        (
            {"presence_penalty": -3, "frequency_penalty": 9},
            {"presence_penalty": -2, "frequency_penalty": 2},
            ["$.presence_penalty", "$.frequency_penalty"],
        ),
        ({"seed": -1}, {"seed": 4294967295}, ["$.seed"]),
        (
            {"logit_bias": json_of({"1": 2}), "logprobs": True, "top_logprobs": 2},
            {},
            ["$.logit_bias", "$.logprobs", "$.top_logprobs"],
        ),
        ({"logprobs": False, "top_logprobs": 0, "logit_bias": json_of({})}, {}, []),
        ({"n": 1}, {}, []),
        ({"n": 3}, {}, []),
    ],
)
def test_sampling_settings_are_kept_in_their_ranges(settings: dict[str, Any], values: Any, lost: list[str]) -> None:
    found = sampling(request(**settings))
    assert (values, lost) == (found.values, [loss.path for loss in found.losses])


def test_what_the_client_says_wins_over_the_preset() -> None:
    found = sampling(request(temperature=0.1), get_preset("chat").values())
    assert get_preset("chat").values() | {"temperature": 0.1} == found.values


def test_a_setting_that_the_backend_does_not_know_is_reported_once_whoever_asks_for_it() -> None:
    own = {"presence_penalty": 1.0, "penalty_decay": 0.9}
    found = sampling(request(top_k=5, temperature=1.0, presence_penalty=0.5), own, accepts={"temperature"})
    assert {"temperature": 1.0} == found.values
    assert ["$.model", "$.top_k", "$.presence_penalty"] == [loss.path for loss in found.losses]
    assert "penalty_decay 0.9: the backend has no such setting" == found.losses[0].detail


@pytest.mark.parametrize("asked", [None, 1, 3, 8])
def test_as_many_answers_are_made_as_are_asked_for(asked: int | None) -> None:
    assert (asked or 1, []) == choices(request(n=asked), 8)


@pytest.mark.parametrize("asked", [0, -1, 9, 1 << 70])
def test_a_number_of_answers_that_there_cannot_be_is_refused_with_its_place(asked: int) -> None:
    with pytest.raises(ts.InvalidRequest, match=r"an integer from 1 to 8") as caught:
        choices(request(n=asked), 8)
    assert ("$.n", str(asked)) == (caught.value.path, caught.value.got)


@pytest.mark.parametrize("asked", [0, -1])
def test_less_than_one_answer_is_refused_where_only_one_can_be_told(asked: int) -> None:
    with pytest.raises(ts.InvalidRequest, match=r"an integer from 1$") as caught:
        choices(request(n=asked), None)
    assert ("$.n", str(asked)) == (caught.value.path, caught.value.got)


@pytest.mark.parametrize(("asked", "lost"), [(None, 0), (1, 0), (2, 1)])
def test_where_one_answer_can_be_told_more_are_reported(asked: int | None, lost: int) -> None:
    count, losses = choices(request(n=asked), None)
    assert (1, ["$.n"] * lost) == (count, [loss.path for loss in losses])


def test_each_answer_has_a_seed_of_its_own_if_there_is_any() -> None:
    last = (1 << 32) - 1
    assert [5, 6, 7] == [sampling_of({"seed": 5}, number)["seed"] for number in range(3)]
    assert [last, 0] == [sampling_of({"seed": last}, number)["seed"] for number in range(2)]
    assert {"top_p": 0.5} == sampling_of({"top_p": 0.5}, 3)


def test_tokens_are_about_four_characters() -> None:
    assert [0, 1, 1, 2] == [estimated_tokens("x" * size) for size in (0, 1, 4, 5)]


def test_a_refusal_is_no_final_answer_of_a_shape() -> None:
    response = Response(items=[Assistant(content=[Refusal(text="No.")])])
    assert ["invalid_json"] == [finding.kind for finding in check_answer(response, SHAPE)]


def test_a_settings_place_is_that_of_the_clients_own_body() -> None:
    body = {"model": "m", "input": "Hi", "reasoning": {"effort": "low"}, "text": {"format": {"type": "json_object"}}}
    asked = ts.parse(json.dumps(body), "openai-responses")
    assert ["$.reasoning.effort"] == [loss.path for loss in plan_thinking(asked, FORMAT).losses]
    assert ["$.text.format"] == [loss.path for loss in structured(asked).losses]


def test_a_format_without_a_place_for_thoughts_is_asked_for_none() -> None:
    document = FORMAT.document
    turns = tuple(
        replace(turn, segments=tuple(one for one in turn.segments if one.kind != "thinking")) for turn in document.turns
    )
    plan = plan_thinking(request(effort="high"), replace(FORMAT, document=replace(document, turns=turns)))
    assert (False, None, ["dropped"]) == (plan.opens, plan.budget, [loss.kind for loss in plan.losses])


def test_instructions_that_end_with_a_picture_get_the_words_behind_it() -> None:
    made = structured(request(System(content=[Image(url="http://x/y.png")]), response_format=SHAPE))
    (system, _) = made.request.items
    assert isinstance(system, System)
    assert [Image, Text] == [type(part) for part in system.content]


def test_a_backend_may_take_more_than_ranges() -> None:
    bias = json_of({"1": 2})
    assert {"logit_bias": bias} == sampling(request(logit_bias=bias), accepts={"logit_bias"}).values


def test_an_answer_that_a_schema_cannot_be_applied_to_is_a_finding() -> None:
    response = Response(items=[Assistant(content=[Text(text='{"a": "\\ud800"}')])])
    shape = ResponseFormat("json_schema", schema=json_of({"properties": {"a": {"enum": ["x"]}}}))
    assert ["unchecked"] == [finding.kind for finding in check_answer(response, shape)]
