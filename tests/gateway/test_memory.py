"""Owns the tests of memory by itself: what counts as the same turn, what is kept, for how long, and what it costs."""

import asyncio
import json
import sqlite3
import time
from collections.abc import Callable
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import turnscript as ts
from tests.clocks import run_time
from tests.gateway.echo import javascript
from tests.growth import assert_grows_below
from tests.strategies import jsontext, text
from turnscript.core.json_text import Json
from turnscript.gateway import memory as module
from turnscript.gateway.database import Bounds, Database
from turnscript.gateway.meaning import arguments as said_in
from turnscript.gateway.meaning import meanings
from turnscript.gateway.memory import SCHEMA, Memory, Recalled

FORMAT = ts.get_format("batuta-chatml")
ASKED: list[ts.Item] = [ts.System(content=[ts.Text(text="Be brief.")]), ts.User(content=[ts.Text(text="Hi")])]


def request(*items: ts.Item) -> ts.Request:
    """A request that begins as all do here."""
    return ts.Request(conversation=ts.Conversation(items=[*ASKED, *items]))


async def remember(memory: Memory, items: list[ts.Item], raw: str = "raw", *before: ts.Item) -> bool:
    """The model has answered with some items, of which `raw` is the text."""
    asked = request(*before)
    recalled = await memory.recall("scope", asked)
    prompt = FORMAT.prompt(asked, replays=recalled.replays)
    return memory.remember(recalled, ts.Response(items=items, raw=raw), prompt)


async def recall(memory: Memory, items: list[ts.Item], *before: ts.Item, scope: str = "scope") -> Recalled:
    """What is known of some items that a client sends back."""
    return await memory.recall(scope, request(*before, *items, ts.User(content=[ts.Text(text="next")])))


def known(items: list[ts.Item], echo: list[ts.Item]) -> bool:
    """Whether items that are sent back are known as those that the model wrote."""

    async def run() -> bool:
        memory = Memory()
        assert await remember(memory, items)
        recalled = await recall(memory, echo)
        return recalled.reused == recalled.turns == 1

    return asyncio.run(run())


def said(text_: str) -> list[ts.Part]:
    """A content of one text."""
    return [ts.Text(text=text_)]


def call(spelled: str, id_: str = "c1", name: str = "f") -> ts.ToolCall:
    """A call with arguments as they are spelled."""
    return ts.ToolCall(name=name, arguments=spelled, id=id_)


# What is the same.


def arguments(spelled: str, custom: bool = False) -> bytes:
    """What arguments mean as they stand."""
    return said_in(spelled, custom)[0]


def texts() -> st.SearchStrategy[str]:
    """What a model says: not only white space."""
    return text.texts().filter(lambda value: bool(value.strip()))


def doubles() -> st.SearchStrategy[str]:
    """Arguments whose numbers a program can hold: 1e400 is infinity for most, and comes back as anything."""
    return jsontext.argument_objects().filter(lambda spelled: "Infinity" not in json.dumps(json.loads(spelled)))


@given(spelled=doubles(), thought=texts(), answer=texts(), trailing=st.sampled_from(["", " ", "\n \n"]))
def test_an_echo_that_is_spelled_anew_is_known(spelled: str, thought: str, answer: str, trailing: str) -> None:
    """Parsed by Python or JavaScript and written again, thoughts kept or dropped, blanks at the end stripped."""
    items: list[ts.Item] = [
        ts.Thinking(content=said(thought), signature="proof"),
        ts.Assistant(content=said(answer + trailing)),
        call(spelled),
    ]
    value = json.loads(spelled)
    spellings = (json.dumps(value), json.dumps(javascript(value), separators=(",", ":"), ensure_ascii=False))
    for arguments_ in spellings:
        for thoughts in ([], [items[0]], [ts.Thinking(content=[], signature="proof")]):
            for spoken in (answer + trailing, (answer + trailing).rstrip()):
                assert known(items, [*thoughts, ts.Assistant(content=said(spoken)), call(arguments_)])


