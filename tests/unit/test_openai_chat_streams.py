"""Reading streams of Chat Completions: cut anywhere they read the same, and an end that is none is an error."""

from __future__ import annotations

import json
import re
from functools import partial
from typing import Any

import pytest

from tests.chatstream import (
    API,
    CALLED,
    DONE,
    HELLO,
    STOP,
    asked,
    call_delta,
    chunk,
    read,
    until_error,
    well_formed,
)
from tests.growth import assert_grows_below
from turnscript.core.conversation import (
    Assistant,
    Opaque,
    Text,
    Thinking,
    ToolCall,
    Usage,
)
from turnscript.core.errors import UpstreamError
from turnscript.core.events import MessageEnd, PartDelta, PartEnd, PartStart, fold
from turnscript.core.json_text import plain
from turnscript.core.sse import frame


def test_thinking_text_and_calls_are_told_as_they_come() -> None:
    parser = API.stream_parser()
    assert [] == parser.feed(chunk({"role": "assistant", "content": ""}))
    assert [PartDelta(0, "hm")] == parser.feed(chunk({"reasoning_content": "hm"}))[1:]
    told_ = parser.feed(chunk({"content": "He"})) + parser.feed(chunk({"content": "y"}))
    assert [PartDelta(1, "He"), PartDelta(1, "y")] == [event for event in told_ if isinstance(event, PartDelta)]
    parser.feed(chunk(call_delta(0, "", id="c", type="function", name="f")))
    assert [PartDelta(2, '{"a"')] == parser.feed(chunk(call_delta(0, '{"a"')))
    assert [PartDelta(2, ":1}")] == parser.feed(chunk(call_delta(0, ":1}")))
    assert [] == parser.feed(CALLED)
    events = parser.feed(DONE)
    assert [PartEnd, MessageEnd] == [type(event) for event in events]
    assert [] == parser.feed(b"data: late\n\n") + parser.close()


def test_usage_is_read_from_the_trailing_chunk_and_from_a_last_chunk_with_choices() -> None:
    usage = {"prompt_tokens": 3, "completion_tokens": 2, "prompt_tokens_details": {"cached_tokens": 1}}
    trailing = frame(json.dumps({"choices": [], "usage": usage}))
    for data in (HELLO + STOP + trailing + DONE, HELLO + chunk({}, "stop", usage=usage, timings={"x": 1}) + DONE):
        assert Usage(3, 2, 1) == fold(read(data)).usage


def test_a_null_usage_beside_a_member_without_a_name_says_nothing_and_can_be_sent_on() -> None:
    bodies: list[dict[str, Any]] = [
        {"object": "chat.completion.chunk", "choices": [{"delta": {"content": "x"}}], "usage": None, "odd": 1},
        {"choices": [{"delta": {}, "finish_reason": "stop"}]},
        {"choices": [], "usage": {"prompt_tokens": 3, "completion_tokens": 2}},
    ]
    events = read(b"".join([frame(json.dumps(body)) for body in bodies]) + DONE)
    renderer = API.stream_renderer(asked())
    assert Usage(3, 2) == fold(read(renderer.send(events) + renderer.close())).usage


def test_a_stream_without_done_is_over_behind_its_finish_reason() -> None:
    assert "stop" == fold(read(HELLO + STOP)).finish_reason


@pytest.mark.parametrize(
    "order",
    [
        [(0, '{"a":1}'), (1, '{"b"'), (1, ":2}")],
        [(0, '{"a"'), (1, '{"b"'), (0, ":1}"), (1, ":2}")],
        [(1, '{"b"'), (0, '{"a"'), (1, ":2}"), (0, ":1}")],
    ],
)
def test_parallel_calls_do_not_overlap_however_their_pieces_are_mixed(order: list[tuple[int, str]]) -> None:
    seen: set[int] = set()
    data = HELLO
    for index, piece in order:
        head = {} if index in seen else {"id": f"c{index}", "type": "function", "name": f"f{index}"}
        seen.add(index)
        data += chunk(call_delta(index, piece, **head))
    events = read(data + CALLED + DONE)
    assert well_formed(events)
    found = {item.name: item.arguments for item in fold(events).items if isinstance(item, ToolCall)}
    assert {"f0": '{"a":1}', "f1": '{"b":2}'} == found


