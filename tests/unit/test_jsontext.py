"""Owns the checks of JSON as text: spacing changes and nothing else, comparison, and errors with a place."""

import json
import tracemalloc
from collections.abc import Callable

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Raw

import turnscript as ts
from tests.strategies import jsontext as texts
from tests.strategies.events import cut_anywhere
from turnscript.core import json_text as jsontext


@given(text=texts.json_texts())
def test_respacing_changes_only_white_space(text: str) -> None:
    spaced = jsontext.respace(text)
    assert "\n" not in spaced
    assert texts.loads(text) == texts.loads(spaced)
    assert jsontext.compact(text) == jsontext.compact(spaced)
    assert spaced == jsontext.respace(spaced)


def test_respacing_writes_the_spacing_of_a_hand_written_example() -> None:
    odd = '{ "a":1.0,\n"b" :[1e5 , -0,{}],"\\u00e9":"a, b: {c}","a":1152921504606846976}'
    assert '{"a": 1.0, "b": [1e5, -0, {}], "\\u00e9": "a, b: {c}", "a": 1152921504606846976}' == jsontext.respace(odd)
    assert '{"a":1.0,"b":[1e5,-0,{}],"\\u00e9":"a, b: {c}","a":1152921504606846976}' == jsontext.compact(odd)


@given(text=texts.json_texts())
def test_spellings_of_a_value_are_the_same_value(text: str) -> None:
    for spelled in (jsontext.canonical(text), jsontext.respell(text)):
        assert texts.plain(texts.loads(text)) == texts.plain(texts.loads(spelled))
        assert jsontext.canonical(text) == jsontext.canonical(spelled)


@pytest.mark.parametrize(
    "text",
    [
        r'{"a\\":"\""}',
        r'{"a": "\\\"", "b":1}',
        r'["\\\\", "\"\"",  "\\\"x"]',
        r'{"\"":{"\\":[]},"..":"\u0022"}',
    ],
)
def test_escaped_quotes_and_backslashes_end_no_string(text: str) -> None:
    value = json.loads(text)
    assert json.dumps(value, separators=(",", ":")) == jsontext.canonical(text)
    assert json.dumps(value, ensure_ascii=False) == jsontext.respell(text)


@pytest.mark.parametrize("read", [jsontext.respace, jsontext.every_member, jsontext.canonical])
def test_a_string_of_escapes_takes_a_few_times_its_length(read: Callable[[str], object]) -> None:
    """The pattern that found strings remembered each escape: sixty bytes for two."""
    text = '{"a": "' + r"\n\"" * 250_000 + '"}'
    tracemalloc.start()
    try:
        read(text)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 8 * len(text)


@pytest.mark.parametrize(
    ("first", "second", "equal"),
    [
        ('{"a": 1}', '{"a":1}', True),
        ('"\\u00e9"', '"é"', True),
        ("1.0", "1", False),
        ('{"a":1,"b":2}', '{"b":2,"a":1}', False),
        ('"a\\/b"', '"a/b"', True),
        ("1e5", "100000.0", False),
    ],
)
def test_two_texts_are_the_same_up_to_white_space_and_escapes(first: str, second: str, equal: bool) -> None:
    assert equal is jsontext.same(Raw(first.encode()), Raw(second.encode()))


@given(value=texts.json_values())
def test_plain_inverts_json_of(value: object) -> None:
    assert value == jsontext.plain(jsontext.json_of(value))


def test_json_has_no_word_for_nan() -> None:
    with pytest.raises(ValueError, match="not JSON compliant"):
        jsontext.json_of(float("nan"))


@given(text=st.text())
def test_is_object_agrees_with_the_standard_library(text: str) -> None:
    try:
        expected = isinstance(json.loads(text), dict)
    except ValueError:
        expected = False
    assert expected is jsontext.is_object(text)


@pytest.mark.parametrize("text", ["{}", ' {"a": [1]} ', "{}\n"])
def test_an_object_may_stand_between_blanks(text: str) -> None:
    assert jsontext.is_object(text)


@pytest.mark.parametrize("text", ["", "[]", "{", "{}{}", "{'a': 1}", '{"a": NaN}', '{"a": 1,}', "{} //", '{"a": 01}'])
def test_what_is_not_one_object_is_refused(text: str) -> None:
    assert not jsontext.is_object(text)


BROKEN = [
    (b"", 1, 1, "the input is empty"),
    (b"  \n ", 1, 1, "the input is empty"),
    (b'{"a": 1,\n "b" 2}', 2, 6, "expected ':'"),
    (b'{"a":\n\n  nul}', 3, 4, "invalid character"),
    (b'{"a": "\xc3\xa9", x}', 1, 12, "keys must be strings"),
    (b'{"a": "b', 1, 9, "ends in the middle"),
    (b'{"a": [1, 2', 1, 12, "ends in the middle"),
    (b'{"a": "\\ud800"}', 1, 8, "half of a surrogate pair"),
    (b'{"a": "\\udc00 \\ud83d\\ude00"}', 1, 8, "half of a surrogate pair"),
    (b'{"a": NaN}', 1, 7, "invalid character"),
    (b'{"a": 1} {"b": 2}', 1, 10, "trailing characters"),
    (b'{"a": "tab\there"}', 1, 11, "invalid character"),
]


