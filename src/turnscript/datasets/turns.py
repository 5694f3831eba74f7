"""Owns building a conversation turn by turn, for forms that are no API's: what is said, called and answered.

An answer of a tool has no id in these forms: it belongs to the first call that waits, of its name if it has one.
"""

from __future__ import annotations

from functools import cached_property

from turnscript.core.conversation import (
    Assistant,
    Conversation,
    Item,
    Request,
    System,
    Text,
    Thinking,
    Tool,
    ToolCall,
    ToolResult,
    User,
)
from turnscript.core.json_text import Json, excerpt
from turnscript.datasets.form import Example
from turnscript.datasets.members import arguments_of, first_byte, is_null, list_of, object_of, text
from turnscript.datasets.problems import BadRow, Code
from turnscript.datasets.row_checks import Unanswered, check_items
from turnscript.datasets.tagged_thoughts import split_thought
from turnscript.datasets.weights import over_turns

_CALL_MEMBERS = frozenset({"name", "arguments", "parameters", "id", "type", "function"})


class Turns:
    """The items so far, their weights, and how many of them, from the first on, are context."""

    def __init__(self) -> None:
        self.items: list[Item] = []
        self.weights: dict[int, float] = {}
        self.context = 0

    @cached_property
    def _waiting(self) -> Unanswered:
        # Made when somebody calls: few rows have calls.
        return Unanswered()

    def system(self, said: str, at: str) -> None:
        """Add instructions."""
        self.items.append(System(content=[Text(text=said)], at=at))

    def user(self, said: str, at: str) -> None:
        """Add what the user says."""
        self.items.append(User(content=[Text(text=said)], at=at))

    def assistant(self, said: str, at: str) -> None:
        """Add what the model says, behind a thought if the text begins with one."""
        thought, said = split_thought(said, at)
        if thought is not None:
            self.thinking(thought, at)
        if said or thought is None:
            self.items.append(Assistant(content=[Text(text=said)], at=at))

    def history(self, value: Json, at: str) -> None:
        """Add earlier exchanges: pairs of what the user said and what was answered."""
        for index, entry in enumerate(list_of(value, at)):
            where = f"{at}[{index}]"
            pair = list_of(entry, where)
            if len(pair) != 2:
                raise BadRow(Code.SHAPE, f"expected the user's text and the answer, got {len(pair)} values", path=where)
            self.user(text(pair[0], f"{where}[0]"), f"{where}[0]")
            self.assistant(text(pair[1], f"{where}[1]"), f"{where}[1]")

    def thinking(self, said: str, at: str) -> None:
        """Add what the model thinks."""
        self.items.append(Thinking(content=[Text(text=said)], at=at))

    def call(self, value: Json, at: str) -> None:
        """Add a call: `{"name": ..., "arguments": {...}}`."""
        call = call_of(value, at)
        self.items.append(call)
        self._waiting.add(call)

    def calls(self, value: Json, at: str) -> None:
        """Add a call, or an array of them."""
        if first_byte(value) != b"[":
            self.call(value, at)
            return
        entries = list_of(value, at)
        if not entries:
            raise BadRow(Code.SHAPE, "there is no call in it", path=at)
        for index, entry in enumerate(entries):
            self.call(entry, f"{at}[{index}]")

    def result(self, said: str, at: str, name: str | None = None) -> None:
        """Add what a tool answers."""
        call = self._waiting.take(name)
        if call is None:
            raise BadRow(Code.CALL, "the result answers no call that waits for one", path=at)
        self.items.append(ToolResult(content=[Text(text=said)], id=call.id, name=call.name, at=at))

    def weigh(self, first: int, weight: float | None) -> None:
        """Set what the items from a position on count."""
        if weight is not None:
            for index in range(first, len(self.items)):
                self.weights[index] = weight

    def example(self, tools: list[Tool] | None = None, label: str = "", weight: float | None = None) -> Example:
        """Return all of it, checked. `weight`: a mark of the row."""
        check_items(self.items)
        self.weights = over_turns(self.weights, self.items, weight)
        request = Request(conversation=Conversation(items=self.items, tools=tools or []))
        context = frozenset(range(self.context))
        return Example(request, weights=self.weights, label=label, context=context)


def call_of(value: Json, at: str) -> ToolCall:
    """Return a call of a data set: name and arguments in one object, maybe inside an object `function`."""
    members = object_of(value, at)
    outer = members
    if "function" in members and first_byte(members["function"]) == b"{":
        members = object_of(members["function"], f"{at}.function")
    unknown = sorted((outer.keys() | members.keys()) - _CALL_MEMBERS)
    if unknown:
        raise BadRow(Code.SHAPE, f"a call has no member {unknown[0]!r}", path=f"{at}.{unknown[0]}")
    name = members.get("name")
    if name is None or first_byte(name) != b'"':
        raise BadRow(Code.CALL, "the call has no name", path=f"{at}.name")
    given = members.get("arguments", members.get("parameters"))
    id_ = outer.get("id")
    return ToolCall(
        name=text(name, f"{at}.name"),
        arguments=_arguments(given, f"{at}.arguments"),
        id=None if id_ is None or is_null(id_) else text(id_, f"{at}.id"),
        at=at,
    )


def _arguments(value: Json | None, at: str) -> str:
    if value is None or is_null(value):
        return "{}"
    if first_byte(value) == b'"':
        return text(value, at)
    if first_byte(value) == b"{":
        return arguments_of(value)
    raise BadRow(Code.ARGS, f"the arguments of a call must be a JSON object, got {excerpt(value)}", path=at)
