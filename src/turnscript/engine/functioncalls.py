"""Owns calls as Python writes them: `weather(city="Oslo", days=3, units=["C", None])`.

Values are Python's literals, and JSON's words for them are read, too. What is read becomes JSON text as it comes. A
string ends at a quote that something of a call follows: templates that write strings without escapes put quotes into
them.
"""

from __future__ import annotations

import ast
import json
import re
import string
import sys
from collections.abc import Callable, Mapping
from typing import Any

from turnscript.core.conversation import ToolCall
from turnscript.core.errors import InvalidRequest
from turnscript.core.json_text import is_object, json_string, read_object, respace, safe_json_string, text_of
from turnscript.engine.escape import Escape
from turnscript.engine.machine import KEY, CallRules, Machine, PlainBody, Reading, lose_arguments
from turnscript.engine.names import name_of_line
from turnscript.engine.recent import MB, recent
from turnscript.engine.spans import Writer
from turnscript.engine.structures import LONGEST_WORD, SPACE, StructureMachine, may_be
from turnscript.engine.table import Payload
from turnscript.grammar.nodes import Literal, Node, sequence
from turnscript.grammar.respelled import Respelled

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.\-]*")
_NAME_CHARS = re.compile(r"[A-Za-z0-9_.\-]*")
_WORD = re.compile(r"[A-Za-z0-9_.+\-]*")
_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?")
_JSON_WORDS = {"True": "true", "False": "false", "None": "null", "true": "true", "false": "false", "null": "null"}
_PYTHON_WORDS = {"true": "True", "false": "False", "null": "None"}
_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|true|false|null', re.DOTALL)
# What follows a string that is an argument: the next one, or the end of the call. The last group: it is not there yet.
_BEHIND_ARGUMENT = re.compile(
    r"\s*+(?:\)|,\s*+(?:[\")]|[A-Za-z_][A-Za-z0-9_.\-]*+\s*+=)|((?:,\s*+(?:[A-Za-z_][A-Za-z0-9_.\-]*+\s*+)?)?\Z))"
)
_FURTHEST = 256  # white space behind a quote is looked over no further than this
_IN_STRING = {quote: re.compile(rf"[^\\{quote}]*+(?:\\.[^\\{quote}]*+)*+", re.DOTALL) for quote in ('"', "'")}
_ESCAPED = re.compile(
    r"\\(?:x(?P<x>[0-9a-fA-F]{2})|u[0-9a-fA-F]{4}|U(?P<U>[0-9a-fA-F]{8})|(?P<octal>[0-7]{1,3})|.)"
    r'|["\x00-\x1f\ud800-\udfff]',
    re.DOTALL,
)
_BEGUN = re.compile(r"(?<!\\)(?:\\\\)*(\\(?:x[0-9a-fA-F]?|u[0-9a-fA-F]{0,3}|U[0-9a-fA-F]{0,7}|[0-7]{1,2})?)\Z")
_KEPT = frozenset('nrtbf\\"')  # escapes that mean the same in JSON
_OTHERS = {"a": "\\u0007", "v": "\\u000b", "'": "'", "\n": ""}
_LETTERS = tuple(f'{string.ascii_letters}_"')


class FunctionCall(PlainBody):
    """A call as a function's: its name, and `key=value` between parentheses.

    A name or key that is none of Python's is written as a string. Read: either quote, three of them, Python's escapes,
    tuples, and JSON's `true`, `false` and `null`.
    """

    carries: tuple[str, ...] = ("name", "arguments")
    says_name = True
    openings = _LETTERS

    def write(self, item: ToolCall, out: Writer) -> None:
        """Write the call. Arguments that are no JSON object become one argument called `arguments`."""
        shown, again, count = _written(item.arguments)
        lose_arguments(item.arguments, again, count, _spelled, out)
        out.content(f"{_named(item.name)}({shown})")

    def prefill(self, name: str | None, protect: Callable[[str], str], number: int) -> str:
        """Return the name of a call that must be made, up to where the model decides."""
        return "" if name is None else f"{protect(_named(name))}("

    def read(self, payload: Payload) -> dict[str, Any]:
        """Return the call's fields."""
        message = "a call must be written name(key=value), with literals of Python"
        return self.machine(Reading(payload.escape)).whole(payload, message, "name(key=value)")

    def machine(self, reading: Reading) -> Machine:
        """Return a reader for a call that comes in pieces."""
        return _FunctionMachine(reading)

    def grammar(self, call: CallRules) -> Node:
        """Return the name, and an argument for each member of the schema, in its order."""

        def opened(key: str) -> str:
            return f"{call.protect(_named(key))}="

        row = call.row(opened, sequence(KEY, "="), Respelled(call.rules, "python", _words).node)
        return sequence(f"{call.protect(_named(call.name))}(", row, ")")


