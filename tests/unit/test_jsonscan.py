"""Owns the law of scanning JSON: long strings, which the standard library scans, end where short pieces say they do."""

from collections.abc import Callable

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.growth import assert_grows_below
from turnscript.engine.jsonscan import ValueScanner

PIECES = st.lists(st.sampled_from(["x" * 300, '"', "\\", "\\u12", "\\ud800", "{", "}", ",", "\n", "\x00", "é", "<a>"]))


def scanned(text: str, size: int) -> tuple[int, bool, bool, str]:
    """How far a value goes, in pieces of a size, and how the scanner stands then."""
    scanner, position = ValueScanner(), 0
    while position < len(text) and not scanner.done and not scanner.failed:
        end = min(position + size, len(text))
        position += scanner.feed(text[position:end], 0)
    return position, scanner.done, scanner.failed, scanner.kind


def passed(text: str, size: int) -> tuple[int, bool, bool, str]:
    """The same where each piece is passed, if it goes at one look, and else fed."""
    scanner, position = ValueScanner(), 0
    while position < len(text) and not scanner.done and not scanner.failed:
        piece = text[position : position + size]
        position += len(piece) if scanner.passes(piece) else scanner.feed(piece, 0)
    return position, scanner.done, scanner.failed, scanner.kind


@given(PIECES)
@example(["x" * 300, "\\", '"', "x" * 300, '"', "}"])
@example(["x" * 300, "\\u12", '"', ",", '"', "x" * 300, '"'])
def test_a_value_ends_at_the_same_place_in_pieces_of_any_size(pieces: list[str]) -> None:
    for text in (f'"{"".join(pieces)}', f'{{"a": "{"".join(pieces)}'):
        assert scanned(text, len(text)) == scanned(text, 7) == scanned(text, 256)


@given(PIECES)
@example(["\\", '"', ",", '"', "\\", "\\", '"', "x" * 300, ",", "{", '"', "}"])
def test_a_piece_that_passes_leaves_the_scanner_where_feeding_it_would(pieces: list[str]) -> None:
    for text in (f'"{"".join(pieces)}', f'{{"a": "{"".join(pieces)}', f'{{"a": {{"b": [{"".join(pieces)}'):
        for size in (1, 2, 4, 7, 300):
            assert scanned(text, size) == passed(text, size)


@pytest.mark.parametrize("string", ['"\\<a"', '"\\n' + "x" * 300 + '\\<a"', '"x"', '"' + "x" * 300 + '"', '"\\""'])
def test_strings_of_a_value_cost_no_more_than_their_length(string: str) -> None:
    """Also those that no JSON has."""

    def scanning(size: int) -> Callable[[], object]:
        text = f"[{f'{string},' * (size // len(string))}"
        return lambda: ValueScanner().feed(text, 0)

    assert_grows_below(12, scanning, 1 << 15, 1 << 18, least=0.01)  # 8 times the length
