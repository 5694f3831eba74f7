"""Owns the application: which path is answered by what. It knows no API by name; each brings its own paths.

Starlette routes; what answers are plain ASGI callables, and what nobody expected is turned into an answer, too. Any
server of ASGI runs it, and any application of Starlette may mount it.
"""

from __future__ import annotations

import re
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

import msgspec
from starlette.responses import Response as HttpResponse
from starlette.routing import BaseRoute, Route, Router

from turnscript.apis.api import Api
from turnscript.apis.serving import PathForm, Serving
from turnscript.convert.registry import apis, get_api
from turnscript.core.errors import TurnscriptError
from turnscript.gateway import shipped
from turnscript.gateway.answers import AnswerRequests, CompactRequests
from turnscript.gateway.configfile import load
from turnscript.gateway.headers import by_name
from turnscript.gateway.kept import Cancel, Delete, Fetch, InputItems, Upgrade
from turnscript.gateway.listing import (
    Count,
    Health,
    ListModels,
    MethodNotAllowed,
    MetricsPage,
    NoSuchPath,
    PrefixPage,
    Report,
    ShowModel,
    Welcome,
    refusal,
)
from turnscript.gateway.reach import Pages, pages_told
from turnscript.gateway.service import Service
from turnscript.gateway.sockets import Sockets
from turnscript.gateway.visit import MEMBERS

Asgi = Callable[[Any, Any, Any], Awaitable[None]]

_BASES = ("/", "/v1")
_SLASHES = re.compile("/{2,}")
_AGAIN = re.compile("^(/v1)+(?=/|$)")


def application(path: str | Path | None = None, settings: Mapping[str, Any] | None = None) -> Application:
    """Return the gateway of a configuration file, with `TURNSCRIPT_*` of the environment over it, as `serve` has it.

    `settings` go over both, by dotted key (`models.default.backend`). Where nothing says which model, it is the tiny
    one of the package. Raises InvalidConfig.
    """
    config = load(path, None, settings)
    return Application(Service(config if config.models else load(path, None, settings, shipped.settings())))


class Application:
    """The gateway as an ASGI application.

    A server that knows `lifespan` starts and stops it; a program that mounts it has `running` for that.
    """

    def __init__(self, service: Service) -> None:
        self._service = service
        self._apis = [get_api(name) for name in apis()]
        self.routes = list(self._routes())
        self._plain = {
            route.path: route.app for route in self.routes if isinstance(route, Route) and "{" not in route.path
        }
        self._router = Router(self.routes, redirect_slashes=False, default=self._nothing_here)
        self._app = Pages(self._guarded, lambda: pages_told(service.config.server))
        self.sockets: dict[str, Asgi] = {
            path: Sockets(service, api, self._app)
            for api in self._apis
            if api.serving.stored is not None
            for path in (api.endpoint, api.endpoint.removeprefix("/v1"))
        }
        """Maps each path that has a WebSocket to what answers there."""

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "lifespan":
            await self._live(receive, send)
            return
        root = scope.get("root_path", "")
        if root and scope["path"].startswith(root):  # of what it is mounted in
            scope = {**scope, "path": scope["path"].removeprefix(root) or "/", "root_path": ""}
        answer = self._app if scope["type"] == "http" else self.sockets.get(scope["path"], _refuse_socket)
        await answer(scope, receive, send)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Have what is kept open and the models asked; at the end, what still goes on is ended as its API does it.

        Raises InvalidInput or Unsupported for a model that cannot be run here at all.
        """
        try:
            await self._service.start()
            yield
        finally:
            self._service.drain()
            self._service.end_answers()
            await self._service.stop()

    async def _live(self, receive: Any, send: Any) -> None:
        await receive()
        try:
            async with self.running():
                await send({"type": "lifespan.startup.complete"})
                await receive()
        except TurnscriptError as error:
            await send({"type": "lifespan.startup.failed", "message": str(error)})
            return
        await send({"type": "lifespan.shutdown.complete"})

    async def _guarded(self, scope: Any, receive: Any, send: Any) -> None:
        """Have it answered whatever happens. Whoever serves this logs what nobody expected."""
        begun = False

        async def sent(message: Any) -> None:
            nonlocal begun
            if not begun and any(b"\n" in value or b"\r" in value for _, value in message["headers"]):
                raise RuntimeError("a header of several lines cannot be sent")  # the second might be anybody's
            await send(message)
            begun = True

        try:
            await self._route(scope, receive, sent)
        finally:
            if isinstance(sys.exception(), Exception) and not begun:
                await self._bug(scope)(scope, receive, send)

    def _route(self, scope: Any, receive: Any, send: Any) -> Awaitable[None]:
        """A path without a name in it is found at once; the patterns are for the others. No coroutine of its own: each
        of them is passed through whenever an answer goes on."""
        return self._plain.get(scope["path"], self._router)(scope, receive, send)

    def _routes(self) -> Iterator[BaseRoute]:
        service, default = self._service, self.api_of
        for api in self._apis:
            yield from self._routes_of(api)
        for prefix in ("/v1", ""):
            yield self._at(f"{prefix}/models", GET=ListModels(service, default))
            yield self._at(f"{prefix}/models/{{name:path}}", GET=ShowModel(service, default))
        yield self._at("/health", GET=Health(service))
        yield self._at("/metrics", GET=MetricsPage(service))
        yield self._at("/turnscript/reports/{id}", GET=Report(service, default))
        yield self._at("/turnscript/prefixes/{name:path}", GET=PrefixPage(service, default))
        for base in _BASES:
            yield self._at(base, GET=Welcome(service))
        # Clients that report their own use: taken and forgotten, so that they do not try again.
        yield self._at("/api/event_logging/batch", POST=Welcome(service))

    def _at(self, path: str, **answers: Asgi) -> Route:
        """A path, and what answers each method there."""
        return Route(path, _ByMethod(answers, self._refusal))

    def api_of(self, headers: dict[str, str], path: str = "") -> Api:
        """The API that a client speaks: the one with the longest path that this one begins with, or a header of its
        own, else the first that has neither."""
        stems = {api.name: api.endpoint.partition("{")[0] for api in self._apis}
        below = [api for api in self._apis if path.startswith((stems[api.name], stems[api.name].removeprefix("/v1")))]
        if below:
            return max(below, key=lambda api: len(api.endpoint))
        return next(
            (api for api in self._apis if api.serving.header and api.serving.header in headers),
            next(api for api in self._apis if not api.serving.header),
        )

    async def _nothing_here(self, scope: Any, receive: Any, send: Any) -> None:
        meant = _meant(scope["path"])
        if meant != scope["path"]:
            await self._route({**scope, "path": meant}, receive, send)
            return
        error = NoSuchPath(scope["path"], self._ends_in(scope["path"].lower()))
        await self._refusal(scope, error)(scope, receive, send)

    def _ends_in(self, path: str) -> str:
        """The longest path behind which there is something and that this one ends in, with its version; "" if none."""
        ends = [known for known in self._plain if known not in _BASES and path.endswith(known)]
        found = max(ends, key=len, default="")
        return f"/v1{found}" if found and f"/v1{found}" in self._plain else found

    def _bug(self, scope: Any) -> HttpResponse:
        """What nobody expected is told in the API's own words; the server logs the traceback."""
        response = self._refusal(scope, TurnscriptError("the gateway has failed; its log says why"))
        response.headers["connection"] = "close"  # uvicorn will close it
        return response

    def _refusal(self, scope: Any, error: TurnscriptError) -> HttpResponse:
        return refusal(self.api_of(by_name(scope["headers"]), scope["path"]), error, scope["path"])

    def _routes_of(self, api: Api) -> Iterator[BaseRoute]:
        """The paths of one API: its own, and the same without the version for clients whose base URL has none."""
        service, serving = self._service, api.serving
        for form in serving.paths:
            asked: Asgi = Count(service, api) if form.counts else AnswerRequests(service, api)
            yield self._at(form.path.replace("{model}", "{name:path}"), POST=Spoken(asked, serving, form))
        for path in serving.lists:
            yield self._at(path, GET=Spoken(ListModels(service, lambda headers: api), serving))
            yield self._at(f"{path}/{{name:path}}", GET=Spoken(ShowModel(service, lambda headers: api), serving))
        for strip in ("", "/v1") if not serving.paths else ():
            path = api.endpoint.removeprefix(strip)
            upgrade = {"GET": Upgrade(service, api)} if serving.stored is not None else {}
            yield self._at(path, POST=AnswerRequests(service, api), **upgrade)
            if serving.compacting is not None:
                yield self._at(serving.compacting.path.removeprefix(strip), POST=CompactRequests(service, api))
            if serving.count_path:
                yield self._at(serving.count_path.removeprefix(strip), POST=Count(service, api))
            if serving.stored is not None:
                yield self._at(f"{path}/{{id}}/cancel", POST=Cancel(service, api))
                yield self._at(f"{path}/{{id}}/input_items", GET=InputItems(service, api))
                yield self._at(f"{path}/{{id}}", GET=Fetch(service, api), DELETE=Delete(service, api))


