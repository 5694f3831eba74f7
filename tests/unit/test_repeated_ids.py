"""Owns the law of ids that say which call is meant: no two calls have the same where servers refuse that."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import turnscript as ts
from tests.growth import assert_grows_below
from turnscript.core.call_pairing import distinct_ids

ASKED = {"role": "user", "content": "Go on"}


def called(*pairs: tuple[str, str]) -> dict[str, Any]:
    """A message that calls a tool for each id and name."""
    calls = [{"id": id_, "type": "function", "function": {"name": name, "arguments": "{}"}} for id_, name in pairs]
    return {"role": "assistant", "content": None, "tool_calls": calls}


def result(id_: str, said: str) -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": id_, "content": said}


def written(*messages: dict[str, Any]) -> ts.Rendered[Any]:
    return ts.convert({"model": "m", "messages": [*messages]}, "openai-chat", "anthropic-messages")


def pairs(body: dict[str, Any]) -> list[tuple[str, str]]:
    """Each call with what it was answered, as ids pair them."""
    blocks = [block for message in body["messages"] for block in message["content"]]
    said = {block["tool_use_id"]: block["content"] for block in blocks if block["type"] == "tool_result"}
    calls = [block for block in blocks if block["type"] == "tool_use"]
    assert len(calls) == len({call["id"] for call in calls})
    return [(call["name"], said.get(call["id"], "")) for call in calls]


def test_servers_that_begin_to_count_with_each_answer_are_told_apart() -> None:
    """`call_0` in each of them, say."""
    turns = [ASKED, called(("call_0", "f")), result("call_0", "1"), called(("call_0", "g")), result("call_0", "2")]
    rendered = written(*turns, called(("call_0", "h")), result("call_0", "3"))
    assert [("f", "1"), ("g", "2"), ("h", "3")] == pairs(rendered.value)
    assert ["renamed"] * 4 == [loss.kind for loss in rendered.losses if loss.path.startswith("$.messages")]


@pytest.mark.parametrize(
    ("messages", "expected"),
    [
        ([called(("a", "f"), ("a", "g")), result("a", "1"), result("a", "2")], [("f", "1"), ("g", "2")]),
        ([called(("a", "f")), ASKED, called(("a", "g")), result("a", "2")], [("f", ""), ("g", "2")]),
        ([called(("a", "f"), ("a-2", "g")), result("a-2", "2"), result("a", "1")], [("f", "1"), ("g", "2")]),
        (
            [called(("a", "f"), ("a-2", "g"), ("a", "h")), result("a", "1"), result("a", "3"), result("a-2", "2")],
            [("f", "1"), ("g", "2"), ("h", "3")],
        ),
        (
            [called(("c:1", "f")), result("c:1", "1"), called(("c:1", "g")), result("c:1", "2")],
            [("f", "1"), ("g", "2")],
        ),
    ],
    ids=["in one turn", "one without a result", "none twice", "a name that is taken", "characters"],
)
def test_each_result_stays_with_its_call(messages: list[dict[str, Any]], expected: list[tuple[str, str]]) -> None:
    assert expected == pairs(written(ASKED, *messages).value)


def test_a_request_of_the_same_api_goes_as_it_came() -> None:
    use = {"role": "assistant", "content": [{"type": "tool_use", "id": "a", "name": "f", "input": {}}]}
    body = {"model": "m", "max_tokens": 1, "messages": [ASKED, use, ASKED, use]}
    assert body == ts.convert(body, "anthropic-messages", "anthropic-messages", strict=True).value


def test_nor_has_an_answer_the_id_of_an_earlier_call() -> None:
    turns = {"model": "m", "max_tokens": 9, "messages": [ASKED]}
    answer = {
        "choices": [{"index": 0, "message": called(("call_0", "f"), ("call_0", "g")), "finish_reason": "tool_calls"}]
    }
    ids: list[str] = []
    for _ in range(2):
        request = ts.parse(turns, "anthropic-messages")
        said = ts.parse_response(answer, "openai-chat")
        rendered = ts.render(ts.Exchange(request, said), "anthropic-messages")
        assert {"renamed"} >= {loss.kind for loss in rendered.losses if "tool_calls" in loss.path}
        ids += [block["id"] for block in rendered.value["content"]]
        turns["messages"] = [ASKED, {"role": "assistant", "content": rendered.value["content"]}]
    assert "call_0" == ids[0]
    assert len(ids) == len(set(ids))


@pytest.mark.deep
def test_many_of_the_same_take_linear_time() -> None:
    def convert(turns: int) -> Callable[[], object]:
        messages = [message for _ in range(turns) for message in (called(("a", "f")), result("a", "1"))]
        return lambda: written(*messages)

    assert_grows_below(8, convert, 200, 800)


def test_they_do_in_an_answer_too() -> None:
    request = ts.parse({"model": "m", "max_tokens": 9, "messages": [ASKED]}, "anthropic-messages")

    def write(calls: int) -> Callable[[], object]:
        message = called(*[("a", "f")] * calls)
        said = ts.parse_response({"choices": [{"index": 0, "message": message}]}, "openai-chat")
        return lambda: ts.render(ts.Exchange(request, said), "anthropic-messages").data

    assert_grows_below(8, write, 1_000, 4_000)


def test_what_a_server_does_between_two_calls_begins_no_turn() -> None:
    """A search that OpenAI runs stands between calls of one answer, and the results come behind them all."""
    call = {"type": "function_call", "call_id": "c", "arguments": "{}"}
    search = {
        "type": "web_search_call",
        "id": "ws_1",
        "status": "completed",
        "action": {"type": "search", "query": "x"},
    }
    results = [{"type": "function_call_output", "call_id": "c", "output": said} for said in "12"]
    body = {"model": "m", "input": [ASKED, call | {"name": "f"}, search, call | {"name": "g"}, *results]}
    rendered = ts.convert(body, "openai-responses", "anthropic-messages")
    assert [("f", "1"), ("g", "2")] == pairs({"messages": rendered.value["messages"][1:]})


def test_what_a_server_does_between_two_calls_parts_no_message() -> None:
    """Chat wants the answers to all calls of a message right behind it, so parallel calls are one message."""
    calls = [{"type": "function_call", "call_id": id_, "name": "f", "arguments": "{}"} for id_ in "ab"]
    search = {
        "type": "web_search_call",
        "id": "ws_1",
        "status": "completed",
        "action": {"type": "search", "query": "x"},
    }
    results = [{"type": "function_call_output", "call_id": id_, "output": id_} for id_ in "ab"]
    body = {"model": "m", "input": [ASKED, calls[0], search, calls[1], *results]}
    rendered = ts.convert(body, "openai-responses", "openai-chat")
    messages = rendered.value["messages"]
    assert ["user", "assistant", "tool", "tool"] == [message["role"] for message in messages]
    assert ["a", "b"] == [call["id"] for call in messages[1]["tool_calls"]]
    assert ["$.input[2]"] == [loss.path for loss in rendered.losses]


def test_what_a_user_says_between_two_calls_begins_a_turn_whatever_it_is() -> None:
    """A result behind it answers the call behind it."""
    call = {"type": "tool_use", "id": "c", "input": {}}
    said = [
        {"role": "assistant", "content": [call | {"name": "f"}]},
        {"role": "user", "content": [{"type": "picture_of_tomorrow", "data": "x"}]},
        {"role": "assistant", "content": [call | {"name": "g"}]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c", "content": "2"}]},
    ]
    request = ts.parse({"model": "m", "max_tokens": 9, "messages": [ASKED, *said]}, "anthropic-messages")
    found = distinct_ids(request.items, lambda item: item.id or "")
    calls = [item for item in request.items if isinstance(item, ts.ToolCall)]
    (result_,) = [item for item in request.items if isinstance(item, ts.ToolResult)]
    assert found[id(calls[1])] == found[id(result_)]
