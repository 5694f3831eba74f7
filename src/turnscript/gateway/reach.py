"""Owns who can reach the server: whether an address is this machine's own, and the rules that follow from it.

Web pages may ask, too: their browser is told so before a request and with its answer, as CORS wants it. A browser lets
a page of one host ask another only where that one names the page. The gateway names those of the setting `origins`, and
nobody else. It never says that a browser may send what it keeps for a host, such as cookies.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import lru_cache
from socket import AF_INET, AF_INET6, SOCK_DGRAM, gethostname, socket
from typing import Any
from urllib.parse import urlsplit

from turnscript.core.errors import Forbidden
from turnscript.gateway.config import Config, Server
from turnscript.gateway.headers import NONE_LOST, RawHeaders, by_name
from turnscript.gateway.kinds import InvalidConfig

_LOCAL = "localhost"
_REMEDY = "set keys to a file made with `turnscript keys add`, or set public = true (`--public`) if that is meant"
_NAMED = "add it to server.origins"
_AT_HOME = (".local", ".internal", ".lan", ".home.arpa")


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach what listens there."""
    name = _bare(host)
    if name == _LOCAL or name.endswith(f".{_LOCAL}"):
        return True
    try:
        address = ipaddress.ip_address(name)
    except ValueError:
        return False
    mapped = getattr(address, "ipv4_mapped", None)
    return bool((mapped or address).is_loopback)


def check_page(headers: Mapping[str, str], known: Sequence[str] = ()) -> None:
    """No page of another host may ask where no key is needed. A browser on this machine reaches what listens here
    alone, and runs the scripts of any page. Whose they are it tells in `Origin`, which programs do not send; but not
    where a page reads from its own host, whose name may lead here by now: that stands in `Host`.

    `known`: the origins whose pages may ask; and their hosts may lead here. Raises Forbidden.
    """
    origin, host = headers.get("origin"), headers.get("host", "")
    if origin is not None and origin not in known and _is_foreign(origin):
        why = "and without keys only those of this machine may"
        raise Forbidden(f"a web page of {origin} asks, {why}; {_NAMED} or {_REMEDY}")
    if _is_of_others(host) and _name(host) not in map(_host_of, known):
        why = "and without keys only names of this machine's own answer"
        raise Forbidden(f"{host} is asked, {why}; {_NAMED} or {_REMEDY}")


def pages_told(server: Server) -> Sequence[str]:
    """Whose pages are told that they may ask. Where no key is needed, that is none that is not named: what everybody is
    answered, such as the names of the models, a browser on this machine would read for any page."""
    if not server.origins or server.keys is not None or server.public:
        return server.origins
    return [origin for origin in server.origins if origin != ANY]


def _host_of(origin: str) -> str | None:
    return _name(origin.partition("://")[2])


def _name(host: str) -> str | None:
    """The name in a host with its port; None where it is none."""
    try:
        return (urlsplit(f"//{host}").hostname or "").rstrip(".")
    except ValueError:
        return None


@lru_cache(maxsize=64)
def _is_foreign(origin: str) -> bool:
    """Whether a page is of another host, or hides its own (`null`). Extensions and desktop programs are neither."""
    try:
        parts = urlsplit(origin)
    except ValueError:
        return True
    return origin == "null" or (parts.scheme in ("http", "https") and not is_loopback(parts.hostname or ""))


@lru_cache(maxsize=64)
def _is_of_others(host: str) -> bool:
    """Whether somebody else may say where the name of a host leads. Nobody can of an address, of a name without a dot,
    and of names that only a network at home, or the engine of a container, gives."""
    name = _name(host)
    if name is None:
        return True
    return "." in name and not name.endswith(_AT_HOME) and not is_loopback(name) and not _is_address(name)


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def check_reach(config: Config) -> None:
    """Others may only reach the server if they need keys, or if it was said that they need none.

    Raises InvalidConfig.
    """
    server = config.server
    if server.keys is None and not server.public and not is_loopback(server.host):
        message = (
            f"listening on {server.host} lets everybody who reaches this machine use the models and read what is kept; "
            + _REMEDY
        )
        source = config.origins.get("server.host", "")
        raise InvalidConfig(message, path="server.host", source=source, expected="127.0.0.1")


