"""Owns the error object that most servers speak, `{"error": {message, type, param, code}}`: writing and reading it.

Clients branch on status, type and code, and know a full context by its wording.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import msgspec

from turnscript.core.error_kinds import Fault, Kind, fault_of
from turnscript.core.errors import TurnscriptError, UpstreamError
from turnscript.core.json_text import Json, excerpt, is_json, plain, read_object, text_of
from turnscript.core.sse import frame

_INVALID = "invalid_request_error"
_SERVER = "server_error"
_PREVIOUS = "$.previous_response_id"

_WORDS: dict[Kind, tuple[str, str | None]] = {
    "bad_request": (_INVALID, None),
    "unauthorized": ("authentication_error", "invalid_api_key"),
    "forbidden": ("permission_error", None),
    "not_found": ("not_found_error", None),
    "unknown_model": (_INVALID, "model_not_found"),
    "conflict": ("conflict_error", None),
    "too_large": (_INVALID, None),
    "overflow": (_INVALID, "context_length_exceeded"),
    "rate_limited": ("rate_limit_error", "rate_limit_exceeded"),
    "no_quota": ("insufficient_quota", "insufficient_quota"),
    "overloaded": (_SERVER, "overloaded"),
    "timeout": (_SERVER, "timeout"),
    "server": (_SERVER, None),
}
"""Type and code of each kind of fault."""


def error_body(error: TurnscriptError) -> tuple[int, dict[str, Any]]:
    """Status and body of an error."""
    fault = fault_of(error)
    type_, code = _WORDS[fault.kind]
    if fault.kind == "not_found" and fault.path == _PREVIOUS:
        code = "previous_response_not_found"  # clients send all again then
    message = _MESSAGES.get(fault.kind, _message)(fault)
    return fault.status, {"error": {"message": message, "type": type_, "param": fault.path or None, "code": code}}


def error_frame(error: TurnscriptError) -> bytes:
    """The same as the last event of a stream."""
    return frame(encoded(error_body(error)[1]))


def encoded(body: dict[str, Any]) -> bytes:
    """A body as JSON bytes; what no UTF-8 can carry is replaced, because an error must get through."""
    try:
        return msgspec.json.encode(body)
    except UnicodeEncodeError:
        error = body["error"]
        message = error["message"].encode("utf-8", "replace").decode()
        param = error["param"] and error["param"].encode("utf-8", "replace").decode()
        return msgspec.json.encode({"error": error | {"message": message, "param": param}})


def _message(fault: Fault) -> str:
    return fault.message


def _overflow(fault: Fault) -> str:
    """Clients know a full context by this wording, and make room."""
    if "maximum context length" in fault.message:
        return fault.message
    if fault.limit is None or fault.asked is None:
        return f"This model's maximum context length is exceeded: {fault.message}"
    known = f"This model's maximum context length is {fault.limit} tokens. "
    if not fault.output:
        return f"{known}However, you requested {fault.asked} tokens. Please reduce the length of the messages."
    parts = f"({fault.asked} in the messages, {fault.output} in the completion)"
    both = f"However, you requested {fault.asked + fault.output} tokens {parts}. "
    return f"{known}{both}Please reduce the length of the messages or completion."


def _rate_limited(fault: Fault) -> str:
    """In a stream there are no headers any more, so clients look for the time to wait in the message."""
    wait = fault.retry_after
    if wait is None or "try again in" in fault.message:
        return fault.message
    seconds = f"{wait:.3f}".rstrip("0").rstrip(".")  # no exponent: of "3e+06s" clients read the end
    return f"{fault.message.removesuffix('.')}. Please try again in {seconds}s."


_MESSAGES: dict[Kind, Callable[[Fault], str]] = {"overflow": _overflow, "rate_limited": _rate_limited}


def upstream_error(value: Json, whole: Json | str) -> UpstreamError:
    """The `error` member of a body or chunk as an error. `whole`: all of that body."""
    said = bytes(whole).decode("utf-8", "replace") if isinstance(whole, Json) else whole
    message, status, word = excerpt(value, 200), None, ""
    if bytes(value)[:1] == b'"' and is_json(text_of(value)):  # what a server names an error may be no JSON
        message = str(plain(value))
    elif bytes(value)[:1] == b"{":
        members = read_object(value)
        message = str(_scalar(members, "message") or message)
        code = _scalar(members, "code")
        status = code if isinstance(code, int) and 400 <= code <= 599 else None
        word = f"{code} {_scalar(members, 'type')}"
    status = status or next((known for sign, known in _SIGNS if sign in word), None)
    retryable = status is None or status in (408, 429) or status >= 500
    if _NO_QUOTA in word:
        retryable = False
    return UpstreamError(f"the server says: {message}", upstream=status, body=said[:2000], retryable=retryable)


_NO_QUOTA = "insufficient_quota"
_SIGNS = (
    ("invalid_api_key", 401),
    ("authentication", 401),
    ("permission", 403),
    ("not_found", 404),
    ("timeout", 504),
    ("rate_limit", 429),
    ("overloaded", 503),
    (_NO_QUOTA, 429),
    ("context_length_exceeded", 400),
    ("exceed_context_size", 400),
    ("invalid_request", 400),
    ("server_error", 500),
)


def _scalar(members: dict[str, Json], name: str) -> str | int | None:
    value = members.get(name)
    found = plain(value) if value is not None else None
    return found if isinstance(found, str | int) else None


def page_in(said: str) -> str:
    """What to say of a page, which servers of the web and proxies give in place of an error; empty for what is none."""
    if not _PAGE.match(said):
        return ""
    found = _TITLE.search(said)
    title = f", {' '.join(found[1].split())[:100]!r}" if found else ""
    return f"a page{title} (check the URL: a page comes from a web server or a proxy)"


_PAGE = re.compile(r"\s*<(!doctype html|html)\b", re.IGNORECASE)
_TITLE = re.compile(r"<title[^>]{0,100}>([^<]*)", re.IGNORECASE)
