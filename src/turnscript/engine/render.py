"""Owns writing: a request as the spans of a document, for an archive (everything) or a prompt (what a model sees)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from turnscript.conversation import Item, Request, System, Tool, ToolsChange
from turnscript.engine.attributes import attribute_text, extra_attributes, write_attributes
from turnscript.engine.bodies import Metadata, ToolList
from turnscript.engine.spans import Writer
from turnscript.engine.table import Document, Section, Turn
from turnscript.errors import InvalidConversation

_METADATA = Metadata()
_TOOLS = ToolList()


def write_document(document: Document, request: Request, archive: bool) -> Writer:
    """All spans of a request and what was lost. A last item that is `open` has no closing."""
    _require_closed(request.items)
    out = Writer(document.escape, archive)
    fields = metadata_of(request) if archive else {}
    if fields:
        with_section(document, document.metadata, out, lambda: _METADATA.write(fields, out))
    items = request.items
    leading = _count_leading(document, items, archive) if request.tools else 0
    _write_items(document, items[:leading], 0, out)
    if request.tools:
        _write_tools(document, request.tools, out)
    _write_items(document, items[leading:], leading, out)
    return out


def metadata_of(request: Request) -> dict[str, Any]:
    """What the archive says beside the items; nothing for a conversation without options and unnamed members."""
    fields = {"options": request.extra, "settings": _said(request.settings), "hints": request.hints}
    fields = {key: value for key, value in fields.items() if value}
    if request.origin is not None and (fields or any(map(_has_extra, request.items))):
        fields = {"origin": request.origin, **fields}
    return fields


def with_section(document: Document, section: Section, out: Writer, write: Any) -> None:
    """A section around what `write` writes."""
    _separate(document, out)
    out.control(f"{section.open}{document.tag_end}\n")
    write()
    out.control(f"\n{section.close}")


def _require_closed(items: Sequence[Item]) -> None:
    for index, item in enumerate(items[:-1]):
        if item.open:
            message = f"only the last item may be open, and this is item {index} of {len(items)}; close it"
            raise InvalidConversation(message, path=item.at or f"items[{index}]", expected="open=False")


def _said(settings: Any) -> Any:
    fields = settings.__struct_fields__
    return settings if any(getattr(settings, field) is not None for field in fields) else None


def _has_extra(item: Item) -> bool:
    if item.extra or (item.hints and item.hints.envelope):
        return True
    return any(part.extra for part in getattr(item, "content", ()))


def _count_leading(document: Document, items: Sequence[Item], archive: bool) -> int:
    """How many items stand before the tool list: the leading instructions, and what a prompt does not show."""
    hidden = set() if archive else {turn.kind for turn in document.turns if not turn.prompt}
    leading = (item.kind in hidden or (isinstance(item, System) and not item.open) for item in items)
    return next((index for index, leads in enumerate(leading) if not leads), len(items))


def _separate(document: Document, out: Writer) -> None:
    if out.spans:
        out.control(document.separator)


def _write_tools(document: Document, tools: Sequence[Tool], out: Writer) -> None:
    with_section(document, document.tools, out, lambda: _TOOLS.write(tools, out))


def _write_items(document: Document, items: Sequence[Item], start: int, out: Writer) -> None:
    turns = {turn.kind: turn for turn in document.turns}
    models_turn = False  # whether the item before was the model's own, so that it writes this opening too
    for index, item in enumerate(items, start):
        turn = turns[item.kind]
        out.item, out.place = index, item.at or f"items[{index}]"
        if not (turn.prompt or out.archive):
            out.lose("", "dropped", f"a prompt does not show items of type {getattr(item, 'type', item.kind)!r}")
            continue
        out.trainable = models_turn and turn.model
        _separate(document, out)
        _write_turn(document, turn, item, out)
        models_turn = turn.model
    out.item, out.place, out.trainable = -1, "", False


def _write_turn(document: Document, turn: Turn, item: Item, out: Writer) -> None:
    if isinstance(item, ToolsChange):
        change = f" removed={attribute_text(item.removed)}" if item.removed else ""
        shown = write_attributes(item, turn.attributes, out) + extra_attributes(item, out)
        out.control(f"{turn.open} change=true{change}{shown}{document.tag_end}\n")
        _TOOLS.write(item.added, out)
    else:
        known = write_attributes(item, turn.attributes, out)
        payload = _payload_attributes(turn.body.attributes(item, out.archive))
        out.control(f"{turn.open}{known}{payload}{extra_attributes(item, out)}{document.tag_end}\n")
        out.trainable = turn.model
        turn.body.write(item, out)
    if not item.open:
        out.control(f"\n{turn.close}")


def _payload_attributes(attributes: Mapping[str, str]) -> str:
    return "".join([f" {key}={value}" for key, value in attributes.items()])
