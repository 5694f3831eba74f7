"""Owns web pages: whose may ask, with a key and without, and what their browser is told."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.gateway.stage import APIS, Stage, answer, named
from turnscript.apis.api import Api
from turnscript.gateway.configfile import load
from turnscript.gateway.keys import add_key
from turnscript.gateway.kinds import InvalidConfig

EACH = pytest.mark.parametrize("api", APIS, ids=named)
CHAT, OTHER = "https://chat.example.org", "https://evil.example"
ASKS = {"access-control-request-method": "POST", "access-control-request-headers": "authorization,x-stainless-os"}
CORS = "access-control-"


@pytest.fixture(scope="module")
def stage() -> Iterator[Stage]:
    """A gateway without keys that knows the pages of one host."""
    with Stage(server={"origins": (CHAT, "tauri://app", "http://[fd00::1]:3000")}) as made:
        made.play(answer("Hello"))
        yield made


@pytest.fixture(scope="module")
def keyed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Stage, str]]:
    """One that lets all pages ask that have a key, and the key."""
    path = tmp_path_factory.mktemp("keys") / "keys"
    key = add_key(path, "anna").reveal()
    with Stage(server={"origins": ("*",), "keys": path}) as made:
        yield made, key


@EACH
def test_a_page_that_is_known_may_ask_and_read_the_answer(stage: Stage, api: Api) -> None:
    for origin in (CHAT, "tauri://app", "http://[fd00::1]:3000"):
        told = stage.client.options(api.endpoint, headers=ASKS | {"origin": origin})
        assert (204, b"", origin) == (told.status_code, told.content, told.headers[f"{CORS}allow-origin"])
        assert "authorization,x-stainless-os" == told.headers[f"{CORS}allow-headers"]
        assert "POST" in told.headers[f"{CORS}allow-methods"]
        for stream in (True, False):
            answered = stage.ask(api, stream=stream, headers={"origin": origin})
            assert ("Hello", origin) == (answered.text, answered.headers[f"{CORS}allow-origin"])
            assert ("*", "origin") == (answered.headers[f"{CORS}expose-headers"], answered.headers["vary"])
            assert f"{CORS}allow-credentials" not in answered.headers
    refused = stage.post(api, b"{", {"origin": CHAT})
    assert (400, CHAT) == (refused.status, refused.headers[f"{CORS}allow-origin"])


@EACH
def test_a_page_that_is_not_known_is_told_nothing(stage: Stage, api: Api) -> None:
    for origin in (OTHER, "https://chat.example.org.evil.example", "http://chat.example.org", "null", CHAT + ":8443"):
        told = stage.client.options(api.endpoint, headers=ASKS | {"origin": origin})
        assert (405, []) == (told.status_code, [name for name in told.headers if name.startswith(CORS)])
        refused = stage.ask(api, stream=False, headers={"origin": origin})
        assert (403, []) == (refused.status, [name for name in refused.headers if name.startswith(CORS)])
        assert "add it to server.origins" in str(refused.json)
    own = stage.ask(api, stream=False, headers={"origin": "http://localhost:3000"})
    assert (200, []) == (own.status, [name for name in own.headers if name.startswith(CORS)])


def test_the_host_of_a_page_that_is_known_may_lead_here(stage: Stage) -> None:
    for host in ("chat.example.org", "CHAT.example.org:8443", "chat.example.org."):
        assert 200 == stage.client.get("/v1/models", headers={"host": host}).status_code
    for host in ("evil.example", "x.chat.example.org", "chat.example.org.evil.example"):
        assert 403 == stage.client.get("/v1/models", headers={"host": host}).status_code


def test_what_a_page_wants_to_send_is_repeated_only_if_it_is_names(stage: Stage) -> None:
    for wanted in ("x y: z", "a\x80b", "a" * 3000, ""):
        asks = ASKS | {"origin": CHAT, "access-control-request-headers": wanted}
        raw = {name.encode(): value.encode("latin-1") for name, value in asks.items()}
        told = stage.client.options("/v1/models", headers=raw)
        assert (204, None) == (told.status_code, told.headers.get(f"{CORS}allow-headers"))


def test_all_pages_may_ask_with_a_key_and_none_without(keyed: tuple[Stage, str]) -> None:
    stage, key = keyed
    assert 204 == stage.client.options("/v1/models", headers=ASKS | {"origin": OTHER}).status_code
    told = stage.client.get("/v1/models", headers={"origin": OTHER, "authorization": f"Bearer {key}"})
    assert (200, OTHER) == (told.status_code, told.headers[f"{CORS}allow-origin"])
    refused = stage.client.get("/v1/models", headers={"origin": OTHER})
    assert (401, OTHER) == (refused.status_code, refused.headers[f"{CORS}allow-origin"])


def test_where_no_key_is_needed_all_pages_are_none() -> None:
    """Nor are they told what everybody may read: a browser here would read it for any page."""
    with Stage(server={"origins": ("*", CHAT)}) as stage:
        for headers in ({"origin": OTHER}, {"host": "evil.example"}):
            assert 403 == stage.client.get("/v1/models", headers=headers).status_code
        for origin, told in ((OTHER, None), (CHAT, CHAT)):
            assert told == stage.client.get("/health", headers={"origin": origin}).headers.get(f"{CORS}allow-origin")
        assert 405 == stage.client.options("/health", headers=ASKS | {"origin": OTHER}).status_code


def test_every_answer_says_that_it_may_be_another_one_for_another_page(stage: Stage) -> None:
    """What is kept of an answer to one who is no page would be refused to a page that may have it."""
    for headers in ({}, {"origin": OTHER}, {"origin": CHAT}):
        assert "origin" == stage.client.get("/health", headers=headers).headers["vary"]


def test_an_origin_is_written_as_browsers_write_it(tmp_path: Path) -> None:
    given = ["HTTPS://Chat.Example.org/", "http://a.test:80", "https://b.test:443", "http://c.test:443", "*"]
    found = load(None, {"TURNSCRIPT_SERVER_ORIGINS": ", ".join(given)}).server.origins
    assert ("https://chat.example.org", "http://a.test", "https://b.test", "http://c.test:443", "*") == found
    for wrong in (
        "chat.example.org",
        "https://a.test/path",
        "https://u@a.test",
        "https://*.a.test",
        "null",
        "https://",
    ):
        with pytest.raises(InvalidConfig, match="a scheme and a host, without a path"):
            load(None, {"TURNSCRIPT_SERVER_ORIGINS": wrong})
