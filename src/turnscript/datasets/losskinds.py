"""Owns kinds of losses: what a format cannot say of many rows is counted by what and where, not told row by row."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache

from turnscript.core.losses import Loss

MOST = 1000
"""So many kinds are told apart, the first by their names; all others are counted as one."""
OTHER = "others, of too many kinds to tell apart"
_INDEX = re.compile(r"\[\d+\]")
_LINE = re.compile(r"^line \d+: ")


def kind_of(loss: Loss) -> str:
    """Return a loss as it is counted: `$.messages[].tool_calls[].id: dropped: this format has no place for it`."""
    return _kind(loss.path, loss.kind, loss.detail)


@lru_cache(maxsize=4096)
def _kind(path: str, kind: str, detail: str) -> str:
    """Return a kind as `kind_of` does. Rows of a file lose the same at the same places, so most kinds are known."""
    path = path if path[:1] == "$" else _LINE.sub("", path)
    return f"{_INDEX.sub('[]', path)}: {kind}: {detail}"


def count_losses(counts: Counter[str], losses: Iterable[Loss]) -> None:
    """Count losses by kind. What somebody else's row says can be in a kind, so there is a limit to them."""
    for loss in losses:
        counts[_kind(loss.path, loss.kind, loss.detail)] += 1
    if len(counts) > 2 * MOST:
        limit(counts)


def limit(counts: Counter[str]) -> None:
    """Keep the kinds that are told apart, the same ones however rows are cut into shards.

    What is among the first by name of all kinds is among the first of each shard that has it, and of each part of one.
    """
    for kind in sorted(counts.keys() - {OTHER})[MOST:]:
        counts[OTHER] += counts.pop(kind)


def summed(shards: Iterable[Mapping[str, int]]) -> dict[str, int]:
    """Return the counts of several shards, or of one, in the order of the names, so that equal ones are equal bytes."""
    total: Counter[str] = Counter()
    for counts in shards:
        total.update(counts)
        limit(total)
    return dict(sorted(total.items()))


def loss_lines(counts: Mapping[str, int], most: int = 8) -> Iterator[str]:
    """Give the kinds for people, the most frequent first, and how many more there are."""
    for kind, count in Counter(counts).most_common(most):
        yield f"  {count:,} x {kind}"
    if len(counts) > most:
        yield f"  and {len(counts) - most} more kinds, which manifest.json has"
