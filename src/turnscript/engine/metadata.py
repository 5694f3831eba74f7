"""Owns what an archive says of a request beside its items."""

from __future__ import annotations

from typing import Any

from turnscript.conversation import Item, Request


def metadata_of(request: Request) -> dict[str, Any]:
    """What the archive says beside the items; nothing for a conversation without options and unnamed members."""
    fields = {"options": request.extra, "settings": _said(request.settings), "hints": request.hints}
    fields = {key: value for key, value in fields.items() if value} | request.archived
    if request.origin is not None and (fields or any(map(_has_extra, request.items))):
        fields = {"origin": request.origin, **fields}
    return fields


def _said(settings: Any) -> Any:
    fields = settings.__struct_fields__
    return settings if any(getattr(settings, field) is not None for field in fields) else None


def _has_extra(item: Item) -> bool:
    if item.extra or (item.hints and item.hints.envelope):
        return True
    return any(part.extra for part in getattr(item, "content", ()))
