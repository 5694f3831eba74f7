"""Owns the laws of whole Messages responses: what comes back, what clients are told, and what errors look like."""

from __future__ import annotations

import json
import typing
from collections.abc import Iterator
from functools import cache
from typing import Any

import anthropic
import msgspec
import pytest
from anthropic.types import ContentBlock
from anthropic.types.beta import BetaContentBlock
from hypothesis import given
from hypothesis import strategies as st

from tests.loopback import Loopback
from tests.messages import API, KINDS, SILENT, SILENT_USAGE, bare, finite, request
from tests.sdks import anthropic_sdk
from tests.strategies import events as answers
from tests.strategies import jsontext
from tests.strategies.sdk import drawn_from
from tests.strategies.shapes import Model, union_members
from turnscript.core.conversation import (
    Assistant,
    Audio,
    Conversation,
    Item,
    Opaque,
    Part,
    Raw,
    Refusal,
    Request,
    Response,
    Text,
    Thinking,
    ThinkingMode,
    ToolCall,
    Usage,
    User,
)
from turnscript.core.errors import (
    InvalidConversation,
    InvalidRequest,
    LossyConversion,
    UpstreamError,
)


def body_of(response: Response, **settings: Any) -> dict[str, Any]:
    value: Any = API.render_response(response, request(**settings)).value
    return typing.cast("dict[str, Any]", value)


def block_of(words: str) -> dict[str, Any]:
    """A text as Anthropic's servers send it."""
    return {"type": "text", "text": words, "citations": None}


def said(*items: Item, reason: str | None = "stop", **fields: Any) -> Response:
    return Response(items=list(items), finish_reason=reason, usage=Usage(3, 4), **fields)


def text(words: str) -> Assistant:
    return Assistant(content=[Text(text=words)])


def message(*blocks: Any, **members: Any) -> dict[str, Any]:
    """A body as Anthropic's servers send it."""
    usage = {"input_tokens": 3, "output_tokens": 4}
    head = {"id": "msg_1", "type": "message", "role": "assistant", "model": "m", "content": list(blocks)}
    return {**head, "stop_reason": "end_turn", "stop_sequence": None, **SILENT, "usage": usage, **members}


# Laws.


@cache
def _blocks(union: Any) -> Any:
    return drawn_from(Model(union_members(union), {}).root, 6)


@st.composite
def bodies(draw: st.DrawFn) -> dict[str, Any]:
    """Responses of the SDK's types, as a server sends them: no empty texts, names and ids, and endings that fit."""
    blocks = draw(st.lists(st.one_of(_blocks(ContentBlock), _blocks(BetaContentBlock)), max_size=3))
    for block in blocks:
        if block["type"] == "text":
            block |= {"text": block["text"] or ".", "citations": block.get("citations")}
        if block["type"] == "tool_use":
            block["id"], block["name"] = block["id"] or "c", block["name"] or "f"
    calls = any(block["type"] == "tool_use" for block in blocks)
    reason = draw(
        st.sampled_from(["tool_use", "pause_turn"] if calls else ["end_turn", "max_tokens", "refusal", "new"])
    )
    count = st.integers(0, 10**6)
    usage: dict[str, Any] = {
        "input_tokens": draw(count),
        "output_tokens": draw(count),
        "cache_creation_input_tokens": draw(count),
    }
    usage |= {"cache_read_input_tokens": draw(count), "output_tokens_details": {"thinking_tokens": draw(count)}}
    extra = {"service_tier": "standard", "server_tool_use": {"web_search_requests": 2}, "cache_creation": None}
    usage |= SILENT_USAGE | draw(st.sampled_from([{}, extra]))
    rest = {"container": {"id": "c", "expires_at": "2026"}, "stop_details": None, "diagnostics": {"x": 1.0}}
    end = {"stop_reason": reason if blocks else "end_turn", "usage": usage}
    return message(*(blocks or [block_of("x")]), **end, **draw(st.sampled_from([{}, rest])))


