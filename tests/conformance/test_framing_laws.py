"""Owns the laws of framings: however a stream stands on the wire, it tells the same, cut or damaged or not."""

import json
from contextlib import suppress
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

import turnscript as ts
from tests.conformance.examples import fewer
from tests.conformance.test_stream_laws import asked, said
from tests.strategies import events as strategies
from turnscript.convert.recording import BROKEN, Recording, Retelling, read_recording
from turnscript.convert.registry import is_stream
from turnscript.core.errors import UpstreamError
from turnscript.core.events import Event
from turnscript.core.json_text import Json
from turnscript.core.sse import LIMIT
from turnscript.core.unread_stream import BEHIND, STRAY

FEWER = fewer()
WAYS = [(name, wish) for name in ts.apis() for wish in ts.get_api(name).framings]
WAY = pytest.mark.parametrize(("name", "wish"), WAYS, ids=[f"{name}-{wish.decode()}" for name, wish in WAYS])
HELLO = strategies.told(
    ts.Response(items=[ts.Assistant(content=[ts.Text(text='He"llo, {wor}[ld] \\ö')])], finish_reason="stop"),
    strategies.in_pieces(2),
)


def wished(name: str, wish: bytes) -> ts.Request:
    """A request that asks for a stream so framed."""
    request = asked()
    ts.get_api(name).read_options({"stream": Json(wish)}, request)
    return request


def told(name: str, wish: bytes, events: list[Event]) -> bytes:
    """The whole stream of some events, so framed."""
    renderer = ts.get_api(name).stream_renderer(wished(name, wish))
    assert renderer.framing is ts.get_api(name).framings[wish]
    return renderer.start() + renderer.send(events[:1]) + renderer.idle() + renderer.send(events[1:]) + renderer.close()


def parsed(name: str, pieces: list[bytes]) -> ts.Response:
    """What a stream in pieces tells."""
    parser = ts.get_api(name).stream_parser()
    return ts.fold([event for piece in pieces for event in parser.feed(piece)] + parser.close())


def read(data: bytes, name: str | None = None, size: int = 1 << 16) -> tuple[ts.Response | None, Recording]:
    """What a recording tells, in pieces of that size."""
    recording = Recording(None if name is None else ts.get_api(name))
    return read_recording([data[at : at + size] for at in range(0, len(data), size)], recording), recording


@WAY
@FEWER
@given(events=strategies.event_lists(), data=st.data())
def test_it_tells_the_same_in_any_pieces_and_any_framing(
    name: str, wish: bytes, events: list[Event], data: st.DataObject
) -> None:
    written = told(name, wish, events)
    whole = parsed(name, [written])
    assert said(whole) == said(parsed(name, [told(name, next(iter(ts.get_api(name).framings)), events)]))
    cuts = [0, *sorted(data.draw(st.lists(st.integers(0, len(written)), max_size=6))), len(written)]
    assert whole == parsed(name, [written[start:end] for start, end in pairwise(cuts)])


@WAY
@pytest.mark.parametrize("size", [1, 7, 1 << 16])
@pytest.mark.parametrize("mark", [b"", b"\xef\xbb\xbf", b"\n \n"], ids=["plain", "marked", "blank"])
def test_a_recording_of_it_is_recognised_and_retold(name: str, wish: bytes, size: int, mark: bytes) -> None:
    data = mark + told(name, wish, HELLO)
    assert is_stream(data)
    response, recording = read(data, size=size)
    assert (None, ts.get_api(name)) == (recording.error, recording.api)
    assert response is not None
    assert said(parsed(name, [data])) == said(response) == said(ts.parse_response(data))
    for other in ts.apis():
        retelling = Retelling(Recording(), asked(), ts.get_api(other))
        again = b"".join([retelling.feed(data[:40]), retelling.feed(data[40:]), retelling.close()])
        assert said(response)[0] == said(ts.parse_response(again, other))[0]


@WAY
def test_cut_anywhere_it_keeps_what_was_told_and_says_that_it_is_cut(name: str, wish: bytes) -> None:
    data = told(name, wish, HELLO)
    everything = said(parsed(name, [data]))[0]
    for end in range(0, len(data), 13):
        response, recording = read(data[:end], name, 11)
        if response is None:
            assert recording.error is not None
            continue
        assert everything.startswith(said(response)[0])
        assert (recording.error is not None) == (BROKEN in [issue.kind for issue in response.issues])
        assert recording.error is not None or everything == said(response)[0]


