"""Owns which call a result answers where ids do not tell it for all, and what is lost by that.

`hidden`: neither calls nor results have ids, nor results names. `named`: results have names. In both a result answers
the first open call of its name, else the first open one (requirements D-X-6); ids that a table shows nevertheless are
kept and decide nothing. `on_results`: a result shows the id of
its call, or the tool's name; if the call shows the same id, it answers that, else the i-th result of a block answers
the i-th call before it (D-A-5). Whether calls show ids, too, their attributes say.

A prompt that grows renders what is new, and may look back at what its session has said before.

Some ids are made of a tool's name and a number, `functions.get_weather:0`, or are the number alone. An id with a name
says which tool is called, so a call must have one of its own tool. Any other id is written as the number of the call in
its session, and so is that of the result which answers it.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from functools import lru_cache
from typing import NamedTuple

from msgspec import Struct

from turnscript.core.conversation import Item, ToolCall, ToolResult
from turnscript.engine.scanner import overlap
from turnscript.engine.spans import Writer
from turnscript.engine.table import Document

_GENERATED = re.compile(r"call_auto_([0-9]{3,15})")
"""An id as they are generated for calls that have none (requirements D-X-7)."""


class _Counts(NamedTuple):
    """Of all items up to the end of a part: how many calls no result stands for, how many calls there are, and the
    numbers in generated ids that as many calls have not reached yet.
    """

    waiting: int = 0
    calls: int = 0
    ahead: frozenset[int] = frozenset()

    def then(self, items: Sequence[Item]) -> _Counts:
        """Return the counts with more items behind these."""
        waiting, said = self.waiting, []
        for item in items:
            if isinstance(item, ToolCall):
                waiting += 1
                said.append(item)
            elif isinstance(item, ToolResult) and waiting:
                waiting -= 1
        if not said:
            return _Counts(waiting, self.calls, self.ahead)
        calls = self.calls + len(said)
        return _Counts(waiting, calls, frozenset([one for one in (*self.ahead, *_numbers(said)) if one > calls]))


class Earlier:
    """The items of one part of a session, and the parts before it. `count`: how many items there are in all.

    Most formats ask for no more, so calls are counted when somebody does, from the last part that was counted.
    """

    __slots__ = ("_known", "before", "count", "items")

    def __init__(self, items: Sequence[Item] = (), before: Earlier | None = None) -> None:
        self.items = items
        self.before = before
        self.count: int = len(items) if before is None else before.count + len(items)
        self._known = _Counts() if before is None else None

    def then(self, items: Sequence[Item]) -> Earlier:
        """Return these items with more behind them."""
        return Earlier(items, self)

    @property
    def waiting(self) -> int:
        """Return how many calls there are that no result stands for."""
        return self._counts().waiting

    @property
    def calls(self) -> int:
        """Return how many calls there are."""
        return self._counts().calls

    def _counts(self) -> _Counts:
        parts: list[Earlier] = []
        part = self
        while part._known is None and part.before is not None:
            parts.append(part)
            part = part.before
        known = part._known or _Counts()
        for one in reversed(parts):
            known = one._known = known.then(one.items)
        return known

    def next_id(self) -> str:
        """Return the id of the next call, as ids are generated: its number, those in use skipped."""
        _, calls, ahead = self._counts()
        number = calls + 1
        while number in ahead:
            number += 1
        return f"call_auto_{number:03d}"

    def last(self) -> Item | None:
        """Return the last item of all."""
        part: Earlier | None = self
        while part is not None and not part.items:
            part = part.before
        return part.items[-1] if part is not None else None

    def all(self) -> list[Item]:
        """Return all items, in order. That takes the longer, the longer the session is."""
        parts: list[Sequence[Item]] = []
        part: Earlier | None = self
        while part is not None:
            parts.append(part.items)
            part = part.before
        return [item for items in reversed(parts) for item in items]


def _numbers(calls: Sequence[ToolCall]) -> Iterator[int]:
    """Give the numbers in ids that are spelled as generated ones are."""
    for call in calls:
        found = _GENERATED.fullmatch(call.id or "")
        if found and f"{int(found[1]):03d}" == found[1]:
            yield int(found[1])


NOTHING = Earlier()


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


_ID = re.compile(r"[A-Za-z0-9_-]+")
_PAIRED: frozenset[type[Item]] = frozenset({ToolCall, ToolResult})
Shown = list[tuple[str | None, str | None]]
"""Id and name of each item, None where there is none."""


class Shows(Struct, frozen=True):
    """What a format's table shows: ids of calls, ids and names of results, and names where an id would stand."""

    call_id: bool = False
    result_id: bool = False
    result_name: bool = False
    name_for_id: bool = False


