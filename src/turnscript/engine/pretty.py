"""Owns JSON over several lines: indentation between the tokens of a value, every token as it was written."""

from __future__ import annotations

import re

from turnscript.core.json_text import Json, text_of

_TOKEN = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*"|[{}\[\]:,]|[^\s"{}\[\]:,]+')
_DEEPEST = 64
"""Lines are not indented further than so many levels. Without that, brackets alone would grow with the square of their
number, and 20 KB of them become 200 MB where Python reads 10,000 levels."""
_NEWLINES = {width: ["\n" + " " * (width * depth) for depth in range(_DEEPEST + 1)] for width in (2, 4)}
_BRACKETS = frozenset("{}[]")
_ON_ONE_LINE = {",": ", ", ":": ": ", "{": "{ ", "}": " }"}


def pretty(value: Json | str, inline_objects: bool = False, inline_arrays: bool = True, width: int = 2) -> str:
    """Return a JSON value, each level two or four spaces further in (`width`). Arrays of scalars stay on one line,
    unless `inline_arrays` is false.

    `inline_objects`: so do objects of scalars, `{ "k": 1 }`, except the outermost. No level of Python's stack is needed
    for a level of the value, so however deep a value is that could be read, it can be written.
    """
    tokens = _TOKEN.findall(value if isinstance(value, str) else text_of(value))
    out: list[str] = []
    newlines = _NEWLINES[width]
    newline, depth, at = "\n", 0, 0
    while at < len(tokens):
        token = tokens[at]
        if token in ("{", "["):
            end = _scalars_end(tokens, at)
            inline = inline_arrays if token == "[" else inline_objects and at > 0
            if end == at + 1:
                out += (token, tokens[end])
                at = end
            elif inline and end:
                out += [_ON_ONE_LINE.get(one, one) for one in tokens[at : end + 1]]
                at = end
            else:
                depth += 1
                newline = newlines[min(depth, _DEEPEST)]
                out += (token, newline)
        elif token in ("}", "]"):
            depth -= 1
            newline = newlines[min(depth, _DEEPEST)]
            out += (newline, token)
        else:
            out += (token, newline) if token == "," else (": " if token == ":" else token,)
        at += 1
    return "".join(out)


def indented(value: Json | str) -> str:
    """Return a JSON value with four spaces of indentation, every element on a line of its own."""
    return pretty(value, inline_arrays=False, width=4)


def _scalars_end(tokens: list[str], at: int) -> int:
    """Return where an opening closes if only scalars lie between, else 0. No token is looked at for two of them."""
    end = next(index for index in range(at + 1, len(tokens)) if tokens[index] in _BRACKETS)
    return end if tokens[end] in ("}", "]") else 0
