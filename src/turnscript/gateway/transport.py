"""Owns carrying calls to a model server: connections, bytes, and in plain words why none came."""

from __future__ import annotations

import asyncio
import base64
import os
import socket
import time
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from typing import Any, Protocol
from urllib.parse import SplitResult, unquote, urlsplit, urlunsplit

import aiohttp
from aiohttp.client_proto import ResponseHandler
from aiohttp.connector import Connection
from aiohttp.http import HttpProcessingError, StreamWriter
from yarl import URL

from turnscript.backend import Backend, HttpCall
from turnscript.errors import BackendDown, InvalidInput, UpstreamError, UpstreamTimeout
from turnscript.gateway.kinds import UNFIT, fits_header
from turnscript.gateway.reading import Headers, HttpConnection, Lines, Unpacker
from turnscript.refused import SHOWN

RECEIVE_BUFFER = 64 * 1024
"""How many bytes wait in the operating system. Left alone it would let a server run ahead by megabytes."""
IDLE = 4.0
"""Seconds that an idle connection is kept. Most servers close theirs after five."""
UNNAMED = "the model server"
_PIECE = 64 * 1024
_LARGE = 1024 * 1024
_SHORTEST = 8  # characters of a header that is a secret


class Reply(Protocol):
    """What a server answers to one call."""

    status: int

    @property
    def headers(self) -> Mapping[str, str]:
        """What its head says, by names in any letters."""
        ...

    @property
    def ended(self) -> bool:
        """Whether it is known that all of the body was read."""
        ...

    def taken(self) -> bytes | None:
        """What of the body is there already, None if one has to `read`. Raises UpstreamError."""
        ...

    async def read(self) -> bytes:
        """More of the body as soon as there is any; empty at its end. Raises UpstreamError."""
        ...

    def close(self) -> None:
        """Let go of it. Unless it was read to its end, its connection is closed; who waits in `read` gets an error."""
        ...


class Transport(Protocol):
    """What carries calls to one server."""

    async def send(self, call: HttpCall) -> Reply:
        """Send a call and wait for the head of its answer. Raises UpstreamError."""
        ...

    async def close(self) -> None:
        """Let go of all connections."""
        ...


def base_of(url: str, backend: Backend) -> str:
    """The URL that a backend's paths follow. Raises InvalidInput for what is no URL of a server."""
    parts = _split(url)
    host = parts.netloc.rpartition("@")[2]
    return urlunsplit((parts.scheme, host, parts.path.rstrip("/") or backend.default_path, "", ""))


def shown(url: str) -> str:
    """A URL as people may see it: without a password."""
    parts = _split(url)
    return urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, "", ""))


def named(url: str, *, told: bool) -> str:
    """A server in an error: by its URL if that is `told`; those who only use a gateway need not know what is behind."""
    return shown(url) if told else UNNAMED


def at(name: str) -> str:
    """The server of a name, where a sentence needs more than the name."""
    return name if name == UNNAMED else f"the model server at {name}"


def _split(url: str) -> SplitResult:
    expected = "the URL of a model server, such as http://127.0.0.1:8080"
    try:
        parts = urlsplit(url.strip())
        if parts.scheme in ("http", "https") and parts.hostname and parts.port != 0 and not parts.query:
            return parts
    except ValueError:
        pass  # a port or an address that is none
    bare = url.rpartition("@")[2][:200]
    raise InvalidInput(f"{bare!r} is not {expected}", expected=expected, got=bare)


def secrets_of(url: str, key: str | None, headers: Mapping[str, str] | None = None) -> list[str]:
    """What no log and no recording may hold. Of a header also what follows a word such as `Basic`; a short one is none:
    a number or a name that is masked everywhere leaves a recording that nobody can read."""
    parts = _split(url)
    values = [secret for value in (headers or {}).values() for secret in (value, value.rpartition(" ")[2])]
    long = [value for value in dict.fromkeys(values) if len(value) >= _SHORTEST]
    return [secret for secret in (key, parts.password and unquote(parts.password), *long) if secret]


def _socket(address: tuple[Any, ...]) -> socket.socket:
    """A new socket that does not take in more than is read."""
    family, kind, protocol, *_ = address
    made = socket.socket(family, kind, protocol)
    made.setblocking(False)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, RECEIVE_BUFFER)
    return made


