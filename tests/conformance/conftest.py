"""Owns the parameters of the laws: they come from the registry, so a new format or API is under all of them at once."""

import pytest

import turnscript as ts


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Give each law every registered name that it asks for."""
    archives = [name for name in ts.formats() if ts.get_format(name).document.metadata is not None]
    for argument, names in (
        ("format_name", ts.formats()),
        ("archive_name", archives),
        ("api_name", ts.apis()),
        ("other_name", ts.apis()),
    ):
        if argument in metafunc.fixturenames:
            metafunc.parametrize(argument, names)
