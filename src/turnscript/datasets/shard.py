"""Owns the work on one shard: its rows as samples in files, every row in exactly one place.

It is a function of the prepared plan and a number. It needs nothing else and changes nothing else, so any number of
shards may run at once, on any number of machines that share the folder.
"""

from __future__ import annotations

import base64
import contextlib
import gc
import hashlib
import os
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from turnscript.core.errors import InvalidInput
from turnscript.datasets.encoding import Encoder, Sample
from turnscript.datasets.files import read
from turnscript.datasets.files.rowbytes import Rows
from turnscript.datasets.form import Example, Form
from turnscript.datasets.fullness import written_in
from turnscript.datasets.losskinds import count_losses, summed
from turnscript.datasets.ordercheck import OWN_WORDS, SHOWN_ANEW, Changes, has_tools, order_warnings, shown_anew
from turnscript.datasets.plan import STOP, TURNS, Plan
from turnscript.datasets.preparation import Part, Prepared, encoder_of, forms_of, load_prepared
from turnscript.datasets.problems import Problem
from turnscript.datasets.readings import examples_of
from turnscript.datasets.rows import RawRow
from turnscript.datasets.rowsamples import BATCH_BYTES, BATCH_ROWS, Made, RowSamples, unlike_of
from turnscript.datasets.shardfiles import (
    INDEX,
    Cuts,
    Index,
    PieceCounts,
    Record,
    ShardWriter,
    TemplateCounts,
    find_record,
)

_BATCH_TOKENS = 1 << 20
"""So many tokens are kept until they are written, about: more than a batch of rows has, unless turns are expanded."""

_UNWATCHED = 200_000
"""So many objects are made, and not freed, between two looks of the garbage collector: more than a batch has."""


class Done(NamedTuple):
    """How far a shard is: rows read, how much of its pieces that is, in their sizes, and rows that were set aside."""

    rows: int = 0
    bytes: int = 0
    rejects: int = 0


Tell = Callable[[Done], None]


class Stopped(InvalidInput):
    """A row cannot be used, and the plan is to stop then. `file` and `number`: where it is; `reason`: the code."""

    code = "bad_row"

    def __init__(self, file: str, number: int, problem: Problem) -> None:
        where = f"{file}, row {number}" + (f", {problem.pointer}" if problem.pointer else "")
        super().__init__(f"{where}: {problem.message} ({problem.code}); mend the row, or set bad rows aside")
        self.file = file
        self.number = number
        self.problem = problem

    def __reduce__(self) -> tuple[object, ...]:
        return Stopped, (self.file, self.number, self.problem)


class Reject(msgspec.Struct):
    """A row that was set aside, as it stands in `rejects.jsonl`. A row that is not UTF-8 is there in base64 too."""

    file: str
    line: int
    byte: int
    sha256: str
    code: str
    message: str
    pointer: str
    row: str
    row_base64: str | msgspec.UnsetType = msgspec.UNSET


class Aside(msgspec.Struct):
    """The same before anybody knows how many lines come before the piece."""

    piece: int
    reject: Reject


def run_shard(prepared: Prepared, out: str | os.PathLike[str], number: int, tell: Tell | None = None) -> Record:
    """Make the files of a shard, unless they are there. `tell` is called now and then.

    Raises Stopped for the first bad row, if that is the plan.
    """
    key = prepared.shard_key(number)
    found = find_record(Path(out), number, key, chats=prepared.chats)
    if found is not None:
        return found
    with written_in(out), ShardWriter(Path(out), number, prepared.width, chats=prepared.chats) as writer:
        work = _Work(prepared, number, writer, tell)
        with seldom_collected():
            work.run()
        record = Record(
            key=key,
            number=number,
            width=prepared.width,
            files={},
            pieces=work.pieces,
            rejected=dict(sorted(work.rejected.items())),
            losses=summed([work.losses]),
            chat_losses=summed([work.chat_losses]),
            warnings=dict(sorted(work.warnings.items())),
            cuts=work.cuts,
            template=work.template,
        )
        return writer.finish(record)


@contextlib.contextmanager
def seldom_collected() -> Iterator[None]:
    """Let the garbage collector look seldom. What a batch makes lives as long as the batch and refers to nothing that
    refers to it, so looking at it again and again finds nothing, and takes a tenth of the time.
    """
    before = gc.get_threshold()
    if before[0]:
        gc.set_threshold(max(before[0], _UNWATCHED), *before[1:])
    try:
        yield
    finally:
        gc.set_threshold(*before)


