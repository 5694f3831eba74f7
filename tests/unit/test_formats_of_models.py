"""Owns the checks that the formats of well-known models are had by name wherever a format is, and not read before."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

import turnscript as ts
from tests.cli.running import process, run
from turnscript.convert.registry import clues, is_format, load_formats, named_formats, title_of
from turnscript.datasets.form_registry import forms, get_form
from turnscript.tableio import read_outlines

FOLDER = Path(ts.__file__).parent / "formats" / "tables"
FILES = sorted(FOLDER.glob("*.toml"))
BODY = '{"messages": [{"role": "user", "content": "Hi"}]}'


@pytest.fixture(params=ts.model_formats())
def name(request: pytest.FixtureRequest) -> str:
    """The name of each format in turn."""
    return str(request.param)


def declared() -> Iterator[tuple[str, ts.Format]]:
    for path in FILES:
        for format_ in load_formats(path):
            yield format_.name, format_


def test_every_format_of_every_file_of_the_folder_has_a_name_of_its_own() -> None:
    names = [name for name, _ in declared()]
    assert names
    assert sorted(names) == sorted(ts.model_formats())
    assert not set(names) & {*ts.formats(), *ts.apis()}


def test_a_format_of_a_model_is_that_of_its_file(name: str) -> None:
    assert dict(declared())[name].document == ts.get_format(name).document
    assert ts.get_format(name) is ts.get_format(name)
    assert is_format(name)
    assert name not in ts.formats()


def test_an_outline_says_what_the_format_says(name: str) -> None:
    format_ = ts.get_format(name)
    assert (format_.title, format_.clues) == (title_of(name), clues()[name])
    assert format_.clues


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_outlines_are_those_of_the_formats(path: Path) -> None:
    """Read without looking at the rest of a table."""
    text = path.read_text(encoding="utf-8")
    expected = [(one.name, one.title, one.clues) for one in load_formats(text)]
    assert expected == [(one.name, one.title, one.clues) for one in read_outlines(text)]
    assert ["x"] == [one.title for one in read_outlines('[[format]]\nname = "x"\nturn = "?"')]


def test_named_formats_are_all_that_have_a_name() -> None:
    known = named_formats()
    assert [*ts.formats(), *ts.model_formats()] == list(known)
    assert len(known) == len(list(known))
    assert [ts.get_format(name) for name in known] == list(known.values())
    assert None is known.get("nobody's")


def test_a_name_that_is_none_is_told_the_nearest() -> None:
    with pytest.raises(ts.UnknownName, match="did you mean 'qwen3-coder'"):
        ts.get_format("qwen3-codr")
    assert not is_format("qwen3-codr")


# Wherever a format is named.


def test_a_conversation_is_converted_to_it_and_back(name: str) -> None:
    text = str(ts.convert(BODY, "openai-chat", name).value)
    assert "Hi" in text
    assert "Hi" in str(ts.convert(text, name, "openai-chat").value)


def test_the_command_line_takes_its_name() -> None:
    done = run("convert", "-", "--to", "qwen3", "--quiet", stdin=BODY)
    assert (0, "<|im_start|>user\nHi<|im_end|>\n") == (done.exit_code, done.stdout)
    shown = run("show", "qwen3")
    assert (0, "qwen3: Qwen3") == (shown.exit_code, shown.stdout.split("\n")[0])


def test_the_command_line_lists_it_in_a_section_of_its_own() -> None:
    registered, models = run("formats").stdout.split("\n\n")
    assert ts.formats() == [line.split()[0] for line in registered.split("\n")[1:]]
    assert ts.model_formats() == [line.split()[0] for line in models.strip().split("\n")[1:]]
    listed = json.loads(run("formats", "--json").stdout)
    assert {"registered": ts.formats(), "models": ts.model_formats()} == {
        kind: [one["name"] for one in listed if one["kind"] == kind] for kind in ("registered", "models")
    }


def test_a_format_may_be_based_on_it() -> None:
    [own] = load_formats('[[format]]\nname = "mine"\nbased_on = "qwen3"\n[format.generation]\nprefill = ""')
    assert ts.get_format("qwen3").stops == own.stops
    assert ("", "<think>\n\n</think>\n\n") == (
        own.document.generation.prefill,
        ts.get_format("qwen3").document.generation.prefill,
    )


@pytest.mark.parametrize("name", sorted({*ts.model_formats()} - {*forms()}))
def test_its_transcripts_are_a_form_of_training_data(name: str) -> None:
    """Which is in no list, and so is never guessed. Where another form has the name, it keeps it."""
    text = str(ts.convert(BODY, "openai-chat", name).value)
    [example] = get_form(name).read(text.encode())
    assert example.given is not None
    assert ["user"] == [item.kind for item in example.given.items]


# Where nobody names one, none is read.

UNREAD = """
import turnscript as ts
from turnscript.convert import registry
body = '{"messages": [{"role": "user", "content": "Hi"}]}'
for target in ("openai-responses", "rwkv-goose"):
    ts.convert(body, "auto", target)
assert not registry._tables.cache_info().currsize
ts.get_format("qwen3")
assert registry._tables.cache_info().currsize
"""


def test_no_table_is_read_before_its_name_or_a_list_is_asked_for() -> None:
    done = process(code=UNREAD)
    assert (0, b"") == (done.returncode, done.stderr)
