"""Owns tools' names that stand on a line of their own, before the opening of a call.

A name is written as it is if it is one word; any other name is a JSON string, so that it always fills one line.
"""

from __future__ import annotations

import json
import re

from turnscript.core.json_text import json_string

_WORD = re.compile(r"[\w.:/-]+")
_LINE = rf'{_WORD.pattern}|"(?:[^"\\\n]|\\.)*"'


def name_line(name: str) -> str:
    """Return a tool's name as it fills the line before a call."""
    return name if _WORD.fullmatch(name) else json_string(name)


def name_of_line(line: str) -> str | None:
    """Return the name that a line is; None if it is another text."""
    if _WORD.fullmatch(line):
        return line
    try:
        name = json.loads(line)
    except ValueError:
        return None
    return name if isinstance(name, str) else None


def lines_before(opening: str, text: str) -> tuple[str, ...]:
    """Return the lines of a text that are names, because this opening follows them; each once."""
    found = re.finditer(rf"^({_LINE})\n{re.escape(opening)}", text, re.MULTILINE)
    return tuple(dict.fromkeys(match[1] for match in found if name_of_line(match[1]) is not None))
