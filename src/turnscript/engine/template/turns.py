"""Owns the turns in what a template wrote: which of it is the model's own, item by item, as pieces and marks.

A model's turn begins where its opening stands, or where the first content of its message does, and ends behind what
ends its turns. Both are found in what stands between contents, which no content can forge. Where they stand depends on
the shape of a conversation alone, so a shape is laid out once, with holes, and then filled with contents.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

from msgspec import Struct

from turnscript.engine.escape import Escape
from turnscript.engine.spans import CONTROL, ITEM, TRAINABLE
from turnscript.engine.template.marks import Spell
from turnscript.engine.template.messages import Marked
from turnscript.engine.template.study import Traits

_ASSISTANT = "assistant"
_INSTRUCTIONS = ("system", "developer")
_LAST_TAG = re.compile(r"(?:<[^<>\s]+>|\[/?[A-Z_]+\])\s*\Z")
_LAST, _END = 1, 2


class Region(NamedTuple):
    """Where a turn of the model stands among the pieces: what it wrote is from `start` up to `end`.

    Behind that, up to `closed`, is what ends its turn. `last`: the piece behind its last content.
    """

    start: int
    last: int
    end: int
    closed: int


Hole = tuple[int, int, Spell, str]
"""A piece that is a content: its position, the number of its mark, how the template spells it there, and the white
space before it, behind which a label may begin."""


class Shape(Struct, frozen=True):
    """What a template makes of all conversations of one shape: pieces with holes, their marks, and whose they are.

    `numbers`: those of the marks that it shows.
    `regions` are by the number of the model's message, `spans` the items of each. `opened_at`: the piece at which what
    a prompt opens for the next turn begins; the number of pieces where it opens nothing.
    """

    pieces: list[str]
    holes: list[Hole]
    numbers: frozenset[int]
    marks: list[int]
    regions: dict[int, Region]
    spans: list[tuple[int, int]]
    opened_at: int

    def fill(self, texts: Sequence[str], escape: Escape, shift: int = 0) -> Turns:
        """Put contents in. `shift`: the position of the first item that is there."""
        pieces = self.pieces.copy()
        for piece, number, spell, space in self.holes:
            if space:
                pieces[piece] = spell(space + texts[number], escape).removeprefix(space)
            else:
                pieces[piece] = spell(texts[number], escape)
        shifted = shift * ITEM
        marks = [mark + shifted if mark >= 0 else mark for mark in self.marks] if shift else self.marks.copy()
        return Turns(self, pieces, marks, shift)


class Turns:
    """The pieces of a text with their marks, as `spans.Writer` has them, and the turns of the model in it."""

    __slots__ = ("_moved", "_shape", "_shift", "marks", "pieces")

    def __init__(self, shape: Shape, pieces: list[str], marks: list[int], shift: int) -> None:
        self.pieces = pieces
        self.marks = marks
        self._shape = shape
        self._shift = shift
        self._moved = 0  # by how much turns that were put in have moved what stands behind them

    def region_of(self, item: int) -> Region | None:
        """Return where the turn stands that holds an item; None where the template shows no such turn."""
        return self._shape.regions.get(self._message(item))

    def _message(self, item: int) -> int:
        own = item - self._shift
        return next((at for at, (first, end) in enumerate(self._shape.spans) if first <= own < end), -1)

    def opened_at(self, goes_on: bool) -> int:
        """Return the piece where what a prompt opens for the model begins; where a text goes on, that of its turn."""
        regions = self._shape.regions
        if goes_on and regions:
            return regions[max(regions)].start + self._moved
        return self._shape.opened_at + self._moved

    def opened(self, goes_on: bool) -> str:
        """Return what a prompt has opened for the model behind the opening of its turn."""
        return "".join(self.pieces[self.opened_at(goes_on) :])

    def missing(self, marked: Marked) -> set[int]:
        """Return the items of which a content is not shown."""
        numbers = self._shape.numbers
        if len(numbers) == len(marked.texts):
            return set()
        return {owner + self._shift for number, owner in enumerate(marked.owners) if number not in numbers}

    def replay(self, marked: Marked, first: int, end: int, written: tuple[str, str]) -> bool:
        """Put a turn as it was generated in the place of the one that the template wrote; False if a part is hidden.

        `written`: what its prompt had opened, and what the model wrote. Later turns are put in before earlier ones.
        """
        at = self._message(first)
        region = self._shape.regions.get(at)
        if region is None or self._shape.spans[at] != (first, end):
            return False
        if any(first <= item < end for item in self.missing(marked)):
            return False
        self.pieces[region.start : region.end] = written
        self.marks[region.start : region.end] = [first * ITEM | CONTROL, first * ITEM | TRAINABLE]
        self._moved += region.start + len(written) - region.end
        return True


def lay_out(written: Sequence[tuple[str, int, Spell]], marked: Marked, traits: Traits) -> Shape:
    """Find the model's turns in the pieces of `marks.split`."""
    return _Layout(marked, traits).shape(written)


