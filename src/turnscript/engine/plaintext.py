"""Owns reading an answer that is a text and nothing else, such as the middle of a fill: up to a stop string."""

from __future__ import annotations

import codecs
from collections.abc import Sequence

from turnscript.core.conversation import Assistant, Issue, Text
from turnscript.core.events import Event, MessageEnd, PartDelta, PartEnd, PartStart
from turnscript.core.finish_reasons import meaning
from turnscript.engine.scanner import Scanner


class TextParser:
    """The parser of a text. It ends at `stops`, the strings of the client, and at `ends`, which no client is told."""

    issues: Sequence[Issue] = ()
    """Nothing can be wrong with a text."""

    def __init__(self, stops: Sequence[str], ends: Sequence[str] = ()) -> None:
        self._client = frozenset(stops)
        self._scanner = Scanner({stop: stop for stop in (*ends, *stops) if stop})
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._held = ""
        self._told: list[str] = []
        self._met = ""
        self.client_stop: str | None = None
        self.ended = False

    def feed(self, text: str | bytes) -> list[Event]:
        """Take more text; returns what is certain. Bytes are UTF-8 and may be cut anywhere."""
        more = text if isinstance(text, str) else self._decoder.decode(text)
        return self._read(self._held + more, closing=False)

    def _read(self, text: str, *, closing: bool) -> list[Event]:
        if self.ended:
            return []
        found = self._scanner.find(text, 0, closing)
        if found is not None:
            self.ended, self._met, self._held = True, found[0], ""
            self.client_stop = self._met if self._met in self._client else None
            return self._tell(text[: found.start()])
        end = len(text) if closing else self._scanner.hold(text, 0)
        self._held = text[end:]
        return self._tell(text[:end])

    def _tell(self, text: str) -> list[Event]:
        events: list[Event] = [] if self._told or not text else [PartStart(0, Assistant())]
        if text:
            self._told.append(text)
            events.append(PartDelta(0, text, text))
        return events

    def close(self, finish_reason: str | None = None) -> list[Event]:
        """End the text."""
        events = self._read(self._held + self._decoder.decode(b"", True), closing=True)
        if self._told:
            events.append(PartEnd(0, Assistant(content=[Text(text="".join(self._told))])))
        reason = "stop" if self._met else meaning(finish_reason or "stop")
        return [*events, MessageEnd(reason, self.client_stop, None, [], self._met)]
