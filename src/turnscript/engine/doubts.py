"""Owns what of a transcript can be read and is hardly meant: misspelt marks, results without calls, wrong arguments."""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from decimal import Decimal
from difflib import get_close_matches
from itertools import islice
from typing import Any

from msgspec.structs import replace

from turnscript.core.conversation import Assistant, Item, Request, Tool, ToolCall, ToolResult, ToolsChange, User
from turnscript.core.json_text import Json, is_object, plain
from turnscript.core.losses import Loss
from turnscript.engine.correlate import shows
from turnscript.engine.lines import FAULT, WARNING, Finding, Findings, Lines, found_loss
from turnscript.engine.nearly import near_marks
from turnscript.engine.table import Document


def with_doubts(document: Document, text: str, request: Request, found: Findings) -> Findings:
    """Return what is wrong with a transcript, sorted, and what of it is hardly meant as it is read."""
    text = text.removeprefix("\ufeff").replace("\r\n", "\n")  # which no line and no column is another for
    lines = Lines(text)
    near = {lines.at(one.position): one.message for one in near_marks(document, text)}
    findings = [_explained(one, near.pop((one.line, one.column), "")) for one in found.all]
    findings += [Finding(*place, WARNING, message) for place, message in near.items()]
    unread = sorted(found.unread)
    for item, message in (*_unpaired(document, request.items, unread), *_ill_called(request, unread)):
        findings.append(replace(found_loss(Loss(item.at, "approximated", message), found.tools), kind=WARNING))
    return Findings(sorted(set(findings)), found.tools, unread)


def _explained(one: Finding, near: str) -> Finding:
    """Return a finding with what is nearly a mark where it stands."""
    if not near or "did you mean" in one.message:
        return one
    return replace(one, message=f"{one.message} ({near})" if one.kind == FAULT else near)


Doubt = tuple[Item, str]
"""What is hardly meant as it is read, and why."""
Places = Sequence[tuple[int, int]]
"""Lines and columns, sorted: of faults that may be why a call, a result or a tool was not read."""


def _place(item: Item) -> tuple[int, int]:
    """Return where an item begins."""
    told = found_loss(Loss(item.at, "approximated", ""), (0, 0))
    return told.line, told.column


def _between(places: Places, start: tuple[int, int], end: tuple[int, int]) -> bool:
    """Return whether one of these places is behind a start and before an end."""
    at = bisect_left(places, start)
    return at < len(places) and places[at] < end


def _unpaired(document: Document, items: Sequence[Item], unread: Places) -> Iterator[Doubt]:
    """Give results that answer no call, calls that nothing answers though the conversation goes on, and ids of two.

    Where something between the two was not read, that may be the one that is missing.
    """
    yield from _of_two(items, ToolCall if shows(document).call_id or not document.results else ToolResult)
    waiting: dict[int, ToolCall] = {}
    ids: dict[str | None, deque[int]] = {}
    answered = False  # whether a result stands behind what waits
    begin = (0, 0)  # where calls began to wait
    for index, item in enumerate(items):
        if isinstance(item, ToolCall):
            waiting[index] = item
            ids.setdefault(item.id, deque()).append(index)
        elif isinstance(item, ToolResult):
            answered = True
            call = _call_of(item, waiting, ids)
            if call is None and not _between(unread, begin, _place(item)):
                yield item, _orphaned(item, list(waiting.values()))
            waiting.pop(next(iter(waiting), -1) if call is None else call, None)
        elif isinstance(item, User) or (isinstance(item, Assistant) and answered):
            for one in waiting.values():
                if not _between(unread, _place(one), _place(item)):
                    yield one, f"no result answers this call of {one.name!r}, and the conversation goes on behind it"
            waiting, answered, begin = {}, False, _place(item)


def _call_of(result: ToolResult, waiting: Mapping[int, ToolCall], ids: Mapping[str | None, deque[int]]) -> int | None:
    """Return which call a result answers: that with its id, else the first of its name where one has no id."""
    known = ids.get(result.id) if result.id is not None else None
    while known and known[0] not in waiting:
        known.popleft()
    if known:
        return known[0]
    for at, call in waiting.items():
        if (result.id is None or call.id is None) and result.name in (None, call.name):
            return at
    return None


def _orphaned(result: ToolResult, waiting: Sequence[ToolCall]) -> str:
    if not waiting:
        return "no call waits for this result"
    ids = [call.id for call in waiting if call.id is not None]
    what, known = ("id", ids) if result.id is not None and ids else ("name", [call.name for call in waiting])
    said = result.id if what == "id" else result.name
    others = " or ".join(map(repr, dict.fromkeys(known)))
    return (
        f"no call that waits for a result has the {what} {said!r}; there {'is' if len(known) == 1 else 'are'} {others}"
    )


