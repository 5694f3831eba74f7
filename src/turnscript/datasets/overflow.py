"""Owns what happens to a sample that has more tokens than it may.

    reject      its row is set aside
    drop-turns  its last turns are left out, until it fits: what is left is what a model would see so far; of turns that
                have samples of their own, those that are too long have none
    cut         its last tokens are left out
    split       it becomes several samples; those in which nothing is trained are left out

Nothing of this happens unless the plan asks for it, and all of it is counted.
"""

from __future__ import annotations

from typing import NamedTuple

from msgspec.structs import replace

from turnscript.datasets.encoding import Encoder, Sample
from turnscript.datasets.expansion import beginning, turn_ends
from turnscript.datasets.form import Example
from turnscript.datasets.plan import CUT, DROP_TURNS, SPLIT
from turnscript.datasets.problems import Code, Problem
from turnscript.datasets.shardfiles import Cuts


class Fitted(NamedTuple):
    """Samples that fit, at least one, and what that took. `example`: what they say; None for parts of one."""

    samples: list[Sample]
    cuts: Cuts
    example: Example | None = None


class Overflow:
    """Makes samples fit."""

    def __init__(self, encoder: Encoder, policy: str, limit: int) -> None:
        self._encoder = encoder
        self._policy = policy
        self._limit = limit

    def fit(self, example: Example, sample: Sample, *, turn: bool = False) -> Fitted | Problem:
        """Return what becomes of an example whose sample is too long. `turn`: nothing but its last turn is trained."""
        if self._policy == CUT:
            return self._cut(sample)
        if self._policy == SPLIT:
            return self._split(sample)
        if self._policy == DROP_TURNS:
            return self._nothing_left(sample) if turn else self._drop_turns(example, sample)
        count, limit = len(sample.ids), self._limit
        message = f"it has {count} tokens, and {limit} are allowed; allow more, or choose what to do with long rows"
        return Problem(Code.TOO_LONG, message)

    def _cut(self, sample: Sample) -> Fitted | Problem:
        first = _slice(sample, 0, self._limit)
        if not first.trained:
            return self._nothing_left(sample)
        return Fitted([first], Cuts(cut=1, tokens=len(sample.ids) - self._limit))

    def _split(self, sample: Sample) -> Fitted | Problem:
        starts = range(0, len(sample.ids), self._limit)
        pieces = [_slice(sample, start, start + self._limit) for start in starts]
        kept = [piece for piece in pieces if piece.trained]
        if not kept:
            return self._nothing_left(sample)
        # What is known of the sample as a whole is counted once.
        kept[1:] = [replace(piece, straddling=0, losses=()) for piece in kept[1:]]
        return Fitted(kept, Cuts(split=1, tokens=sum(len(piece.ids) for piece in pieces if not piece.trained)))

    def _drop_turns(self, example: Example, sample: Sample) -> Fitted | Problem:
        """Return the longest beginning that ends with a turn of the model and fits."""
        ends = turn_ends(example.request.items) if not example.is_document else []
        fitting: tuple[Sample, Example] | None = None
        low, high = 0, len(ends)
        while low < high:  # more turns are never fewer tokens
            middle = (low + high) // 2
            part = beginning(example, ends[middle])
            found = self._encoder.encode([part])[0]
            if isinstance(found, Problem):
                low = middle + 1  # nothing is trained so early
            elif len(found.ids) <= self._limit:
                low, fitting = middle + 1, (found, part)
            else:
                high = middle
        if fitting is None:
            return self._nothing_left(sample)
        shorter, part = fitting
        return Fitted([shorter], Cuts(dropped_turns=1, tokens=len(sample.ids) - len(shorter.ids)), part)

    def _nothing_left(self, sample: Sample) -> Problem:
        message = (
            f"it has {len(sample.ids)} tokens, {self._limit} are allowed, and nothing that {self._policy!r} would "
            "leave of it is trained; allow more tokens"
        )
        return Problem(Code.TOO_LONG, message)


def _slice(sample: Sample, start: int, end: int) -> Sample:
    weights = sample.weights[start:end]
    return replace(sample, ids=sample.ids[start:end], weights=weights, trained=int((weights > 0).sum()))
