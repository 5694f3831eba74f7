"""Owns what of instructions changes with every request: patterns for it, and whether a text has any of it."""

from __future__ import annotations

import re
from functools import lru_cache

VOLATILE = (r"x-anthropic-billing-header:[^\n]*(?:\n|\Z)",)
"""What of instructions changes with every request: patterns that match from the beginning of a line."""

_NO_BRANCH = re.compile(r"\\.|\[[^\]]*\]", re.DOTALL)
_GROUP = re.compile(r"\([^()]*\)")
_PLAIN_WORDS = re.compile(r"[\w :-]*(?![*+?{])")


class Volatile:
    """What changes with every request, as patterns say it. Where each begins with words, a text without them has none
    of it, which is known many times as fast."""

    def __init__(self, patterns: tuple[str, ...]) -> None:
        self._pattern = re.compile("|".join(f"^(?:{one})" for one in patterns), re.MULTILINE) if patterns else None
        words = [_words_of(one) for one in patterns]
        self._words = words if all(words) else [""]

    def stands_in(self, text: str) -> bool:
        """Whether a text has any of it."""
        for words in self._words:
            if words in text:
                return self._pattern is not None and self._pattern.search(text) is not None
        return False

    def without(self, text: str) -> str:
        """A text without it."""
        return text if self._pattern is None else self._pattern.sub("", text)


def _words_of(pattern: str) -> str:
    """The words that whatever a pattern matches begins with; none where that is not plain, as where it has branches."""
    outside = _NO_BRANCH.sub("", pattern)
    while (inner := _GROUP.sub("", outside)) != outside:
        outside = inner
    found = _PLAIN_WORDS.match(pattern) if "|" not in outside else None
    return found[0] if found else ""


volatile_of = lru_cache(maxsize=16)(Volatile)
"""The same for the same patterns."""
