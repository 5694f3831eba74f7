"""Owns the laws of calls in no tag of their format: understood for offered tools, kept as text where they are none."""

from __future__ import annotations

import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import turnscript as ts
from tests.conformance.test_parser_laws import check_events, every_cut
from tests.growth import assert_grows_below
from turnscript.events import Event
from turnscript.format import Format

CASES = tomllib.loads((Path(__file__).parents[1] / "cases" / "habits.toml").read_text(encoding="utf-8"))["case"]
MENDED = {"mended_call", "missing_close", "cut_tag"}
LOOSE = [one for one in CASES if "format" not in one]
TAGGED = [one for one in CASES if "format" in one]
OFFERED = [ts.Tool(name="get_weather"), ts.Tool(name="search")]
CALL = '{"name": "search", "arguments": {"text": "%s"}}'


def answered(
    format_: Format, pieces: list[str], tools: list[ts.Tool] | None = None, finish: str = "stop", prefill: str = ""
) -> list[Event]:
    """What a parser makes of an answer in pieces. `prefill`: what the prompt has written of it."""
    parser = format_.parser(OFFERED if tools is None else tools, prefill=prefill)
    return [event for piece in pieces for event in parser.feed(piece)] + parser.close(finish)


def has_fences(format_: Format) -> bool:
    """Whether a fence is the tag of the format's own calls, which end it wherever they stand."""
    turns = format_.document.turns
    return any(one.open.startswith("```") for turn in turns for one in (*turn.segments, *turn.also_read))


def told(response: ts.Response) -> tuple[str, list[list[str]]]:
    """The text and the calls of an answer."""
    calls = [[one.name, one.arguments] for one in response.items if isinstance(one, ts.ToolCall)]
    texts = [one.content for one in response.items if isinstance(one, ts.Assistant)]
    return "".join(part.text for text in texts for part in text if isinstance(part, ts.Text)), calls


@pytest.mark.parametrize("case", LOOSE, ids=[f"{one['family']}: {one['source']}" for one in LOOSE])
def test_a_habit_is_understood_in_any_pieces(format_name: str, case: dict[str, Any]) -> None:
    format_ = ts.get_format(format_name)
    written = case["written"]
    finish = case.get("finish", "stop")
    whole = check_events(answered(format_, [written], finish=finish), written)
    own = has_fences(format_) and "```" in written
    text, calls = told(whole)
    assert (case.get("text", ""), case["calls"]) == (text.rstrip("\n") if own else text, calls)
    kinds = {issue.kind for issue in whole.issues} - {"missing_open", "odd_call"}
    if "issues" in case:
        assert set(case["issues"]) == kinds
    else:
        assert kinds == {"mended_call"} if case["calls"] and not own else kinds <= MENDED
    for pieces in every_cut(written):
        assert whole == check_events(answered(format_, pieces, finish=finish), written)


@pytest.mark.parametrize("case", LOOSE, ids=[f"{one['family']}: {one['source']}" for one in LOOSE])
def test_without_tools_nothing_is_a_call(format_name: str, case: dict[str, Any]) -> None:
    written = case["written"]
    text, calls = told(check_events(answered(ts.get_format(format_name), [written], []), written))
    assert (written.rstrip(), []) == (text.rstrip(), calls)


@pytest.mark.parametrize("case", TAGGED, ids=[f"{one['family']}: {one['source']}" for one in TAGGED])
def test_a_habit_of_one_format_is_understood_in_any_pieces(case: dict[str, Any]) -> None:
    format_, written = ts.get_format(case["format"]), case["written"]
    said = {"finish": case.get("finish", "stop"), "prefill": case.get("prefill", "")}
    whole = check_events(answered(format_, [written], **said), written)
    assert (case.get("text", ""), case["calls"]) == told(whole)
    for pieces in every_cut(written):
        assert whole == check_events(answered(format_, pieces, **said), written)


@pytest.mark.parametrize("goes_on", ["", "\nThat is all."])
def test_long_and_many_loose_calls_take_linear_time(format_name: str, goes_on: str) -> None:
    """One argument of up to a megabyte, and thousands of calls; told at the end of all, or text."""
    format_ = ts.get_format(format_name)

    def read(written: str, calls: int) -> Callable[[], object]:
        pieces = [written[at : at + 64] for at in range(0, len(written), 64)]
        assert (0 if goes_on else calls) == len(told(ts.fold(answered(format_, pieces)))[1])
        return lambda: answered(format_, pieces)

    assert_grows_below(24, lambda size: read(CALL % ("x" * size) + goes_on, 1), 65_536, 1_048_576)
    assert_grows_below(6, lambda count: read("\n".join([CALL % "x"] * count) + goes_on, count), 1_000, 4_000)
