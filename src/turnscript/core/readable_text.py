"""Owns what can be read of a part where only text has a place: a document of plain text, the passages of a search."""

from __future__ import annotations

from collections.abc import Sequence

from turnscript.core.conversation import Audio, Document, Image, Part, Raw, Refusal, Text
from turnscript.core.json_text import Json, plain, safe_json_string
from turnscript.core.losses import Loss

SEARCH_RESULT = "search_result"
"""The kind of part that holds passages which a search found: a client's own, in what its tool answers, for example."""


def single_text(content: Sequence[Part]) -> str | None:
    """The text of a content that is one text without unnamed members, so that a string says all of it; else None."""
    if len(content) == 1:
        part = content[0]
        if type(part) is Text and not part.extra:
            return part.text
    return None


def readable(part: Part) -> str | None:
    """The text of a part; None for one that has nothing to read, such as a picture."""
    if isinstance(part, Text):
        return part.text
    if isinstance(part, Refusal | Document):
        return part.text
    if isinstance(part, Raw) and part.type == SEARCH_RESULT:
        return _passages(part.value) or None
    return None


def shown(part: Part) -> str | None:
    """What a prompt shows of a part: its text, or, of a picture, sound or file that no text can show, that it was left
    out. A model that is told nothing would answer as if there were nothing. None for any other part."""
    text = readable(part)
    return text if text is not None or not isinstance(part, _MEDIA) else f"[{_called(part)} was left out: {_UNSEEN}]"


def unseen(part: Part) -> str:
    """What the loss of such a part says."""
    return f"{_UNSEEN}: the prompt says that {_called(part)} was left out"


def is_unseen(loss: Loss) -> bool:
    """Whether a loss is that of a picture, sound or file which the model cannot see."""
    return loss.detail.startswith(_UNSEEN)


_UNSEEN = "the model cannot see this"
_MEDIA = (Image, Audio, Document)
_KINDS = {Image: "an image", Audio: "a sound", Document: "a file"}


def _called(part: Part) -> str:
    name = (part.filename or part.title) if isinstance(part, Document) else None
    return _KINDS.get(type(part), "a part") if not name else f"the file {safe_json_string(name)}"


def _passages(value: Json) -> str:
    """The title, the source and the texts of a search result as paragraphs."""
    block = plain(value)
    content = block.get("content") if isinstance(block, dict) else None
    if not isinstance(content, list):
        return ""
    texts = [one.get("text") for one in content if isinstance(one, dict)]
    found = [text for text in (block.get("title"), block.get("source"), *texts) if isinstance(text, str)]
    return "\n\n".join(found)
