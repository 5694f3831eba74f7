"""Owns a whole job: prepare, run every shard that is not there yet, merge.

    plan = Plan(inputs=("chats/*.jsonl",), format=..., tokenizer=..., max_tokens=4096)
    report = build(plan, "run", executor=Processes(8))

A job that was stopped, by whatever, goes on where it was: call `build` again.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, overload

import msgspec

from turnscript.datasets.executors import Executor, Inline, Processes
from turnscript.datasets.fullness import written_in
from turnscript.datasets.manifest import finished
from turnscript.datasets.merge import merge
from turnscript.datasets.plan import RUN_FILE as RUN_FILE
from turnscript.datasets.plan import Plan
from turnscript.datasets.preparation import Prepared, likely_shards, prepare
from turnscript.datasets.report import Report as Report
from turnscript.datasets.shard import Done
from turnscript.datasets.shardfiles import find_record, remove_shards, write_whole

if TYPE_CHECKING:
    from turnscript.datasets.raytasks import RayTasks


class Progress(NamedTuple):
    """How far a job is. `stage`: `shards` or `merge`. `bytes` and `total`: of what its shards read, finished ones
    included; in a merge, documents written, and 0 if nobody knows how many there will be. `before`: of all this,
    what an earlier run had done.
    """

    stage: str
    rows: int = 0
    bytes: int = 0
    rejects: int = 0
    total: int = 0
    before: Done = Done()


Watch = Callable[[Progress], None]


@overload
def build(
    plan: Plan,
    out: str | os.PathLike[str],
    *,
    executor: Inline | Processes | RayTasks | None = None,
    resume: bool = True,
    progress: Watch | None = None,
    shards: int | None = None,
    keep: bool = False,
) -> Report: ...


@overload
def build(
    plan: Plan,
    out: str | os.PathLike[str],
    *,
    executor: Executor,
    resume: bool = True,
    progress: Watch | None = None,
    shards: int | None = None,
    keep: bool = False,
) -> Report | None: ...


def build(  # noqa: PLR0913  (each is one question of its own)
    plan: Plan,
    out: str | os.PathLike[str],
    *,
    executor: Executor | None = None,
    resume: bool = True,
    progress: Watch | None = None,
    shards: int | None = None,
    keep: bool = False,
) -> Report | None:
    """Make what the plan says in the folder `out`. None if the executor leaves shards to others: merge at the end.

    `resume`: use what an earlier run with the same plan and inputs has finished. `shards`: cut the inputs into so many.
    `keep`: leave the shards in the folder, so that another plan with other outputs, order or packing can use them.
    """
    executor = executor if executor is not None else Inline()
    folder = Path(out)
    began = time.time(), time.monotonic()
    likely = likely_shards(plan, folder, shards=shards, resume=resume)
    with written_in(folder), executor.begun(os.fspath(folder), plan.tokenizer, likely) as run:
        prepared = prepare(plan, folder, shards=shards, resume=resume)
        numbers = executor.takes(len(prepared.shards))
        if not resume:
            remove_shards(folder, numbers if executor.partial else None)
        elif not executor.partial and finished(folder, prepared.key) is not None:
            return merge(folder, keep=keep)
        seen, missing = _begin(prepared, folder, numbers, progress)
        run(missing, seen.tell)
    if executor.partial:
        return None
    merged = time.monotonic()
    report = merge(folder, keep=keep, again=not resume, tell=seen.merged)
    with written_in(folder):
        _write_times(folder, executor, began, merged, len(missing))
    return report


def _begin(prepared: Prepared, folder: Path, numbers: Sequence[int], progress: Watch | None) -> tuple[_Seen, list[int]]:
    """Return what is done already, and the shards that are missing."""
    sizes = {number: sum(part.piece.size for part in prepared.shards[number]) for number in numbers}
    seen = _Seen(sum(sizes.values()), progress)
    missing = []
    for number in numbers:
        record = find_record(folder, number, prepared.shard_key(number), chats=prepared.chats)
        if record is None:
            missing.append(number)
        else:
            seen.found(number, Done(record.rows, sizes[number], sum(record.rejected.values())))
    return seen, missing


class _Seen:
    """Adds up what the shards tell."""

    def __init__(self, total: int, watch: Watch | None) -> None:
        self._watch = watch
        self._total = total
        self._before = Done()
        self._done: dict[int, Done] = {}
        self._sum = Done()

    def found(self, number: int, done: Done) -> None:
        """Count a shard that was there already."""
        self._before = Done(*map(sum, zip(self._before, done, strict=True)))
        self.tell(number, done)

    def tell(self, number: int, done: Done) -> None:
        """Tell how far a shard is."""
        before = self._done.get(number, Done())
        self._done[number] = done
        self._sum = Done(*[total + new - old for total, new, old in zip(self._sum, done, before, strict=True)])
        if self._watch is not None:
            self._watch(Progress("shards", *self._sum, self._total, self._before))

    def merged(self, documents: int) -> None:
        """Tell how many documents are written."""
        if self._watch is not None:
            self._watch(Progress("merge", self._sum.rows, documents, self._sum.rejects))


def _write_times(out: Path, executor: Executor, began: tuple[float, float], merged: float, made: int) -> None:
    """Write what differs from run to run: when, how long, and by what."""
    now = time.monotonic()
    facts = {
        "began": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(began[0])),
        "executor": type(executor).__name__,
        "workers": getattr(executor, "count", 1),
        "shards_made": made,
        "seconds": {"shards": round(merged - began[1], 3), "merge": round(now - merged, 3)},
    }
    write_whole(out / RUN_FILE, msgspec.json.format(msgspec.json.encode(facts), indent=2) + b"\n")
