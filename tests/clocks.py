"""Owns time in tests: what a clock decides is tried with slower ones too, because any machine may stop for a moment."""

from __future__ import annotations

import functools
import inspect
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest

from turnscript.core.errors import TurnscriptError

SCALES = (1.0, 5.0, 25.0)
TICK = 0.005


def scaled(test: Callable[..., Any]) -> Callable[..., Any]:
    """For a test of times in some relation. It multiplies all of them by its parameter `scale`, which starts at 1.

    What is wrong is wrong on every scale; what a machine disturbs is not, once its pauses are short beside the times.
    """

    @functools.wraps(test)
    def run(*args: Any, **named: Any) -> Any:
        for scale in SCALES[:-1]:
            with suppress(AssertionError, TurnscriptError, pytest.fail.Exception):
                return test(*args, scale=scale, **named)
        return test(*args, scale=SCALES[-1], **named)

    signature = inspect.signature(test)
    asked = [one for one in signature.parameters.values() if one.name != "scale"]
    run.__signature__ = signature.replace(parameters=asked)  # type: ignore[attr-defined]  # where pytest finds fixtures
    return run


def run_time() -> float:
    """For how many seconds this process has run, pauses left out: for what may last no longer than so much.

    It goes in steps of 5 ms. What must last at least so long is measured with `time.monotonic`.
    """
    return _ticker().seconds


class _Ticker(threading.Thread):
    def __init__(self) -> None:
        super().__init__(name="ticker", daemon=True)
        self.seconds = time.monotonic()  # never 0, which reads like never

    def run(self) -> None:
        before = time.monotonic()
        while True:
            time.sleep(TICK)
            now = time.monotonic()
            self.seconds += min(now - before, 2 * TICK)  # a longer step was a pause
            before = now


@functools.cache
def _ticker() -> _Ticker:
    ticker = _Ticker()
    ticker.start()
    return ticker
