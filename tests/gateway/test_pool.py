"""Owns choosing a model server: stickiness, slots, health, and what is tried once more."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from typing import Any

import pytest

from tests.gateway.scripted import CLOSE, HANG, RESET, Asked, Scripted, said, sse
from tests.gateway.tinygguf import words
from turnscript.backends.backend import Completion
from turnscript.convert import registry
from turnscript.core.errors import UpstreamError, UpstreamTimeout
from turnscript.gateway.pool import Lease, Member, Pool, open_any
from turnscript.gateway.upstream import Timeouts, Upstream

PLAIN, LLAMA = registry.get_backend("completions"), registry.get_backend("llamacpp")
ASK = Completion(prompt="Hi", max_tokens=5)
PROPS = {"total_slots": 2, "default_generation_settings": {"n_ctx": 64}}
BUSY = said({"error": {"message": "Loading model"}}, status=503)


def answers(*words: str) -> list[Any]:
    """A stream of some texts."""
    last = {"choices": [{"text": "", "finish_reason": "stop"}]}
    return sse(*({"choices": [{"text": word}]} for word in words), last, "[DONE]")


def llama(slots: int = 2) -> Callable[[Asked], Any]:
    """A server with slots, that echoes its slot."""

    def script(asked: Asked) -> Any:
        if asked.line.startswith("GET"):
            return said(PROPS | {"total_slots": slots})
        if asked.line.endswith("/tokenize"):
            return said({"tokens": []})
        return said({"content": "x", "stop": True, "stop_type": "eos", "id_slot": asked.json.get("id_slot", -1)})

    return script


def pooled(
    *scripts: Any,
    backend: Any = PLAIN,
    limits: Sequence[int | None] = (),
    timeouts: Timeouts | None = None,
    **settings: Any,
) -> Callable[[Callable[[Pool, list[Scripted]], Awaitable[Any]]], Any]:
    """Runs a function with a pool of scripted servers. For a server, one script or several, one after another."""

    def run(test: Callable[[Pool, list[Scripted]], Awaitable[Any]]) -> Any:
        async def all_of_it() -> Any:
            async with AsyncExitStack() as stack:
                servers = [
                    await stack.enter_async_context(Scripted(*(one if isinstance(one, tuple) else (one,))))
                    for one in scripts
                ]
                members = [
                    Member(Upstream(server.url, backend, timeouts=timeouts), limit)
                    for server, limit in zip(servers, limits or [None] * len(servers), strict=True)
                ]
                pool = Pool(members, **settings)
                try:
                    return await test(pool, servers)
                finally:
                    await pool.close()

        return asyncio.run(all_of_it())

    return run


def slots_of(leases: list[Lease]) -> list[int | None]:
    return [lease.slot for lease in leases]


# Which server.


def test_the_least_busy_server_is_taken_and_a_conversation_stays_where_it_is() -> None:
    @pooled(answers("a"), answers("b"), answers("c"))
    async def _(pool: Pool, servers: list[Scripted]) -> None:
        first, second, third = [await pool.lease(name) for name in ("x", "y", "z")]
        assert 3 == len({first.member.upstream.url, second.member.upstream.url, third.member.upstream.url})
        assert 3 == pool.running
        second.release()
        second.release()
        assert 2 == pool.running
        with await pool.lease("x") as again, await pool.lease() as other:
            assert first.member is again.member
            assert second.member is other.member
        assert 2 == pool.running


def test_a_conversation_leaves_a_busy_server_only_for_one_that_is_not() -> None:
    @pooled(answers("a"), answers("b"), limits=(1, 1))
    async def _(pool: Pool, servers: list[Scripted]) -> None:
        assert 2 == pool.capacity
        first = await pool.lease("x")
        moved = await pool.lease("x")
        assert first.member is not moved.member
        crowded = await pool.lease("x")
        assert moved.member is crowded.member


def test_only_so_many_conversations_are_remembered() -> None:
    @pooled(answers("a"), answers("b"), sessions=2)
    async def _(pool: Pool, servers: list[Scripted]) -> None:
        for name in ("a", "b", "a", "c"):
            (await pool.lease(name)).release()
        assert ["a", "c"] == list(pool._sessions)


# Which slot.


def test_a_conversation_keeps_its_slot_and_a_new_one_takes_the_one_idle_for_longest() -> None:
    @pooled(llama(3), backend=LLAMA)
    async def _(pool: Pool, servers: list[Scripted]) -> None:
        found = []
        for name in ("a", "b", "c", "c", "b", "d", "a"):
            with await pool.lease(name) as lease:
                found.append(lease.slot)
                assert lease.slot == lease.ask(ASK).slot
        assert [0, 1, 2, 2, 1, 0, 2] == found
        assert 3 == pool.capacity


def test_a_slot_is_not_shared_while_another_one_is_free() -> None:
    @pooled(llama(2), backend=LLAMA)
    async def _(pool: Pool, servers: list[Scripted]) -> None:
        leases = [await pool.lease(name) for name in ("a", "a", "b", None)]
        assert [0, 1, None, None] == slots_of(leases)
        assert leases[2].ask(ASK) is ASK
        for lease in leases:
            lease.release()
        assert [0] == slots_of([await pool.lease("a")])


def test_a_request_beside_its_conversation_does_not_take_its_slot_away() -> None:
    @pooled(llama(2), backend=LLAMA)
    async def _(pool: Pool, servers: list[Scripted]) -> None:
        (await pool.lease("b")).release()
        main = await pool.lease("a")
        beside = await pool.lease("a")
        for lease in (main, beside):
            lease.release()
        assert [1, 0, 1] == slots_of([main, beside, await pool.lease("a")])


def test_a_slot_that_no_conversation_holds_is_taken_before_one_that_was_idle_for_longer() -> None:
    @pooled(llama(3), backend=LLAMA)
    async def _(pool: Pool, servers: list[Scripted]) -> None:
        (await pool.lease("b")).release()
        main, beside = await pool.lease("a"), await pool.lease("a")
        for lease in (main, beside):
            lease.release()
        assert [1, 2] == slots_of([main, beside])
        (await pool.lease("c")).release()
        assert [0, 1, 2] == slots_of([await pool.lease(name) for name in "bac"])


def test_slots_are_asked_for_once_and_a_server_that_does_not_say_has_none() -> None:
    @pooled(llama(2), said({}, status=404), backend=LLAMA)
    async def _(pool: Pool, servers: list[Scripted]) -> None:
        leases = [await pool.lease() for _ in range(4)]
        assert {0, 1, None} == set(slots_of(leases))
        assert 1 == sum(asked.line == "GET /props" for asked in servers[0].asked)
        assert pool.capacity is None


def test_a_conversation_of_a_recurrent_model_is_not_read_again(rwkv: str) -> None:
    """Two conversations by turns on a real server with two slots, and then a third one in the older one's place."""

    async def run() -> dict[str, list[int]]:
        cached: dict[str, list[int]] = {"a": [], "b": [], "c": []}
        texts = {name: f"{name}:" + words(60, ord(name)) for name in cached}
        async with Pool([Upstream(rwkv, LLAMA)]) as pool:
            for name in ("a", "b", "a", "b", "c", "b", "a"):
                texts[name] += " more"
                async with open_any(pool, Completion(prompt=texts[name], max_tokens=1), name) as (answer, lease):
                    pieces = [piece async for pieces in answer for piece in pieces]
                assert lease.slot == pieces[-1].slot
                assert pieces[-1].usage is not None
                cached[name].append(pieces[-1].usage.cached)
        return cached

    cached = asyncio.run(run())
    assert cached["a"][1] > 100
    assert cached["b"][1] > 100
    assert cached["b"][2] > 100
    assert 0 == cached["c"][0] == cached["a"][0]


