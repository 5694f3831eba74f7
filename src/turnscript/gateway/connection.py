"""Owns one connection of a client: its heads, its bodies, its order, and how long it may stay.

uvicorn's class reads it; what that leaves open is closed here. A connection that does not send its head in time, or
sends too long a one, is cut. So is one whose client does not take its answer, and one that goes on sending a body whose
request was answered long ago.
"""

from __future__ import annotations

import asyncio
import logging
from asyncio.events import TimerHandle
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from typing import Any
from urllib.parse import unquote

import httptools
from uvicorn.protocols.http.flow_control import HIGH_WATER_LIMIT
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from turnscript.gateway.cycle import UNHEARD, Cycle, Unsaid
from turnscript.gateway.headers import ANSWER, ARRIVED, BEGUN, CUT, LOOP, NONE_LOST, WATCH, RawHeaders
from turnscript.gateway.logs import say

_HEAD_LIMIT = 64 * 1024
_READ = 256 * 1024
"""The most that is read at once."""
_LAST = "".join([f"{name}: {value}\r\n" for name, value in NONE_LOST.items()]).encode() + b"connection: close\r\n"
_TOO_LONG = b"HTTP/1.1 431 Request Header Fields Too Large\r\n%bcontent-length: 0\r\n\r\n" % _LAST
_NO_REQUEST = b"HTTP/1.1 400 Bad Request\r\n%bcontent-type: text/plain; charset=utf-8\r\ncontent-length: %d\r\n\r\n%b"
_TLS = b"\x16\x03"
"""How a client begins that was told https://. No head of HTTP begins so."""
_VERSION = b" HTTP/1.1\r\n"
"""How the first line of nearly every request ends. To ask the parser takes longer."""
_LINGER = 5.0
"""Seconds in which the rest of a body is read, and thrown away, whose request is answered already: a client that sends
before it reads would else never see that answer."""


