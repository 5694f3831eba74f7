"""Owns the checks of what lies in a folder that may not be entered: it is not called missing, on any Python."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.running import as_nobody, run


@pytest.fixture
def closed(tmp_path: Path) -> Path:
    """A folder that nobody but its owner may enter."""
    folder = tmp_path / "closed"
    folder.mkdir(mode=0o700)
    (folder / "file").write_text("{}", encoding="utf-8")
    return folder


@pytest.mark.parametrize("command", [("keys", "list", "--file"), ("keys", "remove", "a", "--file")])
def test_a_file_of_keys_is_not_called_missing(command: tuple[str, ...], closed: Path) -> None:
    with as_nobody():
        result = run(*command, closed / "file")
    assert (1, "") == (result.exit_code, result.stdout)
    assert "permission denied" in result.stderr.lower()


def test_a_model_is_not_called_missing(closed: Path) -> None:
    with as_nobody():
        result = run("serve", "--check", "--backend", f"embedded:{closed / 'file'}")
    assert 0 != result.exit_code
    assert "permission denied" in result.stderr.lower()


def test_the_folder_of_a_build_is_not_called_missing(closed: Path) -> None:
    with as_nobody():
        result = run("data", "merge", closed / "build")
    assert 0 != result.exit_code
    assert "permission denied" in result.stderr.lower()
