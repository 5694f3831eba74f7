"""Owns thoughts end to end: how each SDK shows them, and that the model finds them where it had them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import httpx2
import pytest
from msgspec.structs import asdict

import turnscript as ts
from tests.gateway.dialogue import DIALOGUES, STREAM, WAYS, WHOLE, Dialogue, Way
from tests.gateway.scripted import END, Script, sse
from tests.gateway.speaker import Speaker, Talk, call, speaking, text, thought
from tests.gateway.stage import CHATS, NO_TLS, WEATHER, Stage, Told, answer, named, piece, text_of_call
from tests.sdks import anthropic_sdk, openai_sdk
from turnscript.apis.api import Api
from turnscript.convert.registry import get_api
from turnscript.gateway.config import Efforts
from turnscript.gateway.thinking import BUDGETS

EACH = pytest.mark.parametrize("api", DIALOGUES)
BOTH = pytest.mark.parametrize("way", [WHOLE, STREAM], ids=str)
ASKING: dict[str, dict[str, Any]] = {
    "openai-chat": {"reasoning_effort": "medium"},
    "openai-responses": {
        "reasoning": {"effort": "medium", "summary": "auto"},
        "include": ["reasoning.encrypted_content"],
    },
    "anthropic-messages": {"thinking": {"type": "enabled", "budget_tokens": 1024}},
}
HM = "The user wants\nthe weather."


@pytest.fixture(scope="module", params=ts.formats())
def talk(request: pytest.FixtureRequest) -> Iterator[Talk]:
    with speaking(Speaker(ts.get_format(request.param), [WEATHER])) as made:
        yield made


@pytest.fixture(scope="module")
def one() -> Iterator[Talk]:
    """One format, for what is the same with all."""
    with speaking(Speaker(ts.get_format("rwkv-universal"), [WEATHER])) as made:
        yield made


@pytest.fixture
def way(api: str, talk: Talk) -> Way:
    number = ts.formats().index(talk.speaker.format.name) + list(DIALOGUES).index(api)
    return WAYS[number % len(WAYS)]


def lead(api: str, talk: Talk, way: Way, **more: Any) -> Dialogue:
    talk.speaker.clear()
    return DIALOGUES[api](talk.url, way, [WEATHER], **(ASKING[api] | more))


def grew(talk: Talk) -> bool:
    """Whether each prompt begins with the one before and what was written for it."""
    said = talk.speaker.said
    return all(after.prompt.startswith(before.prompt + before.written.rstrip()) for before, after in pairwise(said))


@EACH
def test_a_thought_goes_to_the_client_and_comes_back_to_the_model(talk: Talk, api: str, way: Way) -> None:
    dialogue = lead(api, talk, way)
    talk.speaker.say(thought(HM), call("get_weather", city="Rome"))
    talk.speaker.say(thought("It shines."), text("Sunny."))
    talk.speaker.say(thought("Nothing more."), text("Bye."))
    dialogue.user("Weather in Rome?")
    said = dialogue.ask()
    assert HM == said.thoughts.strip()
    assert [{"city": "Rome"}] == [called.arguments for called in said.calls]
    dialogue.results({called.id: "sunny" for called in said.calls})
    said = dialogue.ask()
    assert ("Sunny.", "It shines.") == (said.text.strip(), said.thoughts.strip())
    dialogue.user("Bye")
    assert "Bye." == dialogue.ask().text.strip()
    assert 3 == len(talk.speaker.said)
    assert grew(talk)
    assert all(HM in spoken.prompt for spoken in talk.speaker.said[1:])


@EACH
@BOTH
def test_without_a_thought_none_is_told(one: Talk, api: str, way: Way) -> None:
    dialogue = lead(api, one, way)
    dialogue.more = {}
    one.speaker.say(text("Sunny."))
    dialogue.user("Weather?")
    said = dialogue.ask()
    assert ("Sunny.", "") == (said.text.strip(), said.thoughts)


@BOTH
def test_chat_has_thoughts_as_reasoning_content(one: Talk, way: Way) -> None:
    dialogue = lead("openai-chat", one, way)
    one.speaker.say(thought(HM), text("Sunny."))
    dialogue.user("Weather?")
    message = dialogue.ask().whole.choices[0].message
    assert (HM, "Sunny.") == (message.reasoning_content, message.content)


def test_a_chunk_of_chat_has_either_a_thought_or_a_text(one: Talk) -> None:
    dialogue = lead("openai-chat", one, WHOLE)
    one.speaker.say(thought(HM), text("Sunny."))
    with openai_sdk(one.url) as sdk:
        ask: Any = [{"role": "user", "content": "?"}]
        chunks = list(sdk.chat.completions.create(model="m", messages=ask, stream=True, reasoning_effort="high"))
    deltas = [chunk.choices[0].delta for chunk in chunks if chunk.choices]
    thoughts = [getattr(delta, "reasoning_content", None) or "" for delta in deltas]
    texts = [delta.content or "" for delta in deltas]
    assert (HM, "Sunny.") == ("".join(thoughts), "".join(texts))
    assert max(at for at, one in enumerate(thoughts) if one) < min(at for at, one in enumerate(texts) if one)
    assert dialogue.more


@BOTH
def test_responses_has_reasoning_items_with_a_summary_and_a_seal(one: Talk, way: Way) -> None:
    dialogue = lead("openai-responses", one, way)
    one.speaker.say(thought(HM), text("Sunny."))
    dialogue.user("Weather?")
    reasoning, message = dialogue.ask().whole.output
    assert ("reasoning", "message") == (reasoning.type, message.type)
    assert reasoning.id.startswith("rs_")
    assert reasoning.encrypted_content
    assert HM in "".join(part.text for part in reasoning.summary or reasoning.content)


@BOTH
def test_a_seal_is_there_only_where_it_is_asked_for(one: Talk, way: Way) -> None:
    dialogue = lead("openai-responses", one, way)
    dialogue.user("Weather?")
    for include in ([], ["reasoning.encrypted_content"]):
        one.speaker.say(thought(HM), text("Sunny."))
        dialogue.more = {"reasoning": {"effort": "low"}, "include": include}
        assert bool(include) == bool(dialogue.ask().whole.output[0].encrypted_content)


def test_raw_reasoning_is_content_with_part_events(one: Talk) -> None:
    dialogue = lead("openai-responses", one, WHOLE)
    one.speaker.say(thought(HM), text("Sunny."))
    with openai_sdk(one.url) as sdk:
        events: Any = list(sdk.responses.create(model="m", input="?", stream=True, reasoning={"effort": "low"}))
    kinds = [event.type for event in events]
    assert kinds.index("response.content_part.added") < kinds.index("response.reasoning_text.delta")
    deltas = [event.delta for event in events if event.type == "response.reasoning_text.delta"]
    assert HM == "".join(deltas)
    assert HM == events[-1].response.output[0].content[0].text
    assert dialogue.more


def test_a_reasoning_item_comes_back_with_nothing_but_its_seal(one: Talk) -> None:
    dialogue = lead("openai-responses", one, WHOLE, store=False)
    one.speaker.say(thought(HM), text("Sunny."))
    one.speaker.say(thought("Again."), text("Still."))
    dialogue.user("Weather?")
    output = dialogue.ask().whole.output
    bare = {"type": "reasoning", "id": output[0].id, "summary": [], "content": None}
    dialogue.history[1] = bare | {"encrypted_content": output[0].encrypted_content}
    dialogue.user("And now?")
    assert "Still." == dialogue.ask().text
    assert grew(one)


@BOTH
def test_messages_has_thinking_blocks_with_a_signature(one: Talk, way: Way) -> None:
    dialogue = lead("anthropic-messages", one, way)
    one.speaker.say(thought(HM), text("Sunny."))
    dialogue.user("Weather?")
    thinking, said = dialogue.ask().whole.content
    assert ("thinking", HM, "text") == (thinking.type, thinking.thinking, said.type)
    assert len(thinking.signature) > 20


@BOTH
def test_a_thought_that_is_not_to_be_shown_is_in_its_signature(one: Talk, way: Way) -> None:
    hidden = {"thinking": {"type": "adaptive", "display": "omitted"}}
    dialogue = lead("anthropic-messages", one, way, **hidden)
    one.speaker.say(thought(HM), text("Sunny."))
    one.speaker.say(thought("Again."), text("Still."))
    dialogue.user("Weather?")
    thinking = dialogue.ask().whole.content[0]
    assert ("thinking", "") == (thinking.type, thinking.thinking)
    assert thinking.signature
    dialogue.user("And now?")
    assert "Still." == dialogue.ask().text
    assert grew(one)
    assert HM in one.speaker.said[1].prompt


FOREIGN: list[Any] = [
    {
        "type": "thinking",
        "thinking": "Of another server.",
        "signature": "EqQBCgIYAhIM1gbcDa9GJwZA2b3hGgxBdjrkzLoky3dl1pk=",
    },
    {"type": "redacted_thinking", "data": "EmwKAhgBEgy3va3pzix/LafPsn4aDFIT2Xlxh0L5L8rLVyIwxtE3rAFBa8cr3qpP"},
    {"type": "thinking", "thinking": "Without a proof.", "signature": ""},
]


@pytest.mark.parametrize("block", FOREIGN, ids=["thinking", "redacted", "no signature"])
def test_thoughts_of_another_server_are_taken(one: Talk, block: Any) -> None:
    dialogue = lead("anthropic-messages", one, WHOLE)
    one.speaker.say(thought("Mine."), text("Fine."))
    answer = [block, {"type": "text", "text": "Sunny."}]
    dialogue.history = [{"role": "user", "content": "?"}, {"role": "assistant", "content": answer}]
    dialogue.user("And now?")
    assert "Fine." == dialogue.ask().text
    assert "Sunny." in one.speaker.said[0].prompt
    assert "EqQBCg" not in one.speaker.said[0].prompt


def test_a_thought_whose_proof_was_changed_is_taken_and_reported(one: Talk) -> None:
    dialogue = lead("anthropic-messages", one, WHOLE)
    one.speaker.say(thought(HM), text("Sunny."))
    one.speaker.say(thought("Again."), text("Still."))
    dialogue.user("Weather?")
    blocks = [block.model_dump() for block in dialogue.ask().whole.content]
    at = len(blocks[0]["signature"]) // 2
    blocks[0]["signature"] = blocks[0]["signature"][:at] + "AAAA" + blocks[0]["signature"][at + 4 :]
    body: dict[str, Any] = {
        "model": "m",
        "max_tokens": 2000,
        "messages": [dialogue.history[0], {"role": "assistant", "content": blocks}],
    }
    body["messages"].append({"role": "user", "content": "And?"})
    told = httpx2.post(f"{one.url}/v1/messages", json=body | ASKING["anthropic-messages"], verify=NO_TLS)
    assert 200 == told.status_code
    assert int(told.headers["x-turnscript-losses"]) >= 1


def test_the_budget_ends_a_thought_that_does_not_end(one: Talk) -> None:
    dialogue = lead("anthropic-messages", one, WHOLE)
    long = "I wonder whether this goes on. " * 400
    one.speaker.say(raw=long)
    one.speaker.say(raw="<<ASSISTANT>>\nEnough.\n<<ASSISTANT_END>>")
    dialogue.user("Weather?")
    said = dialogue.ask(max_tokens=4000)
    assert "Enough." in said.text
    assert 100 < len(said.thoughts) < len(long)
    assert one.speaker.said[1].prompt.startswith(one.speaker.said[0].prompt + long[:100])


def test_the_anthropic_stream_has_the_signature_before_the_end_of_its_block(one: Talk) -> None:
    lead("anthropic-messages", one, WHOLE)
    one.speaker.say(thought(HM), text("Sunny."))
    with anthropic_sdk(one.url) as sdk:
        ask: Any = [{"role": "user", "content": "?"}]
        think: Any = ASKING["anthropic-messages"]["thinking"]
        events = list(sdk.messages.create(model="m", max_tokens=2000, messages=ask, stream=True, thinking=think))
    kinds = [event.delta.type if event.type == "content_block_delta" else event.type for event in events]
    assert kinds.index("thinking_delta") < kinds.index("signature_delta") < kinds.index("content_block_stop")
    assert kinds.index("content_block_stop") < kinds.index("text_delta")


# What a server, or a key, says of all this.


@pytest.mark.parametrize("name", ["reasoning_content", "reasoning"])
@pytest.mark.parametrize("stream", [True, False], ids=["stream", "whole"])
def test_chat_calls_thoughts_what_the_policy_says(stream: bool, name: str) -> None:
    with Stage(policy={"reasoning_name": name}) as stage:
        stage.play(answer("Hm.\n<<THINK_END>>", "\n\n<<ASSISTANT>>\nSunny.\n<<ASSISTANT_END>>"))
        told = stage.ask(get_api("openai-chat"), stream=stream, text=QUESTION, **ASKING["openai-chat"])
        other = {"reasoning_content": "reasoning", "reasoning": "reasoning_content"}[name]
        assert (True, False) == (f'"{name}":'.encode() in told.body, f'"{other}":'.encode() in told.body)


@pytest.mark.parametrize("status", ["incomplete", "completed"])
@pytest.mark.parametrize("stream", [True, False], ids=["stream", "whole"])
def test_a_response_that_met_its_limit_ends_as_the_policy_says(stream: bool, status: str) -> None:
    with Stage(policy={"incomplete_as": status}) as stage:
        stage.play(answer("Once upon", finish="length"))
        told = stage.ask(get_api("openai-responses"), stream=stream, text=QUESTION)
        body = json.loads(told.body.rpartition(b"data: ")[2])
        response = body["response"] if stream else body
        assert (status, "max_output_tokens") == (response["status"], response["incomplete_details"]["reason"])
        assert not stream or f"response.{status}" == body["type"]


def test_an_effort_is_as_many_tokens_as_the_model_is_configured_with() -> None:
    asking: Any = {"reasoning_effort": "low"}
    for efforts, asks in ((Efforts(), 1), (Efforts(low=BUDGET), 2)):
        with Stage(model={"efforts": efforts}) as stage:
            stage.play(endless(counted=False), goes_on(READ + BUDGET))
            stage.ask(get_api("openai-chat"), stream=False, text=QUESTION, limit=2000, **asking)
            assert asks == len(stage.asks[0])


def test_the_efforts_of_the_configuration_are_those_that_plans_are_made_with() -> None:
    assert BUDGETS == asdict(Efforts())


# What is counted where the model was stopped and asked to go on: its prompt, and nothing of it twice.

MESSAGES = get_api("anthropic-messages")
BUDGET = 1024
QUESTION = "Why is it? " * 30
READ = 100
"""Tokens of the question's prompt."""


