"""Owns the playground over HTTP: the page, and a JSON endpoint for each thing that it shows, for this machine alone.

A browser on this machine runs the scripts of any page, and each of those may ask here. So nobody is answered who asks
under another name than this machine's, or from a page of another host; and what is asked must be called JSON, which no
form of another page can do.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import cache
from importlib.resources import files
from typing import Any, TypeVar
from urllib.parse import urlsplit

import msgspec
from msgspec import Struct
from msgspec.structs import replace
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from turnscript.convert.recognition import SIDES
from turnscript.convert.registry import apis, formats, get_api, model_formats, title_of
from turnscript.core.errors import Forbidden, InvalidInput, TooLarge, TurnscriptError, Unsupported
from turnscript.formats.format import VIEWS
from turnscript.gateway.reach import is_loopback
from turnscript.playground.conversion import Conversion, converted
from turnscript.playground.examples import Example, examples
from turnscript.playground.offered import templates
from turnscript.playground.play import Play, played
from turnscript.playground.prompts import Ask, prompted, tokenizers
from turnscript.playground.telling import encoded, fault_of

LIMIT = 4 << 20
"""Bytes of what is asked: a source and a text."""
_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'"
)
_HEADERS = {
    "content-security-policy": _POLICY,
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-resource-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "cache-control": "no-store",
}
_PAGE = {
    "/": ("index.html", "text/html"),
    "/page.css": ("page.css", "text/css"),
    "/page.js": ("page.js", "text/javascript"),
    "/icon.svg": ("icon.svg", "image/svg+xml"),
}
_JSON = "application/json"

AskedT = TypeVar("AskedT", bound=Struct)
Asgi = Callable[[Any, Any, Any], Awaitable[None]]


class Named(Struct):
    """A format or API by its name."""

    name: str
    title: str


class Names(Struct):
    """All that can be chosen on the page."""

    apis: list[Named]
    formats: list[Named]
    models: list[Named]
    views: tuple[str, ...]
    sides: tuple[str, ...]
    tokenizers: list[str]
    examples: list[Example]


def names() -> Names:
    """Return what there is to choose."""
    own = [Named(name, one.title) for name, one in templates().items()]
    return replace(_known(), formats=[*own, *_known().formats]) if own else _known()


@cache
def _known() -> Names:
    return Names(
        [Named(name, get_api(name).title) for name in apis()],
        _named(formats()),
        _named(model_formats()),
        VIEWS,
        SIDES,
        tokenizers(),
        examples(),
    )


def _named(known: list[str]) -> list[Named]:
    return [Named(name, title_of(name)) for name in known]


def application() -> Asgi:
    """The playground as an ASGI application."""
    pages = [Route(path, _page(*page)) for path, page in _PAGE.items()]
    asked = [
        Route("/api/convert", _answer(Conversion, converted), methods=["POST"]),
        Route("/api/prompt", _answer(Ask, prompted), methods=["POST"]),
        Route("/api/play", _answer(Play, played), methods=["POST"]),
    ]
    app = Starlette(
        routes=[*pages, Route("/api/names", _names), *asked],
        exception_handlers={TurnscriptError: _refuse, Exception: _bug},
    )
    return _guarded(app)


def _guarded(app: Asgi) -> Asgi:
    """Every answer has the headers that keep a page harmless; strangers get none else."""

    async def guarded(scope: Any, receive: Any, send: Any) -> None:
        async def told(message: Any) -> None:
            if message["type"] == "http.response.start":
                headers = [(name.encode(), value.encode()) for name, value in _HEADERS.items()]
                message = {**message, "headers": [*message["headers"], *headers]}
            await send(message)

        if scope["type"] == "http":
            request = Request(scope, receive)
            try:
                _check(request)
            except Forbidden as error:
                await (await _refuse(request, error))(scope, receive, told)
                return
        await app(scope, receive, told)

    return guarded


def _check(request: Request) -> None:
    host, origin = request.headers.get("host", ""), request.headers.get("origin")
    if not _is_here(f"//{host}"):
        raise Forbidden(f"{host!r} is asked, and only names of this machine answer")
    if origin is not None and not _is_here(origin):
        raise Forbidden(f"a page of {origin!r} asks, and only pages of this machine may")


def _is_here(url: str) -> bool:
    try:
        return is_loopback(urlsplit(url).hostname or "")
    except ValueError:
        return False


def _page(name: str, kind: str) -> Callable[[Request], Awaitable[Response]]:
    async def page(_: Request) -> Response:
        return Response((files(__package__) / "page" / name).read_bytes(), media_type=kind)

    return page


async def _names(_: Request) -> Response:
    return Response(encoded(names()), media_type=_JSON)


def _answer(kind: type[AskedT], work: Callable[[AskedT], Struct]) -> Callable[[Request], Awaitable[Response]]:
    async def answer(request: Request) -> Response:
        asked = _read(await _body(request), kind)
        result = await run_in_threadpool(lambda: encoded(work(asked)))
        return Response(result, media_type=_JSON)

    return answer


async def _body(request: Request) -> bytes:
    if request.headers.get("content-type", "").partition(";")[0].strip() != _JSON:
        raise Unsupported("this content type", "the playground", f"send what is asked as {_JSON}")
    body = bytearray()
    async for piece in request.stream():
        body += piece
        if len(body) > LIMIT:
            raise TooLarge(LIMIT, what="the text")
    return bytes(body)


def _read(body: bytes, kind: type[AskedT]) -> AskedT:
    try:
        return msgspec.json.decode(body, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InvalidInput(f"this is not what the page asks: {error}") from None


async def _refuse(_: Request, error: Exception) -> Response:
    assert isinstance(error, TurnscriptError)
    return Response(msgspec.json.encode({"fault": fault_of(error)}), error.status, media_type=_JSON)


async def _bug(_: Request, __: Exception) -> Response:
    """What nobody expected. uvicorn tells whoever runs the playground."""
    failed = TurnscriptError("the playground has failed; the terminal that it runs in says why")
    return Response(msgspec.json.encode({"fault": fault_of(failed)}), 500, media_type=_JSON)
