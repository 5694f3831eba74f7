r"""Owns marks: what stands in place of a content while a chat template runs, and how the content is put in afterwards.

A template is a stranger's program that looks at contents and writes them where it likes: as they are, as JSON, as JSON
in a string of JSON, as Python spells them. It is given marks instead. A mark is a number in characters that no text
has, with a quote of each kind and a backslash behind it; how these three come out tells how the template spells a
content at that place, so that the real one can be spelled likewise. A content never takes part in what the template
decides, so it cannot pass for anything that it is not.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from functools import lru_cache

from turnscript.engine.escape import Escape

_OPEN, _CLOSE = "\ue000", "\ue001"
_DIGITS = {ord(str(digit)): chr(0xE010 + digit) for digit in range(10)}
_NUMBERS = {ord(mark): str(digit) for digit, mark in enumerate(_DIGITS.values())}
_PROBE = "\\'\""
"""Characters that JSON and Python spell in other ways; no line break, at which a template might split."""
_SIGNS = "\ue002"
"""What stands before signs in a mark: characters of the content that the template looks for in it."""


def _either(characters: str, repeat: str = "") -> str:
    """Return a pattern of characters as they are, or as escapes: Python's `repr` and JSON in ASCII write them so."""
    escapes = "|".join(f"{ord(one):04x}" for one in characters)
    # Both begin with a character, which is what lets a search pass over all others quickly.
    return f"(?:[{characters}]{repeat}|(?:\\\\\\\\*u(?:{escapes})){repeat})"


_FOUND = re.compile(
    f"({_either(_OPEN)})({_either(''.join(_DIGITS.values()), '+')})([^{_OPEN}{_CLOSE}]{{0,64}}?)"
    f"(?:{_either(_SIGNS)}[^{_OPEN}{_CLOSE}]{{0,64}}?)?{_either(_CLOSE)}"
)
_ESCAPED = re.compile(r"\\+u([0-9a-f]{4})")
_MARKS: list[str] = []
_PRIVATE = re.compile("[\ue000-\ue01f]")

Spell = Callable[[str, Escape], str]
"""Writes a content at a place, protected: no control string of the template occurs in what it gives."""


def mark(number: int, signs: str = "") -> str:
    """Return the mark of a content. `signs`: characters of it that the template shall find."""
    return f"{_OPEN}{str(number).translate(_DIGITS)}{_PROBE}{_SIGNS if signs else ''}{signs}{_CLOSE}"


def marks(number: int) -> str:
    """Return the mark of a content without signs; those of long conversations are made once."""
    while number >= len(_MARKS):
        _MARKS.append(mark(len(_MARKS)))
    return _MARKS[number]


def holds_marks(text: str) -> bool:
    """Return whether a text has characters that marks are made of, so that it cannot stand beside them."""
    return _PRIVATE.search(text) is not None


def split(text: str) -> list[tuple[str, int, Spell]]:
    """Return what a template wrote as (literal, content behind it, spelling there); the last one has the content -1."""
    parts = _FOUND.split(text)
    found = [
        (parts[at], _number(parts[at + 2]), _spelling(parts[at + 3], ascii_only=len(parts[at + 1]) > 1))
        for at in range(0, len(parts) - 1, 4)
    ]
    found.append((parts[-1], -1, plainly))
    return found


@lru_cache(maxsize=4096)
def _number(digits: str) -> int:
    if "\\" in digits:
        digits = _ESCAPED.sub(lambda escape: chr(int(escape[1], 16)), digits)
    return int(digits.translate(_NUMBERS))


class Protected(str):
    """A text of ours, such as the words around a tool: its tags are meant."""

    __slots__ = ()


def plainly(text: str, escape: Escape) -> str:
    """Write a content as it is."""
    return text if type(text) is Protected else escape.apply(text)


def _in_json(depth: int, ascii_only: bool = False) -> Spell:
    encode = json.JSONEncoder(ensure_ascii=ascii_only).encode  # `json.dumps` makes one for each text

    def spell(text: str, escape: Escape) -> str:
        # The tags are broken in the innermost string, by an escape that every reader of JSON takes back.
        written = escape.in_json(encode(text)[1:-1])
        for _ in range(depth - 1):
            written = encode(written)[1:-1]
        return written

    return spell


def as_python(text: str, escape: Escape) -> str:
    """Write a content between the single quotes in which Python's `repr` has put its mark."""
    return escape.apply(repr(f'{text}"')[1:-2])  # a double quote in it keeps the single ones around it


_SPELLINGS: dict[tuple[str, bool], Spell] = {(_PROBE, False): plainly, (repr(_PROBE)[1:-1], True): as_python}
_written = _PROBE
for _depth in range(1, 4):
    _written = json.dumps(_written)[1:-1]
    _SPELLINGS[_written, False] = _in_json(_depth)
    _SPELLINGS[_written, True] = _in_json(_depth, ascii_only=True)


def _spelling(probe: str, ascii_only: bool) -> Spell:
    return _SPELLINGS.get((probe, ascii_only), plainly)
