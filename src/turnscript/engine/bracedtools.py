"""Owns tool definitions in braces, whose types are in capitals: `declaration:f{parameters:{type:<|"|>OBJECT<|"|>}}`."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from turnscript.core.conversation import Tool
from turnscript.core.errors import InvalidRequest, InvalidTranscript
from turnscript.core.json_text import Json, compact, json_string, members, string_of, text_of
from turnscript.engine.bracedcalls import MARK, braced_pieces, named_pieces, read_braced
from turnscript.engine.escape import rules_of
from turnscript.engine.table import Payload
from turnscript.engine.toollists import Pieces, ToolTexts, members_once, not_a_tool

_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|[^"{}\[\],:]+|[{}\[\],:]', re.DOTALL)
_MAPS = frozenset({"properties", "patternProperties", "$defs", "definitions", "dependentSchemas"})
_SCHEMAS = frozenset({"items", "additionalProperties", "not", "anyOf", "oneOf", "allOf", "prefixItems", "contains"})


class BracedTools(ToolTexts):
    """Each tool as `prefix`, its name, and the rest of it in braces. `apart`: what stands between two tools."""

    def __init__(self, apart: str, mark: str = MARK, prefix: str = "declaration:") -> None:
        self.apart = self.between = apart
        self.mark, self.prefix = mark, prefix
        self.literals = (apart,)
        self.rules = tuple((lead, tuple(rests)) for lead, rests in rules_of((apart, mark)))

    def loss(self, tool: Tool) -> str:
        """Return what is lost where a type is not in small letters."""
        if tool.parameters is None:
            return ""
        schema = compact(text_of(tool.parameters))
        return "" if _respelled(_respelled(schema, str.upper), str.lower) == schema else "types are in small letters"

    def pieces(self, name: str, description: str | None, parameters: str | None) -> Pieces:
        """Return one definition."""
        fields: dict[str, object] = {}
        if description is not None:
            fields["description"] = description
        if parameters is not None:
            fields["parameters"] = Json(_respelled(compact(parameters), str.upper).encode())
        named = [(False, self.prefix), *named_pieces(name, self.mark)]
        return (*named, *braced_pieces(members(fields), self.mark))

    def read(self, payload: Payload) -> list[Tool]:
        """Return the definitions."""
        said = payload.text.split(self.apart) if payload.text.strip() else []
        return [self._tool(one, payload, index) for index, one in enumerate(said)]

    def _tool(self, text: str, payload: Payload, index: int) -> Tool:
        try:
            found: dict[str, Any] = read_braced(Payload(text, {}, payload.line, payload.escape), self.mark, self.prefix)
            fields = members_once(found["arguments"], payload, f"[{index}]")
            description = string_of(fields.pop("description")) if "description" in fields else None
        except (InvalidTranscript, InvalidRequest) as error:
            raise not_a_tool(payload, str(error)) from None
        schema = fields.pop("parameters", None)
        lowered = None if schema is None else Json(_respelled(compact(text_of(schema)), str.lower).encode())
        return Tool(name=found["name"] or "", description=description, parameters=lowered, extra=fields)


def _respelled(schema: str, case: Callable[[str], str]) -> str:
    """Return the compact JSON of a schema with its types in another case; a parameter called `type` is none of them."""
    made: list[str] = []
    kinds, keys = ["schema"], [""]  # of what is open: a `schema`, a `map` of them, or anything; and the key in it
    for found in _TOKEN.finditer(schema):
        token = found[0]
        if token[0] in "{[":
            kinds.append(_kind_of(kinds[-1], keys[-1], token) if made else "schema")
            keys.append(keys[-1] if token == "[" else "")
        elif token[0] in "}]":
            kinds.pop()
            keys.pop()
        elif token[0] == '"' and schema.startswith(":", found.end()):
            keys[-1] = token[1:-1]
        elif token[0] == '"' and kinds[-1] == "schema" and keys[-1] == "type":
            token = json_string(case(token[1:-1])) if "\\" not in token else token
        made.append(token)
    return "".join(made)


def _kind_of(kind: str, key: str, bracket: str) -> str:
    """Tell what a bracket opens that is the value of a key."""
    if kind == "map":
        return "schema"
    if kind != "schema" or not (key == "type" or key in _MAPS or key in _SCHEMAS or not key):
        return ""
    return "map" if key in _MAPS and bracket == "{" else "schema"
