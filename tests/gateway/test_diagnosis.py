"""Owns telling why a prompt could not go on from what was said before: on the gateway's own page, and in each API."""

from __future__ import annotations

import json
from collections.abc import Iterator
from copy import deepcopy
from pathlib import Path
from typing import Any

import httpx2
import openai
import pytest
from msgspec.structs import replace

import turnscript as ts
from tests.gateway.speaker import Speaker, Talk, call, speaking, text, thought
from tests.gateway.stage import NO_TLS, WEATHER, Stage, answer
from tests.sdks import anthropic_sdk, openai_sdk
from turnscript.gateway.keys import add_key
from turnscript.gateway.memory import Memory

Body = dict[str, Any]
CHAT = "/v1/chat/completions"
SESSION = {"x-session-id": "agents/one"}
TOOL: Body = {
    "type": "function",
    "function": {"name": "get_weather", "parameters": json.loads(bytes(WEATHER.parameters or b"{}"))},
}
OTHER: Body = {"type": "function", "function": {"name": "get_time", "parameters": {"type": "object", "properties": {}}}}
FIRST: Body = {
    "model": "m",
    "messages": [{"role": "system", "content": "Be kind."}, {"role": "user", "content": "Weather in Rome?"}],
    "tools": [TOOL],
}


@pytest.fixture(scope="module", params=ts.formats())
def talk(request: pytest.FixtureRequest) -> Iterator[Talk]:
    with speaking(Speaker(ts.get_format(request.param), [WEATHER])) as made:
        yield made


@pytest.fixture
def one() -> Iterator[Talk]:
    with speaking(Speaker(ts.get_format("rwkv-universal"), [WEATHER])) as made:
        yield made


@pytest.fixture(scope="module")
def web() -> Iterator[httpx2.Client]:
    with httpx2.Client(verify=NO_TLS, timeout=20) as made:
        yield made


def post(web: httpx2.Client, talk: Talk, body: Body, **headers: str) -> httpx2.Response:
    told = web.post(talk.url + CHAT, json=body, headers=headers)
    assert 200 == told.status_code, told.text
    return told


def page(web: httpx2.Client, talk: Talk, name: str, query: str = "?excerpts=true") -> Body:
    told = web.get(f"{talk.url}/turnscript/prefixes/{name}{query}")
    assert (200, "0") == (told.status_code, told.headers["x-turnscript-losses"]), told.text
    found: Body = told.json()
    return found


def later(first: httpx2.Response) -> Body:
    """The next request of a session."""
    body = deepcopy(FIRST)
    return body | {
        "messages": [*body["messages"], first.json()["choices"][0]["message"], {"role": "user", "content": "And now?"}]
    }


def changed_tools(body: Body) -> None:
    body["tools"].insert(0, OTHER)


def other_description(body: Body) -> None:
    body["tools"][0]["function"]["description"] = "Of a city."


def changed_instructions(body: Body) -> None:
    body["messages"][0]["content"] = "Be kind, it is 09:31."


def changed_message(body: Body) -> None:
    body["messages"][1]["content"] = "Weather in Oslo?"


def changed_answer(body: Body) -> None:
    body["messages"][2]["content"] = "It is a shame."


def dropped_answer(body: Body) -> None:
    del body["messages"][2]


CHANGES: list[tuple[Any, str, set[str | None]]] = [
    (changed_tools, "tools", {"$.tools"}),
    (other_description, "tools", {"$.tools"}),
    (changed_instructions, "instructions", {"$.messages[0]"}),
    (changed_message, "first", {"$.messages[1]"}),
    (changed_answer, "answer", {"$.messages[2]"}),
    (dropped_answer, "message", {"$.messages[2]", "$.messages[1]"}),
]


