"""Owns thoughts of Responses that nobody asked to be sealed: whatever clients send back, the model has them.

`encrypted_content` is told where `include` asks for it. Without it a thought comes back by its text in `content`, by
the id of its item or of its answer, or by the memory of what the model wrote.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from copy import deepcopy
from itertools import pairwise
from typing import Any

import httpx2
import pytest

import turnscript as ts
from tests.gateway.speaker import Speaker, Talk, call, speaking, text, thought
from tests.gateway.stage import NO_TLS, WEATHER
from turnscript.gateway.memory import Memory

Body = dict[str, Any]
HM, SUN = "The user wants\nthe weather.", "It shines,\nI see."
SEALED: Body = {"include": ["reasoning.encrypted_content"]}
TOOL: Body = {
    "type": "function",
    "name": "get_weather",
    "parameters": json.loads(bytes(WEATHER.parameters or b"{}")),
    "strict": False,
}


def whole(body: Body) -> list[Body]:
    """openai, openai-agents, mini-swe-agent, langchain: every item as it came."""
    return deepcopy(body["output"])


def referred(body: Body) -> list[Body]:
    """The AI SDK, where the answer is kept: ids of items."""
    return [{"type": "item_reference", "id": item["id"]} for item in body["output"]]


def by_id(body: Body) -> list[Body]:
    """openai-agents-js: of a thought, its id and an empty summary."""
    return [
        {"type": "reasoning", "id": item["id"], "summary": []} if item["type"] == "reasoning" else item
        for item in whole(body)
    ]


def summed_up(body: Body) -> list[Body]:
    """pydantic-ai: of a thought, its id and summary; nulls for what it does not know."""
    items = whole(body)
    for item in items:
        if item["type"] == "reasoning":
            item |= {"content": None, "encrypted_content": None}
    return items


def nameless(body: Body) -> list[Body]:
    """Programs that keep no ids: the summary alone."""
    items = summed_up(body)
    for item in items:
        item.pop("id")
    return items


def thoughtless(body: Body) -> list[Body]:
    """opencode, cline, and the AI SDK where nothing is kept: no thought without a seal is sent back."""
    return [item for item in whole(body) if item["type"] != "reasoning"]


Echo = Callable[[Body], list[Body]]
ECHOES: list[Echo] = [whole, referred, by_id, summed_up, nameless, thoughtless]
CASES = [
    (echo, store) for echo in ECHOES for store in (None, True, False) if store is not False or echo is not referred
]
FORGOTTEN = [(whole, False), (whole, None), (referred, None), (by_id, None), (summed_up, True)]
"""What brings thoughts back without any memory."""


@pytest.fixture(scope="module", params=ts.formats())
def talk(request: pytest.FixtureRequest) -> Iterator[Talk]:
    with speaking(Speaker(ts.get_format(request.param), [WEATHER])) as made:
        yield made


@pytest.fixture(scope="module")
def one() -> Iterator[Talk]:
    with speaking(Speaker(ts.get_format("rwkv-universal"), [WEATHER])) as made:
        yield made


@pytest.fixture(scope="module")
def web() -> Iterator[httpx2.Client]:
    with httpx2.Client(verify=NO_TLS, timeout=20) as made:
        yield made


def ask(web: httpx2.Client, talk: Talk, items: list[Body] | str, *, stream: bool = False, **more: Any) -> Body:
    """The answer; of a stream what its last event says, which is what its other events say."""
    body = {"model": "m", "input": items, "tools": [TOOL], "stream": stream, "reasoning": {"effort": "medium"}} | more
    told = web.post(f"{talk.url}/v1/responses", json=body)
    assert 200 == told.status_code, told.text
    if not stream:
        answer: Body = told.json()
        return answer
    events = [json.loads(line[6:]) for line in told.text.splitlines() if line.startswith("data: ")]
    last: Body = events[-1]["response"]
    done = [event["item"] for event in events if event["type"] == "response.output_item.done"]
    assert last["output"] == done
    assert ("encrypted_content" in told.text) == ("include" in more)
    return last


def spoken(talk: Talk) -> None:
    talk.speaker.clear()
    talk.speaker.say(thought(HM), call("get_weather", city="Rome"))
    talk.speaker.say(thought(SUN), text("Sunny."))
    talk.speaker.say(thought("Nothing more."), text("Bye."))


def lead(
    web: httpx2.Client, talk: Talk, echo: Echo, *, stream: bool, between: Callable[[], None] = lambda: None, **more: Any
) -> list[Body]:
    """Three turns. Returns the thoughts as they were told."""
    spoken(talk)
    items: list[Body] = [{"role": "user", "content": f"Weather in Rome, {echo.__name__} {stream} {more}?"}]
    told: list[Body] = []
    for turn in range(3):
        answer = ask(web, talk, items, stream=stream, **more)
        told += [item for item in answer["output"] if item["type"] == "reasoning"]
        items += echo(answer)
        if turn == 0:
            called = answer["output"][-1]["call_id"]
            items.append({"type": "function_call_output", "call_id": called, "output": "sunny"})
        else:
            items.append({"role": "user", "content": f"And {turn}?"})
        between()
    assert [] == talk.speaker.failures
    return told


def grew(talk: Talk) -> bool:
    """Whether each prompt begins with the one before and what was written for it."""
    said = talk.speaker.said
    return 3 == len(said) and all(
        after.prompt.startswith(before.prompt + before.written.rstrip()) for before, after in pairwise(said)
    )


def thinks(talk: Talk) -> bool:
    """Whether each prompt has all thoughts so far, though the calls between them may be spelled anew."""
    _, second, third = talk.speaker.said
    return HM in second.prompt and HM in third.prompt and SUN in third.prompt


@pytest.mark.deep
@pytest.mark.parametrize(("echo", "store"), CASES, ids=lambda one: getattr(one, "__name__", f"store={one}"))
@pytest.mark.parametrize("summary", [None, "auto"])
def test_without_seals_a_session_only_grows(
    talk: Talk, web: httpx2.Client, echo: Echo, store: bool | None, summary: str | None
) -> None:
    number = CASES.index((echo, store)) + ts.formats().index(talk.speaker.format.name)
    more: Body = {} if store is None else {"store": store}
    if summary is not None:
        more["reasoning"] = {"effort": "medium", "summary": summary}
    thoughts = lead(web, talk, echo, stream=number % 2 == 0, **more)
    assert [HM, SUN] == [item["content"][0]["text"].strip() for item in thoughts][:2]
    assert not any("encrypted_content" in item for item in thoughts)
    assert grew(talk)


@pytest.mark.parametrize("stream", [True, False], ids=["stream", "whole"])
@pytest.mark.parametrize("store", [True, False])
def test_seals_that_are_asked_for_bring_a_thought_back_alone(
    one: Talk, web: httpx2.Client, stream: bool, store: bool
) -> None:
    def sealed(body: Body) -> list[Body]:
        items = whole(body)
        for item in items:
            if item["type"] == "reasoning":
                assert item.pop("content")
                item |= {"id": "rs_other", "content": None, "summary": []}
        return items

    def forget() -> None:
        one.gateway.service.memory = Memory()

    thoughts = lead(web, one, sealed, stream=stream, store=store, between=forget, **SEALED)
    assert all(item["encrypted_content"].startswith("ts1.") for item in thoughts)
    assert thinks(one)


@pytest.mark.parametrize(("echo", "store"), FORGOTTEN, ids=lambda one: getattr(one, "__name__", f"store={one}"))
def test_what_is_not_remembered_comes_back_by_its_text_or_its_id(
    one: Talk, web: httpx2.Client, echo: Echo, store: bool | None
) -> None:
    def forget() -> None:
        one.gateway.service.memory = Memory()

    lead(web, one, echo, stream=False, between=forget, **({} if store is None else {"store": store}))
    assert thinks(one)


def test_a_thought_that_was_named_once_is_there_for_whoever_goes_on_from_its_answer(
    one: Talk, web: httpx2.Client
) -> None:
    spoken(one)
    first = ask(web, one, "Weather in Rome, named?")
    result = {"type": "function_call_output", "call_id": first["output"][-1]["call_id"], "output": "sunny"}
    asked = [{"role": "user", "content": "Weather in Rome, named?"}, *by_id(first), result]
    second = ask(web, one, asked)
    one.gateway.service.memory = Memory()
    ask(web, one, "And now?", previous_response_id=second["id"])
    assert thinks(one)


@pytest.mark.parametrize("stream", [True, False], ids=["stream", "whole"])
def test_an_answer_that_is_gone_on_from_has_its_thoughts(one: Talk, web: httpx2.Client, stream: bool) -> None:
    spoken(one)
    first = ask(web, one, f"Weather in Rome, {stream}?", stream=stream)
    result = {"type": "function_call_output", "call_id": first["output"][-1]["call_id"], "output": "sunny"}
    second = ask(web, one, [result], stream=stream, previous_response_id=first["id"])
    one.gateway.service.memory = Memory()
    ask(web, one, "And?", stream=stream, previous_response_id=second["id"])
    assert thinks(one)


def test_a_thought_of_an_id_that_is_not_kept_here_is_taken_as_it_is(one: Talk, web: httpx2.Client) -> None:
    one.speaker.clear()
    one.speaker.say(text("Fine."))
    foreign = {"type": "reasoning", "id": "rs_of_another_server", "summary": []}
    asked: list[Body] = [{"role": "user", "content": "Hi"}, foreign, {"role": "assistant", "content": "Yes?"}]
    assert "Fine." in json.dumps(ask(web, one, [*asked, {"role": "user", "content": "Well?"}])["output"])


@pytest.mark.parametrize("include", [None, [], ["message.output_text.logprobs"], ["web_search_call.action.sources"]])
def test_whatever_else_is_asked_to_be_included_seals_are_not(one: Talk, web: httpx2.Client, include: Any) -> None:
    spoken(one)
    answer = ask(web, one, f"Weather in Rome, {include}?", include=include)
    assert "encrypted_content" not in json.dumps(answer)