# Health.


async def until(member: Member, *, healthy: bool) -> None:
    """Wait until the pool thinks so."""
    async with asyncio.timeout(5):
        while member.healthy is not healthy:
            await asyncio.sleep(0.001)


def state(member: Member) -> tuple[bool, int | None]:
    """Whether it is healthy, and how many slots it is known to have."""
    return member.healthy, len(member.places) if member.places is not None else None


def test_a_server_that_fails_is_left_out_until_it_is_healthy_again() -> None:
    @pooled((BUSY, BUSY, BUSY, answers("back")), answers("b"), interval=0.01)
    async def _(pool: Pool, servers: list[Scripted]) -> None:
        first, second = pool.members
        async with pool:
            await until(first, healthy=False)
            with await pool.lease() as lease, await pool.lease() as other:
                assert second is lease.member is other.member
            assert pool.healthy
            await until(first, healthy=True)
        async with asyncio.timeout(5):  # a server that was just asked once more has yet to see that nobody waits
            while asyncio.all_tasks() != {asyncio.current_task()}:
                await asyncio.sleep(0.001)


def test_a_server_that_came_back_is_asked_again_what_it_is() -> None:
    @pooled(llama(2), backend=LLAMA)
    async def _(pool: Pool, servers: list[Scripted]) -> None:
        [member] = pool.members
        (await pool.lease()).release()
        down = UpstreamError("gone", retryable=True)
        for expected in ((True, 2), (False, None)):
            pool.note_failure(member, down)
            assert expected == state(member)
        assert not pool.healthy
        await pool.check()
        assert (True, 2) == state(member)


