"""Owns turns that are written as they look: they say what the same turn says in keys."""

from __future__ import annotations

from pathlib import Path

import pytest

import turnscript as ts
from turnscript.convert.registry import load_formats
from turnscript.tableio import InvalidFormat, dump_format
from turnscript.tableio.structs import data_of

ROOT = Path(__file__).resolve().parents[2]
LOOKING = (ROOT / "examples" / "formats" / "tagged.toml").read_text(encoding="utf-8")
SPELLED = (ROOT / "tests" / "formats" / "tagged.toml").read_text(encoding="utf-8")
USER = "<user>\n{user}\n</user>"


def test_a_look_says_what_the_keys_say() -> None:
    """Openings, blocks, closings, whose text it is, and all joints, those of kinds that are not neighbours, too."""
    [looking], [spelled] = load_formats(LOOKING), load_formats(SPELLED)
    assert data_of(spelled) == data_of(looking)


@pytest.mark.parametrize("name", [*ts.formats(), *ts.model_formats()])
def test_a_format_that_is_written_as_it_looks_reads_back(name: str) -> None:
    format_ = ts.get_format(name)
    written = dump_format(format_)
    [again] = load_formats(written)
    assert data_of(format_) == data_of(again)


def test_most_turns_of_most_formats_can_be_looked_at() -> None:
    """The turns of a well-known shape have no keys for what stands around their texts."""
    written = dump_format(ts.get_format("qwen3"))
    assert 3 == written.count("\nlooks = ")
    assert "[format.joints]" not in written
    assert "\nopen = " not in written[: written.index("[format.generation]")]


def test_an_alternative_is_joined_to_nothing_before_it() -> None:
    """A user's text and the result of a tool stand in turns of their own that look alike."""
    joints = ts.get_format("qwen3").document.joints
    assert "\n" == joints["tool_result", "tool_result"]
    assert ("user", "tool_result") not in joints


def test_a_key_counts_more_than_the_look() -> None:
    more = '\nsegment = [{ kind = "user", body = "indented" }]\nclose = "\\n</USER>"'
    [format_] = load_formats(LOOKING.replace(f'"""\n{USER}"""', f'"""\n{USER}"""{more}'))
    turn = next(turn for turn in format_.document.turns if turn.role == "user")
    assert ("<user>\n", "IndentedText", "\n</USER>") == (turn.open, type(turn.segments[0].body).__name__, turn.close)


FAULTS = {
    "no hole": ("{user}", "user", "turn[1].looks", "nothing is said in this turn"),
    "a brace": ("{user}", "{user} {", "turn[1].looks", "is no hole"),
    "a block without a body": ("{user}", "{user: <a>}", "turn[1].looks", "is no hole"),
    "no such kind": ("{user}", "{usr}", "turn[1].looks.kind", "did you mean 'user'?"),
    "no such body": ("{text}", "{txt}", "turn[2].looks.body", "did you mean 'text'?"),
    "no such flag": ("json-call spaced", "json-call spacd", "turn[2].looks.body.spacd", "did you mean 'spaced'?"),
    "a kind without a hole": (
        f'"""\n{USER}"""',
        f'"""\n{USER}"""\nsegment = [{{ kind = "system" }}]',
        "turn[1].segment[0]",
        "no hole of looks is of the kind 'system'",
    ),
    "no text": (f'"""\n{USER}"""', "3", "turn[1].looks", "a string, found the integer 3"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_look_that_says_nothing_is_refused_with_its_key(fault: str) -> None:
    before, after, path, words = FAULTS[fault]
    assert before in LOOKING
    with pytest.raises(InvalidFormat) as caught:
        load_formats(LOOKING.replace(before, after, 1))
    assert (f"format[0].{path}", True) == (caught.value.path, words in str(caught.value)), str(caught.value)
