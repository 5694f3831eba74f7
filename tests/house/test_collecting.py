"""Owns the checks of how workers collect tests: a module that cannot be loaded and a doctest are never passed over."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


def collected(folder: Path, broken: str) -> subprocess.CompletedProcess[str]:
    """What two workers say of a folder in which one module fails at import, behind a test that could be run."""
    for name in ("a", "b", "c", "d"):
        code = "def test_one() -> None:\n    pass\n" + ("raise OSError('no such luck')\n" if name == broken else "")
        (folder / f"test_{name}.py").write_text(code)
    (folder / "shown.py").write_text('"""\n>>> 1 + 1\n2\n"""\n')
    command = [sys.executable, "-m", "pytest", "-q", "-n", "2", "-p", "tests.collecting", "-p", "no:cacheprovider"]
    command += [
        "--doctest-modules",
        "--import-mode=importlib",
    ]  # as pyproject.toml says; the latter leaves half a module
    command += ["--rootdir", str(folder), "-c", "/dev/null", str(folder)]
    command += ["-p", "xdist"]
    alone = os.environ | {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}  # other plugins take longer to load than all this
    return subprocess.run(command, cwd=ROOT, env=alone, capture_output=True, text=True, check=False)


@pytest.mark.deep
@pytest.mark.parametrize("broken", ["a", "b", "c", "d"])
def test_a_module_that_fails_at_import_is_an_error_wherever_a_worker_begins(tmp_path: Path, broken: str) -> None:
    done = collected(tmp_path, broken)
    assert done.returncode != 0
    assert "no such luck" in done.stdout


@pytest.mark.deep
def test_modules_that_can_be_loaded_and_doctests_are_run_once_each(tmp_path: Path) -> None:
    done = collected(tmp_path, "none")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "5 passed" in done.stdout