def test_a_server_that_was_started_anew_between_two_checks_is_known_by_what_it_says() -> None:
    slots, busy = [2], [False]

    def script(asked: Asked) -> Any:
        if busy[0] and asked.line.endswith("/tokenize"):
            return said({}, status=503)
        return llama(slots[0])(asked)

    @pooled(script, backend=LLAMA)
    async def _(pool: Pool, servers: list[Scripted]) -> None:
        [member] = pool.members
        told: list[int | None] = []

        async def renewed(one: Member) -> None:
            told.append(one.upstream.known.slots)

        pool._renewed = renewed
        lease = await pool.lease("a")
        await pool.check()
        assert (True, 2) == state(member)
        assert member.holds("a")
        slots[0] = 3
        busy[0] = True
        await pool.check()
        assert (True, 2) == state(member), "a server that does not answer all is busy, and no other one"
        busy[0] = False
        await pool.check()
        assert (True, 3) == state(member)
        assert not member.holds("a")
        assert [2, 2, 3] == told
        lease.release()


@pytest.mark.parametrize("status", [400, 422, 429, 500])
def test_what_a_server_says_of_a_request_does_not_count_against_it(status: int) -> None:
    @pooled(said("", status=status))
    async def _(pool: Pool, servers: list[Scripted]) -> None:
        for _ in range(5):
            with pytest.raises(UpstreamError):
                async with open_any(pool, ASK):
                    pass
        assert pool.members[0].healthy


def test_a_server_is_tried_where_none_is_healthy() -> None:
    @pooled(answers("a"))
    async def _(pool: Pool, servers: list[Scripted]) -> None:
        pool.members[0].healthy = False
        async with open_any(pool, ASK) as (answer, _):
            assert "a" == (await anext(answer))[0].text


def test_a_server_that_answers_is_well_whatever_the_last_check_has_found() -> None:
    @pooled(llama(2), backend=LLAMA)
    async def _(pool: Pool, servers: list[Scripted]) -> None:
        [member] = pool.members
        for _ in range(2):
            pool.note_failure(member, UpstreamError("gone", retryable=True))
        assert (False, None) == state(member)
        async with open_any(pool, ASK):
            assert member.healthy
        await pool.check()
        assert (True, 2) == state(member)


def test_a_server_of_unknown_kind_that_goes_on_writing_is_asked_nothing_though_it_was_down() -> None:
    """llama-cpp-python would cut its answer off."""

    @pooled(answers("a"))
    async def _(pool: Pool, servers: list[Scripted]) -> None:
        [member] = pool.members
        member.healthy = False
        async with open_any(pool, ASK) as (answer, _):
            await anext(answer)
            before = len(servers[0].asked)
            await pool.check()
            assert before == len(servers[0].asked)


