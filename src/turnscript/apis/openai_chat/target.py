"""Owns what every writer of messages needs to know of the request it writes, and what they all do with an item."""

from __future__ import annotations

from turnscript.apis.api import SEED, Body, Rendering
from turnscript.apis.openai_chat.content import BREAKPOINT, EMPTY_SHAPES, contents, written_parts
from turnscript.core.call_pairing import call_ids, told
from turnscript.core.conversation import (
    Assistant,
    Item,
    Part,
    System,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
    ToolsChange,
    User,
)
from turnscript.core.source_paths import message_path, part_path

WITHOUT_ID = frozenset({"function_call", "function", "tool_calls", "tool"})
"""The slots of calls and results that say no id."""


class Target:
    """One request on its way to messages.

    `exact`: it is a request of this API, so everything in it has a place and nothing is arranged anew.
    `changes` are the changes of tools met on the way, which `write_tools` takes up. `open_calls` are the calls in the
    assistant's last message, by id; `calls` are those before.
    """

    __slots__ = ("_answered", "_ids", "calls", "changes", "exact", "open_calls", "reasoning", "rendering", "seed")

    def __init__(self, rendering: Rendering, origin: str) -> None:
        self.rendering = rendering
        self.exact = rendering.request.origin == origin
        self.seed = rendering.profile == SEED
        self.reasoning = rendering.flags["reasoning"]
        self.changes: list[ToolsChange] = []
        self.calls: dict[str, ToolCall] = {}
        self.open_calls: dict[str, ToolCall] = {}
        self._ids: dict[int, str] | None = None
        self._answered: set[str] | None = None

    def call_id(self, item: ToolCall | ToolResult) -> str:
        """The item's id, or a generated one (requirements D-X-7), which is reported."""
        if item.id is not None:
            return item.id
        made = self.made_id(item)
        detail = "" if self.exact and self.slot(item) not in WITHOUT_ID else told(self.rendering.request, item, made)
        if detail:
            self.rendering.lose(item.at, "invented", detail)
        return made

    def made_id(self, item: ToolCall | ToolResult) -> str:
        """The generated id of an item that has none."""
        if self._ids is None:
            items = self.rendering.request.items
            self._ids = {id(items[index]): found for index, found in call_ids(items).items()}
        return self._ids[id(item)]

    def is_answered(self, call: ToolCall) -> bool:
        """Whether a result in this request answers the call."""
        if self._answered is None:
            results = [item for item in self.rendering.request.items if type(item) is ToolResult]
            self._answered = {item.id if item.id is not None else self.made_id(item) for item in results}
        return (call.id if call.id is not None else self.made_id(call)) in self._answered

    def open_call(self, item: ToolCall) -> str:
        """The id of a call that is being written, for the results that answer it."""
        found = item.id if item.id is not None else self.call_id(item)
        self.open_calls[found] = item
        return found

    def slot(self, item: Item) -> str:
        """Where the item stood in this API, empty when it comes from another."""
        return item.hints.slot if item.hints is not None and self.exact else ""

    def lose(self, item: Item, member: str, detail: str) -> None:
        """Report a member of the item that no message has."""
        self.rendering.lose(f"{item.at}.{member}", "dropped", detail)

    def put_content(
        self, message: Body, item: System | User | Assistant | ToolResult, parts: list[Part], allowed: frozenset[type]
    ) -> None:
        """Write the parts in the shape that they came in, or in the usual one."""
        hints = item.hints
        if len(parts) == 1 and (hints is None or not self.exact):
            part = parts[0]
            if type(part) is Text and (not part.extra or (self.rendering.foreign and BREAKPOINT not in part.extra)):
                if part.extra:
                    self.rendering.put_extra({}, part.extra, part_path(item, 0))
                message["content"] = part.text
                return
        if not self.exact:
            message["content"] = contents(self.rendering, item, parts, allowed)
            return
        shape = hints.shape if hints is not None else ""
        if not shape:
            message["content"] = contents(self.rendering, item, parts, None)
        elif parts:
            written = written_parts(self.rendering, item, enumerate(parts), None)
            message["content"] = written
        elif shape != "absent":
            message["content"] = EMPTY_SHAPES.get(shape, "")

    def put_rest(self, message: Body, item: Item) -> None:
        """Write the unnamed members of the item and of the message around it; report that an answer is not finished."""
        if item.extra:
            self.rendering.put_extra(message, item.extra, item.at)
        self.put_envelope(message, item)
        if item.open and not self.exact and isinstance(item, Assistant):
            self.rendering.lose(item.at, "approximated", "a text to be continued is written as a finished message")

    def put_envelope(self, message: Body, item: Item) -> None:
        """Write the unnamed members of the message around the item, which stand one level above it."""
        if item.hints is not None and item.hints.envelope:
            named = isinstance(item, Thinking | ToolCall)
            self.rendering.put_envelope(message, item, message_path(item.at), named)
