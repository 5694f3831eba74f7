"""Owns the laws of calls in no tag of their format: understood for offered tools, kept as text where they are none."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import turnscript as ts
from tests.conformance.test_parser_laws import (
    begins_call,
    check_events,
    content_of,
    events_behind,
    every_cut,
    opening_of,
    opens_text,
)
from tests.growth import assert_grows_below
from turnscript.core.events import Event
from turnscript.core.json_text import json_of

CASES = tomllib.loads((Path(__file__).parents[1] / "cases" / "habits.toml").read_text(encoding="utf-8"))["case"]
MENDED = {"mended_call", "missing_close", "cut_tag"}
LOOSE = [one for one in CASES if "format" not in one]
TAGGED = [one for one in CASES if "format" in one]
OFFERED = [ts.Tool(name="get_weather"), ts.Tool(name="search")]
TYPED = [
    ts.Tool(
        name="get_weather",
        parameters=json_of({"properties": {key: {"type": "string"} for key in ("city", "unit", "day")}}),
    )
]
GREETING = "Good morning"
HELLO = ts.User(content=[ts.Text(text=GREETING)])
CALL = '{"name": "search", "arguments": {"text": "%s"}}'


def answered(
    format_: ts.Format, pieces: list[str], tools: list[ts.Tool] | None = None, finish: str = "stop", prefill: str = ""
) -> list[Event]:
    """What a parser makes of an answer in pieces. `prefill`: what the prompt has written of it."""
    parser = format_.parser(OFFERED if tools is None else tools, prefill=prefill)
    return [event for piece in pieces for event in parser.feed(piece)] + parser.close(finish)


def has_fences(format_: ts.Format) -> bool:
    """Whether a fence is the tag of the format's own calls, which end it wherever they stand."""
    turns = format_.document.turns
    return any(one.open.startswith("```") for turn in turns for one in (*turn.segments, *turn.also_read))


def holds_own(format_: ts.Format, written: str) -> bool:
    """Whether a text holds all that opens a call of the format's own."""
    opening = opening_of(format_, "tool_call").strip()
    return bool(opening.strip("[{")) and opening in written


def is_bare(format_: ts.Format, begins: tuple[str, ...] = ("{", "[{")) -> bool:
    """Whether nothing but JSON opens a call of the format's own, so that most of what is loose elsewhere is its own."""
    calls = [one for one in known_segments(format_) if one.kind == "tool_call" and one.tentative]
    openings = [f"{one.group.open if one.group else ''}{one.open}{one.body.begins}" for one in calls]
    return any(opening.startswith(begins) for opening in openings)


def known_segments(format_: ts.Format) -> list[Any]:
    """All that a reader understands of a turn of the model."""
    turn = format_.document.model_turn
    return [*turn.segments, *turn.also_read]


def before_turns(format_: ts.Format, written: str) -> str:
    """What stands before all that opens a turn of the format. An answer ends there, whatever is a call elsewhere."""
    openings = [turn.open.strip() for turn in format_.document.turns if turn.open.strip()]
    return min((written.partition(one)[0] for one in openings), key=len, default=written)


def told(response: ts.Response) -> tuple[str, list[list[str]]]:
    """The text and the calls of an answer."""
    calls = [[one.name, one.arguments] for one in response.items if isinstance(one, ts.ToolCall)]
    texts = [one.content for one in response.items if isinstance(one, ts.Assistant)]
    return "".join(part.text for text in texts for part in text if isinstance(part, ts.Text)), calls


@pytest.mark.about("calls")
@pytest.mark.parametrize("case", LOOSE, ids=[f"{one['family']}: {one['source']}" for one in LOOSE])
def test_a_habit_is_understood_in_any_pieces(format_name: str, case: dict[str, Any]) -> None:
    format_ = ts.get_format(format_name)
    written = opens_text(format_) + case["written"]
    finish = case.get("finish", "stop")
    whole = check_events(answered(format_, [written], finish=finish), written)
    own, bare = (has_fences(format_) and "```" in written) or holds_own(format_, written), is_bare(format_)
    text, calls = told(whole)
    if bare and case["calls"]:  # what stands around its own calls is text: a fence that closes, say
        said = case.get("text", "")
        text = said + text.removeprefix(said).strip("`; \n")
    if (said := before_turns(format_, written)) != written:
        assert (said, []) == (text, calls)
        return
    assert (case.get("text", ""), case["calls"]) == (text.rstrip("\n") if own else text, calls)
    kinds = {issue.kind for issue in whole.issues} - {"missing_open", "odd_call"}
    own_way = {"mended_call"} if bare else set()
    if "issues" in case:
        assert set(case["issues"]) - own_way == kinds - own_way
    else:
        assert kinds == {"mended_call"} if case["calls"] and not (own or bare) else kinds <= MENDED
    for pieces in every_cut(written):
        assert whole == check_events(answered(format_, pieces, finish=finish), written)


