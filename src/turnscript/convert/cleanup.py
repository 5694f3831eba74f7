"""Owns cleaning what a small model wrote, before it is parsed: echoed instructions, stray marks of turns, thoughts.

Nothing here happens by itself: a parser keeps every byte. What is cleaned away is gone.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from turnscript.core.conversation import System, Thinking
from turnscript.engine.escape import tags_in
from turnscript.formats.format import Format

_ECHO = 80
"""How many bytes of the instructions must come back to be taken for an echo."""


def sanitize(text: str, formats: Iterable[Format], system: str = "") -> str:
    """A model's text without echoed instructions, marks of turns, and a role's name at the beginning.

    `formats`: those whose marks may have slipped in; a model mixes up what it was trained on. `system`: the
    instructions that it was given.
    """
    if system and text.startswith(system.encode()[:_ECHO].decode(errors="ignore")):
        pairs = enumerate(zip(text, system, strict=False))
        text = text[next((at for at, (said, given) in pairs if said != given), min(len(text), len(system))) :]
    marks: set[str] = set()
    roles: dict[str, None] = {}
    for document in (format_.document for format_ in formats):
        for turn in document.turns:
            marks.update(tags_in(f"{turn.open}{turn.head_end}{turn.close}"))
            if turn.role and any(segment.kind in (System.kind, document.generation.kind) for segment in turn.segments):
                roles[turn.role] = None
    if marks:
        text = re.sub("|".join(map(re.escape, sorted(marks, key=len, reverse=True))), "", text)
    text = text.strip()
    for role in roles:
        text = text.removeprefix(f"{role}\n")
    return text.strip()


def strip_thinking(text: str, format_: Format) -> str:
    """A model's text without thoughts: whole ones, one that is not closed, and what closes one that was not opened."""
    for turn in format_.document.turns:
        for segment in turn.segments:
            if segment.kind == Thinking.kind:
                opening, closing = re.escape(segment.open.strip()), re.escape(segment.close.strip())
                text = re.sub(rf"{opening}.*?(?:{closing}|\Z)|{closing}", "", text, flags=re.DOTALL)
    return text.strip()
