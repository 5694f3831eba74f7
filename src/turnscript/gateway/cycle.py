"""Owns one request on a connection, as uvicorn knows it: its body as it comes, its answer, and what fails about both.

uvicorn's class does the same. Each request passes here, so this one makes less of what nearly none of them needs.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any

from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, RequestResponseCycle

from turnscript.gateway.headers import RawHeaders

Asgi = Callable[[Any, Any, Any], Awaitable[None]]


class _Unheard:
    """Stands for the event of a request whose messages nobody waits for, as nobody does where all came at once."""

    def set(self) -> None:
        """There is a message."""

    def clear(self) -> None:
        """It is told."""


UNHEARD: Any = _Unheard()


class Cycle(RequestResponseCycle):
    """One request and its answer."""

    # How each begins.
    logger = logging.getLogger("uvicorn.error")
    access_logger = logging.getLogger("uvicorn.access")
    access_log = False
    default_headers: list[tuple[bytes, bytes]] = []  # noqa: RUF012  (uvicorn adds it to others)
    message_event: Any = UNHEARD
    disconnected = False
    waiting_for_100_continue = False
    body: bytes | bytearray = b""  # type: ignore[assignment]  # the first of it is taken as it came
    more_body = True
    response_started = False
    response_complete = False
    chunked_encoding: bool | None = None
    expected_content_length = 0
    _taken = False

    def __init__(
        self, scope: Any, transport: asyncio.Transport, flow: FlowControl, on_response: Callable[[], None]
    ) -> None:
        self.scope = scope
        self.transport = transport
        self.flow = flow
        self.on_response = on_response
        self.keep_alive = True

    async def run(self, app: Asgi, loop: asyncio.AbstractEventLoop, tasks: set[asyncio.Task[None]]) -> None:
        """Have it answered, by a task that is one of `tasks`. A callback that takes it out when it is done would be
        one more turn of the event loop."""
        try:
            await self.run_asgi(app)
        finally:
            task = asyncio.current_task(loop)
            if task is not None:
                tasks.discard(task)

    async def receive(self) -> Any:
        """The next message to the application."""
        if self.message_event is UNHEARD:
            self.message_event = asyncio.Event()
            if self.body or not (self.more_body or self._taken):
                self.message_event.set()
        return await super().receive()

    def taken(self) -> bytes | None:
        """The body, once, where all of it has come."""
        if self.more_body or self.disconnected or self.waiting_for_100_continue:
            return None
        self.flow.resume_reading()
        if self.message_event is not UNHEARD:
            self.message_event.clear()
        self._taken = True
        body, self.body = bytes(self.body), b""
        return body

    def whole(self, status: int, headers: RawHeaders, body: bytes) -> None:
        """Give the whole answer. As the two messages that it is to uvicorn, it would cost a second write, and wake its
        client twice."""
        keeps = self.keep_alive
        lines = [STATUS_LINE[status][:-2], *map(b": ".join, headers)]
        if not keeps:
            lines.append(b"connection: close")
        head = b"\r\n".join(lines)
        if self.response_started or head.count(b"\n") != len(lines) - 1:
            raise RuntimeError("an answer that was begun, or a header of several lines, cannot be sent")
        self.response_started = self.response_complete = True
        self.transport.write(b"%b\r\n\r\n%b" % (head, body))
        if self.message_event is not UNHEARD:
            self.message_event.set()
        if not keeps:
            self.transport.close()
        self.on_response()


class Unsaid(int):
    """The length of a body that is not said, because its connection ends with it: all lengths are this one. HTTP/1.0
    has nothing else for a stream; uvicorn would send chunks, which a client of that takes for text."""

    def __lt__(self, other: int) -> bool:
        return False

    def __sub__(self, other: int) -> Unsaid:
        return self

    def __ne__(self, other: object) -> bool:
        return False

    __hash__ = int.__hash__
