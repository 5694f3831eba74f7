"""Owns telling how a cost grows: processor time of the same work in two sizes, until there is no doubt."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable

_CLEAR = 0.6
"""What of the bound a first round may reach and need no second."""


def assert_grows_below(
    bound: float, work: Callable[[int], Callable[[], object]], small: int, large: int, *, least: float = 0.001
) -> None:
    """Fail unless the work of size `large` takes less than `bound` times the processor time of size `small`.

    `work(size)` makes the run that is timed. `least`: seconds that `small` takes at the least, against a coarse clock.
    A busy machine makes times longer, never shorter: so the least of up to five rounds counts, without the passes of
    the garbage collector over all that other tests keep.
    """
    runs = work(small), work(large)
    best = [float("inf"), float("inf")]
    for number in range(5):
        for at, run in enumerate(runs):
            best[at] = min(best[at], processor_time(run))
        if best[1] < bound * max(best[0], least) * (1 if number else _CLEAR):
            return
    raise AssertionError(f"{small}: {best[0]:.6f} s, {large}: {best[1]:.6f} s, {best[1] / best[0]:.1f} times as much")


def processor_time(run: Callable[[], object]) -> float:
    """Seconds of this process's processor time that a run takes, without collecting garbage."""
    collects = gc.isenabled()
    gc.disable()
    start = time.process_time()
    try:
        run()
        return time.process_time() - start
    finally:
        if collects:
            gc.enable()
