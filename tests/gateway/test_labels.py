"""Owns the tests of what agent frameworks put onto messages: a name for the model, and marks for a cache.

The shapes are those of LangChain's agents in JavaScript, of Semantic Kernel and of CrewAI.
"""

import asyncio
import json
from typing import Any

import pytest

import turnscript as ts
from turnscript.gateway.hygiene import clean
from turnscript.gateway.memory import Memory

FORMAT = ts.get_format("rwkv-universal")
FIND = {"name": "find", "parameters": {"type": "object", "properties": {"q": {"type": "string"}}}}


def request(*messages: dict[str, Any]) -> ts.Request:
    """A request of Chat Completions with a tool."""
    tools = [{"type": "function", "function": FIND}]
    first = {"role": "user", "content": "Go."}
    return ts.get_api("openai-chat").parse_request({"model": "m", "tools": tools, "messages": [first, *messages]})


def grows(*names: str | None) -> list[bool]:
    """Whether each prompt of a session begins with the one before it and what the model wrote there, where its client
    gives the model's messages these names, one after the other."""
    memory = Memory()
    said: list[dict[str, Any]] = []
    grown: list[bool] = []
    before = ""

    async def turn(number: int) -> None:
        nonlocal before
        asked = request(*said)
        recalled = await memory.recall("scope", asked)
        prompt = FORMAT.prompt(asked, replays=recalled.replays)
        grown.append(prompt.text.startswith(before))
        call = f'<<TOOL_CALL name="find" id="call_{number}">>\n{{"q" :  "x"}}\n<<END_TOOL_CALL>>'
        text = f"Look.\n<<ASSISTANT_END>>\n\n{call}"
        parser = prompt.parser()
        assert memory.remember(recalled, ts.fold(parser.feed(text) + parser.close()), prompt)
        before = prompt.text + text

    for number, name in enumerate((*names, None)):
        asyncio.run(turn(number))
        label = {} if name is None else {"name": name}
        function = {"name": "find", "arguments": json.dumps({"q": "x"}, separators=(",", ":"))}
        calls = [{"id": f"call_{number}", "type": "function", "function": function}]
        said.append({"role": "assistant", "content": "Look.", "tool_calls": calls, **label})
        said.append({"role": "tool", "tool_call_id": f"call_{number}", "content": "found"})
    return grown


@pytest.mark.parametrize("names", [(None, None, None), ("model",) * 3, ("Helper 1",) * 3])
def test_a_name_that_all_messages_of_the_model_have_is_a_label(names: tuple[str | None, ...]) -> None:
    assert [True, True, True, True] == grows(*names)


@pytest.mark.parametrize("names", [("one", "two"), (None, "two"), ("two", None)])
def test_a_name_that_tells_one_participant_from_another_is_said(names: tuple[str | None, ...]) -> None:
    assert [True, True, False] == grows(*names)
    asked = request(*({"role": "assistant", "content": "Hi", "name": name} for name in ("one", "two")))
    assert '<<ASSISTANT name="one">>' in FORMAT.prompt(asked).text


def test_a_mark_for_a_cache_on_a_message_is_no_loss() -> None:
    marked = request({"role": "user", "content": "More.", "cache_breakpoint": True})
    cleaned = clean(marked)
    assert [] == cleaned.losses
    assert [] == FORMAT.prompt(cleaned.request).losses


def test_a_name_on_an_example_alone_does_not_change_what_follows() -> None:
    memory, example = Memory(), {"role": "assistant", "content": "So.", "name": "example"}
    said: list[dict[str, Any]] = [example, {"role": "user", "content": "Now you."}]
    reused = []
    for _ in range(3):
        asked = request(*said)
        recalled = asyncio.run(memory.recall("scope", asked))
        reused.append(recalled.reused)
        prompt = FORMAT.prompt(asked, replays=recalled.replays)
        assert '<<ASSISTANT name="example">>' in prompt.text
        parser = prompt.parser()
        answer = ts.fold(parser.feed("Look. \n<<ASSISTANT_END>>") + parser.close())
        assert memory.remember(recalled, answer, prompt)
        said += [{"role": "assistant", "content": "Look."}, {"role": "user", "content": "On."}]
    assert reused == [0, 1, 2]
