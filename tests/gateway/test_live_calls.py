"""Owns calls on their way to the official SDKs: the first piece of their arguments is there before the model's last."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.gateway.relays import KINDS, USAGE, call, of_kind, relaying
from tests.gateway.scripted import END, STREAM, Asked, Script, chunk
from tests.gateway.stage import Stage, answer, text_of_call
from tests.sdks import anthropic_sdk, openai_sdk
from tests.strategies import events as drawn
from turnscript.apis.api import Reply
from turnscript.backends.chats import Chat
from turnscript.convert.registry import api_at
from turnscript.core.conversation import Response

LINES = "".join([f"line {number} of a long file, é\n" for number in range(20)])
SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}}
ASK: Any = [{"role": "user", "content": "Write it."}]
SEEN = 10.0
"""Seconds that a model waits for its client to have seen the first piece of a call: or else something holds that."""
HELD = 0.3
"""The same where something is to hold it."""


def chat(url: str) -> Iterator[str]:
    tool: Any = {"type": "function", "function": {"name": "get_weather", "parameters": SCHEMA}}
    with openai_sdk(url) as sdk, sdk.chat.completions.stream(model="m", messages=ASK, tools=[tool]) as stream:
        for event in stream:
            if event.type == "tool_calls.function.arguments.delta" and event.arguments_delta:
                yield event.arguments_delta
        assert "tool_calls" == stream.get_final_completion().choices[0].finish_reason


def responses(url: str) -> Iterator[str]:
    tool: Any = {"type": "function", "name": "get_weather", "parameters": SCHEMA, "strict": False}
    with openai_sdk(url) as sdk, sdk.responses.stream(model="m", input="Write it.", tools=[tool]) as stream:
        for event in stream:
            if event.type == "response.function_call_arguments.delta":
                yield event.delta
        assert "completed" == stream.get_final_response().status


def messages(url: str) -> Iterator[str]:
    tool: Any = {"name": "get_weather", "input_schema": SCHEMA}
    with (
        anthropic_sdk(url) as sdk,
        sdk.messages.stream(model="m", messages=ASK, tools=[tool], max_tokens=4096) as stream,
    ):
        for event in stream:
            if event.type == "input_json" and event.partial_json:
                yield event.partial_json
        assert "tool_use" == stream.get_final_message().stop_reason


SDKS = pytest.mark.parametrize("ask", [chat, responses, messages], ids=lambda ask: ask.__name__)


def waiting(script: Script, seen: threading.Event) -> Script:
    """A script that goes on to the end of what it says only when the client has seen its beginning."""
    middle = len(script) // 2
    return [*script[:middle], seen, *script[middle:]]


def read(
    ask: Callable[[str], Iterator[str]], url: str, seen: threading.Event, seconds: float = SEEN
) -> tuple[bool, str]:
    """Whether the client saw some of the call while the model waited, and all that it saw."""
    hurry = threading.Timer(seconds, seen.set)
    hurry.start()
    pieces: list[str] = []
    first = True
    for piece in ask(url):
        if not pieces:
            first = not seen.is_set()
        pieces.append(piece)
        seen.set()
    hurry.cancel()
    return first, "".join(pieces)


def written() -> Script:
    """A model's long call, a few characters at a time."""
    text = text_of_call(LINES)
    return answer(*[text[start : start + 9] for start in range(0, len(text), 9)])


@SDKS
def test_the_first_piece_of_a_call_is_there_before_the_model_wrote_the_last(ask: Any) -> None:
    seen = threading.Event()
    with Stage() as stage:
        stage.play(waiting(written(), seen))
        live, arguments = read(ask, stage.url, seen)
    assert live
    assert {"city": LINES} == json.loads(arguments)


@SDKS
@pytest.mark.parametrize("settings", [{"model": {"calls": "whole"}}, {"policy": {"invalid_calls": "text"}}])
def test_a_call_waits_where_it_is_wanted_whole_or_may_yet_be_refused(ask: Any, settings: Any) -> None:
    seen = threading.Event()
    with Stage(**settings) as stage:
        stage.play(waiting(written(), seen))
        live, arguments = read(ask, stage.url, seen, HELD)
    assert not live
    assert {"city": LINES} == json.loads(arguments)


@SDKS
@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind.name != "gemini"], ids=of_kind)
def test_the_call_of_a_server_with_a_chat_api_is_passed_on_as_it_comes(ask: Any, kind: Chat) -> None:
    seen = threading.Event()
    told = Response(items=[call(1, LINES)], finish_reason="tool_calls", usage=USAGE)

    def play(asked: Asked) -> Script:
        api = api_at(kind.endpoint)
        renderer = api.stream_renderer(api.parse_request(asked.body), Reply(id="up_1"))
        events = renderer.send(drawn.told(told, drawn.in_pieces(9))) + renderer.close()
        return waiting([STREAM, *(chunk(event + b"\n\n") for event in events.split(b"\n\n") if event), END], seen)

    with relaying(kind) as relay:
        relay.play(play)
        live, arguments = read(ask, relay.url, seen)
    assert live
    assert {"city": LINES} == json.loads(arguments)
