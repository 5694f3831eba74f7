"""`turnscript export jinja`: the chat template of a format, and what it would write otherwise."""

from pathlib import Path

import pytest

import turnscript as ts
from tests.cli.running import run
from turnscript.convert.registry import load_formats


@pytest.mark.parametrize("name", ts.formats())
def test_the_template_goes_to_standard_output_and_what_differs_is_listed(name: str) -> None:
    result = run("export", "jinja", "--format", name)
    made = ts.get_format(name).jinja()
    assert (0, made.value) == (result.exit_code, result.stdout)
    assert f"turnscript: {len(made.losses)} losses" in result.stderr
    assert all(loss.detail in result.stderr for loss in made.losses)


def test_a_file_is_written_and_nothing_is_said_if_that_is_asked(tmp_path: Path) -> None:
    place = tmp_path / "chat_template.jinja"
    result = run("export", "jinja", "--format", "rwkv-goose", "--output", str(place), "--quiet")
    assert (0, "", "") == (result.exit_code, result.stdout, result.stderr)
    assert ts.get_format("rwkv-goose").jinja().value == place.read_text(encoding="utf-8")


@pytest.mark.parametrize("escape", ["auto", "reject", "none"])
def test_options_reach_the_template(escape: str) -> None:
    result = run("export", "jinja", "--format", "qwen3", "--generation", "--escape", escape)
    assert ts.get_format("qwen3").jinja(escape=escape, generation=True).value == result.stdout


def test_a_variant_of_the_format_can_be_asked_for() -> None:
    result = run("export", "jinja", "--format", "rwkv-goose", "--variant", "paren")
    assert ts.get_format("rwkv-goose").variant("paren").jinja().value == result.stdout
    unknown = run("export", "jinja", "--format", "rwkv-goose", "--variant", "brackets")
    assert (2, "") == (unknown.exit_code, unknown.stdout)
    assert "rwkv-goose has no variant 'brackets'; its variants: paren, unhinted" in unknown.stderr


def test_strict_writes_nothing_and_lists_why(tmp_path: Path) -> None:
    place = tmp_path / "chat_template.jinja"
    result = run("export", "jinja", "--format", "rwkv-goose", "--strict", "--output", str(place))
    assert (3, "", False) == (result.exit_code, result.stdout, place.exists())
    assert result.stderr.startswith("turnscript: error: a chat template of rwkv-goose cannot carry everything")
    assert "leave out --strict to write it anyway" in result.stderr
    assert "$.tool_choice: dropped" in result.stderr


def test_a_format_in_a_file_has_a_template_too(tmp_path: Path) -> None:
    place = tmp_path / "mine.toml"
    place.write_text('[[format]]\nname = "mine"\ntitle = "Mine"\nbased_on = "gemma"\nstart = "<s>"\n')
    result = run("export", "jinja", "--format", str(place))
    assert load_formats(place)[0].jinja().value == result.stdout
    assert '{{- "<s>" -}}' in result.stdout


def test_an_unknown_format_is_an_error_that_says_where_the_names_are() -> None:
    result = run("export", "jinja", "--format", "rwkv-gose")
    assert (2, "") == (result.exit_code, result.stdout)
    assert "did you mean 'rwkv-goose'" in result.stderr
