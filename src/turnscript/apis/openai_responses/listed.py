"""Owns items as lists of them show them: a message says its type, its content is a list, and each has an id."""

from __future__ import annotations

from typing import Any

from msgspec import Raw as RawJson

from turnscript.core.json_text import Json, plain


def whole(item: dict[str, Json]) -> dict[str, Any]:
    """An item as lists of items show it: a message says its type, and its content is a list."""
    if "type" in item and plain(item["type"]) is not None and plain(item["type"]) != "message":
        return dict(item)
    if "role" not in item:
        return dict(item)
    whole: dict[str, Any] = {"type": "message"} | {key: value for key, value in item.items() if key != "type"}
    content = item.get("content")
    if content is not None and bytes(content)[:1] == b'"':
        kind = "output_text" if plain(item["role"]) == "assistant" else "input_text"
        part: dict[str, Any] = {"type": kind, "text": content}
        whole["content"] = [part | {"annotations": []} if kind == "output_text" else part]
    return whole


_PREFIXES = {
    "message": "msg",
    "reasoning": "rs",
    "function_call": "fc",
    "function_call_output": "fco",
    "custom_tool_call": "ctc",
    "custom_tool_call_output": "ctco",
    "local_shell_call": "lsh",
    "local_shell_call_output": "lsho",
    "shell_call": "sh",
    "shell_call_output": "sho",
    "apply_patch_call": "apc",
    "apply_patch_call_output": "apco",
}


def with_id(item: dict[str, Any], name: str) -> dict[str, Any]:
    """An item with an id, made of its kind and `name` where it has none, and with a status where its kind has one."""
    id_ = item.get("id")
    if id_ is not None and bytes(id_) != b"null":
        return item
    kind = item.get("type", "message")
    kind = plain(kind) if isinstance(kind, RawJson) else kind
    made = {"id": f"{_PREFIXES.get(str(kind), 'item')}_{name}"}
    status = {"status": "completed"} if kind in _PREFIXES and "status" not in item else {}
    return made | status | {key: value for key, value in item.items() if key != "id"}
