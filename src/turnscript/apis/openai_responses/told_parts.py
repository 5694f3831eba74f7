"""Owns one item of an answer while its stream is read: what its pieces have told of it, and what they leave out."""

from __future__ import annotations

from typing import Any

import msgspec

from turnscript.apis.openai_responses.client_tools import name_of
from turnscript.apis.openai_responses.output import content_text
from turnscript.core.conversation import Assistant, Item, Part, Refusal, Text, Thinking, ToolCall
from turnscript.core.events import Event, NextText, PartDelta, PartEnd
from turnscript.core.json_text import Json


class ToldPart:
    """An item that is being told. `final`: the event that ends it, once it is known.

    `pieces`: the text that goes on, and `at` which content part of a message it is, if the server counts them. `over`:
    the texts before it, and `ends` of how many of them an event has said that they are over.
    """

    __slots__ = ("announced", "arguments", "at", "ends", "final", "index", "item", "over", "pieces", "refuses")

    def __init__(self, index: int, item: Item) -> None:
        self.index = index
        self.item = item
        self.announced = False
        self.at: object = None
        self.over: list[Part] = []
        self.ends = 0
        self.pieces: list[str] = []
        self.refuses = False
        self.arguments: str | None = None
        self.final: PartEnd | None = None

    @property
    def has_told(self) -> bool:
        """Whether there was any piece."""
        return bool(self.pieces or self.over)

    def move(self, at: object) -> None:
        """What comes is of the content part at this index: the text of one before it is over."""
        before = self.at
        if type(at) is not int or (isinstance(before, int) and at <= before):
            return
        self.at = at
        if before is not None and isinstance(self.item, Assistant):
            self.over.append(self._text())
            self.pieces = []

    def next_texts(self, refuses: bool) -> list[Event]:
        """The ends of texts that were not said yet: they wait for a piece behind them, as some servers tell none.
        `refuses`: whether that piece is of a refusal."""
        kinds = [*(isinstance(text, Refusal) for text in self.over[self.ends + 1 :]), refuses]
        events: list[Event] = [NextText(self.index, "", refuses=kind) for kind in kinds[: len(self.over) - self.ends]]
        self.ends = len(self.over)
        return events

    def content(self) -> list[Part]:
        """The texts of a message or thought, as far as they were told."""
        return [*self.over, self._text()]

    def rest(self, item: Item) -> list[Event] | None:
        """What the pieces left out of the item, which is whole now; None where they said something else."""
        whole = _texts(item)
        told = content_text(Assistant(content=self.content()))
        if not "".join(whole).startswith(told):
            return None
        events: list[Event] = []
        missing = -len(told)  # where a text begins, seen from the end of what was told
        for number, (text, refuses) in enumerate(zip(whole, _refusals(item), strict=True)):
            if number > self.ends and missing >= 0:
                events.append(NextText(self.index, "", refuses=refuses))
            left = text[max(-missing, 0) :]
            if left:
                events.append(PartDelta(self.index, left))
            missing += len(text)
        return events

    def end(self, final: PartEnd) -> None:
        """It is whole: what was told is not needed any more."""
        self.final = final
        self.over, self.pieces = [], []

    def _text(self) -> Part:
        text = "".join(self.pieces)
        return Refusal(text=text) if self.refuses else Text(text=text)


def announced_call(value: Json, index: int) -> Item:
    """The announcement of a call that is known not to be told already."""
    members: Any = msgspec.json.decode(value)
    custom = members["type"] == "custom_tool_call"
    name, id_ = members.get("name", name_of(members["type"])), members.get("call_id") or None
    return ToolCall(name=name, arguments="", id=id_, custom=custom, at=f"$.output[{index}]")


def names_of(item: Item) -> tuple[object, ...]:
    """What identifies an item while it is told."""
    if isinstance(item, ToolCall):
        return (ToolCall, item.id, item.name)
    return (type(item), getattr(item, "id", None) if isinstance(item, Assistant | Thinking) else None)


def namespace_of(item: Item) -> str | None:
    """Where the tool of a call has its name."""
    return item.namespace if isinstance(item, ToolCall) else None


def refuses(item: Assistant) -> bool:
    """Whether a message begins with a refusal."""
    return bool(item.content) and isinstance(item.content[0], Refusal)


def _refusals(item: Item) -> list[bool]:
    """Of each of these texts, whether it is a refusal."""
    if not isinstance(item, Assistant):
        return [False]
    return [isinstance(part, Refusal) for part in item.content if isinstance(part, Text | Refusal)]


def _texts(item: Item) -> list[str]:
    """The texts of a message; all that the deltas of another item add up to is one."""
    if not isinstance(item, Assistant):
        return [content_text(item)]
    return [part.text for part in item.content if isinstance(part, Text | Refusal)]