@pytest.mark.parametrize(("change", "part", "paths"), CHANGES, ids=lambda one: getattr(one, "__name__", ""))
def test_the_page_says_what_of_the_request_has_changed(
    talk: Talk, web: httpx2.Client, change: Any, part: str, paths: set[str | None]
) -> None:
    speaker = talk.speaker
    speaker.clear()
    speaker.say(text("It is clear in Rome."))
    speaker.say(text("Still."))
    session = {"x-session-id": f"{change.__name__} {talk.speaker.format.name}"}
    first = post(web, talk, FIRST, **session)
    assert None is page(web, talk, session["x-session-id"])["differs"]
    body = later(first)
    change(body)
    second = post(web, talk, body, **session)
    told = page(web, talk, second.headers["x-request-id"])
    reused, total = map(int, second.headers["x-turnscript-prefix"].split("/"))
    before = speaker.said[0].prompt + speaker.said[0].written
    now = speaker.said[1].prompt
    at = told["differs"]
    place = at["character"]
    assert (reused, total) == (told["reused"], told["total"])
    assert (len(now), True) == (total, reused in (0, place))
    assert before[:place] == now[:place]
    assert before[place] != now[place]
    assert len(now[:place].encode()) == at["byte"]
    assert (len(before), part) == (at["said_before"], at["part"])
    assert at["path"] in paths
    assert before[place : place + 80] == at["before"]
    assert now[place : place + 80] == at["now"]
    assert now[max(0, place - 40) : place] == at["shared"]
    assert f"At byte {at['byte']} (`{at['path']}`)" in told["told"]


def test_a_session_that_grows_is_told_to(one: Talk, web: httpx2.Client) -> None:
    one.speaker.say(text("Clear."))
    one.speaker.say(text("Still."))
    first = post(web, one, FIRST, **SESSION)
    nothing = page(web, one, first.json()["id"])
    assert (None, 0) == (nothing["differs"], nothing["reused"])
    assert "said nothing before" in nothing["told"]
    second = post(web, one, later(first), **SESSION)
    for name in (second.headers["x-request-id"], second.json()["id"], "agents/one", nothing["session"]):
        told = page(web, one, name)
        assert (None, second.json()["id"]) == (told["differs"], told["answer"])
        assert f"begins with all {told['reused']} characters" in told["told"]
        assert 0 < told["reused"] < told["total"]


def test_a_turn_that_is_forgotten_is_told_to_be(one: Talk, web: httpx2.Client) -> None:
    one.speaker.say(call("get_weather", city="Rome"), change=lambda written: written.replace('": "', '" :  "'))
    one.speaker.say(text("Still."))
    first = post(web, one, FIRST, **SESSION)
    one.gateway.service.memory = Memory()
    body = later(first)
    call_id = body["messages"][2]["tool_calls"][0]["id"]
    body["messages"][3] = {"role": "tool", "tool_call_id": call_id, "content": "sunny"}
    told = page(web, one, post(web, one, body, **SESSION).json()["id"])
    assert ("answer", "$.messages[2].tool_calls[0]") == (told["differs"]["part"], told["differs"]["path"])
    assert "not remembered any more" in told["told"]


def test_a_conversation_that_was_cut_short_is_told_to_end_there(one: Talk, web: httpx2.Client) -> None:
    one.speaker.say(text("Clear."))
    one.speaker.say(text("Still."))
    post(web, one, FIRST, **SESSION)
    told = page(web, one, post(web, one, FIRST, **SESSION).json()["id"])
    assert (None, told["total"]) == (told["differs"], told["reused"])
    assert "the conversation ends here" in told["told"]


def test_another_way_to_begin_the_answer_is_told(one: Talk, web: httpx2.Client) -> None:
    one.speaker.say(text("Clear."))
    one.speaker.say(thought("Hm."), text("Still."))
    post(web, one, FIRST, **SESSION)
    told = page(web, one, post(web, one, FIRST | {"reasoning_effort": "high"}, **SESSION).json()["id"])
    assert ("opening", "$.reasoning_effort") == (told["differs"]["part"], told["differs"]["path"])


