"""Commands where a package of an extra is not installed: one line that says which, and the command to install it."""

import re
from pathlib import Path

import pytest

from tests.cli.running import EXAMPLES, process
from turnscript.cli.data.group import EXTRAS

TO = "--to openchatml --tokenizer bytes"
TOKENIZER = '{"model": {"type": "BPE", "vocab": {"a": 0}, "merges": []}}'
NEEDS = [
    ("numpy", f"check rows.jsonl {TO}"),
    ("pyrwkv_tokenizer", "preview rows.jsonl --to openchatml --tokenizer rwkv-world"),
    ("tokenizers", "preview rows.jsonl --to openchatml --tokenizer hf:tokenizer.json"),
    ("tokenizers", "build rows.jsonl --to openchatml --tokenizer hf:tokenizer.json --out run"),
    ("pyarrow", f"build rows.jsonl --format parquet {TO} --out run"),
    ("pyarrow", "inspect rows.parquet"),
    ("zstandard", "inspect rows.jsonl.zst"),
    ("ray", f"build rows.jsonl --ray {TO} --out run"),
]


@pytest.fixture(autouse=True)
def in_a_folder_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("rows.jsonl").write_bytes((EXAMPLES / "training_rows.jsonl").read_bytes())
    Path("rows.parquet").write_bytes(b"PAR1")
    Path("rows.jsonl.zst").write_bytes(b"\x28\xb5\x2f\xfd")
    Path("tokenizer.json").write_text(TOKENIZER, encoding="utf-8")


@pytest.mark.parametrize(("package", "arguments"), NEEDS)
def test_what_to_install_is_the_only_advice(package: str, arguments: str) -> None:
    code = f"import sys; sys.modules[{package!r}] = None; from turnscript.cli.main import main; main()"
    done = process("data", *arguments.split(), code=code)
    told = done.stderr.decode()
    assert done.returncode in (1, 2), done.stdout
    assert re.fullmatch(rf"turnscript: error: .*\s+pip install 'turnscript\[{EXTRAS[package]}\]'.*\n", told), told


def test_every_package_of_an_extra_is_taken_away_once() -> None:
    assert set(EXTRAS) == {package for package, _ in NEEDS}
