"""Owns Responses end to end: the openai SDK against the gateway, and what it keeps for its clients."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Iterator
from typing import Any

import httpx2
import openai
import pytest
from pydantic import BaseModel

import turnscript as ts
from tests.gateway.scripted import HANG, STREAM
from tests.gateway.speaker import Speaker, Talk, call, prompt_of, speaking, text, thought
from tests.gateway.stage import WEATHER
from tests.sdks import async_openai_sdk
from turnscript.core.conversation import Tool

pytestmark = pytest.mark.usefixtures("speaker")
URL = "/v1/responses"
PARAMETERS = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
TOOL: Any = {"type": "function", "name": "get_weather", "parameters": PARAMETERS, "strict": False}
NOTES: Any = {
    "type": "namespace",
    "name": "mcp__notes",
    "description": "Notes.",
    "tools": [{"type": "function", "name": "read_note", "parameters": PARAMETERS, "strict": False}],
}
PATCH: Any = {"type": "custom", "name": "apply_patch", "description": "Changes files.", "format": {"type": "text"}}
SPOKEN = [WEATHER, Tool(name="mcp__notes__read_note", parameters=WEATHER.parameters), Tool(name="apply_patch")]


class City(BaseModel):
    """What the model is to say of a city."""

    name: str
    inhabitants: int


@pytest.fixture(scope="module")
def talk() -> Iterator[Talk]:
    with speaking(Speaker(ts.get_format("rwkv-universal"), SPOKEN), context=4000) as made:
        yield made


def grew(speaker: Speaker) -> bool:
    return all(
        after.prompt.startswith(before.prompt + before.written.rstrip())
        for before, after in zip(speaker.said, speaker.said[1:], strict=False)
    )


def test_a_whole_answer(sdk: openai.OpenAI, speaker: Speaker) -> None:
    speaker.say(text("Hello you."))
    told = sdk.responses.create(model="gpt-5", input="Hello", instructions="Be brief.")
    assert ("gpt-5", "response", "completed") == (told.model, told.object, told.status)
    assert "Hello you." == told.output_text
    assert told.usage is not None
    assert told.usage.total_tokens == told.usage.input_tokens + told.usage.output_tokens > 2
    assert "Be brief." in prompt_of(speaker)


def test_a_streamed_answer(sdk: openai.OpenAI, speaker: Speaker) -> None:
    speaker.say(text("Hello you."))
    with sdk.responses.stream(model="m", input="Hello") as stream:
        kinds = [event.type for event in stream]
        assert "Hello you." == stream.get_final_response().output_text
    assert ["response.created", "response.in_progress", "response.output_item.added"] == kinds[:3]
    assert "response.completed" == kinds[-1]


def test_the_async_client_asks_several_at_once(talk: Talk, speaker: Speaker) -> None:
    speaker.answering = lambda prompt: [text(f"Echo {prompt[prompt.rindex('number') + 7]}")]

    async def run() -> list[str]:
        async with async_openai_sdk(talk.url) as sdk:

            async def one(number: int) -> str:
                async with sdk.responses.stream(model="m", input=f"number {number}") as stream:
                    return (await stream.get_final_response()).output_text

            return await asyncio.gather(*map(one, range(8)))

    assert [f"Echo {number}" for number in range(8)] == asyncio.run(run())


@pytest.mark.parametrize("background", [False, True], ids=["waited for", "background"])
@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
def test_a_complete_answer_says_since_when_wherever_it_is_told(
    web: httpx2.Client, speaker: Speaker, stream: bool, background: bool
) -> None:
    speaker.say(text("Hello you."))
    began = int(time.time())
    body = {"input": "Hello", "stream": stream, "background": background}
    told = web.post(URL, json=body).text
    seen = (
        [
            json.loads(line[6:])["response"]
            for line in told.splitlines()
            if line.startswith('data: {"type":"response.') and '"response":{' in line
        ]
        if stream
        else [json.loads(told)]
    )
    kept = web.get(f"{URL}/{seen[0]['id']}").json()
    while kept["status"] != "completed":
        assert kept["completed_at"] is None
        kept = web.get(f"{URL}/{seen[0]['id']}").json()
    assert began <= kept["created_at"] <= kept["completed_at"] <= time.time()
    for one in seen:
        assert one["completed_at"] == (kept["completed_at"] if one["status"] == "completed" else None)
    assert "completed" == seen[-1]["status"] or background
    assert "default" == kept["model"]


def test_an_answer_that_met_its_limit_was_never_complete(web: httpx2.Client, speaker: Speaker) -> None:
    speaker.say(text("One two three four five"))
    told = web.post(URL, json={"input": "Hello", "max_output_tokens": 3}).json()
    assert ("incomplete", None) == (told["status"], told["completed_at"])


# What is kept.


def test_a_conversation_goes_on_from_an_id(sdk: openai.OpenAI, speaker: Speaker) -> None:
    speaker.say(thought("Hm."), call("get_weather", city="Rome"))
    speaker.say(thought("Now."), text("It rains."))
    speaker.say(thought("Bye."), text("Bye."))
    think: Any = {"reasoning": {"effort": "low"}, "tools": [TOOL]}
    first = sdk.responses.create(model="m", input="Weather in Rome?", **think)
    called: Any = first.output[-1]
    result: Any = [{"type": "function_call_output", "call_id": called.call_id, "output": "rain"}]
    second = sdk.responses.create(model="m", input=result, previous_response_id=first.id, **think)
    assert "It rains." == second.output_text
    assert first.id == second.previous_response_id
    third = sdk.responses.create(model="m", input="Thanks", previous_response_id=second.id, **think)
    assert "Bye." == third.output_text
    assert grew(speaker)
    assert "Weather in Rome?" in prompt_of(speaker)


def test_instructions_are_those_of_the_last_request(sdk: openai.OpenAI, speaker: Speaker) -> None:
    speaker.say(text("One."))
    speaker.say(text("Two."))
    first = sdk.responses.create(model="m", input="Hello", instructions="Be brief.")
    sdk.responses.create(model="m", input="And?", instructions="Be kind.", previous_response_id=first.id)
    assert "Be kind." in prompt_of(speaker)
    assert "Be brief." not in prompt_of(speaker)


def test_an_answer_is_kept_listed_and_forgotten(sdk: openai.OpenAI, speaker: Speaker) -> None:
    speaker.say(text("Hello you."))
    told = sdk.responses.create(model="m", input=[{"role": "user", "content": f"Number {at}"} for at in range(5)])
    assert told.model_dump() == sdk.responses.retrieve(told.id).model_dump()
    items: Any = list(sdk.responses.input_items.list(told.id, order="asc", limit=2))
    assert [f"Number {at}" for at in range(5)] == [one.content[0].text for one in items]
    assert items[::-1] == list(sdk.responses.input_items.list(told.id, limit=2))
    sdk.responses.delete(told.id)
    for gone in (sdk.responses.retrieve, sdk.responses.delete, sdk.responses.input_items.list):
        with pytest.raises(openai.NotFoundError):
            gone(told.id)


def test_what_is_not_to_be_kept_is_not_there(sdk: openai.OpenAI, speaker: Speaker) -> None:
    speaker.say(text("Hello you."))
    told = sdk.responses.create(model="m", input="Hello", store=False)
    with pytest.raises(openai.NotFoundError):
        sdk.responses.retrieve(told.id)


def test_going_on_from_what_is_not_there_is_told(sdk: openai.OpenAI) -> None:
    with pytest.raises((openai.NotFoundError, openai.BadRequestError)) as told:
        sdk.responses.create(model="m", input="Hello", previous_response_id="resp_never")
    assert "resp_never" in told.value.message
    reference: Any = [{"type": "item_reference", "id": "msg_never"}]
    with pytest.raises((openai.NotFoundError, openai.BadRequestError)) as told:
        sdk.responses.create(model="m", input=reference)
    assert "msg_never" in told.value.message


def test_items_are_named_instead_of_said(sdk: openai.OpenAI, speaker: Speaker) -> None:
    speaker.say(thought("Hm."), call("get_weather", city="Rome"))
    speaker.say(text("It rains."), change=str)
    first = sdk.responses.create(model="m", input="Weather?", tools=[TOOL], reasoning={"effort": "low"})
    references = [{"type": "item_reference", "id": item.id} for item in first.output]
    called: Any = first.output[-1]
    later: Any = [{"role": "user", "content": "Weather?"}, *references]
    later.append({"type": "function_call_output", "call_id": called.call_id, "output": "rain"})
    assert "It rains." in sdk.responses.create(model="m", input=later, tools=[TOOL]).output_text
    assert grew(speaker) or "Rome" in prompt_of(speaker)


def test_items_that_were_named_once_are_there_for_whoever_names_or_follows_them(
    sdk: openai.OpenAI, speaker: Speaker
) -> None:
    """Clients that name items instead of saying them name all of them again in each turn."""
    speaker.answering = lambda prompt: [text("I see.")]
    first = sdk.responses.create(model="m", input="My name is Ada.")
    (asked,) = sdk.responses.input_items.list(first.id).data
    named: Any = [{"type": "item_reference", "id": asked.id}, {"id": first.output[0].id}]
    last = first
    for more in ("Two", "Three"):
        last = sdk.responses.create(model="m", input=[*named, {"role": "user", "content": more}])
        assert prompt_of(speaker).index("Ada") < prompt_of(speaker).index("I see.") < prompt_of(speaker).index(more)
    assert ["message"] * 3 == [item.type for item in sdk.responses.input_items.list(last.id).data]
    sdk.responses.create(model="m", input="Four", previous_response_id=last.id)
    assert prompt_of(speaker).index("Ada") < prompt_of(speaker).index("Three") < prompt_of(speaker).index("Four")


@pytest.mark.parametrize("id_", [{}, {"id": None}, {"id": 7}])
def test_a_reference_without_an_id_is_a_bad_request(web: httpx2.Client, id_: Any) -> None:
    told = web.post(URL, json={"model": "m", "input": [{"type": "item_reference", **id_}]})
    assert 400 == told.status_code
    assert "$.input[0].id" in told.text


@pytest.mark.parametrize("stream", [False, True])
def test_an_answer_in_the_background_is_asked_for_later(sdk: openai.OpenAI, speaker: Speaker, stream: bool) -> None:
    speaker.say(text("Hello you."))
    if stream:
        events = list(sdk.responses.create(model="m", input="Hello", background=True, stream=True))
        id_, numbers = events[0].response.id, [one.sequence_number for one in events]  # type: ignore[union-attr]
        assert list(range(len(numbers))) == numbers
        rest = list(sdk.responses.retrieve(id_, stream=True, starting_after=numbers[3]))
        assert events[4:] == rest
    else:
        told = sdk.responses.create(model="m", input="Hello", background=True)
        assert told.status in ("queued", "in_progress")
        id_ = told.id
    assert "completed" == until_over(sdk, id_).status
    assert "Hello you." == sdk.responses.retrieve(id_).output_text


def until_over(sdk: openai.OpenAI, id_: str) -> Any:
    for _ in range(500):
        told = sdk.responses.retrieve(id_)
        if told.status not in ("queued", "in_progress"):
            return told
        time.sleep(0.01)
    raise AssertionError("it never ends")


def until_asked(speaker: Speaker) -> None:
    """Wait until the model was asked for all that it has to say."""
    end = time.monotonic() + 20
    while speaker.left:
        assert time.monotonic() < end, "the model is not asked"
        time.sleep(0.01)


def test_an_answer_in_the_background_can_be_cancelled(sdk: openai.OpenAI, talk: Talk, speaker: Speaker) -> None:
    wire = speaker.wire
    speaker.say(text("Never told."))
    speaker.wire = type(wire)(wire.kind, wire.path, lambda asked, written: [STREAM, HANG], wire.models)
    try:
        told = sdk.responses.create(model="m", input="Hello", background=True)
        until_asked(speaker)
        assert "cancelled" == sdk.responses.cancel(told.id).status
        assert "cancelled" == sdk.responses.retrieve(told.id).status
    finally:
        speaker.wire = wire
    speaker.say(text("Hello"))
    waited = sdk.responses.create(model="m", input="Hello")
    with pytest.raises(openai.APIStatusError):
        sdk.responses.cancel(waited.id)


def test_tokens_are_counted_without_an_answer(sdk: openai.OpenAI, speaker: Speaker) -> None:
    short = sdk.responses.input_tokens.count(model="m", input="Hello").input_tokens
    long = sdk.responses.input_tokens.count(model="m", input="Hello " * 100, tools=[TOOL]).input_tokens
    assert 0 < short < short + 100 < long
    assert [] == speaker.said


def test_a_websocket_is_refused_in_the_way_that_clients_take_at_once(web: httpx2.Client) -> None:
    told = web.get(URL, headers={"upgrade": "websocket", "connection": "Upgrade", "sec-websocket-version": "13"})
    assert 426 == told.status_code
    assert "error" in told.json()


# Tools.


def test_a_tool_of_a_namespace_is_called_by_its_bare_name(sdk: openai.OpenAI, speaker: Speaker) -> None:
    for stream in (False, True):
        speaker.say(call("mcp__notes__read_note", city="a"))
        speaker.say(text("Done."))
        more: Any = {"model": "m", "tools": [TOOL, NOTES]}
        said: Any
        if stream:
            with sdk.responses.stream(input="Read", **more) as opened:
                said = opened.get_final_response().output[0]
        else:
            said = sdk.responses.create(input="Read", **more).output[0]
        assert ("function_call", "mcp__notes", "read_note") == (said.type, said.namespace, said.name)
        output = {"type": "function_call_output", "call_id": said.call_id, "output": "milk"}
        later: Any = [{"role": "user", "content": "Read"}, said, output]
        assert "Done." == sdk.responses.create(input=later, **more).output_text
        assert grew(speaker)
        speaker.said.clear()


def test_a_custom_tool_is_called_with_free_text(sdk: openai.OpenAI, speaker: Speaker) -> None:
    patch = '*** Begin Patch\n+print("hi")\n*** End Patch\n'
    for stream in (False, True):
        speaker.say(call("apply_patch", input=patch))
        speaker.say(text("Done."))
        more: Any = {"model": "m", "tools": [PATCH]}
        said: Any
        if stream:
            with sdk.responses.stream(input="Patch", **more) as opened:
                said = opened.get_final_response().output[0]
        else:
            said = sdk.responses.create(input="Patch", **more).output[0]
        assert ("custom_tool_call", "apply_patch", patch) == (said.type, said.name, said.input)
        output = {"type": "custom_tool_call_output", "call_id": said.call_id, "output": "ok"}
        later: Any = [{"role": "user", "content": "Patch"}, said, output]
        assert "Done." == sdk.responses.create(input=later, **more).output_text
        assert grew(speaker)
        speaker.said.clear()


def test_no_blank_text_is_told_before_a_call(sdk: openai.OpenAI, speaker: Speaker) -> None:
    speaker.say(call("get_weather", city="Rome"), change=lambda written: f"\n\n{written}")
    events = list(sdk.responses.create(model="m", input="Hello", tools=[TOOL], stream=True))
    assert "response.output_text.delta" not in [event.type for event in events]
    last: Any = events[-1]
    assert ["function_call"] == [item.type for item in last.response.output]


def test_tools_may_be_defined_in_the_input(sdk: openai.OpenAI, speaker: Speaker) -> None:
    speaker.say(call("get_weather", city="Rome"))
    given: Any = [
        {"role": "user", "content": "Weather?"},
        {"type": "additional_tools", "role": "developer", "tools": [TOOL]},
    ]
    said: Any = sdk.responses.create(model="m", input=given).output[0]
    assert ("function_call", "get_weather") == (said.type, said.name)


def test_tools_that_a_search_found_are_tools(sdk: openai.OpenAI, speaker: Speaker) -> None:
    speaker.say(call("get_weather", city="Rome"))
    given: Any = [
        {"role": "user", "content": "Weather?"},
        {
            "type": "tool_search_call",
            "call_id": "c1",
            "execution": "client",
            "arguments": {"query": "weather"},
            "status": "completed",
        },
        {"type": "tool_search_output", "call_id": "c1", "execution": "client", "status": "completed", "tools": [TOOL]},
    ]
    search: Any = {
        "type": "tool_search",
        "execution": "client",
        "description": "Finds tools.",
        "parameters": {"type": "object"},
    }
    said: Any = sdk.responses.create(model="m", input=given, tools=[search]).output[0]
    assert ("function_call", "get_weather") == (said.type, said.name)


def test_tools_of_the_vendor_are_not_offered(sdk: openai.OpenAI, speaker: Speaker) -> None:
    speaker.say(text("Fine."))
    speaker.say(text("Fine."))
    hosted: Any = [TOOL, {"type": "web_search"}, {"type": "image_generation", "output_format": "png"}]
    sdk.responses.create(model="m", input="Hello", tools=hosted)
    sdk.responses.create(model="m", input="Hello", tools=[TOOL])
    assert speaker.said[0].prompt == speaker.said[1].prompt


# Settings.


def test_the_limit_is_an_incomplete_answer(sdk: openai.OpenAI, speaker: Speaker) -> None:
    speaker.say(text("One two three four"))
    told = sdk.responses.create(model="m", input="Hello", max_output_tokens=2)
    assert "incomplete" == told.status
    assert told.incomplete_details is not None
    assert "max_output_tokens" == told.incomplete_details.reason
    speaker.say(text("One two three four"))
    events = list(sdk.responses.create(model="m", input="Hello", max_output_tokens=2, stream=True))
    assert "response.incomplete" == events[-1].type


def test_structured_output_is_parsed_by_the_sdk(sdk: openai.OpenAI, speaker: Speaker) -> None:
    speaker.say(text('{"name": "Rome", "inhabitants": 2800000}'))
    told = sdk.responses.parse(model="m", input="Rome", text_format=City)
    assert City(name="Rome", inhabitants=2800000) == told.output_parsed
    assert "inhabitants" in prompt_of(speaker)


def test_every_setting_of_codex_is_taken(sdk: openai.OpenAI, speaker: Speaker) -> None:
    speaker.say(thought("Hm."), text("Hello"))
    more: Any = {
        "reasoning": {"effort": "high", "summary": "auto", "context": "auto"},
        "include": ["reasoning.encrypted_content"],
        "store": False,
        "truncation": "disabled",
        "prompt_cache_key": "0199-abc",
        "safety_identifier": "s",
        "text": {"verbosity": "low"},
        "service_tier": "auto",
        "extra_body": {"client_metadata": {"x-codex-installation-id": "i"}, "never_heard_of": 1},
        "extra_headers": {"openai-beta": "responses_websockets=2026-02-06", "originator": "codex_exec"},
    }
    told = sdk.responses.create(
        model="m", input=[{"role": "developer", "content": "D"}, {"role": "user", "content": "U"}], **more
    )
    assert "Hello" == told.output_text


def test_a_summary_is_an_ordinary_request(web: httpx2.Client, speaker: Speaker) -> None:
    speaker.say(text("They said hello."))
    asked = [{"role": "user", "content": "Hello"}, {"role": "user", "content": "Summarise the conversation so far."}]
    told = web.post(URL, json={"model": "m", "input": asked, "store": False})
    assert "They said hello." == told.json()["output"][0]["content"][0]["text"]


@pytest.mark.parametrize(
    "wrong",
    [
        {"input": 7},
        {"input": [{"type": "function_call"}]},
        {"max_output_tokens": "many"},
        {"tools": {"a": 1}},
        {"background": "yes"},
    ],
    ids=["a number", "no name", "a word for a number", "no array", "a word for a choice of two"],
)
def test_a_malformed_request_is_a_bad_request(sdk: openai.OpenAI, wrong: Any) -> None:
    with pytest.raises(openai.BadRequestError) as told:
        sdk.post("/responses", body={"model": "m", "input": "Hello"} | wrong, cast_to=object)
    assert "invalid_request_error" == told.value.type
    assert next(iter(wrong)) in told.value.message


@pytest.mark.parametrize(
    ("path", "members"),
    [("$.text.format", {"text": {"format": {"type": "haiku"}}}), ("$.tool_choice", {"tool_choice": "perhaps"})],
    ids=["a shape", "a choice"],
)
def test_what_nobody_knows_is_one_loss(web: httpx2.Client, speaker: Speaker, path: str, members: Any) -> None:
    speaker.say(text("Hello"))
    told = web.post(URL, json={"model": "m", "input": "Hello", **members})
    losses = web.get(told.headers["x-turnscript-report"]).json()["losses"]
    assert [(path, "dropped")] == [(loss["path"], loss["kind"]) for loss in losses]


def test_too_long_a_prompt_is_told_in_the_words_that_clients_know(sdk: openai.OpenAI) -> None:
    with pytest.raises(openai.BadRequestError) as told:
        sdk.responses.create(model="m", input="word " * 20_000)
    assert "context_length_exceeded" == told.value.code
