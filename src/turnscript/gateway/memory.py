"""Owns the memory of what models wrote: a turn that a client sends back unchanged stands in the next prompt as it was.

A turn is found by what was said before it and in it, by the ids of its calls, and by the signatures of its thoughts.
Found or not, it counts only if the items that came back mean what the model wrote: a client that changed anything is
taken at its word, and its items are rendered. What was remembered lately is in memory, all of it in a database.
"""

from __future__ import annotations

import asyncio
import math
import sqlite3
import time
from collections import Counter, OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from turnscript.core.conversation import Assistant, Item, Request, Response, Thinking, ToolCall
from turnscript.core.json_text import closed
from turnscript.engine.prompt import Prompt
from turnscript.engine.replay import Generated, Replays
from turnscript.gateway.aside import Run, here
from turnscript.gateway.database import Database, Schema, StorageUnavailable
from turnscript.gateway.meaning import (
    MODEL,
    Beginning,
    History,
    Mend,
    Mends,
    beginning_of,
    digest,
    meanings,
    thoughts,
    turns,
    unlabelled,
)
from turnscript.gateway.sqlitefile import Part, Saving, insert

MB = 1024 * 1024
_TELLING = 16  # an id as long as this is nobody else's
_PATIENCE = 0.5  # seconds that a request waits for the database
_AT_ONCE = 400  # names in one query
_AT_A_TIME = 2000  # turns that are looked for: a millisecond or two
_MOST_NAMES = 64  # of one turn in memory

_TEXT = frozenset([Assistant])

_encode = msgspec.msgpack.Encoder().encode

SCHEMA = Schema(
    version=2,
    create=(
        """CREATE TABLE IF NOT EXISTS turns (
            id BLOB PRIMARY KEY, made REAL NOT NULL, used REAL NOT NULL, body BLOB NOT NULL)""",
        "CREATE INDEX IF NOT EXISTS turns_by_use ON turns (used)",
        """CREATE TABLE IF NOT EXISTS names (
            name BLOB NOT NULL, turn BLOB NOT NULL REFERENCES turns ON DELETE CASCADE, PRIMARY KEY (name, turn)
            ) WITHOUT ROWID""",
        "CREATE INDEX IF NOT EXISTS names_by_turn ON names (turn)",
    ),
    expire=("DELETE FROM turns WHERE used < :before",),
    oldest=(
        """DELETE FROM turns WHERE rowid IN (
            SELECT rowid FROM turns ORDER BY used LIMIT 1 + (SELECT count(*) FROM turns) / :share)""",
    ),
    saving=Saving(
        keys=("SELECT id FROM turns ORDER BY used", "SELECT id FROM turns ORDER BY id", "SELECT turn FROM names"),
        parts=(
            Part("turns", "SELECT * FROM turns WHERE id = ?"),
            Part("names", "SELECT * FROM names WHERE turn = ?"),
        ),
    ),
)


class Turn(Struct, frozen=True, array_like=True, gc=False):
    """What is remembered of a turn: its text, and what it means, so that an echo can be told from a change."""

    generated: Generated
    meanings: tuple[bytes, ...]
    thoughts: tuple[bytes, ...]

    def is_echoed(self, echo: Echo) -> bool:
        """Whether items that mean this, with these thoughts, some of them or none, are the turn sent back."""
        said = any(one in self.meanings for one in echo.meanings)
        *each, joined = echo.thoughts or (b"",)
        return said and (all(one in self.thoughts for one in each) or joined in self.thoughts)


class Echo(Struct, frozen=True, gc=False):
    """A turn of the model in a request: where it stands, what it means, and the names by which it may be known."""

    start: int
    end: int
    meanings: tuple[bytes, ...]
    thoughts: tuple[bytes, ...]
    names: tuple[bytes, ...]


class Recalled(Struct, frozen=True, kw_only=True):
    """What is remembered of a request's turns: `replays` for its prompt, `reused` of `turns` that the model took.

    The rest is for remembering the answer: what was said before it, and the text that the answer goes on from.
    """

    replays: Replays = ()
    turns: int = 0
    scope: str = ""
    before: bytes = b""
    begun: Sequence[Item] = ()
    mends: Mends = Mends()

    @property
    def reused(self) -> int:
        """How many turns came back as they were generated."""
        return len(self.replays)