@lru_cache(maxsize=64)
def shows(document: Document) -> Shows:
    """Return what a prompt in this format shows of calls and results, beside the names of calls."""
    segments = [one for turn in document.turns for one in turn.segments]
    calls = [shown for one in segments if one.kind == ToolCall.kind for shown in one.attributes_shown]
    results = [shown for one in segments if one.kind == ToolResult.kind for shown in one.attributes_shown]
    carried = {field for one in segments if one.kind == ToolResult.kind for field in one.body.carries}
    said = {field for one in segments if one.kind == ToolCall.kind for field in one.body.carries}
    return Shows(
        call_id="id" in said or any(one.path == "id" for one in calls),
        result_id="id" in carried or any(one.path == "id" for one in results),
        result_name="name" in carried or any(one.path == "name" for one in results),
        name_for_id=any((one.path, one.fallback) == ("id", "name") for one in results),
    )


def correlated(items: Sequence[Item], shown: Shown, document: Document, tools: Collection[str]) -> Shown:
    """Return ids and names as a reader finds them, from what is shown."""
    if document.results != "on_results":
        return _hidden(items, shown)
    return _on_results(items, shown, tools, shows(document))


def correlate(items: Sequence[Item], document: Document, tools: Collection[str]) -> None:
    """Give calls and results the ids and names that follow from what is shown and from their order."""
    shown = [_shown(item) for item in items]
    if document.results == "on_results":
        found = correlated(items, shown, document, tools)
    else:  # a call whose table shows no id may say one, and then its result answers that
        found = _hidden(items, shown, lends=not shows(document).call_id)
    for item, (id_, name) in zip(items, found, strict=True):
        if isinstance(item, ToolResult):
            item.id, item.name = id_, name
        elif isinstance(item, ToolCall):
            item.id = id_


def names_of(items: Sequence[Item], document: Document, earlier: Earlier = NOTHING) -> dict[int, str]:
    """Return the tools' names of results that have none, by position, for formats that show names.

    `earlier`: what was said before. A result may answer a call there, which is looked for only if it has to be.
    """
    if ToolResult not in map(type, items):
        return {}
    style, table = document.results, shows(document)
    if style and not (table.name_for_id or table.result_name):
        return {}
    nameless = {at for at, item in enumerate(items) if isinstance(item, ToolResult) and item.name is None}
    if not nameless:
        return {}
    if earlier.count:
        alone = not earlier.waiting or _settled(items, nameless, style, table, earlier.last())
        found = names_of(items, document) if alone else {}
        if nameless <= found.keys():
            return {earlier.count + at: name for at, name in found.items()}
        items = [*earlier.all(), *items]
    shown: Shown = [_shown_as(item, table) for item in items]
    found = {index: name for index, (_, name) in enumerate(correlated(items, shown, document, ())) if name is not None}
    return found if style else _by_id(items, found)


def _settled(items: Sequence[Item], nameless: Collection[int], style: str, table: Shows, before: Item | None) -> bool:
    """Return whether each of these results answers one of these calls, whatever calls have waited since before.

    It does where it shows the id of one. Without ids, results answer the calls of their own block, or the first that
    waits. `before`: the item before these, which a block may begin with.
    """
    ids: set[str | None] = set()
    block = False
    for at, item in enumerate(items):
        if isinstance(item, ToolCall):
            block = block or not isinstance(before, ToolCall)
            ids |= {item.id} if table.call_id or not style else set()
        elif at in nameless and isinstance(item, ToolResult):
            word = item.id if table.result_id or not style else None
            by_block = style == "on_results" and block and (word is None or not (table.call_id or table.name_for_id))
            if not by_block and (word is None or word not in ids):
                return False
        before = item
    return style != "named"


def _by_id(items: Sequence[Item], others: dict[int, str]) -> dict[int, str]:
    """Return the names of results by the ids that they show. `others`: of those that show none, by their order."""
    calls: dict[str, str] = {}
    names: dict[int, str] = {}
    for index, item in enumerate(items):
        if isinstance(item, ToolCall) and item.id is not None:
            calls[item.id] = item.name
        elif isinstance(item, ToolResult):
            name = others.get(index) if item.id is None else calls.get(item.id)
            names |= {index: name} if name is not None else {}
    return names


def are_paired(items: Iterable[Item]) -> bool:
    """Return whether there are calls or results among items."""
    return not _PAIRED.isdisjoint(map(type, items))


