"""Owns the answers that clients ask for again: by their id, item by item, and as the conversation of a later request.

An answer keeps the items that its request added and its own; a conversation is a chain of answers, each of which names
the one before. A chain is kept or forgotten as a whole, so that no conversation loses its beginning. Every id belongs
to the client whose key made it (`owner`); for all others it does not exist.
"""

from __future__ import annotations

import asyncio
import sqlite3
import sys
import time
import zlib
from collections import Counter
from collections.abc import AsyncIterator, Iterable, Sequence
from functools import partial
from typing import Any, Literal

import msgspec
from msgspec import Struct

from turnscript.core.errors import Conflict, InvalidRequest
from turnscript.gateway.database import Database, Schema, StorageUnavailable
from turnscript.gateway.sqlitefile import Part, Saving

Order = Literal["asc", "desc"]
_SMALL = 512  # bytes that are not worth compressing

SCHEMA = Schema(
    version=1,
    create=(
        """CREATE TABLE IF NOT EXISTS chains (
            owner TEXT NOT NULL, root TEXT NOT NULL, used REAL NOT NULL, PRIMARY KEY (owner, root)) WITHOUT ROWID""",
        "CREATE INDEX IF NOT EXISTS chains_by_use ON chains (used)",
        """CREATE TABLE IF NOT EXISTS answers (
            owner TEXT NOT NULL, id TEXT NOT NULL, root TEXT NOT NULL, previous TEXT, made REAL NOT NULL,
            finished INTEGER NOT NULL, deleted INTEGER NOT NULL DEFAULT 0,
            request BLOB NOT NULL, answer BLOB NOT NULL, events BLOB, PRIMARY KEY (owner, id),
            FOREIGN KEY (owner, root) REFERENCES chains (owner, root) ON DELETE CASCADE) WITHOUT ROWID""",
        "CREATE INDEX IF NOT EXISTS answers_by_previous ON answers (owner, previous)",
        "CREATE INDEX IF NOT EXISTS answers_by_root ON answers (owner, root)",
        """CREATE TABLE IF NOT EXISTS items (
            owner TEXT NOT NULL, answer TEXT NOT NULL, side INTEGER NOT NULL, place INTEGER NOT NULL,
            id TEXT NOT NULL, body BLOB NOT NULL, PRIMARY KEY (owner, answer, side, place),
            FOREIGN KEY (owner, answer) REFERENCES answers (owner, id) ON DELETE CASCADE) WITHOUT ROWID""",
        "CREATE INDEX IF NOT EXISTS items_by_id ON items (owner, id)",
        # Of the few answers that do not say 0: a table of its own, so that files from before stay as they are.
        """CREATE TABLE IF NOT EXISTS losses (
            owner TEXT NOT NULL, answer TEXT NOT NULL, losses INTEGER, PRIMARY KEY (owner, answer),
            FOREIGN KEY (owner, answer) REFERENCES answers (owner, id) ON DELETE CASCADE) WITHOUT ROWID""",
    ),
    expire=("DELETE FROM chains WHERE used < :before",),
    oldest=(
        """DELETE FROM chains WHERE (owner, root) IN (
            SELECT owner, root FROM chains ORDER BY used LIMIT 1 + (SELECT count(*) FROM chains) / :share)""",
    ),
    saving=Saving(
        keys=(
            "SELECT owner, id FROM answers ORDER BY owner, id",
            "SELECT owner, id FROM answers ORDER BY owner DESC, id DESC",
            "SELECT owner, id FROM answers INDEXED BY answers_by_previous WHERE owner >= ''",
            "SELECT owner, id FROM answers INDEXED BY answers_by_root WHERE owner >= ''",
        ),
        parts=(
            Part("answers", "SELECT * FROM answers WHERE owner = ? AND id = ?"),
            Part("items", "SELECT * FROM items WHERE owner = ? AND answer = ?"),
            Part(
                "losses",
                "SELECT * FROM losses WHERE owner = ? AND answer = ?",
                "INSERT OR IGNORE INTO losses VALUES (?, ?, NULL)",
            ),
        ),
        mend=("INSERT OR IGNORE INTO chains SELECT owner, root, max(made) FROM answers GROUP BY owner, root",),
    ),
)


