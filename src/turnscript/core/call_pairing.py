"""Owns pairing: which call a result answers, and ids for those that have none (requirements D-X-6, D-X-7)."""

from __future__ import annotations

import re
from collections import OrderedDict, deque
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from copy import copy

from turnscript.core.conversation import Assistant, Conversation, Item, Opaque, Request, Thinking, ToolCall, ToolResult

GUESSED = "the id of the call that it seems to answer"
"""What a loss says of a result that had no id, and gets that of a call which has one."""

ANSWERED = "the id of the result that seems to answer it"
"""What a loss says of a call that had no id, and gets that of a result which has one."""

_MADE, _ORPHANED = "call_auto_", "call_auto_orphan_"
_ID = re.compile(r"[A-Za-z0-9_-]+")
_ID_ESCAPED = re.compile(r"[^A-Za-z0-9_-]|-(?=x[0-9a-f-])")
_ESCAPE = re.compile(r"-x([2-7][0-9a-f])-")  # of what is ASCII and prints


def told(request: Request, item: ToolCall | ToolResult, made: str) -> str:
    """What a loss says of an id from `call_ids` that an item is written with; nothing if the source had the same.

    An id that pairs a call with its result is none: it says what their order has said, and readers take it off again.
    """
    if request.generated.get(item.at) == made:
        return ""
    if not is_generated(made):
        return GUESSED if isinstance(item, ToolResult) else ANSWERED
    return f"{made!r}, and no call is known that it answers" if made.startswith(_ORPHANED) else ""


def is_generated(id_: str | None) -> bool:
    """Whether an id looks like those of `call_ids`."""
    return id_ is not None and id_.startswith(_MADE)


def name_results(items: Iterable[Item]) -> bool:
    """Give each result the name of the call that it answers by id, where it has none; whether an id looks generated."""
    names: dict[str | None, str | None] = {}
    for item in items:
        if type(item) is ToolCall:
            names[item.id] = item.name
        elif type(item) is ToolResult and item.id is not None:
            name = names.setdefault(item.id, None)
            if item.name is None:
                item.name = name
    return bool(names) and any(map(is_generated, names))


def call_ids(items: Sequence[Item]) -> dict[int, str]:
    """An id for every call and result, by position in `items`: its own, or a generated one.

    A call without an id is `call_auto_NNN`, NNN counting calls, ids in use skipped; where the result that answers it
    has an id that no call has, it is that one. A result without one answers the first open call of its name, else the
    first open call; one that answers nothing is `call_auto_orphan_NNN`. All this is deterministic, so that
    `drop_generated_ids` can take them off again.
    """
    used = {item.id for item in items if isinstance(item, ToolCall | ToolResult) and item.id is not None}
    free, orphaned = _FreeIds(used, _MADE), _FreeIds(used, _ORPHANED)
    waiting = _OpenCalls()
    ids: dict[int, str] = _ids_of_answers(items)
    number = 0
    for index, item in enumerate(items):
        if isinstance(item, ToolCall):
            number += 1
            if index not in ids:
                ids[index] = item.id if item.id is not None else free.take(number)
            waiting.open(ids[index], item.name)
        elif isinstance(item, ToolResult):
            ids[index] = item.id if item.id is not None else waiting.first(item.name) or orphaned.take()
            waiting.answer(ids[index])
    return ids


def _ids_of_answers(items: Sequence[Item]) -> dict[int, str]:
    """Return the ids of results that no call has, at the calls without one that they answer."""
    known = {item.id for item in items if isinstance(item, ToolCall)}
    if None not in known:
        return {}
    waiting = _OpenCalls()
    found: dict[int, str] = {}
    for index, item in enumerate(items):
        if isinstance(item, ToolCall) and item.id is None:
            waiting.open(str(index), item.name)
        elif isinstance(item, ToolResult) and item.id not in known:
            # Generated ids are made anew, and are no word of the transcript's.
            call = None if is_generated(item.id) else waiting.first(item.name)
            if call is not None:
                waiting.answer(call)
                found[int(call)] = item.id or ""
                known.add(item.id)
        elif isinstance(item, ToolResult) and item.id is None and (call := waiting.first(item.name)) is not None:
            waiting.answer(call)
    return found


class _FreeIds:
    """Generated ids that nobody uses. Each search goes on where the last one ended, so that all together are linear."""

    def __init__(self, used: set[str], stem: str) -> None:
        self._used = used
        self._stem = stem
        self._last = 0

    def take(self, number: int = 1) -> str:
        number = max(number, self._last + 1)
        while (candidate := f"{self._stem}{number:03d}") in self._used:
            number += 1
        self._last = number
        return candidate


