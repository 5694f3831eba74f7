"""Owns which samples the outputs get, and in which order, and reading them from the files of the shards.

Samples are numbered through all shards. Neither the order nor which of two equal rows stays depends on how the inputs
were cut. Memory is at most 24 bytes for each sample: digests are sorted in parts that fit, and a shuffle is a sort of
numbers.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from io import FileIO
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from turnscript.datasets.output import Batch
from turnscript.datasets.preparation import Prepared
from turnscript.datasets.shardfiles import (
    CHATS,
    END,
    ENDS,
    IDS,
    INDEX,
    INDEX_FILE,
    WEIGHTS,
    Index,
    Record,
    shard_file,
)

Numbers = NDArray[np.int64]
_WINDOW = 8192
_TOKENS = 1 << 19
"""So many tokens are in memory at once, about: enough for large reads, few enough that the memory is used again."""
_OPENED = 128
_SORTED = 1 << 21
"""So many digests are sorted at once."""
_BLOCK = 1 << 20


class Window(NamedTuple):
    """Some samples in their final order: what the index says of them, and the file of each, by its position."""

    facts: Index
    files: Numbers
    batch: Batch


class Samples:
    """All samples of finished shards."""

    def __init__(self, prepared: Prepared, records: Sequence[Record], out: Path) -> None:
        self._chats = prepared.chats
        self._shards = _Shards(out, records)
        self._names = [file.name for file in prepared.files]
        counts = [record.samples for record in records]
        self._firsts = np.concatenate([[0], np.cumsum(counts, dtype=np.int64)])
        self.count = int(self._firsts[-1])
        # Of the pieces of all shards, behind one another: the file of each, and what of that comes before it.
        self._pieces = np.cumsum([0, *map(len, prepared.shards)], dtype=np.int64)
        self._files = np.array([part.file for parts in prepared.shards for part in parts], dtype=np.int64)
        self._before = np.concatenate([np.zeros(0, dtype=np.int64), *places_before(prepared, records)])

    def close(self) -> None:
        """Close the files."""
        self._shards.close()

    def windows(self, order: Iterator[Numbers]) -> Iterator[Window]:
        """Give samples by their numbers, some at a time."""
        for numbers in order:
            if not len(numbers):
                continue
            runs = self._runs(numbers)
            index = self._read_index(runs, len(numbers))
            ends = np.cumsum(index["tokens"], dtype=np.int64)
            first = 0
            while first < len(numbers):
                before = int(ends[first - 1]) if first else 0
                last = max(int(np.searchsorted(ends, before + _TOKENS, side="right")), first + 1)
                some = self._runs(numbers[first:last])
                yield self._window(some, index[first:last])
                first = last

    def kept(self, folder: Path) -> NDArray[np.bool_]:
        """Return for each sample whether its row is the first of equal ones. `folder`: for temporary files."""
        keep = np.ones(self.count, dtype=np.bool_)
        parts = _Digests(folder, max(-(-self.count // _SORTED), 1))
        for shard, first in enumerate(self._firsts[:-1].tolist()):
            index = self._shards.index(shard)
            begins = np.flatnonzero(index["place"] == 0)
            parts.add(index["digest"][begins], begins + first)
        for digests, numbers in parts:
            order = np.lexsort((digests[:, 1], digests[:, 0]))  # stable: of equal ones the first comes first
            same = (digests[order[1:]] == digests[order[:-1]]).all(axis=1)
            keep[numbers[order[1:][same]]] = False
        for shard, first in enumerate(self._firsts[:-1].tolist()):
            begins = self._shards.index(shard)["place"] == 0
            if len(begins):  # the other samples of a row go with its first
                own = keep[first : first + len(begins)]
                own[:] = own[np.flatnonzero(begins)][np.cumsum(begins) - 1]
        return keep

    def _runs(self, numbers: Numbers) -> list[_Run]:
        """Return neighbours that lie side by side in a shard, read at once."""
        shards = np.searchsorted(self._firsts, numbers, side="right") - 1
        edges = np.flatnonzero((np.diff(numbers) != 1) | (np.diff(shards) != 0)) + 1
        starts = np.concatenate([[0], edges]).tolist()
        ends = [*starts[1:], len(numbers)]
        where = shards[starts]
        local = numbers[starts] - self._firsts[where]
        return [_Run(*run) for run in zip(starts, ends, where.tolist(), local.tolist(), strict=True)]

    def _read_index(self, runs: Sequence[_Run], count: int) -> Index:
        index = np.empty(count, dtype=INDEX)
        for run in sorted(runs, key=_shard_of):
            index[run.start : run.end] = self._shards.read(INDEX_FILE, run.shard, run.first, run.end - run.start)
        return index

    def _window(self, runs: Sequence[_Run], index: Index) -> Window:
        lengths = index["tokens"].astype(np.int64)
        ends = np.cumsum(lengths)
        total = int(ends[-1])
        ids, weights = np.empty(total, dtype=np.uint32), np.empty(total, dtype=np.uint8)
        before, behind, firsts = (ends - lengths).tolist(), ends.tolist(), index["start"].tolist()
        for run in sorted(runs, key=_shard_of):
            start, end, first = before[run.start], behind[run.end - 1], firsts[run.start]
            ids[start:end] = self._shards.read(IDS, run.shard, first, end - start)
            self._shards.read_into(weights[start:end], WEIGHTS, run.shard, first)
        shards = np.repeat([run.shard for run in runs], [run.end - run.start for run in runs])
        pieces = self._pieces[shards] + index["piece"]
        files, numbers, names = (
            self._files[pieces],
            self._before[pieces] + index["number"].astype(np.int64),
            self._names,
        )
        sources = [f"{names[file]}:{number}" for file, number in zip(files.tolist(), numbers.tolist(), strict=True)]
        ones, zeros = np.ones(len(index), dtype=np.int64), np.zeros(len(index), dtype=np.int64)
        return Window(index, files, Batch(ids, weights, lengths, zeros, ones, sources, self._chats_of(runs)))

    def _chats_of(self, runs: Sequence[_Run]) -> list[Callable[[], bytes] | None]:
        """Return what reads the conversation of each sample, in their order."""
        found: list[Callable[[], bytes] | None] = []
        for run in runs if self._chats else ():
            before = min(run.first, 1)
            ends = self._shards.read(ENDS, run.shard, run.first - before, run.end - run.start + before).tolist()
            bounds = pairwise(ends if before else [0, *ends])
            found += [
                partial(self._shards.chat, run.shard, start, end) if start < end else None for start, end in bounds
            ]
        return found


class _Run(NamedTuple):
    """Samples `start` to before `end` of a window, which begin with sample `first` of a shard."""

    start: int
    end: int
    shard: int
    first: int


def _shard_of(run: _Run) -> tuple[int, int]:
    return run.shard, run.first


class _Shards:
    """The files of shards, a bounded number of them open."""

    def __init__(self, out: Path, records: Sequence[Record]) -> None:
        self._out = out
        ids = np.dtype("<u2" if not records or records[0].width == 2 else "<u4")
        self._types: dict[str, np.dtype[Any]] = {IDS: ids, WEIGHTS: np.dtype("u1"), INDEX_FILE: INDEX, ENDS: END}
        self._opened: OrderedDict[tuple[str, int], FileIO] = OrderedDict()

    def read(self, suffix: str, shard: int, first: int, count: int) -> NDArray[Any]:
        """Return some entries of a file of a shard."""
        found: NDArray[Any] = np.empty(count, dtype=self._types[suffix])
        self.read_into(found, suffix, shard, first)
        return found

    def read_into(self, found: NDArray[Any], suffix: str, shard: int, first: int) -> None:
        """Read some entries into an array of the file's type."""
        file = self._file(suffix, shard)
        file.seek(first * found.itemsize)
        read = file.readinto(found.view(np.uint8).data)
        assert read == found.nbytes, f"{suffix} of shard {shard} is shorter than its record says"

    def chat(self, shard: int, start: int, end: int) -> bytes:
        """Return a conversation, by where it is in its file."""
        found = np.empty(end - start, dtype=np.uint8)
        self.read_into(found, CHATS, shard, start)
        return found.tobytes()

    def index(self, shard: int) -> Index:
        """Return all of the index of a shard."""
        return np.fromfile(shard_file(self._out, shard, INDEX_FILE), dtype=INDEX)

    def close(self) -> None:
        while self._opened:
            self._opened.popitem()[1].close()

    def _file(self, suffix: str, shard: int) -> FileIO:
        key = suffix, shard
        file = self._opened.get(key)
        if file is None:
            if len(self._opened) >= _OPENED:
                self._opened.popitem(last=False)[1].close()
            path = shard_file(self._out, shard, suffix)
            file = self._opened[key] = open(path, "rb", buffering=0)  # noqa: SIM115  (closed by close)
        else:
            self._opened.move_to_end(key)
        return file


