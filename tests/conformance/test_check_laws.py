"""Owns the laws of checking transcripts: what a format writes is clean, and all damages of one file are named."""

from __future__ import annotations

import re

import pytest
from hypothesis import given, note, settings
from hypothesis import strategies as st

import turnscript as ts
from tests.conformance.test_transcript_laws import NAMES, SPOKEN, TWICE, writes_json
from turnscript.convert.format_reference import example

assert settings.default is not None
FEWER = settings(max_examples=max(1, settings.default.max_examples // 8))
SOURCES = [SPOKEN, TWICE, example()]
PIECES = ['"', "{", "}", "<", ">", "\n", " ", "x", "\r\n", "é", "🙂"]


def found(format_: ts.Format, transcript: str) -> list[ts.Finding]:
    return format_.check(transcript)[1].all


def openings(format_: ts.Format) -> list[str]:
    """What opens turns, or blocks."""
    turns = [turn.open.strip() for turn in format_.document.turns if turn.open]
    return turns or [segment.open for turn in format_.document.turns for segment in turn.segments]


def is_closed(format_: ts.Format, *, marked: bool = False) -> bool:
    """Whether it shows where each turn begins and ends: else a damaged mark is of a text, which nobody can tell.

    `marked`: no text may hold an opening as it is.
    """
    document = format_.document
    if marked and not all(map(format_.protects, openings(format_))):
        return False
    return document.anchored or all(turn.close.strip() and not turn.behind for turn in document.turns)


def places(format_: ts.Format, transcript: str) -> list[int]:
    """Where turns begin."""
    marks = "|".join(map(re.escape, sorted(openings(format_), key=len, reverse=True)))
    behind = "(?=[ >])" if format_.document.anchored else ""
    return [match.start() for match in re.finditer(f"(?:{marks}){behind}", transcript)]


def at(transcript: str, place: int) -> tuple[int, int]:
    return transcript.count("\n", 0, place) + 1, place - transcript.rfind("\n", 0, place)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("source", SOURCES, ids=["spoken", "twice", "example"])
def test_what_a_format_writes_is_clean(name: str, source: ts.Request) -> None:
    format_ = ts.get_format(name)
    transcript = str(format_.render(source).value)
    assert [] == found(format_, transcript)
    assert [] == found(format_, transcript + "\n")
    request, _ = format_.check(transcript)
    assert format_.parse(transcript) == request


@pytest.mark.parametrize("ending", ["\n", "\r\n"])
@pytest.mark.parametrize("name", [name for name in NAMES if is_closed(ts.get_format(name))])
def test_every_second_opening_that_is_damaged_is_named_where_it_stands(name: str, ending: str) -> None:
    """Reading goes on at the turn behind each of them."""
    format_ = ts.get_format(name)
    transcript = str(format_.render(SPOKEN).value)
    starts = places(format_, transcript)[1::2]
    damaged = transcript
    for start in starts:
        letter = next(match.start() for match in re.finditer("[A-Za-z]", transcript) if match.start() > start)
        damaged = f"{damaged[:letter]}~{damaged[letter + 1 :]}"
    named = {(one.line, one.column) for one in found(format_, damaged.replace("\n", ending)) if one.kind == "fault"}
    assert {at(damaged, start) for start in starts} <= named


@pytest.mark.parametrize("name", [name for name in NAMES if is_closed(ts.get_format(name), marked=True)])
def test_every_turn_that_is_not_closed_is_named_where_the_next_one_begins(name: str) -> None:
    format_ = ts.get_format(name)
    transcript = str(format_.render(SPOKEN).value)
    starts = places(format_, transcript)
    damaged, shown = "", []
    for start, end in zip(starts, [*starts[1:], len(transcript)], strict=True):
        shown.append(len(damaged))
        turn = transcript[start:end]
        closings = [turn.close.strip() for turn in format_.document.turns]
        closings += [segment.close.strip() for turn in format_.document.turns for segment in turn.segments]
        for closing in closings if end < len(transcript) else ():
            if closing and turn.rstrip().endswith(closing):
                turn = turn.rstrip().removesuffix(closing).rstrip() + "\n"
                break
        damaged += turn
    named = {(one.line, one.column) for one in found(format_, transcript[: starts[0]] + damaged)}
    assert {at(damaged, start) for start in shown[1:]} <= {(line, column) for line, column in named}


@pytest.mark.parametrize("name", [name for name in NAMES if writes_json(name)])
def test_all_broken_calls_are_named(name: str) -> None:
    format_ = ts.get_format(name)
    transcript = str(format_.render(TWICE).value)
    broken = transcript.replace('"Oslo"', '"Oslo" "x"')
    try:
        format_.parse(broken)
    except ts.InvalidTranscript:
        lines = [number for number, line in enumerate(broken.split("\n"), 1) if '"Oslo" "x"' in line]
        apart = all(one.group is None for turn in format_.document.turns for one in turn.segments)
        named = {one.line for one in found(format_, broken) if one.kind == "fault"}
        assert set(lines if apart else lines[:1]) <= named


@pytest.mark.parametrize("name", NAMES)
@FEWER
@given(data=st.data(), source=st.sampled_from(SOURCES))
def test_what_is_refused_has_a_fault_and_what_has_none_is_read_alike(
    name: str, data: st.DataObject, source: ts.Request
) -> None:
    format_ = ts.get_format(name)
    transcript = str(format_.render(source).value)
    pieces = [*PIECES, *sorted(format_.marks_in(transcript))]
    for _ in range(data.draw(st.integers(1, 4))):
        start = data.draw(st.integers(0, len(transcript)))
        end = data.draw(st.integers(start, min(start + 12, len(transcript))))
        transcript = transcript[:start] + data.draw(st.sampled_from(["", *pieces])) + transcript[end:]
    note(transcript)
    request, findings = format_.check(transcript)
    lines = transcript.split("\n")
    assert all(1 <= one.line and 1 <= one.column <= len(lines[one.line - 1]) + 1 for one in findings.all)
    faults = [one for one in findings.all if one.kind == "fault"]
    try:
        read = format_.parse(transcript)
    except ts.InvalidTranscript:
        assert faults
    else:
        assert faults or read == request