@given(data=st.data(), spelled=jsontext.argument_objects(), answer=texts(), thought=texts())
def test_an_echo_with_another_meaning_is_not(data: st.DataObject, spelled: str, answer: str, thought: str) -> None:
    """Any other text, name, id, thought or value is taken at its word."""
    items: list[ts.Item] = [ts.Thinking(content=said(thought)), ts.Assistant(content=said(answer)), call(spelled)]
    echo = deepcopy(items)
    assert known(items, echo)
    other = data.draw(st.sampled_from(["text", "name", "id", "thought", "arguments", "call more", "text more"]))
    if other == "text":
        changed = data.draw(texts().filter(lambda value: value.strip() != answer.strip()))
        echo[1] = ts.Assistant(content=said(changed))
    elif other == "name":
        echo[2] = call(spelled, name=data.draw(text.words().filter(lambda value: value != "f")))
    elif other == "id":
        echo[2] = call(spelled, id_=data.draw(text.words().filter(lambda value: value != "c1")))
    elif other == "thought":
        plain = "".join(thought.split())
        echo[0] = ts.Thinking(content=said(data.draw(texts().filter(lambda value: "".join(value.split()) != plain))))
    elif other == "arguments":
        before = javascript(json.loads(spelled))
        changed = data.draw(jsontext.argument_objects().filter(lambda value: javascript(json.loads(value)) != before))
        echo[2] = call(changed)
    elif other == "call more":
        echo.append(call(spelled, id_="c2"))
    else:
        echo.append(ts.Assistant(content=said(data.draw(texts()))))
    assert not known(items, echo)


@pytest.mark.parametrize(
    "spelled",
    [
        '{"k":"a/b"}',
        '{\n "k" :  "a\\/b"\n}',
        '{"k": "\\u0061/b"}',
        '{"k":"old","k":"a/b"}',
    ],
)
def test_arguments_mean_the_same_in_every_spelling(spelled: str) -> None:
    assert arguments('{"k":"a/b"}') == arguments(spelled)


@pytest.mark.parametrize(
    ("first", "second", "same"),
    [
        ("1", "1.0", True),
        ("1e2", "100", True),
        ("-0.0", "0", True),
        ("9007199254740993", "9007199254740992", True),  # what JavaScript makes of it
        ("9007199254740993", "9007199254740995", False),
        ("1e400", "1e400", True),
        ("1e400", "1e401", False),
        ("1", '"1"', False),
        ("1", "true", False),
        ("null", "0", False),
        ('{"a": 1, "b": 2}', '{"b": 2, "a": 1}', True),
        ("[1, 2]", "[2, 1]", False),
        ('"\\ud800"', '"\\ud800"', True),
    ],
)
def test_numbers_mean_what_most_programs_read(first: str, second: str, same: bool) -> None:
    assert same == (arguments(f'{{"n": {first}}}') == arguments(f'{{"n": {second}}}'))


@pytest.mark.parametrize("spelled", ["bad", "", '["a"]', '{"a": ', "NaN", "[" * 5000])
def test_arguments_that_are_no_object_mean_their_text(spelled: str) -> None:
    """An API that wants an object is sent one around the text."""
    assert arguments(spelled) == arguments(json.dumps({"input": spelled}))
    assert arguments(spelled) != arguments(f"{spelled}.")
    assert arguments(spelled, custom=True) == arguments(json.dumps({"input": spelled}))


def test_free_text_is_not_read_as_json() -> None:
    assert arguments('{"a": 1}', custom=True) != arguments('{"a":1}', custom=True)
    assert arguments('{"a": 1}', custom=True) == arguments('{"input": "{\\"a\\": 1}"}')


def test_a_name_is_the_same_with_its_namespace_before_it() -> None:
    apart = ts.ToolCall(name="read", namespace="fs", id="c1")
    assert meanings([apart]) == meanings([ts.ToolCall(name="fs__read", id="c1")])


def test_texts_may_stand_before_the_calls_that_they_stood_between() -> None:
    items: list[ts.Item] = [ts.Assistant(content=said("a ")), call("{}"), ts.Assistant(content=said("b "))]
    assert known(items, [ts.Assistant(content=said("a b ")), call("{}")])
    assert known(items, [ts.Assistant(content=said("a")), call("{}"), ts.Assistant(content=said("b"))])
    assert known(items, [ts.Assistant(content=said("a ")), ts.Assistant(content=[]), call("{}"), items[2]])
    assert not known(items, [ts.Assistant(content=said("a c ")), call("{}")])


def test_several_thoughts_may_come_back_as_one_or_some_of_them() -> None:
    thoughts: list[ts.Item] = [ts.Thinking(content=said("one ")), ts.Thinking(content=said("two"))]
    items: list[ts.Item] = [*thoughts, ts.Assistant(content=said("x"))]
    for kept in ([], thoughts[:1], thoughts[1:], thoughts, [ts.Thinking(content=said("one two"))]):
        assert known(items, [*kept, items[-1]])
    for other in ([ts.Thinking(content=said("one three"))], [*thoughts, ts.Thinking(content=said("three"))]):
        assert not known(items, [*other, items[-1]])


