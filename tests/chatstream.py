"""Owns what the tests of streams of chunks share: chunks as servers write them, reading them, and what SDKs are fed."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from turnscript.apis.openai_chat import OpenAIChat
from turnscript.apis.streams import StreamParser
from turnscript.core.conversation import Request, Settings
from turnscript.core.errors import UpstreamError
from turnscript.core.events import Event, MessageEnd, PartDelta, PartEnd, PartStart, fold
from turnscript.core.json_text import Json
from turnscript.core.sse import frame

API = OpenAIChat()
ALL = ("text", "texts", "thinking", "call", "refusal", "custom", "idless")
"""The kinds of parts that an answer of this API can say."""


def asked(usage: bool = True) -> Request:
    settings_ = Settings(model="client-model", stream=True)
    if usage:
        settings_.stream_options = Json(b'{"include_usage":true}')
    return Request(settings=settings_, origin="openai-chat")


def chunk(delta: dict[str, Any], finish_reason: str | None = None, **members: Any) -> bytes:
    choice = {"index": 0, "delta": delta, "finish_reason": finish_reason}
    head = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": "m"}
    return frame(json.dumps(head | {"choices": [choice]} | members, ensure_ascii=False))


def call_delta(index: int, arguments: str | None = None, **members: Any) -> dict[str, Any]:
    function = {key: members.pop(key) for key in ("name",) if key in members}
    function |= {} if arguments is None else {"arguments": arguments}
    return {"tool_calls": [{"index": index} | members | {"function": function}]}


def read(data: bytes, size: int = 0) -> list[Event]:
    parser = API.stream_parser()
    events: list[Event] = []
    for start in range(0, len(data), size or max(1, len(data))):
        events += parser.feed(data[start : start + (size or len(data))])
    return events + parser.close()


def until_error(parser: StreamParser, pieces: Iterable[bytes]) -> tuple[list[Event], UpstreamError]:
    """The events before the error, and the error, whichever call raises it."""
    events: list[Event] = []
    try:
        for piece in pieces:
            events += parser.feed(piece)
        events += parser.close()
    except UpstreamError as error:
        return events, error
    raise AssertionError(f"no error, but {fold(events)}")


def written(events: list[Event], request: Request | None = None) -> bytes:
    renderer = API.stream_renderer(request or asked())
    return renderer.send(events) + renderer.close()


def payloads(data: bytes) -> list[Any]:
    lines = [line[6:] for line in data.decode().split("\n") if line.startswith("data: ")]
    return [line if line == "[DONE]" else json.loads(line) for line in lines]


def well_formed(events: list[Event]) -> bool:
    """Whether parts do not overlap, count from 0, and one end stands last."""
    going, count = -1, 0
    for event in events[:-1]:
        if isinstance(event, PartStart):
            assert (going, count) == (-1, event.index)
            going, count = event.index, count + 1
        elif isinstance(event, PartDelta | PartEnd):
            assert going == event.index
            going = -1 if isinstance(event, PartEnd) else going
    assert going == -1
    return isinstance(events[-1], MessageEnd)


STOP = chunk({}, "stop")
CALLED = chunk({}, "tool_calls")
DONE = frame("[DONE]")
HELLO = chunk({"role": "assistant", "content": ""}) + chunk({"content": "Hi"})
