"""Owns the way back: a call of a tool under the name and in the form that its client declared, whole or in pieces.

A model is offered `fs__read` for the tool `read` of the namespace `fs`, and writes `{"input": "..."}` for a tool that
takes free text. A `Restorer` undoes both in the events of an answer. Free text is told as it comes: the JSON string is
unescaped piece by piece. A whole answer goes the same way, so the two cannot differ.

Each call whose model wrote no id gets one, and another each whose id was there before. A client tells by the id which
call a result answers, so no two calls of a conversation may share one. A model does not know that: it may begin each
turn with `call_001`. Such an id gets a mark behind it on its way to the client, which is taken off when it comes back,
from the call and from its result: so the prompt holds what the model wrote. For the same reason an id that an API had
to spell with other characters is read back.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping
from copy import copy
from itertools import count
from secrets import token_hex

from msgspec import Struct

from turnscript.core.call_pairing import original_id
from turnscript.core.conversation import Conversation, Item, Request, Response, ToolCall, ToolResult, calls
from turnscript.core.events import Event, PartDelta, PartEnd, PartStart
from turnscript.core.losses import Loss

INPUT = "input"
"""The argument that stands for free text."""

_BEGIN = re.compile(r'[ \t\r\n]*\{[ \t\r\n]*"input"[ \t\r\n]*:[ \t\r\n]*"')
_LONGEST_BEGIN = 256
_PLAIN = re.compile(r'[^"\\]*')
_HIGH = re.compile(r"\\u[dD][89abAB][0-9a-fA-F]{2}")
_ESCAPES = {'"': '"', "\\": "\\", "/": "/", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t"}
_BROKEN = "\N{REPLACEMENT CHARACTER}"


class Origin(Struct, frozen=True):
    """What the client calls a tool. `shim`: it takes free text, and the model was offered a function."""

    name: str
    namespace: str | None = None
    shim: bool = False


class Unwrapper:
    """Takes free text out of `{"input": "..."}`. Where the arguments are something else, all of them are the text.

    The first member counts, whatever follows it. A half of a surrogate pair, which no UTF-8 can hold, becomes U+FFFD.
    """

    def __init__(self) -> None:
        self._held = ""
        self._inside = False
        self._over = False
        self.odd = False

    def feed(self, text: str) -> str:
        """More of the arguments; returns the free text that is certain now."""
        if self._over:
            return ""
        self._held += text
        if not self._inside:
            begin = _BEGIN.match(self._held)
            if begin is None or self.odd:
                self.odd = self.odd or len(self._held) > _LONGEST_BEGIN
                return ""
            self._inside, self._held = True, self._held[begin.end() :]
        return self._read()

    def close(self) -> str:
        """The arguments are over; returns the rest."""
        if self._over:
            return ""
        self._over = True
        if self._inside:
            return ""  # a string without its end, of which nothing more can be said
        held, self._held = self._held, ""
        text = _only_string(held)
        self.odd = True
        return held if text is None else text

    def _read(self) -> str:
        out: list[str] = []
        text, position = self._held, 0
        while True:
            plain = _PLAIN.match(text, position)
            assert plain is not None
            out.append(plain[0])
            position = plain.end()
            if position == len(text):
                break
            if text[position] == '"':
                self._over, position = True, len(text)
                break
            said, after = _unescaped(text, position)
            if after < 0:
                break
            out.append(said)
            position = after
        self._held = text[position:]
        return "".join(out)


def _unescaped(text: str, position: int) -> tuple[str, int]:
    """The character of an escape and where it ends; -1 if more of it must come."""
    word = text[position + 1 : position + 2]
    if word != "u":
        return _ESCAPES.get(word, word), position + 2 if word else -1
    if len(text) < position + 6:
        return "", -1
    code = _code(text[position + 2 : position + 6])
    if _HIGH.match(text, position):
        rest = text[position + 6 : position + 12]
        if len(rest) < 6 and "\\u".startswith(rest[:2]):
            return "", -1
        low = _code(rest[2:]) if rest.startswith("\\u") else -1
        if 0xDC00 <= low < 0xE000:
            return chr(0x10000 + ((code - 0xD800) << 10) + low - 0xDC00), position + 12
    return _BROKEN if code < 0 or 0xD800 <= code < 0xE000 else chr(code), position + 6


def _code(digits: str) -> int:
    try:
        return int(digits, 16)
    except ValueError:
        return -1


def _only_string(arguments: str) -> str | None:
    """The value of `input`, or of the only member, where that is a string."""
    try:
        value = json.loads(arguments)
    except (ValueError, RecursionError):
        return None
    if not isinstance(value, dict):
        return None
    text = value.get(INPUT) if INPUT in value else next(iter(value.values())) if len(value) == 1 else None
    return text.encode("utf-8", "replace").decode() if isinstance(text, str) else None


def unwrapped(arguments: str) -> tuple[str, bool]:
    """The free text of a call's arguments, and whether they were anything but `{"input": "..."}`."""
    unwrapper = Unwrapper()
    text = unwrapper.feed(arguments) + unwrapper.close()
    return text, unwrapper.odd


