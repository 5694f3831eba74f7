"""Owns that what a model writes by the grammar of a prompt ends: calls are so many, and white space is short."""

import json
from typing import Any

import pytest

import turnscript as ts
from tests.acceptors import accepted_by_kbnf, accepted_by_llguidance
from tests.gbnf import read_gbnf
from turnscript.core.json_text import json_of
from turnscript.grammar.rest import matches

CITY = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
NOTHING = {"type": "object", "properties": {}, "additionalProperties": False}
ON = {"type": "object", "properties": {"on": {"const": True}}, "required": ["on"], "additionalProperties": False}


def tool(name: str, schema: Any = CITY) -> ts.Tool:
    return ts.Tool(name=name, parameters=json_of(schema))


def call(name: str, **arguments: Any) -> str:
    return f'<tool_call>\n{{"name": "{name}", "arguments": {json.dumps(arguments)}}}\n</tool_call>'


def prompt(tools: list[ts.Tool], choice: ts.ToolChoice | None = None, **settings: Any) -> ts.Prompt:
    request = ts.Request(
        conversation=ts.Conversation(items=[ts.User(content=[ts.Text(text="Go.")])], tools=tools),
        settings=ts.Settings(tool_choice=choice or ts.ToolChoice("required"), **settings),
    )
    return ts.get_format("qwen3").prompt(request, thinking=False)


def taken(asked: ts.Prompt, written: str) -> bool:
    """Whether the servers of all notations let a model write this, and end there."""
    behind = written.removeprefix(asked.opened.lstrip())  # what the prompt has begun
    told = {target: asked.grammar(target) for target in ("gbnf", "kbnf", "lark")}
    texts = {target: one.text for target, one in told.items() if one is not None}
    end = "" if texts["kbnf"].partition("\n")[0].find("<|im_end|>") < 0 else "<|im_end|>"
    verdicts = {
        matches(read_gbnf(texts["gbnf"]), behind),
        accepted_by_kbnf(texts["kbnf"], behind + end),
        accepted_by_llguidance(texts["lark"], behind),
    }
    [verdict] = verdicts
    return verdict


@pytest.mark.parametrize(("offered", "most"), [(1, 4), (2, 4), (3, 6), (20, 16)])
def test_calls_are_at_most_two_for_each_tool(offered: int, most: int) -> None:
    asked = prompt([tool(f"f{number}") for number in range(offered)])
    for count in (1, 2, most, most + 1):
        written = "\n".join(call(f"f{number % offered}", city=str(number)) for number in range(count))
        assert taken(asked, written) == (count <= most), count


@pytest.mark.parametrize("parallel", [None, True, False])
def test_a_tool_that_is_named_is_called_once(parallel: bool | None) -> None:
    asked = prompt([tool("f"), tool("g")], ts.ToolChoice("named", name="f"), parallel_tool_calls=parallel)
    assert taken(asked, call("f", city="Oslo"))
    assert not taken(asked, "\n".join([call("f", city="Oslo"), call("f", city="Bern")]))


def test_without_parallel_calls_there_is_one() -> None:
    asked = prompt([tool("f")], parallel_tool_calls=False)
    assert taken(asked, call("f", city="Oslo"))
    assert not taken(asked, "\n".join([call("f", city="Oslo")] * 2))


def test_a_call_that_can_be_only_one_never_follows_itself() -> None:
    """Of others a grammar cannot tell whether they are the same."""
    a, b, c = call("a"), call("b", on=True), call("c", city="Oslo")
    asked = prompt([tool("a", NOTHING), tool("b", ON), tool("c")])
    for row in ([a], [b], [c], [a, b], [a, b, a, b, a, b], [a, c, a], [c, c, c, b, c, a], [c] * 6):
        assert taken(asked, "\n".join(row)), row
    for row in ([a, a], [b, b], [c, a, a], [a, b, b, a], [a, b] * 4, [c] * 7):
        assert not taken(asked, "\n".join(row)), row
    alone = prompt([tool("a", NOTHING)])
    assert taken(alone, a)
    assert not taken(alone, "\n".join([a, a]))


SET: dict[str, Any] = {
    "type": "object",
    "properties": {"on": {"type": "boolean"}, "room": {"enum": ["hall", "attic"], "description": "Which"}},
    "required": ["on"],
    "additionalProperties": False,
}


def test_none_of_few_calls_follows_itself() -> None:
    """However its white space is written. Where there are more than eight, they are as free as others."""
    on, off, hall = call("set", on=True), call("set", on=False), call("set", on=True, room="hall")
    asked = prompt([tool("set", SET), tool("c")])
    for row in ([on, off, on, off], [on, hall, on], [call("c", city="a")] * 4, [hall]):
        assert taken(asked, "\n".join(row)), row
    spaced = hall.replace(", ", ",")
    for row in ([on, on], [off, hall, hall], [hall, spaced], [call("set", on=True, room="cellar")]):
        assert not taken(asked, "\n".join(row)), row
    assert not taken(asked, call("set", room="hall"))
    many = {**SET, "properties": {**SET["properties"], "room": {"enum": ["a", "b", "c", "d"]}}}
    assert taken(prompt([tool("set", many)]), "\n".join([on, on]))


