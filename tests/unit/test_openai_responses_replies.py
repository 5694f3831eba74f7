"""Owns the unit tests of what becomes of a Responses answer that is incomplete, and of what a server decides of it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from msgspec.structs import replace
from openai import OpenAI

from tests.loopback import SSE, Loopback
from tests.responses import API, CALL, REQUEST, TEXT, THOUGHT, answer, last, parsed, payloads, shifted, types_of
from turnscript.apis.api import Reply
from turnscript.core.conversation import Assistant, Refusal, Request, Response, Text, Thinking
from turnscript.core.errors import UpstreamError
from turnscript.core.events import Event, MessageEnd, PartDelta, PartEnd, PartStart, fold, unfold
from turnscript.core.sealed_thoughts import sealed

COMPLETED = Reply(incomplete_as="completed")
KEY = b"0123456789abcdef"


@pytest.fixture(scope="module")
def loopback() -> Iterator[Loopback]:
    with Loopback() as server:
        yield server


@pytest.fixture(scope="module")
def client(loopback: Loopback) -> Iterator[OpenAI]:
    with OpenAI(api_key="-", base_url=f"{loopback.url}/v1", max_retries=0) as opened:
        yield opened


def streamed(told: list[Event], reply: Reply = COMPLETED) -> tuple[bytes, list[tuple[str, str]]]:
    writer = API.stream_renderer(REQUEST, reply)
    data = writer.send(told) + writer.close()
    return data, [(loss.path, loss.kind) for loss in writer.losses]


def test_a_response_says_what_its_model_samples_with_as_far_as_it_is_known() -> None:
    usual = {"temperature": 1.0, "top_p": 1.0, "presence_penalty": 0.0, "frequency_penalty": 0.0}
    asked = {"model": "m", "input": "Hi", "temperature": 0.5, "presence_penalty": 0.25}
    runs = Reply(id="resp_1", sampling={"temperature": 0.4, "top_p": 0.3, "logprobs": True})
    for members, reply, found in (
        ({}, Reply(), {}),
        (asked, Reply(), {"temperature": 0.5, "presence_penalty": 0.25}),
        (asked, runs, {"temperature": 0.4, "top_p": 0.3, "presence_penalty": 0.25}),
        (asked | {"temperature": None}, Reply(), {"presence_penalty": 0.25}),
    ):
        request = API.parse_request({"model": "m", "input": "Hi"} | members)
        whole: Any = API.render_response(Response(items=[TEXT], finish_reason="stop"), request, reply=reply).value
        writer = API.stream_renderer(request, reply)
        data = writer.send(answer(TEXT)) + writer.close()
        told = [json.loads(json.dumps(whole, default=lambda raw: json.loads(bytes(raw))))]
        told += [event["response"] for event in payloads(data) if "response" in event]
        assert 4 == len(told)
        assert [usual | found] * 4 == [{name: body[name] for name in usual} for body in told]


def test_the_tools_of_a_response_have_all_members_whether_or_not_they_were_said() -> None:
    tools: list[dict[str, Any]] = [
        {"type": "function", "name": "f"},
        {"type": "function", "name": "g", "description": "G.", "parameters": {}, "strict": True, "new": 1},
        {"type": "custom", "name": "h"},
    ]
    request = API.parse_request({"model": "m", "input": "Hi", "tools": tools})
    told = json.loads(API.render_response(Response(items=[TEXT], finish_reason="stop"), request).data)["tools"]
    assert [tools[0] | {"description": None, "parameters": None, "strict": None}, *tools[1:]] == told


@pytest.mark.parametrize(("reason", "word"), [("length", "max_output_tokens"), ("content_filter", "content_filter")])
def test_a_client_that_takes_no_other_end_is_told_completed_and_the_reason_beside_it(
    loopback: Loopback, client: OpenAI, reason: str, word: str
) -> None:
    data, losses = streamed(answer(THOUGHT, TEXT, reason=reason))
    rendered = API.render_response(Response(items=[THOUGHT, TEXT], finish_reason=reason), REQUEST, reply=COMPLETED)
    whole: Any = rendered.value
    last = payloads(data)[-1]
    assert "response.completed" == last["type"]
    for body in (whole, last["response"]):
        assert ("completed", {"reason": word}) == (body["status"], body["incomplete_details"])
        assert ["completed", "incomplete"] == [item["status"] for item in body["output"]]
    assert [("$.finish_reason", "approximated")] == losses
    assert losses == [(loss.path, loss.kind) for loss in rendered.losses]
    assert reason == fold(parsed(data)).finish_reason == API.parse_response(whole).finish_reason
    loopback.answer(data, SSE)
    with client.responses.stream(model="m", input="Hi") as stream:
        assert "Hello" == stream.get_final_response().output_text


def test_other_ends_are_what_they_are() -> None:
    for reply in (Reply(), COMPLETED):
        assert "response.completed" == payloads(streamed(answer(TEXT), reply)[0])[-1]["type"]
        cancelled = payloads(streamed(answer(TEXT, reason="cancelled"), reply)[0])[-1]
        assert ("response.incomplete", "cancelled") == (cancelled["type"], cancelled["response"]["status"])
    assert "response.incomplete" == payloads(streamed(answer(TEXT, reason="length"), Reply())[0])[-1]["type"]


def test_a_call_that_the_limit_cut_off_is_not_in_a_response_told_as_completed() -> None:
    told = answer(TEXT, CALL, reason="length")
    ended = [event for event in told if getattr(event, "part", None) is not CALL]
    data, _ = streamed(ended)
    assert ["message"] == [item["type"] for item in payloads(data)[-1]["response"]["output"]]


def test_a_seal_is_told_with_the_whole_item_and_no_sooner_whether_or_not_it_was_asked_for() -> None:
    told = sealed(answer(THOUGHT, TEXT), KEY)
    thoughts = [event.part for event in told if isinstance(event, PartEnd) and isinstance(event.part, Thinking)]
    seal = str(thoughts[0].seal)
    bodies = payloads(streamed(told, Reply())[0])
    holders = [body["type"].removeprefix("response.") for body in bodies if seal in str(body)]
    assert ["output_item.done", "completed"] == holders
    done = next(body["item"] for body in bodies if body["type"] == "response.output_item.done")
    assert (seal, [], [{"type": "reasoning_text", "text": "Hm."}]) == (
        done["encrypted_content"],
        done["summary"],
        done["content"],
    )


def test_a_summary_that_was_asked_for_is_told_piece_by_piece_and_in_the_item() -> None:
    request = API.parse_request({"model": "m", "input": "Hi", "reasoning": {"summary": "auto"}})
    writer = API.stream_renderer(request)
    data = writer.send(sealed(answer(Thinking(content=[Text(text="Hm.")])), KEY)) + writer.close()
    told = [type_ for type_ in types_of(data) if "summary" in type_]
    part, text = "reasoning_summary_part", "reasoning_summary_text"
    assert [f"{part}.added", f"{text}.delta", f"{text}.delta", f"{text}.done", f"{part}.done"] == told
    (item,) = payloads(data)[-1]["response"]["output"]
    assert [{"type": "summary_text", "text": "Hm."}] == item["summary"]
    assert item["encrypted_content"].startswith("ts1.")


@pytest.mark.parametrize("ends", ["fails", "is over"])
def test_nothing_follows_the_end_of_a_stream_not_even_one_delta(ends: str) -> None:
    writer = API.stream_renderer(Request())
    assert b"response.created" in writer.send([PartStart(0, Assistant()), PartDelta(0, "Hi")])
    assert b'"delta":" you"' in writer.send([PartDelta(0, " you")])
    if ends == "fails":
        assert b"response.failed" in writer.fail(UpstreamError("it broke off"))
    else:
        whole = Assistant(content=[Text(text="Hi you")])
        assert b"response.completed" in writer.send([PartEnd(0, whole), MessageEnd("stop")])
    assert b"" == writer.send([PartDelta(0, " more")])


@pytest.mark.parametrize(
    "given",
    [THOUGHT, TEXT, Assistant(content=[Refusal(text="No, sorry")])],
    ids=lambda item: type(item.content[0]).__name__ + item.kind,
)
@pytest.mark.parametrize("ended", [True, False])
@pytest.mark.parametrize("summary", [None, "auto"])
def test_what_was_announced_and_came_to_nothing_is_told_as_unfinished(
    loopback: Loopback, client: OpenAI, given: Assistant | Thinking, ended: bool, summary: str | None
) -> None:
    request = replace(REQUEST, settings=replace(REQUEST.settings, reasoning_summary=summary))
    first, *deltas = answer(given)[:-2]
    told: list[Event] = [first, *deltas, *([PartEnd(0, None)] if ended else [])]
    for behind in ([], shifted(answer(TEXT, CALL)[:-1], 1)):
        writer = API.stream_renderer(request)
        data = writer.send([*told, *behind, MessageEnd("stop")]) + writer.close()
        done = [event["item"] for event in payloads(data) if event["type"] == "response.output_item.done"]
        assert sorted(map(str, done)) == sorted(map(str, last(data)["output"]))
        (item,) = [one for one in done if one["status"] == "incomplete"]
        part = item["content"][0]
        assert "".join(delta.text for delta in deltas if isinstance(delta, PartDelta)) == (
            part.get("text") or part["refusal"]
        )
        assert ("items[0]", "approximated") in [(loss.path, loss.kind) for loss in writer.losses]
        loopback.answer(data, SSE)
        with client.responses.stream(model="m", input="Hi") as stream:
            assert len(done) == len(stream.get_final_response().output)


def test_a_text_that_was_announced_and_said_nothing_is_an_empty_one(loopback: Loopback, client: OpenAI) -> None:
    data, losses = streamed([PartStart(0, Assistant()), MessageEnd("stop")])
    assert [[]] == [item["content"] for item in last(data)["output"]]
    assert [("items[0]", "approximated")] == losses[:1]
    loopback.answer(data, SSE)
    with client.responses.stream(model="m", input="Hi") as stream:
        assert "" == stream.get_final_response().output_text


@pytest.mark.parametrize("details", [{"reason": "tired"}, None])
def test_an_end_that_has_no_word_in_the_model_returns(details: Any) -> None:
    response = API.parse_response({"status": "incomplete", "incomplete_details": details, "output": []})
    rendered, (data, lost) = API.render_response(response, REQUEST), streamed(unfold(response), Reply())
    assert ([], []) == (rendered.losses, lost)
    for body in (json.loads(rendered.data), payloads(data)[-1]["response"]):
        assert ("incomplete", details) == (body["status"], body["incomplete_details"])
