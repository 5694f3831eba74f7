"""Owns errors inside a stream, and failures that a server reports. The body of an error is the common error object."""

from __future__ import annotations

from turnscript.apis.api import Body
from turnscript.core.error_kinds import Kind, fault_of
from turnscript.core.error_object import error_body, upstream_error
from turnscript.core.errors import TurnscriptError, UpstreamError
from turnscript.core.json_text import Json, plain, read_object

_CODES: dict[Kind, str] = {
    "overflow": "context_length_exceeded",
    "rate_limited": "rate_limit_exceeded",
    "no_quota": "insufficient_quota",
    "bad_request": "invalid_prompt",
}
"""The codes of a response that failed are a closed list, but for a full context and an empty account."""
_FINAL = ("invalid_", "image_", "empty_image", "unsupported_", "bio_", "misalignment_", "data_residency_")
"""How codes begin that no second try will mend."""


def failure_of(error: TurnscriptError) -> Body:
    """The `error` of a response that failed."""
    return {"code": _CODES.get(fault_of(error).kind, "server_error"), "message": _told(error)["message"]}


def flat_error(error: TurnscriptError) -> Body:
    """The members of an `error` event: of a stream that has not begun, or whose answer goes on without it."""
    told = _told(error)
    return {"code": told["code"], "message": told["message"], "param": told["param"]}


def failure(error: Json, whole: Json | str) -> UpstreamError:
    """What a server says went wrong. `whole`: the body or event that said it."""
    if bytes(error).strip() in (b"null", b"{}"):
        return UpstreamError("the server failed and gave no reason", body=_text(whole), retryable=True)
    found = upstream_error(error, whole)
    code = read_object(error).get("code") if bytes(error)[:1] == b"{" else None
    word = plain(code) if code is not None else None
    if isinstance(word, str) and word.startswith(_FINAL):
        found.retryable = False
    return found


def _told(error: TurnscriptError) -> Body:
    told: Body = error_body(error)[1]["error"]
    return {
        key: value.encode("utf-8", "replace").decode() if isinstance(value, str) else value
        for key, value in told.items()
    }


def _text(whole: Json | str) -> str:
    return (bytes(whole).decode() if isinstance(whole, Json) else whole)[:2000]
