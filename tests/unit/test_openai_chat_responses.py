"""Whole answers of Chat Completions: read, written, taken by the official SDK, never better than true."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import openai
import pytest
from hypothesis import example, given, settings
from msgspec.structs import replace

from tests.loopback import Loopback
from tests.sdks import openai_sdk
from tests.strategies.events import responses
from turnscript.apis.api import Reply
from turnscript.apis.openai_chat import OpenAIChat
from turnscript.convert.verbs import convert
from turnscript.core.conversation import (
    Assistant,
    Conversation,
    Issue,
    Item,
    Opaque,
    Refusal,
    Request,
    Response,
    Settings,
    Text,
    Thinking,
    Tool,
    ToolCall,
    Usage,
)
from turnscript.core.errors import InvalidRequest, LossyConversion, UpstreamError
from turnscript.core.events import fold
from turnscript.core.json_text import Json
from turnscript.core.losses import Loss
from turnscript.core.payloads import Rendered

API = OpenAIChat()
ASKED = Request(settings=Settings(model="client-model"), origin="openai-chat")

USAGE = {
    "prompt_tokens": 20,
    "completion_tokens": 7,
    "total_tokens": 27,
    "prompt_tokens_details": {"cached_tokens": 5, "cache_write_tokens": 2},
    "completion_tokens_details": {"reasoning_tokens": 3},
}


def body_of(message: dict[str, Any], finish_reason: str | None = "stop", **members: Any) -> dict[str, Any]:
    choice = {"index": 0, "message": {"role": "assistant"} | message, "finish_reason": finish_reason}
    body = {"id": "chatcmpl-1", "object": "chat.completion", "created": 17, "model": "m", "choices": [choice]}
    return body | members


def called(arguments: str, name: str = "f", id_: str = "c1") -> dict[str, Any]:
    return {"id": id_, "type": "function", "function": {"name": name, "arguments": arguments}}


def rendered(response: Response, request: Request = ASKED) -> dict[str, Any]:
    value = API.render_response(response, request).value
    assert isinstance(value, dict)
    return value


def message_of(body: dict[str, Any]) -> dict[str, Any]:
    message: dict[str, Any] = body["choices"][0]["message"]
    return message


def kinds(losses: list[Loss]) -> list[tuple[str, str]]:
    return [(loss.path, loss.kind) for loss in losses]


# Reading.


def test_every_member_of_a_message_becomes_an_item() -> None:
    message = {
        "content": "Hi",
        "refusal": "no",
        "reasoning_content": "hm",
        "tool_calls": [
            called('{"a": 1.0}'),
            {"id": "c2", "type": "custom", "custom": {"name": "patch", "input": "*** x"}},
        ],
    }
    response = API.parse_response(body_of(message, "tool_calls", usage=USAGE))
    expected: list[Item] = [
        Thinking(content=[Text(text="hm")]),
        Assistant(content=[Text(text="Hi")]),
        Assistant(content=[Refusal(text="no")]),
        ToolCall(name="f", arguments='{"a": 1.0}', id="c1"),
        ToolCall(name="patch", arguments="*** x", id="c2", custom=True),
    ]
    assert expected == response.items
    assert ("tool_calls", "chatcmpl-1", "m") == (response.finish_reason, response.id, response.model)
    assert Usage(20, 7, 5, 2, 3) == response.usage
    assert [] == response.issues
    assert response.raw is None


@pytest.mark.parametrize("content", ["", None])
def test_an_empty_reply_has_no_items(content: str | None) -> None:
    assert [] == API.parse_response(body_of({"content": content, "refusal": None, "annotations": []})).items


CALLED: list[tuple[dict[str, Any], str]] = [
    ({"tool_calls": [called("{}")]}, "tool_calls"),
    ({"function_call": {"name": "f", "arguments": "{}"}}, "function_call"),
    ({"refusal": "No."}, "stop"),
]


@pytest.mark.parametrize("content", ["", None])
@pytest.mark.parametrize(("beside", "reason"), CALLED)
def test_an_empty_content_comes_back_as_it_was(content: str | None, beside: dict[str, Any], reason: str) -> None:
    body = body_of({"content": content, **beside}, reason)
    response = API.parse_response(body)
    assert content == message_of(rendered(response))["content"]
    archive = convert(body, API.name, "rwkv-universal")
    again: Any = convert(str(archive.value), "rwkv-universal", API.name)
    assert ([], content) == ([*archive.losses, *again.losses], message_of(again.value)["content"])


def test_an_empty_content_beside_calls_is_lost_elsewhere_with_its_place() -> None:
    body = body_of({"content": "", "tool_calls": [called("{}")]}, "tool_calls")
    losses = convert(body, API.name, "anthropic-messages").losses
    assert [("$.choices[0].message.content", "dropped")] == [
        (loss.path, loss.kind) for loss in losses if "content" in loss.path
    ]


def test_an_empty_piece_of_a_stream_is_no_text() -> None:
    start = {"role": "assistant", "content": "", "tool_calls": [{"index": 0} | called("{}")]}
    chunks = [{"index": 0, "delta": start, "finish_reason": None}, {"index": 0, "delta": {}, "finish_reason": "stop"}]
    parser = API.stream_parser()
    data = "".join(f"data: {json.dumps({'choices': [chunk]})}\n\n" for chunk in chunks) + "data: [DONE]\n\n"
    response = fold([*parser.feed(data.encode()), *parser.close()])
    assert [ToolCall(name="f", arguments="{}", id="c1")] == response.items


@pytest.mark.parametrize("arguments", ['{"a":1.0,"é":1e5,"a":18446744073709551616}', '{ "x" : "\\u00e9" }', "{}", ""])
def test_arguments_stay_the_text_that_they_were(arguments: str) -> None:
    response = API.parse_response(body_of({"content": None, "tool_calls": [called(arguments)]}, "tool_calls"))
    assert [ToolCall(name="f", arguments=arguments, id="c1")] == response.items
    assert arguments == message_of(rendered(response))["tool_calls"][0]["function"]["arguments"]


def test_a_call_that_the_limit_cut_off_is_none() -> None:
    calls = [called('{"a":1}'), called('{"b":"ha', id_="c2")]
    response = API.parse_response(body_of({"content": None, "tool_calls": calls}, "length"))
    assert [ToolCall(name="f", arguments='{"a":1}', id="c1")] == response.items
    assert "length" == response.finish_reason
    assert [("unclosed_call", True)] == [(one.kind, "cut off after 8" in one.detail) for one in response.issues]


def test_broken_arguments_of_a_whole_call_are_told_and_an_issue() -> None:
    response = API.parse_response(body_of({"tool_calls": [called('{"b":')]}, "tool_calls"))
    assert [ToolCall(name="f", arguments='{"b":', id="c1")] == response.items
    assert ["invalid_json"] == [issue.kind for issue in response.issues]


@pytest.mark.parametrize(
    ("arguments", "text", "lost"),
    [
        ('{"input": "*** \\u00e9"}', "*** é", []),
        ('{"input": 1}', '{"input": 1}', [("items[0].arguments", "approximated")]),
    ],
)
def test_free_text_that_the_model_wrote_as_json_is_free_text_again(
    arguments: str, text: str, lost: list[tuple[str, str]]
) -> None:
    tools = [Tool(name="patch", type="custom"), Tool(name="f")]
    asked = Request(conversation=Conversation(tools=tools), origin="openai-chat")
    calls = [ToolCall(name=name, arguments=arguments, id=name, at="items[0]") for name in ("patch", "f")]
    answer = API.render_response(Response(items=[*calls], finish_reason="tool_calls"), asked)
    assert [
        {"id": "patch", "type": "custom", "custom": {"name": "patch", "input": text}},
        {"id": "f", "type": "function", "function": {"name": "f", "arguments": arguments}},
    ] == message_of(answer.value)["tool_calls"]
    assert lost == kinds(answer.losses)


def test_the_deprecated_call_comes_back_as_it_was() -> None:
    body = body_of({"content": None, "function_call": {"name": "f", "arguments": "{}"}}, "function_call")
    response = API.parse_response(body)
    assert "tool_calls" == response.finish_reason
    written = rendered(response)
    assert {"name": "f", "arguments": "{}"} == message_of(written)["function_call"]
    assert "function_call" == written["choices"][0]["finish_reason"]


@pytest.mark.parametrize(
    "inside",
    [
        {"browser": {"url": "x", "n": 1.0}},
        {"function": {"name": "f", "arguments": "{}", "server": "s"}},
        {"function": {"name": "f"}, "x": None},
        {"function": {}},
        {"custom": {"name": "g", "input": ""}},
    ],
)
def test_a_call_of_an_unknown_type_is_kept_whole(inside: dict[str, Any]) -> None:
    entry = {"id": "c1", "type": "browser", **inside}
    response = API.parse_response(body_of({"content": None, "tool_calls": [entry]}, "tool_calls"))
    assert ["browser"] == [item.type for item in response.items if isinstance(item, Opaque)]
    assert [entry] == message_of(rendered(response))["tool_calls"]


def test_members_without_a_name_survive_in_their_places() -> None:
    logprobs = {"content": [{"token": "Hi", "bytes": [72, 105], "logprob": -0.5, "top_logprobs": []}], "refusal": None}
    annotation = {"type": "url_citation", "url_citation": {"start_index": 0, "end_index": 2, "title": "t", "url": "u"}}
    message = {"content": "Hi", "annotations": [annotation], "audio": {"id": "a", "data": "QQ=="}, "x_new": 1.0}
    body = body_of(message, usage=USAGE | {"x": 1}, system_fingerprint="fp", service_tier=None, timings={"n": 1.0})
    body["choices"][0] |= {"logprobs": logprobs, "stop_reason": "END", "x_choice": None}
    body["usage"]["completion_tokens_details"] = {"reasoning_tokens": 0, "audio_tokens": 4}
    response = API.parse_response(body)
    assert "END" == response.stop_sequence
    again = API.render_response(response, Request())
    assert [] == again.losses
    body["choices"][0]["message"]["refusal"] = None
    assert body == again.value


def test_annotations_are_always_there_and_none_is_read_as_nothing() -> None:
    cited = [{"type": "new"}]
    for said, kept in ([], {}), (cited, {"annotations": cited}):
        response = API.parse_response(body_of({"role": "assistant", "content": "a", "annotations": said}))
        assert kept == json.loads(bytes(response.extra.get("choices", b"{}"))).get("message", {})
        assert said == json.loads(API.render_response(response, ASKED).data)["choices"][0]["message"]["annotations"]


def test_only_the_first_choice_is_read_and_the_others_are_an_issue() -> None:
    body = body_of({"content": "a"})
    body["choices"].append(body["choices"][0] | {"index": 1, "message": {"role": "assistant", "content": "b"}})
    response = API.parse_response(body)
    assert [Assistant(content=[Text(text="a")])] == response.items
    assert ["extra_choices"] == [issue.kind for issue in response.issues]


def test_a_missing_finish_reason_is_an_issue_and_no_end() -> None:
    response = API.parse_response(body_of({"content": "a"}, None))
    assert response.finish_reason is None
    assert ["no_finish_reason"] == [issue.kind for issue in response.issues]


@pytest.mark.parametrize(
    ("body", "path"),
    [
        ({}, "$.choices"),
        ({"choices": []}, "$.choices"),
        ({"choices": None}, "$.choices"),
        ({"choices": [{"finish_reason": "stop"}]}, "$.choices[0].message"),
        ({"choices": [{"message": {"content": 7}}]}, "$.choices[0].message.content"),
        ({"choices": [{"message": {"tool_calls": [{"function": {"arguments": {}}}]}}]}, ""),
    ],
)
def test_what_is_no_answer_is_an_error_with_its_place(body: dict[str, Any], path: str) -> None:
    with pytest.raises(InvalidRequest) as raised:
        API.parse_response(body)
    assert raised.value.path.startswith(path)


@pytest.mark.parametrize(
    ("error", "message", "upstream", "retryable"),
    [
        ({"message": "slow down", "type": "x", "code": 429}, "slow down", 429, True),
        ({"message": "no", "type": "invalid_request_error"}, "no", 400, False),
        ({"message": "oh", "type": "server_error", "code": None}, "oh", 500, True),
        ("cannot reshape", "cannot reshape", None, True),
        ({"code": "rate_limit_exceeded"}, "rate_limit_exceeded", 429, True),
        ({"message": "who?", "type": "invalid_request_error", "code": "invalid_api_key"}, "who", 401, False),
        ({"message": "who?", "type": "authentication_error"}, "who", 401, False),
        ({"message": "not yours", "type": "permission_error"}, "yours", 403, False),
        ({"message": "no m", "type": "invalid_request_error", "code": "model_not_found"}, "no m", 404, False),
        ({"message": "slow", "type": "server_error", "code": "timeout"}, "slow", 504, True),
    ],
)
def test_an_error_body_is_an_error_of_the_server(error: Any, message: str, upstream: int, retryable: bool) -> None:
    with pytest.raises(UpstreamError, match=message) as raised:
        API.parse_response({"error": error})
    assert (upstream, retryable) == (raised.value.upstream, raised.value.retryable)


# Writing.


def test_the_client_reads_its_own_model_and_every_count() -> None:
    response = Response(items=[Assistant(content=[Text(text="Hi")])], finish_reason="stop", model="backend-model")
    response.usage = Usage(20, 7, 5, 2, 3)
    body = rendered(response)
    assert "client-model" == body["model"]
    assert USAGE == body["usage"]


def test_ids_are_made_of_the_answer_and_differ_between_turns() -> None:
    response = Response(items=[ToolCall(name="f"), ToolCall(name="f")], finish_reason="tool_calls")
    first, again = rendered(response), rendered(response)
    assert first == again
    ids = [call["id"] for call in message_of(first)["tool_calls"]]
    later = Request(settings=Settings(model="client-model"))
    later.conversation.items = [Assistant(content=[Text(text="x")])]
    latest = Request(settings=Settings(model="client-model"))
    latest.conversation.items = [Assistant(content=[Text(text="x")])] * 2
    for request in (later, latest):
        ids += [call["id"] for call in message_of(rendered(response, request))["tool_calls"]]
    assert 6 == len(set(ids))
    assert all(id_.startswith("call_") for id_ in ids)
    assert first["id"] != rendered(response, later)["id"]


def test_the_answers_own_ids_are_kept() -> None:
    response = Response(items=[ToolCall(name="f", id="toolu_1")], id="msg_1", finish_reason="tool_calls")
    body = rendered(response)
    assert ("msg_1", "toolu_1") == (body["id"], message_of(body)["tool_calls"][0]["id"])


def test_thinking_goes_to_the_member_that_the_reply_names() -> None:
    response = Response(items=[Thinking(content=[Text(text="hm")])], finish_reason="stop")
    assert "hm" == message_of(rendered(response))["reasoning_content"]
    value = API.render_response(response, ASKED, reply=Reply(reasoning_name="reasoning")).value
    assert isinstance(value, dict)
    assert "hm" == message_of(value)["reasoning"]


def test_what_a_message_cannot_say_of_the_order_is_reported() -> None:
    items: list[Item] = [
        Assistant(content=[Text(text="a")]),
        Thinking(content=[Text(text="t")], signature="s"),
        ToolCall(name="f", id="c", namespace="ns"),
        Assistant(content=[Text(text="b")]),
    ]
    again = API.render_response(Response(items=items, finish_reason="tool_calls"), ASKED)
    assert isinstance(again.value, dict)
    message = message_of(again.value)
    assert ("ab", "t", "ns__f") == (
        message["content"],
        message["reasoning_content"],
        message["tool_calls"][0]["function"]["name"],
    )
    expected = [
        ("items[1].signature", "dropped"),
        ("items[1]", "moved"),
        ("items[2].namespace", "renamed"),
        ("items[3]", "moved"),
    ]
    assert expected == kinds(again.losses)
    with pytest.raises(LossyConversion):
        API.render_response(Response(items=items, finish_reason="tool_calls"), ASKED, strict=True)


@pytest.mark.parametrize("reason", ["length", "stop", "tool_calls", "content_filter"])
def test_a_call_that_was_cut_off_is_written_as_far_as_it_came_and_the_end_says_so(reason: str) -> None:
    cut = ToolCall(name="f", id="c", arguments='{"a":', open=True)
    for answer in (Response(items=[cut], finish_reason=reason), Response(cut=cut, finish_reason=reason)):
        again = API.render_response(answer, ASKED)
        assert isinstance(again.value, dict)
        assert ['{"a":'] == [call["function"]["arguments"] for call in message_of(again.value)["tool_calls"]]
        word = reason if reason == "content_filter" else "length"
        assert word == again.value["choices"][0]["finish_reason"]
        assert [("$.finish_reason", "approximated")] * (word != reason) == kinds(again.losses)
        read = API.parse_response(again.data)
        assert ([], cut) == (read.items, read.cut and replace(read.cut, at=""))


def test_a_call_of_free_text_that_was_cut_off_is_not_written() -> None:
    items: list[Item] = [ToolCall(name="f", id="c", arguments="a", custom=True, open=True)]
    again = API.render_response(Response(items=items, finish_reason="length"), ASKED)
    assert isinstance(again.value, dict)
    assert "tool_calls" not in message_of(again.value)
    assert [("items[0]", "dropped")] == kinds(again.losses)


@pytest.mark.parametrize(
    ("reason", "word", "losses"),
    [
        ("stop", "stop", []),
        ("length", "length", []),
        ("content_filter", "content_filter", []),
        ("tool_calls", "stop", ["approximated"]),
        ("model_context_window_exceeded", "length", ["approximated"]),
        ("pause_turn", "stop", ["approximated"]),
        ("max_messages", "length", ["approximated"]),
        ("MAX_TOKENS", "length", ["approximated"]),
        ("banana", "length", ["approximated"]),
        (None, "stop", ["invented"]),
    ],
)
def test_the_reason_is_the_word_of_this_api_or_what_the_server_said(
    reason: str | None, word: str, losses: list[str]
) -> None:
    again = API.render_response(Response(finish_reason=reason), ASKED)
    assert isinstance(again.value, dict)
    assert word == again.value["choices"][0]["finish_reason"]
    assert losses == [loss.kind for loss in again.losses]


@pytest.mark.parametrize("reason", ["error", "failed", "cancelled", "abort", "insufficient_system_resource", "TIMEOUT"])
def test_an_answer_that_failed_is_an_error_and_no_answer(reason: str) -> None:
    with pytest.raises(UpstreamError, match=reason):
        API.render_response(Response(finish_reason=reason), ASKED)


def test_which_stop_string_was_met_is_lost_and_reported() -> None:
    again = API.render_response(Response(finish_reason="stop", stop_sequence="END"), ASKED)
    assert [("$.stop_sequence", "dropped")] == kinds(again.losses)


def test_a_client_that_offered_functions_gets_a_function_call() -> None:
    request = Request(settings=Settings(model="m"), origin="openai-chat")
    request.conversation.tools = [Tool(name="f", slot="functions")]
    items: list[Item] = [ToolCall(name="f", id="c1"), ToolCall(name="g", id="c2")]
    again = API.render_response(Response(items=items, finish_reason="tool_calls"), request)
    assert isinstance(again.value, dict)
    assert {"name": "f", "arguments": "{}"} == message_of(again.value)["function_call"]
    assert "function_call" == again.value["choices"][0]["finish_reason"]
    assert [("items[0].id", "dropped"), ("items[1]", "dropped")] == kinds(again.losses)


def test_members_of_another_api_are_reported_and_not_written() -> None:
    response = Response(items=[Assistant(content=[Text(text="a", extra={"citations": Json(b"[1]")})])])
    response.finish_reason, response.extra = "stop", {"container": Json(b"{}"), "type": Json(b'"message"')}
    response.origin = "anthropic"
    again = API.render_response(response, ASKED)
    assert isinstance(again.value, dict)
    assert {"container", "type"}.isdisjoint(again.value)
    expected = [("items[0].content[0].citations[0]", "dropped"), ("$.container", "dropped"), ("$.type", "dropped")]
    assert expected == kinds(again.losses)


def merged(items: list[Item]) -> dict[str, Any]:
    """What one message says of some items."""
    said: dict[str, Any] = {"content": [], "refusal": [], "thinking": [], "calls": []}
    for item in items:
        if isinstance(item, ToolCall):
            said["calls"].append((item.name, item.arguments, item.custom))
        elif isinstance(item, Thinking | Assistant):
            for part in item.content:
                key = "thinking" if isinstance(item, Thinking) else "content"
                assert isinstance(part, Text | Refusal)
                said["refusal" if isinstance(part, Refusal) else key].append(part.text)
    return said | {key: "".join(said[key]) for key in ("content", "refusal", "thinking")}


ALL = ("text", "texts", "thinking", "call", "refusal", "custom", "idless")


@given(responses(ALL))
@example(
    Response(items=[Assistant(content=[Text(text="")]), Assistant(content=[Refusal(text="a")])], finish_reason="stop")
)
def test_a_written_answer_is_read_as_the_same(response: Response) -> None:
    written: Rendered[Any] = API.render_response(response, Request())
    again = API.parse_response(written.data)
    assert merged(response.items) == merged(again.items)
    assert (response.finish_reason, response.usage) == (again.finish_reason, again.usage)
    assert [] == again.issues
    if not any(loss.path.startswith("items[") for loss in written.losses):
        said = [item for item in response.items if isinstance(item, ToolCall) or merged([item]) != merged([])]
        beside = any(isinstance(item, ToolCall) for item in said) or merged(said)["refusal"]
        empty = [Assistant(content=[Text(text="")])] if beside else []
        kept = [item for item in response.items if item in said + empty]
        for before, after in zip(kept, again.items, strict=True):
            if isinstance(before, ToolCall) and before.id is None and isinstance(after, ToolCall):
                after.id = None
            assert before == after


# The official SDK.


@pytest.fixture(scope="module")
def server() -> Iterator[Loopback]:
    with Loopback() as loopback:
        yield loopback


@pytest.fixture(scope="module")
def client(server: Loopback) -> Iterator[openai.OpenAI]:
    with openai_sdk(server.url) as found:
        yield found


@settings(max_examples=40)
@given(response=responses(ALL))
def test_the_sdk_takes_every_written_answer(server: Loopback, client: openai.OpenAI, response: Response) -> None:
    server.answer(API.render_response(response, ASKED).data)
    found = client.chat.completions.create(model="client-model", messages=[])
    message, said = found.choices[0].message, merged(response.items)
    assert ("client-model", "chat.completion") == (found.model, found.object)
    assert (said["content"], said["refusal"]) == (message.content or "", message.refusal or "")
    assert said["thinking"] == getattr(message, "reasoning_content", "")
    calls = [
        (call.custom.name, call.custom.input, True)
        if call.type == "custom"
        else (call.function.name, call.function.arguments, False)
        for call in message.tool_calls or []
    ]
    assert said["calls"] == calls
    assert response.finish_reason == found.choices[0].finish_reason
    if response.usage is not None:
        assert found.usage is not None
        assert found.usage.prompt_tokens_details is not None
        assert response.usage.input == found.usage.prompt_tokens
        assert response.usage.cached == found.usage.prompt_tokens_details.cached_tokens


def test_issues_do_not_repeat() -> None:
    calls = [called("{}") for _ in range(3)]
    message = {"tool_calls": [call | {"function": {"name": "f", "arguments": "x"}} for call in calls]}
    response = API.parse_response(body_of(message, "tool_calls"))
    assert [Issue("invalid_json", "the arguments of the call of 'f' are no JSON object")] == response.issues
