"""Owns the headers of a request and its answer: by small names, which request it is, and what it says of losses."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from msgspec import Struct

from turnscript.gateway.kinds import fits_header

RawHeaders = list[tuple[bytes, bytes]]

LOSSES = "x-turnscript-losses"
PREFIX = "x-turnscript-prefix"
REPORT = "x-turnscript-report"
POLICY = "x-turnscript-loss-policy"
COUNTED = "x-turnscript-token-count"
TRAINED = "x-turnscript-trained-context"
UPSTREAM = "x-turnscript-upstream-request"

NONE_LOST = {LOSSES: "0"}
"""What an answer has for which nothing was converted."""

CUT = "turnscript.cut"
"""An extension of ASGI, where the gateway's own server has it: `cut` cuts the connection of a request."""

_LOSSES, _PREFIX, _REPORT, _TRAINED = LOSSES.encode(), PREFIX.encode(), REPORT.encode(), TRAINED.encode()
_LIMITS = ("x-ratelimit-", "anthropic-ratelimit-")
_JSON = b"application/json"


def by_name(raw: Iterable[tuple[bytes, bytes]]) -> dict[str, str]:
    """Headers as ASGI gives them, the names in small letters; of a repeated one, the last."""
    return {name.decode("latin-1"): value.decode("latin-1") for name, value in raw}


def cut_of(scope: Mapping[str, Any]) -> Callable[[], None]:
    """What cuts the connection of a request; nothing, on a server that cannot."""
    cut: Callable[[], None] = scope.get("extensions", {}).get(CUT, {}).get("cut", _nothing)
    return cut


def _nothing() -> None:
    """The server ends the connection itself, when the answer to its request is not whole."""


def credentials(headers: Mapping[str, str]) -> tuple[str | None, str | None]:
    """What a client offers as its key: the bearer token, and the one of `x-api-key`."""
    scheme, _, token = headers.get("authorization", "").partition(" ")
    return (token.strip() if scheme.lower() == "bearer" else None), headers.get("x-api-key")


def new_request_id() -> str:
    """An id for a request."""
    return f"req_{random_hex(12)}"


class Told(Struct):
    """What the headers of an answer say of how it was made. `losses`: None where nobody is to be told of them.
    `trained`: the tokens of its prompt and those that its model was trained with, where these are fewer. `theirs`: what
    the head of the server's answer said that is for the client, too."""

    losses: int | None = 0
    reused: int = 0
    total: int = 0
    report: str = ""
    trained: str = ""
    theirs: RawHeaders = []

    def raw(self) -> RawHeaders:
        """The headers."""
        headers = [] if self.losses is None else [(_LOSSES, b"%d" % self.losses)]
        headers.append((_PREFIX, b"%d/%d" % (self.reused, self.total)))
        if self.report:
            headers.append((_REPORT, self.report.encode()))
        if self.trained:
            headers.append((_TRAINED, self.trained.encode()))
        return headers + self.theirs


def for_clients(theirs: Mapping[str, str]) -> RawHeaders:
    """What of a server's headers is for the clients of a gateway: its limits, and the id that it has for a request."""
    found = {name.lower(): value for name, value in theirs.items()}
    told = {name: value for name, value in found.items() if name.startswith(_LIMITS)}
    if id_ := found.get("request-id") or found.get("x-request-id"):
        told[UPSTREAM] = id_
    return [(key.encode(), value.encode()) for key, value in told.items() if fits_header(value, words=True)]


def json_headers(length: int, more: Mapping[str, str], told: RawHeaders | None = None) -> RawHeaders:
    """The headers of a JSON body."""
    raw = [(b"content-type", _JSON), (b"content-length", b"%d" % length)]
    return raw + [(key.encode(), value.encode()) for key, value in more.items()] + (told or [])


def stream_headers(more: Mapping[str, str], told: RawHeaders) -> RawHeaders:
    """The headers of a stream beside its type. Nobody on the way is to keep it back or to change it."""
    raw = [(b"cache-control", b"no-cache, no-transform"), (b"x-accel-buffering", b"no")]
    return raw + [(key.encode(), value.encode()) for key, value in more.items()] + told


# Ids that nobody can guess: random texts, for which the operating system is asked once for many of them.

_LONGEST = 16  # bytes
_AT_ONCE = 256

_ready: list[str] = []


def random_hex(size: int) -> str:
    """A text of twice as many characters as `size` has bytes, at most 16. Each is given once."""
    while True:
        try:
            return _ready.pop()[: 2 * size]
        except IndexError:
            text, width = os.urandom(_LONGEST * _AT_ONCE).hex(), 2 * _LONGEST
            _ready.extend([text[at : at + width] for at in range(0, len(text), width)])


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_ready.clear)  # or both would give the same ones
