r"""Owns how the JSON of calls, results and tools is spelled in prompts and in what `normalize_json` asks for.

In a prompt `\u5317` is written as its character: models have learnt words and no tokens of escapes, and some clients
escape what others do not. That is no loss, because no value is another.

Arguments that came as an object (`ToolCall.as_object`) are nobody's spelling: the white space in them is that of the
program that printed the body or the file. They have one spelling in prompts, in samples and in every API but their own,
to which they go back as they stood, as they do from an archive. A text of arguments is what a model wrote, and stays.

`normalize_json` goes further, for training data: a model that has seen each value spelled in one way learns what is
said, not how some server spaced it. What it changes is told as losses, though nothing but white space and escapes is
ever another.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from operator import is_
from typing import NamedTuple

from msgspec.structs import replace

from turnscript.core.conversation import (
    Conversation,
    Item,
    Part,
    Request,
    Text,
    Tool,
    ToolCall,
    ToolResult,
    ToolsChange,
)
from turnscript.core.json_text import Json, has_escapes, is_json, is_object, respace, respell, text_of, with_characters
from turnscript.core.losses import Loss


class Spelling(NamedTuple):
    """What stands behind each element and behind each key."""

    item: str
    key: str


SPACED, COMPACT = Spelling(", ", ": "), Spelling(",", ":")

RESPELLED = "its JSON is spelled in one way, because normalize_json asks for it"
_SPACE = " \t\r\n"
_is_like_json = re.compile(rf"[{_SPACE}]*[{{\[]").match
_SPELLED = frozenset({ToolCall, ToolResult, ToolsChange})

Spell = Callable[[str], str]
"""How a JSON object or array is written. A text that is no JSON comes back as it is."""


def respelled(request: Request, spelling: Spelling = SPACED) -> tuple[Request, list[Loss]]:
    """Spell the JSON of calls and results in one way, and tell a loss for each that was spelled in another.

    The request itself stays as it is, and is given back where there is nothing to change.
    """
    items, losses = respelled_items(request.items, spelling)
    if not losses:
        return request, losses
    return replace(request, conversation=Conversation(items, request.tools)), losses


def respelled_items(items: Sequence[Item], spelling: Spelling) -> tuple[list[Item], list[Loss]]:
    """Do so with items. One that is not finished stays as it is: whoever goes on with it knows how it began."""
    losses: list[Loss] = []
    found: list[Item] = []

    def spell(text: str) -> str:
        return respell(text, *spelling) if is_json(text) else text

    for index, item in enumerate(items):
        again, places = _item(item, spell)
        at = item.at or f"items[{index}]"
        losses += [Loss(f"{at}{place}", "approximated", RESPELLED) for place in places]
        found.append(again)
    return found, losses


def in_one_spelling(text: str, spelling: Spelling = SPACED) -> str:
    """Spell an object of arguments, whatever white space and escapes its source has. Numbers, the order of keys and
    keys that come twice stay."""
    return with_characters(respace(text, *spelling))


def objects_in_one_spelling(items: Sequence[Item]) -> Sequence[Item]:
    """Spell the arguments that came as objects as another API gets them; the sequence itself if that changes none."""
    again = [_object(item, SPACED) if type(item) is ToolCall and item.as_object else item for item in items]
    return items if all(map(is_, again, items)) else again


def is_laid_out(item: Item) -> bool:
    """Return whether an item is a call whose arguments go over several lines, as nobody writes them but for people."""
    return isinstance(item, ToolCall) and "\n" in item.arguments.strip() and not item.custom


def note_laid_out(items: Sequence[Item]) -> None:
    """Take the arguments of a transcript that are laid out for objects. Those on one line are what a model wrote."""
    for item in filter(is_laid_out, items):
        item.as_object = True  # type: ignore[attr-defined]


def _object(call: ToolCall, spelling: Spelling) -> ToolCall:
    spelled = in_one_spelling(call.arguments, spelling)
    if spelled == call.arguments or call.open or call.custom or not is_object(call.arguments):
        return call
    return replace(call, arguments=spelled)


def shown(request: Request, forges: Callable[[str], bool], spelling: Spelling = SPACED) -> Request:
    """Write the characters that JSON in calls, results and tools has as escapes, as every prompt shows them, and
    arguments that came as objects in the format's `spelling`.

    `forges` says of a text that nothing would keep its tags from being read as such: what hides a tag behind an escape
    then stays as it came. The request is given back where there is nothing to change.
    """
    items, tools = shown_items(request.items, forges, spelling), request.tools
    listed = [_tool(tool, _characters(forges)) for tool in tools] if tools and _have_escapes(tools) else tools
    if items is request.items and listed is tools:
        return request
    return replace(request, conversation=Conversation(list(items), listed))


def shown_items(items: Sequence[Item], forges: Callable[[str], bool], spelling: Spelling = SPACED) -> Sequence[Item]:
    """Do so with items; the sequence itself where there is nothing to change. Most have no JSON."""
    found = _respelled_in_prompts([item for item in items if type(item) in _SPELLED])
    if not found:
        return items
    spell = _characters(forges)
    again = {id(item): _shown(item, spell, forges, spelling) for item in found}
    if all(again[id(item)] is item for item in found):
        return items
    return [again.get(id(item), item) for item in items]


def _shown(item: Item, spell: Spell, forges: Callable[[str], bool], spelling: Spelling) -> Item:
    if type(item) is ToolCall and item.as_object:
        call = _object(item, spelling)
        return item if call is not item and forges(call.arguments) else call
    return _item(item, spell)[0]


def _characters(forges: Callable[[str], bool]) -> Spell:
    def spell(text: str) -> str:
        spelled = with_characters(text)
        return text if spelled is not text and forges(spelled) else spelled

    return spell


def _respelled_in_prompts(items: Sequence[Item]) -> list[Item]:
    """Return those calls, results and changes of tools in whose JSON something may be an escape, or is an object.

    Every prompt has all of its items looked at, and nearly none has an escape. So this is one loop, which looks at how
    a result begins, and for one character first: to search for that takes a sixth of the time that two take.
    """
    found = []
    for item in items:
        kind = type(item)
        if kind is ToolCall:
            text = item.arguments  # type: ignore[attr-defined]
            if item.as_object or ("\\" in text and "\\u" in text and has_escapes(text)):  # type: ignore[attr-defined]
                found.append(item)
        elif kind is ToolResult:
            for part in item.content:  # type: ignore[attr-defined]
                if type(part) is Text and _is_like_json(part.text) and has_escapes(part.text):
                    found.append(item)
                    break
        else:
            found.append(item)
    return found


def _item(item: Item, spell: Spell) -> tuple[Item, list[str]]:
    """An item with its JSON spelled, and the places in it that changed. What is unfinished stays."""
    if item.open:
        return item, []
    if isinstance(item, ToolCall):
        return _call(item, spell)
    if isinstance(item, ToolResult):
        return _result(item, spell)
    if isinstance(item, ToolsChange) and _have_escapes(item.added):
        return replace(item, added=[_tool(tool, spell) for tool in item.added]), []
    return item, []


def _call(item: ToolCall, spell: Spell) -> tuple[ToolCall, list[str]]:
    arguments = item.arguments if item.custom else _text(item.arguments, spell, "{")
    if arguments == item.arguments:
        return item, []
    return replace(item, arguments=arguments), [".arguments"]


def _result(item: ToolResult, spell: Spell) -> tuple[ToolResult, list[str]]:
    content: list[Part] = []
    places: list[str] = []
    for index, part in enumerate(item.content):
        if isinstance(part, Text) and (text := _text(part.text, spell, "{[")) != part.text:
            places.append(f".content[{index}]")
            content.append(replace(part, text=text))
        else:
            content.append(part)
    return (replace(item, content=content), places) if places else (item, [])


def _text(text: str, spell: Spell, begins: str) -> str:
    """Spell a text that is a JSON object or array. Any other stays: a number or a word may be just that."""
    first = text.lstrip(_SPACE)[:1]
    return spell(text) if first and first in begins else text


def _have_escapes(tools: Sequence[Tool]) -> bool:
    schemas = [tool.parameters for tool in tools if tool.parameters is not None]
    schemas += [tool.format for tool in tools if tool.format is not None]
    joined = b"".join(schemas)
    return (b"\\" in joined and b"\\u" in joined) or any(_have_escapes(tool.tools) for tool in tools if tool.tools)


def _tool(tool: Tool, spell: Spell) -> Tool:
    """A tool with its schemas spelled; a prompt shows no more JSON of it."""
    return replace(
        tool,
        parameters=None if tool.parameters is None else Json(spell(text_of(tool.parameters)).encode()),
        format=None if tool.format is None else Json(spell(text_of(tool.format)).encode()),
        tools=[_tool(one, spell) for one in tool.tools],
    )
