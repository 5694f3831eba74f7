"""Owns the messages that a chat template is given: as transformers passes them, with marks in place of contents."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from typing import Any

from msgspec import Struct

from turnscript.conversation import Assistant, Item, System, Thinking, ToolCall, ToolResult, ToolsChange, User
from turnscript.engine.template.marks import holds_marks, mark
from turnscript.engine.template.tools import NO_FUNCTIONS, Functions
from turnscript.losses import Loss
from turnscript.readable import readable
from turnscript.sources import message_path

Message = dict[str, Any]

_MODEL = (Thinking, Assistant, ToolCall)
_SPACE_RUNS = re.compile(r"([ \t\r\n]*[\t\r\n][ \t\r\n]*)")


class Manner(Struct, frozen=True):
    """How a template wants its messages, where templates differ.

    `names`: it does not look into those of called tools. `rewritten`: white space inside a content that it writes in
    another way. `signs`: characters that it looks for in arguments, and writes
    something around those that have one. `arguments`: those of calls are `objects`, as transformers has them, or the
    `text` of JSON. `lists`: it takes a content of several texts as parts. `null`: a message of calls alone may have no
    content; else it is the empty text.
    """

    names: bool = True
    rewritten: tuple[str, ...] = ()
    signs: str = ""
    arguments: str = "objects"
    lists: bool = True
    null: bool = True


class Marked:
    """Messages with marks, and what they stand for.

    `texts` are the contents by the number of their mark, `owners` the positions of their items. `spans` has for each
    message the positions of its first item and behind its last one. `tools`: the template is shown some.
    """

    __slots__ = ("_guards", "losses", "manner", "messages", "owners", "paths", "spans", "texts", "tools")

    def __init__(self, manner: Manner, functions: Functions, guards: Callable[[str], bool]) -> None:
        self.manner = manner
        self._guards = guards  # tells whether a text holds a control string
        self.messages: list[Message] = []
        self.texts: list[str] = list(functions.texts)
        self.owners: list[int] = [-1] * len(functions.texts)
        self.paths: dict[int, str] = {}  # of items, for people
        self.spans: list[tuple[int, int]] = []
        self.losses: list[Loss] = []
        self.tools = functions.shown is not None

    def content(self, text: str, owner: int, signs: str = "") -> str:
        """Return what the template is given for a content: its mark, between the white space around the content.

        White space stays, because templates trim it; a content without anything else is given as it is. `signs`:
        characters that the template looks for, which the mark has where the content does.
        """
        core = text.strip()
        if not core:
            return text
        parts = [core]
        if any(space in core for space in self.manner.rewritten):
            parts = _SPACE_RUNS.split(core)  # which the template shall see, since it writes it in another way
        shown = "".join([sign for sign in signs if sign in core]) if signs else ""
        written = "".join([one if not one or one.isspace() else self._mark(one, owner, shown) for one in parts])
        if len(core) == len(text):
            return written
        start = text.index(core)
        return f"{text[:start]}{written}{text[start + len(core) :]}"

    def _mark(self, text: str, owner: int, signs: str) -> str:
        self.texts.append(text)
        self.owners.append(owner)
        return mark(len(self.texts) - 1, signs)

    def name(self, text: str, owner: int) -> str:
        """Return a name as it is, so that a template may look into it; its mark where it holds a control string."""
        return self.content(text, owner) if self._guards(text) or holds_marks(text) else text

    def value(self, value: Any, owner: int) -> Any:
        """Return a value of JSON with marks in place of its strings."""
        if isinstance(value, str):
            return self.content(value, owner, self.manner.signs)
        if isinstance(value, dict):
            return {self.name(key, owner): self.value(one, owner) for key, one in value.items()}
        if isinstance(value, list):
            return [self.value(one, owner) for one in value]
        return value

    def add(self, items: Sequence[Item], start: int) -> None:
        """Add the messages of items, the first of which has the position `start`."""
        at, end = 0, len(items)
        while at < end:
            item, first = items[at], at
            at += 1
            if isinstance(item, _MODEL):
                while at < end and _joins(items[at - 1], items[at]):
                    at += 1
                self._answer(items[first:at], start + first)
            elif isinstance(item, System | User | ToolResult):
                self._said(item, start + first)
            else:
                self._left_out(item, start + first)
                continue
            self.spans.append((start + first, start + at))
            self.paths[start + first] = item.at

    def copied(self) -> Marked:
        """Return the same with messages of its own, which may be changed."""
        other = Marked(self.manner, NO_FUNCTIONS, self._guards)
        other.messages, other.spans = [dict(message) for message in self.messages], list(self.spans)
        other.tools = self.tools
        other.texts, other.owners, other.paths = self.texts, self.owners, self.paths
        return other

    def path(self, at: int) -> str:
        """Return the place of a message in the source, or that of its first item."""
        first = self.spans[at][0]
        return message_path(self.paths[first]) or f"items[{first}]"

    def _said(self, item: System | User | ToolResult, position: int) -> None:
        message: Message = {"role": "tool", "content": self._content(item, position)}
        if not isinstance(item, ToolResult):
            message["role"] = item.role if isinstance(item, System) else "user"
        elif item.id is not None:
            message["tool_call_id"] = self.name(item.id, position)
        if item.name is not None and (not isinstance(item, ToolResult) or _is_named(item)):
            message["name"] = self.name(item.name, position)
        self.messages.append(message)

    def _content(self, item: Any, position: int) -> Any:
        content = item.content
        if len(content) == 1 and (text := readable(content[0])) is not None:
            return self.content(text, position)
        texts = []
        for index, part in enumerate(content):
            text = readable(part)
            if text is None:
                detail = f"a part of the kind {type(part).__name__.lower()} has no place in a text"
                self.losses.append(Loss(f"{_place(item, position)}.content[{index}]", "dropped", detail))
            else:
                texts.append(text)
        if len(texts) > 1 and self.manner.lists:
            return [{"type": "text", "text": self.content(text, position)} for text in texts]
        if len(texts) > 1:
            self.losses.append(Loss(_place(item, position), "approximated", "several texts became one, a line each"))
        return self.content("\n".join(texts), position)

    def _answer(self, items: Sequence[Item], start: int) -> None:
        """Add the message of the assistant that items of the model make: thoughts, then a text, then calls."""
        message: Message = {"role": "assistant"}
        thoughts = [self._content(item, start + at) for at, item in enumerate(items) if isinstance(item, Thinking)]
        thoughts = [thought if isinstance(thought, str) else _joined(thought) for thought in thoughts]
        if any(thoughts):
            # transformers gives it both names, whichever the caller used.
            message["thinking"] = message["reasoning_content"] = "\n".join(thoughts)
        texts = [self._content(item, start + at) for at, item in enumerate(items) if isinstance(item, Assistant)]
        called = [(item, start + at) for at, item in enumerate(items) if isinstance(item, ToolCall)]
        if texts:
            message["content"] = texts[0]
        elif not called or not self.manner.null:
            message["content"] = ""
        elif items[0].hints is None or items[0].hints.shape != "absent":
            message["content"] = None
        if called:
            message["tool_calls"] = [self._call(call, position) for call, position in called]
        self.messages.append(message)

    def _call(self, call: ToolCall, position: int) -> Message:
        function: Message = {"name": self._called(call, position), "arguments": self._arguments(call, position)}
        if call.id is None:
            return {"type": "function", "function": function}
        return {"id": self.name(call.id, position), "type": "function", "function": function}

    def _called(self, call: ToolCall, position: int) -> str:
        # A mark of its own tells the turn of a call without any text from what stands around it.
        return self.content(call.name, position) if self.manner.names else self.name(call.name, position)

    def _arguments(self, call: ToolCall, position: int) -> Any:
        if self.manner.arguments == "text":
            return self.content(call.arguments, position)
        try:
            found = json.loads(call.arguments, object_pairs_hook=_Pairs)
        except (ValueError, RecursionError):
            found = None
        if not isinstance(found, _Pairs):
            return self.content(call.arguments, position)
        if found.twice:
            path = f"{_place(call, position)}.arguments"
            self.losses.append(Loss(path, "dropped", f"the key {found.twice!r} is there twice; the last one counts"))
        return self.value(found, position)

    def _left_out(self, item: Item, position: int) -> None:
        if isinstance(item, ToolsChange):
            return  # its tools stand among the others
        self.losses.append(Loss(_place(item, position), "dropped", "a chat template has no place for it"))


class _Pairs(dict[str, Any]):
    """An object of JSON that knows a key it has twice, here or within."""

    def __init__(self, pairs: list[tuple[str, Any]]) -> None:
        super().__init__(pairs)
        inner = (value.twice for _, value in pairs if isinstance(value, _Pairs))
        known: set[str] = set()
        again = (key for key, _ in pairs if key in known or known.add(key))  # type: ignore[func-returns-value]
        self.twice: str = next(iter([*again, *filter(None, inner)]), "")


def _joined(parts: list[Message]) -> str:
    return "\n".join(part["text"] for part in parts)


def _joins(before: Item, item: Item) -> bool:
    """Return whether an item of the model stands in the message of the one before it."""
    if item.hints is not None and item.hints.turn == "new":
        return False
    if isinstance(item, Thinking):
        return isinstance(before, Thinking)
    if isinstance(item, Assistant):
        return isinstance(before, Thinking)
    return isinstance(item, ToolCall) and isinstance(before, _MODEL)


def _is_named(result: ToolResult) -> bool:
    """Return whether a result has its tool's name from its client, and not only from the call that it answers."""
    return result.id is None or "name" in result.extra or not result.at.startswith("$")


def _place(item: Item, position: int) -> str:
    return item.at or f"items[{position}]"
