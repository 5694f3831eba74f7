"""Owns the order in which workers load what they collect: each begins elsewhere, and finds what others compiled.

All collect in one order. Without this each would compile every test for itself where none was compiled before.
"""

import os
from collections.abc import Generator
from functools import partial

import pytest


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(
    collector: pytest.Collector,
) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    """Load the tests of a folder that is collected as a whole, in this worker's order."""
    report = yield
    config = collector.config
    whole = (config.invocation_params.dir / given for given in config.args)
    if "PYTEST_XDIST_WORKER" in os.environ and any(map(collector.path.is_relative_to, whole)):
        modules = [node for node in report.result if type(node) is pytest.Module]
        number, count = int(os.environ["PYTEST_XDIST_WORKER"][2:]), int(os.environ["PYTEST_XDIST_WORKER_COUNT"])
        first = len(modules) * number // count
        for module in modules[first:] + modules[:first]:
            call = pytest.CallInfo.from_call(partial(getattr, module, "obj"), "collect", reraise=KeyboardInterrupt)
            if call.excinfo is not None:  # half a module stays loaded, and would be collected as a whole one
                report.outcome, report.longrepr = "failed", str(call.excinfo.getrepr())
    return report
