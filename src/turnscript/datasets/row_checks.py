"""Owns what must hold for the items of every example, whatever its form: something is said, and calls and answers fit.

- A call has a name, and its arguments are a JSON object. Two spellings are put right: arguments that were encoded twice
  are decoded once, and arguments without any text are `{}`.
- A result answers a call that waits for one. An id may come again once its call was answered: many datasets count from
  the beginning in every turn.
- Nothing stands in the conversation that has no kind here: an item of an unknown role or type is refused, and so is a
  content part of an unknown type. Of what a provider's own tools did, the plan says what becomes.
"""

from __future__ import annotations

from collections import OrderedDict, defaultdict, deque
from collections.abc import Sequence

import msgspec

from turnscript.core.conversation import (
    Assistant,
    Item,
    Opaque,
    Raw,
    System,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
    User,
)
from turnscript.core.json_text import is_object
from turnscript.datasets.hosted_tools import is_hosted
from turnscript.datasets.problems import BadRow, Code

_decode_text = msgspec.json.Decoder(str).decode


class Unanswered:
    """Calls that wait for a result, in their order: the next one is at hand however many wait."""

    def __init__(self) -> None:
        self._calls: OrderedDict[int, ToolCall] = OrderedDict()
        self._named: defaultdict[str, deque[int]] = defaultdict(deque)
        self._count = 0

    def add(self, call: ToolCall) -> None:
        """Add one more."""
        self._calls[self._count] = call
        self._named[call.name].append(self._count)
        self._count += 1

    def take(self, name: str | None) -> ToolCall | None:
        """Return the first call of that name, or the first of all; it no longer waits. None if there is none."""
        if name is not None:
            numbers = self._named.get(name)
            return self._calls.pop(numbers.popleft()) if numbers else None
        if not self._calls:
            return None
        _, call = self._calls.popitem(last=False)
        self._named[call.name].popleft()
        return call


def check_items(items: Sequence[Item]) -> None:
    """Raise BadRow for items that no sample can be made of."""
    paired: list[ToolCall | ToolResult] = []
    says = False
    for item in items:
        kind = type(item)
        if kind is ToolCall:
            assert isinstance(item, ToolCall)
            _check_call(item)
            paired.append(item)
            says = True
        elif isinstance(item, _WITH_CONTENT):
            says = _check_content(item) or says
            if kind is ToolResult:
                paired.append(item)  # type: ignore[arg-type]
        elif isinstance(item, Opaque) and not is_hosted(item):
            raise _unknown(item)
    if not says:
        message = "nobody says anything in it" if items else "there is no message in it"
        raise BadRow(Code.EMPTY, message, path="$")
    if paired:
        _check_pairs(paired)


_WITH_CONTENT = (System, User, Assistant, Thinking, ToolResult)


def _unknown(item: Opaque) -> BadRow:
    if item.role:
        return BadRow(Code.SHAPE, f"an entry of the type {item.type!r} cannot be written here", path=item.at)
    if ".input[" in item.at or ".output[" in item.at:
        return BadRow(Code.SHAPE, f"an item of the type {item.type!r} cannot be written here", path=item.at)
    message = f"the role {item.type!r} is not known; a map file can say what it is"
    return BadRow(Code.ROLE, message, path=f"{item.at}.role")


def _check_content(item: System | User | Assistant | Thinking | ToolResult) -> bool:
    """Return whether the item says something."""
    if len(item.content) == 1 and type(item.content[0]) is Text:
        return bool(item.content[0].text)
    says = False
    for index, part in enumerate(item.content):
        if type(part) is Text:
            says = says or bool(part.text)
        elif isinstance(part, Raw):
            message = f"a content part of the type {part.type!r} is not known"
            raise BadRow(Code.SHAPE, message, path=f"{item.at}.content[{index}]")
        else:
            says = True
    if not item.content and type(item) not in (Thinking, ToolResult):
        raise BadRow(Code.SHAPE, "the message has no content", path=f"{item.at}.content")
    return says


def _check_call(call: ToolCall) -> None:
    if not call.name:
        raise BadRow(Code.CALL, "the call has no name", path=call.at)
    if call.custom:
        return
    given = call.arguments
    if not given or given.isspace():
        call.arguments = "{}"
    elif not is_object(given):
        call.arguments = _decoded_once(given, call.at)


def _decoded_once(given: str, at: str) -> str:
    inner = ""
    if given.lstrip()[:1] == '"':
        try:
            inner = _decode_text(given.strip())
        except (msgspec.DecodeError, UnicodeEncodeError):
            inner = ""
    if not is_object(inner):
        shown = given if len(given) <= 60 else f"{given[:57]}..."
        raise BadRow(Code.ARGS, f"the arguments of a call must be a JSON object, got {shown!r}", path=at)
    return inner


def _check_pairs(paired: Sequence[ToolCall | ToolResult]) -> None:
    waiting: dict[str, None] = {}
    unnamed = Unanswered()  # the calls without an id
    for item in paired:
        if isinstance(item, ToolCall):
            if item.id is None:
                unnamed.add(item)
            elif item.id in waiting:
                raise BadRow(Code.CALL, f"two calls have the id {item.id!r} before the first is answered", path=item.at)
            else:
                waiting[item.id] = None
        elif item.id in waiting:
            del waiting[item.id]
        elif item.id is None and (unnamed.take(item.name) or unnamed.take(None)):
            pass
        elif item.id is None and waiting:
            del waiting[next(iter(waiting))]
        else:
            which = f"with the id {item.id!r} " if item.id is not None else ""
            raise BadRow(Code.CALL, f"the result answers no call {which}that waits for one", path=item.at)
