"""Owns carrying calls to a model server: connections, bytes, and in plain words why none came."""

from __future__ import annotations

import asyncio
import base64
import os
import socket
from collections.abc import Mapping
from contextvars import ContextVar
from typing import Any, Protocol
from urllib.parse import SplitResult, unquote, urlsplit, urlunsplit

import aiohttp
from aiohttp.abc import AbstractStreamWriter
from yarl import URL

from turnscript.backend import Backend, HttpCall
from turnscript.errors import BackendDown, InvalidInput, UpstreamError, UpstreamTimeout
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
        self._base = base
        self._name = named(url, told=told)
        self._connect = connect
        self._urls: dict[str, URL] = {}
        self._session: aiohttp.ClientSession | None = None

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
        except (aiohttp.ClientError, OSError) as error:
            raise _failure(error, self._name, self._connect) from None
        finally:
            _fresh.reset(token)

    async def close(self) -> None:
        """Let go of all connections."""
        session, self._session = self._session, None
        if session is not None:
            await session.close()

    async def _send(self, call: HttpCall) -> HttpReply:
        url = self._urls.get(call.path)
        if url is None:
            url = self._urls[call.path] = URL(self._base + call.path)
        data = None if call.body is None else _payload(call.body)
        session = self._session or self._opened()
        response = await session.request(call.method, url, data=data, allow_redirects=False)
        return HttpReply(response, self._name)

    def _opened(self) -> aiohttp.ClientSession:
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=IDLE, socket_factory=_socket),
            headers=self._headers,
            cookie_jar=aiohttp.DummyCookieJar(),
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=self._connect),
            read_bufsize=READ_SIZE,
        )
        return self._session


_HEADERS = {"User-Agent": "turnscript", "Accept": "application/json, text/event-stream", "Accept-Encoding": "identity"}
_JSON = "application/json"


def _payload(body: bytes) -> aiohttp.Payload:
    """A body that knows its type: the library need not find out what it is, nor merge headers for it."""
    return _Large(body) if len(body) > _LARGE else aiohttp.BytesPayload(body, content_type=_JSON)


class _Large(aiohttp.Payload):
    """A large body, sent in pieces so that all else goes on. As a file in memory it would be copied first."""

    _value: bytes

    def __init__(self, body: bytes) -> None:
        super().__init__(body, content_type=_JSON)
        self._size = len(body)

    def decode(self, encoding: str = "utf-8", errors: str = "strict") -> str:
        """The body as text."""
        return self._value.decode(encoding, errors)

    async def write(self, writer: AbstractStreamWriter) -> None:
        """Send it."""
        body = memoryview(self._value)
        for start in range(0, len(body), _PIECE):
            await writer.write(body[start : start + _PIECE])
            await asyncio.sleep(0)


class HttpReply:
    """The answer to a call over HTTP."""

    def __init__(self, response: aiohttp.ClientResponse, name: str) -> None:
        self.status = response.status
        self.headers: Mapping[str, str] = response.headers
        self._response = response
        self._name = name

    @property
    def ended(self) -> bool:
        """Whether all of the body was read, its end too."""
        return self._response.content.at_eof()

    async def read(self) -> bytes:
        """More of the body."""
        try:
            return await self._response.content.readany()
        except (aiohttp.ClientError, OSError):
            message = f"{at(self._name)} broke off its answer: the connection was lost"
            raise UpstreamError(message, retryable=True) from None

    def close(self) -> None:
        """Keep the connection if the body is at its end; else close it."""
        if not self._response.closed:  # as it is at its end
            self._response.close()


def _failure(error: aiohttp.ClientError | OSError, name: str, connect: float) -> UpstreamError:
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
    said = str(getattr(error, "message", "") if unnamed else error)[:SHOWN]
    return UpstreamError(f"{name} does not answer in HTTP ({said}); check the URL", body=said, retryable=True)
