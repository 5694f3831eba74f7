"""Owns the browser and the playground that all tests of the page share: to start both takes longer than most tests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.browser.browsing import Page, browser
from tests.playground.serving import serving


@pytest.fixture(scope="session")
def opened(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    with serving() as address, browser(tmp_path_factory.mktemp("profile")) as driver:
        yield Page(driver, address)


@pytest.fixture
def page(opened: Page) -> Iterator[Page]:
    """The page in a wide window, not opened yet. Whatever a test does, the browser has nothing against it."""
    opened.look()
    yield opened
    assert [] == opened.complaints()
