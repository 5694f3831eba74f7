"""Owns what is nearly a mark of a format and none, so that it is read as text: misspelt tags and labels."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from difflib import SequenceMatcher
from functools import lru_cache
from typing import NamedTuple

from turnscript.engine.escape import tags_in
from turnscript.engine.layout import layout_of
from turnscript.engine.table import Document

_CLOSE = 0.8
"""So much alike are a word and a mark that it nearly is."""

_TAG = re.compile(r"<{1,2}[^<>\s\\]{2,60}(?:>{1,2}|(?=\s))|\[/?[A-Za-z_]{2,20}\]")
_AROUND = "<>/|[]"
_BEHIND = re.compile(r"[ \t\r]*(?:\n|\Z|<)")
_LINE = re.compile(r"^(?=\S)", re.MULTILINE)
_LABEL = re.compile(r"[^\s:<>\[\]\\]{2,24}:")


class Near(NamedTuple):
    """Something at a place in a text that is nearly a mark, and what to say of it."""

    position: int
    message: str


def meant(line: str, words: Sequence[str]) -> str:
    """Return which of these words a line nearly begins with, to the last character; empty if with none."""
    likeness: dict[str, float] = {}
    for word in words:
        begun = [line[:end] for end in range(max(1, len(word) - 2), len(word) + 3) if line[:end].endswith(word[-1])]
        likeness[word] = max([_likeness(one, word) for one in begun], default=0.0)
    best = max(likeness, key=lambda word: likeness[word], default="")
    return best if best and likeness[best] >= _CLOSE else ""


def opening_meant(document: Document, text: str) -> str:
    """Return which opening of a turn or a block a text nearly begins with; empty if with none."""
    line = text.removeprefix("\ufeff").lstrip().split("\n", 1)[0]
    return meant(line.removeprefix(document.start), _openings(document))


def near_marks(document: Document, text: str) -> Iterator[Near]:
    """Give what is nearly a mark of the format, where one could stand."""
    yield from _near_tags(document, text)
    if labels := _labels(document):
        yield from _near_labels(document, text, labels)


def _near_tags(document: Document, text: str) -> Iterator[Near]:
    """Give tags that begin or end a line, begin a turn, or stand beside another, and are misspelt or have what no such
    tag has."""
    known, before = _tags(document), _before(document)
    for found in _TAG.finditer(text):
        tag, start, end = found[0], found.start(), found.end()
        closes, core = _split(tag)
        marks = known.closings if closes else known.openings
        if not marks or not (before.search(text, max(0, start - 80), start) or _BEHIND.match(text, end)):
            continue
        exact = marks.get(core)
        if exact is not None:
            if tag != exact and tag == exact.rstrip(">") and core not in known.attributed:
                yield Near(start, f"{exact} takes no attributes here, so this is text; did you mean {exact}?")
        elif near := _nearest(core, tuple(marks)):
            yield Near(start, f"{tag} is no mark of this format, so it is text; did you mean {marks[near]}?")


def _near_labels(document: Document, text: str, labels: Sequence[str]) -> Iterator[Near]:
    """Give labels of turns that are misspelt, or that stand behind no blank line."""
    begin = len(text) - len(text.removeprefix("\ufeff").lstrip())
    for found in _LINE.finditer(text, begin):
        start = found.start()
        behind = start == begin or text.endswith(document.separator, 0, start)
        said = next((label for label in labels if text.startswith(label, start)), "")
        if said and not behind:
            separator = "a blank line" if document.separator == "\n\n" else repr(document.separator)
            yield Near(start, f"{said} begins no turn without {separator} before it, so it is text")
        elif not said and behind and (word := _LABEL.match(text, start)) and (near := _nearest(word[0], labels)):
            yield Near(start, f"{word[0]} is no label of this format, so it is text; did you mean {near}?")


class _Tags(NamedTuple):
    """The tags of a format by the words in them, and the words of those that take attributes."""

    openings: dict[str, str]
    closings: dict[str, str]
    attributed: frozenset[str]


@lru_cache(maxsize=64)
def _tags(document: Document) -> _Tags:
    literals = [*document.literals, *_openings(document)]
    literals += [one for turn in document.turns for segment in turn.also_read for one in segment.literals]
    tags = [tag for literal in literals for tag in tags_in(literal)]
    openings = {core: tag for tag in tags for closes, core in [_split(tag)] if not closes}
    closings = {core: tag for tag in tags for closes, core in [_split(tag)] if closes}
    return _Tags(openings, closings, frozenset(core for core, tag in openings.items() if tag[-1] not in ">]"))


@lru_cache(maxsize=64)
def _before(document: Document) -> re.Pattern[str]:
    """Return what stands before a tag that begins something: a line, another tag, or the opening of a turn."""
    openings = [one.rsplit("\n", 1)[-1] for one in _openings(document) if not one.endswith((">", "]"))]
    places = ["^" + re.escape(one) if one[0].isalnum() else re.escape(one) for one in openings if one]
    return re.compile("|".join([r"(?:\A|[\n>\]]", *places]) + r")[ \t]*\Z", re.MULTILINE)


def _split(tag: str) -> tuple[bool, str]:
    """Return whether a tag closes something, and the word in it."""
    return tag.startswith(("</", "[/")), tag.split("=", 1)[0].strip(_AROUND)


def _openings(document: Document) -> list[str]:
    """Return what opens turns, blocks, and what stands in no turn."""
    found = [turn.open.strip() for turn in document.known_turns if turn.open]
    if document.anchored:
        found += [segment.open.strip() for turn in document.turns for segment in turn.segments]
        found += [section.open.strip() for section in (document.metadata, document.tools) if section is not None]
    return list(dict.fromkeys(found))


@lru_cache(maxsize=64)
def _labels(document: Document) -> tuple[str, ...]:
    """Return the openings of turns that are words at the head of a line, which nothing but a separator tells."""
    holds, separated = layout_of(document).escape.holds, document.separator.startswith("\n")
    openings = [turn.open.strip() for turn in document.known_turns if turn.open and not turn.close]
    return tuple(one for one in openings if separated and one.endswith(":") and not holds(one))


@lru_cache(maxsize=4096)
def _nearest(word: str, words: tuple[str, ...]) -> str:
    """Return which of these a word nearly is; empty if none."""
    likeness = {one: _likeness(word, one) for one in words if abs(len(one) - len(word)) <= max(2, len(one) // 4)}
    best = max(likeness, key=lambda one: likeness[one], default="")
    return best if best and likeness[best] >= _CLOSE else ""


def _likeness(word: str, other: str) -> float:
    """Return how much alike two words are, from 0 to 1, whatever their case."""
    matcher = SequenceMatcher(None, word.casefold(), other.casefold(), autojunk=False)
    return matcher.ratio() if matcher.real_quick_ratio() >= _CLOSE <= matcher.quick_ratio() else 0.0
