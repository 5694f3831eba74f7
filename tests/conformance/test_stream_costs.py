"""What streams cost: a delta is encoded once, and reading a long stream holds its deltas and nothing else."""

from __future__ import annotations

import json
import tracemalloc
from collections.abc import Callable, Iterable
from contextlib import suppress
from copy import deepcopy
from typing import Any

import msgspec
import pytest
from hypothesis import given

import turnscript as ts
from tests.conformance.examples import fewer
from tests.growth import assert_grows_below
from tests.strategies.events import event_lists
from turnscript.apis.shared.answers import Gathered
from turnscript.core.conversation import text_content
from turnscript.core.errors import InvalidConversation, UpstreamError
from turnscript.core.events import Event, MessageEnd, NextText, PartDelta, PartEnd, PartStart
from turnscript.core.json_text import Json
from turnscript.core.sse import HOLE, frame, template

FEWER = fewer()
KINDS = ("text", "texts", "thinking", "call", "refusal", "custom", "idless")
ODD = 'a"\\\n\r\t\x00\x1f\x7f\u2028é日😀</script> %b %'


def asked(**settings: Any) -> ts.Request:
    request = ts.Request(conversation=ts.Conversation(items=[ts.User(content=[ts.Text(text="Hi")])]))
    request.settings.model = "m"
    for name, value in settings.items():
        setattr(request.settings, name, value)
    return request


def payloads(data: bytes) -> list[bytes]:
    found = [line[6:] for line in data.split(b"\n") if line.startswith(b"data: ")]
    return [one for one in found if one != b"[DONE]"]


def answer(deltas: int, text: str = "abcd") -> list[Event]:
    whole = ts.Assistant(content=[ts.Text(text=text * deltas)])
    pieces: Iterable[Event] = [PartDelta(0, text) for _ in range(deltas)]
    return [PartStart(0, ts.Assistant()), *pieces, PartEnd(0, whole), MessageEnd("stop")]


def peak(run: Callable[[], object]) -> int:
    """The most bytes that were allocated at a time; a second run, because the first one fills caches."""
    run()
    tracemalloc.start()
    try:
        run()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("text", [ODD, "", "x" * 10_000])
@pytest.mark.parametrize("event", ["", "a.delta"])
def test_a_template_with_its_holes_filled_is_the_event_that_would_be_framed(event: str, text: str) -> None:
    def payload(number: Any, said: Any) -> dict[str, Any]:
        return {"type": ODD, "number": number, "inner": [{"id": ODD, "text": said}], "last": None}

    written = template(payload(HOLE, HOLE), event) % (b"7", msgspec.json.encode(text))
    assert frame(msgspec.json.encode(payload(7, text)), event) == written


@FEWER
@given(told=event_lists(KINDS))
def test_every_payload_is_what_encoding_it_whole_would_give(api_name: str, told: list[Event]) -> None:
    renderer = ts.get_api(api_name).stream_renderer(asked(reasoning_summary="auto"))
    for body in payloads(renderer.send(told) + renderer.close()):
        if b'"functionCall"' not in body:  # whose arguments are JSON as the model wrote it
            assert msgspec.json.encode(json.loads(body)) == body


@FEWER
@given(told=event_lists(KINDS))
def test_events_told_one_by_one_make_the_stream_of_all_at_once(api_name: str, told: list[Event]) -> None:
    # Only what is known at its beginning can make a stream differ: its id and its model.
    end = told[-1]
    assert isinstance(end, MessageEnd)
    end.id = end.model = None
    api = ts.get_api(api_name)
    whole, single = api.stream_renderer(asked()), api.stream_renderer(asked())
    expected = whole.send(deepcopy(told)) + whole.close()
    assert expected == b"".join([single.send([event]) for event in told]) + single.close()
    assert whole.losses == single.losses


def test_a_delta_of_odd_characters_arrives_as_it_was_told(api_name: str) -> None:
    api = ts.get_api(api_name)
    renderer = api.stream_renderer(asked(model=ODD))
    parser = api.stream_parser()
    events = parser.feed(b"".join([renderer.send([event]) for event in answer(3, ODD)]) + renderer.close())
    events += parser.close()
    assert [ODD] * 3 == [event.text for event in events if isinstance(event, PartDelta)]
    assert ODD == parser.head().model


def test_deltas_that_come_behind_an_error_or_an_end_are_not_sent(api_name: str) -> None:
    events = answer(3)
    failed = ts.get_api(api_name).stream_renderer(asked())
    failed.send(events[:2])
    failed.fail(UpstreamError("the backend is gone"))
    ended = ts.get_api(api_name).stream_renderer(asked())
    ended.send(events + events)
    for renderer in (failed, ended):
        assert b"" == renderer.send(events[1:3]) == renderer.send(events)


@pytest.mark.parametrize("whole", [ts.Assistant(content=[ts.Text(text="abcd")]), None], ids=["whole", "none"])
def test_a_delta_behind_the_end_of_its_part_is_not_sent(api_name: str, whole: ts.Item | None) -> None:
    renderer = ts.get_api(api_name).stream_renderer(asked())
    renderer.send([*answer(1)[:2], PartEnd(0, whole)])
    written = b""
    with suppress(InvalidConversation):
        written = renderer.send([PartDelta(0, "late")])
    assert b"late" not in written + renderer.send([MessageEnd("stop")]) + renderer.close()