class StoredItem(Struct, frozen=True, gc=False):
    """An item of a conversation as it stands on the wire."""

    id: str
    body: bytes


class Answer(Struct, frozen=True, kw_only=True, gc=False):
    """An answer to be kept: the bodies of its request and of itself, and the items of both.

    `items_in`: what the request itself added, not what the answer before (`previous`) brings. `finished`: false for one
    that is still being made. `events`: its stream, one entry for each event, for those who come back for the rest.
    `losses`: how many it had; None where nobody is told.
    """

    id: str
    request: bytes
    body: bytes
    items_in: Sequence[StoredItem] = ()
    items_out: Sequence[StoredItem] = ()
    previous: str | None = None
    finished: bool = True
    events: Sequence[bytes] | None = None
    losses: int | None = 0


class Kept(Struct, frozen=True, gc=False):
    """An answer as it was kept."""

    id: str
    request: bytes
    body: bytes
    previous: str | None
    finished: bool
    made: float


class Page(Struct, frozen=True, gc=False):
    """Some of a list of items."""

    items: list[StoredItem]
    more: bool


class Store:
    """Keeps answers in a database. Whatever is told to be kept is found by the next request, and after a restart.

    All methods raise StorageUnavailable where the database cannot be used; so do those that find nothing while memory
    stands in for its file, which may have it. `counts`: put, found, missing, damaged.
    """

    def __init__(self, database: Database) -> None:
        self._database = database
        self._running: dict[tuple[str, str], EventLog] = {}
        self.counts: Counter[str] = Counter()

    async def ask(self) -> str:
        """Return where an answer could be kept now: empty words where it is kept as it is to be, else what to say.
        Raises StorageUnavailable."""
        await self._database.ask()
        kind = self._database.degraded
        return f"its file cannot be used now ({kind}), so this is kept in memory alone until it can" if kind else ""

    def _check_missing(self) -> None:
        kind = self._database.degraded
        if kind:
            raise StorageUnavailable(kind, "its file, where this may be, cannot be used")

    async def put(self, owner: str, answer: Answer) -> bool:
        """Keep an answer, or a later state of it. When this returns, it is kept: all of it or, on an error, nothing.

        Returns whether it also survives the death of the process. An answer that was deleted meanwhile stays so.
        """
        pieces = [item.body for item in (*answer.items_in, *answer.items_out)]
        size = sum(map(len, (answer.request, answer.body, *pieces, *(answer.events or ()))))
        await self._database.commit(partial(_put, owner=owner, answer=answer, now=time.time()), size)
        self.counts["put"] += 1
        return self._database.durable

    async def get(self, owner: str, id_: str) -> Kept | None:
        """The answer of that id."""
        row = await self._database.read(partial(_get, owner=owner, id_=id_))
        if row is not None:
            request, body = _unpacked(row[1]), _unpacked(row[2])
            if request is not None and body is not None:
                self.counts["found"] += 1
                return Kept(row[0], request, body, row[3], bool(row[4]), row[5])
            self.counts["damaged"] += 1
        self._check_missing()
        self.counts["missing"] += 1
        return None

    async def losses_of(self, owner: str, id_: str) -> int | None:
        """How many losses an answer had; None where nobody is told."""
        return await self._database.read(partial(_losses, owner=owner, id_=id_))

    async def delete(self, owner: str, id_: str) -> bool:
        """Forget an answer; false if there is none. A conversation that goes on from it still has its items, until
        the last answer behind it is deleted, too."""
        deleted = await self._database.commit(partial(_delete, owner=owner, id_=id_))
        if not deleted:
            self._check_missing()
        return deleted

    async def input_items(
        self, owner: str, id_: str, *, after: str | None = None, limit: int = 20, order: Order = "desc"
    ) -> Page | None:
        """The items of an answer's request, those behind the item `after`; None where there is no such answer.

        Raises InvalidRequest for an item that is not among them.
        """
        rows = await self._database.read(partial(_items_in, owner=owner, id_=id_))
        if rows is None:
            self._check_missing()
            return None
        items = self._sound(rows) or []
        items = items if order == "asc" else items[::-1]
        if after is not None:
            at = next((at for at, item in enumerate(items) if item.id == after), -1)
            if at < 0:
                message = f"there is no input item {after!r} in {id_!r}"
                raise InvalidRequest(message, path="after", expected="the id of one of its items", got=repr(after))
            items = items[at + 1 :]
        return Page(items[:limit], len(items) > limit)

    async def chain(self, owner: str, previous: str, most: int = sys.maxsize) -> list[StoredItem] | None:
        """The conversation up to an answer and with it: of each answer what went in, then what came out. Of one that
        has more than `most` bytes, as much as it takes to know that.

        None where there is no such answer, or one before it is gone: half a conversation is none.
        """
        rows = await self._database.read(partial(_chain, owner=owner, id_=previous, most=most))
        if rows is None:
            self._check_missing()
            return None
        self._database.write(partial(_touch, owner=owner, id_=previous, now=time.time()))
        return self._sound(rows)

    async def items(self, owner: str, ids: Sequence[str], most: int = sys.maxsize) -> dict[str, StoredItem]:
        """The items with these ids that went into an answer or came out of one, as they were kept last. Where they have
        more than `most` bytes, as many as it takes to know that."""
        wanted = list(dict.fromkeys(ids))
        rows = await self._database.read(partial(_items, owner=owner, ids=wanted, most=most))
        found = {item.id: item for item in self._sound(rows, whole=False) or []}
        if len(found) < len(wanted) and sum(len(item.body) for item in found.values()) <= most:
            self._check_missing()
        return found

    async def item(self, owner: str, id_: str) -> StoredItem | None:
        """The item of that id."""
        return (await self.items(owner, [id_])).get(id_)

    async def unfinished(self) -> list[tuple[str, str]]:
        """Owner and id of answers that nobody finished, such as those of a process that was killed."""
        return await self._database.read(_unfinished)

    # Streams that clients come back to.

    def begin_events(self, owner: str, id_: str, limit: int = 16 * 1024 * 1024) -> EventLog:
        """A log of a stream that is being made. Its maker adds events, and takes it off with `end_events`."""
        log = self._running[owner, id_] = EventLog(limit)
        return log

    def end_events(self, owner: str, id_: str) -> None:
        """The stream has ended: whoever follows it gets the rest, and others find it with its answer."""
        log = self._running.pop((owner, id_), None)
        if log is not None:
            log.close()

    async def follow(self, owner: str, id_: str, after: int = -1) -> AsyncIterator[bytes] | None:
        """The events of a stream behind the one with the number `after`, as they come. None where none are kept.

        Who reads them slowly may meet Behind.
        """
        log = self._running.get((owner, id_))
        if log is None:
            packed = await self._database.read(partial(_events, owner=owner, id_=id_))
            data = None if packed is None else _unpacked(packed)
            if data is None:
                self._check_missing()
                return None
            log = EventLog(len(data))
            log.events = msgspec.msgpack.decode(data, type=list[bytes])
            log.close()
        return None if log.overflowed else log.follow(after)

    def _sound(self, read: Sequence[StoredItem | None], whole: bool = True) -> list[StoredItem] | None:
        """The items that were not damaged; None if one is that is part of a whole."""
        items = [item for item in read if item is not None]
        damaged = len(read) - len(items)
        self.counts["damaged"] += damaged
        return None if damaged and whole else items


