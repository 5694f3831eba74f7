"""Owns spans: rendered text in pieces that know whether they are control or content, and who writes them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from turnscript.engine.escape import Escape
from turnscript.losses import Loss, LossKind


class Span(NamedTuple):
    """A piece of rendered text.

    `control`: the format's own literals; content never is. `trainable`: what the model itself would write, its end
    marker included. `item`: position of the item in the conversation, -1 for what belongs to none.
    """

    text: str
    control: bool
    trainable: bool
    item: int


class Writer:
    """Collects spans and losses while a document is rendered. Content passes through the format's escape."""

    __slots__ = ("_escape", "archive", "item", "losses", "place", "spans", "trainable")

    def __init__(self, escape: Escape, archive: bool) -> None:
        self._escape = escape.apply
        self.archive = archive
        self.spans: list[Span] = []
        self.losses: list[Loss] = []
        self.item = -1
        self.place = ""
        self.trainable = False

    def control(self, text: str) -> None:
        """Write a literal of the format."""
        self.spans.append(Span(text, True, self.trainable, self.item))

    def content(self, text: str) -> None:
        """Write somebody's text, its tags broken."""
        if text:
            self.spans.append(Span(self._escape(text), False, self.trainable, self.item))

    def lose(self, member: str, kind: LossKind, detail: str) -> None:
        """Report a difference at a member of the current item."""
        self.losses.append(Loss(f"{self.place}{member}", kind, detail))


def text_of_spans(spans: Iterable[Span]) -> str:
    """The spans' texts joined."""
    return "".join([span.text for span in spans])
