"""Owns how long a model thinks: whether its prompt opens a thought, how many tokens that may have, and the end of it.

`plan_thinking` decides for a request, a `ThoughtMeter` stage counts, and `closing` is what ends a thought from outside.

Clients of model servers write switches for thinking into their requests that no official API has.

| member | known from | says |
|--|--|--|
| `chat_template_kwargs`: `enable_thinking`, `thinking`, `reasoning_effort` | vLLM and others | whether; an effort |
| `enable_thinking`, `thinking_budget` | Qwen | whether; how many tokens |
| `thinking`: `type`, `budget_tokens` | DeepSeek, GLM, Kimi | whether; how many tokens |
| `reasoning`: `enabled`, `effort`, `max_tokens` | OpenRouter | whether; an effort; how many tokens |

What the API itself has for this counts, where a request says that, too. Of several switches one that says no is the
strongest, then a number, then an effort; of two that say as much, the first in the request.

An effort may change in the middle of a conversation: the last one holds, whatever the request itself says. A client
leaves the effort of its requests as it was and says the new one where it begins, so that what its server has read stays
as it was, too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from copy import copy
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from turnscript.apis.api import leftover
from turnscript.apis.serving import EffortChange
from turnscript.core.conversation import Conversation, Item, Request, Settings, Thinking, ThinkingMode
from turnscript.core.events import Event, PartDelta, PartEnd, PartStart
from turnscript.core.json_text import plain, read_object
from turnscript.core.losses import Loss
from turnscript.engine.layout import layout_of
from turnscript.formats.format import Format
from turnscript.gateway.forcing import estimated_tokens, path_of

BUDGETS: Mapping[str, int | None] = {"low": 2048, "medium": 8192, "high": 24576, "xhigh": None, "max": None}
"""Tokens of thought for each effort, None for as many as it takes (requirements D-X-13)."""

_NO_EFFORT = frozenset({"none", "minimal"})
_ALWAYS_THINKS = frozenset({"enabled", "adaptive"})


class ThinkingPlan(Struct, frozen=True):
    """Whether the prompt opens a thought, and how many tokens that may have. `opens` None: as the format likes."""

    opens: bool | None
    budget: int | None
    losses: list[Loss]


def can_think(format_: Format) -> bool:
    """Whether a format has a place for thoughts."""
    document = format_.document
    return document.generation.thinking_kind in layout_of(document).places


def plan_thinking(
    request: Request,
    format_: Format,
    *,
    default: bool | None = None,
    max_tokens: int | None = None,
    budgets: Mapping[str, int | None] = BUDGETS,
) -> ThinkingPlan:
    """Whether and how long the model thinks. `default`: where the request does not say.

    A mode says whether, a budget how long, and an effort either where it stands alone. A choice of tools that demands
    a call is stronger: a prompt can begin a thought or a call, not both.
    """
    settings, mode = request.settings, request.settings.thinking
    losses: list[Loss] = []
    if mode is not None:
        opens: bool | None = mode.mode != "disabled"
    else:
        opens = default if settings.effort is None else settings.effort not in _NO_EFFORT
    if not opens:
        return ThinkingPlan(opens, None, losses)
    path = path_of(request, "effort" if mode is None else "thinking")
    if mode is not None and mode.mode not in _ALWAYS_THINKS:
        losses.append(Loss(path, "approximated", f"thinking {mode.mode!r} is taken for 'adaptive'"))
    if not can_think(format_):
        return ThinkingPlan(False, None, [*losses, Loss(path, "dropped", "this format has no place for thoughts")])
    if _demands_call(settings):
        detail = "the tool choice demands a call, so the model does not think first"
        return ThinkingPlan(False, None, [*losses, Loss(path, "approximated", detail)])
    budget = _budget(request, budgets, losses)
    if budget is not None and max_tokens is not None and budget >= max_tokens > 1:
        losses.append(Loss(path, "approximated", f"a budget of {budget} tokens became {max_tokens - 1}"))
        budget = max_tokens - 1
    return ThinkingPlan(True, budget, losses)


def _budget(request: Request, budgets: Mapping[str, int | None], losses: list[Loss]) -> int | None:
    settings = request.settings
    if settings.thinking is not None and settings.thinking.budget is not None:
        if settings.effort is not None:
            losses.append(Loss(path_of(request, "effort"), "dropped", "the budget says how long the model thinks"))
        return settings.thinking.budget
    if settings.effort is None or settings.effort in _NO_EFFORT:
        return None
    path = path_of(request, "effort")
    if settings.effort not in budgets:
        losses.append(Loss(path, "dropped", f"{settings.effort!r} is no effort that is known here"))
        return None
    budget = budgets[settings.effort]
    if budget is not None:
        losses.append(Loss(path, "approximated", f"effort {settings.effort!r} became a budget of {budget} tokens"))
    return budget


def _demands_call(settings: Settings) -> bool:
    choice = settings.tool_choice
    return choice is not None and (
        choice.mode in ("required", "named") or (choice.mode == "allowed" and choice.required)
    )


class ThoughtMeter:
    """Counts thought. `over`: the budget is spent while the model still thinks.

    Then stop the backend, feed `closing(format, kind)` to the parser and generate on from all that was generated and
    that. `kind`: that of the thought, where a format tells kinds apart.
    """

    def __init__(self, budget: int | None, count: Callable[[str], int] = estimated_tokens) -> None:
        self._budget = budget
        self._count = count
        self._counted = 0
        self._texts: list[str] = []  # not counted yet: counting has its price
        self._size = 0
        self._open = -1
        self.kind = ""

    @property
    def spent(self) -> int:
        """The tokens of all thoughts so far."""
        return self._counted + (self._count("".join(self._texts)) if self._texts else 0)

    @property
    def over(self) -> bool:
        """Whether the model thinks still, and has no more tokens for it."""
        return self._budget is not None and self._open >= 0 and self.spent >= self._budget

    def feed(self, events: Iterable[Event]) -> list[Event]:
        """More events, which pass as they are."""
        told = list(events)
        for event in told:
            if isinstance(event, PartStart):
                self._open = -1
                if isinstance(event.part, Thinking):
                    self._open, self.kind = event.index, event.part.of
            elif isinstance(event, PartDelta) and event.index == self._open:
                self._add(event.text)
            elif isinstance(event, PartEnd) and event.index == self._open:
                self._open = -1
        return told

    def _add(self, text: str) -> None:
        self._texts.append(text)
        self._size += len(text)
        if self._size >= _COUNTED_AT_ONCE:
            self._counted, self._size, self._texts = self.spent, 0, []


_COUNTED_AT_ONCE = 1024


def closing(format_: Format, kind: str = "reason") -> str:
    """The text that ends a kind of thought in a format, as its model would write it; empty where there is none."""
    document = format_.document
    place = layout_of(document).place_named(document.generation.thinking_kind, kind)
    return "" if place is None else place.close


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


def settled(request: Request, change: Callable[[Item], EffortChange | None]) -> Request:
    """The request with the effort that holds at its end, and items without what they say of it. The one that is given
    is not changed."""
    changes = {at: said for at, item in enumerate(request.items) if (said := change(item)) is not None}
    if not changes:
        return request
    last = max(changes)
    left = [changes[at].rest if at in changes else item for at, item in enumerate(request.items)]
    whole = copy(request)
    whole.settings = replace(request.settings, effort=changes[last].effort)
    whole.paths = {**request.paths, "effort": request.items[last].at}
    whole.conversation = Conversation(items=[item for item in left if item is not None], tools=request.tools)
    return whole
