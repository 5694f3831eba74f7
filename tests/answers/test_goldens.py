"""Owns the golden answers: what every API says, byte for byte, for answers that show each kind of part and ending once.

The files are there to be read: tests/golden/answers/API/NAME.json is an answer in one piece, NAME.sse the same as a
stream. `make golden` writes them anew.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import turnscript as ts
from tests.answers import wires
from tests.answers.corpus import BY_NAME
from tests.strategies import jsontext

FOLDER = Path(__file__).parents[1] / "golden" / "answers"
SHOWN = (
    "text",
    "thought with a signature",
    "thought, call, thought, call",
    "text and call",
    "free text",
    "call in a namespace",
    "refusal in words",
    "met a stop string of the client's",
    "met a limit in the second call",
    "failed while speaking",
    "text with pauses",
    "nothing at all",
)
MAYBE_CUT = "met a limit in the second call"
"""A call that stands last before a limit is not believed by who reads it, so this one does not come back whole."""
CASES = [(wire, name) for wire in wires.ALL for name in SHOWN]


def named(value: str) -> str:
    """In the id of a test the API has its own name, by which `make golden NAME=openai-chat` finds its tests."""
    return wires.ALL[value].name if value in wires.ALL else value


def path_of(wire: str, name: str, kind: str) -> Path:
    plain = "".join(letter if letter.isalnum() else "_" for letter in name).replace("__", "_")
    return FOLDER / wires.ALL[wire].name / f"{plain}.{kind}"


def compared(path: Path, actual: bytes, request: pytest.FixtureRequest) -> bytes:
    """What the file holds; written first if that is asked for."""
    if request.config.getoption("--update-golden"):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(actual)
    return path.read_bytes()


@pytest.mark.parametrize(("wire", "name"), CASES, ids=named)
def test_a_stream_is_told_as_its_golden_file_shows(wire: str, name: str, request: pytest.FixtureRequest) -> None:
    actual = wires.stream(wire, BY_NAME[name])
    assert compared(path_of(wire, name, "sse"), actual, request).decode() == actual.decode()


@pytest.mark.parametrize(("wire", "name"), CASES, ids=named)
def test_an_answer_is_told_as_its_golden_file_shows(wire: str, name: str, request: pytest.FixtureRequest) -> None:
    status, actual = wires.whole(wire, BY_NAME[name])
    shown = compared(path_of(wire, name, "json"), actual + b"\n", request)
    assert shown.decode() == actual.decode() + "\n"
    assert (status == 200) == (BY_NAME[name].error() is None)


@pytest.mark.parametrize(
    ("wire", "name"), [case for case in CASES if BY_NAME[case[1]].error() is None and case[1] != MAYBE_CUT]
)
def test_a_golden_answer_is_written_back_as_it_was_read(wire: str, name: str) -> None:
    """A1: the wire equals the golden in both directions."""
    api = wires.ALL[wire]
    body = path_of(wire, name, "json").read_bytes()
    asked = BY_NAME[name].asked.of(api.origin)
    response = api.parse_response(body)
    again = api.render_response(response, asked, reply=ts.Reply(created=0)).data
    assert "" == jsontext.difference(json.loads(body), json.loads(again))


def test_a_call_that_a_limit_may_have_cut_is_not_believed() -> None:
    api = wires.ALL["messages"]
    response = api.parse_response(path_of("messages", MAYBE_CUT, "json").read_bytes())
    assert ["thinking", "tool_call"] == [item.kind for item in response.items]
    assert response.cut is not None
    assert ["cut_call"] == [issue.kind for issue in response.issues]


def test_no_golden_file_is_left_over() -> None:
    expected = {path_of(wire, name, kind) for wire, name in CASES for kind in ("sse", "json")}
    assert expected == {path for path in FOLDER.rglob("*") if path.is_file()}
