"""Owns requests that come over a WebSocket: each is answered as if it had been posted, event by event.

A client sends `response.create` with the members of a body, and is sent what else were the data of server-sent events,
one answer after the other (Open Responses, "WebSocket Transport"). From an answer that the store does not have
(`store: false`) the same connection goes on, as long as it is the last one and nothing has failed since.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from time import monotonic, time
from typing import Any

import msgspec
from msgspec import Struct

from turnscript.apis.api import Api, Reply
from turnscript.core.errors import InvalidRequest, Overloaded, TurnscriptError
from turnscript.core.events import MessageEnd
from turnscript.core.json_text import Json, plain, read_list, read_object
from turnscript.core.sse import SseReader
from turnscript.gateway.headers import CUT, NONE_LOST, by_name, random_hex
from turnscript.gateway.limits import Room, Share
from turnscript.gateway.outlet import Message, Receive, Send
from turnscript.gateway.service import Service

Scope = Mapping[str, Any]
Ask = Callable[[dict[str, Any], Receive, Send], Awaitable[None]]
"""An ASGI application: the one that answers what is posted."""

LIFE = 3600.0
"""Seconds after which a connection takes no more requests (Open Responses, "WebSocket Reconnects")."""
MOST = 256
"""How many connections there may be at once."""

_CREATE = "response.create"
_OF_HTTP = ("type", "stream", "stream_options", "background")
"""Members that say nothing here: an answer is always told as it comes."""
_OF_HANDSHAKE = {
    *(b"connection", b"upgrade", b"content-length", b"content-type", b"transfer-encoding"),
    *(b"sec-websocket-key", b"sec-websocket-version", b"sec-websocket-extensions", b"sec-websocket-protocol"),
}
_STARTS = {"response.created", "response.in_progress", "response.queued"}
_ENDS = {"response.completed", "response.incomplete", "response.failed"}
_TRUE, _FALSE, _NULL = Json(b"true"), Json(b"false"), Json(b"null")
_BAD, _FAULT = 400, 500
_LARGEST = 1 << 30
"""Bytes of an event: those that the gateway writes itself need no limit."""


class _Event(Struct):
    type: str


_TYPE = msgspec.json.Decoder(_Event)


class Sockets:
    """The WebSockets of one API."""

    def __init__(self, service: Service, api: Api, ask: Ask) -> None:
        self._service, self._api, self._ask = service, api, ask
        self._open = 0
        # Its own: who is idle keeps no request out. Without room for it, a client sends all again.
        self._room = Room(service.config.server, lambda: None)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await receive()
        try:
            self._service.admit(by_name(scope["headers"]), counted=False)
            if self._open >= MOST:
                raise Overloaded("too many WebSockets are open; use HTTP", retry_after=10.0)
        except TurnscriptError as error:
            await self._refuse(error, scope, send)
            return
        self._open += 1
        chain = Chain(self._room.share(None))
        try:
            await send({"type": "websocket.accept"})
            await Connection(self._api, self._ask, chain, scope, receive, send).run()
        finally:
            self._open -= 1
            chain.forget()

    async def _refuse(self, error: TurnscriptError, scope: Scope, send: Send) -> None:
        """Refuse a handshake: with a status and a body where the server can, else it says 403."""
        if "websocket.http.response" not in scope.get("extensions", {}):
            await send({"type": "websocket.close"})
            return
        status, body = self._api.render_error(error)
        named = {"content-type": "application/json", "content-length": str(len(body)), **NONE_LOST}
        headers = [(name.encode(), value.encode()) for name, value in named.items()]
        await send({"type": "websocket.http.response.start", "status": status, "headers": headers})
        await send({"type": "websocket.http.response.body", "body": body})


class Chain:
    """The last answer of a connection that nobody else keeps: its id, and all items up to it."""

    def __init__(self, share: Share) -> None:
        self._share = share
        self.id = ""
        self.items: list[Json] = []

    def forget(self) -> None:
        """Keep nothing any more."""
        self.id, self.items = "", []
        self._share.leave()

    def keep(self, id_: str, items: list[Json]) -> None:
        """Keep this in place of what is kept, or nothing where there is no room for it now."""
        self.forget()
        with suppress(Overloaded):
            self._share.take(sum(map(len, map(bytes, items))))
            self.id, self.items = id_, items

    def go_on(self, items: list[Json]) -> list[Json]:
        """Return all items of a request that goes on from here. Raises InvalidRequest for a result without its call."""
        calls = [_call_of(item) for item in (*self.items, *items)]
        known = {id_ for is_result, id_ in calls if not is_result}
        missing = next((id_ for is_result, id_ in calls if is_result and id_ not in known), None)
        if missing is not None:
            message = f"no tool call found for function call output with call_id {missing}"
            raise InvalidRequest(message, path="$.input", expected="the result of a call", got=missing)
        return [*self.items, *items]


class Connection:
    """One WebSocket: its requests, one after the other."""

    def __init__(self, api: Api, ask: Ask, chain: Chain, scope: Scope, receive: Receive, send: Send) -> None:
        self._api, self._ask, self._chain = api, ask, chain
        self._scope, self._receive, self._send = scope, receive, send
        self._came: asyncio.Queue[Message] = asyncio.Queue(1)  # what comes during an answer waits with the server
        self._gone = asyncio.Event()

    async def run(self) -> None:
        """Answer until the client leaves, or the connection is too old."""
        end = monotonic() + LIFE
        reading = asyncio.create_task(self._read())
        try:
            while (message := await self._next(end - monotonic())) is not None:
                if message["type"] != "websocket.receive":
                    return
                await self._answer(message.get("text") or message.get("bytes") or b"")
            error = {
                "code": "websocket_connection_limit_reached",
                "message": "open another connection: this one is old",
            }
            await self._fail(400, error)
            await self._send({"type": "websocket.close", "code": 1000})
        finally:
            reading.cancel()

    async def _next(self, seconds: float) -> Message | None:
        """Return what comes next; None where so much time is over."""
        with suppress(TimeoutError):
            return await asyncio.wait_for(self._came.get(), max(0.0, seconds))
        return None

    async def _read(self) -> None:
        """Take what comes. That the client has left is learned of during an answer, unless another request waits."""
        while not self._gone.is_set():
            message = await self._receive()
            if message["type"] != "websocket.receive":
                self._gone.set()
            await self._came.put(message)

    async def _answer(self, message: str | bytes) -> None:
        """Answer one request. What it goes on from is forgotten where it fails."""
        reply, items = Told(self._tell), list[Json]()
        try:
            members = members_of(message)
            previous, items = text_in(members, "previous_response_id"), items_in(members)
            if previous and previous == self._chain.id:
                reply.previous = previous
                items = self._chain.go_on(items)
                members = members | {"input": Json(msgspec.json.encode(items)), "previous_response_id": _NULL}
            if members.pop("generate", None) == _FALSE:
                await self._warm(members, reply)
            else:
                body = msgspec.json.encode(members | {"stream": _TRUE})
                await self._ask(self._posted(body), self._body(body), reply.take)
        except TurnscriptError as error:
            reply.failed = refused(*self._api.render_error(error))
        if reply.ended is not None:
            self._note(reply.ended, items)
        if reply.failed is not None:
            if reply.previous:
                self._chain.forget()
            await self._fail(*reply.failed)

    async def _warm(self, members: dict[str, Json], reply: Told) -> None:
        """Answer, without a model, a request that only says what the next one goes on from (`generate: false`)."""
        request = self._api.parse_request(msgspec.json.encode(members))
        writer = self._api.stream_renderer(request, Reply(f"resp_{random_hex(16)}", int(time())))
        await reply.events(writer.send([MessageEnd("stop")]) + writer.close())

    def _note(self, response: dict[str, Json], items: list[Json]) -> None:
        """Keep an answer, and what it answers, that the store does not have."""
        if text_in(response, "status") == "failed":
            self._chain.forget()
        elif response.get("store") == _FALSE:
            self._chain.keep(text_in(response, "id"), [*items, *read_list(response["output"])])

    async def _fail(self, status: int, error: dict[str, Any]) -> None:
        await self._tell(msgspec.json.encode({"type": "error", "status": status, "error": error}).decode())

    async def _tell(self, event: str) -> None:
        """Send an event, unless its client has left."""
        if not self._gone.is_set():
            with suppress(OSError):  # it leaves just now
                await self._send({"type": "websocket.send", "text": event})

    def _posted(self, body: bytes) -> dict[str, Any]:
        """Return the scope of the same request over HTTP."""
        said, extensions = self._scope, self._scope.get("extensions", {})
        headers = [(name, value) for name, value in said["headers"] if name not in _OF_HANDSHAKE]
        return {
            **{name: said[name] for name in ("asgi", "path", "query_string", "client", "server") if name in said},
            "type": "http",
            "method": "POST",
            "http_version": "1.1",
            "headers": [*headers, (b"content-type", b"application/json"), (b"content-length", b"%d" % len(body))],
            "extensions": {CUT: extensions[CUT]} if CUT in extensions else {},
        }

    def _body(self, body: bytes) -> Receive:
        """Return what gives a request its body, and then waits until its client has left."""
        left = [body]

        async def receive() -> Message:
            if left:
                return {"type": "http.request", "body": left.pop(), "more_body": False}
            await self._gone.wait()
            return {"type": "http.disconnect"}

        return receive


class Told:
    """What a request is answered over HTTP, told as messages.

    `previous`: the answer that the request goes on from, where the connection and not the store has it: the request
    that is answered says nothing of it. `ended`: the whole answer, once all is told. `failed`: status and error.
    """

    def __init__(self, tell: Callable[[str], Awaitable[None]]) -> None:
        self._tell = tell
        self._status = 0
        self._refusal: list[bytes] = []
        self._reader = SseReader(_LARGEST)
        self.previous = ""
        self.ended: dict[str, Json] | None = None
        self.failed: tuple[int, dict[str, Any]] | None = None

    async def take(self, message: Message) -> None:
        """Take a message of the answer over HTTP."""
        if message["type"] == "http.response.start":
            self._status = message["status"]
        elif self._status < _BAD:
            await self.events(message.get("body", b""))
        else:
            self._refusal.append(message.get("body", b""))
            if not message.get("more_body", False):
                self.failed = refused(self._status, b"".join(self._refusal))

    async def events(self, data: bytes) -> None:
        """Tell server-sent events."""
        for _, event in self._reader.feed(data):
            await self._event(event)

    async def _event(self, event: str) -> None:
        type_ = _TYPE.decode(event).type
        if type_ == "error":
            self.failed = refused(_FAULT, event.encode())
            return
        if type_ in _ENDS or (self.previous and type_ in _STARTS):
            members = read_object(event)
            response = read_object(members["response"])
            if self.previous:
                response["previous_response_id"] = Json(msgspec.json.encode(self.previous))
                event = msgspec.json.encode(members | {"response": response}).decode()
            self.ended = response if type_ in _ENDS else None
        await self._tell(event)


def refused(status: int, body: bytes) -> tuple[int, dict[str, Any]]:
    """Return the status and the error of an answer that is one; it has a code, whatever else."""
    said = msgspec.json.decode(body)
    error = said.get("error", said)
    code = error.get("code") or error.get("type") or "server_error"
    return status, {"type": error.get("type"), "code": code, "message": error["message"], "param": error.get("param")}


def members_of(message: str | bytes) -> dict[str, Json]:
    """Return the members of a body that a message says. Raises InvalidRequest."""
    members = read_object(message)
    if text_in(members, "type") != _CREATE:
        got = bytes(members.get("type", b"nothing")).decode()[:50]
        raise InvalidRequest(
            f"a message must be of the type {_CREATE}, found {got}", path="$.type", expected=_CREATE, got=got
        )
    return {key: value for key, value in members.items() if key not in _OF_HTTP}


def text_in(members: Mapping[str, Json], key: str) -> str:
    """Return a member that is a text; "" for anything else, of which the request itself is refused."""
    value = plain(members[key]) if key in members else ""
    return value if isinstance(value, str) else ""


def items_in(members: Mapping[str, Json]) -> list[Json]:
    """Return the items of `input`, of which a text is one. What is neither has none; the request is refused for it."""
    said = members.get("input", _NULL)
    first = bytes(said)[:1]
    if first == b'"':
        return [Json(b'{"type":"message","role":"user","content":%b}' % bytes(said))]
    return read_list(said) if first == b"[" else []


def _call_of(item: Json) -> tuple[bool, str]:
    """Return whether an item is a result, and the id of the call that it is of, or is."""
    if bytes(item)[:1] != b"{":
        return False, ""
    members = read_object(item)
    return text_in(members, "type").endswith("_output"), text_in(members, "call_id")
