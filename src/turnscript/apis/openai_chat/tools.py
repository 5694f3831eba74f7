"""Owns tools: the members `tools` and the deprecated `functions`, and the tool changes that are folded into them.

| wire | model |
| --- | --- |
| `{"type": "function", "function": {name, description, parameters, strict}}` | `Tool`; beside `function`: `envelope` |
| `{"type": "custom", "custom": {name, description, format}}` | `Tool`, `format` without its inner `grammar` object |
| `{"type": ...}` of any other type | `Tool` of that type, its members in `extra` |
| an entry of `functions` | `Tool` whose `slot` is `functions` |
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from msgspec import UNSET

from turnscript.apis.api import Body, Rendering, leftover
from turnscript.apis.openai_chat.objects import (
    NULL,
    NULL_TEXT,
    CustomTool,
    FunctionDefinition,
    FunctionTool,
    read_function,
    read_tool,
)
from turnscript.apis.openai_chat.writing import Target
from turnscript.apis.shared.tool_choices import inner_tools, offered_tools
from turnscript.core.conversation import Extra, Request, Tool
from turnscript.core.json_text import Json, members_in, plain, read_list, read_object
from turnscript.core.losses import Indexed
from turnscript.core.wire import Verbatim, extra_of, given, mismatch

_FUNCTIONS = "functions"
_NULLABLE = ("description", "parameters", "strict")


# Reading.


def read_tools(members: dict[str, Any], request: Request) -> None:
    """Take `tools` and `functions` out of the members. An empty list says nothing and stays as it is."""
    for key, read, places in _LISTS:
        value = members.get(key)
        if value is None:
            continue
        if isinstance(value, Json):
            if bytes(value) == NULL_TEXT:
                continue
            if bytes(memoryview(value)[:1]) != b"[":
                raise mismatch(value, f"$.{key}", "an array of tools")
            value = read_list(value)
        if value:
            del members[key]
            before = len(request.tools)
            request.tools.extend([read(entry, places[index]) for index, entry in enumerate(value)])
            if key == _FUNCTIONS:
                request.paths |= {_TOOLS[before + index]: places[index] for index in range(len(value))}
        else:
            members[key] = Json(b"[]")


def _read_tool(value: Any, at: str) -> Tool:
    wire: Any = value if type(value) is FunctionTool else read_tool(value, at)
    if type(wire) is FunctionTool:
        tool = _of_definition(wire.function)
        if wire.rest:
            tool.envelope = extra_of(wire)
        return tool
    if type(wire) is CustomTool:
        return _read_custom(wire)
    assert isinstance(wire, Verbatim)
    extra = read_object(wire.value)
    del extra["type"]
    return Tool(type=wire.tag, extra=extra)


def _read_function(value: Any, at: str) -> Tool:
    tool = _of_definition(read_function(value, at))
    tool.slot = _FUNCTIONS
    return tool


_TOOLS = Indexed("$.tools")
_LISTS: tuple[tuple[str, Callable[[Any, str], Tool], Indexed], ...] = (
    ("tools", _read_tool, _TOOLS),
    (_FUNCTIONS, _read_function, Indexed("$.functions")),
)


def _of_definition(function: FunctionDefinition) -> Tool:
    tool = Tool(name=function.name, description=given(function.description))
    if function.parameters is not UNSET:
        tool.parameters = function.parameters
    if function.strict is not UNSET:
        tool.strict = function.strict
    if function.rest or (tool.parameters is not None and bytes(tool.parameters) == NULL_TEXT):
        _keep_rest(tool, extra_of(function))
    return tool


def _keep_rest(tool: Tool, rest: Extra) -> None:
    """Unnamed members go to `extra`. A null means the same as no member."""
    if tool.parameters is not None and bytes(tool.parameters) == NULL_TEXT:
        tool.parameters = None
    tool.extra = {key: value for key, value in rest.items() if key not in _NULLABLE}


def _read_custom(wire: CustomTool) -> Tool:
    custom = wire.custom
    tool = Tool(name=custom.name, description=given(custom.description), type="custom")
    tool.extra = extra_of(custom)
    if custom.format is not UNSET:
        tool.format = _flat_format(custom.format, tool.extra)
    tool.envelope = extra_of(wire)
    return tool


def _flat_format(value: Json, extra: Extra) -> Json | None:
    """A format without its inner `grammar` object. Unnamed members, and a format of another form, go to `extra`."""
    members = members_in(value)
    inner = members.get("grammar", NULL)
    grammar = members_in(inner)
    kind = members.get("type", NULL)
    if bytes(kind) == b'"text"':
        flat, rest = {"type": kind}, {key: one for key, one in members.items() if key != "type"}
    elif bytes(kind) == b'"grammar"' and _GRAMMAR <= grammar.keys():
        flat = {}
        for key, one in members.items():  # in the order of the wire, so that nothing but the nesting changes
            if key == "type":
                flat[key] = one
            elif key == "grammar":
                flat |= {name: part for name, part in grammar.items() if name in _GRAMMAR}
        rest = {key: one for key, one in members.items() if key not in ("type", "grammar")}
        unnamed = {key: one for key, one in grammar.items() if key not in _GRAMMAR}
        if unnamed:
            rest["grammar"] = leftover(unnamed)
    else:
        extra["format"] = value
        return None
    if rest:
        extra["format"] = leftover(rest)
    return leftover(flat)


_GRAMMAR = {"definition", "syntax"}


# Writing.


def write_tools(body: Body, target: Target) -> None:
    """Write the tools. The seed profile has no place for any (requirements R-U-17..21)."""
    rendering = target.rendering
    kept = None if target.changes else rendering.slices.tools(rendering.request, "tools", _FUNCTIONS)
    if kept is not None:
        body |= kept
        return
    tools: list[Body] = []
    functions: list[Body] = []
    for tool, at in offered_tools(rendering, target.changes):
        if target.seed:
            rendering.lose(at, "dropped", "the seed profile has no tool definitions")
        elif target.own and tool.slot == _FUNCTIONS:
            functions.append(_write_definition(rendering, tool, at))
        else:
            _write_tool(rendering, tool, at, tools)
    if tools:
        body["tools"] = tools
    if functions:
        body[_FUNCTIONS] = functions


def _write_tool(rendering: Rendering, tool: Tool, at: str, tools: list[Body], prefix: str = "") -> None:
    """Append what a tool is here. `prefix`: the namespaces around it, which begin its name."""
    if tool.type == "function":
        body: Body = {"type": "function", "function": _write_definition(rendering, tool, at, prefix)}
    elif tool.type == "custom":
        body = {"type": "custom", "custom": _write_custom(rendering, tool, at, prefix)}
    elif tool.type == "namespace" and (rendering.foreign or tool.tools):
        for inner, place in inner_tools(rendering, tool, at):
            _write_tool(rendering, inner, place, tools, f"{prefix}{tool.name}__")
        return
    elif rendering.foreign:
        rendering.lose(at, "dropped", f"a tool of type {tool.type!r} has no form here")
        return
    else:
        body = {"type": tool.type, **({"name": tool.name} if tool.name is not None else {})}
        rendering.put_extra(body, tool.extra, at)
    if tool.envelope:
        rendering.put_extra(body, tool.envelope, at)
    tools.append(body)


def _write_definition(rendering: Rendering, tool: Tool, at: str, prefix: str = "") -> Body:
    body: Body = {"name": f"{prefix}{tool.name}" if prefix else tool.name}
    if tool.description is not None:
        body["description"] = tool.description
    if tool.parameters is not None and rendering.foreign and bytes(tool.parameters)[:1] != b"{":
        rendering.lose(f"{at}.parameters", "dropped", "a schema here is an object")
    elif tool.parameters is not None:
        body["parameters"] = tool.parameters
    if tool.strict is not None:
        body["strict"] = tool.strict
    if tool.extra:
        rendering.put_extra(body, tool.extra, at)
    return body


def _write_custom(rendering: Rendering, tool: Tool, at: str, prefix: str) -> Body:
    body: Body = {"name": f"{prefix}{tool.name}"}
    if tool.description is not None:
        body["description"] = tool.description
    if tool.format is not None:
        body["format"] = _nested_format(tool.format)
    if tool.extra:
        rendering.put_extra(body, tool.extra, at)
    return body


def _nested_format(value: Json) -> Any:
    """A format with the inner `grammar` object that this API wants; any other as it is."""
    members: Body = dict(members_in(value))
    if "type" not in members or plain(members["type"]) != "grammar" or "grammar" in members:
        return members or value
    nested: Body = {}
    for key, one in members.items():
        if key in _GRAMMAR:
            nested.setdefault("grammar", {})[key] = one
        else:
            nested[key] = one
    return nested
