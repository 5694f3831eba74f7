"""Owns errors as this API's clients know them: the body, its type and status, and what an upstream's error means.

A context that is too long is worded exactly as clients look for it, wherever the error came from: on that sentence they
make their conversation shorter instead of giving up.
"""

from __future__ import annotations

import re
from typing import Any

import msgspec

from turnscript.apis.api import Body
from turnscript.core.error_kinds import Fault, Kind, fault_of
from turnscript.core.errors import InvalidInput, InvalidRequest, TurnscriptError, UpstreamError
from turnscript.core.json_text import Json, excerpt, plain

_KINDS: dict[Kind, tuple[int, str]] = {
    "bad_request": (400, "invalid_request_error"),
    "overflow": (400, "invalid_request_error"),
    "unauthorized": (401, "authentication_error"),
    "forbidden": (403, "permission_error"),
    "not_found": (404, "not_found_error"),
    "unknown_model": (404, "not_found_error"),
    "conflict": (409, "conflict_error"),
    "too_large": (413, "request_too_large"),
    "rate_limited": (429, "rate_limit_error"),
    "no_quota": (402, "billing_error"),
    "overloaded": (529, "overloaded_error"),
    "timeout": (504, "timeout_error"),
    "server": (500, "api_error"),
}
_BY_STATUS = (405, 408, 415)
"""What HTTP itself has a word for, and clients and proxies know by it."""
_STATUS = {type_: status for status, type_ in _KINDS.values()}
"""The status behind a type, which is all that an error in a stream says."""

_OVERFLOW = re.compile(r"prompt is too long: \d+ tokens > \d+ maximum|input length and `max_tokens` exceed[^\"\\\n]*")
"""This API's own two sentences for a context that is too long."""


class ThreadsUnsupported(InvalidRequest):
    """A request leans on a conversation that no server keeps here. Clients that are told so send all of it again."""

    code = "thread_unsupported_request"


def error_body(error: TurnscriptError, request_id: str | None = None) -> tuple[int, Body]:
    """Status and body of an error."""
    fault = fault_of(error)
    status, type_ = _KINDS[fault.kind]
    if fault.kind == "server" or fault.status in _BY_STATUS:
        status = fault.status
    message = _overflow(fault, error) if fault.kind == "overflow" else fault.message
    told: Body = {"type": type_, "message": message}
    if isinstance(error, ThreadsUnsupported):
        told["details"] = {"error_code": error.code, "unsupported": ["thread"]}
    return status, {"type": "error", "error": told, "request_id": request_id}


def encoded(body: Body) -> bytes:
    """An error body as bytes. Half of a surrogate pair, which a message may quote, is shown as an escape."""
    try:
        return msgspec.json.encode(body)
    except UnicodeEncodeError:
        message = body["error"]["message"].encode("utf-8", "backslashreplace").decode()
        return msgspec.json.encode(body | {"error": body["error"] | {"message": message}})


def upstream_error(error: Json | None, api: str) -> UpstreamError:
    """What an `error` object, of a body or a stream, tells. Other servers' objects are understood as far as they go."""
    value: Any = None if error is None else plain(error)
    said = value if isinstance(value, dict) else {"message": value}
    type_, message = said.get("type"), said.get("message")
    status = _STATUS.get(type_) if isinstance(type_, str) else None
    what = f" ({type_})" if isinstance(type_, str) else ""
    reason = message if isinstance(message, str) and message else "no reason given"
    retryable = status is None or status == 429 or status >= 500
    body = "" if error is None else excerpt(error, 2000)
    return UpstreamError(f"{api}: the server failed{what}: {reason}", upstream=status, body=body, retryable=retryable)


def unreadable(api: str, reason: InvalidInput | str, data: str) -> UpstreamError:
    """The error for a stream that is not as this API's are."""
    return UpstreamError(f"{api}: the stream cannot be read: {reason}", body=data[:2000])


def _overflow(fault: Fault, error: TurnscriptError) -> str:
    """The sentence that clients look for when a prompt does not fit."""
    own = _OVERFLOW.search(f"{fault.message}\n{error.body if isinstance(error, UpstreamError) else ''}")
    if own is not None:
        return own[0]
    if fault.asked is None or fault.limit is None:
        return f"prompt is too long: {fault.message}"
    if fault.output and fault.asked <= fault.limit:
        sum_ = f"{fault.asked} + {fault.output} > {fault.limit}"
        exceeds = "input length and `max_tokens` exceed context limit"
        return f"{exceeds}: {sum_}, decrease input length or `max_tokens` and try again"
    return f"prompt is too long: {fault.asked} tokens > {fault.limit} maximum"
