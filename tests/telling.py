"""Owns what workers tell of their tests: how each ended, and not that it began, was set up and was taken down as well.

There are more than twenty thousand tests, and most take less time than their reports.
"""

import pytest
from _pytest.runner import runtestprotocol


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item, nextitem: pytest.Item | None) -> bool | None:
    """Run a test as always, and report its call, and of the rest what did not pass."""
    wanted = [name for name in ("durations", "xmlpath") if item.config.getoption(name, None)]
    if wanted or not hasattr(item.config, "workerinput"):
        return None  # all is asked for, or nobody waits for it
    for report in runtestprotocol(item, log=False, nextitem=nextitem):
        if report.when == "call" or not report.passed:
            item.ihook.pytest_runtest_logreport(report=report)
    return True
