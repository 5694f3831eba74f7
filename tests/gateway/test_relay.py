"""Owns requests that are passed on to servers with a chat API: each client's API before each kind of server."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.gateway.relays import (
    KINDS,
    USAGE,
    Relay,
    call,
    of_kind,
    path_of,
    proved,
    relaying,
    said_text,
    script,
    streams,
)
from tests.gateway.scripted import Asked, Script, said, sse
from tests.gateway.stage import CHATS, WEATHER, Told, named
from tests.sdks import anthropic_sdk, openai_sdk
from turnscript.apis.api import Api
from turnscript.backends.chats import Chat
from turnscript.convert.recognition import detect_api
from turnscript.convert.registry import api_at, get_api
from turnscript.core.conversation import (
    Assistant,
    Image,
    Item,
    Request,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
    User,
    text_content,
)
from turnscript.core.presets import get_preset
from turnscript.gateway.config import Policy

EACH = pytest.mark.parametrize("api", CHATS, ids=named)
WAYS = pytest.mark.parametrize("stream", [True, False], ids=["stream", "whole"])
CHAT, RESPONSES, MESSAGES = (get_api(name) for name in ("openai-chat", "openai-responses", "anthropic-messages"))
COMPLETIONS = get_api("openai-completions")
EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
SCHEMA: Any = {"type": "object", "properties": {"city": {"type": "string"}}}
CARRIED = {"messages": "signature", "responses": "encrypted"}


@pytest.fixture(scope="module", params=KINDS, ids=of_kind)
def relay(request: pytest.FixtureRequest) -> Iterator[Relay]:
    """A gateway before a server of each kind."""
    kind: Chat = request.param
    with relaying(kind) as made:
        yield made


@pytest.fixture(scope="module")
def chat() -> Iterator[Relay]:
    """A gateway before a server of the kind that most are."""
    with relaying(KINDS[0]) as made:
        yield made


@pytest.fixture(scope="module")
def messages() -> Iterator[Relay]:
    """A gateway before a server with Anthropic's API."""
    with relaying(KINDS[2]) as made:
        yield made


def asking(*items: Item, text: str = "What is the weather?") -> Request:
    """A request with a tool, and a conversation that may have gone on."""
    request = Request()
    request.conversation.items += [User(content=[Text(text=text)]), *items]
    request.conversation.tools.append(WEATHER)
    request.settings.max_tokens = 500
    return request


def upstream(relay: Relay) -> Request:
    """What the server was asked last, read as its API reads it."""
    return api_at(relay.kind.endpoint).parse_request(relay.asked[-1].body)


@EACH
@WAYS
def test_an_answer_is_told_in_the_words_of_the_client(relay: Relay, api: Api, stream: bool) -> None:
    items = [proved(relay.kind), said_text("I look."), call(1, "Paris"), call(2, "Rome")]
    relay.play(script(relay.kind, *items, finish="tool_calls"))
    told = relay.ask(api, asking(), stream=stream)
    assert (200, stream) == (told.status, told.streamed), told.body
    assert ["Thinking", "Assistant", "ToolCall", "ToolCall"] == [type(item).__name__ for item in told.items]
    assert ("I look.", ["call_up_1", "call_up_2"]) == (told.text, [one.id for one in told.calls])
    assert ['{"city": "Paris"}', '{"city": "Rome"}'] == [one.arguments for one in told.calls]
    assert told.end is not None
    assert "tool_calls" == told.end.finish_reason
    [asked] = relay.asked
    sent = upstream(relay)
    assert f"POST /v1{path_of(relay.kind, stream=stream)}" == asked.line
    assert (stream, 500) == (streams(asked, sent), sent.settings.max_tokens)
    assert "upstream-model" in (sent.settings.model, asked.line.partition("models/")[2].partition(":")[0])
    assert ["get_weather"] == [tool.name for tool in sent.tools]
    unsaid = api is CHAT and relay.kind.name in CARRIED  # a proof, for which this API has no place
    assert unsaid == bool(relay.losses(told))


