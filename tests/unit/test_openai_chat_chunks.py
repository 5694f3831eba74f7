"""Writing streams of Chat Completions: they fold to what was told, and the official SDK takes them as that."""

from __future__ import annotations

import json
from collections.abc import Iterator

import openai
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace
from openai.types.chat import ChatCompletion

from tests.chatstream import (
    ALL,
    API,
    CALLED,
    DONE,
    HELLO,
    STOP,
    asked,
    chunk,
    payloads,
    read,
    well_formed,
    written,
)
from tests.loopback import SSE, Loopback
from tests.sdks import openai_sdk
from tests.strategies.events import cut_anywhere, event_lists, in_pieces, told
from turnscript.apis.api import Reply
from turnscript.core.conversation import (
    Assistant,
    Item,
    Opaque,
    Refusal,
    Response,
    Text,
    Thinking,
    Tool,
    ToolCall,
    Usage,
    text_content,
)
from turnscript.core.errors import UpstreamError
from turnscript.core.events import Event, MessageEnd, PartDelta, PartEnd, PartStart, fold
from turnscript.core.json_text import Json, json_string
from turnscript.core.sse import frame


def test_the_chunks_come_in_the_order_that_clients_need() -> None:
    items: list[Item] = [
        Thinking(content=[Text(text="hm")]),
        Assistant(content=[Text(text="Hi")]),
        ToolCall(name="f", arguments='{"a":1}', id="c"),
    ]
    response = Response(items=items, finish_reason="tool_calls", usage=Usage(3, 2))
    *chunks, done = payloads(written(told(response, in_pieces(99))))
    assert "[DONE]" == done
    assert 1 == len({one["id"] for one in chunks})
    assert {"client-model"} == {one["model"] for one in chunks}
    *body, last, usage = chunks
    entry = {"index": 0, "id": "c", "type": "function", "function": {"name": "f", "arguments": ""}}
    expected = [
        {"role": "assistant", "content": None},
        {"reasoning_content": "hm"},
        {"content": "Hi"},
        {"tool_calls": [entry]},
        {"tool_calls": [{"index": 0, "function": {"arguments": '{"a":1}'}}]},
    ]
    assert expected == [one["choices"][0]["delta"] for one in body]
    assert all(one["choices"][0]["finish_reason"] is None and one["usage"] is None for one in body)
    assert ({}, "tool_calls") == (last["choices"][0]["delta"], last["choices"][0]["finish_reason"])
    assert ([], 3, 5) == (usage["choices"], usage["usage"]["prompt_tokens"], usage["usage"]["total_tokens"])


def test_usage_is_sent_only_to_a_client_that_asked() -> None:
    events = told(Response(finish_reason="stop", usage=Usage(1, 1)), in_pieces(9))
    renderer = API.stream_renderer(asked(usage=False))
    data = renderer.send(events) + renderer.close()
    assert all(one == "[DONE]" or "usage" not in one for one in payloads(data))
    assert [("$.usage", "dropped")] == [(loss.path, loss.kind) for loss in renderer.losses]


def test_the_role_is_sent_at_the_first_call_and_once() -> None:
    renderer = API.stream_renderer(asked())
    first = payloads(renderer.send([]))
    assert [{"role": "assistant", "content": None}] == [one["choices"][0]["delta"] for one in first]
    assert b"" == renderer.send([])


def test_an_error_ends_the_stream_and_nothing_follows() -> None:
    renderer = API.stream_renderer(asked())
    renderer.send([PartStart(0, Assistant()), PartDelta(0, "x")])
    told_ = payloads(renderer.fail(UpstreamError("the backend is gone")))
    assert ["the backend is gone"] == [one["error"]["message"] for one in told_]
    assert b"" == renderer.close() == renderer.send([MessageEnd("stop")]) == renderer.fail(UpstreamError("x"))


def test_events_that_break_off_end_in_an_error_and_not_in_done() -> None:
    renderer = API.stream_renderer(asked())
    renderer.send([PartStart(0, Assistant()), PartDelta(0, "x")])
    assert ["error"] == [key for one in payloads(renderer.close()) for key in one]


@pytest.mark.parametrize("reason", ["failed", "cancelled", "error", "abort"])
def test_an_answer_that_failed_ends_in_an_error_and_not_in_done(reason: str) -> None:
    *_, last = payloads(written(told(Response(finish_reason=reason), in_pieces(1))))
    assert f"the answer broke off: {reason}" == last["error"]["message"]


