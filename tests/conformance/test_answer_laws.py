"""Owns the laws of how an answer is told: begun early, kept alive, under a server's own id, without foreign members."""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given

import turnscript as ts
from tests.conformance.examples import fewer
from tests.strategies import events as strategies
from turnscript.apis.api import Api, Reply
from turnscript.core import errors
from turnscript.core.errors import TurnscriptError
from turnscript.core.events import Event, unfold

FEWER = fewer()
CHATS = ["openai-chat", "openai-responses", "anthropic-messages"]
TOLD: list[Event] = strategies.told(
    ts.Response(items=[ts.Assistant(content=[ts.Text(text="Hello")])], finish_reason="stop"), strategies.in_pieces(2)
)


def asked() -> ts.Request:
    request = ts.Request(conversation=ts.Conversation(items=[ts.User(content=[ts.Text(text="Hi")])]))
    request.settings.model, request.settings.stream = "the-client's-word", True
    return request


def parsed(api: Api, data: bytes) -> ts.Response:
    parser = api.stream_parser()
    return ts.fold([*parser.feed(data), *parser.close()])


# The beginning of a stream, and waiting.


@FEWER
@given(told=strategies.event_lists())
def test_a_stream_that_was_begun_early_is_the_same_stream(api_name: str, told: list[Event]) -> None:
    api, reply = ts.get_api(api_name), Reply(id="x1")
    early, late = api.stream_renderer(asked(), reply), api.stream_renderer(asked(), reply)
    end = told[-1]
    assert isinstance(end, ts.MessageEnd)
    end.model = None  # which would be said in the first event, where it is known by then
    data = early.start() + early.start() + b"".join([early.send([event]) for event in told]) + early.close()
    assert late.send(told) + late.close() == data
    assert late.losses == early.losses


@pytest.mark.parametrize("name", CHATS)
def test_the_first_bytes_are_there_before_any_event(name: str) -> None:
    renderer = ts.get_api(name).stream_renderer(asked())
    assert b"the-client's-word" in renderer.start()


def test_signs_of_life_change_nothing_wherever_they_stand(api_name: str) -> None:
    api = ts.get_api(api_name)
    renderer = api.stream_renderer(asked())
    beats = [renderer.idle()]
    data = beats[0] + renderer.start()
    for event in TOLD:
        beats.append(renderer.idle())
        data += beats[-1] + renderer.send([event])
    data += renderer.close() + renderer.idle()
    assert len([beat for beat in beats if beat]) >= len(TOLD)
    found = parsed(api, data)
    assert ("Hello", []) == (ts.fold(TOLD).items and strategies.content_of(found.items[0]), found.issues)


def test_after_an_end_there_is_no_sign_of_life(api_name: str) -> None:
    api = ts.get_api(api_name)
    ended, failed = api.stream_renderer(asked()), api.stream_renderer(asked())
    ended.send(TOLD)
    ended.close()
    failed.fail(errors.BackendDown("gone"))
    assert [b"", b"", b"", b""] == [ended.idle(), ended.start(), failed.idle(), failed.start()]


# What a server decides.


def test_the_servers_id_and_time_go_before_those_of_the_response(api_name: str) -> None:
    api, reply = ts.get_api(api_name), Reply(id="given", created=1234)
    response = ts.fold(TOLD)
    response.id = "other"
    whole: Any = api.render_response(response, asked(), reply=reply).value
    renderer = api.stream_renderer(asked(), reply)
    told: list[Event] = [*TOLD[:-1], ts.MessageEnd("stop", id="other")]
    data = renderer.send(told) + renderer.close()
    assert ("given", b"other" in data) == (whole.get("id", whole.get("responseId")), False)
    assert b'"given"' in data
    assert not [loss for loss in renderer.losses if loss.path == "$.id"]
    times = {value for key, value in whole.items() if key.startswith("created")}
    assert times in (set(), {1234})
    assert (b"1234" in data) == bool(times)


