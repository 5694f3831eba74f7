"""Owns the file of a database: opening it so that a killed process loses nothing, and moving a broken one aside."""

from __future__ import annotations

import contextlib
import itertools
import os
import shutil
import sqlite3
import tempfile
import time
from collections.abc import Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import Any, Protocol

from msgspec import Struct

try:
    import fcntl
except ImportError:  # no such locks here; then two processes must not find the same broken file at once
    fcntl = None  # type: ignore[assignment]

KINDS = {
    sqlite3.SQLITE_BUSY: "locked",
    sqlite3.SQLITE_LOCKED: "locked",
    sqlite3.SQLITE_FULL: "full",
    sqlite3.SQLITE_IOERR: "unwritable",
    sqlite3.SQLITE_READONLY: "unwritable",
    sqlite3.SQLITE_CANTOPEN: "unwritable",
    sqlite3.SQLITE_CORRUPT: "corrupt",
    sqlite3.SQLITE_NOTADB: "corrupt",
}
CORRUPT = "corrupt-"
"""What stands in the name of a broken file that was moved aside."""
_BUSY_MS = 100
_OPENING = 2.0  # seconds
_PAGE = 4096
_TOGETHER = 16  # rows of one statement
_FILES = ("", "-wal", "-shm")
_TRIED = "CREATE TABLE IF NOT EXISTS tried (one INTEGER PRIMARY KEY, bytes BLOB)"
"""What is written into to see whether a file can be written."""


class Tables(Protocol):
    """What of a schema opening a file needs."""

    @property
    def version(self) -> int:
        """The version of the tables."""
        ...

    @property
    def create(self) -> tuple[str, ...]:
        """The statements that make them."""
        ...


class Part(Struct, frozen=True):
    """Rows of a table that belong to one entry. `query` finds them by its key; where they cannot be read the entry is
    lost, or `otherwise` is done."""

    table: str
    query: str
    otherwise: str = ""


class Saving(Struct, frozen=True):
    """How entries of a broken file are saved. `keys`: queries that list their keys, of which each may fail. `mend`:
    what is missing then."""

    keys: tuple[str, ...]
    parts: tuple[Part, ...]
    mend: tuple[str, ...] = ()


def kind_of(error: Exception) -> str:
    """Which kind of failure an error is: a word of `KINDS`, or `error` for what no file is to blame for."""
    if isinstance(error, OSError):
        return "unwritable"
    if isinstance(error, _OtherVersion):
        return "corrupt"
    return KINDS.get(getattr(error, "sqlite_errorcode", -1) & 0xFF, "error")


def unusable(error: Exception) -> sqlite3.Error:
    """The error for a file that could not be opened because of another one, and of the same kind."""
    found = sqlite3.OperationalError(str(error))
    kind = kind_of(error)
    found.sqlite_errorcode = next((code for code, word in KINDS.items() if word == kind), sqlite3.SQLITE_CANTOPEN)
    return found


class _OtherVersion(sqlite3.DatabaseError):
    """The file has tables of another version."""


def connect(path: Path | None, tables: Tables, size: int) -> sqlite3.Connection:
    """An open connection with its tables, in memory if `path` is None. Raises sqlite3.Error and OSError.

    A file that another process is just making, too, is waited for.
    """
    if path is None:
        return _opened(":memory:", tables, size)
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    os.close(os.open(path, os.O_CREAT | os.O_RDWR, 0o600))  # conversations are nobody else's business
    until = time.monotonic() + _OPENING
    while True:
        try:
            return _opened(str(path), tables, size)
        except sqlite3.Error as error:
            if kind_of(error) != "locked" or time.monotonic() >= until:
                raise
        time.sleep(0.02)


def _opened(path: str, tables: Tables, size: int) -> sqlite3.Connection:
    connection = sqlite3.connect(path, isolation_level=None)
    try:
        _prepare(connection, tables, size)
    except sqlite3.Error:
        connection.close()
        raise
    return connection


def _prepare(connection: sqlite3.Connection, tables: Tables, size: int) -> None:
    execute = connection.execute
    execute(f"PRAGMA busy_timeout = {_BUSY_MS}")
    execute(f"PRAGMA page_size = {_PAGE}")
    execute("PRAGMA journal_mode = WAL")
    execute("PRAGMA synchronous = NORMAL")
    execute("PRAGMA foreign_keys = ON")
    execute("PRAGMA cell_size_check = ON")
    execute(f"PRAGMA journal_size_limit = {max(1 << 20, size // 8)}")
    execute(f"PRAGMA max_page_count = {max(64, size // _PAGE)}")
    version = execute("PRAGMA user_version").fetchone()[0]
    if version not in (0, tables.version):
        raise _OtherVersion(f"the file has version {version} of its tables, and this release knows {tables.version}")
    execute("BEGIN IMMEDIATE")
    for statement in (*tables.create, _TRIED):
        execute(statement)
    if version == 0:
        execute(f"PRAGMA user_version = {tables.version}")
    execute("COMMIT")


