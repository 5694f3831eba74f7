"""Owns asking a model server over HTTP, and every way in which it fails: against scripted servers on this machine."""

from __future__ import annotations

import asyncio
import base64
import gzip
import json
import re
import socket
from typing import Any

import pytest

from tests.clocks import run_time
from tests.gateway.scripted import CLOSE, END, FLOOD, HANG, RESET, STREAM, Scripted, chunk, event, head, said, sse
from tests.gateway.upstreams import ANSWER, ASK, BACKEND, WHOLE, against, failure, pieces_of, text, text_of
from turnscript.backends.backend import Completion, Facts
from turnscript.convert import registry
from turnscript.core.error_kinds import fault_of
from turnscript.core.errors import BackendDown, InvalidInput, Unsupported, UpstreamError
from turnscript.gateway import transport
from turnscript.gateway.upstream import Timeouts, Upstream

LLAMA = registry.get_backend("llamacpp")


# Answers.


def test_an_answer_is_asked_for_and_read() -> None:
    @against(ANSWER, key="secret", headers={"x-team": "a"})
    async def _(server: Scripted, upstream: Upstream) -> None:
        async with upstream.open(ASK) as answer:
            assert 200 == answer.status
            assert "text/event-stream" == answer.headers["Content-Type"]
            pieces = [piece async for pieces in answer for piece in pieces]
        assert ("one two", "stop") == (text_of(pieces), pieces[-1].finish)
        [asked] = server.asked
        assert ("POST /v1/completions", BACKEND.call(ASK).body) == (asked.line, asked.body)
        wanted = {"authorization": "Bearer secret", "content-type": "application/json", "x-team": "a"}
        assert wanted.items() <= asked.headers.items()


def test_each_call_has_a_connection_of_its_own() -> None:
    """So no call meets one that the server closes, or an answer that nobody asked for."""

    @against(ANSWER, said(text("x", "stop")))
    async def _(server: Scripted, upstream: Upstream) -> None:
        for ask in (ASK, WHOLE, WHOLE):
            assert await pieces_of(upstream, ask)
        assert [1, 2, 3] == [asked.connection for asked in server.asked]


def test_an_answer_is_not_given_up_though_its_end_comes_late() -> None:
    @against(sse(text("x", "stop"), "[DONE]", end=[0.01, END]))
    async def _(server: Scripted, upstream: Upstream) -> None:
        async with upstream.open(ASK) as answer:
            assert ["x"] == [piece.text for piece in await anext(answer)]
            with pytest.raises(StopAsyncIteration):
                await anext(answer)
        await asyncio.sleep(0.05)
        assert server.asked[0].gone is None


def test_an_end_that_does_not_come_is_not_waited_for() -> None:
    @against(sse(text("x", "stop"), "[DONE]", end=[HANG]))
    async def _(server: Scripted, upstream: Upstream) -> None:
        start = run_time()
        assert "x" == text_of(await pieces_of(upstream))
        assert run_time() - start < 1
        await server.until_gone()


@pytest.mark.parametrize(
    "script",
    [[RESET], [CLOSE], [b"HTTP/1.1 103 Early Hints\r\n\r\n", 0.02, CLOSE], [b"HTTP/1.1 200 O", 0.02, CLOSE]],
    ids=["reset", "closed", "news", "a part of a head"],
)
def test_a_request_that_a_server_dies_of_is_not_sent_again(script: Any) -> None:
    @against(ANSWER, script)
    async def _(server: Scripted, upstream: Upstream) -> None:
        assert await pieces_of(upstream)
        with pytest.raises(UpstreamError, match="without an answer"):
            await pieces_of(upstream)
        assert 2 == len(server.asked)


def test_pieces_that_come_in_one_read_are_handed_over_together() -> None:
    together = [STREAM + chunk(event(text("a")) + event(text("b"))), 0.03, chunk(event(text("c", "stop"))) + END]

    @against(together)
    async def _(server: Scripted, upstream: Upstream) -> None:
        async with upstream.open(ASK) as answer:
            lists = [[piece.text for piece in pieces] async for pieces in answer]
        assert [["a", "b"], ["c"]] == lists


def test_chunks_that_wait_are_read_at_once() -> None:
    """So many that the library stops reading from the server, again and again, and has to go on each time."""
    words = "".join([f"{number} " for number in range(5000)])
    chunks = b"".join([chunk(event(text(f"{number} "))) for number in range(5000)])

    @against([STREAM + chunks + chunk(event(text("", "stop"))) + chunk("data: [DONE]\n\n") + END])
    async def _(server: Scripted, upstream: Upstream) -> None:
        for _ in range(2):
            lists = []
            async with upstream.open(ASK) as answer:
                async for pieces in answer:
                    lists.append(pieces)
                    await asyncio.sleep(0.001)
            assert words == text_of([piece for pieces in lists for piece in pieces])
            assert len(lists) < 1000


