"""Owns the faults of declared formats: each is an error that names its key and says what to do."""

import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import turnscript as ts
from tests.growth import assert_grows_below
from turnscript.formats.format import Format
from turnscript.tableio import InvalidFormat, read_formats

ROOT = Path(__file__).resolve().parents[2]
TAGGED = (ROOT / "tests" / "formats" / "tagged.toml").read_text(encoding="utf-8")


def load(text: str) -> list[Format]:
    return read_formats(text, {name: ts.get_format(name) for name in ts.formats()})


BLOCKS = """[[format]]
name = "blocks"
anchored = true

[[format.turn]]

[[format.turn.segment]]
kind = "user"
body = "parts"
open = "<<U"
head_end = ">>\\n"
close = "\\n<<U_END>>"

[[format.turn.segment]]
kind = "assistant"
body = "parts"
open = "<<A"
head_end = ">>\\n"
close = "\\n<<A_END>>"
model = true

[format.generation]
stops = ["<<A_END>>"]
"""
FAULTS = tomllib.loads((ROOT / "tests" / "cases" / "toml_faults.toml").read_text(encoding="utf-8"))["fault"]


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault["name"])
def test_a_fault_is_told_with_its_key(fault: dict[str, Any]) -> None:
    text = BLOCKS if fault.get("blocks") else TAGGED
    assert fault["before"] in text
    with pytest.raises(InvalidFormat) as caught:
        load(text.replace(fault["before"], fault["after"], 1))
    assert f"format[0].{fault['path']}".rstrip(".") == caught.value.path
    assert fault["words"] in str(caught.value)


def test_what_the_faults_are_changes_of_is_without_a_fault() -> None:
    assert ["tagged", "blocks"] == [one.name for one in load(TAGGED + BLOCKS)]


@pytest.mark.parametrize(
    ("text", "line", "column"), [('[[format]]\nname = "x\n', 2, 10), ("a = 1\na = 2", 2, 6), ("[prompts", 1, 9)]
)
def test_what_is_not_toml_is_told_with_line_and_column(text: str, line: int, column: int) -> None:
    with pytest.raises(InvalidFormat, match="not valid TOML") as caught:
        load(text)
    assert (line, column) == (caught.value.line, caught.value.column)


@pytest.mark.parametrize("number", ["1" * 5000, "1_1" * 3000])
def test_an_integer_of_too_many_digits_is_told_with_its_place(number: str) -> None:
    with pytest.raises(InvalidFormat, match="not valid TOML: an integer of more digits than can be read") as caught:
        load(f"[own]\nx = 1\nnumber = {number}\n{TAGGED}")
    assert "line 3, column 10" == caught.value.where


def test_an_integer_that_python_shows_nobody_is_told_by_its_size() -> None:
    with pytest.raises(InvalidFormat, match="expected a string, found an integer of 20000 bits") as caught:
        load(TAGGED.replace('"Tags with JSON calls"', f"0x{'f' * 5000}"))
    assert "format[0].title" == caught.value.path


def test_toml_that_is_nested_too_deep_is_refused() -> None:
    with pytest.raises(InvalidFormat, match="not valid TOML"):
        load(f"a = {'[' * 5000}")


@pytest.mark.parametrize("key", ["params", 'a\\"b'])
def test_a_call_that_does_not_read_back_is_refused(key: str) -> None:
    """Readers know a few words for arguments, and a key is not checked for being one of them but tried."""
    with pytest.raises(InvalidFormat, match="cannot be read back") as caught:
        load(TAGGED.replace("spaced = true", f'arguments = "{key}"'))
    assert "format[0]" == caught.value.path


def test_a_file_must_declare_something() -> None:
    with pytest.raises(InvalidFormat, match=r"declares no format; write \[\[format\]\] or \[prompts\]"):
        load('[model]\nname = "x"\n')
    for text in ("[[formats]]\n", "[prompt]\n"):
        with pytest.raises(InvalidFormat, match="did you mean"):
            load(text)


def test_two_formats_of_a_file_have_two_names() -> None:
    with pytest.raises(InvalidFormat, match="is taken") as caught:
        load(TAGGED + TAGGED)
    assert "format[1].name" == caught.value.path


def test_a_table_that_does_not_read_back_is_refused() -> None:
    """A mark that names of tools may hold, though it is harmless by itself."""
    with pytest.raises(InvalidFormat, match="cannot be read back"):
        load(TAGGED.replace('{ name = "json-call", spaced = true }', '{ name = "named-call", mark = "her" }'))


@pytest.mark.parametrize(
    ("text", "path", "header"),
    [
        ('[format]\nname = "one"\n', "format", "[[format]]"),
        (
            '[[format]]\nname = "one"\n[format.turn]\nrole = "user"\n[format.generation]\nstops = ["x"]\n',
            "format[0].turn",
            "[[format.turn]]",
        ),
    ],
)
def test_a_table_with_one_bracket_is_told_to_take_two(text: str, path: str, header: str) -> None:
    with pytest.raises(InvalidFormat, match="found a table; write ") as caught:
        load(text)
    assert (path, header) == (caught.value.path, caught.value.expected)


@pytest.mark.deep
def test_a_table_with_many_turns_is_checked_in_time_in_proportion_to_them() -> None:
    """Each turn's literals are held against those that open the others."""
    thought = '[[format.turn.segment]]\nkind = "thinking"\nof = "{0}"\nbody = "text"\n'
    turn = f'[[format.turn]]\nrole = "{{0}}"\nopen = "<{{0}}x>"\nclose = "</{{0}}x>"\n{thought}'
    start, end = BLOCKS.replace("anchored = true", "").split("[[format.turn]]", 1)[0], "[format.generation]\n"
    spoken = '[[format.turn]]\nrole = "a"\nopen = "<a>"\nclose = "</a>"\n[[format.turn.segment]]\n'
    spoken += 'kind = "assistant"\nbody = "text"\nmodel = true\n'

    def checking(count: int) -> Callable[[], object]:
        turns = "".join(turn.format(f"k{number}") for number in range(count))
        text = f'{start}{spoken}{turns}{end}stops = ["</a>"]\nthinking_kind = "assistant"\n'
        return lambda: load(text)

    assert_grows_below(14, checking, 50, 250, least=0.01)
