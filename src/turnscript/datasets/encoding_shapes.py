"""Owns the short way to a draft: rows whose items say one text each, of the same kinds, differ in these texts alone.

All that stands around them is taken from the rendering of one such row, and is made once. So there is one renderer all
the same. What it would lose or write otherwise for the sake of a text goes the long way.
"""

from __future__ import annotations

from itertools import accumulate
from typing import Any, NamedTuple

from turnscript.core.conversation import Conversation, Item, Request, Text
from turnscript.core.errors import TurnscriptError
from turnscript.datasets.drafts import Draft, Measured
from turnscript.datasets.form import Spoken
from turnscript.engine.layout import Place, layout_of
from turnscript.engine.spans import CONTROL, TRAINABLE, flatten, flattening
from turnscript.formats.format import Format

_LONGEST = 64
"""Of rows with more items hardly two are alike."""
_REMEMBERED = 4096
_PROBE = "x"
Kinds = tuple[type[Item], ...]


class Shape(NamedTuple):
    """What rows of the same kinds have in common: pieces with a probe in each of the `holes`, which are at `places`.

    `marks` and `values` are those of the pieces. `borders`: where another value begins, as the bytes of the literals
    before and how many holes there are before; `kept`: the values of all stretches. `size`: the bytes of all literals.
    `end`: the weight of the token behind the document.
    """

    pieces: list[str]
    holes: list[int]
    places: list[Place]
    marks: list[int]
    values: list[int]
    borders: list[tuple[int, int]]
    kept: list[int]
    size: int
    end: int


class Shapes:
    """Makes drafts of rows whose items say one text each, where all that the model writes counts, and nothing else.

    `scale`: the weight byte that stands for 1.
    """

    def __init__(self, format_: Format, scale: int) -> None:
        self._format = format_
        self._scale = scale
        self._layout = layout_of(format_.document)
        self._flattened = format_.document.flattened
        self._blank = format_.document.blank
        self._known: dict[Kinds, Shape | None] = {}

    def draft(self, said: Spoken) -> Draft | None:
        """Return the draft of such items; None if it must be made the long way."""
        kinds, texts = said.kinds, said.texts
        if not 0 < len(kinds) <= _LONGEST:
            return None
        shape = self._known[kinds] if kinds in self._known else self._add(kinds)
        if shape is None:
            return None
        if self._flattened:
            blank = self._blank
            texts = [flatten(text, blank) for text in texts]
        if not all(texts):
            return None
        pieces, sizes = shape.pieces.copy(), [0]
        for hole, place, text in zip(shape.holes, shape.places, texts, strict=True):
            written = place.protect(text) if place.lead_of_tags in text else text
            pieces[hole] = written
            sizes.append(len(written) if written.isascii() else len(written.encode()))
        ends = list(accumulate(sizes))
        starts = [0, *[before + ends[holes] for before, holes in shape.borders]]
        draft = Draft(pieces, shape.marks, shape.values, Measured(shape.size + ends[-1], starts, shape.kept))
        changed = zip(said.texts, texts, strict=True) if self._flattened and texts != said.texts else ()
        draft.losses = [flattening(said.places[at]) for at, (text, flat) in enumerate(changed) if text != flat]
        draft.end = shape.end
        return draft

    def _add(self, kinds: Kinds) -> Shape | None:
        if len(self._known) >= _REMEMBERED:
            self._known.clear()
        shape = self._known[kinds] = self._made(kinds)
        return shape

    def _made(self, kinds: Kinds) -> Shape | None:
        """Return the shape of rows with items of these kinds; None if the format has no short way to write them."""
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
        changes = [at for at in range(1, len(values)) if values[at] != values[at - 1]]
        sizes = [0 if mark & CONTROL == 0 else len(piece.encode()) for piece, mark in zip(pieces, marks, strict=True)]
        borders = [(sum(sizes[:at]), sum(hole < at for hole in holes)) for at in changes]
        kept = [values[0], *[values[at] for at in changes]]
        end = values[-1] if self._format.ends_late(items[-1]) else 0
        return Shape(pieces, holes, places, marks, values, borders, kept, sum(sizes), end)
