"""The page on how it works inside names files that are there."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

TEXT = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
NAMED = sorted(set(re.findall(r"`((?:[a-z_]+/)*[a-z_]+\.py)`", TEXT)))


@pytest.mark.parametrize("name", NAMED)
def test_a_named_file_is_there(name: str) -> None:
    folders = [ROOT, *(ROOT / "src" / "turnscript").rglob("")]
    assert any((folder / name).is_file() for folder in folders)


def test_files_are_named() -> None:
    assert len(NAMED) > 20
