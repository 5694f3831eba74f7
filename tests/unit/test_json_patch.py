"""Owns the laws of patches: the one that is made of two values makes the second of the first, and repeats no text."""

import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.growth import assert_grows_below
from turnscript.core.json_patch import difference, patched
from turnscript.core.json_text import Json

LONG = "a text that is longer than what is worth a reference"
SCALARS = st.sampled_from([None, True, 0, 1.5, "", "a", LONG, f"{LONG} é"])
KEYS = st.sampled_from(["a", "b/c", "d~e", "0:1", "content"])
VALUES = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(KEYS, inner, max_size=4), max_leaves=20
)


def text(value: Any, **spelling: Any) -> Json:
    return Json(json.dumps(value, **spelling).encode())


def made(old: Any, new: Any) -> Any:
    patch = difference(old, text(new))
    return None if patch is None else json.loads(bytes(patch))


@given(old=VALUES, new=VALUES)
def test_a_patch_makes_the_second_value_of_the_first(old: Any, new: Any) -> None:
    patch = difference(old, text(new, ensure_ascii=False))
    again = text(old) if patch is None else patched(text(old), patch)
    assert json.dumps(new, sort_keys=True) == json.dumps(json.loads(bytes(again)), sort_keys=True)


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ({"a": 1}, {"a": 1}, None),
        ({"a": 1}, {"a": 2}, [["/a", 2]]),
        ({"a": 1, "b": 2}, {"a": 1}, [["/b"]]),
        ({"a": [{"text": LONG}]}, {"a": LONG}, [["/a", None, {"": "/a/0/text"}]]),
        ({"a": LONG}, {"b": [{"text": LONG}]}, [["/b", [{"text": None}], {"/0/text": "/a"}], ["/a"]]),
        ({"a": [1, 2, 3]}, {"a": [2, 3]}, [["/a/0:1", []]]),
        ({"a": [1, 2]}, {"a": [1, 2, 3]}, [["/a/2:2", [3]]]),
    ],
)
def test_edits_are_few_and_say_no_text_twice(old: Any, new: Any, expected: Any) -> None:
    assert expected == made(old, new)


def test_numbers_keep_their_spelling() -> None:
    old, new = Json(b'{"a": {}}'), Json(b'{"a": {"x": -1e-07, "y": 1.0, "z": 123456789012345678901234567890}}')
    patch = difference({"a": {}}, new)
    assert patch is not None
    assert b'{"a":{"x":-1e-07,"y":1.0,"z":123456789012345678901234567890}}' == bytes(patched(old, patch)).replace(
        b" ", b""
    )


@pytest.mark.parametrize(
    "patch",
    [
        *("[]", "7", "{}", "[[]]", "[7]", "[[7, 1]]", '[["/a/b", 1]]', '[["/l/9", 1]]', '[["/l/x", 1]]'),
        *('[["/l/0:9", []]]', '[["/a", null, {"": "/none"}]]', '[["/a", null, {"/x": "/l"}]]', '[["/l/0:1", 7]]'),
        '[["/a", null, {"": 7}]]',
    ],
)
def test_an_edit_that_fits_nowhere_changes_nothing(patch: str) -> None:
    old = Json(b'{"a":1,"l":[1,2]}')
    assert bytes(old) == bytes(patched(old, Json(patch.encode())))


def test_deep_values_are_patched_too() -> None:
    deep = "[" * 300 + "1" + "]" * 300
    other = deep.replace("1", "2")
    patch = difference(json.loads(deep), Json(other.encode()))
    assert patch is not None
    assert other.encode() == bytes(patched(Json(deep.encode()), patch))


def test_lists_of_other_lengths_within_each_other_are_no_more_than_linear_work() -> None:
    old, new = ["x"], ["x", "y"]
    for _ in range(25):
        old, new = ["z", old], ["z", "w", new]  # type: ignore[list-item]
    patch = difference(old, text(new))
    assert patch is not None
    assert new == json.loads(bytes(patched(text(old), patch)))


def test_what_is_json_text_is_replaced_whole_so_that_its_members_keep_their_order() -> None:
    old = {"a": Json(b'{"x": 1, "y": 2}'), "b": {"type": "t", "x": 1}}
    new = Json(b'{"a": {"y": 2, "x": 1}, "b": {"x": 1, "type": "u"}}')
    patch = difference(old, new)
    assert patch is not None
    assert [["/a", {"y": 2, "x": 1}], ["/b", {"x": 1, "type": "u"}]] == json.loads(bytes(patch))
    assert difference({"a": Json(b'{"x" : "\\u00e9"}'), "b": 1}, Json('{"b": 1, "a": {"x":"é"}}'.encode())) is None


def test_a_patch_makes_no_value_many_times_as_long() -> None:
    old = Json(json.dumps({"a": "x" * 100_000}).encode())
    patch = [[f"/b{index}", None, {"": "/a"}] for index in range(1000)]
    assert len(bytes(patched(old, text(patch)))) < 10 * len(bytes(old))


def test_texts_are_found_in_time_in_proportion_to_their_number() -> None:
    def patching(count: int) -> Callable[[], object]:
        old = {
            "l": [{"content": [{"text": f"a text that is as long as it must be {index}"}]} for index in range(count)]
        }
        new = {"l": [{"content": one["content"][0]["text"]} for one in old["l"]]}
        written = text(old)

        def make() -> None:
            patch = difference(old, text(new))
            assert patch is not None
            assert new == json.loads(bytes(patched(written, patch)))

        return make

    assert_grows_below(6, patching, 500, 2000)
