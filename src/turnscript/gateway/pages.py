"""Owns web pages that may ask: their browser is told so before a request and with its answer, as CORS wants it.

A browser lets a page of one host ask another only where that one names the page. The gateway names those of the
setting `origins`, and nobody else. It never says that a browser may send what it keeps for a host, such as cookies.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from turnscript.gateway.headers import NONE_LOST, RawHeaders, by_name

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