@pytest.mark.parametrize(("data", "line", "column", "words"), BROKEN, ids=[str(row[0][:20]) for row in BROKEN])
def test_a_syntax_error_names_line_and_column(data: bytes, line: int, column: int, words: str) -> None:
    with pytest.raises(ts.InvalidRequest, match=words) as caught:
        jsontext.read_object(data)
    assert (line, column) == (caught.value.line, caught.value.column)


@pytest.mark.parametrize(
    ("data", "got"), [(b"[]", "an array"), (b'"a"', "a string"), (b"1", "a number"), (b"null", "null")]
)
def test_another_value_than_an_object_is_named(data: bytes, got: str) -> None:
    with pytest.raises(ts.InvalidRequest, match=f"expected an object, got {got}"):
        jsontext.read_object(data)


def test_nesting_of_200_levels_is_read_and_of_a_million_is_an_error() -> None:
    deep = b'{"a":' + b"[" * 200 + b"]" * 200 + b"}"
    assert ["a"] == list(jsontext.read_object(deep))
    with pytest.raises(ts.InvalidRequest, match="nested too deep"):
        jsontext.read_object(b'{"a":' + b"[" * 1_000_000 + b"]" * 1_000_000 + b"}")


def test_a_byte_order_mark_is_dropped() -> None:
    assert b"{}" == jsontext.utf8(b"\xef\xbb\xbf{}")


@pytest.mark.parametrize(
    ("data", "line", "column", "words"),
    [
        (b'{"a":\n "\xff"}', 2, 3, "0xff is not UTF-8"),
        ("{}".encode("utf-16"), 1, 1, "UTF-16"),
        (b"x" * 4095 + b"\xc3\xa9" + b"y" * 5000 + b"\xe9", 1, 9097, "0xe9"),
        (b"ok \xe2\x82", 1, 4, "0xe2"),
    ],
)
def test_bytes_that_are_not_utf8_are_named_with_their_place(data: bytes, line: int, column: int, words: str) -> None:
    with pytest.raises(ts.InvalidRequest, match=words) as caught:
        jsontext.utf8(data)
    assert (line, column) == (caught.value.line, caught.value.column)


@given(text=st.text(), padding=st.integers(4080, 4110))
def test_utf8_is_accepted_wherever_its_pieces_are_cut(text: str, padding: int) -> None:
    data = ("x" * padding + text + "é" * 3000).encode()
    assert data == jsontext.utf8(data)


def test_one_line_only_touches_white_space_between_tokens() -> None:
    data = b'{\r\n "a": "b\\n",\n "c": 1\n}'
    assert b"\n" not in jsontext.one_line(data)
    assert json.loads(data) == json.loads(jsontext.one_line(data))


@given(text=texts.json_texts())
def test_every_member_is_found_with_its_own_text(text: str) -> None:
    """As the decoder tells them, nested ones apart; a key that comes twice is there twice."""
    inner = f'{{"a" : {text} ,"b\\"}}":{text}, "a":{text}}}'
    assert [("a", text.strip()), ('b"}', text.strip()), ("a", text.strip())] == jsontext.every_member(inner)
    assert [] == jsontext.every_member(" { } ")


@pytest.mark.parametrize(
    ("data", "place", "words"),
    [
        (b'{"a":\n "oh \xe9"}', (2, 6), "0xe9 is not UTF-8"),
        (b'{"a": 1e999}', (0, 0), "a number is out of range"),
        (b'{"a": ' + b"9" * 5000 + b"}", (0, 0), "a number is out of range"),
        (b'{"a": 1', (1, 8), "ends in the middle of a value"),
        (b'{"a" 1}', (1, 6), "expected ':'"),
    ],
)
def test_why_a_decoder_gives_up_is_told_as_it_is(data: bytes, place: tuple[int, int], words: str) -> None:
    with pytest.raises((msgspec.DecodeError, UnicodeDecodeError)) as caught:
        msgspec.json.decode(data)
    error = jsontext.syntax_error(data, caught.value)
    assert place == (error.line, error.column)
    assert words in error.message


CUT_OFF = [
    ("", "{}"),
    ("{", "{}"),
    ('{"a', "{}"),
    ('{"a"', "{}"),
    ('{"a": 1', "{}"),
    ('{"a": 1,', '{"a": 1}'),
    ('{"a": "b', "{}"),
    ('{"a": "b"', '{"a": "b"}'),
    ('{"a": "b", "c": tru', '{"a": "b"}'),
    ('{"a": {"b', '{"a": {}}'),
    ('{"a": [1, {"x": 2', '{"a": [1, {}]}'),
    ('{"a": [[], "\\u00', '{"a": [[]]}'),
    ('{"a": 1} {', '{"a": 1}'),
    ("[1", "{}"),
    ('{"a": oops, "b": 1}', "{}"),
]


@pytest.mark.parametrize(("text", "expected"), CUT_OFF)
def test_an_object_that_was_cut_off_is_closed_behind_what_is_whole(text: str, expected: str) -> None:
    assert expected == jsontext.closed(text)


@given(text=texts.argument_objects(), data=st.data())
def test_the_beginning_of_an_object_is_given_in_any_pieces_and_nothing_else_is(text: str, data: st.DataObject) -> None:
    """What waits is less than a number, a word or an escape."""
    beginning, given_ = jsontext.Beginning(), ""
    for piece in cut_anywhere(data.draw, text):
        given_ += beginning.take(piece)
        assert text.startswith(given_)
        assert given_ == jsontext.Beginning().take(given_)
    assert text == given_
    assert "" == beginning.take("{")
