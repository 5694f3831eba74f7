"""Owns searches for tools end to end: a model looks for tools that the client has, and calls what was found."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import httpx2
import openai
import pytest

import turnscript as ts
from tests.gateway.speaker import Speaker, Talk, call, speaking, text
from tests.gateway.stage import NO_TLS
from turnscript.core.conversation import Tool
from turnscript.gateway.hygiene import clean
from turnscript.gateway.offers import offer

QUERY: Any = {
    "type": "object",
    "properties": {"query": {"type": "string"}, "limit": {"type": "number"}},
    "required": ["query"],
}
SEARCH: Any = {"type": "tool_search", "execution": "client", "description": "Finds tools.", "parameters": QUERY}
NAMES: Any = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}
SPOKEN = [Tool(name=name) for name in ("tool_search", "mcp__notes__read", "mcp__notes__drop", "tool_search_2")]
ASKED: Any = [{"role": "user", "content": "Read my note."}]


def found(call_id: str, *names: str) -> Any:
    """What the client's search has found, as Codex tells it."""
    tools = [
        {
            "type": "function",
            "name": name,
            "description": f"Does {name}.",
            "strict": False,
            "defer_loading": True,
            "parameters": NAMES,
        }
        for name in names
    ]
    space = {"type": "namespace", "name": "mcp__notes", "description": "Notes.", "tools": tools}
    return {
        "type": "tool_search_output",
        "call_id": call_id,
        "execution": "client",
        "status": "completed",
        "tools": [space] if names else [],
    }


@pytest.fixture(scope="module", params=["rwkv-universal", "rwkv-goose", "openchatml"])
def talk(request: pytest.FixtureRequest) -> Iterator[Talk]:
    with speaking(Speaker(ts.get_format(request.param), SPOKEN), context=8000) as made:
        yield made


def grew(speaker: Speaker) -> bool:
    return all(
        after.prompt.startswith(before.prompt + before.written.rstrip())
        for before, after in zip(speaker.said, speaker.said[1:], strict=False)
    )


def ask(sdk: openai.OpenAI, stream: bool, given: Any, **more: Any) -> Any:
    """The answer, whole or from a stream."""
    more = {"model": "m", "tools": [SEARCH], **more}
    if not stream:
        return sdk.responses.create(input=given, **more)
    with sdk.responses.stream(input=given, **more) as opened:
        return opened.get_final_response()


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
def test_a_model_looks_for_tools_and_calls_what_was_found(sdk: openai.OpenAI, speaker: Speaker, stream: bool) -> None:
    speaker.say(call("tool_search", query="read", limit=1))
    speaker.say(call("tool_search", query="notes"))
    speaker.say(call("mcp__notes__drop", name="n1"))
    speaker.say(text("Done."))
    given: list[Any] = list(ASKED)
    for names in (["read"], ["read", "drop"]):
        [said] = ask(sdk, stream, given).output
        assert ("tool_search_call", "client", "completed") == (said.type, said.execution, said.status)
        assert "query" in said.arguments
        given += [said.to_dict(), found(said.call_id, *names)]
    [said] = ask(sdk, stream, given).output
    assert ("function_call", "mcp__notes", "drop") == (said.type, said.namespace, said.name)
    given += [said.to_dict(), {"type": "function_call_output", "call_id": said.call_id, "output": "ok"}]
    assert "Done." == ask(sdk, stream, given).output_text
    assert grew(speaker)
    prompt = speaker.said[-1].prompt
    assert 1 == prompt.count("Finds tools.")
    assert [1, 1] == [prompt.count(f"Does {name}.") for name in ("read", "drop")]
    assert "Loaded: mcp__notes__read, mcp__notes__drop" in prompt


def test_a_search_goes_on_from_an_id(sdk: openai.OpenAI, speaker: Speaker) -> None:
    speaker.say(call("tool_search", query="read"))
    first = ask(sdk, False, ASKED)
    speaker.say(call("mcp__notes__read", name="n1"))
    said: Any = first.output[0]
    later = ask(sdk, False, [found(said.call_id, "read")], previous_response_id=first.id)
    assert ("function_call", "read") == (later.output[0].type, later.output[0].name)
    assert grew(speaker)


