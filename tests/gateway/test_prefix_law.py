"""Owns the prefix law end to end: each prompt of a session begins with the one before and with what was generated.

For every format and every way in which clients send an answer back, as the model's server sees the prompts, and as the
header tells it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import httpx2
import pytest

import turnscript as ts
from tests.gateway import echo
from tests.gateway.echo import ECHOES, Body, Echo
from tests.gateway.speaker import Speaker, Talk, call, odd, speakable, speaking, text, thought
from tests.gateway.stage import NO_TLS, WEATHER
from turnscript.core.conversation import Item, Tool
from turnscript.core.json_text import with_characters

PAIRS = [(api, one) for api, several in ECHOES.items() for one in several]
TOOLS = [{"name": "get_weather", "input_schema": json.loads(bytes(WEATHER.parameters or b"{}"))}]
LIMIT = {
    "openai-chat": "max_completion_tokens",
    "openai-responses": "max_output_tokens",
    "anthropic-messages": "max_tokens",
}
THINKING: dict[str, Body] = {
    "openai-chat": {"reasoning_effort": "medium"},
    "openai-responses": {"reasoning": {"effort": "medium"}, "include": ["reasoning.encrypted_content"]},
    "anthropic-messages": {"thinking": {"type": "enabled", "budget_tokens": 1024}},
}
CORPUS = sorted((Path(__file__).parent / "corpus").glob("*.json"))


@pytest.fixture(scope="module", params=ts.formats())
def talk(request: pytest.FixtureRequest) -> Iterator[Talk]:
    with speaking(Speaker(ts.get_format(request.param), [WEATHER])) as made:
        yield made


@pytest.fixture(scope="module")
def web() -> Iterator[httpx2.Client]:
    with httpx2.Client(verify=NO_TLS, timeout=20) as made:
        yield made


def call_ids(answer: Body) -> list[str]:
    """The ids of an answer's calls."""
    if "choices" in answer:
        return [one["id"] for one in answer["choices"][0]["message"].get("tool_calls") or []]
    parts: list[Body] = answer["content"] if "content" in answer else answer["output"]
    return [one.get("call_id") or one["id"] for one in parts if one["type"] in ("tool_use", "function_call")]


def results(api: str, answer: Body, said: str = '{"sky": "clear"}') -> list[Body]:
    """What the tools answer to all calls of an answer, in one message where the API wants that."""
    told = [echo.result(api, one, said) for one in call_ids(answer)]
    if api == "anthropic-messages":
        return [{"role": "user", "content": [block for one in told for block in one["content"]]}]
    return told


def grew(talk: Talk, told: httpx2.Response) -> None:
    """The last prompt begins with all that was said before, and the header says how much that is."""
    *_, before, last = talk.speaker.said
    whole = before.prompt + before.written
    assert last.prompt.startswith(whole)
    assert f"{len(whole)}/{len(last.prompt)}" == told.headers["x-turnscript-prefix"]


@pytest.mark.deep
@pytest.mark.parametrize("thinking", [False, True], ids=["plain", "thinking"])
@pytest.mark.parametrize(("api", "way"), PAIRS, ids=lambda one: one if isinstance(one, str) else one.__name__)
def test_a_session_only_grows(talk: Talk, web: httpx2.Client, api: str, way: Echo, thinking: bool) -> None:
    speaker = talk.speaker
    speaker.clear()
    thoughts: list[Item] = [thought("hm,\nso")] if thinking else []
    both: list[Item] = [text("Let me see."), call("get_weather", city="Rome"), call("get_weather", city="Oslo")]
    if not speakable(speaker.format, both, [WEATHER]):
        both = [call("get_weather", city="Rome")]
    speaker.say(*thoughts, call("get_weather", city="Tokyo"), change=odd)
    speaker.say(*thoughts, text("It is clear."))
    speaker.say(*thoughts, *both)
    speaker.say(*thoughts, text("It is clear in both of them."))
    speaker.say(*thoughts, text("Bye."))
    url = talk.url + ts.get_api(api).endpoint
    messages: list[Body] = [echo.user(api, f"Weather in Tokyo, {way.__name__}?")]
    for turn in range(5):
        limit = 6 if turn == 3 and not thinking else 2000
        body = echo.asking(api, messages, TOOLS) | (THINKING[api] if thinking else {}) | {LIMIT[api]: limit}
        told = web.post(url, json=body)
        assert 200 == told.status_code, told.text
        if turn:
            grew(talk, told)
        answer = told.json()
        messages += way(answer)
        messages += results(api, answer) if call_ids(answer) else [echo.user(api, f"And {turn}?")]
    assert [] == speaker.failures
    assert 5 == len(speaker.said)
    assert thinking or "length" == speaker.said[3].finish


