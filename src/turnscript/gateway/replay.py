r"""Owns recorded exchanges with a model server: writing them down, and playing them back as if it were there.

A file is JSON Lines. An exchange begins with a line that has a `call`; the lines behind it are its answer, in order:

    {"call": "POST /completion", "prompt": "6f1c...", "status": 200, "headers": {"content-type": "text/event-stream"}}
    {"text": "data: {\"content\":\" Hi\",\"stop\":false}\n\n"}
    {"after": 0.02, "text": "data: {\"content\":\"\",\"stop\":true,\"stop_type\":\"eos\"}\n\n"}

`text` are bytes in UTF-8, `base64` any others; `after` is a pause before them in seconds. `{"broken": true}` as the
last line cuts the connection. `prompt` is the hash of what was asked, which `hash_of` makes: the exchange answers that
question as often as it is asked, and several with one hash take turns until the last. An exchange without it answers
whatever is asked with its call, once, in the order of the file. `request` is for people.

A recording holds no keys: no headers of requests, and stars where an answer repeats one.
"""

from __future__ import annotations

import asyncio
import base64
import re
import time
from collections.abc import Mapping, Sequence
from hashlib import blake2b
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from turnscript.backends.backend import Backend, HttpCall
from turnscript.core.errors import InvalidInput, UpstreamError
from turnscript.gateway.transport import Reply, Transport
from turnscript.gateway.upstream import Timeouts, Upstream

_KEPT_HEADERS = ("content-type", "retry-after")
_PAUSE = 0.001  # shorter pauses are none


class _Line(Struct, forbid_unknown_fields=True, omit_defaults=True):
    """A line: the head of an exchange, or a piece of its answer."""

    call: str | None = None
    prompt: str | None = None
    status: int = 200
    headers: dict[str, str] = {}
    request: Any = None
    after: float = 0
    text: str | None = None
    base64: str | None = None
    broken: bool = False


class Exchange(Struct):
    """A call and its answer: bytes with the pause before each. `hash` is empty where it answers whatever is asked."""

    call: str
    hash: str = ""
    status: int = 200
    headers: dict[str, str] = {}
    request: Any = None
    pieces: list[tuple[float, bytes]] = []
    broken: bool = False


_read_line = msgspec.json.Decoder(_Line).decode
_SUFFIX = ".jsonl"


def hash_of(call: HttpCall) -> str:
    """What a recording is found by: the prompt, or all of a body that has none; not how it is sampled."""
    body = call.body or b""
    try:
        members = msgspec.json.decode(body, type=dict[str, msgspec.Raw]) if body else {}
    except msgspec.DecodeError:
        members = {}
    prompt = members.get("prompt")
    if prompt is not None:
        body = msgspec.json.encode(msgspec.json.decode(prompt))  # one spelling of the same text
    return blake2b(body, digest_size=16).hexdigest()


def read_exchanges(path: str | Path) -> list[Exchange]:
    """The exchanges of a file, or of all files of a directory by name. Raises InvalidInput with file and line."""
    path = Path(path)
    files = sorted(path.glob(f"*{_SUFFIX}")) if path.is_dir() else [path]
    found = [exchange for file in files for exchange in _read_file(file)]
    if not found:
        raise InvalidInput(f"there are no recorded exchanges in {path}", expected=f"files *{_SUFFIX}")
    return found


def _read_file(file: Path) -> list[Exchange]:
    try:
        lines = file.read_bytes().split(b"\n")
    except OSError as error:
        raise InvalidInput(f"cannot read the recording {file}: {error.strerror}", expected="a file") from None
    found: list[Exchange] = []
    for number, data in enumerate(lines, 1):
        if not data.strip():
            continue
        try:
            line = _read_line(data)
            if line.call is not None:
                found.append(Exchange(line.call, line.prompt or "", line.status, line.headers, line.request))
                continue
            content = base64.b64decode(line.base64, validate=True) if line.base64 else (line.text or "").encode()
        except (msgspec.DecodeError, ValueError) as error:
            raise InvalidInput(f"{file}, line {number}: {error}", expected="a line of a recording") from None
        if not found:
            message = f"{file}, line {number}: an answer before any call"
            raise InvalidInput(message, expected='a line with "call"')
        if content:
            found[-1].pieces.append((line.after, content))
        found[-1].broken = found[-1].broken or line.broken
    return found


class Replay(Upstream):
    """An upstream whose answers are recorded. `speed`: 2 halves the pauses, 0 leaves them out."""

    def __init__(
        self, path: str | Path, backend: Backend, timeouts: Timeouts | None = None, *, speed: float = 1.0
    ) -> None:
        super().__init__(_NOWHERE, backend, None, timeouts, transport=_Player(path, speed))

    async def healthy(self) -> bool:
        """A recording is always there."""
        return True


_NOWHERE = "http://replay.invalid"


class _Player:
    """Answers calls from a recording."""

    def __init__(self, path: str | Path, speed: float) -> None:
        self._path = Path(path)
        self._speed = speed
        self._by_hash: dict[tuple[str, str], list[Exchange]] = {}
        self._in_order: dict[str, list[Exchange]] = {}
        for exchange in read_exchanges(path):
            if exchange.hash:
                self._by_hash.setdefault((exchange.call, exchange.hash), []).append(exchange)
            else:
                self._in_order.setdefault(exchange.call, []).append(exchange)

    async def send(self, call: HttpCall) -> Reply:
        """The answer that was recorded for this call."""
        name, found = f"{call.method} {call.path}", hash_of(call)
        known = self._by_hash.get((name, found), [])
        if known:
            return _Played(known.pop(0) if len(known) > 1 else known[0], self._speed)
        waiting = self._in_order.get(name, [])
        if waiting:
            return _Played(waiting.pop(0), self._speed)
        raise UpstreamError(
            f"{self._path} has no answer to {name} with the prompt hash {found}; record it, or add it without a hash"
        )

    async def close(self) -> None:
        """Nothing is open."""


