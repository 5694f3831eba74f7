"""Owns the tests of turns of several messages, written as Chat messages: no message comes between calls and results."""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from typing import Any

import pytest

import turnscript
from tests.growth import assert_grows_below

Messages = list[dict[str, Any]]


def of_messages(*contents: Any) -> dict[str, Any]:
    """A body of Messages: what the assistant said, each a message of its own, and then the results of its calls."""
    said = [{"role": "assistant", "content": content} for content in contents]
    ids = [block["id"] for content in contents for block in content if block["type"] == "tool_use"]
    results = [{"type": "tool_result", "tool_use_id": id_, "content": f"of {id_}"} for id_ in ids]
    asked = {"role": "user", "content": "Both, please."}
    return {"model": "m", "max_tokens": 9, "messages": [asked, *said, {"role": "user", "content": results}]}


def call(id_: str) -> dict[str, Any]:
    return {"type": "tool_use", "id": id_, "name": "f", "input": {}}


def text(said: str) -> dict[str, Any]:
    return {"type": "text", "text": said}


def written(body: dict[str, Any], api: str) -> tuple[Messages, list[str]]:
    rendered = turnscript.convert(body, api, "openai-chat")
    return rendered.value["messages"], [str(loss) for loss in rendered.losses]


def shape(messages: Messages) -> list[Any]:
    """Each message: the text and the ids of an assistant's, the id of a result, or its role."""
    told: list[Any] = []
    for message in messages:
        if message["role"] == "assistant":
            told.append((message["content"], *[one["id"] for one in message.get("tool_calls", ())]))
        else:
            told.append(message.get("tool_call_id", message["role"]))
    return told


def test_calls_in_two_messages_of_one_turn_become_one_message_with_its_results_behind_it() -> None:
    messages, losses = written(of_messages([text("First."), call("a")], [call("b")]), "anthropic-messages")
    assert ["user", ("First.", "a", "b"), "a", "b"] == shape(messages)
    detail = "one message with the calls before it, because the results of both come behind it"
    assert [f"$.messages[2].content[0]: approximated: {detail}"] == losses


def test_a_text_between_calls_moves_in_front_of_them() -> None:
    messages, losses = written(of_messages([call("a")], [text("And."), call("b")]), "anthropic-messages")
    assert ["user", ("And.", "a", "b"), "a", "b"] == shape(messages)
    assert ["$.messages[2]: moved: one message holds its text before its calls"] == losses


@pytest.mark.parametrize("behind", [True, False])
def test_items_of_responses_between_calls_and_their_outputs_do_the_same(behind: bool) -> None:
    spoken = {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "And."}]}
    calls = [{"type": "function_call", "call_id": id_, "name": "f", "arguments": "{}"} for id_ in "ab"]
    outputs = [{"type": "function_call_output", "call_id": id_, "output": f"of {id_}"} for id_ in "ab"]
    said = [*calls, spoken] if behind else [calls[0], spoken, calls[1]]
    body = {"model": "m", "input": [{"role": "user", "content": "Both, please."}, *said, *outputs]}
    messages, losses = written(body, "openai-responses")
    assert ["user", ("And.", "a", "b"), "a", "b"] == shape(messages)
    place = 3 if behind else 2
    assert [f"$.input[{place}]: moved: one message holds its text before its calls"] == losses


def test_messages_without_calls_and_calls_that_nobody_answers_stay_apart() -> None:
    messages, losses = written(of_messages([text("One.")], [text("Two."), call("a")]), "anthropic-messages")
    assert ["user", ("One.",), ("Two.", "a"), "a"] == shape(messages)
    assert [] == losses
    body = of_messages([call("a")], [text("Never mind.")])
    body["messages"][-1] = {"role": "user", "content": "Go on."}
    messages, losses = written(body, "anthropic-messages")
    assert ["user", (None, "a"), ("Never mind.",), "user"] == shape(messages)
    assert [] == losses


def test_a_request_of_this_api_and_the_seed_profile_keep_their_messages() -> None:
    body = of_messages([call("a")], [call("b")])
    seed = turnscript.convert(body, "anthropic-messages", "openai-chat", profile="seed").value["messages"]
    assert ["user", "assistant", "assistant"] == [message["role"] for message in seed[:3]]
    own = turnscript.convert(body, "anthropic-messages", "openai-chat").value
    own["messages"][1:2] = [own["messages"][1] | {"tool_calls": [one]} for one in own["messages"][1]["tool_calls"]]
    assert own == turnscript.convert(own, "openai-chat", "openai-chat").value


def test_many_messages_of_one_turn_take_time_in_proportion() -> None:
    def work(size: int) -> Callable[[], object]:
        body = of_messages(*[[call(f"c{index}")] for index in range(size)])
        return lambda: written(body, "anthropic-messages")

    assert_grows_below(10, work, 200, 800)


def test_calls_and_results_without_ids_are_one_message_with_its_results_behind_it() -> None:
    """Their ids are made when they are written, and made alike for a call and its result."""
    said: list[turnscript.Part] = [turnscript.Text(text="Now.")]
    call_ = turnscript.ToolCall(name="f", arguments="{}")
    result = turnscript.ToolResult(name="f", content=said)
    items = [turnscript.User(content=said), call_, turnscript.Assistant(content=said), copy(call_), result]
    items.append(copy(result))
    messages = turnscript.render(turnscript.Request(conversation=turnscript.Conversation(items)), "openai-chat").value[
        "messages"
    ]
    (user, assistant, *results) = shape(messages)
    assert ("user", "Now.", list(assistant[1:])) == (user, assistant[0], results)
