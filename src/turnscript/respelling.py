"""Owns `normalize_json`: the JSON of calls and results in one spelling, and what was changed by that.

It is for training data: a model that has seen each value spelled in one way learns what is said, not how some server
spaced it. What it changes is told as losses, though nothing but white space and escapes is ever another.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from msgspec.structs import replace

from turnscript.conversation import Conversation, Item, Part, Request, Text, ToolCall, ToolResult
from turnscript.jsontext import is_json, is_object, respell
from turnscript.losses import Loss


class Spelling(NamedTuple):
    """What stands behind each element and behind each key."""

    item: str
    key: str


SPACED, COMPACT = Spelling(", ", ": "), Spelling(",", ":")

RESPELLED = "its JSON is spelled in one way, because normalize_json asks for it"
_SPACE = " \t\r\n"


def respelled(request: Request, spelling: Spelling = SPACED) -> tuple[Request, list[Loss]]:
    """A request with the JSON of its calls and results in one spelling, and a loss for each that was in another.

    The request itself stays as it is, and is given back where there is nothing to change.
    """
    items, losses = respelled_items(request.items, spelling)
    if not losses:
        return request, losses
    return replace(request, conversation=Conversation(items, request.tools)), losses


def respelled_items(items: Sequence[Item], spelling: Spelling) -> tuple[list[Item], list[Loss]]:
    """The same of items. One that is not finished stays as it is: whoever goes on with it knows how it began."""
    losses: list[Loss] = []
    found: list[Item] = []
    for index, item in enumerate(items):
        at = item.at or f"items[{index}]"
        if item.open:
            found.append(item)
        elif isinstance(item, ToolCall):
            found.append(_call(item, at, spelling, losses))
        elif isinstance(item, ToolResult):
            found.append(_result(item, at, spelling, losses))
        else:
            found.append(item)
    return found, losses


def _call(item: ToolCall, at: str, spelling: Spelling, losses: list[Loss]) -> ToolCall:
    if item.custom or not is_object(item.arguments):
        return item
    arguments = respell(item.arguments, *spelling)
    if arguments == item.arguments:
        return item
    losses.append(Loss(f"{at}.arguments", "approximated", RESPELLED))
    return replace(item, arguments=arguments)


def _result(item: ToolResult, at: str, spelling: Spelling, losses: list[Loss]) -> ToolResult:
    content: list[Part] = []
    told = len(losses)
    for index, part in enumerate(item.content):
        if isinstance(part, Text) and (text := _text(part.text, spelling)) != part.text:
            losses.append(Loss(f"{at}.content[{index}]", "approximated", RESPELLED))
            content.append(replace(part, text=text))
        else:
            content.append(part)
    return item if len(losses) == told else replace(item, content=content)


def _text(text: str, spelling: Spelling) -> str:
    """A text that is a JSON object or array, anew. Any other stays: a number or a word may be just that."""
    return respell(text, *spelling) if text.lstrip(_SPACE)[:1] in ("{", "[") and is_json(text) else text
