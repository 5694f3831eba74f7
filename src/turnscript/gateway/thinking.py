"""Owns how long a model thinks: whether its prompt opens a thought, how many tokens that may have, and the end of it.

`plan_thinking` decides for a request, a `ThoughtMeter` stage counts, and `closing` is what ends a thought from outside.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from msgspec import Struct

from turnscript.core.conversation import Request, Settings, Thinking
from turnscript.core.events import Event, PartDelta, PartEnd, PartStart
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
