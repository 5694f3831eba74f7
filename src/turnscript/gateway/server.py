"""Owns the HTTP server around the application: what it listens on, signals, and a shutdown that ends each answer.

uvicorn serves, behind the connections of `connection.py`. After SIGTERM nothing new is accepted, answers have some
seconds to finish, and those still going on then are ended with the right last event; a second signal ends them at once.
The application needs nothing of this: it runs on any server of ASGI.
"""

from __future__ import annotations

import asyncio
import math
import signal
import socket
import sys
import threading
from collections.abc import Callable
from types import FrameType
from typing import Any

import uvicorn

from turnscript.gateway.app import Application
from turnscript.gateway.connection import Connection, through, watch
from turnscript.gateway.service import Service

if sys.platform != "win32":
    import resource

_AFTER_GRACE = 5.0
_MESSAGE = 16 * 1024 * 1024
"""The most bytes of a message over a WebSocket: uvicorn has it in memory before anybody knows of it."""
_LAST_WORDS = 0.3
"""Seconds in which clients may still take the ends of their answers when all else is over."""


def new_event_loop() -> asyncio.AbstractEventLoop:
    """uvloop's, which is the faster one; it does not run on Windows."""
    if sys.platform == "win32":
        return asyncio.new_event_loop()
    import uvloop  # noqa: PLC0415  (not on every system)

    return uvloop.new_event_loop()


def allow_open_files(most: int = 65_536) -> None:
    """Each stream takes two connections, and many systems begin with a soft limit of 1024 open files."""
    if sys.platform == "win32":
        return
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = most if hard == resource.RLIM_INFINITY else min(most, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


class Server(uvicorn.Server):
    """uvicorn's server around one service."""

    def __init__(
        self, service: Service, on_ready: Callable[[Service, str], None] | None = None, **settings: Any
    ) -> None:
        config = service.config.server
        self.connections: set[Connection] = set()
        app = Application(service)
        own = {"settings": config, "there": self.connections, "sockets": app.sockets}
        super().__init__(
            uvicorn.Config(
                through(app),
                interface="asgi3",  # it would be looked for among coroutines
                host=config.host,
                port=config.port,
                http=type("ConnectionHere", (Connection,), own),
                ws="wsproto",
                ws_max_size=min(config.max_body, _MESSAGE),
                ws_per_message_deflate=False,
                loop="none",  # whoever runs this has one
                lifespan="off",
                log_config=None,
                access_log=False,
                proxy_headers=False,
                server_header=False,
                date_header=False,
                timeout_keep_alive=math.ceil(config.idle_timeout + config.header_timeout),  # connections look first
                timeout_graceful_shutdown=int(config.grace + _AFTER_GRACE),
                **settings,
            )
        )
        self.service = service
        self.pause = min(1.0, config.header_timeout / 4, config.idle_timeout / 4)
        """Seconds between two looks at the connections."""
        self._on_ready = on_ready
        self._loop: asyncio.AbstractEventLoop

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Listen."""
        await super().startup(sockets)
        if self.started and self._on_ready is not None:
            host = self.config.host
            self._on_ready(self.service, f"http://{f'[{host}]' if ':' in host else host}:{self.port}")

    async def serve(self, sockets: list[socket.socket] | None = None) -> None:
        """Serve until a signal; the service's own parts are started before and stopped after."""
        self._loop = asyncio.get_running_loop()
        allow_open_files()
        watching = self._loop.create_task(watch(self.connections, self.pause))
        if hasattr(signal, "SIGHUP") and threading.current_thread() is threading.main_thread():
            self._loop.add_signal_handler(signal.SIGHUP, self.service.reload)
        try:
            await self.service.start()
            await super().serve(sockets)
        finally:
            watching.cancel()
            await self.service.stop()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Accept nothing more, let answers finish, end those that do not."""
        service = self.service
        service.drain()
        for connection in list(self.connections):
            connection.retire()
        timer = self._loop.call_later(service.config.server.grace, self._end)
        try:
            await super().shutdown(sockets)
            await service.apart.settle()
            await self._until_gone(_LAST_WORDS)
            self._cut()
            await self._until_gone(1.0)
        finally:
            timer.cancel()

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """A signal to stop. The second one is meant. uvicorn would send it to itself in the end, before all is done."""
        if self.should_exit:
            self.force_exit = True
            self._loop.call_soon_threadsafe(self.service.end_answers)
        self.should_exit = True

    def _end(self) -> None:
        """End all answers, and soon the connections of those who do not take the end of theirs."""
        self.service.end_answers()
        self._loop.call_later(_AFTER_GRACE / 2, self._cut)

    def _cut(self) -> None:
        for connection in list(self.connections):
            connection.transport.abort()

    async def _until_gone(self, seconds: float) -> None:
        """Wait until nobody is there any more, not for long."""
        end = self._loop.time() + seconds
        while (self.connections or self.service.visits) and self._loop.time() < end:
            await asyncio.sleep(0.01)

    @property
    def port(self) -> int:
        """The port that it listens on; of use where port 0 was asked for."""
        for server in self.servers:
            for sock in server.sockets:
                return int(sock.getsockname()[1])
        return self.config.port
