"""Owns what an archive says of a request beside its items."""

from __future__ import annotations

from typing import Any

from turnscript.core.conversation import Item, Opaque, Part, Raw, Request, Text, Tool
from turnscript.core.json_spelling import is_laid_out


def metadata_of(request: Request) -> dict[str, Any]:
    """Return what the archive says beside the items; nothing for a plain conversation without options."""
    fields = {"options": request.extra, "settings": _said(request.settings), "hints": request.hints}
    fields = {key: value for key, value in fields.items() if value} | request.archived
    if request.origin is not None and (fields or _needs_origin(request)):
        fields = {"origin": request.origin, **fields}
    return fields


def _said(settings: Any) -> Any:
    fields = settings.__struct_fields__
    return settings if any(getattr(settings, field) is not None for field in fields) else None


def _needs_origin(request: Request) -> bool:
    """Return whether something in the conversation can be written as it was only to the API that it came from. Plain
    texts, calls and results are the same bytes whichever API they are from."""
    return any(map(_is_tool_of_origin, request.tools)) or any(map(_is_item_of_origin, request.items))


def _is_tool_of_origin(tool: Tool) -> bool:
    return bool(tool.hints or tool.envelope or tool.extra)


def _is_item_of_origin(item: Item) -> bool:
    hints = item.hints
    if item.extra or (hints and (hints.slot or hints.envelope or hints.shape not in ("", "string"))):
        return True
    return isinstance(item, Opaque) or is_laid_out(item) or any(map(_is_part_of_origin, getattr(item, "content", ())))


def _is_part_of_origin(part: Part) -> bool:
    return bool(part.extra) or isinstance(part, Raw) or (isinstance(part, Text) and not part.text)
