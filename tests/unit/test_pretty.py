"""Owns the checks of JSON over several lines: only white space is added, where it stands, and no depth is too deep."""

import json

import pytest
from hypothesis import given

import turnscript as ts
from tests.strategies import jsontext as texts
from turnscript.core.json_text import Json, compact, json_of

OPENED = "<|function_output|>\n"


def result(text: str) -> str:
    """How a result stands in OpenChatML: its name, and its content as JSON."""
    items: list[ts.Item] = [ts.ToolResult(name="f", content=[ts.Text(text=text)])]
    written = str(ts.get_format("openchatml").render(ts.Request(conversation=ts.Conversation(items=items))).value)
    return written.partition(OPENED)[2].partition("\n<|im_end|>")[0]


@given(value=texts.json_values())
def test_where_nothing_stays_on_one_line_it_is_what_the_standard_library_writes(value: object) -> None:
    tool = ts.Tool(name="f", parameters=json_of({"type": "object", "x": value}))
    asked = ts.Request(conversation=ts.Conversation(items=[ts.User(content=[ts.Text(text="Hi")])], tools=[tool]))
    function = {"name": "f", "parameters": {"type": "object", "x": value}}
    expected = json.dumps({"type": "function", "function": function}, indent=4, ensure_ascii=False)
    assert expected in str(ts.get_format("granite33").render(asked, escape="none").value)


@given(text=texts.json_texts())
def test_only_white_space_is_added(text: str) -> None:
    wrapped = f"[{text}]"
    items: list[ts.Item] = [ts.ToolResult(name="f", content=[ts.Text(text=wrapped)])]
    asked = ts.Request(conversation=ts.Conversation(items=items))
    written = str(ts.get_format("openchatml").render(asked, escape="none").value).partition(OPENED)[2]
    assert compact(f'{{"name":"f","content":{wrapped}}}') == compact(written[: written.rindex("\n<|im_end|>")])


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("[]", "[]"),
        ("{}", "{}"),
        ('{"a":1.0}', '{\n    "a": 1.0\n  }'),
        ("[1,2]", "[1, 2]"),
        ("[[]]", "[\n    []\n  ]"),
        ('[1,[2,"x"]]', '[\n    1,\n    [2, "x"]\n  ]'),
        ('[{"a":-0,"b":null}]', '[\n    {\n      "a": -0,\n      "b": null\n    }\n  ]'),
    ],
)
def test_an_array_of_scalars_stays_on_one_line(text: str, shown: str) -> None:
    assert f'{{\n  "name": "f",\n  "content": {shown}\n}}' == result(text)


def schema(depth: int) -> list[str]:
    """The lines of a schema that is a list of lists."""
    tool = ts.Tool(name="f", parameters=Json(b"[" * depth + b"1" + b"]" * depth))
    asked = ts.Request(conversation=ts.Conversation(items=[ts.User(content=[ts.Text(text="Hi")])], tools=[tool]))
    written = str(ts.get_format("granite33").render(asked).value)
    return written.partition('"parameters": ')[2].partition("\n    }\n}")[0].split("\n")


def test_a_value_may_be_as_deep_as_it_likes() -> None:
    lines = schema(3_000)
    assert ["[", 12 * " " + "[", 16 * " " + "["] == lines[:3]
    assert {256 * " " + "[", 256 * " " + "1", 256 * " " + "]"} == set(lines[62:-62])
    assert [16 * " " + "]", 12 * " " + "]", 8 * " " + "]"] == lines[-3:]


def test_the_indentation_of_a_deep_value_is_in_proportion_to_the_value() -> None:
    """Not to its square: a text of brackets in a schema is cheap to send."""
    few, many = (sum(map(len, schema(depth))) for depth in (2_000, 8_000))
    assert 3.9 * few < many < 4.1 * few
