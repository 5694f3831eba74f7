"""Owns where an opening tag with attributes ends, in a text that comes in pieces: no character is matched twice."""

from __future__ import annotations

import re
from functools import lru_cache

_QUOTED = re.compile(r'(?>(?:[^"\\\n]+|\\[^\n])*)')


class HeadEnd:
    """Finds the `core` of one opening tag (`>>`, `|>`): outside quotes, on the line on which the tag began."""

    def __init__(self, core: str) -> None:
        self._core = core
        self._outside = _outside(core)
        self._seen = 0  # how much of the tag cannot hold its end
        self._quoted = False  # whether a quote is open there

    def find(self, text: str, start: int) -> int:
        """Return where the core stands; the text's length if more must come, -1 if this is no such tag.

        `start` is where the tag's attributes begin. A later text has what an earlier one had, and more.
        """
        at = start + self._seen
        if self._quoted:
            at = self._behind_quote(text, at)
        if not self._quoted:
            at = self._outside.match(text, at).end()  # type: ignore[union-attr]
            if text.startswith(self._core, at):
                return at
            if text.startswith('"', at):
                self._quoted = True
                at = self._behind_quote(text, at + 1)
        self._seen = at - start
        rest = text[at : at + len(self._core)]
        unfinished = rest == text[at:] and (rest == "\\" * len(rest) if self._quoted else self._core.startswith(rest))
        return len(text) if unfinished else -1

    def _behind_quote(self, text: str, at: int) -> int:
        """Return the place behind the quote that ends what is quoted; the end of the text where it does not end yet."""
        at = _QUOTED.match(text, at).end()  # type: ignore[union-attr]
        self._quoted = not text.startswith('"', at)
        return at if self._quoted else at + 1


@lru_cache(maxsize=64)
def _outside(core: str) -> re.Pattern[str]:
    """Return what may stand before the core: inside quotes all but a line end, and no quote that stays open."""
    first, rest = re.escape(core[0]), core[1:]
    ends = [re.escape(rest), *(rf"{re.escape(rest[:size])}\Z" for size in range(len(rest)))]  # whole, or cut off
    no_end = rf"|{first}(?!{'|'.join(ends)})" if rest else ""
    quoted = r'"(?>(?:[^"\\\n]+|\\[^\n])*)"'
    return re.compile(rf'(?>(?:[^"<>\n{first}]+|{quoted}{no_end})*)')
