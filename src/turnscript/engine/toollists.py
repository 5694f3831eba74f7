"""Owns tool definitions as the formats write them in a system turn, and reading them back.

Each writes name, description and parameters as well as it can, and says what it leaves out.
"""

from __future__ import annotations

import json
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from typing import Any

from msgspec.structs import replace

from turnscript.core.conversation import Tool
from turnscript.core.errors import InvalidRequest, InvalidTranscript
from turnscript.core.json_text import (
    Json,
    compact,
    every_member,
    json_of,
    json_string,
    members,
    plain,
    read_object,
    respace,
    string_of,
    text_of,
)
from turnscript.core.losses import Loss
from turnscript.engine.attributes import attribute_text
from turnscript.engine.escape import Escape, Rule, rules_of
from turnscript.engine.jsonscan import pretty
from turnscript.engine.lines import Lines
from turnscript.engine.recent import MB, recent
from turnscript.engine.spans import Writer
from turnscript.engine.table import Payload

Pieces = tuple[tuple[bool, str], ...]
"""What is written for a tool: texts, each with whether it is the format's own."""


class ToolTexts(ABC):
    """Tool definitions one after the other, `between` them. A subclass says what one looks like, and reads all."""

    literals: tuple[str, ...] = ()
    rules: tuple[Rule, ...] = ()
    between = "\n"

    def write(self, tools: Sequence[Tool], out: Writer) -> None:
        """Write the functions; tools of other types have no place.

        The same tools come with every request of a session, so all that is written for plain ones is kept for a while.
        """
        if self.rules:
            out.escape = _augmented(out.escape, self.rules)
        if all(map(_is_plain, tools)):
            keys = tuple([_key(tool) for tool in tools])
            pieces, marks, losses = _written(self, out.escape, keys)
            out.pieces += pieces
            out.marks += marks
            out.losses += losses
        else:
            self._write_each(tools, out)

    def _write_each(self, tools: Sequence[Tool], out: Writer) -> None:
        written = False
        for index, tool in enumerate(tools):
            place = f"$.tools[{index}]"
            if not is_function(tool) or tool.name is None:
                report_tool(tool, place, out)
                continue
            self._report(tool, place, out)
            if written:
                out.control(self.between)
            written = True
            for control, text in _cached(self.pieces, *_key(tool)):
                out.control(out.escape.spelled(text)) if control else out.content(text)

    def _report(self, tool: Tool, place: str, out: Writer) -> None:
        for field in ("strict", "format", "tools"):
            if getattr(tool, field) not in (None, []):
                out.losses.append(Loss(f"{place}.{field}", "dropped", "this format does not show it"))
        for key in (*tool.extra, *tool.envelope):
            out.losses.append(Loss(f"{place}.{key}", "dropped", "this format does not show it"))
        detail = _cached_loss(self.loss, *_key(tool))
        if detail:
            out.losses.append(Loss(place, "approximated", detail))

    def loss(self, tool: Tool) -> str:
        """Return what is lost of a tool's description and parameters; empty if nothing is."""
        return ""

    @abstractmethod
    def pieces(self, name: str, description: str | None, parameters: str | None) -> Pieces:
        """Return one definition."""

    @abstractmethod
    def read(self, payload: Payload) -> list[Tool]:
        """Return the definitions."""


Key = tuple[str, str | None, bytes | None]
"""Name, description and parameters of a function: all that formats show of it."""


def _key(tool: Tool) -> Key:
    return tool.name or "", tool.description, None if tool.parameters is None else bytes(tool.parameters)


def _tool(name: str, description: str | None, parameters: bytes | None) -> Tool:
    return Tool(name=name, description=description, parameters=None if parameters is None else Json(parameters))


def _is_plain(tool: Tool) -> bool:
    """Return whether a tool is a function of which everything can be shown."""
    return (
        tool.name is not None
        and tool.type == "function"
        and tool.strict is None
        and tool.format is None
        and not (tool.tools or tool.extra or tool.envelope)
    )


