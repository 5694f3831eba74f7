"""Owns losses: what a conversion could not carry over exactly, with its place in the source."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Literal

from msgspec import Struct

LossKind = Literal["dropped", "approximated", "moved", "renamed", "invented"]


class Loss(Struct, frozen=True):
    """A difference between what went in and what the target says.

    `path` is the JSON path in the source (`$.messages[2].content[0].is_error`), or the place of an item
    (`items[3]`) when the conversation was built by hand.
    """

    path: str
    kind: LossKind
    detail: str

    def __str__(self) -> str:
        return f"{self.path}: {self.kind}: {self.detail}"


def part_path(at: str, index: int) -> str:
    """The source path of part `index` of the item read from `at`. A path that ends in `content[k]` says that the item's
    parts begin at k."""
    base, bracket, start = at.rpartition(".content[")
    if bracket and start.endswith("]") and start[:-1].isdigit():
        return f"{base}.content[{int(start[:-1]) + index}]"
    return f"{at}.content[{index}]"


def summary(losses: Iterable[Loss]) -> str:
    """One line for people: `3 losses: 2 dropped, 1 moved`; `no losses` when there are none."""
    kinds = Counter(loss.kind for loss in losses)
    total = sum(kinds.values())
    if not total:
        return "no losses"
    parts = ", ".join(f"{count} {kind}" for kind, count in kinds.most_common())
    return f"{total} loss{'es' * (total != 1)}: {parts}"
