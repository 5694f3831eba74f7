"""Owns the checks of what workers tell: whatever does not pass is told, and each test counts once."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
TESTS = """
import pytest

@pytest.fixture
def begins_badly():
    raise OSError("no such luck")

@pytest.fixture
def ends_badly():
    yield
    raise OSError("no such end")

def test_passes(): pass
def test_fails(): assert "this" == "that"
def test_is_not_set_up(begins_badly): pass
def test_is_not_taken_down(ends_badly): pass
@pytest.mark.skip(reason="not now")
def test_is_left_out(): pass
"""


@pytest.mark.deep
def test_all_that_does_not_pass_is_told_and_each_test_counts_once(tmp_path: Path) -> None:
    (tmp_path / "test_all.py").write_text(TESTS)
    command = [sys.executable, "-m", "pytest", "-q", "-n", "2", "-p", "xdist", "-p", "tests.telling"]
    command += ["-p", "no:cacheprovider", "--rootdir", str(tmp_path), "-c", "/dev/null", str(tmp_path)]
    alone = os.environ | {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}  # other plugins take longer to load than all this
    done = subprocess.run(command, cwd=ROOT, env=alone, capture_output=True, text=True, check=False)
    assert "1 failed, 2 passed, 1 skipped, 2 errors" in done.stdout, done.stdout + done.stderr
    for told in ("assert 'this' == 'that'", "no such luck", "no such end"):
        assert told in done.stdout