@recent(16 * MB)
def _written(body: ToolTexts, escape: Escape, keys: tuple[Key, ...]) -> tuple[list[str], list[Any], list[Loss]]:
    out = Writer(escape, archive=False)
    body._write_each([_tool(*key) for key in keys], out)
    return out.pieces, out.marks, out.losses


@lru_cache(maxsize=64)
def _augmented(escape: Escape, rules: tuple[Rule, ...]) -> Escape:
    return escape.plus(*rules)


@recent(8 * MB)
def _cached_loss(loss: Callable[[Tool], str], name: str, description: str | None, parameters: bytes | None) -> str:
    return loss(_tool(name, description, parameters))


def is_function(tool: Tool) -> bool:
    """Return whether a tool is one that formats can describe."""
    return tool.type == "function" and tool.name is not None


def report_tool(tool: Tool, place: str, out: Writer) -> None:
    """Book the loss of a tool that is no function."""
    out.losses.append(Loss(place, "dropped", f"this format has no place for tools of type {tool.type!r}"))


@recent(16 * MB)
def _cached(
    pieces: Callable[[str, str | None, str | None], Pieces],
    name: str,
    description: str | None,
    parameters: bytes | None,
) -> Pieces:
    """Return what is written for a tool. It is kept, because the same tools come with every request."""
    return pieces(name, description, None if parameters is None else parameters.decode())


class JsonTools(ToolTexts):
    """Each tool as one JSON object. `keys` name its members; `wrapped` puts it into `{"type": "function", ...}`.

    `shape` lays out the JSON. `properties` keeps of the parameters their properties alone. `tag` is the name of a tag
    around each tool.
    """

    def __init__(
        self,
        parameters: str = "parameters",
        *,
        wrapped: bool = False,
        properties: bool = False,
        shape: Callable[[str], str] = respace,
        between: str = "\n",
        tag: str = "",
    ) -> None:
        self.parameters, self.wrapped, self.properties = parameters, wrapped, properties
        self.tag = tag
        self.literals = (f"<{tag}>", f"</{tag}>") if tag else ()
        self.rules = tuple((lead, tuple(rests)) for lead, rests in rules_of(self.literals))
        self.shape = shape
        self.between = between

    def loss(self, tool: Tool) -> str:
        """Return all of the schema but its properties, where only those are shown."""
        if not self.properties or tool.parameters is None:
            return ""
        again = _object_schema(_properties_of(text_of(tool.parameters)))
        return "" if plain(again) == plain(tool.parameters) else "of the parameters only the properties are shown"

    def pieces(self, name: str, description: str | None, parameters: str | None) -> Pieces:
        """Return one JSON object."""
        fields: dict[str, object] = {"name": name}
        if description is not None:
            fields["description"] = description
        if parameters is not None:
            fields[self.parameters] = _raw(_properties_of(parameters) if self.properties else parameters)
        text = members(fields)
        if self.wrapped:
            text = f'{{"type": "function", "function": {text}}}'
        shown = (False, self.shape(text))
        return ((True, self.literals[0]), shown, (True, self.literals[1])) if self.tag else (shown,)

    def read(self, payload: Payload) -> list[Tool]:
        """Return any JSON objects one after the other, with commas or without."""
        text, escape = payload.text, payload.escape
        for literal in self.literals if self.tag else ():
            text = text.replace(literal, " " * len(literal))  # which no definition holds
        escape = _augmented(escape, self.rules) if self.rules else escape
        values = _json_values(escape.remove(text), payload)
        tools = [self._tool(value, place, index) for index, (value, place) in enumerate(values)]
        if self.tag and (wrong := _wrong_tag(payload.text, self.literals, len(tools))) is not None:
            payload.lose(f"[{wrong}]", "approximated", f"each definition stands in a {self.literals[0]} of its own")
        return tools

    def _tool(self, text: str, payload: Payload, index: int) -> Tool:
        wrapper: dict[str, Json] = {}
        at = f"[{index}]"
        try:
            fields = members_once(text, payload, at)
            wrapped = "function" in fields and "name" not in fields
            if wrapped:
                inner = members_once(text_of(fields.pop("function")), payload, at)
                wrapper, fields = fields, inner
            name = string_of(fields.pop("name"))
            described = fields.pop("description", _NULL)
            description = None if bytes(described) == b"null" else string_of(described)
        except (InvalidRequest, KeyError) as error:
            raise not_a_tool(payload, str(error)) from None
        if wrapped is not self.wrapped or (wrapped and "type" not in wrapper):
            payload.lose(f"{at}.type", "approximated", "the wrapper around a function is the format's own")
        if wrapper.get("type") == _FUNCTION:
            del wrapper["type"]
        key = next((key for key in (self.parameters, *_PARAMETER_KEYS) if key in fields), self.parameters)
        found = fields.pop(key, None)
        if found is not None and key != self.parameters:
            payload.lose(f"{at}.{key}", "renamed", f"it is called {self.parameters!r} here")
        if found is not None and self.properties:
            found = _object_schema(text_of(found))
        if wrapper.keys() & fields.keys():
            payload.lose(at, "dropped", "of a member around a function and in it that in it alone is kept")
        strict = fields.pop("strict", None) if fields.get("strict") in _BOOLEANS else None
        return Tool(
            name=name,
            description=description,
            parameters=found,
            strict=None if strict is None else plain(strict),
            extra=wrapper | fields,
        )


