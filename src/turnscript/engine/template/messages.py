"""Owns the messages that a chat template is given: as transformers passes them, with marks in place of contents."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from typing import Any

from msgspec import Struct

from turnscript.core.conversation import (
    Assistant,
    Item,
    System,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
    ToolsChange,
    User,
    readable,
    shown,
    unseen,
)
from turnscript.core.losses import Loss
from turnscript.core.source_paths import message_path
from turnscript.engine.template.marks import Protected, holds_marks, mark, marks
from turnscript.engine.template.tools import NO_FUNCTIONS, Functions

Message = dict[str, Any]

_MODEL = frozenset[type[Item]]({Thinking, Assistant, ToolCall})
_SPOKEN = frozenset[type[Item]]({System, User, ToolResult})
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

    __slots__ = (
        "_guards",
        "_harmless",
        "_items",
        "_rewritten",
        "losses",
        "manner",
        "messages",
        "owners",
        "spans",
        "texts",
        "tools",
    )

    def __init__(self, manner: Manner, functions: Functions, guards: Callable[[str], bool]) -> None:
        self.manner = manner
        self._rewritten = manner.rewritten
        self._guards = guards  # tells whether a text holds a control string
        self.messages: list[Message] = []
        self.texts: list[str] = list(functions.texts)
        self.owners: list[int] = [-1] * len(functions.texts)
        self._items: Sequence[Item] = ()
        self._harmless: set[str] = set()
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
        if signs or self._rewritten:
            written = self._seen(core, owner, signs)
        else:
            texts = self.texts
            written = marks(len(texts))
            texts.append(core)
            self.owners.append(owner)
        if len(core) == len(text):
            return written
        start = len(text) - len(text.lstrip())
        return f"{text[:start]}{written}{text[start + len(core) :]}"

    def _seen(self, core: str, owner: int, signs: str) -> str:
        """Return the marks of a content that the template looks into, with the white space that it rewrites between."""
        parts = [core]
        if any(space in core for space in self._rewritten):
            parts = _SPACE_RUNS.split(core)
        shown = "".join([sign for sign in signs if sign in core])
        written = []
        for part in parts:
            if not part or part.isspace():
                written.append(part)
                continue
            written.append(mark(len(self.texts), shown))
            self.texts.append(part)
            self.owners.append(owner)
        return "".join(written)

    def written(self, text: Protected, owner: int) -> str:
        """Return the mark of a text of ours."""
        self.texts.append(text)
        self.owners.append(owner)
        return marks(len(self.texts) - 1)

    def name(self, text: str, owner: int) -> str:
        """Return a name as it is, so that a template may look into it; its mark where it holds a control string."""
        if text in self._harmless:  # keys recur, and an id stands in a call and in its result
            return text
        if self._guards(text) or holds_marks(text):
            return self.content(text, owner)
        self._harmless.add(text)
        return text

    def value(self, value: Any, owner: int) -> Any:
        """Return a value of JSON with marks in place of its strings."""
        if isinstance(value, str):
            return self.content(value, owner, self.manner.signs)
        if isinstance(value, dict):
            return {self.name(key, owner): self.value(one, owner) for key, one in value.items()}
        if isinstance(value, list):
            return [self.value(one, owner) for one in value]
        return value

    def add(self, items: Sequence[Item]) -> None:
        """Add the messages of items."""
        self._items = items
        at, end, spans = 0, len(items), self.spans
        while at < end:
            item, first = items[at], at
            kind = type(item)
            at += 1
            if kind in _MODEL:
                while at < end and _joins(items[at - 1], items[at]):
                    at += 1
                self._answer(items[first:at], first)
            elif kind in _SPOKEN:
                self._said(item, first)
            else:
                self._left_out(item, first)
                continue
            spans.append((first, at))

    def copied(self) -> Marked:
        """Return the same with messages of its own, which may be changed."""
        other = Marked(self.manner, NO_FUNCTIONS, self._guards)
        other.messages, other.spans = [dict(message) for message in self.messages], list(self.spans)
        other.tools = self.tools
        other.texts, other.owners, other._items = self.texts, self.owners, self._items
        return other

    def path(self, at: int) -> str:
        """Return the place of a message in the source, or that of its first item."""
        first = self.spans[at][0]
        return message_path(self._items[first].at) or f"items[{first}]"

    def _said(self, item: Any, position: int) -> None:
        kind = type(item)
        message: Message = {"role": "tool" if kind is ToolResult else "user" if kind is User else item.role}
        message["content"] = self._content(item, position)
        if kind is ToolResult and item.id is not None:
            message["tool_call_id"] = self.name(item.id, position)
        if item.name is not None and (kind is not ToolResult or _is_named(item)):
            message["name"] = self.name(item.name, position)
        self.messages.append(message)

    def _content(self, item: Any, position: int) -> Any:
        content = item.content
        if len(content) == 1:
            part = content[0]
            text = part.text if type(part) is Text else readable(part)
            if text is not None:
                return self.content(text, position)
        texts = []
        for index, part in enumerate(content):
            text = shown(part)
            if readable(part) is None:
                detail = f"a part of the kind {type(part).__name__.lower()} has no place in a text"
                detail = detail if text is None else unseen(part)
                self.losses.append(Loss(f"{_place(item, position)}.content[{index}]", "dropped", detail))
            if text is not None:
                texts.append(text)
        if len(texts) > 1 and self.manner.lists:
            return [{"type": "text", "text": self.content(text, position)} for text in texts]
        if len(texts) > 1:
            self.losses.append(Loss(_place(item, position), "approximated", "several texts became one, a line each"))
        return self.content("\n".join(texts), position)

    def _answer(self, items: Sequence[Item], start: int) -> None:
        """Add the message of the assistant that items of the model make: thoughts, then a text, then calls."""
        message: Message = {"role": "assistant"}
        thoughts: list[str] = []
        calls: list[Message] = []
        for position, item in enumerate(items, start):
            kind = type(item)
            if kind is Assistant:
                message["content"] = self._content(item, position)
            elif kind is ToolCall:
                calls.append(self._call(item, position))  # type: ignore[arg-type]
            else:
                thought = self._content(item, position)
                thoughts.append(thought if isinstance(thought, str) else _joined(thought))
        if any(thoughts):
            # transformers gives it both names, whichever the caller used.
            message["thinking"] = message["reasoning_content"] = "\n".join(thoughts)
        if "content" not in message:
            message["content"] = None if calls and self.manner.null else ""
        if calls:
            message["tool_calls"] = calls
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
            found = _decoded(call.arguments)
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

    __slots__ = ("twice",)

    def __init__(self, pairs: list[tuple[str, Any]]) -> None:
        super().__init__(pairs)
        self.twice = ""
        if len(self) < len(pairs):
            known: set[str] = set()
            for key, _ in pairs:
                if key in known:
                    self.twice = key
                    break
                known.add(key)
        else:
            for _, value in pairs:
                if type(value) is _Pairs and value.twice:
                    self.twice = value.twice
                    break


_decoded = json.JSONDecoder(object_pairs_hook=_Pairs).decode


def _joined(parts: list[Message]) -> str:
    return "\n".join(part["text"] for part in parts)


def _joins(before: Item, item: Item) -> bool:
    """Return whether an item of the model stands in the message of the one before it."""
    kind = type(item)
    if kind not in _MODEL or item.turn == "new":
        return False
    return kind is ToolCall or type(before) is Thinking


def _is_named(result: ToolResult) -> bool:
    """Return whether a result has its tool's name from its client, and not only from the call that it answers."""
    return result.id is None or "name" in result.extra or not result.at.startswith("$")


def _place(item: Item, position: int) -> str:
    return item.at or f"items[{position}]"
