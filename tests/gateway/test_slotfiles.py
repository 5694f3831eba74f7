"""Owns when the states of conversations are written to files and put back, and that nothing of it fails a request."""

from __future__ import annotations

import asyncio
import logging
import re
import threading
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.clocks import run_time
from tests.gateway.scripted import CLOSE, END, HANG, RESET, Asked, Script, Scripted, said, sse
from turnscript.backends.backend import Completion
from turnscript.backends.llamacpp import LlamaCpp
from turnscript.core.errors import InvalidInput, UpstreamError
from turnscript.gateway import sessions
from turnscript.gateway.config import Config
from turnscript.gateway.configfile import load
from turnscript.gateway.kinds import InvalidConfig
from turnscript.gateway.pool import Member, Place, Pool, open_any
from turnscript.gateway.served import Served
from turnscript.gateway.sessions import WORTH, SlotFiles
from turnscript.gateway.upstream import Upstream

LONG = "x" * WORTH
REFUSED = {"error": {"code": 501, "message": "Start it with `--slot-save-path`", "type": "not_supported_error"}}


class Server:
    """llama.cpp, as far as it writes a word and files. `did`: what it was asked to do, in order; `refusals`: what it
    answers to actions, the last one again and again; None is success."""

    def __init__(self, slots: int = 1, *refusals: Script | None) -> None:
        self.slots = slots
        self.did: list[str] = []
        self.refusals: list[Script | None] = list(refusals) or [None]
        self.model = "a.gguf"
        self.completions: list[Script] = []

    def __call__(self, asked: Asked) -> Script:
        """What it answers."""
        if asked.line == "GET /props":
            settings = {"n_ctx": 4096}
            return said({"total_slots": self.slots, "default_generation_settings": settings, "model_path": self.model})
        if found := re.fullmatch(r"POST /slots/(\d+)\?action=(\w+)", asked.line):
            self.did.append(f"{found[2]} {found[1]} {asked.json['filename'].removeprefix('turnscript-')}")
            refusal = self.refusals.pop(0) if len(self.refusals) > 1 else self.refusals[0]
            return refusal if refusal is not None else said({"n_saved": 1})
        if asked.line != "POST /completion":
            return said({})
        self.did.append(f"{asked.json['prompt'][len(LONG) :]} in {asked.json['id_slot']}")
        if self.completions:
            return self.completions.pop(0)
        return sse({"content": "a", "stop": False}, {"content": "", "stop": True, "stop_type": "eos"}, end=(END,))


async def turn(pool: Pool, session: str | None, prompt: str = LONG) -> str:
    async with open_any(pool, Completion(prompt=f"{prompt}{session}", max_tokens=5), session) as (answer, _):
        return "".join([piece.text async for pieces in answer for piece in pieces])


async def until_written(pool: Pool) -> None:
    """Wait for what is being written, as somebody does who does not come at once."""
    files = pool.members[0].files
    assert files is not None
    while files._writing:
        await asyncio.sleep(0.001)


def served(server: Server, files: int = 2) -> Callable[[Callable[[Pool, SlotFiles], Awaitable[None]]], dict[str, int]]:
    """Runs a function with a pool of that server."""

    def run(test: Callable[[Pool, SlotFiles], Awaitable[None]]) -> dict[str, int]:
        async def both() -> dict[str, int]:
            async with Scripted(server) as scripted:
                upstream = Upstream(scripted.url, LlamaCpp())
                kept = SlotFiles(upstream, files)
                pool = Pool([Member(upstream, None, kept)])
                try:
                    await test(pool, kept)
                finally:
                    await pool.close()
                assert not kept._writing
                assert 0 == pool.running
                return kept.done

        return asyncio.run(both())

    return run


def turns(*sessions: str | None, waiting: bool = True) -> Callable[[Pool, SlotFiles], Awaitable[None]]:
    """Turns of these conversations, one behind another."""

    async def run(pool: Pool, files: SlotFiles) -> None:
        for session in sessions:
            assert "a" == await turn(pool, session)
            if waiting:
                await until_written(pool)

    return run


@pytest.mark.parametrize("waiting", [True, False], ids=["one comes later", "one comes at once"])
def test_a_state_is_saved_before_its_slot_is_given_away_and_put_back_before_it_goes_on(waiting: bool) -> None:
    server = Server()
    done = served(server)(turns("A", "B", "A", "B", waiting=waiting))
    if not waiting:
        server.did.append("save 0 1")  # which was broken off with the pool
    assert [
        *("A in 0", "save 0 0", "B in 0", "save 0 1"),
        *("restore 0 0", "A in 0", "save 0 0", "restore 0 1", "B in 0", "save 0 1"),
    ] == server.did
    assert (2, 0) == (done["restored"], done["failed"])


