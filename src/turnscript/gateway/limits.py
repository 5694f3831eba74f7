"""Owns limits: how many requests run at once, how many wait and how long, and how much a key may use in a minute.

Bodies need room: there are so many bytes of them at once, and so many of one key's. A request takes its share as its
body comes, whatever its head has announced: who only says much keeps nobody out. It takes more for the answers that it
names and for what its seals hold. All of it is given back when its answer is over, however it ends. Kept answers that
are fetched have their share until they are taken.

Nobody waits for room: two requests that are half read would wait for each other. Who does not fit is told to come
again, and what that one had taken is free for the others, so that one of them always comes through.

A `Caller` is who asks: the key of a request, what it may use, and which policies hold for it.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from functools import partial
from math import inf
from time import monotonic

from turnscript.core.errors import Overloaded, RateLimited, Unauthorized
from turnscript.gateway.config import Config, Limits, Policy, Server
from turnscript.gateway.headers import credentials
from turnscript.gateway.keys import Key, Keys
from turnscript.gateway.reach import check_page

AGAIN = 5.0
"""Seconds after which who did not fit may try again. How long the others take is anybody's guess."""


class Tally:
    """The bytes of all requests of one key."""

    __slots__ = ("name", "size")

    def __init__(self, name: str) -> None:
        self.name = name
        self.size = 0


class Room:
    """The bytes of all requests. `refused` is told of each that does not fit."""

    def __init__(self, server: Server, refused: Callable[[], None]) -> None:
        self.taken = 0
        self._refused = refused
        self.change(server)

    def change(self, server: Server) -> None:
        """Other limits from now on. What is here may stay."""
        self.most = max(server.max_body_total, server.max_body)

    def share(self, tally: Tally | None) -> Share:
        """What a request takes of it: nothing yet. `tally`: that of its key, where there are several."""
        return Share(self, tally)

    def check(self, share: Share, more: int, tally: Tally | None) -> None:
        """Raises Overloaded where a share cannot have so much more. Who is alone can.

        What a key has here is never more than what is left for the others then, so that it cannot keep them out; only
        a single request of it may take all that is left.
        """
        left = self.most - self.taken - more
        if left < 0 and self.taken > share.size:
            self._refused()
            message = "the requests that are being answered take up all the room for requests; try again later"
            raise Overloaded(message, retry_after=AGAIN)
        if tally is not None and tally.size > share.size and tally.size + more > left:
            self._refused()
            message = f"the requests of the key {tally.name!r} take up as much room as is left for all others"
            raise Overloaded(f"{message}; try again later", retry_after=AGAIN)


class Share:
    """What one request takes. `size`: its bytes so far."""

    __slots__ = ("_room", "_tally", "size")

    def __init__(self, room: Room, tally: Tally | None) -> None:
        self._room = room
        self._tally = tally
        self.size = 0

    def check(self, size: int) -> None:
        """Raises Overloaded where there is no room now for so many bytes in all."""
        if size > self.size:
            self._room.check(self, size - self.size, self._tally)

    def take(self, size: int) -> None:
        """Have so many bytes in all, if those are more than before. Raises Overloaded where there is no room."""
        more = size - self.size
        if more > 0:
            self._room.check(self, more, self._tally)
            self._add(more)

    def leave(self) -> None:
        """Give it all back."""
        self._add(-self.size)

    def _add(self, more: int) -> None:
        self.size += more
        self._room.taken += more
        if self._tally is not None:
            self._tally.size += more


Ahead = Callable[[], int]
"""How many wait before a request, as it is now."""
Tell = Callable[[Ahead | None], None]
"""Told of a request that begins to wait, and, by None, that it waits no longer."""

_MINUTE = 60.0


class Gate:
    """Lets so many requests run at once, and the next ones wait in the order in which they came."""

    def __init__(self, limits: Limits, running: int | None, name: str) -> None:
        self._limits = limits
        self._most = running
        self._name = name
        self._waiting: deque[asyncio.Future[None]] = deque()
        self.running = 0

    def change(self, limits: Limits, running: int | None) -> None:
        """Other limits from now on. Nobody who has passed is stopped; who waits may go where there is more room."""
        self._limits, self._most = limits, running
        while self._waiting and (running is None or self.running < running):
            self.running += 1
            self.leave()

    @property
    def waiting(self) -> int:
        """How many requests wait."""
        return len(self._waiting)

    @property
    def idle(self) -> bool:
        """Whether nothing runs or waits."""
        return not self.running and not self._waiting

    @property
    def room(self) -> float:
        """How many more would run at once; endless where there is no limit."""
        if self._most is None:
            return inf
        return 0 if self._waiting else max(0, self._most - self.running)

    def passes(self) -> bool:
        """Run now, if there is a place; most need not wait, and so no coroutine."""
        if self._most is None or (self.running < self._most and not self._waiting):
            self.running += 1
            return True
        return False

    async def __aenter__(self) -> None:
        """Run inside once there is a place. Raises Overloaded where the queue is full or the wait too long."""
        if not self.passes():
            await self.enter()

    async def enter(self, tell: Tell | None = None) -> None:
        """The same for one that does not pass. `tell` is given what says how many wait before it, while it waits."""
        if len(self._waiting) >= self._limits.queue:
            message = f"{self._name}: {self.running} requests run and {self.waiting} wait; try again later"
            raise Overloaded(message, retry_after=self._guess())
        try:
            async with asyncio.timeout(self._limits.wait):
                await self._place(tell)
        except TimeoutError:
            message = f"{self._name}: no place became free within {self._limits.wait:g} s; try again later"
            raise Overloaded(message, retry_after=self._guess()) from None

    async def __aexit__(self, *failed: object) -> None:
        self.leave()

    @asynccontextmanager
    async def again(self) -> AsyncIterator[None]:
        """The same for more of a request that was let in before: in its turn, however many wait and however long."""
        if self.room:
            self.running += 1
        else:
            await self._place()
        try:
            yield
        finally:
            self.leave()

    def _before(self, place: asyncio.Future[None]) -> int:
        """How many wait before a place."""
        return self._waiting.index(place) if place in self._waiting else 0

    async def _place(self, tell: Tell | None = None) -> None:
        place: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(place)
        if tell is not None:
            tell(partial(self._before, place))
        try:
            await place
        except asyncio.CancelledError:
            if place.cancelled():
                with suppress(ValueError):  # in the same moment it was passed over
                    self._waiting.remove(place)
            else:
                self.leave()  # the place was given in the same moment, and is not wanted any more
            raise
        finally:
            if tell is not None:
                tell(None)

    def leave(self) -> None:
        """What ran is over: the next one has its place."""
        while self._waiting and (self._most is None or self.running <= self._most):
            place = self._waiting.popleft()
            if not place.done():
                place.set_result(None)
                return  # the place changes hands; `running` stays
        self.running -= 1

    def _guess(self) -> float:
        return min(30.0, 1.0 + len(self._waiting))