@pytest.mark.parametrize("redact", [True, False])
def test_texts_are_shown_where_the_log_shows_them_or_where_they_are_asked_for(redact: bool) -> None:
    def say(stage: Stage, words: str) -> str:
        body = {"model": "m", "messages": [{"role": "user", "content": words}]}
        id_: str = stage.client.post(CHAT, json=body, headers=SESSION).json()["id"]
        return id_

    with Stage(logs={"redact": redact}) as stage:
        say(stage, "My secret is blue.")
        url = f"/turnscript/prefixes/{say(stage, 'My secret is green.')}"
        plain, asked = stage.client.get(url).text, stage.client.get(f"{url}?excerpts=true").text
        assert (redact, True) == ("green" not in plain and "blue" not in plain, "green" in asked and "blue" in asked)
        assert "$.messages[0]" in plain


def test_strangers_are_shown_no_texts_of_each_other() -> None:
    """Without keys everybody is the same, and the name of a session is soon guessed."""
    with Stage(server={"public": True}) as stage:
        for words in ("My secret is blue.", "Green"):
            body = {"model": "m", "messages": [{"role": "user", "content": words}]}
            stage.client.post(CHAT, json=body, headers=SESSION)
        told = stage.client.get("/turnscript/prefixes/agents/one?excerpts=true")
        assert (200, None) == (told.status_code, told.json()["differs"]["before"])
        assert "blue" not in told.text


def test_nobody_is_told_of_the_requests_of_others(tmp_path: Path) -> None:
    path = tmp_path / "keys"
    anna, boris = (add_key(path, name).reveal() for name in ("anna", "boris"))
    with Stage(server={"keys": path}) as stage:
        told = []
        for words in ("Blue", "Green"):
            body = {"model": "m", "messages": [{"role": "user", "content": words}]}
            told.append(stage.client.post(CHAT, json=body, headers=SESSION | {"x-api-key": anna}))
        names = [told[1].headers["x-request-id"], told[1].json()["id"], "agents/one"]
        session = stage.client.get(f"/turnscript/prefixes/{names[0]}", headers={"x-api-key": anna}).json()["session"]
        for name in (*names, session):
            for key, status in ((anna, 200), (boris, 404), ("wrong", 401)):
                url = f"/turnscript/prefixes/{name}"
                assert status == stage.client.get(url, headers={"x-api-key": key}).status_code


def test_what_is_not_there_is_told(one: Talk, web: httpx2.Client) -> None:
    told = web.get(f"{one.url}/turnscript/prefixes/req_never")
    assert 404 == told.status_code
    assert "'req_never'" in told.text


def test_what_is_kept_of_divergences_is_bounded(one: Talk, web: httpx2.Client) -> None:
    diagnosis = one.gateway.service.diagnosis
    diagnosis._most_diverged = 3
    one.speaker.answering = lambda prompt: [text("Fine.")]
    for words in "abcdefgh":
        post(web, one, {"model": "m", "messages": [{"role": "user", "content": words}]}, **SESSION)
    assert 3 == len(diagnosis._diverged)


# In the words of an API.


def messages(system: str = "Be kind.", **more: Any) -> Body:
    tools = [{"name": "get_weather", "input_schema": {"type": "object", "properties": {}}}]
    body: Body = {"model": "m", "max_tokens": 200, "system": system, "tools": tools}
    return body | {"messages": [{"role": "user", "content": "Weather in Rome, as it is now?"}]} | more


def told_of(message: Any) -> Any:
    return None if message.diagnostics is None else message.diagnostics.cache_miss_reason


MESSAGE_CHANGES: list[tuple[Body, str | None]] = [
    ({}, None),
    ({"system": "Be kind, it is 09:31."}, "system_changed"),
    ({"tools": []}, "tools_changed"),
    ({"tools": [{"name": "get_time", "input_schema": {"type": "object", "properties": {}}}]}, "tools_changed"),
    ({"first": "Weather in Oslo, as it was then?"}, "messages_changed"),
    ({"max_tokens": 100, "metadata": {"user_id": "x"}, "stop_sequences": ["x"]}, None),
]


