"""Owns tool calls and results that are one JSON object, `{"name": ..., "arguments": {...}}`: write, read, stream."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from functools import lru_cache, partial
from typing import Any, NamedTuple

from turnscript.core.conversation import Text, ToolCall, ToolResult
from turnscript.core.errors import InvalidRequest, InvalidTranscript
from turnscript.core.json_text import (
    Json,
    compact,
    every_member,
    is_object,
    json_string,
    plain,
    read_object,
    respace,
    string_of,
    text_of,
)
from turnscript.engine.correlate import Indices
from turnscript.engine.escape import Escape
from turnscript.engine.jsonscan import JsonMachine, ObjectScanner, ValueScanner, pretty
from turnscript.engine.machine import IDENTIFIER, NUMBER, ODD_CALL, CallRules, Machine, PlainBody, Reading
from turnscript.engine.recent import MB, recent
from turnscript.engine.scanner import beginning_of
from turnscript.engine.spans import Writer
from turnscript.engine.table import Payload
from turnscript.engine.texts import PlainText
from turnscript.grammar.nodes import EMPTY, Node, optional, sequence
from turnscript.grammar.rules import WS

_ARGUMENT_KEYS = ("arguments", "parameters", "input", "args")
_BLANKS = " \t\r\n"
_SPACES = ("", " ", "\n", "\n  ", "\n    ")  # as JSON is laid out
_NUMBER = re.compile(r"[0-9]{1,9}")
_WINDOW = 65_536  # arguments that are there at once are looked for no further than this
_KNOWN = frozenset({"name", "id", "type", "index", *_ARGUMENT_KEYS})  # what a call may say
_ONCE = frozenset({"name", *_ARGUMENT_KEYS})  # of which a second one is told, or makes that it is no call
_NOT_KEPT = ""  # stands for the keys of members that are not read


class JsonCall(PlainBody):
    """A call as one JSON object.

    `arguments` is the key of the arguments, `name_key` that of the tool's name; `spaced` puts a space after colons and
    commas; `arguments_first` is their order. `ids`: a call says its id, behind the rest. `index_key`: it says its
    number as an id, by this key and before the rest. Read: the keys in any order, other words for the arguments,
    arguments that are a string of JSON, or none.
    """

    carries: tuple[str, ...] = ("name", "arguments")
    plain = True
    says_name = True

    def __init__(
        self,
        arguments: str = "arguments",
        spaced: bool = False,
        arguments_first: bool = False,
        ids: bool = False,
        *,
        name_key: str = "name",
        index_key: str = "",
    ) -> None:
        ids = ids or bool(index_key)
        self._ids, self._index_key, self.ids_first = ids, index_key, bool(index_key)
        self.name_key, self.id_key = name_key, index_key or "id"
        self.numbering = Indices() if index_key else None
        self.carries = (*self.carries, "id") if ids else self.carries
        self._spaced, self.compact = spaced, not spaced
        self._arguments_first = self.name_last = arguments_first
        self._key = self.arguments_key = arguments
        comma, colon = (", ", ": ") if spaced else (",", ":")
        named, argued = f"{json_string(name_key)}{colon}", f"{json_string(arguments)}{colon}"
        first, second = (argued, named) if arguments_first else (named, argued)
        self._literals = (f"{{{first}", f"{comma}{second}", "}")
        self.begins = "{" if index_key else self._literals[0]
        first_keys = dict.fromkeys((name_key, "name", "type", "function", arguments, index_key))
        self.openings = tuple(f'{{{space}"{key}"' for key in first_keys if key for space in _SPACES)

    def write(self, item: ToolCall, out: Writer) -> None:
        """Write the object. Arguments that are no JSON object are written as a string."""
        text, respaced = _call_text(self, item.name, item.arguments)
        if respaced:
            out.lose(".arguments", "approximated", RESPACED)
        id_ = out.ids.get(out.item, item.id) if self._ids else None
        if id_ is not None:
            comma, said = self.id_spelled()
            said += json_string(id_)
            text = f"{{{said}{comma}{text[1:]}" if self.ids_first else f"{text[:-1]}{comma}{said}}}"
        out.content(text)

    def id_spelled(self) -> tuple[str, str]:
        """Return what stands between an id and the rest, and the id's key with its colon."""
        comma, colon = (", ", ": ") if self._spaced else (",", ":")
        return comma, f"{json_string(self.id_key)}{colon}"

    def only_text(self, silent: Callable[[Any], bool]) -> Callable[[Any, Writer], str | None]:
        """Return the object, for a call that has nothing but name and arguments."""
        if self._ids:
            return super().only_text(silent)

        def only_text(item: ToolCall, out: Writer) -> str | None:
            if not silent(item):
                return None
            text, respaced = _call_text(self, item.name, item.arguments)
            if respaced and not item.at:
                return None  # the other way knows its position
            if respaced:
                out.later.append(partial(_report_spacing, item, out))
            return text

        return only_text

    def written(self, name: str, arguments: str) -> tuple[str, bool]:
        """Return the object as it is written, and whether that changes the white space of the arguments."""
        shown, respaced = json_string(arguments), False
        if is_object(arguments):
            shown = respace(arguments) if self._spaced else compact(arguments)
            respaced = shown != arguments
        first, second = (shown, json_string(name)) if self._arguments_first else (json_string(name), shown)
        opening, between, closing = self._literals
        return f"{opening}{first}{between}{second}{closing}", respaced

    def prefill(self, name: str | None, protect: Callable[[str], str], number: int) -> str:
        """Return the beginning of a call that must be made, up to where the model decides."""
        if self._arguments_first:
            return self._literals[0]
        if name is None:
            return ""
        comma, key = self.id_spelled()
        id_ = f"{key}{json_string(str(number))}{comma}" if self.ids_first else ""
        return f"{{{id_}{self._literals[0][1:]}{protect(json_string(name))}{self._literals[1]}"

    def read(self, payload: Payload) -> dict[str, Any]:
        """Return the call's fields."""
        message = 'a tool call must be one JSON object with "name" and the arguments'
        return self.machine(Reading(payload.escape)).whole(payload, message, "a JSON object")

    def machine(self, reading: Reading) -> Machine:
        """Return a reader for a call that comes in pieces."""
        return _CallMachine(reading, self)

    def grammar(self, call: CallRules) -> Node:
        """Return the object, with any white space between its tokens: models may have learnt another spacing."""
        name = sequence(f"{json_string(self.name_key)}:", WS, call.protect(json_string(call.name)))
        arguments = sequence(f"{json_string(self._key)}:", WS, call.schema.arguments())
        first, second = (arguments, name) if self._arguments_first else (name, arguments)
        id_ = NUMBER if self._index_key else IDENTIFIER
        said = sequence(f"{json_string(self.id_key)}:", WS, '"', id_, '"') if self._ids else EMPTY
        before = optional(sequence(said, ",", WS)) if self._ids and self.ids_first else EMPTY
        behind = optional(sequence(",", WS, said)) if self._ids and not self.ids_first else EMPTY
        return sequence("{", before, first, ",", WS, second, behind, "}")


