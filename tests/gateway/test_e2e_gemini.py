"""Owns Gemini through the gateway, as its official SDK for Python speaks to it: answers, tools, counts, keys."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from google import genai
from google.genai import errors, types

import turnscript as ts
from tests.gateway.stage import WEATHER, Stage, answer, text_of_call
from tests.sdks import NO_TLS
from tests.strategies.events import content_of
from turnscript.core.conversation import Request
from turnscript.gateway.keys import add_key
from turnscript.gateway.outlet import Outlet

GEMINI = ts.get_api("gemini")


def sdk(url: str, key: str = "k") -> genai.Client:
    """A client of the SDK for a server on this machine: it asks once."""
    options = types.HttpOptions(base_url=url, timeout=20_000, client_args={"verify": NO_TLS})
    return genai.Client(api_key=key, http_options=options)


@pytest.fixture(scope="module")
def stage() -> Iterator[Stage]:
    with Stage() as made:
        yield made


@pytest.fixture(scope="module")
def client(stage: Stage) -> genai.Client:
    return sdk(stage.url)


def tools() -> list[Any]:
    """The tool of the stage, declared as the SDK does."""
    schema = json.loads(bytes(WEATHER.parameters or b"{}"))
    return [
        types.Tool(
            function_declarations=[
                types.FunctionDeclaration(
                    name="get_weather", description="The weather of a city.", parameters_json_schema=schema
                )
            ]
        )
    ]


def test_an_answer_is_read_by_the_sdk_whole_and_streamed(stage: Stage, client: genai.Client) -> None:
    stage.play(answer("Hello", " there", "\n<<ASSISTANT_END>>"))
    config = types.GenerateContentConfig(system_instruction="Be kind.", temperature=0.5, max_output_tokens=40)
    whole = client.models.generate_content(model="m", contents="Hi", config=config)
    assert ("Hello there", "STOP", "m") == (whole.text, _reason(whole), whole.model_version)
    assert whole.usage_metadata is not None
    assert 12 == whole.usage_metadata.prompt_token_count
    chunks = list(client.models.generate_content_stream(model="m", contents="Hi", config=config))
    assert "Hello there" == "".join([chunk.text or "" for chunk in chunks])
    assert "STOP" == _reason(chunks[-1])
    assert {chunk.response_id for chunk in chunks} == {chunks[0].response_id}
    assert b"Be kind." in stage.asks[0][-1].body


def _reason(told: types.GenerateContentResponse) -> str:
    assert told.candidates
    reason = told.candidates[0].finish_reason
    assert reason is not None
    return reason.value


@pytest.mark.parametrize("stream", [False, True])
def test_a_tool_is_called_and_its_result_sent_back(stage: Stage, client: genai.Client, stream: bool) -> None:
    stage.play(answer(text_of_call("Rome")))
    config = types.GenerateContentConfig(tools=tools())
    asked = types.Content(role="user", parts=[types.Part(text="Weather in Rome?")])
    if stream:
        told = list(client.models.generate_content_stream(model="m", contents=asked, config=config))
    else:
        told = [client.models.generate_content(model="m", contents=asked, config=config)]
    calls = [call for chunk in told for call in chunk.function_calls or ()]
    assert [("get_weather", {"city": "Rome"})] == [(call.name, call.args) for call in calls]
    said = types.Content(role="model", parts=[types.Part(function_call=calls[0])])
    result = types.FunctionResponse(name="get_weather", id=calls[0].id, response={"output": "28 C"})
    back = types.Content(role="user", parts=[types.Part(function_response=result)])
    stage.play(answer("Warm.", "\n<<ASSISTANT_END>>"))
    last = client.models.generate_content(model="m", contents=[asked, said, back], config=config)
    assert "Warm." == last.text
    assert b"28 C" in stage.asks[0][-1].body


def test_a_thought_comes_back_whole_from_its_signature(stage: Stage, client: genai.Client) -> None:
    stage.play(answer("I think.", "\n<<THINK_END>>\n\n<<ASSISTANT>>\nHello", "\n<<ASSISTANT_END>>"))
    thinking = types.ThinkingConfig(include_thoughts=True, thinking_budget=100)
    config = types.GenerateContentConfig(thinking_config=thinking)
    told = client.models.generate_content(model="m", contents="Hi", config=config)
    assert told.candidates
    content = told.candidates[0].content
    assert content is not None
    assert content.parts
    assert [(True, "I think."), (None, "Hello")] == [(part.thought, part.text) for part in content.parts]
    assert (content.parts[0].thought_signature or b"").startswith(b"ts1.")
    content.parts[0].text = "changed"
    client.models.generate_content(model="m", contents=[types.UserContent("Hi"), content, types.UserContent("?")])
    assert b"changed" not in stage.asks[0][-1].body


def test_tokens_are_counted_and_models_listed(client: genai.Client) -> None:
    counted = client.models.count_tokens(model="m", contents="Hello there")
    assert (counted.total_tokens or 0) > 0
    [listed] = list(client.models.list())
    assert "models/default" == listed.name
    assert "models/default" == client.models.get(model="default").name


def test_errors_have_the_shape_of_the_api(stage: Stage, client: genai.Client) -> None:
    with pytest.raises(errors.ClientError) as caught:
        client.models.generate_content(model="m", contents=[types.Content(role="user", parts=[])])
    assert (400, "INVALID_ARGUMENT") == (caught.value.code, caught.value.status)
    told = stage.client.post("/v1beta/models/m:nothing", json={})
    assert {"code", "message", "status"} == told.json()["error"].keys()


def test_keys_are_taken_from_the_header_and_from_the_query(tmp_path: Path) -> None:
    path = tmp_path / "keys"
    key = add_key(path, "anna").reveal()
    with Stage(server={"keys": path}) as keyed:
        asked: dict[str, Any] = {"contents": [{"parts": [{"text": "Hi"}]}]}
        assert "Hello" == sdk(keyed.url, key).models.generate_content(model="m", contents="Hi").text
        place = "/v1beta/models/m:generateContent"
        assert 200 == keyed.client.post(f"{place}?key={key}", json=asked).status_code
        assert 200 == keyed.client.get(f"/v1beta/models?key={key}").status_code
        refused = keyed.client.post(place, json=asked)
        assert (401, "UNAUTHENTICATED") == (refused.status_code, refused.json()["error"]["status"])


@pytest.mark.parametrize("version", ["/v1beta", "/v1"])
def test_a_stream_is_one_array_where_no_events_are_asked_for(stage: Stage, version: str) -> None:
    stage.play(answer("Hello", " there", "\n<<ASSISTANT_END>>"))
    body = {"contents": [{"parts": [{"text": "Hi"}]}]}
    told = stage.client.post(f"{version}/models/m:streamGenerateContent", json=body)
    assert "application/json" == told.headers["content-type"].partition(";")[0]
    chunks = told.json()
    texts = [part["text"] for chunk in chunks for part in chunk["candidates"][0]["content"]["parts"]]
    assert "Hello there" == "".join(texts)
    for size in (1, 7, len(told.content)):
        parser = GEMINI.stream_parser()
        events = [
            event for at in range(0, len(told.content), size) for event in parser.feed(told.content[at : at + size])
        ]
        said = ts.fold(events + parser.close())
        assert ("stop", ["Hello there"]) == (said.finish_reason, [content_of(item) for item in said.items])


@pytest.mark.parametrize("form", ["array", "sse"])
def test_a_stream_that_waits_its_turn_stays_what_it_is(form: str) -> None:
    """A word about its place is a comment of server-sent events, and JSON has none."""
    told: list[bytes] = []

    async def send(message: Any) -> None:
        told.append(message.get("body", b""))

    async def run() -> None:
        outlet = Outlet(send, GEMINI.stream_renderer(Request(framing=form)))
        outlet.ahead = lambda: 2
        await outlet.begin([])
        outlet.beat()
        await outlet.end(b"")

    asyncio.run(run())
    whole = b"".join(told)
    assert (b": waiting, 2 before you" in whole) == (form == "sse")
    assert form == "sse" or 2 == len(json.loads(whole + b"]"))


def test_a_body_that_is_written_is_what_the_types_of_the_sdk_take() -> None:
    request = Request()
    request.conversation.tools.append(WEATHER)
    request.conversation.items += [
        ts.System(content=[ts.Text(text="Be kind.")]),
        ts.User(content=[ts.Text(text="Hi"), ts.Image(data="aGk=", media_type="image/png")]),
        ts.ToolCall(name="get_weather", arguments='{"city": "Rome"}', id="c1"),
        ts.ToolResult(id="c1", content=[ts.Text(text="28 C")]),
    ]
    body: Any = ts.render(request, "gemini").value
    contents = [types.Content.model_validate(one) for one in body["contents"]]
    assert [one.model_dump(mode="json", by_alias=True, exclude_none=True) for one in contents] == body["contents"]
    tool = types.Tool.model_validate(body["tools"][0])
    assert tool.function_declarations
    assert "get_weather" == tool.function_declarations[0].name
