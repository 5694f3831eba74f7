"""Owns the checks of what make does where something is missing: a `.venv` that can be used, a browser."""

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


@pytest.mark.deep
@pytest.mark.long
def test_an_environment_that_was_left_half_made_is_made_anew(tmp_path: Path) -> None:
    """As on Debian without python3-venv: there is a Python, but no pip, also after the package was installed."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", tmp_path / ".venv"], check=True)
    assert not has_pip(tmp_path)
    done = set_up(tmp_path)
    assert has_pip(tmp_path)
    assert "No module named pip" not in done.stderr


@pytest.mark.deep
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


def made(target: str, *variables: str, dry: bool = False) -> subprocess.CompletedProcess[str]:
    """A target of our Makefile, with variables as they are given."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("MAKE")}
    command = ["make", *["-n"] * dry, target, "TESTS=", "CI=", *variables]
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("missing", ["BROWSER=", "DRIVER="])
def test_where_there_is_no_browser_it_is_said_how_to_get_one(missing: str) -> None:
    there = ("BROWSER=/usr/bin/chromium", "DRIVER=/usr/bin/chromedriver")
    assert ("", 0) == ((good := made("browser", *there)).stderr, good.returncode)
    told = made("browser", *there, missing)
    assert ("", 0) == (told.stdout, told.returncode)
    assert "cannot run" in told.stderr
    assert "apt-get install chromium chromium-driver" in told.stderr
    assert "tests/browser is left out" in told.stderr
    refused = made("browser", *there, missing, "CI=1")
    assert "cannot run" in refused.stderr
    assert "left out" not in refused.stderr
    assert refused.returncode != 0


def test_the_tests_of_the_page_are_left_out_only_where_there_is_no_browser() -> None:
    assert "--ignore=tests/browser" in made("test", "BROWSER=", "DRIVER=", dry=True).stdout
    assert "--ignore" not in made("test", "BROWSER=a", "DRIVER=b", dry=True).stdout
    assert "--ignore" not in made("test", "BROWSER=", "DRIVER=", "TESTS=tests/browser", dry=True).stdout