def used(read: int, written: int, cached: int = 0) -> Any:
    details = {"prompt_tokens_details": {"cached_tokens": cached}}
    return {"usage": {"prompt_tokens": read, "completion_tokens": written, **details}}


def endless(*, counted: bool) -> Script:
    """A thought that does not end by itself. `counted`: by a server that counts with each piece."""
    pieces = [piece(" hmm", **(used(READ, at + 1, 40) if counted else {})) for at in range(1100)]
    return sse(*pieces, "[DONE]", end=(END,))


def goes_on(read: int, text: str = "\n\n<<ASSISTANT>>\nThe answer.\n<<ASSISTANT_END>>") -> Script:
    """What the model writes then, of a server that has read all of that before and remembers it."""
    return sse(piece(text), piece("", "stop", **used(read, 8, read - 1)), "[DONE]", end=(END,))


def ask_why(stage: Stage, *, stream: bool = False, question: str = QUESTION, **more: Any) -> Told:
    return stage.ask(MESSAGES, stream=stream, text=question, limit=2000, **more)


@pytest.mark.parametrize("stream", [True, False], ids=["stream", "whole"])
@pytest.mark.parametrize("counted", [True, False])
def test_a_thought_that_was_ended_is_not_counted_as_input(stream: bool, counted: bool) -> None:
    with Stage() as stage:
        stage.play(endless(counted=counted), goes_on(READ + BUDGET))
        told = ask_why(stage, stream=stream, **ASKING["anthropic-messages"])
        assert "The answer." == told.text.strip()
        assert 2 == len(stage.asks[0])
        assert told.usage is not None
        assert pytest.approx(READ, rel=0.0 if counted else 0.3) == told.usage.input
        assert told.usage.cached <= told.usage.input
        assert not counted or 40 == told.usage.cached
        assert BUDGET < told.usage.output