class Behind(Conflict):
    """Whoever follows a stream has read too slowly: the event `number`, the next for them, is not kept any more."""

    def __init__(self, number: int) -> None:
        super().__init__("this stream was read too slowly to be gone on with; ask for the whole answer by its id")
        self.number = number

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self.number,)


class EventLog:
    """The events of one stream, for those who follow it: from any number on, and as they come.

    One that grows longer than `limit` bytes overflows: nobody comes back to it any more, and those who follow it get
    the rest as long as they are not further behind than that.
    """

    def __init__(self, limit: int) -> None:
        self.events: list[bytes] = []
        self.overflowed = False
        self._limit, self._size = limit, 0
        self._gone = 0  # how many came before the first of `events`
        self._over = False
        self._news = asyncio.Event()

    @property
    def next(self) -> int:
        """The number of the event that comes next."""
        return self._gone + len(self.events)

    def add(self, *events: bytes) -> None:
        """More events; the number of each is how many came before it.

        Older ones make room for them, never those that come at once: nobody could have read these yet.
        """
        gone = 0
        while self._size > self._limit:
            self._size -= len(self.events[gone])
            gone += 1
        del self.events[:gone]
        self._gone += gone
        self.events += events
        self._size += sum(map(len, events))
        self.overflowed = self.overflowed or self._size > self._limit
        self._tell()

    def close(self) -> None:
        """There will be no more."""
        self._over = True
        self._tell()

    def _tell(self) -> None:
        news, self._news = self._news, asyncio.Event()
        news.set()

    async def follow(self, after: int) -> AsyncIterator[bytes]:
        """The events behind a number, until the last. Raises Behind where older ones had to make room meanwhile."""
        at = max(0, after + 1)
        while True:
            news = self._news
            while at < self.next:
                if at < self._gone:
                    raise Behind(at)
                yield self.events[at - self._gone]
                at += 1
            if self._over:
                return
            await news.wait()


