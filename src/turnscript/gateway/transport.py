"""Owns carrying calls to a model server: connections, bytes, and in plain words why none came."""

from __future__ import annotations

import asyncio
import base64
import os
import socket
from collections.abc import Callable, Mapping
from contextlib import suppress
from contextvars import ContextVar
from functools import partial
from typing import Any, Protocol
from urllib.parse import SplitResult, unquote, urlsplit, urlunsplit

import aiohttp
from aiohttp.client_proto import ResponseHandler
from aiohttp.client_reqrep import ConnectionKey
from aiohttp.connector import Connection
from aiohttp.http import HttpProcessingError, StreamWriter
from yarl import URL

from turnscript.backend import Backend, HttpCall
from turnscript.errors import BackendDown, InvalidInput, UpstreamError, UpstreamTimeout
from turnscript.gateway.kinds import UNFIT, fits_header
from turnscript.refused import SHOWN

READ_SIZE = 16 * 1024
"""How many bytes wait here before the server is told to pause; twice as much at most."""
RECEIVE_BUFFER = 64 * 1024
"""The same in the operating system. Left alone it would let a server run ahead by megabytes."""
IDLE = 4.0
"""Seconds that an idle connection is kept. Most servers close theirs after five."""
UNNAMED = "the model server"
_PIECE = 64 * 1024
_LARGE = 1024 * 1024
_SWITCHED = 101  # to another protocol
_SHORTEST = 8  # characters of a header that is a secret


class Reply(Protocol):
    """What a server answers to one call."""

    status: int
    headers: Mapping[str, str]

    @property
    def ended(self) -> bool:
        """Whether it is known that all of the body was read."""
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


_fresh: ContextVar[list[socket.socket]] = ContextVar("turnscript_fresh_sockets")


def _socket(address: tuple[Any, ...]) -> socket.socket:
    """A new socket that does not take in more than is read."""
    family, kind, protocol, *_ = address
    made = socket.socket(family, kind, protocol)
    made.setblocking(False)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, RECEIVE_BUFFER)
    _fresh.get([]).append(made)
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

    async def send(self, call: HttpCall) -> HttpReply:
        """Send a call. One that fails on a connection that the server had closed meanwhile is sent again."""
        fresh: list[socket.socket] = []
        token = _fresh.set(fresh)
        try:
            while True:
                try:
                    return await self._send(call)
                except (aiohttp.ServerDisconnectedError, aiohttp.ClientOSError) as error:
                    if fresh or isinstance(error, aiohttp.ClientConnectorError):
                        raise
        except (aiohttp.ClientError, HttpProcessingError, OSError) as error:
            raise _failure(error, self._name, self._connect) from None
        finally:
            _fresh.reset(token)

    async def close(self) -> None:
        """Let go of all connections."""
        connector, self._connector = self._connector, None
        if connector is not None:
            await connector.close()

    async def _send(self, call: HttpCall) -> HttpReply:
        connector = self._connector or self._opened()
        head = self._heads.get((call.method, call.path))
        if head is None:
            head = self._heads[call.method, call.path] = self._head(call.method, URL(self._base + call.path))
        reply = HttpReply(await connector.connect(self._origin, [], self._timeout), self._name)
        begun = False
        try:
            await reply.begin(head, call.body)
            begun = True
        finally:
            if not begun:
                reply.close()
        return reply

    def _head(self, method: str, url: URL) -> bytes:
        """What all calls to one path begin with."""
        lines = [f"{method} {url.raw_path_qs} HTTP/1.1", f"Host: {url.host_port_subcomponent}"]
        lines += [f"{name}: {value}" for name, value in self._headers.items()]
        return "".join([f"{line}\r\n" for line in lines]).encode()

    def _opened(self) -> aiohttp.TCPConnector:
        loop = asyncio.get_running_loop()
        connector = aiohttp.TCPConnector(limit=0, keepalive_timeout=IDLE, socket_factory=_socket)
        made: Callable[..., ResponseHandler] = _Connection
        connector._factory = partial(made, loop=loop)
        self._origin = _Origin("POST", URL(self._base), loop=loop)
        self._timeout = aiohttp.ClientTimeout(total=None, sock_connect=self._connect)
        self._connector = connector
        return connector


