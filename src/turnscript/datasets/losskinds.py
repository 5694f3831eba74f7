"""Owns kinds of losses: what a format cannot say of many rows is counted by what and where, not told row by row."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping

from turnscript.losses import Loss

MOST = 1000
"""So many kinds are told apart in a shard; what a row has beyond them is counted as one."""
OTHER = "others, of too many kinds to tell apart"
_INDEX = re.compile(r"\[\d+\]")


def kind_of(loss: Loss) -> str:
    """A loss as it is counted: `$.messages[].tool_calls[].id: dropped: this format has no place for it`."""
    return f"{_INDEX.sub('[]', loss.path)}: {loss.kind}: {loss.detail}"


def count_losses(counts: Counter[str], losses: Iterable[Loss]) -> None:
    """Count losses by kind. What somebody else's row says can be in a kind, so there is a limit to them."""
    for loss in losses:
        kind = kind_of(loss)
        counts[kind if kind in counts or len(counts) < MOST else OTHER] += 1


def loss_lines(counts: Mapping[str, int], most: int = 8) -> Iterator[str]:
    """The kinds for people, the most frequent first, and how many more there are."""
    for kind, count in Counter(counts).most_common(most):
        yield f"  {count:,} x {kind}"
    if len(counts) > most:
        yield f"  and {len(counts) - most} more kinds, which manifest.json has"
