"""Owns the small answers: models, health, metrics, reports, and a word for whoever opens the address in a browser.

Tokens of a request that is not sent are counted: its prompt is made, and counted as an answer would count.
"""

from __future__ import annotations

import asyncio
import logging
import re
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, ClassVar

import msgspec
from starlette.requests import Request as HttpRequest
from starlette.responses import Response as HttpResponse

from turnscript.apis.api import Api
from turnscript.core.errors import NotFound, TurnscriptError
from turnscript.gateway.headers import COUNTED, NONE_LOST, by_name, new_request_id
from turnscript.gateway.logs import say
from turnscript.gateway.metrics import CONTENT_TYPE
from turnscript.gateway.service import CLIENT_GONE, Service
from turnscript.gateway.visit import ClientGone, Visit


class Count:
    """Counts for one API."""

    def __init__(self, service: Service, api: Api) -> None:
        self._service = service
        self._api = api

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        visit = Visit(self._api, scope, receive, send)
        service, count = self._service, self._api.serving.count
        assert count is not None
        try:
            caller = service.admit(visit.headers, counted=False)
            share = service.room.share(caller.tally)
            body = await visit.body(service.config.server, share)
            prepared = await service.prepare(visit, caller, body, fits=False)
            tokens, exact = await service.tokens(prepared)
            visit.told = prepared.told
            service.note_count(visit, prepared, tokens)
            visit.more_headers = [(COUNTED.encode(), b"exact" if exact else b"estimated")]
            await visit.answer(count(max(1, tokens)))
        except TurnscriptError as error:
            visit.error = error
            visit.settle()
            await visit.refuse(error)
        except ClientGone:
            visit.status = CLIENT_GONE
        except asyncio.CancelledError:
            if not visit.ended_by:
                raise
            visit.take_back()
            visit.status = CLIENT_GONE
            await visit.gone()
        finally:
            visit.settle()
            visit.release()
            visit.forget()
            say(logging.INFO, "counted", request=visit.request_id, path=visit.path, status=visit.status)


ApiOf = Callable[[dict[str, str]], Api]

_PLAIN = re.compile(r"[A-Za-z0-9._/-]{1,80}")
"""A path that a program was told to use, and no text of anybody."""
_WELCOME = "turnscript is running. /v1/models lists the models, /health says how their servers are.\n"


class Endpoint(ABC):
    """An ASGI callable for requests without a body worth reading; errors are told in the client's own API.

    `lossless`: nothing of such a request can be lost, and its answer says so, whoever asks. The others say themselves.
    """

    lossless: ClassVar[bool] = True

    def __init__(self, service: Service, api_of: ApiOf | None = None) -> None:
        self.service = service
        self._api_of = api_of

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        http = HttpRequest(scope, receive)
        headers = by_name(scope["headers"])
        api = self._api_of(headers) if self._api_of is not None else None
        try:
            response = await self.respond(http, headers, api)
        except TurnscriptError as error:
            if api is None:
                response = HttpResponse(f"{error}\n", error.status, NONE_LOST, "text/plain")
            else:
                response = refusal(api, error)
        else:
            if api is not None:
                response.headers[api.request_id] = request_id = new_request_id()
                _note(http, request_id, response.status_code)
            if self.lossless:
                response.headers.update(NONE_LOST)
        await response(scope, receive, send)

    @abstractmethod
    async def respond(self, http: HttpRequest, headers: dict[str, str], api: Api | None) -> HttpResponse:
        """The answer."""


def _note(http: HttpRequest, request_id: str, status: int) -> None:
    """Log what was told. Most of it is asked again and again; what changes something is worth a line. The path of the
    others may hold what a client wrote."""
    changes = http.method not in ("GET", "HEAD")
    path = http.scope["path"] if changes else None
    say(
        logging.INFO if changes else logging.DEBUG,
        "told",
        request=request_id,
        method=http.method,
        path=path,
        status=status,
    )


class MethodNotAllowed(TurnscriptError):
    """A path is there, and takes other methods."""

    status = 405
    code = "method_not_allowed"

    def __init__(self, place: str, method: str, known: tuple[str, ...]) -> None:
        super().__init__(place, method, known)
        self.place = place
        self.method = method
        self.known = ", ".join(sorted(known))

    def __str__(self) -> str:
        return f"{self.place} takes {self.known}, not {self.method}"