@pytest.mark.parametrize("reason", ["length", "stop", "tool_calls", None])
def test_a_call_that_was_cut_off_is_sent_as_far_as_it_came_and_the_end_says_so(reason: str | None) -> None:
    events = told(Response(finish_reason=reason), in_pieces(3), ToolCall(name="f", arguments='{"a":"b', id="c"))
    again = fold(read(written(events)))
    assert ([], "length") == (again.items, again.finish_reason)
    assert again.cut is not None
    assert ("f", "c", '{"a":"b') == (again.cut.name, again.cut.id, again.cut.arguments)


def test_free_text_is_sent_as_a_functions_argument_and_reported() -> None:
    call = ToolCall(name="patch", arguments='*** "é"\n', id="c", custom=True)
    renderer = API.stream_renderer(asked())
    data = renderer.send(told(Response(items=[call], finish_reason="tool_calls"), in_pieces(2))) + renderer.close()
    found = fold(read(data)).items[0]
    assert isinstance(found, ToolCall)
    assert {"input": call.arguments} == json.loads(found.arguments)
    assert [("items[0]", "approximated")] == [(loss.path, loss.kind) for loss in renderer.losses]


@pytest.mark.parametrize("kinds", [(Text, Refusal), (Refusal, Text)])
def test_a_part_that_is_told_as_another_kind_is_a_loss(kinds: tuple[type[Text | Refusal], ...]) -> None:
    first, second = (kind(text=word) for kind, word in zip(kinds, ("Well, ", "I cannot."), strict=True))
    events: list[Event] = [
        PartStart(0, Assistant(content=[type(first)(text="")])),
        PartDelta(0, first.text),
        PartDelta(0, second.text),
        PartEnd(0, Assistant(content=[first, second], at="$.output[0]")),
        MessageEnd("stop"),
    ]
    renderer = API.stream_renderer(asked())
    renderer.send(events)
    assert ("$.output[0].content[1]", "approximated") in [(loss.path, loss.kind) for loss in renderer.losses]


def test_a_part_without_a_place_here_is_named_as_its_api_names_it() -> None:
    search = Opaque(type="web_search_call", value=Json(b"{}"), role="assistant")
    renderer = API.stream_renderer(asked())
    renderer.send([PartStart(0, search), PartEnd(0, search), MessageEnd("stop")])
    assert ["items[0]: dropped: web_search_call: a chunk has no place for it"] == list(map(str, renderer.losses))


def test_a_client_that_offered_functions_gets_a_function_call_in_chunks() -> None:
    request = asked()
    request.conversation.tools = [Tool(name="f", slot="functions")]
    data = written(told(Response(items=[ToolCall(name="f")], finish_reason="tool_calls"), in_pieces(9)), request)
    assert b'"tool_calls"' not in data
    assert [ToolCall(name="f", slot="function_call")] == fold(read(data)).items
    assert b'"finish_reason":"function_call"' in data


def test_a_function_call_of_this_api_stays_one_in_chunks() -> None:
    """Though the request is not known: what it was read from says it."""
    call = {"delta": {"function_call": {"name": "f", "arguments": "{}"}}, "finish_reason": "function_call"}
    events = read(frame(json.dumps({"choices": [{"index": 0, **call}]})) + frame("[DONE]"))
    again = written(events)
    assert (True, False) == (b'"function_call":{"name":"f"' in again, b"tool_calls" in again)
    assert fold(events).items == fold(read(again)).items


def test_members_of_this_api_go_through_a_stream() -> None:
    logprobs = {"content": [{"token": "Hi"}]}
    data = HELLO + frame(json.dumps({"choices": [{"index": 0, "delta": {"annotations": [1]}, "logprobs": logprobs}]}))
    data += chunk({}, "stop", system_fingerprint="fp") + DONE
    last = payloads(written(read(data)))[-2]
    assert "fp" == last["system_fingerprint"]
    assert (logprobs, {"annotations": [1]}) == (last["choices"][0]["logprobs"], last["choices"][0]["delta"])