class _Digests:
    """Digests with the numbers of their samples, in as many parts as it takes to sort each in memory."""

    _TYPE = np.dtype([("digest", "<u8", (2,)), ("number", "<i8")])

    def __init__(self, folder: Path, parts: int) -> None:
        self._paths = [folder / f"digests-{part}" for part in range(parts)]
        for path in self._paths:
            path.write_bytes(b"")

    def add(self, digests: NDArray[np.uint64], numbers: Numbers) -> None:
        entries = np.empty(len(numbers), dtype=self._TYPE)
        entries["digest"], entries["number"] = digests, numbers
        part = digests[:, 0] % np.uint64(len(self._paths))
        entries = entries[np.argsort(part, kind="stable")]
        ends = np.cumsum(np.bincount(part.astype(np.int64), minlength=len(self._paths))).tolist()
        for path, start, end in zip(self._paths, [0, *ends], ends, strict=False):
            if end > start:
                with path.open("ab") as file:
                    file.write(entries[start:end].tobytes())

    def __iter__(self) -> Iterator[tuple[NDArray[np.uint64], Numbers]]:
        for path in self._paths:
            entries = np.fromfile(path, dtype=self._TYPE)
            path.unlink()
            yield entries["digest"], entries["number"]


def in_order(count: int, kept: NDArray[np.bool_] | None) -> Iterator[Numbers]:
    """Give the numbers of all samples that are kept, ascending, some at a time."""
    for first in range(0, count, _WINDOW):
        last = min(first + _WINDOW, count)
        numbers = np.arange(first, last, dtype=np.int64)
        yield numbers if kept is None else numbers[kept[first:last]]


