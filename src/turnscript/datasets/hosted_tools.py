"""Owns what a provider's own tools did in an answer: searches, code and the like that no client ran and no model wrote.

    {"type": "web_search_call", "id": "ws_1", "status": "completed", "action": {"type": "search", "query": "..."}}
    {"type": "server_tool_use", "id": "s_1", "name": "web_search", "input": {...}}      and behind it
    {"type": "web_search_tool_result", "tool_use_id": "s_1", "content": [...]}

An answer behind them was written by a model that had read them. A plan says whether such a row is set aside (`reject`),
has calls with results (`calls`), or has their text as something that is read and not learnt (`text`).

Shapes: https://platform.openai.com/docs/api-reference/responses/object (`output`),
https://docs.anthropic.com/en/docs/agents-and-tools/tool-use/web-search-tool (2026-11).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from msgspec.structs import replace

from turnscript.core.conversation import Assistant, Image, Item, Opaque, Part, Text, ToolCall, ToolResult
from turnscript.core.errors import InvalidInput
from turnscript.core.json_text import json_of, plain, text_of
from turnscript.datasets.form import Example

REJECT, TEXT, CALLS = "reject", "text", "calls"
HOSTED = (REJECT, TEXT, CALLS)
"""What a plan can say."""

_CALL = "_call"
_USE, _RESULT = "tool_use", "tool_result"
_OUTCOMES = ("output", "outputs", "results", "error")
"""Members of an item with what came of it."""
_NOTES = frozenset({"type", "id", "call_id", "status", "name", "server_label", "container_id", "output_format"})
"""Members that say neither what was asked nor what came of it."""
_SEALED = "encrypted_"
"""How names begin of members that only the provider can read."""


def is_hosted(item: Item) -> bool:
    """Return whether an item is what a provider's own tool was asked or answered."""
    if not isinstance(item, Opaque):
        return False
    if item.role:
        return item.role == Assistant.kind and item.type.endswith((_USE, _RESULT))
    return item.type.endswith(_CALL)


def retold(example: Example, how: str) -> Example:
    """Return an example with what hosted tools did as `how` says. What cannot be said so stays, to be refused later."""
    if how == REJECT or example.spoken is not None or not any(map(is_hosted, example.request.items)):
        return example
    items: list[Item] = []
    origins: list[int] = []
    noted: set[int] = set()
    names: dict[str, str] = {}
    for at, item in enumerate(example.request.items):
        told = _told(item, names) if isinstance(item, Opaque) and is_hosted(item) else [item]
        if how == TEXT and told[0] is not item:
            told = [_line(one) for one in told]
            noted |= set(range(len(items), len(items) + len(told)))
        items += told
        origins += [at] * len(told)
    request = example.request
    return example.but(
        replace(request, conversation=replace(request.conversation, items=items)),
        weights={to: example.weights[at] for to, at in enumerate(origins) if at in example.weights},
        context=frozenset(to for to, at in enumerate(origins) if at in example.context) | noted,
    )


def _told(item: Opaque, names: dict[str, str]) -> list[Item]:
    """A call, its result, or both; the item itself where it is neither. `names`: those of the calls so far, by id."""
    tell: Callable[[Mapping[str, Any], str, dict[str, str]], list[Item]] = _of_block if item.role else _of_item
    try:
        members = plain(item.value)
        return tell(members, item.at, names) or [item] if isinstance(members, dict) else [item]
    except (InvalidInput, RecursionError, ValueError):
        return [item]


def _of_item(members: Mapping[str, Any], at: str, _names: dict[str, str]) -> list[Item]:
    """An item that holds what was asked and what came of it."""
    name = members.get("name")
    name = name if isinstance(name, str) and name else str(members["type"]).removesuffix(_CALL)
    id_ = members.get("id")
    id_ = id_ if isinstance(id_, str) else None
    other = (*_NOTES, *_OUTCOMES, "result")
    asked = {key: value for key, value in members.items() if key not in other and value is not None}
    found = {key: members[key] for key in _OUTCOMES if members.get(key) not in (None, [], "")}
    action = asked.get("action")
    if isinstance(action, dict) and len(asked) == 1:
        asked = {key: value for key, value in action.items() if key != "sources"}
        found |= {key: action[key] for key in ("sources",) if action.get(key)}
    content: list[Part] = []
    if isinstance(members.get("result"), str):
        content.append(Image(data=members["result"], media_type=f"image/{members.get('output_format') or 'png'}"))
    if found or not content:
        content.append(Text(text=_text(found or {"status": members.get("status", "completed")})))
    arguments = asked.get("arguments")
    arguments = arguments if isinstance(arguments, str) else _json(asked if arguments is None else arguments)
    call = ToolCall(name=_named(members.get("server_label"), name), arguments=arguments, id=id_, at=at)
    return [call, ToolResult(content=content, id=id_, name=call.name, at=at)]


def _of_block(members: Mapping[str, Any], at: str, names: dict[str, str]) -> list[Item]:
    """A block that holds one of them."""
    if str(members.get("type")).endswith(_USE):
        name, id_ = members.get("name"), members.get("id")
        if not (isinstance(name, str) and name and isinstance(id_, str)):
            return []
        names[id_] = _named(members.get("server_name"), name)
        return [ToolCall(name=names[id_], arguments=_json(members.get("input") or {}), id=id_, at=at)]
    id_ = members.get("tool_use_id")
    if id_ not in names:
        return []
    status = "error" if members.get("is_error") is True else None
    content: list[Part] = [Text(text=_text({"content": members.get("content")}))]
    return [ToolResult(content=content, id=id_, name=names.pop(id_), status=status, at=at)]


def _named(server: Any, name: str) -> str:
    return f"{server}__{name}" if isinstance(server, str) and server else name


def _text(found: Mapping[str, Any]) -> str:
    """What came of it: a text alone, texts in blocks, or the JSON of all of it."""
    value = next(iter(found.values())) if len(found) == 1 else found
    if isinstance(value, str):
        return value
    if isinstance(value, list) and value and all(_is_text(one) for one in value):
        return "\n".join(one["text"] for one in value)
    return _json(value)


def _is_text(value: Any) -> bool:
    return isinstance(value, dict) and value.get("type") == "text" and isinstance(value.get("text"), str)


def _json(value: Any) -> str:
    return text_of(json_of(_open(value)))


def _open(value: Any) -> Any:
    """A value without what only the provider can read."""
    if isinstance(value, dict):
        return {key: _open(inner) for key, inner in value.items() if not key.startswith(_SEALED)}
    return list(map(_open, value)) if isinstance(value, list) else value


def _line(item: Item) -> Item:
    """A call or a result as a text that people read."""
    if isinstance(item, ToolCall):
        return Assistant(content=[Text(text=f"[{item.name}] {item.arguments}")], at=item.at)
    assert isinstance(item, ToolResult)
    said = " ".join([part.text for part in item.content if isinstance(part, Text)])
    pictures = [part for part in item.content if not isinstance(part, Text)]
    return Assistant(content=[Text(text=f"[{item.name}: {item.status or 'result'}] {said}"), *pictures], at=item.at)


def hosted_in(items: Sequence[Item]) -> Opaque | None:
    """Return the first item that a hosted tool left and that nobody retold."""
    return next((item for item in items if isinstance(item, Opaque) and is_hosted(item)), None)


__all__ = ["CALLS", "HOSTED", "REJECT", "TEXT", "hosted_in", "is_hosted", "retold"]