def report_correlation(items: Sequence[Item], document: Document, out: Writer) -> None:
    """Book the losses for the ids and names that a reader will not find again."""
    table = shows(document)
    written = ids_of(items, document)
    shown = [_shown_as(item, table, written.get(at)) for at, item in enumerate(items)]
    found = correlated(items, shown, document, out.tools)
    for index, (item, (id_, name)) in enumerate(zip(items, found, strict=True)):
        if not isinstance(item, ToolCall | ToolResult):
            continue
        out.place = item.at or f"items[{index}]"
        if isinstance(item, ToolCall) and item.name in names_taken(document):
            out.lose(".name", "approximated", "a reader takes this name for what opens a text")
        if item.id != id_ and item.id is None:
            out.lose(".id" if index in written else "", "invented", f"a reader will take {id_!r} for its id")
        elif item.id != id_ and index in written:
            out.lose(".id", "renamed", f"ids are made of names and numbers here: it is {id_!r}")
        elif item.id != id_:
            shows_ids = f"; its variant {document.with_ids} shows it" if document.with_ids else ""
            out.lose(".id", "dropped", f"this format has no place for it{shows_ids}")
        if isinstance(item, ToolResult) and item.name != name:
            out.lose(".name", "approximated", f"a reader will take it for {name!r}")


@lru_cache(maxsize=64)
def names_taken(document: Document) -> frozenset[str]:
    """Return the names that no call can say: one behind the opening of a call is the opening of something else."""
    found: set[str] = set()
    for turn in document.turns:
        for call in turn.segments if any(one.kind == ToolCall.kind for one in turn.segments) else ():
            if call.kind == ToolCall.kind and call.open:
                mark = getattr(call.body, "mark", "") or getattr(call.body, "name_close", "")
                others = [one.open.removeprefix(call.open) for one in turn.segments if one.open.startswith(call.open)]
                found |= {name for one in others if (name := _name_before(mark, one))}
    return frozenset(found)


def _name_before(mark: str, opened: str) -> str:
    """Return a name that goes on with the beginning of what stands behind names; empty where there is none."""
    size = overlap(opened, mark)
    return opened[:-size] if size else ""


def _shown(item: Item) -> tuple[str | None, str | None]:
    return (item.id, item.name) if isinstance(item, ToolCall | ToolResult) else (None, None)


def _shown_as(item: Item, table: Shows, written: str | None = None) -> tuple[str | None, str | None]:
    """Return id and name of an item as a reader sees them. `written`: the id, if another."""
    if isinstance(item, ToolCall):
        return (written or item.id) if table.call_id else None, item.name
    if isinstance(item, ToolResult):
        word = (written or item.id) if table.result_id else None
        word = item.name if word is None and table.name_for_id else word
        return word, item.name if table.result_name else None
    return None, None


def _hidden(items: Sequence[Item], shown: Shown, lends: bool = False) -> Shown:
    waiting: dict[int, str | None] = {}
    by_name: dict[str | None, deque[int]] = {}
    found: Shown = []
    for index, item in enumerate(items):
        id_, name = shown[index]
        if isinstance(item, ToolCall):
            waiting[index] = name
            by_name.setdefault(name, deque()).append(index)
        elif isinstance(item, ToolResult):
            call = _first_open(by_name.get(name), waiting)
            if call is None:
                call = next(iter(waiting), None)
            answered = None if call is None else waiting.pop(call)
            name = answered if name is None else name
            id_ = shown[call][0] if lends and id_ is None and call is not None else id_
        found.append((id_, name))
    return found


def _first_open(calls: deque[int] | None, waiting: dict[int, str | None]) -> int | None:
    """Return the first call of a name that nobody has answered. Answered ones are never looked at twice."""
    while calls and calls[0] not in waiting:
        calls.popleft()
    return calls.popleft() if calls else None


def _on_results(items: Sequence[Item], shown: Shown, tools: Collection[str], table: Shows) -> Shown:
    names = set(tools) | {item.name for item in items if isinstance(item, ToolCall)}
    known = {shown[index][0]: index for index, item in enumerate(items) if isinstance(item, ToolCall)}
    found: Shown = list(shown)
    calls: list[int] = []
    answered = 0
    before: type[Item] | None = None
    for index, item in enumerate(items):
        if isinstance(item, ToolCall):
            if before is not ToolCall:
                calls, answered = [], 0
            calls.append(index)
        elif isinstance(item, ToolResult):
            word, name = shown[index]
            call = calls[answered] if answered < len(calls) else None
            answered += 1
            if word is not None and word in known:
                found[index] = (word, shown[known[word]][1] if name is None else name)
            elif word is not None and table.name_for_id and (word in names or not _ID.fullmatch(word)):
                found[index] = (None, word)
            else:
                found[index] = (word, shown[call][1] if name is None and call is not None else name)
                if call is not None and not table.call_id and shown[call][0] is None:
                    found[call] = (word, shown[call][1])
        before = type(item)
    return found