@given(body=bodies())
def test_a_body_of_the_sdks_types_comes_back_whole(body: dict[str, Any]) -> None:
    data = jsontext.dumps(body)
    rendered = API.render_response(API.parse_response(data), Request(origin="anthropic"))
    assert [] == rendered.losses
    assert "" == jsontext.difference(jsontext.loads(data), jsontext.loads(rendered.data))
    for path, spelled in jsontext.spelled_places(body):
        assert spelled.text.strip() == jsontext.raw_at(rendered.data, path)


@given(response=answers.responses(KINDS))
def test_a_response_comes_back_from_its_body_or_the_difference_is_listed(response: Response) -> None:
    rendered = API.render_response(response, request())
    again = API.parse_response(rendered.data)
    assert rendered.losses or bare(response) == bare(again)
    assert rendered.data == API.render_response(response, request()).data


@given(response=answers.responses(("text", "thinking", "call"), empty=False))
def test_ordinary_responses_lose_nothing(response: Response) -> None:
    response.usage = response.usage or Usage()
    response.items = response.items or [text("x")]
    response.items = [msgspec.structs.replace(one, arguments="{}") if _padded(one) else one for one in response.items]
    assert [] == API.render_response(response, request()).losses


def _padded(item: Item) -> bool:
    return isinstance(item, ToolCall) and item.arguments.strip() != item.arguments


@pytest.fixture(scope="module")
def server() -> Iterator[Loopback]:
    with Loopback() as loopback:
        yield loopback


@pytest.fixture(scope="module")
def client(server: Loopback) -> Iterator[anthropic.Anthropic]:
    with anthropic_sdk(server.url) as made:
        yield made


def ask(client: anthropic.Anthropic) -> anthropic.types.Message:
    return client.messages.create(model="m", max_tokens=9, messages=[{"role": "user", "content": "hi"}])


@given(response=answers.responses(KINDS))
def test_the_sdk_reads_what_was_said(server: Loopback, client: anthropic.Anthropic, response: Response) -> None:
    rendered = API.render_response(response, request())
    server.answer(rendered.data)
    got = ask(client)
    value: Any = rendered.value
    assert "" == jsontext.difference(finite(json.loads(rendered.data)), json.loads(got.to_json(exclude_unset=True)))
    anthropic.types.Message.model_validate(value, strict=True)
    assert "client-model" == got.model
    calls = [item for item in response.items if isinstance(item, ToolCall)]
    assert [item.name for item in calls] == [block.name for block in got.content if block.type == "tool_use"]
    texts = [part.text for item in response.items for part in getattr(item, "content", [])]
    told = [getattr(block, block.type, "") for block in got.content]
    assert "".join(texts) == "".join(map(str, told))


# Content.


def test_every_block_becomes_an_item_of_its_own() -> None:
    body = message(
        {"type": "thinking", "thinking": "hm", "signature": "sig"},
        {"type": "redacted_thinking", "data": "xx"},
        {"type": "text", "text": "a", "citations": [{"type": "new", "n": 1.0}]},
        {"type": "text", "text": "b"},
        {"type": "tool_use", "id": "toolu_1", "name": "f", "input": {"n": 1}, "caller": {"type": "direct"}},
        {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {"query": "q"}},
        {"type": "container_upload", "file_id": "f1"},
    )
    response = API.parse_response(body)
    direct, cited = msgspec.Raw(b'{"type":"direct"}'), msgspec.Raw(b'[{"type":"new","n":1.0}]')
    search = msgspec.Raw(json.dumps(body["content"][5]).encode())
    upload = msgspec.Raw(json.dumps(body["content"][6]).encode())
    expected = [
        Thinking(content=[Text(text="hm")], signature="sig"),
        Thinking(redacted="xx"),
        Assistant(content=[Text(text="a", extra={"citations": cited})]),
        text("b"),
        ToolCall(name="f", arguments='{"n":1}', id="toolu_1", extra={"caller": direct}),
        Opaque(type="server_tool_use", value=search, role="assistant"),
        Assistant(content=[Raw(type="container_upload", value=upload)]),
    ]
    assert expected == response.items
    assert ["$.content[0]", "$.content[6]"] == [response.items[0].at, response.items[6].at]
    assert ("msg_1", "m", Usage(3, 4)) == (response.id, response.model, response.usage)


