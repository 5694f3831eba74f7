"""Owns reading calls whose payload is the arguments alone, because name and id stand in the opening tag."""

from __future__ import annotations

import re
from typing import Any

from turnscript.core.json_text import is_object
from turnscript.engine.jsonmachine import JsonMachine
from turnscript.engine.jsonscan import ValueScanner
from turnscript.engine.machine import Reading
from turnscript.engine.scanner import Scanner

_SPACE = re.compile(r"[ \t\r\n]*")


class _Passing(JsonMachine):
    """Passes on what stands between two tags, without its escapes."""

    def __init__(self, reading: Reading) -> None:
        super().__init__(reading.escape)
        self.name, self.id = reading.head.get("name"), reading.head.get("id")
        self._lead, self._space = reading.lead, reading.space
        self._begun = False

    def _pass(self, text: str) -> None:
        piece = self._unescaper.feed(text)
        if self.done:
            piece += self._unescaper.close()
        self._pass_on(piece)


class ArgumentsMachine(_Passing):
    """Passes one JSON object on as it comes; in a transcript with the white space around it, which somebody wrote."""

    def __init__(self, reading: Reading) -> None:
        super().__init__(reading)
        self._scanner = ValueScanner()

    def feed(self, text: str, start: int) -> int:
        if not self._begun:
            space, start = start, _SPACE.match(text, start).end()  # type: ignore[union-attr]
            if start == len(text):
                return start
            self._begun, self._live = True, self._scanner
            self.failed = text[start] != "{"
            if self._lead is not None:
                self._pass(text[space:start].removeprefix(self._lead))
        if self.failed:
            return start
        self._catch_up(self._scanner)
        end = self._scanner.feed(text, start)
        self.done, self.failed = self._scanner.done, self._scanner.failed
        self._pass(text[start:end])
        if self.done and self._lead is not None:
            behind = _SPACE.match(text, end).group().removesuffix(self._space)  # type: ignore[union-attr]
            self._pass(behind)
            end += len(behind)
        return end

    def fields(self) -> dict[str, Any] | None:
        arguments = "".join(self.said)
        return {"arguments": arguments} if is_object(arguments) else None


class FreeTextMachine(_Passing):
    """Passes on arguments of a transcript that are no JSON, as their tag says: up to the closing, which none holds."""

    def __init__(self, reading: Reading) -> None:
        super().__init__(reading)
        self._custom = bool(reading.head.get("custom"))
        closes = [literal for close in reading.closes for literal in (close, reading.space + close)]
        self._scanner = Scanner(dict.fromkeys(closes, None))

    def feed(self, text: str, start: int) -> int:
        if not self._begun and start < len(text):
            self._begun = True
            start += len(self._lead) if self._lead and text.startswith(self._lead, start) else 0
        found = self._scanner.find(text, start, closing=False)
        end = self._scanner.hold(text, start) if found is None else found.start()
        self.done = found is not None
        self._pass(text[start:end])
        return end

    def fields(self) -> dict[str, Any] | None:
        return {"arguments": "".join(self.said), "custom": self._custom} if self.done else None