RESPACED = "white space between the tokens of JSON is the format's own"


@recent(32 * MB)
def _call_text(body: JsonCall, name: str, arguments: str) -> tuple[str, bool]:
    """Return what a call is written as. Sessions show the same calls again and again, so it is kept for a while."""
    return body.written(name, arguments)


def _report_spacing(item: ToolCall, out: Writer) -> None:
    out.place = item.at
    out.lose(".arguments", "approximated", RESPACED)


class _Usual(NamedTuple):
    """Patterns of how nearly all calls are written: `{"name": "f", "input": ` before an object, and what closes it.

    `waits` matches what may yet become such a beginning. Lengths are bounded, because it waits until it is there.
    """

    begin: Callable[[str, int], re.Match[str] | None]
    waits: Callable[..., object]
    end: Callable[[str, int], re.Match[str] | None]


@lru_cache(maxsize=64)
def _usual(key: str, name_key: str, escape: Escape) -> _Usual | None:
    """Return the patterns for a key of arguments, and one of names.

    A name with escapes of any kind, or with what no JSON string may hold, is not as usual, nor is a key that is no word
    for arguments: it is one of them in no spelling.
    """
    if key not in _ARGUMENT_KEYS:
        return None
    leads = "".join(re.escape(lead[0]) for lead in escape.leads)
    space, letters = r"[ \t\r\n]{0,8}", rf'([^"\\\x00-\x1f\ud800-\udfff{leads}]{{1,64}})'
    first = [space, r"\{", space, *map(re.escape, json_string(name_key)), space, ":", space, '"']
    then = [letters, '"', space, ",", space, *map(re.escape, json_string(key)), space, ":", space]
    return _Usual(
        re.compile("".join([*first, *then, r"(?=\{)"])).match,
        re.compile(f"{''.join(first)}{beginning_of(then)}|{beginning_of(first)}").fullmatch,
        re.compile(r"[ \t\r\n]*\}").match,
    )


