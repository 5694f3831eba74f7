"""Owns lists of tools: where each definition stood, what is loaded later, and whether a session keeps their order."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from copy import copy
from operator import is_
from typing import Any

from turnscript.core.conversation import DECLARED_AS, Conversation, Request, Tool
from turnscript.core.json_text import Json, read_object
from turnscript.core.losses import Indexed, Loss
from turnscript.engine.bodies import tool_from

AT = "at"
"""The hint of a tool that says where its definition stood: lists of tools change, and a loss must name its place."""

NAMESPACE = "namespace"
_SLOT = "tools"
TOOLS = Indexed(f"$.{_SLOT}")
"""Where tools stand that are all in one list."""
_DEFER = "defer_loading"
REFERENCE = "tool_reference"
"""The type of what names a tool that is to be loaded."""
_DEEPEST = 32


def tool_paths(tools: Sequence[Tool]) -> list[str]:
    """Where the definitions of a request's tools stand, which may be two lists."""
    counts: dict[str, int] = {}
    paths = []
    for tool in tools:
        slot = tool.hints.get("slot", _SLOT)
        index = counts.get(slot, 0)
        counts[slot] = index + 1
        paths.append(TOOLS[index] if slot == _SLOT else f"$.{slot}[{index}]")
    return paths


def spelled(request: Request, as_function: Callable[[Tool], Tool | None]) -> tuple[Request, list[Loss]]:
    """The request with tools that only their vendor's models know as the functions that they are, and what was said of
    them that they did not say themselves. The request that is given is not changed."""
    if not request.tools:
        return request, []
    told = [as_function(tool) or tool for tool in request.tools]
    if all(map(is_, told, request.tools)):
        return request, []
    losses = [
        Loss(path, "approximated", f"the model is told what a tool of type {_type(tool)!r} takes")
        for tool, function, path in zip(request.tools, told, tool_paths(request.tools), strict=True)
        if function is not tool
    ]
    whole = copy(request)
    whole.conversation = Conversation(request.items, told)
    return whole, losses


def _type(tool: Tool) -> str:
    return tool.hints.get(DECLARED_AS, tool.type)


def place_of(tool: Tool) -> str:
    """Where the definition of a tool stood."""
    return tool.hints.get(AT, "$.tools")


def is_deferred(tool: Tool) -> bool:
    """Whether a tool is loaded later."""
    said = tool.extra.get(_DEFER)
    return said is not None and bytes(said).strip() == b"true"


def undeferred(tool: Tool) -> Tool:
    """A tool without the mark that it is loaded later: the same one where there is none."""
    if _DEFER not in tool.extra and not tool.tools:
        return tool
    tool = copy(tool)
    tool.extra = {key: value for key, value in tool.extra.items() if key != _DEFER}
    tool.tools = [undeferred(one) for one in tool.tools]
    return tool


def split(tool: Tool) -> tuple[Tool | None, list[Tool]]:
    """What of a tool is offered at once, and what later: of a namespace each of its tools, in it."""
    plain_tool = undeferred(tool)
    if is_deferred(tool):
        return None, [plain_tool]
    if not tool.tools:
        return plain_tool, []
    later: list[Tool] = []
    for whole, inner in zip(tool.tools, plain_tool.tools, strict=True):
        if is_deferred(whole):
            one = copy(plain_tool)
            one.tools = [inner]
            one.hints = {**one.hints, AT: place_of(inner)}
            later.append(one)
    if later:
        shown = [inner for whole, inner in zip(tool.tools, plain_tool.tools, strict=True) if not is_deferred(whole)]
        if not shown:
            return None, later
        plain_tool.tools = shown
    return plain_tool, later


def names_of(tool: Tool) -> list[str]:
    """What tells a tool from others; of a namespace, what tells each of its tools."""
    if tool.type == NAMESPACE and tool.tools:
        return [f"{tool.name}__{one.name}" for one in tool.tools]
    return [tool.name if tool.name is not None else f"{tool.type}:{place_of(tool)}"]


def unknown(tool: Tool, known: Collection[str]) -> Tool | None:
    """What of a tool is not among the known names; of a namespace, those of its tools."""
    names = names_of(tool)
    if not any(name in known for name in names):
        return tool
    new = [one for one, name in zip(tool.tools, names, strict=False) if name not in known]
    if not new:
        return None
    rest = copy(tool)
    rest.tools = new
    return rest


def defined(members: dict[str, Json]) -> Tool:
    """A tool from its wire object, which an API has left inside something that it does not read."""
    schema = members.pop("input_schema", None)
    inner = members.get("function")
    if inner is not None:
        members = read_object(inner)
    tool = tool_from(members)
    tool.parameters = schema if tool.parameters is None else tool.parameters
    return tool


def references(value: Any, depth: int = 0) -> Iterator[str]:
    """The names that references to tools give, anywhere in a JSON value."""
    if isinstance(value, dict):
        if value.get("type") == REFERENCE:
            yield str(value.get("tool_name", value.get("name", "")))
        elif depth < _DEEPEST:
            for one in value.values():
                yield from references(one, depth + 1)
    elif isinstance(value, list) and depth < _DEEPEST:
        for one in value:
            yield from references(one, depth + 1)


# The order of a session's tools.


def tool_order(request: Request) -> tuple[str, ...]:
    """The tools in their order, to be compared with those of the session's next request."""
    return tuple(name for tool in request.tools for name in names_of(tool))


def reordered(before: Sequence[str], request: Request, *, keep: bool = False) -> tuple[Request, list[Loss]]:
    """The loss for tools that are not where the session's last request had them, so that the prompt changes early.

    Tools that follow all that were there before change it, too, but are no fault. `keep`: known tools in their old
    order, then the new ones.
    """
    now = tool_order(request)
    if now[: len(before)] == tuple(before):
        return request, []
    places = {name: place for place, name in enumerate(before)}
    at = next((at for at, name in enumerate(now) if at >= len(before) or name != before[at]), len(now))
    path = _path_of(request.tools, now[at] if at < len(now) else "")
    gone = [name for name in before if name not in now]
    what = f"{', '.join(gone)} left the list" if gone else f"{now[at]!r} came before others"
    loss = Loss(path, "moved", f"tools_reordered: {what}, so the prompt changes from there on")
    if not keep:
        return request, [loss]
    tools = sorted(request.tools, key=lambda tool: places.get(names_of(tool)[0], len(places)))
    kept = copy(request)
    kept.conversation = Conversation(request.items, tools)
    return kept, [loss]


def _path_of(tools: Sequence[Tool], name: str) -> str:
    return next((place_of(tool) for tool in tools if name in names_of(tool)), "$.tools")


__all__ = [
    "AT",
    "NAMESPACE",
    "REFERENCE",
    "TOOLS",
    "defined",
    "is_deferred",
    "names_of",
    "place_of",
    "references",
    "reordered",
    "spelled",
    "split",
    "tool_order",
    "tool_paths",
    "undeferred",
    "unknown",
]
