"""Owns what a refusal tells beside its words: when to try again, and where a server says that it is."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from datetime import UTC
from email.utils import parsedate_to_datetime
from urllib.parse import urljoin, urlsplit, urlunsplit

from turnscript.backends.shared.server_errors import SHOWN
from turnscript.core.error_kinds import fault_of
from turnscript.core.errors import TurnscriptError, UpstreamError

_LONGEST = 1e9  # seconds; nobody waits for longer
SOME_TIME = 5.0
"""Seconds until a client may try again where the model server that has no room for it does not say when."""
_FULL = ("rate_limited", "overloaded")


def seconds_to_wait(headers: Mapping[str, str]) -> float | None:
    """What `retry-after` says: seconds, or a date by the server's own clock, which may be another one than ours. OpenAI
    and Azure say it in milliseconds, too."""
    exact = _number(headers.get("retry-after-ms", ""))
    said = headers.get("retry-after", "") if exact is None else str(exact / 1000)
    when = _timestamp(said)
    if when is None:
        wait = _number(said)
        return abs(wait) if wait is not None and 0 <= wait < _LONGEST else None  # of -0, too
    now = _timestamp(headers.get("date", ""))
    wait = when - (time.time() if now is None else now)
    return wait if 0 < wait < _LONGEST else None


def say_when(error: TurnscriptError) -> None:
    """See to it that an error by which clients are to come again later says when: some wait for no other word."""
    if isinstance(error, UpstreamError) and error.retry_after is None and fault_of(error).kind in _FULL:
        error.retry_after = SOME_TIME


def _number(said: str) -> float | None:
    try:
        number = float(said) if said.isascii() and "_" not in said else math.nan
    except ValueError:
        return None
    return number if math.isfinite(number) else None


def _timestamp(said: str) -> float | None:
    """A date of HTTP as seconds. One that names no zone, as the oldest form does, is in GMT like all others."""
    try:
        when = parsedate_to_datetime(said)
        return (when if when.tzinfo is not None else when.replace(tzinfo=UTC)).timestamp()
    except (ValueError, OverflowError):
        return None


def redirected(status: int, asked: str, path: str, location: str, *, told: bool = True) -> UpstreamError:
    """The error for an answer that is elsewhere. Nobody goes there: the key for this server is for no other one.

    `asked`: the URL, whose end is `path`. What may be secret in a URL is not shown; where it is not `told`, none is.
    """
    where = _where(asked, location) if location else None
    if not told:
        said = "and points elsewhere; check the URL"
    elif where is None:
        said = "and does not say where to; check the URL"
    elif where.endswith(path):
        said = f"and points elsewhere; give the gateway the URL {where.removesuffix(path)}"
    else:
        said = f"and points to {where}; check the URL"
    return UpstreamError(f"the model server answers {status} {said}", upstream=status)


def _where(asked: str, location: str) -> str | None:
    try:
        parts = urlsplit(urljoin(asked, location))
    except ValueError:
        return None
    host = parts.netloc.rpartition("@")[2]
    if parts.scheme not in ("http", "https") or not host:
        return None
    return urlunsplit((parts.scheme, host, parts.path, "", ""))[:SHOWN]
