"""Owns what a response says of the prompt cache, where its request names another to compare it with (spec apis A2)."""

from __future__ import annotations

from typing import Any

from turnscript.apis.serving import CacheVerdict, Diagnosing
from turnscript.core.conversation import Request
from turnscript.core.json_text import plain

_EARLIER = "comparison_response_id"
_REASONS = {
    "model": "model_changed",
    "tools": "tools_changed",
    "instructions": "input_changed",  # there is no word of their own
    "input": "input_changed",
    "effort": "reasoning_effort_changed",
    "format": "text_format_changed",
    "verbosity": "verbosity_changed",
    "compacted": "context_compacted",
}


def _earlier(request: Request) -> str | None:
    said = request.settings.prompt_cache_options
    options = None if said is None else plain(said)
    earlier = options.get(_EARLIER) if isinstance(options, dict) else None
    return earlier if isinstance(earlier, str) else None


def _told(verdict: CacheVerdict) -> dict[str, Any]:
    told: dict[str, Any] = {"type": "unavailable"}
    if verdict.cause == "":
        told = {"type": "cache_hit"}
    elif verdict.cause == "unknown":
        told = {"type": "comparison_response_not_found"}
    elif verdict.cause in _REASONS:
        told = {"type": "cache_miss", "reason": _REASONS[verdict.cause], "cache_missed_tokens": verdict.affected}
        told["comparison_reusable_tokens"] = verdict.reusable
    return {"prompt_cache_diagnostics": told}


DIAGNOSING = Diagnosing(wished=lambda request: _earlier(request) is not None, earlier=_earlier, told=_told)