class Spoken:
    """Answers requests that say part of themselves in their path, their query or a header of their API's own.

    The key goes where all keys are; the model and whether to stream go before the members of the body, so that what the
    body says of them itself counts.
    """

    def __init__(self, answer: Asgi, serving: Serving, form: PathForm | None = None) -> None:
        self._answer, self._serving, self._form = answer, serving, form

    def __call__(self, scope: Any, receive: Any, send: Any) -> Awaitable[None]:
        query = parse_qs(scope["query_string"].decode("latin-1"))
        headers = by_name(scope["headers"])
        key = headers.get(self._serving.header) or query.get(self._serving.key_parameter, [""])[-1]
        if key and "x-api-key" not in headers:
            named = [*scope["headers"], (b"x-api-key", key.encode("latin-1", "replace"))]
            scope = {**scope, "headers": named}
        if self._form is None:
            return self._answer(scope, receive, send)
        said = {f"{name}={value[-1]}" for name, value in query.items()}
        stream = next((one for wish, one in self._form.by_query.items() if wish in said), self._form.stream)
        members = b'"model":%b,"stream":%b' % (msgspec.json.encode(scope["path_params"]["name"]), stream)
        return self._answer({**scope, MEMBERS: members}, receive, send)


async def _refuse_socket(scope: Any, receive: Any, send: Any) -> None:
    await receive()
    await send({"type": "websocket.close"})


def _meant(path: str) -> str:
    """The path that a client means whose base URL ends in a slash, or in the version that it puts there itself."""
    return _AGAIN.sub("/v1", _SLASHES.sub("/", path)).rstrip("/") or "/"


class _ByMethod:
    """Passes a request on by its method; a HEAD is a GET whose body the server leaves out."""

    def __init__(self, answers: Mapping[str, Asgi], refusal: Callable[[Any, TurnscriptError], Asgi]) -> None:
        self.methods = tuple(answers)
        self._answers = answers
        self._refusal = refusal

    def __call__(self, scope: Any, receive: Any, send: Any) -> Awaitable[None]:
        method = "GET" if scope["method"] == "HEAD" else scope["method"]
        answer = self._answers.get(method)
        if answer is None:
            answer = self._refusal(scope, MethodNotAllowed(scope["path"], scope["method"], self.methods))
        return answer(scope, receive, send)
