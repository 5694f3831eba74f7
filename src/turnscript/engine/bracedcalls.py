"""Owns calls and results in braces whose strings stand between marks: `call:weather{city:<|"|>Oslo<|"|>,days:3}`.

It is JSON but for two things: a string is its text, between two marks, and a key stands without any. A string ends at
the first mark, so nothing else of a format is looked for inside it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

from turnscript.core.conversation import Text, ToolCall, ToolResult
from turnscript.core.errors import InvalidRequest
from turnscript.core.json_text import compact, is_object, plain, read_object, respace, safe_json_string, text_of
from turnscript.engine.escape import Escape, tags_in
from turnscript.engine.functioncalls import value_of
from turnscript.engine.machine import KEY, CallRules, Machine, PlainBody, Reading, joined, lose_arguments
from turnscript.engine.scanner import scanner_for
from turnscript.engine.spans import Writer
from turnscript.engine.structures import LONGEST_WORD, StructureMachine, may_be
from turnscript.engine.table import Payload
from turnscript.engine.texts import PlainText
from turnscript.grammar.nodes import Literal, Node, Without, sequence
from turnscript.grammar.respelled import Respelled

MARK = '<|"|>'
"""What stands around a string, if a table does not say otherwise."""
_TOKEN = re.compile(r'("(?:[^"\\]|\\.)*")(:?)|[^"]+', re.DOTALL)
_STRING = re.compile(r'"(?:[^"\\]|\\.)*"', re.DOTALL)
_PLAIN = re.compile(r"[^\s{}\[\]<>:,\"'](?:[^{}\[\]<>:,\"'\n]*[^\s{}\[\]<>:,\"'])?")
_NAME = re.compile(r"[^{]*")
_PLAIN_NAME = re.compile(r"[^\s{](?:[^{]*[^\s{])?")
_BARE = re.compile(r"[^,:{}\[\]<]*")


class BracedCall(PlainBody):
    """A call as `prefix`, its name, and the arguments in braces. `mark` stands around each string.

    Read: Python's words, and a string without marks, up to a comma or a bracket.
    """

    carries: tuple[str, ...] = ("name", "arguments")
    says_name = True

    def __init__(self, mark: str = MARK, prefix: str = "call:") -> None:
        self.mark, self.prefix = mark, prefix
        self.literals: tuple[str, ...] = tuple(tags_in(mark))
        self.begins = prefix

    def write(self, item: ToolCall, out: Writer) -> None:
        """Write the call. Arguments that are no JSON object become one argument called `arguments`."""
        again: str | None = None
        try:
            members = [(key, text_of(value)) for key, value in read_object(item.arguments).items()]
            again = joined([(key, _spelled(key, value)) for key, value in members])
        except InvalidRequest:
            members = [("arguments", safe_json_string(item.arguments))]
        lose_arguments(item.arguments, again, len(members), _spelled, out)
        out.content(self.prefix)
        _write(named_pieces(item.name, self.mark), out)
        out.content("{")
        for index, (key, value) in enumerate(members):
            if index:
                out.content(",")
            _write([*_word_pieces(key, self.mark, _PLAIN), (False, ":"), *braced_pieces(value, self.mark)], out)
        out.content("}")

    def prefill(self, name: str | None, protect: Callable[[str], str], number: int) -> str:
        """Return the prefix and the name of a call that must be made, up to where the model decides."""
        return self.prefix if name is None else f"{self.prefix}{self._named(name, protect, _PLAIN_NAME)}{{"

    def read(self, payload: Payload) -> dict[str, Any]:
        """Return the call's fields."""
        return read_braced(payload, self.mark, self.prefix)

    def machine(self, reading: Reading) -> Machine:
        """Return a reader for a call that comes in pieces."""
        return _BracedMachine(reading, self.mark, self.prefix)

    def grammar(self, call: CallRules) -> Node:
        """Return the prefix, the name, and a member for each of the schema, in its order."""

        def opened(key: str) -> str:
            return f"{self._named(key, call.protect)}:"

        row = call.row(opened, sequence(KEY, ":"), _spelling(call, self.mark).node)
        return sequence(f"{self.prefix}{self._named(call.name, call.protect, _PLAIN_NAME)}{{", row, "}")

    def _named(self, name: str, protect: Callable[[str], str], plain_words: re.Pattern[str] = _PLAIN) -> str:
        return protect(name) if plain_words.fullmatch(name) else f"{self.mark}{protect(name)}{self.mark}"


