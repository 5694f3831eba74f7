"""Owns the names of tools that are functions here and on the wire something else, whose declaration has no name.

They are called what they are declared as, `tool_search` or `shell`, with a number where a tool of the client has that
name. So are their calls, which have no name on the wire either.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping

from turnscript.apis.openai_responses.client_calls import name_of, settle_client_items
from turnscript.apis.openai_responses.slots import CLIENT_CALLS, TOOL_SEARCH_CALL
from turnscript.apis.openai_responses.tools import NAMESPACE
from turnscript.core.conversation import DECLARED_AS, Item, Opaque, Request, ToolCall, ToolsChange, all_tools
from turnscript.core.message_groups import slot_of

OWN_CALLS = CLIENT_CALLS | {TOOL_SEARCH_CALL}
"""The slots of calls whose items have no name."""


def name_declared(request: Request) -> None:
    """Give such tools of a request, and the calls of them, a name that no other tool has."""
    if not _has_any(request):
        return
    tools = [tool for tool in all_tools(request) if tool.type != NAMESPACE]
    taken = {tool.name for tool in tools if DECLARED_AS not in tool.hints}
    names = {kind: _free(kind, taken) for kind in map(name_of, OWN_CALLS)}
    for tool in tools:
        if DECLARED_AS in tool.hints:
            tool.name = names[tool.hints[DECLARED_AS]]
    _name_calls(request.items, names)
    settle_client_items(request.items)


def name_joined(request: Request, items: Iterable[Item]) -> None:
    """The same for the calls among items that were kept and are put into a request."""
    names = {tool.hints[DECLARED_AS]: tool.name for tool in request.tools if DECLARED_AS in tool.hints}
    _name_calls(items, {kind: name for kind, name in names.items() if name is not None})


def _name_calls(items: Iterable[Item], names: Mapping[str, str]) -> None:
    for item in items:
        if type(item) is ToolCall and (slot := slot_of(item)) in OWN_CALLS:
            item.name = names.get(name_of(slot), item.name)


def _free(name: str, taken: Container[str | None]) -> str:
    free, count = name, 1
    while free in taken:
        count += 1
        free = f"{name}_{count}"
    return free


def _has_any(request: Request) -> bool:
    """Whether there may be any, which is rare."""
    tools, items = request.tools, request.items
    if tools and any(DECLARED_AS in tool.hints for tool in tools):
        return True
    kinds = set(map(type, items))
    if ToolsChange in kinds or Opaque in kinds:
        return True
    return ToolCall in kinds and any(
        type(item) is ToolCall and item.hints is not None and item.hints.slot in OWN_CALLS for item in items
    )