@EACH
@WAYS
def test_two_turns_with_a_tool_bring_back_what_the_server_said_and_proved(relay: Relay, api: Api, stream: bool) -> None:
    thought = proved(relay.kind)
    relay.play(script(relay.kind, thought, call(1, "Paris"), call(2, "Rome"), finish="tool_calls"))
    first = relay.ask(api, asking(), stream=stream)
    results = [ToolResult(id=f"call_up_{number}", content=[Text(text="21 C")]) for number in (1, 2)]
    relay.play(script(relay.kind, said_text("It is 21 C in both.")))
    second = relay.ask(api, asking(*first.items, *results), stream=stream)
    assert "It is 21 C in both." == second.text, second.body
    sent = upstream(relay)
    assert ["call_up_1", "call_up_2"] * 2 == [it.id for it in sent.items if isinstance(it, ToolCall | ToolResult)]
    thoughts = [item for item in sent.items if isinstance(item, Thinking)]
    if api is CHAT and relay.kind.signs:
        assert [] == thoughts  # nobody has brought the proof back
        return
    assert ["Let me see."] == [text_content(one.content) for one in thoughts]
    if relay.kind.name in CARRIED:
        field = CARRIED[relay.kind.name]
        assert (getattr(thought, field), thought.id) == (getattr(thoughts[0], field), thoughts[0].id)


@EACH
def test_what_others_have_proved_is_not_sent(relay: Relay, api: Api) -> None:
    strange = [Thinking(content=[Text(text="Hm.")], signature="theirs", encrypted="theirs"), said_text("Yes.")]
    told = relay.ask(api, asking(*strange, User(content=[Text(text="Go on")])), stream=False)
    assert 200 == told.status, told.body
    assert b"theirs" not in relay.asked[-1].body
    if api is not CHAT:
        assert relay.losses(told)


def test_a_proof_goes_back_to_no_server_but_its_own(messages: Relay) -> None:
    messages.play(script(messages.kind, proved(messages.kind), said_text("Yes.")))
    first = messages.ask(MESSAGES, asking(), stream=False)
    with relaying(messages.kind, signing=messages.gateway.service.config.signing) as other:
        told = other.ask(MESSAGES, asking(*first.items, User(content=[Text(text="Go on")])), stream=False)
        assert 200 == told.status, told.body
        assert b"signed-by-upstream" not in other.asked[-1].body
        assert b"Let me see" not in other.asked[-1].body
        assert "$.messages[1].content[0]" in other.losses(told)


def test_a_hidden_thought_comes_back_through_every_client(messages: Relay) -> None:
    for api in (MESSAGES, RESPONSES):
        messages.play(script(messages.kind, Thinking(redacted="hidden-by-upstream"), said_text("Yes.")))
        first = messages.ask(api, asking(), stream=True)
        assert b"hidden-by-upstream" not in json.dumps(first.body.decode()).encode()
        messages.ask(api, asking(*first.items, User(content=[Text(text="Go on")])), stream=False)
        assert "hidden-by-upstream" == messages.asked[-1].json["messages"][1]["content"][0]["data"]


# The official SDKs.


def test_openai_sdk_chat(relay: Relay) -> None:
    relay.play(script(relay.kind, said_text("Hello you."), call(1, "Paris"), call(2, "Rome"), finish="tool_calls"))
    tools: Any = [{"type": "function", "function": {"name": "get_weather", "parameters": SCHEMA}}]
    with openai_sdk(relay.url) as sdk:
        asked: Any = {"model": "any", "messages": [{"role": "user", "content": "Hi"}], "tools": tools}
        whole = sdk.chat.completions.create(**asked)
        with sdk.chat.completions.stream(**asked, stream_options={"include_usage": True}) as stream:
            streamed = stream.get_final_completion()
    answers: list[Any] = [whole, streamed]
    for told in answers:
        assert ("any", "tool_calls", "Hello you.") == (
            told.model,
            told.choices[0].finish_reason,
            told.choices[0].message.content,
        )
        assert ["call_up_1", "call_up_2"] == [one.id for one in told.choices[0].message.tool_calls or ()]
        assert told.usage is not None
        assert (USAGE.input, USAGE.output) == (told.usage.prompt_tokens, told.usage.completion_tokens)


