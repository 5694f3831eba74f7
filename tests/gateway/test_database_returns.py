"""Owns the tests of a database whose file comes back: what was kept in memory goes into it, at once or later."""

import asyncio
import contextlib
import resource
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.gateway.notes import add, numbers, read_file, using
from turnscript.gateway import database as module
from turnscript.gateway.database import Bounds, Database


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_LOOK_AGAIN", 0.05)


@contextlib.contextmanager
def little_space(size: int) -> Iterator[None]:
    """No file of this process may be larger: to it, that is a full disk."""
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        signal.signal(signal.SIGXFSZ, handler)


async def durable(database: Database) -> None:
    """Wait until there is a file."""
    until = time.monotonic() + 30
    while not database.durable:
        assert time.monotonic() < until
        await asyncio.sleep(0.02)
        await database.read(numbers)


def test_what_does_not_fit_on_the_disk_yet_stays_in_memory(tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    folder.write_text("in the way")

    async def work(database: Database) -> None:
        for number in range(60):
            await database.commit(add(number, b"n" * 10_000))
        folder.unlink()
        with little_space(200_000):
            for _ in range(5):
                await asyncio.sleep(0.06)
                assert list(range(60)) == await database.read(numbers)
        await durable(database)
        assert 0 == database.counts["lost"]

    using(folder / "notes.db", work)
    assert list(range(60)) == read_file(folder / "notes.db")


def test_a_broken_file_that_comes_back_is_moved_aside_first(tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    folder.write_text("in the way")
    path = folder / "notes.db"

    async def work(database: Database) -> None:
        await database.commit(add(1))
        folder.unlink()
        folder.mkdir()
        path.write_bytes(b"these are not the notes that you look for\n" * 100)
        await durable(database)
        assert (1, 0) == (database.counts["aside"], database.counts["lost"])

    using(path, work)
    assert [1] == read_file(path)


def test_what_has_no_room_beside_what_the_file_holds_is_lost_and_counted(tmp_path: Path) -> None:
    """Its bound is what keeps it out, and that does not change: the file is more than memory."""
    folder, aside = tmp_path / "folder", tmp_path / "aside"
    path, bounds = folder / "notes.db", Bounds(size=400_000)

    async def fill(database: Database) -> None:
        for number in range(30):
            await database.commit(add(number, b"n" * 10_000))

    async def work(database: Database) -> None:
        await database.commit(add(100))
        for number in range(1000, 1025):
            await database.commit(add(number, b"n" * 10_000))
        folder.unlink()
        aside.rename(folder)
        await durable(database)
        assert 1 == database.counts["lost"]

    using(path, fill, bounds)
    folder.rename(aside)
    folder.write_text("in the way")
    using(path, work, bounds)
    assert list(range(30)) == read_file(path)