def test_the_first_pieces_can_be_waited_for_and_are_kept() -> None:
    @against(sse(text("a"), text("b", "stop"), pause=0.01))
    async def _(server: Scripted, upstream: Upstream) -> None:
        async with upstream.open(ASK) as answer:
            await answer.first()
            await answer.first()
            assert "ab" == "".join([piece.text async for pieces in answer for piece in pieces])


def test_a_body_that_ends_with_its_connection_is_read() -> None:
    @against([head(media="text/event-stream") + event(text("a", "stop")), CLOSE])
    async def _(server: Scripted, upstream: Upstream) -> None:
        assert "a" == text_of(await pieces_of(upstream))


def test_a_compressed_answer_is_read() -> None:
    @against(said(gzip.compress(json.dumps(text("a", "stop")).encode(), mtime=0), content_encoding="gzip"))
    async def _(server: Scripted, upstream: Upstream) -> None:
        assert "a" == text_of(await pieces_of(upstream))
        assert "identity" == server.asked[0].headers["accept-encoding"]


def test_a_prompt_of_many_megabytes_is_sent() -> None:
    @against(ANSWER)
    async def _(server: Scripted, upstream: Upstream) -> None:
        prompt = "word " * 1_000_000
        assert await pieces_of(upstream, Completion(prompt=prompt, max_tokens=1))
        assert prompt == server.asked[0].json["prompt"]


def test_what_follows_the_last_piece_may_be_missing_or_wrong() -> None:
    for end in ([CLOSE], [RESET], [chunk("data: {]\n\n"), END], [0.01, chunk(event({"error": "late"})), END]):

        @against(sse(text("a", "stop"), end=end))
        async def _(server: Scripted, upstream: Upstream) -> None:
            assert "a" == text_of(await pieces_of(upstream))


# Leaving.


@pytest.mark.parametrize("script", [[*sse(text("a"), end=[]), HANG], [STREAM, chunk(event(text("a"))), FLOOD]])
def test_leaving_early_closes_the_connection_at_once(script: Any) -> None:
    @against(script)
    async def _(server: Scripted, upstream: Upstream) -> None:
        async with upstream.open(ASK) as answer:
            await anext(answer)
        left = run_time()
        assert await server.until_gone() - left < 1
        with pytest.raises(StopAsyncIteration):
            await anext(answer)


@pytest.mark.parametrize("script", [[HANG], [STREAM, HANG], [*sse(text("a"), end=[]), HANG]])
def test_a_task_that_is_cancelled_closes_the_connection(script: Any) -> None:
    @against(script)
    async def _(server: Scripted, upstream: Upstream) -> None:
        task = asyncio.create_task(pieces_of(upstream))
        await server.until_asked()
        await asyncio.sleep(0.02)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await server.until_gone()


@pytest.mark.deep
def test_a_slow_reader_pauses_the_server() -> None:
    """Nobody reads: the server can write what the buffers hold, and then waits."""

    @against([STREAM, chunk(event(text("a"))), FLOOD])
    async def _(server: Scripted, upstream: Upstream) -> None:
        async with upstream.open(ASK) as answer:
            await anext(answer)
            written, before = 0, -1
            while written != before:
                await asyncio.sleep(0.05)
                before, written = written, server.asked[0].written
            assert written < 8 * 1024 * 1024
            for _ in range(200):
                await anext(answer)
            await asyncio.sleep(0.01)
            assert server.asked[0].written > written


# Failures.


def test_a_server_that_is_not_there_is_named_with_what_to_do() -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{closed.getsockname()[1]}"

        async def run() -> None:
            async with Upstream(url, BACKEND) as upstream:
                assert not await upstream.healthy()
                assert Facts() == await upstream.facts()
                await pieces_of(upstream)

        with pytest.raises(BackendDown, match="nothing listens there: start") as caught:
            asyncio.run(run())
    assert url in str(caught.value)
    assert (True, None, 502) == (caught.value.retryable, caught.value.upstream, caught.value.status)


def test_a_host_without_a_name_is_said() -> None:
    async def run() -> None:
        async with Upstream("http://nowhere.invalid:1", BACKEND, timeouts=Timeouts(connect=5)) as upstream:
            await pieces_of(upstream)

    with pytest.raises(BackendDown, match=r"no host of that name: http://nowhere\.invalid:1") as caught:
        asyncio.run(run())
    assert caught.value.retryable


