"""Owns the short way to check a sample: what is true of one row of some kinds of items is true of all such rows.

Only rows whose items say one text each go it, texts that the renderer writes as they are. Of the first rows of the same
kinds, and of one in some more, everything is checked the long way. For the others it is proved once, on probes, how the
renderer writes them, which prompts lead to their turns and what ends these; a row must then be these literals with its
texts between them, be read back by the strict reader, and have what ends its turns trained. Whatever is otherwise about
a row goes the long way, which says what is wrong.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import chain
from typing import Any

import numpy as np
from msgspec import Struct

from turnscript.conversation import Conversation, Item, Request, Text
from turnscript.datasets.encoding import Encoder, Sample
from turnscript.datasets.form import Spoken
from turnscript.datasets.tokenizer import Ends
from turnscript.datasets.turn_checks import MODEL, spread, trained_turns
from turnscript.engine.layout import Place, layout_of
from turnscript.engine.spans import CONTROL, ITEM, TRAINABLE, flatten
from turnscript.errors import TurnscriptError

Kinds = tuple[type[Item], ...]

_FIRST, _AGAIN = 3, 32
"""So many first rows of a shape go the long way, and one in so many afterwards."""
_LONGEST, _REMEMBERED = 64, 4096
_PROBE = "x"


class Proof(Struct):
    """What is known of all rows of some kinds.

    `literals`: what stands before, between and behind the texts; `sizes`: their bytes. `places`: where the texts are.
    `prompts`: of turns that are looked at, how many texts stand before them and what the prompt has behind the last of
    these. `said`: the items that the model says, `closings`: the bytes of what ends each, `ends`: how many of them end
    a turn. `late`: the last one ends with the document.
    """

    literals: list[str]
    sizes: list[int]
    places: list[Place]
    prompts: list[tuple[int, str]]
    said: list[int]
    closings: list[int]
    ends: int
    late: bool


class Led(Struct):
    """A row that is proved: the prompts of its turns, and how many ends are trained."""

    prompts: list[str]
    ends: int


Leading = Callable[[Request, Item], Sequence[str]]
"""The prompts that may lead to an item behind a conversation, as texts."""


class Proofs:
    """The proofs of one encoder's rows. Where there are several ways to write a row, all go the long way."""

    def __init__(self, encoder: Encoder, leading: Leading) -> None:
        options = encoder.options
        plain = encoder.train.is_plain() and options.escape == "auto" and encoder.format.template is None
        self._able = plain and encoder.mode == "text"
        self._encoder = encoder
        self._leading = leading
        self._layout = layout_of(encoder.format.document)
        self._seen: dict[Kinds, int] = {}
        self._known: dict[Kinds, Proof | None] = {}

    def of(self, said: Spoken | None) -> Proof | None:
        """The proof for a row; None where it goes the long way."""
        if not self._able or said is None or not 0 < len(said.kinds) <= _LONGEST:
            return None
        seen = self._seen[said.kinds] = self._seen.get(said.kinds, -1) + 1
        if seen < _FIRST or not seen % _AGAIN:
            return None
        if said.kinds not in self._known:
            if len(self._known) >= _REMEMBERED:
                self._known.clear()
            self._known[said.kinds] = self._proved(said.kinds)
        return self._known[said.kinds]

    def led(self, proof: Proof, said: Spoken, text: str, sample: Sample, ends: Ends) -> Led | None:
        """What is true of a row of which `text` is decoded; None if it must be looked at the long way."""
        texts = said.texts
        if not all(texts) or text != _between(proof.literals, texts) or not self._as_they_are(proof, texts):
            return None
        if not self._reads(said, text) or not _ended(
            proof, texts, sample, ends, late_end=self._encoder.end is not None
        ):
            return None
        starts = [_between(proof.literals[: count + 1], texts[:count], last=False) for count, _ in proof.prompts]
        return Led([start + tail for start, (_, tail) in zip(starts, proof.prompts, strict=True)], proof.ends)

    def _as_they_are(self, proof: Proof, texts: Sequence[str]) -> bool:
        """Whether the renderer writes texts without a change."""
        document = self._encoder.format.document
        if document.flattened and any(flatten(text, document.blank) != text for text in texts):
            return False
        pairs = zip(proof.places, texts, strict=True)
        return all(place.lead_of_tags not in text or place.protect(text) == text for place, text in pairs)

    def _reads(self, said: Spoken, text: str) -> bool:
        """Whether the strict reader gives the items back, and nothing beside them."""
        try:
            found = self._encoder.format.parse(text)
        except TurnscriptError:
            return False
        items = found.items
        if found.tools or len(items) != len(said.kinds):
            return False
        return all(
            type(item) is kind and _says_only(item, one)
            for item, kind, one in zip(items, said.kinds, said.texts, strict=True)
        )

    def _proved(self, kinds: Kinds) -> Proof | None:
        places = [place for kind in kinds if (place := self._layout.plain.get(kind)) is not None]
        items: list[Any] = [kind(content=[Text(text=_PROBE)], at=str(at)) for at, kind in enumerate(kinds)]  # type: ignore[call-arg]
        try:
            out = self._encoder.format.write(Request(conversation=Conversation(items=list(items))))
        except TurnscriptError:
            return None
        pieces, marks = out.flat()
        holes = [at for at, mark in enumerate(marks) if not mark & CONTROL]
        if len(places) < len(kinds) or out.all_losses() or [pieces[at] for at in holes] != [_PROBE] * len(kinds):
            return None
        borders = [(at + 1, after) for at, after in zip([-1, *holes], [*holes, len(pieces)], strict=True)]
        literals = ["".join(pieces[start:end]) for start, end in borders]
        prompts = self._prompts(items, literals)
        said = [at for at, item in enumerate(items) if isinstance(item, MODEL)]
        closings = [_closing(pieces, marks, holes[at]) for at in said]
        late = bool(said) and said[-1] == len(items) - 1 and self._encoder.format.ends_late(items[-1])
        if prompts is None:
            return None
        goes_on = [at + 1 < len(items) and isinstance(items[at + 1], MODEL) for at in said]
        ends = sum(bool(size) or not on for size, on in zip(closings, goes_on, strict=True))
        return Proof(literals, [len(one.encode()) for one in literals], places, prompts, said, closings, ends, late)

    def _prompts(self, items: list[Item], literals: Sequence[str]) -> list[tuple[int, str]] | None:
        """The prompts of turns; None where one does not lead into the text."""
        found: list[tuple[int, str]] = []
        for at in spread(trained_turns(items, [isinstance(item, MODEL) for item in items])):
            before = _between(literals[: at + 1], [_PROBE] * at, last=False)
            asked = Request(conversation=Conversation(items[:at]))
            tails = [text[len(before) :] for text in self._leading(asked, items[at]) if text.startswith(before)]
            tails = [tail for tail in tails if literals[at].startswith(tail)]
            if not tails:
                return None
            found.append((at, tails[0]))
        return found


