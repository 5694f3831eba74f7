"""Owns the clock that all waits for one model server share: one timer, which tells each of them when it is due."""

from __future__ import annotations

import asyncio
from math import inf
from typing import Protocol


class Waits(Protocol):
    """What can be due."""

    def ring(self) -> None:
        """It is due. Whoever goes on waiting sets the clock again."""
        ...


class Alarms:
    """Tells those that wait in an event loop when they are due.

    Nearly nobody is late, so setting the clock and leaving it must cost little: the timer is set for the first of all,
    stays as it is when that one leaves, and looks for the next one when it rings.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self._due: dict[Waits, float] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._next = inf

    def set(self, one: Waits, due: float) -> None:
        """Ring at this time, in place of an earlier or a later one."""
        self._due[one] = due
        if due < self._next:
            self._arm(due)

    def drop(self, one: Waits) -> None:
        """It does not wait any more."""
        self._due.pop(one, None)

    def _arm(self, due: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._next = due
        self._timer = self.loop.call_at(due, self._ring)

    def _ring(self) -> None:
        self._timer, self._next = None, inf
        now = self.loop.time()
        late = [one for one, due in self._due.items() if due <= now]
        for one in late:
            del self._due[one]
        for one in late:
            one.ring()
        first = min(self._due.values(), default=inf)
        if first < self._next:
            self._arm(first)
