"""Owns reading what a model server answers on a connection: heads, bodies of every kind, and pausing who is too fast.

The connection is aiohttp's, with its names, its TLS and its ends; the parser is httptools', which is aiohttp's too
(llhttp), without a call of Python for each chunk: a body is a list of what came, taken all at once. A token is a chunk,
so an answer is many of them.

One call is on a connection at a time: `ask`, then `news` until `answered`, then `take` until `whole`, then `leave`.
"""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import Iterator, Mapping
from functools import partial

from aiohttp import ClientConnectionError, ClientOSError, ClientPayloadError, ServerDisconnectedError
from aiohttp.client_proto import ResponseHandler
from aiohttp.http import HttpProcessingError
from httptools import HttpParserError, HttpParserUpgrade, HttpResponseParser

READ_SIZE = 16 * 1024
"""How many bytes wait here before the server is told to pause; twice as much at most."""
LONGEST_HEAD = 64 * 1024
"""How long a head may be, and what else is none of a body, as far as it did not come in one read."""
_MOST_MEMBERS = 1024  # of gzip, in what is read at once
_SHOWN = 100
_SWITCHED = 101  # to another protocol
_PACKED = b"content-encoding"

Lines = list[tuple[bytes, bytes]]


class HttpConnection(ResponseHandler):
    """A connection of aiohttp's pool, which reads by itself."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(loop)
        self.answered = False
        """Whether the head of the answer is there."""
        self.whole = True
        """Whether all of the answer has come, or none was asked for."""
        self.fault: Exception | None = None
        """Why no more will come."""
        self.status = 0
        self.lines: Lines = []
        self.unpacks: Unpacker | None = None
        self._loop = loop
        self._body: list[bytes] = []
        self._size = 0  # of what came since the body was taken
        self._begun: list[bool] = []  # one for each message
        self._news = False  # of 1xx
        self._awaited: asyncio.Future[None] | None = None
        # What the parser calls. A body and a beginning cost no call of Python.
        self.on_body = self._body.append
        self.on_message_begin = partial(self._begun.append, True)
        self._http: HttpResponseParser | None = HttpResponseParser(self)
        # As aiohttp reads answers, and many servers write them.
        self._http.set_dangerous_leniencies(
            lenient_headers=True, lenient_optional_cr_before_lf=True, lenient_spaces_after_chunk_size=True
        )

    # The call.

    def ask(self) -> None:
        """A call begins. What is on the connection from now on answers it."""
        self.answered = self.whole = False
        self._size = 0
        self._begun.clear()

    def news(self) -> asyncio.Future[None]:
        """What is done when something has come, or nothing can come any more."""
        waiter = self._awaited = self._loop.create_future()
        return waiter

    def take(self) -> bytes:
        """What has come of the body and was not taken; the server need not pause any more."""
        body = self._body
        if not body:
            return b""
        data = body[0] if len(body) == 1 else b"".join(body)
        body.clear()
        self._size = 0
        if self._reading_paused:
            self._go_on()
        return data

    @property
    def heard(self) -> bool:
        """Whether anything has come that was not taken, be it no body."""
        return self._size > 0

    @property
    def waits(self) -> bool:
        """Whether something of the body is there."""
        return bool(self._body)

    def leave(self) -> bool:
        """The call is over. Returns whether the connection can carry another one. Who waits is told that it cannot."""
        kept = self.whole and self.answered and not self.should_close
        if not self.whole:
            self.fault = ClientConnectionError("it was closed here")
            self.whole = self._should_close = True
        self._tell()
        self.fault = self.unpacks = None
        self.lines = []
        self._body.clear()
        if self._reading_paused:
            self._go_on()
        return kept

    @property
    def should_close(self) -> bool:
        """Whether it can carry no other call: the server wants to close it, or has said more than it was asked."""
        return self._should_close or len(self._begun) > 1 or self.transport is None

    # What the event loop calls.

    def data_received(self, data: bytes) -> None:
        """Read what has come."""
        if self.whole:
            if data.strip(b"\r\n"):  # blank lines behind an answer are read over
                self._surplus()
            return
        http = self._http
        if http is None:
            return
        try:
            http.feed_data(data)
        except HttpParserUpgrade:
            self._should_close = True
        except HttpParserError as error:
            self._break(str(error), data)
        size = self._size = self._size + len(data)
        if size > 2 * READ_SIZE:
            self._limit(size)
        waiter = self._awaited
        if waiter is not None:
            self._awaited = None
            if not waiter.done():
                waiter.set_result(None)

    def connection_lost(self, exc: BaseException | None) -> None:
        """The connection is gone, and with it what is still to come, unless that was the end of the answer."""
        if not self.whole:
            if self.answered and not self._framed():
                self.whole = True
            elif self.fault is None:
                self.fault = ClientOSError(*exc.args) if isinstance(exc, OSError) else ServerDisconnectedError()
        self._http = None
        super().connection_lost(exc)
        self._tell()

    # What the parser calls.

    def on_header(self, name: bytes, value: bytes) -> None:
        """A line of a head, or behind a body."""
        if not self.answered:
            self.lines.append((name, value))

    def on_headers_complete(self) -> None:
        """A head is whole."""
        if self.answered:  # nobody asked for another answer
            raise HttpParserError("it answers twice")
        http = self._http
        assert http is not None
        status = http.get_status_code()
        if 100 <= status < 200 and status != _SWITCHED:  # the answer itself is still to come
            self._news = True
            return
        self.status = status
        self.answered = True
        if status == _SWITCHED or not http.should_keep_alive():
            self._should_close = True
        for name, value in self.lines:
            if len(name) == len(_PACKED) and name.lower() == _PACKED:
                self.unpacks = Unpacker.of(value)

    def on_message_complete(self) -> None:
        """All of a message has come."""
        if self._news:
            self._news = False
            self.lines = []
            self._begun.clear()
            self._size = 0
        else:
            self.whole = True

    # Troubles and limits.

    def _framed(self) -> bool:
        """Whether the answer would have said its end itself."""
        said: dict[bytes, list[bytes]] = {}
        for name, value in self.lines:
            said.setdefault(name.lower(), []).append(value.lower())
        coding = b",".join(said.get(b"transfer-encoding", [])).rpartition(b",")[2].strip()
        return coding == b"chunked" or (not coding and b"content-length" in said)

    def _limit(self, size: int) -> None:
        """Much has come that was not taken: the server waits, or is cut if it says what nobody will take."""
        if self.whole or self._reading_paused or self.fault is not None:
            return
        if self._body:
            self._reading_paused = True
            self._pause_transport_reading()
        elif size > LONGEST_HEAD:
            self._break(f"it sends more than {LONGEST_HEAD} bytes that are no part of a body")

    def _go_on(self) -> None:
        self._reading_paused = False
        self._resume_transport_reading()

    def _surplus(self) -> None:
        """What nobody asked for stands on the connection. The next call would take it for its answer."""
        self._should_close = True
        if self.transport is not None:
            self.transport.close()

    def _break(self, why: str, data: bytes = b"") -> None:
        """It is no HTTP. That is no fault of an answer that was whole before."""
        self._should_close = True
        if self.transport is not None:
            self.transport.close()
        if self.whole:
            return
        first = data.lstrip(b"\r\n").split(b"\n", 1)[0].rstrip(b"\r")[:_SHOWN]
        shown = f": {first!r}" if first and not self.answered else ""
        self.fault = HttpProcessingError(message=f"{why}{shown}")

    def _tell(self) -> None:
        waiter, self._awaited = self._awaited, None
        if waiter is not None and not waiter.done():
            waiter.set_result(None)


class Headers(Mapping[str, str]):
    """The headers of an answer, by names in any letters. Of several of one name it is the first that counts."""

    def __init__(self, lines: Lines) -> None:
        self._values: dict[str, str] = {}
        for name, value in lines:
            said = value.strip(b" \t").decode("utf-8", "surrogateescape")
            self._values.setdefault(name.decode("utf-8", "surrogateescape").lower(), said)

    def __getitem__(self, name: str) -> str:
        return self._values[name.lower()]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)


class Unpacker:
    """Unpacks a body, in pieces that are no larger than what may wait here, however much they hold."""

    def __init__(self, *, gzip: bool) -> None:
        self.full = False
        """Whether more may be told without more that is given."""
        self._rest = b""
        self._gzip = gzip
        self._zlib = zlib.decompressobj(wbits=31) if gzip else None

    @classmethod
    def of(cls, coding: bytes) -> Unpacker | None:
        """For a content coding; None where nothing is packed, or nobody can unpack it."""
        said = coding.strip().lower()
        return cls(gzip=said == b"gzip") if said in (b"gzip", b"deflate") else None

    def feed(self, data: bytes) -> bytes:
        """As much as may be told at once. Raises ClientPayloadError for what was not packed so."""
        data = self._rest + data if self._rest else data
        found: list[bytes] = []
        room = 2 * READ_SIZE
        members = 0
        try:
            while room > 0 and (data or self.full):
                self.full = False
                unpacks = self._opened(data)
                piece = unpacks.decompress(data, room)
                found.append(piece)
                room -= len(piece)
                data = unpacks.unconsumed_tail or unpacks.unused_data
                members += unpacks.eof
                if members > _MOST_MEMBERS:
                    raise ClientPayloadError("it is packed in too many parts")
        except zlib.error as error:
            raise ClientPayloadError(str(error)) from None
        self._rest, self.full = data, room <= 0
        return b"".join(found)

    def _opened(self, data: bytes) -> zlib._Decompress:
        """What unpacks the next bytes. Some servers write `deflate` without the head that belongs to it."""
        unpacks = self._zlib
        if unpacks is None:
            unpacks = zlib.decompressobj(wbits=15 if data[0] & 0xF == 8 else -15)
        elif unpacks.eof and data:
            if not self._gzip:
                raise ClientPayloadError("something stands behind the end of what is packed")
            unpacks = zlib.decompressobj(wbits=31)
        self._zlib = unpacks
        return unpacks
