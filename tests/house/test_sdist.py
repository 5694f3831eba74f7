"""Owns the check that the source distribution is the repository: what is tested there can be tested from it."""

from __future__ import annotations

import re
import tomllib
from fnmatch import fnmatch
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
TARGETS = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["hatch"]["build"]["targets"]
ALWAYS = "pyproject.toml"


def test_everything_of_the_repository_is_in_the_source_distribution() -> None:
    """AGENTS.md names it all; the tests of house rules look for it, and fail where it is missing."""
    section = (ROOT / "AGENTS.md").read_text(encoding="utf-8").partition("## The modules")[0]
    named = {path.rstrip("/") for path in re.findall(r"^- `([^`]+)`", section, re.MULTILINE)}
    tops = {"/" + path.split("/")[0] for path in named | {"src", "tests", "tools"}}
    included = TARGETS["sdist"]["include"]
    missing = {top for top in tops if not any(fnmatch(top, pattern) for pattern in included)}
    assert {f"/{ALWAYS}"} == missing
