"""Owns which JSON texts the rules of a schema allow, what of a schema is a loss, and that no schema costs too much."""

import json
from collections.abc import Callable
from time import process_time
from typing import Any

import pytest
from msgspec import Raw

import turnscript as ts
from turnscript.core.json_text import json_of
from turnscript.grammar.notations import NOTATIONS
from turnscript.grammar.rest import matches
from turnscript.grammar.rules import MOST_NODES

FORMAT = ts.get_format("batuta-chatml")  # its answers have no opening


def told(schema: Any) -> ts.Constraint:
    """The grammar of answers under a schema."""
    return FORMAT.answer_grammar(json_of(schema))


def members(**properties: Any) -> dict[str, Any]:
    """An object's schema without others."""
    return {"type": "object", "properties": properties, "additionalProperties": False}


OBJECT = members(a={"type": "integer"}, b={"type": "string"}, c={"type": "null"})
ALLOWED: list[tuple[str, Any, list[str], list[str]]] = [
    ("string", {"type": "string"}, ['""', '"a\\n\\u00e9 <b>"', '"\\""'], ["a", '"a', "1", '"\n"', '"\\x"']),
    ("integer", {"type": "integer"}, ["0", "-12", "1234567890123456"], ["01", "1.0", "+1", "-", "12345678901234567"]),
    ("number", {"type": "number"}, ["0", "-1.5e+3", "2E9"], [".5", "1.", "1e", "1e999"]),
    ("boolean", {"type": "boolean"}, ["true", "false"], ["True", "null", '"true"']),
    ("types", {"type": ["integer", "null"]}, ["1", "null"], ['"1"', "true"]),
    ("enum", {"enum": ["a", 1, None, {"b": [1.5]}]}, ['"a"', "1", "null", '{"b":[1.5]}'], ["a", "2", '{"b": [1.5]}']),
    ("enum of a type", {"type": "string", "enum": ["a", 1]}, ['"a"'], ["1"]),
    ("const", {"const": "\u5b57\n"}, ['"\u5b57\\n"'], ['"\\u5b57\\n"']),
    (
        "none required",
        OBJECT,
        ["{}", '{"a":1}', '{"c" : null}', '{ "a":1, "c":null }', '{"b":"","c":null}'],
        ['{"c":null,"a":1}', '{"a":1,}', '{"d":1}', '{"a":1,"a":1}'],
    ),
    (
        "last required",
        {**OBJECT, "required": ["c"]},
        ['{"c":null}', '{"a":1,"c":null}', '{"a":1,"b":"","c":null}'],
        ["{}", '{"a":1}', '{"c":null,"b":""}', '{,"c":null}'],
    ),
    (
        "middle required",
        {**OBJECT, "required": ["b"]},
        ['{"b":""}', '{"a":1,"b":"","c":null}', '{"b":"","c":null}'],
        ['{"a":1,"c":null}', '{"b":""'],
    ),
    ("no properties", members(), ["{}", "{ \n}"], ['{"a":1}']),
    (
        "others",
        {**members(ab={"type": "integer"}), "additionalProperties": {"type": "null"}},
        ['{"ab":1}', '{"a":null}', '{"abc":null,"b":null}', '{"ab":1,"x":null}', '{"":null}'],
        ['{"ab":null}', '{"x":1}', '{"ab":1,"ab":null}'],
    ),
    (
        "any others",
        {"type": "object", "properties": {"a": {"type": "null"}}, "additionalProperties": True},
        ['{"b":[1]}', '{"a":null,"b":{}}'],
        ['{"a":1}'],
    ),
    (
        "counted members",
        {"type": "object", "additionalProperties": {"type": "null"}, "minProperties": 1, "maxProperties": 2},
        ['{"a":null}', '{"a":null,"b":null}'],
        ["{}", '{"a":null,"b":null,"c":null}'],
    ),
    (
        "counted members behind others",
        {**members(a={"const": 1}), "required": ["a"], "additionalProperties": {"const": 2}, "maxProperties": 2},
        ['{"a":1}', '{"a":1,"b":2}'],
        ["{}", '{"a":1,"b":2,"c":2}'],
    ),
    ("no members", {"type": "object", "maxProperties": 0}, ["{}"], ['{"a":1}']),
    (
        "listed names",
        {"type": "object", "propertyNames": {"enum": ["a", "b"]}, "additionalProperties": {"type": "integer"}},
        ["{}", '{"a":1}', '{"b":1}', '{"a":1,"b":2}'],
        ['{"c":1}', '{"a":1,"a":2}', '{"a":null}'],
    ),
    (
        "names of a pattern",
        {"type": "object", "propertyNames": {"pattern": "^[a-z]{2}$"}, "additionalProperties": {"type": "integer"}},
        ["{}", '{"ab":1,"cd":2}'],
        ['{"a":1}', '{"ab":null}'],
    ),
    (
        "required and of the others",
        {"type": "object", "required": ["x"], "additionalProperties": {"type": "null"}},
        ['{"x":null}', '{"x":null,"y":null}'],
        ["{}", '{"x":1}'],
    ),
    (
        "tuple",
        {"type": "array", "prefixItems": [{"const": 1}, {"const": 2}], "minItems": 2, "maxItems": 2},
        ["[1,2]"],
        ["[1]", "[2,1]", "[1,2,3]"],
    ),
    (
        "tuple with more behind it",
        {"prefixItems": [{"const": 1}, {"const": 2}], "items": {"const": 3}, "minItems": 1, "maxItems": 4},
        ["[1]", "[1,2]", "[1,2,3]", "[1,2,3,3]"],
        ["[]", "[2]", "[1,3]", "[1,2,2]", "[1,2,3,3,3]"],
    ),
    (
        "tuple and nothing more",
        {"type": "array", "prefixItems": [{"const": 1}, {"const": 2}], "items": False},
        ["[]", "[1]", "[1,2]"],
        ["[1,2,1]", "[2]"],
    ),
    ("required and unnamed", {"type": "object", "required": ["x"]}, ['{"x":[]}'], ["{}"]),
    ("array", {"type": "array", "items": {"type": "integer"}}, ["[]", "[1]", "[ 1 , 2 ]"], ["[1,]", '["a"]', "[1 2]"]),
    (
        "counted",
        {"type": "array", "items": {"type": "integer"}, "minItems": 2, "maxItems": 3},
        ["[1,2]", "[1,2,3]"],
        ["[]", "[1]", "[1,2,3,4]"],
    ),
    ("none", {"type": "array", "maxItems": 0}, ["[]"], ["[1]"]),
    ("one at least", {"type": "array", "minItems": 1}, ["[1]", '[{},"a"]'], ["[]"]),
    (
        "anyOf",
        {"anyOf": [{"type": "integer"}, {"type": "array", "items": {"const": 1}}]},
        ["7", "[1,1]"],
        ["null", "[2]"],
    ),
    (
        "allOf",
        {
            "allOf": [
                {"type": "object", "properties": {"a": {"const": 1}}, "required": ["a"]},
                {"properties": {"b": {"const": 2}}},
            ]
        },
        ['{"a":1}', '{"a":1,"b":2}'],
        ["{}", '{"b":2}'],
    ),
    ("reference", {"$ref": "#/$defs/x~1y", "$defs": {"x/y": {"type": "null"}}}, ["null"], ["1"]),
    (
        "recursion",
        {"$ref": "#/$defs/l", "$defs": {"l": {"anyOf": [{"type": "null"}, members(n={"$ref": "#/$defs/l"})]}}},
        ["null", '{"n":{"n":null}}', '{"n":{}}'],
        ['{"n":1}'],
    ),
    (
        "the whole",
        {**members(c={"type": "array", "items": {"$ref": "#"}})},
        ["{}", '{"c":[{},{"c":[]}]}'],
        ['{"c":[1]}'],
    ),
    ("itself once more", {"anyOf": [{"$ref": "#"}, {"type": "null"}]}, ["null"], ["1"]),
    ("anything", True, ['{"a":[1,null,"x",{}]}'], ["1,2"]),
]


