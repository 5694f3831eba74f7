"""Owns the connection of a client: what comes is read and bounded here, and passed on to uvicorn request by request.

A connection stands between its socket and the protocol that uvicorn has for one. It reads with httptools, and passes on
heads that are whole, each in one spelling, with their bodies behind them, and the next request once the one before is
answered. So uvicorn never meets half a head, an offer of another protocol, lines behind a body, or a request too early.
Behind the handshake of a WebSocket uvicorn reads itself.
Where an answer ends is learned from the application, which uvicorn calls by way of `through`.

A client that makes the server wait is cut: for its head, for its next request, for the rest of a body whose request was
answered long ago, and for taking what it was sent. `watch` sees to that, again and again.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Container, Iterable
from contextvars import ContextVar
from time import monotonic
from typing import Any, ClassVar

import httptools
from msgspec import Struct
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from turnscript.gateway.config import Server as Settings
from turnscript.gateway.headers import CUT, NONE_LOST
from turnscript.gateway.logs import say
from turnscript.gateway.outlet import Message, Receive, Send

LINGER = 5.0
"""Seconds in which the rest of a body is read, and thrown away, whose request is answered already: a client that sends
before it reads would else never see that answer."""
UNTAKEN = 150.0
"""Seconds in which a client takes something of what it was sent. Who takes nothing of a stream is given up before that,
and the log says so."""
_HEAD_LIMIT = 64 * 1024
_AHEAD = 64 * 1024
"""About as many bytes are taken of requests that wait for the answer to the one before them."""
_LAST = "".join([f"{name}: {value}\r\n" for name, value in NONE_LOST.items()]).encode() + b"connection: close\r\n"
_TOO_LONG = b"HTTP/1.1 431 Request Header Fields Too Large\r\n%bcontent-length: 0\r\n\r\n" % _LAST
_INVALID = "Invalid HTTP request received."
_NO_REQUEST = b"HTTP/1.1 400 Bad Request\r\n%bcontent-type: text/plain; charset=utf-8\r\ncontent-length: %d\r\n\r\n%b"
_KEY = 24
"""The key of a handshake has so many characters of base64 (RFC 6455, 4.1)."""
_TLS = b"\x16\x03"
"""How a client begins that was told https://. No head of HTTP begins so."""
_ARRIVING: ContextVar[Connection | None] = ContextVar("_ARRIVING", default=None)
"""The connection of the request that uvicorn is given: it has the application called in a copy of this context."""


class _Request(Struct):
    """One that has come, at least its head. `held`: what of it uvicorn has not been given yet."""

    held: list[bytes]
    whole: bool = False
    answered: bool = False


