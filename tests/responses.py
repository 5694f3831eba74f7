"""Owns what the tests of Responses answers share: requests, answers as events, and streams taken apart."""

from __future__ import annotations

import json
from collections.abc import Sequence
from copy import copy
from typing import Any

from tests.strategies import events as drawn
from turnscript.apis.openai_responses import OpenAIResponses
from turnscript.core.conversation import Assistant, Item, Request, Response, Text, Thinking, ToolCall
from turnscript.core.events import Event, MessageEnd
from turnscript.core.sse import SseReader, frame

API = OpenAIResponses()
KINDS = ("text", "texts", "thinking", "call", "refusal", "custom", "idless")
REQUEST = API.parse_request({"model": "gpt-client", "input": "Hi"})
TOOLS: list[dict[str, Any]] = [
    {"type": "function", "name": "plain__tool", "parameters": {}, "strict": None},
    {"type": "custom", "name": "apply_patch"},
    {"type": "function", "name": "ns__f", "parameters": {}, "strict": None},
    {
        "type": "namespace",
        "name": "ns",
        "description": "one of its names is taken",
        "tools": [{"type": "function", "name": "f", "parameters": {}, "strict": None}],
    },
    {
        "type": "namespace",
        "name": "fs",
        "description": "files",
        "tools": [
            {"type": "function", "name": "read", "parameters": {}, "strict": None},
            {"type": "custom", "name": "edit"},
        ],
    },
]
TOOLED = API.parse_request({"model": "m", "input": "Hi", "tools": TOOLS})
TEXT, THOUGHT = Assistant(content=[Text(text="Hello")]), Thinking(content=[Text(text="Hm.")])
CALL = ToolCall(name="f", arguments='{"a": 1.0}', id="call_1")


def without_made_up(found: list[Item], wanted: list[Item]) -> list[Item]:
    """The items without those ids that the originals have not."""
    items = []
    for item, original in zip(found, wanted, strict=True):
        bare = copy(item)
        for field in ("id", "item_id"):
            if hasattr(bare, field) and getattr(original, field) is None:
                setattr(bare, field, None)
        items.append(bare)
    return items


def answer(*items: Item, reason: str | None = "stop", **fields: Any) -> list[Event]:
    """The events of an answer, in pieces of two characters."""
    return drawn.told(Response(items=list(items), finish_reason=reason, **fields), drawn.in_pieces(2))


def stream(told: Sequence[Event], request: Request = REQUEST) -> bytes:
    writer = API.stream_renderer(request)
    return writer.send(told) + writer.close()


def payloads(data: bytes) -> list[dict[str, Any]]:
    reader = SseReader()
    found = reader.feed(data) + reader.close()
    bodies = [json.loads(text) for _, text in found]
    assert [name for name, _ in found] == [body["type"] for body in bodies]
    return bodies


def types_of(data: bytes) -> list[str]:
    """The event types without their common beginning."""
    return [body["type"].removeprefix("response.") for body in payloads(data)]


def parsed(data: bytes) -> list[Event]:
    parser = API.stream_parser()
    return [*parser.feed(data), *parser.close()]


def of_payloads(*bodies: Any) -> bytes:
    return b"".join(frame(json.dumps(body), str(body.get("type", ""))) for body in bodies)


def last(data: bytes) -> Any:
    return payloads(data)[-1]["response"]


def shifted(events: Sequence[Event], by: int) -> Sequence[Event]:
    """The events with other part numbers."""
    for event in events:
        if not isinstance(event, MessageEnd):
            event.index += by
    return events