@WAY
@pytest.mark.parametrize("size", [1, 1 << 16])
def test_an_error_ends_it_and_is_read_as_one(name: str, wish: bytes, size: int) -> None:
    renderer = ts.get_api(name).stream_renderer(wished(name, wish))
    data = renderer.send(HELLO[:4]) + renderer.fail(UpstreamError("the gpu is on fire", upstream=500))
    response, recording = read(data, size=size)
    assert response is not None
    assert "on fire" in str(recording.error)
    assert said(response)[0]


@WAY
def test_a_comment_is_taken_for_no_frame(name: str, wish: bytes) -> None:
    api = ts.get_api(name)
    renderer = api.stream_renderer(wished(name, wish))
    word = api.framings[wish].comment("waiting, 3 before you")
    data = word + renderer.send(HELLO[:3]) + word + renderer.send(HELLO[3:]) + renderer.close() + word
    assert parsed(name, [told(name, wish, HELLO)]) == parsed(name, [data])


@WAY
@pytest.mark.parametrize("size", [1, 50, 1 << 16])
def test_a_second_answer_behind_the_end_is_an_issue_and_not_read(name: str, wish: bytes, size: int) -> None:
    data = told(name, wish, HELLO)
    twice = parsed(name, [(data + data)[at : at + size] for at in range(0, 2 * len(data), size)])
    assert parsed(name, [data]).items == twice.items
    assert BEHIND == twice.issues[-1].kind


ARRAYS = [name for name in ts.apis() if b'"array"' in ts.get_api(name).framings]


@pytest.mark.parametrize("name", ARRAYS)
@pytest.mark.parametrize("size", [1, 1 << 16])
@pytest.mark.parametrize("stray", [b"oops", b'"a {string} \\" of it"', b"17", b"null, true"])
def test_what_is_no_element_of_an_array_is_an_issue_wherever_it_stands(name: str, stray: bytes, size: int) -> None:
    """What it was to say may be missing from the answer, and nothing else shows that."""
    data = told(name, b'"array"', HELLO)
    elements = [json.dumps(one).encode() for one in json.loads(data)]
    for at in range(len(elements) + 1):
        sent = b"[" + b", ".join([*elements[:at], stray, *elements[at:]]) + b"]"
        response = parsed(name, [sent[start : start + size] for start in range(0, len(sent), size)])
        assert parsed(name, [data]).items == response.items
        assert [STRAY] == [issue.kind for issue in response.issues if issue.kind == STRAY]
        assert stray.decode() in response.issues[-1].detail


@pytest.mark.parametrize("name", ARRAYS)
@pytest.mark.parametrize("size", [1, 1 << 16])
@pytest.mark.parametrize("broken", [b'{"a": "\xff"}', b'{"a": "' + b"x" * LIMIT], ids=["no UTF-8", "too long"])
def test_an_element_that_cannot_be_read_swallows_none_before_it(name: str, broken: bytes, size: int) -> None:
    """And whoever goes on behind it is told of it again."""
    data = ts.get_api(name).stream_renderer(wished(name, b'"array"')).send(HELLO[:-2]) + b", "
    said_before = "".join(event.text for event in HELLO if isinstance(event, ts.PartDelta))
    parser, events = ts.get_api(name).stream_parser(), list[Event]()
    pieces = [data + broken] if size > 1 else [*(data[at : at + 1] for at in range(len(data))), broken]
    with suppress(UpstreamError):
        for piece in pieces:
            events += parser.feed(piece)
    assert said_before == "".join(event.text for event in events if isinstance(event, ts.PartDelta))
    for _ in range(2):
        with pytest.raises(UpstreamError, match=r"UTF-8|bytes; the stream was given up"):
            parser.feed(b"]")
    with pytest.raises(UpstreamError):
        parser.close()


@pytest.mark.parametrize("name", ARRAYS)
def test_a_character_cut_between_two_elements_is_put_together(name: str) -> None:
    answer = ts.Response(items=[ts.Assistant(content=[ts.Text(text="aXXb")])], finish_reason="stop")
    data = told(name, b'"array"', strategies.told(answer, strategies.in_pieces(2)))
    assert b'"aX"' in data
    cut = data.replace(b'"aX"', rb'"a\ud83d"').replace(b'"Xb"', rb'"\ude00b"')
    assert "a😀b" == said(parsed(name, [cut]))[0]


@pytest.mark.parametrize(
    "body",
    [b'[{"role":"user","content":"Hi"}]', b"[]", b"[1]", b"[" * 99, b'[{"a":1},', b'[{"contents":[]}]', b"[X]", b""],
)
def test_a_list_that_no_api_streams_is_no_recording(body: bytes) -> None:
    assert not is_stream(body)
    assert not is_stream(body.decode())
