"""Owns the HTTP server around the application: what it listens on, signals, and a shutdown that ends each answer.

uvicorn serves. After SIGTERM nothing new is accepted, answers have some seconds to finish, and those still going on
then are ended with the right last event; a second signal ends them at once.

A connection is bounded in its heads, its bodies, and how long it may stay. uvicorn's class reads it; what that leaves
open is closed here. A connection that does not send its head in time, or sends too long a one, is cut. So is one whose
client does not take its answer, and one that goes on sending a body whose request was answered long ago. The
application needs nothing of this: it runs on any server of ASGI.
"""

from __future__ import annotations

import asyncio
import logging
import signal
import socket
import sys
import threading
from asyncio.events import TimerHandle
from collections.abc import Callable
from types import FrameType
from typing import Any

import httptools
import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from turnscript.gateway.app import Application
from turnscript.gateway.headers import CUT, NONE_LOST
from turnscript.gateway.logs import say
from turnscript.gateway.service import Service

_HEAD_LIMIT = 64 * 1024
_READ = 256 * 1024
"""The most that is read at once."""
_LAST = "".join([f"{name}: {value}\r\n" for name, value in NONE_LOST.items()]).encode() + b"connection: close\r\n"
_TOO_LONG = b"HTTP/1.1 431 Request Header Fields Too Large\r\n%bcontent-length: 0\r\n\r\n" % _LAST
_NO_REQUEST = b"HTTP/1.1 400 Bad Request\r\n%bcontent-type: text/plain; charset=utf-8\r\ncontent-length: %d\r\n\r\n%b"
_TLS = b"\x16\x03"
"""How a client begins that was told https://. No head of HTTP begins so."""
_LINGER = 5.0
"""Seconds in which the rest of a body is read, and thrown away, whose request is answered already: a client that sends
before it reads would else never see that answer."""


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