def test_the_first_call_goes_on_live_while_others_wait() -> None:
    parser = API.stream_parser()
    parser.feed(chunk(call_delta(0, '{"a"', id="c0", name="f")))
    assert [] == parser.feed(chunk(call_delta(1, '{"b":2}', id="c1", name="g")))
    assert [] == parser.feed(chunk({"content": "text"}))
    assert [PartDelta(0, ":1}")] == parser.feed(chunk(call_delta(0, ":1}")))
    events = parser.feed(CALLED + DONE)
    assert ["tool_call", "assistant"] == [event.part.kind for event in events if isinstance(event, PartStart)]


def test_pieces_for_a_call_that_was_complete_are_an_issue() -> None:
    data = chunk(call_delta(0, "{}", id="a", name="f")) + chunk({"content": "x"})
    response = fold(read(data + chunk(call_delta(0, "}")) + CALLED + DONE))
    assert ["late_arguments"] == [issue.kind for issue in response.issues]
    assert ["{}"] == [item.arguments for item in response.items if isinstance(item, ToolCall)]


def test_servers_that_repeat_id_and_name_or_share_an_index_are_understood() -> None:
    data = chunk(call_delta(0, "{", id="a", name="f", type="function"))
    data += chunk(call_delta(0, "}", id="a", name="f", type="function"))
    data += chunk(call_delta(0, '{"x":1}', id="b", name="g", type="function"))
    response = fold(read(data + CALLED + DONE))
    expected = [ToolCall(name="f", arguments="{}", id="a"), ToolCall(name="g", arguments='{"x":1}', id="b")]
    assert expected == response.items
    assert ["call_index"] == [issue.kind for issue in response.issues]


def test_calls_without_an_index_are_told_apart_by_their_ids() -> None:
    entries = [{"id": "a", "function": {"name": "f", "arguments": "{}"}}]
    entries += [{"id": "b", "function": {"name": "g", "arguments": "{"}}, {"function": {"arguments": "}"}}]
    data = b"".join([chunk({"tool_calls": [entry]}) for entry in entries])
    expected = [ToolCall(name="f", arguments="{}", id="a"), ToolCall(name="g", arguments="{}", id="b")]
    assert expected == fold(read(data + CALLED + DONE)).items


@pytest.mark.parametrize("named", [{"index": 0, "id": ""}, {"index": 0}, {"id": ""}, {}])
@pytest.mark.parametrize("together", [False, True])
def test_whole_calls_without_ids_of_their_own_are_told_apart(named: dict[str, Any], together: bool) -> None:
    calls = [("get", '{"a":1}'), ("put", '{"b":2}'), ("put", '{"b":3}'), ("list", "{}")]
    entries = [named | {"function": {"name": name, "arguments": arguments}} for name, arguments in calls]
    lists = [entries] if together else [[entry] for entry in entries]
    response = fold(read(b"".join([chunk({"tool_calls": entries}) for entries in lists]) + CALLED + DONE))
    assert calls == [(item.name, item.arguments) for item in response.items if isinstance(item, ToolCall)]
    assert {"call_index"} >= {issue.kind for issue in response.issues}


def test_calls_of_one_delta_without_an_index_are_two_though_the_first_is_cut() -> None:
    entries = [{"function": {"name": name, "arguments": '{"a'}} for name in ("f", "g")]
    response = fold(read(chunk({"tool_calls": entries}) + CALLED + DONE))
    assert ["f", "g"] == [item.name for item in response.items if isinstance(item, ToolCall)]


@pytest.mark.parametrize("id_", ["", "a"])
def test_a_name_in_every_piece_of_a_call_is_one_call(id_: str) -> None:
    pieces = ["", '{"a":{"b":{}', "}", ',"c":{}', "}", "", "\n"]
    data = b"".join([chunk(call_delta(0, piece, id=id_, name="f")) for piece in pieces])
    (call,) = fold(read(data + CALLED + DONE)).items
    assert isinstance(call, ToolCall)
    assert "".join(pieces) == call.arguments


def test_a_name_that_comes_late_begins_the_call_late() -> None:
    parser = API.stream_parser()
    assert [] == parser.feed(chunk(call_delta(0, '{"a"', id="c")))
    events = parser.feed(chunk(call_delta(0, ":1}", name="f")))
    assert [PartStart, PartDelta, PartDelta] == [type(event) for event in events]
    assert [ToolCall(name="f", arguments='{"a":1}', id="c")] == fold(events + parser.feed(CALLED + DONE)).items


def test_a_call_without_a_name_is_none_and_an_issue() -> None:
    response = fold(read(chunk(call_delta(0, "{}", id="c")) + CALLED + DONE))
    assert ([], ["invalid_call"]) == (response.items, [issue.kind for issue in response.issues])


