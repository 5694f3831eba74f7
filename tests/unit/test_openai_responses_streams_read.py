"""Owns the unit tests of reading Responses streams: those of other servers, and broken ones."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import openai
import pytest
from hypothesis import given
from hypothesis import strategies as st
from openai import OpenAI

from tests.damage import damaged
from tests.growth import assert_grows_below
from tests.loopback import SSE, Loopback
from tests.responses import (
    CALL,
    TEXT,
    THOUGHT,
    TOOLED,
    answer,
    of_payloads,
    parsed,
    payloads,
    stream,
    without_made_up,
)
from tests.strategies import events as drawn
from turnscript.convert.registry import get_api
from turnscript.core.conversation import Assistant, Item, Opaque, Refusal, Text, ToolCall, Usage
from turnscript.core.errors import UpstreamError
from turnscript.core.events import Event, MessageEnd, PartDelta, PartEnd, PartStart, fold
from turnscript.core.json_text import json_of
from turnscript.core.sse import frame


@pytest.fixture(scope="module")
def loopback() -> Iterator[Loopback]:
    with Loopback() as server:
        yield server


@pytest.fixture(scope="module")
def client(loopback: Loopback) -> Iterator[OpenAI]:
    with OpenAI(api_key="-", base_url=f"{loopback.url}/v1", max_retries=0) as opened:
        yield opened


# Streams of other servers.

GOOD = payloads(stream(answer(THOUGHT, TEXT, CALL, reason="tool_calls", usage=Usage(input=1, output=2))))
ITEMS = [THOUGHT, TEXT, CALL]


def changed(change: Callable[[dict[str, Any]], dict[str, Any] | None]) -> bytes:
    """The good stream with each event changed, or left out where `change` gives None."""
    copies = [change(json.loads(json.dumps(body))) for body in GOOD]
    return of_payloads(*[body for body in copies if body is not None])


def without(*endings: str) -> bytes:
    return changed(lambda body: None if body["type"].endswith(endings) else body)


def without_member(name: str) -> bytes:
    return changed(lambda body: {key: value for key, value in body.items() if key != name})


@pytest.mark.parametrize(
    "data",
    [
        without(".delta"),
        without("_text.done", "part.done", "arguments.done"),
        without("content_part.added"),
        without("item.added", ".delta", "_text.done", "part.done", "part.added", "arguments.done"),
        without("in_progress"),
        without_member("sequence_number"),
        changed(lambda body: body | {"obfuscation": "xyz", "new": {"a": 1}}),
        b": comment\n\n" + changed(lambda body: body) + frame("[DONE]"),
        changed(lambda body: body).replace(b"\n", b"\r\n"),
    ],
    ids=range(9),
)
def test_a_stream_that_leaves_out_what_can_be_told_without_is_read_whole(data: bytes) -> None:
    response = fold(parsed(data))
    assert ITEMS == without_made_up(response.items, ITEMS)
    assert ("tool_calls", Usage(input=1, output=2), []) == (response.finish_reason, response.usage, response.issues)


def test_event_names_may_be_left_out_or_be_all_there_is() -> None:
    unnamed = b"".join(frame(json.dumps(body)) for body in GOOD)
    untyped = b"".join(
        frame(json.dumps({key: value for key, value in body.items() if key != "type"}), body["type"]) for body in GOOD
    )
    assert parsed(of_payloads(*GOOD)) == parsed(unnamed) == parsed(untyped)


@pytest.mark.parametrize("data", [without("response.created", "in_progress"), without("item.done")], ids=range(2))
def test_a_stream_that_leaves_out_what_the_order_asks_for_is_read_whole(data: bytes) -> None:
    assert ITEMS == without_made_up(fold(parsed(data)).items, ITEMS)


def test_items_that_are_never_done_are_taken_from_their_pieces_and_are_an_issue() -> None:
    def change(body: dict[str, Any]) -> dict[str, Any] | None:
        if body["type"] == "response.completed":
            body["response"]["output"] = []
        return None if body["type"].endswith("item.done") else body

    response = fold(parsed(changed(change)))
    assert ITEMS == without_made_up(response.items, ITEMS)
    assert {"missing_event"} == {issue.kind for issue in response.issues}


def test_a_call_whose_arguments_are_never_done_is_none() -> None:
    def change(body: dict[str, Any]) -> dict[str, Any] | None:
        if body["type"] == "response.completed":
            body["response"]["output"] = []
        return None if body["type"].endswith(("item.done", "arguments.done")) else body

    response = fold(parsed(changed(change)))
    assert [THOUGHT, TEXT] == without_made_up(response.items, [THOUGHT, TEXT])


def test_a_stream_of_its_last_event_alone_is_read_whole() -> None:
    response = fold(parsed(of_payloads(GOOD[0], GOOD[-1])))
    assert ITEMS == without_made_up(response.items, ITEMS)


def test_items_that_the_last_event_adds_are_told_and_are_an_issue() -> None:
    """As the official SDKs do, which take the last event for all of the answer."""
    whole = GOOD[-1]["response"]["output"]
    for known in range(1, len(whole)):
        told = [body for body in GOOD[:-1] if body.get("output_index", 0) < known]
        response = fold(parsed(of_payloads(*told, GOOD[-1])))
        assert ITEMS == without_made_up(response.items, ITEMS)
        assert "tool_calls" == response.finish_reason
        assert {"missing_event"} == {issue.kind for issue in response.issues}


def test_items_that_may_be_those_that_were_announced_are_left_out_and_are_an_issue() -> None:
    output = [one | {"id": f"other_{at}"} for at, one in enumerate(GOOD[-1]["response"]["output"])]
    response = fold(parsed(of_payloads(*GOOD[:-1], with_output(*output, {"type": "x"}))))
    assert ITEMS == without_made_up(response.items, ITEMS)
    assert "unannounced_item" in [issue.kind for issue in response.issues]


@pytest.mark.parametrize("added", [5, {"type": "message"}])
def test_an_item_of_the_last_event_alone_that_cannot_be_read_breaks_no_answer(added: Any) -> None:
    response = fold(parsed(of_payloads(*GOOD[:-1], with_output(*GOOD[-1]["response"]["output"], added))))
    assert ITEMS == without_made_up(response.items, ITEMS)
    assert ["unannounced_item"] == [issue.kind for issue in response.issues]


def with_output(*items: Any) -> dict[str, Any]:
    """The last event with these items."""
    return GOOD[-1] | {"response": GOOD[-1]["response"] | {"output": items}}


def test_items_that_the_last_event_leaves_out_are_kept_and_are_an_issue() -> None:
    body = GOOD[-1] | {"response": GOOD[-1]["response"] | {"output": GOOD[-1]["response"]["output"][:1]}}
    response = fold(parsed(of_payloads(*GOOD[:-1], body)))
    assert ITEMS == without_made_up(response.items, ITEMS)
    assert ["missing_item"] == [issue.kind for issue in response.issues]


@pytest.mark.parametrize("moved", ["response.output_item.added", "response.output_item.done"])
def test_an_item_that_is_done_at_another_index_is_told_once(moved: str) -> None:
    place = {"output_index": 0, "content_index": 0, "item_id": "msg_1"}
    item = {"type": "message", "id": "msg_1", "role": "assistant", "content": []}
    whole = item | {"content": [{"type": "output_text", "text": "Hi", "annotations": []}]}
    bodies = [
        {"type": "response.output_item.added", "output_index": 0, "item": item},
        {"type": "response.output_text.delta", "delta": "Hi", **place},
        {"type": "response.output_item.done", "output_index": 0, "item": whole},
    ]
    if moved.endswith("added"):
        del bodies[1]
    at = next(body for body in bodies if body["type"] == moved)
    at["output_index"] = 5
    end = GOOD[-1] | {"response": GOOD[-1]["response"] | {"output": [whole]}}
    response = fold(parsed(of_payloads(GOOD[0], *bodies, end)))
    assert ["Hi"] == [drawn.content_of(item) for item in response.items]
    assert ["changed_item"] == [issue.kind for issue in response.issues]


def test_hosted_tools_that_are_never_done_are_those_of_the_last_event() -> None:
    items = [{"type": "web_search_call", "id": f"ws_{number}", "status": "completed"} for number in range(2)]
    added = [
        {"type": "response.output_item.added", "output_index": number, "item": item}
        for number, item in enumerate(items)
    ]
    end = GOOD[-1] | {"response": GOOD[-1]["response"] | {"output": items}}
    response = fold(parsed(of_payloads(GOOD[0], *added, end)))
    assert [Opaque(type="web_search_call", value=json_of(item)) for item in items] == response.items


def test_an_item_that_is_not_what_its_pieces_said_is_an_issue() -> None:
    def change(body: dict[str, Any]) -> dict[str, Any]:
        if body["type"] == "response.output_text.delta":
            body["delta"] = "x"
        return body

    response = fold(parsed(changed(change)))
    assert ["changed_item"] == [issue.kind for issue in response.issues]
    assert ITEMS == without_made_up(response.items, ITEMS)


def test_a_refusal_behind_a_text_does_not_change_how_the_message_began() -> None:
    whole = Assistant(content=[Text(text="ab"), Refusal(text="No.")])
    events = parsed(stream([PartStart(0, Assistant()), PartEnd(0, whole), MessageEnd("stop")]))
    assert [[]] == [event.part.content for event in events if isinstance(event, PartStart)]  # type: ignore[attr-defined]
    assert [whole] == without_made_up(fold(events).items, [whole])


def test_a_refusal_that_is_announced_by_its_item_alone_is_one() -> None:
    item = {"type": "message", "role": "assistant", "id": "msg_1", "content": [{"type": "refusal", "refusal": "No."}]}
    done = {"type": "response.output_item.done", "output_index": 0, "item": item}
    start, delta, *_ = parsed(of_payloads(GOOD[0], done, GOOD[-1]))
    assert [Refusal(text="")] == start.part.content  # type: ignore[union-attr]
    assert PartDelta(0, "No.") == delta


def test_items_end_in_the_order_of_the_output() -> None:
    other = ToolCall(name="g", arguments="{}", id="call_2")
    starts = [PartStart(0, drawn.head_of(CALL)), PartStart(1, drawn.head_of(other))]
    data = stream([*starts, PartEnd(1, other), PartEnd(0, CALL), MessageEnd("tool_calls")])
    assert [0, 1] == [event.index for event in parsed(data) if isinstance(event, PartEnd)]


def test_a_cut_call_of_another_server_is_no_call() -> None:
    item = {
        "type": "function_call",
        "id": "fc_1",
        "call_id": "c",
        "name": "f",
        "arguments": '{"a',
        "status": "incomplete",
    }
    added = {
        "type": "response.output_item.added",
        "output_index": 0,
        "item": item | {"arguments": "", "status": "in_progress"},
    }
    done = {"type": "response.output_item.done", "output_index": 0, "item": item}
    end = {"status": "incomplete", "incomplete_details": {"reason": "max_output_tokens"}, "output": [item]}
    for told in ([added, done], [done], [added], []):
        events = parsed(of_payloads(GOOD[0], *told, {"type": "response.incomplete", "response": end}))
        response = fold(events)
        assert ([], "length") == (response.items, response.finish_reason)
        assert response.issues


@pytest.mark.parametrize("items", [[], [TEXT]], ids=["alone", "behind a text"])
def test_a_cut_call_of_the_last_event_alone_is_that_of_the_whole_response(items: list[Item]) -> None:
    cut = {"type": "function_call", "name": "f", "arguments": '{"a', "call_id": "c", "status": "incomplete"}
    told = payloads(stream(answer(*items, reason="length")))[-1]["response"]
    body = told | {"output": [*told["output"], cut]}
    response = fold(parsed(of_payloads({"type": "response.incomplete", "response": body})))
    whole = get_api("openai-responses").parse_response(json.dumps(body))
    assert response.cut is not None
    assert ("f", "c", '{"a') == (response.cut.name, response.cut.id, response.cut.arguments)
    assert (whole.items, whole.cut, whole.finish_reason) == (response.items, response.cut, response.finish_reason)


def test_a_refusal_is_announced_as_one() -> None:
    whole = Assistant(content=[Refusal(text="No.")])
    start = PartStart(0, Assistant(content=[Refusal(text="")]))
    events = parsed(stream([start, PartDelta(0, "No."), PartEnd(0, whole), MessageEnd("stop")]))
    assert [Refusal(text="")] == events[0].part.content  # type: ignore[union-attr]
    assert PartDelta(0, "No.") == events[1]


def test_hosted_tools_make_one_opaque_item_and_their_progress_nothing() -> None:
    item = {"type": "web_search_call", "id": "ws_1", "status": "completed", "action": {"type": "search", "query": "q"}}
    place = {"output_index": 0, "item_id": "ws_1"}
    end = GOOD[-1] | {"response": GOOD[-1]["response"] | {"output": [item]}}
    response = fold(
        parsed(
            of_payloads(
                GOOD[0],
                {"type": "response.output_item.added", "output_index": 0, "item": item | {"status": "in_progress"}},
                {"type": "response.web_search_call.searching", **place},
                {"type": "response.output_item.done", "output_index": 0, "item": item},
                end,
            )
        )
    )
    assert [Opaque(type="web_search_call", value=json_of(item))] == response.items
    assert [] == response.issues


def test_items_without_an_output_index_are_told_by_their_ids() -> None:
    """llama.cpp numbers nothing, and ends all calls together."""

    def change(body: dict[str, Any]) -> dict[str, Any]:
        return {key: value for key, value in body.items() if key not in ("output_index", "content_index")}

    calls = [ToolCall(name="f", arguments=f'{{"n": {number}}}', id=f"call_{number}") for number in (1, 2)]
    bodies = payloads(stream(answer(TEXT, *calls, reason="tool_calls")))
    late = [body for body in bodies if body["type"] == "response.output_item.done"]
    told = [body for body in bodies[:-1] if body not in late]
    response = fold(parsed(of_payloads(*map(change, [*told, *late, bodies[-1]]))))
    assert [TEXT, *calls] == without_made_up(response.items, [TEXT, *calls])
    assert [] == response.issues


def test_an_event_that_nobody_knows_is_one_issue() -> None:
    odd = {"type": "response.hologram.delta", "delta": "x"}
    response = fold(parsed(of_payloads(GOOD[0], odd, odd, *GOOD[1:])))
    assert ["unknown_event"] == [issue.kind for issue in response.issues]
    assert ITEMS == without_made_up(response.items, ITEMS)


def test_an_item_that_changes_its_name_is_an_issue() -> None:
    def change(body: dict[str, Any]) -> dict[str, Any]:
        if body["type"] == "response.output_item.done" and body["item"]["type"] == "function_call":
            body["item"]["call_id"] = "other"
        return body

    assert ["changed_item"] == [issue.kind for issue in fold(parsed(changed(change))).issues]


def test_a_call_that_loses_its_namespace_is_an_issue() -> None:
    call = ToolCall(name="read", arguments="{}", id="call_1", namespace="fs")
    bodies = payloads(stream(answer(call, reason="tool_calls"), TOOLED))
    for body in bodies:
        if body["type"] == "response.output_item.done":
            del body["item"]["namespace"]
    assert ["changed_item"] == [issue.kind for issue in fold(parsed(of_payloads(*bodies))).issues]


def test_a_last_event_that_says_something_else_than_was_done_is_an_issue() -> None:
    def change(body: dict[str, Any]) -> dict[str, Any]:
        if body["type"] == "response.completed":
            body["response"]["output"][1]["content"][0]["text"] = "Hello you"
        return body

    response = fold(parsed(changed(change)))
    assert ITEMS == without_made_up(response.items, ITEMS)
    assert ["changed_item"] == [issue.kind for issue in response.issues]


def test_a_response_that_ends_under_another_id_is_an_issue() -> None:
    """The SDKs refuse it: it may be the end of another answer."""
    end = GOOD[-1] | {"response": GOOD[-1]["response"] | {"id": "resp_other"}}
    response = fold(parsed(of_payloads(*GOOD[:-1], end)))
    assert ITEMS == without_made_up(response.items, ITEMS)
    assert (["changed_id"], "resp_other") == ([issue.kind for issue in response.issues], response.id)


def test_an_answer_without_any_output_is_an_issue() -> None:
    response = fold(parsed(of_payloads(GOOD[0], {"type": "response.completed", "response": {"status": "completed"}})))
    assert ([], ["missing_item"]) == (response.items, [issue.kind for issue in response.issues])


@pytest.mark.parametrize(("type_", "status"), [("completed", "incomplete"), ("incomplete", "completed")])
def test_of_two_words_about_the_end_the_worse_one_counts(type_: str, status: str) -> None:
    response = {"output": [], "status": status, "incomplete_details": {"reason": "max_output_tokens"}}
    assert "length" == fold(parsed(of_payloads({"type": f"response.{type_}", "response": response}))).finish_reason


# Streams that are broken.

ADDED = GOOD[:3]
BROKEN = {
    "nothing": b"",
    "early close": of_payloads(*GOOD[:-1]),
    "half an event": of_payloads(*GOOD)[:-80],
    "broken json": of_payloads(*ADDED) + b"data: {oops\n\n",
    "no object": of_payloads(*ADDED) + b"data: 7\n\n",
    "garbage": b"\xff\xfe\x00data: \xff\n\n",
    "a page": b"<html>502 Bad Gateway</html>",
    "only the end mark": frame("[DONE]"),
    "failed": of_payloads(GOOD[0], {"type": "response.failed", "response": {"status": "failed", "output": []}}),
    "failed in words": of_payloads(
        {"type": "response.completed", "response": {"output": [], "error": {"message": "x"}}}
    ),
    "flat error": of_payloads({"type": "error", "code": "server_error", "message": "x", "param": None}),
    "wrapped error": of_payloads(*ADDED, {"type": "error", "error": {"message": "x"}}),
    "bare error": of_payloads({"error": {"message": "x"}}),
    "end without response": of_payloads({"type": "response.completed"}),
    "end with a word": of_payloads({"type": "response.completed", "response": "x"}),
    "delta before its item": of_payloads(GOOD[0], *[body for body in GOOD if body["type"].endswith("_text.delta")]),
    "delta of another kind": of_payloads(
        *ADDED, {"type": "response.output_text.delta", "output_index": 0, "delta": "x"}
    ),
    "delta without a place": of_payloads(*ADDED, {"type": "response.reasoning_text.delta", "delta": "x"}),
    "delta without text": of_payloads(*ADDED, {"type": "response.reasoning_text.delta", "output_index": 0}),
    "delta that is a number": of_payloads(
        *ADDED, {"type": "response.reasoning_text.delta", "output_index": 0, "delta": 1}
    ),
    "part that is none": of_payloads(
        GOOD[0],
        {
            "type": "response.output_item.added",
            "output_index": 0,
            "item": {"type": "message", "role": "assistant", "content": []},
        },
        {"type": "response.content_part.added", "output_index": 0, "part": 7},
    ),
    "item done without an item": of_payloads(*ADDED, {"type": "response.output_item.done", "output_index": 0}),
    "item twice": of_payloads(*ADDED, ADDED[2]),
    "item without a place": of_payloads({"type": "response.output_item.added", "item": {}}),
    "item without an item": of_payloads({"type": "response.output_item.added", "output_index": 0}),
    "item without a name": of_payloads(
        {"type": "response.output_item.added", "output_index": 0, "item": {"type": "function_call", "arguments": ""}}
    ),
    "item done twice": of_payloads(*GOOD[:-1], GOOD[-2]),
    "item of another kind": of_payloads(
        *ADDED, {"type": "response.output_item.done", "output_index": 0, "item": {"type": "x", "id": "y"}}
    ),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_stream_is_an_upstream_error(name: str) -> None:
    with pytest.raises(UpstreamError) as caught:
        parsed(BROKEN[name])
    assert len(caught.value.body) <= 2000


def test_one_line_of_a_megabyte_is_read() -> None:
    words = "x" * 1_000_000
    whole = Assistant(content=[Text(text=words)])
    response = fold(
        parsed(stream([PartStart(0, Assistant()), PartDelta(0, words), PartEnd(0, whole), MessageEnd("stop")]))
    )
    assert [whole] == without_made_up(response.items, [whole])


@given(st.binary(max_size=300))
def test_random_bytes_are_never_a_good_answer(data: bytes) -> None:
    with pytest.raises(UpstreamError):
        parsed(data)


@given(st.data())
def test_a_stream_with_one_event_missing_changed_or_moved_never_raises_anything_else(data: st.DataObject) -> None:
    bodies: list[dict[str, Any]] = [dict(body) for body in GOOD]
    at = data.draw(st.integers(0, len(bodies) - 1))
    match data.draw(st.sampled_from(("drop", "twice", "move", "member"))):
        case "drop":
            del bodies[at]
        case "twice":
            bodies.insert(at, bodies[at])
        case "move":
            bodies.insert(data.draw(st.integers(0, len(bodies) - 1)), bodies.pop(at))
        case _:
            key = data.draw(st.sampled_from(sorted(bodies[at])))
            bodies[at][key] = data.draw(st.sampled_from((None, 1, "x", [], {})))
    try:
        response = fold(parsed(of_payloads(*bodies)))
    except UpstreamError:
        return
    found = [item.arguments for item in response.items if isinstance(item, ToolCall)]
    assert set(found) <= {CALL.arguments, "x", "1"}


def without_output(body: dict[str, Any]) -> dict[str, Any]:
    if body["type"] == "response.completed":
        body["response"]["output"] = []
    return body


ONCE = ("item.added", ".delta", "_text.done", "part.done", "part.added", "arguments.done")
SERVERS = {
    "all": GOOD,
    "no pieces": payloads(without(".delta")),
    "nothing done": payloads(without("item.done")),
    "done alone": payloads(without(*ONCE)),
    "the end alone": [GOOD[0], GOOD[-1]],
    "an empty end": payloads(changed(without_output)),
}


@pytest.mark.deep
@pytest.mark.parametrize("server", SERVERS)
def test_one_member_that_is_damaged_is_told_or_changes_nothing(server: str) -> None:
    """But for the content of a thought, which need not have one, and of a message, which may be a string."""
    bodies, wrong = SERVERS[server], []
    right = fold(parsed(of_payloads(*bodies)))
    assert ITEMS == without_made_up(right.items, ITEMS)
    for at, body in enumerate(bodies):
        for path, value, damage in damaged(body):
            try:
                response = fold(parsed(of_payloads(*bodies[:at], damage, *bodies[at + 1 :])))
            except UpstreamError:
                continue
            found = [(type(item), drawn.content_of(item)) for item in response.items]
            same = found == [(type(item), drawn.content_of(item)) for item in ITEMS]
            if not (response.issues or same or path[-1] == "content"):
                wrong.append((body["type"], path, value))
    assert [] == wrong


@pytest.mark.deep
def test_items_that_are_never_done_take_time_in_proportion() -> None:
    def reading(count: int) -> Callable[[], object]:
        items = [{"type": "message", "id": f"m{at}", "role": "assistant", "content": []} for at in range(count)]
        added = [
            {"type": "response.output_item.added", "output_index": at, "item": item} for at, item in enumerate(items)
        ]
        data = of_payloads(*added, {"type": "response.completed", "response": {"output": items}})
        assert count == len(fold(parsed(data)).items)
        return lambda: fold(parsed(data))

    assert_grows_below(8, reading, 1000, 4000)


@pytest.mark.deep
def test_reading_and_writing_take_time_in_proportion() -> None:
    def work(count: int) -> Callable[[], object]:
        told: list[Event] = [PartStart(0, Assistant()), *[PartDelta(0, "word ")] * count]
        told += [PartEnd(0, Assistant(content=[Text(text="word " * count)])), MessageEnd("stop")]
        return lambda: parsed(stream(told))

    assert_grows_below(8, work, 5_000, 20_000)


def test_the_sdk_refuses_what_this_parser_refuses(loopback: Loopback, client: OpenAI) -> None:
    for name in ("delta before its item", "bare error", "wrapped error", "broken json"):
        loopback.answer(BROKEN[name], SSE)
        with (
            pytest.raises((RuntimeError, openai.APIError, ValueError)),
            client.responses.stream(model="m", input="Hi") as streamed,
        ):
            streamed.get_final_response()