@pytest.mark.parametrize("case", LOOSE, ids=[f"{one['family']}: {one['source']}" for one in LOOSE])
def test_without_tools_nothing_is_a_call(format_name: str, case: dict[str, Any]) -> None:
    written = case["written"]
    format_ = ts.get_format(format_name)
    text, calls = told(check_events(answered(format_, [written], []), written))
    assert (before_turns(format_, written).rstrip(), []) == (text.rstrip(), calls)


@pytest.mark.parametrize("case", TAGGED, ids=[f"{one['family']}: {one['source']}" for one in TAGGED])
def test_a_habit_of_one_format_is_understood_in_any_pieces(case: dict[str, Any]) -> None:
    format_, written = ts.get_format(case["format"]), case["written"]
    said = {"finish": case.get("finish", "stop"), "prefill": case.get("prefill", "")}
    whole = check_events(answered(format_, [written], **said), written)
    assert (case.get("text", ""), case["calls"]) == told(whole)
    kinds = sorted({issue.kind for issue in whole.issues})
    assert case.get("issues", kinds) == kinds
    for pieces in every_cut(written):
        assert whole == check_events(answered(format_, pieces, **said), written)


@pytest.mark.deep
@pytest.mark.about("calls")
@pytest.mark.parametrize("goes_on", ["", "\nThat is all."])
def test_long_and_many_loose_calls_take_linear_time(format_name: str, goes_on: str) -> None:
    """One argument of up to a megabyte, and thousands of calls; told at the end of all, or text.

    Twice of what is linear is the bound, as elsewhere: the caches of a machine make large sizes dearer.
    """
    format_ = ts.get_format(format_name)

    def read(written: str, calls: int) -> Callable[[], object]:
        written = opens_text(format_) + written
        pieces = [written[at : at + 64] for at in range(0, len(written), 64)]
        found = len(told(ts.fold(answered(format_, pieces)))[1])
        assert found == (0 if goes_on and not is_bare(format_, ("{",)) else calls)
        return lambda: answered(format_, pieces)

    assert_grows_below(32, lambda size: read(CALL % ("x" * size) + goes_on, 1), 65_536, 1_048_576)
    assert_grows_below(8, lambda count: read("\n".join([CALL % "x"] * count) + goes_on, count), 1_000, 4_000)


def closing_of_values(format_: ts.Format) -> str:
    """What closes the value of a parameter, where calls are tags all through; nothing where they are not."""
    call = ts.ToolCall(name="get_weather", arguments='{"city": "Paris"}')
    spans = format_.spans(ts.Request(conversation=ts.Conversation(items=[HELLO, call], tools=TYPED)))
    texts = [span.text for span in spans]
    if not format_.features.calls or "Paris" not in texts:
        return ""
    before, closing = texts[texts.index("Paris") - 1], texts[texts.index("Paris") + 1].rstrip()
    whole = closing != before and not closing.endswith("/")  # no quote, and not half a tag, behind which is the key
    return closing if whole else ""


def called(format_: ts.Format, calls: list[ts.Item]) -> str:
    """What is written of calls, from the opening of the first one on."""
    request = ts.Request(conversation=ts.Conversation(items=[HELLO, *calls], tools=TYPED))
    text = str(format_.render(request, view="prompt").value).removesuffix(format_.document.end)
    return text[text.index(begins_call(format_), text.rindex(GREETING)) :]