class BracedResult(PlainText):
    """A result as `prefix`, its tool's name, and the text in braces: `response:weather{value:<|"|>rain<|"|>}`."""

    carries: tuple[str, ...] = ("name",)
    plain = False

    def __init__(self, mark: str = MARK, prefix: str = "response:") -> None:
        self.mark, self.prefix = mark, prefix
        self.literals: tuple[str, ...] = tuple(tags_in(mark))
        named, told = re.escape(prefix), re.escape(mark)
        # Escapes are gone where this is read, so a text may hold the mark: the last one is its end.
        self._one_text = re.compile(rf"{named}({told}.*?{told}|[^{{]*){{value:{told}(.*){told}}}", re.DOTALL)

    def write(self, item: ToolResult, out: Writer) -> None:
        """Write the result."""
        name = item.name if item.name is not None else out.names.get(out.item)
        text = self.text(item, out)
        out.content(self.prefix)
        if name is not None:
            _write(named_pieces(name, self.mark), out)
        out.content("{value:")
        out.control(self.mark)
        out.content(text)
        out.control(self.mark)
        out.content("}")

    def read(self, payload: Payload) -> dict[str, Any]:
        """Name and text. Members that are not one value alone are a text of JSON."""
        text = payload.escape.remove(payload.text)
        found = self._one_text.fullmatch(text.strip())
        if found is not None:
            name = found[1].removeprefix(self.mark).removesuffix(self.mark)
            return {"name": name or None, "content": [Text(text=found[2])]}
        fields = read_braced(Payload(text, {}, payload.line, Escape()), self.mark, self.prefix)
        members = read_object(fields["arguments"])
        only = text_of(members["value"]) if list(members) == ["value"] else fields["arguments"]
        shown = plain(members["value"]) if only.startswith('"') else only
        return {"name": fields["name"] or None, "content": [Text(text=shown)]}


def braced_pieces(value: str, mark: str) -> list[tuple[bool, str]]:
    """Return JSON text in braces, each string between marks: texts, each with whether it is the format's own."""
    pieces: list[tuple[bool, str]] = []
    for token in _TOKEN.finditer(compact(value)):
        if token[1] is None:
            pieces.append((False, token[0]))
        elif token[2]:
            pieces += [*_word_pieces(json.loads(token[1]), mark, _PLAIN), (False, ":")]
        else:
            pieces += [(True, mark), (False, json.loads(token[1])), (True, mark)]
    return pieces


def named_pieces(name: str, mark: str) -> list[tuple[bool, str]]:
    """Return a tool's name before a brace, between marks where it would not end there."""
    return _word_pieces(name, mark, _PLAIN_NAME)


def _word_pieces(word: str, mark: str, plain_words: re.Pattern[str]) -> list[tuple[bool, str]]:
    """Return a name or a key, between marks where it could not be told from what stands around it."""
    if plain_words.fullmatch(word):
        return [(False, word)]
    return [(True, mark), (False, word), (True, mark)]


def _write(pieces: list[tuple[bool, str]], out: Writer) -> None:
    for control, text in pieces:
        out.control(text) if control else out.content(text)


def _spelled(_key: str, value: str) -> str:
    """Return how a JSON value is read again: strings have one spelling."""
    return _STRING.sub(lambda found: safe_json_string(json.loads(found[0])), respace(value))


def _spelling(call: CallRules, mark: str) -> Respelled:
    """Return the rules of JSON in braces. Keys have one rule: llama.cpp multiplies counts that are in each other."""
    string, any_key = sequence(mark, Without((mark,)), mark), call.rules.add(call.rules.named("key"), KEY)

    def words(text: str) -> Node:
        parts: list[Node | str] = []
        for token in _TOKEN.finditer(text):
            parts += [mark, _inner(token[1]), mark, token[2]] if token[1] else [token[0]]
        return sequence(*parts)

    def key(node: Node) -> Node:
        text = node.text if isinstance(node, Literal) else ""
        inner = _inner(text) if _STRING.fullmatch(text) else ""
        return any_key if not inner else Literal(inner if _PLAIN.fullmatch(inner) else f"{mark}{inner}{mark}")

    return Respelled(call.rules, "braced", words, call.rules.add(call.rules.named("text"), string), key)


