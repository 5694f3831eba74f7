"""Owns figures about samples: how long they are, how much of them is trained, and where they come from.

It is counted how many samples have each length, so the figures are exact. There are few different lengths: n of them
need samples of n * n / 2 tokens together, so the memory is small for any input.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
from msgspec import Struct, field
from numpy.typing import ArrayLike

QUANTILES = (5, 25, 50, 75, 95, 99)
CONTEXTS = (512, 1024, 2048, 4096, 8192, 16384, 32768, 65536, 131072)
"""Common lengths of a context: how many samples would not fit each of them."""

TENTHS = 10


class Bucket(NamedTuple):
    """Samples of `least` to `most` tokens, how many they are and how many tokens they have together."""

    least: int
    most: int
    samples: int
    tokens: int


class Beyond(NamedTuple):
    """How many samples are longer than a context, and how many tokens those have."""

    context: int
    samples: int
    tokens: int


class Stats(Struct):
    """What is known about samples; add to it as they come.

    `lengths`: how many samples have so many tokens. `shares`: how many have so many tenths of their tokens trained;
    those without any are `untrained`, and are in the first tenth. `documents`: how many there are in the samples; there
    are more of them where windows are packed. `roles`: of the `looked_at` first samples, the tokens of each kind of
    item, and how many of them are trained. `forms` and `rejects` count rows.
    """

    lengths: Counter[int] = field(default_factory=Counter)
    trained: int = 0
    untrained: int = 0
    shares: list[int] = field(default_factory=lambda: [0] * TENTHS)
    documents: int = 0
    straddling: int = 0
    losses: int = 0
    loss_kinds: dict[str, int] = field(default_factory=dict)
    forms: Counter[str] = field(default_factory=Counter)
    looked_at: int = 0
    roles: dict[str, list[int]] = {}
    rejects: Counter[str] = field(default_factory=Counter)

    def add(self, lengths: ArrayLike, trained: ArrayLike) -> None:
        """Add samples: the tokens of each, and how many of them are trained."""
        sizes, marked = np.atleast_1d(np.asarray(lengths, np.int64)), np.atleast_1d(np.asarray(trained, np.int64))
        values, counts = np.unique(sizes, return_counts=True)
        for length, count in zip(values.tolist(), counts.tolist(), strict=True):
            self.lengths[length] += count
        self.trained += int(marked.sum())
        self.untrained += int((marked == 0).sum())
        tenths = np.minimum(marked * TENTHS // np.maximum(sizes, 1), TENTHS - 1)
        for tenth, count in enumerate(np.bincount(tenths, minlength=TENTHS).tolist()):
            self.shares[tenth] += count

    def add_tokens(self, role: str, tokens: int, trained: int) -> None:
        """Add tokens of items of one kind."""
        found = self.roles.setdefault(role, [0, 0])
        found[0] += tokens
        found[1] += trained

    @property
    def samples(self) -> int:
        """Return how many samples there are."""
        return sum(self.lengths.values())

    @property
    def tokens(self) -> int:
        """Return the tokens of all samples."""
        return sum(length * count for length, count in self.lengths.items())

    @property
    def mean(self) -> float:
        """Return the mean of the tokens of a sample."""
        return self.tokens / self.samples if self.samples else 0.0

    @property
    def share(self) -> float:
        """Return the share of all tokens that are trained."""
        return self.trained / self.tokens if self.tokens else 0.0

    @property
    def shortest(self) -> int:
        """Return the tokens of the shortest sample."""
        return min(self.lengths, default=0)

    @property
    def longest(self) -> int:
        """Return the tokens of the longest sample."""
        return max(self.lengths, default=0)

    def quantile(self, percent: float) -> int:
        """Return the length that so many percent of the samples do not exceed."""
        wanted, seen = self.samples * percent / 100, 0
        for length in sorted(self.lengths):
            seen += self.lengths[length]
            if seen >= wanted:
                return length
        return self.longest

    def buckets(self) -> list[Bucket]:
        """Return the lengths, each bucket twice as wide as the one before; no gaps from the shortest to the longest."""
        if not self.lengths:
            return []
        powers = range(self.shortest.bit_length(), self.longest.bit_length() + 1)
        samples, tokens = dict.fromkeys(powers, 0), dict.fromkeys(powers, 0)
        for length, count in self.lengths.items():
            samples[length.bit_length()] += count
            tokens[length.bit_length()] += length * count
        return [Bucket(2**power // 2, 2**power - 1, samples[power], tokens[power]) for power in powers]

    def beyond(self) -> Iterator[Beyond]:
        """Give the contexts that are too short for some samples."""
        for context in CONTEXTS:
            longer = {length: count for length, count in self.lengths.items() if length > context}
            if longer:
                tokens = sum(length * count for length, count in longer.items())
                yield Beyond(context, sum(longer.values()), tokens)

    def facts(self) -> dict[str, Any]:
        """Return all of it, for programs."""
        return {
            "samples": self.samples,
            "documents": self.documents,
            "tokens": self.tokens,
            "trained_tokens": self.trained,
            "trained_share": round(self.share, 6),
            "untrained_samples": self.untrained,
            "straddling_tokens": self.straddling,
            "losses": self.losses,
            "loss_kinds": ranked(self.loss_kinds),
            "length": {
                "shortest": self.shortest,
                "mean": round(self.mean, 3),
                "longest": self.longest,
                **{f"p{percent}": self.quantile(percent) for percent in QUANTILES},
            },
            "histogram": [bucket._asdict() for bucket in self.buckets()],
            "trained_tenths": self.shares,
            "longer_than": [beyond._asdict() for beyond in self.beyond()],
            "forms": ranked(self.forms),
            "looked_at": self.looked_at,
            "roles": {role: dict(zip(("tokens", "trained"), found, strict=True)) for role, found in self.roles.items()},
            "rejects": ranked(self.rejects),
        }


def ranked(counts: Mapping[str, int]) -> dict[str, int]:
    """Return the counts, most frequent first; equal ones by name, so that the same samples give the same bytes."""
    return dict(sorted(counts.items(), key=lambda entry: (-entry[1], entry[0])))
