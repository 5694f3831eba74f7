"""Owns the checks that `make setup` makes a `.venv` anew that cannot be used, and leaves one that can."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PROJECT = '[build-system]\nrequires = []\nbuild-backend = "none"\nbackend-path = ["."]\n[project]\nname = "none"\n'


def set_up(folder: Path) -> subprocess.CompletedProcess[str]:
    """Our Makefile and a project that cannot be installed: what comes before needs no network."""
    (folder / "requirements").mkdir(exist_ok=True)
    (folder / "requirements/dev.txt").touch()
    (folder / "pyproject.toml").write_text(PROJECT, encoding="utf-8")
    shutil.copy(ROOT / "Makefile", folder)
    command = ["make", "setup", f"PYTHON={sys.executable}"]
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("MAKE", "PIP_"))}
    return subprocess.run(
        command, cwd=folder, env=environment | {"PIP_NO_INDEX": "1"}, capture_output=True, text=True, check=False
    )


def has_pip(folder: Path) -> bool:
    python = folder / ".venv/bin/python"
    return 0 == subprocess.run([python, "-m", "pip", "--version"], capture_output=True, check=False).returncode


@pytest.mark.long
def test_an_environment_that_was_left_half_made_is_made_anew(tmp_path: Path) -> None:
    """As on Debian without python3-venv: there is a Python, but no pip, also after the package was installed."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", tmp_path / ".venv"], check=True)
    assert not has_pip(tmp_path)
    done = set_up(tmp_path)
    assert has_pip(tmp_path)
    assert "No module named pip" not in done.stderr


@pytest.mark.long
def test_an_environment_whose_python_is_gone_is_made_anew_and_one_that_works_is_kept(tmp_path: Path) -> None:
    (tmp_path / ".venv/bin").mkdir(parents=True)
    (tmp_path / ".venv/bin/python").symlink_to(tmp_path / "gone")
    (tmp_path / ".venv/stale").touch()
    set_up(tmp_path)
    assert (True, False) == (has_pip(tmp_path), (tmp_path / ".venv/stale").exists())
    (tmp_path / ".venv/kept").touch()
    set_up(tmp_path)
    assert (tmp_path / ".venv/kept").exists()
