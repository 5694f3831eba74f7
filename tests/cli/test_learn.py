"""`turnscript learn`: the table of a template as TOML, verdicts on each probe, errors."""

import json
from pathlib import Path

import pytest

from tests.chat_templates import reading_samples
from tests.cli.running import run
from turnscript.convert.registry import load_formats


def written(folder: Path, source: str) -> str:
    path = folder / "chat_template.jinja"
    path.write_text(source)
    return str(path)


def test_a_learned_table_is_printed_as_a_file_of_its_own(tmp_path: Path) -> None:
    result = run("learn", written(tmp_path, reading_samples.NAMED))
    assert (0, "") == (result.exit_code, result.stderr)
    assert result.stdout.startswith("# What this template writes is read by a table that was learned from it: ")
    assert ["learned"] == [one.name for one in load_formats(result.stdout)]


def test_a_known_table_is_printed_whole(tmp_path: Path) -> None:
    result = run("learn", written(tmp_path, reading_samples.CHATML))
    [format_] = load_formats(result.stdout)
    assert 0 == result.exit_code
    assert f"is read by the table '{format_.name}'" in result.stdout


def test_what_could_not_be_learned_stands_in_the_comments(tmp_path: Path) -> None:
    result = run("learn", written(tmp_path, reading_samples.UNKNOWN_CALLS))
    assert 1 == result.exit_code
    assert "# Tool calls were not learned: " in result.stdout
    assert "turnscript learn --check" in result.stderr
    assert load_formats(result.stdout)


def test_the_verdicts_are_shown_for_people_and_programs(tmp_path: Path) -> None:
    template = written(tmp_path, reading_samples.UNKNOWN_CALLS)
    shown = run("learn", template, "--check").stdout.splitlines()
    assert ["PROBE", "READ", "WHY"] == shown[2].split()
    told = json.loads(run("learn", template, "--json").stdout)
    assert ("learned", False) == (told["table"], told["exact"])
    assert {"exact", "differs"} <= {one["result"] for one in told["verdicts"]}


def test_the_table_is_written_to_a_file(tmp_path: Path) -> None:
    output = tmp_path / "mine.toml"
    result = run("learn", written(tmp_path, reading_samples.NAMED), "--output", str(output))
    assert (0, "") == (result.exit_code, result.stdout)
    assert load_formats(output)


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("just words", "is no chat template: nothing in it stands in {{ }} or {% %}"),
        ("{% for %}", "mend the template there"),
        (reading_samples.REFUSES, "nothing is good enough"),
    ],
)
def test_a_bad_template_is_an_error_that_says_what_to_do(tmp_path: Path, source: str, words: str) -> None:
    result = run("learn", written(tmp_path, source))
    assert (1, "") == (result.exit_code, result.stdout)
    assert words in result.stderr


def test_a_missing_file_is_an_error() -> None:
    result = run("learn", "no-such.jinja")
    assert 1 == result.exit_code
    assert "no-such.jinja" in result.stderr
