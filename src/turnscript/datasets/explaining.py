"""Owns the explanation of a sample: each token with its bytes, its weight, and the item that it is from."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from turnscript.core.conversation import Item
from turnscript.datasets.drafts import Draft
from turnscript.datasets.encoding_ids import Plan
from turnscript.datasets.encoding_text import Flat
from turnscript.datasets.problems import BadRow
from turnscript.datasets.tokenizer import Tokenizer
from turnscript.engine.spans import CONTROL, ITEM


class Token(NamedTuple):
    """One token of a sample.

    `text`: its bytes, which may be a piece of a character. `weight`: as in the sample. `kind`: that of its item; `end`
    for the token behind a document, empty for what belongs to no item. `item`: the item's position, -1 for none.
    `control`: it begins in a literal of the format. `straddles`: it lies across a border of what is trained.
    """

    text: bytes
    id: int
    weight: int
    kind: str
    item: int
    control: bool
    straddles: bool


def explained(
    draft: Draft, flat: Flat, tokenizer: Tokenizer, items: Sequence[Item], plan: Plan | None, end: int | None
) -> list[Token]:
    """Return the tokens of one draft, in order."""
    ids = [int(one) for one in flat.ids]
    count = len(ids) - (end is not None)
    texts = _texts(draft, ids[:count], tokenizer, plan)
    bounds = np.cumsum([0, *map(len, texts)])
    straddles = _straddling(bounds, np.array(draft.starts[1:], np.int64))
    tokens = []
    for at, (text, mark) in enumerate(zip(texts, _marks(draft, bounds[:-1]), strict=True)):
        item = mark // ITEM
        kind = items[item].kind if item >= 0 else ""
        tokens.append(Token(text, ids[at], int(flat.weights[at]), kind, item, bool(mark & CONTROL), straddles[at]))
    if end is not None:
        tokens.append(Token(b"", end, int(flat.weights[count]), "end", -1, True, False))
    return tokens


def _marks(draft: Draft, starts: NDArray[np.int64]) -> list[int]:
    """Return the mark of the piece that each token begins in."""
    ends = np.cumsum([len(text.encode()) for text in draft.texts])
    found = np.minimum(np.searchsorted(ends, starts, "right"), len(draft.marks) - 1)
    return [draft.marks[piece] for piece in found.tolist()]


def _straddling(bounds: NDArray[np.int64], borders: NDArray[np.int64]) -> list[bool]:
    """Return whether a border lies inside each token, neither at its beginning nor at its end. `borders` rise."""
    to_left = np.searchsorted(borders, bounds[:-1], "right")
    before_end = np.searchsorted(borders, bounds[1:], "left")
    inside: list[bool] = (before_end > to_left).tolist()
    return inside


def _texts(draft: Draft, ids: Sequence[int], tokenizer: Tokenizer, plan: Plan | None) -> list[bytes]:
    """Return the bytes of each token."""
    if plan is None:
        return _cut(draft.text, ids, tokenizer)
    literals = {number: literal.encode() for literal, number in tokenizer.controls.items()}
    found: list[bytes] = []
    encoded = tokenizer.encode(plan.texts)
    for place in plan.order:
        found += [literals[~place]] if place < 0 else _cut(plan.texts[place], encoded[place], tokenizer)
    return found


def _cut(text: str, ids: Sequence[int], tokenizer: Tokenizer) -> list[bytes]:
    data = text.encode()
    try:
        ends = [0, *tokenizer.ends(text, ids).tolist()]
    except BadRow:
        return [tokenizer.decode([one]) for one in ids]
    return [data[start:end] for start, end in itertools.pairwise(ends)]