class Restorer:
    """Gives calls the names and forms that their client knows. `losses`: free text that was no free text."""

    def __init__(self, origins: Mapping[str, Origin]) -> None:
        self.losses: list[Loss] = []
        self._origins = origins
        self._open: dict[int, tuple[Unwrapper, list[str]]] = {}

    def feed(self, events: Iterable[Event]) -> list[Event]:
        """More events, as the client knows them."""
        if not self._origins:
            return list(events)
        out: list[Event] = []
        for event in events:
            if type(event) is PartStart:
                out.append(self._start(event))
            elif type(event) is PartEnd:
                self._end(event, out)
            elif isinstance(event, PartDelta) and event.index in self._open:
                unwrapper, told = self._open[event.index]
                told.append(unwrapper.feed(event.text))
                out.append(PartDelta(event.index, told[-1], event.raw))
            else:
                out.append(event)
        return out

    def _start(self, event: PartStart) -> PartStart:
        call = event.part
        origin = self._origin(call)
        if origin is None or type(call) is not ToolCall:
            return event
        if origin.shim:
            self._open[event.index] = (Unwrapper(), [])
        return PartStart(event.index, _named(call, origin), event.raw, event.origin)

    def _end(self, event: PartEnd, out: list[Event]) -> None:
        _, told = self._open.pop(event.index, (None, None))
        part = self._restored(event.part)
        if told is not None and type(part) is ToolCall:
            rest = part.arguments.removeprefix("".join(told))
            if rest:
                out.append(PartDelta(event.index, rest))
        out.append(PartEnd(event.index, part, event.raw, event.origin))

    def _origin(self, part: Item | None) -> Origin | None:
        if type(part) is not ToolCall or part.namespace is not None:
            return None
        return self._origins.get(part.name)

    def _restored(self, part: Item | None) -> Item | None:
        origin = self._origin(part)
        if origin is None or type(part) is not ToolCall:
            return part
        named = _named(part, origin)
        if origin.shim:
            named.arguments = self._free(part)
        return named

    def _free(self, call: ToolCall) -> str:
        text, odd = unwrapped(call.arguments)
        if odd:
            detail = f"{call.name!r} takes free text, and the model wrote something else: it is passed on as it is"
            self.losses.append(Loss("arguments", "approximated", detail))
        return text

    def response(self, response: Response) -> Response:
        """A whole answer, as the client knows it."""
        whole = copy(response)
        whole.items = [one for item in response.items if (one := self._restored(item)) is not None]
        return whole


def _named(call: ToolCall, origin: Origin) -> ToolCall:
    part = copy(call)
    part.name, part.namespace = origin.name, origin.namespace
    part.custom = origin.shim or call.custom
    return part


__all__ = ["INPUT", "Origin", "Restorer", "Unwrapper", "unwrapped"]


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
        told.part = _with_id(event.part, id_)
        return told


def _with_id(call: ToolCall, id_: str) -> Item:
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
        told.part = _with_id(event.part, id_)
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
