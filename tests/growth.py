"""Owns telling how a cost grows: processor time of the same work in two sizes, until there is no doubt."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable

_CLEAR = 0.6
"""What of the bound a first round may reach and need no second."""

_PAUSES = (0.0, 0.0, 0.0, 0.0, 0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 6.4)
"""Seconds before each further round: a neighbour's burst of work is over before the last one."""


def assert_grows_below(
    bound: float, work: Callable[[int], Callable[[], object]], small: int, large: int, *, least: float = 0.001
) -> None:
    """Fail unless the work of size `large` takes less than `bound` times the processor time of size `small`.

    `work(size)` makes the run that is timed. `least`: seconds that `small` takes at the least, against a coarse clock.
    A busy machine makes times longer, never shorter: so the least of several rounds counts, without the passes of the
    garbage collector over all that other tests keep. The small work is done as often as makes up the large one, so that
    what disturbs the machine is as likely to meet either.
    """
    few, many = work(small), work(large)
    times = max(round(large / small), 1)
    best = [float("inf"), float("inf")]
    for pause in (None, *_PAUSES):
        time.sleep(pause or 0)
        best[0] = min(best[0], processor_time(few, times) / times)
        best[1] = min(best[1], processor_time(many))
        if best[1] < bound * max(best[0], least) * (_CLEAR if pause is None else 1):
            return
    raise AssertionError(f"{small}: {best[0]:.6f} s, {large}: {best[1]:.6f} s, {best[1] / best[0]:.1f} times as much")


def processor_time(run: Callable[[], object], times: int = 1) -> float:
    """Seconds of this process's processor time that a run takes, as often as told, without collecting garbage."""
    collects = gc.isenabled()
    gc.disable()
    start = time.process_time()
    try:
        for _ in range(times):
            run()
        return time.process_time() - start
    finally:
        if collects:
            gc.enable()