def test_a_server_without_tls_is_no_secure_server() -> None:
    async def refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(said("", status=400)[0])
        writer.close()

    async def run() -> None:
        async with await asyncio.start_server(refuse, "127.0.0.1", 0) as server:
            url = f"https://127.0.0.1:{server.sockets[0].getsockname()[1]}"
            async with Upstream(url, BACKEND) as upstream:
                await pieces_of(upstream)

    with pytest.raises(BackendDown, match="no secure connection"):
        asyncio.run(run())


@pytest.mark.parametrize(
    ("script", "message"),
    [
        ([RESET], "without an answer"),
        ([CLOSE], "without an answer"),
        ([b"HTTP/1.1 200 OK\r\ncontent-len", CLOSE], "without an answer"),
        ([b"SSH-2.0-OpenSSH\r\n\r\n", CLOSE], "does not answer in HTTP"),
        ([STREAM, CLOSE], "broke off"),
        ([STREAM, RESET], "broke off"),
        (sse(text("a"), end=[CLOSE]), "broke off"),
        (sse(text("a"), end=[RESET]), "broke off"),
        (sse(text("a")), "broke off before its end"),
        ([head(content_length=100) + b"{", CLOSE], "broke off"),
        ([STREAM + b"zz\r\nnot a chunk\r\n", CLOSE], "does not answer in HTTP"),
        (said("<html>"), "<html>"),
        ([head(content_length=9, content_encoding="gzip") + b"not gzip!"], "broke off"),
    ],
)
def test_what_is_no_answer_may_be_tried_again(script: Any, message: str) -> None:
    error = failure(script)
    assert message in str(error)
    assert (True, None) == (error.retryable, error.upstream)


def test_what_was_read_before_a_break_is_told_before_it() -> None:
    @against(sse(text("a"), {"error": "no memory"}))
    async def _(server: Scripted, upstream: Upstream) -> None:
        async with upstream.open(ASK) as answer:
            assert ["a"] == [piece.text for piece in await anext(answer)]
            with pytest.raises(UpstreamError, match="no memory"):
                await anext(answer)
            with pytest.raises(StopAsyncIteration):
                await anext(answer)


@pytest.mark.parametrize(("status", "retryable"), [(400, False), (422, False), (429, True), (500, True), (503, True)])
def test_a_refusal_is_an_error_with_its_status(status: int, retryable: bool) -> None:
    @against(said({"error": {"message": "why not"}}, status=status), ANSWER)
    async def _(server: Scripted, upstream: Upstream) -> None:
        with pytest.raises(UpstreamError, match="why not") as caught:
            await pieces_of(upstream)
        assert (status, retryable) == (caught.value.upstream, caught.value.retryable)
        assert "one two" == text_of(await pieces_of(upstream))


@pytest.mark.parametrize(
    ("header", "date", "seconds"),
    [
        ("7", "", 7.0),
        ("0.5", "", 0.5),
        ("Wed, 21 Oct 2026 07:28:00 GMT", "Wed, 21 Oct 2026 07:27:15 GMT", 45.0),
        ("Wed, 21 Oct 2026 07:28:00 GMT", "Wed, 21 Oct 2026 07:28:00 GMT", None),
        ("Wed, 21 Oct 1998 07:28:00 GMT", "", None),
        ("Wed, 21 Oct 2026 07:28:00", "Wed, 21 Oct 2026 07:27:15 GMT", 45.0),
        ("Wed, 99 Oct 2026 07:28:00 GMT", "soon", None),
        *((odd, "", None) for odd in ("-1", "soon", "", "nan", "inf", "1e400", "1e9", "1_0", "9" * 400)),
    ],
)
def test_a_refusal_says_when_to_try_again(header: str, date: str, seconds: float | None) -> None:
    """As a date, too, by the clock of the server that says it."""
    error = failure(said("", status=429, retry_after=header, date=date))
    assert ("rate_limited", seconds) == (fault_of(error).kind, error.retry_after)


