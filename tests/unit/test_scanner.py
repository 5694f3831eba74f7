"""Owns checks of the scanner by itself: a literal is found at its place, however long the text before it is."""

import pytest

from turnscript.engine.escape import Escape
from turnscript.engine.scanner import Scanner

LITERALS = ("</think>", "\n</think>", "```", "\n\nUser:")


@pytest.mark.parametrize("literal", LITERALS)
@pytest.mark.parametrize("near", [0, 60, 64, 4096, 8192])
def test_a_literal_is_found_behind_any_text(literal: str, near: int) -> None:
    scanner = Scanner(dict.fromkeys(LITERALS))
    for length in range(max(near - 12, 0), near + 12):
        match = scanner.find("." * length + literal + "." * 99, 0, closing=False)
        assert match is not None
        assert (length, literal) == (match.start(), match[0])


LONG = "".join(chr(97 + place % 7) for place in range(3000))


@pytest.mark.parametrize("length", [63, 64, 65, 66, 67, 300, 3000])
@pytest.mark.parametrize("begins", ["", "ab", LONG[:70], LONG[:2999]])
def test_a_literal_of_any_length_is_found_in_any_pieces(length: int, begins: str) -> None:
    literal = LONG[: length - 1] + "."
    text = f"{begins}!{begins}{literal}"
    expected = text.index(literal)
    for size in (1, 40, len(text)):
        scanner, held, told = Scanner({literal: None}), "", 0
        for at in range(0, len(text), size):
            held += text[at : at + size]
            if scanner.find(held, 0, closing=False) is not None:
                break
            kept = scanner.hold(held, 0)
            told, held = told + kept, held[kept:]
        match = scanner.find(held, 0, closing=True)
        assert match is not None
        assert expected == told + match.start()


def test_a_beginning_of_any_length_waits_and_nothing_else_does() -> None:
    scanner = Scanner(dict.fromkeys((LONG, LONG[7:] + "!", "<tag>")))
    for length in range(1, len(LONG), 53):
        assert 3 == scanner.hold("<x>" + LONG[:length], 0)
        told = f"<x>{LONG[:length]}?"
        assert len(told) == scanner.hold(told, 0)


@pytest.mark.parametrize("slashes", [1, 500, 501, 4000])
def test_backslashes_behind_a_lead_wait_only_while_they_may_be_an_escape(slashes: int) -> None:
    scanner: Scanner[None] = Scanner({"<tag>": None}, Escape(("<", ("tag>",))))
    text = "<" + "\\" * slashes
    assert (0 if slashes <= 500 else len(text)) == scanner.hold(text, 0)
