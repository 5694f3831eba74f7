"""Owns the tests of the database: what was confirmed survives a kill, and nobody waits for a disk in vain."""

import asyncio
import random
import signal
import sqlite3
import time
from pathlib import Path
from typing import Any

import pytest

from tests.clocks import run_time
from tests.gateway.notes import NOTES, add, numbers, read_file, start_writer, using
from turnscript.gateway import database as module
from turnscript.gateway.database import Bounds, Database, StorageUnavailable
from turnscript.gateway.sqlitefile import insert


def test_what_is_written_is_there_for_the_next_read_and_after_a_restart(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "notes.db"

    async def work(database: Database) -> list[int]:
        database.write(add(1))
        await database.commit(add(2))
        database.write(add(3))
        return await database.read(numbers)

    assert [1, 2, 3] == using(path, work)[0]
    assert [1, 2, 3] == using(path, lambda database: database.read(numbers))[0]
    assert [1, 2, 3] == read_file(path)


def test_a_file_of_conversations_can_be_read_by_nobody_else(tmp_path: Path) -> None:
    path = tmp_path / "notes.db"
    using(path, lambda database: database.commit(add(1)))
    assert 0 == path.stat().st_mode & 0o077


def test_many_writes_are_one_transaction_and_nobody_waits_for_them(tmp_path: Path) -> None:
    async def work(database: Database) -> float:
        await database.commit(add(0))
        start = run_time()
        for number in range(1, 5_001):
            database.write(add(number))
        taken = run_time() - start
        await database.read(numbers)
        return taken

    taken, database = using(tmp_path / "notes.db", work)
    assert taken < 5  # a transaction for each takes far longer on a disk
    assert database.counts["batches"] < 200
    assert 5_001 == len(read_file(tmp_path / "notes.db"))


def test_work_that_fails_by_itself_is_undone_by_itself(tmp_path: Path) -> None:
    def wrong(connection: sqlite3.Connection) -> None:
        add(7)(connection)
        connection.execute("INSERT INTO notes VALUES (1, 0, x'')")

    async def work(database: Database) -> list[int]:
        await database.commit(add(1))
        with pytest.raises(sqlite3.IntegrityError):
            await asyncio.gather(database.commit(wrong), database.commit(add(2)))
        return await database.read(numbers)

    assert [1, 2] == using(tmp_path / "notes.db", work)[0]


def test_rows_that_wait_are_put_in_together(tmp_path: Path) -> None:
    taken: list[int] = []

    def put(connection: sqlite3.Connection, rows: list[int]) -> None:
        taken.append(len(rows))
        for number in rows:
            add(number)(connection)

    async def work(database: Database) -> list[int]:
        for number in range(10):
            database.add(put, number)
        database.write(add(100))
        for number in range(10, 15):
            database.add(put, number)
        await database.commit(add(101))
        return await database.read(numbers)

    found, database = using(tmp_path / "notes.db", work)
    assert [*range(15), 100, 101] == found
    assert [10, 5] == taken
    assert 17 == database.counts["writes"]


@pytest.mark.parametrize("wrong", [2**70, 3, "three"], ids=["too large", "there already", "no number"])
def test_a_row_that_fails_by_itself_takes_no_other_with_it(tmp_path: Path, wrong: int | str) -> None:
    def put(connection: sqlite3.Connection, rows: list[Any]) -> None:
        insert(connection, "INSERT INTO notes", [(number, time.time(), b"") for number in rows])

    async def work(database: Database) -> list[int]:
        await database.commit(add(3))
        for number in range(10, 50):
            database.add(put, number)
        database.add(put, wrong)
        database.write(add(50))
        database.add(put, 51)
        await database.commit(add(52))
        return await database.read(numbers)

    found, database = using(tmp_path / "notes.db", work)
    assert [3, *range(10, 53)] == found
    assert 1 == database.counts["lost"]


@pytest.mark.deep
def test_a_killed_process_loses_nothing_that_it_had_confirmed(tmp_path: Path) -> None:
    path = tmp_path / "notes.db"
    random_ = random.Random(7)
    confirmed: list[int] = []
    for turn in range(6):
        with start_writer(path, turn * 1_000_000) as writer:
            assert writer.stdout is not None
            confirmed.append(int(writer.stdout.readline()))
            time.sleep(random_.random() * 0.05)
            writer.send_signal(signal.SIGKILL)
            confirmed += [int(line) for line in writer.stdout.read().split(b"\n")[:-1]]
        found = set(read_file(path))
        assert set(confirmed) <= found
    assert len(confirmed) > 6


@pytest.mark.deep
def test_two_processes_share_a_file(tmp_path: Path) -> None:
    path = tmp_path / "notes.db"
    writers = [start_writer(path, first) for first in (0, 1_000_000, 2_000_000)]
    confirmed: list[int] = []
    for writer in writers * 3:
        assert writer.stdout is not None
        confirmed.append(int(writer.stdout.readline()))
    for writer in writers:
        assert writer.stdout is not None
        writer.kill()
        confirmed += [int(line) for line in writer.stdout.read().split(b"\n")[:-1]]
        writer.stdout.close()
        writer.wait()
    assert {0, 1, 2} == {number // 1_000_000 for number in confirmed}
    assert set(confirmed) <= set(read_file(path))


def test_a_file_as_large_as_it_may_be_loses_its_oldest_entries(tmp_path: Path) -> None:
    path = tmp_path / "notes.db"
    size = 2 * 1024 * 1024

    async def work(database: Database) -> list[int]:
        for number in range(2_000):
            await database.commit(add(number, b"s" * 4000))
        return await database.read(numbers)

    found, database = using(path, work, Bounds(size=size))
    assert path.stat().st_size <= size
    assert 1999 == found[-1]
    assert list(range(found[0], 2000)) == found
    assert 200 < len(found) < 600
    assert database.counts["evicted"] == 2_000 - len(found)


def test_one_entry_larger_than_the_file_may_be_is_refused_and_costs_no_other(tmp_path: Path) -> None:
    async def work(database: Database) -> None:
        await database.commit(add(1))
        for size in (0, 4_000_000):
            with pytest.raises(StorageUnavailable):
                await database.commit(add(2, b"L" * 4_000_000), size)
        database.write(add(2, b"L" * 4_000_000), 4_000_000)
        await database.commit(add(3))

    using(tmp_path / "notes.db", work, Bounds(size=1024 * 1024))
    assert [1, 3] == read_file(tmp_path / "notes.db")


@pytest.mark.deep
def test_a_hundred_thousand_entries_stay_bounded_and_quick(tmp_path: Path) -> None:
    path = tmp_path / "notes.db"
    size = 4 * 1024 * 1024

    async def work(database: Database) -> float:
        slowest = 0.0
        for number in range(100_000):
            database.write(add(number, b"h" * 100))
            if number % 2_000 == 0:
                await database.commit(lambda connection: None)
                start = run_time()
                await database.read(lambda connection: connection.execute("SELECT 1").fetchone())
                slowest = max(slowest, run_time() - start)
                await asyncio.sleep(0)
        await database.commit(lambda connection: None)
        return slowest

    bounds = Bounds(size=size)
    slowest, database = using(path, work, bounds)
    assert path.stat().st_size <= size
    assert 0 == database.counts["dropped"]
    assert slowest < 5
    assert 99_999 == read_file(path)[-1]


def test_what_is_too_old_is_deleted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_HOUSEKEEPING", 0.01)

    async def work(database: Database) -> list[int]:
        await database.commit(add(1, made=time.time() - 100))
        await database.commit(add(2, made=time.time() - 10))
        until = time.monotonic() + 20
        while 1 in await database.read(numbers):
            assert time.monotonic() < until
            await asyncio.sleep(0.02)
        return await database.read(numbers)

    assert [2] == using(tmp_path / "notes.db", work, Bounds(ttl=50))[0]


def test_more_than_can_wait_is_dropped_and_counted(tmp_path: Path) -> None:
    async def work(database: Database) -> None:
        gate = asyncio.Event()
        loop = asyncio.get_running_loop()

        def hold(connection: sqlite3.Connection) -> None:
            asyncio.run_coroutine_threadsafe(gate.wait(), loop).result()

        held = asyncio.create_task(database.read(hold))
        await asyncio.sleep(0.05)
        for number in range(100):
            database.write(add(number), size=1024 * 1024)
        gate.set()
        await held

    _, database = using(tmp_path / "notes.db", work)
    assert 36 == database.counts["dropped"]
    assert 64 == len(read_file(tmp_path / "notes.db"))


def test_a_closed_database_says_so(tmp_path: Path) -> None:
    async def run() -> None:
        database = Database(tmp_path / "notes.db", NOTES, Bounds())
        await database.commit(add(1))
        await database.close()
        database.write(add(2))
        with pytest.raises(StorageUnavailable, match="stopping"):
            await database.read(numbers)

    asyncio.run(run())
    assert [1] == read_file(tmp_path / "notes.db")


def test_a_reader_who_gives_up_disturbs_nobody(tmp_path: Path) -> None:
    async def work(database: Database) -> list[int]:
        with pytest.raises(TimeoutError):
            await database.read(lambda connection: time.sleep(0.2), timeout=0.02)
        await database.commit(add(1))
        return await database.read(numbers)

    assert [1] == using(tmp_path / "notes.db", work)[0]
