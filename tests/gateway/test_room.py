"""Owns the room for requests: what all take at once, who is told to come again, and that nothing stays taken."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from tests.gateway.background import BEGUN, begun
from tests.gateway.scripted import HANG, said
from tests.gateway.stage import APIS, CHATS, Stage, Told, answer, body_of, connected, is_refused, named, post
from turnscript.apis.api import Api
from turnscript.core.conversation import Request, Text, Thinking, User
from turnscript.core.errors import Overloaded
from turnscript.core.signatures import seal
from turnscript.gateway.config import Server
from turnscript.gateway.keys import add_key
from turnscript.gateway.limits import Room, Tally

pytestmark = pytest.mark.usefixtures("nothing_goes_wrong")

EACH = pytest.mark.parametrize("api", APIS, ids=named)
STORING = [api for api in APIS if api.serving.stored]
LONGEST, MOST = 1_000_000, 2_000_000
LONG = "word " * 180_000
HANGS = [*BEGUN, HANG]
FULL = Overloaded("no room", retry_after=1.0)
NOT_KEPT: dict[str, Any] = {"store": False}


@pytest.fixture(scope="module")
def stage() -> Iterator[Stage]:
    with Stage(server={"max_body": LONGEST, "max_body_total": MOST}) as made:
        yield made


def long_body(api: Api, **members: Any) -> bytes:
    """A request that takes almost half of the room."""
    return body_of(api, stream=True, text=LONG, **((NOT_KEPT if api.serving.stored else {}) | members))


def chunked(api: Api) -> bytes:
    """The head of a request that does not say how long it is."""
    whole = post(api, b"")
    return whole.replace(b"content-length: 0", b"transfer-encoding: chunked")


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


async def so(stage: Stage, taken: int) -> None:
    """Wait until so much of the room is taken, or more."""
    await asyncio.to_thread(stage.until, lambda: stage.gateway.service.room.taken >= taken)


async def head_of(reader: asyncio.StreamReader) -> bytes:
    return await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 30)


def line_of(api: Api, error: Overloaded) -> bytes:
    return b"HTTP/1.1 %d " % api.render_error(error)[0]


@asynccontextmanager
async def crowded(stage: Stage, api: Api, count: int = 2, key: str = "") -> AsyncIterator[None]:
    """So many large requests whose answers do not end."""
    before = len(stage.asks[0])
    headers = {"x-api-key": key} if key else {}
    async with AsyncExitStack() as stack:
        for _ in range(count):
            _, writer = await stack.enter_async_context(connected(stage.url))
            writer.write(post(api, long_body(api), **headers))
        await asyncio.to_thread(stage.until, lambda: len(stage.asks[0]) >= before + count)
        yield


# Who does not fit.


@EACH
def test_who_does_not_fit_is_told_to_come_again(stage: Stage, api: Api) -> None:
    async def run() -> list[Told]:
        stage.play(HANGS, HANGS, answer("Hello"))
        async with crowded(stage, api):
            return [
                await asyncio.to_thread(stage.post, api, long_body(api)),
                await asyncio.to_thread(stage.ask, api, stream=False),
            ]

    refused, short = asyncio.run(run())
    is_refused(refused, FULL)
    assert "room for requests" in str(refused.json)
    assert "Hello" == short.text
    stage.until(stage.idle)
    assert "Hello" == stage.post(api, long_body(api)).text


@EACH
def test_who_does_not_fit_hears_so_before_the_body_is_sent(stage: Stage, api: Api) -> None:
    async def run() -> bytes:
        stage.play(HANGS)
        async with crowded(stage, api), connected(stage.url) as (reader, writer):
            writer.write(post(api, b"", content_length="900000", expect="100-continue"))
            return await head_of(reader)

    assert asyncio.run(run()).startswith(line_of(api, FULL))
    stage.until(stage.idle)


@EACH
def test_what_is_only_announced_keeps_nobody_out(stage: Stage, api: Api) -> None:
    async def run() -> Told:
        async with AsyncExitStack() as stack:
            for _ in range(4):
                _, writer = await stack.enter_async_context(connected(stage.url))
                writer.write(post(api, b"{", content_length="900000"))
            await asyncio.to_thread(stage.until, lambda: len(stage.gateway.service.visits) == 4)
            assert stage.gateway.service.room.taken <= 4
            return await asyncio.to_thread(stage.post, api, long_body(api))

    stage.play(answer("Hello"))
    assert "Hello" == asyncio.run(run()).text
    stage.until(stage.idle)


@EACH
def test_of_two_that_are_half_read_one_comes_through(stage: Stage, api: Api) -> None:
    """Neither has said how long it is, and there is no room for both: to wait for each other would be for ever."""
    body = body_of(api, stream=False, text=LONG)

    async def run() -> tuple[bytes, bytes]:
        stage.play(HANGS, answer("Hello"))
        async with crowded(stage, api, 1), connected(stage.url) as first, connected(stage.url) as second:
            first[1].write(chunked(api) + chunk(body[:600_000]))
            await so(stage, len(long_body(api)) + 600_000)
            second[1].write(chunked(api) + chunk(body[:600_000]))
            refused = await head_of(second[0])
            first[1].write(chunk(body[600_000:]) + b"0\r\n\r\n")
            return refused, await head_of(first[0])

    refused, answered = asyncio.run(run())
    assert refused.startswith(line_of(api, FULL))
    assert answered.startswith(b"HTTP/1.1 200 ")
    stage.until(stage.idle)


@EACH
def test_alone_the_largest_request_always_has_room(api: Api) -> None:
    with Stage(server={"max_body": 100_000, "max_body_total": 1}) as small:
        body = body_of(api, stream=False, text="word " * 15_000).ljust(100_000)
        for _ in range(3):
            assert "Hello" == small.post(api, body).text
            small.until(small.idle)


@pytest.mark.deep
def test_hundreds_of_open_streams_leave_room(stage: Stage) -> None:
    async def run() -> Told:
        stage.play(HANGS)
        async with AsyncExitStack() as stack:
            for number in range(200):
                reader, writer = await stack.enter_async_context(connected(stage.url))
                api = APIS[number % len(APIS)]
                writer.write(post(api, body_of(api, stream=True, text="word " * 400)))
                assert (await head_of(reader)).startswith(b"HTTP/1.1 200 ")
            stage.play(answer("Hello"))
            return await asyncio.to_thread(stage.post, APIS[0], long_body(APIS[0]))

    assert "Hello" == asyncio.run(run()).text
    stage.until(stage.idle)


# What else a request takes.


@pytest.mark.parametrize("api", STORING, ids=named)
def test_what_a_request_goes_on_from_takes_room_too(stage: Stage, api: Api) -> None:
    stage.play(answer("Hello"))
    kept = stage.ask(api, stream=False, text=LONG, store=True).json["id"]
    [item] = stage.client.get(f"{api.endpoint}/{kept}/input_items").json()["data"]
    short: dict[str, Any] = msgspec.json.decode(body_of(api, stream=False, store=False))
    named_in = short | {"input": [{"type": "item_reference", "id": item["id"]}]}
    asked = [msgspec.json.encode(body) for body in (named_in, short | {"previous_response_id": kept})]

    async def run() -> list[Told]:
        stage.play(HANGS)
        async with crowded(stage, api):
            return [await asyncio.to_thread(stage.post, api, body) for body in asked]

    # Where one thing has no room, nobody looks for the next: that it is not there is not found out.
    asked.append(msgspec.json.encode(named_in | {"previous_response_id": "resp_nothing"}))
    for refused in asyncio.run(run()):
        is_refused(refused, FULL)
    stage.until(stage.idle)
    assert 404 == stage.post(api, asked.pop()).status
    stage.play(answer("Hello"))
    assert ["Hello"] * 2 == [stage.post(api, body).text for body in asked]


def sealed_body(api: Api, stage: Stage) -> bytes:
    """A short request with a long thought in it, of which the client has kept little but the proof."""
    proof = seal(LONG, stage.gateway.service._signing_key)
    request = Request()
    request.conversation.items += [
        Thinking(content=[Text(text="Hm.")], signature=proof, encrypted=proof),
        User(content=[Text(text="And?")]),
    ]
    request.settings.model, request.settings.max_tokens = "m", 64
    body: bytes = api.render_request(request).data
    return body


def test_what_seals_hold_takes_room_too(stage: Stage) -> None:
    proving = [api for api in CHATS if b"ts1." in sealed_body(api, stage)]
    assert proving

    async def run(api: Api) -> Told:
        stage.play(HANGS)
        async with crowded(stage, api):
            return await asyncio.to_thread(stage.post, api, sealed_body(api, stage))

    for api in proving:
        assert len(sealed_body(api, stage)) < 50_000
        is_refused(asyncio.run(run(api)), FULL)
        stage.until(stage.idle)
        stage.play(answer("Hello"))
        assert "Hello" == stage.post(api, sealed_body(api, stage)).text


# It is given back.


@EACH
def test_a_client_that_leaves_gives_its_room_back(stage: Stage, api: Api) -> None:
    """In the middle of its body, however that comes, and while the model writes."""

    async def run(data: bytes, taken: int) -> None:
        async with connected(stage.url) as (_, writer):
            writer.write(data)
            await so(stage, taken)

    async def leave() -> None:
        async with crowded(stage, api):
            pass

    stage.play(HANGS)
    for data in (post(api, b" " * 900_000, content_length="950000"), chunked(api) + chunk(b" " * 900_000)):
        asyncio.run(run(data, 900_000))
        stage.until(stage.idle)
    asyncio.run(leave())
    stage.until(stage.idle)


@EACH
@pytest.mark.parametrize(
    "body", [b'{"model": 3}' + b" " * 900_000, b"[" * 900_000, b"\xff" * 900_000], ids=["wrong", "no JSON", "no text"]
)
def test_what_is_no_request_gives_its_room_back(stage: Stage, api: Api, body: bytes) -> None:
    for _ in range(3):
        assert 400 == stage.post(api, body).status
        stage.until(stage.idle)


@EACH
@pytest.mark.parametrize("stream", [True, False], ids=["stream", "whole"])
def test_an_answer_gives_the_room_of_its_request_back(stage: Stage, api: Api, stream: bool) -> None:
    """Where the server is slow, a stream has begun when its answer is an error, and ends with that."""
    refused = said({"error": {"message": "no"}}, status=400)
    for script, words in ((answer("Hello"), b"Hello"), (refused, b"answers 400")):
        stage.play(script)
        for _ in range(3):
            told = stage.ask(api, stream=stream, text=LONG)
            assert words in told.body
            assert stream or told.status == (400 if script is refused else 200)
            stage.until(stage.idle)


def head_for(stage: Stage, data: bytes) -> bytes:
    """The head of the answer to some bytes."""

    async def run() -> bytes:
        async with connected(stage.url) as (reader, writer):
            writer.write(data)
            return await head_of(reader)

    return asyncio.run(run())


@EACH
def test_a_body_that_becomes_too_long_gives_its_room_back(stage: Stage, api: Api) -> None:
    for _ in range(3):
        assert b"413" == head_for(stage, chunked(api) + chunk(b" " * 600_000) * 2)[9:12]
        stage.until(stage.idle)


@EACH
def test_a_body_that_comes_too_slowly_gives_its_room_back(api: Api) -> None:
    with Stage(server={"body_timeout": 2.0}) as hurried:
        for data in (chunked(api) + chunk(b" " * 90_000), post(api, b"{", content_length="90000")):
            assert b"408" == head_for(hurried, data)[9:12]
            hurried.until(hurried.idle)


@pytest.mark.parametrize("api", [api for api in APIS if api.serving.count_path], ids=named)
def test_counting_gives_its_room_back(stage: Stage, api: Api) -> None:
    for _ in range(3):
        told = stage.client.post(str(api.serving.count_path), content=body_of(api, stream=False, text=LONG))
        assert 200 == told.status_code
        stage.until(stage.idle)


@pytest.mark.parametrize("api", STORING, ids=named)
def test_an_answer_that_is_made_apart_has_its_room_until_it_is_over(stage: Stage, api: Api) -> None:
    room = stage.gateway.service.room
    stage.play(HANGS)
    id_ = begun(stage, api, text=LONG)
    stage.until(lambda: stage.asks[0] and not stage.gateway.service.visits)
    assert room.taken > len(LONG)
    assert 200 == stage.client.post(f"{api.endpoint}/{id_}/cancel").status_code
    stage.until(stage.idle)
    assert 400 == stage.ask(api, stream=False, text=LONG, background=True, store=False).status
    stage.until(stage.idle)
    stage.play(answer("Hello"))
    begun(stage, api, text=LONG)
    stage.until(stage.idle)


# Keys.


def test_no_key_can_keep_the_others_out(tmp_path: Path) -> None:
    tokens = {name: add_key(tmp_path / "keys", name).reveal() for name in ("anna", "ben")}
    server = {"keys": tmp_path / "keys", "max_body": LONGEST, "max_body_total": 4_000_000}
    api = APIS[0]

    async def run(stage: Stage) -> list[Told]:
        stage.play(HANGS, HANGS, answer("Hello"))
        async with crowded(stage, api, 2, tokens["anna"]):
            ask = [{"x-api-key": tokens[name]} for name in ("anna", "ben")]
            return [await asyncio.to_thread(stage.post, api, long_body(api), headers) for headers in ask]

    with Stage(server=server) as stage:
        anna, ben = asyncio.run(run(stage))
        is_refused(anna, FULL)
        assert "the key 'anna'" in str(anna.json)
        assert "Hello" == ben.text
        stage.until(stage.idle)


# The room itself.


def room_of(most: int, longest: int = 1) -> tuple[Room, list[int]]:
    """A room, and a list that has one more each time somebody is refused."""
    refused: list[int] = []
    return Room(Server(max_body=longest, max_body_total=most), lambda: refused.append(1)), refused


def test_a_share_only_grows_and_is_given_back_once() -> None:
    room, refused = room_of(100)
    share = room.share(None)
    for size in (40, 10, 40, 60):
        share.take(size)
    assert (60, 60) == (share.size, room.taken)
    other = room.share(None)
    with pytest.raises(Overloaded):
        other.take(41)
    assert (60, [1]) == (room.taken, refused)
    share.leave()
    share.leave()
    assert 0 == room.taken
    other.take(1000)
    assert (1000, [1]) == (room.taken, refused)


def test_the_only_request_of_a_key_may_take_all_that_is_left() -> None:
    room, _ = room_of(100)
    anna, ben = Tally("anna"), Tally("ben")
    first = room.share(anna)
    first.take(30)
    room.share(anna).take(20)
    with pytest.raises(Overloaded, match="the key 'anna'"):
        room.share(anna).take(1)
    with pytest.raises(Overloaded, match="the key 'anna'"):
        first.take(31)
    bens = room.share(ben)
    bens.take(25)
    bens.take(50)
    assert 100 == room.taken
    with pytest.raises(Overloaded, match="the requests that are being answered"):
        room.share(Tally("cleo")).take(1)


def test_where_there_are_no_keys_all_of_it_is_there_for_all() -> None:
    room, refused = room_of(100)
    for _ in range(10):
        room.share(None).take(10)
    assert (100, []) == (room.taken, refused)


def test_other_limits_count_from_now_on() -> None:
    room, _ = room_of(100)
    share = room.share(None)
    share.take(100)
    room.change(Server(max_body=10, max_body_total=50))
    assert 100 == room.taken
    with pytest.raises(Overloaded):
        room.share(None).take(1)
    share.leave()
    room.share(None).take(50)


def test_a_reload_changes_the_room(stage: Stage) -> None:
    service = stage.gateway.service
    before = service.config

    async def take(total: int) -> int:
        service._take(replace(before, server=replace(before.server, max_body_total=total)))
        return service.room.most

    assert [3_000_000, LONGEST, MOST] == [stage.gateway.run(take(total)) for total in (3_000_000, 1, MOST)]


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 70)), max_size=40))
def test_what_is_taken_is_what_the_shares_have(steps: list[tuple[int, int]]) -> None:
    """Whatever comes and goes: never more than there is, nothing is lost, and who is alone has room."""
    room, _ = room_of(100, 60)
    keys = [None, Tally("anna"), Tally("ben")]
    shares = [room.share(keys[number % 3]) for number in range(6)]
    for number, size in steps:
        share = shares[number]
        alone = room.taken == share.size
        if not size:
            share.leave()
            continue
        try:
            share.take(size)
        except Overloaded:
            assert not alone
        assert sum(one.size for one in shares) == room.taken <= 100
        for at, key in enumerate(keys):
            assert key is None or key.size == shares[at].size + shares[at + 3].size


def test_the_metrics_tell_of_the_room(stage: Stage) -> None:
    async def run() -> tuple[str, Told]:
        stage.play(HANGS)
        async with crowded(stage, APIS[0]):
            refused = await asyncio.to_thread(stage.post, APIS[0], long_body(APIS[0]))
            return await asyncio.to_thread(lambda: stage.client.get("/metrics").text), refused

    def figure(text: str, name: str) -> float:
        return float(next(line.split()[1] for line in text.splitlines() if line.startswith(f"turnscript_{name} ")))

    before = figure(stage.client.get("/metrics").text, "crowded_total")
    text, refused = asyncio.run(run())
    is_refused(refused, FULL)
    assert before + 1 == figure(text, "crowded_total")
    assert MOST == figure(text, "request_bytes_limit")
    assert 2 * len(long_body(APIS[0])) == figure(text, "request_bytes")
    stage.until(stage.idle)
    assert 0 == figure(stage.client.get("/metrics").text, "request_bytes")