def test_a_delta_of_a_part_that_nobody_began_changes_nothing(api_name: str) -> None:
    """An API may refuse it. What was to be sent before it is sent first, and what comes behind it as if it was not."""
    begun, delta, ended, end = answer(1)
    call: list[Event] = [PartStart(1, ts.ToolCall(name="f", id="c")), PartEnd(1, ts.ToolCall(name="f", id="c"))]
    told = [begun, delta, call[0], delta, call[1], ended, end]
    plain = ts.get_api(api_name).stream_renderer(asked())
    expected = plain.send(told) + plain.close()
    for at in range(len(told) + 1):
        renderer = ts.get_api(api_name).stream_renderer(asked())
        written = b""
        with suppress(InvalidConversation):
            written = renderer.send([*told[:at], PartDelta(7, "stray")])
        written += b"".join([renderer.send([event]) for event in told[at:]])
        assert expected == written + renderer.close()


def test_the_arguments_of_a_call_inside_a_text_are_no_text(api_name: str) -> None:
    api = ts.get_api(api_name)
    renderer = api.stream_renderer(asked())
    call = ts.ToolCall(name="f", arguments='{"a":1}', id="call_1")
    between: list[Event] = [PartStart(1, ts.ToolCall(name="f", id="call_1", arguments="")), PartDelta(1, '{"a":1}')]
    told: list[Event] = [*answer(1)[:2], *between, PartEnd(1, call), *answer(1)[2:]]
    parser = api.stream_parser()
    items = ts.fold(parser.feed(renderer.send(told) + renderer.close()) + parser.close()).items
    assert ["abcd"] == [text_content(item.content) for item in items if isinstance(item, ts.Assistant)]


def test_an_empty_delta_says_nothing(api_name: str) -> None:
    api = ts.get_api(api_name)
    empty: list[Event] = [PartDelta(0, "")]
    events = answer(2)
    one, other = api.stream_renderer(asked()), api.stream_renderer(asked())
    written = [one.send(part) for part in (events[:1], empty, events[1:2], empty, events[2:])]
    assert (b"", b"") == (written[1], written[3])
    assert other.send(events) == b"".join(written)


@pytest.mark.parametrize("text", ["b", ""])
def test_an_answer_of_many_texts_costs_no_more_than_their_number(api_name: str, text: str) -> None:
    """A small model may repeat the line between two texts up to its limit."""

    def work(count: int) -> Callable[[], object]:
        said = ["a", *[text] * count]
        told: list[Event] = [PartStart(0, ts.Assistant())]
        for number, one in enumerate(said):
            told += [*[NextText(0, "")] * bool(number), PartDelta(0, one)]
        told += [PartEnd(0, ts.Assistant(content=[ts.Text(text=one) for one in said])), MessageEnd("stop")]
        return lambda: ts.get_api(api_name).stream_renderer(asked()).send(told)

    assert_grows_below(8, work, 1000, 4000)


def test_reading_a_stream_holds_its_deltas_and_nothing_else(api_name: str) -> None:
    api = ts.get_api(api_name)
    deltas = 4000
    renderer = api.stream_renderer(asked())
    head = renderer.send(answer(deltas)[:1])
    sent = [head, *(renderer.send([event]) for event in answer(deltas)[1:-2])]

    def read(pieces: list[bytes]) -> None:
        parser = api.stream_parser()
        for piece in pieces:
            parser.feed(piece)

    pieces = [b"abcd" for _ in range(deltas)]
    held = peak(lambda: [piece.decode() for piece in pieces])
    assert peak(lambda: read(sent)) - held < 16_000
    blocks = [b"".join(sent[start : start + 20]) for start in range(0, len(sent), 20)]
    assert peak(lambda: read(blocks)) - held < 48_000


@pytest.mark.parametrize("value", ["5", "null", "true"])
def test_a_member_that_every_chunk_repeats_is_held_once(value: str) -> None:
    def gather(count: int) -> Gathered:
        gathered = Gathered()
        for _ in range(count):
            gathered.add([("member", Json(value.encode()))])
        return gathered

    assert peak(lambda: gather(10_000)) < peak(lambda: gather(10)) + 1000
    assert {"member": Json(value.encode())} == gather(3).joined()


@pytest.mark.parametrize(
    ("pieces", "expected"),
    [
        (["null", "[1]", "null", "[2]"], "[1,2]"),
        (["[1]", "5", "[2]"], "[2]"),
        (["5", "null"], "5"),
        (["5", "[1]", "[2]"], "[2]"),
        (['{"a":1}', "null", '{"b":2}'], '{"a":1,"b":2}'),
        (['"a"', '"b"'], '"b"'),
        (["null", "null"], "null"),
    ],
)
def test_pieces_of_a_member_are_joined_as_before_whatever_stands_between(pieces: list[str], expected: str) -> None:
    gathered = Gathered()
    for piece in pieces:
        gathered.add([("member", Json(piece.encode()))])
    assert {"member": Json(expected.encode())} == gathered.joined()


def test_texts_without_a_name_grow_only_where_they_are_pieces() -> None:
    pieces, repeated = Gathered(texts=True), Gathered()
    for gathered in (pieces, repeated):
        for piece in (b'"a"', b"null", b'"b"'):
            gathered.add([("member", Json(piece))])
    assert {"member": Json(b'"ab"')} == pieces.joined()
    assert {"member": Json(b'"b"')} == repeated.joined()
