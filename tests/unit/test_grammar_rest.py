"""Owns what is left of a grammar behind a beginning, with a slow reader of free texts as the judge of the quick one."""

from __future__ import annotations

import itertools
from time import process_time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnscript.grammar.nodes import (
    Chars,
    Ending,
    Grammar,
    Literal,
    Node,
    Reference,
    Repeat,
    Without,
    chars,
    choice,
    sequence,
)
from turnscript.grammar.rest import behind, matches

STOPS = [("ab",), ("ab", "ba"), ("aab", "b"), ("aba", "bb", "c"), ("abc", "b")]


@pytest.mark.parametrize("stops", STOPS)
def test_a_text_without_strings_is_one_that_holds_none(stops: tuple[str, ...]) -> None:
    """Of all short texts, with a closing that begins with one of the strings, and one that does not."""
    for close in (stops[0] + "!", stops[-1], "!", ""):
        grammar = Grammar(sequence(Without(stops), close))
        for size in range(7):
            for letters in itertools.product("abc!", repeat=size):
                text = "".join(letters)
                inner = text.removesuffix(close) if text.endswith(close) else None
                expected = inner is not None and not any(stop in inner for stop in stops)
                assert matches(grammar, text) == expected, (text, close)


@pytest.mark.parametrize("stops", STOPS)
@given(texts=st.tuples(st.text("abc!", max_size=8), st.text("abc!", max_size=8)))
def test_what_is_left_is_what_follows(stops: tuple[str, ...], texts: tuple[str, str]) -> None:
    """For any cut of any text: the rest reads the second part if and only if the whole reads both."""
    first, second = texts
    for close in (stops[0] + "!", "!"):
        grammar = Grammar(
            sequence(Without(stops), close, Reference("x")), {"x": Repeat(choice(Literal("ab"), Literal("!")))}
        )
        rest = behind(grammar, first)
        assert (rest is not None and matches(rest, second)) == matches(grammar, first + second)


def test_rules_that_nothing_leads_to_are_left_out() -> None:
    rules = {"a": Literal("1"), "b": sequence("2", Reference("a")), "c": Literal("3")}
    grammar = Grammar(choice(sequence("x", Reference("b")), sequence("y", Reference("c"), Ending("!"))), rules)
    rest = behind(grammar, "x2")
    assert rest == Grammar(Reference("a"), {"a": Literal("1")})
    assert behind(grammar, "z") is None
    assert behind(grammar, "") is grammar
    assert [matches(grammar, text) for text in ("x21", "y3", "y3!", "y3!!", "x2")] == [True, True, True, False, False]


def test_counted_repetitions_count_on() -> None:
    grammar = Grammar(Repeat(choice(Literal("a"), Literal("bb")), 2, 4))
    for first, left in (("", {2, 3, 4}), ("a", {1, 2, 3}), ("ab", set()), ("abb", {0, 1, 2}), ("aaaa", {0})):
        rest = behind(grammar, first)
        assert rest is not None
        assert {count for count in range(6) if matches(rest, "a" * count)} == left, first
    assert behind(grammar, "aaaaa") is None


def test_a_long_thought_is_taken_off_at_once() -> None:
    grammar = Grammar(sequence(Without(("</t>", "<c>")), "</t>\n", Reference("c")), {"c": Literal("{}")})
    for size in (1_000, 1_000_000):
        began = process_time()
        text = "Let <me> think. " * (size // 16)
        assert behind(grammar, text) is not None
        assert behind(grammar, text + "</t>\n") == Grammar(Reference("c"), {"c": Literal("{}")})
        assert behind(grammar, text + "<c>") is None
        assert process_time() - began < 1


ROWS = {
    "a string": choice(chars('"', "\\", negated=True), sequence("\\", chars('"', "n"))),
    "a class": chars("a-z"),
    "a class with what closes it": chars("a", '"'),
    "a class and a word of it": choice(chars("a", "b"), sequence("a", '"')),
    "anything": Chars((), negated=True),
}


@pytest.mark.parametrize("repeated", ROWS.values(), ids=ROWS)
def test_a_row_of_characters_is_read_at_once_as_one_by_one(repeated: Node) -> None:
    """Of all short texts, cut anywhere. What closes a row is not seen behind a reference, so it is read slowly."""
    quick = Grammar(sequence('"', Repeat(repeated), '"!'))
    slow = Grammar(sequence('"', Repeat(repeated), Reference("close")), {"close": Literal('"!')})
    for size in range(1, 5):
        for letters in itertools.product('a\\"!', repeat=size):
            text = "".join(letters)
            assert matches(quick, text) == matches(slow, text), text
            for cut in range(1, size):
                rest = behind(quick, text[:cut])
                assert (rest is not None and matches(rest, text[cut:])) == matches(slow, text), (text, cut)
                assert (rest is None) == (behind(slow, text[:cut]) is None), (text, cut)


def test_a_long_string_is_taken_off_at_once() -> None:
    """A call that is made again stands behind all that was called before, while the streams of others wait."""
    grammar = Grammar(sequence('"', Repeat(ROWS["a string"]), '"', Reference("c")), {"c": Literal("{}")})
    began = process_time()
    assert behind(grammar, '"' + "One line of a file.\\n" * 5_000 + '"') == Grammar(
        Reference("c"), {"c": Literal("{}")}
    )
    assert process_time() - began < 1
