"""Owns the tests of the database in trouble: a broken, full, locked or unreachable file stops nobody."""

import asyncio
import contextlib
import os
import random
import resource
import signal
import sqlite3
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.clocks import run_time
from tests.gateway.notes import NOTES, add, numbers, read_file, start_writer, using
from turnscript.gateway import database as module
from turnscript.gateway.database import Database, StorageUnavailable
from turnscript.gateway.sqlitefile import set_aside


@pytest.mark.parametrize("how", ["text", "zeros", "half", "pages"])
def test_a_broken_file_is_moved_aside_and_a_new_one_begun(tmp_path: Path, how: str) -> None:
    path = tmp_path / "notes.db"

    async def fill(database: Database) -> None:
        for number in range(300):
            database.write(add(number, b"t" * 500))
        await database.commit(add(300))

    using(path, fill)
    data = path.read_bytes()
    broken = {
        "text": b"these are not the notes that you look for\n" * 100,
        "zeros": bytes(len(data)),
        "half": data[: len(data) // 2 + 100],
        "pages": data[:4096] + random.Random(1).randbytes(len(data) - 4096),
    }[how]
    path.write_bytes(broken)

    async def work(database: Database) -> list[int]:
        await database.commit(add(1000))
        return await database.read(numbers)

    found, database = using(path, work)
    assert [1000] == found
    assert 1 == database.counts["aside"]
    [aside] = [one for one in tmp_path.iterdir() if ".corrupt-" in one.name and not one.name.endswith(("-wal", "-shm"))]
    assert broken == aside.read_bytes()
    assert [1000] == read_file(path)


def test_a_file_that_breaks_while_it_is_used_is_replaced_at_once(tmp_path: Path) -> None:
    path = tmp_path / "notes.db"

    async def work(database: Database) -> list[int]:
        for number in range(300):
            database.write(add(number, b"t" * 500))
        await database.commit(add(300))
        await database.commit(lambda connection: None)
        with contextlib.closing(sqlite3.connect(path)) as other:
            other.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        with open(path, "r+b") as file:
            file.seek(4096)
            file.write(bytes(path.stat().st_size - 4096))
        for number in range(20):
            await database.commit(add(2000 + number))
        return await database.read(numbers)

    found, database = using(path, work)
    assert list(range(2000, 2020)) == found
    assert 1 == database.counts["aside"]


def test_a_file_of_another_release_is_kept_beside(tmp_path: Path) -> None:
    path = tmp_path / "notes.db"
    with contextlib.closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA user_version = 99")
        connection.execute("CREATE TABLE treasure (gold)")
        connection.commit()
    using(path, lambda database: database.commit(add(1)))
    [aside] = [one for one in tmp_path.iterdir() if ".version-" in one.name]
    with contextlib.closing(sqlite3.connect(aside)) as connection:
        assert [] == connection.execute("SELECT * FROM treasure").fetchall()
    assert [1] == read_file(path)


def test_a_good_file_is_never_moved_aside(tmp_path: Path) -> None:
    """Another process may have begun it while this one still held the broken one."""
    path = tmp_path / "notes.db"
    using(path, lambda database: database.commit(add(1)))
    assert set_aside(path, NOTES.version) is None
    assert [1] == read_file(path)
    path.unlink()
    assert set_aside(path, NOTES.version) is None


def test_two_processes_that_find_a_broken_file_begin_one_new_one(tmp_path: Path) -> None:
    path = tmp_path / "notes.db"
    path.write_bytes(b"broken " * 2000)
    writers = [start_writer(path, first) for first in (0, 1_000_000)]
    confirmed: list[int] = []
    for writer in writers:
        assert writer.stdout is not None
        confirmed.append(int(writer.stdout.readline()))
    for writer in writers:
        assert writer.stdout is not None
        confirmed += [int(writer.stdout.readline()) for _ in range(3)]
        writer.kill()
        writer.stdout.close()
        writer.wait()
    assert 1 == len([one for one in tmp_path.iterdir() if ".corrupt-" in one.name])
    assert set(confirmed) <= set(read_file(path))


def test_a_link_in_the_place_of_the_lock_empties_nothing(tmp_path: Path) -> None:
    (tmp_path / "broken.db").write_bytes(b"no database" * 1000)
    (tmp_path / "mine").write_text("mine", encoding="utf-8")
    (tmp_path / "broken.db.lock").symlink_to(tmp_path / "mine")
    assert set_aside(tmp_path / "broken.db", NOTES.version) is not None
    assert "mine" == (tmp_path / "mine").read_text(encoding="utf-8")


def test_a_deleted_file_is_begun_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "notes.db"

    async def work(database: Database) -> None:
        await database.commit(add(1))
        for one in tmp_path.iterdir():
            one.unlink()
        until = time.monotonic() + 20
        while not path.exists():
            assert time.monotonic() < until
            await asyncio.sleep(0.1)
            await database.commit(add(2))
        await database.commit(add(3))

    using(path, work)
    assert [2, 3] == read_file(path)


def test_a_full_disk_is_told_to_those_who_asked_and_to_nobody_else(tmp_path: Path) -> None:
    """The limit on file sizes makes the disk full for this process, and is taken away again."""
    path = tmp_path / "notes.db"
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)

    async def work(database: Database) -> list[int]:
        await database.commit(add(1))
        resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, hard))
        try:
            with pytest.raises(StorageUnavailable) as caught:
                await asyncio.gather(*[database.commit(add(number, b"f" * 10_000)) for number in range(2, 200)])
            assert 503 == caught.value.status
            assert "disk" in str(caught.value)
            database.write(add(1000, b"f" * 300_000))
            assert 1 in await database.read(numbers)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        await database.commit(add(2000))
        return await database.read(numbers)

    try:
        found, database = using(path, work)
    finally:
        signal.signal(signal.SIGXFSZ, handler)
    assert 1 in found
    assert 2000 in found
    assert 1000 not in found
    assert 1 == database.counts["lost"]
    assert found == read_file(path)