def test_arguments_stay_the_text_they_are() -> None:
    arguments = '{"b": 1.0, "a": 1e5, "n": 1152921504606846977, "a": "\\u00e9é"}'
    response = said(ToolCall(name="f", id="toolu_1", arguments=arguments), reason="tool_calls")
    data = API.render_response(response, request()).data
    assert arguments.encode() in data
    assert response.items == API.parse_response(data).items


@pytest.mark.parametrize("arguments", ['{"a":"tru', '{"a":1}{"b":2}', "{a:1}", "[1]", "ls -l", '{"a":"\\ud800"}'])
def test_arguments_that_are_no_object_are_wrapped_and_listed(arguments: str) -> None:
    rendered = API.render_response(
        said(ToolCall(name="f", id="c", arguments=arguments), reason="tool_calls"), request()
    )
    value: Any = rendered.value
    assert {"input": arguments} == value["content"][0]["input"]
    assert [
        "items[0]: approximated: arguments that are not a JSON object become an object with one string, 'input'"
    ] == [str(loss) for loss in rendered.losses]


@pytest.mark.parametrize("arguments", ["", "\n "])
def test_nothing_for_arguments_is_an_empty_object(arguments: str) -> None:
    """Some models call a tool that takes none so. A member that the tool does not have would make the call fail."""
    call = ToolCall(name="f", id="c", arguments=arguments)
    rendered = API.render_response(said(call, reason="tool_calls"), request())
    value: Any = rendered.value
    assert {} == value["content"][0]["input"]
    asked = Request(conversation=Conversation(items=[call]), origin="another")
    again: Any = API.render_request(asked).value
    assert {} == again["messages"][0]["content"][0]["input"]
    expected = "items[0]: approximated: no arguments are an empty object here"
    assert [expected] == [str(loss) for loss in rendered.losses]


def test_a_call_of_free_text_and_one_in_a_namespace_are_renamed_as_requests_do() -> None:
    calls = [
        ToolCall(name="patch", id="a", arguments='{"x":1}', custom=True),
        ToolCall(name="f", id="b", namespace="n"),
    ]
    rendered = API.render_response(said(*calls, reason="tool_calls"), request())
    value: Any = rendered.value
    assert [("patch", {"input": '{"x":1}'}), ("n__f", {})] == [(one["name"], one["input"]) for one in value["content"]]
    assert ["approximated", "renamed"] == [loss.kind for loss in rendered.losses]


def test_ids_are_kept_made_legal_or_made_up() -> None:
    calls = [ToolCall(name="f", id="call_Zz-9"), ToolCall(name="f", id="a b"), ToolCall(name="f"), ToolCall(name="f")]
    rendered = API.render_response(said(*calls, reason="tool_calls"), request())
    value: Any = rendered.value
    ids = [block["id"] for block in value["content"]]
    assert ["call_Zz-9", "a-x20-b"] == ids[:2]
    assert all(one.startswith("toolu_") for one in ids[2:])
    assert len(set(ids)) == len(ids)
    assert ["renamed"] == [loss.kind for loss in rendered.losses]


def test_a_made_up_id_is_none_of_an_earlier_turns() -> None:
    response = said(ToolCall(name="ls"), reason="tool_calls")
    asked = request()
    first: Any = API.render_response(response, asked).value
    asked.items.append(ToolCall(name="ls", id=first["content"][0]["id"]))
    second: Any = API.render_response(response, asked).value
    assert first["content"][0]["id"] != second["content"][0]["id"]
    assert first["id"] != second["id"]


def test_thoughts_need_no_signature_and_keep_the_one_they_have() -> None:
    body = body_of(
        said(Thinking(content=[Text(text="a")]), Thinking(content=[Text(text="b")], signature="s"), text("x"))
    )
    assert [("a", ""), ("b", "s")] == [(one["thinking"], one["signature"]) for one in body["content"][:2]]


