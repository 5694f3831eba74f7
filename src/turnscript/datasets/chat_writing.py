"""Owns writing a conversation as rows of datasets have it: messages and tools, which `chat_rows` reads back.

    {"messages":[{"role":"user","content":"Hi"},{"role":"assistant","content":"Hello."}],"tools":null}

Tools are a string of JSON, as arguments are, so that no reader of columns mixes up their members. A call without an id
gets one that reading takes off again. What a message counts in the loss is its `weight`, where the row or its form says
that; an answer that goes on has `prefix`. What messages have no place for is a loss, as in every conversion.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from copy import copy
from typing import Any, NamedTuple

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from turnscript.apis.api import OFFICIAL, Body
from turnscript.core.conversation import (
    Assistant,
    Conversation,
    Extra,
    Item,
    Request,
    System,
    Text,
    Thinking,
    ToolsChange,
    User,
    text_content,
)
from turnscript.core.json_spelling import objects_in_one_spelling
from turnscript.core.json_text import Json
from turnscript.core.losses import Loss
from turnscript.core.message_groups import group
from turnscript.core.source_paths import at_source, message_path, part_path
from turnscript.datasets.chat_rows import Chat, chat_api, is_taken, read_messages
from turnscript.datasets.form import Example
from turnscript.datasets.members import record
from turnscript.datasets.tagged_thoughts import has_doubt

_NOT_HERE = "messages have no such member"
_THOUGHT = "a text with the tag of a thought is read as one, or refused"
_NULL, _TRUE = b"null", Json(b"true")
_ROLES: dict[type[Item], str] = {User: "user", Assistant: "assistant", System: "system"}
_encode = msgspec.json.Encoder().encode


class Written(NamedTuple):
    """A conversation as JSON, which is empty for a text that is none, and what of it the JSON does not say."""

    data: bytes
    losses: Sequence[Loss]


class _Row(Struct, gc=False):
    messages: Any
    tools: str | None = None


class _Said(Struct, gc=False):
    role: str
    content: str


def write_chat(example: Example) -> Written:
    """Return the conversation of an example."""
    if example.is_document:
        return Written(b"", ())
    request = example.request
    if not (request.tools or example.weights or example.context):
        said = _texts(request.items)
        if said is not None:
            return Written(_encode(_Row(said)), ())
    losses: list[Loss] = [*request.unread]
    messages = _messages(example, losses)
    tools = _tools(request, losses)
    return Written(_encode(_Row(messages, tools)), losses)


def read_chat(data: bytes) -> Chat:
    """Return what `write_chat` wrote, as a form reads it. Raises BadRow for what is no conversation."""
    members = record(data)
    return read_messages(members.get("messages", Json(_NULL)), members.get("tools"))


def _texts(items: Sequence[Item]) -> list[_Said] | None:
    """Return the messages of items that say one text each and nothing beside it, as most do; None if one says more."""
    found: list[_Said] = []
    for item in items:
        role = _ROLES.get(type(item))
        if role is None or item.extra or item.turn or item.envelope or item.attributes or item.open:
            return None
        assert isinstance(item, User | Assistant | System)
        part = item.content[0] if len(item.content) == 1 else None
        if type(part) is not Text or part.extra or item.name is not None or item.id is not None:
            return None
        if isinstance(item, Assistant) and (item.phase is not None or has_doubt(item)):
            return None
        found.append(_Said(item.role if isinstance(item, System) else role, part.text))
    return found


def _messages(example: Example, losses: list[Loss]) -> list[Body]:
    """Return the messages: everything but the tools."""
    request, api = example.request, chat_api()
    own = request.origin == api.origin
    weights = {**example.weights, **dict.fromkeys(example.context, 0.0)}
    pairs = [(at, item) for at, item in enumerate(request.items) if type(item) is not ToolsChange]
    spelled = objects_in_one_spelling([item for _, item in pairs])
    items = [_own(item, losses) if own else _foreign(item, losses) for item in spelled]
    if items and items[-1].open:
        items[-1] = _ended(items[-1], losses)
    if weights:
        items = _weighed(items, [weights.get(at) for at, _ in pairs])
    losses += _doubts(items)
    written = Request(conversation=Conversation(items=items), origin=api.origin if own else None, words=request.words)
    rendering = api.rendering(written, OFFICIAL, {})
    body: Body = {}
    api.write(body, rendering)
    losses += at_source(request, rendering.losses)
    messages: list[Body] = body["messages"]
    return messages


def _doubts(items: Sequence[Item]) -> Iterator[Loss]:
    """Give a loss for each text without a thought that reading takes for one, or for half of one."""
    for members in group(items):
        if not any(isinstance(item, Thinking) and text_content(item.content) for item in members):
            yield from [Loss(item.at, "approximated", _THOUGHT) for item in members if has_doubt(item)]


def _own(item: Item, losses: list[Loss]) -> Item:
    """Return an item of the API itself without unnamed members that say nothing."""
    envelope = _told(item.envelope or {}, message_path(item.at), losses)
    extra = _told(item.extra, item.at, losses)
    if len(extra) == len(item.extra) and len(envelope) == len(item.envelope or {}):
        return item
    return replace(item, extra=extra, envelope=envelope or None)


def _told(extra: Extra, at: str, losses: list[Loss]) -> Extra:
    """Return unnamed members, without those that say nothing here or would say another thing."""
    said = {key: value for key, value in extra.items() if bytes(value) != _NULL}
    losses += [Loss(f"{at}.{key}", "dropped", _NOT_HERE) for key in said if is_taken(key)]
    return {key: value for key, value in said.items() if not is_taken(key)}


def _foreign(item: Item, losses: list[Loss]) -> Item:
    """Return an item from elsewhere without what nobody knows here: unnamed members, and how another API writes it."""
    content = getattr(item, "content", ())
    found = replace(item, extra={}, slot="", envelope=None, attributes=None)
    found.turn = "new" if item.turn == "new" else ""
    around = [(message_path(item.at), item.envelope), (item.at, item.attributes)]
    unnamed = [(item.at, item.extra), *((place, members) for place, members in around if members)]
    unnamed += [(part_path(item, index), part.extra) for index, part in enumerate(content) if part.extra]
    losses += [Loss(f"{place}.{key}", "dropped", _NOT_HERE) for place, extra in unnamed for key in extra]
    if content:
        found.content = [replace(part, extra={}) if part.extra else part for part in content]  # type: ignore[attr-defined]
    return found


def _ended(item: Item, losses: list[Loss]) -> Item:
    """Return a last item that is not finished: an answer can say so."""
    found = copy(item)
    found.open = False
    if isinstance(item, Assistant):
        found.extra = {**item.extra, "prefix": _TRUE}
    else:
        kind = item.kind.replace("_", " ")
        losses.append(Loss(item.at, "approximated", f"an unfinished {kind} is written as a finished one"))
    return found


def _weighed(items: Sequence[Item], weights: Sequence[float | None]) -> list[Item]:
    """Return items that tell their weights. One that counts otherwise than the one before begins a message."""
    found: list[Item] = []
    for members in group(items):
        first = len(found)
        for at, item in enumerate(members, first):
            apart = at > first and weights[at] != weights[at - 1]
            begins = apart or at == first
            found.append(_marked(item, weights[at], apart=apart) if begins else item)
    return found


def _marked(item: Item, weight: float | None, *, apart: bool) -> Item:
    """Return the first item of a message that has a weight, or (`apart`) that another one ends before it."""
    if weight is None and not apart:
        return item
    found = copy(item)
    if apart:
        found.turn = "new"
    if weight is not None:
        found.envelope = {**(item.envelope or {}), "weight": Json(_encode(int(weight) if weight in (0, 1) else weight))}
    return found


def _tools(request: Request, losses: list[Loss]) -> str | None:
    """Return the tools as a string of JSON; None if there are none. Those that come and go are those of the end."""
    changes = [item for item in request.items if type(item) is ToolsChange]
    if not request.tools and not changes:
        return None
    api = chat_api()
    tools = [replace(tool, slot="") if tool.slot else tool for tool in request.tools]
    offered = Request(conversation=Conversation(items=list(changes), tools=tools), origin=request.origin)
    rendering = api.rendering(offered, OFFICIAL, {})
    body: Body = {}
    api.write(body, rendering)
    losses += at_source(request, rendering.losses)
    written = body.get("tools")
    return _encode(written).decode() if written else None
