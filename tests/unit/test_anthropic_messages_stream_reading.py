"""Owns the laws of reading Messages streams: nothing is lost, nothing broken passes for whole, and nothing hangs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.growth import assert_grows_below
from tests.messages import API, STOP, WHOLE, block, call, end, read, start, stream, text, written
from turnscript.core.conversation import Assistant, Opaque, Text, Thinking, ToolCall, Usage
from turnscript.core.errors import UpstreamError
from turnscript.core.events import MessageEnd, PartDelta, PartEnd, PartStart, fold
from turnscript.core.json_text import json_of


def test_a_stream_of_anthropics_own_servers_is_read_whole() -> None:
    data = b": hello\n\n" + stream(
        start(
            usage={"input_tokens": 5, "cache_read_input_tokens": 100, "output_tokens": 1, "service_tier": "standard"}
        ),
        *block(
            0,
            {"type": "thinking", "thinking": "", "signature": ""},
            {"type": "thinking_delta", "thinking": "h", "estimated_tokens": 1},
            {"type": "thinking_delta", "thinking": "m"},
            {"type": "signature_delta", "signature": "sig"},
        ),
        {"type": "ping"},
        *block(1, {"type": "redacted_thinking", "data": "xx"}),
        *block(
            2,
            {"type": "text", "text": "", "citations": []},
            {"type": "text_delta", "text": "a"},
            {"type": "citations_delta", "citation": {"type": "new", "n": 1.0}},
        ),
        *call(3, "", '{"n": 11529215046068469', '77, "f": 1.0}'),
        *block(
            4,
            {"type": "server_tool_use", "id": "s", "name": "web_search", "input": {}},
            {"type": "input_json_delta", "partial_json": '{"query": "q"}'},
        ),
        *block(5, {"type": "new_block", "n": 1}),
        {
            "type": "message_delta",
            "delta": {"stop_reason": "tool_use", "container": None},
            "usage": {"output_tokens": 7},
        },
        STOP,
    )
    events = read(data)
    assert ["h", "m", "a", '{"n": 11529215046068469', '77, "f": 1.0}'] == [
        event.text for event in events if isinstance(event, PartDelta)
    ]
    response = fold(events)
    search = msgspec.Raw(b'{"type": "server_tool_use", "id": "s", "name": "web_search", "input": {"query": "q"}}')
    assert [
        Thinking(content=[Text(text="hm")], signature="sig"),
        Thinking(redacted="xx"),
        Assistant(content=[Text(text="a", extra={"citations": msgspec.Raw(b'[{"type":"new","n":1.0}]')})]),
        ToolCall(name="f", id="toolu_3", arguments='{"n": 1152921504606846977, "f": 1.0}'),
        Opaque(type="server_tool_use", value=search, role="assistant"),
        Opaque(type="new_block", value=msgspec.Raw(b'{"type":"new_block","n":1}'), role="assistant"),
    ] == response.items
    assert ("tool_calls", Usage(105, 7, 100), "msg_1", "m") == (
        response.finish_reason,
        response.usage,
        response.id,
        response.model,
    )
    tier = msgspec.Raw(b'{"service_tier":"standard"}')
    assert {"usage": tier} == response.extra
    assert [] == response.issues


def test_what_the_stream_says_of_itself_is_known_at_once() -> None:
    parser = API.stream_parser()
    parser.feed(stream(start()))
    head = parser.head()
    assert ("msg_1", "m", Usage(3, 1)) == (head.id, head.model, head.usage)


def test_parts_start_without_content_and_end_with_it() -> None:
    events = read(WHOLE)
    assert [
        PartStart(0, Assistant(), origin="anthropic"),
        PartDelta(0, "Hé"),
        PartDelta(0, "llo"),
        PartEnd(0, Assistant(content=[Text(text="Héllo")]), origin="anthropic"),
        PartStart(1, ToolCall(name="f", id="toolu_1", arguments=""), origin="anthropic"),
        PartDelta(1, '{"a"'),
        PartDelta(1, ": 1.0}"),
        PartEnd(1, ToolCall(name="f", id="toolu_1", arguments='{"a": 1.0}'), origin="anthropic"),
    ] == events[:-1]


def test_a_stream_folds_to_the_whole_response() -> None:
    blocks: list[dict[str, Any]] = [
        {"type": "text", "text": "a"},
        {"type": "text", "text": "b"},
        {"type": "tool_use", "id": "toolu_1", "name": "f", "input": {"a": 1}},
    ]
    whole = API.parse_response({**start()["message"], "content": blocks, "stop_reason": "tool_use"})
    data = stream(start(), *text(0, "a"), *text(1, "b"), *call(1 + 1, '{"a": 1}'), *end("tool_use"))
    assert whole.items[:2] == fold(read(data)).items[:2]
    assert (whole.finish_reason, whole.id, whole.extra) == ("tool_calls", fold(read(data)).id, fold(read(data)).extra)


CALL = {"type": "tool_use", "id": "c", "name": "f"}


@pytest.mark.parametrize("pieces", [(), ("",), ("{}",), ("{", "}")])
def test_a_call_without_arguments_is_valid(pieces: tuple[str, ...]) -> None:
    response = fold(read(stream(start(), *call(0, *pieces), *end("tool_use"))))
    assert ([ToolCall(name="f", id="toolu_0", arguments="{}")], []) == (response.items, response.issues)


def test_arguments_may_stand_in_the_start_or_the_member_be_missing() -> None:
    given_whole = block(0, {"type": "tool_use", "id": "c", "name": "f", "input": {"a": 1.0}})
    without = block(1, {"type": "tool_use", "id": "d", "name": "f"})
    items = fold(read(stream(start(), *given_whole, *without, *end("tool_use")))).items
    assert [ToolCall(name="f", id="c", arguments='{"a": 1.0}'), ToolCall(name="f", id="d")] == items
    for opening, arguments, issues in ((None, "{}", []), ([1], "[1]", ["invalid_json"])):
        odd = fold(read(stream(start(), *block(0, {**CALL, "input": opening}), *end("tool_use"))))
        assert ([ToolCall(name="f", id="c", arguments=arguments)], issues) == (
            odd.items,
            [one.kind for one in odd.issues],
        )


@pytest.mark.parametrize("said", ['{"a":"tru', '{"a":1}{"b":2}', "{a:1}", "[1]", "ls", '{"a":"\\ud800"}'])
def test_arguments_that_are_no_object_are_kept_and_noted(said: str) -> None:
    response = fold(read(stream(start(), *call(0, said), *text(1, "x"), *end("tool_use"))))
    assert ToolCall(name="f", id="toolu_0", arguments=said) == response.items[0]
    assert ["invalid_json"] == [issue.kind for issue in response.issues]
    assert response.items == fold(read(stream(start(), *call(0, said), *text(1, "x"), *end("max_tokens")))).items


@pytest.mark.parametrize("said", ['{"a":"tru', "", "{a:1}"])
@pytest.mark.parametrize("reason", ["max_tokens", "model_context_window_exceeded", "refusal"])
def test_a_call_that_a_limit_ended_is_not_told_as_done(said: str, reason: str) -> None:
    events = read(stream(start(), *call(0, said), *end(reason)))
    assert PartEnd(0, None, origin="anthropic") in events
    response = fold(events)
    assert ([], ["cut_call"]) == (response.items, [issue.kind for issue in response.issues])
    assert said in response.issues[0].detail


def test_a_call_that_is_complete_stays_when_a_limit_follows() -> None:
    response = fold(read(stream(start(), *call(0, '{"a":1}'), *end("max_tokens"))))
    assert ([ToolCall(name="f", id="toolu_0", arguments='{"a":1}')], []) == (response.items, response.issues)


ODD = {
    "unknown_event": stream(start(), {"type": "new", "x": 1}, *text(0, "a"), *end()),
    "unknown_delta": stream(start(), *block(0, {"type": "text", "text": "a"}, {"type": "new", "x": 1}), *end()),
    "unknown_member": stream(start(), *text(0, "a")[:-1], {**text(0)[-1], "x": 1}, *end()),
    "misplaced_delta": stream(
        start(), *block(0, {"type": "text", "text": "a"}, {"type": "thinking_delta", "thinking": "b"}), *end()
    ),
    "misplaced_content": stream(start(content=[{"type": "text", "text": "b"}]), *text(0, "a"), *end()),
    "index_gap": stream(start(), *text(3, "a"), *end()),
    "missing_stop": stream(start(), *text(0, "a")[:-1], *end()),
    "missing_reason": stream(start(usage=None), *text(0, "a"), STOP),
    "no_reason": stream(start(), *text(0, "a"), *end(None)),
}


@pytest.mark.parametrize("name", ODD)
def test_what_is_odd_is_an_issue_and_the_rest_is_read(name: str) -> None:
    response = fold(read(ODD[name]))
    assert [Assistant(content=[Text(text="a")])] == response.items
    assert [name.replace("no_", "missing_")] == [issue.kind for issue in response.issues]


def test_an_empty_word_is_no_reason() -> None:
    body = {"content": [{"type": "text", "text": "a"}], "stop_reason": "", "stop_sequence": None}
    for response in (fold(read(stream(start(), *text(0, "a"), *end("")))), API.parse_response(body)):
        assert (None, ["missing_reason"]) == (response.finish_reason, [issue.kind for issue in response.issues])


def test_input_that_is_no_json_is_noted_and_members_of_deltas_too() -> None:
    opening = {"type": "server_tool_use", "id": "s", "name": "web_search", "input": {}}
    deltas: list[dict[str, Any]] = [{"type": "input_json_delta", "partial_json": one, "p": 1} for one in ('{"a', '"')]
    cited: dict[str, Any] = {"type": "citations_delta", "citation": {"n": 1}}
    response = fold(read(stream(start(), *block(0, opening, *deltas, cited), *end())))
    assert [Opaque(type="server_tool_use", value=json_of(opening), role="assistant")] == response.items
    assert ["unknown_member", "misplaced_delta", "invalid_json"] == [issue.kind for issue in response.issues]
    assert '{"a"' in response.issues[2].detail


def test_of_two_signatures_the_last_one_counts() -> None:
    deltas = [{"type": "signature_delta", "signature": one} for one in ("a", "b")]
    response = fold(
        read(stream(start(), *block(0, {"type": "thinking", "thinking": "", "signature": ""}, *deltas), *end()))
    )
    assert [Thinking(content=[Text(text="")], signature="b")] == response.items
    assert ["second_signature"] == [issue.kind for issue in response.issues]


def test_the_last_frames_may_be_missing_once_the_end_is_known() -> None:
    for data in (stream(start(), *text(0, "a"), end()[0]), stream(start(), *text(0, "a"), end()[0])[:-2]):
        response = fold(read(data))
        assert ("stop", ["missing_stop"]) == (response.finish_reason, [issue.kind for issue in response.issues])


def test_a_ping_behind_the_end_says_nothing() -> None:
    for ping in (stream({"type": "ping"}), stream({"type": "ping"})[:-1]):
        assert [] == fold(read(WHOLE + ping, ping)).issues


BROKEN = {
    "nothing": b"",
    "only comments": b": x\n\n" * 3,
    "a page": b"<html>Bad gateway</html>",
    "broken JSON": stream(start()) + b"event: content_block_start\ndata: {oops\n\n",
    "no JSON object": stream(start()) + b"data: [1]\n\n",
    "no type": stream(start()) + b"event: ping\ndata: {}\n\n",
    "no message_start": stream(*text(0, "a"), *end()),
    "another message_start": stream(start(), start(id="msg_2")),
    "message_start without message": stream({"type": "message_start"}),
    "a message that is none": stream({"type": "message_start", "message": 1}),
    "another role": stream(start(role="user")),
    "no index": stream(start(), {"type": "content_block_start", "content_block": {"type": "text", "text": ""}}),
    "an index that is no number": stream(start(), {**text(0)[0], "index": "0"}),
    "a block without a type": stream(start(), *block(0, {"text": ""}), *end()),
    "a block that is none": stream(start(), {"type": "content_block_start", "index": 0, "content_block": 1}),
    "a call without a name": stream(start(), *block(0, {"type": "tool_use", "id": "c", "input": {}}), *end()),
    "a delta before its block": stream(start(), text(0, "a")[1]),
    "a delta for another block": stream(start(), text(0)[0], text(1, "a")[1]),
    "interleaved blocks": stream(start(), text(0)[0], text(1)[0], text(0, "a")[1]),
    "a stop before its block": stream(start(), text(0)[-1]),
    "a block that begins again": stream(start(), *text(0, "a"), *text(0, "b")),
    "a delta of a wrong type": stream(
        start(), *block(0, {"type": "text", "text": ""}, {"type": "text_delta", "text": 1})
    ),
    "an error": stream(start(), {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}),
    "an error without an error": stream(start(), {"type": "error"}),
    "no end": stream(start(), *text(0, "a")),
    "an open block at the end": stream(start(), *text(0, "a")[:-1]),
    "bytes that are no UTF-8": stream(start()) + b"data: \xff\xfe\n\n",
    "nesting without end": stream(start()) + b'data: {"type":"new","x":' + b"[" * 100_000 + b"\n\n",
}


@pytest.mark.parametrize("name", BROKEN)
def test_what_cannot_be_read_is_an_error_however_it_is_cut(name: str) -> None:
    data = BROKEN[name]
    for pieces in ([data], [data[index : index + 97] for index in range(0, len(data), 97)]):
        with pytest.raises(UpstreamError) as caught:
            read(*pieces)
        assert str(caught.value)


def test_an_error_comes_after_the_events_that_were_read_before_it_and_stays() -> None:
    parser = API.stream_parser()
    error = {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}
    events = parser.feed(stream(start(), *text(0, "a"), error))
    assert [PartEnd(0, Assistant(content=[Text(text="a")]), origin="anthropic")] == events[-1:]
    with pytest.raises(UpstreamError, match="Overloaded") as caught:
        parser.feed(b"")
    assert (529, True) == (caught.value.upstream, caught.value.retryable)
    for _ in range(2):
        with pytest.raises(UpstreamError, match="Overloaded"):
            parser.close()


def test_a_server_that_answers_with_a_page_shows_in_the_error() -> None:
    with pytest.raises(UpstreamError) as caught:
        read(b"<html>Bad gateway</html>\n")
    assert "<html>Bad gateway</html>" == caught.value.body


def test_every_early_end_is_an_error() -> None:
    ending = WHOLE.index(b"event: message_delta")
    known = WHOLE.index(b"\n", WHOLE.index(b"data:", ending))
    for length in range(len(WHOLE)):
        if length < known:
            with pytest.raises(UpstreamError):
                read(WHOLE[:length])
        elif WHOLE[:length].endswith(b"}") or length == known + 1 or WHOLE[known:length].strip() == b"":
            assert "tool_calls" == fold(read(WHOLE[:length])).finish_reason


@given(garbage=st.binary(max_size=200), at=st.integers(0, len(WHOLE)))
def test_garbage_is_an_error_or_an_issue_and_never_hangs(garbage: bytes, at: int) -> None:
    try:
        events = read(WHOLE[:at] + garbage + WHOLE[at:])
    except UpstreamError:
        return
    response = fold(events)  # a character before a field's name makes it another field, which clients must ignore
    assert response.issues or response.finish_reason not in (None, "stop"), "a damaged end passed for a good one"


@given(data=st.data())
def test_frames_in_any_order_are_an_error_or_a_whole_answer(data: st.DataObject) -> None:
    payloads = [start(), *text(0, "a"), *call(1, '{"a": 1}'), *end("tool_use"), {"type": "ping"}]
    mixed = data.draw(st.lists(st.sampled_from(payloads), max_size=12))
    try:
        events = read(stream(*mixed))
    except UpstreamError:
        return
    assert isinstance(events[-1], MessageEnd)
    starts = [event.index for event in events if isinstance(event, PartStart)]
    assert starts == [event.index for event in events if isinstance(event, PartEnd)]


@settings(max_examples=20)
@given(size=st.integers(1_000_000, 1_300_000))
def test_a_line_of_a_megabyte_is_read(size: int) -> None:
    response = fold(read(stream(start(), *text(0, "x" * size), *end())))
    assert [Assistant(content=[Text(text="x" * size)])] == response.items


def test_a_line_without_an_end_is_given_up() -> None:
    parser = API.stream_parser()
    for _ in range(16):
        assert [] == parser.feed(b"x" * 1_000_000)
    with pytest.raises(UpstreamError, match="more than"):
        parser.feed(b"x" * 1_000_000)


@pytest.mark.deep
@pytest.mark.parametrize("kind", ["text", "call", "blocks"])
def test_reading_and_writing_take_time_in_proportion(kind: str) -> None:
    def work(count: int) -> Callable[[], object]:
        if kind == "text":
            payloads = text(0, *["some words "] * count)
        elif kind == "call":
            payloads = call(0, '{"a":"', *["some words "] * count, '"}')
        else:
            payloads = [one for index in range(count // 4) for one in text(index, "x")]
        data = stream(start(), *payloads, *end())
        return lambda: written(read(*[data[at : at + 4096] for at in range(0, len(data), 4096)]))

    assert_grows_below(8, work, 2_000, 8_000)
