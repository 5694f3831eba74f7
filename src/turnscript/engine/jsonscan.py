"""Owns scanning JSON that comes in pieces: where a value ends, and the members of an object as they come.

Nothing is parsed and written again: values pass as the text they are. A tag inside a string is text, because strings
are scanned as strings. Syntax is checked only as far as is needed to find ends; whoever takes a value checks it whole.

Machines pass JSON on as it comes, without the format's escapes; one of them reads payloads that are the arguments
alone. `indented` writes JSON over several lines, every token as it was written.
"""

from __future__ import annotations

import re
from json.decoder import scanstring  # type: ignore[attr-defined]
from typing import Any

from turnscript.core.json_text import Json, is_object, text_of
from turnscript.engine.escape import Escape
from turnscript.engine.machine import Machine, Reading
from turnscript.engine.scanner import Scanner, Unescaper, look_in_string

_SPACE = re.compile(r"[ \t\r\n]*")
_BETWEEN = r"[ \t\r\n,:0-9a-zE+.\-]*+"  # no number or word has another capital than E
# Outside strings: up to what opens and closes, or what no JSON has there. Short strings are looked over, so many at
# a time, because each takes memory until the match is made.
_STRUCTURE = re.compile(rf'{_BETWEEN}(?>(?:"[^"\\]{{0,256}}+"{_BETWEEN}){{0,1000}})')
_INSIDE = r'[^"\\]*+(?:\\.[^"\\]*+)*+'
_IN_STRING = re.compile(_INSIDE, re.DOTALL)
_LONG = 256
# A short piece that opens and closes no structure, at one look. What it goes on from is put before it; the last group
# that matches tells where it ends: outside strings, in one, or in one and behind a backslash.
_FLAT = re.compile(rf'{_BETWEEN}(?>(?:"{_INSIDE}"{_BETWEEN})*)(?:("){_INSIDE}(\\)?)?', re.DOTALL).fullmatch
_BEFORE = {"{": "", '"': '"', "\\": '"\\'}
_AFTER = ("{", '"', "\\")
IN_STRING = ('"', "\\")
"""The kinds of places inside a string."""
_SCALAR = re.compile(r"[A-Za-z0-9+.\-]*")


class ValueScanner:
    """Finds the end of one JSON value. White space before it must be gone already.

    `kind`: where it is. Empty: before the value, `"` in a string, a backslash: in a string and behind one, `{`: in a
    structure outside strings, `0`: in a scalar.
    """

    __slots__ = ("_depth", "done", "failed", "kind")

    def __init__(self) -> None:
        self.done = False
        self.failed = False
        self.kind = ""
        self._depth = 0

    def feed(self, text: str, start: int) -> int:
        """Scan from `start`; returns where the value ends, or the length of the text if it goes on."""
        position, length = start, len(text)
        if not self.kind and position < length:
            position = self._begin(text, position)
        return self._scan(text, position)

    def _scan(self, text: str, start: int) -> int:
        position, length = start, len(text)
        while position < length and not self.done and not self.failed:
            if self.kind in IN_STRING:
                position = self._string(text, position)
            elif self.kind == "{":
                position = self._structure(text, position)
            else:
                end = _SCALAR.match(text, position).end()  # type: ignore[union-attr]
                self.done = end < length
                position = end
        return position

    def passes(self, text: str) -> bool:
        """Take a piece that leaves the value unfinished. Of any other nothing is taken."""
        if self._depth and len(text) <= _LONG and (match := _FLAT(_BEFORE[self.kind] + text)) is not None:
            self.kind = _AFTER[match.lastindex or 0]
            return True
        if 0 < self._depth <= text.count("}") + text.count("]"):  # it may end: whoever reads on will see
            return False
        before = self.kind, self._depth
        self._scan(text, self._begin(text, 0) if text and not self.kind else 0)
        if not self.done and not self.failed:
            return True
        self.kind, self._depth = before
        self.done = self.failed = False
        return False

    def _begin(self, text: str, position: int) -> int:
        first = text[position]
        if first == '"':
            self.kind = '"'
            return position + 1
        if first in "{[":
            self.kind, self._depth = "{", 1
            return position + 1
        if first.isalnum() or first == "-":
            self.kind = "0"
            return position
        self.failed = True
        return position

    def _string(self, text: str, position: int) -> int:
        length = len(text)
        if self.kind == "\\":
            self.kind = '"'
            position += 1
        elif length - position > _LONG and (behind := _behind_string(text, position)) >= 0:
            self.kind = "{"
            self.done = self._depth == 0
            return behind
        end = _IN_STRING.match(text, position).end()  # type: ignore[union-attr]
        if end == length:
            return length
        if text[end] == "\\":  # the last character: what it escapes is still to come
            self.kind = "\\"
            return length
        self.kind = "{"
        self.done = self._depth == 0
        return end + 1

    def _structure(self, text: str, position: int) -> int:
        position = _STRUCTURE.match(text, position).end()  # type: ignore[union-attr]
        if position == len(text):
            return position
        token = text[position]
        if token == '"':
            self.kind = '"'
        elif token in "{[":
            self._depth += 1
        elif token in "}]":
            self._depth -= 1
            self.done = self._depth == 0
        else:
            self.failed = True  # a tag or a label, say: the value was cut off
            return position
        return position + 1


