"""Owns the short way to check samples: what is true of one row of some kinds of items is true of all such rows.

Only rows whose items say one text each go it, texts that the renderer writes as they are. Of the first rows of the same
kinds, and of one in some more, everything is checked the long way. For the others it is proved once, on probes, how the
renderer writes them, which prompts lead to their turns and what ends these, and that the strict reader gives them back.
A row must then be these literals with its texts between them, byte for byte as its tokens spell them, and have what
ends its turns trained. It is read back as the probe was where its texts decide nothing about that: where all tags
begin alike, at the start of a line, and no text has that, there are no tags but those of the literals
(`engine.read.settles`). Any other row is read back itself. Whatever is otherwise about a row goes the long way, which
says what is wrong. Many rows are looked at together, because most of the work is over arrays.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import chain, pairwise
from typing import Any, NamedTuple

import numpy as np
from msgspec import Struct

from turnscript.core.conversation import Conversation, Item, Request, Text
from turnscript.core.errors import TurnscriptError
from turnscript.datasets.encoding import Encoder, Sample
from turnscript.datasets.form import Example, Spoken
from turnscript.datasets.promptids import Cut
from turnscript.datasets.tokenbytes import Spelled
from turnscript.datasets.tokenizer import Ends
from turnscript.datasets.turn_checks import MODEL, spread, trained_turns
from turnscript.engine.layout import Place, layout_of
from turnscript.engine.read import settles
from turnscript.engine.spans import CONTROL, ITEM, TRAINABLE, flatten

Kinds = tuple[type[Item], ...]

_FIRST, _AGAIN = 3, 128
"""So many first rows of a shape go the long way, and one in so many afterwards."""
_LONGEST, _REMEMBERED = 64, 4096
_PROBE = "x"


class Proof(Struct):
    """What is known of all rows of some kinds.

    `literals`: what stands before, between and behind the texts. `places`: where the texts are. `tag`: what
    they have to be without to be read back as they stand, empty if that is unknown; `tags`: how often the literals have
    it. `prompts`: of turns that are looked at, how
    many texts stand before them and the bytes of what the prompt has behind the last of these. `said`: the items that
    the model says, `closings`: the bytes of what ends each, `ends`: how many of them end a turn. `late`: the last one
    ends with the document.
    """

    literals: list[bytes]
    places: list[Place]
    tag: bytes
    tags: int
    prompts: list[tuple[int, int]]
    said: list[int]
    closings: list[int]
    ends: int
    late: bool

    def around(self, texts: Sequence[bytes]) -> bytes:
        """Return the literals with texts between them."""
        parts = [b""] * (2 * len(texts) + 1)
        parts[::2], parts[1::2] = self.literals, texts
        return b"".join(parts)


class Led(NamedTuple):
    """A row that is proved: how many prompts lead to turns of it, those that end where a token does, and how many ends
    are trained.
    """

    prompts: int
    cuts: list[Cut]
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

    def led(self, samples: Sequence[tuple[Example, Sample]], spelled: Sequence[Spelled]) -> list[Led | None]:
        """Return what is true of samples, None for each that must be looked at the long way."""
        found: list[Led | None] = [None] * len(samples)
        alike: dict[int, _Alike] = {}
        for at, ((example, _), (data, _)) in enumerate(zip(samples, spelled, strict=True)):
            said = example.spoken
            proof = None if example.weights or example.context else self._of(said)
            if proof is None or said is None:
                continue
            parts = [text.encode("utf-8", "surrogatepass") for text in said.texts]
            if data == proof.around(parts) and all(parts) and self._is_given_back(proof, said, data):
                group = alike.setdefault(id(proof), _Alike(proof, [], []))
                group.places.append(at)
                group.widths.append(list(map(len, parts)))
        if alike:
            tokens = _Tokens.of([sample for _, sample in samples], spelled)
            for group in alike.values():
                for at, led in _ended(group, tokens, late=group.proof.late and self._encoder.end is not None):
                    found[at] = led
        return found

    def _of(self, said: Spoken | None) -> Proof | None:
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

    def _is_given_back(self, proof: Proof, said: Spoken, data: bytes) -> bool:
        """Return whether the renderer writes the texts unchanged and the strict reader gives them back."""
        if proof.tag and data.count(proof.tag) == proof.tags:
            return True
        return self._as_they_are(proof, said.texts) and self._reads(said.kinds, said.texts, data.decode())

    def _as_they_are(self, proof: Proof, texts: Sequence[str]) -> bool:
        """Whether the renderer writes texts without a change."""
        document = self._encoder.format.document
        if document.flattened and any(flatten(text, document.blank) != text for text in texts):
            return False
        pairs = zip(proof.places, texts, strict=True)
        return all(place.lead_of_tags not in text or place.protect(text) == text for place, text in pairs)

    def _reads(self, kinds: Kinds, texts: Sequence[str], written: str) -> bool:
        """Whether the strict reader gives the items back, and nothing beside them."""
        try:
            found = self._encoder.format.parse(written)
        except TurnscriptError:
            return False
        items = found.items
        if found.tools or len(items) != len(kinds):
            return False
        return all(
            type(item) is kind and _says_only(item, one) for item, kind, one in zip(items, kinds, texts, strict=True)
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
        probes = [_PROBE] * len(kinds)
        if len(places) < len(kinds) or out.all_losses() or [pieces[at] for at in holes] != probes:
            return None
        borders = [(at + 1, after) for at, after in zip([-1, *holes], [*holes, len(pieces)], strict=True)]
        literals = ["".join(pieces[start:end]) for start, end in borders]
        prompts = self._prompts(items, literals)
        if prompts is None or not self._reads(kinds, probes, "".join(pieces)):
            return None
        said = [at for at, item in enumerate(items) if isinstance(item, MODEL)]
        closings = [_closing(pieces, marks, holes[at]) for at in said]
        late = bool(said) and said[-1] == len(items) - 1 and self._encoder.format.ends_late(items[-1])
        goes_on = [at + 1 < len(items) and isinstance(items[at + 1], MODEL) for at in said]
        ends = sum(bool(size) or not on for size, on in zip(closings, goes_on, strict=True))
        tag, data = self._tag(places, literals).encode(), [literal.encode() for literal in literals]
        tags = sum(literal.count(tag) for literal in data)
        return Proof(data, places, tag, tags, prompts, said, closings, ends, late)

    def _tag(self, places: Sequence[Place], literals: Sequence[str]) -> str:
        """What texts between these have to be without to be written and read as they stand; empty if unknown."""
        document = self._encoder.format.document
        tags = {settles(document, *pair) for pair in pairwise(literals)}
        tags.update(*(place.escape.leads for place in places))
        return tags.pop() if len(tags) == 1 and not document.flattened else ""

    def _prompts(self, items: list[Item], literals: Sequence[str]) -> list[tuple[int, int]] | None:
        """The prompts of turns; None where one does not lead into the text."""
        found: list[tuple[int, int]] = []
        for at in spread(trained_turns(items, [isinstance(item, MODEL) for item in items])):
            before = "".join(chain.from_iterable(zip(literals[:at], [_PROBE] * at, strict=True)))
            asked = Request(conversation=Conversation(items[:at]))
            tails = [text[len(before) :] for text in self._leading(asked, items[at]) if text.startswith(before)]
            tails = [tail for tail in tails if literals[at].startswith(tail)]
            if not tails:
                return None
            found.append((at, len(tails[0].encode())))
        return found


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


class _Alike(NamedTuple):
    """Samples that one proof is for: their positions, and how many bytes each of their texts has."""

    proof: Proof
    places: list[int]
    widths: list[list[int]]


class _Tokens(NamedTuple):
    """The tokens of samples behind one another. `starts` and `ends`: where each begins and ends, in bytes of all.

    `trained`: how many are trained before each, `words`: how many of these have bytes, as the one behind a document has
    none. `first`: where each sample begins, and the last one ends; `bytes`: the same in bytes.
    """

    starts: Ends
    ends: Ends
    trained: Ends
    words: Ends
    first: Ends
    bytes: Ends

    @classmethod
    def of(cls, samples: Sequence[Sample], spelled: Sequence[Spelled]) -> _Tokens:
        widths = np.concatenate([one.widths for one in spelled])
        weights = np.concatenate([sample.weights[: len(sample.ids)] for sample in samples]) > 0
        first = np.cumsum([0, *[len(sample.ids) for sample in samples]])
        borders, trained, words = (
            np.concatenate(([0], one.cumsum())) for one in (widths, weights, weights & (widths > 0))
        )
        return cls(borders[:-1], borders[1:], trained, words, first, borders[first])


def _ended(alike: _Alike, tokens: _Tokens, *, late: bool) -> Iterator[tuple[int, Led]]:
    """Give the samples of which each turn is trained, and what ends it."""
    proof, places, widths = alike.proof, np.array(alike.places), np.array(alike.widths)
    starts, ends, trained, words = tokens.starts, tokens.ends, tokens.trained, tokens.words
    sizes = np.array([len(literal) for literal in proof.literals])
    begins, first, behind = tokens.bytes[places], tokens.first[places], tokens.first[places + 1]
    edges = np.column_stack((begins, begins[:, None] + (sizes[:-1] + widths).cumsum(axis=1)))
    stops = edges[:, 1:][:, proof.said]
    inside = np.searchsorted(starts, stops - widths[:, proof.said])
    closing = np.searchsorted(ends, stops, side="right")
    closed = np.maximum(closing, np.searchsorted(starts, stops + proof.closings, side="left"))
    good = trained[closed] - trained[closing] == closed - closing
    good &= words[np.maximum(inside, closing)] > words[inside]
    fine = good.all(axis=1) & (edges[:, -1] + sizes[-1] == tokens.bytes[places + 1])
    if late:
        fine &= trained[behind] > trained[behind - 1]
    counts, tails = [count for count, _ in proof.prompts], [tail for _, tail in proof.prompts]
    prompts = edges[:, counts] + tails
    cut = np.searchsorted(ends, prompts)
    exact = ends[np.minimum(cut, len(ends) - 1)] == prompts
    columns = (fine, exact, cut + 1 - first[:, None], prompts - begins[:, None])
    for place, is_fine, *row in zip(alike.places, *(column.tolist() for column in columns), strict=True):
        if is_fine:
            cuts = [Cut(count, size) for ends_here, count, size in zip(*row, strict=True) if ends_here]
            yield place, Led(len(counts), cuts, proof.ends)


__all__ = ["Led", "Proof", "Proofs"]
