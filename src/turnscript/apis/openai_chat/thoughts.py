"""Owns thoughts that stand in a content, as Mistral's models say them: in a part of type `thinking` that holds parts.

    {"type": "thinking", "thinking": [{"type": "text", "text": "..."}]}

Each is a `Thinking` with the slot `WITHIN`, and the text before and behind it an `Assistant` each, in their order; in
a body of this API it stands where it was again. A part of that type that holds no list of parts is another maker's,
and stays a `Raw`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from turnscript.apis.api import Body, Rendering
from turnscript.apis.openai_chat.content import parts_of, written_parts
from turnscript.apis.openai_chat.objects import AnyPart
from turnscript.core.conversation import Assistant, Extra, Hints, Item, Part, Raw, Text, Thinking
from turnscript.core.errors import InvalidRequest
from turnscript.core.json_text import read_object
from turnscript.core.message_groups import slot_of
from turnscript.core.wire import Reader

WITHIN = "content.thinking"
"""The slot of such a thought."""

_TYPE = "thinking"
_read: Reader[list[Any]] = Reader(list[AnyPart])


def thought_of(part: Part, at: str) -> Thinking | None:
    """The thought that a part is; None for any other part."""
    if type(part) is not Raw or part.type != _TYPE:
        return None
    members = read_object(part.value)
    said = members.pop(_TYPE, None)
    if said is None or bytes(said).lstrip()[:1] != b"[":
        return None
    try:
        content = parts_of(_read(said, f"{at}.{_TYPE}"))
    except InvalidRequest:
        return None
    del members["type"]
    return Thinking(content=content, extra=members, hints=Hints(slot=WITHIN), at=at)


def apart(parts: Sequence[Part], at: str) -> list[Item]:
    """A content as items, if there is a thought in it: thoughts and what stands between them; else nothing."""
    thoughts = [thought_of(part, f"{at}.content[{index}]") for index, part in enumerate(parts)]
    if not any(thoughts):
        return []
    found: list[Item] = []
    for index, (part, thought) in enumerate(zip(parts, thoughts, strict=True)):
        if thought is not None:
            found.append(thought)
        elif found and isinstance(found[-1], Assistant):
            found[-1].content.append(part)
        else:
            found.append(Assistant(content=[part], at=f"{at}.content[{index}]"))
    return found


def is_within(item: Item) -> bool:
    """Whether a thought stood in a content."""
    return slot_of(item) == WITHIN and isinstance(item, Thinking)


def is_plain(item: Thinking) -> bool:
    """Whether a thought is texts and nothing else, so that it may come in pieces."""
    return all(type(part) is Text and not part.extra for part in item.content)


def entry(rendering: Rendering, item: Thinking) -> Body:
    """A thought as a part of a content."""
    return piece(written_parts(rendering, item, enumerate(item.content), None), item.extra)


def piece(parts: list[Any], extra: Extra) -> Body:
    """A part of a content that says some of a thought."""
    return {"type": _TYPE, _TYPE: parts, **extra}


__all__ = ["WITHIN", "apart", "entry", "is_plain", "is_within", "piece", "thought_of"]
