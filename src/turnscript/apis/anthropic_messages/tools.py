"""Owns tools: how each definition is read and written, and what is left of those that other APIs have."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any

from msgspec import UNSET, UnsetType

from turnscript.apis.api import Body, Rendering
from turnscript.apis.shared.tool_choices import inner_tools, name_of
from turnscript.core.conversation import Tool, ToolsChange
from turnscript.core.json_text import NULL, Json, elements_in, json_of, read_object
from turnscript.core.wire import Reader, Wire, extra_of, given, missing

FUNCTION = "function"
SHIM_SCHEMA = json_of({"type": "object", "properties": {"input": {"type": "string"}}, "required": ["input"]})
"""The parameters of a free-text tool: one string, `input`."""
_TYPED = re.compile(rb'\{\s*"type"')
"""How most schemas begin."""


class ToolMember(Wire):
    """A tool definition. Without a `type`, or with `custom`, it is the client's; other types are Anthropic's own."""

    name: str | UnsetType = UNSET
    type: str | UnsetType = UNSET
    description: str | UnsetType = UNSET
    input_schema: Json | UnsetType = UNSET
    strict: bool | UnsetType = UNSET
    cache_control: Json | UnsetType = UNSET
    defer_loading: Json | UnsetType = UNSET
    eager_input_streaming: Json | UnsetType = UNSET


_VERBATIM = ("defer_loading", "eager_input_streaming", "cache_control")
"""Members without a name in the model, declared only to be read fast, in the order in which clients write them."""

TOOLS = list[ToolMember]
_read: Reader[list[ToolMember]] = Reader(TOOLS)


def tools_of(value: Any) -> list[Tool]:
    """All definitions."""
    return [_tool(wire, index) for index, wire in enumerate(_read(value, "$.tools"))]


def _tool(wire: ToolMember, index: int) -> Tool:
    tool = Tool(
        name=given(wire.name),
        description=given(wire.description),
        strict=given(wire.strict),
    )
    if wire.rest:
        tool.extra = extra_of(wire)
    if not (wire.cache_control is wire.defer_loading is wire.eager_input_streaming is UNSET):
        said = ((name, getattr(wire, name)) for name in _VERBATIM)
        tool.extra |= {name: value for name, value in said if value is not UNSET}
    if wire.type is not UNSET:
        tool.type = FUNCTION if wire.type == "custom" else wire.type
    if wire.input_schema is not UNSET and wire.input_schema != NULL:
        tool.parameters = wire.input_schema
    if tool.name is None and tool.type == FUNCTION:
        raise missing(f"$.tools[{index}]", "name", "a string")
    return tool


class ToolWriter:
    """Writes the tools of one request."""

    def __init__(self, rendering: Rendering) -> None:
        self.rendering = rendering
        self._allowed: set[str] = set()

    def write(self, changes: Sequence[ToolsChange]) -> list[Body]:
        """All definitions, those that came later in the conversation included."""
        tools = self.rendering.request.tools
        self._allowed = self._names_allowed([*tools, *(tool for change in changes for tool in change.added)])
        written: list[Body] = []
        for index, tool in enumerate(tools):
            at = f"$.tools[{index}]"
            if self._allowed and self._is_left_out(tool, at):
                continue
            if tool.type == FUNCTION and tool.name is not None:
                written.append(self._function(tool, at, ""))
            else:
                written += self._one(tool, at)
        if changes:
            names = {tool.name for tool in tools if tool.name is not None}
            for change in changes:
                written += self._change(change, names)
        return written

    def _names_allowed(self, tools: Sequence[Tool]) -> set[str]:
        """The names that a tool choice of mode `allowed` leaves, if any tool has one."""
        choice = self.rendering.request.settings.tool_choice
        if choice is None or choice.mode != "allowed" or choice.tools is None:
            return set()
        entries = elements_in(choice.tools)
        named = [name_of(entry, self.rendering.request) for entry in entries]
        names = {name for name in named if name is not None}
        return names if any(_named_in(tool, names) for tool in tools) else set()

    def _is_left_out(self, tool: Tool, at: str, namespace: str | None = None) -> bool:
        """Whether a tool, of a namespace maybe, is none of the allowed ones; that is a loss."""
        if not self._allowed or namespace in self._allowed or _named_in(tool, self._allowed):
            return False
        self.rendering.lose(at, "dropped", "tool_choice allows only other tools, and there is no such choice here")
        return True

    def _change(self, change: ToolsChange, names: set[str]) -> Iterator[Body]:
        lose, place = self.rendering.lose, change.at
        for index, tool in enumerate(change.added):
            at = f"{place}.tools[{index}]"
            if tool.name in names:
                lose(at, "dropped", f"a tool named {tool.name!r} is there already")
                continue
            if self._is_left_out(tool, at):
                continue
            lose(at, "moved", "offered from the start: tools cannot be added later here")
            if tool.name is not None:
                names.add(tool.name)
            yield from self._one(tool, at)
        for name in change.removed:
            lose(place, "dropped", f"tools cannot be removed later here: {name!r} stays")
        self.rendering.put_extra({}, change.extra, place)
        if not change.added and not change.removed:
            lose(place, "dropped", "a change that changes nothing has no form here")

    def _one(self, tool: Tool, at: str, namespace: str = "") -> Iterator[Body]:
        lose = self.rendering.lose
        if tool.name is None and tool.type in (FUNCTION, "custom"):
            lose(at, "dropped", "a tool without a name cannot be called")
        elif tool.type == FUNCTION:
            yield self._function(tool, at, namespace)
        elif tool.type == "custom":
            lose(at, "approximated", "free text becomes a function with one string parameter, 'input'")
            if tool.format is not None:
                lose(f"{at}.format", "dropped", "there are no grammars for tool input here")
            yield self._function(tool, at, namespace, SHIM_SCHEMA)
        elif tool.tools:
            yield from self._flat(tool, at)
        elif self.rendering.foreign:
            lose(at, "dropped", f"{self.rendering.target} cannot run a tool of type {tool.type!r}")
        else:
            yield self._own(tool, at)

    def _flat(self, tool: Tool, at: str) -> Iterator[Body]:
        """The tools of a namespace, with its name in theirs."""
        for inner, place in inner_tools(self.rendering, tool, at):
            if not self._is_left_out(inner, place, tool.name):
                yield from self._one(inner, place, f"{tool.name}__")

    def _function(self, tool: Tool, at: str, namespace: str, schema: Json | None = None) -> Body:
        body: Body = {"name": f"{namespace}{tool.name}"}
        if tool.description is not None:
            body["description"] = tool.description
        parameters = tool.parameters if schema is None else schema
        if parameters is not None and self.rendering.foreign and bytes(parameters)[:1] != b"{":
            self.rendering.lose(f"{at}.parameters", "dropped", "a schema here is an object")
            parameters = None
        if parameters is not None:
            body["input_schema"] = self._typed(parameters, at) if self.rendering.foreign else parameters
        else:
            self.rendering.lose(at, "invented", "a schema is required here: any object")
            body["input_schema"] = {"type": "object"}
        return self._rest(body, tool, at)

    def _typed(self, schema: Json, at: str) -> Json:
        """The schema of an object, as the server demands; OpenAI's takes one that does not say so."""
        if _TYPED.match(schema) or "type" in read_object(schema):
            return schema
        self.rendering.lose(f"{at}.parameters", "invented", 'a schema says its type here: "object"')
        rest = bytes(schema)[1:].strip()
        return Json(b'{"type":"object"' + (b"" if rest == b"}" else b",") + rest)

    def _own(self, tool: Tool, at: str) -> Body:
        """A tool of a type that only Anthropic knows."""
        body: Body = {"type": tool.type}
        for key, value in (("name", tool.name), ("description", tool.description), ("input_schema", tool.parameters)):
            if value is not None:
                body[key] = value
        return self._rest(body, tool, at)

    def _rest(self, body: Body, tool: Tool, at: str) -> Body:
        if tool.strict is not None:
            body["strict"] = tool.strict
        if tool.extra:
            self.rendering.put_extra(body, tool.extra, at)
        if tool.envelope:
            self.rendering.put_extra(body, tool.envelope, at)
        return body


def _named_in(tool: Tool, names: set[str]) -> bool:
    return tool.name in names or any(inner.name in names for inner in tool.tools)