CHOICE: dict[str, Body] = {
    "openai-chat": {"type": "function", "function": {"name": "get_weather"}},
    "openai-responses": {"type": "function", "name": "get_weather"},
    "anthropic-messages": {"type": "tool", "name": "get_weather"},
}


@pytest.mark.parametrize("api", ECHOES)
def test_a_session_of_calls_that_must_be_made_only_grows(talk: Talk, web: httpx2.Client, api: str) -> None:
    """The prompt has begun each call, and has given it an id where the format shows ids."""
    speaker, way = talk.speaker, ECHOES[api][2]
    speaker.clear()
    url = talk.url + ts.get_api(api).endpoint
    messages: list[Body] = [echo.user(api, f"Weather everywhere, {api}?")]
    for turn, city in enumerate(["Tokyo", "Rome", "Tokyo"]):
        speaker.say(call("get_weather", city=city), change=odd)
        told = web.post(url, json=echo.asking(api, messages, TOOLS) | {"tool_choice": CHOICE[api]})
        assert 200 == told.status_code, told.text
        if turn:
            grew(talk, told)
        messages += [*way(told.json()), *results(api, told.json())]
    assert [] == speaker.failures


def test_a_session_of_functions_without_ids_only_grows(talk: Talk, web: httpx2.Client) -> None:
    """Chat Completions before there were tools."""
    speaker = talk.speaker
    speaker.clear()
    functions = [{"name": one["name"], "parameters": one["input_schema"]} for one in TOOLS]
    messages: list[Body] = [echo.user("openai-chat", "Weather here and there?")]
    for turn, city in enumerate(["Tokyo", "Rome", "Tokyo"]):
        speaker.say(call("get_weather", city=city), change=odd)
        asked = {"model": "m", "messages": messages, "functions": functions}
        told = web.post(f"{talk.url}/v1/chat/completions", json=asked)
        assert 200 == told.status_code, told.text
        if turn:
            grew(talk, told)
        called = told.json()["choices"][0]["message"]["function_call"]
        called["arguments"] = echo.respelled(called["arguments"])
        messages.append({"role": "assistant", "content": None, "function_call": called})
        messages.append({"role": "function", "name": "get_weather", "content": '{"sky": "clear"}'})
    assert [] == speaker.failures


def test_a_change_of_what_was_said_is_seen_in_the_header(talk: Talk, web: httpx2.Client) -> None:
    talk.speaker.clear()
    talk.speaker.say(text("Blue."))
    talk.speaker.say(text("Blue again."))
    url = talk.url + "/v1/chat/completions"
    ask = [{"role": "user", "content": "A question about the colour of the sky above us"}]
    web.post(url, json={"model": "m", "messages": ask})
    later = [*ask, {"role": "assistant", "content": "Green."}, {"role": "user", "content": "Sure?"}]
    told = web.post(url, json={"model": "m", "messages": later})
    first, second = talk.speaker.said
    reused, total = map(int, told.headers["x-turnscript-prefix"].split("/"))
    assert len(second.prompt) == total
    assert 0 <= reused < len(first.prompt + first.written)


# JSON in one spelling.

SKY = {"sky": "clear", "wind": [1.5, 2.0], "é": "ü"}
SPELLED = [
    json.dumps(SKY, separators=(",", ":"), ensure_ascii=False),
    json.dumps(SKY),
    json.dumps(SKY, indent=2, ensure_ascii=False),
]
HOLE = "a result"


@pytest.fixture(scope="module", params=ts.formats())
def normal(request: pytest.FixtureRequest) -> Iterator[Talk]:
    with speaking(Speaker(ts.get_format(request.param), [WEATHER]), normalize_json=True) as made:
        yield made


def asked(talk: Talk, web: httpx2.Client, api: str, messages: list[Body], result: str) -> httpx2.Response:
    """What is told to a client that has spelled all results in one way."""
    body = json.dumps(echo.asking(api, messages, TOOLS)).replace(json.dumps(HOLE), json.dumps(result))
    told = web.post(talk.url + ts.get_api(api).endpoint, content=body, headers={"content-type": "application/json"})
    assert 200 == told.status_code, told.text
    return told


@pytest.mark.parametrize(("api", "way"), PAIRS, ids=lambda one: one if isinstance(one, str) else one.__name__)
def test_a_session_whose_json_is_spelled_anew_each_time_only_grows(
    normal: Talk, web: httpx2.Client, api: str, way: Echo
) -> None:
    speaker = normal.speaker
    speaker.clear()
    messages = [echo.user(api, f"Weather in Tokyo, {way.__name__}?")]
    for turn in range(5):
        speaker.say(*([call("get_weather", city="Tokyo")] if turn % 2 == 0 else [text("It is clear.")]), change=odd)
        told = asked(normal, web, api, messages, SPELLED[turn % 3])
        if turn:
            grew(normal, told)
        answer = told.json()
        messages += way(answer)
        messages += results(api, answer, HOLE) if call_ids(answer) else [echo.user(api, f"And {turn}?")]
    assert [] == speaker.failures


