"""Owns which call a result answers where a format shows less than ids for both, and what is lost by that.

`hidden`: neither calls nor results have ids, nor results names. `named`: results have names. In both a result answers
the first open call of its name, else the first open one (requirements D-X-6). `on_results`: a result shows the id of
its call, or the tool's name, and calls show none; the i-th result of a block answers the i-th call before it (D-A-5).
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Collection, Sequence

from turnscript.conversation import Item, ToolCall, ToolResult
from turnscript.engine.spans import Writer

_ID = re.compile(r"[A-Za-z0-9_-]+")
_PAIRED: frozenset[type[Item]] = frozenset({ToolCall, ToolResult})
Shown = list[tuple[str | None, str | None]]
"""Id and name of each item, None where there is none."""


def correlated(items: Sequence[Item], shown: Shown, style: str, tools: Collection[str]) -> Shown:
    """Ids and names as a reader finds them, from what is shown."""
    return _on_results(items, shown, tools) if style == "on_results" else _hidden(items, shown)


def correlate(items: Sequence[Item], style: str, tools: Collection[str]) -> None:
    """Give calls and results the ids and names that follow from their order."""
    shown = [_shown(item) for item in items]
    for item, (id_, name) in zip(items, correlated(items, shown, style, tools), strict=True):
        if isinstance(item, ToolResult):
            item.id, item.name = id_, name
        elif isinstance(item, ToolCall):
            item.id = id_


def names_of(items: Sequence[Item], style: str) -> dict[int, str]:
    """The tools' names of results that have none, by position, for formats that show names."""
    if style not in ("named", "") or all(item.name is not None for item in items if isinstance(item, ToolResult)):
        return {}
    shown: Shown = [_shown_as(item, style) for item in items]
    found = {index: name for index, (_, name) in enumerate(_hidden(items, shown)) if name is not None}
    return found if style else _by_id(items, found)


def _by_id(items: Sequence[Item], others: dict[int, str]) -> dict[int, str]:
    """The names of results by the ids that they show. `others`: of those that show none, by their order."""
    calls: dict[str, str] = {}
    names: dict[int, str] = {}
    for index, item in enumerate(items):
        if isinstance(item, ToolCall) and item.id is not None:
            calls[item.id] = item.name
        elif isinstance(item, ToolResult):
            name = others.get(index) if item.id is None else calls.get(item.id)
            names |= {index: name} if name is not None else {}
    return names


def report_correlation(items: Sequence[Item], style: str, out: Writer) -> None:
    """Losses for the ids and names that a reader will not find again."""
    if _PAIRED.isdisjoint(map(type, items)):
        return
    shown = [_shown_as(item, style) for item in items]
    for index, (item, (id_, name)) in enumerate(zip(items, correlated(items, shown, style, out.tools), strict=True)):
        if not isinstance(item, ToolCall | ToolResult):
            continue
        out.place = item.at or f"items[{index}]"
        if item.id != id_ and item.id is None:
            out.lose("", "invented", f"a reader will take {id_!r} for its id")
        elif item.id != id_:
            out.lose(".id", "dropped", "this format has no place for it")
        if isinstance(item, ToolResult) and item.name != name:
            out.lose(".name", "approximated", f"a reader will take it for {name!r}")


def _shown(item: Item) -> tuple[str | None, str | None]:
    return (item.id, item.name) if isinstance(item, ToolCall | ToolResult) else (None, None)


def _shown_as(item: Item, style: str) -> tuple[str | None, str | None]:
    if isinstance(item, ToolCall):
        return None, item.name
    if isinstance(item, ToolResult):
        if style == "on_results":
            return (item.id, None) if item.id is not None else (item.name, None)
        return None, item.name if style == "named" else None
    return None, None


def _hidden(items: Sequence[Item], shown: Shown) -> Shown:
    waiting: dict[int, str | None] = {}
    by_name: dict[str | None, deque[int]] = {}
    found: Shown = []
    for index, item in enumerate(items):
        name = shown[index][1]
        if isinstance(item, ToolCall):
            waiting[index] = name
            by_name.setdefault(name, deque()).append(index)
        elif isinstance(item, ToolResult):
            call = _first_open(by_name.get(name), waiting)
            if call is None:
                call = next(iter(waiting), None)
            answered = None if call is None else waiting.pop(call)
            name = answered if name is None else name
        found.append((None, name))
    return found


def _first_open(calls: deque[int] | None, waiting: dict[int, str | None]) -> int | None:
    """The first call of a name that nobody has answered. Answered ones are never looked at twice."""
    while calls and calls[0] not in waiting:
        calls.popleft()
    return calls.popleft() if calls else None


def _on_results(items: Sequence[Item], shown: Shown, tools: Collection[str]) -> Shown:
    names = set(tools) | {item.name for item in items if isinstance(item, ToolCall)}
    known = {shown[index][0]: index for index, item in enumerate(items) if isinstance(item, ToolCall)}
    found: Shown = list(shown)
    calls: list[int] = []
    answered = 0
    before: type[Item] | None = None
    for index, item in enumerate(items):
        if isinstance(item, ToolCall):
            if before is not ToolCall:
                calls, answered = [], 0
            calls.append(index)
        elif isinstance(item, ToolResult):
            word = shown[index][0]
            call = calls[answered] if answered < len(calls) else None
            answered += 1
            if word is not None and word in known:
                found[index] = (word, shown[known[word]][1])
            elif word is not None and (word in names or not _ID.fullmatch(word)):
                found[index] = (None, word)
            else:
                found[index] = (word, None if call is None else shown[call][1])
                if call is not None and shown[call][0] is None:
                    found[call] = (word, shown[call][1])
        before = type(item)
    return found