@pytest.mark.parametrize("name", [*ts.formats(), *ts.model_formats()])
def test_a_call_inside_a_thought_counts_only_if_that_is_not_closed(name: str) -> None:
    """A closing behind it says that it was quoted; without one, it ends the thought, unless it may be a mere fence."""
    format_ = ts.get_format(name)
    segments, turn = known_segments(format_), format_.document.model_turn
    thoughts = {f"{one.open}{one.head_end}": one for one in segments if one.kind == "thinking" and one.close}
    if not thoughts or all(one.kind != "tool_call" for one in segments):
        return
    prompt = format_.prompt(ts.Request(conversation=ts.Conversation(items=[HELLO], tools=TYPED)), thinking=True)
    opened = [one for one in thoughts if prompt.text.rstrip().endswith(one.strip())]
    begun, thought = ("", thoughts[opened[0]]) if opened else next(iter(thoughts.items()))
    closings = [one.close.strip() for one in (turn, *segments, *(one.group for one in segments if one.group))]
    if closings.count(thought.close.strip()) > 1:  # it may be another's, too
        return
    written = called(format_, [ts.ToolCall(name="get_weather", arguments='{"city": "Paris"}')])
    others = [one.open.strip() for one in format_.document.turns]
    for end in (*others, format_.document.end.strip(), turn.close.strip(), *prompt.stops):
        written = written.partition(end)[0] if end and end not in (one.close.strip() for one in segments) else written
    counts = [] if written.startswith("```") else ["Paris"]
    answer = format_.document.segment("assistant")
    joints = {**format_.document.also_joined, **format_.document.joints}
    joint = f"{thought.close}{joints.get(('thinking', 'assistant'), '')}{answer.open}{answer.head_end}"
    for behind, expected in ((f" there.{joint}Hi.", []), ("", counts)):
        text = f"{begun}I write\n\n{written}{behind}"
        whole = check_events(events_behind(prompt, [text]), text)
        said, calls = told(whole)
        assert expected == [json.loads(arguments)["city"] for _, arguments in calls]
        assert not behind or ("Hi.", True) == (said, f"I write\n\n{written} there." in content_of(whole.items[0]))
        for size in (1, 2, 5, 11):
            pieces = [text[at : at + size] for at in range(0, len(text), size)]
            assert whole == check_events(events_behind(prompt, pieces), text)


@pytest.mark.parametrize("name", [*ts.formats(), *ts.model_formats()])
def test_a_value_ends_without_its_closing_too(name: str) -> None:
    """Each of them, and all: where the next one begins, where the call ends, and where the answer does."""
    format_ = ts.get_format(name)
    closing = closing_of_values(format_)
    if not closing:
        return
    arguments = '{"city": "Paris", "unit": "c", "day": "now"}'
    one = arguments.partition(",")[0] + "}"
    for count in (1, 2):
        written = called(format_, [ts.ToolCall(name="get_weather", arguments=arguments)] * count)
        known = {issue.kind for issue in ts.fold(answered(format_, [written], TYPED)).issues}
        *parts, rest = written.split(closing)
        for missing in ({0}, {1}, {2}, {0, 2}, {0, 1, 2}):
            mended = "".join(part + closing * (at not in missing) for at, part in enumerate(parts)) + rest
            whole = check_events(answered(format_, [mended], TYPED), mended)
            assert [["get_weather", arguments]] * count == told(whole)[1]
            assert {"mended_call", *known} == {issue.kind for issue in whole.issues}
            for size in (1, 2, 5, 11):
                pieces = [mended[at : at + size] for at in range(0, len(mended), size)]
                assert whole == check_events(answered(format_, pieces, TYPED), mended)
        for finish, calls in (("stop", [["get_weather", one]]), ("length", [])):
            assert calls == told(ts.fold(answered(format_, [parts[0]], TYPED, finish)))[1]


@pytest.mark.deep
@pytest.mark.parametrize("written", ["city\n", "k%d>\nx\n<parameter=", "city>\nx</function>\n", "city>\n<parameter="])
@pytest.mark.parametrize("closed", ["", "\n</parameter>\n"])
def test_values_without_their_closing_take_linear_time(written: str, closed: str) -> None:
    """Many of them, and a long one behind a tag that may end it."""
    format_ = ts.get_format("qwen3-coder")

    def read(size: int) -> Callable[[], object]:
        inside = "".join(written % at if "%" in written else written for at in range(size // len(written)))
        whole = f"<tool_call>\n<function=search>\n<parameter={inside}city>\nx{closed}</function>\n</tool_call>"
        pieces = [whole[at : at + 64] for at in range(0, len(whole), 64)]
        return lambda: answered(format_, pieces)

    assert_grows_below(32, read, 16_384, 262_144)


@pytest.mark.parametrize("name", [*ts.formats(), *ts.model_formats()])
def test_a_tool_that_nobody_offers_is_told_and_nothing_of_it_vanishes(name: str) -> None:
    """In no tag of the format it is text. In the format's own it is a call, because the model meant one."""
    format_ = ts.get_format(name)
    for loose in ('{"name": "delete_all", "arguments": {"x": 1}}', "<tools>" + CALL % "x" + "</tools>"):
        for written in (loose, f"Look:\n{loose}", f"```json\n{loose}\n```"):
            for pieces in ([written], list(written)):
                whole = check_events(answered(format_, pieces, TYPED), written)
                kinds = {one.kind for one in whole.issues}
                said = before_turns(format_, written)
                assert (said, []) == told(whole) or (told(whole)[1] and "unknown_tool" in kinds)
