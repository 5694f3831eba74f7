"""Owns ids that are made of a tool's name and a number, `functions.get_weather:0`, or are the number alone.

An id with a name says which tool is called, so a call must have one of its own tool. Any other id is written as the
number of the call in its session, and so is that of the result which answers it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import lru_cache

from turnscript.core.conversation import Item, ToolCall, ToolResult
from turnscript.engine.earlier import NOTHING, Earlier
from turnscript.engine.table import Document

_INDEX = re.compile(r"[0-9]+")


class Numbering:
    """The spelling of such ids: `prefix`, name, `mark`, number."""

    def __init__(self, prefix: str, mark: str) -> None:
        self.prefix, self.mark = prefix, mark
        self._number = re.compile(rf"{re.escape(mark)}[0-9]+\Z")

    def id(self, name: str, number: int) -> str:
        """Return the id of a call."""
        return f"{self.prefix}{name}{self.mark}{number}"

    def name(self, id_: str) -> str:
        """Return the tool's name in an id, also where the prefix or the number is missing."""
        return self._number.sub("", id_).removeprefix(self.prefix)

    def fits(self, id_: str | None, name: str) -> bool:
        """Return whether an id is one of a call of a tool."""
        if id_ is None:
            return False
        named = f"{self.prefix}{name}"
        return id_.startswith(named) and self._number.fullmatch(id_, len(named)) is not None


class Indices:
    """The spelling of ids that are numbers alone."""

    def id(self, name: str, number: int) -> str:
        """Return the id of a call."""
        return str(number)

    def name(self, id_: str) -> str:
        """Return the tool's name in an id: there is none."""
        return ""

    def fits(self, id_: str | None, name: str) -> bool:
        """Return whether an id is such a number."""
        return id_ is not None and _INDEX.fullmatch(id_) is not None


@lru_cache(maxsize=64)
def numbering_of(document: Document) -> Numbering | Indices | None:
    """Return how a format makes ids of names and numbers; None where it does not."""
    segments = (one for turn in document.turns for one in turn.segments if one.kind == ToolCall.kind)
    return next((found for one in segments if (found := getattr(one.body, "numbering", None)) is not None), None)


def ids_of(items: Sequence[Item], document: Document, earlier: Earlier = NOTHING) -> dict[int, str]:
    """Return the ids of calls and results as they are written, by position, where the format makes them.

    `earlier`: what was said before. A result may answer a call there, which is looked for only if it has to be.
    """
    numbering = numbering_of(document)
    if numbering is None:
        return {}
    given = _Given(numbering, earlier.calls, _holds(document))
    found: dict[int, str] = {}
    for at, item in enumerate(items, earlier.count):
        word = given.word(item)
        if word is not None:
            found[at] = word
        elif isinstance(item, ToolResult) and earlier.count:
            every = ids_of([*earlier.all(), *items], document)
            return {index: one for index, one in every.items() if index >= earlier.count}
    return found


def _holds(document: Document) -> Callable[[str], bool]:
    """Return whether a result can show an id as it is."""
    results = (one.body for turn in document.turns for one in turn.segments if one.kind == ToolResult.kind)
    return getattr(next(results, None), "holds", bool)


class _Given:
    """The ids that were given so far. Results without an id answer the calls of a block in their order."""

    def __init__(self, numbering: Numbering | Indices, number: int, holds: Callable[[str], bool]) -> None:
        self._numbering, self._number, self._holds = numbering, number, holds
        self._words: dict[str, str] = {}
        self._block: list[str] = []
        self._answered = 0
        self._behind_call = False

    def word(self, item: Item) -> str | None:
        """Return the id that the next item shows; None if it has none, or answers a call that is not known."""
        behind, self._behind_call = self._behind_call, isinstance(item, ToolCall)
        if isinstance(item, ToolResult):
            return self._result(item)
        if not isinstance(item, ToolCall):
            return None
        if not behind:
            self._block, self._answered = [], 0
        fits = item.id is not None and self._numbering.fits(item.id, item.name)
        word = str(item.id) if fits else self._numbering.id(item.name, self._number)
        self._number += 1
        self._block.append(word)
        if item.id is not None:
            self._words[item.id] = word
        return word

    def _result(self, result: ToolResult) -> str | None:
        at, self._answered = self._answered, self._answered + 1
        if result.id in self._words:
            return self._words[result.id]
        if result.id is None or not self._holds(result.id):
            return self._block[at] if at < len(self._block) else None
        return result.id if self._numbering.fits(result.id, self._numbering.name(result.id)) else None
