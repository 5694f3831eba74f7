"""Owns the way out of a streamed answer: bytes to a client at its own speed, and signs of life while there are none.

A client that reads slowly makes `write` wait, and so the model's server. Nothing is kept for it. One that does not read
at all is given up after a while. The heart looks at all outlets once a second; what goes on costs it nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, MutableMapping
from time import monotonic
from typing import Any, Protocol

from turnscript.core.errors import TurnscriptError
from turnscript.core.framing import Framing
from turnscript.gateway.headers import RawHeaders

Message = MutableMapping[str, Any]
Send = Callable[[Message], Awaitable[None]]
Receive = Callable[[], Awaitable[Message]]


class Frame(Protocol):
    """What stands around the events of a stream, as its API writes it: the beginning, signs of life, a bad end."""

    @property
    def framing(self) -> Framing:
        """Return how its frames stand on the wire."""
        ...

    def start(self) -> bytes:
        """The bytes before the first event."""
        ...

    def idle(self) -> bytes:
        """A sign of life."""
        ...

    def fail(self, error: TurnscriptError) -> bytes:
        """The bytes that end the stream because of an error."""
        ...


class Outlet:
    """One stream to one client."""

    __slots__ = ("_beat", "_renderer", "_send", "ahead", "begun", "last", "over", "sending", "since")

    def __init__(self, send: Send, renderer: Frame) -> None:
        self._send = send
        self._renderer = renderer
        self._beat: asyncio.Task[None] | None = None
        self.ahead: Callable[[], int] | None = None  # how many requests wait before this one, as long as it waits
        self.begun = self.over = False
        self.sending = False
        self.last = self.since = monotonic()

    async def begin(self, headers: RawHeaders) -> None:
        """Send the head of the answer, and the first event."""
        await self.head(headers)
        await self.write(self._renderer.start() + self._waiting())

    async def head(self, headers: RawHeaders) -> None:
        """Send the head alone."""
        headers = [(b"content-type", self._renderer.framing.media_type.encode()), *headers]
        await self._send({"type": "http.response.start", "status": 200, "headers": headers})
        self.begun = True

    async def write(self, data: bytes) -> None:
        """Send bytes; waits until the client has room for more."""
        await self._at_rest()
        if data:
            await self._body(data, more=True)

    async def end(self, data: bytes) -> None:
        """Send the last bytes."""
        self.over = True
        await self._at_rest()
        await self._body(data, more=False)

    async def _at_rest(self) -> None:
        """Wait for a sign of life that is on its way. Not by awaiting it: who is cancelled here would cancel it."""
        if self._beat is not None:
            await asyncio.wait((self._beat,))

    async def _body(self, data: bytes, *, more: bool) -> None:
        self.sending, self.since = True, monotonic()
        try:
            await self._send({"type": "http.response.body", "body": data, "more_body": more})
        finally:
            self.sending, self.last = False, monotonic()

    def _waiting(self) -> bytes:
        """A word about the place of a request that waits: a comment, which no client takes for an event."""
        return b"" if self.ahead is None else self._renderer.framing.comment(f"waiting, {self.ahead()} before you")

    def beat(self) -> None:
        """Send a sign of life, if the stream is at rest."""
        if self.begun and not self.over and not self.sending and self._beat is None:
            # Made here, not in the task: what is made from now on has a later number, and waits for it.
            data = self._renderer.idle() + self._waiting()
            if data:
                self._beat = asyncio.get_running_loop().create_task(self._beat_once(data))

    async def _beat_once(self, data: bytes) -> None:
        try:
            await self._body(data, more=True)
        finally:
            self._beat = None


class Heart:
    """Looks after all outlets: who was silent for `interval` seconds gives a sign of life, and a client that has taken
    nothing for `stall` seconds is given up with `give_up`."""

    def __init__(self, interval: float, stall: float) -> None:
        self.interval = interval
        self.stall = stall
        self._outlets: dict[Outlet, Callable[[], None]] = {}
        self._task: asyncio.Task[None] | None = None

    def watch(self, outlet: Outlet, give_up: Callable[[], None]) -> None:
        """Look after an outlet from now on."""
        self._outlets[outlet] = give_up
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._run())

    def forget(self, outlet: Outlet) -> None:
        """The outlet is closed."""
        self._outlets.pop(outlet, None)

    def __len__(self) -> int:
        return len(self._outlets)

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(min(1.0, self.interval / 2))
            self._look()

    def _look(self) -> None:
        """Not in the loop, whose names would hold the last stream, and all of its request, until the next one."""
        now = monotonic()
        for outlet, give_up in list(self._outlets.items()):
            if outlet.sending and now - outlet.since > self.stall:
                give_up()
            elif not outlet.sending and now - outlet.last >= self.interval:
                outlet.beat()

    async def stop(self) -> None:
        """End."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
            self._task = None
