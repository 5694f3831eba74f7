"""Owns tool loops end to end: a program with an official SDK, the gateway, and a model that speaks a format.

The tools really run: what the model asks for is computed, and the next prompt must hold what came out.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec
import openai
import pytest

import turnscript as ts
from tests.gateway.dialogue import DIALOGUES, STREAM, WAYS, WHOLE, Called, Dialogue, Way
from tests.gateway.speaker import Speaker, Talk, call, odd, speakable, speaking, text
from turnscript.core.conversation import Tool

ADD = Tool(
    name="add",
    description="Adds two numbers.",
    parameters=msgspec.Raw(
        b'{"type":"object","properties":{"a":{"type":"number"},"b":{"type":"number"}},"required":["a","b"]}'
    ),
)
UPPER = Tool(
    name="upper",
    description="Writes a text in capitals.",
    parameters=msgspec.Raw(b'{"type":"object","properties":{"text":{"type":"string"}},"required":["text"]}'),
)
TOOLS = [ADD, UPPER]
EACH = pytest.mark.parametrize("api", DIALOGUES)
CALLED = {"openai-chat": "tool_calls", "openai-responses": "completed", "anthropic-messages": "tool_use"}
CUT = {"openai-chat": "length", "openai-responses": "max_output_tokens", "anthropic-messages": "max_tokens"}
HELPED = {"openai-chat": openai.LengthFinishReasonError, "openai-responses": RuntimeError}
"""What helpers of the SDK raise where a streamed answer is cut off."""
ENDED = {"openai-chat": "stop", "openai-responses": "completed", "anthropic-messages": "end_turn"}


def run(called: Called) -> str:
    """The tools."""
    if called.name == "add":
        return f"{called.arguments['a'] + called.arguments['b']:g}"
    return str(called.arguments["text"]).upper()


@pytest.fixture(scope="module", params=ts.formats())
def talk(request: pytest.FixtureRequest) -> Iterator[Talk]:
    with speaking(Speaker(ts.get_format(request.param), TOOLS)) as made:
        yield made


@pytest.fixture(autouse=True)
def nothing_is_left(talk: Talk) -> Iterator[None]:
    talk.speaker.clear()
    yield
    assert [] == talk.speaker.failures
    assert 0 == talk.speaker.left


@pytest.fixture
def way(api: str, talk: Talk) -> Way:
    """Each format with each API in one way; all formats together are each API in every way."""
    number = ts.formats().index(talk.speaker.format.name) + list(DIALOGUES).index(api)
    return WAYS[number % len(WAYS)]


def lead(api: str, talk: Talk, way: Way, **more: Any) -> Dialogue:
    return DIALOGUES[api](talk.url, way, TOOLS, **more)


@EACH
def test_a_program_runs_tools_over_several_turns(talk: Talk, api: str, way: Way) -> None:
    talk.speaker.say(call("add", a=17, b=25))
    talk.speaker.say(call("upper", text='ünïcode 字 "42"'))
    talk.speaker.say(text("It is 42."))
    talk.speaker.say(text("You are welcome."))
    with lead(api, talk, way) as dialogue:
        dialogue.user("What is 17 + 25, in capitals?")
        for expected in ({"a": 17, "b": 25}, {"text": 'ünïcode 字 "42"'}):
            said = dialogue.ask()
            assert [expected] == [one.arguments for one in said.calls]
            assert "" == said.text.strip()
            assert CALLED[api] == said.reason
            dialogue.results({one.id: run(one) for one in said.calls})
        said = dialogue.ask()
        assert ("It is 42.", []) == (said.text.strip(), said.calls)
        assert ENDED[api] == said.reason
        dialogue.user("Thanks")
        assert "You are welcome." == dialogue.ask().text.strip()
    prompts = [one.prompt for one in talk.speaker.said]
    assert "42" in prompts[1][len(prompts[0]) :]
    assert "ÜNÏCODE 字" in prompts[2]
    assert "Thanks" in prompts[3]
    for before, spoken, after in zip(prompts, talk.speaker.said, prompts[1:], strict=False):
        assert after.startswith(before + spoken.written.rstrip())


@EACH
def test_calls_side_by_side_are_answered_side_by_side(talk: Talk, api: str, way: Way) -> None:
    both = [call("add", a=1, b=2), call("upper", text="x")]
    if not speakable(talk.speaker.format, both, TOOLS):
        both = both[:1]  # this format has a turn for each call
    talk.speaker.say(*both)
    talk.speaker.say(text("Done."))
    with lead(api, talk, way) as dialogue:
        dialogue.user("Both, please")
        said = dialogue.ask()
        assert [one.name for one in both] == [one.name for one in said.calls]
        assert len(both) == len({one.id for one in said.calls})
        dialogue.results({one.id: run(one) for one in reversed(said.calls)})
        assert "Done." == dialogue.ask().text.strip()
    last = talk.speaker.said[-1].prompt
    assert last.startswith(talk.speaker.said[0].prompt + talk.speaker.said[0].written.rstrip())


@EACH
def test_a_text_before_a_call_is_told_too(talk: Talk, api: str) -> None:
    items = [text("Let me see."), call("add", a=1, b=2)]
    if not speakable(talk.speaker.format, items, TOOLS):
        items = items[1:]
    talk.speaker.say(*items)
    with lead(api, talk, WHOLE) as dialogue:
        dialogue.user("1 + 2?")
        said = dialogue.ask()
    assert ("Let me see." if len(items) == 2 else "") == said.text.strip()
    assert [{"a": 1, "b": 2}] == [one.arguments for one in said.calls]


@EACH
def test_arguments_in_odd_spellings_mean_the_same(talk: Talk, api: str) -> None:
    talk.speaker.say(call("upper", text="Tokyo"), change=odd)
    talk.speaker.say(text("TOKYO"))
    with lead(api, talk, WHOLE) as dialogue:
        dialogue.user("Tokyo, please")
        said = dialogue.ask()
        assert [{"text": "Tokyo"}] == [one.arguments for one in said.calls]
        dialogue.results({one.id: run(one) for one in said.calls})
        dialogue.ask()
    first, second = talk.speaker.said
    assert second.prompt.startswith(first.prompt + first.written.rstrip())
    assert "TOKYO" in second.prompt


@EACH
def test_one_call_at_a_time_if_the_client_wants_it(talk: Talk, api: str, way: Way) -> None:
    both = [call("add", a=1, b=2), call("upper", text="x")]
    if not speakable(talk.speaker.format, both, TOOLS):
        both = both[:1]
    talk.speaker.say(*both)
    more: dict[str, Any] = {"parallel_tool_calls": False}
    if api == "anthropic-messages":
        more = {"tool_choice": {"type": "auto", "disable_parallel_tool_use": True}}
    with lead(api, talk, way, **more) as dialogue:
        dialogue.user("Both, please")
        said = dialogue.ask()
    assert ["add"] == [one.name for one in said.calls]
    assert CALLED[api] == said.reason


CHOICES: dict[str, dict[str, Any]] = {
    "openai-chat": {
        "none": "none",
        "auto": "auto",
        "required": "required",
        "named": {"type": "function", "function": {"name": "upper"}},
        "allowed": {
            "type": "allowed_tools",
            "allowed_tools": {"mode": "required", "tools": [{"type": "function", "function": {"name": "upper"}}]},
        },
    },
    "openai-responses": {
        "none": "none",
        "auto": "auto",
        "required": "required",
        "named": {"type": "function", "name": "upper"},
        "allowed": {"type": "allowed_tools", "mode": "required", "tools": [{"type": "function", "name": "upper"}]},
    },
    "anthropic-messages": {
        "none": {"type": "none"},
        "auto": {"type": "auto"},
        "required": {"type": "any"},
        "named": {"type": "tool", "name": "upper"},
    },
}


@EACH
@pytest.mark.parametrize("choice", ["required", "named", "allowed"])
def test_a_call_that_is_asked_for_is_begun_in_the_prompt(talk: Talk, api: str, choice: str) -> None:
    if choice not in CHOICES[api]:
        choice = "named"
    talk.speaker.say(call("upper", text="x"))
    with lead(api, talk, STREAM, tool_choice=CHOICES[api][choice]) as dialogue:
        dialogue.user("Do as you like")
        said = dialogue.ask()
    assert [("upper", {"text": "x"})] == [(one.name, one.arguments) for one in said.calls]
    plain = talk.speaker.format.prompt(ts.Request(conversation=ts.Conversation(tools=TOOLS))).text
    if choice == "named" or "observation" not in talk.speaker.format.name:
        assert not talk.speaker.said[0].prompt.endswith(plain[-10:])


@EACH
def test_without_a_choice_the_model_may_say_something(talk: Talk, api: str) -> None:
    talk.speaker.say(text("No need."))
    with lead(api, talk, WHOLE, tool_choice=CHOICES[api]["auto"]) as dialogue:
        dialogue.user("Do as you like")
        assert ("No need.", []) == ((said := dialogue.ask()).text.strip(), said.calls)


@EACH
def test_where_no_call_is_wanted_none_is_told(talk: Talk, api: str) -> None:
    talk.speaker.say(text("1 + 2 is 3."))
    talk.speaker.say(call("add", a=1, b=2))
    with lead(api, talk, WHOLE, tool_choice=CHOICES[api]["none"]) as dialogue:
        dialogue.user("1 + 2?")
        assert "1 + 2 is 3." == dialogue.ask().text.strip()
        dialogue.user("And with the tool?")
        said = dialogue.ask()
        assert [] == said.calls
        assert ENDED[api] == said.reason


@EACH
def test_a_call_that_the_limit_cuts_off_is_no_call(talk: Talk, api: str, way: Way) -> None:
    limit = {"openai-chat": "max_completion_tokens", "openai-responses": "max_output_tokens"}.get(api, "max_tokens")
    talk.speaker.say(call("upper", text="a long text that will not end in time " * 4))
    with lead(api, talk, way, **{limit: 40}) as dialogue:
        dialogue.user("Go")
        if api in HELPED and way.stream:
            with pytest.raises(HELPED[api]):
                dialogue.ask()
        else:
            said = dialogue.ask()
            assert ([], CUT[api]) == (said.calls, said.reason)
    assert "length" == talk.speaker.said[0].finish
