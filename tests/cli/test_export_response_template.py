"""`turnscript export response-template`: how transformers is to read answers, and what it does not read."""

import json
from pathlib import Path

import pytest

import turnscript as ts
from tests.cli.running import run


@pytest.mark.parametrize("name", ts.formats())
def test_the_declaration_goes_to_standard_output_and_its_losses_are_listed(name: str) -> None:
    result = run("export", "response-template", "--format", name)
    made = ts.get_format(name).response_template()
    assert (0, made.value) == (result.exit_code, json.loads(result.stdout))
    assert all(loss.detail in result.stderr for loss in made.losses)


def test_a_file_is_written_and_nothing_is_said_if_that_is_asked(tmp_path: Path) -> None:
    place = tmp_path / "response_template.json"
    result = run("export", "response-template", "--format", "qwen3", "-o", str(place), "-q")
    assert (0, "", "") == (result.exit_code, result.stdout, result.stderr)
    assert ts.get_format("qwen3").response_template().value == json.loads(place.read_text(encoding="utf-8"))


def test_calls_that_no_declaration_can_say_are_left_out() -> None:
    made = ts.get_format("rwkv-goose-observation").response_template()
    assert {"reasoning_content", "content"} == made.value["fields"].keys()
    assert ["$.tool_calls"] == [loss.path for loss in made.losses if loss.kind == "dropped"]


def test_an_unknown_format_is_an_error_that_says_where_the_names_are() -> None:
    result = run("export", "response-template", "--format", "rwkv-gose")
    assert (2, "") == (result.exit_code, result.stdout)
    assert "did you mean 'rwkv-goose'" in result.stderr
