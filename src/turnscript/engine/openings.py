"""Owns the opening of a segment as it is written: its literal, and what it says of the item in attributes."""

from __future__ import annotations

from msgspec.structs import replace

from turnscript.core.conversation import Item, ToolResult, ToolsChange
from turnscript.engine.attributes import attribute_text, extra_attributes, write_attributes
from turnscript.engine.layout import Place
from turnscript.engine.spans import Writer


def opening_of(place: Place, item: Item, out: Writer, keeps: bool) -> str:
    """Return the opening with its attributes. `keeps`: also those that the table does not name."""
    if isinstance(item, ToolsChange):
        change = f" removed={out.escape.spelled(attribute_text(item.removed))}" if item.removed else ""
        shown = write_attributes(item, place.own_attributes, out) + extra_attributes(item, out, place.own_attributes)
        return f"{place.open} change=true{change}{shown}{place.head_end}"
    if out.names and isinstance(item, ToolResult) and item.name is None:
        item = replace(item, name=out.names.get(out.item))
    attributes = place.own_attributes if item.hints is not None else place.unhinted_attributes
    known = write_attributes(item, attributes, out)
    payload = "".join([f" {key}={value}" for key, value in place.body.attributes(item, out.archive).items()])
    unnamed = extra_attributes(item, out, place.own_attributes) if keeps else ""
    return f"{place.open}{known}{payload}{unnamed}{place.head_end}"