def test_openai_sdk_responses(relay: Relay) -> None:
    relay.play(script(relay.kind, said_text("Hello you."), call(1, "Paris"), call(2, "Rome"), finish="tool_calls"))
    with openai_sdk(relay.url) as sdk:
        asked: Any = {"model": "any", "input": "Hi"}
        asked["tools"] = [{"type": "function", "name": "get_weather", "parameters": SCHEMA, "strict": False}]
        whole = sdk.responses.create(**asked)
        with sdk.responses.stream(**asked) as stream:
            streamed = stream.get_final_response()
    answers: list[Any] = [whole, streamed]
    for told in answers:
        assert ("any", "completed", "Hello you.") == (told.model, told.status, told.output_text)
        assert ["call_up_1", "call_up_2"] == [one.call_id for one in told.output if one.type == "function_call"]
        assert told.usage is not None
        assert (USAGE.input, USAGE.output) == (told.usage.input_tokens, told.usage.output_tokens)


def test_anthropic_sdk(relay: Relay) -> None:
    relay.play(script(relay.kind, said_text("Hello you."), call(1, "Paris"), call(2, "Rome"), finish="tool_calls"))
    with anthropic_sdk(relay.url) as sdk:
        asked: Any = {"model": "any", "max_tokens": 50, "messages": [{"role": "user", "content": "Hi"}]}
        asked["tools"] = [{"name": "get_weather", "input_schema": SCHEMA}]
        whole = sdk.messages.create(**asked)
        with sdk.messages.stream(**asked) as stream:
            streamed = stream.get_final_message()
    answers: list[Any] = [whole, streamed]
    for told in answers:
        assert ("any", "tool_use") == (told.model, told.stop_reason)
        assert ["Hello you."] == [block.text for block in told.content if block.type == "text"]
        assert ["call_up_1", "call_up_2"] == [block.id for block in told.content if block.type == "tool_use"]
        used = told.usage.input_tokens + (told.usage.cache_read_input_tokens or 0)
        assert (USAGE.input, USAGE.output) == (used, told.usage.output_tokens)


# What belongs to the gateway.


@pytest.mark.parametrize("models", [("one",), ("one", "two"), ()], ids=len)
def test_the_model_is_the_only_one_that_is_listed_or_what_the_client_says(models: tuple[str, ...]) -> None:
    with relaying(KINDS[0], models) as relay:
        relay.ask(CHAT, asking(), stream=False)
        assert ("one" if len(models) == 1 else "m") == relay.asked[-1].json["model"]
    with relaying(KINDS[0], models, upstream_model="said") as relay:
        relay.ask(CHAT, asking(), stream=False)
        assert "said" == relay.asked[-1].json["model"]


@pytest.mark.parametrize("kind", KINDS, ids=of_kind)
def test_the_key_is_where_its_api_has_it(kind: Chat) -> None:
    with relaying(kind, api_key="secret-of-upstream", headers={"x-team": "us"}) as relay:
        relay.ask(CHAT, asking(), stream=False)
        for asked in relay.server.asked:
            found = {name: asked.headers.get(name) for name in ("authorization", "x-api-key", "anthropic-version")}
            if kind.name == "gemini":
                assert ([None] * 3, "secret-of-upstream") == (list(found.values()), asked.headers["x-goog-api-key"])
            elif kind.name == "messages":
                assert [None, "secret-of-upstream", "2023-06-01"] == list(found.values())
            else:
                assert ["Bearer secret-of-upstream", None, None] == list(found.values())
            assert "us" == asked.headers["x-team"]


