"""Owns what a finished folder should hold: its inputs read and encoded once more, and of every sample a fingerprint.

Fingerprints take 36 bytes a sample, and 16 more where an output holds conversations, so outputs in any order can be
compared with inputs of any size.
"""

from __future__ import annotations

import hashlib
import os
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from turnscript.datasets.chat_writing import Written
from turnscript.datasets.encoding import Encoder, Sample, Write
from turnscript.datasets.files import read
from turnscript.datasets.form import Example
from turnscript.datasets.preparation import Part, Prepared, encoder_of, forms_of
from turnscript.datasets.problems import Problem
from turnscript.datasets.readings import examples_of
from turnscript.datasets.rowsamples import BATCH_BYTES, BATCH_ROWS, RowSamples

DIGEST = 16
_ENTRY = np.dtype([("file", "<u4"), ("place", "<u4"), ("number", "<u8"), ("tokens", "<u4"), ("digest", f"V{DIGEST}")])
_TOLD = np.dtype([*_ENTRY.descr, ("chat", f"V{DIGEST}")])
_TOKENS = int(_ENTRY.fields["tokens"][1])  # type: ignore[index]
_SOME = 1 << 16


class Source(NamedTuple):
    """A row: its file, by position, and its number there."""

    file: int
    number: int


class Expected(NamedTuple):
    """A row of the inputs, encoded. `size`: its bytes there. `whole`: each example with its sample, before anything was
    cut; empty for a row that is set aside. `samples`: what the outputs should hold of it, `said` and `chats`: what each
    says, and that as messages, where an output holds these.
    """

    source: Source
    size: int
    whole: list[tuple[Example, Sample]]
    samples: list[Sample]
    said: list[Example | None]
    chats: list[Written]


class Inputs:
    """The rows of a job's inputs, read once more, in their order. `write`: as `Encoder.encode` has it."""

    def __init__(self, prepared: Prepared, encoder: Encoder | None = None, write: Write | None = None) -> None:
        self._prepared = prepared
        self.encoder = encoder or encoder_of(prepared.plan)
        self._forms = forms_of(prepared.plan, {file.form for file in prepared.files})
        self._made = RowSamples(self.encoder, prepared.plan, chats=prepared.chats, write=write)
        self.count = self.places = 0

    def rows(self, files: Iterable[int], only: frozenset[Source]) -> Iterator[Expected]:
        """Some rows of some files. The others are read, and not encoded."""
        wanted = set(files)
        seen = [0] * len(self._prepared.files)
        for part in (part for parts in self._prepared.shards for part in parts if part.file in wanted):
            before = seen[part.file]
            for row in self.of_part(part, lambda _, source: source._replace(number=source.number + before) in only):  # noqa: B023
                yield row._replace(source=Source(part.file, before + row.source.number))
            seen[part.file] += self.places

    def of_part(self, part: Part, chosen: Callable[[int, Source], bool]) -> Iterator[Expected]:
        """The rows of a part that are chosen, by how many came before and by their numbers in the part.

        Those that are left out are read, and not encoded. When all are read, `count` says how many there were, and
        `places` how many numbers they have.
        """
        waiting: list[tuple[Source, int, list[Example]]] = []
        size = 0
        found = read(moved(part, self._prepared.folder).piece, limit=self._prepared.plan.row_bytes)
        form = self._forms[self._prepared.files[part.file].form]
        self.count = 0
        for count, raw in enumerate(found):
            self.count = count + 1
            source = Source(part.file, raw.number)
            if not chosen(count, source) or (raw.problem is not None and raw.readings is None):
                continue
            examples = examples_of(form, raw)
            waiting.append((source, len(raw.data), [] if isinstance(examples, Problem) else examples))
            size += len(raw.data)
            if len(waiting) >= BATCH_ROWS or size >= BATCH_BYTES:
                yield from self._encoded(waiting)
                waiting, size = [], 0
        yield from self._encoded(waiting)
        self.places = found.numbers

    def _encoded(self, rows: Sequence[tuple[Source, int, list[Example]]]) -> Iterator[Expected]:
        for (source, size, _), made in zip(rows, self._made.make([examples for *_, examples in rows]), strict=True):
            yield Expected(source, size, made.whole, made.samples, made.said, made.chats)


