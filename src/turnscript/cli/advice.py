"""Owns what to try for an input that could not be read, where its error does not say it.

People give other things in place of a body: a compressed file, a command, a page, Python's spelling, a wrapper. Each is
told by what is plain to see, and nothing is guessed for what is not.
"""

from __future__ import annotations

import json
import re
from collections import deque
from collections.abc import Iterator
from typing import Any

from turnscript.convert.file_documents import ONE_FORMAT, holds_files
from turnscript.convert.recognition import AUTO, ONE_REQUEST, ONE_SIDE, nearest, recognised
from turnscript.convert.registry import formats, get_format
from turnscript.core.errors import InvalidConversation, InvalidInput, InvalidTranscript, TurnscriptError
from turnscript.core.json_text import FEWER_LEVELS, UTF_8
from turnscript.engine.files import FILES
from turnscript.engine.read import begins_answer
from turnscript.engine.template.program import InvalidTemplate

_BEGINNINGS = (
    (rb"\x1f\x8b", "this is gzip: unpack it first, as `gzip -dc FILE` does"),
    (rb"\x28\xb5\x2f\xfd", "this is zstd: unpack it first, as `zstd -dc FILE` does"),
    (rb"PK\x03\x04", "this is a zip archive: unpack it first"),
    (rb"[{\[\"]\x00|[{\[]\x00\x00\x00", "this looks like UTF-16, convert it to UTF-8 first"),
    (rb"curl\s", "this is a command: give what it sends alone, which stands behind -d or --data"),
    (rb"(?:GET|POST|PUT) \S+ HTTP/", "this is a request with its head: give its body alone"),
    (rb"(?i:<!doctype html|<html|<\?xml)", "this is a page and no answer of an API: see what was asked, and where"),
    (rb"```", "leave out the lines with ```"),
    (rb"'\s*[{\[]", "leave out the quotes around the JSON"),
    (rb"//|/\*", "JSON has no comments: leave them out"),
)
_SLIPS = (
    ("'", "strings of JSON are in double quotes; Python's json.dumps writes them so"),
    (r"//|/\*|#", "JSON has no comments: leave them out"),
    ("True|False|None", "JSON writes true, false and null; Python's json.dumps does it so"),
    ("NaN|-?Infinity", "JSON has neither NaN nor Infinity: write null, or a number"),
    ("[\u2018\u2019\u201c\u201d]", 'these quotes are typographic; those of JSON are "straight"'),
    (r"[\x00-\x1f]", "in a string, JSON writes a line break as \\n and a tab as \\t"),
)
_NEAR = 12
"""So many characters from the place of an error on may be what is wrong there."""
_DEEP, _MANY = 6, 400
"""How deep a body is looked for in what holds it, and among how many values."""


def by_beginning(data: bytes) -> str:
    """What to do with an input that begins as something else does; empty if it does not."""
    start = data.removeprefix(b"\xef\xbb\xbf")[:4096].lstrip()
    return next((advice for pattern, advice in _BEGINNINGS if re.match(pattern, start)), "")


def by_answer(data: bytes) -> str:
    """Return what to do with a model's answer where a transcript is wanted; empty if it does not begin as one."""
    text = data[:4096].decode("utf-8", "ignore").removeprefix("\ufeff").lstrip()
    names = [name for name in formats() if begins_answer(get_format(name).document, text)]
    if not names:
        return ""
    reads = f"`turnscript read --format {names[0]}` reads what a model wrote"
    return f"this begins as an answer in {' or '.join(names)}: {reads}"


def by_slip(data: bytes, line: int, column: int) -> str:
    """What to do about JSON that goes wrong at a place; empty if it is nothing that one knows."""
    text = data.split(b"\n", line - 1)[-1]
    rest = text[: 4 * (column + _NEAR)].decode("utf-8", "replace")[column - 1 :][:_NEAR]
    return next((advice for pattern, advice in _SLIPS if re.match(pattern, rest)), "")


def by_content(data: bytes) -> str:
    """Where in an input that is nothing itself a body stands; empty if none does."""
    try:
        value = json.loads(data)
    except (ValueError, RecursionError):
        return ""
    for path, inner in _inside(value):
        name = _name_of(inner)
        if name:
            if path == "$":
                return f"this is JSON with the JSON of {name} in it: give that alone"
            return f"{'the text at ' if isinstance(inner, str) else ''}{path} is of {name}: give that alone"
    return ""


