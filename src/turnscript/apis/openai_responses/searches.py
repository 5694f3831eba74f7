"""Owns searches for tools that the client runs: how their declaration, calls and outputs are a function's here.

| wire, each with `execution: client` | model |
|--|--|
| tool `tool_search` | a function with the hint `declared_as`, which `tools` reads and writes |
| item `tool_search_call` | `ToolCall` in the slot `tool_search_call` |
| item `tool_search_output` | `ToolResult` in the slot `tool_search_output`; joined to it a `ToolsChange`: the tools |

A search has no name on the wire; `declared` gives it one. The result names the tools in words: they stand beside it,
and a model should not read an empty answer.
Searches that the server runs, and items of any other form, stay verbatim: nobody here could answer them.
"""

from __future__ import annotations

from turnscript.apis.openai_responses.slots import STRING, TOOL_SEARCH_CALL, TOOL_SEARCH_OUTPUT
from turnscript.apis.openai_responses.tools import SEARCH, found_text, is_client_run, read_tools
from turnscript.core.conversation import (
    Extra,
    Hints,
    Item,
    Text,
    ToolCall,
    ToolResult,
    ToolsChange,
)
from turnscript.core.errors import InvalidRequest
from turnscript.core.json_text import Json, is_object, plain, read_list, read_object, text_of


def read_search(kind: str, value: Json, at: str) -> list[Item]:
    """The items of a call or output of a search that the client runs; none where it is anything else."""
    read = {TOOL_SEARCH_CALL: _call, TOOL_SEARCH_OUTPUT: _output}.get(kind)
    members = read_object(value) if read is not None else {}
    if read is None or not is_client_run(members) or not _begins(members.get("call_id"), b'"'):
        return []
    del members["type"]
    return read(members, at)


def _call(members: Extra, at: str) -> list[Item]:
    value = members.pop("arguments", None)
    if value is None:
        return []
    call = ToolCall(name=SEARCH, arguments=text_of(value), as_object=True, hints=Hints(slot=TOOL_SEARCH_CALL), at=at)
    if _begins(value, b'"'):
        call.arguments, call.as_object = plain(value), False
        call.hints = Hints(slot=TOOL_SEARCH_CALL, shape=STRING)
    elif not is_object(call.arguments):
        return []
    _identify(call, members)
    return [call]


def _output(members: Extra, at: str) -> list[Item]:
    value = members.pop("tools", None)
    if value is None or not _begins(value, b"["):
        return []
    try:
        found = read_tools(read_list(value), f"{at}.tools")
    except InvalidRequest:
        return []  # what of the list is a tool can still be of use
    result = ToolResult(content=[Text(text=found_text(found))], hints=Hints(slot=TOOL_SEARCH_OUTPUT), at=at)
    _identify(result, members)
    return [result, ToolsChange(added=found, hints=Hints(turn="join"), at=at)]


def _identify(item: ToolCall | ToolResult, members: Extra) -> None:
    """The ids, and the members that have no name here."""
    item.id = plain(members.pop("call_id"))
    if _begins(members.get("id"), b'"'):
        item.item_id = plain(members.pop("id"))
    item.extra = members


def _begins(value: Json | None, mark: bytes) -> bool:
    return value is not None and bytes(value).lstrip()[:1] == mark