class HttpTransport:
    """Calls over HTTP, on connections that are kept. It belongs to the event loop in which it is first used. `told`:
    whether errors name the URL."""

    def __init__(
        self,
        url: str,
        base: str,
        key: str | None = None,
        connect: float = 10.0,
        headers: Mapping[str, str] | None = None,
        *,
        told: bool = True,
    ) -> None:
        user = _split(url).netloc.rpartition("@")[0]
        given = {"Authorization": f"Basic {base64.b64encode(unquote(user).encode()).decode()}"} if user else {}
        given |= {"Authorization": f"Bearer {key}"} if key else {}
        theirs = {name.lower() for name in headers or ()}  # in whatever capitals: none is sent twice
        ours = {name: value for name, value in (_HEADERS | given).items() if name.lower() not in theirs}
        self._headers = ours | dict(headers or {})
        for header, value in self._headers.items():  # the value may be a secret
            if not (fits_header(header) and fits_header(value, words=True)):
                raise InvalidInput(f"the header {header!r} of {named(url, told=told)} {UNFIT}")
        self._base = base
        self._name = named(url, told=told)
        self._connect = connect
        self._heads: dict[tuple[str, str], bytes] = {}
        self._connector: aiohttp.TCPConnector | None = None
        self._idle: deque[tuple[Connection, float]] = deque()  # and since when
        self._sweeps: asyncio.TimerHandle | None = None

    async def send(self, call: HttpCall) -> HttpReply:
        """Send a call. One that nothing answers on a connection that the server closes is sent once more, on a new one:
        it is likely that it had closed the other one before."""
        head = self._heads.get((call.method, call.path))
        if head is None:
            head = self._heads[call.method, call.path] = self._head(call.method, URL(self._base + call.path))
        try:
            kept = self._kept()
            while True:
                reply = HttpReply(self, kept or await self._connected(), self._name)
                begun = False
                try:
                    reply.ask(head, call.body)
                    while not reply.begun():
                        await reply.news()
                    begun = True
                    return reply
                except (aiohttp.ServerDisconnectedError, aiohttp.ClientOSError):
                    if kept is None or reply.heard:
                        raise
                    kept = None
                finally:
                    if not begun:
                        reply.close()
        except (aiohttp.ClientError, HttpProcessingError, OSError) as error:
            raise _failure(error, self._name, self._connect) from None

    async def close(self) -> None:
        """Let go of all connections."""
        connector, self._connector = self._connector, None
        while self._idle:
            self._idle.pop()[0].close()
        if self._sweeps is not None:
            self._sweeps.cancel()
            self._sweeps = None
        if connector is not None:
            await connector.close()

    def _head(self, method: str, url: URL) -> bytes:
        """What all calls to one path begin with."""
        lines = [f"{method} {url.raw_path_qs} HTTP/1.1", f"Host: {url.host_port_subcomponent}"]
        lines += [f"{name}: {value}" for name, value in self._headers.items()]
        return "".join([f"{line}\r\n" for line in lines]).encode()

    # Connections.

    async def _connected(self) -> Connection:
        """A new connection."""
        connector = self._connector
        if connector is None:
            loop = self._loop = asyncio.get_running_loop()
            connector = aiohttp.TCPConnector(limit=0, socket_factory=_socket)
            made: Callable[..., ResponseHandler] = HttpConnection
            connector._factory = partial(made, loop=loop)
            self._origin = aiohttp.ClientRequest("POST", URL(self._base), loop=loop)
            self._timeout = aiohttp.ClientTimeout(total=None, sock_connect=self._connect)
            self._connector = connector
        return await connector.connect(self._origin, [], self._timeout)

    def _kept(self) -> Connection | None:
        """A connection that is idle, the one that was used last."""
        now = time.monotonic()
        while self._idle:
            connection, since = self._idle.pop()
            if not connection.closed and now - since <= IDLE:
                return connection
            connection.close()
        return None

    def keep(self, connection: Connection) -> None:
        """A connection is idle. The library's pool would be asked for each call, in a dozen calls."""
        if self._connector is None:
            connection.close()
            return
        self._idle.append((connection, time.monotonic()))
        if self._sweeps is None:
            self._sweeps = self._loop.call_later(IDLE, self._sweep)

    def _sweep(self) -> None:
        """Close what was idle for long, which stands first."""
        now = time.monotonic()
        while self._idle and (now - self._idle[0][1] >= IDLE or self._idle[0][0].closed):
            self._idle.popleft()[0].close()
        due = self._idle[0][1] + IDLE - now if self._idle else 0.0
        self._sweeps = self._loop.call_later(due, self._sweep) if self._idle else None


_HEADERS = {"User-Agent": "turnscript", "Accept": "application/json, text/event-stream", "Accept-Encoding": "identity"}
_BODY = b"%bContent-Length: %d\r\nContent-Type: application/json\r\n\r\n"


