"""Owns the checks of calls: what is found, what becomes of faulty calls, and that pieces make no difference."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from copy import deepcopy
from types import SimpleNamespace
from typing import Any, Literal

import jsonschema_rs
import pytest
from hypothesis import given
from hypothesis import strategies as st

import turnscript as ts
from tests.strategies import events as told_events
from turnscript.core.conversation import (
    Assistant,
    Conversation,
    Item,
    Request,
    Response,
    Text,
    Tool,
    ToolCall,
    User,
    text_content,
)
from turnscript.core.events import Event, MessageEnd, PartDelta, PartEnd, PartStart, fold, raw_text
from turnscript.core.json_text import Json, json_of
from turnscript.gateway import checks
from turnscript.gateway.checks import CallFinding, CallGate, CallPolicy, Declared, check_calls

Policy = Literal["pass", "text", "retry"]

SCHEMA = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "type": "object",
    "properties": {"city": {"type": "string"}, "days": {"type": "array", "items": {"type": "integer"}}},
    "required": ["city"],
    "additionalProperties": False,
}
WEATHER = Tool(name="get_weather", parameters=json_of(SCHEMA))
PATCH = Tool(
    name="apply_patch", type="custom", format=json_of({"type": "grammar", "syntax": "lark", "definition": "x"})
)
NOTES = Tool(name="fs", type="namespace", tools=[Tool(name="read_file", parameters=json_of({"type": "object"}))])
TOOLS = [WEATHER, PATCH, NOTES]


def findings(arguments: str, tool: Tool = WEATHER) -> list[CallFinding]:
    call = ToolCall(name=tool.name or "", arguments=arguments, id="call_1")
    return check_calls(Response(items=[call]), [tool])


def kinds(found: Iterable[CallFinding]) -> list[str]:
    return [finding.kind for finding in found]


# What is found.


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ('{"city": "Paris"}', []),
        ('{"city": "Paris", "days": [1, 2]}', []),
        ('{"city": 1}', [("schema_mismatch", "arguments.city")]),
        ('{"city": "P", "days": [1, "x"]}', [("schema_mismatch", "arguments.days[1]")]),
        ("{}", [("schema_mismatch", "arguments")]),
        ('{"city": "P", "town": 1}', [("schema_mismatch", "arguments")]),
        ("[]", [("not_an_object", "arguments")]),
        ('"x"', [("not_an_object", "arguments")]),
        ("", [("invalid_json", "arguments")]),
        ('{"city": "P"', [("invalid_json", "arguments")]),
        ('{"city": "P"} {}', [("invalid_json", "arguments")]),
        ('{"city": "\\ud800"}', [("invalid_json", "arguments")]),
        ('{"city": NaN}', [("not_a_number", "arguments")]),
        ('{"city": -Infinity}', [("not_a_number", "arguments")]),
        ('{"city": "P", "city": "Q"}', [("duplicate_key", "arguments")]),
        ('{"city": "P", "days": [1' + "0" * 5000 + "]}", [("unchecked", "arguments")]),
        ('{"city": ' + "[" * 100_000 + "]" * 100_000 + "}", [("invalid_json", "arguments")]),
    ],
)
def test_arguments_are_one_json_object_that_the_schema_accepts(arguments: str, expected: list[tuple[str, str]]) -> None:
    assert expected == [(finding.kind, finding.path) for finding in findings(arguments)]
    assert all(finding.call_id == "call_1" and finding.tool == "get_weather" for finding in findings(arguments))


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "thing"},
        {"$ref": "https://example.com/schema.json"},
        {"$ref": "file:///etc/hostname"},
        {"$ref": "#/definitions/none"},
        {"$schema": "https://example.com/meta"},
        {"pattern": "("},
        [],
        "text",
        7,
    ],
)
def test_a_schema_that_cannot_be_used_is_a_finding_of_its_own_and_no_fault_of_the_call(schema: object) -> None:
    found = findings('{"a": 1}', Tool(name="f", parameters=json_of(schema)))
    assert ["schema_unusable"] == kinds(found)
    assert checks.FAULTS.isdisjoint(kinds(found))


def test_nothing_is_fetched_for_a_schema() -> None:
    (finding,) = findings("{}", Tool(name="f", parameters=json_of({"$ref": "http://127.0.0.1:1/x.json"})))
    assert "Retrieval is disabled" in finding.detail


@pytest.mark.parametrize("schema", [None, Json(b"null"), Json(b"true"), Json(b"{}"), Json(b'{"type": "object"}')])
def test_a_tool_without_a_schema_takes_any_object(schema: Json | None) -> None:
    assert [] == findings('{"a": [1.5, null]}', Tool(name="f", parameters=schema))


def test_a_schema_that_refers_to_itself_ends_on_deep_arguments() -> None:
    schema = json_of({"type": "object", "properties": {"a": {"$ref": "#"}}})
    deep = '{"a":' * 400 + "{}" + "}" * 400
    assert [] == findings(deep, Tool(name="f", parameters=schema))
    assert ["schema_mismatch"] == kinds(findings(deep.replace("{}", "1"), Tool(name="f", parameters=schema)))


def test_a_schema_is_compiled_once_for_each_text(monkeypatch: pytest.MonkeyPatch) -> None:
    schema = {"type": "object", "properties": {"only_here": {"type": "string"}}}
    compiled: list[str] = []

    def compile_(text: str, **options: Any) -> Any:
        compiled.append(text)
        return jsonschema_rs.validator_for(text, **options)

    monkeypatch.setattr(checks, "jsonschema_rs", SimpleNamespace(**vars(jsonschema_rs) | {"validator_for": compile_}))
    for _ in range(5):
        findings("{}", Tool(name="f", parameters=json_of(schema)))
    assert [json.dumps(schema)] == [json.dumps(json.loads(text)) for text in compiled]


def test_a_wide_mismatch_gives_few_short_findings() -> None:
    found = findings(json.dumps({"city": "P", "days": ["x" * 5000] * 100}))
    assert 8 == len(found)
    assert max(len(finding.detail) for finding in found) <= 300


def test_free_text_is_not_read_as_json_and_a_grammar_is_noted() -> None:
    call = ToolCall(name="apply_patch", arguments="*** Begin", custom=True)
    assert ["grammar_unchecked"] == kinds(check_calls(Response(items=[call]), TOOLS))
    plain = Tool(name="apply_patch", type="custom", format=json_of({"type": "text"}))
    assert [] == check_calls(Response(items=[call]), [plain])


@pytest.mark.parametrize(
    ("name", "namespace", "known"),
    [
        ("get_weather", None, True),
        ("read_file", "fs", True),
        ("fs__read_file", None, True),
        ("read_file", None, False),
        ("read_file", "db", False),
        ("get_weather", "fs", False),
        ("nothing", None, False),
        ("", None, False),
    ],
)
def test_a_name_is_declared_alone_or_in_its_namespace(name: str, namespace: str | None, known: bool) -> None:
    call = ToolCall(name=name, namespace=namespace, arguments='{"city": "P"}')
    found = check_calls(Response(items=[call]), TOOLS)
    assert ([] if known else [("unknown_tool", "name")]) == [(one.kind, one.path) for one in found]


def test_calls_of_a_whole_answer_and_of_its_events_have_the_same_findings() -> None:
    response = Response(items=[ToolCall(name="x"), ToolCall(name="get_weather", arguments="{}")])
    events = told_events.told(response, told_events.in_pieces(3))
    assert ["unknown_tool", "schema_mismatch"] == kinds(check_calls(response, TOOLS))
    assert check_calls(response, TOOLS) == check_calls(events, TOOLS)


# Names that are almost right.


@pytest.mark.parametrize(
    ("declared", "said", "expected"),
    [
        (["get_weather"], "get_weather", None),
        (["get_weather"], "Get_Weather", "get_weather"),
        (["get_weather"], "get-weather", "get_weather"),
        (["get-weather"], "GET_WEATHER", "get-weather"),
        (["get_weather"], "functions.get_weather", "get_weather"),
        (["get_weather"], "default_api:get-weather", "get_weather"),
        (["fs__read"], "read", "fs__read"),
        (["fs__read"], "fs.read", None),
        (["fs__read"], "db__read", None),
        (["fs__read", "db__read"], "read", None),
        (["read", "fs__read"], "Read", "read"),
        (["Read", "READ"], "read", None),
        (["get_weather"], "get_weathers", None),
        (["get_weather"], "getweather", None),
        (["get_weather"], "", None),
        ([], "x", None),
    ],
)
def test_a_name_is_taken_for_the_only_one_that_differs_in_spelling_alone(
    declared: Sequence[str], said: str, expected: str | None
) -> None:
    assert expected == Declared([Tool(name=name) for name in declared]).snapped(said)


@pytest.mark.parametrize("action", ["pass", "text", "retry"])
def test_a_name_that_is_almost_right_is_corrected_and_reported(action: Policy) -> None:
    response = Response(items=[ToolCall(name="Get-Weather", arguments='{"city": "P"}', id="c")])
    events = told_events.told(response, told_events.in_pieces(4))
    given_events = deepcopy(events)
    gate = CallGate(TOOLS, CallPolicy(action=action))
    out = gate.feed(events)
    assert ["get_weather", "get_weather"] == [
        event.part.name for event in out if isinstance(event, PartStart | PartEnd) and isinstance(event.part, ToolCall)
    ]
    assert [CallFinding("renamed", "name", "taken for 'get_weather'", "c", "Get-Weather")] == gate.findings
    assert given_events == events, "the given events are changed"


def test_names_are_left_alone_where_that_is_wanted() -> None:
    events = told_events.told(Response(items=[ToolCall(name="Get-Weather")]), told_events.in_pieces(4))
    gate = CallGate(TOOLS, CallPolicy(snap=False))
    assert events == gate.feed(events)
    assert ["unknown_tool"] == kinds(gate.findings)


# The gate: whole and in pieces.

POLICIES = [
    CallPolicy(action="pass"),
    CallPolicy(action="text"),
    CallPolicy(action="retry"),
    CallPolicy(action="text", faults=frozenset({"unknown_tool"})),
]
KINDS = ("text", "texts", "thinking", "call", "custom", "idless")
SOME = [Tool(name="f"), Tool(name="get_weather", parameters=json_of(SCHEMA)), Tool(name="apply_patch", type="custom")]


def with_raw(events: Sequence[Event]) -> list[Event]:
    """Events as a parser tells them: each with the text that it was read from."""
    marked = deepcopy(list(events))
    for number, event in enumerate(marked):
        event.raw = event.text if isinstance(event, PartDelta) else f"<{number}>"
    return marked


def through(gate: CallGate, batches: Iterable[Sequence[Event]]) -> list[Event]:
    out = [event for batch in batches for event in gate.feed(batch)]
    return out + gate.close()


@given(data=st.data(), events=told_events.event_lists(KINDS), policy=st.sampled_from(POLICIES))
def test_a_gate_tells_the_same_however_the_events_come(
    data: st.DataObject, events: list[Event], policy: CallPolicy
) -> None:
    events = with_raw(events)
    whole, single, parts = (CallGate(SOME, policy) for _ in range(3))
    expected = through(whole, [events])
    assert expected == through(single, [[event] for event in events])
    assert expected == through(parts, told_events.cut_anywhere(data.draw, events))
    assert whole.findings == single.findings == parts.findings
    assert whole.wants_retry == single.wants_retry == parts.wants_retry
    assert whole.kept == single.kept == parts.kept


@given(response=told_events.responses(KINDS), policy=st.sampled_from(POLICIES), size=st.integers(1, 9))
def test_a_gate_tells_the_same_answer_however_its_texts_are_cut(
    response: Response, policy: CallPolicy, size: int
) -> None:
    answers = []
    for pieces in (told_events.in_pieces(size), told_events.in_pieces(1_000_000)):
        gate = CallGate(SOME, policy)
        folded = fold(through(gate, [told_events.told(response, pieces)]))
        answers.append((folded, gate.findings, gate.wants_retry))
    assert answers[0] == answers[1]


@given(events=told_events.event_lists(KINDS))
def test_where_calls_pass_nothing_waits_and_only_names_change(events: list[Event]) -> None:
    gate = CallGate(SOME, CallPolicy(snap=False))
    assert events == [told for event in events for told in gate.feed([event])]
    assert [] == gate.close()
    assert check_calls(events, SOME) == gate.findings


@given(events=told_events.event_lists(KINDS), policy=st.sampled_from(POLICIES[:2]))
def test_no_byte_is_lost_and_parts_stay_well_formed(events: list[Event], policy: CallPolicy) -> None:
    events = with_raw(events)
    out = through(CallGate(SOME, policy), [[event] for event in events])
    assert raw_text(events) == raw_text(out)
    open_: dict[int, list[str]] = {}
    for event in out:
        if isinstance(event, PartStart):
            assert event.index not in open_
            open_[event.index] = []
        elif isinstance(event, PartDelta):
            open_[event.index].append(event.text)
        elif isinstance(event, PartEnd):
            told = "".join(open_.pop(event.index))
            assert event.part is None or told_events.content_of(event.part) == told
    assert {} == open_


@given(events=told_events.event_lists(KINDS), policy=st.sampled_from(POLICIES[1:3]))
def test_texts_and_thoughts_never_wait_for_calls(events: list[Event], policy: CallPolicy) -> None:
    gate = CallGate(SOME, policy)
    for event in events:
        told = gate.feed([event])
        if isinstance(event, PartDelta) and not gate._in_call and not gate.wants_retry:
            assert event == told[-1]


# What becomes of a faulty call.


def bad_answer() -> list[Event]:
    call = ToolCall(name="get_weather", arguments='{"town": "Paris"}', id="c")
    response = Response(items=[Assistant(content=[Text(text="Let me see.")]), call], finish_reason="tool_calls")
    return with_raw(told_events.told(response, told_events.in_pieces(5)))


def test_a_faulty_call_is_answered_as_the_text_that_the_model_wrote() -> None:
    events = bad_answer()
    gate = CallGate(TOOLS, CallPolicy(action="text"))
    response = fold(gate.feed(events))
    start = next(at for at, event in enumerate(events) if isinstance(event, PartStart) and event.index == 1)
    assert ["Let me see.", raw_text(events[start:-1])] == [
        text_content(item.content) for item in response.items if isinstance(item, Assistant)
    ]
    assert "stop" == response.finish_reason
    assert ["call_as_text"] == [issue.kind for issue in response.issues]
    assert {"schema_mismatch"} == set(kinds(gate.findings))


def test_a_good_call_beside_a_faulty_one_is_still_a_call() -> None:
    good = ToolCall(name="get_weather", arguments='{"city": "Rome"}', id="d")
    bad = ToolCall(name="nothing", id="c")
    events = with_raw(
        told_events.told(Response(items=[bad, good], finish_reason="tool_calls"), told_events.in_pieces(9))
    )
    response = fold(CallGate(TOOLS, CallPolicy(action="text")).feed(events))
    assert ["assistant", "tool_call"] == [item.kind for item in response.items]
    assert "tool_calls" == response.finish_reason


def test_a_faulty_call_that_no_model_wrote_becomes_text_as_json() -> None:
    events = told_events.told(Response(items=[ToolCall(name="no", arguments="{é")]), told_events.in_pieces(9))
    (item,) = fold(CallGate(TOOLS, CallPolicy(action="text")).feed(events)).items
    assert isinstance(item, Assistant)
    assert {"name": "no", "arguments": "{é"} == json.loads(text_content(item.content))


def test_a_call_that_was_cut_off_is_no_fault_of_the_model() -> None:
    events: list[Event] = [
        PartStart(0, ToolCall(name="no", arguments=""), "a"),
        PartDelta(0, '{"x', "b"),
        PartEnd(0, None, "c"),
        MessageEnd("length"),
    ]
    for policy in POLICIES:
        gate = CallGate(TOOLS, policy)
        assert events == gate.feed(events)
        assert ([], False) == (gate.findings, gate.wants_retry)


def test_a_stream_that_breaks_off_in_a_call_gives_what_was_held() -> None:
    events = bad_answer()[:-2]
    for policy in POLICIES:
        assert events == through(CallGate(TOOLS, policy), [[event] for event in events])


# Once more.

PROMPT_TOOLS = [Tool(name="get_weather", description="Weather.", parameters=json_of(SCHEMA))]
TEXTS = ("Let me see what it is.", "Is 1 <", "<", "So: ``", "[", "a\n<")
"""Texts before a call; some end with what a parser holds back, because it may be the beginning of a mark."""


def answer_of(name: str, *items: Item) -> tuple[Any, str]:
    """A prompt of a format, and an answer to it as its model writes it."""
    request = Request(conversation=Conversation([User(content=[Text(text="Hi")])], PROMPT_TOOLS))
    prompt = ts.get_format(name).prompt(request, thinking=False)
    whole = ts.get_format(name).spans(
        Request(conversation=Conversation([*request.items, *items], PROMPT_TOOLS)), view="prompt"
    )
    text = "".join([span.text for span in whole])
    assert text.startswith(prompt.text.rstrip()), "the answer is not behind the prompt"
    return prompt, text[len(prompt.text) :] if text.startswith(prompt.text) else text[len(prompt.text.rstrip()) :]


def given_up(gate: CallGate) -> bool:
    return gate.wants_retry


def call_to(argument: str) -> ToolCall:
    return ToolCall(name="get_weather", arguments=json.dumps({argument: "Paris"}))


def text_and_call(name: str, said: str, argument: str) -> tuple[Any, str]:
    """A prompt, and a text with a call behind it. Where transcripts keep the two apart, models do not."""
    prompt, answer = answer_of(name, Assistant(content=[Text(text=said)]), call_to(argument))
    parser = prompt.parser()
    if len(fold([*parser.feed(answer), *parser.close()]).items) == 2:
        return prompt, answer
    return prompt, f"{said}\n{answer_of(name, call_to(argument))[1]}"


@pytest.mark.parametrize("size", [1, 7, 10_000])
@pytest.mark.parametrize("name", ts.formats())
@pytest.mark.parametrize("said", TEXTS)
def test_a_second_attempt_goes_on_where_the_faulty_call_began(said: str, name: str, size: int) -> None:
    prompt, bad = text_and_call(name, said, "town")
    _, good = text_and_call(name, said, "city")
    gate = CallGate(prompt.offered.values(), CallPolicy(action="retry"))
    parser, out = prompt.parser(), []
    for at in range(0, len(bad), size):
        out += gate.feed(parser.feed(bad[at : at + size]))
    out += gate.feed(parser.close())
    assert given_up(gate)
    assert bad.startswith(gate.kept)
    assert [] == gate.feed([MessageEnd("stop")]) == gate.close()
    kept, parser = gate.kept, prompt.parser()
    gate.resume(parser)
    assert not given_up(gate)
    rest = good[len(kept) :]
    for at in range(0, len(rest), size):
        out += gate.feed(parser.feed(rest[at : at + size]))
    out += gate.feed(parser.close())
    expected = prompt.parser()
    once = fold([*expected.feed(good), *expected.close()])
    told = fold(out)
    assert once.items == told.items
    assert once.raw == told.raw
    assert once.finish_reason == told.finish_reason
    texts = [
        "".join([event.text for event in out if isinstance(event, PartDelta) and event.index == at]) for at in (0, 1)
    ]
    assert texts == [told_events.content_of(item) for item in once.items]
    starts = [event.index for event in out if isinstance(event, PartStart)]
    assert sorted(set(starts)) == starts, "a part begins twice"


@pytest.mark.parametrize(("fallback", "expected"), [("pass", "tool_call"), ("text", "assistant")])
def test_what_fails_twice_is_passed_or_told_as_text(fallback: Literal["pass", "text"], expected: str) -> None:
    prompt, bad = answer_of("ai00-v1", call_to("town"))
    gate = CallGate(prompt.offered.values(), CallPolicy(action="retry", fallback=fallback))
    parser = prompt.parser()
    out = gate.feed([*parser.feed(bad), *parser.close()])
    assert given_up(gate)
    parser = prompt.parser()
    gate.resume(parser)
    out += gate.feed([*parser.feed(bad), *parser.close()])
    assert not given_up(gate)
    assert [expected] == [item.kind for item in fold(out).items]
    assert ["arguments", "arguments"] * 2 == [finding.path for finding in gate.findings]