def test_nothing_is_saved_while_there_is_a_slot_that_nobody_has() -> None:
    server = Server(slots=3)
    assert {"saved": 0, "restored": 0, "failed": 0} == served(server)(turns("A", "B", "A", "B", "A"))
    assert ["A in 0", "B in 1", "A in 0", "B in 1", "A in 0"] == server.did


def test_the_one_that_would_have_to_go_next_is_saved_and_only_once() -> None:
    server = Server(slots=2)
    served(server)(turns("A", "B", "B", "B", "C", "A"))
    assert ["A in 0", "B in 1", "save 0 0", "B in 1", "B in 1"] == server.did[:5]
    assert ["C in 0", "save 1 1", "restore 1 0", "A in 1", "save 0 1"] == server.did[5:]


def test_there_are_as_many_files_as_may_be_and_the_oldest_is_written_over() -> None:
    server = Server()
    served(server, files=2)(turns("A", "B", "C", "B", "A"))
    saved = [did for did in server.did if did.startswith("save")]
    assert ["save 0 0", "save 0 1", "save 0 0", "save 0 1", "save 0 0"] == saved
    assert ["restore 0 1"] == [did for did in server.did if did.startswith("restore")]  # B; A was written over


def test_a_slot_for_which_no_file_is_left_is_not_saved() -> None:
    """All are being written just now."""
    server = Server(2)

    @served(server, files=1)
    async def done(pool: Pool, files: SlotFiles) -> None:
        places = [Place(number) for number in range(2)]
        for place, session in zip(places, "AB", strict=True):
            place.take(session, 1, elsewhere=False)
            await files.enter(place, session, session, len(LONG))
        for place in places:
            files.left(place)
        await until_written(pool)
        files.left(places[1])
        await until_written(pool)

    assert {"saved": 2, "restored": 0, "failed": 0} == done
    assert ["save 0 0", "save 1 0"] == server.did


def test_what_is_read_again_in_no_time_is_worth_no_file() -> None:
    server = Server()

    @served(server)
    async def done(pool: Pool, files: SlotFiles) -> None:
        for session in ("A", "B", "A"):
            await turn(pool, session, prompt=LONG[: WORTH - 2])
        for _ in range(2):
            await turn(pool, None)

    assert {"saved": 0, "restored": 0, "failed": 0} == done


def test_a_server_without_a_folder_is_not_asked_again_and_the_log_says_so_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    server = Server(1, said(REFUSED, status=501))
    with caplog.at_level(logging.WARNING):
        done = served(server)(turns("A", "B", "A", "B"))
    assert ["A in 0", "save 0 0", "B in 0", "A in 0", "B in 0"] == server.did
    assert {"saved": 0, "restored": 0, "failed": 1} == done
    [record] = [record for record in caplog.records if record.getMessage() == "slot not kept"]
    assert "--slot-save-path" in str(record.__dict__["fields"])
    assert LONG not in str(record.__dict__)


def test_a_state_that_cannot_be_put_back_is_read_again_and_forgotten() -> None:
    refusal = said({"error": {"code": 400, "message": "Unable to restore slot"}}, status=400)
    server = Server(1, None, None, refusal, None)
    done = served(server)(turns("A", "B", "A", "B", "A"))
    assert ["restore 0 0", "A in 0", "save 0 0", "restore 0 1", "B in 0"] == server.did[4:9]
    assert {"saved": 5, "restored": 2, "failed": 1} == done


@pytest.mark.parametrize("refusal", [[CLOSE], said("nothing", status=500), said({"error": 7}, status=404)], ids=str)
def test_whatever_goes_wrong_with_a_file_the_requests_go_on(refusal: Script) -> None:
    server = Server(1, refusal)
    done = served(server)(turns("A", "B", "A"))
    assert ["A in 0", "B in 0", "A in 0"] == [did for did in server.did if " in " in did]
    assert (0, 0, 3) == (done["saved"], done["restored"], done["failed"])


def test_a_server_that_does_not_come_to_an_end_with_a_file_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sessions, "PATIENCE", 0.2)
    server = Server(1, [HANG])
    began = run_time()
    done = served(server)(turns("A", "B", "A", waiting=False))
    assert run_time() - began < 3
    assert ["A in 0", "B in 0", "A in 0"] == [did for did in server.did if " in " in did]
    assert done["failed"] >= 2


def test_another_server_gets_nothing_of_the_one_before() -> None:
    """Its states would be those of another model, which nothing tells from its own."""
    server = Server()

    @served(server)
    async def done(pool: Pool, files: SlotFiles) -> None:
        await turns("A", "B")(pool, files)
        server.model = "b.gguf"
        await pool.check()
        await turns("A", "B")(pool, files)

    assert 0 == done["restored"]


