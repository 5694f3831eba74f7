"""The kind of a model server: told by the path in its URL or by the server itself, and why nobody can be asked."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable
from typing import TypeVar

import pytest

from tests.gateway.ailing import Model
from tests.gateway.scripted import Asked, Script, Scripted, said
from turnscript.core.errors import UpstreamError
from turnscript.gateway.kinds import AUTO
from turnscript.gateway.recognizing import Taken, taken_for

T = TypeVar("T")


def of(url: str, kind: str = AUTO) -> tuple[str, str]:
    """The name of its kind, and the URL that it is asked at."""
    taken = asyncio.run(taken_for(url, kind, None))
    return taken.backend.name, taken.url


def scripted(script: Callable[[Asked], Script], then: Callable[[str], Awaitable[T]]) -> T:
    async def run() -> T:
        async with Scripted(script) as server:
            return await then(server.url)

    return asyncio.run(run())


@pytest.mark.parametrize("path", ["/v1", "/v1/"])
def test_a_server_with_an_api_of_its_own_is_found_above_the_path_that_people_write(llamacpp: str, path: str) -> None:
    assert ("llamacpp", llamacpp) == of(llamacpp + path)
    assert ("completions", llamacpp + path) == of(llamacpp + path, "completions")


def test_a_server_that_only_tells_of_itself_as_another_kind_is_what_its_path_says() -> None:
    def script(asked: Asked) -> Script:
        if asked.line == "GET /props":
            return said({"total_slots": 1, "default_generation_settings": {"n_ctx": 512}})
        return said({}, status=404)

    async def both(url: str) -> list[Taken]:
        return [await taken_for(f"{url}{path}", AUTO, None) for path in ("/v1", "/api/oai/v1")]

    assert ["completions", "ai00"] == [taken.backend.name for taken in scripted(script, both)]


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/model"])
def test_a_server_below_a_path_of_no_kind_is_asked(path: str) -> None:
    def script(asked: Asked) -> Script:
        return Model()(asked) if asked.line == f"GET {path}/models" else said({}, status=404)

    assert "completions" == scripted(script, lambda url: taken_for(f"{url}{path}", AUTO, None)).backend.name


def why(url: str) -> str:
    with pytest.raises(UpstreamError) as caught:
        of(url)
    return str(caught.value)


def test_why_a_server_cannot_be_asked_is_told() -> None:
    async def run() -> str:
        def plainly(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
            writer.close()

        async with await asyncio.start_server(plainly, "127.0.0.1", 0) as server:
            url = f"https://127.0.0.1:{server.sockets[0].getsockname()[1]}"
            with pytest.raises(UpstreamError) as caught:
                await taken_for(url, AUTO, None)
            return str(caught.value)

    assert "or use http" in asyncio.run(run())
    assert "nothing listens there" in why("http://127.0.0.1:9")
    assert "no host of that name" in why("http://nowhere.invalid:8080")
    assert re.search(
        "^cannot connect to http://255.255.255.255:9: .+; check the network", why("http://255.255.255.255:9")
    )


def test_a_server_that_is_still_loading_is_told_as_that() -> None:
    async def loading(url: str) -> str:
        with pytest.raises(UpstreamError) as caught:
            await taken_for(url, AUTO, None)
        return str(caught.value)

    assert "answers 503" in scripted(lambda _: said({"error": {"message": "Loading model"}}, status=503), loading)
