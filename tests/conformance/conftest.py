"""Owns the parameters of the laws: they come from the registry, so a new format or API is under all of them at once."""

import pytest

import turnscript as ts


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Give each law every registered name that it asks for."""
    for argument, names in (
        ("format_name", ts.formats()),
        ("api_name", ts.apis()),
        ("other_name", ts.apis()),
    ):
        if argument in metafunc.fixturenames:
            metafunc.parametrize(argument, names)
