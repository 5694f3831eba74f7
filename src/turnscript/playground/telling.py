"""Owns what every result of the playground tells: what a source was taken for, what was lost, and what is wrong."""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import suppress

import msgspec
from msgspec import Struct

from turnscript.convert.recognition import AUTO, recognised, wrapped
from turnscript.convert.recording import api_of
from turnscript.convert.registry import apis, get_format, is_format, is_stream, lookup, named_formats
from turnscript.core.errors import InvalidInput, TurnscriptError, UnknownName, Unsupported
from turnscript.core.exchange import Exchange
from turnscript.core.json_text import one_line
from turnscript.core.losses import Loss, LossKind, summary
from turnscript.playground.offered import templates
from turnscript.playground.places import Place, Places

MOST_LOSSES = 500
"""So many are listed one by one."""
REQUEST, ANSWER, STREAM, TRANSCRIPT = "request", "answer", "recorded stream", "transcript"


class Recognised(Struct):
    """What a source was taken for. `name`: the API's or format's; `what`: one of the four words above, or nothing."""

    name: str
    title: str
    what: str


class Lost(Struct):
    """A loss, and where in the source that is which was lost."""

    path: str
    kind: LossKind
    detail: str
    place: Place | None


class Losses(Struct):
    """What was lost. `more`: how many are not listed."""

    summary: str
    listed: list[Lost]
    more: int = 0


class Fault(Struct):
    """What is wrong. `where`: a JSON path, or a line and column, in words."""

    message: str
    code: str
    where: str = ""
    expected: str = ""
    place: Place | None = None


def check_name(name: str, *, formats_only: bool = False) -> None:
    """Raise UnknownName for what is no name. A path of a file is none: who asks may not have files read."""
    if name == AUTO and not formats_only:
        return
    known = [*([] if formats_only else apis()), *(templates() if formats_only else ()), *named_formats()]
    if name not in known:
        raise UnknownName("format" if formats_only else "API or format", name, known)


def recognise(source: str, name: str, said: object = None) -> Recognised | None:
    """What a source was taken for; `said`: what was read from it. None where it cannot be told."""
    with suppress(TurnscriptError):
        what = ""
        if is_stream(source) and (name == AUTO or not is_format(name)):
            name, what = api_of(source).name, STREAM
        elif name == AUTO:
            name, answers = recognised(wrapped(source))
            what = ANSWER if answers else REQUEST
        elif said is not None:
            what = ANSWER if isinstance(said, Exchange) else REQUEST
        if is_format(name):
            return Recognised(name, get_format(name).title, TRANSCRIPT)
        return Recognised(name, lookup(name).title, what)
    return None


def losses_of(lost: Sequence[Loss], source: str) -> Losses:
    """Losses with their places."""
    shown = lost[:MOST_LOSSES]
    places = Places(source, [loss.path for loss in shown])
    listed = [Lost(loss.path, loss.kind, loss.detail, places.of(loss.path)) for loss in shown]
    return Losses(summary(lost), listed, len(lost) - len(shown))


def fault_of(error: TurnscriptError, source: str = "", line: int = 0) -> Fault:
    """An error with its place. `source`: what it is about; `line`: where in it, if the error does not say that."""
    if line:
        return Fault(str(error), error.code, f"line {line}", place=Places(source).line(line))
    if isinstance(error, InvalidInput):
        expected = "" if error.expected in error.message else error.expected
        if error.line and not error.path:
            place = Places(source).line(error.line, error.column)
        else:
            place = Places(source, [error.path]).of(error.path) if error.path else None
        return Fault(error.message, error.code, error.where, expected, place)
    if isinstance(error, Unsupported):
        place = Places(source, [error.path]).of(error.path) if error.path else None
        return Fault(error.message, error.code, error.path, place=place)
    return Fault(str(error), error.code)


def pretty(body: bytes) -> str:
    """JSON for people. Numbers, escapes and the order of keys stay as they are."""
    try:
        return msgspec.json.format(body, indent=2).decode()
    except RecursionError:  # nested too deep for this
        return one_line(body).decode()


def encoded(result: Struct) -> bytes:
    """A result as JSON. Half of a surrogate pair, which no UTF-8 can hold, is an escape."""
    try:
        return msgspec.json.encode(result)
    except UnicodeEncodeError:
        return json.dumps(msgspec.to_builtins(result)).encode()