def _between(literals: Sequence[str], texts: Sequence[str], *, last: bool = True) -> str:
    """Literals with texts between them. `last`: the last literal too."""
    pairs = chain.from_iterable(zip(literals, texts, strict=False))
    return "".join([*pairs, literals[-1]] if last else pairs)


def _says_only(item: Any, text: str) -> bool:
    content = item.content
    if len(content) != 1 or type(content[0]) is not Text or content[0].text != text or content[0].extra:
        return False
    return not item.open and not item.extra and getattr(item, "name", None) is None


def _closing(pieces: Sequence[str], marks: Sequence[int], hole: int) -> int:
    """The bytes of what the model writes behind a text to end it."""
    size = 0
    for piece, mark in zip(pieces[hole + 1 :], marks[hole + 1 :], strict=True):
        if not (mark & CONTROL and mark & TRAINABLE and mark // ITEM == marks[hole] // ITEM):
            break
        size += len(piece.encode())
    return size


def _ended(proof: Proof, texts: Sequence[str], sample: Sample, ends: Ends, *, late_end: bool) -> bool:
    """Whether each turn is trained, and what ends it."""
    widths = [len(text) if text.isascii() else len(text.encode()) for text in texts]
    behind = np.cumsum([size + width for size, width in zip(proof.sizes, [*widths, 0], strict=True)])
    if not len(ends) or ends[-1] != behind[-1]:
        return False
    stops = behind[proof.said]
    starts = np.concatenate(([0], ends[:-1]))
    weights = sample.weights[: len(ends)] > 0
    trained = np.concatenate(([0], np.cumsum(weights)))
    words = np.concatenate(([0], np.cumsum(weights & (starts < ends))))  # without the token behind the document
    first, last = (
        np.searchsorted(ends, stops, side="right"),
        np.searchsorted(starts, stops + proof.closings, side="left"),
    )
    last = np.maximum(first, last)
    inside = np.searchsorted(starts, stops - [widths[at] for at in proof.said])
    within = np.searchsorted(ends, stops, side="right")
    whole = (trained[last] - trained[first] == last - first).all() and (
        words[np.maximum(inside, within)] > words[inside]
    ).all()
    return bool(whole) and not (proof.late and late_end and not sample.weights[-1])


__all__ = ["Led", "Proof", "Proofs"]
