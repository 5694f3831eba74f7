"""Owns the paths of the gateway, as its application lists them: what holds for every one, whatever it answers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, cast

import pytest
from starlette.routing import Route

from tests.gateway.stage import APIS, Stage, answer, body_of, named
from turnscript.apis.api import Api
from turnscript.convert.registry import apis, get_api
from turnscript.gateway.app import Application
from turnscript.gateway.config import Config
from turnscript.gateway.keys import add_key
from turnscript.gateway.service import Service

OPEN = {"/", "/v1", "/health", "/api/event_logging/batch"}
"""Paths that tell nothing of anybody, and start nothing."""
SOCKETS = {api.endpoint.removeprefix(strip) for api in map(get_api, apis()) for strip in ("", "/v1")}
"""Where a GET is only told to use another method, or no WebSocket."""
PATHS = [
    (method, route.path)
    for route in Application(Service(Config())).routes
    if isinstance(route, Route) and route.path not in OPEN
    for method in ("GET", "POST", "DELETE")
    if method in cast(Any, route.app).methods and not (method == "GET" and route.path in SOCKETS)
]


@pytest.fixture(scope="module")
def keyed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Stage, str]]:
    path = tmp_path_factory.mktemp("keys") / "keys"
    token = add_key(path, "anna").reveal()
    with Stage(server={"keys": path}) as made:
        made.play(answer("Hello"))
        yield made, token


@pytest.mark.parametrize(("method", "path"), PATHS)
def test_a_key_is_wanted_in_either_header_whatever_is_asked(keyed: tuple[Stage, str], method: str, path: str) -> None:
    stage, token = keyed
    url = path.replace("{id}", "resp_1").replace("{name:path}", "another")
    for headers in ({}, {"authorization": f"Basic {token}"}, {"x-api-key": "wrong"}):
        assert 401 == stage.client.request(method, url, headers=headers).status_code
    for headers in ({"authorization": f"Bearer {token}"}, {"x-api-key": token}):
        assert stage.client.request(method, url, headers=headers).status_code in (200, 400, 404)
    assert not stage.asks[0]


@pytest.fixture(scope="module")
def keyless() -> Iterator[Stage]:
    with Stage() as made:
        yield made


@pytest.mark.parametrize(("method", "path"), PATHS)
def test_without_keys_no_page_of_another_host_gets_anything(keyless: Stage, method: str, path: str) -> None:
    url = path.replace("{id}", "resp_1").replace("{name:path}", "another")
    for origin in (
        "https://example.org",
        "http://127.0.0.1.example.org:8000",
        "http://rebound.test:8000",
        "null",
        "http://[",
    ):
        told = keyless.client.request(method, url, headers={"origin": origin, "content-type": "text/plain"})
        assert 403 == told.status_code
        assert f"a web page of {origin} asks" in told.text
    for origin in ("http://localhost:3000", "http://[::1]", "https://127.0.0.1", "chrome-extension://abc", "file://"):
        told = keyless.client.request(method, url, headers={"origin": origin})
        assert told.status_code in (200, 400, 404)


@pytest.mark.parametrize(("method", "path"), PATHS)
def test_without_keys_no_name_of_others_that_leads_here_gets_anything(keyless: Stage, method: str, path: str) -> None:
    url = path.replace("{id}", "resp_1").replace("{name:path}", "another")
    for host in ("rebound.test:8000", "127.0.0.1.example.org", "example.org.", "["):
        told = keyless.client.request(method, url, headers={"host": host})
        assert (403, True) == (told.status_code, f"{host} is asked" in told.text)
    for host in ("localhost:3000", "[::1]:80", "127.0.0.1", "192.168.0.7:80", "gateway", "host.docker.internal:8400"):
        told = keyless.client.request(method, url, headers={"host": host})
        assert told.status_code in (200, 400, 404)


@pytest.mark.parametrize("base", ["/v1/v1", "/", "//v1", "/v1/v1/v1", "/v1/"])
def test_a_base_url_that_ends_in_a_slash_or_in_the_version_again_means_the_same(keyless: Stage, base: str) -> None:
    for api in [api for api in map(get_api, apis()) if not api.serving.paths]:  # those whose base URL has the version
        keyless.play(answer("Hello"))
        url = keyless.url + base + api.endpoint.removeprefix("/v1")
        assert 200 == keyless.client.post(url, content=body_of(api, stream=False)).status_code
        told = keyless.client.delete(url)
        assert (405, True) == (told.status_code, "POST" in told.headers["allow"])
    assert ["default"] == [one["id"] for one in keyless.client.get(f"{keyless.url}{base}/models/").json()["data"]]
    assert 200 == keyless.client.get(f"{keyless.url}{base}/models/default").status_code


@pytest.mark.parametrize("base", ["", "/", "/v1", "/v1/", "/v1/v1"])
def test_a_base_url_says_that_somebody_is_there(keyless: Stage, base: str) -> None:
    assert "turnscript is running" in keyless.client.get(keyless.url + base).text
    assert 200 == keyless.client.head(keyless.url + base).status_code


def test_without_a_key_another_spelling_of_a_path_opens_nothing(keyed: tuple[Stage, str]) -> None:
    stage, token = keyed
    for path in ("/v1/v1/models", "//models", "/v1/models/", "//metrics"):
        assert 401 == stage.client.get(stage.url + path).status_code
        assert 200 == stage.client.get(stage.url + path, headers={"x-api-key": token}).status_code


def test_a_path_where_nothing_is_goes_to_the_log(keyless: Stage, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "turnscript")
    for path in ("/v1/messages/v1/messages", "/v1/chat/completion", "/v1/What is the weather?", f"/{'a' * 99}"):
        assert 404 == keyless.client.post(path).status_code
    assert 405 == keyless.client.get("/v1/chat/completions").status_code
    logged = [one.__dict__["fields"].get("path") for one in caplog.records if one.getMessage() == "refused"]
    assert ["/v1/messages/v1/messages", "/v1/chat/completion", None, None, "/v1/chat/completions"] == logged


def test_a_page_of_another_host_may_ask_with_a_key_and_where_the_server_is_public(keyed: tuple[Stage, str]) -> None:
    stage, token = keyed
    page = {"origin": "https://example.org", "host": "example.org"}
    assert 200 == stage.client.get("/v1/models", headers=page | {"authorization": f"Bearer {token}"}).status_code
    with Stage(server={"public": True}) as public:
        assert 200 == public.client.get("/v1/models", headers=page).status_code


@pytest.mark.parametrize("base", ["/v1/chat/completions", "/v1/messages/v1", "/openai/v1", "/api", "/V1"])
@pytest.mark.parametrize("api", [api for api in APIS if not api.serving.paths], ids=named)
def test_a_base_url_that_says_too_much_is_told_what_it_should_be(keyless: Stage, api: Api, base: str) -> None:
    path = f"{base}{api.endpoint.removeprefix('/v1')}"
    told = keyless.client.post(path, content=b"{}")
    assert 404 == told.status_code
    message = told.json()["error"]["message"]
    assert f"nothing is at {path!r}, but at {api.endpoint!r}" in message
    assert "the base URL of a client is the address of this server alone, or with /v1 behind it" in message


@pytest.mark.parametrize("path", ["/v1/embeddings", "/v1/messages/batches", "/wp-login.php", "/api/health/deep"])
def test_a_path_that_nobody_could_have_meant_is_told_in_few_words(keyless: Stage, path: str) -> None:
    told = keyless.client.get(path)
    said = f"the path {path!r} does not exist, or you do not have access to it"
    assert (404, said) == (told.status_code, told.json()["error"]["message"])
