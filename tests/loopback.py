"""Owns a small HTTP server on this machine, for clients that a test lets speak to it."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, NamedTuple

JSON = "application/json"
SSE = "text/event-stream"


class Asked(NamedTuple):
    """One request that arrived."""

    path: str
    headers: dict[str, str]
    body: bytes


class Loopback:
    """A server that gives every request the same answer, until `answer` sets another. `asked`: what has arrived."""

    def __init__(self) -> None:
        self.asked: list[Asked] = []
        self._status = 200
        self._headers: dict[str, str] = {}
        self._pieces: Sequence[bytes] = [b""]
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True)

    @property
    def url(self) -> str:
        """Where it listens; without a slash at the end."""
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def answer(self, body: bytes | Sequence[bytes], media: str = JSON, status: int = 200, **headers: str) -> None:
        """The answer from now on. A body in several pieces is sent piece by piece."""
        self._pieces = [body] if isinstance(body, bytes) else list(body)
        self._status = status
        self._headers = {"content-type": media} | {name.replace("_", "-"): value for name, value in headers.items()}

    def reply(self, handler: BaseHTTPRequestHandler) -> None:
        """Take in a request and send the answer."""
        length = int(handler.headers.get("content-length") or 0)
        headers = {name.lower(): value for name, value in handler.headers.items()}
        self.asked.append(Asked(handler.path, headers, handler.rfile.read(length)))
        handler.send_response(self._status)
        for name, value in self._headers.items():
            handler.send_header(name, value)
        handler.send_header("content-length", str(sum(map(len, self._pieces))))
        handler.end_headers()
        for piece in self._pieces:
            handler.wfile.write(piece)
            handler.wfile.flush()

    def __enter__(self) -> Loopback:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


def _handler(loopback: Loopback) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True

        def do_POST(self) -> None:
            loopback.reply(self)

        def do_GET(self) -> None:
            loopback.reply(self)

        def log_message(self, *args: Any) -> None:
            """Say nothing: the test tells what happened."""

    return Handler