def test_nothing_is_learnt_from_a_prompt_with_a_thought_behind_it() -> None:
    words = "word " * 2000
    with Stage(model={"context": 8192}) as stage:
        for _ in range(8):
            stage.play(endless(counted=False), goes_on(READ + BUDGET))
            assert 200 == ask_why(stage, **ASKING["anthropic-messages"]).status
        stage.play(goes_on(2000, "Hello\n<<ASSISTANT_END>>"))
        assert 200 == ask_why(stage, question=words).status


@pytest.mark.parametrize("api", CHATS, ids=named)
def test_what_was_kept_before_a_call_that_is_made_again_is_no_input(api: Api) -> None:
    before = "I look it up. " * 100
    bad, good = (text_of_call(city) for city in ("Rome", "Paris"))
    with Stage(policy={"invalid_calls": "retry"}) as stage:
        wrong = piece(f"{before}\n{bad.replace('city', 'town')}", **used(READ, 400))
        stage.play(sse(wrong, "[DONE]", end=(END,)), goes_on(READ + 400, f"\n{good}"))
        told = stage.ask(api, stream=False, text=QUESTION, tools=[WEATHER], limit=2000)
        assert 2 == len(stage.asks[0])
        assert ['{"city": "Paris"}'] == [call.arguments for call in told.calls]
        assert told.usage is not None
        assert READ == told.usage.input


@pytest.mark.parametrize("stream", [True, False], ids=["stream", "whole"])
@pytest.mark.parametrize("api", CHATS, ids=named)
def test_a_call_that_only_the_end_of_the_text_completes_is_made_again(api: Api, stream: bool) -> None:
    wrong, right = (text_of_call(city) for city in ("Rome", "Paris"))
    unclosed = wrong.replace("city", "town").partition("<<END")[0].rstrip()  # the model forgets the tag behind the call
    with Stage(policy={"invalid_calls": "retry"}) as stage:
        stage.play(answer("So.\n", unclosed), answer(f"\n{right}"))
        told = stage.ask(api, stream=stream, text=QUESTION, tools=[WEATHER])
        assert 2 == len(stage.asks[0])
        assert ['{"city": "Paris"}'] == [call.arguments for call in told.calls]
