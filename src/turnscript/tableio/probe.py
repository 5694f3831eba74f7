"""Owns the last check of a declared format: small conversations must come back as they were written.

Every two kinds of items stand next to each other in one of them, so a joint or a literal that a reader takes for
something else shows here, even if no other check knows of it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import product

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
    text_content,
)
from turnscript.core.errors import InvalidTranscript
from turnscript.core.json_text import json_of
from turnscript.engine.layout import layout_of
from turnscript.engine.table import Document
from turnscript.formats.format import Format
from turnscript.tableio.tables import InvalidFormat, Table

_SCHEMA = json_of({"type": "object", "properties": {"city": {"type": "string"}}})
_SPOKEN_BY_THE_MODEL = (Thinking.kind, Assistant.kind, ToolCall.kind, ToolResult.kind)


def check_reading(format_: Format, table: Table) -> None:
    """Raise InvalidFormat for the first conversation that the format writes and does not read."""
    for request in _conversations(format_.document):
        request.locate()
        rendered = format_.render(request)
        if any(loss.kind == "moved" for loss in rendered.losses):
            continue  # texts that the table joins read as one, and that is told
        gone = {loss.path for loss in rendered.losses if loss.kind == "dropped"}
        expected = [_outline(item) for item in request.items if item.at not in gone]
        try:
            found = [_outline(item) for item in format_.parse(str(rendered.value)).items]
            reason = _difference(expected, found)
        except InvalidTranscript as error:
            found, reason = [], str(error)
        if expected != found:
            message = f"a conversation in this format cannot be read back: {reason}. It is written\n{rendered.value}"
            raise InvalidFormat(message, path=table.path, expected="literals and joints that a reader can tell apart")


def _difference(expected: list[tuple[str, str]], found: list[tuple[str, str]]) -> str:
    """What reads back as something else, in words: another row of items, or the first that says another thing."""
    wanted, kinds = (", ".join(kind for kind, _ in items) for items in (expected, found))
    if wanted != kinds:
        return f"it reads back as {kinds or 'nothing'} and not as {wanted}"
    pairs = zip(expected, found, strict=True)
    kind, said, read = next(((kind, said, read) for (kind, said), (_, read) in pairs if said != read), ("", "", ""))
    return f"{kind} reads back as {read!r} and not as {said!r}"


def _conversations(document: Document) -> Iterator[Request]:
    """A few items each, of the kinds that the format has."""
    kinds = {segment.kind for turn in document.turns for segment in turn.segments}
    if layout_of(document).lodges:
        kinds.discard(System.kind)  # which are read as the user's, and that is told
    here = [kind for kind in _SPOKEN_BY_THE_MODEL if kind in kinds]
    for before, after in product(here, here):
        items = [
            *_item(System.kind, document),
            *_item(User.kind, document),
            *(_item(ToolCall.kind, document) if before == ToolResult.kind else []),
            *_item(before, document),
            *_item(after, document),
            *(_item(ToolResult.kind, document) if after == ToolCall.kind else []),
            *_item(User.kind, document),
            *_item(Assistant.kind, document),
        ]
        tool = Tool(name="weather", description="The weather", parameters=_SCHEMA)
        shown = [item for item in items if item.kind in kinds]
        yield Request(conversation=Conversation(items=shown, tools=[tool] if ToolCall.kind in kinds else []))


def _item(kind: str, document: Document) -> list[Item]:
    if kind == ToolCall.kind:
        return [ToolCall(name="weather", arguments='{"city": "Oslo"}')]
    if kind == ToolResult.kind:
        return [ToolResult(name="weather", content=[Text(text="rain")])]
    if kind == Thinking.kind:
        of = document.segment(kind).of or "reason"
        return [Thinking(of=of, content=[Text(text="Let me see.")])]
    made = {System.kind: System, User.kind: User, Assistant.kind: Assistant}[kind]
    return [made(content=[Text(text=f"What {kind} says.")])]


def _outline(item: Item) -> tuple[str, str]:
    """What must come back of an item: ids, names and the spelling of JSON may be a format's loss."""
    if isinstance(item, ToolCall):
        return item.kind, f"{item.name} {json.loads(item.arguments)}"
    return item.kind, text_content(getattr(item, "content", []))
