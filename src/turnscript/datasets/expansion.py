"""Owns the expansion of a conversation: each turn of the model that is trained becomes the end of a sample of its own.

That is for formats that show a turn in another way once the conversation has gone on, as those do that leave out past
thoughts. Each sample ends as a prompt and its answer do, and what the samples before it train is only read in it, so
nothing is trained twice.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

from msgspec.structs import replace

from turnscript.core.conversation import Item
from turnscript.core.errors import TurnscriptError
from turnscript.datasets.encoding import Encoder
from turnscript.datasets.form import Example
from turnscript.datasets.problems import DEFECTS, Code
from turnscript.datasets.train import MODEL

UNTRAINED = frozenset({Code.NO_TRAINED_TOKEN, Code.EMPTY})
"""What a turn may be found to be when it is the last one, and no other is said to be: then it has no sample."""


class Turn(NamedTuple):
    """A stretch of a conversation that is trained: from behind the turn before to before `end`."""

    start: int
    end: int
    number: int
    """Of the turn, counted from 1 through all of the model's."""


def turns_of(encoder: Encoder, example: Example) -> list[Turn]:
    """Return the stretches of an example in which something is trained; none of a plain text, or an unclear one."""
    items = example.request.items
    if example.is_document or not items:
        return []
    try:
        counts = encoder.counts(example)
    except (TurnscriptError, *DEFECTS):
        return []  # encoding it says what is wrong
    ends = [*turn_ends(items), len(items)]
    stretches = enumerate(zip([0, *ends], ends, strict=False), 1)
    return [Turn(start, end, number) for number, (start, end) in stretches if any(counts[start:end])]


def turn_ends(items: Sequence[Item]) -> list[int]:
    """Return behind which items a turn of the model ends, but the last."""
    return [at for at, (one, behind) in enumerate(pairwise(items), 1) if one.kind in MODEL and behind.kind not in MODEL]


def beginning(example: Example, end: int) -> Example:
    """Return an example up to an item."""
    request = example.request
    shorter = replace(request, conversation=replace(request.conversation, items=request.conversation.items[:end]))
    return example.but(shorter, weights={at: weight for at, weight in example.weights.items() if at < end})


def expanded(example: Example, turns: Sequence[Turn], forgotten: frozenset[str] = frozenset()) -> Iterator[Example]:
    """Give an example for each of its turns; the example itself if it has none.

    `forgotten`: the kinds of items that the format shows in the turn where the model writes them, and not afterwards.
    """
    if not turns:
        yield example
    for turn in turns:
        label = ", ".join(filter(None, [example.label, f"turn {turn.number}"]))
        context = example.context | frozenset(range(turn.start))
        part = replace(beginning(example, turn.end), context=context, label=label)
        items = part.request.items
        kept = [at for at, item in enumerate(items) if at >= turn.start or item.kind not in forgotten]
        yield part if len(kept) == len(items) else _only(part, kept)


def _only(example: Example, kept: Sequence[int]) -> Example:
    """Return an example without some of its items."""
    request = example.request
    items = [request.items[at] for at in kept]
    return example.but(
        replace(request, conversation=replace(request.conversation, items=items)),
        weights={to: example.weights[at] for to, at in enumerate(kept) if at in example.weights},
        context=frozenset(to for to, at in enumerate(kept) if at in example.context),
    )
