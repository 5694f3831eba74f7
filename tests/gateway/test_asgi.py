"""Owns the proof that the gateway is an application of ASGI: on any server, in a test's client, mounted in another."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest
from starlette.applications import Starlette
from starlette.routing import Mount
from starlette.testclient import TestClient

from tests.clocks import run_time
from tests.gateway.background import BEGUN
from tests.gateway.scripted import HANG, Asked, Script, said
from tests.gateway.stage import APIS, Threaded, body_of, named
from turnscript.apis.api import Api
from turnscript.gateway.app import application
from turnscript.gateway.kinds import InvalidConfig

EACH = pytest.mark.parametrize("api", APIS, ids=named)
SERVERS = {
    "uvicorn": ["uvicorn", "app:app", "--port"],
    "hypercorn": ["hypercorn", "app:app", "--bind"],
    "granian": ["granian", "--interface", "asgi", "app:app", "--port"],
}
PROGRAM = "from turnscript.gateway.app import application\n\napp = application()\n"


@pytest.fixture
def kept(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """What is kept is kept elsewhere."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))


def asked(client: Any, api: Api, root: str = "") -> None:
    """It answers, whole and as a stream, and refuses what is none in the words of the API."""
    whole = client.post(root + api.endpoint, content=body_of(api, stream=False))
    assert (200, "0") == (whole.status_code, whole.headers["x-turnscript-losses"]), whole.text
    streamed = client.post(root + api.endpoint, content=body_of(api, stream=True))
    assert streamed.headers["content-type"].startswith("text/event-stream")
    assert not any(mark in streamed.text for mark in ("event: error", '"error":{'))
    assert streamed.text.startswith(("data:", "event:"))
    refused = client.post(root + api.endpoint, content=b"{")
    assert (400, "application/json") == (refused.status_code, refused.headers["content-type"])
    assert "error" in refused.json()


@EACH
def test_the_client_of_starlette_is_answered(kept: None, api: Api) -> None:
    with TestClient(application()) as client:
        asked(client, api)
        assert 404 == client.get("/nothing").status_code
        assert 405 == client.delete(api.endpoint).status_code


def test_it_may_be_mounted(kept: None) -> None:
    gateway = application()
    app = Starlette(routes=[Mount("/llm", gateway)], lifespan=lambda _: gateway.running())
    with TestClient(app) as client:
        for api in APIS:
            asked(client, api, "/llm")
        assert ["tiny"] == [one["id"] for one in client.get("/llm/v1/models").json()["data"]]


def test_settings_go_over_the_file(kept: None, tmp_path: Path) -> None:
    file = tmp_path / "turnscript.toml"
    file.write_text('[models.mine]\nbackend = "http://127.0.0.1:9"\nformat = "rwkv-goose"\n')
    with TestClient(application(file, {"server.grace": 1})) as client:
        assert ["mine"] == [one["id"] for one in client.get("/v1/models").json()["data"]]
    with pytest.raises(InvalidConfig):
        application(file, {"server.grace": "soon"})


@contextmanager
def served(name: str, folder: Path, backend: str = "") -> Iterator[str]:
    """The address of a server of that kind which runs the gateway."""
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        port = str(sock.getsockname()[1])
    (folder / "app.py").write_text(PROGRAM)
    *command, option = SERVERS[name]
    place = f"127.0.0.1:{port}" if option == "--bind" else port
    more = {"XDG_STATE_HOME": str(folder), "PYTHONPATH": os.pathsep.join([str(folder), *sys.path])}
    if backend:
        more |= {"TURNSCRIPT_MODELS_MINE_BACKEND": backend, "TURNSCRIPT_MODELS_MINE_FORMAT": "rwkv-goose"}
    server = subprocess.Popen([sys.executable, "-m", *command, option, place], cwd=folder, env=os.environ | more)
    url = f"http://127.0.0.1:{port}"
    try:
        end = time.monotonic() + 60
        while True:
            try:
                httpx2.get(f"{url}/health", timeout=5)
                break
            except httpx2.TransportError:
                assert server.poll() is None, "the server has ended"
                assert time.monotonic() < end, "the server does not answer"
                time.sleep(0.1)
        yield url
    finally:
        server.terminate()
        assert server.wait(30) in (0, -15, 143)


@pytest.mark.parametrize("name", SERVERS)
def test_any_server_runs_it(name: str, tmp_path: Path) -> None:
    with served(name, tmp_path) as url, httpx2.Client(base_url=url, timeout=30) as client:
        for api in APIS:
            asked(client, api)


def half_an_answer(asked: Asked) -> Script:
    return said({"data": [{"id": "m"}]}) if asked.line.startswith("GET") else [*BEGUN, HANG]


@pytest.mark.parametrize("name", SERVERS)
def test_a_client_that_leaves_ends_the_model_too(name: str, tmp_path: Path) -> None:
    """On any server: the model's slot is free within a second."""
    api = APIS[0]
    with (
        Threaded() as thread,
        thread.server(half_an_answer) as model,
        served(name, tmp_path, model.url) as url,
    ):
        with httpx2.stream("POST", url + api.endpoint, content=body_of(api, stream=True), timeout=30) as answer:
            pieces = answer.iter_bytes()  # who lets go of them leaves
            next(pieces)  # of a slow machine, this may be before the model is asked
            end = time.monotonic() + 20
            while not (posts := [index for index, one in enumerate(model.asked) if one.line.startswith("POST")]):
                assert time.monotonic() < end, "the model is not asked"
                time.sleep(0.01)
            [at] = posts
            assert model.asked[at].gone is None
        left = run_time()
        assert thread.run(model.until_gone(at)) - left < 1.0