def run_shard_in(out: str, number: int, tell: Tell | None = None) -> Record:
    """Make the files of one shard of a folder that is prepared, unless they are there: what a worker does, anywhere.

    `number`: from 0 up to the number of shards. `tell` is called now and then. Raises InvalidInput for a folder that
    is not prepared, and for a shard that it does not have; Stopped for the first bad row, if that is the plan.
    """
    prepared = load_prepared(out)
    count = len(prepared.shards)
    if not 0 <= number < count:
        message = f"{out}: there is no shard {number}: the folder has {count}, counted from 0"
        raise InvalidInput(message, expected=f"a number from 0 to {count - 1}", got=str(number))
    return run_shard(prepared, out, number, tell)


class _Row(msgspec.Struct, gc=False):
    """A row that waits to be encoded: its examples, or its problem."""

    piece: int
    raw: RawRow
    examples: list[Example]
    problem: Problem | None


class _Work:
    """The work on a shard, row by row."""

    def __init__(self, prepared: Prepared, number: int, writer: ShardWriter, tell: Tell | None) -> None:
        plan = prepared.plan
        forms = tuple(sorted({file.form for file in prepared.files}))
        self._encoder, self._forms = _tools(prepared.row_key, msgspec.json.encode(plan), forms)
        self._prepared = prepared
        self._parts = prepared.shards[number]
        self._writer = writer
        self._tell = tell
        self._samples = RowSamples(self._encoder, plan, chats=prepared.chats)
        # Where each turn has a sample that ends with it, none is shown in another way than a prompt leads to.
        format_ = self._encoder.format
        self._changes = Changes.of(format_, bare_calls=plan.bare_calls) if plan.expand != TURNS else None
        self._stop = plan.on_bad == STOP
        self._waiting: list[_Row] = []
        self._bytes = 0
        self._before = 0  # the sizes of the pieces that are read
        self._piece = 0  # and that of the one that is being read
        self._rows: Rows | None = None
        self._done = Done()
        self.pieces = [PieceCounts() for _ in self._parts]
        self.rejected: Counter[str] = Counter()
        self.losses: Counter[str] = Counter()
        self.chat_losses: Counter[str] = Counter()
        self.warnings: Counter[str] = Counter()
        self.cuts = Cuts()
        self.template = TemplateCounts()

    def run(self) -> None:
        """Read all pieces to their ends."""
        for piece, part in enumerate(self._parts):
            self._read(piece, part, self._forms[self._prepared.files[part.file].form])
        self._flush()

    def _read(self, piece: int, part: Part, form: Form) -> None:
        rows = read(part.piece, limit=self._prepared.plan.row_bytes)
        self._rows, self._piece = rows, part.piece.size
        waiting, count = self._waiting, 0
        for raw in rows:
            count += 1
            found = examples_of(form, raw)
            examples, problem = ([], found) if isinstance(found, Problem) else (found, None)
            waiting.append(_Row(piece, raw, examples, problem))
            self._bytes += len(raw.data)
            if len(waiting) >= BATCH_ROWS or self._bytes >= BATCH_BYTES:
                self._flush()
        self.pieces[piece].rows = count
        self.pieces[piece].places = rows.numbers
        self._rows = None
        self._before += part.piece.size

    def _flush(self) -> None:
        """Encode what waits, and write it."""
        if not self._waiting:
            return
        batch = _Batch()
        made = self._samples.make([row.examples for row in self._waiting])
        for row, one in zip(self._waiting, made, strict=True):
            problem = row.problem or one.problem
            if problem is not None:
                self._set_aside(row, problem)
                continue
            self._take(row, one, batch)
            if batch.tokens >= _BATCH_TOKENS:
                self._write(batch)
                batch = _Batch()
        self._write(batch)
        taken = self._before + (min(self._rows.taken, self._piece) if self._rows is not None else 0)
        self._done = Done(self._done.rows + len(self._waiting), taken, sum(self.rejected.values()))
        self._waiting.clear()
        self._bytes = 0
        if self._tell is not None:
            self._tell(self._done)

    def _take(self, row: _Row, made: Made, batch: _Batch) -> None:
        """Put a row's samples into the batch, and count what there is to count."""
        assert made.samples, "a form gave no examples for a row"
        for cut in made.cuts:
            self.cuts.add(cut)
        for sample in made.samples:
            if sample.losses:
                count_losses(self.losses, sample.losses)
        for chat in made.chats:
            self._writer.tell(chat.data)
            if chat.losses:
                count_losses(self.chat_losses, chat.losses)
        unlike = unlike_of(made.whole)
        if unlike is not None:
            self.template.add(row.piece, row.raw.number, unlike)
        warnings = {warning for example in row.examples for warning in self._warnings(example)}
        if warnings:
            self.warnings.update(warnings)
        batch.add(row.piece, row.raw.number, made.samples, made.digest)

    def _warnings(self, example: Example) -> Iterator[str]:
        """Return what is unusual in an example. Who only speaks does nothing out of order."""
        if example.spoken is not None:
            return
        request = example.request
        yield from order_warnings(request.items)
        if self._changes is not None and shown_anew(request.items, self._changes):
            yield SHOWN_ANEW
        if self._encoder.format.template is None and has_tools(request):
            yield OWN_WORDS

    def _write(self, batch: _Batch) -> None:
        self._writer.add(batch.ids, batch.weights, batch.index())

    def _set_aside(self, row: _Row, problem: Problem) -> None:
        file = self._prepared.files[self._parts[row.piece].file].name
        if self._stop:
            raise Stopped(file, self._true_number(row), problem)
        self.rejected[problem.code] += 1
        self.pieces[row.piece].rejected += 1
        reject = reject_of(file, row.raw, problem)
        self._writer.reject(msgspec.json.encode(Aside(row.piece, reject)) + b"\n")

    def _true_number(self, row: _Row) -> int:
        """Return the row's number in its file: the numbers of the pieces before must be counted for that."""
        part = self._parts[row.piece]
        before = 0
        for other in (one for shard in self._prepared.shards for one in shard):
            if other == part:
                break
            if other.file == part.file:
                rows = read(other.piece, limit=self._prepared.plan.row_bytes)
                for _ in rows:
                    pass
                before += rows.numbers
        return before + row.raw.number


