"""Owns where a turn can begin: one that has no opening of its own, and an item whose turn cannot stand where it is.

Theory of operation. A turn without an opening is known by what stands before it: the closing of another turn, or the
start of the document. No text can look like an opening or a closing, because the escape breaks those, so one such turn
at each place is as certain as a mark. Elsewhere it cannot begin: instructions are written as the user's text then.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from turnscript.core.conversation import Item, System, User, shown
from turnscript.engine.layout import Place
from turnscript.engine.table import Turn

if TYPE_CHECKING:
    from turnscript.engine.render import Composer


def stand(composer: Composer, place: Place, item: Any) -> tuple[Item, Place | None]:
    """Return an item of a turn that may begin without an opening, and its place; books a loss where that is another."""
    before = turn_before(composer)
    if place.turn.open:
        return item, place
    if place.turn.is_marked(before):
        return _elsewhere(composer, place, item)
    if not place.turn.close and _is_blank(item):
        composer.out.lose("", "dropped", "a text without words cannot be seen where no tag stands around it")
        return item, None
    return item, place


def turn_before(composer: Composer) -> Turn | None:
    """Return the turn that stands before what is written next; None at the start of the document."""
    return composer.ended if composer.place is None else composer.place.turn


def shows_its_end(place: Place, item: Any) -> bool:
    """Return whether a text that is not finished differs from no turn at all, where no opening may stand before it."""
    return not (place.turn.behind and place.segment.bare and _is_blank(item))


def _elsewhere(composer: Composer, place: Place, item: Any) -> tuple[Item, Place | None]:
    """Return instructions as a text of the user."""
    other = composer.layout.places.get(User.kind)
    if not isinstance(item, System) or other is None:
        composer.out.lose("", "dropped", "its turn has no opening, so it cannot begin here")
        return item, None
    composer.report(place, item)
    composer.out.lose("", "approximated", "instructions have a place at the start alone; here they are a user's text")
    said = User(content=item.content, hints=item.hints, open=item.open, at=item.at)
    composer.placed[composer.out.item] = said
    return said, other


def _is_blank(item: Any) -> bool:
    return not any((shown(part) or "").strip() for part in getattr(item, "content", ()))
