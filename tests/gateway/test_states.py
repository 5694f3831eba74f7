"""Owns the states that a model may begin from: named by the model or by a request, and looked up where they are."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest
from msgspec.structs import replace

from tests.gateway.running import Running
from tests.gateway.scripted import CLOSE, END, Asked, Script, Scripted, said, sse
from tests.gateway.stage import APIS, NO_TLS, Threaded, Told, answer, body_of, named
from turnscript.apis.api import Api
from turnscript.backends.ai00 import Ai00
from turnscript.backends.backend import Completion, State
from turnscript.convert.registry import get_api
from turnscript.core.errors import InvalidInput, UnknownName
from turnscript.gateway import states
from turnscript.gateway.config import Config
from turnscript.gateway.configfile import load
from turnscript.gateway.doctor import examine
from turnscript.gateway.doctor_findings import Check
from turnscript.gateway.kinds import InvalidConfig
from turnscript.gateway.service import Service
from turnscript.gateway.states import Listed, find
from turnscript.gateway.upstream import Upstream

FORMAT = "rwkv-universal"
NOVELS, QUERIES, OTHER = (f"00000000-0000-4000-8000-00000000000{number}" for number in "ab9")
LOADED = [State(NOVELS, "novels"), State(QUERIES, "queries")]
INFO = {
    "reload": {"model_path": "assets/models/rwkv.st", "state": []},
    "model": {"version": "V7", "num_layer": 12},
    "states": [{"id": state.id, "name": state.name} for state in LOADED],
}
EACH = pytest.mark.parametrize("api", APIS, ids=named)
CHAT = get_api("openai-chat")


class Server:
    """ai00_server, as far as it tells of its states and writes a word. `info`: what it tells, None if nothing."""

    def __init__(self, info: Any = INFO, path: str = "/api/oai/v1") -> None:
        self.info = info
        self.path = path
        self.begun: list[str | None] = []
        self.listed = 0

    def __call__(self, asked: Asked) -> Script:
        """What it answers."""
        if asked.line == "GET /api/models/info":
            self.listed += 1
            return said({"message": "nothing here"}, status=404) if self.info is None else said(self.info)
        if asked.line == f"GET {self.path}/models":
            return said({"data": [{"object": "models", "id": "rwkv"}]})
        if asked.line != f"POST {self.path}/completions":
            return said("", status=404)
        self.begun.append(asked.json.get("state"))
        if asked.json["stream"]:
            deltas = [{"delta": {"content": " Hi"}, "finish_reason": None}, {"delta": {}, "finish_reason": "stop"}]
            return sse(*[{"choices": [one]} for one in deltas], "[DONE]", end=(END,))
        return said({"choices": [{"text": " Hi", "finish_reason": "stop"}], "usage": {"prompt": 3, "completion": 1}})


@contextmanager
def gateway(*servers: Callable[[Asked], Script], path: str = "/api/oai/v1", **model: Any) -> Iterator[str]:
    """The URL of a gateway before some servers."""
    with ExitStack() as stack:
        threaded = stack.enter_context(Threaded())
        urls = [stack.enter_context(threaded.server(server)).url + path for server in servers]
        first, *others = [Config.for_backend(url, FORMAT, **({"kind": "ai00"} | model)) for url in urls]
        backend = tuple(one.models[0].backend[0] for one in (first, *others))
        config = replace(first, models=(replace(first.models[0], backend=backend),))
        yield stack.enter_context(Running(config)).url


def ask(url: str, api: Api = CHAT, *, stream: bool = False, **members: Any) -> Told:
    response = httpx2.post(
        url + api.endpoint, content=body_of(api, stream=stream, **members), verify=NO_TLS, timeout=20
    )
    return Told(api, response.status_code, dict(response.headers), response.content)


def refused(told: Told, status: int, *words: str) -> None:
    """A request was refused, in these words."""
    message = json.dumps(told.json)
    assert status == told.status, message
    assert all(word in message for word in words), message


@EACH
@pytest.mark.parametrize("stream", [True, False], ids=["stream", "whole"])
def test_an_answer_begins_from_the_state_of_its_model(api: Api, stream: bool) -> None:
    server = Server()
    with gateway(server, state="novels") as url:
        assert "Hi" == ask(url, api, stream=stream).text.strip()
    assert [NOVELS] == server.begun


@EACH
@pytest.mark.parametrize("said", ["queries", QUERIES, QUERIES.upper()], ids=["name", "id", "ID"])
def test_a_request_may_name_another_one(api: Api, said: str) -> None:
    server = Server()
    with gateway(server, state="novels") as url:
        told = ask(url, api, state=said)
        assert (200, "0") == (told.status, told.headers["x-turnscript-losses"])
        assert 200 == ask(url, api, state=None).status == ask(url, api, state=states.NONE).status
    assert [QUERIES, NOVELS, states.NONE] == server.begun


def test_nothing_is_asked_or_sent_where_nobody_names_a_state() -> None:
    server = Server()
    with gateway(server) as url:
        assert 200 == ask(url).status
    assert ([None], 0) == (server.begun, server.listed)


def test_the_list_is_asked_for_once_for_many_requests() -> None:
    server = Server()
    with gateway(server, state="novels") as url:
        for _ in range(5):
            ask(url)
    assert ([NOVELS] * 5, 1) == (server.begun, server.listed)


@EACH
@pytest.mark.parametrize("said", ["novel", OTHER])
def test_one_that_is_not_there_is_refused_with_those_that_are(api: Api, said: str) -> None:
    """ai00_server would begin from its default state, and nobody would know."""
    server = Server()
    with gateway(server) as url:
        refused(ask(url, api, state=said), 400, f"unknown state '{said}'", "novels")
        assert 200 == ask(url, api).status
    assert [None] == server.begun


@EACH
@pytest.mark.parametrize(
    "value",
    [7, True, "", " ", ["novels"], {"id": NOVELS, "path": "/etc/passwd"}, {"id": NOVELS, "data": [0], "shape": [1]}],
    ids=str,
)
def test_what_is_no_name_of_a_state_is_refused(api: Api, value: Any) -> None:
    """A state itself, and above all a file of the server, are nothing for a client to send."""
    server = Server()
    with gateway(server) as url:
        refused(ask(url, api, state=value), 400, "this is no state")
    assert [] == server.begun


@EACH
def test_a_model_whose_server_has_no_states_refuses_one(api: Api) -> None:
    def plain(asked: Asked) -> Script:
        return said({"data": [{"id": "m"}]}) if asked.line.startswith("GET") else answer("Hi")

    with gateway(plain, path="/v1", kind="completions") as url:
        refused(ask(url, api, state="novels"), 400, "which has no states to begin from")
        assert 200 == ask(url, api, state=None).status


def test_the_model_s_own_state_that_is_not_there_is_no_fault_of_the_client() -> None:
    server = Server()
    with gateway(server, state="poems") as url:
        refused(ask(url), 502, "is to begin from a state that its server has not", "unknown state 'poems'")
        assert 200 == ask(url, state="novels").status
        server.info = INFO | {"states": [{"id": OTHER, "name": "poems"}]}
    assert [NOVELS] == server.begun


@pytest.mark.parametrize("info", [None, {"states": 7}, {"model": {}}, "text", []], ids=str)
def test_where_a_server_does_not_list_its_states_an_id_is_taken_as_it_is(info: Any) -> None:
    server = Server(info)
    with gateway(server) as url:
        assert 200 == ask(url, state=OTHER).status
        refused(ask(url, state="novels"), 400, "does not list the names of its states")
    assert [OTHER] == server.begun


def test_its_list_is_found_above_either_of_its_paths() -> None:
    server = Server(path="/api/oai")
    with gateway(server, path="/api/oai", state="novels") as url:
        assert 200 == ask(url).status
    assert [NOVELS] == server.begun


def test_each_server_of_a_model_is_told_its_own_id() -> None:
    """Without an id in its configuration, a server makes one up each time it starts."""
    other = Server(INFO | {"states": [{"id": OTHER, "name": "novels"}]})

    def down(asked: Asked) -> Script:
        return first(asked) if asked.line.startswith("GET") else [CLOSE]

    first = Server()
    with gateway(down, other, state="novels") as url:
        assert 200 == ask(url).status
    assert ([], [OTHER]) == (first.begun, other.begun)


def test_a_server_that_was_started_anew_is_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    async def run() -> list[str]:
        server = Server()
        async with Scripted(server) as scripted, Upstream(f"{scripted.url}/api/oai/v1", Ai00()) as upstream:
            found = [await upstream.listed.id_of("novels")]
            server.info = INFO | {"states": [{"id": OTHER, "name": "novels"}]}
            found.append(await upstream.listed.id_of("novels"))
            upstream.forget()
            found.append(await upstream.listed.id_of("novels"))
            monkeypatch.setattr(states, "FRESH", 0.0)
            upstream.listed = Listed(upstream)
            for state in (NOVELS, OTHER):
                server.info = INFO | {"states": [{"id": state, "name": "novels"}]}
                found.append(await upstream.listed.id_of("novels"))
            async with upstream.open(Completion(prompt="Hi", max_tokens=1, state="novels")) as answer:
                assert [" Hi", ""] == [piece.text async for pieces in answer for piece in pieces]
            assert [OTHER] == server.begun
        return found

    assert [NOVELS, NOVELS, OTHER, NOVELS, OTHER] == asyncio.run(run())


def test_a_name_that_two_states_have_is_none() -> None:
    both = [State(NOVELS, "one"), State(QUERIES, "one"), State(OTHER)]
    assert [NOVELS, OTHER] == [find(said, both) for said in (NOVELS, OTHER)]
    with pytest.raises(UnknownName) as caught:
        find("one", both)
    assert f"one ({NOVELS})" in str(caught.value)
    assert f"one ({QUERIES})" in str(caught.value)
    assert OTHER not in str(caught.value)


# The configuration and the doctor.


@pytest.mark.parametrize("kind", ["llamacpp", "completions"])
def test_a_state_for_a_kind_of_server_that_has_none_is_an_error_of_the_configuration(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "turnscript.toml"
    text = f'[models.main]\nbackend = "http://h"\nformat = "{FORMAT}"\nstate = "novels"\n'
    path.write_text(text, encoding="utf-8")
    assert "novels" == load(path, {}).models[0].state
    path.write_text(f'{text}kind = "{kind}"\n', encoding="utf-8")
    with pytest.raises(InvalidConfig, match="which has no states to begin from") as caught:
        load(path, {})
    assert "models.main.state" == caught.value.path


class Listening(list[Check]):
    """What the doctor says of a server."""

    def server(self, model: str, url: str) -> None: ...

    def begin(self, name: str) -> None: ...

    def tell(self, check: Check) -> None:
        self.append(check)


def about(server: Callable[[Asked], Script], path: str = "/api/oai/v1", **model: Any) -> Check:
    async def run() -> Check:
        told = Listening()
        async with Scripted(server) as scripted:
            config = Config.for_backend(f"{scripted.url}{path}", FORMAT, context=2000, **model)
            await examine(config.models[0], config, told, quick=True)
        return next(check for check in told if check.name == "about")

    return asyncio.run(run())


def test_the_doctor_lists_the_states_and_misses_the_one_that_is_not_there() -> None:
    found = about(Server(), kind="ai00")
    assert "ok" == found.state
    assert f"states to begin from: novels ({NOVELS}), queries ({QUERIES})" in found.detail
    assert f"answers begin from {QUERIES}" in about(Server(), kind="ai00", state="queries").detail
    missing = about(Server(), kind="ai00", state="poems")
    assert ("fault", True) == (missing.state, "unknown state 'poems'" in missing.detail)
    assert "correct `state` in the configuration" in missing.remedy
    unlisted = about(Server(None), kind="ai00", state=OTHER)
    assert "ok" == unlisted.state
    assert f"answers begin from {OTHER}" in unlisted.detail


@pytest.mark.parametrize("kind", ["auto", "completions"])
def test_a_server_that_has_no_states_cannot_run_a_model_that_begins_from_one(kind: str) -> None:
    def plain(asked: Asked) -> Script:
        return said({"data": [{"id": "m"}]}) if asked.line == "GET /v1/models" else said("", status=404)

    message = r"its server is taken for OpenAI-style text completions, which has none: say `kind = \"ai00\"`"
    with pytest.raises(InvalidInput, match=message):
        about(plain, path="/v1", kind=kind, state="novels")
    with Threaded() as threaded, threaded.server(plain) as server:
        service = Service(Config.for_backend(f"{server.url}/v1", FORMAT, kind=kind, state="novels"))
        with pytest.raises(InvalidInput, match=message):
            asyncio.run(started(service))


async def started(service: Service) -> None:
    """Start the service, and stop it again."""
    try:
        await service.start()
    finally:
        await service.stop()
