"""Owns integers with more digits than Python makes an int of: no value of a client's or server's may be an error."""

import json
from decimal import Decimal
from typing import Any

import pytest

import turnscript as ts
from turnscript.core.errors import UpstreamError
from turnscript.core.json_text import Json, json_of, plain

LONG = "9" * 5000
SCHEMAS = [
    '{"type":"object","properties":{"a":{"type":"integer","maximum":%s}}}',
    '{"type":"object","maximum":%s,"properties":{"a":{"type":"integer"}}}',
    '{"type":"object","properties":[%s]}',
]


def offering(schema: str) -> ts.Request:
    """A request with one tool."""
    items: list[ts.Item] = [ts.User(content=[ts.Text(text="x")])]
    tool = ts.Tool(name="f", description="d", parameters=Json(schema.encode()))
    return ts.Request(conversation=ts.Conversation(items=items, tools=[tool]))


def test_a_long_integer_is_as_long_as_python_data() -> None:
    value = plain(Json(f'{{"a": [1, {LONG}, -{LONG}, 2.5, "{LONG}"]}}'.encode()))
    assert ({"a": [1, Decimal(LONG), Decimal(f"-{LONG}"), 2.5, LONG]} == value) is True  # a diff would take minutes
    assert type(value["a"][0]) is int
    assert LONG == str(value["a"][1])


def test_the_api_of_a_body_with_a_long_integer_is_found() -> None:
    part = f'{{"type":"text","text":"x","n":{LONG}}}'
    request = ts.parse(f'{{"model":"m","max_tokens":5,"messages":[{{"role":"user","content":[{part}]}}]}}')
    assert LONG.encode() in ts.render(request, "openai-chat").data


def test_a_long_integer_of_a_body_is_there_in_its_value() -> None:
    rendered: Any = ts.convert(f'{{"messages":[],"n1":{LONG}}}', "openai-chat", "openai-chat")
    assert LONG == str(rendered.value["n1"])


@pytest.mark.parametrize("api", ts.apis())
def test_an_error_with_a_long_code_is_told(api: str) -> None:
    body = f'{{"type":"error","error":{{"message":"no room","type":"x","code":{LONG}}}}}'
    with pytest.raises(UpstreamError, match="no room"):
        ts.get_api(api).parse_response(body.encode())


def test_a_search_result_with_a_long_integer_is_written_as_its_text() -> None:
    block = f'{{"type":"search_result","title":"t","source":"s","n":{LONG},"content":[]}}'
    body = f'{{"model":"m","max_tokens":5,"messages":[{{"role":"user","content":[{block}]}}]}}'
    written = json.loads(ts.convert(body, "anthropic-messages", "openai-chat").data)
    assert "t\n\ns" == written["messages"][0]["content"]


@pytest.mark.parametrize("schema", SCHEMAS)
@pytest.mark.parametrize("name", ts.formats())
def test_a_tool_with_a_long_integer_is_shown_and_read(name: str, schema: str) -> None:
    prompt = ts.get_format(name).prompt(offering(schema % LONG)).text
    assert prompt.replace(LONG, "9") == ts.get_format(name).prompt(offering(schema % "9")).text
    ts.parse(prompt, name)


def test_properties_that_are_read_keep_their_spelling() -> None:
    schema = f'{{"type":"object","properties":{{"a":{{"maximum":1e5,"minimum":{LONG}}}}}}}'
    (read,) = ts.parse(ts.get_format("rwkv-goose").prompt(offering(schema)).text, "rwkv-goose").tools
    assert Json(schema.encode()) == read.parameters


def test_a_short_integer_is_written_as_before() -> None:
    assert Json(b'{"a":1152921504606846976}') == json_of(plain(Json(b'{"a":1152921504606846976}')))
