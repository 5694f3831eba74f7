"""Owns what answers leave behind: nothing that only the collector of garbage finds, which stops all that goes on."""

from __future__ import annotations

import gc
from collections.abc import Callable

import pytest

import turnscript as ts
from turnscript.core.conversation import (
    Assistant,
    Conversation,
    Request,
    Response,
    System,
    Text,
    Thinking,
    ToolCall,
    User,
)
from turnscript.core.events import MessageEnd, unfold

SAID = [System(content=[Text(text="Be short.")]), User(content=[Text(text="Hi")])]
ASKED = Request(conversation=Conversation(items=SAID))


def collected(work: Callable[[], object]) -> int:
    """How many objects the collector finds after some work, done for the second time, among those made meanwhile."""
    work()
    gc.collect(1)  # not a whole pass: what earlier tests hold, which is much, is looked at each time
    gc.disable()
    try:
        work()
        return gc.collect(0)
    finally:
        gc.enable()


class Ring:
    """What only the collector finds."""

    def __init__(self) -> None:
        self.ring = self


def test_what_is_counted_is_what_the_collector_finds() -> None:
    held: list[Ring] = []
    assert 0 == collected(lambda: held.append(Ring()))
    assert collected(Ring) > 0


def answer() -> Response:
    """A thought, a text and a call."""
    said = Assistant(content=[Text(text="Hello")])
    thought = Thinking(content=[Text(text="So")])
    return Response(items=[thought, said, ToolCall(id="call_1", name="f", arguments="{}")], finish_reason="tool_calls")


@pytest.mark.parametrize("name", ts.formats())
@pytest.mark.parametrize("text", ["Hello", "Hello\n\nUser: and so on", "<tool_call>\n{", ""])
def test_a_parser_that_is_closed_holds_nothing(name: str, text: str) -> None:
    prompt = ts.get_format(name).prompt(ASKED)

    def read() -> None:
        parser = prompt.parser()
        for letter in text:
            parser.feed(letter)
        ended = parser.ended
        assert isinstance(parser.close("stop")[-1], MessageEnd)
        assert parser.ended == ended

    assert 0 == collected(read)


@pytest.mark.parametrize("to", ts.apis())
@pytest.mark.parametrize("name", ts.apis())
def test_a_request_that_is_converted_holds_nothing(name: str, to: str) -> None:
    said = ASKED if name == "openai-completions" else Request(conversation=Conversation(items=[*SAID, *answer().items]))
    body = ts.render(said, name).data
    assert 0 == collected(lambda: ts.convert(body, name, to).data)


@pytest.mark.parametrize("name", ts.apis())
def test_an_answer_that_is_written_holds_nothing(name: str) -> None:
    api = ts.get_api(name)
    assert 0 == collected(lambda: api.render_response(answer(), ASKED))


@pytest.mark.parametrize("name", ts.apis())
def test_a_stream_that_is_written_holds_nothing(name: str) -> None:
    api = ts.get_api(name)

    def write() -> None:
        renderer = api.stream_renderer(ASKED)
        assert renderer.start() + renderer.send(list(unfold(answer()))) + renderer.close()

    assert 0 == collected(write)


@pytest.mark.parametrize("name", ts.apis())
def test_a_request_that_is_read_holds_nothing(name: str) -> None:
    api = ts.get_api(name)
    body = api.render_request(ASKED).data
    assert 0 == collected(lambda: api.parse_request(body))