@pytest.mark.parametrize(
    ("schema", "allowed", "others"), [case[1:] for case in ALLOWED], ids=[case[0] for case in ALLOWED]
)
def test_what_a_schema_allows(schema: Any, allowed: list[str], others: list[str]) -> None:
    rules = told(schema).rules
    assert [text for text in allowed if not matches(rules, text)] == []
    assert [text for text in others if matches(rules, text)] == []


LOST = {
    "$.schema.properties.a.pattern": members(a={"type": "string", "pattern": "x+"}),
    "$.schema.properties.b.minimum": members(b={"minimum": 2}),
    "$.schema.properties.b.multipleOf": members(b={"type": "integer", "multipleOf": 2}),
    "$.schema.properties.b.maxLength": members(b={"type": "string", "maxLength": 1_000_000}),
    "$.schema.properties.b.minLength": members(b={"type": "string", "minLength": 4, "pattern": "^x*$"}),
    "$.schema.properties.b.format": members(b={"type": "string", "format": "email"}),
    "$.schema.minProperties": {"type": "object", "minProperties": 2},
    "$.schema.maxProperties": {**members(a={}, b={}), "maxProperties": 1},
    "$.schema.propertyNames": {**members(a={}), "additionalProperties": True, "propertyNames": {"maxLength": 3}},
    "$.schema.propertyNames.pattern": {"type": "object", "propertyNames": {"pattern": "x"}},
    "$.schema.maximum": {"type": "integer", "minimum": 3, "maximum": 2},
    "$.schema.oneOf": {"oneOf": [{"type": "integer"}, {"type": "number"}]},
    "$.schema.anyOf": {**members(a={}), "anyOf": [{"required": ["a"]}]},
    "$.schema": {"$ref": "#/$defs/nowhere"},
    "$.schema.items.type": {"type": "array", "items": {"type": "file"}},
    "$.schema.allOf[1].type": {"allOf": [{"type": "object"}, {"type": "string"}]},
}


