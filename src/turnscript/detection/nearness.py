"""Owns how near prompts are to a model's own template: they are held against what it writes of plain messages."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from msgspec import Struct

from turnscript.conversation import (
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
from turnscript.detection.probes import DEFINITIONS, LATER, PROBES, SYSTEM, TOOLS, Manner
from turnscript.errors import TurnscriptError
from turnscript.format import Format
from turnscript.jsontext import json_of

_MANNER = Manner()
_SHOWN = 40


class Nearness(Struct, frozen=True):
    """How many of the `asked` prompts are `equal` to those of the template. `differences`: where the others part."""

    equal: int
    asked: int
    differences: tuple[str, ...] = ()

    @property
    def sentence(self) -> str:
        """Say it to people."""
        return f"prompts equal the model's own template: {self.equal} of {self.asked} probes"


def nearness(format_: Format) -> Nearness:
    """Hold a format's prompts against what its template writes of the same messages, as transformers passes them.

    What the template refuses there is not asked. A format without a template is asked nothing.
    """
    equal, asked, differences = 0, 0, list[str]()
    if format_.template is None:
        return Nearness(0, 0)
    takes = format_.template.traits.manner
    for shows, messages, tools in _conversations(Manner(text_arguments=takes.arguments == "text")):
        for message in messages:
            if "tool_calls" in message and not message["content"] and takes.null:
                message["content"] = None  # so that the template writes no text, and no empty one
        expected = _expected(format_, messages, tools)
        if expected is None:
            continue
        asked += 1
        found = _prompt(format_, messages, tools)
        equal += found == expected
        if found != expected:
            differences.append(f"{shows}: {_difference(found, expected)}")
    return Nearness(equal, asked, tuple(differences))


def _conversations(manner: Manner) -> Iterator[tuple[str, list[dict[str, Any]], bool]]:
    """Give each probe up to its answer, behind its answer, and with instructions before it."""
    for probe in PROBES:
        messages = probe.messages(manner)
        yield f"the prompt for {probe.shows}", messages[:-1], probe.tools
        yield f"a question behind {probe.shows}", [*messages, {"role": "user", "content": LATER}], probe.tools
    instructed = [{"role": "system", "content": SYSTEM}, *PROBES[0].messages(manner)[:-1]]
    yield "instructions", instructed, False
    yield "instructions and tools", instructed, True


def _expected(format_: Format, messages: list[dict[str, Any]], tools: bool) -> str | None:
    assert format_.template is not None
    try:
        return format_.template.run(messages, list(DEFINITIONS) if tools else None, generation=True)
    except TurnscriptError:
        return None


def _prompt(format_: Format, messages: list[dict[str, Any]], tools: bool) -> str:
    items = [item for message in messages for item in _items(message)]
    request = Request(conversation=Conversation(items, list(TOOLS) if tools else []))
    try:
        return format_.prompt(request).text
    except TurnscriptError as error:
        return str(error)


def _items(message: Mapping[str, Any]) -> Iterator[Item]:
    """Give the items that a message stands for."""
    role, text = message["role"], message.get("content") or ""
    said: list[Part] = [Text(text=text)]
    if role == "tool":
        yield ToolResult(content=said, id=message["tool_call_id"], name=message["name"])
        return
    if role != "assistant":
        yield System(content=said) if role == "system" else User(content=said)
        return
    if _MANNER.thoughts in message:
        yield Thinking(content=[Text(text=message[_MANNER.thoughts])])
    if text:
        yield Assistant(content=said)
    for call in message.get("tool_calls", ()):
        function = call["function"]
        given = function["arguments"]
        arguments = given if isinstance(given, str) else bytes(json_of(given)).decode()
        yield ToolCall(name=function["name"], arguments=arguments, id=call["id"])


def _difference(found: str, expected: str) -> str:
    """Say where two prompts part."""
    both = enumerate(zip(found, expected, strict=False))
    at = next((place for place, (one, other) in both if one != other), min(len(found), len(expected)))
    start = max(at - _SHOWN // 4, 0)
    one, other = (repr(text[start : start + _SHOWN]) for text in (found, expected))
    return f"from character {at + 1} on, {one} stands in place of {other}"


__all__ = ["Nearness", "nearness"]