def test_a_call_without_an_id_is_known_by_the_id_that_was_made_up_for_it() -> None:
    items: list[ts.Item] = [ts.ToolCall(name="f", arguments="{}")]
    assert known(items, [call("{}", id_="toolu_made_up")])
    assert not known(items, [call('{"a": 1}', id_="toolu_made_up")])


def test_an_id_that_follows_from_the_place_of_its_call_may_be_missing() -> None:
    """It is taken off when a request is read."""
    items: list[ts.Item] = [call("{}", id_="call_auto_001"), call('{"a": 1}', id_="call_fedcba9876543210")]
    nameless = ts.ToolCall(name="f", arguments="{ }")
    assert known(items, [nameless, items[1]])
    assert not known(items, [items[0], ts.ToolCall(name="f", arguments='{"a": 1}')])


def test_a_part_that_no_model_writes_is_a_change() -> None:
    assert not known([ts.Assistant(content=said("x"))], [ts.Assistant(content=[*said("x"), ts.Image(url="u")])])
    bob, two = ts.Assistant(content=said("x "), name="Bob"), ts.Assistant(content=said("y"), name="Two")
    assert not known([ts.Assistant(content=said("x y"))], [bob, two])


# Which turn it is.


def test_the_same_words_in_two_conversations_have_their_own_text() -> None:
    async def run() -> None:
        memory = Memory()
        items: list[ts.Item] = [ts.Assistant(content=said("OK"))]
        other: list[ts.Item] = [ts.Assistant(content=said("a")), ts.User(content=said("b"))]
        await remember(memory, items, "first")
        await remember(memory, items, "second", *other)
        assert ["first"] == [turn.text for _, _, turn in (await recall(memory, items)).replays]
        assert "second" == (await recall(memory, items, *other)).replays[-1][2].text
        assert 0 == (await recall(memory, items, ts.User(content=said("else")))).reused
        assert 0 == (await recall(memory, items, scope="another model")).reused

    asyncio.run(run())


def test_of_two_answers_to_the_same_the_newest_counts_unless_a_thought_tells() -> None:
    async def run() -> None:
        memory = Memory()
        answer = ts.Assistant(content=said("OK"))
        await remember(memory, [ts.Thinking(content=said("one")), answer], "first")
        await remember(memory, [ts.Thinking(content=said("two")), answer], "second")
        for thoughts, expected in (([], "second"), (["one"], "first"), (["two"], "second")):
            echo: list[ts.Item] = [*(ts.Thinking(content=said(thought)) for thought in thoughts), answer]
            [(_, _, turn)] = (await recall(memory, echo)).replays
            assert expected == turn.text

    asyncio.run(run())


def test_an_answer_that_is_given_again_is_the_newest_again() -> None:
    async def run() -> None:
        memory = Memory()
        answer = ts.Assistant(content=said("OK"))
        for told in ("first", "first", "second", "first", "first"):
            await remember(memory, [answer], told)
            [(_, _, turn)] = (await recall(memory, [answer])).replays
            assert told == turn.text

    asyncio.run(run())


def test_a_call_or_a_signature_is_known_though_what_was_said_before_was_changed() -> None:
    """Clients shorten old results and rewrite old texts; ids and proofs still tell which turn it was."""

    async def run() -> None:
        memory = Memory()
        by_id: list[ts.Item] = [call("{}", id_="call_0123456789abcdef")]
        by_proof: list[ts.Item] = [ts.Thinking(content=said("t"), signature="proof"), ts.Assistant(content=said("x"))]
        by_nothing: list[ts.Item] = [call("{}", id_="c1")]
        for items in (by_id, by_proof, by_nothing):
            await remember(memory, items)
        changed = ts.User(content=said("something else"))
        assert 1 == (await recall(memory, by_id, changed)).reused
        assert 1 == (await recall(memory, by_proof, changed)).reused
        assert 0 == (await recall(memory, by_nothing, changed)).reused  # a short id may be anybody's
        assert 0 == (await recall(memory, [call('{"a": 1}', id_="call_0123456789abcdef")], changed)).reused

    asyncio.run(run())


