"""Owns the first system turn of formats that put more than a text into it: flags for thoughts, the tool definitions."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from msgspec.structs import replace

from turnscript.conversation import Item, Part, Request, System, Text, Thinking
from turnscript.engine.jsonscan import values_end
from turnscript.engine.spans import Writer
from turnscript.engine.table import Body, ToolsPlace
from turnscript.engine.toollists import is_function, report_tool
from turnscript.readable import readable

if TYPE_CHECKING:
    from turnscript.engine.render import Composer

ASKED = "thoughts"
"""The hint of a document whose flags ask for thoughts that it does not hold."""
_NO_SYSTEM = System()
_PART = re.compile(r"\.content\[(\d+)\]")


def leads(item: Item) -> bool:
    """Whether an item is a leading instruction."""
    return isinstance(item, System) and not item.open


def _is_first(item: Item) -> bool:
    """Whether an item is the first system turn, and not one behind a turn that has no text."""
    return leads(item) and not (item.hints is not None and item.hints.turn == "new")


def write_system(composer: Composer, request: Request, thought: str | None) -> int:
    """Write the first system turn, if it holds more than its text. Returns how many items are written by that."""
    document = composer.document
    flags = _flags(composer, request, thought)
    tools = any(map(is_function, request.tools)) and document.tools_place is not None
    if not tools:
        for index, tool in enumerate(request.tools):
            report_tool(tool, f"$.tools[{index}]", composer.out)
    if not (flags or tools or document.always_system):
        return 0
    return _write_first(composer, request, flags, document.tools_place if tools else None)


def _write_first(composer: Composer, request: Request, flags: str, tools: ToolsPlace | None) -> int:
    """The same where there is more to write. `tools`: where their list stands, if there is one."""
    items = request.items
    if tools is not None and tools.apart:
        return _write_apart(composer, tools, request)
    first = items[0] if items and _is_first(items[0]) else None
    out = composer.out
    out.item, out.place = (0, first.at or "items[0]") if first else (-1, "")
    item = first if isinstance(first, System) else _NO_SYSTEM
    place = composer.layout.places[System.kind]
    composer.begin_turn(place, item)
    out.escape = place.escape
    body = place.body
    head, rest = _split(item.content, tools)
    shown = System(content=head, extra=item.extra)
    empty = body.is_empty(shown, out.flattened) and not flags
    if place.lead and not (empty and not tools):
        out.control(place.lead)
    if first is not None:
        body.write(shown, out)
    if flags:
        out.control(flags)
    if tools is not None:
        out.escape = composer.layout.escape
        _write_tools(tools, request, out, joined=not empty)
        out.escape = place.escape
        if rest:
            out.control(tools.continued)
            _write_rest(body, rest, len(head), out)
    named = any(getattr(item, attribute.path) is not None for attribute in place.turn_attributes)
    if first is not None and body.is_empty(item, out.flattened) and not named:
        out.lose("", "dropped", "an empty system text beside tools, or where one is always written, reads as none")
    composer.report(place, item)
    composer.place, composer.last = place, out.item
    out.end_with(out.item)
    return 1 if first is not None else 0


def _write_apart(composer: Composer, tools: ToolsPlace, request: Request) -> int:
    """Write the leading instructions, and the tools behind their turns. Returns how many items those are."""
    items = request.items
    leading = next((at for at, item in enumerate(items) if not leads(item)), len(items))
    composer.write_items(items[:leading], 0)
    composer.end_turn()
    composer.separate()
    _write_tools(tools, request, composer.out, joined=False)
    return leading


def _split(content: list[Part], tools: ToolsPlace | None) -> tuple[list[Part], list[Part]]:
    """The content before and after the tool definitions.

    A blank text behind them would not be read again, and one that begins with JSON would be one of them.
    """
    if tools is None or not tools.continued or len(content) < 2 or not isinstance(content[0], Text):
        return content, []
    behind = "\n".join([text for part in content[1:] if (text := readable(part)) is not None])
    if not behind.strip() or values_end(behind):
        return content, []
    return content[:1], content[1:]


def _write_rest(body: Body, rest: list[Part], skipped: int, out: Writer) -> None:
    """Write the content behind the tools. Its losses stand where the parts are in the whole content."""
    told = len(out.losses)
    body.write(System(content=rest), out)
    for at in range(told, len(out.losses)):
        loss = out.losses[at]
        found = _PART.match(loss.path, len(out.place))
        if found is not None:
            path = f"{out.place}.content[{int(found[1]) + skipped}]{loss.path[found.end() :]}"
            out.losses[at] = replace(loss, path=path)


def _write_tools(tools: ToolsPlace, request: Request, out: Writer, joined: bool) -> None:
    item, place, escape = out.item, out.place, out.escape
    out.item, out.place = -1, ""
    out.control(f"{tools.joint if joined else ''}{tools.open}")
    tools.body.write(request.tools, out)
    out.escape = escape
    out.control(tools.close)
    out.item, out.place = item, place


def _flags(composer: Composer, request: Request, thought: str | None) -> str:
    """The tags of the kinds of thought that are asked for. A turn that is replayed asks for what its prompt had."""
    flags = composer.document.flags
    if flags is None:
        return ""
    kinds: set[str | None] = {thought, *request.hints.get(ASKED, "").split()}
    at = 0
    for first, end, generated in (*composer.replays, (len(request.items), 0, None)):
        kinds |= {item.of for item in request.items[at:first] if isinstance(item, Thinking) and item.content}
        kinds |= set(generated.flags) if generated is not None else set()
        at = max(at, end)
    composer.flags = tuple(kind for kind in flags.tags if kind in kinds)
    return "".join([flags.tags[kind] for kind in composer.flags])