def _inner(token: str) -> str:
    """Return the text of a string of JSON, in which an escape of the format's may stand."""
    try:
        return str(json.loads(token))
    except ValueError:
        return token[1:-1]


def read_braced(payload: Payload, mark: str, prefix: str) -> dict[str, Any]:
    """Return the name, and as `arguments` the JSON, of what is written in braces. Raises InvalidTranscript."""
    message = f"this must be written {prefix}NAME{{key:value}}, strings between {mark}"
    return _BracedMachine(Reading(payload.escape), mark, prefix).whole(payload, message, f"{prefix}NAME{{")


class _BracedMachine(StructureMachine):
    """Reads the prefix, the name, then one structure."""

    def __init__(self, reading: Reading, mark: str, prefix: str) -> None:
        super().__init__(reading, mark[0])
        self._mark, self._prefix, self._escape = mark, prefix, reading.escape
        self._marks = scanner_for((mark,))
        self._inside = self._in_string

    def fields(self) -> dict[str, Any] | None:
        arguments = "".join(self.said)
        return {"name": self.name or "", "arguments": arguments} if is_object(arguments) else None

    @property
    def streams(self) -> bool:
        return bool(self.name) and super().streams

    def _start(self, text: str, position: int) -> int:
        if not text.startswith(self._prefix, position):
            self.failed = not may_be(self._prefix, text, position)
            return position
        self._step = self._before_name
        return position + len(self._prefix)

    def _before_name(self, text: str, position: int) -> int:
        if text.startswith(self._mark, position):
            self._into, self._step = [], self._in_string
            return position + len(self._mark)
        end = _NAME.match(text, position).end()  # type: ignore[union-attr]
        if end == len(text):
            self.failed = end - position > LONGEST_WORD
            return position
        return self._take_name(self._escape.remove(text[position:end].strip()), text, end)

    def _take_name(self, name: str, text: str, position: int) -> int:
        """Take a name that is known; a brace must follow."""
        self.failed = text[position] != "{"
        if not self.failed:
            self.name, self._into, self._step = name, None, self._value
        return position

    def _behind_name(self, text: str, position: int) -> int:
        return self._take_name("".join(self._into or ()), text, position)

    def _behind(self, text: str, position: int) -> int:
        self.failed = True
        return position

    def _end_structure(self, position: int) -> int:
        end = super()._end_structure(position)
        self.done = not self._open
        return end

    def _scalar(self, text: str, position: int) -> int:
        if text.startswith(self._mark, position):
            self._element()
            self._say('"')
            self._step = self._in_string
            return position + len(self._mark)
        if may_be(self._mark, text, position):
            return position
        end = _BARE.match(text, position).end()  # type: ignore[union-attr]
        if end == len(text):
            self.failed = end - position > LONGEST_WORD
            return position
        word = text[position:end].strip()
        self.failed = not word or (text[end] != ":") == self._is_key
        if not self.failed:
            self._take_word(self._escape.remove(word))
        return position if self.failed else end

    def _take_word(self, word: str) -> None:
        """Take a key, a number or a word; any other is a string without marks."""
        known = None if self._is_key else value_of(word)
        if known is None and not self._is_key:
            self.issues = self.issues or [("odd_call", f"a string without {self._mark}")]
        self._say_word(safe_json_string(word) if known is None else known)

    def _in_string(self, text: str, position: int) -> int:
        """Read the text of a string, up to the next mark."""
        found = self._marks.find(text, position, closing=False)
        end = self._marks.hold(text, position) if found is None else found.start()
        piece = self._unescaper.feed(text[position:end]) + ("" if found is None else self._unescaper.close())
        if self._into is not None:
            self._into.append(piece)
        else:
            self._say(safe_json_string(piece)[1:-1])
        if found is None:
            return end
        if self._into is not None:
            self._step = self._behind_name
        else:
            self._say('"')
            self._step = self._behind_value
        return found.end()
