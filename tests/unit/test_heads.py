"""Checks where an opening tag with attributes ends: the same in any pieces, and no character twice."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

import turnscript as ts
from tests.growth import assert_grows_below
from turnscript.engine.scanner import HeadEnd

CORES = (">>", "|>", ">")


def end_in_pieces(core: str, pieces: list[str], behind: int) -> tuple[int, int]:
    """What is told of the end at last, and how much of the text had come then."""
    head, text, end = HeadEnd(core), "<" * behind, 0
    for piece in pieces:
        text += piece
        end = head.find(text, behind)
        if end != len(text):
            break
    return end, len(text)


@pytest.mark.parametrize(
    ("core", "text", "end"),
    [
        (">>", ' name="a">>b', 9),
        (">>", ' name=">>">>', 10),
        (">>", ' name="a > b" > c>>', 17),
        (">>", r' name="\">>" x>>', 14),
        ("|>", ' a="|" | b|>', 10),
        (">", ' a=">"> b', 6),
    ],
)
def test_the_end_is_outside_quotes(core: str, text: str, end: int) -> None:
    assert HeadEnd(core).find(text, 0) == end
    assert end_in_pieces(core, list(text), 3)[0] == end + 3


@pytest.mark.parametrize("text", [' name="a', ' name="a\\', " name", ' name="a">', ' name="a" >', ""])
def test_more_must_come(text: str) -> None:
    assert HeadEnd(">>").find(text, 0) == len(text)


@pytest.mark.parametrize("text", [' name="a\n', ' name="a\\\n', " name\n>>", " a<b>>", ' name="a"><'])
def test_no_tag(text: str) -> None:
    assert HeadEnd(">>").find(text, 0) == -1


def whole_tag(core: str) -> re.Pattern[str]:
    """A tag up to its end, said in another way: characters, each with a look at what is behind it."""
    return re.compile(rf'((?!{re.escape(core)})([^"<>\n]|>(?=[^<\n])|"([^"\\\n]|\\[^\n])*"))*{re.escape(core)}')


@given(
    core=st.sampled_from(CORES),
    pieces=st.lists(st.text(alphabet='">|<\\\n a', max_size=4), min_size=1, max_size=12),
    behind=st.integers(0, 2),
)
def test_any_pieces_tell_what_the_whole_tells(core: str, pieces: list[str], behind: int) -> None:
    text = "".join(pieces)
    end, had = end_in_pieces(core, pieces, behind)
    whole = HeadEnd(core).find("<" * behind + text, behind)
    assert end == whole if end < had else whole == len(text) + behind
    if (found := whole_tag(core).match(text)) and whole >= 0:
        assert whole == behind + found.end() - len(core)


@pytest.mark.parametrize("text", [' a="b"', ' a="' + "b > ", ' a="\\\\'], ids=["names", "a quote", "escapes"])
def test_an_opening_that_does_not_end_is_read_once(text: str) -> None:
    """An opening is given up after 8,192 characters; up to there, too, no piece costs more than the one before it."""
    format_ = ts.get_format("rwkv-universal")
    request = ts.Request(
        conversation=ts.Conversation(items=[ts.User(content=[ts.Text(text="Hi")])], tools=[ts.Tool(name="get_weather")])
    )
    prompt = format_.prompt(request)

    def reading(size: int) -> Callable[[], object]:
        written = format_.document.segment("tool_call").open + text + text[-4:] * (size // 4)
        pieces = [written[at : at + 2] for at in range(0, len(written), 2)]

        def read() -> None:
            parser = prompt.parser()
            for piece in pieces:
                parser.feed(piece)

        return read

    assert_grows_below(10, reading, 2_000, 8_000)
