"""Owns the tokenizer without a vocabulary: a token for each byte, and one for the end of a document."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np
from msgspec.json import encode as json_bytes

from turnscript.core.errors import InvalidInput
from turnscript.datasets.problems import BadRow, Code
from turnscript.datasets.tokenizer import Ends, Tokenizer
from turnscript.datasets.tokenizers import digest
from turnscript.datasets.tokenizers.controls import Controls

END = 256


class RawBytes(Tokenizer):
    """Ids 0 to 255 are bytes, 256 ends a document; control tokens come behind."""

    def __init__(self, spec: str, added: Controls, end: str | None) -> None:
        added.check(dict.fromkeys(range(END + 1)), b"")
        self.spec = spec
        self.controls = dict(added.controls)
        self.end = END if end is None else end_of(end, self.controls)
        self.size = max(END, *self.controls.values(), END) + 1
        self.fingerprint = digest(b"bytes", json_bytes(self.controls), str(self.end).encode())
        self.cuts_free = True
        self.lengths = np.zeros(self.size, np.int32)
        self.lengths[:END] = 1
        self._literals = {number: literal.encode() for literal, number in self.controls.items() if number != self.end}

    def encode(self, texts: Sequence[str]) -> list[list[int]]:
        """Return the bytes of each text."""
        return [list(utf8_of(text)) for text in texts]

    def ends(self, text: str, ids: Sequence[int]) -> Ends:
        """Return one byte after the other."""
        return np.arange(1, len(ids) + 1, dtype=np.int64)

    def decode(self, ids: Sequence[int]) -> bytes:
        """Return the bytes, control tokens as their literals."""
        literals = self._literals
        return b"".join([bytes((one,)) if one < END else literals.get(one, b"") for one in ids])


def utf8_of(text: str) -> bytes:
    """Return a text's UTF-8. Raises BadRow for half of a surrogate pair."""
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise half_pair(error) from None


def half_pair(error: UnicodeEncodeError, path: str = "") -> BadRow:
    """Return what is wrong with a text that UTF-8 cannot hold."""
    found = ascii(error.object[error.start : error.end])
    message = f"a text holds half of a surrogate pair ({found}), which UTF-8 cannot carry; repair it at its source"
    return BadRow(Code.UTF8, message, path=path)


def end_of(literal: str, controls: dict[str, int]) -> int:
    """Return the id of the token that separates documents. Raises InvalidInput if there is none of that name."""
    if literal in controls:
        return controls[literal]
    known = ", ".join(map(repr, itertools.islice(controls, 12))) or "none"
    message = f"the tokenizer has no control token {literal!r} to end a document with; it has: {known}"
    raise InvalidInput(message, expected="a control token of the tokenizer", got=literal)
