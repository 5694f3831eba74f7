"""Owns requests that meet trouble of their own, or of the gateway: each client is told what it is in its own way."""

from __future__ import annotations

from typing import Any

import pytest

from tests.gateway.background import STORING
from tests.gateway.scripted import END, sse
from tests.gateway.stage import APIS, CHATS, Stage, answer, body_of, is_refused, named, piece
from turnscript.apis.api import Api
from turnscript.core.errors import InvalidRequest, Overloaded
from turnscript.gateway.generation import CONTEXT
from turnscript.gateway.headers import LOSSES

pytestmark = pytest.mark.usefixtures("nothing_goes_wrong")


@pytest.mark.parametrize("api", STORING, ids=named)
@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("limit", "0", "limit: a page has 1 to 100 items, found 0"),
        ("limit", "101", "limit: a page has 1 to 100 items, found 101"),
        ("limit", "many", "limit: expected a whole number, found 'many'"),
        ("order", "up", "order: items come in the order asc or desc, found 'up'"),
    ],
)
def test_a_page_that_cannot_be_is_refused(stage: Stage, api: Api, name: str, value: str, expected: str) -> None:
    id_ = stage.ask(api, stream=False).json["id"]
    told = stage.client.get(f"{api.endpoint}/{id_}/input_items", params={name: value})
    error = told.json()["error"]
    assert (400, name, expected) == (told.status_code, error["param"], error["message"])
    whole = stage.client.get(f"{api.endpoint}/{id_}/input_items", params={"limit": "100", "order": "asc"})
    assert 1 == len(whole.json()["data"])


@pytest.mark.parametrize("api", STORING, ids=named)
def test_a_place_in_a_stream_is_a_number(stage: Stage, api: Api) -> None:
    id_ = stage.ask(api, stream=False).json["id"]
    told = stage.client.get(f"{api.endpoint}/{id_}", params={"stream": "true", "starting_after": "x"})
    assert (400, "starting_after") == (told.status_code, told.json()["error"]["param"])


@pytest.mark.parametrize(
    "value", ["9" * 5000, "1e999", '"yes"', '{"a": null}'], ids=["long", "infinite", "text", "object"]
)
@pytest.mark.parametrize(
    ("path", "asked", "member"),
    [
        ("/v1/completions", "prompt", "echo"),
        ("/v1/completions", "prompt", "best_of"),
        ("/v1/responses", "input", "background"),
    ],
)
def test_a_value_of_the_wrong_type_is_shown_as_it_came(
    stage: Stage, path: str, asked: str, member: str, value: str
) -> None:
    told = stage.client.post(path, content=f'{{"{asked}":"x","{member}":{value}}}').json()["error"]
    kind = {"9": "a number", "1": "a number", '"': "a string", "{": "an object"}[value[0]]
    shown = f"{value[:37]}..." if len(value) > 40 else value.replace(" ", "")
    assert f"$.{member}" == told["param"]
    assert told["message"].endswith(f", got {kind} ({shown})")


@pytest.mark.parametrize("api", CHATS, ids=named)
@pytest.mark.parametrize("stream", [True, False], ids=["stream", "whole"])
def test_an_answer_that_fills_the_context_says_so_where_its_api_can(api: Api, stream: bool) -> None:
    full: Any = {"usage": {"prompt_tokens": 40, "completion_tokens": 24}}
    with Stage(model={"context": 64}) as stage:
        stage.play(sse(piece("Once upon"), piece(" a", "length", **full), "[DONE]", end=(END,)))
        told = stage.ask(api, stream=stream)
    assert told.end is not None
    assert (CONTEXT if api.name == "anthropic-messages" else "length") == told.end.finish_reason


@pytest.mark.parametrize("api", APIS, ids=named)
def test_a_gateway_that_stops_takes_no_more_requests(stage: Stage, api: Api) -> None:
    stage.gateway.service.draining = True
    try:
        is_refused(stage.ask(api, stream=True), Overloaded("the gateway is shutting down", retry_after=2.0))
    finally:
        stage.gateway.service.draining = False
    assert stage.ask(api, stream=True).error is None


@pytest.mark.parametrize("api", [api for api in CHATS if b'"messages"' in body_of(api, stream=False)], ids=named)
@pytest.mark.parametrize("stream", [True, False], ids=["stream", "whole"])
def test_messages_of_roles_that_nobody_knows_alone_ask_nothing(stage: Stage, api: Api, stream: bool) -> None:
    """Beside others each is a loss."""
    robot, user = {"role": "robot", "content": "Hello?"}, {"role": "user", "content": "Hello"}
    stage.play(answer("Hello"))
    told = stage.post(api, body_of(api, stream=stream, messages=[robot, robot], system="Be kind."))
    is_refused(told, InvalidRequest("?", path="$.messages"))
    assert "no role is called 'robot' here" in told.json["error"]["message"]
    assert [] == stage.asks[0]
    beside = stage.post(api, body_of(api, stream=stream, messages=[robot, user]))
    assert ("Hello", "1") == (beside.text, beside.headers[LOSSES])