def test_a_call_that_the_limit_cut_off_ends_without_a_part() -> None:
    data = chunk(call_delta(0, '{"a":1}', id="a", name="f")) + chunk(call_delta(1, '{"b":"h', id="b", name="g"))
    events = read(data + chunk({}, "length") + DONE)
    assert well_formed(events)
    assert [True, False] == [event.part is not None for event in events if isinstance(event, PartEnd)]
    response = fold(events)
    assert ("length", ["unclosed_call"]) == (response.finish_reason, [issue.kind for issue in response.issues])


def test_a_custom_call_and_one_of_an_unknown_type_are_read_from_chunks() -> None:
    custom = {"index": 0, "id": "a", "type": "custom", "custom": {"name": "patch", "input": "*** "}}
    more = {"index": 0, "custom": {"input": "x"}}
    other = {"index": 1, "id": "b", "type": "web", "web": {"q": "a"}}
    data = b"".join(
        [chunk({"tool_calls": [entry]}) for entry in (custom, more, other, {"index": 1, "web": {"q": "b"}})]
    )
    response = fold(read(data + CALLED + DONE))
    assert ToolCall(name="patch", arguments="*** x", id="a", custom=True) == response.items[0]
    assert isinstance(response.items[1], Opaque)
    assert {"id": "b", "type": "web", "web": {"q": "ab"}} == plain(response.items[1].value)


@pytest.mark.parametrize(
    ("behind", "kinds"),
    [
        (chunk({"content": "!"}), ["late_content"]),
        (chunk({"reasoning_content": "!"}), ["late_content"]),
        (chunk(call_delta(0, "{}", id="c", name="f")), ["late_content"]),
        (chunk({}, "length"), ["changed_reason"]),
        (chunk({"content": ""}, "stop"), []),
        (chunk({"role": "assistant", "content": None, "tool_calls": []}), []),
    ],
)
def test_what_comes_behind_the_end_of_an_answer_is_an_issue(behind: bytes, kinds: list[str]) -> None:
    response = fold(read(HELLO + STOP + behind + DONE))
    assert kinds == [issue.kind for issue in response.issues]


def test_a_call_of_an_unknown_type_that_looks_like_a_function_is_kept_whole() -> None:
    data = chunk(call_delta(0, "{", id="b", type="mcp", name="f", server="s")) + chunk(call_delta(0, "}"))
    (item,) = fold(read(data + CALLED + DONE)).items
    assert isinstance(item, Opaque)
    inside = {"name": "f", "arguments": "{}"}
    assert {"id": "b", "type": "mcp", "server": "s", "function": inside} == plain(item.value)


def test_the_deprecated_call_is_read_from_chunks() -> None:
    data = chunk({"function_call": {"name": "f", "arguments": "{"}}) + chunk({"function_call": {"arguments": "}"}})
    response = fold(read(data + chunk({}, "function_call") + DONE))
    assert ["{}"] == [item.arguments for item in response.items if isinstance(item, ToolCall)]
    assert "tool_calls" == response.finish_reason


def test_members_without_a_name_are_gathered_from_all_chunks() -> None:
    def token(one: str) -> dict[str, Any]:
        return {"content": [{"token": one}], "refusal": None}

    data = b""
    for one in ("a", "b"):
        choice = {"index": 0, "delta": {"content": one, "audio": {"data": one}}, "logprobs": token(one)}
        data += frame(json.dumps({"choices": [choice], "system_fingerprint": "fp", "obfuscation": "xx"}))
    choice = {"index": 0, "delta": {"annotations": [1], "x": 1.0}, "finish_reason": "stop"}
    data += frame(json.dumps({"choices": [choice], "timings": {"n": 1.0}}))
    response = fold(read(data + DONE))
    assert {"system_fingerprint", "timings", "choices"} == response.extra.keys()
    assert b'{"n": 1.0}' == bytes(response.extra["timings"])
    choices = plain(response.extra["choices"])
    assert {"content": [{"token": "a"}, {"token": "b"}]} == {"content": choices["logprobs"]["content"]}
    assert {"audio": {"data": "ab"}, "annotations": [1], "x": 1.0} == choices["message"]


@pytest.mark.parametrize(
    "thoughts",
    [
        [{"reasoning_content": "a", "reasoning": "a"}, {"reasoning_content": "b", "reasoning": "b"}],
        [{"reasoning_content": "ab"}, {"content": ""}, {"reasoning": "ab"}],
    ],
)
def test_thoughts_under_two_names_are_told_once(thoughts: list[dict[str, Any]]) -> None:
    response = fold(read(b"".join([chunk(one) for one in thoughts]) + STOP + DONE))
    assert [Thinking(content=[Text(text="ab")])] == response.items
    assert "choices" not in response.extra  # or the end of a stream would say it again


