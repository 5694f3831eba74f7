"""Owns a database in a file: SQLite behind one thread, so that nobody waits for a disk who did not ask for durability.

Theory of operation. Work is a function of a connection. `read` and `commit` are awaited; `write` is put aside and done
soon, many in one transaction. What was committed survives the death of the process. Nothing that can happen to a file
stops the gateway: of a broken one, which is moved aside, a new one gets what can be read; one that cannot be used is
replaced by memory until it can, or by nothing, as its user wants; and where nothing helps, those who asked for
durability are told (`StorageUnavailable`), and nobody else.

Jobs wait for its thread, several of them in one transaction.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import sqlite3
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Sequence
from functools import partial
from itertools import groupby
from operator import attrgetter
from pathlib import Path
from typing import Any, Literal, NoReturn, TypeVar

from msgspec import Struct, field

from turnscript.core.errors import TurnscriptError
from turnscript.gateway.logs import say
from turnscript.gateway.sqlitefile import (
    CORRUPT,
    KINDS,
    Saving,
    connect,
    fingerprint,
    kind_of,
    save,
    set_aside,
    unusable,
)

T = TypeVar("T")
RowT = TypeVar("RowT")
Work = Callable[[sqlite3.Connection], T]
Add = Callable[[sqlite3.Connection, list[RowT]], object]
"""Puts rows into a file, as many as there are: a hundred in one go cost half of what they cost one by one."""
Outcome = tuple[Any, Exception | None]

PATIENCE = 5.0
"""Seconds that work is tried again while another process holds the file."""
ERRORS = (sqlite3.Error, ValueError, OverflowError, MemoryError)
"""What work may raise."""


class Job(Struct):
    """Work that waits. `done` is told the outcome; nobody is told of what has none. One with `add` puts in its `row`,
    where it can together with those of the jobs behind it that do the same. `adds`: how many bytes somebody who waits
    wants to be put in."""

    work: Work[Any] | None = None
    writes: bool = True
    done: Callable[[Any, Exception | None], None] | None = None
    size: int = 0
    adds: int = 0
    add: Add[Any] | None = None
    row: Any = None
    since: float = field(default_factory=time.monotonic)

    @property
    def until(self) -> float:
        """When it is not tried again any more."""
        return self.since + PATIENCE

    def do(self, connection: sqlite3.Connection) -> Any:
        """Do it alone."""
        if self.add is not None:
            return self.add(connection, [self.row])
        assert self.work is not None
        return self.work(connection)


_add_of = attrgetter("add")


def do_all(jobs: Sequence[Job], connection: sqlite3.Connection) -> list[Outcome]:
    """Do the jobs of a transaction in their order. Raises what any of them does, and then all are to be undone."""
    outcomes: list[Outcome] = []
    for add, some in groupby(jobs, _add_of):
        if add is None:
            outcomes += [(job.do(connection), None) for job in some]
        else:
            rows = [job.row for job in some]
            add(connection, rows)
            outcomes += [(None, None)] * len(rows)
    return outcomes


def do_apart(job: Job, connection: sqlite3.Connection) -> Outcome:
    """Do a job of a transaction; one that fails by itself is undone by itself."""
    connection.execute("SAVEPOINT job")
    try:
        outcome: Outcome = job.do(connection), None
    except ERRORS as error:
        if kind_of(error) in KINDS.values():
            raise
        connection.execute("ROLLBACK TO job")
        outcome = None, error
    connection.execute("RELEASE job")
    return outcome


def settler(future: asyncio.Future[Any]) -> Callable[[Any, Exception | None], None]:
    """Tells a future of an event loop the outcome, from another thread."""
    loop = future.get_loop()

    def settle(result: Any, error: Exception | None) -> None:
        if future.done():
            return
        if error is not None:
            future.set_exception(error)
        else:
            future.set_result(result)

    def tell(result: Any, error: Exception | None) -> None:
        try:
            loop.call_soon_threadsafe(settle, result, error)
        except RuntimeError:  # the loop is closed, and nobody waits any more
            return

    return tell


_MOST_WAITING = 20_000
_MOST_WAITING_BYTES = 64 * 1024 * 1024
_BATCH = 500
_LOOK_AGAIN = 30.0  # seconds until a file that could not be opened is tried again
_LOOK_SOON = 1.0  # the same where nothing stands in for it
_LEAST_TRIED = 4096
_HOUSEKEEPING = 10.0
_MOMENT = 0.2  # seconds in which work that nobody waits for may gather; a process that is killed loses it


Otherwise = Literal["opened", "memory", "refuse"]


class StorageUnavailable(TurnscriptError):
    """What had to be kept could not be: the disk is full, or the file cannot be written."""

    status = 503
    code = "storage_unavailable"

    def __init__(self, reason: str, detail: str) -> None:
        super().__init__(reason, detail)
        self.reason = reason
        self.message = f"the gateway cannot keep this now ({reason}: {detail}); free some disk space or check its file"

    def __str__(self) -> str:
        return self.message


class Schema(Struct, frozen=True):
    """The tables of a file. `create` makes them where they are not; another `version` of the file is another file.

    `expire` deletes what was made before `:before`, `oldest` one of `:share` entries, those longest unused. `saving`:
    how entries of a broken file are saved.
    """

    version: int
    create: tuple[str, ...]
    expire: tuple[str, ...]
    oldest: tuple[str, ...]
    saving: Saving | None = None


class Bounds(Struct, frozen=True):
    """How much is kept: bytes in the file, and seconds since it was made. None: for ever."""

    size: int = 256 * 1024 * 1024
    ttl: float | None = None


class Database:
    """One file and its thread. `path` None: in memory only.

    `otherwise`: what stands in for a file that cannot be used: `memory`, `refuse` for nothing, or `opened`, which is
    memory where it cannot be opened, and nothing where it can no longer be written. `trouble`: the kind of failure that
    lasts, as far as is known; empty where all is well.

    `counts`: reads, writes, batches, dropped, lost, evicted, aside, and failures by kind, for metrics.
    """

    def __init__(self, path: Path | None, schema: Schema, bounds: Bounds, otherwise: Otherwise = "opened") -> None:
        self.path = path
        self._otherwise = otherwise
        self._failing, self._tried = "", 0  # of what could not be put in last, and its size
        self._unusable: sqlite3.Error | None = None
        self.counts: Counter[str] = Counter()
        self.degraded = ""
        self._schema, self._bounds = schema, bounds
        self._gathered: list[Job] = []  # the event loop's own: for each of these, it waits for no lock
        self._gathered_bytes = 0
        self._jobs: deque[Job] = deque()
        self._waiting_bytes = 0
        self._wake = threading.Condition()
        self._thread: threading.Thread | None = None
        self._closing = False
        self._timer: asyncio.TimerHandle | None = None
        self._connection: sqlite3.Connection | None = None
        self._print: tuple[int, int] | None = None
        self._look_again = 0.0
        self._housekeeping = 0.0
        self._asides: deque[float] = deque(maxlen=3)

    # What the event loop sees.

    async def read(self, work: Work[T], timeout: float | None = None) -> T:
        """What `work` returns. Raises TimeoutError, and StorageUnavailable where the file cannot be read."""
        future = self._future()
        self._put(Job(work, False, settler(future)))
        result: T = await asyncio.wait_for(future, timeout)
        return result

    async def commit(self, work: Work[T], size: int = 0) -> T:
        """The same for work that changes something; it returns once that is on disk. Raises StorageUnavailable.

        `size`: how many bytes it adds, about. What takes more than a quarter of the file's bound is refused.
        """
        if size > self._bounds.size // 4:
            raise StorageUnavailable("too long", f"{size} bytes, in a file of {self._bounds.size} at most")
        future = self._future()
        self._put(Job(work, True, settler(future), adds=size))
        result: T = await future
        return result

    async def ask(self) -> None:
        """Return where a commit would succeed now, as far as that can be tried: with as much as failed last, else with
        little. Raises StorageUnavailable."""
        size = self._tried
        await self.commit(partial(_try, size=size), size)

    @property
    def trouble(self) -> str:
        """As the class says it."""
        return self.degraded or self._failing

    def write(self, work: Work[Any], size: int = 0) -> None:
        """Change something soon. Nobody waits, and nobody hears of a failure: it is counted."""
        self._gather(Job(work, size=size))

    def add(self, add: Add[RowT], row: RowT, size: int = 0) -> None:
        """The same for a row that `add` puts in. It may be given several of those that wait."""
        self._gather(Job(size=size, add=add, row=row))

    def _gather(self, job: Job) -> None:
        size = job.size
        many = len(self._gathered) + len(self._jobs) >= _MOST_WAITING
        large = self._gathered_bytes + self._waiting_bytes + size > _MOST_WAITING_BYTES
        if many or large or size > self._bounds.size // 4:
            self.counts["dropped"] += 1
            return
        self._gathered.append(job)
        self._gathered_bytes += size
        if self._timer is None:  # what nobody waits for waits for others: a transaction costs more than its work
            self._timer = asyncio.get_running_loop().call_later(_MOMENT, self._wake_now)

    async def close(self) -> None:
        """Do what waits, and close the file."""
        if self._timer is not None:
            self._timer.cancel()
        with self._wake:
            self._hand_over()
            self._closing = True
        if self._thread is not None:
            await asyncio.get_running_loop().run_in_executor(None, self._thread.join)

    @property
    def durable(self) -> bool:
        """Whether there is a file to write to. False before the first use."""
        return self.path is not None and self._connection is not None and not self.degraded

    def _future(self) -> asyncio.Future[Any]:
        return asyncio.get_running_loop().create_future()

    def _put(self, job: Job) -> None:
        with self._wake:
            if not self._closing:
                self._hand_over(job)
            elif job.done is not None:
                job.done(None, StorageUnavailable("closed", "the gateway is stopping"))

    def _wake_now(self) -> None:
        self._timer = None
        with self._wake:
            self._hand_over()

    def _hand_over(self, *jobs: Job) -> None:
        """Give the thread what was gathered, and then these jobs."""
        if not self._closing:
            self._jobs += (*self._gathered, *jobs)
            self._waiting_bytes += self._gathered_bytes
        self._gathered, self._gathered_bytes = [], 0
        if self._thread is None and self._jobs:
            name = f"database {self.path.name if self.path else 'in memory'}"
            self._thread = threading.Thread(target=self._run, name=name, daemon=True)
            self._thread.start()
        self._wake.notify()

    # What the thread does.

    def _run(self) -> None:
        batch: list[Job] = []
        try:
            with contextlib.suppress(*ERRORS):  # whoever asks is told
                self._open()
            while True:
                batch = self._take()
                if not batch and self._closing:
                    break
                self._do(batch)
                self._keep_house()
        finally:
            with self._wake:
                self._closing = True
            for job in (*batch, *self._jobs):
                if job.done is not None:  # one that has its answer takes no other
                    job.done(None, StorageUnavailable("closed", "the gateway is stopping"))
            if self._connection is not None:
                self._connection.close()

    def _take(self) -> list[Job]:
        with self._wake:
            if not self._jobs and not self._closing:
                self._wake.wait(_HOUSEKEEPING)
            batch = [self._jobs.popleft() for _ in range(min(_BATCH, len(self._jobs)))]
            self._waiting_bytes -= sum(job.size for job in batch)
            return batch

    def _do(self, batch: list[Job]) -> None:
        """All of a batch, reads before the first write at once, the rest in one transaction."""
        first = next((at for at, job in enumerate(batch) if job.writes), len(batch))
        for job in batch[:first]:
            self._attempt([job], self._one)
        if batch[first:]:
            self._attempt(batch[first:], self._transaction)

    def _attempt(self, jobs: list[Job], run: Callable[[list[Job]], list[Outcome]]) -> bool:
        """Do some jobs, and what helps where that fails: wait, make room, begin a new file. False if nothing did."""
        chances = 3
        while True:
            chances -= 1
            try:
                outcomes = run(jobs)
            except ERRORS as error:
                kind = kind_of(error)
                self.counts[f"failed_{kind}"] += 1
                if kind == "locked":
                    self._try_later(jobs, error)
                    return True
                if chances and self._help(kind, error):
                    continue
                if self._stand_in(kind, error):
                    chances = 1
                    continue
                if len(jobs) > 1:
                    self._one_by_one(jobs, kind, error)
                else:
                    self._fail(jobs, kind, error)
                return False
            for job, (result, failure) in zip(jobs, outcomes, strict=True):
                if failure is not None:
                    self._fail([job], kind_of(failure), failure)
                elif job.done is not None:
                    job.done(result, None)
            return True

    def _one_by_one(self, jobs: list[Job], kind: str, error: Exception) -> None:
        """What one job does is not the fault of the others; but where several fail, no more are tried."""
        chances = 3
        for job in jobs:
            if not job.writes:
                self._attempt([job], self._one)
            elif chances:
                chances -= not self._attempt([job], self._transaction)
            else:
                self._fail([job], kind, error)

    def _one(self, jobs: list[Job]) -> list[Outcome]:
        self.counts["reads"] += 1
        return [(jobs[0].do(self._open()), None)]

    def _transaction(self, jobs: list[Job], apart: bool = False) -> list[Outcome]:
        """Jobs in one transaction. Where one fails by itself, as few ever do, all are done again, each apart."""
        connection = self._open()
        connection.execute("BEGIN IMMEDIATE")
        try:
            outcomes = [do_apart(job, connection) for job in jobs] if apart else do_all(jobs, connection)
            connection.execute("COMMIT")
        except ERRORS as error:
            if connection.in_transaction:
                _roll_back(connection)
            if apart or kind_of(error) in KINDS.values():
                raise
            return self._transaction(jobs, apart=True)
        if self._failing and max(job.adds for job in jobs) >= self._tried:
            self._failing, self._tried = "", 0
        self.counts["batches"] += 1
        self.counts["writes"] += sum(job.writes for job in jobs)
        return outcomes

    def _try_later(self, jobs: list[Job], error: Exception) -> None:
        now = time.monotonic()
        waiting = [job for job in jobs if job.until > now and not self._closing]
        self._fail([job for job in jobs if job.until <= now or self._closing], "locked", error)
        with self._wake:
            self._waiting_bytes += sum(job.size for job in waiting)
            # Reads overtake: they do not need the lock that another process holds.
            reads = [job for job in self._jobs if not job.writes]
            self._jobs = deque([*reads, *waiting, *(job for job in self._jobs if job.writes)])

    def _help(self, kind: str, error: Exception) -> bool:
        """Do something about a failure; returns whether it is worth trying again."""
        if kind == "full":  # by our own bound: where the disk is full, deleting helps nobody
            return _used(self._connection) > self._bounds.size * 8 // 10 and self._evict(share=10) > 0
        if kind == "corrupt":
            return self._begin_anew(error)
        if kind == "unwritable":
            self._close()
            return True
        return False

    def _stand_in(self, kind: str, error: Exception) -> bool:
        """Go on in memory, where that is wanted of a file that can no longer be written. Returns whether it is."""
        if self._otherwise != "memory" or self.degraded or self.path is None or kind not in ("full", "unwritable"):
            return False
        self._close()
        self._degrade(None, error)
        return True

    def _fail(self, jobs: list[Job], kind: str, error: Exception) -> None:
        if not jobs:
            return
        if kind in KINDS.values() and (wanted := [job.adds for job in jobs if job.writes and job.done is not None]):
            self._failing, self._tried = kind, max(self._tried, _LEAST_TRIED, *wanted)
        say(logging.WARNING, "database_failed", path=str(self.path), kind=kind, error=str(error), jobs=len(jobs))
        for job in jobs:
            if job.done is None:
                self.counts["lost"] += 1
            else:
                job.done(None, StorageUnavailable(kind, str(error)) if kind in KINDS.values() else error)

    # The file.

    def _open(self) -> sqlite3.Connection:
        """The connection to use now: to the file, or to memory as long as the file cannot be opened."""
        now = time.monotonic()
        stale = self._connection is not None and not self.degraded and self._is_replaced(now)
        if self._connection is not None and not stale and not (self.degraded and now >= self._look_again):
            return self._connection
        if self._unusable is not None and now < self._look_again:
            raise self._unusable
        if stale:
            self._close()
        if self.path is None:
            self._connection = connect(None, self._schema, self._bounds.size)
            return self._connection
        held = self._connection
        for _ in (1, 2):
            try:
                opened = connect(self.path, self._schema, self._bounds.size)
                if held is not None:
                    self._carry_over(held, opened)
            except (sqlite3.Error, OSError) as error:
                if kind_of(error) == "corrupt" and self._begin_anew(error):
                    continue
                return self._degrade(held, error)
            break
        else:
            return self._degrade(held, sqlite3.DatabaseError("a new file is broken as well"))
        self._connection, self._print = opened, fingerprint(self.path)
        self.degraded, self._unusable = "", None
        return opened

    def _is_replaced(self, now: float) -> bool:
        """Whether another file, or none, is where ours was: somebody moved it aside or deleted it."""
        if self.path is None or now < self._look_again:
            return False
        self._look_again = now + 1.0
        return fingerprint(self.path) != self._print

    def _degrade(self, held: sqlite3.Connection | None, error: Exception) -> sqlite3.Connection:
        if self._otherwise == "refuse":
            self._refuse(error)
        self._look_again = time.monotonic() + _LOOK_AGAIN
        if held is None:
            self.counts["degraded"] += 1
            say(logging.ERROR, "database_in_memory", path=str(self.path), error=str(error))
            held = connect(None, self._schema, min(self._bounds.size, _MOST_WAITING_BYTES))
        self.degraded = kind_of(error)
        self._connection = held
        return held

    def _refuse(self, error: Exception) -> NoReturn:
        """Raise what all are told until the file can be used."""
        self._look_again = time.monotonic() + _LOOK_SOON
        if not self.degraded:
            self.counts["degraded"] += 1
            say(logging.ERROR, "database_unusable", path=str(self.path), error=str(error))
        self.degraded, self._unusable = kind_of(error), unusable(error)
        raise self._unusable

    def _carry_over(self, held: sqlite3.Connection, opened: sqlite3.Connection) -> None:
        """What was kept in memory meanwhile goes into the file; what has no room beside what the file holds is lost.
        Raises sqlite3.Error where it may go there later, and closes the file then."""
        try:
            opened.execute("BEGIN IMMEDIATE")
            for (table,) in held.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall():
                rows = held.execute(f"SELECT * FROM {table}").fetchall()
                if rows:
                    places = ", ".join("?" * len(rows[0]))
                    opened.executemany(f"INSERT OR IGNORE INTO {table} VALUES ({places})", rows)
            opened.execute("COMMIT")
        except sqlite3.Error as error:
            _roll_back(opened)
            if kind_of(error) in KINDS.values() and _used(held) + _used(opened) <= self._bounds.size:
                opened.close()
                raise
            self.counts["lost"] += 1
            say(logging.WARNING, "database_not_carried_over", path=str(self.path), error=str(error))
        held.close()

    def _begin_anew(self, error: Exception) -> bool:
        """Move a broken file aside. False where that was done too often: then the disk is what is broken."""
        now = time.monotonic()
        often = len(self._asides) == self._asides.maxlen and now - self._asides[0] < 60.0
        if self.path is None or often:
            return False
        self._asides.append(now)
        self._close()
        try:
            moved = set_aside(self.path, self._schema.version)
        except OSError as problem:
            say(logging.ERROR, "database_not_moved", path=str(self.path), error=str(problem))
            return False
        if moved is not None:
            self.counts["aside"] += 1
            say(logging.ERROR, "database_moved_aside", path=str(self.path), to=str(moved), error=str(error))
            if CORRUPT in moved.name:
                self._save(moved, self.path)
        return True

    def _save(self, broken: Path, path: Path) -> None:
        """Put into a new file what can be read of a broken one. Where that fails, it is in the broken one still."""
        if self._schema.saving is None:
            return
        try:
            with contextlib.closing(connect(path, self._schema, self._bounds.size)) as opened:
                saved = save(broken, opened, self._schema.saving)
        except (sqlite3.Error, OSError) as error:
            say(logging.ERROR, "database_not_saved", path=str(broken), error=str(error))
            return
        self.counts["saved"] += saved
        say(logging.WARNING, "database_saved", path=str(broken), entries=saved)

    def _close(self) -> None:
        if self._connection is not None and not self.degraded:
            self._connection.close()
            self._connection = None

    # Bounds.

    def _keep_house(self) -> None:
        now = time.monotonic()
        try:
            if _used(self._connection) > self._bounds.size * 9 // 10:
                self._evict(share=20)
            if now >= self._housekeeping:
                self._housekeeping = now + _HOUSEKEEPING
                self._look()
                if self._bounds.ttl is not None:
                    self._run_all(self._schema.expire, before=time.time() - self._bounds.ttl)
        except ERRORS as error:
            self.counts[f"failed_{kind_of(error)}"] += 1
            if kind_of(error) == "corrupt":
                self._begin_anew(error)

    def _look(self) -> None:
        """See whether what failed works again, though nobody asks for it."""
        if self.degraded:
            self._open()
        elif self._failing:
            self._transaction([Job(partial(_try, size=self._tried), adds=self._tried)])

    def _evict(self, share: int) -> int:
        """Delete one of `share` entries, the oldest; returns how many."""
        try:
            gone = self._run_all(self._schema.oldest, share=share)
        except sqlite3.Error as error:
            self.counts[f"failed_{kind_of(error)}"] += 1
            return 0
        self.counts["evicted"] += gone
        return gone

    def _run_all(self, statements: tuple[str, ...], **values: float) -> int:
        connection = self._open()
        connection.execute("BEGIN IMMEDIATE")
        try:
            gone = sum(max(0, connection.execute(statement, values).rowcount) for statement in statements)
            connection.execute("COMMIT")
        except sqlite3.Error:
            _roll_back(connection)
            raise
        return gone


def _try(connection: sqlite3.Connection, size: int) -> None:
    """Put in so many bytes that mean nothing, in the place of those that were put in before."""
    connection.execute("INSERT OR REPLACE INTO tried VALUES (1, zeroblob(?))", (size,))


def _used(connection: sqlite3.Connection | None) -> int:
    """Bytes of a file that hold something."""
    if connection is None:
        return 0
    (pages,), (free,), (size,) = (
        connection.execute(f"PRAGMA {what}").fetchone() for what in ("page_count", "freelist_count", "page_size")
    )
    return int((pages - free) * size)


def _roll_back(connection: sqlite3.Connection) -> None:
    try:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
    except sqlite3.Error:  # SQLite has done it itself
        return


__all__ = ["Bounds", "Database", "Schema", "StorageUnavailable"]
