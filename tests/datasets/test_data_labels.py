"""Owns how a build tells of the labels that Hugging Face's trainers read, and that its line makes them."""

import json
from pathlib import Path
from typing import Any

import pyarrow.parquet  # type: ignore[import-untyped]
import pytest

from tests.cli.running import run
from turnscript.datasets.output_registry import get_output, outputs

ROW = {"messages": [{"role": "user", "content": "Name a prime."}, {"role": "assistant", "content": "Seven."}]}
HEAD = "Hugging Face trainers read no loss_weight, and train every token of samples without labels:"


@pytest.fixture(autouse=True)
def in_a_folder_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("rows.jsonl").write_text(json.dumps(ROW) + "\n", encoding="utf-8")


def built(*options: str) -> str:
    """What a build writes for people, or with `--json` for programs."""
    given = run("data", "build", "rows.jsonl", "--to", "rwkv-goose", "--tokenizer", "bytes", "--out", "run", *options)
    assert given.exit_code == 0, given.output
    return given.stdout


def labelled(row: dict[str, Any]) -> dict[str, Any]:
    """The row, once the line that the build tells was run on it."""
    line: str = json.loads(built("--format", "parquet,jsonl", "--json"))["labels"]
    exec(line, {"row": row})
    return row


def learned(row: dict[str, Any]) -> str:
    return bytes(label for label in row["labels"] if 0 <= label < 256).decode()


def test_the_line_makes_labels_of_both_files() -> None:
    built("--format", "parquet,jsonl")
    parquet: dict[str, Any] = labelled(pyarrow.parquet.read_table("run/train.parquet").to_pylist()[0])
    lines: dict[str, Any] = labelled(json.loads(Path("run/train.jsonl").read_text(encoding="utf-8")))
    assert parquet["labels"] == lines["labels"]
    assert len(parquet["labels"]) == len(parquet["input_ids"])
    assert "Seven." in learned(parquet)
    assert "prime" not in learned(parquet)


def test_people_are_told_where_a_file_is_for_such_a_trainer() -> None:
    for name in outputs():
        assert (HEAD in built("--format", name)) == bool(get_output(name).labelled)
    assert built("--format", "jsonl").endswith(f"\n{HEAD}\n  {get_output('jsonl').labelled}\n")


def test_both_files_have_one_line() -> None:
    assert 1 == built("--format", "parquet,jsonl").count(HEAD)


def test_nothing_is_said_where_every_token_is_trained() -> None:
    everything = ("--format", "jsonl", "--train", "all,end,no-flags")
    assert "Hugging Face" not in built(*everything)
    assert "" == json.loads(built(*everything, "--json"))["labels"]


def test_weights_between_none_and_one_are_more_than_labels_say() -> None:
    assert "labels say only whether" not in built("--format", "jsonl")
    assert "labels say only whether a token is learned, not its weight" in built(
        "--format", "jsonl", "--weights", "scaled"
    )