# What the database's thread does.


def _put(connection: sqlite3.Connection, *, owner: str, answer: Answer, now: float) -> None:
    execute = connection.execute
    known = execute("SELECT root, deleted FROM answers WHERE owner = ? AND id = ?", (owner, answer.id)).fetchone()
    if known is not None and known[1]:
        return
    root = known[0] if known is not None else answer.id
    if known is None and answer.previous is not None:
        before = (owner, answer.previous)
        found = execute("SELECT root FROM answers WHERE owner = ? AND id = ?", before).fetchone()
        root = found[0] if found is not None else answer.id
    execute(
        "INSERT INTO chains VALUES (?, ?, ?) ON CONFLICT (owner, root) DO UPDATE SET used = excluded.used",
        (owner, root, now),
    )
    events = None if answer.events is None else _packed(msgspec.msgpack.encode(list(answer.events)))
    row = (owner, answer.id, root, answer.previous, now, answer.finished)
    execute(
        "INSERT INTO answers (owner, id, root, previous, made, finished, request, answer, events)"
        " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (owner, id) DO UPDATE SET"
        " finished = excluded.finished, request = excluded.request, answer = excluded.answer, events = excluded.events",
        (*row, _packed(answer.request), _packed(answer.body), events),
    )
    execute("DELETE FROM items WHERE owner = ? AND answer = ?", (owner, answer.id))
    for side, items in enumerate((answer.items_in, answer.items_out)):
        rows = [(owner, answer.id, side, place, item.id, _packed(item.body)) for place, item in enumerate(items)]
        connection.executemany("INSERT INTO items VALUES (?, ?, ?, ?, ?, ?)", rows)
    if answer.losses != 0:
        execute("INSERT OR REPLACE INTO losses VALUES (?, ?, ?)", (owner, answer.id, answer.losses))


def _get(connection: sqlite3.Connection, *, owner: str, id_: str) -> Any:
    query = (
        "SELECT id, request, answer, previous, finished, made FROM answers WHERE owner = ? AND id = ? AND NOT deleted"
    )
    return connection.execute(query, (owner, id_)).fetchone()


def _losses(connection: sqlite3.Connection, *, owner: str, id_: str) -> int | None:
    row = connection.execute("SELECT losses FROM losses WHERE owner = ? AND answer = ?", (owner, id_)).fetchone()
    return 0 if row is None else row[0]


def _events(connection: sqlite3.Connection, *, owner: str, id_: str) -> bytes | None:
    query = "SELECT events FROM answers WHERE owner = ? AND id = ? AND NOT deleted"
    row = connection.execute(query, (owner, id_)).fetchone()
    return None if row is None else row[0]


def _items_in(connection: sqlite3.Connection, *, owner: str, id_: str) -> list[StoredItem | None] | None:
    if _get(connection, owner=owner, id_=id_) is None:
        return None
    query = "SELECT id, body FROM items WHERE owner = ? AND answer = ? AND side = 0 ORDER BY place"
    return [_item(row) for row in connection.execute(query, (owner, id_))]


