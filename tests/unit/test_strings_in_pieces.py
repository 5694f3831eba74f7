"""Owns strings in arguments that come in pieces: wherever an escape or a tag is cut, the call is the one written."""

from __future__ import annotations

import json
from itertools import product

import pytest

import turnscript as ts

FORMS = {
    "batuta-chatml": '<tool_call>\n{"name": "f", "input": {"a": "%"}}\n</tool_call>',
    "openchatml": '<|function_call|>\n{"arguments": {"a": "%"}, "name": "f"}\n<|im_end|>',
    "rwkv-universal": '<<TOOL_CALL name="f">>\n{"a": "%"}\n<<END_TOOL_CALL>>',
    "rwkv-goose-observation": 'f\n```python\ntool_call("a"="%")\n```',
    "mistral": '[TOOL_CALLS]f[ARGS]{"a": "%"}',
}
WORDS = (r"\\", r"\"", "<", "<<", "}", "[")


def read(name: str, text: str, size: int) -> ts.Response:
    parser = ts.get_format(name).parser(tools=[ts.Tool(name="f")])
    events = [event for at in range(0, len(text), size) for event in parser.feed(text[at : at + size])]
    return ts.fold([*events, *parser.close()])


@pytest.mark.parametrize("name", FORMS)
def test_a_string_is_the_one_written_wherever_it_is_cut(name: str) -> None:
    for words in product(WORDS, repeat=3):
        string = f"{''.join(words)}x{''.join(reversed(words))}"
        text = FORMS[name].replace("%", string)
        for size in (1, 2, 3, 4, 5, len(text)):
            response = read(name, text, size)
            assert text == response.raw
            assert [{"a": json.loads(f'"{string}"')}] == [
                json.loads(item.arguments) for item in response.items if isinstance(item, ts.ToolCall)
            ]


@pytest.mark.parametrize("name", FORMS)
@pytest.mark.parametrize("tag", ["<|im_end|>", "</tool_call>", "<<USER>>", "[INST]"])
def test_an_escaped_tag_in_a_string_is_the_same_wherever_it_is_cut(name: str, tag: str) -> None:
    for slashes, before in product(range(4), ("", r"\\", r"\"", "<")):
        text = FORMS[name].replace("%", f"{before}{tag[0]}{chr(92) * slashes}{tag[1:]}{before}")
        whole = read(name, text, len(text))
        for size in (1, 2, 3, 4, 5):
            assert whole == read(name, text, size)


@pytest.mark.parametrize("name", FORMS)
@pytest.mark.parametrize("slashes", [1, 2, 499, 500, 501, 502, 1001])
def test_a_quote_behind_many_backslashes_ends_the_string_or_not(name: str, slashes: int) -> None:
    text = FORMS[name].replace("%", "x" + "\\" * slashes + '"y')
    whole = read(name, text, len(text))
    for size in (1, 3, 7):
        assert whole == read(name, text, size)