def _of_two(items: Sequence[Item], kind: type[ToolCall | ToolResult]) -> Iterator[Doubt]:
    """Give calls, or results where only these show ids, whose id one before them has, too."""
    first: dict[str, str] = {}
    word = "call" if kind is ToolCall else "result"
    for item in items:
        if isinstance(item, kind) and item.id is not None:
            if item.id in first:
                yield item, f"the {word} at {first[item.id]} has the id {item.id!r}, too"
            first.setdefault(item.id, item.at)


# Arguments.

_SINGLE = ("function", "custom")
"""Types of tools that are called by their own names."""
_TYPES: dict[str, tuple[type, ...]] = {
    "string": (str,),
    "number": (int, float, Decimal),
    "integer": (int, float, Decimal),
    "boolean": (bool,),
    "null": (type(None),),
    "array": (list,),
    "object": (dict,),
}


def _ill_called(request: Request, unread: Places) -> Iterator[Doubt]:
    """Give calls without a name, calls of tools that the transcript does not define though it defines some, and calls
    with arguments that their tool, as it is defined, does not take."""
    tools: dict[str | None, Tool] = {tool.name: tool for tool in request.tools}
    for item in request.items:
        if isinstance(item, ToolsChange):
            tools = {name: tool for name, tool in tools.items() if name not in item.removed}
            tools |= {tool.name: tool for tool in item.added}
        elif isinstance(item, ToolCall):
            yield from ((item, message) for message in _wrong_in(item, tools, unread))


def _wrong_in(call: ToolCall, tools: Mapping[str | None, Tool], unread: Places) -> Iterator[str]:
    """Give what is wrong with a call. `tools`: those that are defined where it stands, by their names."""
    place = _place(call)
    tool = tools.get(call.name)
    if not call.name:
        if not _between(unread, place, (place[0] + 1, 0)):  # a fault of its own says it
            yield "this call has an empty name"
    elif tool is not None and not call.custom:
        for message in _mismatches(call.arguments, tool.parameters):
            yield f"{message}, as the tool {call.name!r} is defined here"
    elif tool is None and _tells_all(tools, call) and not _between(unread, (0, 0), place):
        near = get_close_matches(call.name, filter(None, tools), n=1)
        hint = f"; did you mean {near[0]!r}?" if near else f"; there is {', '.join(map(repr, islice(tools, 8)))}"
        yield f"no tool {call.name!r} is defined here{hint}"


def _tells_all(tools: Mapping[str | None, Tool], call: ToolCall) -> bool:
    """Return whether all that may be called is among these: tools that servers run, and groups, have more names."""
    return bool(tools) and not call.namespace and all(one.name and one.type in _SINGLE for one in tools.values())


def _mismatches(arguments: str, parameters: Json | None) -> Iterator[str]:
    """Give what a schema's types, lists of values, and required and other members say against arguments."""
    schema = plain(parameters) if parameters is not None else None
    if not isinstance(schema, dict) or not is_object(arguments):
        return
    values = plain(Json(arguments.encode()))
    properties = schema.get("properties")
    properties = properties if isinstance(properties, dict) else {}
    closed = schema.get("additionalProperties") is False and not schema.get("patternProperties")
    for key, value in values.items():
        declared = properties.get(key)
        if closed and key not in properties:
            yield f"there is no argument {key!r}"
        elif isinstance(declared, dict) and (expected := _unlike(value, declared)):
            yield f"the argument {key!r} must be {expected}"
    required = schema.get("required")
    for key in required if isinstance(required, list) else ():
        if isinstance(key, str) and key not in values:
            yield f"the argument {key!r} is missing"


def _unlike(value: Any, schema: dict[str, Any]) -> str:
    """Return what a value must be that is not what a schema says; empty if it is, or if that cannot be told."""
    said, enum = schema.get("type"), schema.get("enum")
    types: list[Any] = said if isinstance(said, list) else [said]
    known = all(isinstance(one, str) and one in _TYPES for one in types)
    if known and types and not any(_is(value, one) for one in types):
        return " or ".join(types)
    if isinstance(enum, list) and value not in enum:
        return f"one of {', '.join(map(repr, enum[:8]))}"
    return ""


def _is(value: Any, type_: str) -> bool:
    """Return whether a value is of a type of JSON Schema."""
    if isinstance(value, bool) and type_ != "boolean":
        return False
    whole = type_ != "integer" or (isinstance(value, int | float | Decimal) and value % 1 == 0)
    return isinstance(value, _TYPES[type_]) and whole
