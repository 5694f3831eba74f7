"""Owns the laws of responses and streams: what is told comes back, in any pieces, through any API; errors too."""

import json
from contextlib import suppress
from copy import deepcopy
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

import turnscript as ts
from tests.conformance.examples import fewer
from tests.strategies import events as strategies
from turnscript.apis.api import Api
from turnscript.convert.recording import stream_of
from turnscript.core.conversation import calls
from turnscript.core.errors import (
    InvalidInput,
    TurnscriptError,
    UnknownName,
    Unsupported,
    UpstreamError,
    UpstreamTimeout,
)
from turnscript.core.events import Event, MessageEnd, PartDelta, PartEnd, PartStart, unfold
from turnscript.core.json_text import Json, respell
from turnscript.core.unread_stream import BEHIND, STRAY

FEWER = fewer()
CHATS = [name for name in ts.apis() if ts.get_api(name).endpoint != "/v1/completions"]
ERRORS: list[TurnscriptError] = [
    InvalidInput("no such thing", path="$.messages[0]"),
    Unsupported("images", "this model"),
    UnknownName("model", "m", ["n"]),
    UpstreamError("the backend failed", upstream=500),
    UpstreamTimeout("the backend took too long"),
]


def asked() -> ts.Request:
    """A request that wants everything a stream can tell."""
    request = ts.Request(conversation=ts.Conversation(items=[ts.User(content=[ts.Text(text="Hi")])]))
    request.settings.model, request.settings.stream = "the-client's-word", True
    return request


def stream(api: Api, told: list[Event]) -> bytes:
    """The whole stream of some events."""
    renderer = api.stream_renderer(asked())
    return renderer.send(told) + renderer.close()


def parsed(api: Api, pieces: list[bytes]) -> ts.Response:
    """What a stream in pieces tells."""
    parser = api.stream_parser()
    return ts.fold([event for piece in pieces for event in parser.feed(piece)] + parser.close())


def said(response: ts.Response) -> tuple[str, str, list[tuple[str, str]]]:
    """All text, all thinking, all calls: what every chat API can tell."""
    texts = {"assistant": "", "thinking": ""}
    calls: list[tuple[str, str]] = []
    for item in response.items:
        if isinstance(item, ts.ToolCall):
            # Objects have no spelling in some APIs, and one has no place for blanks around them.
            spelled = respell(item.arguments) if is_object(item.arguments) else item.arguments
            calls.append((item.name, spelled.strip(" \t\r\n")))
        else:
            texts[item.kind] += strategies.content_of(item)
    return texts["assistant"], texts["thinking"], calls


def objects_only(told: list[Event]) -> bool:
    """Whether every call's arguments are a JSON object, which one of the APIs cannot do without."""
    calls = [item for item in ts.fold(told).items if isinstance(item, ts.ToolCall)]
    return all(not call.custom and not call.namespace and is_object(call.arguments) for call in calls)


def is_object(text: str) -> bool:
    """Whether a text is a JSON object as Python reads one."""
    try:
        return isinstance(json.loads(text), dict)
    except ValueError:
        return False


@pytest.mark.parametrize("name", CHATS)
@FEWER
@given(told=strategies.event_lists(), data=st.data())
def test_a_stream_tells_what_it_was_told_in_any_pieces(name: str, told: list[Event], data: st.DataObject) -> None:
    """A3, A6: render, cut anywhere, parse: the same texts, thoughts and calls."""
    api = ts.get_api(name)
    written = stream(api, told)
    whole = parsed(api, [written])
    if objects_only(told):
        assert said(ts.fold(told)) == said(whole)
    cuts = [0, *sorted(data.draw(st.lists(st.integers(0, len(written)), max_size=6))), len(written)]
    assert whole == parsed(api, [written[start:end] for start, end in pairwise(cuts)])


