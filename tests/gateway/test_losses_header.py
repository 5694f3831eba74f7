"""Owns the header that says how much was lost: every answer has it, whatever is asked, where and however."""

from __future__ import annotations

import re
import socket
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx2
import pytest
from starlette.routing import Route

from tests.gateway.scripted import HANG
from tests.gateway.stage import APIS, CHATS, WEATHER, Stage, answer, body_of, named
from turnscript.apis.api import Api
from turnscript.convert.registry import get_api
from turnscript.gateway.app import Application
from turnscript.gateway.config import Config
from turnscript.gateway.headers import LOSSES, REPORT
from turnscript.gateway.keys import add_key
from turnscript.gateway.service import Service

RESPONSES = get_api("openai-responses")
METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "PROPFIND")
ROUTES = Application(Service(Config())).routes
PATHS = [(method, route.path) for route in ROUTES if isinstance(route, Route) for method in METHODS]
SOCKET = {"connection": "upgrade", "upgrade": "websocket", "sec-websocket-key": "x", "sec-websocket-version": "13"}
PAGE = "https://page.test"


@pytest.fixture(scope="module")
def keyed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Stage, dict[str, str]]]:
    path = tmp_path_factory.mktemp("keys") / "keys"
    policies: dict[str, Any] = {"anna": {}, "quiet": {"losses": "ignore"}}
    tokens = {name: add_key(path, name, policy=own).reveal() for name, own in policies.items()}
    with Stage(server={"keys": path, "strict_models": True, "origins": [PAGE], "max_body": 9000}) as made:
        yield made, tokens


def url_of(path: str) -> str:
    return path.replace("{id}", "resp_1").replace("{name:path}", "another")


def test_all_that_is_routed_is_known_here() -> None:
    assert all(isinstance(route, Route) for route in ROUTES)
    assert not any("{" in url_of(route.path) for route in ROUTES if isinstance(route, Route))


@pytest.mark.parametrize(("method", "path"), PATHS)
def test_every_path_says_how_much_was_lost(keyed: tuple[Stage, dict[str, str]], method: str, path: str) -> None:
    stage, tokens = keyed
    stage.play(answer("Hello"))
    page, asking = {"origin": PAGE}, {"access-control-request-method": "POST"}
    named = [{}, {"x-api-key": "wrong"}, {"x-api-key": tokens["anna"]}, page, page | asking, SOCKET, {"expect": "x"}]
    for headers in named:
        for body in (
            b"",
            b"{",
            b'{"model":"default","max_tokens":9,"messages":[],"input":"x","prompt":"x"}',
            b"x" * 9999,
        ):
            told = stage.client.request(method, url_of(path), content=body, headers=headers)
            assert told.headers[LOSSES].isdigit(), (told.status_code, told.text)


@pytest.mark.deep
@pytest.mark.parametrize(("method", "path"), [(method, path) for method, path in PATHS if method in ("GET", "POST")])
def test_a_gateway_that_stops_or_fails_says_it_too(method: str, path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*said: Any) -> Any:
        raise RuntimeError("nobody expected this")

    with Stage() as stage:
        stage.gateway.service.drain()
        told = stage.client.request(method, url_of(path), content=b"{}")
        assert told.headers[LOSSES].isdigit(), (told.status_code, told.text)
        for name in ("admit", "health"):
            monkeypatch.setattr(stage.gateway.service, name, fail)
        told = stage.client.request(method, url_of(path), content=b"{}")
        assert told.headers[LOSSES].isdigit(), (told.status_code, told.text)


@pytest.mark.parametrize(
    "path", ["/v1/nothing", "/wp-login.php", "//v1//models/", "/v1/v1/health", "/turnscript", "/%00"]
)
@pytest.mark.parametrize("method", METHODS)
def test_paths_that_are_not_there_say_it_too(keyed: tuple[Stage, dict[str, str]], method: str, path: str) -> None:
    stage, tokens = keyed
    for headers in ({}, {"x-api-key": tokens["anna"]}, {"origin": "https://other.test"}, SOCKET):
        assert "0" == stage.client.request(method, path, headers=headers).headers[LOSSES]


def test_sockets_and_lists_say_that_nothing_was_lost(keyed: tuple[Stage, dict[str, str]]) -> None:
    stage, tokens = keyed
    told = stage.client.get(RESPONSES.endpoint, headers=SOCKET | {"x-api-key": tokens["anna"]})
    assert (426, "0") == (told.status_code, told.headers[LOSSES])
    for path in ("/", "/health", "/metrics", "/v1/models", "/v1/models/default"):
        told = stage.client.get(path, headers={"x-api-key": tokens["anna"]})
        assert (200, "0") == (told.status_code, told.headers[LOSSES])


def test_pages_of_other_hosts_are_told_it() -> None:
    with Stage() as stage:
        for method, path in PATHS:
            for headers in ({"origin": "https://other.test"}, {"host": "rebound.test:8000"}):
                told = stage.client.request(method, url_of(path), headers=headers)
                assert told.headers[LOSSES].isdigit(), (told.status_code, told.text)


