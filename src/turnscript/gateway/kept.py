"""Owns the requests about answers that are kept: fetching, deleting, cancelling one, listing what it was asked with."""

from __future__ import annotations

import asyncio
from abc import abstractmethod
from collections.abc import AsyncIterator
from functools import partial
from typing import Any, Literal

import msgspec
from starlette.requests import ClientDisconnect
from starlette.requests import Request as HttpRequest
from starlette.responses import Response as HttpResponse
from starlette.responses import StreamingResponse

from turnscript.apis.api import Api
from turnscript.apis.serving import Stored
from turnscript.core.errors import Conflict, InvalidRequest, NotFound, TurnscriptError
from turnscript.core.sse import comment
from turnscript.gateway.headers import LOSSES, cut_of
from turnscript.gateway.limits import Caller, Share
from turnscript.gateway.listing import Endpoint, MethodNotAllowed, as_json
from turnscript.gateway.outlet import Send
from turnscript.gateway.service import Service
from turnscript.gateway.visit import SlowBody

_PIECE = 64 * 1024
_SAYING = 1024
"""The longest body of a GET that is looked at: it says no more than `{"stream":true}`."""
_ORDERS: dict[str, Literal["asc", "desc"]] = {"asc": "asc", "desc": "desc"}
_UPGRADE = b'{"error":{"message":"this is no handshake of a WebSocket; use HTTP","type":"invalid_request_error"}}'


class OfOne(Endpoint):
    """A request about answers of one API."""

    def __init__(self, service: Service, api: Api) -> None:
        super().__init__(service, lambda headers: api)
        assert api.serving.stored is not None
        self.api = api
        self.stored: Stored = api.serving.stored

    def share(self, caller: Caller, size: int) -> Share:
        """So much of the room, for what is kept. Raises Overloaded where there is none now."""
        share = self.service.room.share(caller.tally)
        share.take(size)
        return share

    def told(self, body: bytes, caller: Caller) -> HttpResponse:
        """What is kept as an answer. Raises Overloaded where there is no room for it now."""
        return Kept(body, self.share(caller, len(body)), self.service.heart.stall)


class OfAnswer(OfOne):
    """One whose answer is the kept one, which says how much was lost in it."""

    lossless = False

    async def respond(self, http: HttpRequest, headers: dict[str, str], api: Api | None) -> HttpResponse:
        caller, id_ = self.service.admit(headers, counted=False), http.path_params["id"]
        response = await self.kept(http, caller, id_)
        losses = self.service.apart.losses_of(caller.name, id_)
        if losses is None:
            losses = await self.service.keeping.store.losses_of(caller.name, id_)
        if losses is not None:
            response.headers[LOSSES] = str(losses)
        return response

    @abstractmethod
    async def kept(self, http: HttpRequest, caller: Caller, id_: str) -> HttpResponse:
        """The kept answer."""


class Fetch(OfAnswer):
    """An answer, or, with `?stream=true`, the events of its stream from a place on.

    The official SDK for Go says `{"stream":true}` in a body instead, and takes an answer that is whole for no events.
    """

    async def kept(self, http: HttpRequest, caller: Caller, id_: str) -> HttpResponse:
        owner = caller.name
        if http.query_params.get("stream") == "true" or await self._said_in_body(http):
            after = _number(http, "starting_after", -1)
            events = await self.service.keeping.follow(self.stored, owner, id_, after)
            if events is None:
                raise NotFound("stream of the response", id_)
            heart = self.service.heart
            # What the server would leave out of the answer to a HEAD is not waited for.
            told = _alive(events, heart.interval) if http.method != "HEAD" else _nothing()
            return Followed(told, heart.stall)
        # Who makes it knows best: another gateway that starts with this file takes it for one that nobody makes.
        begun = self.service.apart.begun(owner, id_)
        if begun is not None:
            return self.told(self.stored.with_status(begun, "in_progress"), caller)
        kept = await self.service.keeping.fetch(owner, id_)
        if kept.finished:
            return self.told(kept.body, caller)
        lost = TurnscriptError("this answer could not be kept")
        return self.told(self.stored.failed(kept.body, lost), caller)

    async def _said_in_body(self, http: HttpRequest) -> bool:
        length, timeout = http.headers.get("content-length", ""), self.service.config.server.body_timeout / 10
        if not length.isdecimal() or len(length) > len(str(_SAYING)) or not 0 < int(length) <= _SAYING:
            return False
        try:
            async with asyncio.timeout(timeout):
                return msgspec.json.decode(await http.body(), type=_Wish).stream
        except TimeoutError:
            raise SlowBody(f"the request's body did not arrive within {timeout:g} s") from None
        except (msgspec.DecodeError, RecursionError, ClientDisconnect):
            return False


class _Wish(msgspec.Struct):
    """What a body says that comes with a GET."""

    stream: bool = False


class Delete(OfOne):
    """Forget an answer."""

    async def respond(self, http: HttpRequest, headers: dict[str, str], api: Api | None) -> HttpResponse:
        owner, id_ = self.service.admit(headers, counted=False).name, http.path_params["id"]
        await self.service.apart.cancel(owner, id_)  # what it keeps in the end must not come behind the deletion
        if not await self.service.keeping.store.delete(owner, id_):
            raise NotFound("response", id_)
        return as_json(self.stored.deleted(id_))