class Memory:
    """Remembers turns, in memory up to `held` bytes for `ttl` seconds, and in a database if there is one.

    `scope` of `recall` is whatever two conversations must share to know each other's turns: the model, the prompt
    format with its variant, the key of the client. `limit`: the longest turn, in characters.
    """

    def __init__(
        self, database: Database | None = None, *, held: int = 64 * MB, limit: int = MB, ttl: float | None = None
    ) -> None:
        self._database = database
        self._limit = limit
        self._held = _Held(held, ttl)
        self.counts: Counter[str] = Counter()

    async def recall(
        self, scope: str, request: Request, run: Run = here, beginning: Beginning | None = None
    ) -> Recalled:
        """The turns of a request that came back unchanged. Never fails: what cannot be looked up is not known.
        `beginning`: that of its conversation, if it is at hand."""
        if run is here:
            read = _read(scope, request, beginning)
        else:
            read = await run(partial(_read, scope, request, beginning))
        echoes, history, begun, mended = read
        if not echoes:
            return Recalled(scope=scope, before=history.digest, begun=begun, mends=mended)
        found = await self._find(echoes)
        missing = [echo for echo in echoes if found[echo.start] is None]
        if missing and self._database is not None:
            await self._look_up(self._database, missing, run)
            found |= await self._find(missing)
        replays = [(echo.start, echo.end, turn.generated) for echo in echoes if (turn := found[echo.start]) is not None]
        self.counts["recalled"] += len(replays)
        self.counts["unknown"] += len(echoes) - len(replays)
        before = history.digest
        return Recalled(replays=replays, turns=len(echoes), scope=scope, before=before, begun=begun, mends=mended)

    def remember(self, recalled: Recalled, response: Response, prompt: Prompt, *, ids: bool = True) -> bool:
        """Keep the text of an answer for its items as the client is told them: with their ids and signatures.

        Returns whether there is anything to keep. `recalled` is what `recall` said of the request. `ids`: whether the
        client is told the ids of calls; if not, they come back without.
        """
        kept = [self._remember(recalled, one, prompt, ids) for one in _as_sent_back(response)]
        return any(kept)

    def _remember(self, recalled: Recalled, response: Response, prompt: Prompt, ids: bool) -> bool:
        generated = prompt.generated(response)
        if generated is None or not recalled.scope:
            return False
        if len(generated.opening) + len(generated.text) > self._limit:
            self.counts["too_long"] += 1
            return False
        items = response.items if ids else map(_without_id, response.items)
        turn, names = _told(recalled, generated, [*recalled.begun, *items])
        try:
            body = _encode(turn)
        except UnicodeEncodeError:  # half of a surrogate pair, which no file can hold
            return False
        self._held.keep(turn, names, len(body))
        self.counts["remembered"] += 1
        if self._database is not None:
            self._database.add(_insert, (body, names, time.time()), len(body))
        return True

    async def _find(self, echoes: list[Echo]) -> dict[int, Turn | None]:
        """What is in memory of turns, by where they start. Where they are many, all else goes on in between."""
        found: dict[int, Turn | None] = {}
        for at in range(0, len(echoes), _AT_A_TIME):
            if at:
                await asyncio.sleep(0)
            found |= {echo.start: self._held.find(echo) for echo in echoes[at : at + _AT_A_TIME]}
        return found

    async def _look_up(self, database: Database, echoes: list[Echo], run: Run) -> None:
        wanted = await run(lambda: list(dict.fromkeys(name for echo in echoes for name in echo.names)))
        try:
            rows = await database.read(partial(_select, names=wanted), timeout=_PATIENCE)
        except (TimeoutError, StorageUnavailable):
            self.counts["not_looked_up"] += 1
            return
        stale: list[bytes] = []
        now = time.time()
        for id_, used, body, names in rows:
            if digest(body) != id_:  # the disk has changed it
                self.counts["damaged"] += 1
                continue
            try:
                turn = msgspec.msgpack.decode(body, type=Turn)
            except msgspec.DecodeError:
                self.counts["damaged"] += 1
                continue
            self._held.keep(turn, names, len(body))
            stale += [id_] if used < now - 3600 else []
        if stale:
            database.write(partial(_touch, ids=stale, now=now))