class IndentedTools(JsonTools):
    """Each tool as an element of a JSON array over many lines, two spaces in front of every line."""

    def __init__(self) -> None:
        super().__init__(shape=_element, between=",\n")

    def pieces(self, name: str, description: str | None, parameters: str | None) -> Pieces:
        """Return one element."""
        return ((True, "  "), *super().pieces(name, description, parameters))


def _element(text: str) -> str:
    return pretty(text, inline_arrays=False).replace("\n", "\n  ")


class TaggedTools(JsonTools):
    """Each tool as indented JSON inside a tag that repeats its name (requirements R-A-12)."""

    def __init__(self) -> None:
        super().__init__("input_schema", between="")
        self.literals = ("<tool", "</tool>")
        self.rules = (("<", ("tool", "/tool>")),)

    def pieces(self, name: str, description: str | None, parameters: str | None) -> Pieces:
        """Return the tag and its JSON."""
        fields: dict[str, object] = {"name": name}
        if description is not None:
            fields["description"] = description
        if parameters is not None:
            fields[self.parameters] = _raw(parameters)
        text = "    " + pretty(members(fields), inline_objects=True).replace("\n", "\n    ")
        return ((True, f"  <tool name={attribute_text(name)}>\n"), (False, text), (True, "\n  </tool>\n"))

    def read(self, payload: Payload) -> list[Tool]:
        """Return the JSON of each tag, laid out in any way; a tag's name is the JSON's (requirements D-A-3)."""
        text = _augmented(payload.escape, self.rules).remove(payload.text)
        found: list[Tool] = []
        lines, position = Lines(text), 0
        while tag := _TOOL_TAG.match(text, position):
            place = replace(payload, line=payload.line + lines.at(tag.end())[0] - 1)
            end = _json_end(text, tag.end(), payload)
            tool = self._tool(text[tag.end() : end], place, len(found))
            if tag[1] is not None and _string(tag[1]) != tool.name:
                raise not_a_tool(place, f"the tag says the name {tag[1]}, and the JSON {json_string(str(tool.name))}")
            found.append(tool)
            closing = _TOOL_END.match(text, end)
            if closing is None:
                raise not_a_tool(place, "</tool> must follow the JSON")
            position = closing.end()
        if text[position:].strip():
            place = replace(payload, line=payload.line + lines.at(position)[0] - 1)
            raise not_a_tool(place, "each must stand in a tag <tool>")
        return found