@pytest.mark.parametrize("name", CHATS)
@pytest.mark.parametrize("other", CHATS)
@FEWER
@given(told=strategies.event_lists())
def test_a_stream_of_one_api_becomes_a_stream_of_another(name: str, other: str, told: list[Event]) -> None:
    """A8: texts, thoughts and calls are the same behind two APIs."""
    first, second = ts.get_api(name), ts.get_api(other)
    parser = first.stream_parser()
    between = [*parser.feed(stream(first, told)), *parser.close()]
    if objects_only(told):
        assert said(ts.fold(told)) == said(parsed(second, [stream(second, between)]))


@pytest.mark.parametrize("name", CHATS)
@FEWER
@given(response=strategies.responses())
def test_a_whole_response_comes_back(name: str, response: ts.Response) -> None:
    """A2: parse(render(x)) tells what x tells."""
    api = ts.get_api(name)
    calls = [item for item in response.items if isinstance(item, ts.ToolCall)]
    if all(not call.custom and not call.namespace and is_object(call.arguments) for call in calls):
        assert said(response) == said(api.parse_response(api.render_response(response, asked()).data))


@FEWER
@given(response=strategies.responses(("text", "thinking", "call", "refusal", "idless")))
def test_a_whole_answer_is_the_fold_of_its_stream(api_name: str, response: ts.Response) -> None:
    """It says the same, and what it cannot say its stream cannot say either, but for blanks around an object."""
    api, request = ts.get_api(api_name), asked()
    for call in calls(response.items):
        call.arguments = call.arguments.strip()
    request.settings.stream_options = Json(b'{"include_usage":true}')
    writer = api.stream_renderer(request, calls="whole")
    whole = api.render_response(deepcopy(response), request)
    folded = parsed(api, [writer.send(unfold(deepcopy(response))) + writer.close()])
    told = api.parse_response(whole.data)
    if {"moved", "approximated"}.isdisjoint(loss.kind for loss in whole.losses):  # as a text behind a refusal is
        assert said(told) == said(folded)
    assert ended(told) == ended(folded)
    assert places(whole.losses) == places(writer.losses)


def ended(response: ts.Response) -> tuple[object, ...]:
    """What an answer says of its end."""
    return response.finish_reason, response.stop_sequence, response.usage


def places(losses: list[ts.Loss]) -> set[tuple[str, str]]:
    """What was lost, but for the id of an answer, which a stream says before it knows it."""
    return {(loss.path, loss.kind) for loss in losses if loss.path != "$.id"}


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
def test_every_error_has_a_status_and_a_body_in_the_apis_shape(api_name: str, error: TurnscriptError) -> None:
    """A7: what a client branches on: a status of an error, and a message under `error`."""
    status, body = ts.get_api(api_name).render_error(error)
    assert status >= 400
    assert json.loads(body)["error"]["message"]


@pytest.mark.parametrize("broken", [b"data: {oops\n\n", b'data: {"error":{"message":"gone"}}\n\n', b"data: \xff\n\n"])
def test_an_error_never_swallows_what_came_before_it(api_name: str, broken: bytes) -> None:
    """Nor does it pass: whoever goes on behind it is told of it again."""
    api = ts.get_api(api_name)
    told = strategies.told(ts.Response(items=[ts.Assistant(content=[ts.Text(text="Hello")])]), strategies.in_pieces(2))
    parser = api.stream_parser()
    events = parser.feed(api.stream_renderer(asked()).send(told[:-2]) + broken)
    assert "Hello" == "".join([event.text for event in events if isinstance(event, ts.PartDelta)])
    for again in (b"", stream(api, told)):
        with pytest.raises(UpstreamError):
            parser.feed(again)
    with pytest.raises(UpstreamError):
        parser.close()


@pytest.mark.parametrize("behind", [b"", b"data: {", b"data: \xff", b"data: []"])
@pytest.mark.parametrize("count", [0, 1, 3])
def test_a_stream_that_broke_off_stays_broken(api_name: str, count: int, behind: bytes) -> None:
    """Trying again may help where nothing was wrong but the end."""
    told = strategies.told(ts.Response(items=[ts.Assistant(content=[ts.Text(text="Hello")])]), strategies.in_pieces(2))
    parser = ts.get_api(api_name).stream_parser()
    parser.feed(ts.get_api(api_name).stream_renderer(asked()).send(told[:count]) + behind)
    with pytest.raises(UpstreamError) as first:
        parser.close()
    assert behind or first.value.retryable
    for again in (parser.close, lambda: parser.feed(stream(ts.get_api(api_name), told))):
        with pytest.raises(UpstreamError) as second:
            again()
        assert second.value is first.value