def _behind_string(text: str, position: int) -> int:
    """Return where a string ends, if there is a fast way to tell; else -1."""
    quote = text.find('"', position)
    if quote < 0 or text.find("\\", position, quote) < 0:
        return quote + 1 or -1
    # The decoder's own scanner is faster, and fails where a string is cut or has escapes of ours. Its error counts the
    # lines of all before: so a string that is short beside that is not tried.
    near = position + position // 64
    end = _IN_STRING.match(text, position, near).end()  # type: ignore[union-attr]
    if end < near - 1 and end < len(text) and text[end] == '"':
        return end + 1
    try:
        return int(scanstring(text, position, False)[1])
    except ValueError:
        return -1


def begins_object(text: str) -> bool:
    """Return whether a text may go on as one JSON object, as its structure tells. A whole one does not go on."""
    scanner, position = ObjectScanner(), 0
    while position < len(text) and not scanner.done and not scanner.failed:
        position = scanner.feed(text, position)
    return not (scanner.done or scanner.failed)


class ObjectScanner:
    """Reads one JSON object member by member: `key` is the member that is coming, `value` pieces go to `on_value`.

    `feed` returns after every piece of a value, so that its caller can look at `key` and take `text[start:end]`.
    """

    __slots__ = ("_expects", "_scanner", "_text", "done", "ended", "failed", "key", "value")

    def __init__(self) -> None:
        self.done = False
        self.failed = False
        self.key = ""
        self.value: tuple[int, int] | None = None
        self.ended = False
        self._expects = "{"
        self._scanner = ValueScanner()
        self._text: list[str] = []

    def feed(self, text: str, start: int) -> int:
        """Scan on to the next piece of a value, the object's end, or the text's. Sets `value` and `ended`."""
        position, length = start, len(text)
        self.value = None
        self.ended = False
        while position < length and not self.done and not self.failed:
            if self._expects == "value" and self._scanner_started():
                return self._value(text, position)
            position = _SPACE.match(text, position).end() if self._expects != "in key" else position  # type: ignore[union-attr]
            if position >= length:
                break
            if self._expects == "value":
                return self._value(text, position)
            position = self._punctuation(text, position)
        return position

    @property
    def inner(self) -> ValueScanner | None:
        """Return the scanner of the value that goes on; None between values."""
        return self._scanner if self._expects == "value" and self._scanner_started() else None

    def leave(self) -> None:
        """Leave a value that `inner` has scanned to its end, or that somebody else has read."""
        self._expects = ","

    def _scanner_started(self) -> bool:
        return self._scanner.kind != ""

    def _value(self, text: str, position: int) -> int:
        end = self._scanner.feed(text, position)
        self.failed = self._scanner.failed
        self.value = (position, end)
        if self._scanner.done:
            self.ended = True
            self._expects = ","
        return end

    def _punctuation(self, text: str, position: int) -> int:
        expects, character = self._expects, text[position]
        if expects == "in key":
            return self._key(text, position)
        if expects == "{" and character == "{":
            self._expects = "key or }"
        elif expects == "key or }" and character == '"':
            self._expects, self._scanner, self._text = "in key", ValueScanner(), []
            return position
        elif expects == ":" and character == ":":
            self._expects, self._scanner = "value", ValueScanner()
        elif expects == "," and character == ",":
            self._expects = "key or }"
        elif expects in (",", "key or }") and character == "}":
            self.done = True
        else:
            self.failed = True
            return position
        return position + 1

    def _key(self, text: str, position: int) -> int:
        end = self._scanner.feed(text, position)
        self._text.append(text[position:end])
        if self._scanner.done:
            self.key = "".join(self._text)
            self._expects = ":"
        return end


def values_end(text: str) -> int:
    """Return where the objects and arrays end with which a text begins, white space between them; 0 if with none."""
    end = 0
    while behind := value_end(text, end):
        end = behind
    return end


