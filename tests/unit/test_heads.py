"""Checks where an opening tag with attributes ends: the same in any pieces, and no character twice."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

import turnscript as ts
from tests.conformance.test_parser_laws import check_events
from tests.growth import assert_grows_below
from turnscript.core.conversation import text_content

TOOLS = [ts.Tool(name="get_weather")]
BEHIND = {
    "rwkv-universal": "{}\n<<END_TOOL_CALL>>",
    "ai00-v1": "</invoke>\n</ai00:function_calls>",
}
"""Formats whose calls have attributes, and what ends a call of each."""


def opening(name: str) -> str:
    """How a call begins, up to its attributes."""
    call = ts.get_format(name).document.segment("tool_call")
    return f"{call.group.open if call.group else ''}{call.open}"


def read(name: str, written: str, size: int) -> ts.Response:
    """An answer in pieces of a size."""
    parser = ts.get_format(name).parser(TOOLS)
    events = [event for at in range(0, len(written), size) for event in parser.feed(written[at : at + size])]
    return check_events(events + parser.close(), written)


@pytest.mark.parametrize(
    ("name", "attributes", "called"),
    [
        ("rwkv-universal", ' name="a">>\n', "a"),
        ("rwkv-universal", ' name=">>">>\n', ">>"),
        ("rwkv-universal", ' name="a > b" id="c">>\n', "a > b"),
        ("rwkv-universal", r' name="\">>" id="b">>' + "\n", '">>'),
        ("ai00-v1", ' name=">">\n', ">"),
        ("ai00-v1", r' name="a\\">' + "\n", "a\\"),
    ],
)
def test_the_end_is_outside_quotes(name: str, attributes: str, called: str) -> None:
    written = f"{opening(name)}{attributes}{BEHIND[name]}"
    for size in (len(written), 1):
        [call] = [item for item in read(name, written, size).items if isinstance(item, ts.ToolCall)]
        assert called == call.name


@pytest.mark.parametrize("name", BEHIND)
@pytest.mark.parametrize("attributes", [' name="a\n', ' name="a\\\n', " name\n>>", " a<b>>", ' name="a"><'])
def test_what_no_opening_holds_makes_it_none(name: str, attributes: str) -> None:
    """It is told at once: nothing that follows could make it one."""
    parser = ts.get_format(name).parser(TOOLS)
    written = f"{opening(name)}{attributes} and so on"
    [said] = ts.fold([*parser.feed(written), *parser.close()]).items
    assert isinstance(said, ts.Assistant)
    assert written == text_content(said.content)


@given(
    name=st.sampled_from([*BEHIND]),
    pieces=st.lists(st.text(alphabet='">|<\\\n a', max_size=4), min_size=1, max_size=12),
    named=st.booleans(),
)
def test_any_pieces_tell_what_the_whole_tells(name: str, pieces: list[str], named: bool) -> None:
    head = opening(name) + (' name="get_weather"' if named else "")
    written = f"{head}{''.join(pieces)}>>\n{BEHIND[name]}"
    whole = read(name, written, len(written))
    for size in (1, 2, 3, 5):
        assert whole == read(name, written, size)


@pytest.mark.parametrize("text", [' a="b"', ' a="' + "b > ", ' a="\\\\'], ids=["names", "a quote", "escapes"])
def test_an_opening_that_does_not_end_is_read_once(text: str) -> None:
    """An opening is given up after 8,192 characters; up to there, too, no piece costs more than the one before it."""

    def reading(size: int) -> Callable[[], object]:
        written = opening("rwkv-universal") + text + text[-4:] * (size // 4)
        return lambda: read("rwkv-universal", written, 2)

    assert_grows_below(10, reading, 2_000, 8_000)