class MarkdownTools(ToolTexts):
    """A heading, the description and a short list of parameters for each tool (requirements R-B-12..18)."""

    between = ""

    rules = (("\n#", ("## ",)),)

    def loss(self, tool: Tool) -> str:
        """Return what is lost: all of parameters but names, types and descriptions; whether there is a description."""
        again = list(_markdown_tools(_markdown(tool), _NO_ESCAPE))
        return "" if again == [tool] else "of the parameters only names, types and descriptions are shown"

    def pieces(self, name: str, description: str | None, parameters: str | None) -> Pieces:
        """Return heading, description, parameters."""
        tool = Tool(name=name, description=description, parameters=None if parameters is None else _raw(parameters))
        return ((True, "### "), (False, _markdown(tool).removeprefix("### ")))

    def read(self, payload: Payload) -> list[Tool]:
        """Return what can be rebuilt: names, descriptions, types and descriptions of parameters (D-B-3)."""
        if _HEADING.split(payload.text, 1)[0].strip():
            raise not_a_tool(payload, "text before the first heading")
        return list(_markdown_tools(payload.text, Escape(*payload.escape.rules, *self.rules)))


_TOOL_TAG = re.compile(r'\s*<tool(?:\s+name=("(?:[^"\\]|\\.)*"))?\s*>\s*')
_TOOL_END = re.compile(r"\s*</tool>\s*")
_DECODER = json.JSONDecoder(parse_int=str)  # it only finds ends; as ints, numbers would have a longest
_NO_ESCAPE = Escape()
_NULL = Json(b"null")
_FUNCTION = Json(b'"function"')
_BOOLEANS = (Json(b"true"), Json(b"false"))
_PARAMETER_KEYS = ("parameters", "input_schema", "arguments")
_HEADING = re.compile(r"^### ", re.MULTILINE)
_LIST, _LIST_END = "\nParameters: {", "}\n\n"
_PARAMETER = re.compile(r"([^\s(:,][^(:,]*)(?: \(([^():,]*)\): (.*)|: (.*))")


def _markdown(tool: Tool) -> str:
    return f"### {tool.name}\n{tool.description or ''}\n{_parameters_line(tool)}"


def _parameters_line(tool: Tool) -> str:
    schema = plain(tool.parameters) if tool.parameters is not None else {}
    if tool.parameters is None or not isinstance(schema, dict) or "properties" not in schema:
        return "\n"
    properties = schema["properties"]
    shown = _short(properties) if isinstance(properties, dict) else compact(_properties_of(text_of(tool.parameters)))
    return f"Parameters: {shown}\n\n"


def _short(properties: dict[str, Any]) -> str:
    entries = []
    for key, value in properties.items():
        type_ = value.get("type") if isinstance(value, dict) else None
        described = value.get("description") if isinstance(value, dict) else None
        word = type_ if isinstance(type_, str) else "string"
        text = described if isinstance(described, str) else ""
        entries.append(f"{key} ({word}): {text}" if text else f"{key}: {word}")
    return "{" + ", ".join(entries) + "}"


def _markdown_tools(text: str, escape: Escape) -> Iterator[Tool]:
    for chunk in _HEADING.split(text)[1:]:
        name, _, rest = escape.remove(chunk).partition("\n")
        if not rest.endswith("\n\n"):
            yield Tool(name=name, description=rest.strip("\n") or None)
            continue
        begin = rest.find(_LIST) if rest.endswith(_LIST_END) else -1
        short = rest[begin + len(_LIST) : -len(_LIST_END)] if begin >= 0 else None
        description = rest[:begin] if begin >= 0 else rest[:-2]
        tool = Tool(name=name, description=description or None, parameters=_parameters_from(short))
        if _markdown(tool) != f"### {name}\n{rest}":
            tool = Tool(name=name, description=rest.removesuffix("\n\n"))
        yield tool