class _OpenCalls:
    """The ids of calls without an answer, in order, and by the tool's name. Ordered dicts: a dict's first key is slow
    to find once many before it are gone."""

    def __init__(self) -> None:
        self._names: OrderedDict[str, str] = OrderedDict()
        self._by_name: dict[str, OrderedDict[str, None]] = {}

    def open(self, id_: str, name: str) -> None:
        self.answer(id_)
        self._names[id_] = name
        self._by_name.setdefault(name, OrderedDict())[id_] = None

    def answer(self, id_: str) -> None:
        name = self._names.pop(id_, None)
        if name is not None:
            del self._by_name[name][id_]

    def first(self, name: str | None) -> str | None:
        named = self._by_name.get(name) if name is not None else None
        return next(iter(named or self._names), None)


def distinct_ids(items: Sequence[Item], id_of: Callable[[ToolCall | ToolResult], str]) -> dict[int, str]:
    """Ids for calls that have that of an earlier one, and for their results, by `id(item)`.

    Some servers begin to count with each answer. A result answers the first call of its turn with its id that has none
    yet, else the last one. What stands among the calls of a turn and is no user's, such as a search that the API itself
    ran, ends none.
    """
    called = [id_of(item) for item in items if isinstance(item, ToolCall)]
    if len(called) == len(set(called)):
        return {}
    ids = _Distinct(set(called))
    found: dict[int, str] = {}
    for item in items:
        if isinstance(item, ToolCall | ToolResult):
            source = id_of(item)
            written = ids.call(source) if isinstance(item, ToolCall) else ids.result(source)
            if written != source:
                found[id(item)] = written
        elif not (isinstance(item, Assistant | Thinking) or (isinstance(item, Opaque) and item.role != "user")):
            ids.turn_over()
    return found


class _Distinct:
    """The ids of calls, told apart as they come."""

    def __init__(self, used: set[str]) -> None:
        self._used = used
        self._numbers: dict[str, int] = {}  # how often each id has come
        self._last: dict[str, str] = {}  # what the last call with it is called
        self._open: dict[str, deque[str]] = {}  # and those of this turn without a result
        self._over = False

    def turn_over(self) -> None:
        """What calls come now are of another turn."""
        self._over = True

    def call(self, source: str) -> str:
        if self._over:
            self._open, self._over = {}, False
        written = source
        if source in self._last:
            written = unused_id(source, self._used, self._numbers)
            self._used.add(written)
        self._last[source] = written
        self._open.setdefault(source, deque()).append(written)
        return written

    def result(self, source: str) -> str:
        self._over = True
        waiting = self._open.get(source)
        return waiting.popleft() if waiting else self._last.get(source, source)


def legal_id(id_: str) -> str:
    """An id in letters, digits, `_` and `-`, for APIs that take no others. No two ids become the same."""
    if _ID.fullmatch(id_) and "-x" not in id_:  # which most ids are
        return id_
    return _ID_ESCAPED.sub(lambda found: f"-x{ord(found[0]):x}-", id_) or "-x-"


def original_id(id_: str) -> str:
    """The id that `legal_id` has spelled so; the same where it has not."""
    if "-x" not in id_:
        return id_
    found = _ESCAPE.sub(lambda escape: chr(int(escape[1], 16)), id_)
    return found if legal_id(found) == id_ else id_


def unused_id(id_: str, used: Container[object], numbers: dict[str, int]) -> str:
    """An id like another one, with a number. `numbers`: the last one of each, so that no search begins anew."""
    number = numbers.get(id_, 1) + 1
    while (found := f"{id_}-{number}") in used:
        number += 1
    numbers[id_] = number
    return found


def drop_generated_ids(request: Request) -> None:
    """Take off the ids that `call_ids` would give again in the same places, so that a round trip through an API ends
    where it began. Ids that merely look generated stay. `generated` remembers what stood in the source."""
    items = request.items
    tagged = {
        index: item.id
        for index, item in enumerate(items)
        if isinstance(item, ToolCall | ToolResult) and item.id is not None and is_generated(item.id)
    }
    for _ in range(3):  # an id that only looks generated can stand in the way of a few others
        for index in tagged:
            _set_id(items[index], None)
        again = call_ids(items) if tagged else {}
        kept = {index for index, id_ in tagged.items() if again[index] != id_}
        if not kept:
            request.generated = {items[index].at: id_ for index, id_ in tagged.items()}
            return
        for index, id_ in tagged.items():
            _set_id(items[index], id_)
        tagged = {index: id_ for index, id_ in tagged.items() if index not in kept}


def kept_ids(items: Sequence[Item], ids: Mapping[int, str]) -> set[int]:
    """Where `drop_generated_ids` takes off none of these ids once they are written."""
    written = [copy(item) for item in items]
    for index, id_ in ids.items():
        _set_id(written[index], id_)
    drop_generated_ids(Request(conversation=Conversation(items=written)))
    return {index for index in ids if getattr(written[index], "id", None) is not None}


def _set_id(item: Item, id_: str | None) -> None:
    if isinstance(item, ToolCall | ToolResult):
        item.id = id_
