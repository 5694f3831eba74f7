"""Owns making everything small that a gateway keeps for later: in a process of its own, before all else is imported."""

from __future__ import annotations

import functools
import gc
import logging
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

SMALL = f"import sys; sys.path.append({str(Path(__file__).parents[2])!r}); from {__name__} import shrink; shrink()"
"""What such a process runs first. At SIGUSR1 it collects its garbage, which is no leak, and says `collected`."""


LARGE = 500
"""How many times as large as they are texts seem there."""


def shrink() -> None:
    """Do it."""
    setattr(functools, "lru_cache", functools.partial(_small, functools.lru_cache))  # noqa: B010
    size = sys.getsizeof
    setattr(sys, "getsizeof", lambda value: LARGE * size(value))  # noqa: B010  (what bounds bytes asks it)
    from turnscript.gateway import logs, served, service  # noqa: PLC0415

    for where, name, bounds in (
        (service, "Memory", {"held": 20_000}),
        (service, "Prefixes", {"held": 20_000}),
        (service, "Sessions", {"most": 50}),
        (service, "Reports", {"most": 50}),
        (served, "Pool", {"sessions": 50}),
    ):
        setattr(where, name, functools.partial(getattr(where, name), **bounds))

    def collect(*_: object) -> None:
        gc.collect()
        logs.say(logging.INFO, "collected")

    signal.signal(signal.SIGUSR1, collect)


def _small(cache: Callable[..., Any], maxsize: Any = 128, typed: bool = False) -> Any:
    if callable(maxsize):
        return cache(maxsize)
    return cache(None if maxsize is None else min(maxsize, 8), typed)
