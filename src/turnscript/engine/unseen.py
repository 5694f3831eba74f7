"""Owns empty texts that nobody could see, because what stands around them is the same without them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from turnscript.core.conversation import Assistant, Item

if TYPE_CHECKING:
    from turnscript.engine.layout import Layout, Place
    from turnscript.engine.past import Past
    from turnscript.engine.render import Composer
    from turnscript.engine.spans import Writer


def vanishes(composer: Composer, place: Place, items: Sequence[Item], at: int, joint: str | None) -> bool:
    """Return whether an item is an empty answer beside something else that nothing would show, which is a loss.

    White space is not kept, or none joins. `joint`: what joins it to the item before; None where it opens a turn.
    """
    item, flattened = items[at], composer.out.flattened
    if place.kind != Assistant.kind or not place.body.is_empty(item, flattened=flattened):
        return False
    if item.open and place.end and (flattened or joint != ""):
        return False
    after = _shown_behind(composer, items, at)
    follows = after is not None and composer.are_joined(place.kind, after)
    if joint is None and not follows:
        return False
    before = "" if joint is None or composer.place is None else composer.place.kind
    if not flattened and not composer.layout.leaves_no_trace(
        before, after.kind if follows and after is not None else ""
    ):
        return False
    composer.out.lose("", "dropped", "an empty text beside a thought or a call cannot be seen")
    return True


def _shown_behind(composer: Composer, items: Sequence[Item], at: int) -> Item | None:
    """Return the next item that is written. What a prompt leaves out, or has no place for, stands between no two."""
    behind = range(at + 1, len(items))
    layout, past, shift = composer.layout, composer.past, composer.out.item - at
    out = composer.out.copied(0)  # the losses of an item are told when its turn comes
    return next((items[one] for one in behind if is_shown(layout, past, items[one], one + shift, out)), None)


def is_shown(layout: Layout, past: Past, item: Item, index: int, out: Writer) -> bool:
    """Return whether anything is written of an item at a position. `out` is told what that loses of it."""
    place = layout.place_for(item)
    if place is None or (past.hides(place, index) and not out.archive):
        return False
    if place.unseen_if_empty and not item.open and place.body.is_empty(item):
        return False
    return place.body.shows(item, out)
