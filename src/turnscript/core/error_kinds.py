"""Owns faults: which of a dozen kinds an error is of, which every API then says in its own words and headers.

The gateway's errors keep their status. A refusal of something that a target cannot say is the client's to mend, so it
is a bad request. A backend's own refusal of too much text, of too many requests or of a bad one is passed on as such;
whatever else it failed in is a bad gateway.
"""

from __future__ import annotations

import math
import re
from typing import Any, Literal

from msgspec import Struct

from turnscript.core.errors import (
    Conflict,
    ContextOverflow,
    LossyConversion,
    NotFound,
    Timeout,
    TurnscriptError,
    UnknownName,
    Unsupported,
    UpstreamError,
    type_of,
)

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
    "no_quota",
    "overloaded",
    "timeout",
    "server",
]


class Fault(Struct, frozen=True):
    """An error as a client is told it.

    `path`: the JSON path in the request. `limit`, `asked`, `output`: the token counts of an overflow, where they are
    known: of the model, the prompt, and the answer that was asked for. `retry_after`: seconds to wait. `retry`: whether
    trying again may help; None where nobody knows better than the client.
    """

    kind: Kind
    status: int
    message: str
    path: str = ""
    limit: int | None = None
    asked: int | None = None
    output: int = 0
    retry_after: float | None = None
    retry: bool | None = None