class _Played:
    """A recorded answer as it goes on."""

    def __init__(self, exchange: Exchange, speed: float) -> None:
        self.status = exchange.status
        self.headers: Mapping[str, str] = exchange.headers
        self._pieces = iter(exchange.pieces)
        self._broken = exchange.broken
        self._speed = speed
        self._left = asyncio.Event()

    async def read(self) -> bytes:
        """The next bytes, after their pause."""
        after, data = next(self._pieces, (0.0, b""))
        if after and self._speed:
            try:
                async with asyncio.timeout(after / self._speed):
                    await self._left.wait()
            except TimeoutError:
                pass
        if self._left.is_set() or (self._broken and not data):
            raise UpstreamError("the recorded answer breaks off here", retryable=True)
        return data

    def close(self) -> None:
        """Wake whoever waits."""
        self._left.set()


# Recording.


def record(upstream: Upstream, path: str | Path, *, secrets: Sequence[str] = ()) -> Upstream:
    """The same upstream, which from now on adds each exchange to a file as it ends.

    Its own key is never written, nor are `secrets`. Raises InvalidInput when the file cannot be written.
    """
    upstream.transport = _Recorder(upstream.transport, Path(path), [*upstream.secrets, *secrets])
    return upstream


class _Recorder:
    """Passes calls on and writes down what comes back."""

    def __init__(self, transport: Transport, path: Path, secrets: Sequence[str]) -> None:
        self._transport = transport
        self._path = path
        self._secrets = [secret for secret in secrets if secret]

    async def send(self, call: HttpCall) -> Reply:
        """Pass a call on."""
        return _Taken(await self._transport.send(call), call, self)

    async def close(self) -> None:
        """Let go of all connections."""
        await self._transport.close()

    def write(self, exchange: Exchange) -> None:
        """Add an exchange to the file, in one go."""
        head = _Line(
            call=exchange.call,
            prompt=exchange.hash,
            status=exchange.status,
            headers=exchange.headers,
            request=exchange.request,
        )
        lines = [head, *_lines_of(_starred(exchange.pieces, self._secrets))]
        if exchange.broken:
            lines.append(_Line(broken=True))
        data = b"".join(msgspec.json.encode(line) + b"\n" for line in lines)
        for secret in self._secrets:
            data = data.replace(secret.encode(), b"*" * len(secret.encode()))
        try:
            with self._path.open("ab") as file:
                file.write(data)
        except OSError as error:
            message = f"cannot write the recording {self._path}: {error.strerror}"
            raise InvalidInput(message, expected="a file that can be written") from None


class _Taken:
    """An answer that is written down as it is read."""

    def __init__(self, reply: Reply, call: HttpCall, recorder: _Recorder) -> None:
        self.status = reply.status
        self.headers: Mapping[str, str] = reply.headers
        self._reply = reply
        self._recorder = recorder
        kept = {name: reply.headers[name] for name in _KEPT_HEADERS if name in reply.headers}
        request = msgspec.json.decode(call.body) if call.body else None
        self._exchange = Exchange(
            f"{call.method} {call.path}", hash_of(call), reply.status, kept, request=request, pieces=[]
        )
        self._before = time.monotonic()
        self._written = False

    async def read(self) -> bytes:
        """More of the body."""
        try:
            data = await self._reply.read()
        except UpstreamError:
            self._end(broken=True)
            raise
        now = time.monotonic()
        if data:
            self._exchange.pieces.append((round(now - self._before, 3), data))
            self._before = now
        else:
            self._end()
        return data

    def close(self) -> None:
        """Let go of it. What was not read is not in the recording."""
        self._reply.close()
        self._end()

    def _end(self, broken: bool = False) -> None:
        if not self._written:
            self._written = True
            self._exchange.broken = broken
            self._recorder.write(self._exchange)


def _lines_of(pieces: list[tuple[float, bytes]]) -> list[_Line]:
    """Each piece as a line; a piece that ends inside a character takes its rest from the next one."""
    lines: list[_Line] = []
    rest = b""
    for number, (after, data) in enumerate(pieces):
        content, rest = rest + data, b""
        last = number + 1 == len(pieces)
        cut = 0 if last else _cut_bytes(content)
        content, rest = content[: len(content) - cut], content[len(content) - cut :]
        pause = after if after >= _PAUSE else 0
        try:
            lines.append(_Line(after=pause, text=content.decode()))
        except UnicodeDecodeError:
            lines.append(_Line(after=pause, base64=base64.b64encode(content).decode()))
    return lines


_UNFINISHED = re.compile(rb"(?:[\xc2-\xf4]|[\xe0-\xf4][\x80-\xbf]|[\xf0-\xf4][\x80-\xbf]{2})\Z")


def _cut_bytes(data: bytes) -> int:
    """How many bytes at the end begin a character that goes on."""
    found = _UNFINISHED.search(data, max(0, len(data) - 3))
    return len(found[0]) if found else 0


def _starred(pieces: list[tuple[float, bytes]], secrets: Sequence[str]) -> list[tuple[float, bytes]]:
    """The pieces with stars for every secret, also for one that two pieces share."""
    joined = b"".join(data for _, data in pieces)
    for secret in secrets:
        joined = joined.replace(secret.encode(), b"*" * len(secret.encode()))
    out, at = [], 0
    for after, data in pieces:
        out.append((after, joined[at : at + len(data)]))
        at += len(data)
    return out
