"""Owns the short way to a draft: rows whose items say one text each, of the same kinds, differ in these texts alone.

All that stands around them is taken from the rendering of one such row, and is made once. So there is one renderer all
the same. What it would lose or write otherwise for the sake of a text goes the long way.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from turnscript.conversation import Conversation, Item, Request, Text
from turnscript.datasets.drafts import Draft, Stretches
from turnscript.datasets.form import Spoken
from turnscript.engine.layout import Place, layout_of
from turnscript.engine.spans import CONTROL, TRAINABLE, Writer
from turnscript.errors import TurnscriptError
from turnscript.format import Format
from turnscript.losses import Loss

_LONGEST = 64
"""Of rows with more items hardly two are alike."""
_REMEMBERED = 4096
_PROBE = "x"
Kinds = tuple[type[Item], ...]


class Shape(NamedTuple):
    """What rows of the same kinds have in common: pieces with a probe in each of the `holes`, which are at `places`.

    `leads`: the one character that a text must hold, or nothing, to need the protection of its place: it is found many
    times as fast as two. `marks` and `values` are those of the pieces, `stretches` where another value begins. `end`:
    the weight of the token behind the document.
    """

    pieces: list[str]
    holes: list[int]
    places: list[Place]
    leads: list[str]
    marks: list[int]
    values: list[int]
    stretches: Stretches
    end: int


class Shapes:
    """Makes drafts of rows whose items say one text each, where all that the model writes counts, and nothing else.

    `scale`: the weight byte that stands for 1.
    """

    def __init__(self, format_: Format, scale: int) -> None:
        self._format = format_
        self._scale = scale
        self._layout = layout_of(format_.document)
        self._out = Writer(self._layout.escape, archive=False)
        self._out.blank = format_.document.blank
        self._known: dict[Kinds, Shape | None] = {}

    def draft(self, said: Spoken) -> Draft | None:
        """The draft of such items; None if it must be made the long way."""
        kinds, texts = said.kinds, said.texts
        if not (0 < len(kinds) <= _LONGEST and all(texts)):
            return None
        shape = self._known[kinds] if kinds in self._known else self._add(kinds)
        if shape is None:
            return None
        losses: list[Loss] = []
        if self._format.document.flattened:
            if any(map(str.isspace, texts)):
                return None
            self._out.losses = losses
            texts = [self._out.flattened_text(text, said.places[at]) for at, text in enumerate(texts)]
        pieces = shape.pieces.copy()
        for hole, place, lead, text in zip(shape.holes, shape.places, shape.leads, texts, strict=True):
            pieces[hole] = place.protect(text) if lead in text else text
        draft = Draft(pieces, shape.marks, shape.values, shape.stretches)
        draft.losses = losses
        draft.end = shape.end
        return draft

    def _add(self, kinds: Kinds) -> Shape | None:
        if len(self._known) >= _REMEMBERED:
            self._known.clear()
        shape = self._known[kinds] = self._made(kinds)
        return shape

    def _made(self, kinds: Kinds) -> Shape | None:
        """The shape of rows with items of these kinds; None if the format has no short way to write them."""
        places = [place for kind in kinds if (place := self._layout.plain.get(kind)) is not None]
        if len(places) < len(kinds):
            return None
        items: list[Any] = [kind(content=[Text(text=_PROBE)]) for kind in kinds]  # type: ignore[call-arg]
        try:
            out = self._format.write(Request(conversation=Conversation(items=items)))
        except TurnscriptError:
            return None
        pieces, marks = out.flat()
        holes = [at for at, mark in enumerate(marks) if not mark & CONTROL]
        if out.all_losses() or not all(pieces) or [pieces[at] for at in holes] != [_PROBE] * len(kinds):
            return None
        values = [self._scale if mark & TRAINABLE else 0 for mark in marks]
        borders = [at for at in range(1, len(values)) if values[at] != values[at - 1]]
        end = values[-1] if self._format.ends_late(items[-1]) else 0
        stretches = Stretches(borders, [values[0], *[values[at] for at in borders]])
        leads = [place.lead_of_tags[:1] for place in places]
        return Shape(pieces, holes, places, leads, marks, values, stretches, end)