def test_a_client_that_wants_no_thoughts_gets_their_signatures_alone() -> None:
    thought = Thinking(content=[Text(text="secret")], signature="sealed")
    asked = ThinkingMode("enabled", display="omitted")
    body = body_of(said(thought, Thinking(redacted="xx"), text("x")), thinking=asked)
    assert {"type": "thinking", "thinking": "", "signature": "sealed"} == body["content"][0]
    assert {"type": "redacted_thinking", "data": "xx"} == body["content"][1]
    assert "secret" in str(body_of(said(thought), thinking=ThinkingMode("enabled", display="summarized")))


def test_a_summary_stands_for_a_thought_without_text() -> None:
    thought = Thinking(summary=[Text(text="a"), Text(text="b")], id="rs_1", encrypted="e")
    rendered = API.render_response(said(thought, text("x")), request())
    value: Any = rendered.value
    assert "a\n\nb" == value["content"][0]["thinking"]
    assert ["items[0].encrypted", "items[0].id", "items[0].summary"] == [loss.path for loss in rendered.losses]


def test_thoughts_of_other_kinds_and_shapes_become_one_text() -> None:
    parts: list[Part] = [Text(text="a"), Text(text="b")]
    thoughts = [Thinking(content=parts, of="reflect"), Thinking(content=parts[:1], summary=parts)]
    native = Thinking(content=parts[:1], signature="s", extra={"new": msgspec.Raw(b"1")}, at="$.content[2]")
    rendered = API.render_response(said(*thoughts, native), request())
    value: Any = rendered.value
    assert ["ab", "a", "a"] == [block["thinking"] for block in value["content"]]
    assert 1 == value["content"][2]["new"]
    assert ["items[0].kind", "items[0]", "items[1].summary"] == [loss.path for loss in rendered.losses]


def test_an_answer_that_says_nothing_is_one_empty_text() -> None:
    for items in ([], [text("")], [Assistant()]):
        assert [block_of("")] == body_of(said(*items))["content"]
    assert [] == API.render_response(said(text("")), request()).losses
    assert ["invented"] == [loss.kind for loss in API.render_response(said(), request()).losses]
    rendered = API.render_response(said(text(""), text("x")), request())
    value: Any = rendered.value
    assert [block_of("x")] == value["content"]
    assert ["items[0].content[0]: dropped: an empty text is not accepted when it is sent back"] == [
        str(loss) for loss in rendered.losses
    ]


def test_what_an_answer_cannot_hold_is_listed() -> None:
    items = [User(content=[Text(text="u")]), Assistant(content=[Audio(data="AA")], name="n", id="i", phase="p")]
    rendered = API.render_response(said(*items, text("x")), request())
    assert ["items[0]", "items[1].name", "items[1].id", "items[1].phase", "items[1].content[0]"] == [
        loss.path for loss in rendered.losses
    ]
    with pytest.raises(LossyConversion):
        API.render_response(said(*items), request(), strict=True)


def test_members_of_another_api_are_listed_and_not_sent() -> None:
    logprobs = {"logprobs": msgspec.Raw(b"[]")}
    foreign = Assistant(content=[Text(text="x", extra=logprobs)], at="$.output[0]", extra=logprobs)
    strange = Opaque(type="program", value=msgspec.Raw(b"{}"), at="$.output[1]")
    response = said(foreign, strange, extra={"object": msgspec.Raw(b'"response"')}, origin="openai-responses")
    rendered = API.render_response(response, request())
    assert message({"type": "text", "text": "x"}).keys() == rendered.value.keys()
    paths = ["$.output[0].logprobs", "$.output[0].content[0].logprobs", "$.output[1]", "$.object"]
    assert paths == [loss.path for loss in rendered.losses]


def test_half_a_surrogate_pair_is_an_error_and_no_broken_body() -> None:
    with pytest.raises(InvalidConversation, match="half of a surrogate pair"):
        _ = API.render_response(said(text("\ud800")), request()).data


# Endings.