def test_half_of_a_surrogate_pair_is_sent_as_an_escape() -> None:
    items: list[Item] = [Assistant(content=[Text(text="a\ud800")]), ToolCall(name="f", arguments='{"a":"\ud800"}')]
    data = written(told(Response(items=items, finish_reason="tool_calls"), in_pieces(9)))
    assert b"\\ud800" in data


def test_a_server_may_give_the_id_and_the_time_and_the_name_of_thoughts() -> None:
    renderer = API.stream_renderer(asked(), Reply(id="chatcmpl-x", created=99, reasoning_name="reasoning"))
    first, second = payloads(renderer.send([PartStart(0, Thinking()), PartDelta(0, "hm")]))
    assert ("chatcmpl-x", 99) == (first["id"], first["created"])
    assert {"reasoning": "hm"} == second["choices"][0]["delta"]


# Laws.


def expected_items(items: list[Item]) -> list[Item]:
    """What a stream of this API says of some items: empty texts nothing, like texts joined, free text as `input`."""
    found: list[Item] = []
    for item in items:
        if isinstance(item, ToolCall):
            text = f'{{"input":{json_string(item.arguments)}}}' if item.custom else item.arguments
            found.append(ToolCall(name=item.name, arguments=text, id=item.id))
            continue
        assert isinstance(item, Thinking | Assistant)
        for part in item.content:
            assert isinstance(part, Text | Refusal)
            last = found[-1] if found else None
            if isinstance(last, Thinking | Assistant) and type(last) is type(item):
                before = last.content[0]
                if type(before) is type(part) and isinstance(before, Text | Refusal):
                    last.content = [type(part)(text=before.text + part.text)]
                    continue
            if part.text:
                found.append(type(item)(content=[part]))
    return found


@given(event_lists(ALL))
def test_a_written_stream_folds_to_what_was_told(events: list[Event]) -> None:
    before = fold(events)
    renderer = API.stream_renderer(asked())
    data = b"".join([renderer.send([event]) for event in events]) + renderer.close()
    again = read(data)
    assert well_formed(again)
    after = fold(again)
    for item, found in zip(expected_items(before.items), after.items, strict=True):
        if isinstance(item, ToolCall) and item.id is None:
            assert isinstance(found, ToolCall)
            item.id = found.id
        assert item == found
    assert (before.finish_reason, before.usage) == (after.finish_reason, after.usage)
    assert before.cut == (None if after.cut is None else replace(after.cut, at=""))
    assert (["unclosed_call"] * (before.cut is not None), "client-model") == (
        [issue.kind for issue in after.issues],
        after.model,
    )
    if before.stop_sequence is not None:
        assert "$.stop_sequence" in [loss.path for loss in renderer.losses]


@given(event_lists(ALL), st.data())
def test_a_stream_cut_anywhere_folds_to_the_same(events: list[Event], data: st.DataObject) -> None:
    stream = written(events)
    parser = API.stream_parser()
    again: list[Event] = []
    for piece in cut_anywhere(data.draw, stream):
        again += parser.feed(piece)
    assert fold(read(stream)) == fold(again + parser.close())


@given(event_lists(ALL), st.integers(1, 9))
def test_two_renders_give_the_same_bytes_however_the_events_come(events: list[Event], size: int) -> None:
    renderer = API.stream_renderer(asked())
    parts = [events[start : start + size] for start in range(0, len(events), size)]
    assert written(events) == b"".join([renderer.send(part) for part in parts]) + renderer.close()


@given(
    st.lists(st.sampled_from([HELLO, STOP, DONE, CALLED, b"data: {", b"\n\n", b"\xff", b": c\n", b"data: null\n\n"]))
)
def test_garbage_is_an_error_or_an_answer_and_nothing_else(pieces: list[bytes]) -> None:
    parser = API.stream_parser()
    try:
        events = [event for piece in pieces for event in parser.feed(piece)] + parser.close()
    except UpstreamError:
        return
    assert well_formed(events)


# The official SDK.


@pytest.fixture(scope="module")
def server() -> Iterator[Loopback]:
    with Loopback() as loopback:
        yield loopback


@pytest.fixture(scope="module")
def client(server: Loopback) -> Iterator[openai.OpenAI]:
    with openai_sdk(server.url) as found:
        yield found


def accumulated(client: openai.OpenAI) -> ChatCompletion:
    with client.chat.completions.stream(model="client-model", messages=[]) as stream:
        stream.until_done()
        return stream.current_completion_snapshot  # the final one is an exception where a limit ended it


