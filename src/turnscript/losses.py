"""Owns losses: what a conversion could not carry over exactly, and the value it gave beside them."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable
from typing import Any, Literal

import msgspec
from msgspec import Struct

from turnscript.errors import InvalidConversation

LossKind = Literal["dropped", "approximated", "moved", "renamed", "invented"]

_encode = msgspec.json.Encoder().encode


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


class Rendered:
    """What a render or a conversion gave: the payload and the `losses` on the way there.

    `data` is the payload as bytes (JSON for an API, UTF-8 text for a format), `value` the same as a dict or str.
    Both are made when first asked for.
    """

    __slots__ = ("_data", "_payload", "losses")

    def __init__(self, payload: dict[str, Any] | str, losses: list[Loss]) -> None:
        self._payload = payload
        self._data: bytes | None = None
        self.losses = losses

    @property
    def data(self) -> bytes:
        """The payload as bytes. Raises InvalidConversation where a text holds half of a surrogate pair."""
        if self._data is None:
            try:
                self._data = self._payload.encode() if isinstance(self._payload, str) else _encode(self._payload)
            except UnicodeEncodeError as error:
                message = "a text of the conversation holds half of a surrogate pair, which UTF-8 cannot carry"
                raise InvalidConversation(message, got=ascii(error.object[error.start : error.end])) from None
        return self._data

    @property
    def value(self) -> dict[str, Any] | str:
        """The payload as a dict (an API body) or a str (a transcript or prompt)."""
        if isinstance(self._payload, str):
            return self._payload
        value: dict[str, Any] = json.loads(self.data)
        return value

    def __repr__(self) -> str:
        return f"Rendered({len(self.data)} bytes, {summary(self.losses)})"


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
