"""Owns one upstream against scripted servers: what it is asked, what it says, and how it fails."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from tests.gateway.scripted import Scripted, sse
from turnscript.backends.backend import Completion, Piece
from turnscript.convert import registry
from turnscript.core.errors import UpstreamError
from turnscript.gateway.upstream import Timeouts, Upstream

BACKEND = registry.get_backend("completions")
ASK = Completion(prompt="Hi", max_tokens=5)
WHOLE = Completion(prompt="Hi", max_tokens=5, stream=False)


def text(words: str, finish: str | None = None) -> dict[str, Any]:
    return {"choices": [{"index": 0, "text": words, "finish_reason": finish}]}


ANSWER = sse(text("one"), text(" two", "stop"), "[DONE]")


async def pieces_of(upstream: Upstream, ask: Completion = ASK) -> list[Piece]:
    """All pieces of an answer."""
    async with upstream.open(ask) as answer:
        return [piece async for pieces in answer for piece in pieces]


def text_of(pieces: list[Piece]) -> str:
    return "".join(piece.text for piece in pieces)


def against(
    *scripts: Any, backend: Any = BACKEND, **settings: Any
) -> Callable[[Callable[[Scripted, Upstream], Awaitable[Any]]], Any]:
    """Runs a function with a scripted server and an upstream for it."""

    def run(test: Callable[[Scripted, Upstream], Awaitable[Any]]) -> Any:
        async def both() -> Any:
            async with Scripted(*scripts) as server, Upstream(server.url, backend, **settings) as upstream:
                return await test(server, upstream)

        return asyncio.run(both())

    return run


def failure(*scripts: Any, ask: Completion = ASK, timeouts: Timeouts | None = None) -> UpstreamError:
    """What goes wrong when a server plays these scripts."""

    @against(*scripts, timeouts=timeouts)
    async def error(server: Scripted, upstream: Upstream) -> UpstreamError:
        with pytest.raises(UpstreamError) as caught:
            await pieces_of(upstream, ask)
        return caught.value

    assert isinstance(error, UpstreamError)
    return error
