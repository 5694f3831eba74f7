"""Owns hiding secrets in what a model server says: some repeat the key that they refuse, and clients read that."""

from __future__ import annotations

import re
from collections.abc import Iterable

from turnscript.errors import UpstreamError

_HIDDEN = "***"
_LONG = 8


class Mask:
    """Hides some secrets wherever they stand. A short one, which may be a word (`none`), only where it stands alone."""

    def __init__(self, secrets: Iterable[str]) -> None:
        ranked = sorted(set(secrets), key=len, reverse=True)
        pattern = "|".join(map(_pattern, ranked))
        self._text = re.compile(pattern) if ranked else None
        self._bytes = re.compile(pattern.encode()) if ranked else None

    def body(self, data: bytes) -> bytes:
        """What a server said, without them."""
        return data if self._bytes is None else self._bytes.sub(_HIDDEN.encode(), data)

    def error(self, error: UpstreamError) -> UpstreamError:
        """The same error, which does not show them any more."""
        if self._text is not None:
            error.message = self._text.sub(_HIDDEN, error.message)
            error.body = self._text.sub(_HIDDEN, error.body)
            error.args = tuple(self._text.sub(_HIDDEN, one) if isinstance(one, str) else one for one in error.args)
        return error


def _pattern(secret: str) -> str:
    found = re.escape(secret)
    return found if len(secret) >= _LONG else rf"(?<![A-Za-z0-9]){found}(?![A-Za-z0-9])"