@pytest.mark.parametrize(
    ("request_", "status"),
    [
        (b"nothing that is HTTP\r\n\r\n", b"400"),
        (b"GET / HTTP/1.1\r\nhost: x\r\na b: c\r\n\r\n", b"400"),
        (b"GET /%b HTTP/1.1\r\nhost: x\r\n\r\n" % (b"a" * 70_000), b"431"),
    ],
    ids=["no request", "no header", "too long"],
)
def test_what_is_no_request_is_told_it(keyed: tuple[Stage, dict[str, str]], request_: bytes, status: bytes) -> None:
    stage, _ = keyed
    address = httpx2.URL(stage.url)
    with socket.create_connection((address.host, address.port or 80), timeout=10) as asked:
        with suppress(ConnectionError):
            asked.sendall(request_)
        told = b""
        while piece := asked.recv(4096):
            told += piece
    head, _, body = told.partition(b"\r\n\r\n")
    line, *headers = head.split(b"\r\n")
    assert status == line.split(b" ")[1]
    assert {b"connection: close", b"content-length: %d" % len(body), f"{LOSSES}: 0".encode()} <= set(headers)


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


@pytest.mark.parametrize(("store", "said"), [(True, "1"), (False, "0"), (None, "0")])
def test_an_answer_that_no_path_gives_again_is_not_kept_and_says_so(
    keyed: tuple[Stage, dict[str, str]], store: bool | None, said: str
) -> None:
    stage, tokens = keyed
    stage.play(answer("Hello"))
    body = body_of(get_api("openai-chat"), stream=False, store=store).replace(b'"m"', b'"default"')
    assert said == stage.post(get_api("openai-chat"), body, {"x-api-key": tokens["anna"]}).headers[LOSSES]


def test_an_answer_that_is_being_made_says_what_was_lost_so_far(keyed: tuple[Stage, dict[str, str]]) -> None:
    stage, tokens = keyed
    stage.play([HANG])
    first, again = kept(stage, tokens["anna"], background=True, top_logprobs=3)
    assert ("in_progress", "1", "1") == (again.json()["status"], first.headers[LOSSES], again.headers[LOSSES])
    stage.client.post(f"{again.url}/cancel", headers={"x-api-key": tokens["anna"]})


def test_an_answer_says_it_after_a_restart_too(tmp_path: Path) -> None:
    lossy: dict[str, Any] = {"truncation": "auto", "top_logprobs": 3, "user": "x", "temperature": 3}
    store, headers = {"path": tmp_path / "answers.sqlite"}, {"x-turnscript-loss-policy": "ignore"}
    with Stage(store=store) as stage:
        stage.play(answer("Hello"))
        told = [stage.post(RESPONSES, body_of(RESPONSES, stream=stream, **lossy)) for stream in (False, True)]
        exact = stage.post(RESPONSES, body_of(RESPONSES, stream=False))
        quiet = stage.post(RESPONSES, body_of(RESPONSES, stream=False, **lossy), headers)
    with Stage(store=store) as stage:
        for one in (*told, exact, quiet):
            id_ = re.search(rb"resp_\w+", one.body)
            assert id_ is not None
            again = stage.client.get(f"{RESPONSES.endpoint}/{id_[0].decode()}")
            assert (200, one.headers.get(LOSSES)) == (again.status_code, again.headers.get(LOSSES))
        assert "0" != told[0].headers[LOSSES] == told[1].headers[LOSSES]


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


DROPS = {
    "text behind the end": ("Hello\n<<ASSISTANT_END>>\n\nand more", "stop", 1),
    "another speaker": ("Hello\n<<ASSISTANT_END>>\n\n<<USER>>\nand more", "stop", 1),
    "a call that the limit cuts": ('Hello\n<<ASSISTANT_END>>\n\n<<TOOL_CALL name="get_weather">>\n{"ci', "length", 1),
    "a tag that the limit cuts": ("Hello\n<<ASSIST", "length", 1),
    "nothing": ("Hello\n<<ASSISTANT_END>>", "stop", 0),
}


def dropped(stage: Stage) -> float:
    """How much was dropped, as the metrics count it."""
    lines = stage.client.get("/metrics").text.splitlines()
    wanted = [line for line in lines if line.startswith("turnscript_losses_total") and '"dropped"' in line]
    return sum(float(line.rpartition(" ")[2]) for line in wanted)


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("case", DROPS)
@pytest.mark.parametrize("api", CHATS, ids=named)
def test_what_of_an_answer_is_dropped_is_lost(api: Api, case: str, stream: bool) -> None:
    """In the header, unless a stream has begun, in the report, and in the metrics."""
    written, finish, expected = DROPS[case]
    with Stage(metrics={"public": True}) as stage:
        counted = []
        for said in (" Hello\n<<ASSISTANT_END>>", f" {written}"):
            stage.play(answer(*[said[at : at + 5] for at in range(0, len(said), 5)], finish=finish))
            told = stage.ask(api, stream=stream, tools=[WEATHER])
            report = stage.client.get(told.headers[REPORT]).json()
            found = [one for one in report["losses"] if one["kind"] == "dropped"]
            assert told.text.strip().startswith("Hello")
            counted.append((int(told.headers[LOSSES]), len(report["losses"]), len(found), dropped(stage)))
        (header, told_of, lost, metric), (header_then, told_of_then, lost_then, metric_then) = counted
        assert expected == lost_then - lost == metric_then - 2 * metric
        assert (0 if stream else told_of_then - told_of) == header_then - header