class _CallMachine(JsonMachine):
    """Reads the members as they come. Arguments are passed on as soon as the name is known."""

    is_json = True

    def __init__(self, reading: Reading, body: JsonCall) -> None:
        super().__init__(reading.escape)
        arguments = body.arguments_key
        self._strict = reading.strict
        self._numbered = bool(body.numbering)
        self._key_of_arguments = arguments
        self._words = {body.name_key: "name", body.id_key: "id"}
        # As long as all is as usual; then there is a scanner.
        self._usual = None if body.ids_first else _usual(arguments, body.name_key, reading.escape)
        self._scanner: ObjectScanner | None = None
        if self._usual is None:
            self._leave_usual()
        self._tentative = reading.tentative
        self._ahead = 0  # how much stands between the name, up to which was read, and the arguments
        self._values: dict[str, list[str]] = {}
        self._id: str | None = None  # also one behind the arguments
        self._key = ""
        self._word = ""
        self._string = False
        self._odd = False
        self._outside: dict[str, Json] = {}  # members of the wrapper of an API
        self._whole = False  # the call was there at once, so its arguments are known to be an object
        self._close = reading.closes[0] if reading.closes else ""

    def _read_usual(self, usual: _Usual, text: str, start: int) -> int:
        """Read on as far as all is as usual; what is not is left to a scanner of objects."""
        if self.name is None:
            match = usual.begin(text, start)
            if match is None:
                if usual.waits(text, start) is None:
                    self._leave_usual()
                return start
            self.name = match[1]
            start = match.end(1) + 1
            self._ahead = match.end() - start
            if self._tentative:
                return start
        if self._ahead:
            start, self._ahead = start + self._ahead, 0
            end = self._at_once(text, start)
            if end != start:
                return end
            self._live = ValueScanner()
        if self._live is not None:
            start = self._go_on(self._live, text, start)
        if self._live is None and start < len(text):
            match = usual.end(text, start)
            if match is not None:
                self.done = True
                return match.end()
            self._values["name"] = [f'"{self.name}"']
            self._leave_usual().leave()
        return start

    def _leave_usual(self) -> ObjectScanner:
        self._usual = None
        self._scanner = ObjectScanner()
        return self._scanner

    def _at_once(self, text: str, start: int) -> int:
        """Read a call that is there up to its closing, if its last part are arguments that are JSON."""
        end = text.find(self._close, start, start + _WINDOW) if self._close else -1
        brace = text.rfind("}", start, end) if end >= 0 else -1
        if brace < 0 or text[brace + 1 : end].strip(_BLANKS):
            return start
        arguments = text[start:brace].rstrip(_BLANKS)
        if self._unescaper.certain(arguments) != len(arguments) or not is_object(arguments):
            return start
        self._whole = self.done = True
        self._pass_on(arguments)
        return brace + 1

    def feed(self, text: str, start: int) -> int:
        position = start if self._usual is None else self._read_usual(self._usual, text, start)
        scanner = self._scanner
        if scanner is None:
            return position
        live = self._live
        if live is not None:
            position = self._go_on(live, text, position)
            if live.done:
                scanner.leave()
        length, known = len(text), self.name
        while position < length and self.name is known and not scanner.done and not (scanner.failed or self.failed):
            position = scanner.feed(text, position)
            if scanner.value is not None:
                begin, end = scanner.value
                self._take(scanner.key, text[begin:end], scanner.ended)
        self.done, self.failed = scanner.done, scanner.failed or self.failed
        if self._live is None and self.name is not None and not self._string and self._word in _ARGUMENT_KEYS:
            self._live = scanner.inner
        return position

    def _go_on(self, value: ValueScanner, text: str, start: int) -> int:
        """Read arguments that go on: most of what a call is, so nothing else is looked at."""
        self._catch_up(value)
        end = value.feed(text, start)
        piece = self._unescaper.feed(text[start:end])
        if value.done:
            piece += self._unescaper.close()
            self._key, self._live = "", None
        self.failed = value.failed
        self._pass_on(piece)
        return end

    def _take(self, key: str, piece: str, ended: bool) -> None:
        if key != self._key:
            said = _word(key)
            self._key, self._word = key, self._words.get(said, said)
            if self._word in self._values and self._word not in _ONCE:
                self._word = _NOT_KEPT
        word = self._word
        if word in _ARGUMENT_KEYS:
            self._odd = self._odd or word != self._key_of_arguments
            self._take_arguments(piece, ended)
            return
        self._values.setdefault(word, []).append(piece)
        if ended and word == "name" and self.name is not None:
            self.dropped.append("a second name, which is not read")
        elif ended and word == "name":
            self.name = _string(self._escape.remove("".join(self._values["name"])))
            if self.name is not None and self.said:
                self._say()
        elif ended and word == "id":
            self._take_id(self._escape.remove("".join(self._values["id"])))
        if ended:
            self._key = ""

    def _take_id(self, said: str) -> None:
        number = _NUMBER.fullmatch(said) is not None
        self._id = said if number else _string(said)
        if not self.said:  # else a stream has told the call without its id, unless it came at once
            self.id = self._id
        if number and self._strict and not self._numbered:
            self.issues.append((ODD_CALL, "an id that is a number"))

    def _take_arguments(self, piece: str, ended: bool) -> None:
        if not self.said and not self._string and piece:
            self._string = piece[0] == '"'
        text = self._unescaper.feed(piece)
        if ended:
            text += self._unescaper.close()
            self._key = ""
        self.said.append(text)
        if self.name is not None and not self._string:
            self.deltas.append(text)

    def _say(self) -> None:
        if not self._string:
            self.deltas.append("".join(self.said))

    def fields(self) -> dict[str, Any] | None:
        if self.name is None:
            return self._wrapped()
        arguments = self._whole_arguments()
        if arguments is None:
            return None
        found: dict[str, Any] = {"name": self.name, "arguments": arguments}
        if self._id is not None:
            found["id"] = self._id
        self._drop_repeated()
        if not self._strict:
            self.drop(self._values.keys() - _KNOWN)
        elif extra := self._others():
            found["extra"] = extra
        return found

    def _whole_arguments(self) -> str | None:
        """Return the arguments, None if they are neither an object nor a string."""
        arguments = "".join(self.said)
        if self._odd or self._string:
            self.issues.append(
                (ODD_CALL, f"arguments under another key than {self._key_of_arguments!r}, or as a string")
            )
        if self._string:
            decoded = _string(arguments)
            if decoded is None:
                return None
            self.deltas.append(decoded)
            arguments = decoded
        elif not arguments or arguments == "null":
            if self._strict:
                self.issues.append((ODD_CALL, "there are no arguments, and an empty object is taken"))
            arguments = "{}"
            self.deltas = ["{}"]
        elif not self._whole and not is_object(arguments):
            return None
        return arguments

    def _others(self) -> dict[str, Json]:
        """Return the members that say neither name nor arguments, nor the id."""
        others = {key: self._escape.remove("".join(pieces)) for key, pieces in self._values.items()}
        known = {"name"} if self._id is None and others.get("id") != "null" else {"name", "id"}
        return self._outside | {key: Json(text.encode()) for key, text in others.items() if key not in known}

    def _drop_repeated(self) -> None:
        """Take note of members that no others tell apart."""
        if self._values.pop(_NOT_KEPT, None) is not None:
            self.dropped.append("a member with an empty key, or with one that came before, is not read")

    def _wrapped(self) -> dict[str, Any] | None:
        """Return a call in the wrapper of an API: `{"type": "function", "function": {...}}`."""
        try:
            inner = read_object(self._escape.remove("".join(self._values.pop("function"))))
            self.name = _string(text_of(inner["name"]))
        except (KeyError, InvalidRequest):
            return None
        self._drop_repeated()
        said = {key: [text_of(value)] for key, value in inner.items() if key not in _ARGUMENT_KEYS}
        if self._strict:
            self.issues.append((ODD_CALL, "the call stands in a wrapper, which is not kept"))
            self._outside, self._values = self._others(), said
        else:
            self._values |= said
        key = next((key for key in (self._key_of_arguments, *_ARGUMENT_KEYS) if key in inner), None)
        if key is not None:
            self.said = [text_of(inner[key])]
            self._string, self._odd = self.said[0].startswith('"'), key not in (self._key_of_arguments, "arguments")
            self._say()
        return self.fields() if self.name is not None else None


