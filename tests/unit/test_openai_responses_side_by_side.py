"""Owns Responses streams whose items are told side by side, as servers that run tools themselves send them."""

from __future__ import annotations

import json
from typing import Any

import turnscript as ts
from turnscript.core.sse import frame

RESPONSES = ts.get_api("openai-responses")
CALL = {"type": "custom_tool_call", "id": "ctc_1", "call_id": "c1", "name": "x_search", "input": "q"}
SEARCH = {"type": "web_search_call", "id": "ws_1", "action": {"type": "search", "query": "q"}}
RESPONSE = {"id": "resp_1", "object": "response", "model": "m", "output": []}


def told(type_: str, **members: Any) -> bytes:
    return frame(json.dumps({"type": f"response.{type_}", **members}), f"response.{type_}")


def added(index: int, item: dict[str, Any]) -> bytes:
    begun = item | {"status": "in_progress"} | ({"input": ""} if "input" in item else {})
    return told("output_item.added", output_index=index, item=begun)


def done(index: int, item: dict[str, Any]) -> bytes:
    return told("output_item.done", output_index=index, item=item | {"status": "completed"})


def again(*events: bytes) -> tuple[list[str], list[tuple[str, str]]]:
    """The types of the output of the stream that is written of these events, and what was lost."""
    end = told("completed", response=RESPONSE | {"status": "completed"})
    parser = RESPONSES.stream_parser()
    data = told("created", response=RESPONSE | {"status": "in_progress"}) + b"".join(events) + end
    renderer = RESPONSES.stream_renderer(ts.Request(origin="openai-responses"), ts.Reply(id="resp_1"))
    out = renderer.send(parser.feed(data) + parser.close()) + renderer.close()
    last = [json.loads(line[6:]) for line in out.decode().split("\n") if line.startswith("data: ")][-1]
    return [one["type"] for one in last["response"]["output"]], [(one.path, one.kind) for one in renderer.losses]


def test_a_call_that_ends_behind_a_search_that_began_later_keeps_its_place() -> None:
    """As xAI's server tells its searches while a call of its own is open."""
    output, losses = again(added(0, CALL), added(1, SEARCH), done(1, SEARCH), done(0, CALL))
    assert ["custom_tool_call", "web_search_call"] == output
    assert [] == losses


def test_nothing_moves_where_items_come_one_behind_the_other() -> None:
    types = ["custom_tool_call", "web_search_call"]
    assert (types, []) == again(added(0, CALL), done(0, CALL), added(1, SEARCH), done(1, SEARCH))
    assert (types[::-1], []) == again(added(0, SEARCH), added(1, CALL), done(0, SEARCH), done(1, CALL))


def test_calls_side_by_side_stay_in_their_order() -> None:
    second = CALL | {"id": "ctc_2", "call_id": "c2"}
    output, losses = again(added(0, CALL), added(1, second), done(1, second), done(0, CALL))
    assert (["custom_tool_call"] * 2, []) == (output, losses)
