"""Owns the contract of a tokenizer: content as ids, control tokens by their literal, and where each token ends.

Content never becomes a control token: `encode` knows no control tokens at all. Whoever wants one takes its id from
`controls`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

Ids = NDArray[np.uint32]
Ends = NDArray[np.int64]
Lengths = NDArray[np.int32]

FIRST, EACH = "the first text", "each text"
"""Texts of a prompt: the one that it begins with; that and each that stands behind a control token."""


class Tokenizer(ABC):
    """A tokenizer. `spec` is what `get_tokenizer` makes it again from, in another process.

    `size`: how many rows an embedding needs for all ids. `end`: the id that separates documents, None if there is
    none. `controls`: the control tokens by their literals. `fingerprint`: a SHA-256 over all that decides the ids.
    `lengths`: by id, how many bytes of text it is, 0 for control tokens; None where an id does not tell. `strips`: the
    control tokens that take the white space beside them when a server finds them in a text, `strips_left` and
    `strips_right` on which side; samples of a format keep it. `spaced`: before which a server puts a space that such
    samples do not have, FIRST or EACH; empty: before none. `always_spaced`: before one that begins with a space too.
    `cuts_free`: a text that is cut where a token of it ends has the same ids, piece by piece.
    """

    spec: str
    size: int
    end: int | None
    controls: Mapping[str, int]
    fingerprint: str
    lengths: Lengths | None = None
    strips: frozenset[str] = frozenset()
    strips_left: frozenset[str] = frozenset()
    strips_right: frozenset[str] = frozenset()
    spaced: str = ""
    always_spaced: bool = False
    cuts_free: bool = False

    def load(self) -> None:  # noqa: B027  (most have nothing to do)
        """Load now what takes time, because there will be much to encode."""

    @abstractmethod
    def encode(self, texts: Sequence[str]) -> list[list[int]]:
        """Return each text as ids, none of a control token. Raises BadRow(E_UTF8) for half of a surrogate pair."""

    def each(self, texts: Sequence[str]) -> Iterator[list[int]]:
        """Give the ids of each text, one after the other, for who needs the ids of a text only until the next."""
        return iter(self.encode(texts))

    @abstractmethod
    def ends(self, text: str, ids: Sequence[int]) -> Ends:
        """Return where each token of a text ends, in bytes of its UTF-8. The last is the length of the text.

        A token that is a piece of a character ends where its bytes end.
        """

    @abstractmethod
    def decode(self, ids: Sequence[int]) -> bytes:
        """Return the bytes that ids stand for, control tokens as their literals, the end token as nothing."""

    def normal(self, text: str) -> str:
        """Return a text as its tokens spell it, where the tokenizer changes what it reads, to NFC for example."""
        return text