def test_what_the_target_cannot_say_is_a_loss_and_by_policy_an_error(chat: Relay) -> None:
    request = asking()
    request.settings.top_k = 5
    told = chat.ask(MESSAGES, request, stream=False)
    assert ("1", ["$.top_k"]) == (told.headers["x-turnscript-losses"], chat.losses(told))
    refused = chat.ask(MESSAGES, request, stream=False, headers={"x-turnscript-loss-policy": "error"})
    assert 400 == refused.status
    assert b"$.top_k" in refused.body


def test_the_settings_of_the_model_count_where_a_request_says_nothing() -> None:
    settings: dict[str, Any] = {"preset": "chat", "max_tokens": 77, "max_tokens_limit": 99, "also": ("top_k",)}
    with relaying(KINDS[0], extra={"seed": 4}, drop=("top_p",), **settings) as relay:
        request = asking()
        request.settings.max_tokens = None
        relay.ask(CHAT, request, stream=False)
        sent = relay.asked[-1].json
        assert (77, 4, True) == (sent["max_completion_tokens"], sent["seed"], "temperature" in sent)
        assert "top_p" not in sent
        request = asking()
        request.settings.temperature, request.settings.top_k = 0.25, 3
        told = relay.ask(MESSAGES, request, stream=False)
        sent = relay.asked[-1].json
        assert (99, 0.25, 3) == (sent["max_completion_tokens"], sent["temperature"], sent["top_k"])
        assert "$.max_tokens" in relay.losses(told)
        for api in (CHAT, MESSAGES):
            body: Any = json.loads(msgspec.json.encode(api.render_request(asking()).value)) | {"model": "m"}
            relay.post(api, msgspec.json.encode(body | {"preset": "creative"}))
            sent = relay.asked[-1].json
            assert (get_preset("creative").values()["temperature"], None) == (sent["temperature"], sent.get("preset"))
            assert 400 == relay.post(api, msgspec.json.encode(body | {"state": "one"})).status


@WAYS
def test_a_text_alone_is_what_a_user_says(relay: Relay, stream: bool) -> None:
    relay.play(script(relay.kind, said_text(" upon a time")))
    body = {"model": "m", "prompt": "Once", "stream": stream, "echo": True, "max_tokens": 9}
    told = relay.post(COMPLETIONS, msgspec.json.encode(body))
    assert "Once upon a time" == told.text, told.body
    assert ["Once"] == [text_content(item.content) for item in upstream(relay).items if isinstance(item, User)]
    for more in ({"suffix": "end"}, {"prompt": [1, 2]}):
        assert 400 == relay.post(COMPLETIONS, msgspec.json.encode(body | more)).status


def test_tokens_are_counted_by_a_server_that_counts_and_else_estimated(relay: Relay) -> None:
    body = MESSAGES.render_request(asking()).value
    del body["max_tokens"]
    relay.play(lambda asked: said({"input_tokens": 1234, "totalTokens": 1234}))
    told = relay.client.post("/v1/messages/count_tokens", json=json.loads(msgspec.json.encode(body)))
    if relay.kind.name == "messages":
        assert (1234, "exact") == (told.json()["input_tokens"], told.headers["x-turnscript-token-count"])
        assert "POST /v1/messages/count_tokens" == relay.asked[-1].line
        assert {"model", "messages", "tools"} == relay.asked[-1].json.keys()
    elif relay.kind.name == "gemini":
        assert (1234, "exact") == (told.json()["input_tokens"], told.headers["x-turnscript-token-count"])
        assert "POST /v1/models/upstream-model:countTokens" == relay.asked[-1].line
        assert {"model", "contents", "tools"} == relay.asked[-1].json["generateContentRequest"].keys()
    else:
        assert (True, "estimated") == (told.json()["input_tokens"] > 5, told.headers["x-turnscript-token-count"])
        assert [] == relay.asked


