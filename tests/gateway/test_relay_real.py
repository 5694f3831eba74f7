"""Owns passing on to servers that nobody wrote for a test: llama.cpp's own chat endpoints, and a gateway of ours."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import anthropic
import httpx2
import pytest

from tests.gateway.relays import KINDS, of_kind
from tests.gateway.running import Running
from tests.gateway.stage import APIS, NO_TLS, Told, body_of, named
from tests.sdks import anthropic_sdk
from turnscript.apis.api import Api
from turnscript.backends.chats import Chat
from turnscript.gateway import shipped
from turnscript.gateway.config import Config
from turnscript.gateway.configfile import load
from turnscript.gateway.embedded import Embedded

WAYS = pytest.mark.parametrize("stream", [True, False], ids=["stream", "whole"])
SCHEMA: Any = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
TOOL: Any = {"name": "get_weather", "description": "Get the weather.", "input_schema": SCHEMA}


@pytest.fixture(scope="module")
def llamacpp() -> Iterator[str]:
    """llama.cpp with the tiny model; it makes prompts of its own for it, so what it writes means little."""
    with Embedded(shipped.FILE, context=4096, parallel=2, threads=1) as model:
        yield model.url


OF_LLAMACPP = [kind for kind in KINDS if kind.name != "gemini"]
"""The kinds whose API llama.cpp's server has."""


@pytest.fixture(scope="module", params=OF_LLAMACPP, ids=of_kind)
def before_llamacpp(request: pytest.FixtureRequest, llamacpp: str) -> Iterator[str]:
    """A gateway before it, for each of the APIs that it has."""
    kind: Chat = request.param
    with Running(Config.for_backend(llamacpp, None, kind=kind.name, extra={"temperature": 0})) as gateway:
        yield gateway.url


@pytest.fixture(scope="module", params=OF_LLAMACPP, ids=of_kind)
def before_gateway(request: pytest.FixtureRequest) -> Iterator[str]:
    """A gateway before a gateway that has the tiny model, for each API."""
    kind: Chat = request.param
    with ExitStack() as stack:
        behind = stack.enter_context(Running(load(None, {}, shipped=shipped.settings())))
        config = Config.for_backend(behind.url, None, kind=kind.name)
        yield stack.enter_context(Running(config)).url


@pytest.mark.parametrize("api", APIS, ids=named)
@WAYS
def test_llamacpp_answers_every_client(before_llamacpp: str, api: Api, stream: bool) -> None:
    with httpx2.Client(base_url=before_llamacpp, timeout=60, verify=NO_TLS) as web:
        came = web.post(api.endpoint, content=body_of(api, stream=stream, limit=12))
        told = Told(api, came.status_code, dict(came.headers), came.content)
        assert (200, None) == (told.status, told.error), told.body
        assert told.text
        report = web.get(told.headers["x-turnscript-report"]).json()
    assert report["usage"]["input"] > 5
    assert 1 <= report["usage"]["output"] <= 12
    assert [] == report["losses"]


def test_llamacpp_counts_tokens(llamacpp: str) -> None:
    with Running(Config.for_backend(llamacpp, None, kind="messages")) as gateway, anthropic_sdk(gateway.url) as sdk:
        asked: Any = {"model": "m", "messages": [{"role": "user", "content": "Hello"}]}
        told = sdk.messages.with_raw_response.count_tokens(**asked)
        assert "exact" == told.headers["x-turnscript-token-count"]
        used = sdk.messages.create(max_tokens=1, **asked).usage
        assert told.parse().input_tokens == used.input_tokens + (used.cache_read_input_tokens or 0)


def test_a_gateway_before_a_gateway_tells_calls(before_gateway: str) -> None:
    with anthropic_sdk(before_gateway) as sdk:
        messages: list[Any] = [{"role": "user", "content": "What is the weather in Paris?"}]
        first = _asked(sdk, messages)
        (call,) = [block for block in first.content if block.type == "tool_use"]
        assert ("get_weather", {"city": "Paris"}, "tool_use") == (call.name, call.input, first.stop_reason)
        messages.append({"role": "assistant", "content": first.content})
        result = {"type": "tool_result", "tool_use_id": call.id, "content": '{"temperature": 21}'}
        messages.append({"role": "user", "content": [result]})
        last = _asked(sdk, messages)
    (text,) = [block.text for block in last.content if block.type == "text"]
    assert "21" in text
    assert "end_turn" == last.stop_reason


def _asked(sdk: anthropic.Anthropic, messages: list[Any]) -> Any:
    with sdk.messages.stream(model="m", max_tokens=200, messages=messages, tools=[TOOL]) as stream:
        return stream.get_final_message()
