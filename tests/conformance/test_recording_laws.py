"""Owns the laws of recorded streams: each API's is recognised and read as it was told, however it was kept or cut."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import suppress
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, note
from hypothesis import strategies as st

import turnscript as ts
from tests.conformance.examples import fewer
from tests.conformance.test_stream_laws import asked, objects_only, parsed, said, stream
from tests.damage import damaged
from tests.growth import assert_grows_below
from tests.strategies import events as strategies
from tests.strategies import jsontext
from tests.strategies.answer_bodies import answer_bodies
from turnscript.convert.recording import BROKEN, Recording, Retelling, pieces_of, read_recording, stream_of
from turnscript.convert.registry import is_stream
from turnscript.core.errors import InvalidRequest, TurnscriptError, UpstreamError
from turnscript.core.events import Event, fold, unfold
from turnscript.core.unread_stream import BEHIND, DONE

FEWER = fewer()
ARCHIVES = [name for name in ts.formats() if ts.get_format(name).document.metadata is not None]
TOLD = ts.Response(
    items=[
        ts.Thinking(content=[ts.Text(text="hm, hm")]),
        ts.Assistant(content=[ts.Text(text="Hello there\n\nand so on")]),
        ts.ToolCall(name="f", arguments='{"a": 1.0, "b": "c"}', id="c1"),
        ts.ToolCall(name="g", arguments='{"d": {}}', id="c2"),
    ],
    finish_reason="tool_calls",
    usage=ts.Usage(9, 5),
)
KEPT: dict[str, Callable[[bytes], bytes]] = {
    "as it came": lambda data: data,
    "CR LF": lambda data: data.replace(b"\n", b"\r\n"),
    "CR": lambda data: data.replace(b"\n", b"\r"),
    "a byte order mark": lambda data: b"\xef\xbb\xbf" + data,
    "comments": lambda data: b": begun\n\n" + data.replace(b"\n\n", b"\n: still here\n\n: and here\n\n"),
    "ids": lambda data: b"id: 0\nretry: 5\n\n" + data.replace(b"\n\n", b"\nid: 7\nretry: 100\n\n"),
    "empty lines": lambda data: b"\n\n" + data.replace(b"\n\n", b"\n\n\n\n"),
    "no empty line at the end": lambda data: data.rstrip(b"\n"),
    "no end of the last line but one": lambda data: data[:-1],
    "no marker at the end": lambda data: data.removesuffix(f"data: {DONE}\n\n".encode()),
    "a marker at the end": lambda data: data.removesuffix(f"data: {DONE}\n\n".encode()) + f"data: {DONE}\n\n".encode(),
    "no space behind the colon": lambda data: data.replace(b"data: ", b"data:"),
}


def whole(api_name: str, told: list[Event] | None = None) -> bytes:
    """The stream of an answer."""
    return stream(ts.get_api(api_name), strategies.told(TOLD, strategies.in_pieces(4)) if told is None else told)


def read(data: bytes, api: str = "auto", size: int = 1 << 16) -> tuple[ts.Response | None, Recording]:
    """What a recording tells, in pieces of that size."""
    recording = Recording(None if api == "auto" else ts.get_api(api))
    pieces = [data[start : start + size] for start in range(0, len(data), size)]
    return read_recording(pieces, recording), recording


def bare(response: ts.Response) -> ts.Response:
    """An answer without what a stream of events says of its text."""
    response.raw = None
    return response


@FEWER
@given(told=strategies.event_lists())
def test_a_recording_is_recognised_and_read_as_its_parser_reads_it(api_name: str, told: list[Event]) -> None:
    data = whole(api_name, told)
    expected = bare(parsed(ts.get_api(api_name), [data]))
    assert expected == ts.parse_response(data) == ts.parse_response(data.decode(), api_name)
    assert expected == ts.parse_exchange(data).response
    with pytest.raises(InvalidRequest, match="recorded stream"):
        ts.detect_api(data)


@pytest.mark.parametrize("way", KEPT)
@pytest.mark.parametrize("size", [1, 5, 1 << 16])
def test_however_it_was_kept_it_tells_the_same(api_name: str, way: str, size: int) -> None:
    response, recording = read(KEPT[way](whole(api_name)), size=size)
    assert (None, ts.get_api(api_name)) == (recording.error, recording.api)
    assert bare(parsed(ts.get_api(api_name), [whole(api_name)])) == response


@FEWER
@given(told=strategies.event_lists(cut=False))
def test_it_tells_the_same_behind_another_api_whole_and_streamed(api_name: str, told: list[Event]) -> None:
    data = whole(api_name, told)
    source = said(ts.parse_response(data))
    for other_name in ts.apis():
        note(other_name)
        converted = ts.convert(data, "auto", other_name)
        retelling = Retelling(Recording(), asked(), ts.get_api(other_name))
        streamed = b"".join([retelling.feed(data[:99]), retelling.feed(data[99:]), retelling.close()])
        assert is_stream(streamed)
        if objects_only(told) and [] == [loss for loss in converted.losses if loss.kind == "dropped"]:
            assert source == said(ts.parse_response(converted.data, other_name))
            assert source == said(ts.parse_response(streamed))
    for archive in ARCHIVES:
        assert source == said(ts.parse_response(ts.convert(data, "auto", archive).data))


@FEWER
@given(told=strategies.event_lists(cut=False))
def test_a_stream_of_an_api_loses_nothing_as_a_stream_of_the_same(api_name: str, told: list[Event]) -> None:
    data = whole(api_name, told)
    retelling = Retelling(Recording(), ts.Request(), ts.get_api(api_name))
    again = retelling.feed(data) + retelling.close()
    assert {loss.kind for loss in retelling.losses} <= {"moved", "approximated"}
    before, after = ts.parse_response(data), ts.parse_response(again)
    assert (before.id, before.model, before.finish_reason) == (after.id, after.model, after.finish_reason)
    assert (before.stop_sequence, before.usage, before.items) == (after.stop_sequence, after.usage, after.items)


@FEWER
@given(told=strategies.event_lists(), data=st.data())
def test_cut_anywhere_it_tells_what_came_before_and_that_it_is_cut(
    api_name: str, told: list[Event], data: st.DataObject
) -> None:
    written = whole(api_name, told)
    everything = said(ts.parse_response(written))
    cut = written[: data.draw(st.integers(0, len(written)))]
    response, recording = read(cut, api_name)
    again, others = read(cut, api_name, 3)
    assert (response, str(recording.error), recording.line) == (again, str(others.error), others.line)
    if response is None:
        assert recording.error is not None
        return
    texts, thoughts, calls = said(response)
    assert everything[0].startswith(texts)
    assert everything[1].startswith(thoughts)
    assert calls == everything[2][: len(calls)]
    kinds = [issue.kind for issue in response.issues]
    assert (recording.error is not None) == (BROKEN in kinds)
    if recording.error is None:
        assert everything == (texts, thoughts, calls)
    else:
        with pytest.raises(UpstreamError):
            ts.parse_response(cut, api_name)


def test_nothing_that_came_before_a_cut_is_missing(api_name: str) -> None:
    """A text is kept to its last whole event, and the part that it broke off in is open, in an archive too."""
    told = strategies.told(ts.Response(items=[TOLD.items[1]], finish_reason="stop"), strategies.in_pieces(4))
    api = ts.get_api(api_name)
    for count in range(2, len(told) - 2):
        renderer = api.stream_renderer(asked())
        response, _ = read(renderer.send(told[:count]) + b'data: {"', api_name)
        assert response is not None
        assert strategies.content_of(TOLD.items[1])[: 4 * (count - 1)] == said(response)[0]
        assert [True] == [item.open for item in response.items]
        for archive in ARCHIVES:
            kept = ts.parse_response(ts.render(response, archive).data)
            assert ([True], None) == ([item.open for item in kept.items], kept.finish_reason)


@pytest.mark.parametrize("error", [UpstreamError("the gpu is on fire", upstream=500), InvalidRequest("no such tool")])
def test_an_error_in_it_ends_it_as_the_error_of_whoever_it_is_told_to(
    api_name: str, other_name: str, error: TurnscriptError
) -> None:
    told = strategies.told(ts.Response(items=[TOLD.items[1]]), strategies.in_pieces(4))
    renderer = ts.get_api(api_name).stream_renderer(asked())
    data = renderer.send(told[:4]) + renderer.fail(error)
    _, recording = read(data)
    assert (api_name, str(error) in str(recording.error)) == (recording.api and recording.api.name, True)
    assert 0 < recording.line <= data.count(b"\n")
    assert data.split(b"\n")[recording.line - 1].startswith(b"data: ")
    retelling = Retelling(Recording(), asked(), ts.get_api(other_name))
    again = retelling.feed(data) + retelling.close()
    assert b"" == retelling.fail(error)
    with pytest.raises(UpstreamError, match=str(error)):
        ts.parse_response(again, other_name)


@pytest.mark.parametrize("error", [UpstreamError("the gpu is on fire", upstream=500)])
def test_an_error_instead_of_an_answer_is_one(api_name: str, error: TurnscriptError) -> None:
    alone = ts.get_api(api_name).stream_renderer(asked()).fail(error)
    response, recording = read(alone)
    assert (None, True) == (response, "on fire" in str(recording.error))


JUNK = [b"data: {oops", b"data: \xff", b"data: []", b"data: 5", b"nothing", b"event: x", b"data"]


@FEWER
@given(told=strategies.event_lists(), data=st.data())
def test_broken_events_anywhere_never_make_it_look_whole(api_name: str, told: list[Event], data: st.DataObject) -> None:
    frames = whole(api_name, told).split(b"\n\n")
    changed = data.draw(st.lists(st.sampled_from([*JUNK, b"again"]), max_size=3))
    for junk in changed:
        place = data.draw(st.integers(0, len(frames) - 1))
        frames.insert(place, frames[place] if junk == b"again" else junk)
    response, recording = read(b"\n\n".join(frames), api_name, data.draw(st.sampled_from([7, 1 << 16])))
    if response is None or recording.error is not None:
        assert recording.error is not None
        return
    if BEHIND in [issue.kind for issue in response.issues]:
        return
    read_at_all = parsed(ts.get_api(api_name), [b"\n\n".join(frames)])
    assert said(read_at_all) == said(response)


@pytest.mark.deep
def test_an_event_that_is_damaged_anywhere_never_makes_it_look_whole(api_name: str, other_name: str) -> None:
    """Nor does it raise, here or where the recording is told again."""
    frames = whole(api_name).split(b"\n\n")
    everything = said(TOLD)
    seen: set[object] = set()
    for at, frame in enumerate(frames):
        head, _, data = frame.partition(b"data: ")
        body = json.loads(data) if data[:1] == b"{" else {}
        kind = body.get("type") or str(sorted(body.get("choices", [{}])[0].get("delta", {})))
        if kind in seen:
            continue
        seen.add(kind)
        for _, _, changed in damaged({key: value for key, value in body.items() if key != "response"}):
            frames[at] = head + b"data: " + json.dumps(changed).encode()
            retelling = Retelling(Recording(ts.get_api(api_name)), asked(), ts.get_api(other_name))
            told = retelling.feed(b"\n\n".join(frames)) + retelling.close()
            with suppress(UpstreamError):
                assert len(said(ts.parse_response(told, other_name))[2]) <= len(everything[2])
        frames[at] = frame


def test_a_second_answer_behind_the_first_is_not_read_and_is_told(api_name: str) -> None:
    data = whole(api_name)
    response, recording = read(data + data)
    assert response is not None
    assert said(TOLD)[0] == said(response)[0] or recording.error is None
    assert [BEHIND] == [issue.kind for issue in response.issues]
    assert "behind the end" in ts.convert(data + data, "auto", api_name).losses[0].detail
    garbage = ts.parse_response(data + b"data: \xff\n\n")
    assert [BEHIND] == [issue.kind for issue in garbage.issues]


def test_a_stream_of_nobody_is_refused() -> None:
    for data in (b'data: {"a": 1}\n\n', b": nothing\n\n", b"data: [DONE]\n\n", b"event: x\ndata: {\n\n", b"data: 1"):
        with pytest.raises(InvalidRequest, match="which API this stream is of"):
            ts.parse_response(data)
    with pytest.raises(UpstreamError, match="no gpu"):  # the only event, and it has no end
        ts.parse_response('data: {"error": {"message": "no gpu"}}')
    with pytest.raises(InvalidRequest, match="is an answer"):
        ts.convert(whole("openai-chat"), "auto", "openai-chat", side="request")


def test_what_nobody_claims_is_not_kept_for_ever() -> None:
    recording = Recording()
    event = b'data: {"a": "%b"}\n\n' % (b"x" * 100_000)
    fed = (recording.feed(event) for _ in range(1000))
    with pytest.raises(InvalidRequest):
        list(fed)


def test_the_first_event_that_an_api_claims_counts(api_name: str) -> None:
    """Servers send events of their own before an answer."""
    data = b'data: {"queue": 3}\n\n' + whole(api_name)
    recording = Recording()
    for piece in pieces_of(data.decode()):
        recording.feed(piece)
    assert ts.get_api(api_name) == recording.api


# Whole answers as streams.


@FEWER
@given(response=strategies.responses(("text", "thinking", "call", "refusal", "custom", "idless")))
def test_an_answer_is_what_its_events_tell(response: ts.Response) -> None:
    assert bare(fold(unfold(response))) == bare(response)


@FEWER
@given(data=st.data())
def test_a_whole_answer_and_its_stream_tell_the_same(api_name: str, data: st.DataObject) -> None:
    body = jsontext.dumps(data.draw(answer_bodies(api_name)))
    response = ts.parse_response(body, api_name)
    written, losses = stream_of(response, ts.Request(), ts.get_api(api_name))
    again = ts.parse_response(written, api_name)
    assert ts.get_api(api_name).origin == again.origin
    if {loss.kind for loss in losses} <= {"renamed", "invented"}:
        assert said(named(response)) == said(named(again))


def named(response: ts.Response) -> ts.Response:
    """The parts that every API has a name for."""
    kinds = (ts.Assistant, ts.Thinking, ts.ToolCall)
    return ts.Response(items=[item for item in response.items if isinstance(item, kinds)])


@pytest.mark.deep
@pytest.mark.parametrize("size", [1 << 16, 100])
def test_reading_takes_time_in_proportion(api_name: str, size: int) -> None:
    def work(count: int) -> Callable[[], object]:
        response = ts.Response(items=[ts.Assistant(content=[ts.Text(text="abcd efg\n" * count)])], finish_reason="stop")
        data = whole(api_name, strategies.told(response, strategies.in_pieces(9)))
        return lambda: read(data, size=size)

    assert_grows_below(8, work, 500, 2000)


@pytest.mark.deep
@pytest.mark.parametrize("size", [1 << 16, 100])
def test_one_long_event_takes_time_in_proportion(api_name: str, size: int) -> None:
    def work(count: int) -> Callable[[], object]:
        response = ts.Response(items=[ts.Assistant(content=[ts.Text(text="abcd efgh" * count)])], finish_reason="stop")
        data = whole(api_name, unfold(response))
        return lambda: read(data, size=size)

    assert_grows_below(8, work, 50_000, 200_000)


def test_members_of_the_first_event_are_named_for_who_must_say_the_api() -> None:
    body: dict[str, Any] = {"content": "x", "stop": False}
    with pytest.raises(InvalidRequest, match="its first event has 'content', 'stop'"):
        ts.parse_response(b"data: %b\n\n" % json.dumps(body).encode())


def test_cuts_make_no_difference(api_name: str) -> None:
    data = whole(api_name)
    expected = read(data)[0]
    for cut in pairwise(range(0, len(data), 41)):
        recording = Recording()
        assert expected == read_recording([data[: cut[0]], data[cut[0] : cut[1]], data[cut[1] :]], recording)