def test_between_tokens_of_json_is_at_most_one_blank_or_newline() -> None:
    asked = prompt([tool("f")], parallel_tool_calls=False)
    head, tail = '<tool_call>\n{"name": "f", "arguments": ', "}\n</tool_call>"
    for arguments in ('{"city":"a"}', '{ "city" : "a" }', '{\n"city":\n"a"\n}'):
        assert taken(asked, f"{head}{arguments}{tail}"), arguments
    for arguments in (
        '{  "city":"a"}',
        '{\n "city":"a"}',
        '{\t"city":"a"}',
        '{"city":"a"\n\n}',
        '{"city":"a", "city":"b"}',
    ):
        assert not taken(asked, f"{head}{arguments}{tail}"), arguments


MAPS: dict[str, tuple[dict[str, Any], int]] = {
    "any keys": ({"type": "object", "additionalProperties": {"type": "integer"}}, 32),
    "any keys and values": ({"type": "object"}, 32),
    "at most so many": ({"type": "object", "additionalProperties": True, "maxProperties": 40}, 40),
    "behind others": ({"type": "object", "properties": {"a": {}}, "required": ["a"], "additionalProperties": True}, 33),
}


@pytest.mark.parametrize("kind", MAPS)
@pytest.mark.parametrize("target", ["gbnf", "kbnf", "lark"])
def test_members_that_no_schema_names_come_to_an_end(kind: str, target: str) -> None:
    """A model that writes the same keys again and again has done so 32 times then."""
    schema, most = MAPS[kind]
    told = ts.get_format("batuta-chatml").answer_grammar(json_of(schema), target=target, bounded=True)
    free = ts.get_format("batuta-chatml").answer_grammar(json_of(schema))
    accepted = {"kbnf": accepted_by_kbnf, "lark": accepted_by_llguidance}.get(target)
    for count in (1, 2, most, most + 1):
        written = "{" + ",".join(['"a":1', *['"b":1'] * (count - 1)]) + "}"
        here = matches(read_gbnf(told.text), written) if accepted is None else accepted(told.text, written)
        assert here == (count <= most), count
        assert matches(free.rules, written) or "maxProperties" in schema


FOLDER = {
    "type": "object",
    "properties": {"name": {"type": "string"}, "in": {"type": "array", "items": {"$ref": "#"}}},
    "required": ["name", "in"],
}
CELL = {
    "$ref": "#/$defs/cell",
    "$defs": {
        "cell": {"type": "object", "properties": {"next": {"anyOf": [{"type": "null"}, {"$ref": "#/$defs/cell"}]}}},
    },
}
SUM = {
    "$ref": "#/$defs/value",
    "$defs": {
        "value": {"anyOf": [{"type": "integer"}, {"$ref": "#/$defs/sum"}]},
        "sum": {"type": "array", "items": {"$ref": "#/$defs/value"}, "minItems": 2, "maxItems": 2},
    },
}
DEEP: dict[str, tuple[Any, str, str, str]] = {
    "the whole": (FOLDER, '{"name":"a","in":[', '{"name":"a","in":[]}', "]}"),
    "or null": (CELL, '{"next":', '{"next":null}', "}"),
    "optional": (CELL, '{"next":', "{}", "}"),
    "one by the other": (SUM, "[1,", "[1,1]", "]"),
}


@pytest.mark.parametrize("name", DEEP)
@pytest.mark.parametrize("target", ["gbnf", "kbnf", "lark"])
def test_what_leads_back_to_itself_ends(name: str, target: str) -> None:
    """At about a dozen levels, as its rules are counted."""
    schema, head, inner, tail = DEEP[name]
    told = ts.get_format("batuta-chatml").answer_grammar(json_of(schema), target=target, bounded=True)
    free = ts.get_format("batuta-chatml").answer_grammar(json_of(schema))
    accepted = {"kbnf": accepted_by_kbnf, "lark": accepted_by_llguidance}.get(target)
    for levels, taken_ in ((1, True), (2, True), (11, True), (14, False), (40, False)):
        written = head * (levels - 1) + inner + tail * (levels - 1)
        assert matches(free.rules, written)
        here = matches(read_gbnf(told.text), written) if accepted is None else accepted(told.text, written)
        assert here == taken_, levels
    assert not told.losses


def test_rules_that_are_too_many_to_copy_stay_without_an_end() -> None:
    many = {f"p{number}": {"type": "object", "properties": {"a": {"$ref": "#"}}} for number in range(300)}
    told = ts.get_format("batuta-chatml").answer_grammar(json_of({"type": "object", "properties": many}), bounded=True)
    assert matches(told.rules, '{"p1":{"a":' * 20 + "{}" + "}}" * 20)
    assert len(told.text) < 200_000


def test_what_was_agreed_on_is_bounded_where_that_is_asked_for() -> None:
    format_ = ts.get_format("rwkv-universal")
    agreed, bounded = format_.grammar([tool("f")]), format_.grammar([tool("f")], bounded=True)
    assert [r'call ("\n\n" call)* ' in agreed.text, r'call ("\n\n" call){0,3} ' in bounded.text] == [True, True]
    assert ["{0,20}" in one.text for one in (agreed, bounded)] == [True, False]
    answers = [format_.answer_grammar(json_of(CITY), bounded=one).text for one in (False, True)]
    assert ["{0,20}" in one for one in answers] == [True, False]
    tagged = ts.get_format("ai00-v1").grammar([tool("f")], bounded=True, target="kbnf")
    assert tagged.text.startswith("start ::= '<ai00:function_calls>\\n' call (call (call call?)?)? '</ai00:")
