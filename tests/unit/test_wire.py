"""Owns the checks of declared wire objects: what is named is typed, what is not is kept, errors have a path."""

import pickle
from typing import Any

import pytest
from msgspec import UNSET, Raw, UnsetType

import turnscript as ts
from turnscript.core.json_text import text_of
from turnscript.core.wire import Reader, Verbatim, Wire


class TextBlock(Wire, tag_field="type", tag="text"):
    """A block with a value."""

    text: str
    note: Raw | UnsetType = UNSET


class CallBlock(Wire, tag_field="type", tag="call"):
    """A block that holds JSON and other blocks."""

    name: str
    input: Raw
    count: int | float | UnsetType = UNSET
    inner: "list[TextBlock | CallBlock] | UnsetType" = UNSET


class Message(Wire):
    """A message."""

    role: str
    content: str | list[TextBlock | CallBlock]


read: Reader[Any] = Reader(Message)


def message(text: str) -> Any:
    """A message read at a place."""
    return read(Raw(text.encode()), "$.messages[4]")


def test_named_members_are_typed_and_json_stays_text() -> None:
    found = message('{"role": "a", "content": [{"type": "call", "name": "f", "input": {"a":1.0}}]}')
    assert "f" == found.content[0].name
    assert '{"a":1.0}' == text_of(found.content[0].input)
    assert found.rest is None


def test_unnamed_members_are_kept_where_they_were() -> None:
    found = message('{"role": "a", "new": 1e5, "content": [{"type": "text", "text": "x", "deep": {"b": [1.0]}}]}')
    assert {"new": "1e5"} == {key: text_of(value) for key, value in found.rest.items()}
    assert {"deep": '{"b": [1.0]}'} == {key: text_of(value) for key, value in found.content[0].rest.items()}


@pytest.mark.parametrize("name", ["rest", "tag", "__struct_fields__", "extra", ""])
def test_no_name_of_a_member_can_fill_a_field_of_ours(name: str) -> None:
    found = message(f'{{"role": "a", "content": "x", "{name}": {{"a": 1}}}}')
    assert {name: '{"a": 1}'} == {key: text_of(value) for key, value in found.rest.items()}


def test_null_for_a_member_that_may_be_absent_is_kept_as_null() -> None:
    found = message('{"role": "a", "content": [{"type": "call", "name": "f", "input": 1, "count": null}]}')
    assert found.content[0].count is UNSET
    assert "null" == text_of(found.content[0].rest["count"])


def test_an_undeclared_kind_of_block_is_kept_whole() -> None:
    found = message('{"role": "a", "content": [{"type": "hologram", "x": 1.0}, {"type": "text", "text": "t"}]}')
    assert isinstance(found.content[0], Verbatim)
    assert ("hologram", '{"type": "hologram", "x": 1.0}') == (found.content[0].tag, text_of(found.content[0].value))
    assert "t" == found.content[1].text


def test_a_block_may_hold_blocks() -> None:
    found = message(
        '{"role": "a", "content": [{"type": "call", "name": "f", "input": 1, '
        '"inner": [{"type": "text", "text": "t", "odd": 1}]}]}'
    )
    assert ["odd"] == list(found.content[0].inner[0].rest)


ERRORS = [
    ("[]", "$.messages[4]", "expected an object, got an array"),
    ('{"content": "x"}', "$.messages[4].role", "missing"),
    ('{"role": 5, "content": "x"}', "$.messages[4].role", "expected a string, got a number (5)"),
    ('{"role": null, "content": "x"}', "$.messages[4].role", "expected a string, got null"),
    ('{"role": "a", "content": 7}', "$.messages[4].content", "expected a string or an array of objects"),
    ('{"role": "a", "content": {}}', "$.messages[4].content", "got an object"),
    ('{"role": "a", "content": [7]}', "$.messages[4].content[0]", "expected an object, got a number"),
    ('{"role": "a", "content": [{}]}', "$.messages[4].content[0].type", "one of 'call', 'text'"),
    ('{"role": "a", "content": [{"type": 5}]}', "$.messages[4].content[0].type", "expected a string"),
    ('{"role": "a", "content": [{"type": "text"}]}', "$.messages[4].content[0].text", "missing"),
    (
        '{"role": "a", "content": [{"type": "call", "name": "f", "input": 1, "count": "x"}]}',
        "$.messages[4].content[0].count",
        "expected a number, got a string",
    ),
]


@pytest.mark.parametrize(("text", "path", "words"), ERRORS, ids=[row[1] for row in ERRORS])
def test_a_wrong_type_is_an_error_with_its_path(text: str, path: str, words: str) -> None:
    with pytest.raises(ts.InvalidRequest) as caught:
        message(text)
    assert path == caught.value.path
    assert words in str(caught.value)
    assert caught.value.expected


def test_errors_survive_pickling() -> None:
    with pytest.raises(ts.InvalidRequest) as caught:
        message("[]")
    again = pickle.loads(pickle.dumps(caught.value))
    assert (str(caught.value), caught.value.path, caught.value.expected) == (str(again), again.path, again.expected)
