"""Owns what programs read of events, items and answers: JSON data with the words that `turnscript read` writes."""

from __future__ import annotations

from typing import Any

import msgspec

from turnscript.core.conversation import Item, Response, Text, Thinking, ToolCall, text_content
from turnscript.core.events import Event, MessageEnd, NextText, PartDelta, PartEnd, PartStart

_TYPES = {"assistant": "text"}
"""The kinds of items that are called otherwise here."""

_UNSAID = {"of": Thinking().of}


def event_record(event: Event) -> dict[str, Any]:
    """An event as JSON data."""
    if isinstance(event, PartStart):
        part = item_record(event.part)
        part.pop("text", None)
        part.pop("arguments", None)
        return {"type": "part_start", "index": event.index, "part": part}
    if type(event) is NextText:
        return {"type": "next_text", "index": event.index} | ({"refuses": True} if event.refuses else {})
    if isinstance(event, PartDelta):
        return {"type": "part_delta", "index": event.index, "text": event.text}
    if isinstance(event, PartEnd):
        return {"type": "part_end", "index": event.index, "part": event.part and item_record(event.part)}
    return {"type": "message_end", **_ending(event)}


def response_record(response: Response) -> dict[str, Any]:
    """A response as JSON data."""
    return {"items": [item_record(item) for item in response.items], **_ending(response)}


def item_record(item: Item) -> dict[str, Any]:
    """An item as JSON data: what it is and its text; arguments as the model wrote them; all else where it says more."""
    record: dict[str, Any] = {"type": _TYPES.get(item.kind, item.kind)}
    if isinstance(item, ToolCall):
        record |= {"id": item.id, "name": item.name, "arguments": item.arguments}
        fields: tuple[str, ...] = ("namespace", "custom", "open")
    else:
        content = getattr(item, "content", ())
        record["text"] = text_content(content)
        if len(content) > 1:
            record["texts"] = [part.text for part in content if isinstance(part, Text)]
        fields = ("of", "name", "open")
    for field in fields:
        value = getattr(item, field, None)
        if value and value != _UNSAID.get(field):
            record[field] = value
    return record


def _ending(end: MessageEnd | Response) -> dict[str, Any]:
    return {
        "finish_reason": end.finish_reason,
        "stop_sequence": end.stop_sequence,
        "issues": [msgspec.structs.asdict(issue) for issue in end.issues],
    }
