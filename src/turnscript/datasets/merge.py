"""Owns the merge: finished shards become the outputs, in the final order, and the manifest says that they are whole.

Everything is written in a folder of its own and moved at the very end. A merge that is killed is done again from the
shards; one that is done is not done again.
"""

from __future__ import annotations

import os
import shutil
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import IO

import msgspec
import numpy as np
from numpy.typing import NDArray

from turnscript.core.errors import Conflict, InvalidInput
from turnscript.datasets.files import sha256
from turnscript.datasets.form_registry import get_form
from turnscript.datasets.fullness import written_in
from turnscript.datasets.losskinds import summed
from turnscript.datasets.manifest import file_facts, finished, manifest_of, withdraw, write_manifest
from turnscript.datasets.ordercheck import MOST_TRAINED, TRAINED_WHOLE
from turnscript.datasets.output import Batch, OutputFacts, OutputWriter
from turnscript.datasets.output_registry import get_output
from turnscript.datasets.packing import pack
from turnscript.datasets.packingnames import read_packing
from turnscript.datasets.plan import AUTO, EXACT, Plan, names
from turnscript.datasets.plan import REJECTS_FILE as REJECTS_FILE
from turnscript.datasets.preparation import Prepared, load_prepared
from turnscript.datasets.report import FileReport, Report, TemplateReport
from turnscript.datasets.sequence import Numbers, Samples, Window, in_order, places_before, shuffled
from turnscript.datasets.shard import Aside
from turnscript.datasets.shardfiles import (
    FIRST_UNLIKE,
    FOLDER,
    REJECTS,
    STAGING,
    Record,
    find_record,
    remove_shards,
    shard_file,
    sync_folder,
    unfinished,
)
from turnscript.datasets.train import parse_train

_LOCK = ".lock"
_decode_aside = msgspec.json.Decoder(Aside).decode
_encode = msgspec.json.Encoder().encode

Tell = Callable[[int], None]


def merge(out: str | os.PathLike[str], *, keep: bool = False, again: bool = False, tell: Tell | None = None) -> Report:
    """Make the outputs of a folder whose shards are finished. `keep`: leave the shards there, for another merge.

    `again`: also if they are there already. `tell` is called with the documents that are done. Raises InvalidInput
    naming the shards that are missing.
    """
    folder = Path(out)
    prepared = load_prepared(folder)
    with written_in(folder), _alone(folder):
        done = None if again else finished(folder, prepared.key)
        if done is None:
            records = find_records(prepared, folder)
            _check_hashes(folder, records)
            report = _merge(prepared, records, folder, tell)
        else:
            report = done.report
        shutil.rmtree(folder / STAGING, ignore_errors=True)
        if not keep:
            with suppress(OSError):  # the outputs are there, whoever may not remove what another user made
                remove_shards(folder)
        for left in [*unfinished(folder), *unfinished(folder / FOLDER)]:
            left.unlink(missing_ok=True)
    return report


def find_records(prepared: Prepared, out: Path) -> list[Record]:
    """Return the records of all shards. Raises InvalidInput that names missing ones, by the numbers people give."""
    found = [
        find_record(out, number, prepared.shard_key(number), chats=prepared.chats)
        for number in range(len(prepared.shards))
    ]
    missing = [str(number + 1) for number, record in enumerate(found) if record is None]
    if missing:
        message = (
            f"{len(missing)} of {len(found)} shards are not finished: {names(missing, 8)}; build again with the same "
            "plan and folder, and only these will be made"
        )
        raise InvalidInput(message, expected=f"{len(found)} finished shards", got=f"{len(found) - len(missing)}")
    return [record for record in found if record is not None]


def _check_hashes(out: Path, records: Sequence[Record]) -> None:
    """Check the hashes: a disk, or a copy from another machine, may have damaged a file since it was written."""
    with ThreadPoolExecutor(4) as pool:
        damaged = [path for path in pool.map(lambda record: _damaged(out, record), records) if path]
    if damaged:
        raise InvalidInput(f"{names(damaged)}: damaged since they were written; remove them and build again")


def _damaged(out: Path, record: Record) -> str:
    for suffix, facts in record.files.items():
        path = shard_file(out, record.number, suffix)
        if sha256(str(path)) != facts.sha256:
            return str(path)
    return ""


def _merge(prepared: Prepared, records: Sequence[Record], out: Path, tell: Tell | None) -> Report:
    staging = out / STAGING
    shutil.rmtree(staging, ignore_errors=True)
    staging.mkdir()
    with closing(Samples(prepared, records, out)) as samples:
        count = _Count(prepared, records)
        written = _write(prepared.plan, samples, count, _facts(prepared), staging, tell)
    with open(staging / REJECTS_FILE, "wb") as file:
        _write_rejects(prepared, records, out, file)
        file.flush()
        os.fsync(file.fileno())
    written.append(REJECTS_FILE)
    report = count.report(prepared.plan.repeat)
    report.outputs = written
    report.check()
    facts = file_facts(staging, written)
    stale = withdraw(out)
    for name in stale.difference(written):
        (out / name).unlink(missing_ok=True)
    for name in written:
        os.replace(staging / name, out / name)
    sync_folder(out)
    write_manifest(out, manifest_of(prepared, report, facts))
    return report


def _facts(prepared: Prepared) -> OutputFacts:
    packing = read_packing(prepared.plan.pack)
    scale = int(prepared.encoding.get("scale", 1))
    return OutputFacts(prepared.size, prepared.end, scale=scale, window=packing.window)


