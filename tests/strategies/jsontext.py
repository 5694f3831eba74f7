"""Owns JSON as text: odd but valid spellings, broken arguments, `Spelled` values, and the comparison of two bodies."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from decimal import Decimal
from functools import cache
from typing import Any

import msgspec
from hypothesis import strategies as st

from tests.strategies import text

# ------------------------------------------------------------------------------------------------- spelled values


class Spelled:
    """A JSON value with the exact text that it is written as. `dumps` writes the text as it stands."""

    __slots__ = ("text",)

    def __init__(self, text: str) -> None:
        self.text = text

    @property
    def value(self) -> Any:
        return loads(self.text)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Spelled) and self.text == other.text

    def __hash__(self) -> int:
        return hash(self.text)

    def __repr__(self) -> str:
        return f"Spelled({self.text!r})"


class JsonObject(dict[str, Any]):
    """A parsed JSON object that also keeps its pairs as written: their order, and keys that occur twice."""

    __slots__ = ("pairs",)

    def __init__(self, pairs: Sequence[tuple[str, Any]]) -> None:
        super().__init__(pairs)
        self.pairs = tuple(pairs)

    @property
    def has_duplicates(self) -> bool:
        return len(self.pairs) != len(self)


def dumps(body: Any) -> bytes:
    """The body as UTF-8 JSON. Raises ValueError for NaN and UnicodeEncodeError for a lone surrogate."""
    return _written(body).encode()


_ENCODE = json.JSONEncoder(ensure_ascii=False, allow_nan=False).encode


def _written(value: Any) -> str:
    if isinstance(value, Spelled):
        return value.text
    if isinstance(value, Decimal):
        return str(value)
    if isinstance(value, dict):
        return "{" + ",".join([f"{_ENCODE(key)}:{_written(member)}" for key, member in value.items()]) + "}"
    if isinstance(value, list | tuple):
        return "[" + ",".join([_written(member) for member in value]) + "]"
    return _ENCODE(value)


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


def loads(data: bytes | str) -> Any:
    """JSON with exact numbers (int or Decimal) and with objects as `JsonObject`. Raises ValueError for NaN."""
    if isinstance(data, bytes):
        data = data.decode()
    return json.loads(data, object_pairs_hook=JsonObject, parse_float=Decimal, parse_constant=_no_constant)


def plain(body: Any) -> Any:
    """The body with ordinary dicts, lists and numbers only, as `json.loads` of its bytes gives it."""
    return json.loads(dumps(body))


def is_argument_object(source: str) -> bool:
    """Whether the text is one JSON object that UTF-8 can hold after its escapes are resolved."""
    try:
        value = loads(source)
        dumps(value)
    except (ValueError, RecursionError):
        return False
    return isinstance(value, JsonObject)


# ------------------------------------------------------------------------------------------------- comparison


def difference(expected: Any, actual: Any) -> str:
    """Where and how two JSON values differ first, or "" if they are JSON-equal.

    Key order does not count, except in an object that has a key twice. 1, 1.0 and 1e0 are equal; 1 and true are not.
    """
    found = _difference(expected, actual)
    return found and f"${found}"


def _difference(expected: Any, actual: Any) -> str:
    """The same without what leads there, which is put before it on the way back: most values are equal."""
    if type(expected) is str is type(actual) and expected == actual:
        return ""
    expected, actual = _comparable(expected), _comparable(actual)
    if isinstance(expected, Mapping) and isinstance(actual, Mapping):
        return _object_difference(expected, actual)
    if isinstance(expected, list | tuple) and isinstance(actual, list | tuple):
        for number, (left, right) in enumerate(zip(expected, actual, strict=False)):
            if found := _difference(left, right):
                return f"[{number}]{found}"
        return "" if len(expected) == len(actual) else f": {len(expected)} elements != {len(actual)} elements"
    same_kind = type(expected) is type(actual) or (_is_number(expected) and _is_number(actual))
    return "" if same_kind and expected == actual else f": {expected!r} != {actual!r}"


def _object_difference(expected: Mapping[str, Any], actual: Mapping[str, Any]) -> str:
    if _has_duplicates(expected) or _has_duplicates(actual):
        return _difference([list(pair) for pair in _pairs(expected)], [list(pair) for pair in _pairs(actual)])
    for key, value in expected.items():
        if key not in actual:
            return f".{key}: missing"
        if found := _difference(value, actual[key]):
            return f".{key}{found}"
    return next((f".{key}: not expected" for key in actual if key not in expected), "")


def _comparable(value: Any) -> Any:
    if isinstance(value, Spelled):
        return value.value
    return Decimal(repr(value)) if isinstance(value, float) else value


def _is_number(value: Any) -> bool:
    return isinstance(value, int | Decimal) and not isinstance(value, bool)


def _has_duplicates(value: Mapping[str, Any]) -> bool:
    return isinstance(value, JsonObject) and value.has_duplicates


def _pairs(value: Mapping[str, Any]) -> Sequence[tuple[str, Any]]:
    return value.pairs if isinstance(value, JsonObject) else tuple(value.items())


def spelled_places(body: Any, path: tuple[str | int, ...] = ()) -> Iterator[tuple[tuple[str | int, ...], Spelled]]:
    """Every `Spelled` value of a body with its path."""
    if isinstance(body, Spelled):
        yield path, body
    elif isinstance(body, Mapping):
        for key, value in body.items():
            yield from spelled_places(value, (*path, key))
    elif isinstance(body, list | tuple):
        for number, value in enumerate(body):
            yield from spelled_places(value, (*path, number))


def raw_at(data: bytes, path: Sequence[str | int]) -> str:
    """The exact text of the value at a path of a JSON document, without the white space around it."""
    raw = msgspec.Raw(data)
    for step in path:
        if isinstance(step, str):
            raw = msgspec.json.decode(raw, type=dict[str, msgspec.Raw])[step]
        else:
            raw = msgspec.json.decode(raw, type=list[msgspec.Raw])[step]
    return bytes(raw).decode().strip(" \t\r\n")


# ------------------------------------------------------------------------------------------------- texts

NUMBERS = (
    "0",
    "1",
    "-1",
    "1.0",
    "1.50",
    "1e5",
    "1E+2",
    "1e-7",
    "-0",
    "-0.0",
    "0.1",
    "1152921504606846976",
    "9007199254740993",
    "123456789012345678901234567890",
    "-123456789012345678901234567890",
    "3.141592653589793238462643383279",
    "1e400",
)
STRINGS = (
    '""',
    '"Tokyo"',
    '"\\u00e9"',
    '"é"',
    '"a\\/b"',
    '"a/b"',
    '"\\ud83d\\udc4d"',
    '"👍"',
    '"\\n"',
    '"\\u000a"',
    '"\\u000A"',
    '"\\u0000"',
    '"\\b\\f\\r\\t"',
    '"\\"quoted\\""',
    '"C:\\\\dir"',
    '"\\u2028"',
    '"\u2028"',
    '"\x7f"',
    '"1.0"',
    '"{\\"nested\\": 1.0}"',
    '"</parameter>"',
    '"<<END_TOOL_CALL>>"',
    '"\\u003c/tool_call>"',
    '"}\\n<|im_end|>"',
)
# Twice the same name in two spellings makes duplicates that only a parser sees.
KEYS = (
    '"a"',
    '"a"',
    '"\\u0061"',
    '"b"',
    '"city"',
    '"é"',
    '"\\u00e9"',
    '""',
    '"x y"',
    '"__proto__"',
    '"type"',
    '"input"',
)
SPACES = ("", "", "", "", " ", "  ", "\n", "\t", "\r\n  ")
OBJECTS = (
    "{}",
    "{ }",
    "{\n}",
    '{"city":"Tokyo"}',
    '{"city": "Tokyo"}',
    '{\n  "city": "Tokyo",\n  "days": 3\n}',
    '{"a":1.0,"b":1e5,"c":1E+2,"d":-0}',
    '{"b":1,"a":2}',
    '{"a":1,"a":2}',
    '{"n":1152921504606846976}',
    '{"n":123456789012345678901234567890}',
    '{"s":"\\u00e9\\/","t":"é/"}',
    '{"a":{"b":[1, 2,3 ,{"c":null}]}}',
    ' {"a":true} ',
    '{"patch":"*** Begin Patch\\n+x\\n*** End Patch"}',
)
BROKEN = (
    "",
    " ",
    "\n",
    "null",
    "1",
    '"text"',
    "[]",
    '[{"a":1}]',
    "plain text",
    "Tokyo",
    "{",
    "}",
    '{"a"',
    '{"a":',
    '{"a":1',
    '{"a":"tru',
    '{"a":"x\\',
    '{"a":"\\u00',
    '{"a":1,}',
    '{"a":[1,]}',
    "{,}",
    "{a:1}",
    "{'a':1}",
    '{"a" 1}',
    '{"a":NaN}',
    '{"a":Infinity}',
    '{"a":-Infinity}',
    '{"a":01}',
    '{"a":+1}',
    '{"a":.5}',
    '{"a":1.}',
    '{"a":0x10}',
    '{"a":True}',
    '{"a":undefined}',
    '{"a":"\n"}',
    '{"a":"\t"}',
    '{"a":"\\x41"}',
    '{"a":"\\ud800"}',
    '{"a":"\\udc00\\ud800"}',
    '{"a":1}{"b":2}',
    '{"a":1} and more',
    'Sure: {"a":1}',
    '```json\n{"a":1}\n```',
    '{"a":1} // why',
    '\ufeff{"a":1}',
    '{"a":1}\x00',
    '<parameter name="a">1</parameter>',
)


@cache
def scalar_texts() -> st.SearchStrategy[str]:
    """A number, string, true, false or null, in some spelling."""
    quoted = st.tuples(text.texts(), st.booleans()).map(lambda made: json.dumps(made[0], ensure_ascii=made[1]))
    return st.one_of(
        st.sampled_from(NUMBERS), st.sampled_from(STRINGS), st.sampled_from(("null", "true", "false")), quoted
    )


@st.composite
def _container_texts(draw: st.DrawFn, depth: int, kind: str) -> str:
    space = st.sampled_from(SPACES)
    written = []
    for _ in range(draw(st.integers(0, 3))):
        key = f"{draw(st.sampled_from(KEYS))}{draw(space)}:{draw(space)}" if kind == "{}" else ""
        written.append(f"{draw(space)}{key}{draw(_json_texts(depth - 1))}")
    return f"{kind[0]}{','.join(written)}{draw(space)}{kind[1]}"


@cache
def _json_texts(depth: int) -> st.SearchStrategy[str]:
    if depth <= 0:
        return scalar_texts()
    return st.one_of(scalar_texts(), _container_texts(depth, "{}"), _container_texts(depth, "[]"))


@cache
def json_texts() -> st.SearchStrategy[str]:
    """Any JSON value, oddly spelled, with white space around it."""
    space = st.sampled_from(SPACES)
    return st.tuples(space, _json_texts(2), space).map("".join)


@cache
def argument_objects() -> st.SearchStrategy[str]:
    """A JSON object as a model or client may spell it; keys may occur twice."""
    return st.one_of(st.sampled_from(OBJECTS), _container_texts(2, "{}"))


@cache
def broken_arguments() -> st.SearchStrategy[str]:
    """Argument texts that are not a JSON object: cut, not JSON, another kind of value, or not Unicode (spec D-X-5)."""
    # The last brace stays out, so what is left is never whole, whatever white space followed.
    cut = st.tuples(argument_objects(), st.integers(0, 40)).map(
        lambda made: made[0][: min(made[1], made[0].rindex("}"))]
    )
    return st.one_of(st.sampled_from(BROKEN), cut)


@cache
def arguments() -> st.SearchStrategy[str]:
    """What a call's argument string may hold: an object in three of four, else anything."""
    return st.one_of(st.sampled_from(OBJECTS), _container_texts(2, "{}"), _container_texts(1, "{}"), broken_arguments())


@cache
def spelled_objects() -> st.SearchStrategy[Spelled]:
    """An argument object for a place that holds it as JSON, not as a string."""
    return argument_objects().map(lambda source: Spelled(source.strip(" \t\r\n")))


@cache
def json_values(depth: int = 2) -> st.SearchStrategy[Any]:
    """Any JSON value as Python data, for places whose spelling does not matter."""
    scalar = st.one_of(
        st.sampled_from((0, None, True, False, 1, -1, 2**53 + 1, 10**30, 0.5, 1.0, -1e-07, "", "a")), text.words()
    )
    if depth <= 0:
        return scalar
    inner = json_values(depth - 1)
    return st.one_of(scalar, st.lists(inner, max_size=2), st.dictionaries(_KEY_NAMES, inner, max_size=2))


@cache
def json_objects() -> st.SearchStrategy[dict[str, Any]]:
    """Any JSON object as Python data."""
    return st.dictionaries(_KEY_NAMES, json_values(1), max_size=3)


_KEY_NAMES = st.sampled_from(("a", "b", "type", "text", "content", "$ref", "", "é", "x y", "__proto__", "null", "0"))
