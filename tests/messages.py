"""Owns Messages requests, responses and frames of streams as tests write them, and what of a response is compared."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from typing import Any

import msgspec

from tests.strategies import events as answers
from turnscript.apis.anthropic_messages import AnthropicMessages
from turnscript.core.conversation import Assistant, Request, Response, Settings, ToolCall
from turnscript.core.events import Event
from turnscript.core.sse import SseReader, frame

API = AnthropicMessages()
KINDS = ("text", "texts", "thinking", "call", "refusal", "custom", "idless")
Frames = list[tuple[str, dict[str, Any]]]


def request(**asked: Any) -> Request:
    """What a client asked: a model by its own name for it, and the stop strings that answers may name."""
    return Request(origin="anthropic", settings=Settings(model="client-model", stop=list(answers.STOPS), **asked))


def written(events: Sequence[Event], asked: Request | None = None) -> bytes:
    writer = API.stream_renderer(asked or request())
    return b"".join([writer.send([event]) for event in events]) + writer.close()


def read(*pieces: bytes) -> list[Event]:
    parser = API.stream_parser()
    events = [event for piece in pieces for event in parser.feed(piece)]
    return events + parser.close()


def frames(data: bytes) -> Frames:
    reader = SseReader()
    return [(name, json.loads(text)) for name, text in reader.feed(data) + reader.close()]


def stream(*payloads: dict[str, Any]) -> bytes:
    """A stream as a server sends it."""
    return b"".join([frame(json.dumps(one), one["type"]) for one in payloads])


def start(**members: Any) -> dict[str, Any]:
    head: dict[str, Any] = {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": "m",
        "content": [],
        "stop_reason": None,
    }
    usage = {"input_tokens": 3, "output_tokens": 1}
    return {"type": "message_start", "message": {**head, "stop_sequence": None, "usage": usage, **members}}


def block(index: int, opening: dict[str, Any], *deltas: dict[str, Any]) -> list[dict[str, Any]]:
    begin = {"type": "content_block_start", "index": index, "content_block": opening}
    middle = [{"type": "content_block_delta", "index": index, "delta": delta} for delta in deltas]
    return [begin, *middle, {"type": "content_block_stop", "index": index}]


def text(index: int, *pieces: str) -> list[dict[str, Any]]:
    return block(index, {"type": "text", "text": ""}, *[{"type": "text_delta", "text": piece} for piece in pieces])


def call(index: int, *pieces: str) -> list[dict[str, Any]]:
    opening = {"type": "tool_use", "id": f"toolu_{index}", "name": "f", "input": {}}
    return block(index, opening, *[{"type": "input_json_delta", "partial_json": piece} for piece in pieces])


def end(reason: str | None = "end_turn", **members: Any) -> list[dict[str, Any]]:
    delta = {"stop_reason": reason, "stop_sequence": None}
    return [{"type": "message_delta", "delta": delta, "usage": {"output_tokens": 4}, **members}, STOP]


STOP: dict[str, Any] = {"type": "message_stop"}
WHOLE = stream(start(), *text(0, "Hé", "llo"), *call(1, '{"a"', ": 1.0}"), *end("tool_use"))


SILENT: dict[str, Any] = {"stop_details": None, "container": None}
SILENT_USAGE: dict[str, Any] = dict.fromkeys(("cache_creation", "inference_geo", "server_tool_use", "service_tier"))
"""What Anthropic's servers say of every message and of its counts, though it says nothing."""


def bare(response: Response) -> Response:
    """A response without what this API makes up or does not say, such as ids of calls that had none; without origin.

    Each text is a block, and read as an item, whether or not it was one of several.
    """
    bared = msgspec.structs.replace(response, id=None, model=None, raw=None, origin=None)
    bared.items = []
    for item in response.items:
        if isinstance(item, ToolCall) and "toolu_" in (item.id or ""):
            bared.items.append(msgspec.structs.replace(item, id=None))
        elif isinstance(item, Assistant) and len(item.content) > 1:
            bared.items += [msgspec.structs.replace(item, content=[part]) for part in item.content]
        else:
            bared.items.append(item)
    return bared


def finite(value: Any) -> Any:
    """A value as the SDK prints it: `1e400` is an infinity in Python, which its JSON says as null."""
    if isinstance(value, dict):
        return {key: finite(one) for key, one in value.items()}
    if isinstance(value, list):
        return [finite(one) for one in value]
    return None if isinstance(value, float) and math.isinf(value) else value