def test_only_the_first_choice_is_read() -> None:
    second = frame(json.dumps({"choices": [{"index": 1, "delta": {"content": "no"}, "finish_reason": "stop"}]}))
    response = fold(read(HELLO + second + second + STOP + DONE))
    assert [Assistant(content=[Text(text="Hi")])] == response.items
    assert ["there are 2 choices; only $.choices[0] is read"] == [issue.detail for issue in response.issues]


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "before an answer began"),
        (b"<html>Bad gateway</html>", "before an answer began"),
        (DONE, "before an answer began"),
        (HELLO, "in the middle"),
        (HELLO + chunk({"content": "x"})[:-9], "cannot be read"),
        (HELLO + b"data: {\n\n" + STOP + DONE, "cannot be read"),
        (HELLO + b"data: 7\n\n" + STOP + DONE, "cannot be read"),
        (HELLO + b"data: {}\n\n" + STOP + DONE, r"\$.choices: required"),
        (HELLO + chunk({"content": 7}) + STOP + DONE, r"\$.choices\[0\].delta.content"),
        (HELLO + b"data: \xff\n\n" + STOP + DONE, "no UTF-8"),
        (HELLO + frame('{"error":{"message":"cut","code":503}}') + DONE, "cut"),
        (HELLO + frame('{"error":"cannot reshape"}'), "cannot reshape"),
        (HELLO + frame('{"message":"flat"}', "error") + STOP + DONE, "flat"),
        (HELLO + frame('{"choices":[],"error":{"message":"late"}}') + STOP + DONE, "late"),
        (HELLO + frame("[" * 100_000) + STOP + DONE, "cannot be read"),
    ],
)
def test_what_is_no_whole_stream_is_an_error_behind_what_was_good(data: bytes, message: str) -> None:
    for size in (0, 1):
        if size and len(data) > 10_000:
            continue
        parser = API.stream_parser()
        events, error = until_error(parser, [data] if not size else [bytes([byte]) for byte in data])
        assert re.search(message, str(error))
        assert not any(isinstance(event, MessageEnd) for event in events)
        assert (["Hi"] if data.startswith(HELLO) else []) == [
            event.text for event in events if isinstance(event, PartDelta)
        ]
        with pytest.raises(UpstreamError):
            parser.close()


@pytest.mark.parametrize("cut", range(0, 40, 3))
def test_a_body_that_ends_early_is_never_a_success(cut: int) -> None:
    data = HELLO + chunk({"content": "x"}) + STOP
    length = len(data) - len(STOP) - cut * 5
    error = until_error(API.stream_parser(), [data[: max(0, length)]])[1]
    assert error.retryable or "cannot be read" in str(error)


def test_a_stream_without_a_reason_but_done_is_an_issue() -> None:
    response = fold(read(HELLO + chunk(call_delta(0, '{"a"', id="c", name="f")) + DONE))
    assert response.finish_reason is None
    assert {"no_finish_reason", "unclosed_call"} == {issue.kind for issue in response.issues}
    assert [Assistant(content=[Text(text="Hi")])] == response.items


def test_a_line_of_a_megabyte_is_read() -> None:
    big = "é" * 500_000
    assert [Assistant(content=[Text(text=big)])] == fold(read(chunk({"content": big}) + STOP + DONE, 65536)).items


@pytest.mark.deep
def test_time_is_linear_in_deltas_and_in_calls() -> None:
    def deltas(count: int) -> bytes:
        return b"".join([chunk({"content": "ab"}) for _ in range(count)]) + STOP

    def mixed(count: int) -> bytes:
        data = chunk(call_delta(0, '{"x":"', id="c", name="f"))
        pieces = [
            chunk(call_delta(0, "y" * 50)) + chunk(call_delta(1 + at, "{}", id=f"c{at}", name="g"))
            for at in range(count)
        ]
        return data + b"".join(pieces) + chunk({}, "length")

    def named(count: int) -> bytes:
        first = chunk(call_delta(0, '{"x":"', id="", name="f"))
        deltas = [chunk(call_delta(0, "{}" * 50, id="", name="f")) for _ in range(count)]
        return first + b"".join(deltas) + chunk({}, "length")

    for make, count in ((named, 2000), (deltas, 2000), (mixed, 1000)):
        assert_grows_below(8, lambda size, make=make: partial(read, make(size), 4096), count, 4 * count)  # type: ignore[misc]
