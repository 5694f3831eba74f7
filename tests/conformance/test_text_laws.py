"""Owns the laws of answers of several texts: a stream becomes what its whole becomes, and each joint is listed."""

from __future__ import annotations

import re
from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

import turnscript as ts
from tests.conformance.examples import fewer
from tests.strategies import events as answers

FEWER = fewer()
WORD = re.compile(r"<\d+>")


@st.composite
def responses(draw: st.DrawFn) -> ts.Response:
    """Messages of one to three texts, each of which stands nowhere else, and a call behind some."""
    counts = draw(st.lists(st.integers(1, 3), min_size=1, max_size=3))
    places = [[f"<{message}{number}>" for number in range(count)] for message, count in enumerate(counts)]
    items: list[ts.Item] = [ts.Assistant(content=[ts.Text(text=text) for text in texts]) for texts in places]
    if draw(st.booleans()):
        return ts.Response(items=[*items, ts.ToolCall(name="f", arguments="{}", id="c")], finish_reason="tool_calls")
    return ts.Response(items=items, finish_reason="stop")


def asked() -> ts.Request:
    request = ts.Request(conversation=ts.Conversation(items=[ts.User(content=[ts.Text(text="Hi")])]))
    request.settings.model, request.settings.stream = "m", True
    return request


def both_ways(response: ts.Response, name: str, other: str) -> list[tuple[ts.Response, ts.Response, list[ts.Loss]]]:
    """An answer of one API behind another, whole and streamed: what was read, what is read of that, and the losses."""
    first, second = ts.get_api(name), ts.get_api(other)
    source = first.parse_response(first.render_response(response, asked()).data)
    rendered = second.render_response(source, asked())
    found = [(source, second.parse_response(rendered.data), rendered.losses)]

    stream, parser = first.stream_renderer(asked()), first.stream_parser()
    data = stream.send(answers.told(response, answers.in_pieces(2))) + stream.close()
    events = [*parser.feed(data), *parser.close()]
    stream, parser = second.stream_renderer(asked()), second.stream_parser()
    data = b"".join([stream.send([event]) for event in events]) + stream.close()
    return [*found, (ts.fold(events), ts.fold([*parser.feed(data), *parser.close()]), stream.losses)]


def messages(response: ts.Response) -> list[ts.Assistant]:
    return [item for item in response.items if isinstance(item, ts.Assistant)]


def texts_of(response: ts.Response) -> list[str]:
    return [part.text for item in messages(response) for part in item.content if isinstance(part, ts.Text)]


def joined(response: ts.Response) -> set[str]:
    """The words that do not begin the text that they stand in."""
    return {word for text in texts_of(response) for word in WORD.findall(text)[1:]}


def listed(source: ts.Response, losses: Iterable[ts.Loss]) -> list[str]:
    """Where losses say that a text was joined with another."""
    places = tuple(item.at for item in messages(source))
    return sorted(loss.path for loss in losses if loss.path.startswith(places) and "joined" in loss.detail)


@pytest.mark.parametrize("name", ts.apis())
@FEWER
@given(response=responses())
def test_a_stream_becomes_what_the_whole_answer_becomes(name: str, other_name: str, response: ts.Response) -> None:
    (whole, told, losses), (folded, streamed, lost) = both_ways(response, name, other_name)
    assert texts_of(whole) == texts_of(folded)
    assert texts_of(told) == texts_of(streamed)
    assert listed(whole, losses) == listed(folded, lost)


@pytest.mark.parametrize("name", ts.apis())
@FEWER
@given(response=responses())
def test_texts_that_become_one_are_listed(name: str, other_name: str, response: ts.Response) -> None:
    for source, found, losses in both_ways(response, name, other_name):
        lost = joined(found) - joined(source)
        places = listed(source, losses)
        for item in messages(source):
            words = set(WORD.findall(answers.content_of(item)))
            assert bool(words & lost) == any(place.startswith(item.at) for place in places)