def test_a_stream_that_cannot_have_the_id_of_its_answer_says_so(api_name: str) -> None:
    renderer = ts.get_api(api_name).stream_renderer(asked())
    told: list[Event] = [*TOLD[:-1], ts.MessageEnd("stop", id="other")]
    assert b"other" not in b"".join([renderer.send([event]) for event in told])
    assert ["renamed"] == [loss.kind for loss in renderer.losses if loss.path == "$.id"]


# Members of other APIs.


def marked(**members: Any) -> dict[str, Any]:
    return {**members, "x_own": "MARK"}


BODIES: dict[str, Callable[[], dict[str, Any]]] = {
    "openai-chat": lambda: marked(
        id="c",
        object="chat.completion",
        created=1,
        model="m",
        system_fingerprint="MARK",
        service_tier="MARK",
        usage=marked(prompt_tokens=1, completion_tokens=1, total_tokens=2),
        choices=[
            marked(
                index=0,
                finish_reason="tool_calls",
                message=marked(
                    role="assistant",
                    content=[marked(type="text", text="a")],
                    tool_calls=[marked(id="1", type="function", function=marked(name="f", arguments="{}"))],
                ),
            )
        ],
    ),
    "openai-responses": lambda: marked(
        id="r",
        object="response",
        status="completed",
        model="m",
        service_tier="MARK",
        usage=marked(input_tokens=1, output_tokens=1, total_tokens=2),
        output=[
            marked(type="reasoning", id="rs", summary=[], content=[marked(type="reasoning_text", text="t")]),
            marked(type="message", id="m", role="assistant", content=[marked(type="output_text", text="a")]),
            marked(type="function_call", id="fc", call_id="1", name="f", arguments="{}"),
            marked(type="web_search_call", id="ws", status="completed"),
        ],
    ),
    "anthropic-messages": lambda: marked(
        id="msg",
        type="message",
        role="assistant",
        model="m",
        service_tier="MARK",
        usage=marked(input_tokens=1, output_tokens=1),
        stop_reason="tool_use",
        content=[
            marked(type="thinking", thinking="t", signature="s"),
            marked(type="text", text="a"),
            marked(type="tool_use", id="1", name="f", input={}),
            marked(type="server_tool_use", id="2", name="web_search", input={}),
        ],
    ),
}


def events_of(response: ts.Response) -> list[Event]:
    """A whole response as the events that a parser of streams gives."""
    told = strategies.told(response, strategies.in_pieces(9))
    for event in told:
        if isinstance(event, ts.PartEnd | ts.MessageEnd):
            event.origin = response.origin
    return told


@pytest.mark.parametrize("name", CHATS)
def test_members_of_another_api_are_reported_and_never_written(name: str, other_name: str) -> None:
    response = ts.get_api(name).parse_response(json.dumps(BODIES[name]()))
    api = ts.get_api(other_name)
    rendered = api.render_response(response, asked())
    renderer = api.stream_renderer(asked())
    streamed = renderer.send(events_of(response)) + renderer.close()
    own = name == other_name
    assert (own, own) == (b"MARK" in rendered.data, b"MARK" in streamed)
    if own:
        assert 0 == len([loss for loss in rendered.losses if loss.path.endswith("x_own")])
        return
    for losses in (rendered.losses, renderer.losses):
        paths = [loss.path for loss in losses]
        assert {"$.x_own", "$.service_tier"} <= set(paths)
        assert [] == [item.at for item in response.items if not any(path.startswith(item.at) for path in paths)]


@pytest.mark.parametrize("name", CHATS)
def test_a_parser_says_whose_members_it_read(name: str) -> None:
    api = ts.get_api(name)
    assert api.origin == api.parse_response(json.dumps(BODIES[name]())).origin
    parser = api.stream_parser()
    renderer = api.stream_renderer(asked())
    events = parser.feed(renderer.send(TOLD) + renderer.close())
    assert {api.origin} == {event.origin for event in events if isinstance(event, ts.PartEnd | ts.MessageEnd)}
    assert api.origin == ts.fold(events).origin


