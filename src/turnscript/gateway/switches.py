"""Owns switches for thinking that no official API has: clients of model servers write them into their requests.

| member | known from | says |
|--|--|--|
| `chat_template_kwargs`: `enable_thinking`, `thinking`, `reasoning_effort` | vLLM and others | whether; an effort |
| `enable_thinking`, `thinking_budget` | Qwen | whether; how many tokens |
| `thinking`: `type`, `budget_tokens` | DeepSeek, GLM, Kimi | whether; how many tokens |
| `reasoning`: `enabled`, `effort`, `max_tokens` | OpenRouter | whether; an effort; how many tokens |

What the API itself has for this counts, where a request says that, too. Of several switches one that says no is the
strongest, then a number, then an effort; of two that say as much, the first in the request.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from copy import copy
from typing import Any

from msgspec.structs import replace

from turnscript.apis.api import leftover
from turnscript.core.conversation import Request, ThinkingMode
from turnscript.core.json_text import plain, read_object

Wish = bool | int | str
"""Whether to think, in how many tokens, or with which effort."""


def _flag(value: Any) -> Wish | None:
    return value if isinstance(value, bool) else None


def _effort(value: Any) -> Wish | None:
    return value if isinstance(value, str) and value else None


def _tokens(value: Any) -> Wish | None:
    if not isinstance(value, int) or isinstance(value, bool):
        return None
    return value if value > 0 else value < 0  # none is no, and less than none: as many as it takes


def _mode(value: Any) -> Wish | None:
    if not isinstance(value, dict):
        return _flag(value)
    if value.get("type") == "disabled":
        return False
    if value.get("type") not in ("enabled", "adaptive", "auto"):
        return None
    return _tokens(value.get("budget_tokens")) or True


_ALONE: Mapping[str, Callable[[Any], Wish | None]] = {
    "thinking": _mode,
    "enable_thinking": _flag,
    "thinking_budget": _tokens,
}
_INSIDE: Mapping[str, Mapping[str, Callable[[Any], Wish | None]]] = {
    "reasoning": {"enabled": _flag, "effort": _effort, "max_tokens": _tokens},
    "chat_template_kwargs": {"enable_thinking": _flag, "thinking": _flag, "reasoning_effort": _effort},
}


_MEMBERS = frozenset({*_ALONE, *_INSIDE})


def switched(request: Request) -> Request:
    """The request with what its switches say as its settings, and without them. The one that is given stays."""
    settings = request.settings
    if settings.thinking is not None or settings.effort is not None or _MEMBERS.isdisjoint(request.extra):
        return request
    wishes, extra = _read(request)
    if not wishes:
        return request
    path, wish = min(wishes.items(), key=lambda one: _rank(one[1]))
    made = copy(request)
    made.extra = extra
    if isinstance(wish, str):
        made.settings = replace(settings, effort=wish)
        made.paths = {**request.paths, "effort": path}
    else:
        budget = None if isinstance(wish, bool) else wish
        made.settings = replace(settings, thinking=ThinkingMode("enabled" if wish else "disabled", budget))
        made.paths = {**request.paths, "thinking": path}
    return made


def _rank(wish: Wish) -> int:
    """What counts of several: no, a number, an effort, yes."""
    if isinstance(wish, bool):
        return 3 if wish else 0
    return 1 if isinstance(wish, int) else 2


def _read(request: Request) -> tuple[dict[str, Wish], dict[str, Any]]:
    """What the switches say, by their paths in the order of the request, and the unnamed members without them."""
    wishes: dict[str, Wish] = {}
    extra = dict(request.extra)
    for key, raw in request.extra.items():
        if key in _ALONE and (wish := _ALONE[key](plain(raw))) is not None:
            wishes[f"$.{key}"] = wish
            del extra[key]
        elif key in _INSIDE and bytes(raw)[:1] == b"{":
            members, readers = read_object(raw), _INSIDE[key]
            told = {name: readers[name](plain(value)) for name, value in members.items() if name in readers}
            said = {name: wish for name, wish in told.items() if wish is not None}
            wishes |= {f"$.{key}.{name}": wish for name, wish in said.items()}
            if said:
                extra[key] = leftover({name: value for name, value in members.items() if name not in said})
    return wishes, extra


__all__ = ["switched"]
