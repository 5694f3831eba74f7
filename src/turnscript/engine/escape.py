r"""Owns the escape that keeps content from being read as a tag: one backslash put inside the tag (requirements D-X-3).

    <<USER>>     is written  <<\USER>>
    <<\USER>>    is written  <<\\USER>>

A text that already has n backslashes there gets n + 1, and reading removes one. So the map is reversible, no literal of
the format occurs in what it gives, and every other character stays as it was.
"""

from __future__ import annotations

import re
from collections.abc import Iterable


class Escape:
    """The escape of one format: `lead` begins every tag, and a tag's name begins with one of `names`.

    No right boundary is looked for: with the name `USER`, `<<USERNAME` is escaped too, which does no harm.
    """

    def __init__(self, lead: str, names: Iterable[str]) -> None:
        alternatives = "|".join(map(re.escape, sorted(names, key=len, reverse=True)))
        self._lead = lead
        self._apply = re.compile(rf"{re.escape(lead)}(?=\\*(?:{alternatives}))")
        self._remove = re.compile(rf"{re.escape(lead)}\\(?=\\*(?:{alternatives}))")

    def apply(self, text: str) -> str:
        """Content as it may stand in a transcript."""
        if self._lead not in text:
            return text
        return self._apply.sub(lambda _: self._lead + "\\", text)

    def remove(self, text: str) -> str:
        """Content as it was before `apply`."""
        if self._lead not in text:
            return text
        return self._remove.sub(lambda _: self._lead, text)
