"""Owns the test that losses of an answer name places that its source has, in the source's own words."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest

import turnscript as ts
from tests import messages
from turnscript.convert.recording import Recording, Retelling, stream_of
from turnscript.core.json_text import json_of
from turnscript.core.source_paths import NOT_HERE
from turnscript.core.sse import frame

CITATION = {"type": "url_citation", "url_citation": {"url": "u", "title": "t", "start_index": 0, "end_index": 1}}
TOKEN = {"token": "a", "bytes": [97], "logprob": -0.1, "top_logprobs": []}
ANSWERS: dict[str, dict[str, Any]] = {
    "openai-chat": {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "created": 17,
        "model": "up",
        "service_tier": "default",
        "choices": [
            {
                "index": 0,
                "finish_reason": "stop",
                "stop_reason": "END",
                "logprobs": {"content": [TOKEN], "refusal": None},
                "message": {
                    "role": "assistant",
                    "content": "Hi",
                    "refusal": "no",
                    "reasoning_content": "hm",
                    "annotations": [CITATION],
                    "tool_calls": [
                        {"id": "c 1", "type": "function", "function": {"name": "f", "arguments": "{}", "q": 1}, "z": 2},
                        {"id": "c2", "type": "custom", "custom": {"name": "g", "input": "free"}},
                        {"id": "c3", "type": "function", "function": {"name": "f", "arguments": "[1]"}},
                        {"id": "c4", "type": "mcp", "mcp": {}},
                    ],
                    "new": 1,
                },
                "also": 1,
            }
        ],
        "usage": {"prompt_tokens": 9, "completion_tokens": 5, "prompt_tokens_details": {"audio_tokens": 3}},
    },
    "openai-responses": {
        "id": "resp_1",
        "object": "response",
        "created_at": 17,
        "model": "up",
        "status": "completed",
        "output": [
            {
                "type": "reasoning",
                "id": "rs_1",
                "summary": [{"type": "summary_text", "text": "s"}],
                "content": [{"type": "reasoning_text", "text": "hm"}],
                "encrypted_content": "enc",
                "new": 1,
            },
            {
                "type": "message",
                "id": "msg_1",
                "role": "assistant",
                "status": "completed",
                "phase": "commentary",
                "content": [
                    {"type": "output_text", "text": "Hi", "annotations": [CITATION], "logprobs": [TOKEN], "new": 1},
                    {"type": "refusal", "refusal": "no", "new": 1},
                ],
            },
            {
                "type": "function_call",
                "id": "fc_1",
                "call_id": "c 1",
                "name": "f",
                "arguments": "[]",
                "namespace": "ns",
            },
            {"type": "custom_tool_call", "id": "ctc_1", "call_id": "c2", "name": "g", "input": "free"},
            {"type": "web_search_call", "id": "ws_1", "status": "completed"},
        ],
        "usage": {"input_tokens": 9, "input_tokens_details": {"z": 1}, "output_tokens": 5, "total_tokens": 14},
    },
    "anthropic-messages": {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": "up",
        "content": [
            {"type": "thinking", "thinking": "hm", "signature": "sig", "new": 1},
            {"type": "redacted_thinking", "data": "red"},
            {"type": "text", "text": "Hi", "citations": [{"type": "new"}], "new": 1},
            {"type": "tool_use", "id": "toolu_1", "name": "f", "input": {"a": 1.0}, "caller": {"type": "direct"}},
            {"type": "server_tool_use", "id": "srv", "name": "web_search", "input": {}},
        ],
        "stop_reason": "pause_turn",
        "stop_sequence": "END",
        "container": {"id": "c"},
        "usage": {"input_tokens": 6, "output_tokens": 5, "service_tier": "standard"},
    },
    "openai-completions": {
        "id": "cmpl-1",
        "object": "text_completion",
        "created": 17,
        "model": "up",
        "choices": [{"index": 0, "text": "Hi", "finish_reason": "stop", "stop_reason": "END", "new": 1}],
        "usage": {"prompt_tokens": 9, "completion_tokens": 5, "total_tokens": 14},
        "new": 1,
    },
}


def is_there(body: Any, path: str) -> bool:
    """Whether a body has something at a path."""
    if not path.startswith("$"):
        return False
    for member, index in re.findall(r"\.([^.\[]+)|\[(\d+)\]", path):
        try:
            body = body[member] if member else body[int(index)]
        except (LookupError, TypeError):
            return False
    return True


@pytest.mark.parametrize("target", ANSWERS)
@pytest.mark.parametrize("source", ANSWERS)
def test_what_an_answer_loses_stands_at_the_path_that_is_named(source: str, target: str) -> None:
    losses = ts.convert(json.dumps(ANSWERS[source]), source, target).losses
    wrong = [str(loss) for loss in losses if not is_there(ANSWERS[source], loss.path)]
    assert [] == wrong
    assert (source == target) or losses


@pytest.mark.parametrize("target", ["anthropic-messages", "openai-responses"])
def test_counts_of_none_and_what_proxies_leave_empty_are_no_losses(target: str) -> None:
    details = {
        "prompt_tokens_details": {"audio_tokens": 0, "cached_tokens": 0},
        "completion_tokens_details": {"z": None},
    }
    call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}, "caller": {"type": "direct"}}
    message = {"role": "assistant", "tool_calls": [call], "provider_specific_fields": {"citations": None}}
    choice = {"index": 0, "finish_reason": "tool_calls", "message": message, "provider_specific_fields": {}}
    body = {"id": "c", "choices": [choice], "usage": {"prompt_tokens": 9, "completion_tokens": 5, "none": 0, **details}}
    assert [] == ts.convert(body, "openai-chat", target).losses


def test_the_second_choice_is_named_by_its_own_path() -> None:
    body = json.loads(json.dumps(ANSWERS["openai-chat"]))
    body["choices"].append({"index": 1, "finish_reason": "stop", "message": {"role": "assistant", "refusal": "no"}})
    losses = ts.convert(json.dumps(body), "openai-chat", "openai-completions").losses
    assert [] == [str(loss) for loss in losses if loss.path != "$" and not is_there(body, loss.path)]


def test_each_choice_loses_what_is_its_own_and_the_body_loses_its_members_once() -> None:
    silent = {"index": 1, "text": "", "finish_reason": "stop", "stop_reason": "END", "zz": 1}
    body = ANSWERS["openai-completions"] | {"choices": [{"index": 0, "text": "Hi", "finish_reason": "stop"}, silent]}
    paths = [loss.path for loss in ts.convert(body, "openai-completions", "openai-chat").losses]
    assert {"$.choices[1]", "$.choices[1].zz"} <= set(paths)
    assert not [path for path in paths if path.startswith("$.choices[0]")]
    assert ["$.new"] == [path for path in paths if not path.startswith("$.choices")]


def told_again(source: str, target: str, data: bytes) -> Retelling:
    """A stream of one API, told again as one of another, to its end."""
    retelling = Retelling(Recording(ts.get_api(source)), ts.Request(), ts.get_api(target))
    retelling.feed(data)
    retelling.close()
    return retelling


@pytest.mark.parametrize("target", ANSWERS)
@pytest.mark.parametrize("source", ANSWERS)
def test_what_a_stream_loses_is_told_as_of_the_whole_answer(source: str, target: str) -> None:
    data, lost = stream_of(ts.parse_response(json.dumps(ANSWERS[source]), source), ts.Request(), ts.get_api(source))
    whole = ts.convert(data, source, target).losses
    again = told_again(source, target, data).losses
    assert [] == [str(loss) for loss in whole if (loss.path, loss.kind) not in {(one.path, one.kind) for one in again}]
    body = json.loads(ts.convert(data, source, source).data)
    assert [] == [str(loss) for loss in lost if not is_there(ANSWERS[source], loss.path)]
    assert [] == [str(loss) for loss in again if loss.kind != "invented" and not is_there(body, loss.path)]


CUT = {"type": "function_call", "id": "fc", "call_id": "c", "name": "f", "arguments": "{", "status": "incomplete"}
OVER = {"id": "r", "status": "incomplete", "incomplete_details": {"reason": "max_output_tokens"}, "output": [CUT]}
CHUNK = {"tool_calls": [{"index": 0, "id": "c", "type": "function", "function": {"name": "f", "arguments": "{"}}]}
CUT_CALLS: list[tuple[str, str, bytes]] = [
    (
        "openai-chat",
        "$.choices[0].message.tool_calls[0]",
        frame(json.dumps({"choices": [{"index": 0, "delta": CHUNK, "finish_reason": "length"}]})) + frame("[DONE]"),
    ),
    (
        "anthropic-messages",
        "$.content[1]",
        messages.stream(messages.start(), *messages.text(0, "Hi"), *messages.call(1, "{"), *messages.end("max_tokens")),
    ),
    (
        "openai-responses",
        "$.output[0]",
        frame(json.dumps({"type": "response.output_item.done", "output_index": 0, "item": CUT}))
        + frame(json.dumps({"type": "response.incomplete", "response": OVER})),
    ),
]


@pytest.mark.parametrize(("source", "place", "data"), CUT_CALLS)
def test_a_call_that_came_to_nothing_is_told_where_it_stood(source: str, place: str, data: bytes) -> None:
    paths = {loss.path for loss in told_again(source, "openai-chat", data).losses}
    assert place in paths
    assert not any(path.startswith("items") for path in paths)


LEGACY = {"role": "assistant", "content": None, "function_call": {"name": "f", "arguments": "{}"}}
BODIES = [
    *ANSWERS.items(),
    ("openai-chat", {"choices": [{"index": 0, "message": LEGACY, "finish_reason": "function_call"}]}),
    ("anthropic-messages", {"content": [{"type": "text", "text": ""}], "stop_reason": "end_turn"}),
]


def objects(value: Any, path: str = "$") -> Iterator[tuple[str, dict[str, Any]]]:
    """Every object in a value, and its path."""
    if isinstance(value, dict):
        yield path, value
    members = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, one in members:
        yield from objects(one, f"{path}.{key}" if isinstance(key, str) else f"{path}[{key}]")


def kept_or_lost(path: str, data: bytes, losses: list[ts.Loss]) -> bool:
    """Whether a member `zz` of the object there is in what was written, or a loss speaks of it or of what holds it."""
    said = b'"zz":"zz"' in data.replace(b"\\", b"").replace(b'": "', b'":"')
    return said or any(f"{path}.zz".startswith(loss.path) for loss in losses if loss.path != "$")


def is_unnamed(loss: ts.Loss) -> bool:
    return loss.detail.endswith(NOT_HERE)


@pytest.mark.parametrize("target", ANSWERS)
@pytest.mark.parametrize(("source", "body"), BODIES)
def test_a_member_anywhere_is_kept_or_lost_at_its_place(source: str, body: dict[str, Any], target: str) -> None:
    for index, (path, _) in enumerate(objects(body)):
        changed = json.loads(json.dumps(body))
        list(objects(changed))[index][1]["zz"] = "zz"
        rendered = ts.convert(changed, source, target)
        assert kept_or_lost(path, rendered.data, rendered.losses), path
        assert not {"$.choices", "$.choices[0]", "$.usage"} & {
            loss.path for loss in rendered.losses if is_unnamed(loss)
        }
        told, lost = stream_of(ts.parse_response(changed, source), ts.Request(), ts.get_api(target))
        assert kept_or_lost(path, told, lost), path


@pytest.mark.parametrize("target", [name for name in ANSWERS if name != "openai-completions"])
@pytest.mark.parametrize(
    ("source", "count"), [("openai-chat", "prompt_tokens"), ("anthropic-messages", "input_tokens")]
)
def test_a_count_that_was_told_alone_is_lost_by_its_name(source: str, count: str, target: str) -> None:
    body = ANSWERS[source] | {"usage": {count: 7}}
    losses = [loss for loss in ts.convert(body, source, target).losses if loss.path.startswith("$.usage")]
    assert ("$.usage" if source == target else f"$.usage.{count}") in [loss.path for loss in losses]
    empty = ts.convert(ANSWERS[source] | {"usage": {count: None}}, source, target).losses
    assert {"invented"} >= {loss.kind for loss in empty if loss.path.startswith("$.usage")}


SAID: list[ts.Item] = [
    ts.Assistant(content=[ts.Text(text="Hi")], id="i", name="Bob", phase="commentary"),
    ts.Thinking(content=[ts.Text(text="Hm")], id="r", of="reflect", signature="s", encrypted="e"),
    ts.Thinking(redacted="data"),
    ts.ToolCall(name="f", arguments="{}", id="c1", item_id="fc_1", namespace="ns"),
]


@pytest.mark.parametrize("name", [name for name in ts.apis() if name != "openai-completions"])
def test_what_has_no_place_in_an_answer_is_said_in_the_words_of_the_table(name: str) -> None:
    api = ts.get_api(name)
    for item in SAID:
        losses = api.render_response(ts.Response(items=[item], finish_reason="stop"), ts.Request()).losses
        words = api.unplaced.in_answers.said_by(item)
        told = [(field if field != "of" else "kind", kind, detail) for field, kind, detail in words]
        found = [(loss.path.removeprefix("items[0]."), loss.kind, loss.detail) for loss in losses]
        assert told == [one for one in found if one in told]
        assert {path for path, *_ in told} >= {path for path, *_ in found} & {"name", "phase", "id", "kind", "item_id"}


def test_a_text_that_was_built_by_hand_says_where_its_citations_are_lost() -> None:
    cited = {"type": "web_search_result_location", "url": "u", "title": "t", "cited_text": "c"}
    text = ts.Text(text="Hi", extra={"citations": json_of([cited])})
    response = ts.Response(items=[ts.Assistant(content=[text])], finish_reason="stop", origin="anthropic")
    losses = ts.get_api("openai-responses").render_response(response, ts.Request()).losses
    assert ["items[0].content[0].citations[0]"] == [loss.path for loss in losses]