HELLO = ts.Response(items=[ts.Assistant(content=[ts.Text(text="Hello")])], finish_reason="stop")
BEHIND_THE_END: dict[str, tuple[bytes, str]] = {
    "nothing": (b"", ""),
    "a sign of life": (b": still here\n\n", ""),
    "a second mark of the end": (b"data: [DONE]\n\n", ""),
    "an event without its empty line": (b"data: {}", "1 event stands"),
    "broken JSON, twice": (b"data: {oops\n\ndata: {oops\n\n", "2 events stand"),
    "an error": (b'event: error\ndata: {"type": "error", "error": {"message": "gone"}}\n\n', "1 event stands"),
    "no UTF-8, and more": (b"data: \xff\n\ndata: {}\n\ndata: {}\n\n", "1 event stands"),
}


@pytest.mark.parametrize("size", [1, 50, 1 << 16])
@pytest.mark.parametrize("behind", BEHIND_THE_END)
def test_what_stands_behind_the_end_is_an_issue_and_not_read(api_name: str, behind: str, size: int) -> None:
    """The answer is whole, so it is no error; but nobody may take it for all that was sent."""
    api, (more, count) = ts.get_api(api_name), BEHIND_THE_END[behind]
    data = stream(api, strategies.told(HELLO, strategies.in_pieces(2)))
    response = parsed(api, [(data + more)[at : at + size] for at in range(0, len(data + more), size)])
    assert parsed(api, [data]).items == response.items
    expected = [issue.kind for issue in parsed(api, [data]).issues] + [BEHIND] * bool(count)
    assert expected == [issue.kind for issue in response.issues]
    assert response.issues[-1].detail.startswith(count) if count else True


@pytest.mark.parametrize("size", [1, 1 << 16])
@pytest.mark.parametrize("more", [b"", b"data: {}\n\n"])
@pytest.mark.parametrize(
    "line", [b"\x00\xff\xfe", b"dat: {}", b" data: {}", b'{"error": {"message": "gone"}}', b"event: error"]
)
def test_a_line_that_is_none_of_an_event_is_an_issue_wherever_it_stands(
    api_name: str, line: bytes, more: bytes, size: int
) -> None:
    """What it was to say may be missing from the answer, and nothing else shows that."""
    api = ts.get_api(api_name)
    data = stream(api, strategies.told(HELLO, strategies.in_pieces(2)))
    known = [issue.kind for issue in parsed(api, [data]).issues]
    events = data.split(b"\n\n")
    for at in range(len(events)):
        sent = b"\n\n".join([*events[:at], line, *events[at:]]) + more
        response = parsed(api, [sent[start : start + size] for start in range(0, len(sent), size)])
        assert parsed(api, [data]).items == response.items
        assert [*known, STRAY] + [BEHIND] * bool(more) == [issue.kind for issue in response.issues]
        assert line.decode(errors="replace") in response.issues[len(known)].detail


def test_a_second_answer_in_a_stream_is_an_issue_and_not_read(api_name: str) -> None:
    api = ts.get_api(api_name)
    data = stream(api, strategies.told(HELLO, strategies.in_pieces(2)))
    response = parsed(api, [data + data])
    assert parsed(api, [data]).items == response.items
    assert BEHIND == response.issues[-1].kind
    assert "the first: {" in response.issues[-1].detail


