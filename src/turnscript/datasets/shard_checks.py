"""Owns the check of one shard: its rows are encoded once more, and each sample is checked against its conversation.

It is a function of the prepared folder and a number, as the making of a shard is, so shards are checked side by side.
Rows have the numbers that they have in their parts; whoever puts the shards together knows how many came before.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Collection, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

from msgspec import Struct, field
from numpy.typing import NDArray

from turnscript.datasets.chat_checks import chat_faults
from turnscript.datasets.expectation import Expected, Fingerprints, Inputs, Source
from turnscript.datasets.preparation import Prepared, encoder_of
from turnscript.datasets.rowsamples import BATCH_BYTES, unlike_of
from turnscript.datasets.sample_checks import Checker, SampleCounts
from turnscript.datasets.shard import Done, Tell, seldom_collected
from turnscript.datasets.shardfiles import TemplateCounts

MOST = 100
"""So many faults of a shard are kept; all are counted."""
FILES = "files"
_TOGETHER = 1 << 15
"""Rows are looked at together, of so many tokens, and of no more bytes than are encoded together."""


class Fault(Struct, frozen=True):
    """What is wrong with a row. `part`: of the shard; `number`: of the row, in the part."""

    part: int
    number: int
    message: str


class PartSeen(Struct):
    """What was seen of a part: how many numbers its rows have, and a fingerprint of each sample."""

    places: int
    prints: NDArray[Any]


class ShardSeen(Struct):
    """What was seen of a shard. `usable`: rows with samples. `parts`: those of unchanged files, None for the others."""

    rows: int = 0
    usable: int = 0
    parts: list[PartSeen | None] = []
    counts: SampleCounts = field(default_factory=SampleCounts)
    template: TemplateCounts = field(default_factory=TemplateCounts)
    faults: list[Fault] = []
    faulty: int = 0


class ShardChecks:
    """Checks shards of a job: every n-th row of those of its files that are in `files`, by their positions."""

    def __init__(self, prepared: Prepared, files: Collection[int], every: int) -> None:
        self._prepared = prepared
        self._files = files
        self._every = every
        encoder = encoder_of(prepared.plan)
        if sum(part.piece.size for shard in prepared.shards for part in shard) > BATCH_BYTES:
            encoder.tokenizer.load()  # the first that it is given are single probes, which tell of no work to come
        self._checker = Checker(encoder)
        self._inputs = Inputs(prepared, encoder, self._checker.write)

    def check(self, number: int, tell: Tell) -> ShardSeen:
        """Check a shard. `tell` is called now and then."""
        with seldom_collected():
            return self._check(number, tell)

    def _check(self, number: int, tell: Tell) -> ShardSeen:
        checker = self._checker
        seen, before = ShardSeen(), 0
        for at, part in enumerate(self._prepared.shards[number]):
            if part.file not in self._files:
                seen.parts.append(None)
                continue
            prints = Fingerprints(chats=self._prepared.chats)
            waiting: list[Expected] = []
            tokens = size = 0
            for row in self._inputs.of_part(part, self._chosen(before)):
                prints.add(row)
                waiting.append(row)
                tokens += sum(len(sample.ids) for _, sample in row.whole)
                size += row.size
                if tokens >= _TOGETHER or size >= BATCH_BYTES:
                    _look(seen, at, waiting, checker)
                    waiting, tokens, size = [], 0, 0
                    tell(Done(seen.rows))
            _look(seen, at, waiting, checker)
            before += self._inputs.count
            seen.parts.append(PartSeen(self._inputs.places, prints.block()))
        seen.counts = checker.take()
        tell(Done(seen.rows))
        return seen

    def _chosen(self, before: int) -> Callable[[int, Source], bool]:
        return lambda count, _: not (before + count) % self._every


def _look(seen: ShardSeen, part: int, rows: Sequence[Expected], checker: Checker) -> None:
    """Look at some rows of a part together."""
    faults = checker.each([pair for row in rows for pair in row.whole])
    seen.rows += len(rows)
    for row in rows:
        seen.usable += bool(row.samples)
        found = [message for messages in islice(faults, len(row.whole)) for message in messages]
        if row.chats:
            for one, chat in zip(row.said, row.chats, strict=True):
                found += chat_faults(one, chat) if one is not None else ()
        if found:
            seen.faulty += len(found)
            seen.faults += [Fault(part, row.source.number, message) for message in found[: MOST - len(seen.faults)]]
        unlike = unlike_of(row.whole)
        if unlike is not None:
            seen.template.add(part, row.source.number, unlike)


def leave(results: str, name: object, what: object) -> None:
    """Leave in a folder what was seen of a shard, or for workers which files there are to check."""
    (Path(results) / f"{name}.seen").write_bytes(pickle.dumps(what))


def left(results: str, name: object) -> Any:
    """Return what one of our own processes left there."""
    return pickle.loads((Path(results) / f"{name}.seen").read_bytes())
