"""Owns what tokens spell: the bytes of many ids at once, and where each of them begins and ends there.

Every id is decoded by its tokenizer, once. Where an id stands for the same bytes wherever it is, a text is joined of
them without a loop over its tokens.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from turnscript.datasets.tokenizer import Ends, Ids, Tokenizer

_UNKNOWN = -1
_WORD = 8
"""So many bytes are compared at once."""


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
        self._words, self._tails, self._masks = np.zeros((3, tokenizer.size), np.uint64)

    def spells(self, each: Sequence[Ids], data: bytes) -> Ends | None:
        """Return how many bytes each id of many samples is by itself, if one behind the other they stand for a text.

        Eight bytes are compared at once, so no loop goes over tokens but over those that are longer.
        """
        if self._tokenizer.lengths is None:
            found = list(map(self.spell, each))
            same = data == b"".join([one.data for one in found])
            return np.concatenate([one.widths for one in found]) if same else None
        ids = np.concatenate(each)
        widths = self._known(ids)
        starts = widths.cumsum() - widths
        if starts[-1] + widths[-1] != len(data):
            return None
        words = np.ndarray(len(data) + 1, "<u8", data + bytes(_WORD), strides=(1,))
        same = words.take(starts) & self._masks.take(ids) == self._words.take(ids)
        long = np.flatnonzero(widths > _WORD)
        same[long] &= words[starts[long] + widths[long] - _WORD] == self._tails[ids[long]]
        longer = long[widths[long] > 2 * _WORD]
        pairs = zip(self._spelled[ids[longer]].tolist(), starts[longer].tolist(), strict=True)
        return widths if same.all() and all(data.startswith(token, at) for token, at in pairs) else None

    def spell(self, ids: Ids) -> Spelled:
        """Return what ids stand for: what `Tokenizer.decode` says of them."""
        widths = self._known(ids)
        if self._tokenizer.lengths is None:
            return Spelled(self._tokenizer.decode(ids.tolist()), widths)
        return Spelled(b"".join(self._spelled[ids].tolist()), widths)

    def _known(self, ids: Ids) -> Ends:
        """Return the widths of ids, of which those that are new are decoded."""
        widths = self._widths.take(ids)
        if len(widths) and int(widths.min()) == _UNKNOWN:
            self._learn(np.unique(ids[widths == _UNKNOWN]))
            widths = self._widths.take(ids)
        return widths

    def _learn(self, new: Ids) -> None:
        """Decode ids that are new."""
        spelled = [self._tokenizer.decode([one]) for one in new.tolist()]
        self._spelled[new] = spelled
        self._widths[new] = list(map(len, spelled))
        self._words[new] = [int.from_bytes(one[:_WORD], "little") for one in spelled]
        self._tails[new] = [int.from_bytes(one[-_WORD:], "little") for one in spelled]
        self._masks[new] = [(1 << 8 * min(len(one), _WORD)) - 1 for one in spelled]


__all__ = ["Spelled", "TokenBytes"]
