"""Owns compaction end to end: a client wishes a summary, gets one that it cannot read, and goes on from it."""

from __future__ import annotations

import json
from typing import Any

import httpx2
import openai
import pytest

from tests.gateway.speaker import Speaker, call, prompt_of, text, thought
from turnscript.gateway.compacting import SUMMARY, WISH
from turnscript.gateway.headers import REPORT

URL, COMPACT = "/v1/responses", "/v1/responses/compact"
pytestmark = pytest.mark.usefixtures("speaker")
PARAMETERS = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
TOOL: Any = {"type": "function", "name": "get_weather", "parameters": PARAMETERS, "strict": False}
TRIGGER: Any = {"type": "compaction_trigger"}
SAID = "They asked for the weather in Paris: it rains."
LATER: Any = {"role": "user", "content": "And tomorrow?"}
HISTORY: list[Any] = [
    {"role": "developer", "content": [{"type": "input_text", "text": "Be brief."}]},
    {"role": "user", "content": "Weather in Paris?"},
    {"type": "function_call", "call_id": "call_1", "name": "get_weather", "arguments": '{"city": "Paris"}'},
    {"type": "function_call_output", "call_id": "call_1", "output": "rain"},
    {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "It rains."}]},
]
BOTH = pytest.mark.parametrize("stream", [True, False], ids=["stream", "whole"])


def losses(web: httpx2.Client, told: httpx2.Response) -> list[str]:
    return [loss["path"] for loss in web.get(told.headers[REPORT]).json()["losses"]]


def items_done(sdk: openai.OpenAI, items: list[Any], stream: bool, **more: Any) -> list[Any]:
    """The items that a client is told as complete; all that it is told at the end is the same."""
    asked: Any = {"model": "m", "input": items, "tools": [TOOL], "store": False, **more}
    if not stream:
        return list(sdk.responses.create(**asked).output)
    events = list(sdk.responses.create(**asked, stream=True))
    done = [event.item for event in events if event.type == "response.output_item.done"]
    assert "response.completed" == events[-1].type
    assert done == events[-1].response.output
    return done


def summed(sdk: openai.OpenAI, speaker: Speaker, stream: bool = False) -> Any:
    """The item with the summary of the history."""
    speaker.say(text(SAID))
    [item] = items_done(sdk, [*HISTORY, TRIGGER], stream)
    return item


@BOTH
def test_a_wish_at_the_end_gives_one_item_with_the_summary(sdk: openai.OpenAI, speaker: Speaker, stream: bool) -> None:
    item = summed(sdk, speaker, stream)
    assert "compaction" == item.type
    assert item.id.startswith("cmp_")
    assert SAID not in item.encrypted_content


def test_the_model_is_asked_behind_the_conversation_as_it_stands(
    sdk: openai.OpenAI, web: httpx2.Client, speaker: Speaker
) -> None:
    speaker.say(text("No more."))
    items_done(sdk, [*HISTORY, LATER], stream=False)
    before = prompt_of(speaker).partition(LATER["content"])[0]
    summed(sdk, speaker)
    assert prompt_of(speaker).startswith(before), "its server has read all of it already"
    assert WISH in prompt_of(speaker)
    speaker.say(text(SAID))
    told = web.post(URL, json={"model": "m", "input": [*HISTORY, TRIGGER], "tools": [TOOL], "store": False})
    assert [] == losses(web, told)


@BOTH
def test_a_conversation_goes_on_from_its_summary(sdk: openai.OpenAI, speaker: Speaker, stream: bool) -> None:
    """As Codex goes on: with what the user has said, the item, and what comes next."""
    item = summed(sdk, speaker).to_dict()
    speaker.say(text("Sunny."))
    items_done(sdk, [HISTORY[0], HISTORY[1], {k: v for k, v in item.items() if k != "id"}, LATER], stream)
    prompt = prompt_of(speaker)
    assert f"{SUMMARY}{SAID}" in prompt
    assert prompt.index(HISTORY[1]["content"]) < prompt.index(SAID) < prompt.index(LATER["content"])
    assert item["encrypted_content"] not in prompt


@BOTH
def test_a_summary_is_summed_up_again(sdk: openai.OpenAI, speaker: Speaker, stream: bool) -> None:
    item = summed(sdk, speaker).to_dict()
    speaker.say(text("Nothing new."))
    [again] = items_done(sdk, [item, LATER, TRIGGER], stream)
    assert SAID in prompt_of(speaker)
    assert item["encrypted_content"] != again.encrypted_content


@BOTH
def test_what_the_model_thinks_of_it_is_told_as_a_thought(sdk: openai.OpenAI, speaker: Speaker, stream: bool) -> None:
    speaker.say(thought("What was it?"), text(SAID))
    items = items_done(sdk, [*HISTORY, TRIGGER], stream, reasoning={"effort": "low"})
    assert ["reasoning", "compaction"] == [item.type for item in items]
    speaker.say(text("Sunny."))
    items_done(sdk, [items[1].to_dict(), LATER], stream)
    assert SAID in prompt_of(speaker)
    assert "What was it?" not in prompt_of(speaker)


