"""Owns JSON over several lines: indentation between the tokens of a value, every token as it was written."""

from __future__ import annotations

import re
from typing import Any

from turnscript.jsontext import Json, text_of

_TOKEN = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*"|[{}\[\]:,]|[^\s"{}\[\]:,]+')
_Node = Any  # a token, or ("{", [(key, node), ...]), or ("[", [node, ...])


def pretty(value: Json | str, inline_objects: bool = False, indent: str = "  ") -> str:
    """A JSON value with two spaces of indentation. Arrays of scalars stay on one line.

    `inline_objects`: so do objects of scalars, `{ "k": 1 }`, except the outermost.
    """
    tokens = _TOKEN.findall(value if isinstance(value, str) else text_of(value))
    node, _ = _read(tokens, 0)
    return "".join(_lines(node, "\n", indent, inline_objects, root=True))


def _read(tokens: list[str], at: int) -> tuple[_Node, int]:
    token = tokens[at]
    if token == "{":
        members: list[tuple[str, _Node]] = []
        at += 1
        while tokens[at] != "}":
            at += tokens[at] == ","
            node, after = _read(tokens, at + 2)
            members.append((tokens[at], node))
            at = after
        return ("{", members), at + 1
    if token == "[":
        elements: list[_Node] = []
        at += 1
        while tokens[at] != "]":
            at += tokens[at] == ","
            node, at = _read(tokens, at)
            elements.append(node)
        return ("[", elements), at + 1
    return token, at + 1


def _lines(node: _Node, newline: str, indent: str, inline_objects: bool, root: bool = False) -> list[str]:
    if isinstance(node, str):
        return [node]
    mark, children = node
    if mark == "[":
        if all(isinstance(child, str) for child in children):
            return ["[", ", ".join(children), "]"]
        shown = [_lines(child, newline + indent, indent, inline_objects) for child in children]
        return _block("[", shown, "]", newline, indent)
    if not children:
        return ["{}"]
    if inline_objects and not root and all(isinstance(child, str) for _, child in children):
        return ["{ ", ", ".join([f"{key}: {child}" for key, child in children]), " }"]
    shown = [[f"{key}: ", *_lines(child, newline + indent, indent, inline_objects)] for key, child in children]
    return _block("{", shown, "}", newline, indent)


def _block(opening: str, shown: list[list[str]], closing: str, newline: str, indent: str) -> list[str]:
    out = [opening]
    for index, pieces in enumerate(shown):
        out += [",", newline, indent] if index else [newline, indent]
        out += pieces
    return [*out, newline, closing]
