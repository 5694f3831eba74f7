"""Owns how a response ends: its `status` and the reason if it is not complete, in both directions.

| model | wire |
|--|--|
| `stop`, `tool_calls` | `completed` |
| `length` | `incomplete`, `max_output_tokens` |
| `content_filter` | `incomplete`, `content_filter` |
| `cancelled` | `cancelled` |
| `error`, `failed`, `abort`, `timeout`, ... | none: the answer failed |
| any other word | `incomplete` with that word as its reason: what is not known to be a good end is not told as one |

Errors inside a stream, and failures that a server reports, are here, too. The body of an error is the common error
object.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from msgspec import UNSET, UnsetType

from turnscript.apis.api import Body
from turnscript.apis.shared.answers import CUT_CALL, Counts, is_whole
from turnscript.core.conversation import Assistant, Extra, Item, Refusal, ToolCall
from turnscript.core.error_kinds import Kind, fault_of
from turnscript.core.error_object import error_body, upstream_error
from turnscript.core.errors import TurnscriptError, UpstreamError
from turnscript.core.finish_reasons import CALLED, FILTERED, LENGTH, STOP, check_end, meaning
from turnscript.core.json_text import Json, members_in, plain
from turnscript.core.losses import LossKind
from turnscript.core.wire import Reader, Wire

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
    code = members_in(error).get("code")
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


COMPLETED, INCOMPLETE, FAILED, CANCELLED = "completed", "incomplete", "failed", "cancelled"
IN_PROGRESS = "in_progress"

Lose = Callable[[str, LossKind, str], None]

_NATURAL = frozenset({STOP, CALLED})
_REASONS = {LENGTH: "max_output_tokens", FILTERED: "content_filter"}
_WORDS = {reason: word for word, reason in _REASONS.items()}
_OWN_REASONS = frozenset({"max_messages", "steered"})
_OVERFLOW = frozenset({"model_context_window_exceeded", "context_length_exceeded"})

COUNTS = Counts("input_tokens", "output_tokens")


class IncompleteDetails(Wire):
    reason: str | UnsetType = UNSET


class ResponseObject(Wire):
    """A response. Members that are null stand for nothing and are not kept."""

    output: list[Json] | UnsetType = UNSET
    id: str | UnsetType = UNSET
    model: str | UnsetType = UNSET
    status: str | UnsetType = UNSET
    usage: Json | UnsetType = UNSET
    incomplete_details: IncompleteDetails | UnsetType = UNSET
    error: Json | UnsetType = UNSET


_NULL = Json(b"null")
_read_response_object: Reader[ResponseObject] = Reader(ResponseObject)


def read_response_object(value: Json, at: str) -> ResponseObject:
    """A response object. A usage or an error that is null is none."""
    wire = _read_response_object(value, at)
    for name in ("usage", "error"):
        if getattr(wire, name) == _NULL:
            setattr(wire, name, UNSET)
    return wire


# The end.


def write_ending(reason: str | None, items: Iterable[Item], lose: Lose, *, own: bool = False) -> tuple[str, str | None]:
    """The status of a response and, if it is incomplete, the reason. Raises UpstreamError for an answer that failed.

    `own`: the answer came from this API, and so did the word for its end.
    """
    if reason is None:
        lose("$.finish_reason", "invented", "nobody said why the answer ended; it is told as completed")
        return COMPLETED, None
    if reason == CANCELLED:
        return CANCELLED, None
    check_end(reason)
    if reason == "refusal":
        lose("$.finish_reason", "approximated", "that the model declined shows in what it said only")
        return (COMPLETED, None) if _declines(items) else (INCOMPLETE, _REASONS[FILTERED])
    if not own and meaning(reason) != reason:
        lose("$.finish_reason", "approximated", f"{reason!r} is told as {meaning(reason)!r}")
        reason = meaning(reason)
    if reason in _NATURAL:
        _lose_natural(reason, items, lose)
        return COMPLETED, None
    if reason in _REASONS:
        return INCOMPLETE, _REASONS[reason]
    if reason in _OWN_REASONS:
        return INCOMPLETE, reason
    if reason in _OVERFLOW:
        lose("$.finish_reason", "approximated", "a full context is told as the token limit")
        return INCOMPLETE, _REASONS[LENGTH]
    if not own:
        lose("$.finish_reason", "approximated", f"there is no word for {reason!r} here; it is told as incomplete")
    return INCOMPLETE, None if own and reason == INCOMPLETE else reason


def ending_with_cut_call(status: str, reason: str | None, lose: Lose) -> tuple[str, str | None]:
    """The same for a response with a call that is not whole: it is not complete either."""
    if status != COMPLETED:
        return status, reason
    lose("$.finish_reason", "approximated", f"{INCOMPLETE!r}, because {CUT_CALL}")
    return INCOMPLETE, _REASONS[LENGTH]


def _lose_natural(reason: str, items: Iterable[Item], lose: Lose) -> None:
    """Report an end that readers take for the other good one: they go by the calls, as no word tells them apart."""
    called = any(isinstance(item, ToolCall) and is_whole(item) for item in items)
    if called and reason == "stop":
        lose("$.finish_reason", "approximated", "there is a call: whoever asked must run it")
    elif not called and reason != "stop":
        lose("$.finish_reason", "approximated", "there is no call: said as the end")


def read_ending(wire: ResponseObject, items: Iterable[Item]) -> str:
    """The finish reason of a response that is over. Raises UpstreamError for one that failed or is not over."""
    status = COMPLETED if wire.status is UNSET else wire.status
    if wire.error is not UNSET or status == FAILED:
        error = Json(b"null") if wire.error is UNSET else wire.error
        raise failure(error, error)
    if status == CANCELLED:
        return CANCELLED
    details = wire.incomplete_details
    reason = UNSET if details is UNSET else details.reason
    # Some servers say `completed` to clients that take no other end, and the reason beside it.
    if (
        status == INCOMPLETE
        or (wire.status is UNSET and details is not UNSET)
        or (status == COMPLETED and reason is not UNSET)
    ):
        return INCOMPLETE if reason is UNSET else _WORDS.get(reason, reason)
    if status != COMPLETED:
        raise UpstreamError(f"the response is not over: its status is {status!r}", retryable=True)
    return "tool_calls" if any(isinstance(item, ToolCall) for item in items) else "stop"


def is_unfinished(reason: str | None) -> bool:
    """Whether an answer of this API that ended for a reason is told as incomplete."""
    return reason is not None and reason not in _NATURAL and reason != CANCELLED


def _declines(items: Iterable[Item]) -> bool:
    return any(isinstance(part, Refusal) for item in items if isinstance(item, Assistant) for part in item.content)


def said(extra: Extra) -> Extra:
    """The members that are not null."""
    return {key: value for key, value in extra.items() if bytes(value).strip() != b"null"}