@pytest.mark.parametrize(("change", "reason"), MESSAGE_CHANGES)
@pytest.mark.parametrize("stream", [True, False], ids=["stream", "whole"])
def test_messages_tell_why_a_prompt_did_not_go_on(one: Talk, change: Body, reason: str | None, stream: bool) -> None:
    one.speaker.answering = lambda prompt: [text("Clear.")]

    def ask(body: Any) -> Any:
        if not stream:
            return sdk.messages.create(**body)
        with sdk.messages.stream(**body) as events:
            return events.get_final_message()

    with anthropic_sdk(one.url) as sdk:
        first = ask(messages(diagnostics={"previous_message_id": None}))
        assert first.diagnostics is None
        change = dict(change)
        words = change.pop("first", "Weather in Rome, as it is now?")
        history = [{"role": "user", "content": words}, {"role": "assistant", "content": first.content}]
        history.append({"role": "user", "content": "And now?"})
        asked = messages(**change, messages=history, diagnostics={"previous_message_id": first.id})
        found = told_of(ask(asked))
        assert reason == (None if found is None else found.type)
        if found is not None:
            assert 0 < found.cache_missed_input_tokens < 500
        unknown = told_of(ask(messages(diagnostics={"previous_message_id": "msg_never"})))
        assert "previous_message_not_found" == unknown.type


def test_messages_say_nothing_of_it_unasked(one: Talk, web: httpx2.Client) -> None:
    one.speaker.say(text("Clear."))
    assert "diagnostics" not in web.post(f"{one.url}/v1/messages", json=messages()).json()


def test_what_changes_and_is_no_reason_that_messages_have_is_unavailable(one: Talk) -> None:
    one.speaker.answering = lambda prompt: [text("Clear.")]
    with anthropic_sdk(one.url) as sdk:
        asking: Any = messages(diagnostics={"previous_message_id": None})
        first = sdk.messages.create(**asking)
        one.gateway.service.memory = Memory()
        one.speaker.answering = lambda prompt: [thought("Hm."), text("Clear.")]
        thinking: Any = {"thinking": {"type": "enabled", "budget_tokens": 1024}, "max_tokens": 2000}
        again: Any = messages(diagnostics={"previous_message_id": first.id}, **thinking)
        found = told_of(sdk.messages.create(**again))
        assert found is None or "unavailable" == found.type  # only what opens the answer is another


def responses(**more: Any) -> Body:
    tools = [{"type": "function", "name": "get_weather", "parameters": {"type": "object"}, "strict": False}]
    return {"model": "m", "input": "Weather in Rome, as it is now?", "instructions": "Be kind.", "tools": tools} | more


def compared(id_: str) -> Body:
    return {"prompt_cache_options": {"comparison_response_id": id_}}


RESPONSE_CHANGES: list[tuple[Body, str | None]] = [
    ({}, None),
    ({"user": "x", "metadata": {"a": "b"}}, None),
    ({"instructions": "Be kind, it is 09:31."}, "input_changed"),
    ({"tools": []}, "tools_changed"),
    ({"first": "Weather in Oslo, as it was then?"}, "input_changed"),
    (
        {"text": {"format": {"type": "json_schema", "name": "x", "schema": {"type": "object"}}}},
        "text_format_changed",
    ),
]


@pytest.mark.parametrize(("change", "reason"), RESPONSE_CHANGES)
@pytest.mark.parametrize("stream", [True, False], ids=["stream", "whole"])
def test_responses_tell_why_a_prompt_did_not_go_on(one: Talk, change: Body, reason: str | None, stream: bool) -> None:
    one.speaker.answering = lambda prompt: [text('{"a": 1}')]

    def ask(sdk: openai.OpenAI, body: Any) -> Any:
        if not stream:
            return sdk.responses.create(**body)
        with sdk.responses.stream(**body) as events:
            return events.get_final_response()

    with openai_sdk(one.url) as sdk:
        first = ask(sdk, responses())
        assert first.prompt_cache_diagnostics is None
        change = dict(change)
        words = change.pop("first", "Weather in Rome, as it is now?")
        history = [{"role": "user", "content": words}, *first.output, {"role": "user", "content": "And now?"}]
        told = ask(sdk, responses(**change, input=history, **compared(first.id))).prompt_cache_diagnostics
        if reason is None:
            assert "cache_hit" == told.type
        else:
            assert ("cache_miss", reason) == (told.type, told.reason)
            assert 0 < told.cache_missed_tokens < 1000
        unknown = ask(sdk, responses(**compared("resp_never"))).prompt_cache_diagnostics
        assert "comparison_response_not_found" == unknown.type


