"""Owns the tests of the store: an answer is there as soon as its client may ask for it, whole, for nobody else."""

import asyncio
import contextlib
import os
import random
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from turnscript.core.errors import InvalidRequest
from turnscript.gateway import database as module
from turnscript.gateway.database import Bounds, Database, StorageUnavailable
from turnscript.gateway.store import SCHEMA, Answer, Behind, Store, StoredItem


def using(path: Path | None, work: Callable[[Store], Awaitable[Any]], bounds: Bounds | None = None) -> Any:
    """What `work` gives for a store that is closed behind it."""

    async def run() -> Any:
        database = Database(path, SCHEMA, bounds or Bounds())
        try:
            return await work(Store(database))
        finally:
            await database.close()

    return asyncio.run(run())


def answer(number: int, previous: int | None = None, size: int = 10, **more: Any) -> Answer:
    """An answer with two items in and one out."""
    filler = b"x" * size
    return Answer(
        id=f"resp_{number}",
        request=b'{"request": %d}' % number + filler,
        body=b'{"answer": %d}' % number + filler,
        items_in=[StoredItem(f"in_{number}_{at}", b'{"in": %d}' % at + filler) for at in range(2)],
        items_out=[StoredItem(f"out_{number}", b'{"out": %d}' % number + filler)],
        previous=None if previous is None else f"resp_{previous}",
        **more,
    )


def ids(items: list[StoredItem] | None) -> list[str] | None:
    """The ids of items."""
    return None if items is None else [item.id for item in items]


def test_an_answer_is_there_for_the_next_request_and_after_a_restart(tmp_path: Path) -> None:
    path = tmp_path / "store.db"

    async def first(store: Store) -> bool:
        kept = await store.put("me", answer(1))
        assert (await store.get("me", "resp_1")) is not None
        return kept

    async def second(store: Store) -> None:
        found = await store.get("me", "resp_1")
        assert found is not None
        expected = answer(1)
        assert (expected.id, expected.request, expected.body) == (found.id, found.request, found.body)
        assert found.finished
        assert found.previous is None
        assert abs(found.made - time.time()) < 60
        assert await store.item("me", "out_1") == expected.items_out[0]

    assert using(path, first)
    using(path, second)


def test_without_a_file_answers_are_kept_as_long_as_the_process_lives() -> None:
    async def work(store: Store) -> None:
        assert not await store.put("me", answer(1))
        assert await store.get("me", "resp_1") is not None

    using(None, work)


def test_for_another_client_an_id_does_not_exist(tmp_path: Path) -> None:
    async def work(store: Store) -> None:
        await store.put("me", answer(1))
        assert await store.get("you", "resp_1") is None
        assert await store.chain("you", "resp_1") is None
        assert await store.input_items("you", "resp_1") is None
        assert {} == await store.items("you", ["in_1_0", "out_1"])
        assert await store.follow("you", "resp_1") is None
        assert not await store.delete("you", "resp_1")
        await store.put("you", answer(2, previous=1))
        assert await store.chain("you", "resp_2") is None
        await store.put("you", Answer(id="resp_1", request=b"", body=b"yours"))
        mine, yours = await store.get("me", "resp_1"), await store.get("you", "resp_1")
        assert mine is not None
        assert yours is not None
        assert (answer(1).body, b"yours") == (mine.body, yours.body)

    using(tmp_path / "store.db", work)


def test_a_conversation_is_what_went_in_and_came_out_along_its_chain(tmp_path: Path) -> None:
    async def work(store: Store) -> None:
        await store.put("me", answer(1))
        await store.put("me", answer(2, previous=1))
        await store.put("me", answer(3, previous=2))
        await store.put("me", answer(20, previous=1))
        assert ["in_1_0", "in_1_1", "out_1"] == ids(await store.chain("me", "resp_1"))
        whole = ids(await store.chain("me", "resp_3"))
        assert whole is not None
        assert ["in_1_0", "in_1_1", "out_1", "in_2_0", "in_2_1", "out_2", "in_3_0", "in_3_1", "out_3"] == whole
        branch = ids(await store.chain("me", "resp_20"))
        assert branch is not None
        assert ["in_20_0", "in_20_1", "out_20"] == branch[3:]
        assert await store.chain("me", "resp_4") is None
        await store.put("me", answer(5, previous=4))
        assert await store.chain("me", "resp_5") is None  # half a conversation is none

    using(tmp_path / "store.db", work)