class Protocol(HttpToolsProtocol):
    """A connection whose heads are bounded in size and in time, and which does not stay without a reason."""

    head_timeout = 15.0
    _head_timer: TimerHandle | None = None
    _head_size = 0
    _in_head = True
    _unfinished = 0
    _linger: TimerHandle | None = None
    _untaken: TimerHandle | None = None
    _offer: int | None = None
    _held = False
    _answered: RequestResponseCycle | None = None  # `cycle` is the last one that came

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._head_timer = self.loop.call_later(self.head_timeout, self._too_slow)

    def connection_lost(self, exc: Exception | None) -> None:
        self._disarm()
        self._stop_lingering()
        self._forget_untaken()
        self._unset_keepalive_if_required()
        super().connection_lost(exc)
        self._tell_answered()

    def _tell_answered(self) -> None:
        """The client has gone. uvicorn tells that to the request that came last; the one that is being answered is
        another, where a client did not wait for its answer."""
        answered, self._answered = self._answered, None
        if answered is not None and not answered.response_complete:
            answered.disconnected = True
            answered.message_event.set()

    def data_received(self, data: bytes) -> None:
        if self._in_head and not self._head_size and data.startswith(_TLS):
            say(logging.WARNING, "TLS where there is none", hint="clients call http://, or a proxy in front")
            self.transport.close()
            return
        self._unset_keepalive_if_required()
        self._read(data)
        while self._offer is not None:
            data = self._pass_over(data)
            self._read(data)
        if not self._in_head and not self._is_idle():
            self._unfinished = 0
            return
        self._unfinished += len(data)
        if self._head_timer is None:  # most heads come at once, and need no clock
            self._head_timer = self.loop.call_later(self.head_timeout, self._too_slow)
        if self._unfinished > _HEAD_LIMIT and not self.transport.is_closing():
            self._head_size = self._unfinished
            self.send_400_response("")

    def _read(self, data: bytes) -> None:
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserError:
            self.logger.warning("Invalid HTTP request received.")
            self.send_400_response("Invalid HTTP request received.")
        except httptools.HttpParserUpgrade as offered:
            self._offer = offered.args[0]  # behind a head with such an offer, nothing is read

    def _is_idle(self) -> bool:
        """Whether nothing has come since the last answer but blank lines, which belong to the next head."""
        return self._answered is None and self._linger is None and self.timeout_keep_alive_task is None

    def on_message_begin(self) -> None:
        self._unset_keepalive_if_required()  # it may be of the same read: the rest of a body was before this
        super().on_message_begin()
        self.scope["extensions"] = {CUT: {"cut": self.transport.abort}}
        self._head_size = 0
        self._in_head = True

    def on_url(self, url: bytes) -> None:
        self._grow(len(url))
        super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        self._grow(len(name) + len(value))
        if self._in_head:  # behind a body, nobody on the way has seen what it says of keys, hosts and sessions
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        self._disarm()
        self._in_head = False
        # A tunnel is an offer without the header, and what follows it is no body.
        offered = self.parser.should_upgrade() and self.parser.get_method() != b"CONNECT"
        self._held = offered and _announces_body(self.headers)
        if self._held:
            return
        before: RequestResponseCycle | None = self.cycle
        super().on_headers_complete()
        if self.scope["http_version"] == "1.0":
            self.cycle.chunked_encoding, self.cycle.expected_content_length = False, Unsaid()
        if before is None or before.response_complete:
            self._answered = self.cycle

    def _grow(self, size: int) -> None:
        self._head_size += size
        if self._head_size > _HEAD_LIMIT:
            raise ValueError("the head is too long")  # ends the parsing; `send_400_response` says why

    def send_400_response(self, msg: str) -> None:
        """What came is no request, or too long a one."""
        if self._head_size <= _HEAD_LIMIT:
            self.transport.write(_NO_REQUEST % (_LAST, len(msg), msg.encode()))
        else:
            self.transport.write(_TOO_LONG)
        self.transport.close()

    def _disarm(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    def _too_slow(self) -> None:
        self._head_timer = None
        if self._answered is not None:  # a head may be slow behind a request whose answer goes on
            self._head_timer = self.loop.call_later(self.head_timeout, self._too_slow)
            return
        self.transport.close()
        self._mind_untaken()

    # Behind an answer.

    def on_response_complete(self) -> None:
        unread = self._answered is not None and self._answered.more_body
        closing = self.transport.is_closing()
        self._answered = self.pipeline[-1][0] if self.pipeline else None
        super().on_response_complete()
        if unread and not closing:
            self._linger = self.loop.call_later(_LINGER, self.transport.abort)
        if closing or self.flow.write_paused:
            self._mind_untaken()

    def _mind_untaken(self) -> None:
        """See to it that a client goes on to take its answer. The next one waits for that, and so does the end of the
        connection."""
        self._forget_untaken()
        left = self.transport.get_write_buffer_size()
        if left:
            self._untaken = self.loop.call_later(self.timeout_keep_alive, self._look_at_untaken, left)

    def _look_at_untaken(self, before: int) -> None:
        if self.transport.get_write_buffer_size() < before:
            self._mind_untaken()
        else:
            self.transport.abort()

    def _forget_untaken(self) -> None:
        if self._untaken is not None:
            self._untaken.cancel()
            self._untaken = None

    def resume_writing(self) -> None:
        super().resume_writing()
        if not self.transport.is_closing():
            self._forget_untaken()

    def on_message_complete(self) -> None:
        self._unfinished = -_READ  # what was read with the end of a message is not the head behind it
        if self._held:
            return
        super().on_message_complete()
        if self._linger is not None:
            self._stop_lingering()
            self._unset_keepalive_if_required()
            self.timeout_keep_alive_task = self.loop.call_later(
                self.timeout_keep_alive, self.timeout_keep_alive_handler
            )

    def _stop_lingering(self) -> None:
        if self._linger is not None:
            self._linger.cancel()
            self._linger = None

    def timeout_keep_alive_handler(self) -> None:
        """Nothing came for a while. A client that has not even taken its last answer gets no more of it."""
        self.timeout_keep_alive_task = None
        if self.transport.get_write_buffer_size():
            self.transport.abort()
        else:
            super().timeout_keep_alive_handler()

    # Offers to go on in another protocol.

    def _pass_over(self, data: bytes) -> bytes:
        """Go on in this protocol; returns what is to be parsed. Java's client offers HTTP/2 with its first request, and
        sends the body of that in this one. The parser takes the body for something of the other: a new parser reads it,
        behind the head without the offer."""
        rest, self._offer = data[self._offer :], None
        if not self._held:
            return rest
        rest = self._head_without_offer() + rest
        self._held = False
        self.parser = httptools.HttpRequestParser(self)
        return rest

    def _head_without_offer(self) -> bytes:
        version = self.parser.get_http_version().encode()
        lines = [b"%b %b HTTP/%b" % (self.parser.get_method(), self.url, version)]
        lines += [b"%b: %b" % header for header in self.headers if header[0] != b"upgrade"]
        return b"\r\n".join(lines) + b"\r\n\r\n"


def _announces_body(headers: list[tuple[bytes, bytes]]) -> bool:
    """Whether a body follows a head."""
    named = dict(headers)
    return b"transfer-encoding" in named or named.get(b"content-length", b"0").strip(b"0") != b""


if sys.platform != "win32":
    import resource

_AFTER_GRACE = 5.0
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
        protocol = type("Connection", (Protocol,), {"head_timeout": config.header_timeout})
        super().__init__(
            uvicorn.Config(
                Application(service),
                interface="asgi3",  # it would be looked for among coroutines
                host=config.host,
                port=config.port,
                http=protocol,
                ws="none",
                loop="none",  # whoever runs this has one
                lifespan="off",
                log_config=None,
                access_log=False,
                proxy_headers=False,
                server_header=False,
                date_header=False,
                timeout_keep_alive=config.idle_timeout,  # type: ignore[arg-type]
                timeout_graceful_shutdown=int(config.grace + _AFTER_GRACE),
                **settings,
            )
        )
        self.service = service
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
        if hasattr(signal, "SIGHUP") and threading.current_thread() is threading.main_thread():
            self._loop.add_signal_handler(signal.SIGHUP, self.service.reload)
        try:
            await self.service.start()
            await super().serve(sockets)
        finally:
            await self.service.stop()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Accept nothing more, let answers finish, end those that do not."""
        service = self.service
        service.drain()
        timer = self._loop.call_later(service.config.server.grace, self._end)
        try:
            await super().shutdown(sockets)
            await service.apart.settle()
            await self._until_gone(_LAST_WORDS)
            self._cut()
            await self._until_gone(1.0)
        finally:
            timer.cancel()
        self._captured_signals.clear()  # uvicorn would send them to itself, and nothing after this would be done

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """A signal to stop. The second one is meant."""
        if self.should_exit:
            self.force_exit = True
            self._loop.call_soon_threadsafe(self.service.end_answers)
        super().handle_exit(sig, frame)

    def _end(self) -> None:
        """End all answers, and soon the connections of those who do not take the end of theirs."""
        self.service.end_answers()
        self._loop.call_later(_AFTER_GRACE / 2, self._cut)

    def _cut(self) -> None:
        for connection in list(self.server_state.connections):
            connection.transport.abort()

    async def _until_gone(self, seconds: float) -> None:
        """Wait until nobody is there any more, not for long."""
        end = self._loop.time() + seconds
        while (self.server_state.connections or self.server_state.tasks) and self._loop.time() < end:
            await asyncio.sleep(0.01)

    @property
    def port(self) -> int:
        """The port that it listens on; of use where port 0 was asked for."""
        for server in self.servers:
            for sock in server.sockets:
                return int(sock.getsockname()[1])
        return self.config.port
