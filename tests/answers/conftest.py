"""Owns what the tests with SDKs share: one server, one client of each SDK, one Node process for each worker."""

from collections.abc import Iterator

import pytest

from tests.answers.javascript import JavaScript, missing
from tests.answers.python import Python
from tests.answers.verdict import Sdk
from tests.answers.wires import Server


@pytest.fixture(scope="session")
def server() -> Iterator[Server]:
    opened = Server()
    with opened:  # whose own `with` gives what it is above
        yield opened


@pytest.fixture(scope="session")
def python() -> Iterator[Python]:
    with Python() as opened:
        yield opened


@pytest.fixture(scope="session")
def javascript() -> Iterator[JavaScript]:
    """Without the SDKs every test that needs them fails, and says what to do: nothing is left out in silence."""
    fault = missing()
    if fault:
        pytest.fail(fault, pytrace=False)
    with JavaScript() as opened:
        yield opened


@pytest.fixture(params=["python", "javascript"])
def sdk(request: pytest.FixtureRequest) -> Sdk:
    """The SDKs of one language after the other."""
    found: Sdk = request.getfixturevalue(request.param)
    return found