class _Held:
    """Turns in memory, the ones used last, by any of their names. Of several with one name the newest counts first."""

    def __init__(self, size: int, ttl: float | None) -> None:
        self._size = size
        self._ttl = math.inf if ttl is None else ttl
        self._used = 0
        self._turns: OrderedDict[int, tuple[Turn, tuple[bytes, ...], int, float]] = OrderedDict()
        self._names: dict[bytes, list[int]] = {}
        self._next = 0

    def keep(self, turn: Turn, names: Sequence[bytes], size: int) -> None:
        known = tuple(names)
        if len(known) == 1 and self._is_newest(known[0], turn):
            number = self._names[known[0]][-1]
            turn, known, size, _ = self._turns[number]
            self._turns[number] = turn, known, size, time.monotonic()
            self._turns.move_to_end(number)
            return
        for name in known:
            for number in self._names.get(name, ()):
                if self._turns[number][0] == turn:
                    known = tuple(dict.fromkeys((*known, *self._turns[number][1])))[:_MOST_NAMES]
                    self._forget(number)
                    break
        size += 64 * (len(known) + 4)
        number = self._next = self._next + 1
        self._turns[number] = turn, known, size, time.monotonic()
        self._used += size
        for name in known:
            self._names.setdefault(name, []).append(number)
        while self._used > self._size and self._turns:
            self._forget(next(iter(self._turns)))

    def _is_newest(self, name: bytes, turn: Turn) -> bool:
        """Whether a turn is the one that was kept last under a name, and under no other."""
        numbers = self._names.get(name)
        if not numbers:
            return False
        held, known, _, _ = self._turns[numbers[-1]]
        return len(known) == 1 and held == turn

    def find(self, echo: Echo) -> Turn | None:
        for name in echo.names:
            for number in reversed(self._names.get(name, ())):
                turn, _, _, kept = self._turns[number]
                if turn.is_echoed(echo) and time.monotonic() - kept <= self._ttl:
                    self._turns.move_to_end(number)
                    return turn
        return None

    def _forget(self, number: int) -> None:
        _, names, size, _ = self._turns.pop(number)
        self._used -= size
        for name in names:
            numbers = self._names[name]
            numbers.remove(number)
            if not numbers:
                del self._names[name]


def _read(
    scope: str, request: Request, beginning: Beginning | None
) -> tuple[list[Echo], History, Sequence[Item], Mends]:
    """The turns of a conversation, what was said up to its answer, and the text that the answer goes on from; last what
    clients mend in the calls of its tools."""
    history, mended = History(scope), Mends(request)
    items: Sequence[Item] = request.items
    beginning = beginning or beginning_of(items)
    history.begin(beginning)
    at = beginning.length
    if at == len(items):
        return [], history, (), mended
    items = unlabelled(items)
    echoes: list[Echo] = []
    for start, end in turns(items):
        history.add(items[at:start])
        said, at = items[start:end], end
        if items[end - 1].open and end == len(items):
            begun = said if len(said) == 1 and type(said[0]) is Assistant else ()
            return echoes, history, begun, mended
        called = [item for item in said if type(item) is ToolCall]
        meant = _meant(said, True, mended.told) if called else meanings(said)
        names = _names(scope, history.digest, meant, said)
        echoes.append(Echo(start, end, tuple(meant), tuple(thoughts(said)), tuple(names)))
        history.add(said)
    history.add(items[at:])
    return echoes, history, (), mended


def _told(recalled: Recalled, generated: Generated, said: Sequence[Item]) -> tuple[Turn, Sequence[bytes]]:
    """A turn to be remembered, of which the model has said this, and its names."""
    if _TEXT.issuperset(map(type, said)):  # as most are
        meant = meanings(said)
        return Turn(generated, tuple(meant), ()), [recalled.before + one for one in meant]
    called = [item for item in said if type(item) is ToolCall]
    if called:
        nameless, mends = any(item.id is None for item in called), recalled.mends
        meant = _meant(said, nameless, mends.told)
        meant += _meant(said, nameless, mends.written) if mends.written is not mends.told else []
    else:
        meant = meanings(said)
    turn = Turn(generated, tuple(dict.fromkeys(meant)), tuple(thoughts(said)))
    return turn, _names(recalled.scope, recalled.before, turn.meanings, said)


