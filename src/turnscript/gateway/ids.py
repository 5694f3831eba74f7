"""Owns ids that nobody can guess: random texts, for which the operating system is asked once for many of them."""

from __future__ import annotations

import os

_LONGEST = 16  # bytes
_AT_ONCE = 256

_ready: list[str] = []


def random_hex(size: int) -> str:
    """A text of twice as many characters as `size` has bytes, at most 16. Each is given once."""
    while True:
        try:
            return _ready.pop()[: 2 * size]
        except IndexError:
            text, width = os.urandom(_LONGEST * _AT_ONCE).hex(), 2 * _LONGEST
            _ready.extend([text[at : at + width] for at in range(0, len(text), width)])


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_ready.clear)  # or both would give the same ones