class Protocol(HttpToolsProtocol):
    """A connection whose heads are bounded in size and in time, and which does not stay without a reason.

    What each request passes does what uvicorn's class does, as far as that can be asked for here. `paths`: those that
    are asked for by one name each; to read another one takes longer.
    """

    head_timeout = 15.0
    paths: Mapping[bytes, str] = {}
    cycle: Cycle | None  # type: ignore[assignment]  # uvicorn's, as what follows
    pipeline: deque[tuple[Cycle, Any]]  # type: ignore[assignment]
    _head_timer: TimerHandle | None = None
    _head_size = 0
    _in_head = True
    _unfinished = 0
    _linger: TimerHandle | None = None
    _untaken: TimerHandle | None = None
    _offer: int | None = None
    _held = False
    _left: Callable[[], None] | None = None
    _answered: Cycle | None = None  # `cycle` is the last one that came
    _in_scope: dict[str, Any]  # what all scopes have of it
    _between = True  # a request and the next one
    _line = b""  # what begins with a request
    _idle: float | None = None  # since when

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._in_scope = {
            "type": "http",
            "asgi": {"version": self.asgi_version, "spec_version": "2.3"},
            "http_version": "1.1",
            "server": self.server,
            "client": self.client,
            "scheme": self.scheme,
            "root_path": self.root_path,
        }
        self._in_scope |= {CUT: transport.abort, WATCH: self._watch, ARRIVED: self._arrived, BEGUN: self._begun}
        self._in_scope |= {ANSWER: self._answer, LOOP: self.loop}
        self._head_timer = self.loop.call_later(self.head_timeout, self._too_slow)

    def connection_lost(self, exc: Exception | None) -> None:
        self._disarm()
        self._stop_lingering()
        self._forget_untaken()
        self._unset_keepalive_if_required()
        if self.timeout_keep_alive_task is not None:
            self.timeout_keep_alive_task.cancel()
        self._in_scope = {}  # they hold the connection
        super().connection_lost(exc)
        self._tell_answered()
        left, self._left = self._left, None
        if left is not None:
            left()

    def _tell_answered(self) -> None:
        """The client has gone. uvicorn tells that to the request that came last; the one that is being answered is
        another, where a client did not wait for its answer."""
        answered, self._answered = self._answered, None
        if answered is not None and not answered.response_complete:
            answered.disconnected = True
            answered.message_event.set()

    def _watch(self, left: Callable[[], None]) -> None:
        """Call `left` when the client goes before its answer is whole; for the request that is answered now. Asking the
        server for the next message would do the same, with a task of its own."""
        if self.transport.is_closing():
            self.loop.call_soon(left)
            return
        self.flow.resume_reading()
        self._left = left

    def _arrived(self) -> bytes | None:
        """The body of the request that is answered now, once, where all of it has come. As the message that it is to
        uvicorn, it would be waited for, and put into words."""
        return self._answered.taken() if self._answered is not None else None

    def _begun(self) -> bool:
        """Whether the answer that is given now has begun, or is over."""
        return self._answered is None or self._answered.response_started

    def _answer(self, status: int, headers: RawHeaders, body: bytes) -> Awaitable[None] | None:
        """Give the answer that is given now, whole; returns what to wait for where its client has no room."""
        cycle = self._answered
        if cycle is None or cycle.disconnected:
            return None
        if self.flow.write_paused:
            return self._answer_later(cycle, status, headers, body)
        cycle.whole(status, headers, body)
        return None

    async def _answer_later(self, cycle: Cycle, status: int, headers: RawHeaders, body: bytes) -> None:
        await self.flow.drain()
        if not cycle.disconnected:
            cycle.whole(status, headers, body)

    def data_received(self, data: bytes) -> None:
        if self._in_head and not self._head_size and data.startswith(_TLS):
            say(logging.WARNING, "TLS where there is none", hint="clients call http://, or a proxy in front")
            self.transport.close()
            return
        self._idle = None
        self._line = data if self._between else b""
        self._read(data)
        while self._offer is not None:
            data = self._pass_over(data)
            self._read(data)
        if not self._in_head and not self._is_idle():
            self._unfinished = 0
            return
        self._unfinished += len(data)
        if self._head_timer is None:  # most heads come at once, and need no clock
            self._head_timer = self.loop.call_later(self.head_timeout, self._too_slow)
        if self._unfinished > _HEAD_LIMIT and not self.transport.is_closing():
            self._head_size = self._unfinished
            self.send_400_response("")

    def _read(self, data: bytes) -> None:
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserError:
            self.logger.warning("Invalid HTTP request received.")
            self.send_400_response("Invalid HTTP request received.")
        except httptools.HttpParserUpgrade as offered:
            self._offer = offered.args[0]  # behind a head with such an offer, nothing is read

    def _is_idle(self) -> bool:
        """Whether nothing has come since the last answer but blank lines, which belong to the next head."""
        return self._answered is None and self._linger is None and self._idle is None

    def on_message_begin(self) -> None:
        self._idle = None  # it may be of the same read: the rest of a body was before this
        self._between = False
        self.url = b""
        self.headers = []
        self.expect_100_continue = False
        self._head_size = 0
        self._in_head = True

    def on_url(self, url: bytes) -> None:
        self._grow(len(url))
        self.url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        size = self._head_size = self._head_size + len(name) + len(value)
        if size > _HEAD_LIMIT:
            self._grow(0)
        if self._in_head:  # behind a body, nobody on the way has seen what it says of keys, hosts and sessions
            name = name.lower()
            if name == b"expect" and value.lower() == b"100-continue":
                self.expect_100_continue = True
            self.headers.append((name, value))

    def on_headers_complete(self) -> None:
        self._disarm()
        self._in_head = False
        parser = self.parser
        method = parser.get_method()
        # A tunnel is an offer without the header, and what follows it is no body.
        offered = parser.should_upgrade() and method != b"CONNECT"
        self._held = offered and _announces_body(self.headers)
        if self._held:
            return
        scope = self.scope = self._scope(method)
        before, cycle = self.cycle, Cycle(scope, self.transport, self.flow, self.on_response_complete)
        self.cycle = cycle
        if scope["http_version"] == "1.0":
            cycle.chunked_encoding, cycle.expected_content_length = False, Unsaid()
            cycle.keep_alive = False
        else:
            cycle.keep_alive = parser.should_keep_alive()
        if self.expect_100_continue:
            cycle.waiting_for_100_continue = True
        if before is None or before.response_complete:
            self._answered = cycle
            self._begin(cycle)
        else:  # it was sent before that was answered
            self.flow.pause_reading()
            self.pipeline.appendleft((cycle, self.app))

    def _scope(self, method: bytes) -> Any:
        """What the application is told of a request."""
        url = self.url
        scope = self._in_scope.copy()
        line, self._line = self._line, b""
        if not line.startswith(_VERSION, len(method) + 1 + len(url)):
            scope["http_version"] = self.parser.get_http_version()
        scope["method"] = method.decode("ascii")
        path = self.paths.get(url)
        if path is not None:
            scope["path"], scope["raw_path"], scope["query_string"] = path, url, b""
        else:
            parsed = httptools.parse_url(url)
            path = parsed.path.decode("ascii")
            scope["path"] = self.root_path + (unquote(path) if "%" in path else path)
            scope["raw_path"] = self.root_path.encode("ascii") + parsed.path
            scope["query_string"] = parsed.query or b""
        scope["headers"] = self.headers
        scope["state"] = self.app_state.copy()
        return scope

    def _begin(self, cycle: Cycle) -> None:
        """Have a request answered."""
        loop, tasks = self.loop, self.tasks
        tasks.add(asyncio.Task(cycle.run(self.app, loop, tasks), loop=loop, name="request"))

    def on_body(self, body: bytes) -> None:
        cycle = self.cycle
        assert cycle is not None
        if cycle.response_complete:
            return
        before = cycle.body
        if not before:
            cycle.body = body
        else:
            if type(before) is bytes:
                cycle.body = bytearray(before)
            cycle.body += body
        if len(cycle.body) > HIGH_WATER_LIMIT:
            self.flow.pause_reading()
        if cycle.message_event is not UNHEARD:
            cycle.message_event.set()

    def _grow(self, size: int) -> None:
        self._head_size += size
        if self._head_size > _HEAD_LIMIT:
            raise ValueError("the head is too long")  # ends the parsing; `send_400_response` says why

    def send_400_response(self, msg: str) -> None:
        """What came is no request, or too long a one."""
        if self._head_size <= _HEAD_LIMIT:
            self.transport.write(_NO_REQUEST % (_LAST, len(msg), msg.encode()))
        else:
            self.transport.write(_TOO_LONG)
        self.transport.close()

    def _disarm(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    def _too_slow(self) -> None:
        self._head_timer = None
        if self._answered is not None:  # a head may be slow behind a request whose answer goes on
            self._head_timer = self.loop.call_later(self.head_timeout, self._too_slow)
            return
        self.transport.close()
        self._mind_untaken()

    # Behind an answer.

    def on_response_complete(self) -> None:
        self._left = None
        unread = self._answered is not None and self._answered.more_body
        self.server_state.total_requests += 1
        closing = self.transport.is_closing()
        if self.pipeline:
            self._answered = self.pipeline[-1][0]
        else:
            self._answered = None
        if not closing:
            self.flow.resume_reading()
            if self.pipeline:
                self._idle = None
                self._begin(self.pipeline.pop()[0])
            else:
                self._be_idle()
            if unread:
                self._linger = self.loop.call_later(_LINGER, self.transport.abort)
        if closing or self.flow.write_paused:
            self._mind_untaken()

    def _be_idle(self) -> None:
        """Nothing is to be answered from now on. The clock of each connection goes on meanwhile: set for each request,
        it would cost as much as the writing of the answer."""
        self._idle = self.loop.time()
        if self.timeout_keep_alive_task is None:
            self._look_in(self.timeout_keep_alive)

    def _look_in(self, seconds: float) -> None:
        self.timeout_keep_alive_task = self.loop.call_later(seconds, self._look_whether_idle)

    def _look_whether_idle(self) -> None:
        self.timeout_keep_alive_task = None
        if self._idle is not None:
            left = self._idle + self.timeout_keep_alive - self.loop.time()
            if left > 0:
                self._look_in(left)
            else:
                self.timeout_keep_alive_handler()

    def _unset_keepalive_if_required(self) -> None:
        self._idle = None

    def _mind_untaken(self) -> None:
        """See to it that a client goes on to take its answer. The next one waits for that, and so does the end of the
        connection."""
        self._forget_untaken()
        left = self.transport.get_write_buffer_size()
        if left:
            self._untaken = self.loop.call_later(self.timeout_keep_alive, self._look_at_untaken, left)

    def _look_at_untaken(self, before: int) -> None:
        if self.transport.get_write_buffer_size() < before:
            self._mind_untaken()
        else:
            self.transport.abort()

    def _forget_untaken(self) -> None:
        if self._untaken is not None:
            self._untaken.cancel()
            self._untaken = None

    def resume_writing(self) -> None:
        super().resume_writing()
        if not self.transport.is_closing():
            self._forget_untaken()

    def on_message_complete(self) -> None:
        self._unfinished = -_READ  # what was read with the end of a message is not the head behind it
        self._between = True
        if self._held:
            return
        cycle = self.cycle
        assert cycle is not None
        if not cycle.response_complete:
            cycle.more_body = False
            if cycle.message_event is not UNHEARD:
                cycle.message_event.set()
        if self._linger is not None:
            self._stop_lingering()
            self._be_idle()

    def _stop_lingering(self) -> None:
        if self._linger is not None:
            self._linger.cancel()
            self._linger = None

    def timeout_keep_alive_handler(self) -> None:
        """Nothing came for a while. A client that has not even taken its last answer gets no more of it."""
        if self.transport.get_write_buffer_size():
            self.transport.abort()
        else:
            super().timeout_keep_alive_handler()

    # Offers to go on in another protocol.

    def _pass_over(self, data: bytes) -> bytes:
        """Go on in this protocol; returns what is to be parsed. Java's client offers HTTP/2 with its first request, and
        sends the body of that in this one. The parser takes the body for something of the other: a new parser reads it,
        behind the head without the offer."""
        rest, self._offer = data[self._offer :], None
        if not self._held:
            return rest
        rest = self._head_without_offer() + rest
        self._held = False
        self.parser = httptools.HttpRequestParser(self)
        return rest

    def _head_without_offer(self) -> bytes:
        version = self.parser.get_http_version().encode()
        lines = [b"%b %b HTTP/%b" % (self.parser.get_method(), self.url, version)]
        lines += [b"%b: %b" % header for header in self.headers if header[0] != b"upgrade"]
        return b"\r\n".join(lines) + b"\r\n\r\n"


def _announces_body(headers: list[tuple[bytes, bytes]]) -> bool:
    """Whether a body follows a head."""
    named = dict(headers)
    return b"transfer-encoding" in named or named.get(b"content-length", b"0").strip(b"0") != b""
