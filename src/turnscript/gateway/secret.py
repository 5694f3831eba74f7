"""Owns secrets in memory: a text that no repr, message or encoder shows by accident, and none that a server repeats."""

from __future__ import annotations

import hmac
from collections.abc import Iterable
from typing import NoReturn

SHOWN = "<secret>"
SHORTEST = 8
"""Characters of a secret that is one. Servers that want no key are given words such as `none`."""


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


def hidden(text: str, secrets: Iterable[str]) -> str:
    """A text of somebody who was told secrets, without them."""
    for secret in secrets:
        if len(secret) >= SHORTEST:
            text = text.replace(secret, SHOWN)
    return text
