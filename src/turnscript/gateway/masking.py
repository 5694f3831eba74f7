"""Owns hiding secrets in what a model server says: some repeat the key that they refuse, and clients read that."""

from __future__ import annotations

import re
from collections.abc import Iterable

from turnscript.core.errors import UpstreamError
from turnscript.gateway.kinds import SHOWN

_LONG = 8
_ENDS = "\"'."  # what stands behind words that are cut


class Mask:
    """Hides secrets wherever they stand, a short one only where it stands alone. A short word is no secret: servers
    that want no key are given `none` or `EMPTY`. What an error shows of a server's words is cut somewhere, perhaps in
    the middle of a secret: its beginning is hidden at the end of an error, too."""

    def __init__(self, secrets: Iterable[str]) -> None:
        ranked = sorted({one for one in secrets if one and not _is_word(one)}, key=len, reverse=True)
        pattern = "|".join(map(_pattern, ranked))
        self._text = re.compile(pattern) if ranked else None
        self._bytes = re.compile(pattern.encode()) if ranked else None
        self._cut = [one for one in ranked if len(one) > _LONG]

    def body(self, data: bytes) -> bytes:
        """What a server said, without them."""
        return data if self._bytes is None else self._bytes.sub(SHOWN.encode(), data)

    def error(self, error: UpstreamError) -> UpstreamError:
        """The same error, which does not show them any more."""
        if self._text is not None:
            error.message = self._hidden(self._text, error.message)
            error.body = self._hidden(self._text, error.body)
            error.args = tuple(self._hidden(self._text, one) if isinstance(one, str) else one for one in error.args)
        return error

    def _hidden(self, pattern: re.Pattern[str], text: str) -> str:
        text = pattern.sub(SHOWN, text)
        said = text.rstrip(_ENDS)
        for secret in self._cut:
            for length in range(len(secret) - 1, _LONG - 1, -1):
                if said.endswith(secret[:length]):
                    return said[:-length] + SHOWN + text[len(said) :]
        return text


def _is_word(secret: str) -> bool:
    return len(secret) < _LONG and secret.isalpha()


def _pattern(secret: str) -> str:
    found = re.escape(secret)
    return found if len(secret) >= _LONG else rf"(?<![A-Za-z0-9]){found}(?![A-Za-z0-9])"