_KINDS: dict[int, Kind] = {
    400: "bad_request",
    401: "unauthorized",
    402: "no_quota",
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
_PASSED_ON = {400: 400, 402: 429, 413: 413, 422: 400, 429: 429, 503: 503, 529: 503}
"""What a backend refused, as the status that a client is told; its other failures are a bad gateway."""
_RETRY: dict[Kind, bool] = {
    "rate_limited": True,
    "overloaded": True,
    "timeout": True,
    "no_quota": False,
    "unauthorized": False,  # Claude Code tries for minutes otherwise, and says nothing
}

_OVERFLOW = re.compile(
    r"context_length_exceeded|exceed_context_size|maximum context length|available context size|context window"
    r"|prompt is too long|exceeds? the (model's )?context|context limit"
    r"|max_tokens must be at least 1, got 0",  # which is what vLLM leaves of any number behind a prompt that fills it
    re.IGNORECASE,
)
_ASKED = re.compile(
    r"(?:request \(|requested |total of (?:at least )?|too long: |\"n_prompt_tokens\": ?)(\d+)\b(?! output)",
    re.IGNORECASE,
)
_LIMIT = re.compile(
    r"(?:context length is |context size \(|context length of |tokens > |\"n_ctx\": ?)(\d+)", re.IGNORECASE
)
_SENTENCES = tuple(
    re.compile(sentence, re.IGNORECASE | re.DOTALL)
    for sentence in (
        # vLLM, which has said it in several ways
        r"context length is (?P<limit>\d+) tokens\. However, your prompt contains (?:at least )?(?P<asked>\d+) input",
        r"passed (?P<asked>\d+) input tokens and requested (?P<output>\d+) .{0,60}? length is only (?P<limit>\d+)",
        r"prompt \(length (?P<asked>\d+)\) is longer than the maximum model length of (?P<limit>\d+)",
        r"prompt \(total length (?P<asked>\d+)\) is too long to fit into the model \(context length (?P<limit>\d+)",
        # SGLang
        r"input \((?P<asked>\d+) tokens\) is longer than the model's context length \((?P<limit>\d+)",
        r"input length \((?P<asked>\d+) tokens\) .{0,80}?exceeds the .{0,80}?\((?P<limit>\d+) tokens",
        # TGI
        r"`max_new_tokens` must be <= (?P<limit>\d+)\. Given: (?P<asked>\d+) `inputs` tokens and (?P<output>\d+)",
        r"`inputs` must have less than (?P<limit>\d+) tokens\. Given: (?P<asked>\d+)",
        # llama-cpp-python, LM Studio
        r"requested tokens \((?P<asked>\d+)\) exceed context window of (?P<limit>\d+)",
        r"keep the first (?P<asked>\d+) tokens .{0,80}? context length of only (?P<limit>\d+)",
    )
)
"""Overflows that servers tell in words of their own."""
# As servers say how much of what they refuse is the prompt, and how much there may be: OpenAI, vLLM, SGLang, TGI.
_PROMPT = re.compile(
    r"(at least )?\b(\d+) (?:input tokens|in (?:the|your) (?:prompt|messages)|tokens from the input|`inputs` tokens)"
)
_TOO_MANY = re.compile(r"max_tokens=\d+ cannot be greater than max_model_len=(\d+)")
_MOST = re.compile(r"(?:context length is (?:only )?|context length of |must be <= )(\d+)")
_NO_QUOTA = re.compile(r"\"(?:code|type)\"\s*:\s*\"(?:insufficient_quota|billing_error)\"")


def fault_of(error: TurnscriptError) -> Fault:
    """What kind of failure an error is, with its status, its message and its place in the request."""
    if isinstance(error, UpstreamError):
        return _upstream(error)
    message = str(error)
    if isinstance(error, ContextOverflow):
        return Fault("overflow", 400, message, limit=error.limit, asked=error.asked, output=error.output)
    if isinstance(error, LossyConversion):
        return Fault("bad_request", 400, message, error.losses[0].path if error.losses else "")
    if isinstance(error, Unsupported):
        return Fault("bad_request", 400, message, error.path)
    path = str(getattr(error, "path", ""))
    if isinstance(error, UnknownName | NotFound):
        return Fault("unknown_model" if error.kind == "model" else "not_found", 404, message, path)
    try:
        status = error.status
    except AttributeError:
        raise TypeError(f"expected a TurnscriptError, got {type_of(error)}; write TurnscriptError(str(...))") from error
    kind = _KINDS.get(status, "server" if status >= 500 else "bad_request")
    status = 400 if status == 422 else status
    # Clients try a conflict again by themselves, and it would only happen again.
    retry = False if isinstance(error, Conflict) else _RETRY.get(kind)
    return Fault(kind, status, message, path, retry_after=getattr(error, "retry_after", None), retry=retry)


def _upstream(error: UpstreamError) -> Fault:
    message = str(error)
    said = f"{message}\n{error.body}"
    if error.upstream in (None, 400, 413, 422, 500) and (counts := _overflow(said)) is not None:
        return Fault("overflow", 400, message, **counts)
    kind: Kind
    if error.upstream in (None, 402, 403, 429) and _NO_QUOTA.search(error.body):
        kind, status = "no_quota", 429
    elif error.upstream in _PASSED_ON:
        kind, status = _KINDS[error.upstream], _PASSED_ON[error.upstream]
    elif error.upstream in (408, 504) or isinstance(error, Timeout):
        kind, status = "timeout", 504
    else:
        kind, status = "server", error.status
    retry = _RETRY.get(kind, error.retryable or None)
    return Fault(kind, status, message, retry_after=error.retry_after, retry=retry)


def _overflow(said: str) -> dict[str, Any] | None:
    """The token counts that a server tells of a prompt that does not fit, as a `Fault` has them; None for all else.

    Counts that would fit are not those of what did not: nobody is told that so few are too many.
    """
    counts = _counts(said)
    if counts is None or None in counts.values() or counts["asked"] + counts.get("output", 0) > counts["limit"]:
        return counts
    return {"limit": counts["limit"], "asked": None}


def _counts(said: str) -> dict[str, Any] | None:
    told = next((found for sentence in _SENTENCES if (found := sentence.search(said))), None)
    if told is not None:
        return {name: int(count[:18]) for name, count in told.groupdict().items()}
    if _OVERFLOW.search(said):
        return {"limit": _number(_LIMIT, said), "asked": _number(_ASKED, said)}
    return None


class Room(Struct, frozen=True):
    """The tokens of a prompt, and how many an answer may have behind it; at least and at most, unless `exact`."""

    prompt: int
    left: int
    exact: bool


def room_said(error: UpstreamError, output: int) -> Room | None:
    """What a backend says that refused not the prompt but the length of the answer; None where it says no such thing.
    `output`: how long it was to be.

    Where only one number is told, it is that of the prompt if it would fit, else that of both, if that can be. One that
    has read no further than would fit says at least how long the prompt is. One that has not looked at it, because
    there are never so many tokens, says nothing of it: as if there were none.
    """
    said = f"{error}\n{error.body}"
    if error.upstream not in (None, 400, 413, 422):
        return None
    if whole := _number(_TOO_MANY, said):
        return Room(0, whole, exact=True)
    found, most = _PROMPT.search(said), _number(_MOST, said)
    if found is None or most is None:
        found, counts = None, _counts(said) or {}
        most, asked = counts.get("limit"), counts.get("asked")
        if most is None or asked is None:
            return None
        prompt: int = asked - output if asked > most else asked
    else:
        prompt = int(found[2][:18])
    return Room(prompt, most - prompt, found is None or not found[1]) if 0 < prompt < most else None


def _number(pattern: re.Pattern[str], text: str) -> int | None:
    found = pattern.search(text)
    return int(found[1][:18]) if found else None


def retry_headers(fault: Fault) -> dict[str, str]:
    """The headers that tell a client when to try again, and whether: as the official SDKs read them."""
    headers = {}
    if fault.retry_after is not None and 0 <= fault.retry_after < math.inf:
        headers["retry-after"] = str(math.ceil(fault.retry_after))
        headers["retry-after-ms"] = str(math.ceil(fault.retry_after * 1000))
    if fault.retry is not None:
        headers["x-should-retry"] = "true" if fault.retry else "false"
    return headers
