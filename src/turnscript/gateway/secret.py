"""Owns secrets in memory: a text that no repr, message or encoder shows by accident."""

from __future__ import annotations

import hmac
from typing import NoReturn

SHOWN = "<secret>"


class Secret:
    """A text to be used and never shown. `reveal` is the one way to it."""

    __slots__ = ("_text",)

    def __init__(self, text: str) -> None:
        self._text = text

    def reveal(self) -> str:
        """The text itself."""
        return self._text

    def __repr__(self) -> str:
        return SHOWN

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Secret) and hmac.compare_digest(self._bytes, other._bytes)

    def __hash__(self) -> int:
        return hash((Secret, self._text))

    def __bool__(self) -> bool:
        return bool(self._text)

    def __reduce__(self) -> NoReturn:
        raise TypeError("a secret is not written anywhere")

    @property
    def _bytes(self) -> bytes:
        return self._text.encode("utf-8", "surrogatepass")
