"""Owns the clock that waits share: each is told when it is due, whoever else came, left, or set it anew."""

from __future__ import annotations

import asyncio
from random import Random

from turnscript.gateway.upstream import Alarms


class One:
    """What waits; `again`: how often it sets the clock anew when it rings, and for how long."""

    def __init__(self, alarms: Alarms, again: int = 0, seconds: float = 0.0) -> None:
        self.rang: list[float] = []
        self._alarms = alarms
        self._again = again
        self._seconds = seconds

    def ring(self) -> None:
        now = self._alarms.loop.time()
        self.rang.append(now)
        if len(self.rang) <= self._again:
            self._alarms.set(self, now + self._seconds)


def test_each_rings_when_it_is_due_and_not_before() -> None:
    async def run() -> None:
        alarms = Alarms(asyncio.get_running_loop())
        now, random = alarms.loop.time(), Random(1)
        ones = [(One(alarms), now + random.uniform(0.0, 0.2)) for _ in range(50)]
        for one, due in ones:
            alarms.set(one, due)
        await asyncio.sleep(0.5)
        assert [1] * 50 == [len(one.rang) for one, _ in ones]
        assert all(due <= one.rang[0] < due + 0.25 for one, due in ones)
        assert not alarms._due

    asyncio.run(run())


def test_who_leaves_is_not_told_and_holds_nobody_up() -> None:
    async def run() -> None:
        alarms = Alarms(asyncio.get_running_loop())
        gone, stays, now = One(alarms), One(alarms), alarms.loop.time()
        alarms.set(gone, now + 0.02)
        alarms.set(stays, now + 0.06)
        alarms.drop(gone)
        alarms.drop(gone)
        await asyncio.sleep(0.3)
        assert ([], 1) == (gone.rang, len(stays.rang))

    asyncio.run(run())


def test_the_last_time_that_was_set_counts() -> None:
    async def run() -> None:
        alarms = Alarms(asyncio.get_running_loop())
        later, sooner, now = One(alarms), One(alarms), alarms.loop.time()
        for one, first, last in ((later, 0.02, 0.1), (sooner, 9.0, 0.02)):
            alarms.set(one, now + first)
            alarms.set(one, now + last)
        await asyncio.sleep(0.3)
        assert [1, 1] == [len(one.rang) for one in (later, sooner)]
        assert later.rang[0] >= now + 0.1

    asyncio.run(run())


def test_whoever_rings_may_wait_on() -> None:
    async def run() -> None:
        alarms = Alarms(asyncio.get_running_loop())
        one, other = One(alarms, 3, 0.01), One(alarms, 1, 0.03)
        for each in (one, other):
            alarms.set(each, alarms.loop.time())
        await asyncio.sleep(0.4)
        assert [4, 2] == [len(each.rang) for each in (one, other)]

    asyncio.run(run())
