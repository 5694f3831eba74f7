"""Owns the names of packings: the text of a plan that says which one is meant, and what it means for samples."""

from __future__ import annotations

from msgspec import Struct

from turnscript.core.errors import InvalidInput

NONE, BEST_FIT, STREAM = "none", "bfd", "stream"
_KINDS = f"{NONE}, {BEST_FIT}:4096 or {STREAM}:4096"


class Packing(Struct, frozen=True):
    """What to do with documents: `kind`, and how many tokens a `window` has (0 without packing)."""

    kind: str = NONE
    window: int = 0

    @property
    def crosses(self) -> bool:
        """Return whether a window may hold a part of a document."""
        return self.kind == STREAM

    @property
    def limit(self) -> int:
        """Return the most tokens that a document may have; 0 for no limit."""
        return self.window if self.kind == BEST_FIT else 0

    def notes(self) -> list[str]:
        """Return what people should know of the samples, a sentence each."""
        if self.kind == STREAM:
            whole = f"choose {BEST_FIT}:{self.window} to keep documents whole"
            return [f"windows of {self.window} tokens begin and end in the middle of documents; {whole}"]
        if self.kind == BEST_FIT:
            seen = "a trainer that does not reset its state at `doc_starts` lets the later ones see the earlier ones"
            return [f"windows of {self.window} tokens hold several documents, each whole; {seen}"]
        return []

    def __str__(self) -> str:
        return f"{self.kind}:{self.window}" if self.window else self.kind


def read_packing(text: str) -> Packing:
    """Return `none`, `bfd:4096` or `stream:4096` as a Packing. Raises InvalidInput."""
    kind, colon, size = text.partition(":")
    if kind == NONE and not colon:
        return Packing()
    if kind not in (BEST_FIT, STREAM):
        raise InvalidInput(f"there is no packing {text!r}; choose {_KINDS}", expected=_KINDS, got=text)
    if not (size.isascii() and size.isdigit() and 2 <= int(size) < 1 << 31):
        message = f"the packing {text!r} needs a number of tokens, at least 2: {kind}:4096"
        raise InvalidInput(message, expected=f"{kind}:4096", got=text)
    return Packing(kind, int(size))
