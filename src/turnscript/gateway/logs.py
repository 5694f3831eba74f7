"""Owns logs: a JSON object a line on stderr, or a short line for people; no secret and no conversation is in them."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import re
import select
import sys
import threading
import traceback
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from functools import cache, lru_cache
from time import time
from typing import Any, TextIO

import msgspec

LOGGER = "turnscript"

log = logging.getLogger(LOGGER)


def say(level: int, event: str, /, **fields: Any) -> None:
    """Log an event: a stable word, and what belongs to it. Fields hold names, numbers and ids; texts of users never."""
    if not log.isEnabledFor(level):
        return
    handlers = log.handlers
    first = handlers[0] if len(handlers) == 1 and not log.filters else None
    if type(first) is _Handler and first.told(level, event, fields):
        return
    record = log.makeRecord(LOGGER, level, "", 0, event, (), None)  # nobody wants to know which line of code it was
    record.fields = fields
    log.handle(record)


class _Formatter(logging.Formatter):
    """What both kinds share. `redact`: messages of foreign errors are left out, because a text may be in them."""

    def __init__(self, *, redact: bool = True) -> None:
        super().__init__()
        self._redact = redact

    def formatException(self, ei: Any) -> str:  # noqa: N802  (its name in the standard library)
        """Where it happened, and which error it was."""
        if not self._redact:
            return super().formatException(ei)
        told, error = [], ei[1]
        while error is not None:
            told.append("".join(traceback.format_tb(error.__traceback__)) + type(error).__name__)
            error = error.__cause__ or error.__context__
        return "\n\n".join(told[::-1])


class JsonLines(_Formatter):
    """A record as a JSON object."""

    def format(self, record: logging.LogRecord) -> str:
        fields = getattr(record, "fields", {})
        if record.exc_info:
            fields = {**fields, "traceback": self.formatException(record.exc_info)}
        return self.line(record.created, record.levelno, record.getMessage(), fields)

    def line(self, created: float, level: int, event: str, fields: Mapping[str, Any]) -> str:
        """What is told of an event."""
        text = _encoded({"time": _time(created), "level": _level(level), "event": event, **fields})
        return text if text.isprintable() else _UNSEEN.sub(_as_json, text)


def _encoded(line: dict[str, Any]) -> str:
    try:
        return msgspec.json.encode(line, enc_hook=str).decode()
    except UnicodeEncodeError:  # bytes in a server's head that are no text
        return json.dumps(line, default=str)


class Lines(_Formatter):
    """A record as a line that people read."""

    def format(self, record: logging.LogRecord) -> str:
        line = self.line(record.created, record.levelno, record.getMessage(), getattr(record, "fields", {}))
        if not record.exc_info:
            return line
        traced = self.formatException(record.exc_info).split("\n")
        return "\n".join([line, *(_UNSEEN.sub(_as_text, one) for one in traced)])

    def line(self, created: float, level: int, event: str, fields: Mapping[str, Any]) -> str:
        """What is told of an event."""
        said = {key: value for key, value in fields.items() if value is not None}
        line = _shape(int(created), level, event, *said) % tuple(said.values())
        return line if _is_seen(line) else _UNSEEN.sub(_as_text, line)


@lru_cache(maxsize=16)
def _shape(second: int, level: int, *said: str) -> str:
    """The line of an event, and of what is known of it, to put the values into: all at once takes half the time."""
    event, *keys = [one.replace("%", "%%") for one in said]
    return " ".join([f"{_second(second)[11:]} {_level(level):7} {event}", *[f"{key}=%s" for key in keys]])


def _is_seen(line: str) -> bool:
    """Whether nothing in a line is `_UNSEEN`, as in most; looked at faster than the pattern does.

    JSON writes what it does not escape as it stands, which is known many times as fast as what Python knows of each
    character.
    """
    plain = line.isascii() and "\x7f" not in line and len(_as_json_text(line)) == len(line) + 2
    return plain or line.isprintable()


_as_json_text = msgspec.json.Encoder().encode


_UNSEEN = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
"""What would end a line, move the cursor or turn the writing round. A model server may put it into what it says."""


def _as_text(found: re.Match[str]) -> str:
    return ascii(found[0])[1:-1]


def _as_json(found: re.Match[str]) -> str:
    return f"\\u{ord(found[0]):04x}"


@cache
def _level(level: int) -> str:
    return logging.getLevelName(level).lower()


def _time(created: float) -> str:
    second, thousandths = divmod(int(created * 1000), 1000)
    return f"{_second(second)}.{thousandths:03}Z"


@lru_cache(maxsize=4)
def _second(second: int) -> str:
    return datetime.fromtimestamp(second, UTC).strftime("%Y-%m-%dT%H:%M:%S")


class _Gathering:
    """A stream whose lines wait for others for a moment, while an event loop runs: a line each would cost a tenth of a
    request.

    Lines that cannot be written, because a disk is full or whoever read them is gone, are no reason to stop serving.
    Nor is one who reads them slowly or has stopped: they wait, some of them. `unwritten` is told how many were lost,
    once lines can be written again.
    """

    def __init__(self, stream: TextIO, unwritten: Callable[[int], object]) -> None:
        self._stream = stream
        self._outlet = _outlet(stream)
        self._unwritten = unwritten
        self._failed = 0
        self._lines: list[str] = []
        self._waiting = b""
        self._lock = threading.Lock()
        self._timer: asyncio.TimerHandle | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    def writes_to(self, stream: TextIO) -> bool:
        """Whether it is that of a stream."""
        return self._stream is stream

    def write(self, text: str) -> None:
        with self._lock:  # else it may go into a list whose lines have just been written
            self._lines.append(text)

    def flush(self) -> None:
        """Write soon what there is; at once where there is no loop, as at the end of the process."""
        if self._timer is not None and self._loop is not None and self._loop.is_running():
            return  # a loop that has ended keeps its timers to itself
        try:
            loop = self._loop = asyncio.get_running_loop()
        except RuntimeError:
            self.pour()
            return
        self._timer = loop.call_later(_LATER if self._waiting else _MOMENT, self._again)

    def _again(self) -> None:
        self._timer = None
        self.pour()
        if self._waiting:
            self.flush()

    def pour(self, patience: float = 0) -> None:
        """Write now what there is, as far as it is taken within so many seconds."""
        failed = 0
        with self._lock:
            lines, self._lines = self._lines, []
            if not lines and not self._waiting:
                return
            try:
                self._write(lines, patience)
            except (OSError, ValueError):  # the latter where the stream is closed
                self._failed += len(lines)
                self._waiting = b""
            else:
                if not self._waiting:
                    failed, self._failed = self._failed, 0
        if failed:
            self._unwritten(failed)

    def _write(self, lines: list[str], patience: float) -> None:
        text = "".join(lines)
        if self._outlet is None:
            self._stream.write(text)
            self._stream.flush()
            return
        if len(self._waiting) < _MOST_WAITING:
            self._waiting += text.encode(errors="backslashreplace")
        else:
            self._failed += len(lines)
        while self._waiting and self._outlet.poll(1000 * patience):
            piece = self._waiting[: select.PIPE_BUF]  # so much is taken at once where anything is
            self._waiting = self._waiting[os.write(self._stream.fileno(), piece) :]


_MOMENT = 0.02
_LATER = 0.2
"""Seconds until lines are offered again that were not taken."""
_PATIENCE = 1.0
"""Seconds in which the last lines may be taken."""
_MOST_WAITING = 256 * 1024


def _outlet(stream: TextIO) -> select.poll | None:
    """What tells whether a stream takes anything; None for one that always does."""
    if not hasattr(select, "poll"):
        return None
    try:
        outlet = select.poll()
        outlet.register(stream.fileno(), select.POLLOUT)
    except (OSError, ValueError):  # it is no file
        return None
    return outlet


class _Handler(logging.StreamHandler[_Gathering]):
    """Writes records, warnings and what is worse at once."""

    formatter: JsonLines | Lines

    def told(self, level: int, event: str, fields: Mapping[str, Any]) -> bool:
        """Write an event of ours without a record, which would cost more than its line. False where it cannot be
        written so: of a record, the standard library tells why."""
        if level < self.level or self.filters:
            return False
        try:
            line = self.formatter.line(time(), level, event, fields)
        except (TypeError, ValueError, ArithmeticError, RecursionError):  # a line of a log stops no request
            return False
        self.stream.write(line + self.terminator)
        self.stream.flush()
        if level >= logging.WARNING:
            self.stream.pour()
        return True

    def emit(self, record: logging.LogRecord) -> None:
        super().emit(record)
        if record.levelno >= logging.WARNING:
            self.stream.pour()

    def flush(self) -> None:
        """Write soon what there is; without the lock, which whoever emits has already."""
        self.stream.flush()

    def close(self) -> None:
        """Write the last lines."""
        self.stream.pour(_PATIENCE)
        super().close()


def set_up(level: str = "info", *, as_json: bool = True, redact: bool = True, stream: TextIO | None = None) -> None:
    """Send the logs of the gateway, and the warnings of what it is built on, to stderr; nowhere if that is closed."""
    # What no line of ours tells need not be found out for each.
    logging.logThreads = logging.logProcesses = logging.logMultiprocessing = False
    stream = stream or sys.stderr
    handler = logging.NullHandler() if stream is None else _Handler(_gathering(stream))
    handler.setFormatter(JsonLines(redact=redact) if as_json else Lines(redact=redact))
    for name, least in (
        (LOGGER, level.upper()),
        ("uvicorn.error", "WARNING"),
        ("aiohttp", "WARNING"),
        ("asyncio", "WARNING"),
    ):
        logger = logging.getLogger(name)
        logger.handlers, logger.propagate = [handler], False
        logger.setLevel(least)


def _gathering(stream: TextIO) -> _Gathering:
    """The one of a stream: what waits in another would come between the lines of this one, and into them."""
    for handler in logging.getLogger(LOGGER).handlers:
        if isinstance(handler, _Handler) and handler.stream.writes_to(stream):
            return handler.stream
    return _Gathering(stream, _say_unwritten)


def _say_unwritten(lines: int) -> None:
    say(logging.WARNING, "the log could not be written", lines=lines)
