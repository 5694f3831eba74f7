"""Owns a small database for tests, a look into its file without the gateway, and processes that write to it."""

import asyncio
import contextlib
import os
import sqlite3
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from turnscript.gateway.database import Bounds, Database, Schema

NOTES = Schema(
    version=3,
    create=(
        "CREATE TABLE IF NOT EXISTS notes (number INTEGER PRIMARY KEY, made REAL NOT NULL, text BLOB NOT NULL)",
        "CREATE INDEX IF NOT EXISTS notes_by_time ON notes (made)",
        """CREATE TABLE IF NOT EXISTS halves (number INTEGER REFERENCES notes ON DELETE CASCADE, half INTEGER,
            PRIMARY KEY (number, half))""",
    ),
    expire=("DELETE FROM notes WHERE made < :before",),
    oldest=(
        """DELETE FROM notes WHERE number IN (
            SELECT number FROM notes ORDER BY made LIMIT 1 + (SELECT count(*) FROM notes) / :share)""",
    ),
)


def add(number: int, text: bytes = b"x", made: float | None = None) -> Callable[[sqlite3.Connection], None]:
    """A note, and two rows that belong to it."""

    def work(connection: sqlite3.Connection) -> None:
        now = time.time() if made is None else made
        connection.execute("INSERT OR REPLACE INTO notes VALUES (?, ?, ?)", (number, now, text))
        connection.executemany("INSERT OR REPLACE INTO halves VALUES (?, ?)", [(number, 0), (number, 1)])

    return work


def numbers(connection: sqlite3.Connection) -> list[int]:
    """The notes that are there."""
    return [number for (number,) in connection.execute("SELECT number FROM notes ORDER BY number")]


def using(
    path: Path | None, work: Callable[[Database], Awaitable[Any]], bounds: Bounds | None = None
) -> tuple[Any, Database]:
    """What `work` gives for a database that is closed behind it."""

    async def run() -> tuple[Any, Database]:
        database = Database(path, NOTES, bounds or Bounds())
        try:
            return await work(database), database
        finally:
            await database.close()

    return asyncio.run(run())


def read_file(path: Path) -> list[int]:
    """The notes in a file, read without the gateway."""
    with contextlib.closing(sqlite3.connect(path)) as connection:
        assert ("ok",) == connection.execute("PRAGMA integrity_check").fetchone()
        whole = "SELECT number FROM halves GROUP BY number HAVING count(*) = 2"
        assert set(numbers(connection)) <= {number for (number,) in connection.execute(whole)}
        return numbers(connection)


WRITER = """
import asyncio, os, sys
from pathlib import Path
sys.path.insert(0, sys.argv[2])
from tests.gateway.notes import NOTES, add
from turnscript.gateway.database import Bounds, Database

async def main():
    database = Database(Path(sys.argv[1]), NOTES, Bounds())
    number = int(sys.argv[3])
    while True:
        for other in range(3):
            database.write(add(number + other + 1, b"y" * 3000))
        await database.commit(add(number, b"z" * 3000))
        os.write(1, b"%d\\n" % number)
        number += 4

asyncio.run(main())
"""
ROOT = Path(__file__).resolve().parents[2]


def start_writer(path: Path, first: int) -> subprocess.Popen[bytes]:
    """A process that writes notes and says which ones are kept."""
    environment = {**os.environ, "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}"}
    return subprocess.Popen(
        [sys.executable, "-c", WRITER, str(path), str(ROOT), str(first)], stdout=subprocess.PIPE, env=environment
    )
