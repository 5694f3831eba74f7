"""Owns streams that a server ends with a bare line `error: {...}`: what it says is the error, in place of an event."""

from __future__ import annotations

import json
from typing import Any

import pytest

import turnscript as ts
from tests.chatstream import HELLO
from turnscript.backends.backend import Completion
from turnscript.convert import registry
from turnscript.core.errors import UpstreamError
from turnscript.core.sse import SseReader

SAID = {"code": 500, "message": "the context is full", "type": "server_error"}
LINE = f"error: {json.dumps(SAID)}\n\n".encode()
CHUNK = b'data: {"choices": [{"index": 0, "text": "Hi", "finish_reason": null}]}\n\n'
each_size = pytest.mark.parametrize("size", [1, 1000])


def cut(data: bytes, size: int) -> list[bytes]:
    return [data[at : at + size] for at in range(0, len(data), size)]


def read(reader: Any, data: bytes, size: int = 1000) -> None:
    for piece in cut(data, size):
        reader.feed(piece)
    reader.close()


@each_size
def test_such_a_line_is_an_event_of_that_name(size: int) -> None:
    reader = SseReader()
    events = [event for piece in cut(b"data: a\n\n" + LINE + b"data: b\n\n", size) for event in reader.feed(piece)]
    assert [("", "a"), ("error", json.dumps(SAID)), ("", "b")] == events
    assert reader.stray.startswith("error: ")


@pytest.mark.parametrize("data", [b"error\n\n", b"error:\n\n", b"error: \n\n"])
def test_one_that_says_nothing_is_none(data: bytes) -> None:
    assert [] == SseReader().feed(data)


@each_size
@pytest.mark.parametrize("before", [b"", HELLO])
@pytest.mark.parametrize("api", ["openai-chat", "openai-completions"])
def test_a_stream_of_chunks_says_what_the_server_said(api: str, before: bytes, size: int) -> None:
    parser = ts.get_api(api).stream_parser()
    with pytest.raises(UpstreamError) as raised:
        read(parser, (CHUNK if before and api != "openai-chat" else before) + LINE, size)
    assert ("the server says: the context is full", 500) == (raised.value.message, raised.value.upstream)


@each_size
@pytest.mark.parametrize("name", ["completions", "llamacpp", "ai00"])
def test_so_does_the_answer_of_a_model_server(name: str, size: int) -> None:
    """As llama-box tells it, and llama.cpp did."""
    reader = registry.get_backend(name).reader(Completion(prompt="Hi", max_tokens=5))
    with pytest.raises(UpstreamError, match="the context is full"):
        read(reader, LINE, size)


@pytest.mark.parametrize("api", ["openai-responses", "anthropic-messages"])
def test_other_streams_keep_it_beside_their_error(api: str) -> None:
    parser = ts.get_api(api).stream_parser()
    with pytest.raises(UpstreamError) as raised:
        read(parser, LINE)
    assert "the context is full" in raised.value.body
