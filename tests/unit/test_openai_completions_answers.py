"""Answers of legacy completions: one text, whole or in chunks, from every server that speaks a dialect of it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import openai
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.chatstream import until_error
from tests.loopback import SSE, Loopback
from tests.sdks import openai_sdk
from tests.strategies.events import cut_anywhere, event_lists, in_pieces, responses, told
from turnscript.apis.openai_completions import OpenAICompletions
from turnscript.core.conversation import (
    Assistant,
    Item,
    Refusal,
    Request,
    Response,
    Settings,
    Text,
    Thinking,
    ToolCall,
    Usage,
)
from turnscript.core.errors import InvalidRequest, LossyConversion, UnknownName, UpstreamError
from turnscript.core.events import Event, MessageEnd, PartDelta, PartEnd, PartStart, fold
from turnscript.core.json_text import Json, plain
from turnscript.core.sse import frame

API = OpenAICompletions()
ASKED = Request(settings=Settings(model="client-model", stream_options=Json(b'{"include_usage":true}')))
DONE = frame("[DONE]")

WHOLE: dict[str, Any] = {
    "id": "cmpl-1",
    "object": "text_completion",
    "created": 17,
    "model": "m",
    "choices": [{"index": 0, "text": " Hi", "finish_reason": "stop", "logprobs": {"tokens": [" Hi"]}, "x": 1.0}],
    "usage": {"prompt_tokens": 8, "completion_tokens": 3, "total_tokens": 11, "prompt_tokens_details": {"y": 1}},
    "timings": {"n": 1.0},
}


def chunk(text: str, finish_reason: str | None = None, **members: Any) -> bytes:
    return frame(json.dumps({"choices": [{"index": 0, "text": text, "finish_reason": finish_reason} | members]}))


def read(data: bytes) -> list[Event]:
    parser = API.stream_parser()
    return parser.feed(data) + parser.close()


def said(items: list[Item]) -> str:
    """What a text can say of some items."""
    parts = [part for item in items if isinstance(item, Assistant) for part in item.content]
    return "".join([part.text for part in parts if isinstance(part, Text | Refusal)])


def test_a_whole_answer_comes_back_with_all_its_members() -> None:
    response = API.parse_response(WHOLE)
    assert [Assistant(content=[Text(text=" Hi")])] == response.items
    assert ("stop", "cmpl-1", "m", Usage(8, 3)) == (
        response.finish_reason,
        response.id,
        response.model,
        response.usage,
    )
    again = API.render_response(response, Request())
    assert [] == again.losses
    details = {"cached_tokens": 0, "cache_write_tokens": 0, "y": 1}
    usage = WHOLE["usage"] | {"prompt_tokens_details": details, "completion_tokens_details": {"reasoning_tokens": 0}}
    assert WHOLE | {"usage": usage} == again.value


def test_the_stop_string_is_read_where_a_server_names_it() -> None:
    for name in ("stop_reason", "matched_stop"):
        body = {"choices": [{"text": "a", "finish_reason": "stop", name: "END"}]}
        assert "END" == API.parse_response(body).stop_sequence
    assert API.parse_response({"choices": [{"text": "a", "finish_reason": "stop", "stop_reason": 0}]}).issues == []


def test_a_server_with_other_names_is_read() -> None:
    data = b""
    for text in (" Pa", "ris"):
        choice: dict[str, Any] = {"delta": {"content": text}, "index": 0, "finish_reason": None}
        data += frame(json.dumps({"object": "text_completion.chunk", "choices": [choice]}))
    data += frame(json.dumps({"choices": [{"delta": {}, "index": 0, "finish_reason": "stop"}]}))
    usage = {"prompt": 5, "completion": 2, "total": 7, "duration": {"secs": 0, "nanos": 9}}
    data += frame(json.dumps({"choices": [], "usage": usage}))
    response = fold(read(data + DONE))
    assert (" Paris", Usage(5, 2)) == (said(response.items), response.usage)
    assert {"duration": {"secs": 0, "nanos": 9}} == plain(response.extra["usage"])


@pytest.mark.parametrize(
    ("behind", "kinds"),
    [
        (chunk("!"), ["late_content"]),
        (chunk("", "length"), ["changed_reason"]),
        (chunk("", "stop"), []),
        (chunk(""), []),
    ],
)
def test_what_comes_behind_the_end_of_an_answer_is_an_issue(behind: bytes, kinds: list[str]) -> None:
    response = fold(read(chunk("a", "stop") + behind + DONE))
    assert kinds == [issue.kind for issue in response.issues]


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "before an answer began"),
        (chunk("a"), "in the middle"),
        (chunk("a") + frame('{"error":"cannot reshape"}'), "cannot reshape"),
        (chunk("a") + frame('{"detail":"x"}') + DONE, r"\$.choices"),
        (chunk("a") + b"data: {\n\n" + DONE, "cannot be read"),
    ],
)
def test_what_is_no_whole_stream_is_an_error(data: bytes, message: str) -> None:
    events, error = until_error(API.stream_parser(), [data])
    assert re.search(message, str(error))
    assert not any(isinstance(event, MessageEnd) for event in events)


def test_a_stream_without_done_is_over_behind_its_reason() -> None:
    assert "length" == fold(read(chunk("a") + chunk("", "length"))).finish_reason


def test_other_choices_and_a_missing_reason_are_issues() -> None:
    body = {"choices": [{"text": "a", "finish_reason": None}, {"index": 1, "text": "b"}, {"index": 2, "text": "c"}]}
    response = API.parse_response(body)
    assert "a" == said(response.items)
    assert ["extra_choices", "no_finish_reason"] == [issue.kind for issue in response.issues]
    assert response.issues[0].detail.startswith("there are 3 choices")


@pytest.mark.parametrize("body", [{}, {"choices": []}, {"choices": [{"text": 7}]}, {"usage": {}}, {"choices": None}])
def test_what_is_no_answer_is_an_error_with_its_place(body: dict[str, Any]) -> None:
    with pytest.raises(InvalidRequest) as raised:
        API.parse_response(body)
    assert raised.value.path.startswith("$.choices")


def test_an_error_body_is_an_error_of_the_server() -> None:
    with pytest.raises(UpstreamError, match="too long"):
        API.parse_response({"error": {"code": 400, "message": "too long"}})


def test_thoughts_and_calls_are_reported_and_left_out() -> None:
    items: list[Item] = [
        Thinking(content=[Text(text="hm")]),
        Assistant(content=[Text(text="a")]),
        ToolCall(name="f"),
        Assistant(content=[Refusal(text="b")]),
    ]
    response = Response(items=items, finish_reason="tool_calls", stop_sequence="END")
    again = API.render_response(response, ASKED)
    assert isinstance(again.value, dict)
    choice = again.value["choices"][0]
    assert ("ab", "stop", "client-model") == (choice["text"], choice["finish_reason"], again.value["model"])
    expected = [
        ("items[0]", "dropped"),
        ("items[2]", "dropped"),
        ("items[3].content[0]", "approximated"),
        ("items[3].content[0]", "approximated"),
        ("$.finish_reason", "approximated"),
        ("$.stop_sequence", "dropped"),
    ]
    assert expected == [(loss.path, loss.kind) for loss in again.losses]
    renderer = API.stream_renderer(ASKED)
    renderer.send(told(response, in_pieces(1)))
    assert expected == [(loss.path, loss.kind) for loss in renderer.losses]
    with pytest.raises(LossyConversion):
        API.render_response(response, ASKED, strict=True)


def test_every_joint_of_texts_is_reported() -> None:
    items: list[Item] = [
        Assistant(content=[Text(text=text) for text in ("a", "", "b", "c")]),
        Assistant(content=[Text(text="d"), Refusal(text="e")]),
    ]
    response = Response(items=items, finish_reason="stop")
    renderer = API.stream_renderer(ASKED)
    whole = fold(read(renderer.send(told(response, in_pieces(1))) + renderer.close()))
    assert ["abcde"] == [part.text for item in whole.items for part in item.content if isinstance(part, Text)]  # type: ignore[attr-defined]
    joints = ["items[0].content[2]", "items[0].content[3]", "items[1].content[0]", "items[1].content[1]"]
    for losses in (renderer.losses, API.render_response(response, ASKED).losses):
        assert joints == [loss.path for loss in losses if "joined" in loss.detail]


def test_what_is_joined_with_a_part_that_came_to_nothing_is_reported() -> None:
    end = Assistant(content=[Text(text="b")])
    renderer = API.stream_renderer(ASKED)
    begun: list[Event] = [PartStart(0, Assistant()), PartDelta(0, "a"), PartEnd(0, None)]
    renderer.send([*begun, PartStart(1, Assistant()), PartDelta(1, "b"), PartEnd(1, end), MessageEnd("stop")])
    assert ["items[1].content[0]"] == [loss.path for loss in renderer.losses if "joined" in loss.detail]


def test_events_that_break_off_and_errors_end_without_done() -> None:
    renderer = API.stream_renderer(ASKED)
    renderer.send([PartStart(0, Assistant()), PartDelta(0, "x")])
    assert b"broke off" in renderer.close()
    renderer = API.stream_renderer(ASKED)
    data = renderer.send([PartStart(0, Assistant()), PartDelta(0, "x")]) + renderer.fail(UpstreamError("gone"))
    assert b"gone" in data
    assert b"" == renderer.close() == renderer.send([MessageEnd("stop")])
    renderer = API.stream_renderer(ASKED)
    assert b'"error"' in renderer.send([MessageEnd("cancelled")])
    assert b"" == renderer.close()
    with pytest.raises(UpstreamError, match="cancelled"):
        API.render_response(Response(finish_reason="cancelled"), ASKED)


def test_a_null_usage_beside_a_member_without_a_name_says_nothing_and_can_be_sent_on() -> None:
    parts = [chunk("x", logprobs=None), chunk("", "stop")]
    bodies = [json.loads(part[6:]) | {"object": "text_completion", "usage": None, "odd": 1} for part in parts]
    bodies.append({"choices": [], "usage": {"prompt_tokens": 3, "completion_tokens": 2}})
    events = read(b"".join([frame(json.dumps(body)) for body in bodies]) + DONE)
    assert Usage(3, 2) == fold(events).usage
    assert Usage(3, 2) == fold(read(API.stream_renderer(ASKED).send(events) + DONE)).usage


def test_of_a_member_that_changes_in_the_stream_the_last_one_counts() -> None:
    made = [{"object": "text_completion", "created": created, "system_fingerprint": "f"} for created in (1, 1, 2)]
    parts = [json.loads(part[6:]) for part in (chunk("x"), chunk("y"), chunk("", "stop"))]
    events = read(b"".join([frame(json.dumps(part | head)) for part, head in zip(parts, made, strict=True)]) + DONE)
    extra = {key: plain(value) for key, value in fold(events).extra.items()}
    assert {"object": "text_completion", "created": 2, "system_fingerprint": "f"} == extra


def test_a_null_reason_beside_a_member_without_a_name_says_nothing() -> None:
    (*_, end) = read(chunk("a", new=1) + chunk("b", "stop") + DONE)
    assert isinstance(end, MessageEnd)
    assert {"new": 1} == plain(end.extra["choices"])


def test_half_a_surrogate_pair_is_sent_as_an_escape() -> None:
    data = API.stream_renderer(ASKED).send([PartStart(0, Assistant()), PartDelta(0, "a\ud800")])
    assert b'"a\\ud800"' in data


def test_errors_have_the_shape_of_the_other_apis_of_this_house() -> None:
    status, data = API.render_error(UnknownName("model", "m", []))
    told = json.loads(data)["error"]
    assert (404, "model_not_found", "unknown model 'm'; there is none") == (status, told["code"], told["message"])


@given(responses(("text", "texts", "thinking", "call", "refusal")))
def test_a_written_answer_is_read_as_the_same_text(response: Response) -> None:
    again = API.parse_response(API.render_response(response, ASKED).data)
    assert (said(response.items), response.usage) == (said(again.items), again.usage)


@given(event_lists(("text", "texts", "thinking", "call")), st.data())
def test_a_written_stream_cut_anywhere_is_read_as_the_same_text(events: list[Event], data: st.DataObject) -> None:
    before = fold(events)
    renderer = API.stream_renderer(ASKED)
    stream = renderer.send(events) + renderer.close()
    parser = API.stream_parser()
    again = [event for piece in cut_anywhere(data.draw, stream) for event in parser.feed(piece)] + parser.close()
    after = fold(again)
    assert (said(before.items), before.usage) == (said(after.items), after.usage)
    assert {"tool_calls": "stop"}.get(before.finish_reason or "", before.finish_reason) == after.finish_reason


@pytest.fixture(scope="module")
def server() -> Iterator[Loopback]:
    with Loopback() as loopback:
        yield loopback


@pytest.fixture(scope="module")
def client(server: Loopback) -> Iterator[openai.OpenAI]:
    with openai_sdk(server.url) as found:
        yield found


@settings(max_examples=20)
@given(events=event_lists(("text", "texts", "thinking", "call")))
def test_the_sdk_takes_answers_and_streams(server: Loopback, client: openai.OpenAI, events: list[Event]) -> None:
    response = fold(events)
    server.answer(API.render_response(response, ASKED).data)
    whole = client.completions.create(model="m", prompt="x")
    renderer = API.stream_renderer(ASKED)
    server.answer(renderer.send(events) + renderer.close(), SSE)
    chunks = list(client.completions.create(model="m", prompt="x", stream=True))
    text = said(response.items)
    assert text == whole.choices[0].text == "".join([one.choices[0].text for one in chunks if one.choices])
    assert {"client-model"} == {one.model for one in [whole, *chunks]}
    reasons = [one.choices[0].finish_reason for one in chunks if one.choices]
    assert [whole.choices[0].finish_reason] == reasons[-1:]
    if response.usage is not None:
        assert whole.usage == chunks[-1].usage
        assert whole.usage is not None
        assert response.usage.input == whole.usage.prompt_tokens
