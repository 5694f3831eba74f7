"""Owns the checks of tools that are declared in braces: their schemas come back, and only types are in capitals."""

import json

import pytest
from msgspec import Raw

import turnscript as ts
from tests.templates import Template

SCHEMAS = [
    {
        "type": "object",
        "properties": {"city": {"type": "string", "description": 'A "city", {any}'}},
        "required": ["city"],
    },
    {"type": "object", "properties": {"type": {"type": "string", "enum": ["type", "string"]}}},
    {"type": "object", "properties": {"a": {"type": ["string", "null"]}, "b": {"items": {"type": "integer"}}}},
    {
        "type": "object",
        "properties": {"a": {"anyOf": [{"type": "number"}, {"$ref": "#/$defs/x"}]}},
        "$defs": {"x": {"type": "null"}},
    },
    {
        "type": "object",
        "properties": {"a": {"default": {"type": "kept"}, "const": 1.0, "examples": [{"type": "kept"}]}},
    },
    {"type": "object", "properties": {"properties": {"type": "object", "properties": {"x y": {"type": "boolean"}}}}},
    {},
]


def offered(schema: object, name: str = "f") -> ts.Request:
    tools = [
        ts.Tool(name=name, description="<tool|> \n", parameters=Raw(json.dumps(schema).encode())),
        ts.Tool(name="bare"),
        ts.Tool(name="x y{", description="told"),
    ]
    items: list[ts.Item] = [ts.System(content=[ts.Text(text="Be brief.")]), ts.User(content=[ts.Text(text="q")])]
    return ts.Request(conversation=ts.Conversation(items=items, tools=tools))


@pytest.mark.parametrize("schema", SCHEMAS, ids=repr)
def test_a_declared_tool_comes_back(schema: object) -> None:
    format_, request = ts.get_format("gemma4"), offered(schema)
    rendered = format_.render(request)
    assert [] == [loss for loss in rendered.losses if loss.path.startswith("$.tools")]
    for one, again in zip(
        request.conversation.tools, format_.parse(str(rendered.value)).conversation.tools, strict=True
    ):
        assert (one.name, one.description) == (again.name, again.description)
        assert one.parameters is None or json.loads(bytes(one.parameters)) == json.loads(
            bytes(again.parameters or b"null")
        )


@pytest.mark.parametrize("schema", SCHEMAS, ids=repr)
def test_a_template_declares_the_same(schema: object) -> None:
    format_, request = ts.get_format("gemma4"), offered(schema)
    functions = [{"name": "f", "description": "<tool|> \n", "parameters": schema}, {"name": "bare"}]
    functions.append({"name": "x y{", "description": "told"})
    body = {
        "messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "q"}],
        "tools": [{"type": "function", "function": function} for function in functions],
    }
    assert format_.prompt(request).text == Template(format_.jinja().value).render(body)


def test_types_alone_are_in_capitals() -> None:
    text = str(ts.get_format("gemma4").render(offered(SCHEMAS[1])).value)
    assert 'properties:{type:{type:<|"|>STRING<|"|>,enum:[<|"|>type<|"|>,<|"|>string<|"|>]}}' in text


def test_a_type_in_capitals_is_a_loss() -> None:
    rendered = ts.get_format("gemma4").render(offered({"type": "OBJECT"}))
    assert ["$.tools[0]"] == [loss.path for loss in rendered.losses]
