"""Owns what a session has said before its newest part: a prompt that grows renders what is new, and may look back."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from msgspec import Struct

from turnscript.conversation import Item, ToolCall, ToolResult

_GENERATED = re.compile(r"call_auto_([0-9]{3,15})")
"""An id as they are generated for calls that have none (requirements D-X-7)."""


class Earlier(Struct, frozen=True):
    """The items of one part of a session, and the parts before it.

    `count`: how many items there are in all, `calls`: how many of them are calls. `waiting`: how many calls among them
    no result stands for. `ahead`: the numbers in generated ids that as many calls have not reached yet.
    """

    items: Sequence[Item] = ()
    before: Earlier | None = None
    count: int = 0
    waiting: int = 0
    calls: int = 0
    ahead: frozenset[int] = frozenset()

    def then(self, items: Sequence[Item]) -> Earlier:
        """The same with more items behind it."""
        waiting, said = self.waiting, []
        for item in items:
            if isinstance(item, ToolCall):
                waiting += 1
                said.append(item)
            elif isinstance(item, ToolResult) and waiting:
                waiting -= 1
        if not said:
            return Earlier(items, self, self.count + len(items), waiting, self.calls, self.ahead)
        calls = self.calls + len(said)
        ahead = frozenset([number for number in (*self.ahead, *_numbers(said)) if number > calls])
        return Earlier(items, self, self.count + len(items), waiting, calls, ahead)

    def next_id(self) -> str:
        """The id of the next call, as ids are generated: its number, those in use skipped."""
        number = self.calls + 1
        while number in self.ahead:
            number += 1
        return f"call_auto_{number:03d}"

    def last(self) -> Item | None:
        """The last item of all."""
        part: Earlier | None = self
        while part is not None and not part.items:
            part = part.before
        return part.items[-1] if part is not None else None

    def all(self) -> list[Item]:
        """All items, in order. That takes the longer, the longer the session is."""
        parts: list[Sequence[Item]] = []
        part: Earlier | None = self
        while part is not None:
            parts.append(part.items)
            part = part.before
        return [item for items in reversed(parts) for item in items]


def _numbers(calls: Sequence[ToolCall]) -> Iterator[int]:
    """The numbers in ids that are spelled as generated ones are."""
    for call in calls:
        found = _GENERATED.fullmatch(call.id or "")
        if found and f"{int(found[1]):03d}" == found[1]:
            yield int(found[1])


NOTHING = Earlier()
