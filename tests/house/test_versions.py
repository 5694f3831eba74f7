"""Owns the checks that every Python we name can be used: the tools know the oldest, the lock has what each installs."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from importlib.metadata import Distribution, distributions
from pathlib import Path

import pytest
from packaging.markers import default_environment
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
PYTHONS = re.findall(r"Python :: (3\.\d+)", "\n".join(PROJECT["project"]["classifiers"]))
OLDEST = PYTHONS[0]
LOCKED: dict[str, str] = {
    canonicalize_name(name): version
    for name, version in re.findall(
        r"^([\w.-]+)==(\S+)$", (ROOT / "requirements/dev.txt").read_text(encoding="utf-8"), re.MULTILINE
    )
}
INSTALLED: dict[str, Distribution] = {canonicalize_name(one.metadata["Name"]): one for one in distributions()}


HERE = {name: str(value) for name, value in default_environment().items()}
LOCKED_ON = {"sys_platform": "linux", "platform_system": "Linux", "os_name": "posix"}
"""Where `make lock` is run. What a package needs elsewhere alone, as colorama on Windows, is in no lock."""


def asked_for(python: str, machine: Mapping[str, str] = HERE) -> set[str]:
    """The packages that `make setup` installs with this Python, as far as those that are installed here tell."""
    versions = {"python_version": python, "python_full_version": f"{python}.0"}
    environment = {**machine, **versions, **LOCKED_ON}
    waiting, seen = [("turnscript", "dev")], set[tuple[str, str]]()
    while waiting:
        name, extra = waiting.pop()
        if (name, extra) in seen:
            continue
        seen.add((name, extra))
        for line in (INSTALLED[name].requires or []) if name in INSTALLED else []:
            needed = Requirement(line)
            if needed.marker is None or needed.marker.evaluate({**environment, "extra": extra}):
                waiting += [(canonicalize_name(needed.name), one) for one in ("", *needed.extras)]
    return {name for name, _ in seen} - {"turnscript"}


def test_the_tools_and_the_package_name_the_same_oldest_python() -> None:
    tool = PROJECT["tool"]
    assert f">={OLDEST}" == PROJECT["project"]["requires-python"]
    assert f"py{OLDEST.replace('.', '')}" == tool["ruff"]["target-version"]
    assert OLDEST == tool["mypy"]["python_version"]


@pytest.mark.parametrize("page", ["README.md", "CONTRIBUTING.md", "Makefile"])
def test_the_pages_name_the_pythons_of_the_classifiers(page: str) -> None:
    named = f"make and Python {', '.join(PYTHONS[:-1])} or {PYTHONS[-1]}"
    assert named in (ROOT / page).read_text(encoding="utf-8")


@pytest.mark.parametrize("python", PYTHONS)
def test_the_lock_has_every_package_that_setup_installs(python: str) -> None:
    assert len(asked_for(python)) > 90
    assert [] == sorted(asked_for(python) - set(LOCKED)), "run `make lock` with the oldest Python, which needs the most"


@pytest.mark.parametrize("system", [("win32", "Windows", "nt"), ("darwin", "Darwin", "posix")])
def test_the_lock_is_judged_as_what_it_is_on_every_system(system: tuple[str, str, str]) -> None:
    machine = HERE | dict(zip(LOCKED_ON, system, strict=True))
    assert asked_for(OLDEST) == asked_for(OLDEST, machine)


@pytest.mark.parametrize("python", PYTHONS)
def test_every_locked_package_runs_on_every_python(python: str) -> None:
    here = [INSTALLED[name].metadata for name in LOCKED if name in INSTALLED]
    wanted = {one["Name"]: one["Requires-Python"] for one in here if "Requires-Python" in one}
    assert {} == {name: words for name, words in wanted.items() if f"{python}.0" not in SpecifierSet(words)}