def test_no_more_is_read_than_it_takes_to_know_that_it_is_too_much(tmp_path: Path) -> None:
    """A few packed items would fill the memory before anybody counts them."""

    async def work(store: Store) -> None:
        await store.put("me", answer(1, size=1000))
        await store.put("me", answer(2, previous=1, size=1000))
        everything = ["in_1_0", "in_1_1", "out_1", "in_2_0", "in_2_1", "out_2"]
        for most, read in ((0, 1), (1500, 2), (3500, 4), (100_000, 6)):
            assert everything[:read] == ids(await store.chain("me", "resp_2", most))
            assert everything[:read] == list(await store.items("me", everything, most))

    using(tmp_path / "store.db", work)


def test_a_long_chain_is_read_in_time_that_grows_with_it(tmp_path: Path) -> None:
    async def work(store: Store) -> float:
        for number in range(1_000):
            await store.put("me", answer(number, previous=number - 1 if number else None))
        start = time.perf_counter()
        chain = await store.chain("me", "resp_999")
        assert chain is not None
        assert 3_000 == len(chain)
        return time.perf_counter() - start

    assert using(tmp_path / "store.db", work) < 1.0


def test_a_later_state_of_an_answer_replaces_the_earlier_one(tmp_path: Path) -> None:
    async def work(store: Store) -> None:
        await store.put("me", Answer(id="resp_1", request=b"r", body=b"queued", finished=False))
        assert [("me", "resp_1")] == await store.unfinished()
        await store.put("me", answer(1))
        found = await store.get("me", "resp_1")
        assert found is not None
        assert (True, answer(1).body) == (found.finished, found.body)
        assert ["in_1_0", "in_1_1", "out_1"] == ids(await store.chain("me", "resp_1"))
        assert [] == await store.unfinished()

    using(tmp_path / "store.db", work)


@pytest.mark.parametrize(
    ("after", "limit", "order", "expected", "more"),
    [
        (None, 20, "desc", [4, 3, 2, 1, 0], False),
        (None, 20, "asc", [0, 1, 2, 3, 4], False),
        (None, 2, "desc", [4, 3], True),
        (3, 2, "desc", [2, 1], True),
        (3, 3, "desc", [2, 1, 0], False),
        (1, 2, "asc", [2, 3], True),
        (4, 20, "asc", [], False),
    ],
)
def test_input_items_come_in_pages(
    tmp_path: Path, after: int | None, limit: int, order: Any, expected: list[int], more: bool
) -> None:
    items = [StoredItem(f"i{number}", b"{}") for number in range(5)]

    async def work(store: Store) -> Any:
        await store.put("me", Answer(id="r", request=b"", body=b"", items_in=items, items_out=[StoredItem("o", b"{}")]))
        return await store.input_items(
            "me", "r", after=None if after is None else f"i{after}", limit=limit, order=order
        )

    page = using(tmp_path / "store.db", work)
    assert ([f"i{number}" for number in expected], more) == (ids(page.items), page.more)


def test_a_page_behind_an_item_that_is_none_of_its_items_is_an_error(tmp_path: Path) -> None:
    async def work(store: Store) -> None:
        await store.put("me", answer(1))
        with pytest.raises(InvalidRequest, match="out_1"):
            await store.input_items("me", "resp_1", after="out_1")
        assert await store.input_items("me", "resp_2", after="out_1") is None

    using(tmp_path / "store.db", work)


def test_items_are_found_by_id_as_they_were_kept_last(tmp_path: Path) -> None:
    async def work(store: Store) -> None:
        await store.put("me", answer(1))
        later = StoredItem("out_1", b'{"newer": true}')
        await store.put("me", Answer(id="resp_2", request=b"", body=b"", items_in=[later]))
        found = await store.items("me", ["out_1", "in_1_0", "nothing"])
        assert {"out_1": later, "in_1_0": answer(1).items_in[0]} == found
        assert await store.item("me", "nothing") is None

    using(tmp_path / "store.db", work)


