"""Owns what tokens spell: the bytes of many ids at once, and where each of them begins and ends there.

Every id is decoded by its tokenizer, once. Where an id stands for the same bytes wherever it is, a text is joined of
them without a loop over its tokens.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from turnscript.datasets.tokenizer import Ends, Ids, Tokenizer

_UNKNOWN = -1


class Spelled(NamedTuple):
    """What ids stand for. `widths`: how many bytes each is by itself, 0 for the one that ends documents."""

    data: bytes
    widths: Ends


class TokenBytes:
    """The bytes of a tokenizer's ids, as far as anybody has asked for them."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._spelled = np.zeros(tokenizer.size, object)
        self._widths = np.full(tokenizer.size, _UNKNOWN, np.int64)

    def spell_each(self, each: Sequence[Ids]) -> list[Spelled]:
        """Return what the ids of many samples stand for. Together they take a third of the time."""
        if self._tokenizer.lengths is None or len(each) == 1:
            return [self.spell(ids) for ids in each]
        data, widths = self.spell(np.concatenate(each) if each else np.zeros(0, np.uint32))
        places = np.cumsum([0, *map(len, each)])
        borders = np.concatenate(([0], widths.cumsum()))[places]
        pairs = zip(pairwise(borders.tolist()), pairwise(places.tolist()), strict=True)
        return [Spelled(data[start:end], widths[first:last]) for (start, end), (first, last) in pairs]

    def spell(self, ids: Ids) -> Spelled:
        """Return what ids stand for: what `Tokenizer.decode` says of them."""
        widths = self._widths[ids]
        if len(widths) and int(widths.min()) == _UNKNOWN:
            self._learn(np.unique(ids[widths == _UNKNOWN]))
            widths = self._widths[ids]
        if self._tokenizer.lengths is None:
            return Spelled(self._tokenizer.decode(ids.tolist()), widths)
        return Spelled(b"".join(self._spelled[ids].tolist()), widths)

    def _learn(self, new: Ids) -> None:
        """Decode ids that are new."""
        spelled = [self._tokenizer.decode([one]) for one in new.tolist()]
        self._spelled[new] = spelled
        self._widths[new] = list(map(len, spelled))


__all__ = ["Spelled", "TokenBytes"]
