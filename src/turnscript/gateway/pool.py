"""Owns choosing a model server for each request: the one that knows the conversation, else the one that is least busy.

A server that keeps what it has read of a conversation goes on much faster with it, so a conversation stays where it
was, on a server and in its place there (a slot). A recurrent model cannot go back to an earlier text, so a place that
another conversation has taken meanwhile is lost: a new conversation takes a place that holds none, else the one that
was idle for longest.

A server that fails is left out until it answers its health check again. Nothing is tried twice once the client has
been given a part of an answer. A server that was started anew, with a longer context or another model, may be back
before any check finds it gone: so each check asks what it is, too.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Collection, Sequence
from types import TracebackType
from typing import Self

from msgspec.structs import replace

from turnscript.backends.backend import Completion
from turnscript.core.errors import UpstreamError
from turnscript.gateway.sessions import SlotFiles
from turnscript.gateway.upstream import Answer, Upstream


class Place:
    """A slot of a server: whose conversation it holds, whether it is busy with it, when it last was."""

    __slots__ = ("number", "owner", "running", "used")

    def __init__(self, number: int) -> None:
        self.number = number
        self.owner: str | None = None
        self.running = 0
        self.used = 0

    def take(self, session: str | None, now: int, *, elsewhere: bool) -> None:
        """A request begins. One that goes on beside another of its conversation does not own its place."""
        self.running += 1
        self.used = now
        if self.owner != session:
            self.owner = None if elsewhere else session


class Member:
    """A server of the pool. `max_running`: how many requests it is given at a time, never more than it has slots.
    `files`: those in which it keeps what was in a slot, if it is to."""

    def __init__(self, upstream: Upstream, max_running: int | None = None, files: SlotFiles | None = None) -> None:
        self.upstream = upstream
        self.max_running = max_running
        self.files = files
        self.running = 0
        self.used = 0
        self.healthy = True
        self.failures = 0
        self.places: list[Place] | None = None
        self.doubted = False
        """Whether a request has failed since the last check."""
        self._heard = 0
        self._asked = False

    @property
    def capacity(self) -> int | None:
        """How many requests it can do at a time, None if nobody said."""
        most = self.max_running
        if not self.places:
            return most
        return len(self.places) if most is None else min(most, len(self.places))

    @property
    def free(self) -> bool:
        """Whether one more request would start at once."""
        capacity = self.capacity
        return capacity is None or self.running < capacity

    @property
    def unknown(self) -> bool:
        """Whether it has not been asked yet for its places."""
        return not self._asked and self.upstream.backend.pins

    def writes(self) -> bool:
        """Whether it has gone on with an answer since this was last asked, so that no check need be made.

        llama-cpp-python cuts an answer off when anything else is asked, be it the list of its models. A server that
        tells more of itself is asked nevertheless: it may be another one by now.
        """
        before, self._heard = self._heard, self.upstream.heard
        alive = self.running > 0 and self.healthy and not self.doubted
        self.doubted = False
        return alive and self._heard > before and self.upstream.backend.generic

    async def learn(self) -> None:
        """Ask for the places, unless they are known."""
        self._asked = True
        if self.places is None and self.upstream.backend.pins:
            slots = (await self.upstream.facts()).slots
            if slots and self.places is None:
                self.places = [Place(number) for number in range(slots)]

    def forget(self) -> None:
        """It may be another server now: its conversations and what it said of itself are gone."""
        self.places = None
        self.upstream.forget()
        if self.files is not None:
            self.files.forget()

    async def renew(self) -> None:
        """Ask what it is; if that is another server than before, its conversations are gone."""
        if await self.upstream.renew():
            self.places = None
            if self.files is not None:
                self.files.forget()
        await self.upstream.facts()  # of one that was down nothing is known
        await self.learn()

    def holds(self, session: str | None) -> bool:
        """Whether one of its places holds a conversation."""
        return session is not None and any(place.owner == session for place in self.places or ())

    def place_for(self, session: str | None) -> Place | None:
        """The place of a conversation, else one without any, else the one that was idle for longest; None if all are
        busy."""
        if not self.places:
            return None
        idle = [place for place in self.places if not place.running]
        own = next((place for place in idle if session is not None and place.owner == session), None)
        return own or min(idle, key=lambda place: (place.owner is not None, place.used), default=None)


class Lease:
    """A server for one request, and a place in it. `slot` is None where the server itself chooses."""

    def __init__(self, pool: Pool, member: Member, place: Place | None, before: str | None = None) -> None:
        self.member = member
        self.slot = place.number if place is not None else None
        self._before = before  # whose conversation was there
        self._pool = pool
        self._place = place
        self._over = False

    @property
    def upstream(self) -> Upstream:
        """The server."""
        return self.member.upstream

    def ask(self, ask: Completion) -> Completion:
        """The same request, in this place."""
        return ask if self.slot is None else replace(ask, slot=self.slot)

    async def enter(self, session: str | None, ask: Completion) -> None:
        """Have what the server kept of the conversation in its place."""
        files, place = self.member.files, self._place
        if files is None or place is None:
            return
        entered = False
        try:
            await files.enter(place, self._before, session, len(ask.prompt))
            entered = True
        finally:
            if not entered:  # nobody knows whose it is now: it must not be saved as that of this one
                place.owner = None

    def failed(self, error: UpstreamError) -> None:
        """The request failed: a server that fails again and again is left out for a while."""
        self._pool.note_failure(self.member, error)

    def succeeded(self) -> None:
        """The server has begun to answer, and so is well, whatever the last check has found."""
        self.member.failures, self.member.healthy = 0, True

    def release(self) -> None:
        """The request is over. Calling it again does nothing."""
        if not self._over:
            self._over = True
            self._pool.note_end(self.member, self._place)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()


class Pool:
    """Several servers of one model. As a context it checks their health every `interval` seconds, and closes them.

    `failures`: after how many in a row a server is left out. `sessions`: how many conversations are remembered.
    `renewed` is told of each server that has answered a check, and so has said what it is by now.
    """

    def __init__(
        self,
        members: Sequence[Member | Upstream],
        *,
        interval: float = 10.0,
        failures: int = 2,
        sessions: int = 10_000,
        renewed: Callable[[Member], Awaitable[None]] | None = None,
    ) -> None:
        self.members = [one if isinstance(one, Member) else Member(one) for one in members]
        if not self.members:
            raise ValueError("a pool needs at least one server")
        self._interval = interval
        self._failures = failures
        self._most_sessions = sessions
        self._renewed = renewed
        self._sessions: OrderedDict[str, Member] = OrderedDict()
        self._clock = 0
        self._checks: asyncio.Task[None] | None = None

    @property
    def running(self) -> int:
        """How many requests are being answered."""
        return sum(member.running for member in self.members)

    @property
    def capacity(self) -> int | None:
        """How many requests the healthy servers do at a time, None if one of them does not say."""
        total = 0
        for member in self._usable():
            capacity = member.capacity
            if capacity is None:
                return None
            total += capacity
        return total

    @property
    def healthy(self) -> bool:
        """Whether any server answers."""
        return any(member.healthy for member in self.members)

    async def lease(self, session: str | None = None, avoid: Collection[Member] = ()) -> Lease:
        """A server for a request of a conversation, at once and however busy it is; `release` it.

        Where no server is healthy, one of them is tried nevertheless. `avoid`: those that have failed already. Raises
        UpstreamError if no other is left.
        """
        left = self._left(avoid)
        unknown = [member.learn() for member in left if member.unknown]
        if unknown:
            await asyncio.gather(*unknown)
        return self._leased(session, left)

    def known(self, session: str | None, avoid: Collection[Member]) -> Lease | None:
        """What `lease` gives, where nothing has to be asked for first."""
        left = self._left(avoid)
        for member in left:
            if member.unknown:
                return None
        return self._leased(session, left)

    def _left(self, avoid: Collection[Member]) -> list[Member]:
        """The servers that may be asked."""
        left = self._usable()
        if avoid:
            left = [member for member in left if member not in avoid]
            left = left or [member for member in self.members if member not in avoid]
        if not left:
            raise UpstreamError(f"all {len(self.members)} model servers failed", retryable=True)
        return left

    def _leased(self, session: str | None, left: list[Member]) -> Lease:
        member = left[0] if len(left) == 1 else self._sticky(session, left) or min(left, key=_busyness)
        place = member.place_for(session)
        self._clock += 1
        member.running += 1
        member.used = self._clock
        before = place.owner if place is not None else None
        if place is not None:
            place.take(session, self._clock, elsewhere=member.holds(session))
        self._remember(session, member)
        return Lease(self, member, place, before)

    async def check(self) -> None:
        """Ask every server whether it is healthy."""
        await asyncio.gather(*map(self._check, self.members))

    async def close(self) -> None:
        """Stop the checks and close all connections."""
        checks, self._checks = self._checks, None
        if checks is not None:
            checks.cancel()
            await asyncio.gather(checks, return_exceptions=True)
        for member in self.members:
            if member.files is not None:
                await member.files.close()
            await member.upstream.close()

    async def __aenter__(self) -> Self:
        self._checks = asyncio.create_task(self._check_always())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    def note_failure(self, member: Member, error: UpstreamError) -> None:
        """A request failed. What the server itself says of a request does not count against it."""
        if error.upstream not in _DOWN:
            return
        member.doubted = True
        member.failures += 1
        if member.files is not None:
            member.files.forget()
        if member.failures >= self._failures and member.healthy:
            member.healthy = False
            member.forget()

    def note_end(self, member: Member, place: Place | None) -> None:
        """A request is over."""
        member.running -= 1
        if place is not None:
            self._clock += 1
            place.running -= 1
            place.used = self._clock
            if member.files is not None:
                member.files.left(member.place_for(None))

    def _usable(self) -> list[Member]:
        return [member for member in self.members if member.healthy] or self.members

    def _sticky(self, session: str | None, left: list[Member]) -> Member | None:
        """The server that knows the conversation; not if it is busy and another is not."""
        member = self._sessions.get(session) if session is not None else None
        if member is None or member not in left:
            return None
        return member if member.free or not any(one.free for one in left) else None

    def _remember(self, session: str | None, member: Member) -> None:
        if session is None:
            return
        self._sessions[session] = member
        self._sessions.move_to_end(session)
        if len(self._sessions) > self._most_sessions:
            self._sessions.popitem(last=False)

    async def _check_always(self) -> None:
        while True:
            await self.check()
            await asyncio.sleep(self._interval)

    async def _check(self, member: Member) -> None:
        if member.writes():
            return
        if await member.upstream.healthy():
            member.healthy, member.failures = True, 0
            await member.renew()
            if self._renewed is not None:
                await self._renewed(member)
        elif member.healthy:
            member.failures += 1
            if member.failures >= self._failures:
                member.healthy = False
                member.forget()


_DOWN = (None, 502, 503, 504)


def _busyness(member: Member) -> tuple[bool, int, int]:
    """The least of it is the best server for a conversation that none knows."""
    return not member.free, member.running, _idle_since(member)


def _idle_since(member: Member) -> int:
    """When what is idle there was last used: a place for a conversation; all of it, where nobody knows its places."""
    return min((place.used for place in member.places or () if not place.running), default=member.used)


class Opened:
    """An answer that a pool is asked for, as a context.

    A class, because each request has one: a generator as a context costs as much as a dozen calls.
    """

    def __init__(
        self, pool: Pool, ask: Completion, session: str | None, failed: Callable[[UpstreamError, str], None] | None
    ) -> None:
        self._pool = pool
        self._ask = ask
        self._session = session
        self._failed = failed
        self._lease: Lease
        self._answer: Answer

    async def __aenter__(self) -> tuple[Answer, Lease]:
        tried: list[Member] = []
        first: UpstreamError | None = None
        while first is None or len(tried) < len(self._pool.members):
            pool, session = self._pool, self._session
            lease = self._lease = pool.known(session, tried) or await pool.lease(session, tried)
            answer = self._answer = lease.upstream.open(lease.ask(self._ask))
            begun = False
            try:
                if lease.member.files is not None:
                    await lease.enter(self._session, self._ask)
                await answer.__aenter__()
                await answer.first()
                begun = True
            except UpstreamError as error:
                self._note(error)
                if not error.retryable:
                    raise
                tried.append(lease.member)
                first = first or error.with_traceback(None)  # which would lead back to here, and keep the prompt
            finally:
                if not begun:
                    answer.leave()
                    lease.release()
            if begun:
                lease.succeeded()
                return answer, lease
        raise first

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            await self._answer.__aexit__(kind, error, trace)
        finally:
            self._lease.release()
        if isinstance(error, UpstreamError):
            self._note(error)

    def _note(self, error: UpstreamError) -> None:
        self._lease.failed(error)
        if self._failed is not None:
            self._failed(error, self._lease.upstream.url)


def open_any(
    pool: Pool, ask: Completion, session: str | None = None, failed: Callable[[UpstreamError, str], None] | None = None
) -> Opened:
    """The answer of the server that knows the conversation, or of the next one that can give it, and the lease.

    Each server is asked once, until one has begun to answer: then the first pieces are there. Raises the first
    server's error if all of them failed. `failed` is told of every failure, and of whose it is.
    """
    return Opened(pool, ask, session, failed)
