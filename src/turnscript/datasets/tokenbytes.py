"""Owns what tokens spell: the bytes of many ids at once, and where each of them begins and ends there.

Every id is decoded by its tokenizer, once. Where an id stands for the same bytes wherever it is, those are kept behind
one another, and a text is gathered from them without a loop over its tokens.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from turnscript.datasets.tokenizer import Ends, Ids, Tokenizer

_AT_ONCE = 1 << 16
"""So many tokens are gathered at once: each byte of theirs takes sixteen meanwhile."""
_UNKNOWN = -1


class Spelled(NamedTuple):
    """What ids stand for. `widths`: how many bytes each is by itself, 0 for the one that ends documents."""

    data: bytes
    widths: Ends


class TokenBytes:
    """The bytes of a tokenizer's ids, as far as anybody has asked for them."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._places = np.full(tokenizer.size, _UNKNOWN, np.int64)
        self._widths = np.zeros(tokenizer.size, np.int64)
        self._bytes = np.zeros(_AT_ONCE, np.uint8)
        self._used = 0

    def spell(self, ids: Ids) -> Spelled:
        """Return what ids stand for: what `Tokenizer.decode` says of them."""
        places = self._places[ids]
        if len(places) and int(places.min()) == _UNKNOWN:
            self._learn(ids[places == _UNKNOWN])
            places = self._places[ids]
        widths = self._widths[ids]
        if self._tokenizer.lengths is None:
            return Spelled(self._tokenizer.decode(ids.tolist()), widths)
        parts = range(0, max(len(ids), 1), _AT_ONCE)
        data = [self._gathered(places[at : at + _AT_ONCE], widths[at : at + _AT_ONCE]) for at in parts]
        return Spelled(data[0] if len(data) == 1 else b"".join(data), widths)

    def _gathered(self, places: Ends, widths: Ends) -> bytes:
        found = np.repeat(places - (widths.cumsum() - widths), widths)
        found += np.arange(len(found))
        data: bytes = self._bytes[found].tobytes()
        return data

    def _learn(self, ids: Ids) -> None:
        """Decode ids that are new."""
        for one in np.unique(ids).tolist():
            spelled = np.frombuffer(self._tokenizer.decode([one]), np.uint8)
            start, self._used = self._used, self._used + len(spelled)
            if self._used > len(self._bytes):
                self._bytes = np.concatenate([self._bytes, np.zeros(self._used, np.uint8)])
            self._bytes[start : self._used] = spelled
            self._places[one], self._widths[one] = start, len(spelled)


__all__ = ["Spelled", "TokenBytes"]
