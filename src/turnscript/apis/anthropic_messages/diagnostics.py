"""Owns what a message says of the prompt cache, where its request asks for diagnostics (spec apis A3)."""

from __future__ import annotations

from typing import Any

from turnscript.apis.serving import CacheVerdict, Diagnosing
from turnscript.core.conversation import Request
from turnscript.core.json_text import plain

_REASONS = {
    "unknown": "previous_message_not_found",
    "model": "model_changed",
    "tools": "tools_changed",
    "instructions": "system_changed",
    "input": "messages_changed",
    "compacted": "messages_changed",
}
_SIZELESS = ("previous_message_not_found", "unavailable")


def _asked(request: Request) -> dict[str, Any] | None:
    said = request.extra.get("diagnostics")
    asked = None if said is None else plain(said)
    return asked if isinstance(asked, dict) else None


def _earlier(request: Request) -> str | None:
    earlier = (_asked(request) or {}).get("previous_message_id")
    return earlier if isinstance(earlier, str) else None


def _told(verdict: CacheVerdict) -> dict[str, Any]:
    """Null where nothing has changed, and where there is nothing to compare with yet."""
    if verdict.cause == "":
        return {"diagnostics": None}
    reason: dict[str, Any] = {"type": _REASONS.get(verdict.cause, "unavailable")}
    if reason["type"] not in _SIZELESS:
        reason["cache_missed_input_tokens"] = verdict.missed
    return {"diagnostics": {"cache_miss_reason": reason}}


DIAGNOSING = Diagnosing(wished=lambda request: _asked(request) is not None, earlier=_earlier, told=_told)
