"""Owns how near prompts are to a model's own chat template: probes are written by both, and compared."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import datetime
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from turnscript.core.conversation import (
    Assistant,
    Conversation,
    Item,
    Part,
    Request,
    System,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
    User,
)
from turnscript.core.errors import TurnscriptError
from turnscript.detection.probes import DEFINITIONS, LATER, PROBES, SYSTEM, TOOLS, Call, Manner, Message, Probe
from turnscript.formats.format import Format

_NEXT: Message = {"role": "user", "content": LATER}
_RULES: Message = {"role": "system", "content": SYSTEM}
_AROUND = 24
"""Characters around a difference that are shown."""


class Nearness(Struct, frozen=True):
    """How many prompts of `asked` are `equal` to what the template makes of the same messages; a sentence each of
    those that are not."""

    equal: int = 0
    asked: int = 0
    differences: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"prompts equal the model's own template: {self.equal} of {self.asked} probes"


class Example(Struct, frozen=True):
    """A conversation that is written twice: as `messages` and `tools` for a template, and as a `request`."""

    shows: str
    messages: list[dict[str, Any]]
    tools: list[dict[str, Any]] | None
    request: Request


def nearness(format_: Format) -> Nearness:
    """Return how near the prompts of a format are to its template. Without one there is nothing to compare."""
    template = format_.template
    if template is None:
        return Nearness()
    format_ = replace(format_, words=False)  # tools in our words are told by themselves
    now, equal, asked, differences = datetime.now(), 0, 0, list[str]()
    for example in examples():
        try:
            expected = template.run(example.messages, example.tools, generation=True, now=now)
        except TurnscriptError:
            continue
        asked += 1
        found = _found(format_, example.request, now)
        if found == expected:
            equal += 1
        else:
            differences.append(f"{example.shows}: {difference(expected, found)}")
    return Nearness(equal, asked, tuple(differences))


def _found(format_: Format, request: Request, now: datetime) -> str:
    try:
        return format_.prompt(request, now=now).text
    except TurnscriptError as error:
        return f"({error})"


def difference(expected: str, found: str) -> str:
    """Return where two prompts part, in one sentence."""
    at = next((at for at, (one, other) in enumerate(zip(expected, found, strict=False)) if one != other), None)
    at = min(len(expected), len(found)) if at is None else at
    pair = (expected[at : at + _AROUND], found[at : at + _AROUND])
    return f"at character {at} the template writes {pair[0]!r}, and not {pair[1]!r}"


def examples() -> list[Example]:
    """Return the probes, each with a question behind its answer, and the first ones also behind instructions."""
    found = [_example(probe.shows, (*_said(probe), _NEXT), probe.tools) for probe in PROBES]
    ruled = [
        _example(f"{probe.shows}, with instructions", (_RULES, *_said(probe), _NEXT), probe.tools)
        for probe in PROBES[:3]
    ]
    return [*found, *ruled]


def _said(probe: Probe) -> Sequence[Message]:
    answer: dict[str, Any] = {"role": "assistant", "content": probe.text, "calls": probe.calls}
    return (*probe.before, answer | ({"reasoning_content": probe.thought} if probe.thought else {}))


def _example(shows: str, said: Sequence[Message], tools: bool) -> Example:
    items = [item for message in said for item in _items(message)]
    request = Request(conversation=Conversation(items, list(TOOLS) if tools else []))
    *before, last = said
    probe = Probe(shows, before=tuple(before))
    messages = [*probe.messages(Manner())[:-1], dict(last)]
    return Example(shows, messages, list(DEFINITIONS) if tools else None, request)


def _items(message: Message) -> list[Item]:
    content: list[Part] = [Text(text=message["content"])]
    if message["role"] == "system":
        return [System(content=content)]
    if message["role"] == "user":
        return [User(content=content)]
    if message["role"] == "tool":
        return [ToolResult(content=content, id=message["tool_call_id"], name=message["name"])]
    items: list[Item] = []
    if message.get("reasoning_content"):
        items.append(Thinking(content=[Text(text=message["reasoning_content"])]))
    if message["content"]:
        items.append(Assistant(content=content))
    calls: Sequence[Call] = message.get("calls", ())
    return [
        *items,
        *(ToolCall(name=one.name, arguments=json.dumps(one.arguments, ensure_ascii=False), id=one.id) for one in calls),
    ]
