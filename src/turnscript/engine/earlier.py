"""Owns what a session has said before its newest part: a prompt that grows renders what is new, and may look back."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from turnscript.core.conversation import Item, ToolCall, ToolResult

_GENERATED = re.compile(r"call_auto_([0-9]{3,15})")
"""An id as they are generated for calls that have none (requirements D-X-7)."""


class _Counts(NamedTuple):
    """Of all items up to the end of a part: how many calls no result stands for, how many calls there are, and the
    numbers in generated ids that as many calls have not reached yet.
    """

    waiting: int = 0
    calls: int = 0
    ahead: frozenset[int] = frozenset()

    def then(self, items: Sequence[Item]) -> _Counts:
        """Return the counts with more items behind these."""
        waiting, said = self.waiting, []
        for item in items:
            if isinstance(item, ToolCall):
                waiting += 1
                said.append(item)
            elif isinstance(item, ToolResult) and waiting:
                waiting -= 1
        if not said:
            return _Counts(waiting, self.calls, self.ahead)
        calls = self.calls + len(said)
        return _Counts(waiting, calls, frozenset([one for one in (*self.ahead, *_numbers(said)) if one > calls]))


class Earlier:
    """The items of one part of a session, and the parts before it. `count`: how many items there are in all.

    Most formats ask for no more, so calls are counted when somebody does, from the last part that was counted.
    """

    __slots__ = ("_known", "before", "count", "items")

    def __init__(self, items: Sequence[Item] = (), before: Earlier | None = None) -> None:
        self.items = items
        self.before = before
        self.count: int = len(items) if before is None else before.count + len(items)
        self._known = _Counts() if before is None else None

    def then(self, items: Sequence[Item]) -> Earlier:
        """Return these items with more behind them."""
        return Earlier(items, self)

    @property
    def waiting(self) -> int:
        """Return how many calls there are that no result stands for."""
        return self._counts().waiting

    @property
    def calls(self) -> int:
        """Return how many calls there are."""
        return self._counts().calls

    def _counts(self) -> _Counts:
        parts: list[Earlier] = []
        part = self
        while part._known is None and part.before is not None:
            parts.append(part)
            part = part.before
        known = part._known or _Counts()
        for one in reversed(parts):
            known = one._known = known.then(one.items)
        return known

    def next_id(self) -> str:
        """Return the id of the next call, as ids are generated: its number, those in use skipped."""
        _, calls, ahead = self._counts()
        number = calls + 1
        while number in ahead:
            number += 1
        return f"call_auto_{number:03d}"

    def last(self) -> Item | None:
        """Return the last item of all."""
        part: Earlier | None = self
        while part is not None and not part.items:
            part = part.before
        return part.items[-1] if part is not None else None

    def all(self) -> list[Item]:
        """Return all items, in order. That takes the longer, the longer the session is."""
        parts: list[Sequence[Item]] = []
        part: Earlier | None = self
        while part is not None:
            parts.append(part.items)
            part = part.before
        return [item for items in reversed(parts) for item in items]


def _numbers(calls: Sequence[ToolCall]) -> Iterator[int]:
    """Give the numbers in ids that are spelled as generated ones are."""
    for call in calls:
        found = _GENERATED.fullmatch(call.id or "")
        if found and f"{int(found[1]):03d}" == found[1]:
            yield int(found[1])


NOTHING = Earlier()
