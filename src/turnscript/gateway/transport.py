"""Owns carrying calls to a model server: connections, bytes, and in plain words why none came."""

from __future__ import annotations

import asyncio
import base64
import os
import socket
from collections.abc import Mapping
from io import BytesIO
from typing import Any, Protocol
from urllib.parse import SplitResult, unquote, urlsplit, urlunsplit

import aiohttp

from turnscript.backends.backend import Backend, HttpCall
from turnscript.backends.shared.server_errors import SHOWN
from turnscript.core.errors import BackendDown, InvalidInput, UpstreamError, UpstreamTimeout
from turnscript.gateway.kinds import UNFIT, fits_header

RECEIVE_BUFFER = 64 * 1024
"""How many bytes wait in the operating system. Left alone it would let a server run ahead by megabytes."""
READ_SIZE = 64 * 1024
"""From how many bytes that wait here on the server is told to pause; it may be twice as much."""
UNNAMED = "the model server"
_HEADERS = {"User-Agent": "turnscript", "Accept": "application/json, text/event-stream", "Accept-Encoding": "identity"}
_JSON = {"Content-Type": "application/json"}
_LARGE = 1024 * 1024
_LOOK = 1.0  # seconds after which a silent connection is looked at
_SHORTEST = 8  # characters of a header that is a secret


class Reply(Protocol):
    """What a server answers to one call."""

    status: int

    @property
    def headers(self) -> Mapping[str, str]:
        """What its head says, by names in any letters."""
        ...

    async def read(self) -> bytes:
        """More of the body as soon as there is any; empty at its end. Raises UpstreamError."""
        ...

    def close(self) -> None:
        """Let go of it: its connection is closed, and who waits in `read` gets an error."""
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
    """Calls over HTTP, each on a connection of its own. It belongs to the event loop in which it is first used. `told`:
    whether errors name the URL.

    No connection is kept: the library's pool would take what a server says on an idle one for the answer to the next
    call, and a call that meets a connection which the server has just closed would have to be sent twice.
    """

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
        self._session: aiohttp.ClientSession | None = None

    async def send(self, call: HttpCall) -> HttpReply:
        """Send a call and wait for the head of its answer."""
        body: bytes | BytesIO | None = call.body
        if call.body is not None and len(call.body) > _LARGE:
            body = BytesIO(call.body)  # is sent in pieces, as fast as it is taken, so that all else goes on
        try:
            response = await self._opened().request(
                call.method,
                self._base + call.path,
                data=body,
                headers={**_JSON, **call.headers} if body is not None else None,
                allow_redirects=False,
            )
        except (aiohttp.ClientError, OSError) as error:
            raise _failure(error, self._name, self._connect) from None
        return HttpReply(response, self._name)

    async def close(self) -> None:
        """Let go of all connections."""
        session, self._session = self._session, None
        if session is not None:
            await session.close()

    def _opened(self) -> aiohttp.ClientSession:
        if self._session is None:
            self._session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(limit=0, force_close=True, socket_factory=_socket),
                cookie_jar=aiohttp.DummyCookieJar(),
                headers=self._headers,
                timeout=aiohttp.ClientTimeout(total=None, sock_connect=self._connect),
                read_bufsize=READ_SIZE,
            )
        return self._session


class HttpReply:
    """The answer to one call over HTTP."""

    def __init__(self, response: aiohttp.ClientResponse, name: str) -> None:
        self.status = response.status
        self.headers: Mapping[str, str] = response.headers
        self._response = response
        self._name = name

    async def read(self) -> bytes:
        """More of the body as soon as there is any; empty at its end. Raises UpstreamError."""
        try:
            while True:
                try:
                    async with asyncio.timeout(_LOOK):
                        return await self._response.content.readany()
                except TimeoutError:
                    # The library closes the connection when a chunk is none, and does not tell who waits for the next.
                    connection = self._response.connection
                    if connection is None or connection.closed:
                        raise aiohttp.ServerDisconnectedError from None
        except (aiohttp.ClientError, RuntimeError):  # it has a RuntimeError for who begins to wait after that
            message = f"{at(self._name)} broke off its answer: the connection was lost"
            raise UpstreamError(message, retryable=True) from None

    def close(self) -> None:
        """Let go of it: its connection is closed, and who waits in `read` gets an error."""
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
    said = " ".join(str(getattr(error, "message", "" if unnamed else error)).split())[:SHOWN]
    return UpstreamError(f"{name} does not answer in HTTP ({said}); check the URL", body=said, retryable=True)
