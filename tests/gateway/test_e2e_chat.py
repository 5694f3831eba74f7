"""Owns Chat Completions and completions end to end: the openai SDK against the gateway, everything it can be asked."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import httpx2
import openai
import pytest
from pydantic import BaseModel

import turnscript as ts
from tests.gateway.speaker import Speaker, Talk, call, prompt_of, speaking, text, thought
from tests.gateway.stage import NO_TLS
from tests.sdks import async_openai_sdk, openai_sdk
from turnscript.apis.api import Api

pytestmark = pytest.mark.usefixtures("speaker")
ASK: Any = [{"role": "user", "content": "Hello"}]
TOOL: Any = {
    "type": "function",
    "function": {"name": "get_weather", "parameters": {"type": "object", "properties": {}}},
}


class City(BaseModel):
    """What the model is to say of a city."""

    name: str
    inhabitants: int


def asked_of(speaker: Speaker) -> Any:
    return speaker.said[-1].asked.json


def test_a_whole_answer(sdk: openai.OpenAI, speaker: Speaker) -> None:
    speaker.say(text("Hello you."))
    told = sdk.chat.completions.create(model="my-model", messages=ASK)
    assert ("my-model", "chat.completion", "stop") == (told.model, told.object, told.choices[0].finish_reason)
    assert ("assistant", "Hello you.") == (told.choices[0].message.role, told.choices[0].message.content)
    assert told.usage is not None
    assert told.usage.total_tokens == told.usage.prompt_tokens + told.usage.completion_tokens > 2
    assert told.id.startswith("chatcmpl-")
    assert "Hello" in prompt_of(speaker)


def test_a_streamed_answer_with_its_usage(sdk: openai.OpenAI, speaker: Speaker) -> None:
    speaker.say(text("Hello you."))
    chunks = list(
        sdk.chat.completions.create(model="m", messages=ASK, stream=True, stream_options={"include_usage": True})
    )
    texts = [chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices]
    assert "Hello you." == "".join(texts)
    assert chunks[-1].usage is not None
    assert [] == chunks[-1].choices
    assert 1 == len({chunk.id for chunk in chunks})
    assert "stop" == chunks[-2].choices[0].finish_reason


def test_without_being_asked_a_stream_has_no_usage(sdk: openai.OpenAI, speaker: Speaker) -> None:
    speaker.say(text("Hello you."))
    assert all(not chunk.usage for chunk in sdk.chat.completions.create(model="m", messages=ASK, stream=True))


def test_the_async_client_asks_several_at_once(talk: Talk, speaker: Speaker) -> None:
    speaker.answering = lambda prompt: [text(f"Echo {prompt[prompt.rindex('number') + 7]}")]

    async def run() -> list[str | None]:
        async with async_openai_sdk(talk.url) as sdk:

            async def one(number: int) -> str | None:
                ask: Any = [{"role": "user", "content": f"number {number}"}]
                if number % 2:
                    stream = await sdk.chat.completions.create(model="m", messages=ask, stream=True)
                    return "".join([chunk.choices[0].delta.content or "" async for chunk in stream if chunk.choices])
                return (await sdk.chat.completions.create(model="m", messages=ask)).choices[0].message.content

            return await asyncio.gather(*map(one, range(8)))

    assert [f"Echo {number}" for number in range(8)] == asyncio.run(run())


def test_every_role_and_content_is_read(sdk: openai.OpenAI, speaker: Speaker) -> None:
    speaker.say(text("Fine."))
    calls = [{"id": "c1", "type": "function", "function": {"name": "get_weather", "arguments": '{"city": "Rome"}'}}]
    history: Any = [
        {"role": "system", "content": "First rule."},
        {"role": "system", "content": [{"type": "text", "text": "Second rule."}]},
        {"role": "developer", "content": "Third rule."},
        {"role": "user", "content": [{"type": "text", "text": "One part."}, {"type": "text", "text": "Two parts."}]},
        {
            "role": "assistant",
            "content": None,
            "tool_calls": calls,
            "provider_specific_fields": {"x": 1},
            "annotations": [],
        },
        {"role": "tool", "tool_call_id": "c1", "content": [{"type": "text", "text": "It rains."}]},
        {"role": "assistant", "content": "", "reasoning_content": "So it rains."},
        {"role": "assistant"},
        {"role": "assistant", "content": [{"type": "text", "text": "In parts."}], "refusal": None, "audio": None},
        {"role": "user", "content": "And now?", "name": "Ann"},
    ]
    assert "Fine." == sdk.chat.completions.create(model="m", messages=history, tools=[TOOL]).choices[0].message.content
    for words in ("First rule.", "Second rule.", "Third rule.", "One part.", "Two parts.", "It rains.", "In parts."):
        assert 1 == prompt_of(speaker).count(words), words
    assert '{"city": "Rome"}' in prompt_of(speaker)


def test_arguments_stay_as_they_were_written_by_call_id(sdk: openai.OpenAI, speaker: Speaker) -> None:
    odd = '{ "city":\t"Rome",  "n": 1.0, "big": 12345678901234567890 }'
    speaker.say(text("Fine."))
    calls: Any = [{"id": "c1", "type": "function", "function": {"name": "get_weather", "arguments": odd}}]
    history: Any = [*ASK, {"role": "assistant", "content": None, "tool_calls": calls}]
    history.append({"role": "tool", "tool_call_id": "c1", "content": "rain"})
    sdk.chat.completions.create(model="m", messages=history, tools=[TOOL])
    assert odd in prompt_of(speaker)


def test_parallel_calls_have_an_index_in_a_stream(sdk: openai.OpenAI, speaker: Speaker) -> None:
    speaker.say(call("get_weather", city="Rome"), call("get_weather", city="Oslo"))
    chunks = list(sdk.chat.completions.create(model="m", messages=ASK, tools=[TOOL], stream=True))
    pieces = [one for chunk in chunks if chunk.choices for one in chunk.choices[0].delta.tool_calls or ()]
    assert [0, 1] == sorted({one.index for one in pieces})
    for index, city in enumerate(("Rome", "Oslo")):
        own = [one for one in pieces if one.index == index]
        assert own[0].id
        assert own[0].function is not None
        assert "get_weather" == own[0].function.name
        joined = "".join(one.function.arguments or "" for one in own if one.function)
        assert {"city": city} == json.loads(joined)
    assert "tool_calls" == [chunk.choices[0].finish_reason for chunk in chunks if chunk.choices][-1]


def test_no_blank_text_is_told_before_a_call(sdk: openai.OpenAI, speaker: Speaker) -> None:
    speaker.say(call("get_weather", city="Rome"), change=lambda written: f"\n\n{written}")
    chunks = list(sdk.chat.completions.create(model="m", messages=ASK, tools=[TOOL], stream=True))
    assert [] == [one for one in chunks if one.choices[0].delta.content is not None]
    assert "tool_calls" == chunks[-1].choices[0].finish_reason


@pytest.mark.parametrize("stream", [False, True])
def test_a_stop_string_of_the_client_ends_the_text(sdk: openai.OpenAI, speaker: Speaker, stream: bool) -> None:
    for stop in ("END", ["NEVER", "END"]):
        speaker.say(text("One two END three"))
        assert "One two " == said(sdk, stream=stream, stop=stop)


@pytest.mark.parametrize("stream", [False, True])
def test_a_stop_string_that_the_server_leaves_in_is_taken_out(
    sdk: openai.OpenAI, speaker: Speaker, stream: bool
) -> None:
    speaker.say(text("One two END three"), stop="echo")
    assert "One two " == said(sdk, stream=stream, stop="END")
    speaker.say(text("No end mark."), stop="none")
    assert "No end mark." == said(sdk, stream=stream).strip()


def said(sdk: openai.OpenAI, *, stream: bool, **more: Any) -> str:
    """What the model says."""
    told: Any = sdk.chat.completions.create(model="m", messages=ASK, stream=stream, **more)
    if not stream:
        return str(told.choices[0].message.content)
    return "".join(chunk.choices[0].delta.content or "" for chunk in told if chunk.choices)


@pytest.mark.parametrize("name", ["max_tokens", "max_completion_tokens"])
@pytest.mark.parametrize("stream", [False, True])
def test_the_limit_is_a_length(sdk: openai.OpenAI, speaker: Speaker, name: str, stream: bool) -> None:
    speaker.say(text("One two three four five"))
    limit: Any = {name: 3}
    told: Any = sdk.chat.completions.create(model="m", messages=ASK, stream=stream, **limit)
    reasons = (
        [one.choices[0].finish_reason for one in told if one.choices] if stream else [told.choices[0].finish_reason]
    )
    assert "length" == reasons[-1]
    assert 3 == asked_of(speaker)["max_tokens"]


def test_a_limit_beyond_the_context_is_made_to_fit(sdk: openai.OpenAI, speaker: Speaker) -> None:
    speaker.say(text("Hello"))
    told = sdk.chat.completions.with_raw_response.create(model="m", messages=ASK, max_tokens=1_000_000)
    assert asked_of(speaker)["max_tokens"] < 4000
    assert int(told.headers["x-turnscript-losses"]) >= 1


def test_as_many_answers_are_made_as_are_asked_for(sdk: openai.OpenAI, speaker: Speaker) -> None:
    speaker.say(text("Hello"))
    assert 1 == len(sdk.chat.completions.create(model="m", messages=ASK, n=1).choices)
    speaker.say(text("Hello"))
    speaker.say(text("Hello"))
    told = sdk.chat.completions.with_raw_response.create(model="m", messages=ASK, n=2)
    assert ("0", 2) == (told.headers["x-turnscript-losses"], len(told.parse().choices))


def test_sampling_goes_to_the_model(sdk: openai.OpenAI, speaker: Speaker) -> None:
    speaker.say(text("Hello"))
    sdk.chat.completions.create(model="m", messages=ASK, temperature=0.25, top_p=0.5, seed=7, presence_penalty=0.5)
    sent = asked_of(speaker)
    assert (0.25, 0.5, 7, 0.5) == (sent["temperature"], sent["top_p"], sent["seed"], sent["presence_penalty"])


def test_structured_output_is_parsed_by_the_sdk(sdk: openai.OpenAI, speaker: Speaker) -> None:
    speaker.say(text('{"name": "Rome", "inhabitants": 2800000}'))
    told = sdk.chat.completions.parse(model="m", messages=ASK, response_format=City)
    assert City(name="Rome", inhabitants=2800000) == told.choices[0].message.parsed
    assert "inhabitants" in prompt_of(speaker)
    speaker.say(text('{"name": "Oslo", "inhabitants": 700000}'))
    with sdk.chat.completions.stream(model="m", messages=ASK, response_format=City) as stream:
        assert City(name="Oslo", inhabitants=700000) == stream.get_final_completion().choices[0].message.parsed


def test_any_object_may_be_asked_for(sdk: openai.OpenAI, speaker: Speaker) -> None:
    speaker.say(text('{"a": 1}'))
    told = sdk.chat.completions.create(model="m", messages=ASK, response_format={"type": "json_object"})
    assert {"a": 1} == json.loads(told.choices[0].message.content or "")


def test_tools_are_parsed_by_the_sdk(sdk: openai.OpenAI, speaker: Speaker) -> None:
    speaker.say(call("City", name="Rome", inhabitants=3))
    tool = openai.pydantic_function_tool(City)
    told = sdk.chat.completions.parse(model="m", messages=ASK, tools=[tool])
    assert City(name="Rome", inhabitants=3) == (told.choices[0].message.tool_calls or [])[0].function.parsed_arguments


def test_unknown_members_queries_and_headers_are_passed_over(sdk: openai.OpenAI, speaker: Speaker) -> None:
    speaker.say(text("Hello"))
    told = sdk.chat.completions.with_raw_response.create(
        model="m",
        messages=ASK,
        extra_body={
            "never_heard_of": {"x": [1]},
            "prompt_cache_key": "k",
            "safety_identifier": "s",
            "verbosity": "low",
        },
        extra_query={"api-version": "2024-10-21", "x": "y"},
        extra_headers={"x-never-heard-of": "1", "openai-beta": "responses=v9"},
    )
    assert "Hello" == told.parse().choices[0].message.content
    report = httpx2.get(str(sdk.base_url.copy_with(path=told.headers["x-turnscript-report"])), verify=NO_TLS).json()
    assert "$.never_heard_of" in [loss["path"] for loss in report["losses"]]


@pytest.mark.parametrize(
    "body",
    [
        {"messages": "Hello"},
        {"messages": [{"content": "no role"}]},
        {"messages": [{"role": "user", "content": 7}]},
        {"messages": ASK, "max_tokens": "many"},
        {"messages": ASK, "tools": [{"type": "function"}]},
    ],
    ids=["no list", "no role", "a number", "a word for a number", "no function"],
)
def test_a_malformed_request_is_a_bad_request(sdk: openai.OpenAI, body: Any) -> None:
    with pytest.raises(openai.BadRequestError) as told:
        sdk.post("/chat/completions", body={"model": "m", **body}, cast_to=object)
    assert 400 == told.value.status_code
    assert "invalid_request_error" == told.value.type
    assert told.value.message


def test_too_long_a_prompt_is_told_in_the_words_that_clients_know(sdk: openai.OpenAI) -> None:
    ask: Any = [{"role": "user", "content": "word " * 20_000}]
    with pytest.raises(openai.BadRequestError) as told:
        sdk.chat.completions.create(model="m", messages=ask)
    assert "context_length_exceeded" == told.value.code
    assert "maximum context length" in told.value.message


def test_models_are_listed_and_any_name_is_one(sdk: openai.OpenAI) -> None:
    listed = list(sdk.models.list())
    assert ["default"] == [one.id for one in listed]
    assert ("gpt-5", "model") == ((one := sdk.models.retrieve("gpt-5")).id, one.object)
    assert "org/some-model" == sdk.models.retrieve("org/some-model").id


@pytest.mark.parametrize("headers", [{}, {"anthropic-version": "2023-06-01"}], ids=["openai", "anthropic"])
def test_a_slash_at_the_end_of_the_models_names_none_of_them(sdk: openai.OpenAI, headers: dict[str, str]) -> None:
    options: Any = {"headers": headers}
    assert sdk.get("/models", cast_to=object, options=options) == sdk.get("/models/", cast_to=object, options=options)


def test_a_path_that_is_not_there_is_not_found(sdk: openai.OpenAI) -> None:
    with pytest.raises(openai.NotFoundError):
        sdk.embeddings.create(model="m", input="Hello")


# Completions.


def test_a_text_goes_on(sdk: openai.OpenAI, speaker: Speaker) -> None:
    speaker.say(raw=" upon a time")
    told = sdk.completions.create(model="m", prompt="Once", max_tokens=50)
    assert (" upon a time", "stop") == (told.choices[0].text, told.choices[0].finish_reason)
    assert "<<USER>>\nOnce\n<<USER_END>>\n\n<<ASSISTANT>>\n" == prompt_of(speaker)
    speaker.say(raw=" upon a time")
    chunks = list(sdk.completions.create(model="m", prompt="Once", max_tokens=50, stream=True))
    assert " upon a time" == "".join(chunk.choices[0].text for chunk in chunks)


def test_a_text_with_a_stop_and_a_limit(sdk: openai.OpenAI, speaker: Speaker) -> None:
    speaker.say(raw=" upon a time", stop="echo")
    assert " upon " == sdk.completions.create(model="m", prompt="Once", stop=["a t"], max_tokens=9).choices[0].text
    speaker.say(raw=" upon a time")
    cut = sdk.completions.create(model="m", prompt="Once", max_tokens=2)
    assert (" upon ", "length") == (cut.choices[0].text, cut.choices[0].finish_reason)


@pytest.mark.parametrize("prompt", ["def f(", [5, 1]], ids=["a text", "tokens"])
def test_a_text_with_a_hole_that_nothing_fills_is_told(sdk: openai.OpenAI, speaker: Speaker, prompt: Any) -> None:
    with pytest.raises(openai.BadRequestError, match="hole") as told:
        sdk.completions.create(model="m", prompt=prompt, suffix="return x", max_tokens=9)
    assert "$.suffix" == told.value.param
    assert [] == speaker.said


def test_a_thought_does_not_hold_up_a_text_api(sdk: openai.OpenAI, speaker: Speaker) -> None:
    speaker.say(thought("Hm."), text("Hello"))
    told = sdk.chat.completions.create(model="m", messages=ASK, reasoning_effort="low")
    assert told.usage is not None
    assert told.usage.completion_tokens_details is not None
    assert (told.usage.completion_tokens_details.reasoning_tokens or 0) > 0


@pytest.mark.parametrize(
    "api", [one for one in map(ts.get_api, ts.apis()) if not one.serving.bare], ids=lambda one: one.name
)
@pytest.mark.parametrize("header", ["x-api-key", "authorization"])
def test_paths_with_and_without_a_version_are_served_with_either_header(
    talk: Talk, speaker: Speaker, api: Api, header: str
) -> None:
    bare = api.endpoint.removeprefix("/v1") if api.endpoint.startswith("/v1/") else api.endpoint
    for path in (api.endpoint, bare, f"{api.endpoint}?beta=true"):
        speaker.say(text("Fine."))
        request = ts.Request(conversation=ts.Conversation(items=[ts.User(content=[ts.Text(text="Hello")])]))
        request.settings.model, request.settings.max_tokens = "any", 64
        key = "k" if header == "x-api-key" else "Bearer k"
        body = api.render_request(request).value
        told = httpx2.post(f"{talk.url}{path}", json=body, headers={header: key}, verify=NO_TLS)
        assert (200, "any") == (told.status_code, api.parse_response(told.content).model)


@pytest.mark.parametrize("order", ["", "spm", "rwkv"])
def test_a_text_with_a_hole_is_filled_in_the_order_that_is_told_and_can_be_set(order: str) -> None:
    speaker = Speaker(ts.get_format("openchatml"))
    fill = speaker.format.fill_prompt(ts.Fill("def add(", "    return a + b\n"), order=order)
    with speaking(speaker, fill_order=order or None) as talk, openai_sdk(talk.url) as sdk:
        for stream in (False, True):
            speaker.say(raw=f"a, b):\n{fill.stops[0]}more")
            raw: Any = sdk.completions.with_raw_response.create(
                model="m", prompt="def add(", suffix="    return a + b\n", max_tokens=99, stream=stream
            )
            told = raw.parse()
            texts = [one.choices[0].text for one in told] if stream else [told.choices[0].text]
            assert "a, b):\n" == "".join(texts)
            assert fill.text == prompt_of(speaker)
            report = httpx2.get(f"{talk.url}{raw.headers['x-turnscript-report']}", verify=NO_TLS).json()
            assert f"the hole is written in the order {order or 'psm'!r} of openchatml" in report["words"]
