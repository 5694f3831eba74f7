"""Owns the first system turn of formats that put more than a text into it: flags for thoughts, the tool definitions."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from msgspec.structs import replace

from turnscript.core.conversation import Item, Part, Request, System, Text, Thinking, shown
from turnscript.core.errors import InvalidConversation
from turnscript.core.losses import Loss
from turnscript.engine.jsonscan import values_end
from turnscript.engine.spans import Writer
from turnscript.engine.table import Body, Document, ToolsPlace
from turnscript.engine.toollists import is_function, report_tool

if TYPE_CHECKING:
    from turnscript.engine.render import Composer

BEHIND, BEFORE, ALONE, FIRST = "behind", "before", "alone", "first"
"""Where the tool definitions stand in a system turn, as a table says it."""
_NO_SYSTEM = System()
_PART = re.compile(r"\.content\[(\d+)\]")


def leads(item: Item) -> bool:
    """Return whether an item is a leading instruction."""
    return isinstance(item, System) and not item.open


def _first(items: list[Item]) -> System | None:
    """Return the first instructions, if they are no turn behind one that has no text. An open item is the last."""
    item = items[0] if items else None
    if not isinstance(item, System) or (item.open and len(items) > 1):
        return None
    return None if item.turn == "new" else item


def write_system(composer: Composer, request: Request, thought: str | None) -> int:
    """Write the first system turn, if it holds more than its text. Returns how many items are written by that."""
    try:
        return _write_system(composer, request, thought)
    except InvalidConversation as error:
        path = composer.out.place or "$.tools"
        raise InvalidConversation(error.message, path=path, expected=error.expected, got=error.got) from None


def _write_system(composer: Composer, request: Request, thought: str | None) -> int:
    document, declared = composer.document, request.tools
    flags = _flags(composer, request, thought)
    tools = document.tools_place if any(map(is_function, declared)) else None
    if tools is None:
        for index, tool in enumerate(declared):
            report_tool(tool, f"$.tools[{index}]", composer.out)
    if tools is not None and tools.order == ALONE:
        _write_turn_of_tools(composer, request)
        return 0
    if tools is not None and tools.apart:
        return _write_apart(composer, request)
    if flags or tools is not None or document.always_system:
        return _write_first(composer, request, flags, tools)
    return 0


def _write_first(composer: Composer, request: Request, flags: str, tools: ToolsPlace | None) -> int:
    """Write the first instructions, what is flagged behind them, and the tools before or behind them."""
    items = request.items
    first = _first(items)
    out = composer.out
    out.item, out.place = (0, first.at or "items[0]") if first else (-1, "")
    if first is not None and first.open:
        composer.note_open(items, 0, 0)
    item = first if first is not None else _NO_SYSTEM
    place = composer.layout.places[System.kind]
    composer.begin_turn(place, item)
    out.escape = place.escape
    body = place.body
    head, rest = _split(item.content, tools)
    shown = System(content=head, extra=item.extra)
    empty = body.is_empty(shown, out.flattened) and not flags
    if place.lead and not (empty and tools is None):
        out.control(place.lead)
    if tools is not None and tools.order == BEFORE:
        _write_tools(composer, request, BEFORE if not empty else "")
        out.escape = place.escape
        if values_end(_text_of(head)):
            out.lose("", "approximated", "instructions that begin with JSON may be read as one of the tools")
    if first is not None:
        body.write(shown, out)
    if flags:
        out.control(flags)
    if tools is not None and tools.order == BEHIND:
        _write_tools(composer, request, BEHIND if not empty else "")
        out.escape = place.escape
        if rest:
            out.control(tools.continued)
            _write_rest(body, rest, len(head), out)
    named = any(getattr(item, attribute.path) for attribute in place.turn_attributes)
    marked = first is not None and first.open and place.turn.close  # by its missing closing
    if first is not None and not marked and body.is_empty(item, out.flattened) and not named:
        out.lose("", "dropped", "an empty system text beside tools, or where one is always written, reads as none")
    composer.report(place, item)
    composer.place, composer.last = place, out.item
    out.end_with(out.item)
    return 1 if first is not None else 0


def _write_turn_of_tools(composer: Composer, request: Request) -> None:
    """Write a system turn that holds the tool definitions alone."""
    place = composer.layout.places[System.kind]
    composer.begin_turn(place)
    if place.lead:
        composer.out.control(place.lead)
    _write_tools(composer, request, "")
    composer.place = place
    composer.end_turn()


def _write_apart(composer: Composer, request: Request) -> int:
    """Write the leading instructions, and the tools behind their turns, or the tools alone where they come `first`.
    Returns how many items are written."""
    items, first = request.items, composer.document.tools_place.order == FIRST  # type: ignore[union-attr]
    leading = 0 if first else next((at for at, item in enumerate(items) if not leads(item)), len(items))
    if not first:
        composer.write_items(items[:leading], 0)
    composer.end_turn()
    composer.separate()
    _write_tools(composer, request, "")
    return leading


def _split(content: list[Part], tools: ToolsPlace | None) -> tuple[list[Part], list[Part]]:
    """Return the content before and after the tool definitions.

    A blank text behind them would not be read again, and one that begins with JSON would be one of them.
    """
    if tools is None or not tools.continued or len(content) < 2 or not isinstance(content[0], Text):
        return content, []
    behind = _text_of(content[1:])
    if not behind.strip() or values_end(behind):
        return content, []
    return content[:1], content[1:]


def _text_of(content: list[Part]) -> str:
    return "\n".join([text for part in content if (text := shown(part)) is not None])


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


def _write_tools(composer: Composer, request: Request, text: str) -> None:
    """Write the list, and what joins it to a text that stands `before` or `behind` it: the list's place to that."""
    tools, out = composer.document.tools_place, composer.out
    assert tools is not None
    item, place = out.item, out.place
    out.item, out.place, out.escape = -1, "", composer.layout.escape
    out.control(f"{tools.joint if text == BEHIND else ''}{tools.open}")
    tools.body.write(request.tools, out)
    out.escape = composer.layout.escape
    out.control(f"{tools.close}{tools.joint if text == BEFORE else ''}")
    out.item, out.place = item, place


def unflagged(document: Document, request: Request) -> list[Loss]:
    """Return the losses of kinds of thought that are asked for, and that no flag asks the model for."""
    path, kinds = request.paths.get("thoughts", "$.thoughts"), request.settings.thoughts or ()
    if document.flags is None:
        return [Loss(path, "dropped", "this format has no flags for kinds of thought")] if kinds else []
    known = ", ".join(document.flags.tags)
    detail = f"this format has no flag for such a kind of thought; it has {known}"
    return [Loss(f"{path}[{at}]", "dropped", detail) for at, one in enumerate(kinds) if one not in document.flags.tags]


def _flags(composer: Composer, request: Request, thought: str | None) -> str:
    """Return the tags of the kinds of thought that are asked for. A replayed turn asks for what its prompt had."""
    flags = composer.document.flags
    if flags is None:
        return ""
    kinds: set[str | None] = {thought, *(request.settings.thoughts or ())}
    at = 0
    for first, end, generated in (*composer.replays, (len(request.items), 0, None)):
        thoughts = (item for item in request.items[at:first] if isinstance(item, Thinking) and item.content)
        kinds |= {item.of for item in thoughts if item.of not in request.unasked}
        kinds |= set(generated.flags) if generated is not None else set()
        at = max(at, end)
    composer.flags = tuple(kind for kind in flags.tags if kind in kinds)
    return "".join([flags.tags[kind] for kind in composer.flags])
