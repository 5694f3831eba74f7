"""Owns the white space at control tokens, as a tokenizer's file has it: taken away beside some, put before texts.

A server tokenizes what a chat template wrote with all the rules of that file: a token with `rstrip` takes the white
space behind it, and older vocabularies put a space before each text. A row that is to have the same ids is spelled so
before it is cut.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from turnscript.datasets.encoding_ids import Cutter
from turnscript.datasets.tokenizer import EACH, FIRST, Tokenizer
from turnscript.engine.spans import CONTROL

_LEFT, _RIGHT = re.compile(r"[^\S\x1c-\x1f]+\Z"), re.compile(r"\A[^\S\x1c-\x1f]+")
Part = list[str]


class Spaces:
    """Spells pieces as a tokenizer reads them."""

    def __init__(self, cutter: Cutter, tokenizer: Tokenizer) -> None:
        self._cutter = cutter
        self._tokenizer = tokenizer

    @classmethod
    def of(cls, cutter: Cutter, tokenizer: Tokenizer) -> Spaces | None:
        """Return what spells pieces for a tokenizer; None where it reads them as they are."""
        return cls(cutter, tokenizer) if tokenizer.strips or tokenizer.spaced else None

    def served(self, texts: Sequence[str], marks: Sequence[int]) -> list[str]:
        """Return the pieces with another white space."""
        parts: list[tuple[int, str, bool]] = []  # of which piece, the text, whether it is a control token
        for at, (text, mark) in enumerate(zip(texts, marks, strict=True)):
            split = self._cutter.parts(text) if mark & CONTROL else [(text, False)]
            parts += [(at, part, control) for part, control in split if part]
        said = [part for _, part, _ in parts]
        for at, (_, part, control) in enumerate(parts):
            if control and part in self._tokenizer.strips_left:
                self._strip(said, parts, at, -1, _LEFT)
            if control and part in self._tokenizer.strips_right:
                self._strip(said, parts, at, 1, _RIGHT)
        if self._tokenizer.spaced:
            self._space(said, parts)
        found = [""] * len(texts)
        for (piece, _, _), part in zip(parts, said, strict=True):
            found[piece] += part
        return found

    def _strip(
        self, said: list[str], parts: Sequence[tuple[int, str, bool]], at: int, step: int, space: re.Pattern[str]
    ) -> None:
        """Take the white space away on one side of a control token."""
        at += step
        while 0 <= at < len(parts) and not parts[at][2]:
            said[at] = space.sub("", said[at])
            if said[at]:
                return
            at += step

    def _space(self, said: list[str], parts: Sequence[tuple[int, str, bool]]) -> None:
        """Put a space before the texts that get one."""
        spaced, always = self._tokenizer.spaced, self._tokenizer.always_spaced
        begins = True
        for at, (_, _, control) in enumerate(parts):
            if begins and not control and said[at]:
                if always or not said[at].startswith(" "):
                    said[at] = f" {said[at]}"
                begins = False
            if control:
                begins = spaced == EACH
            if spaced == FIRST and said[at]:
                return


__all__ = ["Spaces"]
