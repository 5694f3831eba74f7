"""Owns requests over a WebSocket: OpenAI's SDK is the client, and a bare one where it cannot do what a test needs."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import groupby
from pathlib import Path
from typing import Any

import openai
import pytest
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import ClientConnection, connect

from tests.gateway.scripted import HANG, Asked, Script
from tests.gateway.stage import WEATHER, Stage, answer, quiet, text_of_call
from turnscript.convert.registry import get_api
from turnscript.core.json_text import json_of, plain
from turnscript.gateway import sockets
from turnscript.gateway.keys import add_key

PATH = get_api("openai-responses").endpoint
TOOL = {"type": "function", "name": WEATHER.name, "parameters": plain(WEATHER.parameters or json_of({}))}
TERMINAL = ("response.completed", "response.incomplete", "response.failed", "error")


@pytest.fixture
def stage() -> Iterator[Stage]:
    with Stage() as made:
        yield made
        made.until(made.idle)  # nothing is held for who has left


@contextmanager
def opened(stage: Stage, path: str = PATH, **headers: str) -> Iterator[ClientConnection]:
    """A bare client."""
    with connect(stage.url.replace("http", "ws") + path, additional_headers=headers, max_size=None) as made:
        yield made


def ask(connection: ClientConnection, **members: Any) -> list[dict[str, Any]]:
    """What is sent for a request, up to its end."""
    connection.send(json.dumps({"type": "response.create", "model": "m", "store": False, "input": "Hi"} | members))
    return told(connection)


def told(connection: ClientConnection) -> list[dict[str, Any]]:
    """What is sent up to the next end."""
    events = [json.loads(connection.recv(20))]
    while events[-1]["type"] not in TERMINAL:
        events.append(json.loads(connection.recv(20)))
    return events


def said(events: list[dict[str, Any]]) -> Any:
    """The answer at the end."""
    assert events[-1]["type"] == "response.completed", events[-1]
    return events[-1]["response"]


def echoing(asked: Asked) -> Script:
    return answer(f"I read {len(asked.json['prompt'])} characters.")


@pytest.mark.filterwarnings("ignore:connect.. must be used as a context manager:DeprecationWarning")  # by the SDK
def test_the_sdk_is_told_the_events_of_a_stream(stage: Stage) -> None:
    stage.play(answer("He", "llo"), answer("Again"))
    client = openai.OpenAI(base_url=f"{stage.url}/v1", api_key="none")
    with client.responses.connect() as connection:
        for expected in ("Hello", "Again"):
            connection.response.create(model="m", input="Hi")
            events: list[Any] = []
            while not events or events[-1].type not in TERMINAL:
                events.append(connection.recv())
            assert [event.sequence_number for event in events] == list(range(len(events)))
            assert expected == events[-1].response.output_text
            assert expected == "".join(event.delta for event in events if event.type == "response.output_text.delta")


def test_the_events_are_those_of_a_post(stage: Stage) -> None:
    stage.play(answer("He", "llo"))
    body = {"model": "m", "input": "Hi", "store": False}
    streamed = stage.client.post(PATH, json=body | {"stream": True}).text
    posted = [json.loads(line.removeprefix("data: ")) for line in streamed.splitlines() if line.startswith("data: ")]
    with opened(stage) as connection:
        events = ask(connection)
    shapes = [[(event["type"], sorted(event)) for event in told] for told in (posted, events)]
    once = [[shape for shape, _ in groupby(told)] for told in shapes]  # deltas that come together are one
    assert once[0] == once[1]
    assert posted[-1]["response"].keys() == events[-1]["response"].keys()


@pytest.mark.parametrize("path", [PATH, PATH.removeprefix("/v1")])
def test_a_tool_loop_goes_on_from_an_answer_that_nobody_keeps(stage: Stage, path: str) -> None:
    stage.play(answer(text_of_call()), answer("Sunny."), answer("You asked of Paris."))
    with opened(stage, path) as connection:
        called = said(ask(connection, input="Weather in Paris?", tools=[TOOL]))
        result = {"type": "function_call_output", "call_id": called["output"][0]["call_id"], "output": "sun"}
        then = ask(connection, input=[result], tools=[TOOL], previous_response_id=called["id"])
        assert {called["id"]} == {one["response"]["previous_response_id"] for one in then if "response" in one}
        last = said(ask(connection, input="And what?", previous_response_id=said(then)["id"]))
    assert "You asked of Paris." == last["output"][0]["content"][0]["text"]
    prompt = stage.asks[0][-1].json["prompt"]
    assert [prompt.count(text) for text in ("Weather in Paris?", "sun\n", "Sunny.", "And what?")] == [1, 1, 1, 1]


def test_what_the_store_has_is_gone_on_from_by_any_connection(stage: Stage) -> None:
    stage.play_by(echoing)
    with opened(stage) as connection:
        first = said(ask(connection, input="Remember papaya.", store=True))
    with opened(stage) as connection:
        said(ask(connection, input="Which word?", previous_response_id=first["id"]))
    assert "papaya" in stage.asks[0][-1].json["prompt"]


def test_another_connection_does_not_know_what_nobody_keeps(stage: Stage) -> None:
    with opened(stage) as connection:
        first = said(ask(connection))
    with opened(stage) as connection:
        [error] = ask(connection, previous_response_id=first["id"])
        assert ("previous_response_not_found", 404) == (error["error"]["code"], error["status"])
        assert "Hello" == said(ask(connection))["output"][0]["content"][0]["text"]


def test_what_has_no_room_is_not_kept_and_keeps_nobody_out() -> None:
    long = "x" * 3000
    with Stage(server={"max_body": 4096, "max_body_total": 4096}) as stage:
        with opened(stage) as one, opened(stage) as other:
            first, second = said(ask(one, input=long)), said(ask(other, input=long))
            assert said(ask(one, previous_response_id=first["id"]))
            assert "previous_response_not_found" == ask(other, previous_response_id=second["id"])[0]["error"]["code"]
            assert 200 == stage.client.post(PATH, json={"model": "m", "input": long}).status_code
        stage.until(stage.idle)


def test_a_request_that_fails_forgets_what_it_goes_on_from(stage: Stage) -> None:
    with opened(stage) as connection:
        first = said(ask(connection))
        result = {"type": "function_call_output", "call_id": "call_missing", "output": "?"}
        [error] = ask(connection, input=[result], previous_response_id=first["id"])
        assert (400, "no tool call found" in error["error"]["message"]) == (error["status"], True)
        [error] = ask(connection, previous_response_id=first["id"])
        assert "previous_response_not_found" == error["error"]["code"]


def test_a_warm_up_is_answered_without_the_model(stage: Stage) -> None:
    stage.play_by(echoing)
    with opened(stage) as connection:
        warm = said(ask(connection, input="Remember papaya.", generate=False))
        assert ([], []) == (warm["output"], stage.asks[0])
        said(ask(connection, input="Which word?", previous_response_id=warm["id"]))
    assert "papaya" in stage.asks[0][0].json["prompt"]


@pytest.mark.parametrize(
    ("message", "error"),
    [
        ("{", "JSON"),
        ("[]", "object"),
        ("{}", "must be of the type response.create, found nothing"),
        ('{"type":"session.update"}', 'found "session.update"'),
        ('{"type":"response.create","input":7}', "$.input"),
        ('{"type":"response.create","input":"x","previous_response_id":7}', "$.previous_response_id"),
        (b'\xff{"type":"response.create"}', "JSON"),
        (b'{"type":"response.create","input":"\xff"}', "UTF-8"),
        ('{"type":"\\ud800"}', "surrogate"),
        ('{"type":"response.create","input":"x","previous_response_id":"\\ud800"}', "surrogate"),
        ('{"type":"response.create","input":' + "[" * 100_000 + "]" * 100_000 + "}", "nested"),
    ],
)
def test_what_is_no_request_is_told_and_the_connection_goes_on(stage: Stage, message: Any, error: str) -> None:
    with opened(stage) as connection:
        connection.send(message)
        [event] = told(connection)
        assert ("error", 400) == (event["type"], event["status"])
        assert error in event["error"]["message"] + str(event["error"]["param"])
        assert said(ask(connection))


def test_a_fault_of_the_model_server_is_an_error_or_a_failed_answer(stage: Stage) -> None:
    stage.play([b"HTTP/1.1 500 Internal Server Error\r\ncontent-length: 0\r\n\r\n"])
    with opened(stage) as connection:
        end = ask(connection)[-1]
        error = end["error"] if end["type"] == "error" else end["response"]["error"]
        assert error["code"]
        assert error["message"]


@pytest.mark.parametrize("script", [[HANG], answer(*["word "] * 50, pause=0.01)], ids=["waiting", "told"])
def test_a_client_that_leaves_ends_its_answer(stage: Stage, script: Script, caplog: pytest.LogCaptureFixture) -> None:
    stage.play(script)
    with quiet(caplog):
        with opened(stage) as connection:
            connection.send(json.dumps({"type": "response.create", "input": "Hi"}))
            stage.until(lambda: stage.asks[0])
        stage.until(stage.idle)


def test_requests_that_come_early_wait_for_their_turn(stage: Stage) -> None:
    stage.play(answer("One", pause=0.05), answer("Two"), answer("Three"))
    with opened(stage) as connection:
        for _ in range(3):
            connection.send(json.dumps({"type": "response.create", "input": "Hi", "store": False}))
        ends = [said(told(connection)) for _ in range(3)]
    assert ["One", "Two", "Three"] == [one["output"][0]["content"][0]["text"] for one in ends]


def test_an_old_connection_is_closed_with_a_word(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sockets, "LIFE", 0.2)
    with opened(stage) as connection:
        [event] = told(connection)
        assert "websocket_connection_limit_reached" == event["error"]["code"]
        with pytest.raises(ConnectionClosed):
            connection.recv(20)


def test_so_many_and_no_more(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sockets, "MOST", 1)
    with opened(stage), pytest.raises(InvalidStatus) as refused, opened(stage):
        pass
    assert 503 == refused.value.response.status_code
    stage.until(lambda: said_again(stage))


def said_again(stage: Stage) -> bool:
    """Whether there is room for another connection."""
    try:
        with opened(stage) as connection:
            return bool(said(ask(connection)))
    except InvalidStatus:
        return False


def test_keys_and_pages_are_asked_of_a_handshake(tmp_path: Path) -> None:
    path = tmp_path / "keys"
    token = add_key(path, "anna").reveal()
    with Stage(server={"keys": path}) as stage:
        with pytest.raises(InvalidStatus) as refused, opened(stage, authorization="Bearer wrong"):
            pass
        assert (401, "0") == (refused.value.response.status_code, refused.value.response.headers["x-turnscript-losses"])
        with opened(stage, authorization=f"Bearer {token}") as connection:
            assert said(ask(connection))
    with Stage() as stage, pytest.raises(InvalidStatus) as refused, opened(stage, origin="https://evil.test"):
        pass
    assert 403 == refused.value.response.status_code


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/messages", "/nothing", f"{PATH}/resp_1"])
def test_other_paths_have_no_websocket(stage: Stage, path: str) -> None:
    with pytest.raises(InvalidStatus) as refused, opened(stage, path):
        pass
    assert refused.value.response.status_code in (404, 405)


def test_a_message_that_is_too_long_closes_the_connection(stage: Stage) -> None:
    with opened(stage) as connection:
        connection.send("x" * (16 * 1024 * 1024 + 1))
        with pytest.raises(ConnectionClosed) as closed:
            connection.recv(20)
    assert closed.value.rcvd is not None
    assert 1009 == closed.value.rcvd.code


def test_a_gateway_that_stops_closes_it(stage: Stage) -> None:
    with Stage() as other, opened(other) as connection:
        assert said(ask(connection))
        assert other.gateway.server is not None
        other.gateway.server.should_exit = True
        with pytest.raises(ConnectionClosed):
            connection.recv(20)