def shuffled(count: int, kept: NDArray[np.bool_] | None, seed: int, epoch: int) -> Iterator[Numbers]:
    """Give the same numbers in an order that depends on the seed and the epoch alone: by a hash of each number.

    The hash gives different numbers different values, so there are no ties. No library's generator is asked: its next
    version may give another order.
    """
    small = np.uint32 if count < 1 << 32 else np.int64
    numbers = np.arange(count, dtype=small) if kept is None else np.flatnonzero(kept).astype(small)
    start = int.from_bytes(hashlib.sha256(f"{seed}:{epoch}".encode()).digest()[:8], "little")
    keys = np.empty(len(numbers), dtype=np.uint64)
    for first in range(0, len(numbers), _BLOCK):
        keys[first : first + _BLOCK] = _mixed(numbers[first : first + _BLOCK].astype(np.uint64) + np.uint64(start))
    order = np.argsort(keys)
    del keys
    for first in range(0, len(order), _WINDOW):
        yield numbers[order[first : first + _WINDOW]].astype(np.int64)


def _mixed(values: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Return a permutation of all 64-bit numbers that looks random (the last step of SplitMix64)."""
    values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return values ^ (values >> np.uint64(31))


def places_before(prepared: Prepared, records: Sequence[Record]) -> list[Numbers]:
    """Return for each piece of each shard how many lines (or other places) of its file come before it."""
    seen = [0] * len(prepared.files)
    before: list[Numbers] = []
    for parts, record in zip(prepared.shards, records, strict=True):
        own: list[int] = []
        for part, piece in zip(parts, record.pieces, strict=True):
            own.append(seen[part.file])
            seen[part.file] += piece.places
        before.append(np.array(own, dtype=np.int64))
    return before
