"""Owns counting the prompts whose ids are those that their samples begin with, in the mode `text`.

There a text may go on within a token, so a prompt may end in another token, and that is no fault. Prompts wait until
there are many, because encoding them together takes a third of the time.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from turnscript.datasets.tokenizer import Ends, Ids, Tokenizer

_TOGETHER = 1 << 20
"""So many characters wait."""


class Begun(NamedTuple):
    """How much of a sample's text is compared already: so many of its ids, its characters and its bytes."""

    ids: int = 0
    characters: int = 0
    bytes: int = 0


class _Waiting(NamedTuple):
    """A text, the ids that it should have, and whether it goes on where the one that waits before it ends."""

    text: str
    ids: Ids
    goes_on: bool


class PromptIds:
    """Compares prompts with the ids of their samples."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._waiting: list[_Waiting] = []
        self._characters = 0
        self._same = False  # whether the last one that waited had its ids
        self._exact = 0

    def add(self, text: str, ids: Ids, ends: Ends | None, begun: Begun) -> Begun:
        """Add a prompt, with which the text of these ids begins. `ends`: where they end in it, None if unknown.

        `begun`: what was given for the prompt before, of the same sample.
        """
        if ends is None:
            self._wait(_Waiting(text, ids, goes_on=False))
            return begun
        if len(text) < begun.characters:
            begun = Begun()
        size = begun.bytes + len(text[begun.characters :].encode())
        last = int(np.searchsorted(ends, size))
        if last == len(ends) or ends[last] != size:
            return begun  # no token ends where the prompt does
        goes_on = self._tokenizer.cuts_free and 0 < begun.bytes <= size
        first, start = (begun.ids, begun.characters) if goes_on else (0, 0)
        self._wait(_Waiting(text[start:], ids[first : last + 1], goes_on))
        return Begun(last + 1, len(text), size)

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
        found = self._tokenizer.encode([prompt.text for prompt in self._waiting])
        for prompt, ids in zip(self._waiting, found, strict=True):
            self._same = (self._same or not prompt.goes_on) and ids == prompt.ids[: len(ids)].tolist()
            self._exact += self._same
        self._waiting.clear()
        self._characters = 0


__all__ = ["Begun", "PromptIds"]