def test_what_was_said_before_may_be_written_in_other_ways() -> None:
    marked: dict[str, Any] = {"cache_control": Json(b"{}")}

    async def run() -> None:
        memory = Memory()
        items: list[ts.Item] = [ts.Assistant(content=said("OK"))]
        before = [call('{"a": 1.0}', id_="c9"), ts.ToolResult(content=said("r"), id="c9")]
        again = [
            ts.Thinking(content=said("more")),
            call('{"a":1}', id_="c9"),
            ts.ToolResult(content=[ts.Text(text="r", extra=marked)], id="c9", name="f", status="ok"),
        ]
        await remember(memory, items, "raw", *before)
        assert 1 == (await recall(memory, items, *again)).reused
        again[2] = ts.ToolResult(content=said("r"), id="c9", status="error")
        assert 0 == (await recall(memory, items, *again)).reused

    asyncio.run(run())


# What is kept.


def test_there_is_nothing_to_keep_of_an_answer_without_items_or_without_text() -> None:
    async def run() -> None:
        memory = Memory(limit=1000)
        assert not await remember(memory, [])
        assert not await remember(memory, [ts.Assistant(content=said("x"))], "x" * 1001)
        recalled = await memory.recall("scope", request())
        response = ts.Response(items=[ts.Assistant(content=said("x"))])
        assert not memory.remember(recalled, response, FORMAT.prompt(request()))
        assert not memory.remember(Recalled(), ts.Response(items=response.items, raw="x"), FORMAT.prompt(request()))
        assert 1 == memory.counts["too_long"]

    asyncio.run(run())


@pytest.mark.deep
def test_a_hundred_thousand_turns_take_no_more_memory_than_allowed() -> None:
    """Those that were used last are kept."""

    async def run() -> None:
        memory = Memory(held=2 * 1024 * 1024)
        asked = request()
        recalled = await memory.recall("scope", asked)
        prompt = FORMAT.prompt(asked)
        for number in range(100_000):
            answer = ts.Assistant(content=said(f"answer {number}"))
            memory.remember(recalled, ts.Response(items=[answer], raw=f"raw {number}"), prompt)
            if number % 500 == 0 and number > 1000:
                assert 1 == (await recall(memory, [ts.Assistant(content=said("answer 1000"))])).reused
        assert memory._held._used <= 2 * 1024 * 1024
        assert 1_000 < len(memory._held._turns) < 20_000
        assert {number for numbers in memory._held._names.values() for number in numbers} == set(memory._held._turns)
        assert 1 == (await recall(memory, [ts.Assistant(content=said("answer 99999"))])).reused
        assert 0 == (await recall(memory, [ts.Assistant(content=said("answer 5"))])).reused

    asyncio.run(run())


def test_what_is_too_old_is_not_known(monkeypatch: pytest.MonkeyPatch) -> None:
    async def run() -> None:
        memory = Memory(ttl=100)
        items: list[ts.Item] = [ts.Assistant(content=said("x"))]
        await remember(memory, items)
        assert 1 == (await recall(memory, items)).reused
        now = time.monotonic() + 101
        monkeypatch.setattr(time, "monotonic", lambda: now)
        assert 0 == (await recall(memory, items)).reused

    asyncio.run(run())


def with_file(path: Path, work: Callable[[Memory, Database], Any], ttl: float | None = None) -> Any:
    """What `work` gives for a memory with a file, which is closed behind it."""

    async def run() -> Any:
        database = Database(path, SCHEMA, Bounds(ttl=ttl))
        try:
            return await work(Memory(database), database)
        finally:
            await database.close()

    return asyncio.run(run())


def test_two_processes_with_one_file_know_each_others_turns(tmp_path: Path) -> None:
    path = tmp_path / "memory.db"
    items: list[ts.Item] = [ts.Thinking(content=said("t"), signature="proof"), call("{}", id_="call_0123456789abcdef")]

    async def run() -> None:
        first, second = (Database(path, SCHEMA, Bounds()) for _ in range(2))
        one, other = Memory(first), Memory(second)
        await remember(one, items, "what was written")
        await first.commit(lambda connection: None)
        [(start, end, turn)] = (await recall(other, items)).replays
        assert (2, 4, "what was written") == (start, end, turn.text)
        await first.close()
        await second.close()

    asyncio.run(run())


