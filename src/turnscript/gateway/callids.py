"""Owns the ids of calls: one for each whose model wrote none, and another for each whose id was there before.

A client tells by the id which call a result answers, so no two calls of a conversation may share one. A model does not
know that: it may begin each turn with `call_001`. Such an id gets a mark behind it on its way to the client, which is
taken off when it comes back, from the call and from its result: so the prompt holds what the model wrote. For the same
reason an id that an API had to spell with other characters is read back.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from copy import copy
from itertools import count
from secrets import token_hex

from turnscript.core.call_pairing import original_id
from turnscript.core.conversation import Conversation, Item, Request, ToolCall, ToolResult, calls
from turnscript.core.events import Event, PartEnd, PartStart


def new_call_id() -> str:
    """An id that no other call has. Every API takes letters, digits and `_`."""
    return f"call_{token_hex(12)}"


class CallIds:
    """Gives calls without an id one, the same at their beginning and their end."""

    def __init__(self, new: Callable[[], str] = new_call_id) -> None:
        self._new = new
        self._given: dict[int, str] = {}

    def feed(self, events: list[Event]) -> list[Event]:
        """The events, every call with an id."""
        return [
            self._with_id(event) if type(event) is PartStart or type(event) is PartEnd else event for event in events
        ]

    def _with_id(self, event: PartStart | PartEnd) -> Event:
        if type(event.part) is not ToolCall or event.part.id:
            return event
        id_ = self._given.get(event.index) or self._new()
        self._given[event.index] = id_
        told = copy(event)
        told.part = _named(event.part, id_)
        return told


def _named(call: ToolCall, id_: str) -> Item:
    named = copy(call)
    named.id = id_
    return named


# Ids that were there before.

_MARK = re.compile(r"_again\d+\Z")
_WITH_IDS = frozenset({ToolCall, ToolResult})


class Unrepeated:
    """Marks ids that another call of the conversation has already, the same at a call's beginning and end."""

    def __init__(self, request: Request) -> None:
        ids = [call.id for call in calls(request.items) if call.id is not None]
        self._used = {*ids, *map(original_id, ids)}
        self._given: dict[int, str] = {}

    def feed(self, events: list[Event]) -> list[Event]:
        """The events, every call with an id of its own."""
        return [self._own(event) if type(event) is PartStart or type(event) is PartEnd else event for event in events]

    def _own(self, event: PartStart | PartEnd) -> Event:
        if type(event.part) is not ToolCall or event.part.id is None:
            return event
        id_ = self._given.get(event.index)
        if id_ is None:
            id_ = self._given[event.index] = self._free(event.part.id)
            self._used.add(id_)
        if id_ == event.part.id:
            return event
        told = copy(event)
        told.part = _named(event.part, id_)
        return told

    def _free(self, id_: str) -> str:
        if id_ not in self._used and not _MARK.search(id_):  # what looks like a mark gets one, which is taken off again
            return id_
        return next(marked for number in count(2) if (marked := f"{id_}_again{number}") not in self._used)


def without_marks(request: Request) -> Request:
    """The request with the ids that its model wrote. The one that is given is not changed."""
    items = request.items
    if _WITH_IDS.isdisjoint(map(type, items)):
        return request
    told = [item.id for item in items if type(item) is ToolCall or type(item) is ToolResult]
    if not any(id_ and _written(id_) != id_ for id_ in told):
        return request
    whole = copy(request)
    whole.conversation = Conversation(items=[_unmarked(item) for item in items], tools=request.tools)
    return whole


def _written(id_: str) -> str:
    return _MARK.sub("", original_id(id_))


def _unmarked(item: Item) -> Item:
    if (type(item) is ToolCall or type(item) is ToolResult) and item.id and _written(item.id) != item.id:
        plain = copy(item)
        plain.id = _written(item.id)
        return plain
    return item
