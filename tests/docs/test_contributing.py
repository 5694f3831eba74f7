"""CONTRIBUTING.md is true: the targets that it names are there, and `make golden` finds the files of every name."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

import turnscript as ts

ROOT = Path(__file__).resolve().parents[2]
MAKEFILE = (ROOT / "Makefile").read_text(encoding="utf-8")
PAGE = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")


def test_the_make_targets_that_the_page_names_exist() -> None:
    named = set(re.findall(r"`?\bmake ([a-z]+)\b(?: NAME=\S+| TESTS=\S+)?`", PAGE))
    named |= set(re.findall(r"^make ([a-z]+)", PAGE, re.MULTILINE))
    assert {"golden", "map", "check"} < named
    assert [] == sorted(name for name in named if not re.search(rf"^{name}:", MAKEFILE, re.MULTILINE))


@pytest.mark.deep
def test_golden_finds_tests_for_every_format_and_api() -> None:
    """What the target runs is collected; `-k NAME` takes the tests whose ids hold the name."""
    recipe = re.search(r"^golden:.*\n\t\$\(PYTEST\) (.+) --update-golden \$\(if \$\(NAME\),-k ", MAKEFILE, re.MULTILINE)
    assert recipe
    options = ["-q", "-p", "no:cacheprovider", "--collect-only"]
    found = subprocess.run(
        [sys.executable, "-m", "pytest", *options, *recipe[1].split()],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    ids = [line for line in found.stdout.splitlines() if "::" in line]
    assert [] == [name for name in (*ts.formats(), *ts.apis()) if not any(f"[{name}" in line for line in ids)]
