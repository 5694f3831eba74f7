"""Owns spans: rendered text in pieces that know whether they are control or content, and who writes them."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, NamedTuple

from turnscript.core.conversation import Tool
from turnscript.core.losses import Loss, LossKind, UnnamedLoss
from turnscript.engine.escape import Escape

if TYPE_CHECKING:
    from turnscript.engine.layout import Place

CONTROL, TRAINABLE, ITEM = 1, 2, 4
EMPTY, WHITESPACE = "empty", "whitespace"
_WHITE_LINES = re.compile(r"\n\s*\n")
_EMPTY_LINES = re.compile("\n\n+")  # not `\n{2,}`, which takes ten times as long to find
_NO_PLACE = "blank lines and white space at the ends have no place in this format"


class Span(NamedTuple):
    """A piece of rendered text.

    `control`: the format's own literals; content never is. `trainable`: what the model itself would write, its end
    marker included. `item`: position of the item in the conversation, -1 for what belongs to none.
    """

    text: str
    control: bool
    trainable: bool
    item: int


Literal = tuple[str, bool, bool]
"""What stands between two items, or a part of it: text, whether the model writes it, whether the first has it."""


class Glue:
    """The literals between two items of certain kinds: `text` is all of them."""

    __slots__ = ("marks", "parts", "text", "texts")

    def __init__(self, parts: list[Literal]) -> None:
        self.parts = [part for part in parts if part[0]]
        self.texts = [text for text, _, _ in self.parts]
        self.text = "".join(self.texts)
        # The item of a part is that of the text behind the literals, or of the one before.
        self.marks = [(CONTROL | TRAINABLE if model else CONTROL, before) for _, model, before in self.parts]


Run = tuple[Glue, "list[Place]", int]
"""What is known of items in a row that say one text each, two pieces for each: literals and the text behind them.