def _parameters_from(short: str | None) -> Json | None:
    return None if short is None else json_of(_object_schema_of(short))


def _object_schema_of(short: str) -> dict[str, Any]:
    """Return the schema of a short list: `path (string): File to read, limit: integer`."""
    properties: dict[str, Any] = {}
    words: list[str] | None = None  # of the description that a comma may go on with
    described: list[tuple[dict[str, Any], list[str]]] = []
    for entry in short.split(", ") if short else []:
        match = _PARAMETER.fullmatch(entry)
        if match is None:
            if words is not None:
                words.append(entry)
            continue
        properties[match[1]] = member = {"type": match[4] if match[4] is not None else match[2]}
        words = None
        if match[4] is None:
            words = [match[3]]
            described.append((member, words))
    for member, words in described:
        member["description"] = ", ".join(words)
    return {"type": "object", "properties": properties}


def _json_values(text: str, payload: Payload) -> Iterator[tuple[str, Payload]]:
    """Give the JSON objects in a text, also inside one array, each with its place."""
    text = text.rstrip()
    position, lines = len(text) - len(text.lstrip()), Lines(text)
    if text.startswith("[", position) and text.endswith("]"):
        position, text = position + 1, text[:-1]
    while rest := re.compile(r"[\s,]*").match(text, position):
        position = rest.end()
        if position >= len(text):
            return
        end = _json_end(text, position, payload)
        yield text[position:end], replace(payload, line=payload.line + lines.at(position)[0] - 1)
        position = end


def _wrong_tag(text: str, literals: tuple[str, ...], count: int) -> int | None:
    """Return which of `count` definitions does not stand in a tag of its own, None if each does."""
    opening, closing = literals
    pieces = re.split(f"({re.escape(opening)}|{re.escape(closing)})", text)
    for index in range(count):
        between, before, said, behind, *_ = *pieces[4 * index : 4 * index + 4], "", "", "", ""
        if between.strip(" \t\n,") or before != opening or not said.strip() or behind != closing:
            return index
    return max(count - 1, 0) if len(pieces) != 4 * count + 1 or pieces[-1].strip() else None


def members_once(text: str, payload: Payload, at: str) -> dict[str, Json]:
    """Return the members of an object; says so where a key comes twice."""
    members = read_object(text)
    if len(every_member(text)) != len(members):
        payload.lose(at, "dropped", "a key comes twice: its last value alone is kept")
    return members


def _json_end(text: str, position: int, payload: Payload) -> int:
    """Return where the JSON value ends that begins at a position."""
    try:
        return _DECODER.raw_decode(text, position)[1]
    except json.JSONDecodeError as error:
        place = replace(payload, line=payload.line + error.lineno - 1)
        raise not_a_tool(place, error.msg, error.colno) from None
    except (ValueError, RecursionError) as error:
        raise not_a_tool(payload, str(error)) from None


def _properties_of(schema: str) -> str:
    """Return the text of `properties` of a schema; an empty object if it has none."""
    try:
        return text_of(read_object(schema).get("properties", json_of({})))
    except InvalidRequest:
        return "{}"


def _object_schema(properties: str) -> Json:
    return _raw(f'{{"type":"object","properties":{compact(properties)}}}')


def _raw(text: str) -> Json:
    return Json(text.encode())


def _string(text: str) -> str | None:
    try:
        return str(json.loads(text))
    except ValueError:
        return None


def not_a_tool(payload: Payload, reason: str, column: int = 1) -> InvalidTranscript:
    """Return the error of a tool list that defines no tools. `column`: where in the payload's first line."""
    message = f"the tool list must hold JSON objects that define tools: {reason}"
    return InvalidTranscript(message, line=payload.line, column=column, expected="a JSON object with a name")


__all__ = ["IndentedTools", "JsonTools", "MarkdownTools", "TaggedTools", "json_string"]
