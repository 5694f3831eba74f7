"""What every test shares: the Hypothesis profiles, and golden files that are compared or rewritten."""

import gc
import os
import sys
from collections.abc import Callable, Generator
from importlib import import_module
from pathlib import Path
from pkgutil import walk_packages

import pytest
from hypothesis import HealthCheck, Phase, find, settings
from hypothesis import strategies as st

import tools
import turnscript
from tests import collecting, telling

GOLDEN = Path(__file__).parent / "golden"

# Tests start hundreds of interpreters. If the environment forbids them to keep bytecode, as images of
# containers do, each would compile all of turnscript again, and each worker all tests.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False
# Nor do programs of users run unbuffered. There, what cannot be written fails at once, and not again at the end.
os.environ.pop("PYTHONUNBUFFERED", None)

# No "explain" phase: it reruns a failing example hundreds of times to say which lines mattered.
PHASES = (Phase.explicit, Phase.reuse, Phase.generate, Phase.target, Phase.shrink)
settings.register_profile("default", max_examples=100, deadline=None, phases=PHASES)
# The same examples on every run, so that a red build is red for everyone.
settings.register_profile("ci", settings.get_profile("default"), derandomize=True, print_blob=True)
# What somebody waits for: every law on everything, with fewer examples.
settings.register_profile("quick", settings.get_profile("ci"), max_examples=20)
# A long search may spend its time where examples are slow or often rejected: that is no reason to stop it.
settings.register_profile(
    "fuzz",
    settings.get_profile("default"),
    max_examples=20_000,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "default"))


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update-golden", action="store_true", help="rewrite golden files instead of comparing them")
    parser.addoption("--format", help="hold the laws of formats on this one alone: a name, a file in TOML, or `models`")


def pytest_configure(config: pytest.Config) -> None:
    for plugin in (collecting, telling):  # not here: a hook of this file does not see every folder below it
        config.pluginmanager.register(plugin)
    if not config.getoption("numprocesses", None):  # a process that hands its tests out to workers runs none
        load_all()


def load_all() -> None:
    """Load all modules of the project: Hypothesis draws constants that stand in those that are loaded.

    So examples do not hang on which tests a process has run before: every worker draws the same under the profile `ci`.
    """
    for package in (turnscript, tools):
        for module in walk_packages(package.__path__, f"{package.__name__}."):
            import_module(module.name)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Leave what is collected out of the garbage collector's passes: 25,000 tests stay to the end, a second a pass."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()
        # Hypothesis asks the collector who holds its generator of numbers: of what is left out, that is nobody.
        find(st.none(), lambda _: True, settings=settings(database=None))
        gc.freeze()
        # 700, 10, 10 are for small programs: laws make millions of short-lived objects, and next to none in cycles.
        gc.set_threshold(50_000, 50, 100)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with the longest."""
    items.sort(key=lambda item: item.get_closest_marker("long") is None)


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Callable[[str, str], None]:
    """Call it with a path under tests/golden and a text: it compares them, or writes the file under --update-golden."""
    update: bool = request.config.getoption("--update-golden")

    def compare(name: str, actual: str) -> None:
        path = GOLDEN / name
        if update:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(actual.encode())
        assert path.is_file(), f"no golden file {name}: write it with `make golden`, then read it against the spec"
        assert path.read_bytes().decode() == actual

    return compare