@pytest.mark.parametrize("path", LOST)
def test_what_is_not_told_is_a_loss(path: str) -> None:
    assert path in [loss.path for loss in told(LOST[path]).losses]


@pytest.mark.parametrize("name", ["batuta-chatml", "qwen3-coder", "gemma4", "lfm2", "minimax-m3"])
def test_what_arguments_demand_as_a_whole_is_a_loss(name: str) -> None:
    """Once, in whichever shape of a call."""
    demands: dict[str, Any] = {"not": {"required": ["a"]}, "anyOf": [{"required": ["a"]}, {"required": ["b"]}]}
    schema = {**members(a={"type": "integer"}, b={"type": "integer"}), **demands}
    other = {"type": "object", "patternProperties": {"^a": {"type": "integer"}}}
    tools = [ts.Tool(name=f"f{at}", parameters=json_of(one)) for at, one in enumerate((schema, other))]
    lost = [loss.path for loss in ts.get_format(name).grammar(tools).losses]
    expected = ["[0].parameters.not", "[0].parameters.anyOf", "[1].parameters.patternProperties"]
    assert lost == [f"$.tools{path}" for path in expected]
    either = {"anyOf": [members(a={"type": "integer"}), members(b={"type": "integer"})]}
    made = ts.get_format(name).grammar([ts.Tool(name="f", parameters=json_of(either))])
    assert [loss.path for loss in made.losses] == ["$.tools[0].parameters.anyOf"] * (name != "batuta-chatml")