def check(found: ChatCompletion, events: list[Event]) -> None:
    message, response = found.choices[0].message, fold(events)
    items = expected_items(response.items)
    texts = [item for item in items if isinstance(item, Assistant)]
    refusals = [part.text for item in texts for part in item.content if isinstance(part, Refusal)]
    assert "".join([text_content(item.content) for item in texts]) == (message.content or "")
    assert message.content is not None or message.tool_calls or message.refusal
    assert "".join(refusals) == (message.refusal or "")
    thoughts = [text_content(item.content) for item in items if isinstance(item, Thinking)]
    assert "".join(thoughts) == getattr(message, "reasoning_content", "")
    calls = [item for item in [*items, response.cut] if isinstance(item, ToolCall)]
    actual = [
        (call.function.name, call.function.arguments) for call in message.tool_calls or [] if call.type == "function"
    ]
    assert [(call.name, call.arguments) for call in calls] == actual
    assert [call.id or made.id for call, made in zip(calls, message.tool_calls or [], strict=True)] == [
        call.id for call in message.tool_calls or []
    ]
    assert response.finish_reason == found.choices[0].finish_reason
    assert "assistant" == message.role
    if response.usage is not None:
        assert found.usage is not None
        assert (response.usage.input, response.usage.output) == (
            found.usage.prompt_tokens,
            found.usage.completion_tokens,
        )


@settings(max_examples=40)
@given(events=event_lists(ALL), data=st.data())
def test_the_sdk_accumulates_every_written_stream_to_what_was_told(
    server: Loopback, client: openai.OpenAI, events: list[Event], data: st.DataObject
) -> None:
    server.answer(cut_anywhere(data.draw, written(events)), SSE)
    check(accumulated(client), events)


def test_the_sdk_accumulates_a_thousand_deltas(server: Loopback, client: openai.OpenAI) -> None:
    items: list[Item] = [
        Assistant(content=[Text(text="né👍" * 250)]),
        ToolCall(name="f", arguments=json.dumps({"a": "x" * 990}), id="c"),
    ]
    events = told(Response(items=items, finish_reason="tool_calls"), in_pieces(1))
    server.answer(written(events), SSE)
    check(accumulated(client), events)


def test_the_sdk_gets_the_usage_at_the_end(server: Loopback, client: openai.OpenAI) -> None:
    server.answer(written(told(Response(finish_reason="stop", usage=Usage(5, 4, 3, 0, 2)), in_pieces(1))), SSE)
    usage = accumulated(client).usage
    assert usage is not None
    assert usage.completion_tokens_details is not None
    assert (5, 4, 2) == (usage.prompt_tokens, usage.completion_tokens, usage.completion_tokens_details.reasoning_tokens)


def test_the_sdk_raises_for_an_error_in_the_stream(server: Loopback, client: openai.OpenAI) -> None:
    renderer = API.stream_renderer(asked())
    data = renderer.send([PartStart(0, Assistant()), PartDelta(0, "x")]) + renderer.fail(UpstreamError("gone"))
    server.answer(data, SSE)
    with pytest.raises(openai.APIError, match="gone"):
        accumulated(client)


def test_the_sdk_raises_where_the_events_broke_off(server: Loopback, client: openai.OpenAI) -> None:
    renderer = API.stream_renderer(asked())
    server.answer(renderer.send([PartStart(0, Assistant()), PartDelta(0, "x")]) + renderer.close(), SSE)
    with pytest.raises(openai.APIError, match="broke off"):
        accumulated(client)


def test_the_probe_that_members_sent_twice_are_put_one_behind_another(server: Loopback, client: openai.OpenAI) -> None:
    twice = chunk({"role": "assistant"}) + chunk({"role": "assistant", "content": "x"}) + STOP + DONE
    server.answer(twice, SSE)
    role: str = accumulated(client).choices[0].message.role
    assert "assistantassistant" == role


def test_the_probe_that_usage_counts_only_in_the_last_chunk(server: Loopback, client: openai.OpenAI) -> None:
    early = chunk({"role": "assistant", "content": "x"}, usage={"prompt_tokens": 1, "completion_tokens": 1})
    server.answer(early + STOP + DONE, SSE)
    assert accumulated(client).usage is None
