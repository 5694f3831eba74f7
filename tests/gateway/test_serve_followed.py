"""Owns the ways to ask for the events of a kept answer: by the query, or by a body that comes with a GET."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.clocks import scaled
from tests.gateway.background import EACH, events_of, until_over
from tests.gateway.stage import Stage, answer, connected
from turnscript.apis.api import Api

pytestmark = pytest.mark.usefixtures("nothing_goes_wrong")


def kept(stage: Stage, api: Api) -> str:
    """Where an answer is kept whose stream is kept, too."""
    stage.play(answer("Once", " upon", " a time"))
    told = stage.ask(api, stream=True, background=True)
    id_ = str(events_of(told.body)[0]["response"]["id"])
    assert "completed" == until_over(stage, api, id_)["status"]
    return f"{api.endpoint}/{id_}"


def fetched(stage: Stage, path: str, body: bytes = b"", **params: str) -> Any:
    """What is told: the numbers of the events, or the status of the whole answer."""
    told = stage.client.request("GET", path, content=body, params=params)
    assert 200 == told.status_code
    if told.headers["content-type"].startswith("text/event-stream"):
        return [event["sequence_number"] for event in events_of(told.content)]
    return told.json()["status"]


@EACH
def test_a_body_asks_for_the_events_as_the_query_does(stage: Stage, api: Api) -> None:
    """The official SDK for Go says it so, and takes a whole answer for a stream without any event."""
    path = kept(stage, api)
    every = fetched(stage, path, stream="true")
    assert list(range(len(every))) == every
    assert every == fetched(stage, path, b'{"stream":true}')
    assert every[3:] == fetched(stage, path, b'{ "stream": true, "more": 1 }', starting_after="2")


OTHERS = {
    "none": b"",
    "empty": b"{}",
    "no": b'{"stream":false}',
    "a word": b'{"stream":"true"}',
    "a list": b"[true]",
    "broken": b"{",
    "deep": b'{"a":' + b"[" * 1000,
    "no text": b"\xff",
    "long": b'{"stream":true}' + b" " * 9999,
}


@EACH
@pytest.mark.parametrize("body", OTHERS.values(), ids=OTHERS)
def test_any_other_body_asks_for_nothing(stage: Stage, api: Api, body: bytes) -> None:
    assert "completed" == fetched(stage, kept(stage, api), body)


HALF = b"GET %s HTTP/1.1\r\nhost: gateway\r\ncontent-length: 15\r\n\r\n{"


@EACH
@scaled
def test_a_body_that_does_not_come_is_not_waited_for_without_end(api: Api, scale: float) -> None:
    with Stage(server={"body_timeout": 3 * scale}) as stage:
        path = kept(stage, api)

        async def ask() -> bytes:
            async with connected(stage.url) as (reader, writer):
                writer.write(HALF % path.encode())
                return await reader.readline()

        assert b"HTTP/1.1 408 Request Timeout\r\n" == asyncio.run(ask())


@EACH
def test_a_client_that_goes_away_in_its_body_is_no_trouble(stage: Stage, api: Api) -> None:
    path = kept(stage, api)

    async def leave() -> None:
        async with connected(stage.url) as (_, writer):
            writer.write(HALF % path.encode())
            await writer.drain()

    asyncio.run(leave())
    assert "completed" == fetched(stage, path)
