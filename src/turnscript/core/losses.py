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


class UnnamedLoss(Loss, frozen=True, eq=False):
    """A loss of what waits in an `extra`, told by whoever renders. The model may call another member the same; once
    the path is in the words of the source, it is a plain `Loss`. To who compares or shows it, it is one before."""

    def _plain(self) -> Loss:
        return Loss(self.path, self.kind, self.detail)

    def __eq__(self, other: object) -> bool:
        return self._plain() == (other._plain() if isinstance(other, UnnamedLoss) else other)

    def __hash__(self) -> int:
        return hash(self._plain())

    def __repr__(self) -> str:
        return repr(self._plain())


def part_path(at: str, index: int) -> str:
    """The source path of part `index` of the item read from `at`. A path that ends in `content[k]` says that the item's
    parts begin at k; a block of a top-level `system` is an item and its only part at once. `PARTS` names the roots
    below which a list of parts is called otherwise."""
    if at.startswith("$.system["):
        return at
    name = next((name for root, name in PARTS.items() if at.startswith(root)), "content")
    base, bracket, start = at.rpartition(f".{name}[")
    if bracket and start.endswith("]") and start[:-1].isdigit():
        return f"{base}.{name}[{int(start[:-1]) + index}]"
    return f"{at}.{name}[{index}]"


PARTS = {"$.contents[": "parts", "$.systemInstruction": "parts", "$.candidates[": "parts"}
"""What the list of an item's parts is called where that is not `content`, by what the item's path begins with."""


class Indexed(dict[int, str]):
    """`$.messages[0]`, `$.messages[1]`, ... by index. Kept, because every item of every body carries such a path."""

    def __init__(self, before: str) -> None:
        self.before = before

    def __missing__(self, index: int) -> str:
        path = f"{self.before}[{index}]"
        if index < _KEPT:
            self[index] = path
        return path


_KEPT = 4096


def summary(losses: Iterable[Loss]) -> str:
    """One line for people: `3 losses: 2 dropped, 1 moved`; `no losses` when there are none."""
    kinds = Counter(loss.kind for loss in losses)
    total = sum(kinds.values())
    if not total:
        return "no losses"
    parts = ", ".join(f"{count} {kind}" for kind, count in kinds.most_common())
    return f"{total} loss{'es' * (total != 1)}: {parts}"