def test_an_answer_that_is_kept_is_gone_on_from(relay: Relay) -> None:
    relay.play(script(relay.kind, said_text("I am Ada.")))
    with openai_sdk(relay.url) as sdk:
        first = sdk.responses.create(model="m", input="Who are you?", instructions="Be kind.")
        sdk.responses.create(model="m", input="Again?", previous_response_id=first.id)
        sent = upstream(relay)
        texts = [text_content(item.content) for item in sent.items if hasattr(item, "content")]
        assert ["Who are you?", "I am Ada.", "Again?"] == texts[-3:]
        assert b"previous_response_id" not in relay.asked[-1].body
        assert "I am Ada." == sdk.responses.retrieve(first.id).output_text


def test_an_answer_that_nobody_waits_for_is_fetched(relay: Relay) -> None:
    relay.play(script(relay.kind, said_text("Done.")))
    with openai_sdk(relay.url) as sdk:
        begun = sdk.responses.create(model="m", input="Work", background=True)
        told = sdk.responses.retrieve(begun.id)
        while told.status in ("queued", "in_progress"):
            time.sleep(0.01)
            told = sdk.responses.retrieve(begun.id)
    assert ("completed", "Done.") == (told.status, told.output_text)
    assert b"background" not in relay.asked[-1].body


def test_a_conversation_is_summed_up_by_the_server_and_goes_on_from_that(relay: Relay) -> None:
    relay.play(script(relay.kind, said_text("They talked of Paris.")))
    talk: list[Any] = [{"role": "user", "content": "Tell me of Paris."}]
    told = relay.client.post("/v1/responses/compact", json={"model": "m", "input": talk}).json()
    assert "compaction" == told["output"][-1]["type"]
    relay.play(script(relay.kind, said_text("Yes.")))
    body = {"model": "m", "input": [*told["output"], {"role": "user", "content": "Go on"}]}
    assert "Yes." == relay.post(RESPONSES, msgspec.json.encode(body)).text
    assert b"They talked of Paris." in relay.asked[-1].body


def test_tools_that_a_vendor_runs_are_refused_where_the_policy_says_so() -> None:
    for kind in KINDS:
        with relaying(kind, policy=Policy(hosted_tools="refuse")) as relay:
            for api, tool in ((MESSAGES, "web_search_20250305"), (RESPONSES, "web_search")):
                body: Any = json.loads(msgspec.json.encode(api.render_request(asking()).value))
                body |= {"model": "m", "tools": [{"type": tool, "name": "web_search"}]}
                told = relay.post(api, msgspec.json.encode(body))
                assert 400 == told.status, told.body
                assert b"$.tools[0]" in told.body


def test_tools_of_free_text_and_namespaces_are_functions_to_others(messages: Relay) -> None:
    patch = {"type": "custom", "name": "apply_patch", "description": "Edit files."}
    space = {"type": "namespace", "name": "fs", "description": "", "tools": [{"type": "function", "name": "read"}]}
    body = {"model": "m", "input": "Go", "tools": [patch, space], "stream": True}
    written = ToolCall(name="apply_patch", arguments='{"input": "*** Begin"}', id="call_1")
    messages.play(script(messages.kind, written, ToolCall(name="fs__read", id="call_2"), finish="tool_calls"))
    told = messages.post(RESPONSES, msgspec.json.encode(body))
    assert [("apply_patch", True, "*** Begin"), ("read", False, "{}")] == [
        (one.name, one.custom, one.arguments) for one in told.calls
    ]
    assert "fs" == told.calls[1].namespace
    assert ["apply_patch", "fs__read"] == [tool["name"] for tool in messages.asked[-1].json["tools"]]


def test_a_request_in_the_servers_own_api_goes_on_as_it_came(relay: Relay) -> None:
    api = api_at(relay.kind.endpoint)
    body: Any = json.loads(msgspec.json.encode(api.render_request(asking()).value))
    body |= {"model": "m", "a_member_of_tomorrow": {"deep": [1]}, "metadata": {"user_id": "u"}}
    relay.play(script(relay.kind, said_text("Yes.")))
    told = relay.post(api, msgspec.json.encode(body))
    assert ("Yes.", "0") == (told.text, told.headers["x-turnscript-losses"])
    sent = relay.asked[-1].json
    assert body == {key: sent[key] if key != "model" else "m" for key in body}


