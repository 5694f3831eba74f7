"""Owns the laws of writing Messages streams: what is written reads back, and the SDK understands the same by it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import anthropic
import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.loopback import SSE, Loopback
from tests.messages import (
    API,
    KINDS,
    SILENT,
    SILENT_USAGE,
    WHOLE,
    bare,
    block,
    finite,
    frames,
    read,
    request,
    written,
)
from tests.sdks import anthropic_sdk
from tests.strategies import events as answers
from tests.strategies import jsontext
from turnscript.apis.api import Reply
from turnscript.core.conversation import (
    Assistant,
    Item,
    Opaque,
    Raw,
    Refusal,
    Response,
    Text,
    Thinking,
    ThinkingMode,
    ToolCall,
    Usage,
)
from turnscript.core.errors import InvalidConversation, UpstreamError
from turnscript.core.events import Event, MessageEnd, PartDelta, PartEnd, PartStart, fold
from turnscript.core.json_text import closed

# Laws.from turnscript.core.json_text import closed


@given(events=answers.event_lists(KINDS))
def test_a_stream_reads_back_as_what_was_told_or_the_difference_is_listed(events: list[Event]) -> None:
    writer = API.stream_renderer(request())
    data = b"".join([writer.send([event]) for event in events]) + writer.close()
    assert data == API.stream_renderer(request()).send(events)
    losses = [loss for loss in writer.losses if loss.path != "$.id"]
    assert losses or bare(fold(events)) == bare(fold(read(data)))


@given(events=answers.event_lists(("text", "texts", "thinking", "call"), empty=False))
def test_ordinary_answers_lose_nothing_in_a_stream(events: list[Event]) -> None:
    ending = events[-1]
    assert isinstance(ending, MessageEnd)
    ending.usage, ending.id = ending.usage or Usage(), None
    writer = API.stream_renderer(request())
    data = writer.send(events)
    ends = [event for event in events if isinstance(event, PartEnd)]
    none = [f"items[{event.index}]" for event in ends if event.part is None]
    said = ["$.content"] if len(none) == len(ends) and b'"tool_use"' not in data else []
    assert [*none, *said] == [loss.path for loss in writer.losses]


@given(events=answers.event_lists(KINDS), data=st.data())
def test_a_stream_may_be_cut_anywhere(events: list[Event], data: st.DataObject) -> None:
    whole = written(events)
    assert read(whole) == read(*answers.cut_anywhere(data.draw, whole))


def test_a_stream_may_be_cut_into_single_bytes() -> None:
    assert read(WHOLE) == read(*[WHOLE[index : index + 1] for index in range(len(WHOLE))])


@given(events=answers.event_lists(KINDS))
def test_the_order_of_frames_is_that_of_the_api(events: list[Event]) -> None:
    told = frames(written(events))
    assert [name for name, _ in told] == [value["type"] for _, value in told]
    names = [name for name, _ in told]
    assert ["message_start"] == names[:1]
    assert ["message_delta", "message_stop"] == names[-2:]
    blocks: list[list[dict[str, Any]]] = []
    for name, value in told[1:-2]:
        if name == "content_block_start":
            blocks.append([])
        blocks[-1].append(value)
    for index, one in enumerate(blocks):
        kinds = ["content_block_start", *["content_block_delta"] * (len(one) - 2), "content_block_stop"]
        assert kinds == [value["type"] for value in one]
        assert {index} == {value["index"] for value in one}
        _check_block(one, cut=index == len(blocks) - 1 and fold(events).cut is not None)


def _check_block(values: list[dict[str, Any]], *, cut: bool) -> None:
    """One signature for each thought, behind its text; arguments that are an object; no member twice. `cut`: the block
    is that of a call which the limit cut off."""
    opening = values[0]["content_block"]
    deltas = [value["delta"] for value in values[1:-1]]
    kinds = [delta["type"] for delta in deltas]
    if opening["type"] == "thinking":
        assert ["thinking_delta"] * (len(kinds) - 1) + ["signature_delta"] == kinds
    elif opening["type"] == "tool_use":
        assert {} == opening["input"]
        arguments = "".join([delta["partial_json"] for delta in deltas])
        assert isinstance(json.loads(closed(arguments) if cut else arguments), dict)
    else:
        assert {"text_delta"} >= set(kinds)
        assert {"type": "text", "text": "", "citations": None} == opening


@pytest.fixture(scope="module")
def server() -> Iterator[Loopback]:
    with Loopback() as loopback:
        yield loopback


@pytest.fixture(scope="module")
def client(server: Loopback) -> Iterator[anthropic.Anthropic]:
    with anthropic_sdk(server.url) as made:
        yield made


def ask(client: anthropic.Anthropic) -> anthropic.types.Message:
    """What the SDK makes of the stream."""
    asked: Any = {"model": "m", "max_tokens": 9, "messages": [{"role": "user", "content": "hi"}]}
    with client.messages.stream(**asked) as opened:
        return opened.get_final_message()


@given(events=answers.event_lists(KINDS), data=st.data())
def test_the_sdk_accumulates_what_a_whole_response_says(
    server: Loopback, client: anthropic.Anthropic, events: list[Event], data: st.DataObject
) -> None:
    server.answer(answers.cut_anywhere(data.draw, written(events)), SSE)
    got = json.loads(ask(client).to_json(exclude_unset=True))
    whole = finite(json.loads(API.render_response(fold(events), request()).data))
    whole["id"] = got["id"]
    assert "" == jsontext.difference(whole, _without_nulls(got, whole))


def _without_nulls(got: dict[str, Any], whole: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in got.items() if value is not None or key in whole}


def test_every_delta_is_sent_at_once_and_a_thousand_of_them_in_order(
    server: Loopback, client: anthropic.Anthropic
) -> None:
    words = [f"{number} 字👍🏽" for number in range(1000)]
    response = Response(items=[Assistant(content=[Text(text="".join(words))])], finish_reason="stop", usage=Usage(1, 9))
    events: list[Event] = [PartStart(0, Assistant()), *[PartDelta(0, word) for word in words]]
    events += [PartEnd(0, response.items[0]), MessageEnd("stop", usage=Usage(1, 9))]
    writer = API.stream_renderer(request())
    pieces = [writer.send([event]) for event in events]
    assert all(word.encode() in piece for word, piece in zip(words, pieces[1:], strict=False))
    server.answer(pieces, SSE)
    assert "".join(words) == getattr(ask(client).content[0], "text", None)
    assert bare(response) == bare(fold(read(b"".join(pieces))))


# Writing.


def test_the_message_starts_with_the_clients_model_and_the_tokens_that_are_known() -> None:
    writer = API.stream_renderer(request(), Reply(id="msg_given", usage=Usage(120, 0, 100, 15)))
    told = frames(writer.send([]))
    usage = {"input_tokens": 5, "cache_creation_input_tokens": 15, "cache_read_input_tokens": 100, "output_tokens": 0}
    message: dict[str, Any] = {"id": "msg_given", "type": "message", "role": "assistant", "model": "client-model"}
    message |= {"content": [], "stop_reason": None, "stop_sequence": None, **SILENT}
    counted = message | {"usage": usage | {"output_tokens_details": {"thinking_tokens": 0}, **SILENT_USAGE}}
    assert [("message_start", {"type": "message_start", "message": counted})] == told
    assert b"" == writer.send([])
    ending = frames(writer.send([MessageEnd("stop", usage=Usage(130, 7, 100, 15, 2))]))[-2][1]
    counts = {"input_tokens": 15, "cache_creation_input_tokens": 15, "cache_read_input_tokens": 100, "output_tokens": 7}
    assert counts | {"output_tokens_details": {"thinking_tokens": 2}, "server_tool_use": None} == ending["usage"]
    assert {"stop_reason": "end_turn", "stop_sequence": None, **SILENT} == ending["delta"]


def test_a_ping_may_come_at_any_time_once_the_message_has_begun(server: Loopback, client: anthropic.Anthropic) -> None:
    events = answers.told(Response(items=[Assistant(content=[Text(text="ab")])]), answers.in_pieces(1))
    writer = API.stream_renderer(request())
    assert b"" == writer.idle()
    pings = [writer.send([event]) + writer.idle() for event in events]
    data = b"".join(pings)
    assert 4 == data.count(b'event: ping\ndata: {"type":"ping"}\n\n')
    assert [Assistant(content=[Text(text="ab")])] == fold(read(data)).items
    server.answer(data, SSE)
    assert "ab" == getattr(ask(client).content[0], "text", None)


def test_thoughts_are_left_out_where_the_client_wants_their_signatures_alone() -> None:
    thought = Thinking(content=[Text(text="secret")], signature="sealed")
    events = answers.told(Response(items=[thought], finish_reason="stop"), answers.in_pieces(2))
    data = written(events, request(thinking=ThinkingMode("enabled", display="omitted")))
    assert b"secret" not in data
    assert b"thinking_delta" not in data
    opening = {"type": "thinking", "thinking": "", "signature": ""}
    told = [value for _, value in frames(data)[1:4]]
    assert block(0, opening, {"type": "signature_delta", "signature": "sealed"}) == told
    assert [Thinking(content=[Text(text="")], signature="sealed")] == fold(read(data)).items
    assert [thought] == fold(read(written(events))).items


def test_a_redacted_thought_and_an_unknown_block_are_whole_in_their_start() -> None:
    strange = Opaque(type="new_block", value=msgspec.Raw(b'{"type":"new_block","n":1.0}'), role="assistant")
    search = Opaque(
        type="server_tool_use",
        role="assistant",
        value=msgspec.Raw(b'{"type":"server_tool_use","id":"srvtoolu_1","name":"web_search","input":{"query":"q"}}'),
    )
    items: list[Item] = [Thinking(redacted="xx"), strange, search]
    data = written([*[PartEnd(index, item) for index, item in enumerate(items)], MessageEnd("stop")])
    assert block(0, {"type": "redacted_thinking", "data": "xx"}) == [value for _, value in frames(data)[1:3]]
    assert items == fold(read(data)).items


def test_arguments_are_sent_as_they_are_in_pieces_that_join() -> None:
    arguments = ' { "text":\n"' + "é字\\u00e9\\ud83d\\ude00" * 3000 + '", "n": 1.0e5 } '
    response = Response(items=[ToolCall(name="f", id="c", arguments=arguments)], finish_reason="tool_calls")
    data = written(answers.told(response, answers.in_pieces(7)))
    pieces = [value["delta"]["partial_json"] for name, value in frames(data) if name == "content_block_delta"]
    assert arguments == "".join(pieces)
    assert max(map(len, pieces)) <= 8192 < len(arguments)
    assert response.items == fold(read(data)).items


def test_a_call_that_a_limit_cut_off_is_told_as_far_as_it_came(server: Loopback, client: anthropic.Anthropic) -> None:
    response = Response(items=[Assistant(content=[Text(text="a")])], finish_reason="length", usage=Usage())
    cut = ToolCall(name="rm", id="c", arguments='{"path": "/tm')
    data = written(answers.told(response, answers.in_pieces(3), cut))
    server.answer(data, SSE)
    found = ask(client)
    assert ("max_tokens", ["text", "tool_use"]) == (found.stop_reason, [one.type for one in found.content])
    assert {} == getattr(found.content[1], "input", None)
    again = fold(read(data))
    assert bare(response).items == bare(again).items
    assert again.cut is not None
    assert ("rm", cut.arguments) == (again.cut.name, again.cut.arguments)


@pytest.mark.parametrize("reason", ["length", "stop", "tool_calls"])
@pytest.mark.parametrize("inside", [True, False])
def test_a_call_that_a_backend_left_open_is_told_as_an_sdk_makes_it_of_a_stream(reason: str, inside: bool) -> None:
    cut = ToolCall(name="f", arguments='{"a":[1, {"b": "c"}], "d": "x', id="c", open=True)
    response = Response(items=[cut] if inside else [], finish_reason=reason, usage=Usage(3, 4))
    response.cut = None if inside else cut
    rendered = API.render_response(response, request())
    value: Any = json.loads(rendered.data)
    assert "max_tokens" == value["stop_reason"]
    assert [("tool_use", {"a": [1, {"b": "c"}]})] == [(block["type"], block["input"]) for block in value["content"]]


@pytest.mark.parametrize(
    "cut", [ToolCall(name="f", arguments="[1", id="c", open=True), ToolCall(name="p", custom=True, open=True)]
)
def test_a_call_that_a_backend_left_open_is_not_told_where_no_stream_tells_it(cut: ToolCall) -> None:
    response = Response(items=[Assistant(content=[Text(text="x")]), cut], finish_reason="length", usage=Usage(3, 4))
    rendered = API.render_response(response, request())
    value: Any = rendered.value
    assert (["text"], "max_tokens") == ([block["type"] for block in value["content"]], value["stop_reason"])
    assert [("items[1]", "dropped")] == [(loss.path, loss.kind) for loss in rendered.losses]
    assert b'"tool_use"' not in written(answers.told(response, answers.in_pieces(2)))
    response.items[1] = ToolCall(name="f", arguments='{"a":1}', id="c", open=True)
    assert b"tool_use" in API.render_response(response, request()).data


def test_a_text_that_turned_out_to_be_none_is_listed() -> None:
    writer = API.stream_renderer(request())
    events: list[Event] = [PartStart(0, Assistant()), PartDelta(0, "x"), PartEnd(0, None)]
    data = writer.send([*events, PartStart(1, Assistant()), PartDelta(1, "abc")])
    data += writer.send([PartEnd(1, Assistant(content=[Text(text="ab")])), MessageEnd("stop", usage=Usage())])
    assert ["items[0]", "items[1]"] == [loss.path for loss in writer.losses]
    assert 2 == len(fold(read(data)).items)


def test_a_call_that_is_not_whole_is_left_out_where_calls_are_told_whole() -> None:
    call = ToolCall(name="f", id="c", arguments='{"n":')
    call.open = True
    writer = API.stream_renderer(request(), calls="whole")
    data = writer.send([PartStart(0, ToolCall(name="f", id="c", arguments="")), PartEnd(0, call), MessageEnd("length")])
    assert b'"tool_use"' not in data
    assert "items[0]: dropped: the call was cut off: nobody may run it" in map(str, writer.losses)


def test_parts_that_overlap_come_one_after_the_other() -> None:
    first, second = Assistant(content=[Text(text="abc")]), ToolCall(name="f", id="c", arguments='{"n":1}')
    third = Thinking(content=[Text(text="hm")])
    events: list[Event] = [
        PartStart(0, Assistant()),
        PartDelta(0, "a"),
        PartStart(1, ToolCall(name="f", id="c", arguments="")),
        PartStart(2, Thinking()),
        PartDelta(1, '{"n"'),
        PartDelta(0, "b"),
        PartDelta(2, "hm"),
        PartDelta(1, ":1}"),
        PartEnd(1, second),
        PartDelta(0, "c"),
        PartEnd(0, first),
        PartEnd(2, third),
        MessageEnd("tool_calls", usage=Usage()),
    ]
    writer = API.stream_renderer(request())
    assert [first, second, third] == fold(read(writer.send(events))).items
    assert ["moved"] == [loss.kind for loss in writer.losses]


def test_a_text_of_several_parts_becomes_one_block_and_citations_follow_a_text() -> None:
    cited = Text(text="a", extra={"citations": msgspec.Raw(b'[{"type":"new","n":1.0},{"type":"new","n":2}]')})
    writer = API.stream_renderer(request())
    one = writer.send([PartStart(0, Assistant()), PartDelta(0, "a"), PartEnd(0, Assistant(content=[cited]))])
    both = Assistant(content=[Text(text="b"), Text(text="c")])
    two = writer.send([PartStart(1, Assistant()), PartDelta(1, "b"), PartDelta(1, "c"), PartEnd(1, both)])
    data = one + two + writer.send([MessageEnd("stop", usage=Usage())])
    assert [Assistant(content=[cited]), Assistant(content=[Text(text="bc")])] == fold(read(data)).items
    assert ["items[1]: approximated: its parts become one block"] == [str(loss) for loss in writer.losses]


def test_what_the_deltas_did_not_say_follows_at_the_end_of_the_part() -> None:
    upload = Raw(type="container_upload", value=msgspec.Raw(b'{"type":"container_upload","file_id":"f"}'))
    part = Assistant(content=[Text(text="abc", extra={"new": msgspec.Raw(b"1")}), upload])
    writer = API.stream_renderer(request())
    data = writer.send([PartStart(0, Assistant()), PartDelta(0, "ab"), PartEnd(0, part), PartStart(1, Thinking())])
    data += writer.send([PartDelta(1, "h"), PartEnd(1, None), PartStart(2, Assistant()), PartDelta(2, "x")])
    data += writer.send([MessageEnd("stop", usage=Usage())])
    texts = [Assistant(content=[Text(text=one)]) for one in ("abc", "x")]
    thought = Thinking(content=[Text(text="h")])
    assert [texts[0], Assistant(content=[upload]), thought, texts[1]] == fold(read(data)).items
    assert ["items[0].new", "items[1]", "items[2]"] == [loss.path for loss in writer.losses]


def test_a_call_that_was_none_and_came_in_between_is_reported_and_nothing_else() -> None:
    events: list[Event] = [PartStart(0, Assistant()), PartDelta(0, "a"), PartEnd(1, None)]
    events += [PartEnd(0, Assistant(content=[Text(text="a")])), MessageEnd("stop", usage=Usage())]
    writer = API.stream_renderer(request())
    assert [Assistant(content=[Text(text="a")])] == fold(read(writer.send(events))).items
    assert [("items[1]", "approximated")] == [(loss.path, loss.kind) for loss in writer.losses]


def test_a_refusal_is_told_as_one() -> None:
    refused = Response(items=[Assistant(content=[Refusal(text="No.")])], finish_reason="stop")
    ending = frames(written(answers.told(refused, answers.in_pieces(1))))[-2][1]["delta"]
    assert ("refusal", "No.") == (ending["stop_reason"], ending["stop_details"]["explanation"])


def test_members_of_the_message_come_at_its_end() -> None:
    extra = {"container": msgspec.Raw(b'{"id":"c"}'), "context_management": msgspec.Raw(b'{"applied_edits":[]}')}
    extra["usage"] = msgspec.Raw(b'{"server_tool_use":{"web_search_requests":1}}')
    part = Assistant(content=[Text(text="x")], at="$.content[0]")
    data = written([PartEnd(0, part), MessageEnd("stop", usage=Usage(), extra=extra)])
    assert extra == fold(read(data)).extra
    value = frames(data)[-2][1]
    assert ({"id": "c"}, {"applied_edits": []}) == (value["delta"]["container"], value["context_management"])
    foreign = msgspec.structs.replace(part, at="$.choices[0].message")
    writer = API.stream_renderer(request())
    end = MessageEnd("stop", usage=Usage(), extra={"object": msgspec.Raw(b"1")}, id="x", origin="openai-chat")
    writer.send([PartEnd(0, foreign, origin="openai-chat"), end])
    assert ["$.id", "$.object"] == [loss.path for loss in writer.losses]


# Ends that are none.


@pytest.mark.parametrize("sent", [0, 1, 2, 3, 4])
def test_an_error_ends_the_stream_and_nothing_follows(server: Loopback, client: anthropic.Anthropic, sent: int) -> None:
    events = answers.told(Response(items=[Assistant(content=[Text(text="abc")])]), answers.in_pieces(1))[:-1]
    writer = API.stream_renderer(request(), Reply(request_id="req_1"))
    data = b"".join([writer.send([event]) for event in events[:sent]])
    data += writer.fail(UpstreamError("the backend is gone"))
    error = {"type": "api_error", "message": "the backend is gone"}
    assert ("error", {"type": "error", "error": error, "request_id": "req_1"}) == frames(data)[-1]
    assert b"message_stop" not in data
    assert (b"", b"", b"") == (writer.send(events), writer.fail(UpstreamError("again")), writer.close())
    with pytest.raises(UpstreamError, match="the backend is gone"):
        read(data)
    server.answer(data, SSE)
    with pytest.raises(anthropic.APIStatusError, match="the backend is gone"):
        ask(client)


def test_a_stream_that_is_closed_before_its_end_is_an_error() -> None:
    writer = API.stream_renderer(request())
    data = writer.send([PartStart(0, Assistant()), PartDelta(0, "x")]) + writer.close()
    assert ["error"] == [name for name, _ in frames(data)][-1:]
    assert ["error"] == [name for name, _ in frames(API.stream_renderer(request()).close())]
    with pytest.raises(UpstreamError, match="broke off before its end"):
        read(data)


@pytest.mark.parametrize("reason", ["error", "failed", "cancelled", "abort"])
def test_a_failed_answer_ends_with_an_error(reason: str) -> None:
    data = written([PartEnd(0, Assistant(content=[Text(text="x")])), MessageEnd(reason)])
    assert ["content_block_stop", "error"] == [name for name, _ in frames(data)][-2:]


def test_after_a_good_end_there_is_nothing_to_say() -> None:
    writer = API.stream_renderer(request())
    writer.send([MessageEnd("stop")])
    assert (b"", b"", b"", b"") == (
        writer.close(),
        writer.fail(UpstreamError("late")),
        writer.send([MessageEnd("stop")]),
        writer.idle(),
    )


def test_half_a_surrogate_pair_is_an_error_and_no_broken_frame() -> None:
    with pytest.raises(InvalidConversation, match="half of a surrogate pair"):
        written([PartStart(0, Assistant()), PartDelta(0, "\ud800")])