def _as_sent_back(response: Response) -> list[Response]:
    """An answer in the ways in which clients send it back: without a call that was cut off, with what came of it, and
    with what a reader of its beginning makes of that."""
    cut = response.cut
    if cut is None:
        return [response]
    ways = dict.fromkeys([cut.arguments, cut.arguments if cut.custom else closed(cut.arguments)])
    calls = [replace(cut, arguments=one, open=False) for one in ways]
    return [response, *(replace(response, items=[*response.items, one]) for one in calls)]


def _meant(items: Sequence[Item], nameless: bool, mended: Mapping[str, Mend]) -> list[bytes]:
    """What a turn means, and what it would without the ids of its calls if those may be told or not."""
    return [*meanings(items, mends=mended), *(meanings(items, False, mended) if nameless else ())]


def _names(scope: str, before: bytes, meant: Sequence[bytes], items: Sequence[Item]) -> list[bytes]:
    """What a turn may be known by, each once: all that was said, the ids of its calls, the proofs of its thoughts."""
    proven: list[bytes] = []
    for item in items:
        if type(item) is ToolCall and item.id is not None and len(item.id) >= _TELLING:
            proven.append(digest("call", scope, item.id.encode("utf-8", "surrogatepass")))
        elif type(item) is Thinking:
            proofs = (item.signature, item.encrypted, item.redacted)
            proven += [digest("proof", scope, proof.encode("utf-8", "surrogatepass")) for proof in proofs if proof]
    names = [before + one for one in meant]  # both are digests, and what was said before begins with the scope
    return [*dict.fromkeys(names), *dict.fromkeys(proven)] if proven or len(names) > 1 else names


def _without_id(item: Item) -> Item:
    return replace(item, id=None) if type(item) is ToolCall else item


# What the database's thread does.


def _insert(connection: sqlite3.Connection, turns: Iterable[tuple[bytes, Sequence[bytes], float]]) -> None:
    """Put in turns: of each its body, its names and the time."""
    told: list[tuple[bytearray, float, float, bytearray]] = []
    known: list[tuple[bytearray, bytearray]] = []
    for body, names, now in turns:
        # Python asks of bytes in three ways whether they are to be adapted to the database, and never of these.
        id_ = bytearray(digest(body))
        told.append((id_, now, now, bytearray(body)))
        known += [(bytearray(name), id_) for name in names]
    again = "ON CONFLICT (id) DO UPDATE SET made = excluded.made, used = excluded.used"
    insert(connection, "INSERT INTO turns", told, again)
    insert(connection, "INSERT OR IGNORE INTO names", known)


def _select(connection: sqlite3.Connection, *, names: Sequence[bytes]) -> list[tuple[bytes, float, bytes, list[bytes]]]:
    """The turns with any of the names, oldest first."""
    known: dict[bytes, list[bytes]] = {}
    for start in range(0, len(names), _AT_ONCE):
        some = names[start : start + _AT_ONCE]
        query = f"SELECT name, turn FROM names WHERE name IN ({', '.join('?' * len(some))})"
        for name, id_ in connection.execute(query, some):
            known.setdefault(id_, []).append(name)
    rows: list[Any] = []
    ids = list(known)
    for start in range(0, len(ids), _AT_ONCE):
        part = ids[start : start + _AT_ONCE]
        query = f"SELECT id, made, used, body FROM turns WHERE id IN ({', '.join('?' * len(part))})"
        rows += connection.execute(query, part).fetchall()
    return [(id_, used, body, known[id_]) for id_, made, used, body in sorted(rows, key=lambda row: row[1])]


def _touch(connection: sqlite3.Connection, *, ids: Sequence[bytes], now: float) -> None:
    connection.executemany("UPDATE turns SET used = ? WHERE id = ?", [(now, id_) for id_ in ids])


__all__ = ["MODEL", "SCHEMA", "Memory", "Recalled"]
