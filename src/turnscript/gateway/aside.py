"""Owns work on large requests: it is done in a thread of its own, so that the streams of others go on meanwhile.

Python's threads take turns every few milliseconds. What is done for a small request takes less than a turn, and stays.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Protocol, TypeVar

T = TypeVar("T")

LARGE = 256 * 1024
"""Bytes of a body from which on its request is large. Such a one may take 50 ms."""
GRAMMAR_TAKES = 16
"""How many times as long a grammar of a request may take as anything else that is done with that."""
_AT_A_TIME = 1000


class Run(Protocol):
    """Does some work, here or elsewhere."""

    async def __call__(self, work: Callable[[], T]) -> T: ...


async def here(work: Callable[[], T]) -> T:
    """Do it at once."""
    return work()


class Aside:
    """The thread. It is one: several would not be faster, and leave the streams a smaller share."""

    def __init__(self) -> None:
        self._threads = ThreadPoolExecutor(1, "large requests")
        self._closed = False

    def run(self, size: int) -> Run:
        """How to do what a request of a size needs."""
        return self._away if size >= LARGE else here

    async def _away(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._threads, work)

    def free(self, things: list[Any], size: int) -> None:
        """Empty a list of a request of a size, which nobody needs any more. Freed all at once, as they would be where
        it just goes, a hundred thousand things hold up everything."""
        if size >= LARGE and not self._closed:
            self._threads.submit(_empty, things)

    def close(self) -> None:
        """Do nothing more."""
        self._closed = True
        self._threads.shutdown(wait=False, cancel_futures=True)


def _empty(things: list[Any]) -> None:
    while things:
        del things[-_AT_A_TIME:]
