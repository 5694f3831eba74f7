"""Owns whether prompts grow: a session with tools is tried, and each prompt must begin with the one before it."""

from __future__ import annotations

import json

import msgspec
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
    Tool,
    ToolCall,
    ToolResult,
    User,
)
from turnscript.core.errors import TurnscriptError
from turnscript.engine.replay import Generated
from turnscript.formats.format import Format

_SCHEMA = {"type": "object", "properties": {"place": {"type": "string", "description": "where"}}, "required": ["place"]}
_TOOL = Tool(name="look_up", description="Look it up", parameters=msgspec.Raw(json.dumps(_SCHEMA).encode()))
_OTHERWISE = "the template writes what stood before an answer in another way once the conversation goes on"
_FORGOTTEN = (
    "the template leaves out what the model thought, or writes it in another way, once the conversation goes on"
)


def growth(format_: Format) -> str:
    """Return why a prompt may not begin the next one, in a format with a template; empty if it does.

    Turns stand as they were generated wherever the history of the format lets them.
    """
    template = format_.template
    if template is None or format_.history == "generated":
        return ""
    if template.traits.grows:
        return template.traits.grows
    tools = [_TOOL] if template.traits.calls or template.traits.results else []
    try:
        return _tried(format_, tools)
    except TurnscriptError:  # it refuses a session with tools, and so there is none
        return _tried(format_, []) if tools else ""


def _tried(format_: Format, tools: list[Tool]) -> str:
    """Return why the prompts of a session do not grow, with thoughts of the model or without; empty if they do."""
    if not _goes_on(format_, tools, thoughts=False):
        return _OTHERWISE
    return "" if _goes_on(format_, tools, thoughts=True) else _FORGOTTEN


def _goes_on(format_: Format, tools: list[Tool], *, thoughts: bool) -> bool:
    items: list[Item] = [User(content=_text("Where is it?"))]
    if format_.template is not None and format_.template.traits.system:
        items.insert(0, System(content=_text("Be brief.")))  # some count the turns behind it wrongly
    prompt = format_.prompt(_request(items, tools))
    before, replays = prompt.text, list[tuple[int, int, Generated]]()
    for number in range(1, 5):
        said, reply = _turn(number, bool(tools))
        said = [Thinking(content=_text(f"Perhaps {number}.")), *said] if thoughts else said
        generated = Generated(opening=prompt.opened, text=_written(format_, items, said, tools), before="", last="")
        replays.append((len(items), len(items) + len(said), generated))
        items = [*items, *said, reply]
        prompt = format_.prompt(_request(items, tools), replays=replays)
        if not prompt.text.startswith(before + generated.text):
            return False
        before = prompt.text
    return True


def _turn(number: int, calls: bool) -> tuple[list[Item], Item]:
    if not calls or number % 2 == 0:
        return [Assistant(content=_text(f"Here {number}."))], User(content=_text(f"And {number}?"))
    ident = f"call0000{number}"
    call = ToolCall(name=_TOOL.name or "", arguments='{"place": "there"}', id=ident)
    return [call], ToolResult(content=_text(f"found {number}"), id=ident, name=_TOOL.name)


def _written(format_: Format, items: list[Item], said: list[Item], tools: list[Tool]) -> str:
    """Return what a model that writes as the template does would write for a turn."""
    first, end = len(items), len(items) + len(said)
    spans = format_.spans(_request([*items, *said], tools), view="prompt")
    text = "".join(span.text for span in spans if span.trainable and first <= span.item < end)
    for stop in (*(format_.template.traits.ends if format_.template else ()), *format_.stops):
        text = text.rstrip().removesuffix(stop) if text.rstrip().endswith(stop) else text
    return text


def _request(items: list[Item], tools: list[Tool]) -> Request:
    return Request(conversation=Conversation(list(items), tools))


def _text(text: str) -> list[Part]:
    return [Text(text=text)]


def with_growth(format_: Format) -> Format:
    """Return a format whose table says why its prompts may not grow."""
    return replace(format_, document=replace(format_.document, grows=growth(format_)))