def insert(connection: sqlite3.Connection, head: str, rows: Sequence[Sequence[Any]], tail: str = "") -> None:
    """Put rows in, several by each statement: Python gives its lock away, and waits for it, as often as one is done."""
    for at in range(0, len(rows), _TOGETHER):
        some = rows[at : at + _TOGETHER]
        row = f"({', '.join('?' * len(some[0]))})"
        connection.execute(f"{head} VALUES {', '.join([row] * len(some))} {tail}", list(chain.from_iterable(some)))


def fingerprint(path: Path) -> tuple[int, int] | None:
    """Which file is at a path; None if there is none."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino


def set_aside(path: Path, version: int) -> Path | None:
    """Rename a broken file to `NAME.corrupt-TIME`, with what belongs to it. None if there is a good one by now.

    A good one with tables of another version is renamed to `NAME.version-TIME`.
    """
    with _alone(path):
        found = _version(path)
        if found in (0, version):
            return None
        word = CORRUPT if found is None else "version-"
        stamp = f"{word}{time.strftime('%Y%m%d-%H%M%S', time.gmtime())}"
        names = (f"{path.name}.{stamp}{f'-{number}' if number else ''}" for number in itertools.count())
        target = next(one for one in map(path.with_name, names) if not one.exists())
        for suffix in _FILES:
            with contextlib.suppress(FileNotFoundError):
                os.replace(f"{path}{suffix}", f"{target}{suffix}")
        return target


def save(broken: Path, into: sqlite3.Connection, saving: Saving) -> int:
    """Copy the entries of a broken file that can be read into a new one, each whole or not at all. Returns how many.
    Raises sqlite3.Error and OSError."""
    with tempfile.TemporaryDirectory(dir=broken.parent) as folder:  # to read it, SQLite may have to write
        copy = Path(folder) / broken.name
        for suffix in ("", "-wal"):
            with contextlib.suppress(FileNotFoundError):
                shutil.copyfile(f"{broken}{suffix}", f"{copy}{suffix}")
        with contextlib.closing(sqlite3.connect(copy, isolation_level=None)) as found:
            into.execute("PRAGMA foreign_keys = OFF")
            into.execute("BEGIN IMMEDIATE")
            saved = sum(_save_entry(found, into, key, saving.parts) for key in _keys(found, saving.keys))
            for statement in saving.mend:
                into.execute(statement)
            into.execute("COMMIT")
    return saved


def _keys(found: sqlite3.Connection, queries: Sequence[str]) -> list[Any]:
    """All keys that any of the queries finds before it fails."""
    keys: dict[Any, None] = {}
    for query in queries:
        with contextlib.suppress(sqlite3.DatabaseError):
            for key in found.execute(query):
                keys[key] = None
    return list(keys)


def _save_entry(found: sqlite3.Connection, into: sqlite3.Connection, key: Any, parts: Sequence[Part]) -> bool:
    rows: list[tuple[str, Any]] = []
    otherwise: list[str] = []
    for part in parts:
        try:
            rows += [(part.table, row) for row in found.execute(part.query, key).fetchall()]
        except sqlite3.DatabaseError:
            if not part.otherwise:
                return False
            otherwise.append(part.otherwise)
    for table, row in rows:
        into.execute(f"INSERT OR IGNORE INTO {table} VALUES ({', '.join('?' * len(row))})", row)
    for statement in otherwise:
        into.execute(statement, key)
    return bool(rows) and rows[0][0] == parts[0].table


def _version(path: Path) -> int | None:
    """The version of the tables in a file, 0 if it has none yet; None if it is broken."""
    if not path.exists():
        return 0
    connection = sqlite3.connect(path, isolation_level=None)
    try:
        whole = connection.execute("PRAGMA quick_check(1)").fetchone() == ("ok",)
        return int(connection.execute("PRAGMA user_version").fetchone()[0]) if whole else None
    except sqlite3.Error:
        return None
    finally:
        connection.close()


@contextlib.contextmanager
def _alone(path: Path) -> Iterator[None]:
    """No other process moves this file aside meanwhile."""
    with open(path.with_name(f"{path.name}.lock"), "ab") as lock:  # whatever a link of that name leads to stays
        if fcntl is not None:
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield
