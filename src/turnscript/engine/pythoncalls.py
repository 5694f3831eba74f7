"""Owns the arguments of calls that look like Python: `"city"="Tokyo", "days"=5)`, the opening parenthesis before them.

Keys are JSON strings and values JSON, one behind the other on one line.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from turnscript.core.conversation import ToolCall
from turnscript.core.errors import InvalidRequest
from turnscript.core.json_text import is_object, json_string, read_object, respace, text_of
from turnscript.engine.jsonscan import JsonMachine, ValueScanner
from turnscript.engine.machine import KEY, CallRules, Machine, PlainBody, Reading, joined, lose_arguments
from turnscript.engine.recent import MB, recent
from turnscript.engine.spans import Writer
from turnscript.engine.table import Payload
from turnscript.grammar.nodes import Node, sequence

_SPACE = re.compile(r"[ \t\r\n]*")
_BARE_KEY = re.compile(r"[A-Za-z0-9_]*")
_PYTHON_WORDS = {"True": "true", "False": "false", "None": "null"}


class PythonCall(PlainBody):
    """Arguments as `"key"=value, "key"=value` up to a closing parenthesis.

    Read: keys without quotes and Python's `True`, `False` and `None` too.
    """

    carries: tuple[str, ...] = ("name", "arguments")

    def write(self, item: ToolCall, out: Writer) -> None:
        """Write the arguments. What is no JSON object becomes one argument called `arguments`."""
        shown, again, count = _written(item.arguments)
        lose_arguments(item.arguments, again, count, _spelled, out)
        out.content(shown)
        out.control(")")

    def read(self, payload: Payload) -> dict[str, Any]:
        """Return the call's arguments."""
        message = 'the arguments of a call must be written "key"=value, with JSON values'
        return self.machine(Reading(payload.escape)).whole(payload, message, '"key"=value')

    def machine(self, reading: Reading) -> Machine:
        """Return a reader for arguments that come in pieces."""
        return _Arguments(reading)

    def grammar(self, call: CallRules) -> Node:
        """Return an argument for each member of the schema, in its order."""

        def opened(key: str) -> str:
            return f"{call.protect(json_string(key))}="

        return sequence(call.row(opened, sequence('"', KEY, '"=')), ")")


@recent(32 * MB, weight=3)
def _written(arguments: str) -> tuple[str, str | None, int]:
    """Return arguments as written, as read again (None where they are no JSON object), and how many there are."""
    try:
        members = {key: respace(text_of(value)) for key, value in read_object(arguments).items()}
        again = joined(list(members.items()))
    except InvalidRequest:
        members, again = {"arguments": json_string(arguments)}, None
    return ", ".join([f"{json_string(key)}={value}" for key, value in members.items()]), again, len(members)


def _spelled(_key: str, value: str) -> str:
    return respace(value)


class _Arguments(JsonMachine):
    """Reads one argument after the other, up to the closing parenthesis. Values pass on as they come."""

    def __init__(self, reading: Reading) -> None:
        super().__init__(reading.escape)
        self.name = reading.head.get("name")
        self._state: Callable[[str, int], int] = self._before_key
        self._scanner = ValueScanner()
        self._key: list[str] = []
        self._word: list[str] | None = None  # a value without quotes or brackets, which is known at its end
        self._count = 0

    def feed(self, text: str, start: int) -> int:
        position = start
        while position < len(text) and not self.done and not self.failed:
            if self._state not in (self._value, self._quoted_key, self._bare_key):
                position = _SPACE.match(text, position).end()  # type: ignore[union-attr]
                if position == len(text):
                    break
            position = self._state(text, position)
        return position

    def fields(self) -> dict[str, Any] | None:
        arguments = "".join(self.said)
        return {"arguments": arguments} if is_object(arguments) else None

    def _before_key(self, text: str, position: int) -> int:
        """Read a key, or the end."""
        self._key = []
        if text[position] == ")":
            self._pass_on("}" if self._count else "{}")
            self.done = True
            return position + 1
        if text[position] == '"':
            self._scanner, self._state = ValueScanner(), self._quoted_key
        elif _BARE_KEY.match(text[position])[0]:  # type: ignore[index]
            self._odd()
            self._state = self._bare_key
        else:
            self.failed = True
        return position

    def _quoted_key(self, text: str, position: int) -> int:
        end = self._scanner.feed(text, position)
        self._key.append(text[position:end])
        if self._scanner.done:
            self._state = self._equals
        return end

    def _bare_key(self, text: str, position: int) -> int:
        end = _BARE_KEY.match(text, position).end()  # type: ignore[union-attr]
        self._key.append(text[position:end])
        if end < len(text):
            self._key = [json_string("".join(self._key))]
            self._state = self._equals
        return end

    def _equals(self, text: str, position: int) -> int:
        self.failed = text[position] != "="
        self._state = self._before_value
        return position + (not self.failed)

    def _before_value(self, text: str, position: int) -> int:
        self._pass_on(f"{', ' if self._count else '{'}{''.join(self._key)}: ")
        self._count += 1
        self._word = None if text[position] in '"{[' else []
        self._scanner, self._state = ValueScanner(), self._value
        self._live = self._scanner if self._word is None else None
        return position

    def _value(self, text: str, position: int) -> int:
        if self._live is not None:
            self._catch_up(self._live)
        end = self._scanner.feed(text, position)
        self.failed = self._scanner.failed
        if self._word is None:
            self._pass_on(self._unescaper.feed(text[position:end]))
        else:
            self._word.append(text[position:end])
        if self._scanner.done:
            self._end_value()
        return end

    def _end_value(self) -> None:
        self._pass_on(self._unescaper.close())
        word = "".join(self._word or ())
        if word in _PYTHON_WORDS:
            self._odd()
        self._pass_on(_PYTHON_WORDS.get(word, word))
        self._state, self._live = self._behind_value, None

    def _behind_value(self, text: str, position: int) -> int:
        if text[position] == ",":
            self._state = self._before_key
            return position + 1
        if text[position] != ")":
            self.failed = True
            return position
        return self._before_key(text, position)

    def _odd(self) -> None:
        if not self.issues:
            self.issues.append(("odd_call", "Python's own spelling of a key or a value"))
