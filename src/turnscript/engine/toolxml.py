"""Owns tool definitions that are tags all through: `<function>`, `<name>`, one `<parameter>` for each property."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from turnscript.core.conversation import Tool
from turnscript.core.errors import InvalidRequest
from turnscript.core.json_text import Json, is_json, json_of, members, plain, read_object, respace, same, text_of
from turnscript.engine.escape import Escape
from turnscript.engine.table import Payload
from turnscript.engine.toollists import Pieces, ToolTexts, not_a_tool

_NAMES = ("function", "name", "description", "parameters", "parameter", "type", "required", "enum")
_MEMBER = re.compile(r"\s*<([\w$.-]+)>(.*?)</\1>(?=\s*<|\s*\Z)", re.DOTALL)
_KEY = re.compile(r"[\w$.-]+")
_FUNCTION = re.compile(r"\s*<function>(.*?)</function>", re.DOTALL)
_PARAMETERS = re.compile(r"\s*<parameters>(.*?)\n?</parameters>\s*\Z", re.DOTALL)
_PARAMETER = re.compile(r"\s*<parameter>(.*?)\n?</parameter>", re.DOTALL)
_SKIPPED = frozenset({"type", "properties"})


class XmlTools(ToolTexts):
    """Each tool as tags: its name, its description, and a tag for each parameter with all that its schema says.

    Strings are written as they are, other values as JSON; so what else a schema says of itself than `properties` and
    `type` is read back, and a schema that is no object of properties is not.
    """

    rules = (("<", tuple(f"{slash}{name}>" for name in _NAMES for slash in ("", "/"))),)
    literals: tuple[str, ...] = ("<function>", "</function>", "<parameters>", "</parameters>")

    def loss(self, tool: Tool) -> str:
        """Return whatever does not come back."""
        again = _tool("".join(text for _, text in self._pieces_of(tool)), Escape(), [])
        alike = again.name == tool.name and again.description == tool.description
        if again.parameters is None or tool.parameters is None:
            alike = alike and again.parameters is tool.parameters
        else:
            alike = alike and same(again.parameters, tool.parameters)
        return "" if alike else "tags do not show all that the schema says, or not in this order"

    def _pieces_of(self, tool: Tool) -> Pieces:
        parameters = None if tool.parameters is None else text_of(tool.parameters)
        return self.pieces(tool.name or "", tool.description, parameters)

    def pieces(self, name: str, description: str | None, parameters: str | None) -> Pieces:
        """Return the tags of one tool."""
        return tuple(_written(name, description, parameters))

    def read(self, payload: Payload) -> list[Tool]:
        """Return the tools in order."""
        escape = payload.escape.plus(*self.rules)
        found: list[Tool] = []
        end = 0
        for match in _FUNCTION.finditer(payload.text):
            if payload.text[end : match.start()].strip():
                break
            gaps: list[str] = []
            for_tool = _tool(match[0].strip(), escape, gaps)
            for gap in gaps:
                payload.lose(
                    f"[{len(found)}]", "dropped", f"what stands in no tag, or in one of a kind twice: {gap[:40]!r}"
                )
            found.append(for_tool)
            end = match.end()
        if payload.text[end:].strip():
            raise not_a_tool(payload, "each must stand in a tag <function>, with its name in a tag <name>")
        return found


def _written(name: str, description: str | None, parameters: str | None) -> Iterator[tuple[bool, str]]:
    yield True, "<function>"
    yield from _member("name", name)
    if description is not None:
        yield from _member("description", description.strip())
    yield True, "\n<parameters>"
    schema = _object(parameters)
    properties = _object(text_of(schema["properties"])) if "properties" in schema else {}
    for key, value in properties.items():
        yield True, "\n<parameter>"
        yield from _member("name", key)
        said = _object(text_of(value))
        for word in ("type", "description"):
            if word in said:
                yield from _member(word, _shown(said[word]).strip())
        for word in said:
            if word not in ("name", "type", "description"):
                yield from _member(word, _shown(said[word]))
        yield True, "\n</parameter>"
    for word in schema:
        if word not in _SKIPPED:
            yield from _member(word, _shown(schema[word]))
    yield True, "\n</parameters>\n</function>"


def _member(key: str, text: str) -> Iterator[tuple[bool, str]]:
    if _KEY.fullmatch(key):  # any other cannot be a tag, and is a loss
        yield True, f"\n<{key}>"
        yield False, text
        yield True, f"</{key}>"


def _object(text: str | None) -> Mapping[str, Json]:
    try:
        return {} if text is None else read_object(text)
    except InvalidRequest:
        return {}


def _shown(value: Json) -> str:
    said = plain(value)
    return said if isinstance(said, str) else respace(value)


def _tool(text: str, escape: Escape, gaps: list[str]) -> Tool:
    """Return the tool that a tag `<function>` defines. What is nothing of it is added to `gaps`."""
    inner = text.removeprefix("<function>").removesuffix("</function>")
    found = _PARAMETERS.search(inner)
    said = _members(inner[: found.start()] if found else inner, escape, gaps)
    schema = None if found is None or not found[1].strip() else _schema(found[1], escape, gaps)
    tool = Tool(name=said.pop("name", None), description=said.pop("description", None), parameters=schema)
    tool.extra = {key: _value(key, value) for key, value in said.items()}
    return tool


def _schema(text: str, escape: Escape, gaps: list[str]) -> Json:
    properties: dict[str, object] = {}
    end = 0
    for one in _PARAMETER.finditer(text):
        if text[end : one.start()].strip():
            gaps.append(text[end : one.start()].strip())
        end = one.end()
        shown = _members(one[1], escape, gaps)
        name = shown.pop("name", "")
        if name in properties:
            gaps.append(one[0].strip())
        properties.setdefault(name, _raw({key: _value(key, value) for key, value in shown.items()}))
    schema: dict[str, object] = {"type": json_of("object"), "properties": _raw(properties)}
    return _raw(schema | {key: _value(key, value) for key, value in _members(text[end:], escape, gaps).items()})


def _raw(fields: dict[str, object]) -> Json:
    return Json(members(fields).encode())


def _members(text: str, escape: Escape, gaps: list[str]) -> dict[str, str]:
    """Return what stands in each tag, by its name. What stands in none, or in a second one, is added to `gaps`."""
    members: dict[str, str] = {}
    end = 0
    for found in _MEMBER.finditer(text):
        gap = text[end : found.start()] + (found[0] if found[1] in members else "")
        gaps += [gap.strip()] if gap.strip() else []
        members.setdefault(found[1], escape.remove(found[2]))
        end = found.end()
    gaps += [text[end:].strip()] if text[end:].strip() else []
    return members


def _value(key: str, text: str) -> Json:
    return json_of(text) if key == "description" or not is_json(text) else Json(text.encode())
