"""Owns the laws of calls in streams: arguments are told as they come, and the end says whether a call is whole."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import turnscript as ts
from tests.conformance.examples import fewer
from tests.strategies import jsontext
from tests.strategies.events import NAMES, cut_anywhere, event_lists, head_of
from turnscript.apis.api import Api, Calls, Reply
from turnscript.core.events import Event, MessageEnd, PartDelta, PartEnd, PartStart
from turnscript.core.json_spelling import in_one_spelling
from turnscript.core.json_text import Beginning, is_object

FEWER = fewer()
CHATS = [name for name in ts.apis() if ts.get_api(name).endpoint != "/v1/completions"]
REASONS = ["length", "content_filter", "stop", "tool_calls", "model_context_window_exceeded", "odd", None]
CUT = {"length", "content_filter", "model_context_window_exceeded", "odd"}
ODD = '{"path": "a\\u00e9\\ud83d\\ude00.py", "lines": [1, -2.5e3, {"é": null}], "text": "x\\n\\"y\\"", "on": true}'


def asked() -> ts.Request:
    request = ts.Request(conversation=ts.Conversation(items=[ts.User(content=[ts.Text(text="Hi")])]))
    request.settings.model, request.settings.stream = "m", True
    return request


def read(api: Api, data: bytes) -> ts.Response:
    parser = api.stream_parser()
    return ts.fold([*parser.feed(data), *parser.close()])


def call_of(arguments: str, **more: Any) -> ts.ToolCall:
    return ts.ToolCall(name="write", arguments=arguments, id="call_1", **more)


def test_white_space_in_a_piece_of_its_own_keeps_no_arguments_back() -> None:
    api, call = ts.get_api("anthropic-messages"), call_of(' {"a":true}')
    renderer, parser = api.stream_renderer(asked()), api.stream_parser()
    events: list[Event] = []
    for event in (PartStart(0, head_of(call)), PartDelta(0, " "), PartDelta(0, '{"a":true}')):
        events += parser.feed(renderer.send([event]))
    assert call.arguments == "".join([event.text for event in events if isinstance(event, PartDelta)])


@pytest.mark.parametrize("name", CHATS)
@FEWER
@given(arguments=jsontext.argument_objects(), tool=st.sampled_from(NAMES), data=st.data())
def test_what_was_told_of_arguments_is_told_to_the_client_at_once(
    name: str, arguments: str, tool: str, data: st.DataObject
) -> None:
    """Where an input is an object, half a number, word or escape waits, and white space before all of it."""
    api = ts.get_api(name)
    renderer, parser = api.stream_renderer(asked()), api.stream_parser()
    call = ts.ToolCall(name=tool, arguments=arguments, id="call_1")
    events = parser.feed(renderer.send([PartStart(0, head_of(call))]))
    told, beginning, given_ = "", Beginning(), ""
    for piece in cut_anywhere(data.draw, arguments):
        events += parser.feed(renderer.send([PartDelta(0, piece)]))
        told += piece
        given_ += beginning.take(piece)
        expected = (given_ if given_.strip() else "") if name == "anthropic-messages" else told
        expected = "" if name == "gemini" else expected  # whose calls come whole
        assert expected == "".join([event.text for event in events if isinstance(event, PartDelta)])
    events += parser.feed(renderer.send([PartEnd(0, call), MessageEnd("tool_calls")]) + renderer.close())
    response = ts.fold(events + parser.close())
    (item,) = response.items
    assert isinstance(item, ts.ToolCall)
    spelled = in_one_spelling(arguments) if name == "gemini" else arguments
    assert (tool, spelled, "tool_calls") == (item.name, item.arguments, response.finish_reason)


@pytest.mark.parametrize("name", CHATS)
@pytest.mark.parametrize("reason", REASONS)
def test_with_a_cut_at_every_character_the_end_says_so(name: str, reason: str | None) -> None:
    """In a stream and in the whole answer that it folds to, which say the same."""
    api = ts.get_api(name)
    for at in range(len(ODD)):
        begun = [PartDelta(0, piece) for piece in (ODD[: at // 2], ODD[at // 2 : at]) if piece]
        events: list[Event] = [PartStart(0, call_of("")), *begun, PartEnd(0, None), MessageEnd(reason)]
        renderer = api.stream_renderer(asked())
        streamed = read(api, renderer.send(events) + renderer.close())
        whole = api.parse_response(api.render_response(ts.fold(events), asked()).data)
        for answer in (streamed, whole):
            assert [] == [item for item in answer.items if isinstance(item, ts.ToolCall)]
            assert answer.finish_reason in CUT or (name == "anthropic-messages" and not at)
        assert streamed.finish_reason == whole.finish_reason
        assert (streamed.cut is None) == (whole.cut is None)
        if streamed.cut is not None:
            assert ODD[:at].startswith(streamed.cut.arguments)
            assert ("write", "call_1") == (streamed.cut.name, streamed.cut.id)


@pytest.mark.parametrize("name", CHATS)
@pytest.mark.parametrize("behind", ["text", "call"])
def test_what_turned_out_to_be_no_call_makes_that_the_answer_is_not_whole(name: str, behind: str) -> None:
    """The client has its beginning, which cannot be taken back."""
    text = ts.Assistant(content=[ts.Text(text='<call>{"a": oops</call>')])
    part = text if behind == "text" else ts.ToolCall(name="f", arguments="{}", id="call_2")
    events: list[Event] = [PartStart(0, call_of("")), PartDelta(0, '{"a": '), PartEnd(0, None)]
    events += [PartStart(1, part), PartEnd(1, part), MessageEnd("tool_calls")]
    api = ts.get_api(name)
    renderer = api.stream_renderer(asked())
    answer = read(api, renderer.send(events) + renderer.close())
    assert "length" == answer.finish_reason
    assert {("items[0]", "approximated"), ("$.finish_reason", "approximated")} <= {
        (loss.path, loss.kind) for loss in renderer.losses
    }


def test_an_input_never_stops_being_json_while_it_comes() -> None:
    """An SDK may raise where it does. What was sent of it is told as cut off."""
    api = ts.get_api("anthropic-messages")
    for broken in ('{"a": oops}', '{"a": 01}', '{"a": "x\ny"}', '{"a": "\\x"}', '{"a" 1}', '{"a": 1,}', '{"a": 1} {'):
        renderer = api.stream_renderer(asked())
        call = call_of(broken)
        events: list[Event] = [PartStart(0, call_of("")), *(PartDelta(0, one) for one in broken), PartEnd(0, call)]
        data = renderer.send([*events, MessageEnd("tool_calls")]) + renderer.close()
        told = "".join([event.text for event in api.stream_parser().feed(data) if isinstance(event, PartDelta)])
        assert broken.startswith(told)
        assert told == Beginning().take(told) != ""
        assert "length" == read(api, data).finish_reason


@pytest.mark.parametrize("arguments", ["[1, 2]", '"free"', "free", "  "])
def test_arguments_that_do_not_begin_like_an_object_wait_until_they_can_be_wrapped(arguments: str) -> None:
    api = ts.get_api("anthropic-messages")
    renderer = api.stream_renderer(asked())
    begun = renderer.send([PartStart(0, call_of(""))])
    assert b"" == renderer.send([PartDelta(0, arguments)])
    data = begun + renderer.send([PartEnd(0, call_of(arguments)), MessageEnd("tool_calls")])
    (item,) = read(api, data).items
    assert isinstance(item, ts.ToolCall)
    assert is_object(item.arguments)


# Calls told when they are complete.


@pytest.mark.parametrize("name", CHATS)
@pytest.mark.parametrize("how", [{"calls": "whole"}, {"reply": Reply(calls="whole")}])
def test_the_deltas_of_a_call_leave_no_trace_where_its_whole_is_told(name: str, how: dict[str, Any]) -> None:
    """Not even half of a surrogate pair does, wherever it stands in the batch."""
    api, call = ts.get_api(name), call_of('{"a":1}')
    begun: list[Event] = [PartStart(0, call_of(""))]
    deltas: list[Event] = [PartDelta(0, '{"a'), PartDelta(0, "\ud83d"), PartDelta(0, "\ude00")]
    ended: list[Event] = [PartEnd(0, call), MessageEnd("tool_calls")]
    silent, batch, single = (api.stream_renderer(asked(), **how) for _ in range(3))
    expected = silent.send(begun) + silent.send(ended) + silent.close()
    assert expected == batch.send([*begun, *deltas, *ended]) + batch.close()
    first = single.send(begun)
    assert b"" == b"".join([single.send([one]) for one in deltas])
    assert expected == first + single.send(ended) + single.close()


@pytest.mark.parametrize("name", CHATS)
@FEWER
@given(told=event_lists())
def test_an_answer_with_whole_calls_says_the_same_and_nothing_of_a_call_that_was_cut_off(
    name: str, told: list[Event]
) -> None:
    api = ts.get_api(name)
    found: list[ts.Response] = []
    ways: tuple[Calls, ...] = ("live", "whole")
    for calls in ways:
        renderer = api.stream_renderer(asked(), calls=calls)
        data = renderer.send(told) + renderer.close()
        assert calls == "live" or b"call_cut" not in data
        found.append(read(api, data))
    live, whole = found
    blank = [ts.Assistant(content=[ts.Text(text="")])]  # stands for an answer of which nothing else is told
    assert [type(item) for item in live.items or whole.items] == [type(item) for item in whole.items]
    assert live.items or whole.items in ([], blank)
    assert live.finish_reason == whole.finish_reason
    body = api.render_response(ts.fold(told), asked(), reply=Reply(calls="whole")).data
    assert b"call_cut" not in body