def value_end(text: str, start: int) -> int:
    """Return where the object or array ends that stands behind a place and white space; 0 if there is none."""
    start = _SPACE.match(text, start).end()  # type: ignore[union-attr]
    if not text.startswith(("{", "["), start):
        return 0
    scanner = ValueScanner()
    end = scanner.feed(text, start)
    return end if scanner.done else 0


class JsonMachine(Machine):
    """A machine that passes on JSON. `_live`: the scanner of what passes on, while it does.

    Of a string, most pieces are only looked at, and go to `said` alone. So the scanner is told afterwards whether they
    ended behind a backslash, when a piece comes for which that matters.
    """

    def __init__(self, escape: Escape) -> None:
        super().__init__()
        self._escape = escape
        self._unescaper = Unescaper(escape)
        self._look_in_string = look_in_string(escape)
        self._live: ValueScanner | None = None

    def passes(self, text: str) -> int:
        live = self._live
        if live is None:
            return -1
        if live.kind in IN_STRING and not self._unescaper.held:
            first, second, third, more = self._look_in_string
            if (first not in text and second not in text and third not in text) or more(text) is None:
                return len(text)
        if (end := self._unescaper.certain(text)) < 0:
            return -1
        self._catch_up(live)
        return end if live.passes(text[:end]) else -1

    def _catch_up(self, live: ValueScanner) -> None:
        """Tell the scanner how the pieces ended that were only looked at."""
        if live.kind in IN_STRING and self.said and not self._unescaper.held:
            live.kind = "\\" if self.said[-1].endswith("\\") and _ends_in_escape(self.said) else '"'

    def _pass_on(self, piece: str) -> None:
        if piece:
            self.said.append(piece)
            self.deltas.append(piece)


def _ends_in_escape(pieces: list[str]) -> bool:
    """Return whether the pieces end with a backslash that goes on: with an odd number of them."""
    odd = False
    for piece in reversed(pieces):
        rest = piece.rstrip("\\")
        odd ^= (len(piece) - len(rest)) % 2 == 1
        if rest:
            break
    return odd


_BLANK = re.compile(r"[ \t\r\n]*")


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
            space, start = start, _BLANK.match(text, start).end()  # type: ignore[union-attr]
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
            behind = _BLANK.match(text, end).group().removesuffix(self._space)  # type: ignore[union-attr]
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


_TOKEN = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*"|[{}\[\]:,]|[^\s"{}\[\]:,]+')
_DEEPEST = 64
"""Lines are not indented further than so many levels. Without that, brackets alone would grow with the square of their
number, and 20 KB of them become 200 MB where Python reads 10,000 levels."""
_NEWLINES = {width: ["\n" + " " * (width * depth) for depth in range(_DEEPEST + 1)] for width in (2, 4)}
_BRACKETS = frozenset("{}[]")
_ON_ONE_LINE = {",": ", ", ":": ": ", "{": "{ ", "}": " }"}


def pretty(value: Json | str, inline_objects: bool = False, inline_arrays: bool = True, width: int = 2) -> str:
    """Return a JSON value, each level two or four spaces further in (`width`). Arrays of scalars stay on one line,
    unless `inline_arrays` is false.

    `inline_objects`: so do objects of scalars, `{ "k": 1 }`, except the outermost. No level of Python's stack is needed
    for a level of the value, so however deep a value is that could be read, it can be written.
    """
    tokens = _TOKEN.findall(value if isinstance(value, str) else text_of(value))
    out: list[str] = []
    newlines = _NEWLINES[width]
    newline, depth, at = "\n", 0, 0
    while at < len(tokens):
        token = tokens[at]
        if token in ("{", "["):
            end = _scalars_end(tokens, at)
            inline = inline_arrays if token == "[" else inline_objects and at > 0
            if end == at + 1:
                out += (token, tokens[end])
                at = end
            elif inline and end:
                out += [_ON_ONE_LINE.get(one, one) for one in tokens[at : end + 1]]
                at = end
            else:
                depth += 1
                newline = newlines[min(depth, _DEEPEST)]
                out += (token, newline)
        elif token in ("}", "]"):
            depth -= 1
            newline = newlines[min(depth, _DEEPEST)]
            out += (newline, token)
        else:
            out += (token, newline) if token == "," else (": " if token == ":" else token,)
        at += 1
    return "".join(out)


def indented(value: Json | str) -> str:
    """Return a JSON value with four spaces of indentation, every element on a line of its own."""
    return pretty(value, inline_arrays=False, width=4)


def _scalars_end(tokens: list[str], at: int) -> int:
    """Return where an opening closes if only scalars lie between, else 0. No token is looked at for two of them."""
    end = next(index for index in range(at + 1, len(tokens)) if tokens[index] in _BRACKETS)
    return end if tokens[end] in ("}", "]") else 0
