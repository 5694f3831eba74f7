"""Owns what a build says of another one in the same folder, before it takes its place."""

from pathlib import Path

import pytest

from tests.cli.running import EXAMPLES, run

ROWS = str(EXAMPLES / "training_rows.jsonl")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    build(tmp_path / "run", "--format", "jsonl")
    return tmp_path / "run"


def build(out: Path, *options: str) -> str:
    """What people read while the rows of the example are built."""
    given = run("data", "build", ROWS, "--to", "rwkv-goose", "--tokenizer", "bytes", "--out", out, *options)
    assert given.exit_code == 1, given.output  # some rows of the example cannot be used
    return given.stderr


def test_a_build_with_other_options_says_first_what_it_replaces(folder: Path) -> None:
    said = build(folder, "--max-tokens", "400").splitlines()
    assert said[0] == (
        f"turnscript: {folder} holds a finished build with other options (max_tokens, outputs): "
        "its files (train.jsonl, rejects.jsonl) are replaced once this one is finished"
    )
    assert not (folder / "train.jsonl").exists()
    assert (folder / "train.bin").exists()


def test_what_would_be_replaced_by_a_part_of_a_job_is_said_too(folder: Path) -> None:
    assert "other options (max_tokens, outputs)" in build_part(folder, "--max-tokens", "400")


def build_part(out: Path, *options: str) -> str:
    given = run(
        "data", "build", ROWS, "--to", "rwkv-goose", "--tokenizer", "bytes", "--out", out, "--shard", "1/2", *options
    )
    assert given.exit_code == 0, given.output
    assert (out / "train.jsonl").exists()
    return given.stderr


@pytest.mark.parametrize("options", [[], ["--no-resume"]])
def test_the_same_build_again_replaces_nothing_that_is_worth_a_word(folder: Path, options: list[str]) -> None:
    assert "replaced" not in build(folder, "--format", "jsonl", *options)


def test_a_quiet_build_says_nothing(folder: Path) -> None:
    assert "replaced" not in build(folder, "--quiet")