def test_several_answers_are_asked_for_one_by_one(chat: Relay) -> None:
    chat.play(script(chat.kind, said_text("One.")), script(chat.kind, said_text("Two.")))
    with openai_sdk(chat.url) as sdk:
        told = sdk.chat.completions.create(model="m", n=2, messages=[{"role": "user", "content": "Hi"}])
    assert {"One.", "Two."} == {choice.message.content for choice in told.choices}
    assert all("n" not in asked.json for asked in chat.asked)


@pytest.mark.parametrize("name", ["claude_code_request", "codex_request", "chat_request"])
@WAYS
def test_what_agents_send_is_passed_on_in_its_order(relay: Relay, name: str, stream: bool) -> None:
    data = (EXAMPLES / f"{name}.json").read_bytes()
    api = get_api(detect_api(data))
    request = api.parse_request(data)
    relay.play(script(relay.kind, said_text("Done.")))
    told = relay.post(api, msgspec.json.encode(json.loads(data) | {"stream": stream}))
    assert ("Done.", stream) == (told.text, told.streamed), told.body
    sent = upstream(relay)
    for kind in (ToolCall, ToolResult):
        before, after = ([it.id for it in one.items if isinstance(it, kind)] for one in (request, sent))
        assert before == after
    texts = ["".join(map(_text, one.items)) for one in (request, sent)]
    assert texts[0] == texts[1]
    assert len(relay.losses(told)) == int(told.headers["x-turnscript-losses"])


def _text(item: Item) -> str:
    return text_content(item.content) if isinstance(item, User | Assistant) else ""


def test_what_a_client_of_messages_says_in_headers_is_passed_on(messages: Relay) -> None:
    said_so = {"anthropic-beta": "context-1m,tools-2", "anthropic-version": "2026-10-21"}
    usual = {"anthropic-beta": None, "anthropic-version": "2023-06-01"}
    body = msgspec.json.encode(MESSAGES.render_request(asking()).value)
    for headers, sent in (({}, usual), (said_so, said_so)):
        assert [] == messages.losses(messages.post(MESSAGES, body, headers))
        assert sent == {name: messages.asked[-1].headers.get(name) for name in sent}
        messages.play(said({"input_tokens": 321}))
        messages.client.post("/v1/messages/count_tokens", content=body, headers=headers)
        assert sent == {name: messages.asked[-1].headers.get(name) for name in sent}
        messages.play(script(messages.kind, said_text("Hello")))
    assert [] == messages.losses(messages.ask(CHAT, asking(), stream=False, headers=said_so))
    assert usual == {name: messages.asked[-1].headers.get(name) for name in usual}


def test_headers_of_a_model_stand_before_those_of_its_clients(messages: Relay) -> None:
    with relaying(messages.kind, headers={"Anthropic-Beta": "context-1m"}) as relay:
        same, other = ({"anthropic-beta": betas} for betas in ("context-1m", "tools-2"))
        assert [] == relay.losses(relay.ask(MESSAGES, asking(), stream=False, headers=same))
        assert ["anthropic-beta"] == relay.losses(relay.ask(MESSAGES, asking(), stream=False, headers=other))
        assert "context-1m" == relay.asked[-1].headers["anthropic-beta"]
    body = msgspec.json.encode(MESSAGES.render_request(asking()).value)
    assert ["anthropic-beta"] == messages.losses(messages.post(MESSAGES, body, {"anthropic-beta": "béta".encode()}))


LIMITS = {"x-ratelimit-remaining-tokens": "149984", "anthropic-ratelimit-requests-remaining": "3"}


