"""Owns what prompts no longer show: items of which a table says so, at once or as soon as somebody has spoken."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from turnscript.core.conversation import Item
from turnscript.engine.layout import Layout, Place


class Past:
    """Knows for each kind that makes others past (`Segment.until`) where the last item of that kind stands."""

    __slots__ = ("_last",)

    def __init__(self, kinds: Iterable[str]) -> None:
        self._last = dict.fromkeys(kinds, -1)

    @classmethod
    def of(cls, layout: Layout) -> Past:
        """Return what is past in a document: the same for all prompts of a format by which nothing ever is."""
        return cls(layout.passing) if layout.passing else _NOTHING

    def note(self, items: Sequence[Item], start: int) -> None:
        """Look for those kinds among items that are about to be written, the first of them at position `start`."""
        for kind in self._last:
            places = range(len(items) - 1, -1, -1)
            self._last[kind] = next((start + at for at in places if items[at].kind == kind), self._last[kind])

    def hides(self, place: Place, index: int) -> bool:
        """Return whether a prompt leaves out what stands at a place, if its position is `index`."""
        segment = place.segment
        return not segment.prompt or (bool(segment.until) and index < self._last[segment.until])


_NOTHING = Past(())