def test_a_search_whose_name_is_taken_goes_on_from_an_id(sdk: openai.OpenAI, speaker: Speaker) -> None:
    namesake = {"type": "function", "name": "tool_search", "parameters": {"type": "object"}, "strict": False}
    speaker.say(call("tool_search_2", query="read"))
    first = ask(sdk, False, ASKED, tools=[namesake, SEARCH])
    speaker.say(text("Done."))
    said: Any = first.output[0]
    ask(sdk, False, [found(said.call_id, "read")], tools=[namesake, SEARCH], previous_response_id=first.id)
    assert grew(speaker)


def test_a_search_may_find_nothing(sdk: openai.OpenAI, speaker: Speaker) -> None:
    speaker.say(call("tool_search", query="x"))
    [said] = ask(sdk, False, ASKED).output
    speaker.say(text("Alas."))
    assert "Alas." == ask(sdk, False, [*ASKED, said.to_dict(), found(said.call_id)]).output_text
    assert "No tool was found." in speaker.said[-1].prompt


def test_a_call_is_checked_as_any_other(sdk: openai.OpenAI, speaker: Speaker) -> None:
    speaker.say(call("tool_search", limit=1))
    told = sdk.responses.with_raw_response.create(model="m", input=ASKED, tools=[SEARCH])
    assert "tool_search_call" == told.parse().output[0].type
    report = httpx2.get(str(sdk.base_url.copy_with(path=told.headers["x-turnscript-report"])), verify=NO_TLS).json()
    assert [("schema_mismatch", "tool_search")] == [(one["kind"], one["tool"]) for one in report["findings"]]


def test_a_tool_of_the_same_name_is_another(sdk: openai.OpenAI, speaker: Speaker) -> None:
    namesake = {"type": "function", "name": "tool_search", "parameters": {"type": "object"}, "strict": False}
    for name, kind in (("tool_search", "function_call"), ("tool_search_2", "tool_search_call")):
        speaker.say(call(name, query="x"))
        assert kind == ask(sdk, True, ASKED, tools=[namesake, SEARCH]).output[0].type


def test_a_search_can_be_among_the_allowed_tools(sdk: openai.OpenAI, speaker: Speaker) -> None:
    other: Any = {"type": "function", "name": "other", "parameters": {"type": "object"}, "strict": False}
    choice = {"type": "allowed_tools", "mode": "auto", "tools": [{"type": "tool_search"}]}
    speaker.say(call("tool_search", query="x"))
    assert "tool_search_call" == ask(sdk, True, ASKED, tools=[other, SEARCH], tool_choice=choice).output[0].type
    assert "other" not in speaker.said[-1].prompt


def test_deferred_tools_wait_for_the_search_that_finds_them(sdk: openai.OpenAI, speaker: Speaker) -> None:
    [space] = found("c", "read")["tools"]
    tools = [SEARCH, space]
    speaker.say(call("tool_search", query="read"))
    [said] = ask(sdk, False, ASKED, tools=tools).output
    assert "Does read." not in speaker.said[-1].prompt
    speaker.say(call("mcp__notes__read", name="n1"))
    [said] = ask(sdk, False, [*ASKED, said.to_dict(), found(said.call_id, "read")], tools=tools).output
    assert ("mcp__notes", "read") == (said.namespace, said.name)
    assert 1 == speaker.said[-1].prompt.count("Does read.")
    assert grew(speaker)


@pytest.mark.parametrize("name", ts.formats())
def test_every_format_shows_the_search_and_what_it_found(name: str) -> None:
    format_ = ts.get_format(name)
    said = {"type": "tool_search_call", "call_id": "c1", "execution": "client", "arguments": {"query": "n"}}
    body = {"model": "m", "tools": [SEARCH], "input": [*ASKED, said, found("c1", "read")]}
    cleaned = clean(ts.parse(json.dumps(body), "openai-responses"))
    offered = offer(cleaned.request, format_)
    prompt = offered.prompt(format_)
    assert {"tool_search", "mcp__notes__read"} <= set(prompt.offered)
    assert prompt.text.index("Finds tools.") < prompt.text.index("Loaded: ") < prompt.text.index("Does read.")
    losses = [*cleaned.losses, *offered.losses, *prompt.losses]
    assert "dropped" not in [loss.kind for loss in losses if loss.path.startswith("$.tools")]
