"""Owns the jobs of a database: work that waits for its thread, and doing several of them in one transaction."""

from __future__ import annotations

import asyncio
import sqlite3
import time
from collections.abc import Callable, Sequence
from itertools import groupby
from operator import attrgetter
from typing import Any, TypeVar

from msgspec import Struct, field

from turnscript.gateway.sqlitefile import KINDS, kind_of

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
