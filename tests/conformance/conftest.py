"""Owns the parameters of the laws: they come from the registry, so a new format or API is under all of them at once.

One more format stands under them: a file that turns on what the engine's table knows and no registered format has on.
"""

from pathlib import Path

import pytest

import turnscript as ts

SWITCHES = Path(__file__).parents[1] / "formats" / "switches.toml"


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Give each law every registered name that it asks for."""
    for argument, names in (
        ("format_name", [*ts.formats(), str(SWITCHES)]),
        ("api_name", ts.apis()),
        ("other_name", ts.apis()),
    ):
        if argument in metafunc.fixturenames:
            metafunc.parametrize(argument, names, ids=[Path(name).stem for name in names])