CIRCLES = [
    {"$ref": "#"},
    {"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}},
    {"type": "object", "properties": {"next": {"$ref": "#"}}, "required": ["next"]},
    {"allOf": [{"$ref": "#"}]},
    {
        "$ref": "#/$defs/a",
        "$defs": {
            "a": {"anyOf": [members(x={"$ref": "#/$defs/b"}), {"$ref": "#/$defs/b"}]},
            "b": {"anyOf": [{"$ref": "#/$defs/a"}, {"type": "null"}]},
        },
    },
]


@pytest.mark.parametrize("schema", CIRCLES)
def test_a_schema_that_leads_to_itself_has_a_grammar_that_ends(schema: Any) -> None:
    """What can never be written is any value, and no rule begins with itself."""
    constraint = told(schema)
    assert constraint.losses
    assert matches(constraint.rules, '{"next":{}}') or matches(constraint.rules, "null")
    assert not matches(constraint.rules, '{"next":')


def deep(levels: int) -> Any:
    """A schema of objects in each other."""
    schema: Any = {"type": "null"}
    for _ in range(levels):
        schema = members(a=schema)
    return schema


HOSTILE: dict[str, Callable[[int], Any]] = {
    "circles": lambda n: {
        "$defs": {f"d{i}": members(a={"$ref": f"#/$defs/d{(i + 1) % n}"}, b={"$ref": "#/$defs/d0"}) for i in range(n)},
        "$ref": "#/$defs/d0",
    },
    "long circle": lambda n: {
        "$defs": {f"d{i}": {"items": {"$ref": f"#/$defs/d{(i * 7 + 1) % n}"}} for i in range(n)},
        "$ref": "#/$defs/d0",
    },
    "members": lambda n: members(**{f"p{number}": {"type": "string"} for number in range(n)}),
    "required": lambda n: {"type": "object", "required": [f"p{number}" for number in range(n)]},
    "enum": lambda n: {"enum": [f"value {number}" for number in range(n)]},
    "alternatives": lambda n: {"anyOf": [members(a={"const": number}) for number in range(n)]},
    "merged": lambda n: {
        "allOf": [{"$ref": "#/$defs/a"}] * n,
        "$defs": {"a": members(**{f"p{i}": {} for i in range(n)})},
    },
    "counted": lambda n: {
        "type": "array",
        "items": {"type": "array", "items": {"type": "array", "minItems": n}, "minItems": n},
        "minItems": n,
    },
    "references": lambda n: {
        "$defs": {f"d{i}": members(a={"$ref": f"#/$defs/d{i + 1}"}, b={"$ref": f"#/$defs/d{i + 1}"}) for i in range(n)},
        "$ref": "#/$defs/d0",
    },
    "chain": lambda n: {"$defs": {f"d{i}": {"$ref": f"#/$defs/d{i + 1}"} for i in range(n)}, "$ref": "#/$defs/d0"},
    "others": lambda n: {**members(**{f"p{number}": {} for number in range(n)}), "additionalProperties": True},
    "long key": lambda n: {**members(**{"k" * n: {}}), "additionalProperties": True},
    "others in each": lambda n: members(
        **{f"p{i}": {**members(**{f"{i:07}" * 12: {}}), "additionalProperties": True} for i in range(n // 8)}
    ),
    "types": lambda n: {"type": ["string", "null"] * n},
    "types in types": lambda n: {"type": [[["object"] * 7] * 7] * (n // 49), **{f"k{i}": 0 for i in range(n)}},
    "merged with itself": lambda n: {"allOf": [{"$ref": "#"}] * n},
    "merged demands": lambda n: {
        "allOf": [{"$ref": "#/$defs/a"}] * n,
        "$defs": {"a": {"required": [f"p{i}" for i in range(n)]}},
    },
    "one place by many names": lambda n: {
        "anyOf": [members(**{f"p{i}": {"type": "string"} for i in range(n)})],
        "properties": {f"q{i}": {"$ref": f"#/anyOf/{'0' * (i % 9 + 1)}"} for i in range(n)},
    },
    "far index": lambda n: {"$ref": f"#/anyOf/{'9' * n}", "anyOf": [True]},
    "large number": lambda n: {"enum": [10 ** min(n, 4000)]},
}


@pytest.mark.deep
@pytest.mark.parametrize("kind", HOSTILE)
def test_no_schema_costs_more_than_its_size(kind: str) -> None:
    """A grammar is in proportion to its schema, or says that it is not told."""
    for count in (10, 300, 40_000):
        schema = json_of(HOSTILE[kind](count))
        began = process_time()
        made = FORMAT.answer_grammar(schema, bounded=True)
        sizes = [len(write(made.rules)) for write in NOTATIONS.values()]
        assert process_time() - began < 8, (kind, count)
        assert max(sizes) < 40 * len(bytes(schema)) + 60_000, (kind, count, sizes)
        assert max(sizes) < 400 * MOST_NODES


@pytest.mark.parametrize("levels", [40, 100, 5000])
def test_a_deep_schema_is_told_as_far_as_it_goes(levels: int) -> None:
    schema = '{"properties":{"a":' * levels + "{}" + "}}" * levels
    constraint = FORMAT.answer_grammar(Raw(schema.encode()))
    assert matches(constraint.rules, '{"a":' * 30 + "{}" + "}" * 30)
    assert bool(constraint.losses) == (levels > 48)


@pytest.mark.parametrize("levels", [30, 45])
def test_a_schema_that_demands_each_level_ends(levels: int) -> None:
    """It leads nowhere back, however many rules have to end before the first one can."""
    schema: Any = {"type": "null"}
    for _ in range(levels):
        schema = {**members(a=schema), "required": ["a"]}
    constraint = told(schema)
    assert constraint.losses == []
    assert matches(constraint.rules, '{"a":' * levels + "null" + "}" * levels)
    assert not matches(constraint.rules, '{"a":' * (levels - 1) + "1" + "}" * (levels - 1))


UNREADABLE = {
    "a number without end": '{"enum": [1e400, "a"]}',
    "inside another value": '{"const": {"a": [-1e400]}}',
    "a word of Python": '{"const": NaN}',
    "half of a character in a key": r'{"properties": {"\ud800": {"type": "string"}}, "additionalProperties": true}',
    "half of a character in a value": r'{"properties": {"a": {"enum": ["\udfff", "b"]}}}',
}


@pytest.mark.parametrize("schema", UNREADABLE.values(), ids=UNREADABLE)
@pytest.mark.parametrize("name", ["batuta-chatml", "ai00-v1"])
def test_what_no_grammar_can_write_is_a_loss(name: str, schema: str) -> None:
    """Neither an error, nor a literal that is no JSON, or no text."""
    format_ = ts.get_format(name)
    inside = Raw(b'{"type": "object", "properties": {"a": %s}}' % schema.encode())
    call = format_.grammar([ts.Tool(name="f", parameters=inside)])
    for made in (format_.answer_grammar(Raw(schema.encode())), call):
        assert not any(word in made.text.encode() for word in (b"Infinity", b"NaN"))
        assert made.losses
    assert format_.grammar([ts.Tool(name="f", parameters=Raw(schema.encode()))]).text.encode()


def test_demands_that_one_of_several_drops_are_losses() -> None:
    schema = {"allOf": [{"properties": {"a": {"enum": ["x"]}}}, {"properties": {"a": {"type": "string"}}}]}
    assert ["$.schema.allOf[1].properties.a"] == [loss.path for loss in told(schema).losses]
    same = {"allOf": [{"properties": {"a": {"type": "string"}}}, {"properties": {"a": {"type": "string"}}}]}
    assert told(same).losses == []


def test_nothing_allowed_is_a_loss_and_whole_floats_count() -> None:
    assert told({"enum": []}).losses
    two = told({"type": "array", "items": {"type": "null"}, "minItems": 2.0, "maxItems": 2.0}).rules
    assert [matches(two, text) for text in ("[null]", "[null,null]", "[null,null,null]")] == [False, True, False]


def test_arguments_are_an_object_whatever_their_schema_says() -> None:
    for schema in (True, {"type": "string"}, {"anyOf": [{"type": "null"}, {"type": "object"}]}, {"enum": [1]}, [1]):
        tool = ts.Tool(name="f", parameters=json_of(schema))
        rules = FORMAT.grammar([tool], parallel=False).rules
        head, tail = '<tool_call>\n{"name":"f","input":', "}\n</tool_call>"
        assert matches(rules, f'{head}{{"a":1}}{tail}'), schema
        assert not matches(rules, f"{head}null{tail}"), schema
    either = {"anyOf": [members(a={"const": 1}), members(b={"const": 2})]}
    rules = FORMAT.grammar([ts.Tool(name="f", parameters=json_of(either))], parallel=False).rules
    assert matches(rules, '<tool_call>\n{"name":"f","input":{"b":2}}\n</tool_call>')
    assert not matches(rules, '<tool_call>\n{"name":"f","input":{"c":2}}\n</tool_call>')


def test_names_of_any_letters_are_names_of_rules() -> None:
    names = ["a-b", "a_b", "3d", "\u5b57", "x" * 200, "", "a b", "call", "ws", "A-b"]
    tools = [ts.Tool(name=name, parameters=json_of(members(**{name or "k": {"type": "string"}}))) for name in names]
    for target in NOTATIONS:
        text = FORMAT.grammar(tools, target=target).text
        heads = [line.split("::=")[0].split(":")[0].strip() for line in text.splitlines()]
        assert len(heads) == len(set(heads)), target
        assert all(head.isascii() and head.replace("_", "").replace("-", "").isalnum() for head in heads), target


def test_a_choice_of_tools_is_kept_to() -> None:
    tools = [ts.Tool(name=name) for name in ("a", "b", "c")]
    listed = json_of([{"type": "function", "name": "a"}, {"type": "function", "function": {"name": "c"}}])
    allowed = FORMAT.grammar(tools, ts.ToolChoice("allowed", tools=listed, required=True)).rules
    call = '<tool_call>\n{"name":"%s","input":{}}\n</tool_call>'
    assert [matches(allowed, call % name) for name in "abc"] == [True, False, True]
    assert FORMAT.grammar(tools, ts.ToolChoice("allowed", tools=listed)).lazy
    ranged = [*tools, ts.Tool(name="d", parameters=json_of(members(n={"maximum": 3})))]
    named = FORMAT.grammar(ranged, ts.ToolChoice("named", name="d"))
    assert [loss.path for loss in named.losses] == ["$.tools[3].parameters.properties.n.maximum"]
    with pytest.raises(ts.InvalidRequest, match="no tool"):
        FORMAT.grammar(tools, "none")
    with pytest.raises(ts.UnknownName, match="tool choice"):
        FORMAT.grammar(tools, "any")
    assert json.loads(json.dumps(FORMAT.grammar(tools).trigger)) == "<tool_call>"


def prompt_for(format_name: str, *tools: ts.Tool, **settings: Any) -> ts.Prompt:
    conversation = ts.Conversation(items=[ts.User(content=[ts.Text(text="Go.")])], tools=list(tools))
    return ts.get_format(format_name).prompt(ts.Request(conversation=conversation, settings=ts.Settings(**settings)))


def test_a_grammar_is_made_once_for_what_is_asked_again_and_again() -> None:
    def tools(last: str) -> list[ts.Tool]:
        schema = members(n={"maximum": 3}, m={"const": last})
        return [ts.Tool(name=f"f{number}", parameters=json_of(schema)) for number in range(200)]

    def told_of(name: str, last: str, choice: ts.ToolChoice, target: str = "gbnf", **more: Any) -> ts.Constraint:
        made = prompt_for(name, *tools(last), tool_choice=choice, **more).grammar(target)
        assert made is not None
        return made

    any_, one = ts.ToolChoice("required"), ts.ToolChoice("named", name="f3")
    began = process_time()
    first = told_of("qwen3", "x", any_)
    made = process_time() - began
    again = told_of("qwen3", "x", any_)
    assert again == first
    assert again.rules is first.rules
    again.losses.clear()
    assert told_of("qwen3", "x", any_).losses == first.losses != []
    best = min(timed(lambda: told_of("qwen3", "x", any_)) for _ in range(5))
    assert best < made / 2, (best, made)
    others = [
        told_of("qwen3", "y", any_),
        told_of("qwen3", "x", one),
        told_of("qwen3", "x", any_, parallel_tool_calls=False),
        told_of("qwen3", "x", any_, target="kbnf"),
        told_of("hermes", "x", ts.ToolChoice("named", name="f4")),
    ]
    assert len({first.text, *(other.text for other in others)}) == 6


def timed(work: Callable[[], object]) -> float:
    began = process_time()
    work()
    return process_time() - began