_ANYWHERE = ("0.0.0.0", "::")
_HERE = ("127.0.0.1", "::1")


def check_models(config: Config) -> None:
    """No model may run where the server itself listens: it would ask itself, that again, and so on without end.

    Raises InvalidConfig.
    """
    server = config.server
    own = _addresses(server.host)
    for model in config.models:
        for place in model.backend:
            if place.is_web and _port(place.target) == server.port and _is_own(_host(place.target), server.host, own):
                message = (
                    "this is where the gateway itself listens; say where the model server runs, or let the gateway "
                    "listen on another port (`--port`, or `port` under `[server]`)"
                )
                path = f"models.{model.name}.backend"
                raise InvalidConfig(message, path=path, source=config.origins.get(path, ""))


def _is_own(host: str, listens: str, own: frozenset[str]) -> bool:
    """Whether a host leads to what listens here."""
    if own & _addresses(host):
        return True
    return _bare(listens) in _ANYWHERE and (host == gethostname().lower() or (_is_address(host) and _is_here(host)))


def _is_here(address: str) -> bool:
    """Whether an address is one of this machine's: only those can be listened on."""
    try:
        with socket(AF_INET6 if ":" in address else AF_INET, SOCK_DGRAM) as tried:
            tried.bind((address, 0))
    except OSError:
        return False
    return True


def _bare(host: str) -> str:
    return host.strip().strip("[]").rstrip(".").lower()


def _addresses(host: str) -> frozenset[str]:
    """The addresses of this machine that a host means; of another one its name."""
    name = _bare(host)
    if name in _ANYWHERE or name == _LOCAL:
        return frozenset(_HERE)
    return frozenset((name,))


def _host(url: str) -> str:
    return urlsplit(url).hostname or ""


def _port(url: str) -> int:
    parts = urlsplit(url)
    return parts.port or (443 if parts.scheme == "https" else 80)


ANY = "*"
"""Stands for the pages of all hosts."""

_METHODS = b"GET, HEAD, POST, DELETE"
_NAMES = re.compile(r"[A-Za-z0-9, _-]{1,2000}")
_SECONDS = b"600"

Asgi = Callable[[Any, Any, Any], Awaitable[None]]


class Pages:
    """An application that web pages may ask. `origins`: whose pages, as the configuration has it now."""

    def __init__(self, app: Asgi, origins: Callable[[], Sequence[str]]) -> None:
        self._app = app
        self._origins = origins

    def __call__(self, scope: Any, receive: Any, send: Any) -> Awaitable[None]:
        """No coroutine of its own where no page may ask: it would be passed through whenever an answer goes on."""
        origins = self._origins()
        return self._tell(origins, scope, receive, send) if origins else self._app(scope, receive, send)

    async def _tell(self, origins: Sequence[str], scope: Any, receive: Any, send: Any) -> None:
        headers = by_name(scope["headers"])
        origin = headers.get("origin")
        told: RawHeaders = [(b"vary", b"origin")]  # what is kept of an answer is not for the pages of all hosts
        if origin is not None and (origin in origins or ANY in origins):
            told.append((b"access-control-allow-origin", origin.encode("latin-1")))
            if scope["method"] == "OPTIONS" and "access-control-request-method" in headers:
                await _answer(send, told + _allowed(headers.get("access-control-request-headers", "")))
                return
            told.append((b"access-control-expose-headers", b"*"))

        async def telling(message: Any) -> None:
            if message["type"] == "http.response.start":
                message = {**message, "headers": [*message["headers"], *told]}
            await send(message)

        await self._app(scope, receive, telling)


def _allowed(wanted: str) -> RawHeaders:
    """What a page may do. It may send all headers that it asks for: what they mean, the request itself is asked."""
    allowed = [(name.encode(), value.encode()) for name, value in NONE_LOST.items()]
    allowed += [(b"access-control-allow-methods", _METHODS), (b"access-control-max-age", _SECONDS)]
    if _NAMES.fullmatch(wanted):
        allowed.append((b"access-control-allow-headers", wanted.encode()))
    return allowed


async def _answer(send: Any, headers: RawHeaders) -> None:
    await send({"type": "http.response.start", "status": 204, "headers": headers})
    await send({"type": "http.response.body", "body": b""})
