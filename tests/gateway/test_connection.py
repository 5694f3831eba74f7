"""Owns a connection across its requests: how long it stays between them, and what fails on it that nobody expected."""

from __future__ import annotations

import asyncio
import socket
import time
from typing import Any

import httpx2
import pytest

from tests.gateway.stage import APIS, Stage, answer, body_of, connected, named, post
from turnscript.apis.api import Api
from turnscript.gateway.service import Service

EACH = pytest.mark.parametrize("api", APIS, ids=named)
IDLE = 1.0


async def answered(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, request: bytes) -> bytes:
    """The answer to a request, which is none where the connection is closed."""
    writer.write(request)
    head = await reader.readuntil(b"\r\n\r\n")
    lines = dict(line.split(b": ") for line in head.split(b"\r\n")[1:-2])
    return head + await reader.readexactly(int(lines[b"content-length"]))


def fail(*_: Any, **__: Any) -> Any:
    raise ZeroDivisionError


def test_a_connection_stays_from_its_last_answer_on_and_not_from_its_first() -> None:
    request = post(APIS[0], body_of(APIS[0], stream=False))

    async def run(url: str) -> float:
        last = 0.0
        async with connected(url) as (reader, writer), asyncio.timeout(20):
            for _ in range(3):
                assert b"200" in await answered(reader, writer, request)
                last = time.monotonic()
                await asyncio.sleep(0.6 * IDLE)
            assert b"" == await reader.read()
            return time.monotonic() - last

    with Stage(server={"idle_timeout": IDLE}) as stage:
        stage.play(answer("Hello"))
        assert 0.9 * IDLE < asyncio.run(run(stage.url)) < 10 * IDLE


@EACH
def test_what_nobody_expected_is_told_in_the_words_of_the_api(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, api: Api
) -> None:
    with Stage() as stage, monkeypatch.context() as patched:
        patched.setattr(Service, "admit", fail)
        told = stage.ask(api, stream=False)
        assert (500, "close") == (told.status, told.headers["connection"])
        assert "its log says why" in str(told.json)
    assert ["Exception in ASGI application\n"] == [record.getMessage() for record in caplog.records if record.exc_info]


def test_what_fails_behind_an_answer_ends_the_connection_and_tells_no_second_one(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def run(url: str) -> tuple[bytes, bytes]:
        async with connected(url) as (reader, writer), asyncio.timeout(20):
            first = await answered(reader, writer, post(APIS[0], body_of(APIS[0], stream=False)))
            return first, await reader.read()

    with Stage() as stage, monkeypatch.context() as patched:
        stage.play(answer("Hello"))
        patched.setattr(Service, "note_end", fail)
        first, more = asyncio.run(run(stage.url))
    assert (b"200", b"") == (first[9:12], more)
    kinds = [record.exc_info[0] for record in caplog.records if record.exc_info]
    assert [ZeroDivisionError] == kinds


def test_a_connection_on_which_nothing_was_asked_does_not_hold_up_the_end() -> None:
    with Stage() as stage:
        url = httpx2.URL(stage.url)
        silent = socket.create_connection((url.host, url.port or 80), timeout=20)
        stage.until(lambda: stage.gateway.server and stage.gateway.server.connections)
        began = time.monotonic()
    with silent:
        assert b"" == silent.recv(1)
    assert time.monotonic() - began < 10