class Connection(asyncio.Protocol):
    """What asyncio sees of a connection. Each server has a class of its own: its settings, and who is there."""

    settings: ClassVar[Settings]
    there: ClassVar[set[Connection]]
    sockets: ClassVar[Container[str]] = ()
    """The paths on which a WebSocket may be had."""

    def __init__(self, **of_uvicorn: Any) -> None:
        self._of_uvicorn = of_uvicorn
        self._served: asyncio.Protocol | None = None
        self.transport: asyncio.Transport
        self._requests: deque[_Request] = deque()
        """Those that are not whole or not answered. uvicorn has the first."""
        self._headers: list[tuple[bytes, bytes]] = []
        self._url = self._again = b""
        self._chunked = False
        self._is_socket = False
        self._in_head = True
        self._size = 0
        """Bytes of the reads since the last one that held some of a body, or the end of a request."""
        self._ahead = 0
        self._left = 0
        self._since = self._left_since = monotonic()
        self._parser = self._new_parser()

    def _new_parser(self) -> httptools.HttpRequestParser:
        parser = httptools.HttpRequestParser(self)
        parser.set_dangerous_leniencies(lenient_data_after_close=True)  # it is not looked at
        return parser

    # What asyncio says.

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        self.transport = transport
        self.there.add(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self.there.discard(self)
        self._requests.clear()
        del self._parser  # they hold each other
        if self._served is not None:
            self._served.connection_lost(None)  # of an error, uvicorn would leave a clock running

    def pause_writing(self) -> None:
        if self._served is not None:
            self._served.pause_writing()

    def resume_writing(self) -> None:
        if self._served is not None:
            self._served.resume_writing()

    def data_received(self, data: bytes) -> None:
        if self._served is None and not self._size and data.startswith(_TLS):
            say(logging.WARNING, "TLS where there is none", hint="clients call http://, or a proxy in front")
            self.transport.close()
            return
        if not self._requests and not self._in_head:
            self._in_head, self._since = True, monotonic()
        self._size += len(data)
        try:
            self._read(memoryview(data))
        except httptools.HttpParserError:
            self._refuse()
            return
        if len(self._requests) > 1:
            self._ahead += len(data)
            if self._ahead > _AHEAD:
                self.transport.pause_reading()
        self._pass_on()

    # What the parser reads.

    def _read(self, data: memoryview) -> None:
        """Read on. Raises HttpParserError.

        Java's client offers HTTP/2 with its requests, and sends their bodies in this protocol. Behind an offer the
        parser reads nothing more: a new one reads the head again, without the offer, and what follows it.
        """
        while True:
            try:
                self._parser.feed_data(data)
                break
            except httptools.HttpParserUpgrade as offer:
                if self._is_socket:
                    break  # uvicorn reads what follows
                data = data[offer.args[0] :]
            self._parser = self._new_parser()
            self._parser.feed_data(self._again)
        if self._size > _HEAD_LIMIT:
            raise httptools.HttpParserError("the head is too long")

    def on_message_begin(self) -> None:
        self._in_head = True
        self._headers = []
        self._url = self._again = b""

    def on_url(self, url: bytes) -> None:
        self._url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        if self._in_head:  # behind a body, nobody on the way has seen what it says of keys, hosts and sessions
            self._headers.append((name, value))

    def on_headers_complete(self) -> None:
        method, version = self._parser.get_method(), self._parser.get_http_version()
        if method == b"CONNECT":
            raise ValueError("nothing lies behind this server")  # ends the parsing
        lines = [b"%b %b HTTP/%b" % (method, self._url, version.encode())]
        if self._parser.should_upgrade() and not self._wants_socket(method):
            lines += [b"%b: %b" % (name, _without_offer(name, value)) for name, value in self._headers]
            self._again = b"\r\n".join(lines) + b"\r\n\r\n"
            return
        lines += [b"%b: %b" % header for header in self._headers]
        head = b"\r\n".join(lines) + b"\r\n\r\n"
        if len(head) > _HEAD_LIMIT:
            self._size = len(head)
            raise ValueError("the head is too long")
        self._in_head = False
        self._chunked = any(name.lower() == b"transfer-encoding" for name, _ in self._headers)
        if self._served is None:
            # HTTP/1.0 knows no chunks: the end of a stream is that of its connection. h11 has it so.
            self._served = (HttpToolsProtocol if version == "1.1" else H11Protocol)(**self._of_uvicorn)
            self._served.connection_made(self.transport)
        self._requests.append(_Request([head]))
        self._is_socket = self._parser.should_upgrade()

    def _wants_socket(self, method: bytes) -> bool:
        """Return whether a request is the handshake of a WebSocket, on a path that has one, and nothing waits."""
        said = {name.lower(): value for name, value in self._headers}
        return (
            method == b"GET"
            and self._url.partition(b"?")[0].decode("latin-1") in self.sockets
            and said.get(b"upgrade", b"").lower() == b"websocket"
            and said.get(b"sec-websocket-version") == b"13"
            and len(said.get(b"sec-websocket-key", b"")) == _KEY
            and not self._requests
        )

    def on_body(self, body: bytes) -> None:
        self._size = 0
        self._requests[-1].held.append(b"%x\r\n%b\r\n" % (len(body), body) if self._chunked else body)

    def on_message_complete(self) -> None:
        self._size = 0
        if not self._again:
            self._requests[-1].whole = True
            if self._chunked:
                self._requests[-1].held.append(b"0\r\n\r\n")

    def _refuse(self) -> None:
        """What came is no request, or too long a one."""
        long = self._size > _HEAD_LIMIT
        if not long:
            say(logging.WARNING, _INVALID)
        self.transport.write(_TOO_LONG if long else _NO_REQUEST % (_LAST, len(_INVALID), _INVALID.encode()))
        self.transport.close()

    # One request after the other.

    def _pass_on(self) -> None:
        """Give uvicorn what has come of the request whose turn it is."""
        while self._requests and self._served is not None and not self.transport.is_closing():
            first = self._requests[0]
            if first.held:
                data = b"".join(first.held)
                first.held.clear()
                token = _ARRIVING.set(self)
                self._served.data_received(data)
                _ARRIVING.reset(token)
            if not (first.whole and first.answered):
                break
            self._requests.popleft()
            self._since = monotonic()
            if self._ahead and len(self._requests) < 2:
                self._ahead = 0
                self.transport.resume_reading()

    async def end_answer(self, send: Send, message: Message) -> None:
        """Send the last of an answer, and go on with the request behind it."""
        await send(message)
        if self._requests:
            self._requests[0].answered, self._since = True, monotonic()
            self._pass_on()

    # What cannot go on for ever.

    def look(self, now: float) -> None:
        """Close the connection if its client has made the server wait for too long."""
        if self._is_socket and self.transport.is_closing():
            self.there.discard(self)  # uvicorn has the connection, and is told of its end
        left = self.transport.get_write_buffer_size()
        if left != self._left or not left:
            self._left, self._left_since = left, now
        elif now - self._left_since > UNTAKEN:
            self.transport.abort()
        if self.transport.is_closing() or self._is_socket:
            return
        if not self._requests:
            if now - self._since > (self.settings.header_timeout if self._in_head else self.settings.idle_timeout):
                self.transport.close()
        elif self._requests[0].answered and now - self._since > LINGER:
            self.transport.abort()

    def retire(self) -> None:
        """Close the connection if it has had no request; of all others, uvicorn knows."""
        if self._served is None:
            self.transport.close()


def _without_offer(name: bytes, value: bytes) -> bytes:
    """The value of a header; that of `connection` without the word by which a client offers another protocol."""
    if name.lower() != b"connection":
        return value
    return b",".join(word for word in value.split(b",") if word.strip().lower() != b"upgrade")


async def watch(connections: Iterable[Connection], pause: float) -> None:
    """Look at connections, again and again."""

    def look() -> None:  # names in the loop would hold the last of them
        now = monotonic()
        for connection in list(connections):
            connection.look(now)

    while True:
        await asyncio.sleep(pause)
        look()


def through(app: Any) -> Any:
    """The application as uvicorn is to call it: a connection learns where answers end, and can be cut."""

    async def called(scope: Any, receive: Receive, send: Send) -> None:
        connection = _ARRIVING.get()
        assert connection is not None
        _ARRIVING.set(None)  # what the request begins does not hold its connection

        def sent(message: Message) -> Awaitable[None]:  # no coroutine of its own: a stream has thousands
            last = message["type"] == "http.response.body" and not message.get("more_body", False)
            return connection.end_answer(send, message) if last else send(message)

        cut = {CUT: {"cut": connection.transport.abort}}
        scope["extensions"] = cut if scope["type"] == "http" else scope["extensions"] | cut
        await app(scope, receive, sent)

    return called
