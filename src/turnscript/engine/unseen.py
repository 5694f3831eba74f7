"""Owns empty texts that nobody could see, because what stands around them is the same without them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from turnscript.conversation import Assistant, Item

if TYPE_CHECKING:
    from turnscript.engine.layout import Place
    from turnscript.engine.render import Composer


def vanishes(composer: Composer, place: Place, items: Sequence[Item], at: int, joint: str | None) -> bool:
    """Whether an item is an empty answer beside something else that nothing would show, which is a loss.

    White space is not kept, or none joins. `joint`: what joins it to the item before; None where it opens a turn.
    """
    item, flattened = items[at], composer.out.flattened
    if place.kind != Assistant.kind or not place.body.is_empty(item, flattened=flattened):
        return False
    if item.open and place.end and (flattened or joint != ""):
        return False
    follows = at + 1 < len(items) and composer.are_joined(place.kind, items[at + 1])
    if joint is None and not follows:
        return False
    before = "" if joint is None or composer.place is None else composer.place.kind
    if not flattened and not composer.layout.leaves_no_trace(before, items[at + 1].kind if follows else ""):
        return False
    composer.out.lose("", "dropped", "an empty text beside a thought or a call cannot be seen")
    return True
