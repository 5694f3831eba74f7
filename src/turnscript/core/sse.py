"""Owns server-sent events: cutting bytes into events, and framing data as one. Knows nothing of what the data means."""

from __future__ import annotations

from functools import lru_cache

import msgspec

from turnscript.core.errors import UpstreamError, type_of
from turnscript.core.split_characters import Halves

LIMIT = 16 * 1024 * 1024
"""The most bytes that a line, or the data of one event, may have."""

_LINE_TAKES = 64
"""What a line of an event is counted as beside its bytes: however short it is, it is held until the event ends."""

IDLE = "ping"
"""The name of events that say nothing but that the server is alive."""

_BOM = b"\xef\xbb\xbf"
_LF, _CR = 0x0A, 0x0D


class SseReader:
    """Reads a stream of server-sent events as (event, data); `event` is empty where the stream names none.

    The bytes may be cut anywhere. A line ends with LF, CR or CR LF; comments, `id` and `retry` mean nothing here. A
    line `error: ...`, as llama-box tells a failure and llama.cpp did, is the data of an event of that name. Bytes that
    are no UTF-8, or a line without an end, raise UpstreamError, and so does every call after it; but never in the call
    that completes an event, so that no event is lost. Work is linear, memory at most twice `limit`. `stray` is the
    beginning of the first line that is no field of an event, or the name of the first event that has no data, for a
    message: a server that answers with a page or a plain JSON error shows there.
    """

    def __init__(self, limit: int = LIMIT) -> None:
        self.stray = ""
        self._limit = limit
        self._line = bytearray()
        self._after_cr = False
        self._started = False
        self._event = ""
        self._data: list[str] = []
        self._size = 0
        self._error: UpstreamError | None = None
        self._halves = Halves()

    @property
    def half(self) -> str:
        """Half of a character in the data whose other half has not come."""
        return self._halves.waiting

    def feed(self, data: bytes) -> list[tuple[str, str]]:
        """More bytes; returns the events that are complete now."""
        if self._error is not None:
            raise self._error
        events: list[tuple[str, str]] = []
        try:
            for line in self._whole_lines(data):
                if not line:
                    self._dispatch(events)
                elif line[:6] == b"data: " and self._size + len(line) <= self._limit:  # by far the most
                    self._size += len(line) + _LINE_TAKES
                    self._data.append(_text(line[6:]))
                else:
                    self._field(line)
            if len(self._line) > self._limit:
                raise self._too_long("line")
        except UpstreamError as error:
            self._error = error
            if not events:
                raise
        except (AttributeError, TypeError):
            if _is_bytes(data):
                raise
            raise TypeError(f"a stream is fed as bytes, got {type_of(data)}; of a str, write .encode()") from None
        return events

    def close(self) -> list[tuple[str, str]]:
        """The stream is over. Returns the event that lacked its empty line, if any: servers forget it at the end."""
        if self._error is not None:
            raise self._error
        events: list[tuple[str, str]] = []
        if self._line:
            line, self._line = bytes(self._line), bytearray()
            self._field(self._without_mark(line))
        self._dispatch(events)
        return events

    def _whole_lines(self, data: bytes) -> list[bytes]:
        if self._after_cr and data:
            self._after_cr = False
            if data[:1] == b"\n":  # the second half of a CR LF
                data = data[1:]
        if _CR in data:
            self._after_cr = data.endswith(b"\r")
            data = data.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        lines = data.split(b"\n")
        rest = lines.pop()
        if lines and self._line:
            lines[0] = bytes(self._line + lines[0])
            self._line.clear()
        if rest:
            self._line += rest
        if lines and not self._started:
            lines[0] = self._without_mark(lines[0])
        return lines

    def _without_mark(self, line: bytes) -> bytes:
        """The line; if it is the first one, without a byte order mark."""
        started, self._started = self._started, True
        return line if started else line.removeprefix(_BOM)

    def _field(self, line: bytes) -> None:
        if len(line) > self._limit:
            raise self._too_long("line")
        name, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        failed = name == b"error" and value != b""
        if failed:
            self._event = "error"
            self.stray = self.stray or line[:200].decode(errors="replace")
        if failed or name == b"data":
            if self._size + len(value) > self._limit:
                raise self._too_long("event")
            self._size += len(value) + _LINE_TAKES
            self._data.append(_text(value))
        elif name == b"event":
            self._event = _text(value)
        elif name not in (b"", b"id", b"retry") and not self.stray:
            self.stray = line[:200].decode(errors="replace")

    def _dispatch(self, events: list[tuple[str, str]]) -> None:
        if self._data:
            data = "\n".join(self._data)
            events.append((self._event, self._halves.mended(data)))
            self._data.clear()
            self._size = 0
        elif self._event not in ("", IDLE) and not self.stray:
            self.stray = f"event: {self._event}"[:200]
        self._event = ""

    def _too_long(self, what: str) -> UpstreamError:
        return UpstreamError(f"the server sent one {what} of more than {self._limit} bytes; the stream was given up")


def _is_bytes(data: object) -> bool:
    return isinstance(data, bytes | bytearray)


def _text(value: bytes) -> str:
    try:
        return value.decode()
    except UnicodeDecodeError as error:
        body = value[:200].decode(errors="replace")
        message = f"the server sent bytes that are no UTF-8 (at byte {error.start} of a line)"
        raise UpstreamError(message, body=body) from None


def frame(data: bytes | str, event: str = "") -> bytes:
    """One event as bytes. Data with line ends becomes several `data` lines, all of whose ends are read back as LF."""
    payload = data if isinstance(data, bytes) else data.encode()
    if _LF in payload or _CR in payload:
        lines = payload.replace(b"\r\n", b"\n").replace(b"\r", b"\n").split(b"\n")
        payload = b"\ndata: ".join(lines)
    return b"".join((_head(event), payload, b"\n\n"))


@lru_cache(maxsize=128)
def _head(event: str) -> bytes:
    """What stands before the data. An API has few names for its events."""
    return f"event: {event}\ndata: ".encode() if event else b"data: "


HOLE = msgspec.Raw(b"\0")
"""Stands in a payload for a value that changes. Texts are encoded without this byte, so none can be taken for it."""


def template(payload: object, event: str = "") -> bytes:
    """An event that is sent many times, all of it encoded once but for its holes: `template % value` is its bytes, or
    `template % (one, other)`, with the values as JSON."""
    return frame(msgspec.json.encode(payload), event).replace(b"%", b"%%").replace(b"\0", b"%b")


def comment(text: str = "") -> bytes:
    """A comment line, which readers skip: it keeps a connection alive."""
    return f": {text}\n\n".encode()