# Trying once more.


async def text_from(pool: Pool, session: str | None = None) -> str:
    async with open_any(pool, ASK, session) as (answer, _):
        return "".join([piece.text async for pieces in answer for piece in pieces])


@pytest.mark.parametrize(
    ("script", "asks"),
    [
        *((one, 1) for one in ([RESET], [CLOSE], BUSY, said("", status=500), said("<html>"), sse({"error": "no"}))),
        (sse(end=[CLOSE]), 2),  # the other time why the stream was over before it began
    ],
)
def test_another_server_is_tried_before_the_first_piece(script: Any, asks: int) -> None:
    @pooled(script, answers("a"))
    async def _(pool: Pool, servers: list[Scripted]) -> None:
        assert "a" == await text_from(pool, "x")
        assert [asks, 1] == [len(server.asked) for server in servers]
        assert 0 == pool.running
        assert "a" == await text_from(pool, "x")
        assert [asks, 2] == [len(server.asked) for server in servers]


def test_a_server_that_is_not_there_is_stepped_over() -> None:
    async def run() -> str:
        async with Scripted(answers("a")) as server:
            urls = ["http://127.0.0.1:9", server.url]
            pool = Pool([Upstream(url, PLAIN) for url in urls])
            try:
                return await text_from(pool)
            finally:
                await pool.close()

    assert "a" == asyncio.run(run())


def test_nothing_is_tried_again_once_there_was_a_piece() -> None:
    @pooled(sse({"choices": [{"text": "a"}]}, end=[0.02, RESET]), answers("b"))
    async def _(pool: Pool, servers: list[Scripted]) -> None:
        with pytest.raises(UpstreamError, match="broke off"):
            await text_from(pool)
        assert [1, 0] == [len(server.asked) for server in servers]
        assert (0, 1) == (pool.running, pool.members[0].failures)


def test_a_bad_request_is_not_tried_again() -> None:
    @pooled(said({"error": {"message": "too hot"}}, status=400), answers("b"))
    async def _(pool: Pool, servers: list[Scripted]) -> None:
        with pytest.raises(UpstreamError, match="too hot"):
            await text_from(pool)
        assert 0 == len(servers[1].asked)


def test_a_server_that_is_slow_is_not_left_for_another() -> None:
    @pooled([HANG], answers("b"), timeouts=Timeouts(first_byte=0.05))
    async def _(pool: Pool, servers: list[Scripted]) -> None:
        with pytest.raises(UpstreamTimeout):
            await text_from(pool)
        assert (0, 1) == (len(servers[1].asked), pool.members[0].failures)


def test_the_first_error_is_told_where_all_servers_fail() -> None:
    @pooled(said("first", status=503), said("second", status=500), said("third", status=500))
    async def _(pool: Pool, servers: list[Scripted]) -> None:
        told: list[tuple[str, str]] = []
        with pytest.raises(UpstreamError, match="first"):
            async with open_any(pool, ASK, None, lambda error, url: told.append((str(error)[-5:], url))):
                pass
        assert list(zip(("first", "econd", "third"), [server.url for server in servers], strict=True)) == told
        assert [1, 1, 1] == [len(server.asked) for server in servers]
        with pytest.raises(UpstreamError, match="all 3 model servers failed"):
            await pool.lease(avoid=pool.members)


def test_an_error_of_the_reader_is_not_the_servers() -> None:
    @pooled(answers("a"), answers("b"))
    async def _(pool: Pool, servers: list[Scripted]) -> None:
        with pytest.raises(ZeroDivisionError):
            async with open_any(pool, ASK):
                raise ZeroDivisionError
        assert (0, 0) == (pool.running, pool.members[0].failures)


def test_a_pool_needs_a_server() -> None:
    with pytest.raises(ValueError, match="at least one"):
        Pool([])