def test_a_redirect_is_not_followed() -> None:
    """It is told where to: the URL that the gateway should have been given, without what may be secret in it."""
    error = failure(said("", status=307, location="http://127.0.0.1:1/"))
    assert (307, False) == (error.upstream, error.retryable)
    for location, shown in [
        ("https://models.example.org/v1/completions", "give the gateway the URL https://models.example.org/v1"),
        ("/api/v1/completions?key=secret#x", r"the URL http://127.0.0.1:\d+/api/v1$"),
        ("//user:secret@models.example.org/v1/completions", "the URL http://models.example.org/v1$"),
        ("https://login.example.org/?next=secret", "points to https://login.example.org/; check the URL"),
        ("http://[secret", "answers 308 and does not say where to; check the URL$"),
        ("", "answers 308 and does not say where to; check the URL$"),
    ]:
        error = failure(said("secret", status=308, location=location))
        assert re.search(shown, str(error)), str(error)
        assert "secret" not in f"{error}{error.body}"


def test_a_refusal_without_an_end_is_read_as_far_as_it_needs_to_be() -> None:
    error = failure([head(500, transfer_encoding="chunked"), chunk(b"no " * 1000), FLOOD])
    assert (500, True) == (error.upstream, "no no" in str(error))
    error = failure([head(500, transfer_encoding="chunked") + chunk(b"no memory"), RESET])
    assert (500, True) == (error.upstream, "no memory" in str(error))


def test_what_cannot_be_asked_is_not_sent() -> None:
    @against(ANSWER)
    async def _(server: Scripted, upstream: Upstream) -> None:
        with pytest.raises(Unsupported):
            await pieces_of(upstream, Completion(prompt="", max_tokens=1, grammar="x"))
        assert [] == server.asked


# Small questions.


def test_facts_are_asked_for_once_until_they_are_forgotten() -> None:
    @against(said({}, status=503), said({"data": [{"id": "m", "max_model_len": 7}]}))
    async def _(server: Scripted, upstream: Upstream) -> None:
        assert Facts() == await upstream.facts()
        for _ in range(3):
            assert Facts(context=7, model="m", asked_as="m") == await upstream.facts()
        assert ["GET /v1/models"] * 2 == [asked.line for asked in server.asked]
        upstream.forget()
        await upstream.facts()
        assert 3 == len(server.asked)


def test_tokens_are_counted_where_the_server_can() -> None:
    scripts = [said({"tokens": [1, 2, 3]}), said({"tokens": "x"}), said({}, status=500)]

    async def run() -> list[int | None]:
        async with Scripted(*scripts) as server, Upstream(server.url, LLAMA) as upstream:
            return [await upstream.count("hello") for _ in range(3)]

    assert [3, None, None] == asyncio.run(run())

    @against(ANSWER)
    async def _(server: Scripted, upstream: Upstream) -> None:
        assert await upstream.count("hello") is None
        assert [] == server.asked


@pytest.mark.parametrize(("status", "healthy"), [(200, True), (401, True), (404, True), (500, None), (503, False)])
def test_a_server_is_healthy_if_it_answers(status: int, healthy: bool | None) -> None:
    for backend in (BACKEND, LLAMA):  # a list of models that fails says nothing of completions; a health does
        found = against(said("", status=status), backend=backend)(lambda _, upstream: upstream.healthy())
        assert found is (backend is BACKEND if healthy is None else healthy)


# URLs.


@pytest.mark.parametrize(
    ("url", "base"),
    [
        ("http://h:1", "http://h:1/v1"),
        ("http://h:1/", "http://h:1/v1"),
        ("https://h/a/b/", "https://h/a/b"),
        (" http://[::1]:8/v1 ", "http://[::1]:8/v1"),
        ("http://me:pw@h/x", "http://h/x"),
    ],
)
def test_a_url_without_a_path_gets_the_usual_one(url: str, base: str) -> None:
    assert base == transport.base_of(url, BACKEND)


@pytest.mark.parametrize(
    "url", ["", "localhost:8080", "ftp://h", "http://", "http://h:x", "http://h:0", "http://h?a=1"]
)
def test_what_is_no_url_of_a_server_is_refused(url: str) -> None:
    with pytest.raises(InvalidInput, match=r"is not the URL of a model server, such as http://127\.0\.0\.1:8080"):
        Upstream(url, BACKEND)


def test_a_password_in_a_url_is_sent_and_never_shown() -> None:
    async def run() -> None:
        async with Scripted(ANSWER) as server:
            url = server.url.replace("http://", "http://me:p%40ss@")
            async with Upstream(url, BACKEND) as upstream:
                await pieces_of(upstream)
                assert server.url == upstream.url
                assert ["p@ss"] == upstream.secrets
            assert f"Basic {base64.b64encode(b'me:p@ss').decode()}" == server.asked[0].headers["authorization"]

    asyncio.run(run())
    with pytest.raises(InvalidInput) as caught:
        Upstream("ftp://me:secret@h", BACKEND)
    assert "secret" not in str(caught.value)