@pytest.mark.parametrize(
    ("word", "reason"),
    [
        ("end_turn", "stop"),
        ("max_tokens", "length"),
        ("refusal", "content_filter"),
        ("pause_turn", "pause_turn"),
        ("model_context_window_exceeded", "model_context_window_exceeded"),
        ("compaction", "compaction"),
        ("new_reason", "new_reason"),
        (None, None),
    ],
)
def test_reasons_have_the_words_of_all_apis(word: str | None, reason: str | None) -> None:
    response = API.parse_response(message({"type": "text", "text": "x"}, stop_reason=word))
    assert reason == response.finish_reason
    assert word == body_of(response)["stop_reason"]


def test_a_stop_string_is_named_if_it_is_the_clients() -> None:
    body = body_of(said(text("x"), stop_sequence="END"))
    assert ("stop_sequence", "END") == (body["stop_reason"], body["stop_sequence"])
    assert ("stop", "END") == (API.parse_response(body).finish_reason, API.parse_response(body).stop_sequence)
    rendered = API.render_response(said(text("x"), stop_sequence="\nUser:"), request())
    value: Any = rendered.value
    assert ("end_turn", None) == (value["stop_reason"], value["stop_sequence"])
    assert ["$.stop_sequence"] == [loss.path for loss in rendered.losses]


def test_the_ending_fits_the_calls() -> None:
    call = ToolCall(name="f", id="c")
    assert "stop_sequence" == body_of(said(call, reason="stop", stop_sequence="END"))["stop_reason"]
    assert "tool_use" == body_of(said(call, reason="tool_calls"))["stop_reason"]
    assert "tool_use" == body_of(said(call, reason="stop"))["stop_reason"]
    assert "end_turn" == body_of(said(text("x"), reason="tool_calls"))["stop_reason"]
    assert "max_tokens" == body_of(said(call, text("x"), reason="length"))["stop_reason"]
    assert ["$.finish_reason"] == [loss.path for loss in API.render_response(said(call), request()).losses]


def test_a_refusal_says_so_and_why() -> None:
    refusal = Assistant(content=[Refusal(text="I will not.")])
    body = body_of(said(refusal))
    assert "refusal" == body["stop_reason"]
    assert [block_of("I will not.")] == body["content"]
    assert {"type": "refusal", "category": None, "explanation": "I will not."} == body["stop_details"]
    assert body_of(said(text("x"), reason="content_filter"))["stop_details"] is None


@pytest.mark.parametrize("reason", ["error", "failed", "cancelled", "abort"])
def test_a_failure_is_never_told_as_an_answer(reason: str) -> None:
    with pytest.raises(UpstreamError, match=reason):
        API.render_response(said(text("x"), reason=reason), request())


@pytest.mark.parametrize(("reason", "word"), [("banana", "max_tokens"), ("eos_token", "end_turn")])
def test_an_ending_of_others_is_said_and_one_that_nobody_knows_is_no_good_one(reason: str, word: str) -> None:
    rendered = API.render_response(said(text("x"), reason=reason), request())
    value: Any = rendered.value
    assert word == value["stop_reason"]
    assert ["$.finish_reason"] == [loss.path for loss in rendered.losses]


@pytest.mark.parametrize("word", ["max_tokens", "model_context_window_exceeded", "refusal"])
def test_the_last_call_before_a_limit_is_not_told_as_done(word: str) -> None:
    call = {"type": "tool_use", "id": "toolu_1", "name": "write", "input": {"path": "/a"}}
    response = API.parse_response(message({"type": "text", "text": "x"}, call, stop_reason=word))
    assert [text("x")] == response.items
    (issue,) = response.issues
    assert "cut_call" == issue.kind
    assert "'write'" in issue.detail
    assert '{"path":"/a"}' in issue.detail
    rendered = API.render_response(said(ToolCall(name="f", id="c"), reason="length"), request())
    assert ["items[0]"] == [loss.path for loss in rendered.losses]


