"""Owns blank texts: white space that a model puts before a call is no answer, so no client is told of it.

Clients take the first text of a stream for the answer, whatever it holds. Nothing of what was generated is lost: its
`raw` is on the next event, so that the model finds it where it wrote it.
"""

from __future__ import annotations

from copy import copy

from turnscript.core.conversation import Assistant
from turnscript.core.events import Event, MessageEnd, PartDelta, PartEnd, PartStart


class Blanks:
    """Keeps a text back while it is blank, and drops it if another part follows it."""

    def __init__(self) -> None:
        self._held: list[Event] = []
        self._told = False

    def feed(self, events: list[Event]) -> list[Event]:
        """The events without blank texts."""
        if not self._held and all(type(event) is PartDelta for event in events):
            return events  # by far the most
        out: list[Event] = []
        for event in events:
            self._take(event, out)
        return out

    def resume(self) -> None:
        """The answer goes on from what was generated so far, which is counted already."""
        for place, event in enumerate(self._held):
            self._held[place] = counted = copy(event)
            counted.raw = ""

    def _take(self, event: Event, out: list[Event]) -> None:
        if self._held:
            if type(self._held[-1]) is PartEnd:
                event = self._settle(event, out)
            elif type(event) is PartEnd or (isinstance(event, PartDelta) and not event.text.strip()):
                self._held.append(event)
                return
            else:
                self._release(out)
        if type(event) is PartStart and isinstance(event.part, Assistant) and not self._held:
            self._held.append(event)
        else:
            self._tell(event, out)

    def _settle(self, event: Event, out: list[Event]) -> Event:
        """A blank text is over, and this is what follows it: give what is to be told of that."""
        if type(event) is MessageEnd and not self._told:
            self._release(out)  # there is nothing else in the answer
            return event
        follows = copy(event)
        follows.raw = "".join([held.raw for held in self._held]) + event.raw
        self._held.clear()
        return follows

    def _release(self, out: list[Event]) -> None:
        held, self._held = self._held, []
        for event in held:
            self._tell(event, out)

    def _tell(self, event: Event, out: list[Event]) -> None:
        self._told = self._told or type(event) is PartEnd
        out.append(event)
