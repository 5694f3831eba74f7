"""Owns who speaks in a turn: the item whose name, if it has one, stands in the opening."""

from __future__ import annotations

from collections.abc import Sequence

from turnscript.core.conversation import Item, Text
from turnscript.engine.attributes import SPOKEN
from turnscript.engine.layout import Layout
from turnscript.engine.spans import Writer


def speaker_at(layout: Layout, items: Sequence[Item], first: int, out: Writer) -> int:
    """Return where the item stands that says who speaks in the turn that opens at `first`: its text; -1 without one."""
    before = items[first]
    for at in range(first, len(items)):
        item = items[at]
        apart = (before.kind, item.kind) not in layout.joints or (item.hints is not None and item.hints.turn == "new")
        if at > first and apart:
            return -1
        if item.kind in SPOKEN and _says(layout, item, out):
            return at
        before = item
    return -1


def _says(layout: Layout, item: Item, out: Writer) -> bool:
    """Return whether an item will be written."""
    content = getattr(item, "content", ())
    if not content or any(type(part) is Text for part in content):
        return True
    place = layout.place_for(item)
    return place is not None and place.body.shows(item, Writer(out.escape, out.archive))
