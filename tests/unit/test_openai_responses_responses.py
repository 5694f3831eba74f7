"""Owns the unit tests of whole Responses answers and of errors: what each says, that it returns, what the SDK makes."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from openai import OpenAI
from openai.types.responses import Response as OfficialResponse

from tests.loopback import Loopback
from tests.responses import API, KINDS, REQUEST, TOOLED, TOOLS, without_made_up
from tests.strategies import events
from turnscript.core.conversation import (
    Assistant,
    Image,
    Item,
    Opaque,
    Refusal,
    Request,
    Response,
    Settings,
    System,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
    Usage,
)
from turnscript.core.errors import (
    InvalidRequest,
    LossyConversion,
    UpstreamError,
)
from turnscript.core.json_text import json_of, plain


@pytest.fixture(scope="module")
def loopback() -> Iterator[Loopback]:
    with Loopback() as server:
        yield server


@pytest.fixture(scope="module")
def client(loopback: Loopback) -> Iterator[OpenAI]:
    with OpenAI(api_key="-", base_url=f"{loopback.url}/v1", max_retries=0) as opened:
        yield opened


def said(*items: Item, reason: str | None = "stop", **fields: Any) -> Response:
    return Response(items=list(items), finish_reason=reason, **fields)


def text(words: str) -> Assistant:
    return Assistant(content=[Text(text=words)])


def written(response: Response, request: Request = REQUEST) -> dict[str, Any]:
    value = API.render_response(response, request).value
    assert isinstance(value, dict)
    return value


def with_losses(response: Response, request: Request = REQUEST) -> tuple[dict[str, Any], list[tuple[str, str]]]:
    """The body, and path and kind of each loss."""
    losses = API.render_response(response, request).losses
    return written(response, request), [(loss.path, loss.kind) for loss in losses]


def read(*output: Any, **members: Any) -> Response:
    return API.parse_response({"object": "response", "status": "completed", "output": list(output)} | members)


# What each part of an answer becomes.


def test_a_text_is_a_message_with_all_that_strict_clients_want() -> None:
    (item,) = written(said(text("Hello.")))["output"]
    content = [{"type": "output_text", "text": "Hello.", "annotations": [], "logprobs": []}]
    assert {"type": "message", "id": item["id"], "status": "completed", "role": "assistant", "content": content} == item


def test_a_thought_is_a_reasoning_item_with_its_summary_and_its_proof() -> None:
    thought = Thinking(content=[Text(text="Hm.")], summary=[Text(text="H")], encrypted="gAAA", id="rs_1")
    body = written(said(thought))
    assert {
        "type": "reasoning",
        "id": "rs_1",
        "summary": [{"type": "summary_text", "text": "H"}],
        "content": [{"type": "reasoning_text", "text": "Hm."}],
        "encrypted_content": "gAAA",
        "status": "completed",
    } == body["output"][0]
    assert [thought] == API.parse_response(body).items


def test_a_call_has_an_id_of_its_own_and_keeps_its_arguments_as_text() -> None:
    body = written(said(ToolCall(name="f", arguments='{"b": 1.0,"a":1e5}', id="toolu_1"), reason="tool_calls"))
    (item,) = body["output"]
    assert '{"b": 1.0,"a":1e5}' == item["arguments"]
    assert "toolu_1" == item["call_id"]
    assert item["id"].startswith("fc_")


def test_a_call_of_free_text_keeps_it() -> None:
    call = ToolCall(name="apply_patch", arguments="*** Begin\n", id="call_1", custom=True, item_id="ctc_9")
    (item,) = written(said(call, reason="tool_calls"))["output"]
    assert "custom_tool_call" == item["type"]
    assert "*** Begin\n" == item["input"]
    assert [call] == read(item).items


def test_a_refusal_is_a_refusal_part() -> None:
    (item,) = written(said(Assistant(content=[Refusal(text="No."), Text(text="Sorry")])))["output"]
    assert {"type": "refusal", "refusal": "No."} == item["content"][0]
    assert [Refusal(text="No."), Text(text="Sorry")] == read(item).items[0].content  # type: ignore[attr-defined]


def test_the_phase_of_a_message_returns() -> None:
    message = Assistant(content=[Text(text="Now.")], id="msg_1", phase="commentary")
    assert [message] == API.parse_response(written(said(message))).items


def test_annotations_log_probabilities_and_unknown_members_return() -> None:
    part = {
        "type": "output_text",
        "text": "a",
        "annotations": [{"type": "url_citation", "url": "u", "title": "t", "start_index": 0, "end_index": 1}],
        "logprobs": [{"token": "a", "bytes": [97], "logprob": -0.1, "top_logprobs": []}],
        "new": 1.0,
    }
    item = {"type": "message", "id": "msg_1", "role": "assistant", "status": "completed", "content": [part], "odd": 1}
    assert [item] == written(read(item))["output"]


def test_an_item_of_a_kind_that_is_not_known_stays_as_it_is() -> None:
    search = {"type": "web_search_call", "id": "ws_1", "status": "completed", "action": {"type": "search"}}
    future = {"type": "hologram", "id": "h_1", "x": 1.50}
    assert [search, future] == written(read(search, future))["output"]


def test_an_item_of_another_api_is_dropped_with_a_loss() -> None:
    block = Opaque(type="server_tool_use", value=json_of({"type": "server_tool_use"}), role="assistant")
    body, losses = with_losses(said(block))
    assert [("items[0]", "dropped")] == losses
    assert [] == body["output"]


def test_a_result_that_a_server_ran_itself_is_an_item_too() -> None:
    result = ToolResult(id="call_1", content=[Text(text="7")])
    (item,) = written(said(result))["output"]
    assert ("function_call_output", "7", "completed") == (item["type"], item["output"], item["status"])


def test_a_message_of_another_role_is_an_item_too() -> None:
    (item,) = written(said(System(content=[Text(text="x")])))["output"]
    assert ("message", "system") == (item["type"], item["role"])


def test_the_name_of_a_speaker_is_a_loss_and_an_open_text_is_incomplete() -> None:
    body, losses = with_losses(said(Assistant(content=[Text(text="a")], name="Bob", open=True)))
    assert [("items[0].name", "dropped")] == losses
    assert "incomplete" == body["output"][0]["status"]


def test_proofs_of_another_api_are_losses() -> None:
    thought = Thinking(content=[Text(text="t")], signature="s", redacted="r", of="reflect")
    rendered = API.render_response(said(thought), REQUEST)
    assert ["items[0].signature", "items[0].redacted", "items[0].kind"] == [loss.path for loss in rendered.losses]


def test_a_picture_in_an_answer_is_carried() -> None:
    (item,) = written(said(Assistant(content=[Image(url="https://x/y.png")])))["output"]
    assert [{"type": "input_image", "image_url": "https://x/y.png"}] == item["content"]


def test_a_thought_is_shown_as_its_summary_when_one_was_asked_for() -> None:
    request = API.parse_request({"model": "m", "input": "Hi", "reasoning": {"summary": "auto"}})
    body, losses = with_losses(said(Thinking(content=[Text(text="Hm.")])), request)
    (item,) = body["output"]
    assert [{"type": "summary_text", "text": "Hm."}] == item["summary"]
    assert [{"type": "reasoning_text", "text": "Hm."}] == item["content"]
    assert [("items[0].summary", "invented")] == losses


# Names that the client gave.


def test_the_namespace_of_a_call_is_restored() -> None:
    (item,) = written(said(ToolCall(name="fs__read", id="c"), reason="tool_calls"), TOOLED)["output"]
    assert ("fs", "read", "function_call") == (item["namespace"], item["name"], item["type"])


def test_a_name_with_underscores_that_is_no_namespace_stays() -> None:
    calls = [ToolCall(name=name, id=name) for name in ("plain__tool", "other__read", "ns__f")]
    output = written(said(*calls, reason="tool_calls"), TOOLED)["output"]
    assert [("plain__tool", None), ("other__read", None), ("ns__f", None)] == [
        (i["name"], i.get("namespace")) for i in output
    ]


@pytest.mark.parametrize(("name", "space"), [("apply_patch", None), ("fs__edit", None), ("edit", "fs")])
def test_free_text_that_the_model_wrote_as_json_is_free_text_again(name: str, space: str | None) -> None:
    call = ToolCall(name=name, namespace=space, arguments='{"input": "a\\n\\"b\\" \\u00e9"}', id="c")
    body, losses = with_losses(said(call, reason="tool_calls"), TOOLED)
    (item,) = body["output"]
    assert ("custom_tool_call", 'a\n"b" é') == (item["type"], item["input"])
    assert [] == losses


@pytest.mark.parametrize("arguments", ['{"input": 1}', '{"a": "x", "b": "y"}', "*** Begin", "{}", '["x"]'])
def test_free_text_in_any_other_form_is_passed_on_with_a_loss(arguments: str) -> None:
    call = ToolCall(name="apply_patch", arguments=arguments, id="c")
    body, losses = with_losses(said(call, reason="tool_calls"), TOOLED)
    assert arguments == body["output"][0]["input"]
    assert [("items[0].arguments", "approximated")] == losses


def test_two_calls_of_one_id_get_two() -> None:
    calls = [ToolCall(name="f", id="call_1"), ToolCall(name="g", id="call_1")]
    body, losses = with_losses(said(*calls, reason="tool_calls"))
    first, second = body["output"]
    assert "call_1" == first["call_id"] != second["call_id"]
    assert [("items[1].id", "renamed")] == losses


def test_two_renders_of_one_response_are_equal_and_those_of_another_are_not() -> None:
    def call(arguments: str) -> bytes:
        return API.render_response(said(ToolCall(name="f", arguments=arguments), reason="tool_calls"), TOOLED).data

    assert call("{}") == call("{}")
    assert json.loads(call("{}"))["id"] != json.loads(call('{"a":1}'))["id"]


# How an answer ends.


@pytest.mark.parametrize(
    ("reason", "status", "why"),
    [
        ("stop", "completed", None),
        ("tool_calls", "completed", None),
        ("length", "incomplete", "max_output_tokens"),
        ("content_filter", "incomplete", "content_filter"),
        ("model_context_window_exceeded", "incomplete", "max_output_tokens"),
        ("refusal", "incomplete", "content_filter"),
        ("pause_turn", "incomplete", "pause_turn"),
        ("steered", "incomplete", "steered"),
        ("cancelled", "cancelled", None),
        (None, "completed", None),
    ],
)
def test_each_reason_has_its_status(reason: str | None, status: str, why: str | None) -> None:
    body = written(said(text("a"), reason=reason))
    assert status == body["status"]
    assert ({"reason": why} if why else None) == body["incomplete_details"]
    assert ("incomplete" if status == "incomplete" else "completed") == body["output"][0]["status"]


@pytest.mark.parametrize("reason", ["model_context_window_exceeded", "refusal", "pause_turn", None])
def test_a_reason_without_a_word_here_is_a_loss(reason: str | None) -> None:
    rendered = API.render_response(said(text("a"), reason=reason), REQUEST)
    assert ["$.finish_reason"] == [loss.path for loss in rendered.losses]


@pytest.mark.parametrize("reason", ["stop", "length", "content_filter", "steered", "cancelled"])
def test_a_reason_with_a_word_here_returns(reason: str) -> None:
    assert reason == API.parse_response(written(said(text("a"), reason=reason))).finish_reason


def test_a_model_that_declined_in_words_has_completed() -> None:
    assert "completed" == written(said(Assistant(content=[Refusal(text="No.")]), reason="refusal"))["status"]


def test_the_stop_string_is_lost_and_strict_says_so() -> None:
    response = said(text("a"), stop_sequence="END")
    assert ["$.stop_sequence"] == [loss.path for loss in API.render_response(response, REQUEST).losses]
    with pytest.raises(LossyConversion):
        API.render_response(response, REQUEST, strict=True)
    assert "completed" == written(response)["status"]


def test_unnamed_details_of_an_incomplete_response_return() -> None:
    details = {"reason": "max_output_tokens", "limit": 9}
    assert details == written(read(status="incomplete", incomplete_details=details))["incomplete_details"]


def test_a_call_that_the_limit_cut_off_is_left_out_and_an_issue() -> None:
    cut = {"type": "function_call", "name": "f", "arguments": '{"a', "call_id": "c", "status": "incomplete"}
    response = read(cut, status="incomplete", incomplete_details={"reason": "max_output_tokens"})
    assert ([], "length") == (response.items, response.finish_reason)
    assert ["unclosed_call"] == [issue.kind for issue in response.issues]


@pytest.mark.parametrize("reason", ["length", "tool_calls"])
def test_a_call_that_a_backend_left_open_is_told_as_incomplete(reason: str) -> None:
    cut = ToolCall(name="f", arguments='{"a', id="c", open=True)
    for answer in (said(cut, reason=reason), said(reason=reason, cut=cut)):
        body, _ = with_losses(answer)
        assert ["incomplete", "incomplete"] == [body["status"], *[item["status"] for item in body["output"]]]
        assert ('{"a', "max_output_tokens") == (body["output"][0]["arguments"], body["incomplete_details"]["reason"])
        again = API.parse_response(json.dumps(body))
        assert again.cut is not None
        assert ([], "f", "c", '{"a') == (again.items, again.cut.name, again.cut.id, again.cut.arguments)
    whole = ToolCall(name="f", arguments='{"a": 1}', id="c", open=True)
    assert 1 == len(written(said(whole, reason="length"))["output"])


def test_an_answer_that_has_no_status_is_complete() -> None:
    assert "stop" == API.parse_response({"output": []}).finish_reason


@pytest.mark.parametrize("status", ["in_progress", "queued", "something"])
def test_an_answer_that_is_not_over_is_no_answer(status: str) -> None:
    with pytest.raises(UpstreamError, match=status):
        read(status=status)


@pytest.mark.parametrize(
    ("body", "retryable"),
    [
        ({"output": [], "status": "failed", "error": {"code": "server_error", "message": "boom"}}, True),
        ({"output": [], "status": "completed", "error": {"code": "invalid_prompt", "message": "boom"}}, False),
        ({"error": {"message": "boom", "type": "invalid_request_error", "code": None}}, False),
        ({"error": "boom"}, True),
    ],
)
def test_an_error_body_is_an_upstream_error(body: Any, retryable: bool) -> None:
    with pytest.raises(UpstreamError, match="boom") as caught:
        API.parse_response(body)
    assert retryable == caught.value.retryable


@pytest.mark.parametrize(
    ("body", "path"),
    [
        ({"object": "response"}, "$.output"),
        ({"output": "x"}, "$.output"),
        ({"output": [1]}, "$.output[0]"),
        ({"output": [{"type": "function_call", "name": "f", "call_id": "c"}]}, "$.output[0].arguments"),
    ],
)
def test_what_is_no_response_names_the_place(body: Any, path: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        API.parse_response(body)
    assert path == caught.value.path


# What it cost, and what it says of the request.


def test_usage_has_every_detail_and_returns() -> None:
    usage = Usage(input=10, output=5, cached=3, cache_written=2, reasoning=1)
    body = written(said(text("a"), usage=usage))
    assert {
        "input_tokens": 10,
        "input_tokens_details": {"cached_tokens": 3, "cache_write_tokens": 2},
        "output_tokens": 5,
        "output_tokens_details": {"reasoning_tokens": 1},
        "total_tokens": 15,
    } == body["usage"]
    assert usage == API.parse_response(body).usage


@pytest.mark.parametrize("usage", [{"input_tokens": 4, "output_tokens": 2}, {"input_tokens": 4, "output_tokens": 2,
                         "input_tokens_details": None, "output_tokens_details": None}])  # fmt: skip
def test_usage_without_details_is_read(usage: Any) -> None:
    assert Usage(input=4, output=2) == read(usage=usage).usage


def test_members_of_usage_without_a_name_return() -> None:
    usage = {"input_tokens": 4, "input_tokens_details": {"x": 1}, "output_tokens": 2, "cost": 0.5}
    body = written(read(usage=usage))["usage"]
    assert (0.5, 1, 0) == (
        body["cost"],
        body["input_tokens_details"]["x"],
        body["input_tokens_details"]["cached_tokens"],
    )


def test_the_response_repeats_the_request() -> None:
    asked = {
        "model": "m",
        "instructions": "Be brief.",
        "input": "Hi",
        "tools": TOOLS,
        "tool_choice": {"type": "function", "name": "plain__tool"},
        "parallel_tool_calls": False,
        "temperature": 0.5,
        "top_p": 1,
        "max_output_tokens": 9,
        "max_tool_calls": 2,
        "metadata": {"k": "v"},
        "store": False,
        "truncation": "auto",
        "user": "u",
        "text": {"verbosity": "low"},
        "reasoning": {"effort": "high"},
        "previous_response_id": "resp_0",
        "prompt_cache_key": "key",
        "safety_identifier": "s",
        "stream": True,
        "include": ["reasoning.encrypted_content"],
    }
    body = written(said(text("a")), API.parse_request(asked))
    same = set(asked) - {"input", "stream", "include", "text", "reasoning", "tools"}
    assert {key: asked[key] for key in same} == {key: body[key] for key in same}
    assert {"format": {"type": "text"}, "verbosity": "low"} == body["text"]
    assert {"effort": "high", "summary": None} == body["reasoning"]
    described = [tool | ({"description": None} if tool["type"] == "function" else {}) for tool in TOOLS]
    assert described == body["tools"]
    assert not {"input", "stream", "include"} & set(body)


def test_instructions_in_the_input_are_not_told_as_instructions() -> None:
    request = API.parse_request({"model": "m", "input": [{"role": "developer", "content": "Be brief."}]})
    assert None is written(said(text("a")), request)["instructions"]


def test_a_conversation_that_the_request_names_is_an_object() -> None:
    request = API.parse_request({"model": "m", "input": "Hi", "conversation": "conv_1"})
    assert {"id": "conv_1"} == written(said(text("a")), request)["conversation"]


def test_the_clients_own_name_of_the_model_is_told() -> None:
    assert "gpt-client" == written(said(text("a"), model="rwkv-7"))["model"]
    assert "rwkv-7" == written(said(text("a"), model="rwkv-7"), Request())["model"]
    assert "" == written(said(text("a")), Request())["model"]


def test_what_a_server_says_of_itself_returns_and_a_null_is_nothing() -> None:
    body = {"id": "resp_1", "created_at": 7.5, "service_tier": "flex", "tool_usage": {"x": 1}, "new": 1, "user": None}
    response = read(**body)
    again = written(response)
    assert {key: value for key, value in body.items() if value is not None} == {
        key: again[key] for key in body if key != "user"
    }
    assert "user" not in response.extra


def test_what_the_request_says_is_not_overruled_by_a_server_but_the_tier_is() -> None:
    request = API.parse_request({"model": "m", "input": "Hi", "temperature": 0.5, "service_tier": "auto"})
    again = written(read(temperature=1.0, top_p=0.9, service_tier="flex"), request)
    assert (0.5, 0.9, "flex") == (again["temperature"], again["top_p"], again["service_tier"])


def test_members_of_another_apis_response_are_losses() -> None:
    extra = {"object": json_of("chat.completion"), "system_fingerprint": json_of("fp"), "service_tier": json_of("x")}
    body, losses = with_losses(said(text("a"), extra=extra, origin="openai-chat"))
    assert [(f"$.{key}", "dropped") for key in extra] == losses
    assert ("response", "default") == (body["object"], body["service_tier"])


def test_a_body_of_the_api_itself_returns_whole() -> None:
    body = written(said(Thinking(content=[Text(text="t")]), text("a"), usage=Usage(input=1, output=2)), TOOLED)
    assert body == written(API.parse_response(body), TOOLED)


# The official SDK.


@given(events.responses(KINDS))
def test_every_response_is_what_the_sdk_declares_and_returns(response: Response) -> None:
    rendered = API.render_response(response, REQUEST)
    official = OfficialResponse.model_validate_json(rendered.data)
    content = [part for item in response.items if isinstance(item, Assistant) for part in item.content]
    assert "".join(part.text for part in content if isinstance(part, Text)) == official.output_text
    again = API.parse_response(rendered.data)
    assert response.items == without_made_up(again.items, response.items)
    assert (response.finish_reason, response.usage) == (again.finish_reason, again.usage)
    assert response.id is None or response.id == again.id
    assert (["$.stop_sequence"] if response.stop_sequence else []) == [loss.path for loss in rendered.losses]


def test_the_sdk_takes_a_response_over_http(loopback: Loopback, client: OpenAI) -> None:
    answer = said(
        Thinking(content=[Text(text="Hm.")]),
        text("Hé"),
        ToolCall(name="fs__read", arguments='{"a":1.0}', id="c1"),
        ToolCall(name="apply_patch", arguments="*** x", id="c2", custom=True),
        reason="tool_calls",
        usage=Usage(input=3, output=4),
    )
    loopback.answer(API.render_response(answer, TOOLED).data)
    got = client.responses.create(model="m", input="Hi")
    assert "Hé" == got.output_text
    assert ["reasoning", "message", "function_call", "custom_tool_call"] == [item.type for item in got.output]
    assert ('{"a":1.0}', "fs", "read") == (got.output[2].arguments, got.output[2].namespace, got.output[2].name)  # type: ignore[union-attr]
    assert 0 == got.usage.output_tokens_details.reasoning_tokens  # type: ignore[union-attr]
    assert "completed" == got.status


def test_settings_without_a_conversation_are_enough_of_a_request() -> None:
    body = written(said(text("a")), Request(settings=Settings(model="m", temperature=0)))
    assert ("m", 0) == (body["model"], body["temperature"])


def test_the_raw_bytes_of_an_opaque_item_are_untouched() -> None:
    (item,) = API.parse_response(b'{"output":[{"type":"x","n":1.50e1}]}').items
    assert isinstance(item, Opaque)
    assert b'{"type":"x","n":1.50e1}' == bytes(item.value)
    assert 15.0 == plain(item.value)["n"]


def test_a_message_around_calls_is_kept_with_all_that_it_says() -> None:
    """No model answers in the source document's form of a request, and nothing of it may get lost."""
    call = {"type": "tool_call", "id": "c", "name": "f", "arguments": "{}"}
    around: dict[str, Any] = {"type": "message", "id": "m", "role": "assistant", "more": 1}
    body: dict[str, Any] = {"status": "completed", "model": "m", "id": "r"}
    alone = body | {"output": [around | {"content": [call]}]}
    rendered = API.render_response(API.parse_response(json.dumps(alone)), REQUEST)
    ((written,), []) = (rendered.value["output"], rendered.losses)
    assert ("m", "c", 1) == (written["id"], written["call_id"], written["more"])
    mixed = around | {"content": [{"type": "output_text", "text": "Hi"}, call]}
    (item,) = API.parse_response(json.dumps(body | {"output": [mixed]})).items
    assert isinstance(item, Opaque)
    assert ("message", mixed, "$.output[0]") == (item.type, plain(item.value), item.at)
