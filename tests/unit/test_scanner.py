"""Owns checks of the scanner by itself: a literal is found at its place, however long the text before it is."""

import pytest

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