def test_what_says_nothing_is_always_there_and_read_as_nothing() -> None:
    body = message(block_of("x"), usage={"input_tokens": 3, "output_tokens": 4} | SILENT_USAGE)
    response = API.parse_response(body)
    assert ({}, [text("x")]) == (response.extra, bare(response).items)
    told = body_of(msgspec.structs.replace(response, origin=None))
    assert told.items() >= SILENT.items()
    assert told["usage"].items() >= SILENT_USAGE.items()
    kept: dict[str, Any] = {"stop_details": {"type": "new"}, "container": {"id": "c"}}
    blocks = [block_of("x") | {"citations": [{"type": "new"}]}]
    again = json.loads(API.render_response(API.parse_response(message(*blocks, **kept)), request()).data)
    assert kept | {"content": blocks} == {name: again[name] for name in (*kept, "content")}


# Usage.


def test_input_tokens_are_those_that_no_cache_had_to_do_with() -> None:
    counts = {"input_tokens": 5, "cache_read_input_tokens": 100, "cache_creation_input_tokens": 20, "output_tokens": 7}
    counted = counts | {"output_tokens_details": {"thinking_tokens": 3}}
    response = API.parse_response(message({"type": "text", "text": "x"}, usage=counted))
    assert Usage(125, 7, 100, 20, 3) == response.usage
    assert counted | SILENT_USAGE == body_of(response)["usage"]


def test_counts_that_are_null_or_unknown() -> None:
    details = {"input_tokens": 1, "output_tokens": 2, "output_tokens_details": {"thinking_tokens": 1, "new": 2.0}}
    assert {"thinking_tokens": 1, "new": 2.0} == body_of(API.parse_response(message(usage=details)))["usage"][
        "output_tokens_details"
    ]
    counts = {
        "input_tokens": 1,
        "output_tokens": 2,
        "cache_read_input_tokens": None,
        "speed": None,
        "iterations": [1.0],
    }
    response = API.parse_response(message({"type": "text", "text": "x"}, usage=counts))
    assert Usage(1, 2) == response.usage
    body = body_of(response)
    assert (None, [1.0], 0) == (
        body["usage"]["speed"],
        body["usage"]["iterations"],
        body["usage"]["cache_read_input_tokens"],
    )
    without = message({"type": "text", "text": "x"})
    del without["usage"]
    assert API.parse_response(without).usage is None
    rendered = API.render_response(Response(items=[text("x")], finish_reason="stop"), request())
    assert ["$.usage"] == [loss.path for loss in rendered.losses]


# What is no response.


@pytest.mark.parametrize(
    ("body", "path"),
    [
        ([], "$"),
        ({}, "$.content"),
        ({"object": "chat.completion", "choices": []}, "$.content"),
        ({"type": "completion"}, "$.type"),
        ({"type": 1}, "$.type"),
        (message(role="user"), "$.role"),
        ({"content": "x"}, "$.content"),
        (message(1), "$.content[0]"),
        (message({"text": "x"}), "$.content[0].type"),
        (message({"type": "text"}), "$.content[0].text"),
        (message({"type": "text", "text": 1}), "$.content[0].text"),
        (message({"type": "tool_use", "id": "c", "name": "f", "input": "{}"}), "$.content[0].input"),
        (message(stop_reason=1), "$.stop_reason"),
    ],
)
def test_what_is_no_response_is_refused_with_its_place(body: Any, path: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        API.parse_response(json.dumps(body))
    assert path == caught.value.path


@pytest.mark.parametrize(
    ("body", "upstream", "retryable"),
    [
        ({"type": "error", "error": {"type": "overloaded_error", "message": "Busy"}}, 529, True),
        ({"type": "error", "error": {"type": "rate_limit_error", "message": "Busy"}, "request_id": "r"}, 429, True),
        ({"type": "error", "error": {"type": "invalid_request_error", "message": "Busy"}}, 400, False),
        ({"type": "error", "error": {"type": "new_error", "message": "Busy"}}, None, True),
        ({"type": "error", "error": "Busy"}, None, True),
        ({"error": {"message": "Busy", "type": None}}, None, True),
    ],
)
def test_an_error_body_is_the_servers_failure(body: Any, upstream: int | None, retryable: bool) -> None:
    with pytest.raises(UpstreamError, match="Busy") as caught:
        API.parse_response(body)
    assert (upstream, retryable) == (caught.value.upstream, caught.value.retryable)