def test_a_response_that_goes_on_from_another_is_a_hit_and_a_summary_is_not(one: Talk) -> None:
    one.speaker.answering = lambda prompt: [text("Clear.")]
    with openai_sdk(one.url) as sdk:
        first: Any = sdk.responses.create(**responses())
        asked: Any = responses(input="And?", previous_response_id=first.id, **compared(first.id))
        second: Any = sdk.responses.create(**asked)
        assert "cache_hit" == second.prompt_cache_diagnostics.type
        trigger: Any = [
            {"role": "user", "content": responses()["input"]},
            *first.output,
            {"type": "compaction_trigger"},
        ]
        summary: Any = sdk.responses.create(**responses(input=trigger))
        going_on: Any = [*summary.output, {"role": "user", "content": "And?"}]
        third: Any = sdk.responses.create(**responses(input=going_on, **compared(first.id)))
        assert "context_compacted" == third.prompt_cache_diagnostics.reason


def test_another_model_is_a_reason_of_its_own() -> None:
    with Stage() as stage:
        stage.play(answer("Clear."))
        asked = stage.gateway.service.diagnosis._asked
        first = stage.client.post("/v1/responses", json=responses()).json()
        message = stage.client.post("/v1/messages", json=messages(diagnostics={"previous_message_id": None})).json()
        for name, one in asked.items():
            asked[name] = replace(one, model="another")
        told = stage.client.post("/v1/responses", json=responses(**compared(first["id"]))).json()
        assert "model_changed" == told["prompt_cache_diagnostics"]["reason"]
        again = messages(diagnostics={"previous_message_id": message["id"]})
        told = stage.client.post("/v1/messages", json=again).json()
        assert "model_changed" == told["diagnostics"]["cache_miss_reason"]["type"]


@pytest.mark.parametrize("said", ["x", "世", "\N{ROCKET}"])
def test_prompts_that_may_be_named_are_bounded_in_every_script(said: str) -> None:
    with Stage() as stage:
        stage.play(answer("Clear."))
        diagnosis = stage.gateway.service.diagnosis
        diagnosis._most = 20_000
        for _ in range(30):
            stage.client.post("/v1/responses", json=responses(instructions=said * 500))
        assert 0 < diagnosis._held <= 20_000
        assert sum(one.cost for one in diagnosis._asked.values()) == diagnosis._held


def test_prompts_that_may_be_named_are_bounded_and_are_their_owners(tmp_path: Path) -> None:
    path = tmp_path / "keys"
    anna, boris = ({"x-api-key": add_key(path, name).reveal()} for name in ("anna", "boris"))
    with Stage(server={"keys": path}) as stage:
        stage.play(answer("Clear."))
        diagnosis = stage.gateway.service.diagnosis
        first = stage.client.post("/v1/responses", json=responses(), headers=anna).json()
        named = responses(**compared(first["id"]))
        for headers, type_ in ((anna, "cache_hit"), (boris, "comparison_response_not_found")):
            told = stage.client.post("/v1/responses", json=named, headers=headers).json()
            assert type_ == told["prompt_cache_diagnostics"]["type"]
        diagnosis._most = 20_000
        for _ in range(30):
            stage.client.post("/v1/responses", json=responses(), headers=anna)
        assert 0 < diagnosis._held <= 20_000
        assert sum(one.cost for one in diagnosis._asked.values()) == diagnosis._held
        told = stage.client.post("/v1/responses", json=named, headers=anna).json()
        assert "comparison_response_not_found" == told["prompt_cache_diagnostics"]["type"]
