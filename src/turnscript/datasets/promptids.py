"""Owns counting the prompts whose ids are those that their samples begin with, in the mode `text`.

There a text may go on within a token, so a prompt may end in another token, and that is no fault. Prompts wait until
there are many, because encoding them together takes a third of the time. Where a text that is cut at the end of a token
has the same ids, the longest prompt of a sample tells of all the others, and the ids of its whole text of that.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import takewhile
from typing import NamedTuple

import numpy as np

from turnscript.datasets.tokenizer import Ends, Ids, Tokenizer

_TOGETHER = 1 << 20
"""So many characters wait."""


class Cut(NamedTuple):
    """A prompt ends here, and a token does, too; it has so many tokens and bytes of the sample."""

    tokens: int
    bytes: int


class _Waiting(NamedTuple):
    """A text, the ids that it should have, and of how many of them each prompt is; of as many as it has if unknown."""

    text: str
    ids: Ids
    counts: list[int]


class PromptIds:
    """Compares prompts with the ids of their samples."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._waiting: list[_Waiting] = []
        self._characters = 0
        self._exact = 0

    def add(self, data: bytes, sizes: Sequence[int], ids: Ids, ends: Ends | None) -> None:
        """Add the prompts with which the text of these ids begins, by how many bytes each has.

        `ends`: where the ids end in the text, None if unknown.
        """
        if ends is None:
            for size in sizes:
                self._wait(_Waiting(data[:size].decode(), ids, []))
            return
        places = zip(np.searchsorted(ends, sizes := sorted(sizes)).tolist(), sizes, strict=True)
        cuts = [Cut(at + 1, size) for at, size in places if at < len(ends) and ends[at] == size]
        for some in [cuts] if self._tokenizer.cuts_free and cuts else [[cut] for cut in cuts]:
            self._wait(_Waiting(data[: some[-1].bytes].decode(), ids, [cut.tokens for cut in some]))

    def add_proved(self, count: int) -> None:
        """Add so many prompts that end where a token does, of samples whose ids were just made of their whole text.

        Where a text may be cut, the ids of a prompt are the beginning of those by that, and are not made again.
        """
        self._exact += count

    def exact(self) -> int:
        """Return how many prompts had the ids that their samples begin with."""
        self._settle()
        return self._exact

    def _wait(self, prompt: _Waiting) -> None:
        self._waiting.append(prompt)
        self._characters += len(prompt.text)
        if self._characters >= _TOGETHER:
            self._settle()

    def _settle(self) -> None:
        """Compare all that wait."""
        each = self._tokenizer.each([prompt.text for prompt in self._waiting])
        for (_, ids, counts), found in zip(self._waiting, each, strict=True):
            expected = ids[: len(found)].tolist()
            if found == expected:
                self._exact += len(counts) or 1
            elif len(counts) > 1:
                alike = len(list(takewhile(lambda pair: pair[0] == pair[1], zip(found, expected, strict=False))))
                self._exact += sum(count <= alike for count in counts)
        self._waiting.clear()
        self._characters = 0


__all__ = ["Cut", "PromptIds"]
