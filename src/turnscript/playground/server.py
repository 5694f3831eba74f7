"""Owns the server of the playground: on this machine's own address alone, until Ctrl-C."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from types import FrameType

import uvicorn

from turnscript.playground.app import application
from turnscript.playground.offered import offer

HOST = "127.0.0.1"
_GRACE = 2
"""Seconds for answers that are not done at the end."""


class Server(uvicorn.Server):
    """uvicorn's server around the page. `on_ready` is told the address when it listens."""

    def __init__(self, on_ready: Callable[[str], None]) -> None:
        config = uvicorn.Config(
            application(),
            ws="none",
            lifespan="off",
            log_config=None,
            access_log=False,
            proxy_headers=False,
            server_header=False,
            date_header=False,
            timeout_graceful_shutdown=_GRACE,
        )
        super().__init__(config)
        self._on_ready = on_ready

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Listen."""
        await super().startup(sockets)
        if self.started and sockets:
            self._on_ready(f"http://{HOST}:{sockets[0].getsockname()[1]}")

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """A signal to stop; the second one is meant. uvicorn's own method would have it sent again in the end, and the
        command would not end well."""
        self.should_exit, self.force_exit = True, self.should_exit


def serve(sock: socket.socket, on_ready: Callable[[str], None]) -> None:
    """Serve until a signal ends it."""
    asyncio.run(Server(on_ready).serve([sock]))


__all__ = ["HOST", "Server", "offer", "serve"]
