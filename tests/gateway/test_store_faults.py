"""Owns the tests of a store whose n-th write fails, or is the last that its process does, for every n."""

from __future__ import annotations

import asyncio
import os
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar

import pytest

from tests.gateway.test_store import answer, using
from turnscript.gateway.database import Bounds, Database, StorageUnavailable
from turnscript.gateway.store import SCHEMA, Store

ROOT = Path(__file__).resolve().parents[2]
PUTS = [(1, None), (2, 1), (3, 2), (2, 1), (4, None), (5, 4)]
"""Answers as they are kept, the third time one of before; then the first is deleted."""
WRITES = ("INSERT", "REPLACE", "UPDATE", "DELETE", "CREATE", "COMMIT", "BEGIN")


class Faulty(sqlite3.Connection):
    """A connection whose n-th write goes wrong. `left`: how many go well before it."""

    left: ClassVar[int] = 0
    kills: ClassVar[bool] = False

    def execute(self, sql: str, *rest: Any) -> sqlite3.Cursor:
        self._count(sql)
        return super().execute(sql, *rest)

    def executemany(self, sql: str, *rest: Any) -> sqlite3.Cursor:
        self._count(sql)
        return super().executemany(sql, *rest)

    @classmethod
    def _count(cls, sql: str) -> None:
        if not sql.lstrip().upper().startswith(WRITES):
            return
        cls.left -= 1
        if cls.left == -1 and cls.kills:
            os._exit(9)
        if cls.left == -1:
            error = sqlite3.OperationalError("disk I/O error")
            error.sqlite_errorcode = sqlite3.SQLITE_IOERR
            raise error


@contextmanager
def faulty(left: int, *, kills: bool = False) -> Iterator[None]:
    """All that is opened now goes wrong at the write behind so many."""
    Faulty.left, Faulty.kills = left, kills
    real = sqlite3.connect
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sqlite3, "connect", lambda *args, **options: real(*args, **options, factory=Faulty))
        yield


def written(path: Path) -> list[str]:
    """Keep answers, and tell what was confirmed, each at once."""
    confirmed: list[str] = []

    async def work() -> None:
        database = Database(path, SCHEMA, Bounds(), "refuse")
        store = Store(database)
        for number, previous in PUTS:
            try:
                if await store.put("me", answer(number, previous)):
                    confirmed.append(f"kept {number}")
                    os.write(1, f"kept {number}\n".encode())
            except StorageUnavailable:
                continue
        try:
            if await store.delete("me", "resp_1"):
                confirmed.append("deleted 1")
                os.write(1, b"deleted 1\n")
        except StorageUnavailable:
            pass
        await database.close()

    asyncio.run(work())
    return confirmed


def killed(folder: str) -> None:
    """For every n, end a process at its n-th write, until none has so many; tell how each ended.

    Each is a fork of this one, which has imported everything and has no threads.
    """
    left, code = 0, 9
    while code == 9:
        path = Path(folder, f"{left}.db")
        if not (child := os.fork()):
            os.dup2(os.open(path.with_suffix(".txt"), os.O_WRONLY | os.O_CREAT), 1)
            with faulty(left, kills=True):
                written(path)
            os._exit(0)
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        os.write(1, f"{code}\n".encode())
        left += 1


def compare(path: Path, confirmed: list[str]) -> None:
    """What was confirmed is in the file, and nothing is there by half."""

    async def look(store: Store) -> None:
        for number, previous in PUTS:
            found = await store.get("me", f"resp_{number}")
            if "deleted 1" in confirmed and number == 1:
                assert found is None
                continue
            assert found is not None or f"kept {number}" not in confirmed
            if found is not None:
                assert (answer(number).request, answer(number).body) == (found.request, found.body)
                chain = await store.chain("me", f"resp_{number}")
                if previous is None or f"kept {previous}" in confirmed:
                    assert chain is not None
                    assert 0 == len(chain) % 3
        rows = await store._database.read(
            lambda connection: connection.execute(
                "SELECT a.id, count(i.id) FROM answers a LEFT JOIN items i ON i.answer = a.id GROUP BY 1"
            ).fetchall()
        )
        assert {3} >= {count for _, count in rows}

    using(path, look)


@pytest.mark.deep
def test_a_write_that_fails_loses_itself_alone(tmp_path: Path) -> None:
    whole = [f"kept {number}" for number, _ in PUTS] + ["deleted 1"]
    told: list[list[str]] = []
    for left in range(200):
        path = tmp_path / f"{left}.db"
        with faulty(left):
            told.append(written(path))
            over = Faulty.left >= 0
        compare(path, told[-1])
        if over:
            break
    assert whole == told[-1]
    assert len(told) > 20


@pytest.mark.deep
@pytest.mark.long
def test_a_process_that_ends_at_a_write_keeps_what_it_had_confirmed(tmp_path: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}"}
    program = "import sys; from tests.gateway.test_store_faults import killed; killed(sys.argv[1])"
    command = [sys.executable, "-c", program, str(tmp_path)]
    done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, timeout=300, check=True)
    ends = [int(code) for code in done.stdout.split()]
    assert [9] * (len(ends) - 1) + [0] == ends
    told = [(tmp_path / f"{left}.txt").read_text().splitlines() for left in range(len(ends))]
    for left, confirmed in enumerate(told):
        compare(tmp_path / f"{left}.db", confirmed)
    assert [*(f"kept {number}" for number, _ in PUTS), "deleted 1"] == told[-1]
    assert len(ends) > 20