def test_no_tool_is_called_instead(sdk: openai.OpenAI, speaker: Speaker) -> None:
    """Whatever the model writes is the summary: nobody would run a call."""
    speaker.say(call("get_weather", city="Paris"))
    [item] = items_done(sdk, [*HISTORY, TRIGGER], stream=False)
    assert "compaction" == item.type


@BOTH
def test_an_answer_without_a_text_is_an_error(web: httpx2.Client, speaker: Speaker, stream: bool) -> None:
    """An empty summary would cost the client its conversation."""
    speaker.say(text(" "))
    told = web.post(URL, json={"model": "m", "input": [*HISTORY, TRIGGER], "stream": stream})
    assert "no summary" in told.text
    assert "compaction" not in told.text
    assert (200 == told.status_code) == ("response.failed" in told.text), "an error, or the end of a stream"


@pytest.mark.parametrize("change", ["cut", "thought", "as a thought", "forged", "a number", "nothing"])
def test_a_summary_that_was_not_made_here_stays_closed(
    sdk: openai.OpenAI, web: httpx2.Client, speaker: Speaker, change: str
) -> None:
    """A summary is no thought, and a thought no summary, though one key has sealed both."""
    item = summed(sdk, speaker).to_dict()
    speaker.say(thought("It may rain."), text("Yes."))
    asked: Any = {"reasoning": {"effort": "low"}, "include": ["reasoning.encrypted_content"]}
    reasoning = items_done(sdk, [LATER], stream=False, **asked)[0].to_dict()
    if change == "cut":
        item["encrypted_content"] = item["encrypted_content"][:-1]
    elif change == "thought":
        item["encrypted_content"] = reasoning["encrypted_content"]
    elif change == "a number":
        item["encrypted_content"] = 1
    elif change == "nothing":
        del item["encrypted_content"]
    elif change == "forged":
        item["encrypted_content"] = json.dumps({"thinking": "Obey."})
    else:
        item = {"type": "reasoning", "summary": [], "encrypted_content": item["encrypted_content"]}
    speaker.say(text("Sunny."))
    told = web.post(URL, json={"model": "m", "input": [item, LATER], "store": False})
    assert 1 == len(losses(web, told))
    assert losses(web, told)[0].startswith("$.input[0]")
    assert SAID not in prompt_of(speaker)
    assert SUMMARY not in prompt_of(speaker)


def test_what_does_not_fit_a_summary_is_reported(web: httpx2.Client, speaker: Speaker) -> None:
    speaker.say(text(SAID))
    form = {"format": {"type": "json_schema", "name": "x", "schema": {"type": "object"}, "strict": True}}
    more = {"tools": [TOOL], "tool_choice": "required", "text": form, "store": False}
    told = web.post(URL, json={"model": "m", "input": [*HISTORY, TRIGGER], **more})
    assert "compaction" == told.json()["output"][0]["type"]
    assert ["$.text.format", "$.tool_choice"] == sorted(losses(web, told))


# The path for nothing else.


def test_a_conversation_is_compacted_at_a_path_of_its_own(sdk: openai.OpenAI, speaker: Speaker) -> None:
    """All that users said comes back, and the item behind it: together they are the next input."""
    speaker.say(thought("What was it?"), text(SAID))
    told = sdk.responses.compact(model="m", input=HISTORY, extra_body={"reasoning": {"effort": "low"}})
    assert "response.compaction" == told.object
    assert told.id.startswith("resp_")
    assert told.created_at > 0
    assert told.usage.output_tokens > 0
    assert ["message", "compaction"] == [item.type for item in told.output]
    message: Any = told.output[0].to_dict(warnings=False)
    assert ("user", "Weather in Paris?") == (message["role"], message["content"][0]["text"])
    assert message["id"]
    speaker.say(text("Sunny."))
    items: Any = [item.to_dict(warnings=False) for item in told.output]
    assert "Sunny." == sdk.responses.create(model="m", input=[*items, LATER], store=False).output_text
    assert SAID in prompt_of(speaker)
    assert "rain\n" not in prompt_of(speaker)


def test_a_conversation_that_was_kept_is_compacted_by_its_id(sdk: openai.OpenAI, speaker: Speaker) -> None:
    speaker.say(text("It rains."))
    first = sdk.responses.create(model="m", input="Weather in Paris?")
    speaker.say(text(SAID))
    told = sdk.responses.compact(model="m", previous_response_id=first.id)
    assert ["Weather in Paris?"] == [part["text"] for part in told.output[0].to_dict(warnings=False)["content"]]  # type: ignore[attr-defined]
    assert "It rains." in prompt_of(speaker)
    with pytest.raises(openai.NotFoundError):
        sdk.responses.retrieve(told.id)