def _named(name: str) -> str:
    """Return a name or a key: as it is, or in quotes where Python could not read it."""
    return name if _NAME.fullmatch(name) else json_string(name)


def _words(text: str) -> Node:
    """Return a piece of JSON in Python's spelling."""
    return Literal(_python(text))


def _python(text: str) -> str:
    """Return JSON text as Python writes the same value."""
    return _TOKEN.sub(_token, text)


def _token(found: re.Match[str]) -> str:
    token = found[0]
    if token[0] != '"':
        return _PYTHON_WORDS[token]
    if "\\" not in token:
        return token
    try:
        return safe_json_string(json.loads(token))
    except ValueError:
        return token


@recent(32 * MB, weight=3)
def _written(arguments: str) -> tuple[str, str | None, int]:
    """Return arguments as written, as read again (None where they are no JSON object), and how many there are."""
    try:
        members = {key: respace(text_of(value)) for key, value in read_object(arguments).items()}
    except InvalidRequest:
        return f"arguments={safe_json_string(arguments)}", None, 1
    shown = ", ".join([f"{_named(key)}={_python(value)}" for key, value in members.items()])
    return shown, _read(f"f({shown})"), len(members)


def _spelled(_key: str, value: str) -> str:
    return _read(f"f(a={_python(respace(value))})")[len('{"a": ') : -1]


def _read(call: str) -> str:
    """Return the arguments of a call that was written here, as they are read again."""
    machine = _FunctionMachine(Reading(_NO_ESCAPE))
    machine.feed(call, 0)
    return "".join(machine.said)


def json_of_python(text: str) -> str | None:
    """Return the JSON text of a literal of Python's; None if it is none."""
    machine = _FunctionMachine(Reading(_NO_ESCAPE))
    machine.feed(f"f(a={text})", 0)
    made = "".join(machine.said)
    return made[len('{"a": ') : -1] if machine.done and not machine.issues and is_object(made) else None


_NO_ESCAPE = Escape()


