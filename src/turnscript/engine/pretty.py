"""Owns JSON over several lines: indentation between the tokens of a value, every token as it was written."""

from __future__ import annotations

import re
from typing import Any, NamedTuple

from turnscript.jsontext import Json, text_of

_TOKEN = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*"|[{}\[\]:,]|[^\s"{}\[\]:,]+')
_INDENT = "  "
_Node = Any  # a token, or ("{", [(key, node), ...]), or ("[", [node, ...])


class _Inline(NamedTuple):
    """What stays on one line if it holds only scalars."""

    objects: bool
    arrays: bool


def pretty(value: Json | str, inline_objects: bool = False, inline_arrays: bool = True) -> str:
    """A JSON value with two spaces of indentation. Arrays of scalars stay on one line, unless `inline_arrays` is false.

    `inline_objects`: so do objects of scalars, `{ "k": 1 }`, except the outermost.
    """
    tokens = _TOKEN.findall(value if isinstance(value, str) else text_of(value))
    node, _ = _read(tokens, 0)
    return "".join(_lines(node, "\n", _Inline(inline_objects, inline_arrays), root=True))


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


def _lines(node: _Node, newline: str, inline: _Inline, root: bool = False) -> list[str]:
    if isinstance(node, str):
        return [node]
    mark, children = node
    if mark == "[":
        if not children or (inline.arrays and all(isinstance(child, str) for child in children)):
            return ["[", ", ".join(children), "]"]
        return _block("[", [_lines(child, newline + _INDENT, inline) for child in children], "]", newline)
    if not children:
        return ["{}"]
    if inline.objects and not root and all(isinstance(child, str) for _, child in children):
        return ["{ ", ", ".join([f"{key}: {child}" for key, child in children]), " }"]
    shown = [[f"{key}: ", *_lines(child, newline + _INDENT, inline)] for key, child in children]
    return _block("{", shown, "}", newline)


def _block(opening: str, shown: list[list[str]], closing: str, newline: str) -> list[str]:
    out = [opening]
    for index, pieces in enumerate(shown):
        out += [",", newline, _INDENT] if index else [newline, _INDENT]
        out += pieces
    return [*out, newline, closing]
