"""Owns the law of JSON in calls: long strings, which are scanned at once, end where short pieces say they do."""

from collections.abc import Callable

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import turnscript as ts
from tests.conformance.test_parser_laws import check_events
from tests.growth import assert_grows_below

PIECES = st.lists(st.sampled_from(["x" * 300, '"', "\\", "\\u12", "\\ud800", "{", "}", ",", "\n", "\x00", "é", "<a>"]))
ODD = ['"\\<a"', '"\\n' + "x" * 300 + '\\<a"', '"x"', '"' + "x" * 300 + '"', '"\\""']


BEGUN = {
    "openchatml": '<|function_call|>\n{"arguments": ',
    "rwkv-universal": '<<TOOL_CALL name="f">>\n',
    "mistral": "[TOOL_CALLS]f[ARGS]",
}
"""How a call begins whose arguments are JSON, in formats that read it in ways of their own."""


def read(name: str, written: str, size: int) -> ts.Response:
    """An answer in pieces of a size."""
    parser = ts.get_format(name).parser([ts.Tool(name="f")])
    events = [event for at in range(0, len(written), size) for event in parser.feed(written[at : at + size])]
    return check_events(events + parser.close(), written)


@pytest.mark.parametrize("name", BEGUN)
@given(pieces=PIECES)
@example(pieces=["x" * 300, "\\", '"', "x" * 300, '"', "}"])
@example(pieces=["x" * 300, "\\u12", '"', ",", '"', "x" * 300, '"'])
@example(pieces=["\\", '"', ",", '"', "\\", "\\", '"', "x" * 300, ",", "{", '"', "}"])
def test_a_value_ends_at_the_same_place_in_pieces_of_any_size(name: str, pieces: list[str]) -> None:
    string = "".join(pieces)
    for value in (f'"{string}', f'{{"a": "{string}', f'{{"a": {{"b": [{string}'):
        written = f'{BEGUN[name]}{value}, "name": "f"}}\n'
        whole = read(name, written, len(written))
        for size in (1, 2, 4, 7, 256, 300):
            assert whole == read(name, written, size)


@pytest.mark.parametrize("string", ODD)
def test_strings_of_a_value_cost_no_more_than_their_length(string: str) -> None:
    """Also those that no JSON has."""

    def reading(size: int) -> Callable[[], object]:
        written = f'{BEGUN["openchatml"]}{{"a": [{f"{string}," * (size // len(string))}'
        return lambda: read("openchatml", written, 1 << 14)

    assert_grows_below(12, reading, 1 << 15, 1 << 18, least=0.01)  # 8 times the length
