"""Owns empty texts that nobody could see, because what stands around them is the same without them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from turnscript.conversation import Assistant, Item

if TYPE_CHECKING:
    from turnscript.engine.render import Composer


def vanishes(composer: Composer, items: Sequence[Item], at: int, joint: str | None) -> bool:
    """Whether an item is an empty answer that nothing would show, which is a loss. `joint`: what joins it to the item
    before; None where it opens a turn."""
    item, out = items[at], composer.out
    place = composer.layout.place_for(item)
    if place is None or place.kind != Assistant.kind or (item.open and place.end):
        return False
    if not place.body.is_empty(item, out.flattened):
        return False
    after = items[at + 1] if at + 1 < len(items) else None
    follows = after is not None and composer.are_joined(place.kind, after)
    if out.flattened:
        vanished = follows or joint is not None
    else:
        vanished = after is not None and follows and _is_like_none(composer, after, joint)
    if vanished:
        out.lose("", "dropped", "an empty text beside a thought or a call cannot be seen")
    return vanished


def _is_like_none(composer: Composer, after: Item, joint: str | None) -> bool:
    """Whether an empty text between the last item and the next is the same as none."""
    behind, joints = composer.layout.place_for(after), composer.document.joints
    if behind is None or not composer.layout.places[Assistant.kind].segment.bare:
        return False
    direct = "" if joint is None or composer.place is None else joints.get((composer.place.kind, behind.kind))
    return f"{joint or ''}{joints[Assistant.kind, behind.kind]}" == direct