class HttpReply:
    """One call over HTTP, and the answer to it."""

    __slots__ = ("_connection", "_lines", "_name", "_protocol", "_transport", "_unpacks", "_upload", "status")

    def __init__(self, transport: HttpTransport, connection: Connection, name: str) -> None:
        protocol = connection.protocol
        assert type(protocol) is HttpConnection
        self.status = 0
        self._transport = transport
        self._connection = connection
        self._protocol: HttpConnection | None = protocol
        self._lines: Lines = []
        self._unpacks: Unpacker | None = None
        self._upload: asyncio.Task[None] | None = None
        self._name = name

    def ask(self, head: bytes, body: bytes | None) -> None:
        """Send the call. Raises what the library does."""
        protocol = self._protocol
        assert protocol is not None
        transport = protocol.transport
        if transport is None or transport.is_closing():
            raise aiohttp.ServerDisconnectedError
        protocol.ask()
        if body is None:
            transport.write(head + b"\r\n")
        elif len(body) <= _LARGE:
            transport.write(_BODY % (head, len(body)) + body)
        else:
            transport.write(_BODY % (head, len(body)))
            self._upload = asyncio.get_running_loop().create_task(_upload(protocol, body))

    def begun(self) -> bool:
        """Whether the head of the answer is there. Raises what the library does."""
        protocol = self._protocol
        assert protocol is not None
        fault = protocol.fault
        if fault is not None and not (protocol.answered and isinstance(fault, aiohttp.ClientError)):
            raise fault
        if not protocol.answered:
            return False
        self.status, self._lines, self._unpacks = protocol.status, protocol.lines, protocol.unpacks
        return True

    @property
    def heard(self) -> bool:
        """Whether anything has come of an answer that has not begun."""
        return self._protocol is not None and self._protocol.heard

    def news(self) -> asyncio.Future[None]:
        """What is done when more has come."""
        assert self._protocol is not None
        return self._protocol.news()

    @property
    def headers(self) -> Mapping[str, str]:
        """What the head of the answer says."""
        return Headers(self._lines)

    @property
    def ended(self) -> bool:
        """Whether all of the body was read, its end too."""
        protocol, unpacks = self._protocol, self._unpacks
        if protocol is None or not protocol.whole or protocol.waits:
            return False
        return unpacks is None or not unpacks.full

    def taken(self) -> bytes | None:
        """What of the body is there, empty at its end, None where it is waited for. Raises UpstreamError."""
        protocol = self._protocol
        if protocol is None:
            raise self._broken_off()
        data = protocol.take() if self._unpacks is None else self._unpacked(self._unpacks, protocol)
        if data or protocol.whole:
            return data
        if protocol.fault is not None:
            raise self._broken_off()
        return None

    async def read(self) -> bytes:
        """More of the body."""
        while (data := self.taken()) is None:
            await self.news()
        return data

    def _unpacked(self, unpacks: Unpacker, protocol: HttpConnection) -> bytes:
        """What is in what has come; no more is taken before all of that was told."""
        try:
            return (unpacks.full and unpacks.feed(b"")) or unpacks.feed(protocol.take())
        except aiohttp.ClientPayloadError:
            raise self._broken_off() from None

    def _broken_off(self) -> UpstreamError:
        return UpstreamError(f"{at(self._name)} broke off its answer: the connection was lost", retryable=True)

    def close(self) -> None:
        """Keep the connection if the call was sent and answered to the end; else close it."""
        protocol, self._protocol = self._protocol, None
        if protocol is None:
            return
        transport = protocol.transport
        unsent = transport is not None and transport.get_write_buffer_size() > 0
        if self._upload is not None and not self._upload.done():
            unsent = self._upload.cancel()
        if protocol.leave() and not unsent:
            self._transport.keep(self._connection)
            return
        if unsent:
            protocol.abort()  # closed, it would send the rest before
        self._connection.close()


async def _upload(protocol: ResponseHandler, body: bytes) -> None:
    """Send a large body in pieces, as fast as it is taken, so that all else goes on. Where that fails, so does the
    wait for the answer."""
    writer, whole = StreamWriter(protocol, asyncio.get_running_loop()), memoryview(body)
    with suppress(aiohttp.ClientError, OSError):
        for start in range(0, len(body), _PIECE):
            await writer.write(whole[start : start + _PIECE])
            await asyncio.sleep(0)


def _failure(error: aiohttp.ClientError | HttpProcessingError | OSError, name: str, connect: float) -> UpstreamError:
    """Why no answer came, and what to do about it. What the library says names the server, too."""
    unnamed = name == UNNAMED
    if isinstance(error, TimeoutError):
        check = "runs, is reached and speaks https" if name.startswith("https:") else "runs and is reached"
        message = f"{name} has not accepted a connection after {connect:g} s: check that the server {check}"
        return UpstreamTimeout(message, retryable=True)
    if isinstance(error, aiohttp.ClientConnectorDNSError):
        return BackendDown(f"there is no host of that name: {name}; correct the URL")
    if isinstance(error, aiohttp.ClientSSLError):
        why = getattr(error.os_error, "reason", None) or "it broke off" if unnamed else error
        return BackendDown(f"no secure connection to {name}: {why}; check its certificate, or use http")
    if isinstance(error, aiohttp.ClientConnectorError):
        if isinstance(error.os_error, ConnectionRefusedError):
            why = "nothing listens there: start the model server, or correct its URL"
        else:
            said = os.strerror(error.os_error.errno or 0) if unnamed else error.os_error.strerror or error
            why = f"{said}; check the network and the URL"
        return BackendDown(f"cannot connect to {name}: {why}")
    if isinstance(error, aiohttp.ServerDisconnectedError | OSError):
        message = f"{at(name)} closed the connection without an answer; its log may say why"
        return UpstreamError(message, retryable=True)
    # What the library says of it quotes the server, which is no business of a log.
    said = " ".join(str(getattr(error, "message", "" if unnamed else error)).split())[:SHOWN]
    return UpstreamError(f"{name} does not answer in HTTP ({said}); check the URL", body=said, retryable=True)