class _FunctionMachine(StructureMachine):
    """Reads the name, then one argument after the other, up to the closing parenthesis."""

    closings: Mapping[str, str] = {"[": "]", "{": "}", "(": ")"}

    def __init__(self, reading: Reading) -> None:
        super().__init__(reading, "'")
        self._inside = self._in_string
        self._quote = ""
        self._begun = ""  # an escape of Python's that goes on

    def fields(self) -> dict[str, Any] | None:
        arguments = "".join(self.said)
        return {"name": self.name, "arguments": arguments} if self.name is not None and is_object(arguments) else None

    def passes(self, text: str) -> int:
        return -1 if self._begun else super().passes(text)

    # The name, and the keys of arguments.

    def _start(self, text: str, position: int) -> int:
        return self._word(text, position, self._behind_name)

    def _word(self, text: str, position: int, behind: Callable[[str, int], int]) -> int:
        """Read a name or key. `behind`: the step that comes after it."""
        if text[position] == '"':
            self._into, self._quote, self._step = [], '"', self._in_string
            self._behind_string = behind
            return position + 1
        end = _NAME_CHARS.match(text, position).end()  # type: ignore[union-attr]
        if end == len(text):
            self.failed = end - position > LONGEST_WORD
            return position
        word = text[position:end]
        self.failed = _NAME.fullmatch(word) is None
        if not self.failed:
            self._into, self._step = [word], behind
        return position if self.failed else end

    def _behind_name(self, text: str, position: int) -> int:
        name = "".join(self._into or ())
        self.failed = text[position] != "("
        if not self.failed:
            self.name = name
            self._into, self._step = None, self._before_key
        return position + (not self.failed)

    def _before_key(self, text: str, position: int) -> int:
        """Read a key, or the end of the call."""
        if text[position] == ")":
            self._say("{}" if self._first[0] else "}")
            self.done = True
            return position + 1
        return self._word(text, position, self._equals)

    def _equals(self, text: str, position: int) -> int:
        self.failed = text[position] != "="
        if not self.failed:
            self._say(f"{'{' if self._first[0] else ', '}{json_string(''.join(self._into or ()))}: ")
            self._into, self._first[0], self._step = None, False, self._value
        return position + (not self.failed)

    def _behind(self, text: str, position: int) -> int:
        if text[position] == ",":
            self._step = self._before_key
            return position + 1
        self.failed = text[position] != ")"
        return position if self.failed else self._before_key(text, position)

    # Values.

    def _scalar(self, text: str, position: int) -> int:
        if text[position] in "\"'":
            return self._begin_string(text, position)
        end = _WORD.match(text, position).end()  # type: ignore[union-attr]
        if end == len(text):
            self.failed = end - position > LONGEST_WORD
            return position
        word = value_of(text[position:end])
        self.failed = word is None
        if word is not None:
            self._say_word(word)
        return position if self.failed else end

    def _begin_string(self, text: str, position: int) -> int:
        """Read the quote before a string, or three of them."""
        quote = text[position]
        whole = text[position : position + 3]
        if len(whole) < len(quote * 3) and quote * len(whole) == whole:
            return position  # an empty string, or the beginning of three quotes
        self._quote = quote * 3 if whole == quote * 3 else quote
        self._element()
        self._say('"')
        self._behind_string, self._step = self._behind_value, self._in_string
        return position + len(self._quote)

    def _in_string(self, text: str, position: int) -> int:
        """Read the text of a string, up to a quote that ends it."""
        quote = self._quote
        end = _IN_STRING[quote[0]].match(text, position).end()  # type: ignore[union-attr]
        self._take(text[position:end])
        if end == len(text) or text[end] == "\\":  # what that escapes is still to come
            return end
        if not text.startswith(quote, end):
            if may_be(quote, text, end):
                return end
            self._take(text[end])
            return end + 1
        after = end + len(quote)
        closes = self._closes_string(text, after)
        if closes is None:
            return end
        if closes:
            self._end_string()
        else:
            self.issues = self.issues or [("ambiguous_close", "a quote inside a string")]
            self._take(text[end:after])
        return after

    def _closes_string(self, text: str, after: int) -> bool | None:
        """Return whether the quote before `after` ends its string; None where what follows is not there yet."""
        if self._into is not None:
            return True
        if not self._open:
            found = _BEHIND_ARGUMENT.match(text, after, after + _FURTHEST)
            waits = found is not None and found[1] is not None
            return None if waits and len(text) - after < _FURTHEST else found is not None and not waits
        follows = SPACE.match(text, after, after + _FURTHEST).end()  # type: ignore[union-attr]
        if follows == len(text):
            return None if follows - after < _FURTHEST else False
        if self._is_key:
            return text[follows] == ":"
        return text[follows] in (",", self.closings[self._open[-1]])

    def _take(self, piece: str, last: bool = False) -> None:
        """Take a piece of a string's text, as Python writes it, to be JSON."""
        text = self._begun + self._unescaper.feed(piece) + (self._unescaper.close() if last else "")
        begun = None if last else _BEGUN.search(text)
        self._begun = "" if begun is None else begun[1]
        text = _ESCAPED.sub(_escaped, text[: len(text) - len(self._begun)])
        if self._into is None:
            self._say(text)
        else:
            self._into.append(text)

    def _end_string(self) -> None:
        self._take("", last=True)
        if self._into is None:
            self._say('"')
        else:
            word = name_of_line(f'"{"".join(self._into)}"')
            self.failed = word is None
            self._into = [word or ""]
        self._step = self._behind_string


def _escaped(found: re.Match[str]) -> str:
    """Return an escape of Python's, or a character that JSON does not have in strings, as JSON writes it."""
    token, digits = found[0], found["x"] or found["U"]
    if token[0] != "\\":
        return safe_json_string(token)[1:-1]
    code = int(digits, 16) if digits else int(found["octal"], 8) if found["octal"] else -1
    if 0 <= code <= sys.maxunicode:
        return safe_json_string(chr(code))[1:-1]
    kind = token[1]
    if kind in _KEPT or (kind == "u" and len(token) > len("\\u")):
        return token
    return _OTHERS[kind] if kind in _OTHERS else "\\\\" + _ESCAPED.sub(_escaped, token[1:])


def value_of(word: str) -> str | None:
    """Return the JSON text of a word or number; None if it is none."""
    if word in _JSON_WORDS:
        return _JSON_WORDS[word]
    if _NUMBER.fullmatch(word):
        return word
    try:
        value = ast.literal_eval(word) if word[:1] in "+-.0123456789" and word else None
        return json.dumps(value, allow_nan=False) if type(value) in (int, float) else None
    except (ValueError, SyntaxError, RecursionError, MemoryError):
        return None
