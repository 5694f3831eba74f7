"""Owns the unit tests of writing Responses streams: order and members of the events, endings, and the SDK's view."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from openai import OpenAI
from openai.types.responses import ResponseStreamEvent
from pydantic import TypeAdapter

from tests.loopback import SSE, Loopback
from tests.responses import (
    API,
    CALL,
    KINDS,
    REQUEST,
    TEXT,
    THOUGHT,
    TOOLED,
    answer,
    last,
    parsed,
    payloads,
    shifted,
    stream,
    types_of,
    without_made_up,
)
from tests.strategies import events as drawn
from turnscript.apis.api import Reply
from turnscript.core.conversation import Assistant, Image, Opaque, Refusal, Response, Text, Thinking, ToolCall, Usage
from turnscript.core.errors import InvalidConversation, InvalidRequest, UpstreamError
from turnscript.core.events import Event, MessageEnd, PartDelta, PartEnd, PartStart, fold
from turnscript.core.json_text import json_of

OFFICIAL: TypeAdapter[Any] = TypeAdapter(ResponseStreamEvent)


@pytest.fixture(scope="module")
def loopback() -> Iterator[Loopback]:
    with Loopback() as server:
        yield server


@pytest.fixture(scope="module")
def client(loopback: Loopback) -> Iterator[OpenAI]:
    with OpenAI(api_key="-", base_url=f"{loopback.url}/v1", max_retries=0) as opened:
        yield opened


# The order of the events.


def test_a_text_is_told_in_the_order_of_the_api() -> None:
    data = stream(answer(TEXT))
    assert [
        "created",
        "in_progress",
        "output_item.added",
        "content_part.added",
        "output_text.delta",
        "output_text.delta",
        "output_text.delta",
        "output_text.done",
        "content_part.done",
        "output_item.done",
        "completed",
    ] == types_of(data)
    assert "Hello" == last(data)["output"][0]["content"][0]["text"]


def test_a_thought_and_a_call_are_told_in_the_order_of_the_api() -> None:
    assert [
        "created",
        "in_progress",
        "output_item.added",
        "content_part.added",
        "reasoning_text.delta",
        "reasoning_text.delta",
        "reasoning_text.done",
        "content_part.done",
        "output_item.done",
        "output_item.added",
        *["function_call_arguments.delta"] * 5,
        "function_call_arguments.done",
        "output_item.done",
        "completed",
    ] == types_of(stream(answer(THOUGHT, CALL, reason="tool_calls")))


def test_free_text_has_events_of_its_own() -> None:
    call = ToolCall(name="g", arguments="*** x", id="c", custom=True)
    names = types_of(stream(answer(call, reason="tool_calls")))
    assert [*["custom_tool_call_input.delta"] * 3, "custom_tool_call_input.done"] == names[3:7]


def test_free_text_that_the_model_writes_as_json_is_told_once_it_is_known() -> None:
    call = ToolCall(name="apply_patch", arguments='{"input": "a\\nb"}', id="c")
    bodies = payloads(stream(answer(call, reason="tool_calls"), TOOLED))
    assert ["a\nb"] == [body["delta"] for body in bodies if body["type"].endswith("input.delta")]
    assert "a\nb" == bodies[-1]["response"]["output"][0]["input"]


def test_the_namespace_of_a_call_is_there_from_the_beginning() -> None:
    bodies = payloads(stream(answer(ToolCall(name="fs__read", id="c"), reason="tool_calls"), TOOLED))
    items = [body["item"] for body in bodies if "item" in body]
    assert [("fs", "read")] * 2 == [(item["namespace"], item["name"]) for item in items]


def test_a_summary_is_told_part_by_part() -> None:
    thought = Thinking(summary=[Text(text="a"), Text(text="b")], encrypted="gAAA")
    bodies = payloads(stream(answer(thought)))
    names = [body["type"].removeprefix("response.reasoning_") for body in bodies if "summary_index" in body]
    one = ["summary_part.added", "summary_text.delta", "summary_text.done", "summary_part.done"]
    assert one * 2 == names
    added, done = (body["item"] for body in bodies if "item" in body)
    assert (False, "gAAA") == ("encrypted_content" in added, done["encrypted_content"])


def test_a_thought_streams_as_its_summary_too_when_one_was_asked_for() -> None:
    request = API.parse_request({"model": "m", "input": "Hi", "reasoning": {"summary": "auto"}})
    writer = API.stream_renderer(request)
    bodies = payloads(writer.send(answer(THOUGHT)))
    deltas = [body["delta"] for body in bodies if body["type"] == "response.reasoning_summary_text.delta"]
    assert ["Hm", "."] == deltas
    assert "Hm." == bodies[-1]["response"]["output"][0]["summary"][0]["text"]
    assert [("items[0].summary", "invented")] == [(loss.path, loss.kind) for loss in writer.losses]


def test_a_refusal_that_is_known_from_the_beginning_streams_as_one() -> None:
    whole = Assistant(content=[Refusal(text="No.")])
    events: list[Event] = [
        PartStart(0, Assistant(content=[Refusal(text="")])),
        PartDelta(0, "No"),
        PartDelta(0, "."),
        PartEnd(0, whole),
    ]
    names = types_of(stream([*events, MessageEnd("stop")]))
    assert ["content_part.added", "refusal.delta", "refusal.delta", "refusal.done", "content_part.done"] == names[3:8]


def test_a_refusal_that_is_known_at_the_end_only_is_one_in_the_item() -> None:
    data = stream(answer(Assistant(content=[Refusal(text="No.")])))
    assert [{"type": "refusal", "refusal": "No."}] == last(data)["output"][0]["content"]


def test_citations_are_told_before_their_text_is_done() -> None:
    cited = Text(text="Hello", extra={"annotations": json_of([{"type": "file_path", "file_id": "f", "index": 0}])})
    data = stream(answer(Assistant(content=[cited])))
    names = types_of(data)
    assert names.index("output_text.annotation.added") + 1 == names.index("output_text.done")
    assert [Assistant(content=[cited])] == without_made_up(fold(parsed(data)).items, [TEXT])


def test_the_parts_of_one_message_all_arrive() -> None:
    whole = Assistant(content=[Text(text="ab"), Refusal(text="No."), Text(text="cd")])
    for told in ([], [PartDelta(0, "ab")], [PartDelta(0, "abNo.cd")]):
        data = stream([PartStart(0, Assistant()), *told, PartEnd(0, whole), MessageEnd("stop")])
        assert [whole] == without_made_up(fold(parsed(data)).items, [whole])


def test_a_part_that_is_no_text_is_announced_and_done() -> None:
    whole = Assistant(content=[Image(url="https://x/y.png")])
    assert ["content_part.added", "content_part.done"] == types_of(stream(answer(whole)))[3:5]


def test_a_loss_of_a_part_is_reported_once() -> None:
    writer = API.stream_renderer(REQUEST)
    writer.send(answer(Assistant(content=[Image(data="AAAA")])))
    assert [("items[0].content[0]", "invented")] == [(loss.path, loss.kind) for loss in writer.losses]


def test_a_call_that_ends_under_another_id_and_with_other_arguments_keeps_the_id_and_tells_the_whole() -> None:
    later = ToolCall(name="f", arguments="{}", id="call_2")
    writer = API.stream_renderer(REQUEST)
    data = writer.send(
        [PartStart(0, drawn.head_of(CALL)), PartDelta(0, '{"a'), PartEnd(0, later), MessageEnd("tool_calls")]
    )
    (item,) = last(data)["output"]
    assert ("call_1", "{}") == (item["call_id"], item["arguments"])
    assert ['{"a'] == [body["delta"] for body in payloads(data) if "delta" in body]
    assert ["items[0].id", "items[0].arguments"] == [loss.path for loss in writer.losses]


def test_what_the_pieces_left_out_is_told_at_the_end() -> None:
    bodies = payloads(stream([PartStart(0, Assistant()), PartDelta(0, "He"), PartEnd(0, TEXT), MessageEnd("stop")]))
    assert ["He", "llo"] == [body["delta"] for body in bodies if "delta" in body]


def test_two_items_that_are_told_at_once_keep_their_places() -> None:
    other = ToolCall(name="g", arguments="{}", id="call_2")
    starts = [PartStart(0, drawn.head_of(CALL)), PartStart(1, drawn.head_of(other))]
    deltas = [PartDelta(1, "{"), PartDelta(0, CALL.arguments), PartDelta(1, "}")]
    data = stream([*starts, *deltas, PartEnd(1, other), PartEnd(0, CALL), MessageEnd("tool_calls")])
    assert ["call_1", "call_2"] == [item["call_id"] for item in last(data)["output"]]
    assert [CALL, other] == without_made_up(fold(parsed(data)).items, [CALL, other])


def test_an_item_that_is_not_known_is_announced_and_done() -> None:
    search = Opaque(
        type="web_search_call", value=json_of({"type": "web_search_call", "id": "ws_1", "status": "completed"})
    )
    data = stream([PartStart(0, search), PartEnd(0, search), MessageEnd("stop")])
    assert ["output_item.added", "output_item.done"] == types_of(data)[2:4]
    assert [search] == fold(parsed(data)).items


def test_an_item_of_another_api_is_a_loss_and_makes_no_gap() -> None:
    block = Opaque(type="server_tool_use", value=json_of({"type": "server_tool_use"}), role="assistant")
    writer = API.stream_renderer(REQUEST)
    bodies = payloads(
        writer.send([PartStart(0, block), PartDelta(0, "x"), PartEnd(0, block), *shifted(answer(TEXT), 1)])
    )
    assert {0} == {body["output_index"] for body in bodies if "output_index" in body}
    assert [("items[0]", "dropped")] == [(loss.path, loss.kind) for loss in writer.losses]


def test_events_of_a_part_that_has_not_begun_are_refused() -> None:
    with pytest.raises(InvalidConversation, match="part 3"):
        API.stream_renderer(REQUEST).send([PartDelta(3, "a")])


def test_the_first_call_opens_the_stream() -> None:
    writer = API.stream_renderer(REQUEST)
    assert ["created", "in_progress"] == types_of(writer.send([]))
    assert b"" == writer.send([])


def test_a_server_may_give_the_id_and_the_time() -> None:
    writer = API.stream_renderer(REQUEST, Reply(id="resp_own", created=7))
    bodies = payloads(writer.send(answer(TEXT, id="other")))
    found = [body["response"] for body in bodies if "response" in body]
    assert [("resp_own", 7)] * 3 == [(response["id"], response["created_at"]) for response in found]
    assert [] == writer.losses


def test_a_server_may_say_when_an_answer_was_complete() -> None:
    reply = Reply(completed=lambda: 9)

    def times(reason: str, reply: Reply = reply) -> list[int | None]:
        writer = API.stream_renderer(REQUEST, reply)
        bodies = payloads(writer.send(answer(TEXT, reason=reason)))
        return [body["response"]["completed_at"] for body in bodies if "response" in body]

    assert [None, None, 9] == times("stop")
    assert [None] * 3 == times("length") == times("stop", Reply()) == times("stop", Reply(completed=lambda: None))
    whole: Any = API.render_response(fold(answer(TEXT)), REQUEST, reply=reply).value
    assert 9 == whole["completed_at"]


def test_another_id_that_comes_too_late_is_reported() -> None:
    writer = API.stream_renderer(REQUEST)
    writer.start()
    writer.send(answer(TEXT, id="other"))
    assert ["$.id"] == [loss.path for loss in writer.losses]


def test_a_stream_whose_end_is_known_already_has_the_id_of_the_response() -> None:
    assert {"r1"} == {body["response"]["id"] for body in payloads(stream(answer(TEXT, id="r1"))) if "response" in body}


def test_two_streams_of_one_answer_are_equal() -> None:
    assert stream(answer(TEXT, THOUGHT, CALL)) == stream(answer(TEXT, THOUGHT, CALL))


# How a stream ends.


def test_the_token_limit_makes_the_last_text_incomplete() -> None:
    bodies = payloads(stream(answer(THOUGHT, TEXT, reason="length")))
    assert ("response.incomplete", "incomplete") == (bodies[-1]["type"], bodies[-1]["response"]["status"])
    assert {"reason": "max_output_tokens"} == bodies[-1]["response"]["incomplete_details"]
    done = [body["item"]["status"] for body in bodies if body["type"] == "response.output_item.done"]
    assert ["completed", "incomplete"] == done
    assert done == [item["status"] for item in bodies[-1]["response"]["output"]]


@pytest.mark.parametrize("reason", ["length", "stop", "tool_calls"])
def test_a_call_that_was_cut_off_is_incomplete_and_so_is_the_response(reason: str) -> None:
    told = drawn.told(Response(items=[TEXT], finish_reason=reason), drawn.in_pieces(2), CALL)
    writer = API.stream_renderer(REQUEST)
    data = writer.send(told)
    assert "function_call_arguments.done" not in types_of(data)
    output = last(data)["output"]
    assert [("message", "completed"), ("function_call", "incomplete")] == [
        (item["type"], item["status"]) for item in output
    ]
    assert CALL.arguments == output[1]["arguments"]
    assert output[:1] == [body["item"] for body in payloads(data) if body["type"] == "response.output_item.done"]
    assert ("incomplete", "max_output_tokens") == (last(data)["status"], last(data)["incomplete_details"]["reason"])
    assert ("items[1]", "approximated") == (writer.losses[0].path, writer.losses[0].kind)


def test_a_whole_call_is_complete_even_at_the_limit() -> None:
    assert "completed" == last(stream(answer(CALL, reason="length")))["output"][0]["status"]


def test_a_call_is_not_done_when_the_answer_fails_right_behind_it() -> None:
    writer = API.stream_renderer(REQUEST)
    data = writer.send(answer(CALL)[:-1]) + writer.fail(UpstreamError("gone"))
    assert "output_item.done" not in types_of(data)
    assert ["function_call"] == [item["type"] for item in last(data)["output"]]


def test_a_call_that_turned_out_to_be_none_is_incomplete_in_the_output() -> None:
    start: list[Event] = [PartStart(0, drawn.head_of(CALL)), PartDelta(0, "{"), PartEnd(0, None)]
    data = stream([*start, *shifted(answer(TEXT), 1)])
    assert ["function_call", "message"] == [item["type"] for item in last(data)["output"]]
    assert ("incomplete", [1]) == (
        last(data)["status"],
        [b["output_index"] for b in payloads(data) if b["type"].endswith("item.done")],
    )


def test_a_call_that_a_backend_left_open_is_incomplete() -> None:
    cut = ToolCall(name="f", arguments='{"a', id="c", open=True)
    data = stream(answer(cut, reason="length"))
    (item,) = last(data)["output"]
    assert ('{"a', "incomplete", "incomplete") == (item["arguments"], item["status"], last(data)["status"])


def test_a_call_that_is_still_going_on_at_the_end_is_incomplete() -> None:
    data = stream([PartStart(0, drawn.head_of(CALL)), PartDelta(0, "{"), MessageEnd("length")])
    assert [("{", "incomplete")] == [(item["arguments"], item["status"]) for item in last(data)["output"]]


@pytest.mark.parametrize("told", [0, 1, 3])
def test_a_failure_ends_the_stream_as_one(told: int) -> None:
    writer = API.stream_renderer(REQUEST)
    data = writer.send([*answer(THOUGHT)[:-1], *shifted(answer(TEXT), 1)[:told]])
    data += writer.fail(UpstreamError("the backend is gone"))
    assert ("failed", [THOUGHT.kind]) == (
        last(data)["status"],
        ["thinking" for i in last(data)["output"] if i["type"] == "reasoning"],
    )
    assert {"code": "server_error", "message": "the backend is gone"} == last(data)["error"]
    assert (b"", b"") == (writer.close(), writer.fail(UpstreamError("again")))
    with pytest.raises(UpstreamError, match="the backend is gone"):
        parsed(data)


def test_a_failure_before_the_response_is_a_flat_error() -> None:
    (body,) = payloads(API.stream_renderer(REQUEST).fail(InvalidRequest("bad", path="$.input")))
    assert {"type": "error", "sequence_number": 0, "code": None, "message": "bad", "param": "$.input"} == {
        **body,
        "message": body["message"].removeprefix("$.input: "),
    }


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (UpstreamError("x", upstream=400, body="maximum context length is 8 tokens"), "context_length_exceeded"),
        (UpstreamError("try again in 2s", upstream=429), "rate_limit_exceeded"),
        (InvalidRequest("bad"), "invalid_prompt"),
        (UpstreamError("x", upstream=503), "server_error"),
    ],
)
def test_a_failed_response_has_the_code_that_clients_look_for(error: Any, code: str) -> None:
    writer = API.stream_renderer(REQUEST)
    found = last(writer.send([]) + writer.fail(error))["error"]
    assert code == found["code"]


def test_an_answer_that_breaks_off_is_never_a_good_end() -> None:
    writer = API.stream_renderer(REQUEST)
    assert "failed" == last(writer.send(answer(TEXT)[:-1]) + writer.close())["status"]
    assert "error" == payloads(API.stream_renderer(REQUEST).close())[0]["type"]


def test_nothing_follows_a_good_end() -> None:
    writer = API.stream_renderer(REQUEST)
    writer.send(answer(TEXT))
    assert (b"", b"") == (writer.close(), writer.fail(UpstreamError("late")))


def test_half_a_character_is_an_error_and_not_a_broken_stream() -> None:
    with pytest.raises(InvalidConversation, match="surrogate"):
        stream(answer(Assistant(content=[Text(text="a\ud800")])))


# Every answer, and the official SDK.


def check_grammar(bodies: list[dict[str, Any]]) -> None:
    """Numbers count up, ids stay, items and parts are announced before they are told and done once."""
    assert list(range(len(bodies))) == [body["sequence_number"] for body in bodies]
    assert 1 == len({body["response"]["id"] for body in bodies if "response" in body})
    ids: dict[int, str] = {}
    for body in bodies:
        OFFICIAL.validate_python(body)
        if body["type"] == "response.output_item.added":
            assert len(ids) == body["output_index"]
            ids[body["output_index"]] = body["item"]["id"]
        elif "output_index" in body:
            assert ids[body["output_index"]] == body.get("item_id", body.get("item", {}).get("id"))
    done = [body["item"] for body in bodies if body["type"] == "response.output_item.done"]
    output = bodies[-1]["response"]["output"]
    whole = [item for item in output if not (item["type"].endswith("call") and item["status"] == "incomplete")]
    assert sorted(done, key=json.dumps) == sorted(whole, key=json.dumps)


@given(drawn.event_lists(KINDS))
def test_every_answer_keeps_the_grammar_and_returns(told: list[Event]) -> None:
    writer = API.stream_renderer(REQUEST)
    data = writer.send(told)
    check_grammar(payloads(data))
    wanted, found = fold(told), fold(parsed(data))
    if PartEnd(len(found.items), None) in told and found.items:
        found.items[-1].extra.pop("status", None)  # it is whole: what is not came behind it
    assert wanted.items == without_made_up(found.items, wanted.items)
    assert (wanted.finish_reason, wanted.usage) == (found.finish_reason, found.usage)
    assert wanted.id is None or wanted.id == found.id
    cut = [f"items[{event.index}]" for event in told if isinstance(event, PartEnd) and event.part is None]
    assert [*cut, *["$.stop_sequence"] * bool(wanted.stop_sequence)] == [loss.path for loss in writer.losses]


@given(drawn.event_lists(KINDS), st.data())
def test_bytes_cut_anywhere_are_read_alike(told: list[Event], data: st.DataObject) -> None:
    whole = stream(told)
    parser = API.stream_parser()
    events = [event for piece in drawn.cut_anywhere(data.draw, whole) for event in parser.feed(piece)]
    assert parsed(whole) == [*events, *parser.close()]


@given(drawn.event_lists(KINDS))
def test_events_told_one_by_one_make_the_same_stream_as_all_at_once(told: list[Event]) -> None:
    reply = Reply(id="resp_1")
    one, all_ = API.stream_renderer(REQUEST, reply), API.stream_renderer(REQUEST, reply)
    end = told[-1]
    assert isinstance(end, MessageEnd)
    end.model = None
    assert b"".join([one.send([event]) for event in told]) == all_.send(told)


@given(drawn.event_lists(KINDS))
def test_the_end_of_a_stream_is_the_whole_response(told: list[Event]) -> None:
    response = fold(told)
    response.id = "resp_1"
    writer = API.stream_renderer(REQUEST, Reply(id="resp_1"))
    assert isinstance(told[-1], MessageEnd)
    told[-1].id = None
    end = payloads(writer.send(told))[-1]["response"]
    whole: Any = API.render_response(response, REQUEST).value
    if len(response.items) != len({event.index for event in told if isinstance(event, PartStart)}):
        end["output"], whole["output"] = ([item | {"status": ""} for item in body["output"]] for body in (end, whole))
    assert whole == end


def answers_for_the_sdk() -> dict[str, list[Event]]:
    custom = ToolCall(name="apply_patch", arguments="*** Begin\n", id="c2", custom=True)
    return {
        "text": answer(TEXT, usage=Usage(input=3, output=4)),
        "thought": answer(THOUGHT, TEXT),
        "calls": answer(THOUGHT, TEXT, CALL, custom, Assistant(content=[Text(text="é停")]), reason="tool_calls"),
        "refusal": answer(Assistant(content=[Refusal(text="No.")])),
        "summary": answer(Thinking(summary=[Text(text="S")], content=[Text(text="C")]), TEXT),
        "empty text": answer(Assistant(content=[Text(text="")])),
        "nothing": answer(),
        "long": answer(Assistant(content=[Text(text="ab" * 1000)])),
        "idless": answer(ToolCall(name="f"), ToolCall(name="f"), reason="tool_calls"),
    }


@pytest.mark.parametrize("name", answers_for_the_sdk())
def test_the_sdk_makes_of_a_stream_what_it_makes_of_the_whole(loopback: Loopback, client: OpenAI, name: str) -> None:
    told = answers_for_the_sdk()[name]
    data = stream(told, TOOLED)
    loopback.answer([data[at : at + 997] for at in range(0, len(data), 997)], SSE)
    with client.responses.stream(model="m", input="Hi") as streamed:
        seen = list(streamed)
        final = streamed.get_final_response()
    response = fold(told)
    content = [part for item in response.items if isinstance(item, Assistant) for part in item.content]
    assert "".join(part.text for part in content if isinstance(part, Text)) == final.output_text
    calls = [item for item in response.items if isinstance(item, ToolCall)]
    made = [item for item in final.output if item.type in ("function_call", "custom_tool_call")]
    assert [call.name for call in calls] == [item.name for item in made]
    whole = [call.arguments for call in calls]
    assert whole == [getattr(item, "arguments", None) or getattr(item, "input", "") for item in made]
    deltas = "".join(event.delta for event in seen if event.type == "response.output_text.delta")
    if name != "refusal":
        assert final.output_text == deltas
    assert (response.usage.output if response.usage else None) == (final.usage.output_tokens if final.usage else None)


def test_the_sdk_sees_an_incomplete_and_a_failed_response(loopback: Loopback, client: OpenAI) -> None:
    told = drawn.told(Response(items=[TEXT], finish_reason="length"), drawn.in_pieces(2), CALL)
    loopback.answer(stream(told), SSE)
    seen: list[Any] = list(client.responses.create(model="m", input="Hi", stream=True))
    assert ("response.incomplete", "incomplete") == (seen[-1].type, seen[-1].response.status)
    writer = API.stream_renderer(REQUEST)
    loopback.answer(writer.send(answer(TEXT)[:2]) + writer.fail(UpstreamError("gone")), SSE)
    with client.responses.stream(model="m", input="Hi") as streamed, pytest.raises(RuntimeError, match="completed"):
        streamed.get_final_response()


def test_the_sdk_sees_an_error_before_the_response(loopback: Loopback, client: OpenAI) -> None:
    loopback.answer(API.stream_renderer(REQUEST).fail(UpstreamError("gone")), SSE)
    (seen,) = list(client.responses.create(model="m", input="Hi", stream=True))
    assert ("error", "gone") == (seen.type, seen.message)  # type: ignore[union-attr]
