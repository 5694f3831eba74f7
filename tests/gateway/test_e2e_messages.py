"""Owns Messages end to end: the anthropic SDK against the gateway, everything it can be asked."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Iterator
from typing import Any

import anthropic
import httpx2
import pytest
from pydantic import BaseModel

import turnscript as ts
from tests.gateway.speaker import Speaker, Talk, call, prompt_of, text
from tests.gateway.stage import WEATHER, Stage
from tests.sdks import anthropic_sdk, async_anthropic_sdk

pytestmark = pytest.mark.usefixtures("speaker")
ASK: Any = [{"role": "user", "content": "Hello"}]
TOOL: Any = {"name": "get_weather", "input_schema": {"type": "object", "properties": {"city": {"type": "string"}}}}
URL = "/v1/messages"


class City(BaseModel):
    """What the model is to say of a city."""

    name: str
    inhabitants: int


@pytest.fixture(scope="module")
def sdk(talk: Talk) -> Iterator[anthropic.Anthropic]:
    with anthropic_sdk(talk.url) as made:
        yield made


def body(messages: Any = ASK, **more: Any) -> dict[str, Any]:
    return {"model": "m", "max_tokens": 64, "messages": messages, **more}


def prompt_for(web: httpx2.Client, speaker: Speaker, messages: Any = ASK, **more: Any) -> str:
    """The prompt that a request becomes."""
    speaker.say(text("Fine."))
    told = web.post(URL, json=body(messages, **more))
    assert 200 == told.status_code, told.text
    assert "Fine." == told.json()["content"][0]["text"]
    return prompt_of(speaker)


def test_a_whole_answer(sdk: anthropic.Anthropic, speaker: Speaker) -> None:
    speaker.say(text("Hello you."))
    told = sdk.messages.create(model="claude-opus-5-5", max_tokens=64, messages=ASK)
    assert ("claude-opus-5-5", "message", "assistant") == (told.model, told.type, told.role)
    assert ("end_turn", None) == (told.stop_reason, told.stop_sequence)
    assert ["Hello you."] == [block.text for block in told.content if block.type == "text"]
    assert told.usage.input_tokens > 2
    assert told.usage.output_tokens > 2
    assert told.id.startswith("msg_")


def test_a_streamed_answer(sdk: anthropic.Anthropic, speaker: Speaker) -> None:
    speaker.say(text("Hello you."))
    with sdk.messages.stream(model="m", max_tokens=64, messages=ASK) as stream:
        events = list(stream)
        final = stream.get_final_message()
    kinds = [event.type for event in events]
    begun = next(event.message.usage for event in events if event.type == "message_start")
    assert min(begun.input_tokens, final.usage.input_tokens) > 2  # clients show from the start how full the context is
    assert "Hello you." == stream.get_final_text()
    assert ("message_start", "message_stop") == (kinds[0], kinds[-1])
    assert final.usage.output_tokens > 2
    assert "end_turn" == final.stop_reason


def test_the_async_client_asks_several_at_once(talk: Talk, speaker: Speaker) -> None:
    speaker.answering = lambda prompt: [text(f"Echo {prompt[prompt.rindex('number') + 7]}")]

    async def run() -> list[str]:
        async with async_anthropic_sdk(talk.url) as sdk:

            async def one(number: int) -> str:
                ask: Any = [{"role": "user", "content": f"number {number}"}]
                async with sdk.messages.stream(model="m", max_tokens=64, messages=ask) as stream:
                    return await stream.get_final_text()

            return await asyncio.gather(*map(one, range(8)))

    assert [f"Echo {number}" for number in range(8)] == asyncio.run(run())


@pytest.mark.parametrize("path", ["/v1/messages", "/messages", "/v1/messages?beta=true"])
@pytest.mark.parametrize("header", ["x-api-key", "authorization"])
def test_clients_of_every_base_url_and_key_are_served(
    web: httpx2.Client, speaker: Speaker, path: str, header: str
) -> None:
    speaker.say(text("Hello"))
    key = "k" if header == "x-api-key" else "Bearer k"
    assert 200 == web.post(path, json=body(), headers={header: key}).status_code


@pytest.mark.parametrize("version", ["2023-06-01", "2026-10-21", "2023-01-01", None])
def test_every_version_and_beta_is_taken(web: httpx2.Client, speaker: Speaker, version: str | None) -> None:
    speaker.say(text("Hello"))
    headers = {"anthropic-beta": "context-1m-2025-08-07,never-heard-of-2099-01-01"}
    headers |= {} if version is None else {"anthropic-version": version}
    told = web.post(URL, json=body(temperature=0.5, top_k=5, top_p=0.9), headers=headers)
    assert 200 == told.status_code


def test_beta_calls_of_the_sdk_are_served(sdk: anthropic.Anthropic, speaker: Speaker) -> None:
    speaker.say(text("Hello"))
    betas = ["interleaved-thinking-2025-05-14", "x-unknown-2030-01-01"]
    told = sdk.beta.messages.create(model="m", max_tokens=64, messages=ASK, betas=betas)
    assert "Hello" == getattr(told.content[0], "text", "")


def test_unknown_members_and_headers_are_passed_over(web: httpx2.Client, speaker: Speaker) -> None:
    speaker.say(text("Hello"))
    extra = {"context_management": {"edits": []}, "never_heard_of": 1, "metadata": {"user_id": "u"}, "mcp_servers": []}
    told = web.post(URL, json=body(**extra), headers={"x-never-heard-of": "1"}, params={"x": "y"})
    assert 200 == told.status_code
    report = web.get(told.headers["x-turnscript-report"]).json()
    assert "$.never_heard_of" in [loss["path"] for loss in report["losses"]]


# What the prompt is made of.


def test_instructions_stand_in_the_middle_too(web: httpx2.Client, speaker: Speaker) -> None:
    messages = [
        {"role": "user", "content": "First."},
        {"role": "user", "content": [{"type": "text", "text": "Second."}, {"type": "text", "text": "Third."}]},
        {"role": "system", "content": "Be brief."},
        {"role": "assistant", "content": "Yes."},
        {"role": "system", "content": [{"type": "text", "text": "Be kind."}], "output_config": {"effort": "low"}},
        {"role": "user", "content": "Fourth."},
    ]
    system = [{"type": "text", "text": "Be honest."}]
    prompt = prompt_for(web, speaker, messages, system=system, thinking={"type": "disabled"})
    places = [
        prompt.index(words) for words in ("Be honest", "First", "Second", "Third", "Be brief", "Be kind", "Fourth")
    ]
    assert sorted(places) == places


def test_results_of_every_form_are_read(web: httpx2.Client, speaker: Speaker) -> None:
    forms: list[Any] = ["plain", [{"type": "text", "text": "in a block"}], [], "", None]
    forms.append([{"type": "tool_reference", "tool_name": "get_weather"}])
    uses = [
        {"type": "tool_use", "id": f"t{at}", "name": "get_weather", "input": {"city": f"c{at}"}}
        for at in range(len(forms))
    ]
    results: list[Any] = [
        {"type": "tool_result", "tool_use_id": f"t{at}", "is_error": at == 0}
        | ({} if form is None else {"content": form})
        for at, form in enumerate(forms)
    ]
    image = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "iVBORw0KGgo="}}
    results[3]["content"] = [image, {"type": "text", "text": "beside an image"}]
    messages = [*ASK, {"role": "assistant", "content": uses}]
    messages.append({"role": "user", "content": [*results, {"type": "text", "text": "And what now?"}]})
    prompt = prompt_for(web, speaker, messages, tools=[TOOL])
    for words in ("plain", "in a block", "beside an image", "And what now?", "c5"):
        assert words in prompt
    assert "iVBORw0KGgo" not in prompt
    assert ['id="t0" status="error"'] == re.findall(r'id="t\d" status="error"', prompt)
    assert len(forms) == prompt.count("<<TOOL_RESULT ")


def test_marks_for_a_cache_mean_nothing(web: httpx2.Client, speaker: Speaker) -> None:
    mark = {"cache_control": {"type": "ephemeral", "ttl": "1h"}}
    plain = prompt_for(web, speaker, ASK, system="Be brief.", tools=[TOOL])
    marked = [{"role": "user", "content": [{"type": "text", "text": "Hello", **mark}]}]
    system = [{"type": "text", "text": "Be brief.", **mark}]
    assert plain == prompt_for(web, speaker, marked, system=system, tools=[TOOL | mark], **mark)


def test_the_billing_header_does_not_reach_the_model(web: httpx2.Client, speaker: Speaker) -> None:
    billing = {"type": "text", "text": "x-anthropic-billing-header: cc_version=2.1.9.abc; cc_entrypoint=cli;"}
    prompt = prompt_for(web, speaker, system=[billing, {"type": "text", "text": "Be brief."}])
    assert prompt_for(web, speaker, system="Be brief.") == prompt
    assert "billing" not in prompt


def test_deferred_tools_stay_out_until_something_names_them(web: httpx2.Client, speaker: Speaker) -> None:
    hidden = {
        "name": "mcp__notes__read",
        "description": "Reads.",
        "defer_loading": True,
        "input_schema": {"type": "object"},
    }
    search = {"name": "ToolSearch", "description": "Finds tools.", "input_schema": {"type": "object"}}
    first = prompt_for(web, speaker, tools=[TOOL, hidden, search])
    assert "mcp__notes__read" not in first
    use = {"type": "tool_use", "id": "t1", "name": "ToolSearch", "input": {}}
    found = {
        "type": "tool_result",
        "tool_use_id": "t1",
        "content": [{"type": "tool_reference", "tool_name": "mcp__notes__read"}],
    }
    messages = [*ASK, {"role": "assistant", "content": [use]}, {"role": "user", "content": [found]}]
    second = prompt_for(web, speaker, messages, tools=[TOOL, hidden, search])
    assert "mcp__notes__read" in second
    assert second.startswith(first.rpartition("<<ASSISTANT>>")[0])


def test_tools_of_the_vendor_are_not_offered(web: httpx2.Client, speaker: Speaker) -> None:
    server = [
        {"type": "web_search_20250305", "name": "web_search", "max_uses": 5},
        {"type": "code_execution_20250825", "name": "x"},
    ]
    assert prompt_for(web, speaker, tools=[TOOL]) == prompt_for(web, speaker, tools=[TOOL, *server])


def test_a_thread_is_refused_with_the_word_that_clients_know(sdk: anthropic.Anthropic) -> None:
    with pytest.raises(anthropic.BadRequestError) as told:
        sdk.messages.create(model="m", max_tokens=9, messages=ASK, extra_body={"thread": {"id": "t"}})
    error: Any = told.value.body
    assert "thread_unsupported_request" == error["error"]["details"]["error_code"]
    assert error["error"]["details"]["unsupported"]
    assert ("error", "invalid_request_error") == (error["type"], error["error"]["type"])


# What the answer is.


@pytest.mark.parametrize("stream", [False, True])
def test_a_stop_sequence_is_named(sdk: anthropic.Anthropic, speaker: Speaker, stream: bool) -> None:
    for left in ("cut", "echo"):
        speaker.say(text("One two END three"), stop=left)
        more: dict[str, Any] = {"model": "m", "max_tokens": 64, "messages": ASK, "stop_sequences": ["NEVER", "END"]}
        if stream:
            with sdk.messages.stream(**more) as streamed:
                told: Any = streamed.get_final_message()
        else:
            told = sdk.messages.create(**more)
        assert ("stop_sequence", "END") == (told.stop_reason, told.stop_sequence)
        assert "One two " == told.content[0].text


@pytest.mark.parametrize("stream", [False, True])
def test_the_limit_is_told(sdk: anthropic.Anthropic, speaker: Speaker, stream: bool) -> None:
    speaker.say(text("One two three four"))
    if stream:
        with sdk.messages.stream(model="m", max_tokens=2, messages=ASK) as streamed:
            told: Any = streamed.get_final_message()
    else:
        told = sdk.messages.create(model="m", max_tokens=2, messages=ASK)
    assert ("max_tokens", "One tw") == (told.stop_reason, told.content[0].text)


def test_an_answer_that_the_client_began_is_gone_on_with(sdk: anthropic.Anthropic, speaker: Speaker) -> None:
    speaker.say(text("The sky is blue."))
    begun: Any = [*ASK, {"role": "assistant", "content": "The sky"}]
    told = sdk.messages.create(model="m", max_tokens=64, messages=begun)
    assert " is blue." == getattr(told.content[0], "text", "")
    assert prompt_of(speaker).endswith("The sky")


def test_structured_output_is_parsed_by_the_sdk(sdk: anthropic.Anthropic, speaker: Speaker) -> None:
    speaker.say(text('{"name": "Rome", "inhabitants": 2800000}'))
    told = sdk.messages.parse(model="m", max_tokens=99, messages=ASK, output_format=City)
    assert City(name="Rome", inhabitants=2800000) == told.parsed_output
    assert "inhabitants" in prompt_of(speaker)


def test_structured_output_comes_as_a_forced_tool(sdk: anthropic.Anthropic, speaker: Speaker) -> None:
    speaker.tools = [ts.Tool(name="StructuredOutput", parameters=WEATHER.parameters)]
    speaker.say(call("StructuredOutput", city="Rome"))
    forced: Any = {"type": "tool", "name": "StructuredOutput"}
    tool: Any = TOOL | {"name": "StructuredOutput"}
    try:
        told = sdk.messages.create(model="m", max_tokens=99, messages=ASK, tools=[tool], tool_choice=forced)
    finally:
        speaker.tools = [WEATHER]
    assert ("tool_use", {"city": "Rome"}) == (told.stop_reason, getattr(told.content[0], "input", None))


def test_a_call_says_that_the_model_made_it_and_goes_back_like_that(
    sdk: anthropic.Anthropic, web: httpx2.Client, speaker: Speaker
) -> None:
    """Typed SDKs have it as required. A prompt is the same with it and without."""
    for _ in range(2):
        speaker.say(call("get_weather", city="Rome"))
    whole = sdk.messages.create(model="m", max_tokens=64, messages=ASK, tools=[TOOL])
    with sdk.messages.stream(model="m", max_tokens=64, messages=ASK, tools=[TOOL]) as stream:
        streamed = stream.get_final_message()
    prompts = []
    for told in (whole, streamed):
        [block] = told.content
        assert "tool_use" == block.type
        assert {"type": "direct"} == block.to_dict()["caller"]
        sent: Any = block.to_dict() | {"id": "toolu_1"}
        result = {"type": "tool_result", "tool_use_id": "toolu_1", "content": "sunny"}
        for one in (sent, {key: value for key, value in sent.items() if key != "caller"}):
            asked = [*ASK, {"role": "assistant", "content": [one]}, {"role": "user", "content": [result]}]
            prompts.append(prompt_for(web, speaker, asked, tools=[TOOL]))
    assert 1 == len(set(prompts))


def test_no_blank_text_is_told_before_a_call(sdk: anthropic.Anthropic, speaker: Speaker) -> None:
    speaker.say(call("get_weather", city="Rome"), change=lambda written: f"\n\n{written}")
    speaker.say(text("Fine."))
    with sdk.messages.stream(model="m", max_tokens=64, messages=ASK, tools=[TOOL]) as stream:
        told = stream.get_final_message()
    assert ["tool_use"] == [block.type for block in told.content]
    results: Any = [{"type": "tool_result", "tool_use_id": getattr(told.content[0], "id", ""), "content": "rain"}]
    later: Any = [*ASK, {"role": "assistant", "content": told.content}, {"role": "user", "content": results}]
    sdk.messages.create(model="m", max_tokens=64, messages=later, tools=[TOOL])
    assert prompt_of(speaker).startswith(speaker.said[0].prompt + speaker.said[0].written.rstrip())


def test_input_comes_in_pieces_of_one_json_text(sdk: anthropic.Anthropic, speaker: Speaker) -> None:
    speaker.say(call("get_weather", city='R "o" m\n字'))
    events: Any = list(sdk.messages.create(model="m", max_tokens=64, messages=ASK, tools=[TOOL], stream=True))
    pieces = [one.delta.partial_json for one in events if one.type == "content_block_delta"]
    assert {"city": 'R "o" m\n字'} == json.loads("".join(pieces))


# The rest of the server.


def test_counting_is_cheap_and_agrees_with_the_answer(talk: Talk, speaker: Speaker) -> None:
    long: Any = [{"role": "user", "content": "Hello " * 100}]

    async def run() -> list[int]:
        async with async_anthropic_sdk(talk.url) as sdk:
            counts = [sdk.messages.count_tokens(model="m", messages=long, tools=[TOOL]) for _ in range(25)]
            return [one.input_tokens for one in await asyncio.gather(*counts)]

    found = asyncio.run(run())
    assert 1 == len(set(found))
    assert found[0] > 100
    assert [] == speaker.said


def test_models_in_the_shape_of_this_api(sdk: anthropic.Anthropic, web: httpx2.Client) -> None:
    listed = sdk.models.list()
    assert ["default"] == [one.id for one in listed]
    assert ("default", "default") == (listed.first_id, listed.last_id)
    assert not listed.has_more
    one = sdk.models.retrieve("claude-sonnet-4-5")
    assert ("claude-sonnet-4-5", "model") == (one.id, one.type)
    assert one.display_name
    assert (
        4000 == web.get("/v1/models", headers={"anthropic-version": "2023-06-01"}).json()["data"][0]["max_input_tokens"]
    )


def test_whether_anybody_is_there_is_told_in_few_words(web: httpx2.Client) -> None:
    for path in ("/", "/health", "/v1/models"):
        asked, told = web.head(path), web.get(path)
        assert (200, 200, b"") == (asked.status_code, told.status_code, asked.content)
        assert told.headers["content-type"] == asked.headers["content-type"]
        assert told.content
    assert 200 == web.post("/api/event_logging/batch", json={"events": []}).status_code


@pytest.mark.parametrize("headers", [{}, {"anthropic-version": "2023-06-01"}], ids=["openai", "anthropic"])
def test_names_that_are_no_patterns_are_listed_and_all_of_them_are_served(headers: dict[str, str]) -> None:
    with Stage(model={"aliases": ("claude-opus-5-5", "gpt-*")}) as stage:
        told = stage.client.get("/v1/models?limit=1000", headers=headers).json()
        assert ["default", "claude-opus-5-5"] == [one["id"] for one in told["data"]]
        assert ("default", "claude-opus-5-5", False) == (told["first_id"], told["last_id"], told["has_more"])
        assert all(one["type"] == "model" and one["display_name"] for one in told["data"])
        for name in ("gpt-6", "claude-opus-5-5", "anything/else"):
            assert name == stage.client.get(f"/v1/models/{name}", headers=headers).json()["id"]
            assert name == stage.client.post(URL, json=body(model=name)).json()["model"]


def test_too_long_a_prompt_is_told_in_the_words_that_clients_know(sdk: anthropic.Anthropic) -> None:
    with pytest.raises(anthropic.BadRequestError) as told:
        sdk.messages.create(model="m", max_tokens=64, messages=[{"role": "user", "content": "word " * 20_000}])
    error: Any = told.value.body
    message = error["error"]["message"]
    assert message.startswith("prompt is too long: ")
    tokens, _, limit = message.removeprefix("prompt is too long: ").partition(" tokens > ")
    assert int(tokens) > 4000
    assert "4000 maximum" == limit


@pytest.mark.parametrize(
    "wrong",
    [
        {"messages": "Hello"},
        {"messages": [{"role": "user"}]},
        {"messages": [{"role": "user", "content": [{"type": "tool_result"}]}]},
        {"max_tokens": "many"},
        {"tools": [{"name": 7}]},
        {"stop_sequences": "END"},
    ],
    ids=["no list", "no content", "no id", "a word for a number", "a number for a name", "no array"],
)
def test_a_malformed_request_is_a_bad_request(sdk: anthropic.Anthropic, wrong: Any) -> None:
    with pytest.raises(anthropic.BadRequestError) as told:
        sdk.post(URL, body=body() | wrong, cast_to=object)
    error: Any = told.value.body
    assert ("error", "invalid_request_error") == (error["type"], error["error"]["type"])
    assert next(iter(wrong)) in error["error"]["message"]
    assert (told.value.request_id or "").startswith("req_")


def test_the_tool_runner_of_the_sdk_which_wants_threads_runs(sdk: anthropic.Anthropic, speaker: Speaker) -> None:
    """It first asks for a conversation that the server keeps, is refused, and sends all of it again."""

    @anthropic.beta_tool
    def get_weather(city: str) -> str:
        """The weather of a city."""
        return f"rain in {city}"

    speaker.say(call("get_weather", city="Rome"))
    speaker.say(text("It rains."))
    runner = sdk.beta.messages.tool_runner(model="m", max_tokens=99, messages=ASK, tools=[get_weather])
    assert "It rains." == getattr(runner.until_done().content[0], "text", "")
    assert "rain in Rome" in prompt_of(speaker)
    assert prompt_of(speaker).startswith(speaker.said[0].prompt + speaker.said[0].written.rstrip())
