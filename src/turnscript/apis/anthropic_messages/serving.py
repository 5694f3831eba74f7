"""Owns what a server of this API does beside answering: counts of tokens, models, and what it must refuse."""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from datetime import UTC, datetime
from typing import Any

import msgspec

from turnscript.apis.anthropic_messages.client_tools import as_function
from turnscript.apis.anthropic_messages.diagnostics import DIAGNOSING
from turnscript.apis.anthropic_messages.errors import ThreadsUnsupported
from turnscript.apis.serving import EffortChange, ModelCard, Serving, unasked, unseen
from turnscript.core.conversation import Item, Opaque, Request, System, Text
from turnscript.core.errors import InvalidRequest
from turnscript.core.json_text import Json, plain, read_object
from turnscript.core.message_groups import slot_of

THREAD, CONFIG, COMPACTION = "$.thread", "output_config", "compaction"
IN_MESSAGES = "message"
"""The slot of a system text that stands among the messages, before any other."""


def _count(tokens: int) -> bytes:
    return msgspec.json.encode({"input_tokens": tokens})


def _models(cards: Sequence[ModelCard]) -> bytes:
    page: dict[str, Any] = {"data": [_entry(card) for card in cards], "has_more": False}
    page |= {"first_id": cards[0].id if cards else None, "last_id": cards[-1].id if cards else None}
    return msgspec.json.encode(page)


def _model(card: ModelCard) -> bytes:
    return msgspec.json.encode(_entry(card))


def _entry(card: ModelCard) -> dict[str, Any]:
    return {
        "type": "model",
        "id": card.id,
        "display_name": card.id,
        "created_at": datetime.fromtimestamp(card.created, UTC).isoformat().replace("+00:00", "Z"),
        "lifecycle": "active",
        "line": None,
        "deprecated_at": None,
        "retires_at": None,
        "max_input_tokens": card.context,
        "max_tokens": card.answer,
        "capabilities": _capabilities(card),
    }


def _capabilities(card: ModelCard) -> dict[str, Any]:
    """Return what a model that continues text can do here: all alike, but for thinking, pictures and JSON."""
    no, thinks = {"supported": False}, {"supported": card.thinks}
    efforts = ("low", "medium", "high", "xhigh", "max")
    return {
        "batch": no,
        "citations": no,
        "code_execution": no,
        "context_management": no
        | {"clear_thinking_20251015": no, "clear_tool_uses_20250919": no, "compact_20260112": no},
        "effort": thinks | dict.fromkeys(efforts, thinks),
        "image_input": {"supported": card.sees},
        "pdf_input": no,
        "server_tools": no | {"code_execution": no, "web_search": no},
        "structured_outputs": {"supported": card.shapes},
        "thinking": thinks
        | {
            "types": {
                "adaptive": thinks,
                "between_tools": no,
                "disabled": {"supported": True},
                "enabled": thinks,
            }
        },
    }


def _refusal(request: Request) -> InvalidRequest | None:
    """A thread holds a conversation that the server keeps. Ignored, the model would answer without it; refused in these
    words, clients send all of it again."""
    thread = request.extra.get("thread")
    if thread is None or bytes(thread) == b"null":
        return None
    message = "message threads are not kept here; send the whole conversation"
    return ThreadsUnsupported(message, path=THREAD, expected="no such member")


def _unasked(request: Request) -> InvalidRequest | None:
    """A system text alone is no turn of anybody's."""
    said = [item for item in request.items if not isinstance(item, System) or slot_of(item) == IN_MESSAGES]
    return unseen(said) if said else unasked("$.messages", "message")


def _effort(item: Item) -> EffortChange | None:
    """What a message of the system's in the middle says of it."""
    if not isinstance(item, System) or CONFIG not in item.extra:
        return None
    config = item.extra[CONFIG]
    members = read_object(config) if bytes(config)[:1] == b"{" else {}
    value = members.pop("effort", None)
    effort = plain(value) if value is not None else None
    if not isinstance(effort, str):
        return None
    rest = copy(item)
    rest.extra = {key: value for key, value in item.extra.items() if key != CONFIG}
    if members:
        rest.extra[CONFIG] = Json(msgspec.json.encode(members))
    said = rest.extra or any(not isinstance(part, Text) or part.text for part in item.content)
    return EffortChange(effort, rest if said else None)


def _summary(item: Item) -> str | None:
    """That of a compaction, which Anthropic's servers make. One without a text has failed."""
    if not isinstance(item, Opaque) or item.type != COMPACTION:
        return None
    value = read_object(item.value).get("content")
    text = plain(value) if value is not None else None
    return text if isinstance(text, str) and text else None


SERVING = Serving(
    models=_models,
    model=_model,
    header="anthropic-version",
    id_prefix="msg_",
    count_path="/v1/messages/count_tokens",
    count=_count,
    refusal=_refusal,
    unasked=_unasked,
    effort=_effort,
    as_function=as_function,
    summary=_summary,
    seals=lambda request: True,
    diagnosing=DIAGNOSING,
)
