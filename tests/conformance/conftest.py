"""Owns the parameters of the laws: they come from the registry, so a new format or API is under all of them at once.

A law that is about thoughts, calls or results says so (`about`), and is held on the formats that have a place for them,
as their tables say (`Format.features`), or that have one of a few habits (`habits.HABITS`). All others are held on all.

One more format stands under them: a file that turns on what the engine's table knows and no registered format has on.
Others are under no law of growth, and in long runs only: one that knows neither thoughts nor tools; one whose results
stand inside the model's turn, behind calls in Python's words; one with calls in tags, which leaves the laws that cost
most to `ai00-v1`; and two whose turns have marks of fewer kinds, which divide the laws: what models write is read in
the one, documents in the other.

`--format` holds all laws on one format and nothing else, be it registered, the table of a model, or a file of yours;
`--format models` holds all of them on the tables of all models, which the package names. Of these laws, the usual runs
hold those that cost little (`ON_MODELS`).
"""

import re
from functools import cache
from pathlib import Path
from typing import Any

import pytest

import turnscript as ts
from tests.conformance.habits import HABITS

FOLDER = Path(__file__).parents[1] / "formats"
FILES = ("plain.toml", "within.toml", "invoke.toml", "bare.toml", "marks.toml")
ONLY = {
    "bare.toml": {"test_parser_laws", "test_prefill_laws", "test_call_laws", "test_format_goldens"},
    "marks.toml": {"test_format_laws", "test_replay_laws", "test_turn_end_laws", "test_format_goldens"},
}
NOT = {"invoke.toml": {"test_parser_laws", "test_template_laws"}}
ON_MODELS = {"test_ended_laws": True, "test_grammar_laws": False, "test_response_template_laws": False}
"""Laws that are held on the table of every model, too, by their module; and whether only a long run has it."""
GROWTH = re.compile("linear|in_proportion|long_and_deep")


def formats(law: pytest.Metafunc) -> list[Any]:
    """The formats that a law is held on."""
    named = _named(law.config)
    held = _standing(law) if named is None else [pytest.param(one, id=Path(one).stem) for one in named]
    about = [feature for mark in law.definition.iter_markers("about") for feature in mark.args]
    return [one for one in held if all(_has(str(one.values[0]), each) for each in about)]


def _named(config: pytest.Config) -> list[str] | None:
    """The formats that `--format` names; None where it is not given."""
    held = config.getoption("format")
    return None if held is None else list(ts.model_formats()) if held == "models" else [held]


@cache
def _has(name: str, feature: str) -> bool:
    format_ = ts.get_format(name)
    return HABITS[feature](format_) if feature in HABITS else bool(getattr(format_.features, feature))


def _standing(law: pytest.Metafunc) -> list[Any]:
    """The formats that stand under a law: the registered ones, and files."""
    module = law.module.__name__.rpartition(".")[2]
    held = [pytest.param(name, id=name) for name in ts.formats()]
    files = {"switches.toml": False}  # whether only a long run has it
    if not GROWTH.search(law.function.__name__):
        wanted = [name for name in FILES if module in ONLY.get(name, {module}) - NOT.get(name, set())]
        files |= dict.fromkeys(wanted, True)
    if module in ON_MODELS:
        marks = [pytest.mark.deep] if ON_MODELS[module] else []
        held += [pytest.param(name, id=name, marks=marks) for name in ts.model_formats()]
    return held + [
        pytest.param(str(FOLDER / name), id=Path(name).stem, marks=[pytest.mark.deep] if deep else [])
        for name, deep in files.items()
    ]


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave all else out where the laws are held on one format: what is about no format, and golden files."""
    held = _named(config)
    if held is not None:
        kept = [one for one in items if isinstance(one, pytest.Function) and _is_law(one, held)]
        config.hook.pytest_deselected(items=[one for one in items if one not in kept])
        items[:] = kept


def _is_law(test: pytest.Function, held: list[str]) -> bool:
    params = test.callspec.params if hasattr(test, "callspec") else {}
    return params.get("format_name") in held and "golden" not in test.fixturenames


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Give each law every registered name that it asks for."""
    for argument, names in (
        ("format_name", formats(metafunc)),
        ("api_name", ts.apis()),
        ("other_name", ts.apis()),
    ):
        if argument in metafunc.fixturenames:
            metafunc.parametrize(argument, names)
