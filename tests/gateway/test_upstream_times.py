"""Owns the clocks of an upstream: how long a model server may take to accept, begin, go on and end."""

from __future__ import annotations

import asyncio
import re
import socket
import time
from typing import Any

import pytest

from tests.clocks import run_time, scaled
from tests.gateway.scripted import HANG, STREAM, Scripted, chunk, head, said, sse
from tests.gateway.upstreams import ASK, BACKEND, WHOLE, against, failure, pieces_of, text, text_of
from turnscript.backends.backend import Completion
from turnscript.core.error_kinds import fault_of
from turnscript.core.errors import UpstreamTimeout
from turnscript.gateway.upstream import Timeouts, Upstream


@pytest.mark.parametrize(
    ("script", "ask", "message"),
    [
        ([HANG], ASK, "has not begun to answer after {first} s"),
        ([STREAM, chunk(b": no answer\n\n"), HANG], ASK, "has not begun to answer after {first} s"),
        (sse(text("a"), end=[HANG]), ASK, "sent nothing for {between} s"),
        (sse(*[text("a")] * 99, pause=0.02), ASK, "not come to an end after {total} s"),
        ([HANG], WHOLE, "has not begun to answer after {total} s"),
        ([head(content_length=9), b"{", HANG], WHOLE, "not come to an end after {total} s"),
        ([head(500, content_length=9), b"{", HANG], ASK, "not begun to answer after {first} s"),
    ],
)
@scaled
def test_a_server_that_takes_too_long_is_left(script: Any, ask: Completion, message: str, scale: float) -> None:
    times = {"first": 0.1 * scale, "between": 0.1 * scale, "total": 0.3 * scale}
    message = message.format(**{name: f"{time:g}" for name, time in times.items()})
    script = [step * scale if isinstance(step, float) else step for step in script]

    @against(script, timeouts=Timeouts(first_byte=times["first"], between=times["between"], total=times["total"]))
    async def _(server: Scripted, upstream: Upstream) -> None:
        start, begun = time.monotonic(), run_time()
        with pytest.raises(UpstreamTimeout, match=re.escape(message)) as caught:
            await pieces_of(upstream, ask)
        assert ("timeout", 504) == (fault_of(caught.value).kind, caught.value.status)
        assert upstream.url in str(caught.value)
        assert 0.09 * scale < time.monotonic() - start
        assert run_time() - begun < 3 * scale
        await server.until_gone()


def test_a_server_that_accepts_no_connection_is_left() -> None:
    with socket.socket() as full:
        full.bind(("127.0.0.1", 0))
        full.listen(0)
        waiting = [socket.socket() for _ in range(4)]
        for one in waiting:  # the queue of connections that nobody accepts
            one.setblocking(False)
            one.connect_ex(full.getsockname())

        async def run() -> None:
            url = f"http://127.0.0.1:{full.getsockname()[1]}"
            async with Upstream(url, BACKEND, timeouts=Timeouts(connect=0.1)) as upstream:
                await pieces_of(upstream)

        with pytest.raises(UpstreamTimeout, match=r"not accepted a connection after 0\.1 s") as caught:
            asyncio.run(run())
        for one in waiting:
            one.close()
    assert caught.value.retryable


@scaled
def test_the_time_that_the_reader_takes_is_not_the_servers(scale: float) -> None:
    limits = Timeouts(first_byte=0.1 * scale, between=0.1 * scale, total=9 * scale)

    @against(sse(text("a"), text("b", "stop"), pause=0.02 * scale), timeouts=limits)
    async def _(server: Scripted, upstream: Upstream) -> None:
        async with upstream.open(ASK) as answer:
            async for _ in answer:
                await asyncio.sleep(0.25 * scale)


@scaled
def test_a_slow_answer_may_take_longer_than_any_pause_in_it(scale: float) -> None:
    limits = Timeouts(first_byte=0.1 * scale, between=0.1 * scale)

    @against(sse(*[text("a")] * 5, text("", "stop"), pause=0.06 * scale), timeouts=limits)
    async def _(server: Scripted, upstream: Upstream) -> None:
        assert "aaaaa" == text_of(await pieces_of(upstream))


@scaled
def test_an_answer_in_one_piece_may_take_its_time(scale: float) -> None:
    limits = Timeouts(first_byte=0.1 * scale, between=0.1 * scale, total=5 * scale)

    @against([0.25 * scale, *said(text("a", "stop"))], timeouts=limits)
    async def _(server: Scripted, upstream: Upstream) -> None:
        assert "a" == text_of(await pieces_of(upstream, WHOLE))


def test_a_broken_frame_in_the_middle_ends_the_answer_at_once() -> None:
    script = [*sse(text("a"), end=[]), 0.03, b"zz\r\nnot a chunk\r\n", HANG]
    error = failure(script)
    assert ("broke off its answer" in str(error), True) == (True, error.retryable)
