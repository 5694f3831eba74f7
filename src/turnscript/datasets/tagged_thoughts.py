"""Owns thoughts that stand as tagged text before an answer: `<think>...</think>`, as most sets of reasoning have them.

A format writes thoughts in its own way, and breaks its tags where they stand in somebody's text. Left in the text, the
model would learn to write the broken tag. So the tag at the beginning of an answer is read, with the line breaks beside
it; tags inside of a text stay text, because people speak of them. A row whose thought does not end, or ends without a
beginning (a prompt supplied it), cannot be told from either, and is refused.
"""

from __future__ import annotations

from turnscript.core.conversation import Assistant, Item, Text
from turnscript.datasets.problems import BadRow, Code

OPENING, CLOSING = "<think>", "</think>"
_IN_BOTH = "think>"
_SIGN, _ESCAPED = b"think>", b"think\\u003"
"""What stands in the bytes of a row with such a tag; some writers of JSON escape the bracket."""
_OPEN, _ESCAPE = b"<", b"\\u003"
"""One of them stands in every such row, and is sooner looked for."""


def may_think(data: bytes) -> bool:
    """Return whether a row may have tagged thoughts, told from its bytes: cheap, and never False for one that has."""
    return (_OPEN in data or _ESCAPE in data) and (_SIGN in data or _ESCAPED in data)


def split_thought(said: str, at: str) -> tuple[str | None, str]:
    """Return the thought that an answer begins with, None if there is none, and the rest of it."""
    if _IN_BOTH not in said:
        return None, said
    begins = said.lstrip().startswith(OPENING)
    if begins:
        thought, closing, rest = said.lstrip().removeprefix(OPENING).partition(CLOSING)
        if closing:
            return thought.strip("\n"), rest.lstrip("\n")
        raise BadRow(Code.SHAPE, f"a thought begins with {OPENING} and has no {CLOSING}", path=at)
    opened, closed = said.find(OPENING), said.find(CLOSING)
    if closed >= 0 and not 0 <= opened < closed:
        message = f"a thought ends with {CLOSING} and has no {OPENING}; write it before the thought"
        raise BadRow(Code.SHAPE, message, path=at)
    return None, said


def has_doubt(item: Item) -> bool:
    """Return whether an item is an answer with a text that would be read as more than a text, or refused."""
    return isinstance(item, Assistant) and any(type(part) is Text and _is_more(part.text) for part in item.content)


def _is_more(said: str) -> bool:
    try:
        return split_thought(said, "")[0] is not None
    except BadRow:
        return True