def test_without_the_setting_results_stand_in_prompts_as_they_are_sent_but_for_escapes(
    agents: Talk, web: httpx2.Client
) -> None:
    api = "openai-chat"
    agents.speaker.clear()
    messages = [echo.user(api, "Weather everywhere?")]
    agents.speaker.say(call("Bash", city="Tokyo"))
    messages += echo.chat_exact(asked(agents, web, api, messages, "").json())
    messages += [echo.result(api, messages[-1]["tool_calls"][0]["id"], HOLE)]
    for spelled in SPELLED:
        agents.speaker.say(text("Clear."))
        asked(agents, web, api, messages, spelled)
        assert with_characters(spelled) in agents.speaker.said[-1].prompt


def test_a_spelling_that_is_wanted_is_told_and_refused_by_nobody(normal: Talk, web: httpx2.Client) -> None:
    """What the model wrote stands there as it wrote it, so that is not among what is told."""
    api = "openai-chat"
    normal.speaker.clear()
    normal.speaker.say(call("get_weather", city="Tokyo"), change=odd)
    normal.speaker.say(text("It is clear."))
    first = [echo.user(api, "Is a spelling lost?")]
    answer = asked(normal, web, api, first, "").json()
    sent = json.dumps(
        echo.asking(api, [*first, *echo.chat_thoughtful(answer), *results(api, answer, '{ "a":  1 }')], TOOLS)
    )
    url = f"{normal.url}{ts.get_api(api).endpoint}"
    told = web.post(url, content=sent)
    losses = web.get(f"{normal.url}{told.headers['x-turnscript-report']}").json()["losses"]
    assert ["$.messages[2].content"] == [loss["path"] for loss in losses if "normalize_json" in loss["detail"]]
    normal.speaker.say(text("It is clear."))
    strict = web.post(url, content=sent, headers={"x-turnscript-loss-policy": "error"})
    assert (len(losses) == 1, False) == (strict.status_code == 200, "normalize_json" in strict.text), strict.text


# Sessions as two agents lead them, with all that they change from turn to turn.


@pytest.fixture(scope="module")
def agents() -> Iterator[Talk]:
    tools = [
        Tool(name="Bash", parameters=WEATHER.parameters),
        Tool(name="mcp__notes__read_note", parameters=WEATHER.parameters),
        Tool(name="apply_patch"),
    ]
    with speaking(Speaker(ts.get_format("rwkv-universal"), tools)) as made:
        yield made


def claude_code(turn: int, messages: list[Body]) -> Body:
    """A request of Claude Code: another billing header each time, the cache mark on the last block."""
    marked = json.loads(json.dumps(messages))
    last = marked[-1]["content"]
    if isinstance(last, str):
        marked[-1]["content"] = last = [{"type": "text", "text": last}]
    last[-1]["cache_control"] = {"type": "ephemeral"}
    billing = f"x-anthropic-billing-header: cc_version=2.1.92.{turn:03x}; cc_entrypoint=sdk-cli; cch={turn * 7:05x};"
    return {
        "model": "claude-opus-5-5",
        "max_tokens": 32000,
        "stream": False,
        "system": [
            {"type": "text", "text": billing},
            {"type": "text", "text": "You are an agent.", "cache_control": {"type": "ephemeral"}},
        ],
        "messages": marked,
        "tools": [
            {"name": "Bash", "description": "Runs.", "input_schema": {"type": "object"}},
            {"name": "mcp__notes__read_note", "defer_loading": True, "input_schema": {"type": "object"}},
        ],
        "metadata": {"user_id": json.dumps({"device_id": "d", "session_id": "s1"})},
        "thinking": {"type": "adaptive", "display": "omitted"},
        "output_config": {"effort": "high"},
        "context_management": {"edits": [{"type": "clear_thinking_20251015", "keep": "all"}]},
    }


