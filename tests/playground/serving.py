"""Owns a playground that really runs, for tests: its server in a thread, on a port that was free."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager

from turnscript.playground.server import HOST, Server


@contextmanager
def serving() -> Iterator[str]:
    """The address of the page."""
    ready: Future[str] = Future()
    server = Server(ready.set_result)
    with socket.create_server((HOST, 0)) as sock:
        thread = threading.Thread(target=lambda: asyncio.run(server.serve([sock])), name="playground", daemon=True)
        thread.start()
        try:
            yield ready.result(timeout=20)
        finally:
            server.should_exit = True
            thread.join(timeout=20)
    assert not thread.is_alive(), "the playground did not stop"
