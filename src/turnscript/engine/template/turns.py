"""Owns the turns in what a template wrote: which of it is the model's own, item by item, as pieces and marks.

A model's turn begins where its opening stands, or where the first content of its message does, and ends behind what
ends its turns. Both are found in what stands between contents, which no content can forge.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

from turnscript.engine.escape import Escape
from turnscript.engine.spans import CONTROL, ITEM, TRAINABLE
from turnscript.engine.template.marks import Spell
from turnscript.engine.template.messages import Marked
from turnscript.engine.template.study import Traits

_ASSISTANT = "assistant"
_INSTRUCTIONS = ("system", "developer")
_LAST_TAG = re.compile(r"(?:<[^<>\s]+>|\[/?[A-Z_]+\])\s*\Z")


class Region(NamedTuple):
    """Where a turn of the model stands among the pieces: what it wrote is from `start` up to `end`.

    Behind that, up to `closed`, is what ends its turn. `last`: the piece behind its last content.
    """

    start: int
    last: int
    end: int
    closed: int


class Turns:
    """The pieces of a text with their marks, as `spans.Writer` has them, and the turns of the model by their message.

    `pending`: where what a prompt opens for the next turn begins, -1 if nothing is opened. `shown`: the contents, by
    the numbers of their marks.
    """

    __slots__ = (
        "_ends",
        "_escape",
        "_heads",
        "_marked",
        "_model",
        "_next",
        "_opened",
        "_prompted",
        "_spans",
        "_traits",
        "marks",
        "pending",
        "pieces",
        "regions",
        "shown",
    )

    def __init__(self, marked: Marked, traits: Traits, escape: Escape) -> None:
        self.pieces: list[str] = []
        self.marks: list[int] = []
        self.regions: dict[int, Region] = {}
        self.shown: set[int] = set()
        self.pending = -1
        self._marked = marked
        self._traits = traits
        self._escape = escape
        self._model = False
        # Messages of the model in order: the first of them whose turn has not begun.
        self._spans = [(k, span) for k, span in enumerate(marked.spans) if marked.messages[k]["role"] == _ASSISTANT]
        self._next = 0
        self._prompted = False
        told = bool(marked.messages) and marked.messages[0]["role"] in _INSTRUCTIONS
        self._heads = traits.heads.get((told, marked.tools), ())
        self._opened: set[int] = set()  # pieces that prompts have opened

    def lay_out(self, written: Sequence[tuple[str, int, Spell]]) -> None:
        """Take the pieces of `marks.split`."""
        texts, owners = self._marked.texts, self._marked.owners
        before = -1
        for literal, number, spell in written:
            owner = owners[number] if number >= 0 else -1
            self._literal(literal, owner, before)
            if number < 0:
                break
            self.shown.add(number)
            message = self._message(owner)
            inside = self._model and message >= 0
            if inside and message >= self._next:  # those in between have left no trace
                self.regions[message] = self.regions.pop(self._next - 1)
                self._next = message + 1
            text = spell(texts[number], self._escape)
            if self._traits.labels and (space := literal[len(literal.rstrip()) :]):
                # A label counts behind white space, which may be that of the content itself.
                text = spell(space + texts[number], self._escape).removeprefix(space)
            self.pieces.append(text)
            self.marks.append(owner * ITEM + (TRAINABLE if inside else 0))
            if inside:
                self._note_last()
            before = owner
        self._finish()

    def _message(self, owner: int) -> int:
        """Return which of the model's messages an item is in, -1 for none."""
        for at in range(max(self._next - 1, 0), len(self._spans)):
            first, end = self._spans[at][1]
            if first <= owner < end:
                return at
            if owner < first:
                return -1
        return -1

    def _literal(self, text: str, owner: int, before: int) -> None:
        """Take what stands before a content of `owner` and behind one of `before`."""
        opening, message = self._traits.opening, self._message(owner)
        position, length = 0, len(text)
        if not self._model and before >= 0:
            end = next((end for end in self._traits.ends if text.startswith(end)), "")
            self._put(end, before)  # it closes what somebody else has said; what follows opens the next turn
            position, before = len(end), owner if end else before
        while position < length or (message >= 0 and not self._model):
            if self._model:
                position = self._inside(text, position, owner)
                continue
            found = text.find(opening, position) if opening else -1
            if found >= 0:
                self._put(text[position : found + len(opening)], before)
                position = found + len(opening)
                self._begin(message, owner)
            elif message >= 0:
                head = self._head(text[position:], before)
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
        return "" if before >= 0 and self._message(before) >= 0 else text

    def _begin(self, message: int, owner: int) -> None:
        """Begin the turn of the next message, or go on with the one that is open where it has several openings."""
        self._model = True
        self.pending = len(self.pieces)
        more = self._next < len(self._spans)
        if 0 <= message < self._next:
            return
        if more and (message >= 0 or owner < 0 or self._spans[self._next][1][0] < owner):
            self.regions[self._next] = Region(len(self.pieces), len(self.pieces), -1, -1)
            self._next += 1
        elif not more:
            self._prompted = True

    def _note_last(self) -> None:
        known = self.regions.get(self._next - 1)
        if known is not None:
            self.regions[self._next - 1] = known._replace(last=len(self.pieces))

    def _inside(self, text: str, position: int, owner: int) -> int:
        """Take what a model wrote up to the end of its turn, or all."""
        found = min(
            ((at, end) for end in self._traits.ends if (at := text.find(end, position)) >= 0),
            default=None,
        )
        item = owner if owner >= 0 and self._message(owner) == self._next - 1 else self._item()
        if found is None:
            foreign = owner >= 0 and self._message(owner) != self._next - 1
            if foreign:  # nothing ends it but the turn behind it
                own = max((len(tail) for tail in self._traits.tails if text.startswith(tail, position)), default=0)
                self._put(text[position : position + own], self._item(), TRAINABLE)
                self._close(len(self.pieces), len(self.pieces))
                self._model = False
                return position + own
            self._own(text[position:], item)
            return len(text)
        at, end = found
        self._own(text[position:at], item)
        start = len(self.pieces)
        self._put(end, item, TRAINABLE)
        self._close(start, len(self.pieces))
        self._model = False
        return at + len(end)

    def _own(self, text: str, item: int) -> None:
        """Put what a model wrote around its contents, but for what its prompt had opened before it."""
        begun = self.regions.get(self._next - 1)
        if begun is not None and begun.start == len(self.pieces):
            head = next((head for head in self._heads if text.startswith(head)), "")
            if head:
                self._opened.add(len(self.pieces))
                self._put(head, item)
                text = text[len(head) :]
        self._put(text, item, TRAINABLE)

    def _item(self) -> int:
        """Return the item that literals of the open turn belong to: the last of its message that has been written."""
        if not 0 < self._next <= len(self._spans):
            return -1
        first, end = self._spans[self._next - 1][1]
        last = self.marks[-1] // ITEM if self.marks else -1
        return last if first <= last < end else first

    def _close(self, end: int, closed: int) -> None:
        known = self.regions.get(self._next - 1)
        if known is not None:
            self.regions[self._next - 1] = known._replace(end=end, closed=closed)
        self.pending = -1

    def _put(self, text: str, item: int, flags: int = 0) -> None:
        if text:
            self.pieces.append(text)
            self.marks.append(item * ITEM + (CONTROL | flags))

    def _finish(self) -> None:
        """Between the first and the last of a turn all is the model's; an open one is what a prompt has opened."""
        size = len(self.pieces)
        for at, known in self.regions.items():
            region = known if known.end >= 0 else known._replace(end=size, closed=size)
            self.regions[at] = region
            first, end = self._spans[at][1]
            for place in range(region.start, region.closed):
                mark = self.marks[place]
                own = 0 if place in self._opened else TRAINABLE
                if not first <= mark // ITEM < end:
                    self.marks[place] = first * ITEM + (mark & CONTROL) + own
                else:
                    self.marks[place] = mark | own

    def opened(self, goes_on: bool) -> str:
        """Return what a prompt has opened for the model behind the opening of its turn, as nothing that it wrote.

        Where the last text is continued, that is all of its turn.
        """
        at = self.opened_at(goes_on)
        if not goes_on:  # it is nothing that the model wrote
            self.marks[at:] = [-ITEM | CONTROL] * (len(self.marks) - at)
        return "".join(self.pieces[at:])

    def opened_at(self, goes_on: bool) -> int:
        """Return the piece at which what `opened` gives begins."""
        if goes_on and self.regions:
            return self.regions[max(self.regions)].start
        return len(self.pieces) if self.pending < 0 or not self._prompted else self.pending

    def missing(self, start: int) -> set[int]:
        """Return the items from `start` on of which a content was not shown."""
        owners = enumerate(self._marked.owners)
        return {owner for number, owner in owners if owner >= start and number not in self.shown}

    def replay(self, first: int, end: int, opening: str, text: str) -> bool:
        """Put a turn as it was generated in the place of the one that the template wrote; False if a part is hidden."""
        at = self.message_at(first)
        region = self.regions.get(at)
        hidden = self.missing(0)
        if region is None or any(first <= item < end for item in hidden) or self._spans[at][1] != (first, end):
            return False
        new = [(opening, first * ITEM | CONTROL), (text, first * ITEM | TRAINABLE)]
        self.pieces[region.start : region.end] = [piece for piece, _ in new]
        self.marks[region.start : region.end] = [mark for _, mark in new]
        moved = region.start + 2 - region.end
        for other, one in self.regions.items():
            if other > at:
                self.regions[other] = Region(*(place + moved for place in one))
        if self.pending >= 0:
            self.pending += moved
        return True

    def message_at(self, first: int) -> int:
        """Return the number, among the model's, of the message that holds an item; -1 if there is none."""
        return next((at for at, (_, span) in enumerate(self._spans) if span[0] <= first < span[1]), -1)
