"""Owns the checks of arguments in samples: an object has one spelling, however the file was printed; a text stays."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.datasets.jobs import built, plan_for, results, written
from tests.datasets.samples import WITH_FILES, rows_of
from turnscript import ToolCall
from turnscript.datasets.form import WHOLE
from turnscript.datasets.form_registry import get_form
from turnscript.datasets.problems import Problem
from turnscript.datasets.readings import examples_of
from turnscript.datasets.rows import RawRow

CALL = {"id": "a", "type": "function", "function": {"name": "f", "arguments": {"city": "Å", "n": [1, 2], "s": " { "}}}
CHAT = {"messages": [{"role": "user", "content": "x"}, {"role": "assistant", "tool_calls": [CALL]}]}


def arguments_in(form: str, data: bytes) -> list[str]:
    """The arguments of all calls that a job would read."""
    found = examples_of(get_form(form), RawRow("a.jsonl", 1, 0, data))
    assert not isinstance(found, Problem), found
    return [item.arguments for one in found for item in one.request.items if isinstance(item, ToolCall)]


@pytest.mark.parametrize("form", [name for name in WITH_FILES if get_form(name).row != WHOLE])
def test_the_white_space_of_a_row_is_in_no_arguments(form: str) -> None:
    """Of any form: rows are the same, printed on one line, without blanks, or over many lines."""
    for row in rows_of(form):
        try:
            record: Any = json.loads(row)
        except ValueError:
            continue  # a file of text
        shapes: list[dict[str, Any]] = [{}, {"separators": (",", ":")}, {"indent": 2}, {"ensure_ascii": False}]
        read = [arguments_in(form, json.dumps(record, **shape).encode()) for shape in shapes]
        assert [read[0]] * len(read) == read


def test_a_pretty_printed_file_gives_the_samples_of_any_other(tmp_path: Path) -> None:
    lines = written(tmp_path / "lines.jsonl", [json.dumps(CHAT, separators=(",", ":")).encode()])
    pretty = tmp_path / "pretty.json"
    pretty.write_text(json.dumps([CHAT], indent=4))
    tokens = []
    for file in (lines, pretty):
        built(plan_for(file, train="calls"), tmp_path / file.stem)
        tokens.append(results(tmp_path / file.stem)["train.bin"])
    assert tokens[0] == tokens[1]
    assert '{"city": "Å", "n": [1, 2], "s": " { "}'.encode() in bytes(tokens[0][::2])


def test_a_text_of_arguments_stays_as_a_model_wrote_it() -> None:
    text = '{ "city":"\\u00c5",\n "n": 1.0}'
    call = {"id": "a", "type": "function", "function": {"name": "f", "arguments": text}}
    row = {"messages": [CHAT["messages"][0], {"role": "assistant", "tool_calls": [call]}]}
    assert [text] == arguments_in("messages", json.dumps(row, indent=2).encode())


def test_a_transcript_that_is_laid_out_gives_the_samples_of_one_line() -> None:
    """On one line it is what a model wrote."""
    turn = '<<USER>>\nq\n<<USER_END>>\n\n<<TOOL_CALL name="f">>\n{}\n<<END_TOOL_CALL>>'
    for payload, read in (
        ('{\n  "a": 1.0,\n  "b": [\n    2\n  ]\n}', '{"a": 1.0, "b": [2]}'),
        ('{"a":1.0}', '{"a":1.0}'),
        ('{ "a": 1.0 }', '{ "a": 1.0 }'),
    ):
        assert [read] == arguments_in("rwkv-universal", turn.replace("{}", payload).encode())