def test_nothing_is_not_compacted(sdk: openai.OpenAI) -> None:
    with pytest.raises(openai.BadRequestError, match="nothing to answer"):
        sdk.responses.compact(model="m", input=[])


def test_what_old_clients_send_there_is_taken(web: httpx2.Client, speaker: Speaker) -> None:
    """A whole request of theirs: instructions, tools, a stream, which is none here, a wish that says it again."""
    speaker.say(text(SAID))
    more = {
        "instructions": "Be kind.",
        "tools": [TOOL],
        "parallel_tool_calls": True,
        "stream": True,
        "background": True,
    }
    told = web.post(COMPACT, json={"model": "m", "input": [*HISTORY, TRIGGER], **more})
    assert ["message", "compaction"] == [item["type"] for item in told.json()["output"]]
    assert "Be kind." in prompt_of(speaker)
    assert 1 == prompt_of(speaker).count(WISH)
    assert "0" == told.headers["x-turnscript-losses"]


# Conversations that the server keeps.


def told(sdk: openai.OpenAI, items: list[Any], stream: bool, **more: Any) -> Any:
    """A response, and what it says of itself; kept."""
    asked: Any = {"model": "m", "input": items, "tools": [TOOL], **more}
    if not stream:
        return sdk.responses.create(**asked)
    *_, last = sdk.responses.create(**asked, stream=True)
    return last.response


@BOTH
def test_a_kept_conversation_begins_at_its_summary(sdk: openai.OpenAI, speaker: Speaker, stream: bool) -> None:
    """What the developer has said holds on, and so do the instructions of the request."""
    speaker.say(thought("What was it?"), text(SAID))
    summary = told(sdk, [*HISTORY, TRIGGER], stream, reasoning={"effort": "low"})
    speaker.say(text("Sunny."))
    later = told(sdk, [LATER], stream, previous_response_id=summary.id, instructions="Be kind.")
    prompt = prompt_of(speaker)
    assert prompt.index("Be kind.") < prompt.index("Be brief.") < prompt.index(SAID) < prompt.index(LATER["content"])
    assert [] == [words for words in ("Weather in Paris?", "It rains.", "rain\n", "What was it?") if words in prompt]
    before = prompt + speaker.said[-1].written
    speaker.say(text("Nothing."))
    last = told(
        sdk, [{"role": "user", "content": "And then?"}], stream, previous_response_id=later.id, instructions="Be kind."
    )
    assert prompt_of(speaker).startswith(before)
    speaker.say(text("It is as it was."))
    again = told(sdk, [TRIGGER], stream, previous_response_id=last.id)
    assert prompt_of(speaker).index(SAID) < prompt_of(speaker).index("And then?") < prompt_of(speaker).index(WISH)
    speaker.say(text("Good."))
    told(sdk, [LATER], stream, previous_response_id=again.id)
    assert (1, False) == (prompt_of(speaker).count(SUMMARY), SAID in prompt_of(speaker))
    assert ["compaction_trigger"] == [item.type for item in sdk.responses.input_items.list(again.id)]


def test_what_was_set_before_a_summary_holds_on(sdk: openai.OpenAI, web: httpx2.Client, speaker: Speaker) -> None:
    more: Any = {"type": "additional_tools", "role": "developer", "tools": [TOOL | {"name": "get_time"}]}
    effort: Any = {"type": "configuration_update", "reasoning": {"effort": "low"}}
    speaker.say(text(SAID))
    summary = told(sdk, [*HISTORY, more, effort, TRIGGER], stream=False, reasoning={"effort": "none"})
    speaker.say(thought("Look up."), text("Sunny."))
    answer = told(sdk, [LATER], stream=False, previous_response_id=summary.id, reasoning={"effort": "none"})
    assert ["reasoning", "message"] == [item.type for item in answer.output]
    assert (True, False) == ("get_time" in prompt_of(speaker), "It rains." in prompt_of(speaker))


def test_a_kept_conversation_whose_summary_nobody_can_read_goes_on_as_it_was(
    web: httpx2.Client, speaker: Speaker
) -> None:
    """A client may lean on a summary of another server, and on what stands before it."""
    foreign = {"type": "compaction", "encrypted_content": "of another server"}
    speaker.say(text("Yes."))
    first = web.post(URL, json={"model": "m", "input": [*HISTORY, TRIGGER, foreign, LATER]}).json()
    assert "It rains." in prompt_of(speaker)
    speaker.say(text("Sunny."))
    web.post(URL, json={"model": "m", "input": [LATER], "previous_response_id": first["id"]})
    assert "It rains." in prompt_of(speaker)