class Cancel(OfAnswer):
    """Stop working on an answer that nobody waits for."""

    async def kept(self, http: HttpRequest, caller: Caller, id_: str) -> HttpResponse:
        service, owner = self.service, caller.name
        kept = await service.keeping.fetch(owner, id_)
        parse = partial(self.api.parse_request, kept.request)
        if not self.stored.detached(await service.aside.run(len(kept.request))(parse)):
            raise Conflict(f"the response {id_!r} was not made in the background, so it cannot be cancelled")
        await service.apart.cancel(owner, id_)
        return self.told((await service.keeping.fetch(owner, id_)).body, caller)


class InputItems(OfOne):
    """What an answer was asked with, a page at a time."""

    async def respond(self, http: HttpRequest, headers: dict[str, str], api: Api | None) -> HttpResponse:
        caller, id_ = self.service.admit(headers, counted=False), http.path_params["id"]
        limit = _number(http, "limit", 20)
        order = http.query_params.get("order", "desc")
        if not 1 <= limit <= 100:
            message = f"a page has 1 to 100 items, found {limit}"
            raise InvalidRequest(message, path="limit", expected="1 to 100", got=str(limit))
        if order not in _ORDERS:
            message = f"items come in the order asc or desc, found {order[:50]!r}"
            raise InvalidRequest(message, path="order", expected="asc or desc", got=order[:50])
        after = http.query_params.get("after")
        store = self.service.keeping.store
        page = await store.input_items(caller.name, id_, after=after, limit=limit, order=_ORDERS[order])
        if page is None:
            raise NotFound("response", id_)
        bodies = [item.body for item in page.items]
        share = self.share(caller, sum(map(len, bodies)))  # before they are put together
        return Kept(self.stored.page(bodies, page.more), share, self.service.heart.stall)


class Upgrade(OfOne):
    """A client whose handshake is none, or whose server has no WebSockets, is told at once to use HTTP.

    Whatever else it is told, it tries again.
    """

    async def respond(self, http: HttpRequest, headers: dict[str, str], api: Api | None) -> HttpResponse:
        if headers.get("upgrade", "").lower() == "websocket":
            return HttpResponse(_UPGRADE, 426, {"upgrade": "HTTP/1.1", "connection": "close"}, "application/json")
        raise MethodNotAllowed(http.url.path, http.method, ("POST",))


class Kept(HttpResponse):
    """What is kept, for a client that takes it at its own speed. It has a share of the room until it is taken, and no
    more of it is with the connection than that takes: to ask for it costs a client nothing, and it may be long."""

    media_type = "application/json"

    def __init__(self, body: bytes, share: Share, stall: float) -> None:
        super().__init__(body)
        self._share = share
        self._stall = stall

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        told, body = _cutting(scope, send, self._stall), bytes(self.body)
        try:
            await told({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
            for end in range(_PIECE, len(body) + _PIECE, _PIECE):
                piece, more = body[end - _PIECE : end], end < len(body)
                await told({"type": "http.response.body", "body": piece, "more_body": more})
        finally:
            self._share.leave()


class Followed(StreamingResponse):
    """Events for a client that takes them at its own speed, with nothing kept for it meanwhile. One that takes nothing
    for `stall` seconds is cut off: it would hold its connection, and what is left of the stream, for ever."""

    media_type = "text/event-stream"

    def __init__(self, events: AsyncIterator[bytes], stall: float) -> None:
        super().__init__(events)
        self._stall = stall

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        await super().__call__(scope, receive, _cutting(scope, send, self._stall))


def _cutting(scope: Any, send: Send, stall: float) -> Send:
    """The same way to the client, cut where it takes nothing for so many seconds."""
    loop, cut = asyncio.get_running_loop(), cut_of(scope)

    async def taken(message: Any) -> None:
        timer = loop.call_later(stall, cut)
        try:
            await send(message)
        finally:
            timer.cancel()

    return taken


async def _nothing() -> AsyncIterator[bytes]:
    for event in list[bytes]():
        yield event


async def _alive(events: AsyncIterator[bytes], interval: float) -> AsyncIterator[bytes]:
    """The events, and a sign of life whenever none has come for a while."""
    coming: asyncio.Future[bytes] | None = None
    try:
        while True:
            coming = coming or asyncio.ensure_future(_next(events))
            if not (await asyncio.wait((coming,), timeout=interval))[0]:
                yield comment("keepalive")
                continue
            event, coming = coming.result(), None
            if not event:
                return
            yield event
    finally:
        if coming is not None:
            coming.cancel()


async def _next(events: AsyncIterator[bytes]) -> bytes:
    return await anext(events, b"")


def _number(http: HttpRequest, name: str, default: int) -> int:
    said = http.query_params.get(name)
    if said is None:
        return default
    try:
        return int(said)
    except ValueError:
        message = f"expected a whole number, found {said[:50]!r}"
        raise InvalidRequest(message, path=name, expected="a whole number", got=said[:50]) from None
