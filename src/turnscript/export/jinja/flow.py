"""Owns what stands between two items, before the first and behind the last, as the engine writes it."""

from __future__ import annotations

from collections.abc import Iterator

from msgspec import Struct

from turnscript.core.conversation import Request, System
from turnscript.core.message_groups import JOINS
from turnscript.engine.layout import Layout, Place
from turnscript.engine.prompt import opened
from turnscript.engine.render import Composer
from turnscript.engine.spans import TRAINABLE, Writer
from turnscript.engine.table import Turn

BEGINNING, LISTED = "start", "tools"
"""What stands before an item that is no item: nothing, or the list of tools, which is in no turn that is open."""

Said = tuple[tuple[str, bool], ...]
"""Literals, each with whether it is the model's."""


class Between(Struct, frozen=True):
    """What stands before an item's payload.

    `before`: up to the attributes of the turn's opening, `behind`: from there to the segment's own opening. `head`: the
    segment's opening, or as far as its attributes. `of_model`: whether what is left of that opening is the model's.
    """

    joined: bool
    before: Said
    behind: Said
    head: Said
    of_model: bool


class Flow:
    """The literals of a layout between items, by the kind of the item before."""

    def __init__(self, layout: Layout) -> None:
        self.layout = layout
        self.previous_kinds: tuple[str, ...] = (BEGINNING, LISTED, *layout.places)

    def joins(self, before: str, place: Place) -> bool:
        """Whether an item goes on in the turn of another."""
        return (before, place.kind) in self.layout.joints

    def apart(self, place: Place) -> list[str]:
        """The kinds behind which an item of another message begins a turn of its own, though it could go on."""
        return [before for before, kind in sorted(JOINS) if kind == place.kind and place.model]

    def between(self, before: str, place: Place, joined: bool) -> Between:
        """What stands between an item of a kind and another."""
        composer = self._behind(before)
        if joined:
            composer.join(place)
        else:
            composer.end_turn()
            composer.begin_turn(place)
        said, rest = tuple(_said(composer)), 0
        if not joined and place.turn_attributes:
            rest = 1 + bool(place.group_open)
        lead = place.lead if not joined and place.open else ""
        opening = f"{lead}{place.open if place.own_attributes else f'{place.open}{place.head_end}'}"
        unclosed = composer.unclosed
        stop = self.layout.stop_in(opening) if unclosed is not None and unclosed.model else 0
        of_model = place.model and (composer.model or self.layout.opens(place))
        head = tuple([one for one in ((opening[:stop], True), (opening[stop:], of_model)) if one[0]])
        return Between(joined, said[: len(said) - rest], said[len(said) - rest :], head, of_model)

    def goes_on(self, before: str, thinks: bool) -> str:
        """What a prompt opens behind an item of a kind."""
        composer = self._behind(before)
        opened(composer, Request(), thinks, None)
        return "".join(composer.out.pieces)

    def ending(self, before: str) -> Said:
        """What ends a document behind an item of a kind."""
        return (*self.closing(before), (self.layout.document.end, False))

    def closing(self, before: str) -> Said:
        """What ends a turn behind an item of a kind."""
        composer = self._behind(before)
        composer.end_turn()
        return tuple(_said(composer))

    def closed(self, before: str) -> Said:
        """The same, and what stands before something in no turn."""
        composer = self._behind(before)
        composer.end_turn()
        composer.separate()
        return tuple(_said(composer))

    def is_marked(self, before: str, place: Place) -> bool:
        """Whether the opening of a place's turn stands behind an item of a kind."""
        composer = self._behind(before)
        turn = composer.ended if composer.place is None else composer.place.turn
        return place.turn.is_marked(turn)

    def _behind(self, before: str) -> Composer:
        """A composer that has written an item of a kind, and nothing that one would see."""
        composer = Composer(self.layout, Writer(self.layout.escape, archive=False))
        composer.out.item = 1
        if before == BEGINNING:
            return composer
        composer.separated = False
        if before == LISTED:
            composer.ended = self._turn_of_tools()
            return composer
        composer.place = self.layout.places[before]
        composer.model, composer.last = composer.place.model, 0
        return composer

    def _turn_of_tools(self) -> Turn | None:
        """The turn that stands before what follows a list of tools."""
        place = self.layout.places.get(System.kind)
        return None if place is None else place.turn


def _said(composer: Composer) -> Iterator[tuple[str, bool]]:
    for text, mark in zip(*composer.out.flat(), strict=True):
        yield text, bool(mark & TRAINABLE)
