"""Owns checks of the search for literals: one is found at its place, however long the text before it is."""

import pytest

import turnscript as ts
from turnscript.core.events import PartDelta

LITERALS = ("</think>", "\n</think>", "```", "\n\nUser:")


def parser_of(stop: list[str]) -> ts.TurnParser:
    """A parser of answers that end with any of these."""
    return ts.get_format("batuta-chatml").parser([], stops=stop)


def told(parser: ts.TurnParser, text: str) -> str:
    """What is certain to be content, once a text has come."""
    return "".join([event.text for event in parser.feed(text) if isinstance(event, PartDelta)])


@pytest.mark.parametrize("literal", LITERALS)
@pytest.mark.parametrize("near", [0, 60, 64, 4096, 8192])
def test_a_literal_is_found_behind_any_text(literal: str, near: int) -> None:
    for length in range(max(near - 12, 0), near + 12):
        parser = parser_of([*LITERALS])
        assert "." * length == told(parser, "." * length + literal + "." * 99)
        assert literal == parser.client_stop


LONG = "".join(chr(97 + place % 7) for place in range(3000))


@pytest.mark.parametrize("length", [63, 64, 65, 66, 67, 300, 3000])
@pytest.mark.parametrize("begins", ["", "ab", LONG[:70], LONG[:2999]])
def test_a_literal_of_any_length_is_found_in_any_pieces(length: int, begins: str) -> None:
    literal = LONG[: length - 1] + "."
    text = f"{begins}!{begins}{literal}"
    for size in (1, 40, len(text)):
        parser = parser_of([literal])
        pieces = [told(parser, text[at : at + size]) for at in range(0, len(text), size)]
        assert text[: text.index(literal)] == "".join(pieces)
        assert literal == parser.client_stop


def test_a_beginning_of_any_length_waits_and_nothing_else_does() -> None:
    for length in range(1, len(LONG), 53):
        parser = parser_of([LONG, LONG[7:] + "!", "<tag>"])
        assert "<x>" == told(parser, f"<x>{LONG[:length]}")
        assert f"{LONG[:length]}?" == told(parser, "?")


@pytest.mark.parametrize("slashes", [1, 500, 501, 4000])
def test_backslashes_behind_a_lead_wait_only_while_they_may_be_an_escape(slashes: int) -> None:
    text = "<" + "\\" * slashes
    assert ("" if slashes <= 500 else text) == told(parser_of([]), text)