class Rate:
    """How much was used in the last minute, of one thing."""

    __slots__ = ("_limit", "_spent", "_total")

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._spent: deque[tuple[float, int]] = deque()
        self._total = 0

    def wait(self, now: float) -> float:
        """Seconds until something may be used again; 0 if now."""
        self._forget(now)
        if self._total < self._limit:
            return 0.0
        over, freed = self._total - self._limit + 1, 0
        for when, amount in self._spent:
            freed += amount
            if freed >= over:
                return max(0.05, when + _MINUTE - now)
        return _MINUTE

    def spend(self, amount: int, now: float) -> None:
        """Note that so much was used."""
        self._spent.append((now, amount))
        self._total += amount

    def _forget(self, now: float) -> None:
        while self._spent and self._spent[0][0] <= now - _MINUTE:
            self._total -= self._spent.popleft()[1]


class Budget:
    """The rates of one key."""

    def __init__(self, limits: Limits) -> None:
        self._requests = Rate(limits.requests_per_minute) if limits.requests_per_minute is not None else None
        self._tokens = Rate(limits.tokens_per_minute) if limits.tokens_per_minute is not None else None

    def admit(self) -> None:
        """Count a request. Raises RateLimited where this minute's requests or tokens are used up."""
        if self._requests is None and self._tokens is None:
            return
        now = monotonic()
        for rate, what in ((self._requests, "requests"), (self._tokens, "tokens")):
            wait = rate.wait(now) if rate is not None else 0.0
            if wait:
                message = f"this key has used up its {what} of a minute; try again in {wait:.1f}s"
                raise RateLimited(message, retry_after=wait)
        if self._requests is not None:
            self._requests.spend(1, now)

    def use(self, tokens: int) -> None:
        """Count tokens that were used."""
        if self._tokens is not None and tokens:
            self._tokens.spend(tokens, monotonic())


ANYBODY = "anybody"


class Caller:
    """Somebody who asks, with what is running and used up in this name."""

    def __init__(self, key: Key | None, config: Config) -> None:
        limits = self.limits = config.limits if key is None else key.limits(config.limits)
        self.key = key
        self.name = ANYBODY if key is None else key.name
        self.policy: Policy = config.policy if key is None else key.policy(config.policy)
        self.gate = Gate(limits, limits.running, f"the key {self.name!r}" if key else "the gateway")
        self.budget = Budget(limits)
        self.tally = None if key is None else Tally(key.name)


class Callers:
    """All who have asked. `before`: those of the configuration before this one; whose limits and policies are still the
    same keep what they have used up, and what is running."""

    def __init__(self, config: Config, before: Callers | None = None) -> None:
        self._config = config
        self._keys = None if config.server.keys is None else Keys(config.server.keys)
        self._known: dict[str, Caller] = {}
        self._anybody = Caller(None, config)
        if before is not None:
            self._anybody = self._still(before._anybody)
            self._known = {id_: self._still(caller) for id_, caller in before._known.items()}

    def _still(self, caller: Caller) -> Caller:
        fresh = Caller(caller.key, self._config)
        return caller if (fresh.limits, fresh.policy) == (caller.limits, caller.policy) else fresh

    def caller(self, headers: Mapping[str, str]) -> Caller:
        """Who asks. Raises Unauthorized where keys are configured and neither of those offered is one, and Forbidden
        where none are and a page of another host asks."""
        if self._keys is None:
            if not self._config.server.public:
                check_page(headers, self._config.server.origins)
            return self._anybody
        bearer, api_key = credentials(headers)
        key = self._keys.check(bearer, api_key)
        if key is None:
            what = "is not known" if bearer or api_key else "is missing"
            raise Unauthorized(f"the API key {what}; send it as `Authorization: Bearer` or as `x-api-key`")
        known = self._known.get(key.id)
        if known is None or known.key != key:
            known = self._known[key.id] = Caller(key, self._config)
        return known

    def reload(self) -> None:
        """Read the file of keys again."""
        if self._keys is not None:
            self._keys.reload()