class _Batch:
    """Samples on their way to the files."""

    def __init__(self) -> None:
        self.ids: list[NDArray[np.uint32]] = []
        self.weights: list[NDArray[np.uint8]] = []
        self._facts: list[tuple[int, ...]] = []
        self._digests: list[bytes] = []
        self.tokens = 0

    def add(self, piece: int, number: int, samples: Sequence[Sample], digest: bytes) -> None:
        """Add the samples of a row. `digest`: what it is compared by."""
        for place, sample in enumerate(samples):
            self.tokens += len(sample.ids)
            self.ids.append(sample.ids)
            self.weights.append(sample.weights)
            self._facts.append(
                (len(sample.ids), sample.trained, sample.straddling, len(sample.losses), piece, place, number)
            )
            self._digests.append(digest)

    def index(self) -> Index:
        """Return what the index says of them. A column at a time: a record at a time takes five times as long."""
        index = np.zeros(len(self._facts), dtype=INDEX)
        for name, values in zip(_FACTS, zip(*self._facts, strict=True), strict=False):
            index[name] = values
        index["digest"] = np.frombuffer(b"".join(self._digests), "<u8").reshape(-1, 2)
        return index


_FACTS = ("tokens", "trained", "straddling", "losses", "piece", "place", "number")


def reject_of(file: str, raw: RawRow, problem: Problem) -> Reject:
    """Return a row and why it was set aside."""
    reject = Reject(
        file=os.fsencode(file).decode("utf-8", "replace"),
        line=raw.number,
        byte=raw.byte,
        sha256=hashlib.sha256(raw.data).hexdigest(),
        code=problem.code,
        message=problem.message,
        pointer=problem.pointer,
        row=raw.data.decode("utf-8", "replace"),
    )
    if reject.row.encode() != raw.data:
        reject.row_base64 = base64.b64encode(raw.data).decode()
    return reject


@lru_cache(maxsize=1)
def _tools(_row_key: str, plan: bytes, forms: tuple[str, ...]) -> tuple[Encoder, dict[str, Form]]:
    """Return what all shards of a job need. Making it takes longer than a small shard does."""
    decoded = msgspec.json.decode(plan, type=Plan)
    return encoder_of(decoded), forms_of(decoded, forms)
