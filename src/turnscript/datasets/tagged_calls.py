"""Owns calls and tools that stand as tagged text in what a model reads and writes: `<tool_call>{...}</tool_call>`.

Their JSON is sometimes Python's way to write a dict; that is read as what it means, without evaluating anything.
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Sequence
from typing import Any

from turnscript.core.conversation import Assistant, Item, System, ToolResult, text_content
from turnscript.core.json_text import Json
from turnscript.datasets.members import json_in
from turnscript.datasets.problems import BadRow, Code

_MOST = 1 << 18
"""How much Python text is read at most: its parser is slow."""

_SIGNS = (b"<tool", b"u003ctool", b"u003Ctool")
"""What stands in the bytes of every row that may have tagged calls; some writers of JSON escape the bracket."""
_OPEN, _ESCAPE = b"<", b"\\u003"
"""One of them stands in every such row, and is sooner looked for."""

_TAGGED = {
    System: (re.compile(r"<tools>\s*[\[{]"), "</tools>"),
    Assistant: (re.compile(r"<tool_call>\s*[\[{]"), "</tool_call>"),
    ToolResult: (re.compile(r"\A\s*<tool_response>"), "</tool_response>"),
}


def may_be_tagged(data: bytes) -> bool:
    """Return whether a row may have tagged calls, told from its bytes: cheap, and never False for one that has."""
    return (_OPEN in data or _ESCAPE in data) and any(sign in data for sign in _SIGNS)


def is_tagged(kind: type[Item], said: str) -> bool:
    """Return whether a text of an item of this kind holds calls, tools or results in tags."""
    if kind not in _TAGGED:
        return False
    opening, closing = _TAGGED[kind]
    found = opening.search(said)
    return found is not None and said.find(closing, found.end()) >= 0


def refuse_tagged(items: Sequence[Item]) -> None:
    """Refuse calls that would become text. For forms that have another place for them."""
    for item in items:
        if isinstance(item, System | Assistant | ToolResult) and is_tagged(type(item), text_content(item.content)):
            message = "calls or tools stand as tagged text here; name the form that reads them, or use a map file"
            raise BadRow(Code.FORM, message, path=item.at)


def value_in(inside: str, at: str, code: Code = Code.SHAPE) -> Json:
    """Return a text that is JSON, or a Python literal."""
    inside = inside.strip()
    try:
        return json_in(inside, at)
    except BadRow:
        literal = _literal(inside)
        if literal is None:
            shown = inside if len(inside) <= 60 else f"{inside[:57]}..."
            raise BadRow(code, f"neither JSON nor a Python literal: {shown!r}", path=at) from None
        return literal


def _literal(inside: str) -> Json | None:
    if len(inside) > _MOST:
        return None
    try:
        value = ast.literal_eval(inside)
        _check_plain(value)
        return Json(json.dumps(value, ensure_ascii=False, allow_nan=False).encode())
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        return None


def _check_plain(value: Any) -> None:
    """Raise ValueError for what JSON has no word for, or would write as something else."""
    if isinstance(value, dict):
        if not all(isinstance(key, str) for key in value):
            raise ValueError("a key that is no string")
        for one in value.values():
            _check_plain(one)
    elif isinstance(value, list):
        for one in value:
            _check_plain(one)
    elif not isinstance(value, str | int | float | None):
        raise ValueError("a value that JSON has no word for")


def split_tagged(said: str, tag: str, at: str) -> list[tuple[bool, str]]:
    """Return a text as pieces: outside of tags, and, with True, what stands inside. Raises for an unclosed tag."""
    pieces: list[tuple[bool, str]] = []
    start, opening, closing = 0, f"<{tag}>", f"</{tag}>"
    while (begin := said.find(opening, start)) >= 0:
        end = said.find(closing, begin)
        if end < 0:
            break
        pieces += [(False, said[start:begin]), (True, said[begin + len(opening) : end])]
        start = end + len(closing)
    pieces.append((False, said[start:]))
    if re.search(rf"</?{tag}>", "".join([piece for _, piece in pieces])):
        raise BadRow(Code.SHAPE, f"<{tag}> and </{tag}> do not fit together", path=at)
    return [piece for piece in pieces if piece[0] or piece[1]]
