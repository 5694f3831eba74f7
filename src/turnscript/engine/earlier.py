"""Owns what a session has said before its newest part: a prompt that grows renders what is new, and may look back."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from turnscript.conversation import Item, ToolCall, ToolResult


class Earlier(Struct, frozen=True):
    """The items of one part of a session, and the parts before it.

    `count`: how many items there are in all. `waiting`: how many calls among them no result stands for.
    """

    items: Sequence[Item] = ()
    before: Earlier | None = None
    count: int = 0
    waiting: int = 0

    def then(self, items: Sequence[Item]) -> Earlier:
        """The same with more items behind it."""
        waiting = self.waiting
        for item in items:
            if isinstance(item, ToolCall):
                waiting += 1
            elif isinstance(item, ToolResult) and waiting:
                waiting -= 1
        return Earlier(items, self, self.count + len(items), waiting)

    def all(self) -> list[Item]:
        """All items, in order. That takes the longer, the longer the session is."""
        parts: list[Sequence[Item]] = []
        part: Earlier | None = self
        while part is not None:
            parts.append(part.items)
            part = part.before
        return [item for items in reversed(parts) for item in items]


NOTHING = Earlier()
