"""Owns thoughts in APIs that have one text for each: what is told of one with more, or with a summary alone."""

from __future__ import annotations

from turnscript.apis.api import Rendering
from turnscript.core.conversation import Text, Thinking
from turnscript.core.source_paths import part_path


def thought_texts(rendering: Rendering, item: Thinking) -> list[str]:
    """Return the texts of a thought that can be one text alone, or its summary where it has none; report the rest."""
    texts = [part.text for part in item.content if isinstance(part, Text)]
    if len(item.content) > 1 or len(item.content) != len(texts):
        rendering.lose(item.at, "approximated", "its parts become one text")
    for index, part in enumerate(item.content):
        if part.extra:
            rendering.put_extra({}, part.extra, part_path(item, index))
    if not item.summary:
        return texts
    if any(texts):
        rendering.lose_member(item, "summary", "dropped", "a thought has its text or a summary here, not both")
        return texts
    rendering.lose_member(item, "summary", "approximated", "the summary stands for the thought")
    return ["\n\n".join([part.text for part in item.summary if isinstance(part, Text)])]
