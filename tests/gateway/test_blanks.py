"""Owns the tests of blank texts: which are told, which are not, and that none of what was written is lost."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from turnscript.core.conversation import Assistant, Item, Text, Thinking, ToolCall
from turnscript.core.events import Event, MessageEnd, PartDelta, PartEnd, PartStart, raw_text
from turnscript.gateway.generation import Blanks

CALL = ToolCall(name="f", arguments="{}", id="c1")


def said(*texts: str) -> Assistant:
    return Assistant(content=[Text(text="".join(texts))])


def events_of(*parts: Item | Sequence[str]) -> list[Event]:
    """The events of parts: a text is given as its pieces."""
    out: list[Event] = []
    for index, part in enumerate(parts):
        if isinstance(part, Item):
            out += [PartStart(index, part, "<"), PartEnd(index, part, ">")]
        else:
            out += [PartStart(index, Assistant(), "("), *(PartDelta(index, piece, piece) for piece in part)]
            out.append(PartEnd(index, said(*part), ")"))
    return [*out, MessageEnd("stop", raw=".")]


def told(events: list[Event], each: bool) -> list[Event]:
    """What comes out, of all events at once or of one after the other."""
    blanks = Blanks()
    return [one for event in events for one in blanks.feed([event])] if each else blanks.feed(events)


THOUGHT = Thinking(content=[Text(text="hm")])


@pytest.mark.parametrize("each", [False, True], ids=["at once", "one by one"])
@pytest.mark.parametrize(
    ("parts", "kinds"),
    [
        ([["\n", " "], CALL], ["tool_call"]),
        ([[], CALL], ["tool_call"]),
        ([["\n"], CALL, [" \n"]], ["tool_call"]),
        ([THOUGHT, ["\n\n"], CALL], ["thinking", "tool_call"]),
        ([["\n", "Hello"], CALL], ["assistant", "tool_call"]),
        ([["Hello", " "], CALL], ["assistant", "tool_call"]),
        ([["\n"], ["Hello"]], ["assistant"]),
        ([["\n"]], ["assistant"]),
        ([CALL, CALL], ["tool_call", "tool_call"]),
    ],
)
def test_a_blank_text_is_told_only_where_there_is_nothing_else(
    parts: list[Item | list[str]], kinds: list[str], each: bool
) -> None:
    events = events_of(*parts)
    out = told(events, each)
    ends = [event.part.kind for event in out if isinstance(event, PartEnd) and event.part is not None]
    assert kinds == ends
    assert len(kinds) == len([event for event in out if isinstance(event, PartStart)])
    assert raw_text(events) == raw_text(out)
    assert isinstance(out[-1], MessageEnd)


def test_a_text_is_told_as_soon_as_it_says_something() -> None:
    blanks = Blanks()
    start, blank, word, *_ = events_of(["\n", "Hello"])
    assert [] == blanks.feed([start, blank])
    assert [start, blank, word] == blanks.feed([word])


def test_what_is_counted_already_is_not_counted_again() -> None:
    blanks = Blanks()
    *before, start, _, _ = events_of(["\n"], CALL)
    assert [] == blanks.feed(before)
    blanks.resume()
    (event,) = blanks.feed([start])
    assert "<" == event.raw