def test_a_deleted_answer_is_gone_but_for_the_conversations_that_go_on_from_it(tmp_path: Path) -> None:
    path = tmp_path / "store.db"

    async def work(store: Store) -> None:
        await store.put("me", answer(1, size=2000))
        await store.put("me", answer(2, previous=1))
        await store.put("me", answer(3, previous=2))
        assert await store.delete("me", "resp_1")
        assert not await store.delete("me", "resp_1")
        assert await store.get("me", "resp_1") is None
        assert await store.chain("me", "resp_1") is None
        assert await store.item("me", "out_1") is None
        await store.put("me", answer(1))  # an answer that was still being made
        assert await store.get("me", "resp_1") is None
        rest = "SELECT request, answer FROM answers WHERE deleted"
        assert [(b"", b"")] == await store._database.read(lambda connection: connection.execute(rest).fetchall())
        chain = await store.chain("me", "resp_3")
        assert chain is not None
        assert 9 == len(chain)
        assert await store.delete("me", "resp_2")
        assert await store.delete("me", "resp_3")

    using(path, work)
    with contextlib.closing(sqlite3.connect(path)) as connection:
        for table in ("chains", "answers", "items"):
            assert (0,) == connection.execute(f"SELECT count(*) FROM {table}").fetchone()


def test_a_chain_is_forgotten_as_a_whole_and_the_one_used_last_stays(tmp_path: Path) -> None:
    """However full the store is, no conversation that is found has lost its beginning."""

    async def work(store: Store) -> None:
        for turn in range(60):
            for chain in range(10):
                number = chain * 1000 + turn
                await store.put("me", answer(number, previous=number - 1 if turn else None, size=400))
            await store.chain("me", f"resp_{turn}")
        whole = 0
        for chain in range(10):
            for turn in range(60):
                found = await store.get("me", f"resp_{chain * 1000 + turn}")
                items = await store.chain("me", f"resp_{chain * 1000 + turn}")
                assert found is not None or items is None
                whole += items is not None and len(items) == 3 * (turn + 1)
                assert items is None or len(items) == 3 * (turn + 1)
        assert 60 <= whole < 600
        assert store._database.counts["evicted"] > 0

    using(tmp_path / "store.db", work, Bounds(size=1_200_000))


