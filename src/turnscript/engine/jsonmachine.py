"""Owns what machines have in common that pass on JSON as it comes, without the format's escapes."""

from __future__ import annotations

from turnscript.engine.escape import Escape
from turnscript.engine.jsonscan import IN_STRING, ValueScanner
from turnscript.engine.machine import Machine
from turnscript.engine.scanner import Look, Unescaper, look_in_string


class JsonMachine(Machine):
    """A machine that passes on JSON. `_live`: the scanner of what passes on, while it does.

    Of a string, most pieces are only looked at, and go to `said` alone. So the scanner is told afterwards whether they
    ended behind a backslash, when a piece comes for which that matters.
    """

    def __init__(self, escape: Escape) -> None:
        super().__init__()
        self._escape = escape
        self._unescaper = Unescaper(escape)
        self._look_in_string = look_in_string(escape)
        self._live: ValueScanner | None = None

    def look(self) -> Look | None:
        live = self._live
        inside = live is not None and live.kind in IN_STRING and not self._unescaper.held
        return self._look_in_string if inside else None

    def certain(self, text: str) -> int:
        live = self._live
        if live is None or (end := self._unescaper.certain(text)) < 0:
            return -1
        self._catch_up(live)
        return end if live.passes(text[:end]) else -1

    def _catch_up(self, live: ValueScanner) -> None:
        """Tell the scanner how the pieces ended that were only looked at."""
        if live.kind in IN_STRING and self.said and not self._unescaper.held:
            live.kind = "\\" if self.said[-1].endswith("\\") and _ends_in_escape(self.said) else '"'

    def _pass_on(self, piece: str) -> None:
        if piece:
            self.said.append(piece)
            self.deltas.append(piece)


def _ends_in_escape(pieces: list[str]) -> bool:
    """Return whether the pieces end with a backslash that goes on: with an odd number of them."""
    odd = False
    for piece in reversed(pieces):
        rest = piece.rstrip("\\")
        odd ^= (len(piece) - len(rest)) % 2 == 1
        if rest:
            break
    return odd
