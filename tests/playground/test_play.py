"""Owns the checks of what the playground says of a model's text: its pieces, their events, the answer in every API."""

from __future__ import annotations

import json
from typing import Any

import pytest

import turnscript as ts
from turnscript.convert.records import response_record
from turnscript.convert.registry import named_formats
from turnscript.playground.examples import examples
from turnscript.playground.play import MOST_PIECES, Play, played

EXAMPLES = {example.name: example.text for example in examples()}


@pytest.mark.deep
@pytest.mark.parametrize("name", named_formats())
@pytest.mark.parametrize("example", ["", "messages_request", "hostile_request"])
def test_the_example_of_an_answer_reads_clean_in_every_format(name: str, example: str) -> None:
    told = played(Play(name, EXAMPLES.get(example, "")))
    assert told.fault is None
    assert [] == told.response["issues"]
    assert told.response["items"]
    assert [None] * len(ts.apis()) == [answer.fault for answer in told.answers]


@pytest.mark.parametrize("size", [1, 3, 8, 1000])
def test_the_pieces_are_the_text_and_the_events_are_those_of_the_parser(size: int) -> None:
    told = played(Play("rwkv-universal", EXAMPLES["chat_request"], size=size))
    assert told.text == "".join(step.text for step in told.steps)
    assert {size} >= {len(step.text) for step in told.steps[:-2]}
    assert "" == told.steps[-1].text
    events = [event for step in told.steps for event in step.events]
    assert "message_end" == events[-1]["type"]
    parser = ts.get_format("rwkv-universal").prompt(ts.parse(EXAMPLES["chat_request"])).parser()
    response = ts.fold([*parser.feed(told.text), *parser.close()])
    assert response_record(response) == told.response


def test_the_answer_is_that_of_the_api_whole_and_streamed() -> None:
    told = played(Play("ai00-v1", EXAMPLES["chat_request"]))
    request = ts.parse(EXAMPLES["chat_request"])
    parser = ts.get_format("ai00-v1").prompt(request).parser()
    response = ts.fold([*parser.feed(told.text), *parser.close()])
    assert ts.apis() == [answer.api for answer in told.answers]
    for answer in told.answers:
        rendered = ts.get_api(answer.api).render_response(response, request)
        assert rendered.value == json.loads(answer.body)
        assert answer.losses is not None
        assert len(rendered.losses) == len(answer.losses.listed)
        assert kinds(ts.parse_response(answer.body, answer.api)) == kinds(ts.parse_response(answer.stream, answer.api))


def kinds(response: ts.Response) -> list[Any]:
    return [(item.kind, json.loads(getattr(item, "arguments", "null"))) for item in response.items]


def test_what_a_model_does_wrong_is_an_issue() -> None:
    told = played(
        Play("ai00-v1", EXAMPLES["chat_request"], text='<ai00:function_calls>\n  <invoke name="get_weather">')
    )
    assert told.fault is None
    assert told.response["issues"]


def test_why_the_server_says_that_it_ended_counts() -> None:
    told = played(Play("rwkv-universal", text="Half a sen", finish_reason="length"))
    assert "length" == told.response["finish_reason"]


def test_a_long_text_is_cut_into_so_many_pieces_at_most() -> None:
    told = played(Play("rwkv-universal", text="x" * (3 * MOST_PIECES), size=1))
    assert (3, MOST_PIECES + 1) == (told.size, len(told.steps))


@pytest.mark.parametrize("size", [0, -5])
def test_a_size_below_one_is_one(size: int) -> None:
    assert 1 == played(Play("rwkv-universal", text="abc", size=size)).size


@pytest.mark.parametrize(
    "schema",
    [
        "null",
        "7",
        '{"required": 5, "properties": 3}',
        '{"required": ["a", "b", 4, ["c"]], "properties": {"a": {"type": ["string", "null"]}, "b": {"enum": []}}}',
        '{"required": ["a"], "properties": {"a": {"enum": [{"x": 1}]}}}',
        '{"required": ["a"], "properties": {"a": {"enum": 3, "type": 4}}}',
    ],
)
def test_an_odd_schema_has_an_example_too(schema: str) -> None:
    tool = f'{{"name": "t", "input_schema": {schema}}}'
    source = f'{{"model": "m", "max_tokens": 5, "messages": [{{"role": "user", "content": "Hi"}}], "tools": [{tool}]}}'
    told = played(Play("rwkv-universal", source, from_="anthropic-messages"))
    assert told.fault is not None or told.response["items"]


def test_half_of_a_surrogate_pair_is_played() -> None:
    told = played(Play("rwkv-universal", text='<<TOOL_CALL name="t">>\n{"a": "\\ud800"}\n<<END_TOOL_CALL>>'))
    assert told.fault is None