def test_what_is_copied_in_the_middle_of_a_stream_goes_its_own_way(api_name: str) -> None:
    """Or it refuses to be copied."""
    api, told = ts.get_api(api_name), strategies.told(HELLO, strategies.in_pieces(2))
    whole = stream(api, told)
    for count in range(len(told)):
        renderer = api.stream_renderer(asked())
        sent = renderer.send(told[:count])
        with suppress(TypeError):
            deepcopy(renderer).send(told[count : count + 2])
        assert sent + renderer.send(told[count:]) + renderer.close() == whole
    for cut in range(0, len(whole), 50):
        parser = api.stream_parser()
        events = parser.feed(whole[:cut])
        with suppress(TypeError):
            deepcopy(parser).feed(whole[cut : cut + 70])
        assert ts.fold([*events, *parser.feed(whole[cut:]), *parser.close()]) == parsed(api, [whole])


@pytest.mark.parametrize("kind", ["call", "text", "said"])
def test_a_part_that_came_to_nothing_is_reported(api_name: str, kind: str) -> None:
    """It is in no whole answer; what of it was sent cannot be taken back."""
    begun = ts.ToolCall(name="f", arguments="", id="c") if kind == "call" else ts.Assistant()
    deltas = [] if kind == "text" else [PartDelta(1, '{"a')]
    text = ts.Assistant(content=[ts.Text(text="ab")])
    told: list[Event] = [PartStart(0, ts.Assistant()), PartDelta(0, "ab"), PartEnd(0, text)]
    renderer = ts.get_api(api_name).stream_renderer(asked())
    data = renderer.send([*told, PartStart(1, begun), *deltas, PartEnd(1, None), MessageEnd("stop")])
    parser = ts.get_api(api_name).stream_parser()
    response = ts.fold([*parser.feed(data + renderer.close()), *parser.close()])
    expected = "ab" + ('{"a' if kind == "said" else "")
    assert expected == "".join(map(strategies.content_of, response.items))
    assert ("items[1]", "approximated") in [(loss.path, loss.kind) for loss in renderer.losses]


WHOLE = ts.ToolCall(name="f", arguments='{"a":1}', id="c")
FREE = ts.ToolCall(name="f", arguments="a", id="c", custom=True)
BROKEN = ts.ToolCall(name="f", arguments='{"a"', id="c")
DECLINED = ts.Assistant(content=[ts.Refusal(text="No.")])
NOTHING = [ts.Assistant(content=[]), ts.Opaque(type="search", value=Json(b'{"type":"search"}'), role="user")]
LIKE_CUT: dict[str, list[ts.Item]] = {
    "a whole call": [WHOLE],
    "a free text": [FREE],
    "no JSON object": [BROKEN],
    "no JSON object, and another call": [BROKEN, ts.ToolCall(name="g", arguments="{}", id="d")],
    "a free text, and another call": [FREE, ts.ToolCall(name="g", arguments="{}", id="d")],
    "a whole call, and what is not written": [WHOLE, *NOTHING],
    "a free text, and what is not written": [FREE, *NOTHING],
    "a refusal, and a whole call": [DECLINED, WHOLE],
}


@pytest.mark.parametrize("reason", ["stop", "tool_calls", "length", "content_filter", "refusal", "incomplete"])
@pytest.mark.parametrize("case", LIKE_CUT)
def test_a_whole_call_that_looks_cut_off_where_it_is_written_is_a_loss(api_name: str, case: str, reason: str) -> None:
    """Servers of some APIs do not say which call the limit cut, so readers take what may be cut for none."""
    said = ts.Response(items=LIKE_CUT[case], finish_reason=reason, model="m", origin="somebody")
    api = ts.get_api(api_name)
    sent = [(f"items[{at}]", item.id) for at, item in enumerate(said.items) if isinstance(item, ts.ToolCall)]
    rendered = api.render_response(said, ts.Request())
    streamed, losses = stream_of(said, ts.Request(), api)
    told = [(rendered.losses, api.parse_response(rendered.data)), (losses, ts.parse_response(streamed, api_name))]
    for lost, answer in told:
        paths = {loss.path for loss in lost if "cut off" in loss.detail or "no place for a" in loss.detail}
        arrived = [item.id for item in calls(answer.items)]
        assert [id_ for place, id_ in sent if place not in paths] == arrived
