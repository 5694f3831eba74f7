"""Owns calls that say a tool's name, a mark, and the arguments as JSON: `get_weather[ARGS]{"city": "Oslo"}`.

Between name and arguments an id may stand, behind a mark of its own, or the name is a part of the id, as in
`functions.get_weather:0`. All of it comes in this order, so the arguments are told as they come. Arguments that are no
JSON object are written as a string of JSON.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

from turnscript.core.conversation import ToolCall
from turnscript.core.json_text import is_object, json_string
from turnscript.engine.correlate import Numbering
from turnscript.engine.jsonscan import JsonMachine, ValueScanner
from turnscript.engine.machine import IDENTIFIER, NUMBER, CallRules, Machine, PlainBody, Reading
from turnscript.engine.scanner import scanner_for
from turnscript.engine.spans import Writer
from turnscript.grammar.nodes import EMPTY, Node, optional, sequence

BLANKS = " \t\r\n"
"""White space around the parts of a call, which says nothing."""
_BLANK = re.compile(r"[ \t\r\n]*")
_LONGEST_NAME = 1024
_WORD = re.compile(r"(?:(?!<\|)\S)*")
"""A name, as far as neither white space nor a tag stands in it."""


class NamedCall(PlainBody):
    """A call as name, `mark`, arguments. `id_mark`: what stands before an id, where calls have one.

    `id_first`: the id stands before `id_mark`, and the name behind. `number_mark`: what stands before a number, where
    `prefix`, name and number together are the id.
    `also_mark`: what a model may write in place of `mark`. Between it and the name other words may stand.
    """

    says_name = True

    def __init__(
        self,
        mark: str,
        id_mark: str = "",
        prefix: str = "",
        number_mark: str = "",
        also_mark: str = "",
        id_first: bool = False,
    ) -> None:
        self.mark, self.id_mark, self.prefix, self.number_mark = mark, id_mark, prefix, number_mark
        self.also_mark, self.id_first = also_mark, id_first
        self.numbering = Numbering(prefix, number_mark) if number_mark else None
        self.literals = tuple(one for one in (id_mark, mark, also_mark) if one)
        self.carries = ("name", "arguments", "id") if id_mark or number_mark else ("name", "arguments")

    def write(self, item: ToolCall, out: Writer) -> None:
        """Write all three. White space around the arguments is none of theirs."""
        said = f"{self.prefix}{item.name}"
        if self.id_first and item.id is not None:
            out.content(item.id)
            out.control(self.id_mark)
        out.content(said if self.numbering is None else out.ids.get(out.item) or self.numbering.id(item.name, 0))
        if self.id_mark and item.id is not None and not self.id_first:
            out.control(self.id_mark)
            out.content(item.id)
        out.control(self.mark)
        if any((one + self.mark).lstrip(BLANKS)[:1] in ("", "{") for one in item.name.split(self.mark)[1:]):
            out.lose(".name", "approximated", "a name ends where its mark stands before what begins arguments")
        text = item.arguments.strip(BLANKS)
        if not is_object(text):
            text = json_string(item.arguments)
        elif text != item.arguments:
            out.lose(".arguments", "approximated", "white space around them has no place in this format")
        out.content(text)

    def prefill(self, name: str | None, protect: Callable[[str], str], number: int) -> str:
        """Return the name of a call that must be made, up to where the model decides; nothing before an id."""
        if name is None or self.id_first:
            return "" if self.id_first else self.prefix
        return f"{self.prefix}{protect(name)}{self.number_mark or self.id_mark or self.mark}"

    def machine(self, reading: Reading) -> Machine:
        """Return a reader for a call that comes in pieces."""
        return _NamedMachine(reading, self)

    def grammar(self, call: CallRules) -> Node:
        """Return the name, what of an id belongs there, and the arguments."""
        number = sequence(self.number_mark, NUMBER) if self.number_mark else EMPTY
        id_ = optional(sequence(self.id_mark, IDENTIFIER)) if self.id_mark and not self.id_first else EMPTY
        first = optional(sequence(IDENTIFIER, self.id_mark)) if self.id_first else EMPTY
        name = f"{self.prefix}{call.protect(call.name)}"
        return sequence(first, name, number, id_, self.mark, call.schema.arguments())


class _NamedMachine(JsonMachine):
    """Reads the name and the id up to their marks, then one JSON value, passed on as it comes if it is an object."""

    def __init__(self, reading: Reading, body: NamedCall) -> None:
        super().__init__(reading.escape)
        self._prefix, self._numbering, self._id_first = body.prefix, body.numbering, body.id_first
        self._strict = reading.lead is not None
        mark, id_mark, also_mark = body.mark, body.id_mark, ""
        if not self._strict:  # white space around a mark says nothing in what a model writes
            mark, id_mark, also_mark = mark.strip() or mark, id_mark.strip(), body.also_mark.strip()
        self._mark, self._also_mark = mark, also_mark
        self._closes = reading.closes
        self._ends = (*reading.ends, *reading.closes)
        self._last = (*self._ends, *(one for one in (mark, also_mark) if one))
        self._marks = scanner_for((*self._last, id_mark) if id_mark else self._last)
        self._said: list[str] = []  # of the name or the id, still escaped
        self._word: str | None = None
        self._value: ValueScanner | None = None
        self._string = False

    def feed(self, text: str, start: int) -> int:
        position = start
        while self._value is None and position < len(text) and not self.failed:
            at = position
            position = self._head(text, position)
            if position == at or self._value is not None:  # the name is known
                return position
        return position if self.failed or position == len(text) else self._arguments(text, position)

    def _head(self, text: str, start: int) -> int:
        """Read the name or the id, up to the mark behind it."""
        found = self._marks.find(text, start, closing=False)
        while self._strict and found and found[0] == self._mark and not self._begins(text, found.end()):
            found = self._marks.find(text, found.end(), closing=False)  # no arguments behind it: it is of the name
        end = self._marks.hold(text, start) if found is None else found.start()
        self._said.append(text[start:end])
        if found is None:
            self.failed = not self._strict and sum(map(len, self._said)) > _LONGEST_NAME
            return end
        said = self._escape.remove("".join(self._said))
        said = said if self._strict else said.strip(BLANKS)
        if found[0] == self._also_mark:
            said = _WORD.match(said)[0]  # type: ignore[index]
        self._said = []
        known = found[0] in (self._mark, self._also_mark)
        if (self._id_first and not known) or self._word is not None:
            self.failed, self.id = found[0] in self._ends, said
        else:
            self._word = self._name_in(said)
            self.failed = found[0] in self._ends or not (self._word or self._strict)
        if self.failed:
            return end
        if known:
            self.name, self._value = self._word, ValueScanner()
        else:
            self._marks = scanner_for(self._last)
        return found.end()

    def _begins(self, text: str, start: int) -> bool:
        """Return whether arguments begin there: an object, or a string up to what closes the call."""
        at = _BLANK.match(text, start).end()  # type: ignore[union-attr]
        if not text.startswith('"', at) or not self._closes:
            return text.startswith(("{", '"'), at)
        scanner = ValueScanner()
        end = scanner.feed(text, at)
        return scanner.done and text.startswith(self._closes, _BLANK.match(text, end).end())  # type: ignore[union-attr]

    def _name_in(self, said: str) -> str:
        """Return the tool's name in what stands before the mark, and note the id where that is one."""
        if self._numbering is None:
            return said.removeprefix(self._prefix)
        self.id = said
        return self._numbering.name(said)

    def _arguments(self, text: str, start: int) -> int:
        value = self._value
        assert value is not None
        if not value.kind:
            start += len(text) - start - len(text[start:].lstrip(BLANKS))
            if start == len(text):
                return start
            self._string, self.failed = text[start] == '"', text[start] not in '{"'
        if self.failed:
            return start
        if self._live is not None:
            self._catch_up(self._live)
        end = value.feed(text, start)
        piece = self._unescaper.feed(text[start:end])
        if value.done:
            piece += self._unescaper.close()
        self.done, self.failed = value.done, value.failed
        if piece:
            self.said.append(piece)
            if not self._string:
                self.deltas.append(piece)
                self._live = value
        return end

    def fields(self) -> dict[str, Any] | None:
        arguments = "".join(self.said)
        if self._string:
            try:
                arguments = json.loads(arguments)
                arguments.encode()
            except ValueError:
                return None
            self.deltas.append(arguments)
            self.issues.append(("odd_call", "arguments as a string"))
        elif not is_object(arguments):
            return None
        found: dict[str, Any] = {"name": self.name, "arguments": arguments}
        return found | ({"id": self.id} if self.id is not None else {})
