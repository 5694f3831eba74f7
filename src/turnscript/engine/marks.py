"""Owns the marks of a format: the literals that stand in its transcripts and tell it from others."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache

from turnscript.core.conversation import Conversation, Text, ToolCall
from turnscript.engine.layout import document_literals, layout_of
from turnscript.engine.table import Document


@lru_cache(maxsize=64)
def marks_of(document: Document) -> frozenset[str]:
    """Return what only this format and those like it have. What is ordinary text elsewhere counts with what follows."""
    segments = [one for turn in document.known_turns for one in turn.segments]
    ordinary = {literal for one in segments if one.tentative for literal in (one.open, one.close)}
    found = {literal.strip() for literal in document_literals(document) if literal not in ordinary}
    found |= {f"{one.open}{one.body.begins}".strip() for one in segments if one.tentative}
    found |= {turn.open.strip() for turn in document.known_turns}
    for close in {turn.close.strip() for turn in document.known_turns}:  # what stands before one may end a text
        found = {mark if mark == close else mark.removesuffix(close) for mark in found}
    return frozenset(mark for mark in found if any(map(str.isalpha, mark)))


def marks_in(document: Document, text: str) -> frozenset[str]:
    """Return the marks of a format that stand in a text. A line before every closing of a turn is one, too."""
    found = {mark for mark in marks_of(document) if mark in text}
    for close in {turn.close.rstrip() for turn in document.turns}:
        core = close.lstrip()
        if core != close and text.count(close) == text.count(core) > 0:
            found.add(close)
    return frozenset(found)


def marks_around(document: Document, text: str, marks: frozenset[str], said: Conversation) -> frozenset[str]:
    """Return those marks of a text that stand in it, escaped or not, more often than in what is said with it."""
    escape = layout_of(document).escape
    contents = list(_contents(said))
    spelled = {mark: {mark, escape.apply(mark)} for mark in marks}
    return frozenset(
        mark for mark in marks if sum(map(text.count, spelled[mark])) > sum(one.count(mark) for one in contents)
    )


def _contents(said: Conversation) -> Iterator[str]:
    """Give all texts of a conversation, and the arguments of its calls."""
    for item in said.items:
        if isinstance(item, ToolCall):
            yield item.arguments
        yield from (part.text for part in getattr(item, "content", ()) if isinstance(part, Text))
    yield from (tool.description or "" for tool in said.tools)
