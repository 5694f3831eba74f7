"""Owns faults: which of a dozen kinds an error is of, which every API then says in its own words.

The gateway's errors keep their status. A refusal of something that a target cannot say is the client's to mend, so it
is a bad request. A backend's own refusal of too much text, of too many requests or of a bad one is passed on as such;
whatever else it failed in is a bad gateway.
"""

from __future__ import annotations

import re
from typing import Literal

from msgspec import Struct

from turnscript.errors import InvalidInput, LossyConversion, TurnscriptError, UnknownName, Unsupported, UpstreamError

Kind = Literal[
    "bad_request",
    "unauthorized",
    "forbidden",
    "not_found",
    "unknown_model",
    "conflict",
    "too_large",
    "overflow",
    "rate_limited",
    "overloaded",
    "timeout",
    "server",
]


class Fault(Struct, frozen=True):
    """An error as a client is told it: `path` is the JSON path in the request, `limit` and `asked` token counts of an
    overflow where they are known."""

    kind: Kind
    status: int
    message: str
    path: str = ""
    limit: int | None = None
    asked: int | None = None


_KINDS: dict[int, Kind] = {
    400: "bad_request",
    401: "unauthorized",
    403: "forbidden",
    404: "not_found",
    408: "timeout",
    409: "conflict",
    413: "too_large",
    422: "bad_request",
    429: "rate_limited",
    503: "overloaded",
    504: "timeout",
    529: "overloaded",
}

_OVERFLOW = re.compile(
    r"context_length_exceeded|exceed_context_size|maximum context length|available context size|context window"
    r"|prompt is too long|exceeds? the (model's )?context|context limit",
    re.IGNORECASE,
)
_ASKED = re.compile(r"(?:request \(|requested |too long: |\"n_prompt_tokens\": ?)(\d+)", re.IGNORECASE)
_LIMIT = re.compile(
    r"(?:context length is |context size \(|context length of |tokens > |\"n_ctx\": ?)(\d+)", re.IGNORECASE
)


def fault_of(error: TurnscriptError) -> Fault:
    """What kind of failure an error is, with its status, its message and its place in the request."""
    if isinstance(error, UpstreamError):
        return _upstream(error)
    if isinstance(error, LossyConversion):
        return Fault("bad_request", 400, str(error), error.losses[0].path if error.losses else "")
    if isinstance(error, Unsupported):
        return Fault("bad_request", 400, str(error))
    if isinstance(error, UnknownName):
        return Fault("unknown_model" if error.kind == "model" else "not_found", 404, str(error))
    path = error.path if isinstance(error, InvalidInput) else ""
    kind = _KINDS.get(error.status, "server" if error.status >= 500 else "bad_request")
    return Fault(kind, 400 if error.status == 422 else error.status, str(error), path)


def _upstream(error: UpstreamError) -> Fault:
    message = str(error)
    said = f"{message}\n{error.body}"
    if error.upstream in (None, 400, 413, 422, 500) and _OVERFLOW.search(said):
        return Fault("overflow", 400, message, limit=_number(_LIMIT, said), asked=_number(_ASKED, said))
    if error.upstream in (429, 503, 529):
        return Fault(_KINDS[error.upstream], 429 if error.upstream == 429 else 503, message)
    if error.upstream in (400, 413, 422):
        return Fault(_KINDS[error.upstream], 413 if error.upstream == 413 else 400, message)
    if error.upstream in (408, 504) or error.status == 504:
        return Fault("timeout", 504, message)
    return Fault("server", error.status, message)


def _number(pattern: re.Pattern[str], text: str) -> int | None:
    found = pattern.search(text)
    return int(found[1][:18]) if found else None
