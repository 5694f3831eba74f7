"""The floor of parsing: ChatML output with thoughts and calls, read by hand for exactly the generated texts.

`Machine` reads a stream and sends events; `whole` reads a text that is complete. No checks, no schemas, no issues. A
call is `{"name": "...", "input": {...}}` with just these blanks, so a line end before `</tool_call>` closes it: JSON
has none inside a string.
"""

from __future__ import annotations

import json
from collections.abc import Callable

from msgspec import Struct

from benchmarks.outputs import Said

_NAME, _INPUT = '{"name": "', '", "input": '


class Event(Struct, gc=False):
    """`thinking`, `text` and `arguments` carry a piece; `call` carries the name, and `end` closes the call."""

    kind: str
    text: str


class Machine:
    """One method for each state; it takes text, sends events, and returns what another state is to read."""

    def __init__(self) -> None:
        self._state: Callable[[str, list[Event]], str] = self._start
        self._held = ""

    def feed(self, piece: str) -> list[Event]:
        events: list[Event] = []
        if self._held:
            piece = self._held + piece
            self._held = ""
        while piece:
            piece = self._state(piece, events)
        return events

    def close(self) -> list[Event]:
        return [Event("text", self._held)] if self._held else []

    def _start(self, rest: str, events: list[Event]) -> str:
        if rest.startswith("<think>\n"):
            self._state = self._thought
            return rest[8:]
        if "<think>\n".startswith(rest):
            self._held = rest
            return ""
        self._state = self._text
        return rest

    def _thought(self, rest: str, events: list[Event]) -> str:
        if "\n" not in rest:
            events.append(Event("thinking", rest))
            return ""
        after = self._until("\n</think>\n\n", "thinking", rest, events)
        if after is not None:
            self._state = self._text
        return after or ""

    def _text(self, rest: str, events: list[Event]) -> str:
        if "<" not in rest:
            events.append(Event("text", rest))
            return ""
        after = self._until("<tool_call>\n", "text", rest, events)
        if after is not None:
            self._state = self._head
        return after or ""

    def _head(self, rest: str, events: list[Event]) -> str:
        end = rest.find(_INPUT)
        if end < 0:
            self._held = rest
            return ""
        events.append(Event("call", rest[len(_NAME) : end]))
        self._state = self._arguments
        return rest[end + len(_INPUT) :]

    def _arguments(self, rest: str, events: list[Event]) -> str:
        if "}" not in rest:
            events.append(Event("arguments", rest))
            return ""
        after = self._until("}\n</tool_call>", "arguments", rest, events)
        if after is not None:
            events.append(Event("end", ""))
            self._state = self._after
        return after or ""

    def _after(self, rest: str, events: list[Event]) -> str:
        self._state = self._text
        return rest.removeprefix("\n")

    def _until(self, marker: str, kind: str, rest: str, events: list[Event]) -> str | None:
        """Send what stands before the marker, and return what follows it; None while the marker has not come.

        What may be the marker's beginning waits for the next piece.
        """
        at = rest.find(marker)
        if at >= 0:
            if at:
                events.append(Event(kind, rest[:at]))
            return rest[at + len(marker) :]
        at = rest.find(marker[0], max(0, len(rest) - len(marker) + 1))
        while at >= 0 and not marker.startswith(rest[at:]):
            at = rest.find(marker[0], at + 1)
        if at >= 0:
            self._held, rest = rest[at:], rest[:at]
        if rest:
            events.append(Event(kind, rest))
        return None


def said(events: list[Event]) -> Said:
    """What the events of a stream say, for the check."""
    found: Said = []
    pieces: list[str] = []
    for event in events:
        if event.kind == "call":
            found.append(["call", event.text, None])
            pieces = []
        elif event.kind == "arguments":
            pieces.append(event.text)
        elif event.kind == "end":
            found[-1][2] = json.loads("".join(pieces))
        elif found and found[-1][0] == event.kind:
            found[-1][1] += event.text
        else:
            found.append([event.kind, event.text])
    return found


def whole(text: str) -> Said:
    """A complete text: `str.find` for the markers, `json.loads` for each call."""
    found: Said = []
    at = 0
    if text.startswith("<think>\n"):
        at = text.find("\n</think>\n\n")
        found.append(["thinking", text[8:at]])
        at += 11
    start = text.find("<tool_call>\n", at)
    found.append(["text", text[at:start] if start >= 0 else text[at:]])
    while start >= 0:
        end = text.find("\n</tool_call>", start)
        value = json.loads(text[start + 12 : end])
        found.append(["call", value["name"], value["input"]])
        start = text.find("<tool_call>\n", end)
    return found