# Errors.

FAILURES: list[TurnscriptError] = [
    errors.ContextOverflow(9, 8),
    errors.Unauthorized("no key"),
    errors.Forbidden("not yours"),
    errors.NotFound("response", "r"),
    errors.Conflict("again"),
    errors.TooLarge(8, 9),
    errors.RateLimited("slow down", 1.5),
    errors.Overloaded("full", 2),
    errors.Timeout("slow"),
    errors.UpstreamTimeout("slow", upstream=504),
    errors.BackendDown("gone", retry_after=3),
    errors.UpstreamError("odd", upstream=429, body="b", retryable=True, retry_after=4),
    errors.Unsupported("sound", "x", path="$.a"),
]


@pytest.mark.parametrize("error", FAILURES, ids=lambda error: type(error).__name__)
def test_an_error_survives_a_pickle(error: TurnscriptError) -> None:
    again = pickle.loads(pickle.dumps(error))
    assert (type(error), str(error), vars(error), error.args) == (type(again), str(again), vars(again), again.args)


def test_every_error_class_stands_in_the_tree_with_its_status() -> None:
    tree = errors.__doc__ or ""
    classes = [one for one in vars(errors).values() if isinstance(one, type) and issubclass(one, TurnscriptError)]
    public = [one for one in classes if not one.__name__.startswith("_")]
    assert len(public) >= 20
    for one in public:
        assert f" {one.__name__} " in f"{tree} ".replace("\n", " "), one
    assert len(public) == len({one.code for one in public})


@pytest.mark.parametrize("error", FAILURES, ids=lambda error: type(error).__name__)
def test_every_api_says_every_error_and_names_the_request(api_name: str, error: TurnscriptError) -> None:
    api = ts.get_api(api_name)
    status, body = api.render_error(error, request_id="req_1")
    assert 400 <= status < 600
    assert json.loads(body)["error"]["message"]
    headers = api.headers(error, request_id="req_1")
    assert ["req_1"] == [value for name, value in headers.items() if name.endswith("request-id")]
    assert api.headers(request_id="req_1").items() <= headers.items()
    assert {} == api.headers()
    wait = getattr(error, "retry_after", None)
    assert ("retry-after" in headers, "retry-after-ms" in headers) == ((wait is not None,) * 2)


def both_ways(api: Api, call: ts.ToolCall, gone: bytes) -> list[ts.Response]:
    """An answer with a call as a whole and as a stream, read back with a string of it empty."""
    answer = ts.Response(items=[call], finish_reason="tool_calls", model="m")
    renderer, parser = api.stream_renderer(asked()), api.stream_parser()
    data = renderer.send(unfold(answer)) + renderer.close()
    streamed = ts.fold(parser.feed(data.replace(gone, b"")) + parser.close())
    return [api.parse_response(api.render_response(answer, asked()).data.replace(gone, b"")), streamed]


@pytest.mark.parametrize("custom", [False, True])
@pytest.mark.parametrize("name", CHATS)
def test_a_call_without_a_name_is_not_told_but_shown_as_an_issue(name: str, custom: bool) -> None:
    """No client could run it."""
    call = ts.ToolCall(name="nobody", arguments='{"a": 1.0}', id="c1", custom=custom)
    for response in both_ways(ts.get_api(name), call, b"nobody"):
        assert [] == response.items
        assert ["invalid_call"] == [issue.kind for issue in response.issues]
        assert "1.0" in response.issues[0].detail


@pytest.mark.parametrize("name", CHATS)
def test_an_empty_id_of_a_call_is_none(name: str) -> None:
    """It would pair every call with every result."""
    for response in both_ways(ts.get_api(name), ts.ToolCall(name="f", arguments="{}", id="nobody"), b"nobody"):
        assert [("f", None)] == [(item.name, item.id) for item in response.items if isinstance(item, ts.ToolCall)]
        assert [] == response.issues
