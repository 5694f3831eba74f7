"""Owns reading calls whose payload is the arguments alone, because name and id stand in the opening tag."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from turnscript.engine.jsonscan import ValueScanner
from turnscript.engine.machine import Machine, Reading
from turnscript.engine.scanner import Unescaper, in_string_search
from turnscript.jsontext import is_object

_SPACE = re.compile(r"[ \t\r\n]*")


class ArgumentsMachine(Machine):
    """Passes one JSON object on as it comes. Free text (`head["text"]`) is no JSON: it ends where the text does."""

    def __init__(self, reading: Reading) -> None:
        super().__init__()
        self.name = reading.head.get("name")
        self.id = reading.head.get("id")
        self._scanner = ValueScanner()
        self._unescaper = Unescaper(reading.escape)
        self._quick = in_string_search(reading.escape)
        self._begun = False

    def quick(self) -> Callable[[str], object] | None:
        return self._quick if self._scanner.in_string and not self._unescaper.holds else None

    def feed(self, text: str, start: int) -> int:
        if not self._begun:
            start = _SPACE.match(text, start).end()  # type: ignore[union-attr]
            if start == len(text):
                return start
            self._begun = True
            self.failed = text[start] != "{"
        if self.failed:
            return start
        end = self._scanner.feed(text, start)
        piece = self._unescaper.feed(text[start:end])
        self.done, self.failed = self._scanner.done, self._scanner.failed
        if self.done:
            piece += self._unescaper.close()
        if piece:
            self.said.append(piece)
            self.deltas.append(piece)
        return end

    def fields(self) -> dict[str, Any] | None:
        arguments = "".join(self.said)
        return {"arguments": arguments} if is_object(arguments) else None
