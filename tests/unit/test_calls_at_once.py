"""Owns calls that are there up to their closing tag: they are read at one look, and say what they say in pieces."""

from __future__ import annotations

from collections.abc import Callable

import pytest

import turnscript as ts
from tests.growth import assert_grows_below

CLOSE = "\n</tool_call>"
PAYLOADS = {
    "as usual": '{"name": "f", "input": {"a": 1}}',
    "blanks everywhere": ' { "name" : "f" , "input" : { "a" : [ 1 , 2 ] } \n } ',
    "the closing in a string": '{"name": "f", "input": {"a": "<tool_call>\\n</tool_call>"}}',
    "the closing in a string, then braces": '{"name": "f", "input": {"a": "}}</tool_call>", "b": {}}}',
    "an escape of ours": '{"name": "f", "input": {"a": "<\\\\tool_call>"}}',
    "an escape of ours that JSON has not": '{"name": "f", "input": {"a": "<\\/tool_call>"}}',
    "a member behind the arguments": '{"name": "f", "input": {"a": 1}, "id": "x"}',
    "the name twice": '{"name": "f", "name": "g", "input": {"a": 1}}',
    "the name again behind the arguments": '{"name": "f", "input": {"a": 1}, "name": "g"}',
    "the arguments twice": '{"name": "f", "input": {"a": 1}, "input": {"b": 2}}',
    "one brace too few": '{"name": "f", "input": {"a": 1}',
    "one brace too many": '{"name": "f", "input": {"a": 1}}}',
    "a key without its value": '{"name": "f", "input": {"a": }}',
    "nothing behind a comma": '{"name": "f", "input": {"a": 1},}',
    "a line end in a string": '{"name": "f", "input": {"a": "x\ny"}}',
    "half a surrogate pair": '{"name": "f", "input": {"a": "\udc80"}}',
    "a list": '{"name": "f", "input": [{"a": 1}]}',
    "a string": '{"name": "f", "input": "{}"}',
    "nothing": '{"name": "f", "input": }',
    "the end of the turn inside": '{"name": "f", "input": {"a": "<|im_end|>"}}',
}
BEHIND = {
    "the end": "",
    "a closing": CLOSE,
    "another call": f'{CLOSE}\n<tool_call>\n{{"name": "g", "input": {{}}}}{CLOSE}',
}


def read(text: str, size: int) -> ts.Response:
    parser = ts.get_format("batuta-chatml").parser()
    events = [event for at in range(0, len(text), size) for event in parser.feed(text[at : at + size])]
    return ts.fold([*events, *parser.close()])


@pytest.mark.parametrize("behind", BEHIND.values(), ids=BEHIND.keys())
@pytest.mark.parametrize("payload", PAYLOADS.values(), ids=PAYLOADS.keys())
def test_a_call_that_is_fed_at_once_is_the_call_that_comes_in_pieces(payload: str, behind: str) -> None:
    text = f"I look.\n<tool_call>\n{payload}{behind}"
    whole = read(text, len(text))
    assert whole == read(text, 1) == read(text, 4)
    assert text == whole.raw


@pytest.mark.parametrize("members", ['"arguments": {"a": 1}, "id": "x"', '"id": "x", "arguments": {"a": 1}'])
def test_the_id_of_a_call_that_is_cut_is_one_that_came_before_its_arguments(members: str) -> None:
    """What is told of a call when it begins is all that a stream can tell of one that never ends."""
    text = f'[TOOL_CALLS][{{"name": "f", {members}'
    found = []
    for size in (len(text), 1, 7):
        parser = ts.get_format("mistral-nemo").parser()
        events = [event for at in range(0, len(text), size) for event in parser.feed(text[at : at + size])]
        found.append(ts.fold([*events, *parser.close("length")]))
    assert found[0] == found[1] == found[2]
    call = found[0].cut
    assert isinstance(call, ts.ToolCall)
    assert ("x" if members.startswith('"id"') else None) == call.id


def test_arguments_of_any_length_stay_as_they_are_written() -> None:
    for length in (10, 65_536 - 30, 65_536, 200_000):
        arguments = f'{{"b" :1.0, "a": "{"x" * length}"}}'
        response = read(f'<tool_call>\n{{"name": "f", "input": {arguments}}}{CLOSE}', length * 2)
        assert [arguments] == [item.arguments for item in response.items if isinstance(item, ts.ToolCall)]
        assert [] == response.issues


@pytest.mark.parametrize("close", ["", CLOSE, '"</tool_call>'])
def test_calls_whose_closing_is_far_away_cost_no_more_than_their_length(close: str) -> None:
    def work(count: int) -> Callable[[], object]:
        text = f'<tool_call>\n{{"name": "f", "input": {{"a": 1}}}}{close}\n' * count
        return lambda: read(text, len(text))

    assert_grows_below(8, work, 1000, 4000)