The literals before the first one, the places of all, and the position of the first. Literals before the others follow
from the places.
"""


class Writer:
    """Collects text and losses while a document is rendered. Content passes through the format's escape.

    Pieces and what is known of them are two flat lists, because most callers want the text alone; `spans` joins them.
    """

    __slots__ = (
        "archive",
        "blank",
        "escape",
        "flattened",
        "ids",
        "item",
        "later",
        "losses",
        "marks",
        "names",
        "pieces",
        "place",
        "tools",
        "trainable",
    )

    def __init__(self, escape: Escape, archive: bool, item: int = -1) -> None:
        self.escape = escape
        self.archive = archive
        self.pieces: list[str] = []
        self.marks: list[int | Run] = []  # of one piece, or of a row of items
        self.losses: list[Loss] = []
        self.later: list[Callable[[], None]] = []  # losses that are looked for when somebody asks
        self.item = item
        self.flattened = False
        self.blank = EMPTY
        self.place = ""
        self.trainable = False
        self.tools: Mapping[str, Tool] = {}
        self.names: Mapping[int, str] = {}
        self.ids: Mapping[int, str] = {}  # as they are written, where a format makes them of names and numbers

    def control(self, text: str) -> None:
        """Write a literal of the format."""
        self.pieces.append(text)
        self.marks.append(self.item * ITEM + (CONTROL | TRAINABLE if self.trainable else CONTROL))

    def content(self, text: str) -> None:
        """Write somebody's text, its tags broken. A format that ends turns with blank lines has no room for them."""
        if self.flattened:
            text = self.flattened_text(text, self.place)
        if text:
            self.pieces.append(self.escape.apply(text))
            self.marks.append(self.item * ITEM + (TRAINABLE if self.trainable else 0))

    def flattened_text(self, text: str, place: str) -> str:
        """Return the text of the item at `place` without blank lines, and book the loss if it had some."""
        flat = flatten(text, self.blank)
        if flat != text:
            self.losses.append(flattening(place))
        return flat

    def generated(self, text: str) -> None:
        """Write what a model wrote, as it wrote it."""
        self.pieces.append(text)
        self.marks.append(self.item * ITEM + TRAINABLE)

    def written(self, text: str) -> None:
        """Write somebody's text that is protected already."""
        self.pieces.append(text)
        self.marks.append(self.item * ITEM)

    def end_with(self, item: int) -> None:
        """Make the last piece one of an item, an empty one if it wrote none: the literals behind it may be its own."""
        mark = self.marks[-1] if self.marks else None  # no literal stands before a turn without an opening
        if mark is None or (isinstance(mark, int) and mark // ITEM != item):
            self.pieces.append("")
            self.marks.append(item * ITEM + CONTROL)

    def copied(self, count: int) -> Writer:
        """Return a writer that goes on behind the first `count` pieces of this one."""
        other = Writer(self.escape, self.archive)
        other.pieces, other.marks = self.pieces[:count], self.marks[: self._count_marks(count)]
        other.flattened, other.blank, other.tools = self.flattened, self.blank, self.tools
        return other

    def all_losses(self) -> list[Loss]:
        """Return everything that was lost."""
        later, self.later = self.later, []
        for report in later:
            report()
        return self.losses

    def lose(self, member: str, kind: LossKind, detail: str) -> None:
        """Report a difference at a member of the current item."""
        self.losses.append(Loss(f"{self.place}{member}", kind, detail))

    def lose_unnamed(self, at: str, keys: Iterable[str], detail: str) -> None:
        """Report members that wait in the `extra` of the current item, or of what is `at` a place in it."""
        self.losses += [UnnamedLoss(f"{self.place}{at}.{key}", "dropped", detail) for key in keys]

    @property
    def text(self) -> str:
        """Return all pieces as one string."""
        return "".join(self.pieces)

    @property
    def spans(self) -> list[Span]:
        """Return the pieces, each with what is known of it."""
        return self.first_spans(len(self.pieces))

    def first_spans(self, count: int) -> list[Span]:
        """Return the first `count` pieces, each with what is known of it."""
        return [
            Span(text, bool(mark & CONTROL), bool(mark & TRAINABLE), mark // ITEM)
            for text, mark in zip(*self.flat(count), strict=True)
        ]

    def flat(self, count: int | None = None) -> tuple[list[str], list[int]]:
        """Return the texts of the spans, and of each its mark: CONTROL, TRAINABLE and its item times ITEM.

        For who has many documents to look at: spans are objects, and these are none.
        """
        texts: list[str] = []
        marks: list[int] = []
        pieces, at = self.pieces if count is None else self.pieces[:count], 0
        for mark in self.marks:
            if at >= len(pieces):
                break
            if isinstance(mark, int):
                texts.append(pieces[at])
                marks.append(mark)
                at += 1
                continue
            glue, places, item = mark
            behind = None
            for own, place in enumerate(places, item):
                glue = glue if behind is None else behind[place]
                before = marks[-1] // ITEM * ITEM if marks else -ITEM
                texts += glue.texts
                for flags, belongs_before in glue.marks:  # a comprehension takes three times as long for so few
                    marks.append(flags + (before if belongs_before else own * ITEM))
                texts.append(pieces[at + 1])
                marks.append(own * ITEM + place.said)
                behind, at = place.behind_text, at + 2
        return texts, marks

    def _count_marks(self, count: int) -> int:
        """Return how many marks the first `count` pieces have."""
        marks = 0
        while count > 0:
            mark = self.marks[marks]
            count -= 1 if isinstance(mark, int) else 2 * len(mark[1])
            marks += 1
        return marks


def flatten(text: str, blank: str = EMPTY) -> str:
    """Return text without blank lines and without white space at its ends (requirements D-G-1, D-G-2).

    `blank`: which lines are blank, those without a character, or those of white space too.
    """
    if "\r" in text:
        text = text.replace("\r\n", "\n").replace("\r", "\n")
    if "\n" in text:  # one character is found many times as fast as two
        text = (_WHITE_LINES if blank == WHITESPACE else _EMPTY_LINES).sub("\n", text)
    return text.strip()


def flattening(place: str) -> Loss:
    """Return what is said of a text at a place that `flatten` has changed."""
    return Loss(place, "approximated", _NO_PLACE)


def text_of_spans(spans: Iterable[Span]) -> str:
    """Return the spans' texts joined."""
    return "".join([span.text for span in spans])
