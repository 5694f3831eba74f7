"""Owns TOML text: data as a file that people can read and change."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

_BARE = re.compile(r"[A-Za-z0-9_-]+")
_HEADED = frozenset({"format", "turn", "segment", "also_read", "clue"})
_WIDTH = 100
_ESCAPES = {"\b": "\\b", "\f": "\\f", "\r": "\\r", "\t": "\\t", "\x7f": "\\u007f"}
_QUOTES = re.compile(r'"(?=""|\Z)')
_CONTROLS = re.compile("[\x00-\x09\x0b-\x1f\x7f]")


def write_toml(data: Mapping[str, Any]) -> str:
    """The text of a table: its values, then what is written under headings."""
    return "\n".join(_lines(data, "")) + "\n"


def _lines(data: Mapping[str, Any], path: str) -> Iterator[str]:
    for key, value in data.items():
        if not _has_heading(key, value, path):
            yield f"{_key(key)} = {_value(value)}"
    for key, value in data.items():
        if not _has_heading(key, value, path):
            continue
        below = f"{path}.{_key(key)}" if path else _key(key)
        if isinstance(value, Mapping):
            yield from ("", f"[{below}]", *_lines(value, below))
        else:
            for one in value:
                yield from ("", f"[[{below}]]", *_lines(one, below))


def _has_heading(key: str, value: Any, path: str) -> bool:
    """Whether a value is written under a heading: a table of a format, and a list of what is more than a few words."""
    if isinstance(value, Mapping):
        return "." not in path
    if key not in _HEADED or not isinstance(value, list) or not value:
        return False
    return all(isinstance(one, Mapping) for one in value)


def _value(value: Any) -> str:
    if isinstance(value, list) and value and isinstance(value[0], Mapping):
        inside = "".join(f"    {_inline(one)},\n" for one in value)
        return f"[\n{inside}]"
    if isinstance(value, list) and len(_inline(value)) > _WIDTH:
        inside = "".join(f"    {_inline(one)},\n" for one in value)
        return f"[\n{inside}]"
    if isinstance(value, str) and "\n" in value.strip("\n") and len(value) > _WIDTH // 2:
        return _long_text(value)
    return _inline(value)


def _inline(value: Any) -> str:
    """A value on one line."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    if isinstance(value, Mapping):
        inside = ", ".join(f"{_key(key)} = {_inline(one)}" for key, one in value.items())
        return f"{{ {inside} }}" if inside else "{}"
    if isinstance(value, list):
        return f"[{', '.join(map(_inline, value))}]"
    return str(value)


def _long_text(text: str) -> str:
    """A text over several lines, with as few quotes escaped as can be: never three in a row, and none at the end."""
    shown = _QUOTES.sub(r'\\"', text.replace("\\", "\\\\"))
    shown = _CONTROLS.sub(lambda found: _ESCAPES.get(found[0], f"\\u{ord(found[0]):04x}"), shown)
    return f'"""\n{shown}"""'


def _key(key: str) -> str:
    return key if _BARE.fullmatch(key) else _inline(key)
