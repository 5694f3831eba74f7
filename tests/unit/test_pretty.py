"""Owns the checks of JSON over several lines: only white space is added, where it stands, and no depth is too deep."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.strategies import jsontext as texts
from turnscript.core.json_text import compact
from turnscript.engine.jsonscan import pretty


@given(value=texts.json_values())
def test_without_short_forms_it_is_what_the_standard_library_writes(value: object) -> None:
    expected = json.dumps(value, indent=2, ensure_ascii=False)
    assert expected == pretty(json.dumps(value, ensure_ascii=False), inline_arrays=False)


@given(text=texts.json_texts(), objects=st.booleans(), arrays=st.booleans())
def test_only_white_space_is_added(text: str, objects: bool, arrays: bool) -> None:
    assert compact(text) == compact(pretty(text, objects, arrays))


NESTED = '{"a":[1,"x"],"b":{"c":null,"d":-0},"e":[{},[],[[2]]]}'
SHOWN = """{
  "a": [1, "x"],
  "b": { "c": null, "d": -0 },
  "e": [
    {},
    [],
    [
      [2]
    ]
  ]
}"""


@pytest.mark.parametrize(
    ("text", "objects", "arrays", "expected"),
    [
        ("[]", True, True, "[]"),
        ("{}", True, True, "{}"),
        ("1.0", True, True, "1.0"),
        ('{"a":1}', True, True, '{\n  "a": 1\n}'),
        ('[{"a":1,"b":2}]', True, True, '[\n  { "a": 1, "b": 2 }\n]'),
        ('[{"a":1,"b":2}]', False, True, '[\n  {\n    "a": 1,\n    "b": 2\n  }\n]'),
        ("[1,2]", False, True, "[1, 2]"),
        ("[1,2]", False, False, "[\n  1,\n  2\n]"),
        ("[1,[2,3]]", False, True, "[\n  1,\n  [2, 3]\n]"),
        ("[[]]", True, True, "[\n  []\n]"),
        (NESTED, True, True, SHOWN),
    ],
)
def test_scalars_alone_stay_on_one_line_where_that_is_asked(
    text: str, objects: bool, arrays: bool, expected: str
) -> None:
    assert expected == pretty(text, objects, arrays)


def test_a_value_may_be_as_deep_as_it_likes() -> None:
    lines = pretty("[" * 3_000 + "1" + "]" * 3_000, inline_arrays=False).split("\n")
    assert ["[", "  [", "    ["] == lines[:3]
    assert [126 * " " + "[", 128 * " " + "[", 128 * " " + "["] == lines[63:66]
    assert [128 * " " + "1", 128 * " " + "]"] == lines[3_000:3_002]
    assert [128 * " " + "]", 126 * " " + "]"] == lines[-65:-63]
    assert ["    ]", "  ]", "]"] == lines[-3:]


def test_the_indentation_of_a_deep_value_is_in_proportion_to_the_value() -> None:
    """Not to its square: a text of brackets, in a result or in a schema, is cheap to send."""
    deep = ["[" * depth + "]" * depth for depth in (2_000, 8_000)]
    few, many = (len(pretty(value)) for value in deep)
    assert 3.9 * few < many < 4.1 * few
