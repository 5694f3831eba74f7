"""Owns JSON as text: values kept exactly as they were written, re-spaced token by token, compared, and located.

Why text: `1.0`, `1e5`, 2**60, key order, duplicate keys and `\\u00e9` are all changed by one `loads` and `dumps`, and a
changed byte in an old tool call costs a model server its whole cached prefix. So a value that turnscript has no name
for stays a `Json`: the bytes as they came, checked for syntax once when the body was read.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from decimal import Decimal
from functools import lru_cache
from typing import Any

import msgspec
from msgspec import Raw

from turnscript.core.errors import InvalidRequest

Json = Raw
"""A JSON value as the text it arrived as (UTF-8 bytes, syntax already checked)."""

NULL = Json(b"null")

_PIECE = 4096
_SHORT, _REMEMBERED = 32, 4096
"""So long is a piece at most whose spacing is remembered, and so many are."""
UTF_8, FEWER_LEVELS = "UTF-8 text", "JSON of fewer levels"
"""What is expected of a source that nobody can read, whatever it is meant to be."""


class _Typed(msgspec.Struct):
    type: str = ""


_encode = msgspec.json.Encoder().encode
_decode_object = msgspec.json.Decoder(dict[str, Raw]).decode
_decode_number = msgspec.json.Decoder(int | float).decode
_decode_list = msgspec.json.Decoder(list[Raw]).decode
_TOKEN = re.compile(r'"[^"]*"|[{}\[\]:,]|[^\s"{}\[\]:,]+')  # of what `_masked` gives
_ANGLE = {"<": "\\u003c", ">": "\\u003e"}
# It begins with a character, by which a pattern is found many times as fast; the backslashes are looked at once.
_ESCAPES = re.compile(r"\\(?<!\\\\)(\\*)(u[0-9a-fA-F]{4})((?:\\u[0-9a-fA-F]{4})*)")
_HALF = re.compile(r"\\u[dD][89a-fA-F][0-9a-fA-F]{2}")
_KEPT = frozenset(map(chr, [*range(0x20), *b'"\\\x7f', *range(0xD800, 0xE000)]))
_LONE_SURROGATE = re.compile(
    rb"\\u[dD](?:[89abAB][0-9a-fA-F]{2}(?!\\u[dD][c-fC-F])|[c-fC-F][0-9a-fA-F]{2})",
)


def text_of(value: Json) -> str:
    """The JSON text itself."""
    return bytes(value).decode()


def json_of(value: object) -> Json:
    """Any plain Python value as compact JSON text. NaN and infinities raise ValueError: JSON has no word for them."""
    if isinstance(value, Raw):
        return value
    return Raw(json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode())


def json_string(text: str) -> str:
    """`text` as a JSON string literal, non-ASCII characters as they are."""
    return _encode(text).decode()


def safe_json_string(text: str) -> str:
    """The same; half of a surrogate pair, which no UTF-8 can hold, as an escape. Decoders make it of broken bytes."""
    try:
        return json_string(text)
    except UnicodeEncodeError:
        return json.dumps(text)


def plain(value: Json) -> Any:
    """The value as Python data, as `json.loads` reads it; an integer with too many digits for that is a Decimal.

    One nested too deep for that raises InvalidRequest.
    """
    data = memoryview(value).tobytes()
    try:
        return _loaded(data)
    except RecursionError as error:
        raise syntax_error(data, error) from None


def _loaded(data: bytes) -> Any:
    try:
        return json.loads(data)
    except ValueError:  # Python makes no int of more than 4,300 digits or so: a server that did could be kept busy
        return json.loads(data, parse_int=_integer)


def _integer(digits: str) -> int | Decimal:
    try:
        return int(digits)
    except ValueError:
        return Decimal(digits)


def respace(value: Json | str, item: str = ", ", key: str = ": ") -> str:
    """The same tokens with other white space: `item` after each element, `key` after each key. Always one line.

    Numbers, escapes, key order and duplicate keys are untouched. Linear.
    """
    text = value if isinstance(value, str) else text_of(value)
    pieces = _cut_at_quotes(text)
    if len(pieces) % 2:  # what stands between strings is of few kinds, which come again
        pieces[::2] = map(_spacing(item, key).__getitem__, pieces[::2])
        return '"'.join(pieces)
    return _spacing(item, key).spaced(text)  # a string has no end


def _masked(text: str) -> str:
    """JSON text in which each string goes from one quote to the next: other characters stand in place of its escaped
    quotes and backslashes, as many, so that everything stands where it stood.

    A pattern for strings with escapes would remember each of them until the string ends, with sixty bytes.
    """
    return text.replace("\\\\", "..").replace('\\"', "..") if "\\" in text else text


def _cut_at_quotes(text: str) -> list[str]:
    """JSON text without the quotes around its strings: every second piece is the inside of one."""
    if "\\" not in text:
        return text.split('"')
    pieces, at = [], 0
    for piece in _masked(text).split('"'):
        pieces.append(text[at : at + len(piece)])
        at += len(piece) + 1
    return pieces


class _Spacing(dict[str, str]):
    """What stands between strings, with other white space: looked up, and made where it is new."""

    def __init__(self, item: str, key: str) -> None:
        self._tokens = {",": item, ":": key}

    def __missing__(self, piece: str) -> str:
        found = self.spaced(piece)
        if len(piece) <= _SHORT:
            if len(self) >= _REMEMBERED:
                self.clear()
            self[piece] = found
        return found

    def spaced(self, text: str) -> str:
        """Any text, token by token."""
        tokens = self._tokens
        return "".join([tokens.get(token, token) for token in _tokens(text)])


_spacing = lru_cache(maxsize=8)(_Spacing)


def _tokens(text: str) -> list[str]:
    return [text[found.start() : found.end()] for found in _TOKEN.finditer(_masked(text))]


def respell(text: str, item: str = ", ", key: str = ": ") -> str:
    """The same tokens with the white space of `respace`, and each string with as few escapes as JSON allows.

    So all spellings of a value become one, but for its numbers, the order of its keys and those that it has twice.
    """
    spaced = respace(text, item, key)
    if "\\" not in spaced:
        return spaced
    return "".join(
        [_with_few_escapes(f'"{piece}"') if at % 2 else piece for at, piece in enumerate(_cut_at_quotes(spaced))]
    )


def _with_few_escapes(token: str) -> str:
    return json_string(json.loads(token)) if "\\" in token else token


def has_escapes(text: str) -> bool:
    """Return whether a JSON text has a `\\u` that is none of an escaped backslash and a letter."""
    return "\\u" in text and "\\u" in text.replace("\\\\", "")


def with_characters(text: str) -> str:
    """Write each `\\uXXXX` of a JSON text as its character. A text that is no JSON stays as it is.

    What JSON or a reader of plain text cannot do without stays as it came: quotes, backslashes, control characters and
    halves of surrogate pairs. So do shorter escapes, `\\/` among them, and white space.
    """
    if not has_escapes(text):
        return text
    spelled = _ESCAPES.sub(_characters, text)
    if spelled == text:
        return text
    # A half is refused by whoever reads JSON into UTF-8, and is no reason to leave the rest as it is.
    checked = _HALF.sub(r"\\ufffd", text) if "\\ud" in text or "\\uD" in text else text
    return spelled if is_json(checked) else text


def _characters(found: re.Match[str]) -> str:
    before, first, more = found.groups()
    if len(before) % 2:  # a backslash that is escaped itself, and a letter
        return f"\\{before}{first}{_written(more)}" if more else found[0]
    return before + _written(f"\\{first}{more}")


def _written(escapes: str) -> str:
    characters: str = json.loads(f'"{escapes}"')
    return characters if _KEPT.isdisjoint(characters) else "".join(_kept_or_written(escapes, characters))


def _kept_or_written(escapes: str, characters: str) -> Iterator[str]:
    at = 0
    for character in characters:
        end = at + (6 if character < "\U00010000" else 12)
        yield escapes[at:end] if character in _KEPT else character
        at = end


def compact(value: Json | str) -> str:
    """The value on one line without white space between tokens."""
    return respace(value, ",", ":")


def one_line(data: bytes) -> bytes:
    """JSON bytes without line breaks. Inside strings JSON allows none, so each one is white space between tokens."""
    if b"\n" in data or b"\r" in data:
        return data.replace(b"\n", b" ").replace(b"\r", b" ")
    return data


def without_angles(text: str) -> str:
    """JSON text with `<` and `>` written as escapes (both occur only in strings), so that no tag can appear in it."""
    if "<" in text or ">" in text:
        return text.replace("<", _ANGLE["<"]).replace(">", _ANGLE[">"])
    return text


def is_object(text: str) -> bool:
    """Whether `text` is one valid JSON object."""
    try:
        _decode_object(text)
    except (msgspec.DecodeError, RecursionError, UnicodeEncodeError):
        return False
    return True


_SPACE = re.compile(r"[ \t\r\n]*")
_PAIR = r"u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}"
_IN_STRING = re.compile(rf'(?:[^"\\\x00-\x1f]+|\\(?:["\\/bfnrt]|u(?![dD][89a-fA-F])[0-9a-fA-F]{{4}}|{_PAIR}))*')
_PART_OF_ESCAPE = re.compile(
    r"\\(?:u(?:[0-9a-fA-F]{0,3}|[dD][89abAB][0-9a-fA-F]{2}(?:\\(?:u(?:[dD](?:[c-fC-F][0-9a-fA-F]?)?)?)?)?))?\Z"
)
_SCALAR = re.compile(r"(?:-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?|true|false|null)(?=[ \t\r\n,}\]])")
_PART_OF_SCALAR = re.compile(r"[-+.0-9a-zE]*\Z")
_CLOSES = {"{": "}", "[": "]"}


def is_plain(text: str) -> bool:
    """Return whether a text is a piece of a JSON string: characters, and escapes that are complete."""
    if '"' not in text and "\\" not in text and text.isprintable():  # by far the most
        return True
    found = _IN_STRING.match(text)  # which is never at a loss, and so goes through the text once
    return found is not None and found.end() == len(text)


class Beginning:
    """Checks a JSON object while its text comes: what `take` gives is the beginning of one. Numbers, words and escapes
    are given when they are complete, and nothing from where the text is that of no object.

    `whole`: how much of what was given last ends behind a value, or behind what opens one. `inside`: it ended in a
    string, of which all may be given that `is_plain`.
    """

    __slots__ = ("_expects", "_held", "_opened", "inside", "whole")

    def __init__(self) -> None:
        self.whole = 0
        self.inside = False
        self._opened: list[str] = []
        self._expects = "object"
        self._held = ""

    def take(self, text: str) -> str:
        """More of the text; returns what is given now."""
        text, self._held = self._held + text, ""
        position = 0
        while position < len(text) and not (self._expects == "nothing" or self._held):
            if self._expects in ("in key", "in text"):
                position = self._string(text, position)
            else:
                position = _SPACE.match(text, position).end()  # type: ignore[union-attr]
                position = self._token(text, position) if position < len(text) else position
        self.inside = self._expects == "in text" and not self._held
        return text[:position]

    @property
    def closing(self) -> str:
        """What closes all that is open."""
        return "".join([_CLOSES[one] for one in reversed(self._opened)])

    def _string(self, text: str, position: int) -> int:
        position = _IN_STRING.match(text, position).end()  # type: ignore[union-attr]
        if position == len(text):
            return position
        if text[position] != '"':
            self._wait(text, position, _PART_OF_ESCAPE)
            return position
        if self._expects == "in key":
            self._expects = ":"
        else:
            self._end_value(position + 1)
        return position + 1

    def _token(self, text: str, position: int) -> int:
        expects, char = self._expects, text[position]
        closes = bool(self._opened) and char == _CLOSES[self._opened[-1]]
        if closes and expects in (",", "first key", "first value"):
            self._opened.pop()
            self._end_value(position + 1)
        elif expects == char == ":":
            self._expects = "value"
        elif expects == char == ",":
            self._expects = "key" if self._opened[-1] == "{" else "value"
        elif char == '"' and expects in ("first key", "key"):
            self._expects = "in key"
        elif char == '"' and expects in ("first value", "value"):
            self._expects = "in text"
        elif (char == "{" and expects == "object") or (char in _CLOSES and expects in ("first value", "value")):
            self._opened.append(char)
            self._expects = "first key" if char == "{" else "first value"
            self.whole = position + 1
        else:
            return self._scalar(text, position)
        return position + 1

    def _scalar(self, text: str, position: int) -> int:
        found = _SCALAR.match(text, position) if self._expects in ("first value", "value") else None
        if found is not None:
            self._end_value(found.end())
            return found.end()
        if self._expects in ("first value", "value"):
            self._wait(text, position, _PART_OF_SCALAR)
        else:
            self._expects = "nothing"
        return position

    def _wait(self, text: str, position: int, part: re.Pattern[str]) -> None:
        """Keep the beginning of something that is not complete; anything else is of no object."""
        if part.match(text, position):
            self._held = text[position:]
        else:
            self._expects = "nothing"

    def _end_value(self, position: int) -> None:
        self.whole = position
        self._expects = "," if self._opened else "over"


def closed(text: str) -> str:
    """The object that JSON is so far which was cut off: closed, and without the value that is not whole.

    A number at its end may be half of one.
    """
    beginning = Beginning()
    beginning.take(text)
    whole = text[: beginning.whole] + beginning.closing
    return whole if is_object(whole) else "{}"


def is_json(text: str) -> bool:
    """Whether `text` is one valid JSON value."""
    try:
        msgspec.json.decode(text, type=Raw)
        _decode_list(f"[{text}]")
    except (msgspec.DecodeError, RecursionError, UnicodeEncodeError):
        return False
    return True


def same(first: Json, second: Json) -> bool:
    """Whether two values are the same JSON: equal texts, or equal token by token once escapes are decoded."""
    if bytes(first) == bytes(second):
        return True
    one, other = text_of(first), text_of(second)
    return respace(one) == respace(other) or canonical(one) == canonical(other)


def canonical(text: str) -> str:
    """One spelling for white space and string escapes; numbers, key order and duplicate keys stay as they are."""

    def spell(token: str) -> str:
        return json.dumps(json.loads(token)) if token.startswith('"') else token

    return "".join([spell(token) for token in _tokens(text)])


def read_object(data: bytes | str | Raw) -> dict[str, Json]:
    """The members of a JSON object, each still text. Errors name line and column, or say what stands there instead."""
    members: dict[str, Json] = _located(_decode_object, data)
    return members


def every_member(text: str) -> list[tuple[str, str]]:
    """The members of a JSON object in order, each value as its text: a key that comes twice is there twice. Linear."""
    found: list[tuple[str, str]] = []
    depth, key, start = 0, "", 0
    for token in _TOKEN.finditer(_masked(text)):
        word = text[token.start() : token.end()]
        if depth == 1 and word in (",", "}") and start:
            found.append((key, text[start : token.start()].strip()))
            start = 0
        elif depth == 1 and word == ":":
            start = token.end()
        elif depth == 1 and not start and word[0] == '"':
            key = json.loads(word)
        depth += (word in ("{", "[")) - (word in ("}", "]"))
    return found


def read_list(data: bytes | str | Raw) -> list[Json]:
    """The elements of a JSON array, each still text."""
    elements: list[Json] = _located(_decode_list, data)
    return elements


def members_in(value: Json | None) -> dict[str, Json]:
    """Return the members of an object, and none of anything else."""
    return read_object(value) if value is not None and bytes(memoryview(value)[:1]) == b"{" else {}


def elements_in(value: Json | None) -> list[Json]:
    """Return the elements of an array, and none of anything else."""
    return read_list(value) if value is not None and bytes(memoryview(value)[:1]) == b"[" else []


def read_count(value: Json) -> int | None:
    """A count of something: a whole number, and not below 0. None for anything else."""
    try:
        number = _decode_number(value)
    except msgspec.DecodeError:
        return None
    return int(number) if number >= 0 and number == int(number) else None


def string_of(value: Json) -> str:
    """The text of a JSON string. Any other value raises InvalidRequest, and so does half a surrogate pair."""
    try:
        return msgspec.json.decode(value, type=str)
    except msgspec.ValidationError:
        got = type_name(value)
        raise InvalidRequest(f"expected a string, got {got}", expected="a string", got=got) from None
    except msgspec.DecodeError as error:
        raise syntax_error(bytes(value), error) from None


def utf8(data: bytes) -> bytes:
    """`data` without a byte order mark, checked to be UTF-8; an error names the place of the first bad byte."""
    data = data.removeprefix(b"\xef\xbb\xbf")
    if data.isascii():
        return data
    try:
        _check_utf8(data)
    except UnicodeDecodeError:
        raise _not_utf8(data) from None
    return data


def _not_utf8(data: bytes) -> InvalidRequest:
    """The error for the first byte that is not UTF-8."""
    offset = _first_bad_byte(data)
    line, column = position(data, offset)
    remedy = "UTF-16" if data[:2] in (b"\xff\xfe", b"\xfe\xff") else "another encoding or a binary file"
    message = f"byte 0x{data[offset]:02x} is not UTF-8; this looks like {remedy}, convert it to UTF-8 first"
    return InvalidRequest(message, line=line, column=column, expected=UTF_8)


def _first_bad_byte(data: bytes) -> int:
    try:
        data.decode()
    except UnicodeDecodeError as error:
        return error.start
    raise AssertionError("all of it is UTF-8")


def _check_utf8(data: bytes) -> None:
    """Raise UnicodeDecodeError if the bytes are not UTF-8. In pieces: a text that is ASCII but for a few characters is
    checked five times as fast as by decoding it whole."""
    start = 0
    while start < len(data):
        end = start + _PIECE
        while end < len(data) and data[end] & 0xC0 == 0x80:  # not inside a character
            end += 1
        piece = data[start:end]
        if not piece.isascii():
            piece.decode()
        start = end


def position(data: bytes, offset: int) -> tuple[int, int]:
    """Line and column (from 1, columns in characters) of a byte offset."""
    before = data[:offset]
    start = before.rfind(b"\n") + 1
    return before.count(b"\n") + 1, len(before[start:].decode("utf-8", "replace")) + 1


def type_name(value: Json) -> str:
    """What kind of JSON value this is, in the words of an error message."""
    first = bytes(value).lstrip()[:1]
    words = {b'"': "a string", b"{": "an object", b"[": "an array", b"t": "a boolean", b"f": "a boolean", b"n": "null"}
    return words.get(first, "a number")


def type_word(value: Json) -> str:
    """The `type` member of an object where that is a string, else nothing."""
    try:
        return msgspec.json.decode(value, type=_Typed).type
    except msgspec.DecodeError:
        return ""


def excerpt(value: Json, limit: int = 40) -> str:
    """The first characters of a value for an error message."""
    text = compact(value)
    return text if len(text) <= limit else f"{text[: limit - 3]}..."


def syntax_error(data: bytes, error: Exception) -> InvalidRequest:
    """The error for bytes that are not JSON, or that nobody can read as such: what is wrong, at which line and column.

    `error`: what the decoder said, of msgspec or of UTF-8.
    """
    if isinstance(error, msgspec.ValidationError):
        return InvalidRequest("a number is out of range", expected="a number that a double can hold")
    if isinstance(error, RecursionError):
        # How many levels are read is the interpreter's: 997 of Python 3.11, 1,498 of 3.12, 9,999 of 3.13. Later ones
        # read what their stack holds: of 8 MB, some 20,000 as values and 170,000 or more as text.
        return InvalidRequest("the JSON is nested too deep to be read", path="$", expected=FEWER_LEVELS)
    if isinstance(error, UnicodeEncodeError):
        before = error.object[: error.start].encode()
        return _half_a_character(data, len(before), ascii(error.object[error.start]))
    if isinstance(error, UnicodeDecodeError):
        return _not_utf8(data)
    if not data.strip():
        return InvalidRequest("the input is empty", line=1, column=1, expected="a JSON object")
    found = re.search(r"\(byte (\d+)\)", str(error))
    surrogate = _LONE_SURROGATE.search(data)
    if surrogate and (not found or surrogate.start() <= int(found[1])):
        return _half_a_character(data, surrogate.start(), surrogate[0].decode())
    offset = int(found[1]) if found else len(data)
    if "trailing characters" in str(error):
        offset -= 1  # msgspec counts the first character that follows as read
    line, column = position(data, offset)
    reason = re.sub(r" \(byte \d+\)|^JSON is malformed: ", "", str(error))
    if not found:
        reason = "the input ends in the middle of a value"
    return InvalidRequest(f"not valid JSON: {reason}", line=line, column=column, expected="JSON")


def _half_a_character(data: bytes, offset: int, shown: str) -> InvalidRequest:
    line, column = position(data, offset)
    message = f"{shown} is half of a surrogate pair, which no UTF-8 text can hold"
    return InvalidRequest(message, line=line, column=column, expected="a whole character")


def members(fields: Mapping[str, object]) -> str:
    """`{"a": 1, "b": 2}` from values that are Json or plain: the spacing of a hand-written example, one line."""
    body = ", ".join([f"{json_string(key)}: {_spelled(value)}" for key, value in fields.items()])
    return f"{{{body}}}"


def _spelled(value: object) -> str:
    return json_string(value) if isinstance(value, str) else respace(json_of(value))


def _located(decode: Callable[[Any], Any], data: bytes | str | Raw) -> Any:
    try:
        return decode(data)
    except msgspec.ValidationError as error:
        wanted = "an object" if decode is _decode_object else "an array"
        value = data if isinstance(data, Raw) else Raw(data.encode() if isinstance(data, str) else data)
        message = f"expected {wanted}, got {type_name(value)}"
        raise InvalidRequest(message, path="$", expected=wanted, got=type_name(value)) from error
    except (msgspec.DecodeError, RecursionError, UnicodeEncodeError) as error:
        raw = data.encode("utf-8", "surrogatepass") if isinstance(data, str) else bytes(data)
        raise syntax_error(raw, error) from None