def test_entries_are_not_deleted_because_the_disk_is_full(tmp_path: Path) -> None:
    """What others have filled the disk with is not made less by that."""

    def fill(connection: sqlite3.Connection) -> None:
        (pages,) = connection.execute("PRAGMA page_count").fetchone()
        connection.execute(f"PRAGMA max_page_count = {pages + 1}")
        add(1000, b"f" * 100_000)(connection)

    async def work(database: Database) -> list[int]:
        for number in range(100):
            database.write(add(number, b"n" * 1000))
        with pytest.raises(StorageUnavailable, match="full"):
            await database.commit(fill)
        return await database.read(numbers)

    found, database = using(tmp_path / "notes.db", work)
    assert list(range(100)) == found
    assert 0 == database.counts["evicted"]


def test_a_path_that_cannot_be_made_is_replaced_by_memory(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")

    async def work(database: Database) -> list[int]:
        await database.commit(add(1))
        assert not database.durable
        return await database.read(numbers)

    found, database = using(tmp_path / "file" / "notes.db", work)
    assert [1] == found
    assert "unwritable" == database.degraded
    assert 1 == database.counts["degraded"]


@pytest.fixture
def closed_folder() -> Iterator[Path]:
    """A folder that this process cannot write to, not even as the user who may do everything."""
    folder = Path(tempfile.mkdtemp())
    folder.chmod(0o555)
    user = os.geteuid()
    if user == 0:
        os.seteuid(65534)
    try:
        yield folder
    finally:
        os.seteuid(user)
        for one in folder.iterdir():
            one.unlink()
        folder.rmdir()


def test_a_folder_that_is_read_only_is_replaced_by_memory(closed_folder: Path) -> None:
    async def work(database: Database) -> list[int]:
        await database.commit(add(1))
        return await database.read(numbers)

    found, database = using(closed_folder / "notes.db", work)
    assert [1] == found
    assert "unwritable" == database.degraded
    assert [] == list(closed_folder.iterdir())


def test_a_file_that_comes_back_takes_over_what_was_kept_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_LOOK_AGAIN", 0.05)
    blocked = tmp_path / "folder"
    blocked.write_text("in the way")

    async def work(database: Database) -> None:
        await database.commit(add(1))
        assert "unwritable" == database.degraded
        blocked.unlink()
        until = time.monotonic() + 20
        while database.degraded:
            assert time.monotonic() < until
            await asyncio.sleep(0.02)
            await database.commit(add(2))
        assert database.durable

    using(blocked / "notes.db", work)
    assert [1, 2] == read_file(blocked / "notes.db")


def test_while_another_process_holds_the_file_reads_go_on_and_writes_wait(tmp_path: Path) -> None:
    path = tmp_path / "notes.db"

    async def work(database: Database) -> None:
        await database.commit(add(1))
        with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            writing = asyncio.create_task(database.commit(add(2)))
            await asyncio.sleep(0.05)
            for _ in range(3):
                start = run_time()
                assert [1] == await database.read(numbers)
                assert run_time() - start < 0.6
            assert not writing.done()
            other.execute("COMMIT")
        await writing

    using(path, work)
    assert [1, 2] == read_file(path)


def test_a_file_that_stays_locked_is_told_after_a_while(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("turnscript.gateway.database.PATIENCE", 0.3)
    path = tmp_path / "notes.db"

    async def work(database: Database) -> None:
        await database.commit(add(1))
        with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            with pytest.raises(StorageUnavailable, match="locked"):
                await database.commit(add(2))
            other.execute("ROLLBACK")
        await database.commit(add(3))

    using(path, work)
    assert [1, 3] == read_file(path)