class _Layout:
    """One pass over what stands between contents: inside a turn of the model, or not."""

    def __init__(self, marked: Marked, traits: Traits) -> None:
        self._pieces: list[str] = []
        self._marks: list[int] = []
        self._holes: list[Hole] = []
        self._regions: dict[int, list[int]] = {}  # as Region has them
        self._marked = marked
        self._traits = traits
        self._inside = False
        # Messages of the model in order, and the first of them whose turn has not begun.
        roles = [message["role"] for message in marked.messages]
        self._spans = [span for role, span in zip(roles, marked.spans, strict=True) if role == _ASSISTANT]
        self._next = 0
        self._opened_at = -1
        told = bool(roles) and roles[0] in _INSTRUCTIONS
        self._heads = traits.heads.get((told, marked.tools), ())
        self._opened: set[int] = set()  # pieces that prompts have opened
        self._messages = {item: at for at, (first, end) in enumerate(self._spans) for item in range(first, end)}

    def shape(self, written: Sequence[tuple[str, int, Spell]]) -> Shape:
        before, owners, message_of = -1, self._marked.owners, self._messages.get
        for literal, number, spell in written:
            owner = owners[number] if number >= 0 else -1
            message = message_of(owner, -1)
            self._literal(literal, owner, message, before)
            if number < 0:
                break
            self._content(number, owner, message, spell, literal)
            before = owner
        regions = self._finish()
        size = len(self._pieces)
        opened_at = size if self._opened_at < 0 or not self._inside else self._opened_at
        self._marks[opened_at:] = [-ITEM | CONTROL] * (size - opened_at)  # it is nothing that the model wrote
        numbers = frozenset([number for _, number, _, _ in self._holes])
        return Shape(self._pieces, self._holes, numbers, self._marks, regions, self._spans, opened_at)

    def _content(self, number: int, owner: int, message: int, spell: Spell, literal: str) -> None:
        inside = self._inside and message >= 0
        if inside and message >= self._next:  # those in between have left no trace
            self._regions[message] = self._regions.pop(self._next - 1)
            self._next = message + 1
        space = literal[len(literal.rstrip()) :] if self._traits.labels else ""
        pieces = self._pieces
        self._holes.append((len(pieces), number, spell, space))
        pieces.append("")
        self._marks.append(owner * ITEM + (TRAINABLE if inside else 0))
        if inside and (known := self._regions.get(self._next - 1)) is not None:
            known[_LAST] = len(pieces)

    def _literal(self, text: str, owner: int, message: int, before: int) -> None:
        """Take what stands before a content of `owner`, which is in `message`, and behind one of `before`."""
        opening = self._traits.opening
        position, length = 0, len(text)
        if not self._inside and before >= 0:
            ends = [at + len(end) for end in self._traits.ends if (at := text.find(end)) >= 0]
            position = min(ends, default=0)  # up to there it closes what somebody else has said
            self._put(text[:position], before)
            before = owner if ends else before  # what follows opens the next turn
        while position < length or (message >= 0 and not self._inside):
            if self._inside:
                position = self._inside_text(text, position, owner, message)
                continue
            found = text.find(opening, position) if opening else -1
            if found < 0 and 0 <= message < self._next and self._regions[message][_END] >= 0:
                message = -1  # a part of a turn that has ended stands again, such as the tool's name beside its result
            if found >= 0:
                # Of messages that leave no trace, the last ones have the openings that are there.
                self._next = max(self._next, message + 1 - text.count(opening, position))
                self._put(text[position : found + len(opening)], before)
                position = found + len(opening)
                self._begin(message, owner)
            elif message >= 0:
                head = self._head(text[position:], before)
                self._put(head, before)
                position += len(head)
                self._begin(message, owner)
            elif owner < 0 and 0 < len(head := self._answered(text[position:])) < length - position:
                self._put(head, before)
                position += len(head)
                self._begin(message, owner)
            else:
                self._put(text[position:], before)
                return

    def _head(self, text: str, before: int) -> str:
        """Return how the model's turn begins behind a content, where no opening tells it."""
        heads = [head for head in self._traits.behind.values() if head]
        for head in heads:
            at = text.find(head)
            if at >= 0 and not text[:at].strip():  # the content may end in white space, which is no part of its mark
                return text[: at + len(head)]
        for head in heads:  # what stands before its last tag may be of one content, such as the id of a call
            tag = _LAST_TAG.search(head)
            if tag is not None and tag[0] in text:
                return text[: text.index(tag[0]) + len(tag[0])]
        return "" if before >= 0 and self._messages.get(before, -1) >= 0 else text

    def _answered(self, text: str) -> str:
        """Return what stands at the end of a prompt between a result and the answer, where no opening stands there."""
        head = self._traits.behind.get("tool", "")
        last = self._marked.messages[-1]["role"] if self._marked.messages else ""
        bare = last == "tool" and self._traits.opening not in head and self._next == len(self._spans)
        return head if bare and text.startswith(head) else ""

    def _begin(self, message: int, owner: int) -> None:
        """Begin the turn of the next message, or go on with the one that is open where it has several openings."""
        self._inside = True
        more = self._next < len(self._spans)
        if 0 <= message < self._next:
            return
        if more and (message >= 0 or owner < 0 or self._spans[self._next][0] < owner):
            self._regions[self._next] = [len(self._pieces), len(self._pieces), -1, -1]
            self._next += 1
        elif not more:
            self._opened_at = len(self._pieces)

    def _inside_text(self, text: str, position: int, owner: int, message: int) -> int:
        """Take what a model wrote up to the end of its turn, or all; return where that ends."""
        traits, current = self._traits, self._next - 1
        found = [(at, end) for end in traits.ends if (at := text.find(end, position)) >= 0]
        item = owner if owner >= 0 and message == current else self._item()
        if not found:
            foreign = owner >= 0 and message != current
            opening = traits.opening
            foreign = foreign or (not traits.ends and bool(opening) and text.find(opening, position) > position)
            if foreign:  # nothing ends it but the turn behind it
                own = max((len(tail) for tail in traits.tails if text.startswith(tail, position)), default=0)
                self._put(text[position : position + own], self._item(), TRAINABLE)
                self._close(len(self._pieces), len(self._pieces))
                return position + own
            self._own(text[position:], item)
            return len(text)
        at, end = min(found)
        self._own(text[position:at], item)
        start = len(self._pieces)
        self._put(end, item, TRAINABLE)
        self._close(start, len(self._pieces))
        return at + len(end)

    def _own(self, text: str, item: int) -> None:
        """Put what a model wrote around its contents, but for what its prompt had opened before it."""
        begun = self._regions.get(self._next - 1) if self._heads else None
        if begun is not None and begun[0] == len(self._pieces):
            head = next((head for head in self._heads if text.startswith(head)), "")
            if head:
                self._opened.add(len(self._pieces))
                self._put(head, item)
                text = text[len(head) :]
        self._put(text, item, TRAINABLE)

    def _item(self) -> int:
        """Return the item that literals of the open turn belong to: the last of its message that has been written."""
        if not 0 < self._next <= len(self._spans):
            return -1
        first, end = self._spans[self._next - 1]
        last = self._marks[-1] // ITEM if self._marks else -1
        return last if first <= last < end else first

    def _close(self, end: int, closed: int) -> None:
        known = self._regions.get(self._next - 1)
        if known is not None:
            known[_END:] = end, closed
        self._inside = False

    def _put(self, text: str, item: int, flags: int = 0) -> None:
        if text:
            self._pieces.append(text)
            self._marks.append(item * ITEM + (CONTROL | flags))

    def _finish(self) -> dict[int, Region]:
        """Return the model's turns, and make all that stands between the first and the last of a turn the model's."""
        size, found = len(self._pieces), {}
        for at, known in self._regions.items():
            if known[_END] < 0:
                known[_END:] = size, size
            found[at] = region = Region(*known)
            first, behind = (item * ITEM for item in self._spans[at])
            self._marks[region.start : region.closed] = [
                (mark if first <= mark < behind else first + (mark & CONTROL)) | TRAINABLE
                for mark in self._marks[region.start : region.closed]
            ]
        for place in self._opened:
            self._marks[place] &= ~TRAINABLE
        return found