def test_a_session_of_claude_code_only_grows(agents: Talk, web: httpx2.Client) -> None:
    speaker = agents.speaker
    speaker.clear()
    speaker.say(thought("First, look."), text("I look."), call("Bash", command="ls"))
    speaker.say(thought("Now the notes."), call("mcp__notes__read_note", id=1.0))
    speaker.say(thought("Done."), text("All is well."))
    speaker.say(text("Bye."))
    headers = {"anthropic-version": "2023-06-01", "x-claude-code-session-id": "s1", "x-api-key": "k"}
    reference = [{"type": "tool_reference", "tool_name": "mcp__notes__read_note"}]
    messages: list[Body] = [{"role": "user", "content": "Look at my notes"}]
    for turn in range(4):
        url = f"{agents.url}/v1/messages?beta=true"
        told = web.post(url, json=claude_code(turn, messages), headers=headers | {"anthropic-beta": f"x-{turn}"})
        assert 200 == told.status_code, told.text
        answer = told.json()
        assert "claude-opus-5-5" == answer["model"]
        if turn:
            grew(agents, told)
        thinking = [block for block in answer["content"] if block["type"] == "thinking"]
        assert all(block["thinking"] == "" and block["signature"] for block in thinking)
        messages += echo.messages_exact(answer)
        result = {"type": "tool_result", "content": reference if turn == 0 else "milk"}
        blocks: list[Body] = [result | {"tool_use_id": one} for one in call_ids(answer)]
        reminder = {"type": "text", "text": f"<system-reminder>turn {turn}</system-reminder>"}
        messages.append({"role": "user", "content": [*blocks, reminder]})
    assert [] == speaker.failures
    assert "First, look." in speaker.said[-1].prompt


def codex(turn: int, items: list[Body]) -> Body:
    """A request of Codex: stateless, other ids in its metadata each time."""
    parameters = {"type": "object", "properties": {"city": {"type": "string"}}}
    note = {"type": "function", "name": "read_note", "strict": False, "parameters": parameters}
    return {
        "model": "gpt-5.6-codex",
        "instructions": "You are an agent.",
        "input": items,
        "tools": [
            {
                "type": "custom",
                "name": "apply_patch",
                "format": {"type": "grammar", "syntax": "lark", "definition": "start: /.+/"},
            },
            {"type": "namespace", "name": "mcp__notes", "description": "Notes.", "tools": [note]},
            {"type": "web_search", "external_web_access": False},
        ],
        "tool_choice": "auto",
        "parallel_tool_calls": False,
        "reasoning": {"effort": "medium", "summary": "auto"},
        "store": False,
        "stream": False,
        "include": ["reasoning.encrypted_content"],
        "prompt_cache_key": "thread-1",
        "client_metadata": {"turn_id": f"turn-{turn}"},
    }


def test_a_session_of_codex_only_grows(agents: Talk, web: httpx2.Client) -> None:
    speaker = agents.speaker
    speaker.clear()
    speaker.say(thought("Read first."), call("mcp__notes__read_note", city="a"))
    speaker.say(
        thought("Patch."), text("I patch."), call("apply_patch", input='*** Begin Patch\n+"hi"\n*** End Patch\n')
    )
    speaker.say(thought("Done."), text("All is well."))
    speaker.say(thought("So."), text("The user asked for a patch."))
    items: list[Body] = [
        {"type": "message", "role": "developer", "content": [{"type": "input_text", "text": "Rules."}]},
        {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Patch it"}]},
    ]
    outputs = {"function_call": "function_call_output", "custom_tool_call": "custom_tool_call_output"}
    kinds = []
    for turn in range(4):
        told = web.post(f"{agents.url}/v1/responses", json=codex(turn, items), headers={"session_id": "thread-1"})
        assert 200 == told.status_code, told.text
        if turn:
            grew(agents, told)
        for item in told.json()["output"]:
            kinds.append((item["type"], item.get("namespace")))
            sent = {key: value for key, value in item.items() if key not in ("status", "id")}
            items.append(sent | ({"content": None} if item["type"] == "reasoning" else {}))
        items += [
            {"type": outputs[item["type"]], "call_id": item["call_id"], "output": "ok"}
            for item in told.json()["output"]
            if item["type"] in outputs
        ]
        if items[-1]["type"] == "message":
            asked = "Thanks" if turn != 2 else "Summarise the conversation for another model."
            items.append({"type": "message", "role": "user", "content": [{"type": "input_text", "text": asked}]})
    assert [] == speaker.failures
    assert ("function_call", "mcp__notes") in kinds
    assert ("custom_tool_call", None) in kinds


# Sessions that real clients led with other servers.


@cache
def session(path: Path) -> Any:
    return json.loads(path.read_text(encoding="utf-8"))


@pytest.mark.parametrize("path", CORPUS, ids=lambda path: path.stem)
def test_every_recorded_request_is_answered(agents: Talk, web: httpx2.Client, path: Path) -> None:
    agents.speaker.clear()
    agents.speaker.answering = lambda prompt: [text("Fine.")]
    told = session(path)
    endpoint = ts.get_api(told["api"]).endpoint
    for turn in told["turns"]:
        answer = web.post(agents.url + endpoint, json=turn)
        if "thread" in turn:
            assert "thread_unsupported_request" == answer.json()["error"]["details"]["error_code"]
            continue
        if '"item_reference"' in json.dumps(turn):  # to items that another server kept
            assert (404, "$.input[2]") == (answer.status_code, answer.json()["error"]["param"])
            continue
        assert 200 == answer.status_code, answer.text
        assert agents.speaker.said[-1].prompt