def _chain(connection: sqlite3.Connection, *, owner: str, id_: str, most: int) -> list[StoredItem | None] | None:
    if _get(connection, owner=owner, id_=id_) is None:
        return None
    query = "SELECT previous FROM answers WHERE owner = ? AND id = ?"
    ids: dict[str, None] = {}
    at: str | None = id_
    while at is not None:
        row = connection.execute(query, (owner, at)).fetchone()
        if row is None or at in ids:
            return None
        ids[at] = None
        at = row[0]
    query = "SELECT id, body FROM items WHERE owner = ? AND answer = ? ORDER BY side, place"
    return _within(most, (row for one in reversed(ids) for row in connection.execute(query, (owner, one))))


def _touch(connection: sqlite3.Connection, *, owner: str, id_: str, now: float) -> None:
    connection.execute(
        "UPDATE chains SET used = max(used, ?) WHERE owner = ? AND root ="
        " (SELECT root FROM answers WHERE owner = ? AND id = ?)",
        (now, owner, owner, id_),
    )


def _items(connection: sqlite3.Connection, *, owner: str, ids: Sequence[str], most: int) -> list[StoredItem | None]:
    query = """SELECT items.id, items.body FROM items
        JOIN answers ON answers.owner = items.owner AND answers.id = items.answer
        WHERE items.owner = ? AND items.id = ? AND NOT answers.deleted ORDER BY answers.made DESC LIMIT 1"""
    return _within(most, (row for one in ids for row in connection.execute(query, (owner, one))))


def _within(most: int, rows: Iterable[tuple[str, bytes]]) -> list[StoredItem | None]:
    """The items of rows, up to the one with which they have more than `most` bytes: a few packed ones fill a memory."""
    items: list[StoredItem | None] = []
    size = 0
    for row in rows:
        item = _item(row)
        items.append(item)
        size += 0 if item is None else len(item.body)
        if size > most:
            break
    return items


def _unfinished(connection: sqlite3.Connection) -> list[tuple[str, str]]:
    return connection.execute("SELECT owner, id FROM answers WHERE NOT finished AND NOT deleted").fetchall()


def _delete(connection: sqlite3.Connection, *, owner: str, id_: str) -> bool:
    execute = connection.execute
    row = execute("SELECT root FROM answers WHERE owner = ? AND id = ? AND NOT deleted", (owner, id_)).fetchone()
    if row is None:
        return False
    execute(
        "UPDATE answers SET deleted = 1, request = x'', answer = x'', events = NULL WHERE owner = ? AND id = ?",
        (owner, id_),
    )
    at: str | None = id_
    while at is not None:  # what was deleted before and nothing goes on from any more
        found = execute("SELECT previous, deleted FROM answers WHERE owner = ? AND id = ?", (owner, at)).fetchone()
        follower = execute("SELECT 1 FROM answers WHERE owner = ? AND previous = ? LIMIT 1", (owner, at)).fetchone()
        if found is None or not found[1] or follower is not None:
            break
        execute("DELETE FROM answers WHERE owner = ? AND id = ?", (owner, at))
        at = found[0]
    rest = execute("SELECT 1 FROM answers WHERE owner = ? AND root = ? LIMIT 1", (owner, row[0])).fetchone()
    if rest is None:
        execute("DELETE FROM chains WHERE owner = ? AND root = ?", (owner, row[0]))
    return True


def _packed(data: bytes) -> bytes:
    return b"z" + zlib.compress(data, 1) if len(data) > _SMALL else b"p%08x" % zlib.crc32(data) + data


def _item(row: tuple[str, bytes]) -> StoredItem | None:
    """An item from its row; None if the disk has changed it."""
    body = _unpacked(row[1])
    return None if body is None else StoredItem(row[0], body)


def _unpacked(packed: bytes) -> bytes | None:
    """The bytes that were packed; None if the disk has changed them."""
    try:
        if packed[:1] == b"z":
            return zlib.decompress(packed[1:])
        data = packed[9:]
        return data if packed[:9] == b"p%08x" % zlib.crc32(data) else None
    except zlib.error:
        return None


__all__ = ["SCHEMA", "Answer", "Behind", "EventLog", "Kept", "Page", "Store", "StoredItem"]