def _write(
    plan: Plan, samples: Samples, count: _Count, facts: OutputFacts, staging: Path, tell: Tell | None
) -> list[str]:
    """Write all outputs; gives the names of their files."""
    writers: list[OutputWriter] = []
    try:
        for output in map(get_output, plan.outputs):
            writers.append(output.open(staging, plan.name, facts))  # noqa: PERF401  (one may fail, and the rest be open)
        kept = samples.kept(staging) if plan.dedup == EXACT else None
        batches = _batches(plan, samples, kept, count, tell)
        for batch in pack(batches, read_packing(plan.pack), facts):
            count.samples += len(batch.lengths)
            count.chatless += batch.chats.count(None)
            for writer in writers:
                writer.write(batch)
        written: list[str] = []
        while writers:
            written += writers[0].close()
            del writers[0]
        return written
    finally:
        for writer in writers:
            writer.discard()


def _batches(
    plan: Plan, samples: Samples, kept: NDArray[np.bool_] | None, count: _Count, tell: Tell | None
) -> Iterator[Batch]:
    done = 0
    for epoch in range(plan.repeat):
        order: Iterator[Numbers] = (
            in_order(samples.count, kept)
            if plan.shuffle is None
            else shuffled(samples.count, kept, plan.shuffle, epoch)
        )
        for window in samples.windows(order):
            if epoch == 0:
                count.add(window)
            done += len(window.facts)
            if tell is not None:
                tell(done)
            yield window.batch


_SUMMED = ("documents", "tokens", "trained", "straddling", "losses")


class _Count:
    """Counts what is written, and knows what was set aside."""

    def __init__(self, prepared: Prepared, records: Sequence[Record]) -> None:
        self._prepared = prepared
        self._records = records
        self._files = [FileReport(name=file.name, form=file.form) for file in prepared.files]
        for parts, record in zip(prepared.shards, records, strict=True):
            for part, piece in zip(parts, record.pieces, strict=True):
                self._files[part.file].rows += piece.rows
                self._files[part.file].rejected += piece.rejected
        self._written = np.zeros(len(self._files), dtype=np.int64)
        self._sums: Counter[str] = Counter()
        self.samples = 0
        self.chatless = 0

    def add(self, window: Window) -> None:
        """Add some samples that are written for the first time."""
        facts = window.facts
        rows = window.files[facts["place"] == 0]
        self._written += np.bincount(rows, minlength=len(self._written))
        self._sums["documents"] += len(facts)
        for name in _SUMMED[1:]:
            self._sums[name] += int(facts[name].sum(dtype=np.int64))

    def report(self, repeat: int) -> Report:
        """Return what became of all rows."""
        for file, written in zip(self._files, self._written.tolist(), strict=True):
            file.written = written
            file.duplicates = file.rows - file.rejected - written
        sums = {name: self._sums[name] * repeat for name in _SUMMED}
        report = Report(
            rows=sum(file.rows for file in self._files),
            written=sum(file.written for file in self._files),
            duplicates=sum(file.duplicates for file in self._files),
            rejected=summed(record.rejected for record in self._records),
            loss_kinds=summed(record.losses for record in self._records),
            warnings=summed(record.warnings for record in self._records),
            chat_losses=summed(record.chat_losses for record in self._records),
            chatless=self.chatless,
            samples=self.samples,
            files=self._files,
            documents=sums["documents"],
            tokens=sums["tokens"],
            trained=sums["trained"],
            straddling=sums["straddling"],
            losses=sums["losses"],
        )
        for record in self._records:
            report.cuts.add(record.cuts)
        report.template = _template_report(self._prepared, self._records)
        if report.share > MOST_TRAINED and _is_of_chats(self._prepared.plan):
            report.warnings[TRAINED_WHOLE] = report.written
        return report


def _is_of_chats(plan: Plan) -> bool:
    """Return whether a plan trains what is said in chats: neither all of them, nor what somebody calls plain text."""
    named_plain = plan.form != AUTO and get_form(plan.form).plain
    return not parse_train(plan.train).everything and not named_plain


def _template_report(prepared: Prepared, records: Sequence[Record]) -> TemplateReport:
    """Sum up the rows that a chat template wrote; those that differ have the numbers that they have in their files."""
    counts = [record.template for record in records]
    first: list[str] = []
    for parts, record, before in zip(prepared.shards, records, places_before(prepared, records), strict=True):
        for one in record.template.first:
            name = prepared.files[parts[one.piece].file].name
            first.append(f"{name}:{one.number + int(before[one.piece])}: {one.what}")
    rows, unlike = sum(one.rows for one in counts), sum(one.unlike for one in counts)
    return TemplateReport(rows=rows, unlike=unlike, first=first[:FIRST_UNLIKE])


def _write_rejects(prepared: Prepared, records: Sequence[Record], out: Path, target: IO[bytes]) -> None:
    """Write all rows that were set aside, in the order of the inputs, with their numbers in their files."""
    for record, before in zip(records, places_before(prepared, records), strict=True):
        with open(shard_file(out, record.number, REJECTS), "rb") as lines:
            for line in lines:
                aside = _decode_aside(line)
                aside.reject.line += int(before[aside.piece])
                target.write(_encode(aside.reject) + b"\n")


@contextmanager
def _alone(out: Path) -> Iterator[None]:
    """Let no other merge write the same files in a folder. The system drops the lock of a process that is killed."""
    try:
        import fcntl  # noqa: PLC0415  (not on every system)
    except ImportError:
        yield
        return
    with open(out / _LOCK, "ab") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise Conflict(f"another process is merging in {os.fspath(out)}; wait for it, or stop it") from None
        yield