class Candidate(NamedTuple):
    """One sample that a row should have given: its position among all, its tokens, its fingerprint and that of its
    conversation, which is empty where no output holds any.
    """

    position: int
    tokens: int
    digest: bytes
    chat: bytes


class Fingerprints:
    """What is known of every sample that there should be, in the order of the inputs. `chats`: conversations too."""

    def __init__(self, *, chats: bool = False) -> None:
        self._type = _TOLD if chats else _ENTRY
        self._blocks: list[NDArray[Any]] = []
        self._waiting: list[tuple[int | bytes, ...]] = []
        self.entries: NDArray[Any] = np.empty(0, dtype=self._type)
        self._files: dict[int, tuple[int, memoryview]] = {}
        self._bytes = memoryview(b"")

    def add(self, row: Expected) -> None:
        """Add the samples of a row."""
        for place, sample in enumerate(row.samples):
            digest = fingerprint(sample.ids, sample.weights)
            told = (digest_of(row.chats[place].data),) if row.chats else ()
            self._waiting.append((row.source.file, place, row.source.number, len(sample.ids), digest, *told))
        if len(self._waiting) >= _SOME:
            self._blocks.append(np.array(self._waiting, dtype=self._type))
            self._waiting = []

    def block(self) -> NDArray[Any]:
        """What was added, which is then no longer here."""
        blocks, self._blocks, self._waiting = [*self._blocks, np.array(self._waiting, dtype=self._type)], [], []
        return np.concatenate(blocks)

    def take(self, block: NDArray[Any]) -> None:
        """Take what was added elsewhere, of rows behind all that are here."""
        self._blocks.append(block)

    def finish(self) -> None:
        """Finish once all rows were added."""
        self.entries = self.block()
        files = self.entries["file"]
        for file in np.unique(files).tolist():
            first, last = np.searchsorted(files, [file, file + 1]).tolist()
            self._files[file] = first, np.array(self.entries["number"][first:last], np.uint64).data
        self._bytes = self.entries.view(np.uint8).data

    def of(self, source: Source) -> list[Candidate]:
        """Return the samples of a row."""
        if source.file not in self._files:
            return []
        # One number at a time: an array takes longer to ask for one than to look for many.
        first, numbers = self._files[source.file]
        at = begin = bisect_left(numbers, source.number)
        while at < len(numbers) and numbers[at] == source.number:
            at += 1
        return [self._candidate(first + one) for one in range(begin, at)]

    def _candidate(self, at: int) -> Candidate:
        size = self._type.itemsize
        entry = self._bytes[at * size + _TOKENS : (at + 1) * size].tobytes()
        return Candidate(at, int.from_bytes(entry[:4], "little"), entry[4 : 4 + DIGEST], entry[4 + DIGEST :])


def fingerprint(ids: NDArray[np.uint32], weights: NDArray[np.uint8]) -> bytes:
    """Return a fingerprint: equal for equal tokens with equal weights."""
    # Processors have instructions for this one, which take half as long as any other does.
    found = hashlib.sha256(np.ascontiguousarray(ids, dtype="<u4").data)
    found.update(np.ascontiguousarray(weights).data)
    return found.digest()[:DIGEST]


def digest_of(chat: bytes) -> bytes:
    """Return a digest: equal for equal conversations."""
    return hashlib.blake2b(chat, digest_size=DIGEST).digest()


def moved(part: Part, folder: str) -> Part:
    """Return a part of a file that is named as from another folder, if it is not there as it is named."""
    return replace(part, piece=replace(part.piece, file=located(part.piece.file, folder)))


def located(name: str, folder: str) -> str:
    """Return where a file is that was named in a folder: there, or as if it was named here."""
    there = os.path.join(folder, name)
    return there if os.path.exists(there) else name
