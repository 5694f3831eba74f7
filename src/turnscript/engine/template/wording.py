"""Owns words for tools where a template has none: in the table's own words, tools, calls and results become texts."""

from __future__ import annotations

from collections.abc import Sequence

from turnscript.core.conversation import Item, Tool, ToolCall, ToolResult
from turnscript.core.losses import Loss
from turnscript.engine.layout import Layout, Place, layout_of
from turnscript.engine.spans import Writer
from turnscript.engine.table import Document
from turnscript.engine.template.marks import Protected
from turnscript.engine.template.messages import Marked, Message
from turnscript.engine.template.study import Traits

_DETAIL = "the template has no place for {}; they stand in the conversation, in words that are not the model's own"


def put_in_words(
    marked: Marked, items: Sequence[Item], tools: Sequence[Tool], document: Document, traits: Traits
) -> None:
    """Write what a template does not show of tools as texts, so that a model without words for them can use them."""
    layout = layout_of(document)
    if tools and not traits.tools and document.tools_place is not None:
        _put_tools(marked, tools, document)
        marked.losses.append(Loss("$.tools", "approximated", _DETAIL.format("tools")))
    for message, (first, end) in zip(marked.messages, marked.spans, strict=True):
        if message["role"] == "tool" and not traits.results and ToolResult.kind in layout.places:
            _put_result(marked, message, layout.places[ToolResult.kind], first)
        if message.get("tool_calls") and not traits.calls and ToolCall.kind in layout.places:
            _put_calls(marked, message, layout, [items[at] for at in range(first, end)], first)


def _put_tools(marked: Marked, tools: Sequence[Tool], document: Document) -> None:
    place = document.tools_place
    assert place is not None
    out = Writer(layout_of(document).escape, archive=False)
    out.control(place.open)
    place.body.write(list(tools), out)
    out.control(f"{place.close}{place.footer}")
    text = marked.written(Protected(out.text.strip()), -1)
    first = marked.messages[0] if marked.messages else None
    if first is not None and first["role"] == "system" and isinstance(first["content"], str):
        first["content"] = f"{first['content']}\n\n{text}" if first["content"] else text
        return
    marked.messages.insert(0, {"role": "system", "content": text})
    marked.spans.insert(0, (0, 0))


def _put_result(marked: Marked, message: Message, place: Place, item: int) -> None:
    message["role"] = "user"
    message.pop("tool_call_id", None)
    message.pop("name", None)
    opened = marked.written(Protected(f"{place.open}{place.head_end}"), item)
    closed = marked.written(Protected(place.close), item)
    if isinstance(message["content"], str):
        message["content"] = f"{opened}{message['content']}{closed}"


def _put_calls(marked: Marked, message: Message, layout: Layout, items: Sequence[Item], first: int) -> None:
    place = layout.places[ToolCall.kind]
    joint = layout.document.joints.get((ToolCall.kind, ToolCall.kind), "\n")
    texts = []
    calls = {at for at, item in enumerate(items, first) if isinstance(item, ToolCall)}
    marked.owners = [-1 if owner in calls else owner for owner in marked.owners]  # they are said anew
    for at, item in enumerate(items, first):
        if isinstance(item, ToolCall):
            out = Writer(place.escape, archive=False)
            out.control(f"{place.open}{place.head_end}")
            place.body.write(item, out)
            out.control(place.close)
            texts.append(marked.written(Protected(out.text), at))
    group = place.segment.group
    said = message.get("content") or ""
    between = layout.document.joints.get(("assistant", ToolCall.kind), "\n") if said else ""
    opened = marked.written(Protected(group.open), first) if group and group.open.strip() else ""
    closed = marked.written(Protected(group.close), first) if group and group.close.strip() else ""
    message["content"] = f"{said}{between}{opened}{joint.join(texts)}{closed}"
    del message["tool_calls"]
