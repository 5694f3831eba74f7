"""Owns the checks of options that take lists: with commas, or said once for each name."""

import json
from pathlib import Path

import pytest

from tests.cli.running import EXAMPLES, run

ROWS = str(EXAMPLES / "training_rows.jsonl")


def plan_of(out: Path, *options: str) -> dict[str, object]:
    """The plan that a build with some options has gone by."""
    given = run("data", "build", ROWS, "--to", "rwkv-goose", "--tokenizer", "bytes", "--out", out, "--quiet", *options)
    assert given.exit_code == 1, given.output  # some rows of the example cannot be used
    plan: dict[str, object] = json.loads((out / "manifest.json").read_bytes())["plan"]
    return plan


@pytest.mark.parametrize(
    "options",
    [("--format", "jsonl,binidx"), ("--format", "jsonl", "--format", "binidx")],
    ids=["commas", "one by one"],
)
def test_every_output_that_is_asked_for_is_written(tmp_path: Path, options: tuple[str, ...]) -> None:
    assert plan_of(tmp_path / "run", *options)["outputs"] == ["jsonl", "binidx"]
    assert (tmp_path / "run" / "train.jsonl").exists()
    assert (tmp_path / "run" / "train.bin").exists()


@pytest.mark.parametrize(
    "options",
    [("--train", "answers,no-end"), ("--train", "answers", "--train", "no-end")],
    ids=["commas", "one by one"],
)
def test_everything_that_is_to_be_trained_counts(tmp_path: Path, options: tuple[str, ...]) -> None:
    assert plan_of(tmp_path / "run", *options)["train"] == "answers,no-end"


def test_tags_may_be_said_one_by_one() -> None:
    line = ("data", "tokens", "--to", "rwkv-goose", "--tokenizer", "rwkv-world", "--json")
    commas = run(*line, "--tags", "<think>,</think>")
    assert commas.exit_code == 0, commas.output
    assert run(*line, "--tags", "<think>", "--tags", "</think>").stdout == commas.stdout
