"""Owns what a disk that is full does to commands for training data: they say where, and leave nothing half written."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.datasets import tinytokenizers
from tests.datasets.jobs import chats, written

ROOM = 20_000
_LIMITED = f"""
import resource
resource.setrlimit(resource.RLIMIT_FSIZE, ({ROOM}, {ROOM}))
from turnscript.cli.main import main
main()
"""


def limited(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    """A command on a system where files may only be so large, which is how a full disk looks to a program."""
    command = [sys.executable, "-c", _LIMITED, "data", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def build(source: Path, out: Path, *more: str) -> subprocess.CompletedProcess[str]:
    return limited("build", source, "--to", "rwkv-goose", "--tokenizer", "bytes", "--out", out, "--quiet", *more)


@pytest.mark.deep
@pytest.mark.parametrize("workers", ["1", "2"])
def test_a_build_that_finds_no_room_names_its_folder_and_goes_on_later(tmp_path: Path, workers: str) -> None:
    source = written(tmp_path / "rows.jsonl", chats(900))
    out = tmp_path / "run"
    found = build(source, out, "--workers", workers)
    assert 1 == found.returncode
    assert f"turnscript: error: {out}: cannot write this: file too large\n  allow larger files" in found.stderr
    assert ["plan.json"] == [path.name for path in out.rglob("*") if path.is_file()]


@pytest.mark.deep
@pytest.mark.parametrize("output", ["binidx", "jsonl", "parquet"])
def test_a_merge_that_finds_no_room_names_its_folder_and_keeps_the_shards(tmp_path: Path, output: str) -> None:
    source = written(tmp_path / "rows.jsonl", [line for line in chats(90) if b'{"messages": [{' in line])
    out = tmp_path / "run"
    found = build(source, out, "--shards", "20", "--workers", "1", "--format", output, "--repeat", "60")
    assert 1 == found.returncode
    assert f"{out}: cannot write this: file too large" in found.stderr
    left = [path for path in out.rglob("*") if path.is_file() and path.name != ".lock"]
    assert {"shards", "run"} == {path.parent.name for path in left}
    assert [] == [path for path in left if path.name.startswith((".", "train"))]


def test_a_tokenizer_that_finds_no_room_is_named_and_leaves_the_file_before(tmp_path: Path) -> None:
    tokenizer = tinytokenizers.byte_level(tmp_path / "tokenizer.json")
    file = tmp_path / "larger.json"
    file.write_text("what was there before")
    found = limited("tokens", "--to", "rwkv-universal", "--tokenizer", f"hf:{tokenizer}", "--write", file)
    assert 1 == found.returncode
    assert f"turnscript: error: {file}: cannot write this: file too large" in found.stderr
    assert "what was there before" == file.read_text()
    assert ["larger.json", "tokenizer.json"] == sorted(path.name for path in tmp_path.iterdir())


@pytest.mark.deep
def test_a_file_of_tags_is_named_as_it_was_given_and_a_link_stays_one(tmp_path: Path) -> None:
    wanted = ["tokens", "--to", "openchatml", "--tokenizer", "rwkv-world", "--tags", "<|im_end|>", "--write"]
    found = limited(*wanted, tmp_path / "none" / "tags.json")
    assert f"turnscript: error: {tmp_path / 'none' / 'tags.json'}: cannot use this: no such file" in found.stderr
    link, file = tmp_path / "link.json", tmp_path / "file.json"
    link.symlink_to(file)
    assert 0 == limited(*wanted, link).returncode
    assert link.is_symlink()
    assert b"65530" in file.read_bytes()
