"""Owns the parameters of the laws: they come from the registry, so a new format or API is under all of them at once.

One more format stands under them: a file that turns on what the engine's table knows and no registered format has on.
Two more, whose turns have marks of fewer kinds, divide the laws: what models write is read in the one, documents in the
other. Laws of growth are held on neither.
"""

import re
from pathlib import Path

import pytest

import turnscript as ts

FOLDER = Path(__file__).parents[1] / "formats"
DIVIDED = {
    "bare.toml": {"test_parser_laws", "test_prefill_laws", "test_call_laws", "test_format_goldens"},
    "marks.toml": {"test_format_laws", "test_replay_laws", "test_turn_end_laws", "test_format_goldens"},
}
GROWTH = re.compile("linear|in_proportion|long_and_deep")


def formats(law: pytest.Metafunc) -> list[str]:
    """The formats that a law is held on."""
    module = law.module.__name__.rpartition(".")[2]
    files = ["switches.toml"]
    if not GROWTH.search(law.function.__name__):
        files += [name for name, modules in DIVIDED.items() if module in modules]
    return [*ts.formats(), *(str(FOLDER / name) for name in files)]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Give each law every registered name that it asks for."""
    for argument, names in (
        ("format_name", formats(metafunc)),
        ("api_name", ts.apis()),
        ("other_name", ts.apis()),
    ):
        if argument in metafunc.fixturenames:
            metafunc.parametrize(argument, names, ids=[Path(name).stem for name in names])
