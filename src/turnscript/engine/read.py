"""Owns strict reading: a whole transcript to a request, for files and datasets. Errors name line and column.

Theory of operation. A tag counts only when it fills its line from the start, so one pattern finds every candidate, and
the text between two of them is a payload or must be blank. The grammar has one state: which block is open. A block ends
at its own closing; any other whole tag before that is an error, because content that looks like one would be escaped.
The last block may lack its closing: an unfinished text. Payloads are cut out as they stand and read by the turn's body.

An answer that is closed on the line behind its opening, with a call behind it, is how a model calls at once: its prompt
had opened the answer. That is the call alone (requirements D-U-17). A writer leaves a line between the two, so an empty
text of a conversation is none of these.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache
from itertools import chain, pairwise
from typing import NoReturn

from msgspec import Struct

from turnscript.core.conversation import Item, Request, Tool, ToolCall, ToolsChange
from turnscript.core.errors import InvalidTranscript
from turnscript.core.json_text import Json
from turnscript.core.losses import Loss
from turnscript.engine.attributes import read_attributes, scan_attributes
from turnscript.engine.bodies import Metadata, ToolList
from turnscript.engine.layout import layout_of
from turnscript.engine.lines import Findings, Lines
from turnscript.engine.read_turns import begins_document, read_turns
from turnscript.engine.table import Attribute, Document, Payload, Section, Segment

_METADATA = Metadata()
_TOOLS = ToolList()
_CHANGE = Attribute("change", "change", "flag")
_REMOVED = Attribute("removed", "removed", "names")


class Block(Struct):
    """A block as it was cut out: its turn or section, attributes, payload (still escaped), first line, and start.

    `at_once`: its closing stands on the line behind its opening, which says nothing more.
    """

    kind: Segment | Section
    attributes: dict[str, Json]
    text: str
    line: int
    start: int
    open: bool
    at_once: bool = False


def read_document(document: Document, text: str, found: Findings | None = None) -> Request:
    """Return the request that a transcript holds. Raises InvalidTranscript, unless all that is wrong goes to `found`:
    then reading goes on behind each fault."""
    if not document.anchored:
        return read_turns(document, text, found)
    text = _unix_lines(text.removeprefix("\ufeff"), _tags(document))
    lines = Lines(text, found)
    request = Request()
    told = False  # whether there was metadata
    before: Block | None = None
    for block in _cut_blocks(document, text, lines):
        try:
            if block.kind is document.metadata:
                if told or not all(map(_is_system, request.items)):
                    _misplaced(block, "metadata comes once, before the first turn")
                told = True
                _read_metadata(document, block, request)
            elif block.kind is document.tools:
                lines.note_tools(block.start)
                for loss in _read_tools(document, block, request):
                    request.unread.append(loss)
                    lines.lose(block.start, loss)
            elif isinstance(block.kind, Segment):
                if before is not None and _leads_to_call(document, before, block):
                    request.items.pop()
                request.items.append(_read_item(document, block.kind, block, lines))
            before = block
        except InvalidTranscript as error:
            lines.keep(error)
            before = None
    return request


def _leads_to_call(document: Document, before: Block, block: Block) -> bool:
    """Return whether a block is how a model begins the call behind it."""
    opened = before.at_once and before.kind is document.segment(document.generation.kind)
    return opened and isinstance(block.kind, Segment) and block.kind.kind == ToolCall.kind


def claims_document(document: Document, text: str) -> bool:
    """Return whether a text begins as a transcript of this format does."""
    return opens_block(document, text) if document.anchored else begins_document(document, text)


def settles(document: Document, before: str, after: str) -> str:
    """Return what a text between two literals has to be without to be read as any other is: as it stands.

    That is how all tags and escapes begin, where these literals end the line of the tag before and begin that of the
    tag behind: no tag is longer than its line. Empty where more of a text decides how it is read.
    """
    if not document.anchored or not before.endswith("\n") or not after.startswith("\n"):
        return ""
    tags, bodies = _tags(document), [segment.body for turn in document.turns for segment in turn.segments]
    parts = [literal for body in bodies if body.plain for literal in body.literals]
    leads = layout_of(document).escape.leads
    alike = len(leads) == 1 and all(tag.startswith(leads) for tag in (*tags.openings, *tags.closings, *parts))
    return leads[0] if alike else ""


def begins_answer(document: Document, text: str) -> bool:
    """Return whether a text begins as what a model writes in its turn does, behind the opening of that."""
    openings = ((one.group or one).open.strip() for turn in document.turns for one in turn.segments if one.model)
    return text.startswith(tuple(filter(None, openings))) and not claims_document(document, text)


def opens_block(document: Document, text: str) -> bool:
    """Return whether the first line that is not blank is an opening tag."""
    start = re.match(r"\ufeff?\s*", text)
    first = text[start.end() :].split("\n", 1)[0] if start else ""
    found = _tags(document).pattern.match(first.rstrip("\r"))
    return found is not None and found["opening"] is not None


# Cutting a text into blocks.


def _cut_blocks(document: Document, text: str, lines: Lines) -> Iterator[Block]:
    """Give the blocks of a transcript in order."""
    tags = _tags(document)
    opening: re.Match[str] | None = None
    end = 0  # of the last block, or of the opening line
    for tag, following in pairwise(chain(tags.pattern.finditer(text), [None])):
        assert tag is not None
        if opening is None:
            _require_blank(text, end, tag.start(), lines)
            if tag["closing"]:
                lines.note(tag.start(), f"{tag['closing']} closes a block that is not open", "an opening tag")
                end = tag.end()
                continue
            opening, end = tag, min(tag.end() + 1, len(text))
        elif tags.closes(tag, opening):
            block = _block(document, opening, text[end : max(tag.start() - 1, end)], lines, open_=False)
            block.at_once = tag.start() <= end and not block.attributes
            yield block
            opening, end = None, tag.end()
        else:
            _refuse_inside(document, opening, tag, lines)
            if following is not None and tags.closes(following, opening):
                continue  # it is content
            yield _block(document, opening, text[end : max(tag.start() - 1, end)], lines, open_=False)
            opening, end = (None, tag.end()) if tag["closing"] else (tag, min(tag.end() + 1, len(text)))
    if opening is None:
        _require_blank(text, end, len(text), lines)
    else:
        yield _block(document, opening, text[end:], lines, open_=True)


class _Tags:
    """The tag lines of a document: one pattern that finds them all, and what each literal opens or closes."""

    def __init__(self, document: Document) -> None:
        kinds: list[Segment | Section] = [segment for turn in document.turns for segment in turn.segments]
        kinds += [section for section in (document.metadata, document.tools) if section is not None]
        self.openings: dict[str, Segment | Section] = {kind.open: kind for kind in kinds}
        self.closings: dict[str, Segment | Section] = {
            closing: self.openings[kind.open]
            for kind in kinds
            for closing in (kind.close.strip(), *kind.also_closed_by)
        }
        closing, opening = _alternatives(self.closings), _alternatives(self.openings)
        tag_end = re.escape(document.tag_end)
        self.pattern = re.compile(
            rf"^(?:(?P<closing>{closing})|(?P<opening>{opening})(?P<attributes>[ \t].*?)?{tag_end})[ \t]*$",
            re.MULTILINE,
        )
        self.crlf = re.compile(self.pattern.pattern.removesuffix("$") + r"\r?$", re.MULTILINE)

    def closes(self, tag: re.Match[str], opening: re.Match[str]) -> bool:
        """Return whether a tag closes the block of an opening."""
        return bool(tag["closing"]) and self.closings[tag["closing"]] is self.openings[opening["opening"]]


@lru_cache(maxsize=64)
def _tags(document: Document) -> _Tags:
    return _Tags(document)


def _alternatives(literals: dict[str, Segment | Section]) -> str:
    return "|".join(map(re.escape, sorted(literals, key=len, reverse=True)))


def _unix_lines(text: str, tags: _Tags) -> str:
    """Return the text with LF line ends if its first tag line ends in CRLF; else CR is content (requirements D-X-8)."""
    if "\r\n" not in text:
        return text
    first = tags.crlf.search(text)
    return text.replace("\r\n", "\n") if first and first[0].endswith("\r") else text


def _require_blank(text: str, start: int, end: int, lines: Lines) -> None:
    between = text[start:end]
    if between.strip():
        position = start + len(between) - len(between.lstrip())
        word = text[position : position + 40].split("\n", maxsplit=1)[0]
        remedy = "put it between an opening and a closing tag, each on a line of its own"
        lines.note(position, f"text outside any block: {word!r}; {remedy}", "a tag")


def _refuse_inside(document: Document, opening: re.Match[str], tag: re.Match[str], lines: Lines) -> None:
    kind = _tags(document).openings[opening["opening"]]
    line = lines.at(opening.start())[0]
    found = tag[0].strip()[:60]
    content = layout_of(document).escape.apply(found)
    remedy = f", or write {content} if this line is content" if content != found else ""
    message = (
        f"{found} found before {kind.close.strip()}, inside the block that {opening['opening']} opened "
        f"on line {line}; close that block first{remedy}"
    )
    lines.note(tag.start(), message, kind.close.strip())


def _block(document: Document, opening: re.Match[str], text: str, lines: Lines, *, open_: bool) -> Block:
    line, column = lines.at(opening.start())
    start, end = opening.span("attributes")
    attributes: dict[str, Json] = {}
    kind = _tags(document).openings[opening["opening"]]
    try:
        if start >= 0:
            attributes = scan_attributes(opening.string, start, end, line, column + start - opening.start())
    except InvalidTranscript as error:
        lines.keep(error)
        required = getattr(kind, "required", "")
        attributes = {required: Json(b'""')} if required else {}  # that it is missing is no fault of its own
    return Block(kind, attributes, text, line, opening.start(), open_)


# Reading a block.


def _payload(document: Document, block: Block) -> Payload:
    return Payload(block.text, block.attributes, block.line + 1, layout_of(document).escape, block.open)


def _read_item(document: Document, turn: Segment, block: Block, lines: Lines) -> Item:
    """Read a block as an item. Where all faults are asked for, one with a wrong payload is there without it."""
    try:
        payload = turn.body.read(_payload(document, block))
    except InvalidTranscript as error:
        lines.keep(error, hides=False)
        payload = {"arguments": ""} if turn.kind == ToolCall.kind else {}
    fields = read_attributes(block.attributes, turn.attributes, block.line)
    if turn.required and turn.required not in fields:
        message = f"{turn.open} needs the attribute {turn.required!r}"
        expected = f'{turn.required}="..."'
        lines.keep(InvalidTranscript(message, line=block.line, column=1, expected=expected))
        fields[turn.required] = ""
    return turn.item(**(payload | fields), open=block.open, at=f"line {block.line}")


def _read_metadata(document: Document, block: Block, request: Request) -> None:
    _no_attributes(block)
    for field, value in _METADATA.read(_payload(document, block)).items():
        setattr(request, field, value)


def _read_tools(document: Document, block: Block, request: Request) -> list[Loss]:
    """Read the tools of a block; gives what is not kept as it stands."""
    payload = _payload(document, block)
    tools: list[Tool] = _TOOLS.read(payload)
    losses = [Loss(f"line {block.line}", loss.kind, loss.detail) for loss in payload.unread]
    marked = _CHANGE.key in block.attributes
    if not marked and not request.tools and all(map(_is_system, request.items)):
        _no_attributes(block)
        request.conversation.tools = tools
        return losses
    turn = document.segment(ToolsChange.kind)
    attributes = (*turn.attributes, _CHANGE, _REMOVED)
    fields = read_attributes(block.attributes, attributes, block.line)
    fields.pop(_CHANGE.key, None)
    request.items.append(ToolsChange(added=tools, **fields, open=block.open, at=f"line {block.line}"))
    return losses


def _is_system(item: Item) -> bool:
    return item.kind == "system"


def _misplaced(block: Block, message: str) -> NoReturn:
    raise InvalidTranscript(message, line=block.line, column=1, expected="a turn")


def _no_attributes(block: Block) -> None:
    if block.attributes:
        _misplaced(block, f"this block takes no attributes; found {', '.join(block.attributes)}")