def by_elements(data: bytes) -> str:
    """What to do with a list of bodies; empty if it is none."""
    try:
        value = json.loads(data)
    except (ValueError, RecursionError):
        return ""
    is_bodies = isinstance(value, list) and value and isinstance(value[0], dict) and _name_of(value[0])
    return "this is a list of bodies: write each on a line of its own, as `jq -c '.[]' FILE` does" if is_bodies else ""


def _inside(value: Any) -> Iterator[tuple[str, Any]]:
    """The objects in a value, and the texts that begin as objects do, the outermost first."""
    waiting, seen = deque([("$", value, 0)]), 0
    while waiting and seen < _MANY:
        path, one, depth = waiting.popleft()
        seen += 1
        if (depth and isinstance(one, dict)) or (isinstance(one, str) and one.lstrip()[:1] == "{"):
            yield path, one
        if depth < _DEEP and isinstance(one, dict):
            waiting += [(f"{path}.{key}", inner, depth + 1) for key, inner in one.items()]
        elif depth < _DEEP and isinstance(one, list):
            waiting += [(f"{path}[{index}]", inner, depth + 1) for index, inner in enumerate(one[:_MANY])]


def _name_of(value: Any) -> str:
    source = value if isinstance(value, str) else json.dumps(value)
    try:
        return recognised(source)[0]
    except (TurnscriptError, RecursionError, UnicodeEncodeError):
        return ""


_SAYING = {
    ONE_SIDE: "--side request or --side response says it",
    ONE_FORMAT: "--from NAME says it",
    ONE_REQUEST: "give a request; `turnscript convert` reads answers, too, if --side does not say that they are none",
}
"""These words are said where it is plain what is missing, by what was expected."""


def advice(error: TurnscriptError, source: str, data: bytes, rows: str) -> str:
    """One line for people, or nothing. `source` is what --from says; `rows` is what to do with JSON Lines."""
    if not isinstance(error, InvalidInput) or isinstance(error, InvalidTemplate | InvalidConversation):
        return ""
    if plain := lookalike(error, data):
        return plain
    if error.expected in (UTF_8, FEWER_LEVELS):
        return ""  # another API or format would read it no better
    if error.expected in _SAYING:
        return _SAYING[error.expected]
    if error.line and not isinstance(error, InvalidTranscript) and data.lstrip()[:1] in (b"{", b"["):
        return f"correct the JSON there; {rows}" if b"\n{" in data else "correct the JSON there"
    if source != AUTO:
        return f"it was read as {source}, because --from says so"
    if holds_files(data):
        return f"it was read as {FILES}; if it is something else, name that with --from"
    try:
        return f"it was read as {recognised(data)[0]}; if it is something else, name that with --from"
    except InvalidInput:
        return (
            by_nearness(data)
            or "--from NAME says what it is; `turnscript apis` and `turnscript formats` list the names"
        )


def by_nearness(data: bytes) -> str:
    """One line if a text nearly begins as a transcript does, or nothing."""
    text = data.decode("utf-8", "replace")
    name = "" if text.lstrip().startswith("{") else nearest(text)[0]
    return f"`turnscript check --format {name}` names all that is wrong with it, if it is that" if name else ""


def lookalike(error: InvalidInput, data: bytes) -> str:
    """One line if the input is plainly something else, or holds what is wanted, or nothing."""
    if error.expected == FEWER_LEVELS:
        return ""
    if error.line:
        is_json = error.expected != UTF_8 and data.lstrip()[:1] in (b"{", b"[")
        slip = by_slip(data, error.line, error.column) if is_json else by_answer(data)
        return by_beginning(data) or slip
    return by_content(data) if error.path == "$" else by_elements(data) if data.lstrip()[:1] == b"[" else ""


def row_advice(error: TurnscriptError, row: bytes) -> str:
    """The same for a row of JSON Lines."""
    if row.strip() in (b"{", b"["):
        return "if the file is one document over several lines, add --no-lines"
    return lookalike(error, row) if isinstance(error, InvalidInput) else ""
