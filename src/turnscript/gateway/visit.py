"""Owns one request while it is answered: its body, its client's leaving, its end, and the answer or error it gets.

Whoever ends a request early says why with `give_up`: an error that the client is told, or nobody if the client itself
has gone. Either way its task is cancelled, and with it the generation.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from time import monotonic
from typing import Any

from turnscript.apis.api import Api
from turnscript.core.conversation import Issue, Item
from turnscript.core.errors import LossyConversion, Timeout, TooLarge, TurnscriptError
from turnscript.gateway.config import Server
from turnscript.gateway.generation import Outcome
from turnscript.gateway.headers import (
    RawHeaders,
    Told,
    by_name,
    cut_of,
    json_headers,
    new_request_id,
)
from turnscript.gateway.limits import Ahead, Caller, Share
from turnscript.gateway.outlet import Frame, Outlet, Receive, Send
from turnscript.gateway.preparing import Prepared
from turnscript.gateway.refusals import say_when
from turnscript.gateway.served import Served

MEMBERS = "turnscript.members"
"""What the path of a request says, as members of its body: an entry of its scope."""

LEFT, STALLED = "client", "stalled"
GONE = (LEFT, STALLED)
"""What ends a request whose client is not there any more."""


class SlowBody(Timeout):
    """The client takes too long to send its request."""

    status = 408


class Pace:
    """How fast a body has to come. `due`: when it is too slow, by the clock of the loop, unless more comes before.

    So many bytes as the least rate has in a tenth of the whole time must come in each such tenth: who has sent much
    does not sit on it.
    """

    def __init__(self, settings: Server) -> None:
        self._settings = settings
        self._now = asyncio.get_running_loop().time
        self._end = self._now() + settings.body_timeout
        self._tenth = settings.body_timeout / _TENTHS
        self._least = (settings.body_rate or 0) * self._tenth
        self._came = 0
        self.due = min(self._end, self._now() + self._tenth) if self._least else self._end

    def came(self, size: int) -> bool:
        """So many bytes more have come. Returns whether it is `due` at another time now."""
        self._came += size
        if not self._least or self._came < self._least:
            return False
        self._came = 0
        self.due = min(self._end, self._now() + self._tenth)
        return True

    def slow(self) -> SlowBody:
        """What its client is told when it was due."""
        if self.due >= self._end:
            return SlowBody(f"the request's body did not arrive within {self._settings.body_timeout:g} s")
        least = f"{self._settings.body_rate} bytes a second for {self._tenth:g} s"
        return SlowBody(f"the request's body came slower than {least}")


_TENTHS = 10
_GONE = 1.0
"""Seconds in which a server says that a client has gone whose connection was cut."""


class Encoded(TurnscriptError):
    """The body is compressed, or changed in another way that is not undone here."""

    status = 415
    code = "unsupported_media_type"


class ClientGone(Exception):
    """The client has left before its request was whole."""


class Visit:
    """One request. With so much to know of each, slots: the objects of a class share the names of at most thirty."""

    __slots__ = (
        "__weakref__",
        "_answered",
        "_beginning",
        "_cut",
        "_receive",
        "_send",
        "_served",
        "_task",
        "_timer",
        "_watcher",
        "api",
        "began",
        "caller",
        "ended_by",
        "error",
        "generation",
        "headers",
        "headers_out",
        "mark",
        "members",
        "model",
        "more_headers",
        "outlet",
        "path",
        "place",
        "prepared",
        "reason",
        "renderer",
        "request_id",
        "share",
        "status",
        "strays",
        "told",
        "waited",
    )

    def __init__(self, api: Api, scope: Mapping[str, Any], receive: Receive, send: Send) -> None:
        self.api = api
        self.path: str = scope["path"]
        self.members: bytes = scope.get(MEMBERS, b"")
        self.headers = by_name(scope["headers"])
        self.request_id = new_request_id()
        self.began = monotonic()
        self.told = Told()
        self.renderer: Frame | None = None
        self.outlet: Outlet | None = None
        self.headers_out: RawHeaders = []
        self.caller: Caller | None = None
        self.share: Share | None = None
        self.generation: Outcome | None = None
        self.prepared: Prepared | None = None
        self.more_headers: RawHeaders = []
        self.mark: tuple[str, str, bytes] | None = None
        self.model = ""
        self.strays: list[Issue] = []
        self.error: TurnscriptError | None = None
        self.reason: TurnscriptError | None = None
        self.ended_by = ""
        self.place: int | None = None
        self.waited = 0.0
        self.status = 200
        self._served: Served | None = None
        self._cut = cut_of(scope)
        self._answered = False
        self._receive = receive
        self._send = send
        self._task = asyncio.current_task()
        self._watcher: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._beginning: asyncio.Task[None] | None = None

    async def body(self, settings: Server, share: Share) -> bytes:
        """The whole body, which takes its share of the room as it comes, and has it until `forget`. One that has
        announced more than there is room for now is refused before it comes. Raises TooLarge, Overloaded, Timeout,
        Encoded, or ClientGone where there is nobody to tell."""
        self.share = share
        headers, limit = self.headers, settings.max_body
        said = headers.get("content-length", "")
        if said.isdigit():
            length = int(said)
            if length > limit:
                raise TooLarge(limit, length)
            share.check(length)
        body = await self._arriving_body(settings, share)
        if "content-encoding" in headers:
            _check_encoding(headers["content-encoding"].strip(), body)
        return _with_members(body, self.members) if self.members else body

    async def _arriving_body(self, settings: Server, share: Share) -> bytes:
        pace = Pace(settings)
        try:
            async with asyncio.timeout_at(pace.due) as clock:
                return await self._whole_body(settings.max_body, share, pace, clock)
        except TimeoutError:
            raise pace.slow() from None

    async def _whole_body(self, limit: int, share: Share, pace: Pace, clock: asyncio.Timeout) -> bytes:
        chunks: list[bytes] = []
        size = 0
        while True:
            message = await self._receive()
            if message["type"] == "http.disconnect":
                raise ClientGone
            chunk = message.get("body", b"")
            size += len(chunk)
            if size > limit:
                raise TooLarge(limit)
            share.take(size)
            chunks.append(chunk)
            if not message.get("more_body"):
                return chunks[0] if len(chunks) == 1 else b"".join(chunks)
            if pace.came(len(chunk)):
                clock.reschedule(pace.due)

    def hold(self, served: Served) -> Served:
        """Keep the model that is asked from being closed, though it were taken away meanwhile, until `release`."""
        self._served, self.model = served, served.name
        served.users += 1
        return served

    def release(self) -> None:
        """The request needs its model no more."""
        served, self._served = self._served, None
        if served is not None:
            served.users -= 1

    def waits(self, ahead: Ahead | None) -> None:
        """The request begins to wait for its turn, or (None) waits no longer: a stream tells its place."""
        if ahead is not None:
            self.place, self.waited = ahead(), self.waited - monotonic()
        else:
            self.waited += monotonic()
        if self.outlet is not None:
            self.outlet.ahead = ahead

    def watch(self) -> None:
        """From now on the client's leaving ends the request."""
        if self._watcher is None:
            self._watcher = asyncio.get_running_loop().create_task(self._watch())

    def unwatch(self) -> None:
        """From now on it does not."""
        watcher, self._watcher = self._watcher, None
        if watcher is not None:
            watcher.cancel()

    async def _watch(self) -> None:
        while (await self._receive())["type"] != "http.disconnect":
            pass
        self.give_up(None, LEFT)

    async def gone(self) -> None:
        """Wait until the client is not there any more, where the server says so soon."""
        self.watch()
        if self._watcher is not None:
            await asyncio.wait((self._watcher,), timeout=_GONE)

    def give_up(self, error: TurnscriptError | None, by: str) -> None:
        """End the request early. `error`: what the client is told; None if it is not there any more."""
        if not self.ended_by and self._task is not None:
            self.reason, self.ended_by = error, by
            self._task.cancel()

    def stalled(self) -> None:
        """The client takes nothing: end the request, and with it the connection, which else would wait for ever."""
        self.give_up(None, STALLED)
        self._cut()

    def settle(self) -> None:
        """The request is over: nothing can end it early any more."""
        self.ended_by = self.ended_by or "itself"
        self.unwatch()

    def forget(self) -> tuple[list[Item], int]:
        """Let go of all that the request took, and of the error that ended it, which is told by now. Returns the items
        of its conversation, where nobody else works with them, and the bytes that they came in."""
        let_go(self.error)
        if self.share is not None:
            self.share.leave()
        prepared = self.prepared
        self.error = self.reason = self.mark = self.prepared = self.generation = self.outlet = self.renderer = None
        if prepared is None or prepared.detached:
            return [], 0
        return prepared.request.items, prepared.leaned.size

    def take_back(self) -> None:
        """The task goes on, to tell the client why it was ended."""
        if self._task is not None:
            self._task.uncancel()

    # Answers.

    def open(self, renderer: Frame) -> Outlet:
        """Make the answer a stream."""
        self.renderer, self.outlet = renderer, Outlet(self._send, renderer)
        return self.outlet

    def begin_in(self, seconds: float) -> None:
        """Begin the stream, if this is one, so many seconds from now, unless it has begun by then."""
        if self.outlet is not None and not self.outlet.begun:
            self.begin_never()
            self._timer = asyncio.get_running_loop().call_later(seconds, self._begin_now)

    def begin_never(self) -> None:
        """Do not begin it by the clock."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _begin_now(self) -> None:
        self._timer = None
        self._beginning = asyncio.get_running_loop().create_task(self.begin())

    async def begin(self) -> None:
        """Begin the stream, unless it has begun."""
        self.begin_never()
        beginning = self._beginning
        if beginning is not None and beginning is not asyncio.current_task():
            await self._begun()
        elif self.outlet is not None and not self.outlet.begun:
            await self.outlet.begin(self.headers_out)

    async def _begun(self) -> None:
        """Wait for a beginning that is on its way. Not by awaiting it: who is cancelled here would cancel it."""
        if self._beginning is not None:
            await asyncio.wait((self._beginning,))

    async def answer(self, body: bytes, status: int = 200) -> None:
        """Answer with a JSON body."""
        self.status = status
        headers = json_headers(len(body), self.api.headers(request_id=self.request_id), self.told.raw())
        await self._whole(status, headers + self.more_headers, body)

    async def _whole(self, status: int, headers: RawHeaders, body: bytes) -> None:
        await self._send({"type": "http.response.start", "status": status, "headers": headers})
        self._answered = True
        await self._send({"type": "http.response.body", "body": body})

    async def refuse(self, error: TurnscriptError) -> None:
        """Answer with an error: as the last event of a stream that has begun, else as a body with its status."""
        say_when(error)
        status, body = self.api.render_error(error, request_id=self.request_id)
        self.status = status
        if isinstance(error, LossyConversion):
            self.told.losses = len(error.losses)
        self.begin_never()
        await self._begun()
        if self.outlet is not None and self.renderer is not None and self.outlet.begun:
            await self.outlet.end(self.renderer.fail(error))
            return
        if self._answered:  # it was ended while its client took the answer: what is missing of that says so
            return
        headers = json_headers(len(body), self.api.headers(error, request_id=self.request_id), self.told.raw())
        await self._whole(status, headers, body)

    @property
    def follows(self) -> bool:
        """Whether its stream is that of an answer made apart, which ends as that does."""
        return self.outlet is not None and self.prepared is not None and self.prepared.detached

    @property
    def age(self) -> float:
        """Seconds since the request came."""
        return monotonic() - self.began


def _with_members(body: bytes, members: bytes) -> bytes:
    """Return the body of an object with more members at its beginning; anything else as it is."""
    before, brace, rest = body.partition(b"{")
    if not brace or before.strip(b" \t\r\n\xef\xbb\xbf"):
        return body
    return b"".join((before, brace, members, b"" if rest.lstrip()[:1] == b"}" else b",", rest))


def _check_encoding(encoding: str, body: bytes) -> None:
    """Refuse what is not readable as it came. Some clients name an encoding and send plain JSON: that is read."""
    if encoding.lower() not in ("", "identity") and body and not _is_json_text(body):
        raise Encoded(f"content-encoding {encoding!r} is not read here; send the body uncompressed")


def _is_json_text(body: bytes) -> bool:
    """Whether bytes are text that begins as a request does."""
    try:
        return body.decode("utf-8-sig").lstrip()[:1] in ("{", "[")
    except UnicodeDecodeError:
        return False


def let_go(error: BaseException | None) -> None:
    """Forget where an error came about. Whatever has a name for it there is held by it, and holds it: the body and the
    prompt would stay until the collector of garbage comes round."""
    while error is not None:
        error.__traceback__ = None
        error = error.__cause__ or error.__context__
