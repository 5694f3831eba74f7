"""Owns who learns where model servers are: whoever runs the gateway, and nobody who only has a key for it."""

from __future__ import annotations

import asyncio
import re
import socket
from collections.abc import Iterator
from pathlib import Path

import httpx2
import pytest
from msgspec.structs import replace

from tests.gateway.running import Running
from tests.gateway.scripted import CLOSE, HANG, RESET, STREAM, Script, chunk, event
from tests.gateway.stage import APIS, FORMAT, NO_TLS, Stage, body_of, named, piece
from turnscript.apis.api import Api
from turnscript.convert.registry import get_backend
from turnscript.core.errors import UpstreamError
from turnscript.gateway.config import Config
from turnscript.gateway.keys import add_key
from turnscript.gateway.served import served_models
from turnscript.gateway.upstream import Upstream

EACH = pytest.mark.parametrize("api", APIS, ids=named)
PLACE = "127.0.0.1"
SAYS: dict[str, Script] = {
    "reset": [RESET],
    "closed": [CLOSE],
    "broken off": [STREAM, chunk(event(piece("Once"))), RESET],
    "silent": [HANG],
    "stuck": [STREAM, chunk(event(piece("Once"))), HANG],
    "elsewhere": [b"HTTP/1.1 307 Go\r\nlocation: http://127.0.0.1:9/v1/completions\r\ncontent-length: 0\r\n\r\n"],
    "no HTTP": [b"SSH-2.0-OpenSSH\r\n\r\n", CLOSE],
    "too many headers": [b"HTTP/1.1 200 OK\r\n" + b"x: y\r\n" * 5000, CLOSE],
}
TIMES = {"first_byte": 0.2, "between": 0.2}


@pytest.fixture(scope="module")
def keyed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Stage, dict[str, str]]]:
    """A gateway that others use, and the headers of one of them."""
    path = tmp_path_factory.mktemp("keys") / "keys"
    key = add_key(path, "anna").reveal()
    timeouts = replace(Config.for_backend("http://localhost", FORMAT).models[0].timeouts, **TIMES)
    with Stage(server={"keys": path}, model={"timeouts": timeouts}) as made:
        yield made, {"x-api-key": key}


@EACH
@pytest.mark.parametrize("script", SAYS.values(), ids=SAYS)
def test_who_has_a_key_is_not_told_where_the_model_server_is(
    keyed: tuple[Stage, dict[str, str]], api: Api, script: Script, caplog: pytest.LogCaptureFixture
) -> None:
    stage, headers = keyed
    for stream in (False, True):
        stage.play(script)
        told = stage.ask(api, stream=stream, headers=headers)
        assert told.error is not None
        assert "the model server" in str(told.error)
        assert PLACE not in told.body.decode()
    logged = [record.__dict__["fields"] for record in caplog.records if record.getMessage() == "backend failed"]
    assert [f"{stage.models[0].url}/v1"] * 2 == [fields["url"] for fields in logged]


@EACH
def test_whose_gateway_it_is_is_told(api: Api) -> None:
    with Stage() as stage:
        for name in ("closed", "broken off", "elsewhere", "no HTTP"):
            stage.play(SAYS[name])
            assert PLACE in stage.ask(api, stream=False).body.decode()


@pytest.mark.parametrize("kind", ["auto", "completions"])
@pytest.mark.parametrize("scheme", ["http", "https"])
def test_a_server_that_is_not_there_is_named_in_the_log_alone(
    kind: str, scheme: str, caplog: pytest.LogCaptureFixture
) -> None:
    with socket.create_server((PLACE, 0)) as taken:
        port = taken.getsockname()[1]
    config = Config.for_backend(f"{scheme}://{PLACE}:{port}", FORMAT, kind=kind)
    with Running(replace(config, server=replace(config.server, public=True))) as gateway:
        for api in APIS:
            told = httpx2.post(gateway.url + api.endpoint, content=body_of(api, stream=False), verify=NO_TLS)
            assert 502 == told.status_code
            assert "nothing listens there" in told.text
            assert (PLACE in told.text, str(port) in told.text) == (False, False)
    logged = [record.__dict__["fields"] for record in caplog.records if record.__dict__["fields"].get("error")]
    assert any(f"{PLACE}:{port}" in str(fields.get("url") or fields.get("backend")) for fields in logged)


def test_why_there_is_no_secure_connection_is_told_without_the_address() -> None:
    """Whose gateway it is reads it in the log, where the address is beside it."""

    async def refuse(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 400 No\r\n\r\n")
        writer.close()

    async def asked() -> UpstreamError | None:
        server = await asyncio.start_server(refuse, PLACE, 0)
        url = f"https://{PLACE}:{server.sockets[0].getsockname()[1]}"
        async with server, Upstream(url, get_backend("completions"), told=False) as upstream:
            return await upstream.trouble()

    trouble = asyncio.run(asked())
    assert re.search(r"no secure connection to the model server: [A-Z][A-Z_ ]+; check its certificate", str(trouble))


def test_a_model_is_another_one_where_others_may_ask_from_now_on(tmp_path: Path) -> None:
    mine = Config.for_backend("http://localhost:9", FORMAT)
    theirs = replace(mine, server=replace(mine.server, public=True))
    first, second, third = (served_models(config, 0)[0] for config in (mine, theirs, theirs))
    assert (False, True) == (first.is_as(second), second.is_as(third))
