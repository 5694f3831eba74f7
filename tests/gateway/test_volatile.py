"""Owns telling whether a text has something that changes with every request: the words of a pattern change nothing."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnscript.gateway.hygiene import VOLATILE, Volatile

PATTERNS = ("abc*", "ab|b", "a(b|c)d", r"a-b:[^\n|]*(?:\n|\Z)", r"a\|b", "(a|b)", "ab{2}", "a b+", r"\w+c", "b")


@given(st.lists(st.sampled_from(PATTERNS), max_size=3), st.text("abcdAB|:- \n", max_size=8))
def test_what_stands_in_a_text_is_what_its_patterns_find(patterns: list[str], text: str) -> None:
    volatile = Volatile(tuple(patterns))
    found = [one for one in patterns if re.search(f"^(?:{one})", text, re.MULTILINE)]
    assert bool(found) == volatile.stands_in(text)
    assert volatile.stands_in(text) or volatile.without(text) == text


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("x-anthropic-billing-header: cch=1;\nBe kind.", "Be kind."),
        ("Be kind.\nx-anthropic-billing-header: cch=1;", "Be kind.\n"),
        ("Say x-anthropic-billing-header: no.", None),
        ("Be kind.", None),
    ],
)
def test_a_billing_header_is_a_line_of_its_own(text: str, left: str | None) -> None:
    volatile = Volatile(VOLATILE)
    assert (left is not None) == volatile.stands_in(text)
    assert (text if left is None else left) == volatile.without(text)