def test_answers_that_are_too_old_are_forgotten(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_HOUSEKEEPING", 0.01)

    async def work(store: Store) -> None:
        await store.put("me", answer(1))
        await store.put("me", answer(2))
        await store._database.commit(
            lambda connection: connection.execute("UPDATE chains SET used = used - 100 WHERE root = 'resp_1'")
        )
        until = time.monotonic() + 20
        while await store.get("me", "resp_1") is not None:
            assert time.monotonic() < until
            await asyncio.sleep(0.02)
        assert await store.get("me", "resp_2") is not None
        assert await store.item("me", "out_1") is None

    using(tmp_path / "store.db", work, Bounds(ttl=50))


def test_an_answer_that_cannot_be_kept_is_an_error_for_who_asked(tmp_path: Path) -> None:
    async def work(store: Store) -> None:
        await store.put("me", answer(1))
        with pytest.raises(StorageUnavailable) as caught:
            await store.put("me", answer(2, size=2_000_000))
        assert 503 == caught.value.status
        assert await store.get("me", "resp_2") is None
        assert await store.get("me", "resp_1") is not None

    using(tmp_path / "store.db", work, Bounds(size=1_000_000))


def test_what_the_disk_has_changed_is_not_given_out(tmp_path: Path) -> None:
    path = tmp_path / "store.db"

    async def fill(store: Store) -> None:
        await store.put("me", answer(1))
        await store.put("me", answer(2, size=5000))

    using(path, fill)
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as connection:
        for table, column in (("answers", "answer"), ("items", "body")):
            for key, body in connection.execute(
                f"SELECT rowid_, {column} FROM (SELECT {_key(table)} AS rowid_, * FROM {table})"
            ).fetchall():
                changed = body[:-1] + bytes([body[-1] ^ 1])
                connection.execute(f"UPDATE {table} SET {column} = ? WHERE {_key(table)} = ?", (changed, key))

    async def look(store: Store) -> int:
        for number in (1, 2):
            assert await store.get("me", f"resp_{number}") is None
            assert await store.chain("me", f"resp_{number}") is None
            assert await store.item("me", f"out_{number}") is None
        return store.counts["damaged"]

    assert 10 == using(path, look)


def _key(table: str) -> str:
    return "id" if table == "answers" else "answer || side || place"


# Streams.


def test_a_stream_can_be_followed_from_anywhere_while_it_is_made_and_afterwards(tmp_path: Path) -> None:
    events = [b"event %d" % number for number in range(10)]

    async def collect(store: Store, after: int) -> list[bytes]:
        stream = await store.follow("me", "resp_1", after)
        assert stream is not None
        return [event async for event in stream]

    async def work(store: Store) -> None:
        assert await store.follow("me", "resp_1") is None
        log = store.begin_events("me", "resp_1")
        early = asyncio.create_task(collect(store, -1))
        for event in events[:5]:
            log.add(event)
            await asyncio.sleep(0)
        late = asyncio.create_task(collect(store, 3))
        await asyncio.sleep(0)
        assert not early.done()
        for event in events[5:]:
            log.add(event)
        await store.put("me", answer(1, events=log.events))
        store.end_events("me", "resp_1")
        assert events == await early
        assert events[4:] == await late
        for after in (-1, 4, 9, 20):
            assert events[after + 1 :] == await collect(store, after)
        await store.put("me", answer(2))
        assert await store.follow("me", "resp_2") is None
        await store.delete("me", "resp_1")
        assert await store.follow("me", "resp_1") is None

    using(tmp_path / "store.db", work)


def test_a_stream_too_long_to_be_kept_is_told_whole_to_those_who_follow_it(tmp_path: Path) -> None:
    events = [b"%060d" % number for number in range(50)]

    async def work(store: Store) -> None:
        log = store.begin_events("me", "resp_1", limit=100)
        log.add(events[0])
        quick, slow = await store.follow("me", "resp_1"), await store.follow("me", "resp_1")
        assert quick is not None
        assert slow is not None
        assert events[:1] == [await anext(quick)] == [await anext(slow)]
        for event in events[1:46]:
            log.add(event)
            assert event == await anext(quick)
            assert sum(map(len, log.events)) <= 160
        assert await store.follow("me", "resp_1") is None
        log.add(*events[46:])  # more than fit, and nobody could have read one of them before the others
        store.end_events("me", "resp_1")
        assert events[46:] == [event async for event in quick]
        with pytest.raises(Behind) as told:
            await anext(slow)
        assert 1 == told.value.number

    using(tmp_path / "store.db", work)


# Kills.

WRITER = """
import asyncio, os, sys
from pathlib import Path
sys.path.insert(0, sys.argv[2])
from tests.gateway.test_store import SCHEMA, answer
from turnscript.gateway.database import Bounds, Database
from turnscript.gateway.store import Store

async def main():
    store = Store(Database(Path(sys.argv[1]), SCHEMA, Bounds()))
    number = int(sys.argv[3])
    previous = None
    while True:
        await asyncio.gather(*[
            store.put("me", answer(number + at, previous if at == 0 else None, size=3000)) for at in range(3)
        ])
        os.write(1, b"%d\\n" % number)
        previous, number = number, number + 3

asyncio.run(main())
"""
ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.deep
def test_an_answer_whose_client_was_told_survives_a_kill_and_none_is_there_by_half(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    chance = random.Random(3)
    confirmed: list[int] = []
    environment = {**os.environ, "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}"}
    for turn in range(5):
        command = [sys.executable, "-c", WRITER, str(path), str(ROOT), str(turn * 1_000_000)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, env=environment) as writer:
            assert writer.stdout is not None
            confirmed.append(int(writer.stdout.readline()))
            time.sleep(chance.random() * 0.05)
            writer.send_signal(signal.SIGKILL)
            confirmed += [int(line) for line in writer.stdout.read().split(b"\n")[:-1]]

    async def look(store: Store) -> None:
        for first in confirmed:
            for number in range(first, first + 3):
                found = await store.get("me", f"resp_{number}")
                assert found is not None
                assert answer(number, size=3000).body == found.body
        rows = await store._database.read(
            lambda connection: connection.execute(
                "SELECT a.id, count(i.id) FROM answers a LEFT JOIN items i ON i.answer = a.id GROUP BY 1"
            ).fetchall()
        )
        assert len(rows) >= 3 * len(confirmed)
        assert {3} == {count for _, count in rows}
        chain = await store.chain("me", f"resp_{confirmed[-1]}")
        assert chain is not None
        assert 0 == len(chain) % 3

    using(path, look)