class JsonResult(PlainText):
    """A result as `{"name": ..., "content": ...}` over several lines. An object or array as content is embedded."""

    carries: tuple[str, ...] = ("name",)
    plain = False

    def write(self, item: ToolResult, out: Writer) -> None:
        """Write the object."""
        content = item.content
        simple = len(content) == 1 and type(content[0]) is Text and not content[0].extra
        text = content[0].text if simple and isinstance(content[0], Text) else self.text(item, out)
        shown = text if is_object(text) or _is_array(text) else json_string(text)
        if shown is text and respace(text) != text:
            out.lose(".content", "approximated", RESPACED)
        known = item.name if item.name is not None else out.names.get(out.item)
        name = "null" if known is None else json_string(known)
        out.content(pretty(f'{{"name":{name},"content":{shown}}}'))

    def read(self, payload: Payload) -> dict[str, Any]:
        """Name and text."""
        try:
            said = payload.escape.remove(payload.text)
            fields = read_object(said)
            count = len(fields)
            name = None if text_of(found := fields.pop("name")) == "null" else string_of(found)
            content = fields.pop("content")
        except InvalidRequest as error:
            line, column = payload.line + max(error.line, 1) - 1, max(error.column, 1)
            raise InvalidTranscript(
                f"{_OUTPUT} ({error.message})", line=line, column=column, expected="a JSON object"
            ) from None
        except KeyError as error:
            message = f"{_OUTPUT} ({error} is missing)"
            raise InvalidTranscript(message, line=payload.line, column=1, expected="a JSON object") from None
        if len(every_member(said)) != count:
            payload.lose("", "dropped", "a key comes twice: its last value alone is kept")
        text = text_of(content)
        is_text = text.startswith('"')
        shown = plain(content) if is_text else respace(text)
        if is_text == (is_object(shown) or _is_array(shown)):
            payload.lose(".content", "approximated", "JSON is read as its text: a string as what it holds")
        return {"name": name, "content": [Text(text=shown)], **({"extra": fields} if fields else {})}


_OUTPUT = 'a tool output must be one JSON object with "name" and "content"'


def _is_array(text: str) -> bool:
    return text.lstrip().startswith("[") and is_object(f'{{"a":{text}}}')


def _word(key: str) -> str:
    return _string(key) or ""


def _string(text: str) -> str | None:
    """Return the text of a JSON string; None if it is none, or holds half a surrogate pair, which no UTF-8 can."""
    try:
        value = json.loads(text)
        return value if isinstance(value, str) and value.encode() is not None else None
    except ValueError:
        return None