def test_a_turn_that_the_disk_has_changed_is_not_replayed(tmp_path: Path) -> None:
    path = tmp_path / "memory.db"
    items: list[ts.Item] = [ts.Assistant(content=said("x"))]
    with_file(path, lambda memory, database: remember(memory, items, "what was written"))
    with sqlite3.connect(path) as connection:
        [(body,)] = connection.execute("SELECT body FROM turns").fetchall()
        connection.execute("UPDATE turns SET body = ?", (body.replace(b"what", b"that"),))
    connection.close()

    async def look(memory: Memory, database: Database) -> tuple[int, int]:
        return (await recall(memory, items)).reused, memory.counts["damaged"]

    assert (0, 1) == with_file(path, look)


def test_a_turn_that_is_used_is_not_forgotten_as_old(tmp_path: Path) -> None:
    path = tmp_path / "memory.db"
    items: list[ts.Item] = [ts.Assistant(content=said("x"))]
    with_file(path, lambda memory, database: remember(memory, items))
    with sqlite3.connect(path) as connection:
        connection.execute("UPDATE turns SET used = used - 5000, made = made - 5000")
    connection.close()

    async def look(memory: Memory, database: Database) -> float:
        assert 1 == (await recall(memory, items)).reused
        [(used,)] = await database.read(lambda connection: connection.execute("SELECT used FROM turns").fetchall())
        return float(used)

    assert with_file(path, look, ttl=6000) > time.time() - 100


def test_forgetting_a_turn_forgets_its_names(tmp_path: Path) -> None:
    path = tmp_path / "memory.db"

    async def run(memory: Memory, database: Database) -> list[int]:
        for number in range(40):
            await remember(memory, [call("{}", id_=f"call_0123456789abcde{number:02}")])
        await database.commit(lambda connection: connection.execute(SCHEMA.oldest[0], {"share": 4}))
        count = "SELECT (SELECT count(*) FROM turns), (SELECT count(*) FROM names)"
        return list(await database.read(lambda connection: connection.execute(count).fetchone()))

    turns, names = with_file(path, run)
    assert turns == 29
    assert names == 2 * turns


@pytest.mark.parametrize("trouble", ["locked", "broken", "nowhere"])
def test_no_trouble_with_the_file_is_the_clients(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, trouble: str) -> None:
    """What is in memory is known, the rest is not, and nobody waits long."""
    monkeypatch.setattr(module, "_PATIENCE", 0.1)
    path = tmp_path / "memory.db"
    items: list[ts.Item] = [ts.Assistant(content=said("x"))]
    with_file(path, lambda memory, database: remember(memory, items))
    other = sqlite3.connect(path, isolation_level=None)
    if trouble == "locked":
        other.execute("PRAGMA locking_mode = EXCLUSIVE")
        other.execute("BEGIN EXCLUSIVE")
    elif trouble == "broken":
        other.close()
        path.write_bytes(b"\x00" * 100 + path.read_bytes()[100:])
    else:
        path = path / "below a file"

    async def run(memory: Memory, database: Database) -> None:
        start = run_time()
        assert (1, 0) == ((found := await recall(memory, items)).turns, found.reused)
        assert run_time() - start < 1
        assert await remember(memory, items)
        assert 1 == (await recall(memory, items)).reused

    with_file(path, run)
    other.close()


@pytest.mark.deep
def test_recalling_a_long_session_is_linear() -> None:
    """Four times the turns take less than ten times as long."""

    def recalling(count: int) -> Callable[[], object]:
        memory = Memory()
        items: list[ts.Item] = []
        for number in range(count):
            items += [call(f'{{"n": {number}}}', id_=f"call_{number:020}"), ts.ToolResult(content=said("r" * 200))]

        def run() -> None:
            assert count == asyncio.run(memory.recall("scope", request(*items))).turns

        return run

    assert_grows_below(10, recalling, 300, 1200, least=0.005)


def test_others_go_on_while_a_very_long_session_is_recalled() -> None:
    """However many turns there are, the event loop is not held up by all of them at once."""
    items: list[ts.Item] = []
    for _ in range(10_000):
        items += [ts.Assistant(content=said("x")), ts.User(content=said("y"))]

    async def others(turns: list[int]) -> None:
        while True:
            turns.append(len(turns))
            await asyncio.sleep(0)

    async def run() -> int:
        turns: list[int] = []
        going_on = asyncio.create_task(others(turns))
        assert (10_000, 0) == ((found := await recall(Memory(), items)).turns, found.reused)
        going_on.cancel()
        return len(turns)

    assert asyncio.run(run()) >= 4