def test_a_server_that_broke_an_answer_off_gets_nothing_back() -> None:
    """It may have been started anew."""
    server = Server()

    @served(server)
    async def done(pool: Pool, files: SlotFiles) -> None:
        await turns("A", "B")(pool, files)
        server.completions = [sse({"content": "a", "stop": False}, end=(RESET,))]
        with pytest.raises(UpstreamError):
            await turn(pool, "C")
        await turns("A")(pool, files)

    assert 0 == done["restored"]


def test_one_that_leaves_while_its_slot_is_made_ready_leaves_nothing_behind() -> None:
    server = Server(1, None, [HANG])

    @served(server)
    async def done(pool: Pool, files: SlotFiles) -> None:
        await turns("A")(pool, files)
        await turn(pool, "B")
        waiting = asyncio.ensure_future(turn(pool, "A"))
        await asyncio.sleep(0.05)
        assert 1 == pool.running
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
        assert 0 == pool.running

    assert 0 == done["failed"]


def test_the_state_of_one_that_leaves_before_it_is_put_back_stays_in_its_file() -> None:
    """What is in the slot then is that of somebody else, or nobody knows whose."""
    server = Server(1, None, None, [HANG], None)

    @served(server)
    async def done(pool: Pool, files: SlotFiles) -> None:
        await turns("A", "B")(pool, files)
        waiting = asyncio.ensure_future(turn(pool, "A"))
        await asyncio.sleep(0.05)
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
        await until_written(pool)
        await turns("A")(pool, files)

    asked = ["A in 0", "save 0 0", "B in 0", "save 0 1", "restore 0 0", "restore 0 0", "A in 0", "save 0 0"]
    assert asked == server.did
    assert (3, 1, 0) == (done["saved"], done["restored"], done["failed"])


@pytest.mark.parametrize("order", [(0, 1), (1, 0)], ids=["newest last", "newest first"])
def test_of_two_files_of_one_conversation_the_newest_stays_and_the_other_is_free(order: Sequence[int]) -> None:
    """It went on in another slot while the one before was being saved."""
    may_end = [threading.Event(), threading.Event()]
    server = Server(2, *([event, *said({"n_saved": 1})] for event in may_end), None)

    @served(server, 3)
    async def done(pool: Pool, files: SlotFiles) -> None:
        await turn(pool, "A")
        await turn(pool, "B")
        newcomer = asyncio.ensure_future(turn(pool, "C"))  # which gets the slot that is being saved
        while pool.running == 0:
            await asyncio.sleep(0.001)
        await turn(pool, "A")
        while "save 1 1" not in server.did:
            await asyncio.sleep(0.001)
        for which in order:
            may_end[which].set()
            await asyncio.sleep(0.1)
        await newcomer
        await until_written(pool)
        assert 1 == files._files["A"].slot
        assert [0, 1, 2] == sorted([*files._free, *(file.number for file in files._files.values())])

    assert 0 == done["failed"]


# The configuration.


def test_slots_are_saved_where_a_server_can(tmp_path: Path) -> None:
    path = tmp_path / "turnscript.toml"
    text = '[models.main]\nbackend = "http://h"\nformat = "rwkv-goose"\nsaved_slots = 8\n'
    path.write_text(text, encoding="utf-8")
    assert 8 == load(path, {}).models[0].saved_slots
    for kind in ("completions", "ai00"):
        path.write_text(f'{text}kind = "{kind}"\n', encoding="utf-8")
        with pytest.raises(InvalidConfig, match="which saves no slots") as caught:
            load(path, {})
        assert "models.main.saved_slots" == caught.value.path


@pytest.mark.parametrize("saved", [0, 3])
def test_a_model_has_files_only_if_it_is_to(saved: int) -> None:
    async def run() -> list[Any]:
        async with Scripted(Server()) as scripted:
            config = Config.for_backend(scripted.url, "rwkv-goose", saved_slots=saved)
            model = Served(config.models[0], config, 0)
            try:
                await model.ready()
                return model.slot_files()
            finally:
                await model.close()

    found = asyncio.run(run())
    assert ([{"saved": 0, "restored": 0, "failed": 0}] if saved else []) == [done for _, done in found]


def test_a_server_that_turns_out_to_save_none_is_an_error() -> None:
    def plain(asked: Asked) -> Script:
        return said({"data": [{"id": "m"}]}) if asked.line == "GET /models" else said("", status=404)

    async def run() -> None:
        async with Scripted(plain) as scripted:
            config = Config.for_backend(scripted.url, "rwkv-goose", saved_slots=2)
            model = Served(config.models[0], config, 0)
            try:
                await model.ready()
            finally:
                await model.close()

    with pytest.raises(InvalidInput, match="which saves none"):
        asyncio.run(run())
