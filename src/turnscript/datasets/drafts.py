"""Owns drafts: an example as pieces of text with what each counts, and what two examples are compared by."""

from __future__ import annotations

import hashlib
from array import array
from collections.abc import Sequence
from itertools import accumulate
from typing import Any, NamedTuple

from turnscript.core.losses import Loss

DIGEST = 16


class Measured(NamedTuple):
    """How many bytes a text has as UTF-8, and its stretches: where each begins, and what it is worth."""

    size: int
    starts: list[int]
    kept: list[int]


class Draft:
    """An example as pieces: texts, marks (as a Writer has them) and values, which are weight bytes.

    `size` is how many bytes the whole text has as UTF-8, `starts` and `kept` its stretches: where each begins, in
    bytes, and what it is worth. `end`: the weight of the token behind the document. `losses`: what of the example the
    text does not show. `unlike`: how it differs from what its chat template makes of it; None where that is not known.
    `apart`: where, in characters, what a server is given ends and what a model writes begins, if the latter is to have
    tokens of its own; 0 where all is one text. `by`: what wrote it, if a proof did.
    `known`: what somebody has measured already.
    """

    __slots__ = ("apart", "by", "end", "kept", "losses", "marks", "size", "starts", "text", "texts", "unlike", "values")

    def __init__(self, texts: list[str], marks: list[int], values: list[int], known: Measured | None = None) -> None:
        self.texts = texts
        self.marks = marks
        self.values = values
        self.text = "".join(texts)
        self.losses: Sequence[Loss] = ()
        self.unlike: str | None = None
        self.end = 0
        self.apart = 0
        self.by: Any = None
        if known is not None:
            self.size, self.starts, self.kept = known
            return
        if self.text.isascii():
            sizes = list(map(len, texts))
        else:  # piece by piece: most of them are ASCII all the same, which takes no time
            sizes = [len(text) if text.isascii() else len(text.encode()) for text in texts]
        ends = list(accumulate(sizes))
        self.size = ends[-1]
        starts, kept = self.starts, self.kept = [0], [values[0]]
        value = values[0]
        for end, size, worth in zip(ends, sizes, values, strict=True):
            if worth != value and size:
                starts.append(end - size)
                kept.append(worth)
                value = worth

    @property
    def digest(self) -> bytes:
        """Return what examples have in common only if they are the same text with the same weights and end.

        A text that was tokenized holds its UTF-8 already, most often, and need not be encoded for this.
        """
        found = hashlib.blake2b(self.text.encode(), digest_size=DIGEST)
        found.update(array("Q", [*self.starts, self.size]).tobytes() + bytes((*self.kept, self.end)))
        return found.digest()
