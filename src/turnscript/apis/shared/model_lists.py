"""Owns the lists of models that OpenAI's servers give. Members of other servers' lists are there too: many clients ask.

A client that speaks another API over the same base URL finds `type`, `display_name` and the page's first and last id.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import msgspec

from turnscript.apis.serving import ModelCard


def model_list(cards: Sequence[ModelCard]) -> bytes:
    """The models as one page."""
    page: dict[str, Any] = {"object": "list", "data": [_entry(card) for card in cards], "has_more": False}
    page |= {"first_id": cards[0].id if cards else None, "last_id": cards[-1].id if cards else None}
    return msgspec.json.encode(page)


def model_body(card: ModelCard) -> bytes:
    """One model."""
    return msgspec.json.encode(_entry(card))


def _entry(card: ModelCard) -> dict[str, Any]:
    entry: dict[str, Any] = {
        "id": card.id,
        "object": "model",
        "created": card.created,
        "owned_by": card.owner,
        "type": "model",
        "display_name": card.id,
        "created_at": datetime.fromtimestamp(card.created, UTC).isoformat().replace("+00:00", "Z"),
    }
    if card.context is not None:  # by the names that servers of local models use
        entry |= {"max_model_len": card.context, "context_length": card.context, "max_input_tokens": card.context}
    return entry