_HEADERS = {"User-Agent": "turnscript", "Accept": "application/json, text/event-stream", "Accept-Encoding": "identity"}
_BODY = b"%bContent-Length: %d\r\nContent-Type: application/json\r\n\r\n"


class _Origin(aiohttp.ClientRequest):
    """Tells the library where to connect, and how; and whose the idle connections are, which stays the same."""

    _key: ConnectionKey | None = None

    @property
    def connection_key(self) -> ConnectionKey:
        """By what the library finds idle connections."""
        key = self._key
        if key is None:
            key = self._key = super().connection_key
        return key


class _Connection(ResponseHandler):
    """A connection of the library. Its parser would be told to go on for each piece that is read, ten times in a short
    answer, with nothing to parse; here it is only where it has stopped."""

    def resume_reading(self, resume_parser: bool = True) -> None:
        """Go on reading."""
        if self._reading_paused:
            super().resume_reading(resume_parser)


class HttpReply:
    """One call over HTTP, and the answer to it."""

    def __init__(self, connection: Connection, name: str) -> None:
        self.status = 0
        self.headers: Mapping[str, str] = {}
        self._connection: Connection | None = connection
        self._content: aiohttp.StreamReader = aiohttp.EMPTY_PAYLOAD
        self._upload: asyncio.Task[None] | None = None
        self._name = name

    async def begin(self, head: bytes, body: bytes | None) -> None:
        """Send the call and wait for the head of its answer. Raises what the library does."""
        assert self._connection is not None
        protocol = self._connection.protocol
        transport = self._connection.transport
        if protocol is None or transport is None or transport.is_closing():
            raise aiohttp.ServerDisconnectedError
        protocol.set_response_params(read_until_eof=True, read_bufsize=READ_SIZE)
        if body is None:
            transport.write(head + b"\r\n")
        elif len(body) <= _LARGE:
            transport.write(_BODY % (head, len(body)) + body)
        else:
            transport.write(_BODY % (head, len(body)))
            self._upload = asyncio.get_running_loop().create_task(_upload(protocol, body))
        message, content = await protocol.read()
        while 100 <= message.code < 200 and message.code != _SWITCHED:  # the answer itself is still to come
            message, content = await protocol.read()
        self.status, self.headers, self._content = message.code, message.headers, content

    @property
    def ended(self) -> bool:
        """Whether all of the body was read, its end too."""
        return self._content.at_eof()

    async def read(self) -> bytes:
        """More of the body."""
        content = self._content
        try:
            if _DRAINS and type(content) is _Stream and len(content._buffer) > 1 and content.exception() is None:
                return _drained(content)
            return await content.readany()
        except (aiohttp.ClientError, OSError):
            message = f"{at(self._name)} broke off its answer: the connection was lost"
            raise UpstreamError(message, retryable=True) from None

    def close(self) -> None:
        """Keep the connection if the call was sent and answered to the end; else close it."""
        connection, self._connection = self._connection, None
        if connection is None:
            return
        transport = connection.transport
        unsent = transport is not None and transport.get_write_buffer_size() > 0
        if self._upload is not None and not self._upload.done():
            unsent = self._upload.cancel()
        if self.status and self._content.is_eof() and not unsent:
            connection.release()
            return
        self._content.set_exception(aiohttp.ClientConnectionError("it was closed here"))
        if unsent and connection.protocol is not None:
            connection.protocol.abort()  # closed, it would send the rest before
        connection.close()


_Stream = aiohttp.StreamReader
_DRAINS = all(hasattr(_Stream, name) for name in ("_buffer", "_size", "_cursor", "_http_chunk_splits", "_protocol"))
"""Whether the library keeps what has come as it did when this was written."""


def _drained(content: aiohttp.StreamReader) -> bytes:
    """All that waits to be read. The library takes each chunk of HTTP by itself, in several calls, and each token is a
    chunk."""
    data = b"".join(content._buffer)  # whole chunks: nobody reads a part of one
    content._buffer.clear()
    content._size = 0
    content._cursor += len(data)
    ends = content._http_chunk_splits
    while ends and ends[0] < content._cursor:
        ends.popleft()
    content._protocol.resume_reading()
    return data


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
