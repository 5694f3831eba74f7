"""Owns the header that says how much was lost: every path of an API has it, whatever is asked there and however."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import httpx2
import pytest
from starlette.routing import Route

from tests.gateway.scripted import HANG
from tests.gateway.stage import APIS, Stage, answer, body_of
from turnscript.gateway.app import Application
from turnscript.gateway.config import Config
from turnscript.gateway.headers import LOSSES
from turnscript.gateway.keyfile import add_key
from turnscript.gateway.service import Service
from turnscript.registry import get_api

RESPONSES = get_api("openai-responses")
OTHERS = {"/", "/v1", "/health", "/metrics", "/api/event_logging/batch"}
"""Paths that belong to no API."""
PATHS = [
    (method, route.path)
    for route in Application(Service(Config())).routes
    if isinstance(route, Route) and route.path not in OTHERS
    for method in ("GET", "POST", "DELETE")
]


@pytest.fixture(scope="module")
def keyed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Stage, dict[str, str]]]:
    path = tmp_path_factory.mktemp("keys") / "keys"
    policies: dict[str, Any] = {"anna": {}, "quiet": {"losses": "ignore"}}
    tokens = {name: add_key(path, name, policy=own).reveal() for name, own in policies.items()}
    with Stage(server={"keys": path, "strict_models": True}) as made:
        yield made, tokens


@pytest.mark.parametrize(("method", "path"), PATHS)
def test_every_path_says_how_much_was_lost(keyed: tuple[Stage, dict[str, str]], method: str, path: str) -> None:
    stage, tokens = keyed
    stage.play(answer("Hello"))
    url = path.replace("{id}", "resp_1").replace("{name:path}", "another")
    for headers in ({}, {"x-api-key": "wrong"}, {"x-api-key": tokens["anna"]}):
        for body in (b"", b"{", b'{"model":"default","max_tokens":9,"messages":[],"input":"x","prompt":"x"}'):
            told = stage.client.request(method, url, content=body, headers=headers)
            assert told.headers[LOSSES].isdigit(), (told.status_code, told.text)


def test_paths_that_are_not_there_and_sockets_say_it_too(keyed: tuple[Stage, dict[str, str]]) -> None:
    stage, tokens = keyed
    socket = {"connection": "upgrade", "upgrade": "websocket", "sec-websocket-key": "x", "sec-websocket-version": "13"}
    for path, headers in (("/v1/nothing", {}), (RESPONSES.endpoint, socket)):
        told = stage.client.get(path, headers=headers | {"x-api-key": tokens["anna"]})
        assert (True, "0") == (told.status_code in (404, 426), told.headers[LOSSES])
    for path in ("/v1/models", "/v1/models/default"):
        told = stage.client.get(path, headers={"x-api-key": tokens["anna"]})
        assert (200, "0") == (told.status_code, told.headers[LOSSES])


def kept(stage: Stage, token: str, **members: Any) -> tuple[httpx2.Response, httpx2.Response]:
    """An answer, and the same as it was kept."""
    headers = {"x-api-key": token}
    body = body_of(RESPONSES, stream=False, **members)
    first = stage.client.post(RESPONSES.endpoint, content=body.replace(b'"m"', b'"default"'), headers=headers)
    return first, stage.client.get(f"{RESPONSES.endpoint}/{first.json()['id']}", headers=headers)


def test_an_answer_that_was_kept_says_what_was_lost_in_it(keyed: tuple[Stage, dict[str, str]]) -> None:
    stage, tokens = keyed
    stage.play(answer("Hello"))
    first, again = kept(stage, tokens["anna"], truncation="auto", top_logprobs=3, user="x", temperature=3)
    assert (first.json(), first.headers[LOSSES]) == (again.json(), again.headers[LOSSES])
    assert "0" != again.headers[LOSSES]


def test_an_answer_that_is_being_made_says_what_was_lost_so_far(keyed: tuple[Stage, dict[str, str]]) -> None:
    stage, tokens = keyed
    stage.play([HANG])
    first, again = kept(stage, tokens["anna"], background=True, top_logprobs=3)
    assert ("in_progress", "1", "1") == (again.json()["status"], first.headers[LOSSES], again.headers[LOSSES])
    stage.client.post(f"{again.url}/cancel", headers={"x-api-key": tokens["anna"]})


def test_nobody_is_told_who_wants_no_losses_told(keyed: tuple[Stage, dict[str, str]]) -> None:
    stage, tokens = keyed
    stage.play(answer("Hello"))
    assert not any(LOSSES in told.headers for told in kept(stage, tokens["quiet"], temperature=3))


@pytest.mark.parametrize("api", APIS, ids=lambda api: api.name)
def test_an_answer_says_it_whole_and_streamed(keyed: tuple[Stage, dict[str, str]], api: Any) -> None:
    stage, tokens = keyed
    stage.play(answer("Hello"))
    for stream in (True, False):
        body = body_of(api, stream=stream).replace(b'"m"', b'"default"')
        assert "0" == stage.post(api, body, {"x-api-key": tokens["anna"]}).headers[LOSSES]