@EACH
@pytest.mark.parametrize("stream", [True, False])
def test_a_client_is_told_the_limits_of_the_server_and_its_id_of_the_request(
    relay: Relay, api: Api, stream: bool
) -> None:
    def play(asked: Asked) -> Script:
        status, *steps = script(relay.kind, said_text("Hello"))(asked)
        assert isinstance(status, bytes)
        first, _, rest = status.partition(b"\r\n")
        more = "".join(f"{name}: {value}\r\n" for name, value in {"Request-Id": "req_theirs", **LIMITS}.items())
        return [first + b"\r\n" + more.encode() + rest, *steps]

    relay.play(play)
    told = relay.ask(api, asking(), stream=stream)
    assert LIMITS.items() <= told.headers.items()
    assert "req_theirs" == told.headers["x-turnscript-upstream-request"]
    assert "req_theirs" != told.headers[api.request_id]
    relay.play(said({"error": {"message": "slow down"}}, 429, x_request_id="req_2", retry_after_ms="1500", **LIMITS))
    told = relay.ask(api, asking(), stream=stream)
    assert LIMITS.items() <= told.headers.items()
    assert ("req_2", "2", "1500") == tuple(
        told.headers[name] for name in ("x-turnscript-upstream-request", "retry-after", "retry-after-ms")
    )
    relay.play(script(relay.kind, said_text("Hello")))


@pytest.mark.parametrize("stream", [True, False])
def test_what_a_client_cannot_be_told_of_an_answer_is_named_in_the_servers_words(chat: Relay, stream: bool) -> None:
    usage = {
        "prompt_tokens": 3,
        "completion_tokens": 2,
        "prompt_tokens_details": {"audio_tokens": 1, "image_tokens": 0},
    }
    part = {"role": "assistant", "content": "Hi"}
    choice = {"index": 0, "finish_reason": "stop", "delta" if stream else "message": part}
    body = {"id": "c", "object": "chat.completion", "choices": [choice], "usage": usage}
    chat.play(sse(json.dumps(body), "[DONE]") if stream else said(body))
    told = chat.ask(MESSAGES, asking(), stream=stream)
    assert ["$.usage.prompt_tokens_details.audio_tokens"] == chat.losses(told)
    chat.play(script(chat.kind, said_text("Hello")))


def test_that_a_model_calls_tools_itself_is_no_loss(messages: Relay) -> None:
    call_ = {"type": "tool_use", "id": "t", "name": "get_weather", "input": {}, "caller": {"type": "direct"}}
    usage = {"input_tokens": 3, "output_tokens": 2, "server_tool_use": None, "cache_creation": {"ephemeral_5m": 0}}
    body = {"id": "msg_1", "type": "message", "role": "assistant", "content": [call_], "stop_reason": "tool_use"}
    messages.play(said(body | {"usage": usage}))
    told = messages.ask(CHAT, asking(), stream=False)
    assert [] == messages.losses(told)
    messages.play(script(messages.kind, said_text("Hello")))


@EACH
def test_pictures_are_passed_on(relay: Relay, api: Api) -> None:
    request = asking()
    request.items[0] = User(content=[Text(text="What is it?"), Image(data="aGk=", media_type="image/png")])
    relay.play(script(relay.kind, said_text("A cat.")))
    told = relay.ask(api, request, stream=False)
    assert "A cat." == told.text
    assert b"aGk=" in relay.asked[-1].body


def test_usage_is_told_in_the_metrics(chat: Relay) -> None:
    chat.play(script(chat.kind, said_text("Yes.")))
    before = _tokens(chat)
    chat.ask(MESSAGES, asking(), stream=True)
    assert before + USAGE.output == _tokens(chat)


def _tokens(relay: Relay) -> float:
    lines = relay.client.get("/metrics").text.splitlines()
    return sum(float(line.split(" ")[-1]) for line in lines if "tokens_total{" in line and '"output"' in line)


def test_what_a_whole_answer_says_beside_its_items_is_no_loss(relay: Relay) -> None:
    relay.play(script(relay.kind, said_text("Yes.")))
    told: list[Told] = [relay.ask(api, asking(), stream=False) for api in CHATS]
    assert [[]] * len(CHATS) == [relay.losses(one) for one in told]