class NoSuchPath(NotFound):
    """Nothing is at a path. `meant`: a path that it ends in, as where a base URL says more than it should."""

    def __init__(self, place: str, meant: str = "") -> None:
        super().__init__("path", place)
        self.args = (place, meant)
        self.meant = meant

    def __str__(self) -> str:
        if not self.meant:
            return super().__str__()
        where = f"nothing is at {self.name!r}, but at {self.meant!r}"
        return f"{where}: the base URL of a client is the address of this server alone, or with /v1 behind it"


def refusal(api: Api, error: TurnscriptError, path: str = "") -> HttpResponse:
    """An error as an answer. `path`: where nothing is, or nothing of that method: it goes to the log if it is plain."""
    request_id = new_request_id()
    status, body = api.render_error(error, request_id=request_id)
    asked = {"path": path} if _PLAIN.fullmatch(path) else {}
    say(logging.INFO, "refused", request=request_id, **asked, status=status, error=error.code)
    headers = {**NONE_LOST, **api.headers(error, request_id=request_id)}
    if isinstance(error, MethodNotAllowed):
        headers["allow"] = error.known
    return HttpResponse(body, status, headers, "application/json")


def as_json(body: bytes, status: int = 200) -> HttpResponse:
    """A JSON body as an answer."""
    return HttpResponse(body, status, media_type="application/json")


class ListModels(Endpoint):
    """The models, and the names that are no patterns under which they can be asked for."""

    async def respond(self, http: HttpRequest, headers: dict[str, str], api: Api | None) -> HttpResponse:
        assert api is not None
        self.service.admit(headers, counted=False)
        return as_json(api.serving.models(self.service.cards()))


class ShowModel(ListModels):
    """One model, under whatever name it would be served. Behind a slash at the end there is no name: all of them."""

    async def respond(self, http: HttpRequest, headers: dict[str, str], api: Api | None) -> HttpResponse:
        name = http.path_params["name"]
        if not name:
            return await super().respond(http, headers, api)
        assert api is not None
        self.service.admit(headers, counted=False)
        return as_json(api.serving.model(self.service.served_for(name).card(name)))


class Health(Endpoint):
    """Whether the gateway runs, and which of its models have a server that answers. 503 while it shuts down.

    It is `degraded` while something cannot be kept as it is to be: `storage` says what, and why.
    """

    async def respond(self, http: HttpRequest, headers: dict[str, str], api: Api | None) -> HttpResponse:
        service = self.service
        storage = service.storage
        status = "draining" if service.draining else "degraded" if storage else "ok"
        said = {"status": status, "models": service.health()} | ({"storage": storage} if storage else {})
        return as_json(msgspec.json.encode(said), 503 if service.draining else 200)


class MetricsPage(Endpoint):
    """The metrics."""

    async def respond(self, http: HttpRequest, headers: dict[str, str], api: Api | None) -> HttpResponse:
        if not self.service.config.metrics.enabled:
            raise NotFound("path", "/metrics")
        if not self.service.config.metrics.public:
            self.service.admit(headers, counted=False)
        return HttpResponse(self.service.metrics_text(), media_type=CONTENT_TYPE)


class Report(Endpoint):
    """All that is to be said about one answer: what was lost, which calls were odd, what the model wrote badly."""

    async def respond(self, http: HttpRequest, headers: dict[str, str], api: Api | None) -> HttpResponse:
        caller = self.service.admit(headers, counted=False)
        return as_json(self.service.report(caller, http.path_params["id"]))


class PrefixPage(Endpoint):
    """How the prompt of one request goes on from what its session has said before. It shows no text of a conversation
    where the log shows none, unless `?excerpts=true` asks for it: in vain where all are strangers to each other."""

    async def respond(self, http: HttpRequest, headers: dict[str, str], api: Api | None) -> HttpResponse:
        service, caller = self.service, self.service.admit(headers, counted=False)
        server = service.config.server
        asked = http.query_params.get("excerpts") == "true" and not (server.public and server.keys is None)
        shown = asked or not service.config.logs.redact
        name = http.path_params["name"]
        return as_json(service.diagnosis.page(service.reports, service.sessions, caller.name, name, shown=shown))


class Welcome(Endpoint):
    """A word."""

    async def respond(self, http: HttpRequest, headers: dict[str, str], api: Api | None) -> HttpResponse:
        return HttpResponse(_WELCOME, media_type="text/plain")
