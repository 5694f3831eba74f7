"""Owns recordings: what was heard from a server is played back the same, and no secret is in the file."""

from __future__ import annotations

import asyncio
import base64
import json
import threading
import time
from itertools import chain, repeat
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.clocks import scaled
from tests.gateway.scripted import CLOSE, RESET, Asked, Scripted, head, said, sse
from turnscript.backends.backend import Completion, Facts, HttpCall, Piece
from turnscript.convert import registry
from turnscript.core.errors import InvalidInput, UpstreamError
from turnscript.gateway import replay
from turnscript.gateway.replay import Replay, hash_of, read_exchanges, record
from turnscript.gateway.upstream import Timeouts, Upstream

LLAMA, PLAIN = registry.get_backend("llamacpp"), registry.get_backend("completions")


def ask(prompt: str = "Hi", **more: Any) -> Completion:
    return Completion(prompt=prompt, max_tokens=5, **more)


async def heard(upstream: Upstream, *asks: Completion) -> list[list[Piece] | str]:
    """What each request gets: pieces, or the words of the error after them."""
    found: list[list[Piece] | str] = []
    for one in asks:
        try:
            async with upstream.open(one) as answer:
                found.append([piece async for pieces in answer for piece in pieces])
        except UpstreamError as error:
            found.append(f"{error.upstream} {error.retryable}")
    return found


def texts(found: list[list[Piece] | str]) -> list[str]:
    return [one if isinstance(one, str) else "".join(piece.text for piece in one) for one in found]


def test_what_was_recorded_is_played_back_the_same(tmp_path: Path, llamacpp: str) -> None:
    """From the real server: a stream, a whole answer, a refusal, facts and tokens."""
    file = tmp_path / "real.jsonl"
    asks = [ask("one"), ask("one", stream=False), ask("two", stream=False), ask("x" * 5000)]

    async def run(upstream: Upstream) -> Any:
        async with upstream:
            return await heard(upstream, *asks), await upstream.facts(), await upstream.count("hello")

    real = asyncio.run(run(record(Upstream(llamacpp, LLAMA), file)))
    assert "400 False" == real[0][-1]
    assert real[1] != Facts()
    assert real == asyncio.run(run(Replay(file, LLAMA)))
    assert real == asyncio.run(run(Replay(tmp_path, LLAMA)))


def test_a_break_and_bytes_that_are_no_text_are_played_back_too(tmp_path: Path) -> None:
    file = tmp_path / "odd.jsonl"
    half = "é👍".encode()
    broken = sse({"choices": [{"text": "a"}]}, end=[0.02, RESET])
    odd = said(b"\xff\xfe<html>")
    whole = head() + '{"choices":[{"text":"é👍","finish_reason":"stop"}]}'.encode()
    at = whole.index(half)
    slow: list[Any] = [whole[: at + 1], 0.03, whole[at + 1 : at + 4], 0.03, whole[at + 4 :], CLOSE]
    scripts = [broken, odd, slow]

    async def run() -> list[Any]:
        async with Scripted(*scripts) as server, record(Upstream(server.url, PLAIN), file) as upstream:
            real = await heard(upstream, ask("1"), ask("2"), ask("3"))
        async with Replay(file, PLAIN, speed=0) as replay:
            return [real, await heard(replay, ask("1"), ask("2"), ask("3"))]

    real, played = asyncio.run(run())
    assert real == played
    assert ["None True", "None True", "é👍"] == texts(real)
    assert [True, False, False] == [exchange.broken for exchange in read_exchanges(file)]
    content = file.read_text(encoding="utf-8")
    assert '"text":"a' not in content
    assert '"text":"é"' in content, "a piece that ends inside a character takes its rest from the next"
    assert '"base64"' in content


def test_no_secret_is_in_a_recording(tmp_path: Path) -> None:
    file = tmp_path / "secret.jsonl"

    def leak(asked: Asked) -> Any:
        text = asked.headers["authorization"]
        last = {"choices": [{"text": " end", "finish_reason": "stop"}]}
        return sse(*({"choices": [{"text": part}]} for part in (text, "mine")), last, "[DONE]")

    async def run() -> list[str]:
        async with Scripted(leak) as server:
            upstream = record(
                Upstream(server.url, PLAIN, "sk-secret", headers={"x-key": "other"}), file, secrets=["mine", ""]
            )
            async with upstream:
                real = texts(await heard(upstream, ask("my key is sk-secret")))
        async with Replay(file, PLAIN) as replay:
            return real + texts(await heard(replay, ask("my key is sk-secret")))

    assert ["Bearer sk-secretmine end", "Bearer ************* end"] == asyncio.run(run())
    content = file.read_text(encoding="utf-8")
    for secret in ("sk-secret", "mine", "other", "authorization"):
        assert secret not in content


def test_a_secret_that_two_pieces_share_is_hidden_and_the_pauses_stay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second piece comes when the first has been read, by a clock on which that was three seconds ago."""
    file = tmp_path / "split.jsonl"
    read, moments = threading.Event(), chain((0.0, 1.0), repeat(4.0))

    def clock() -> float:
        now = next(moments)
        if now:
            read.set()
        return now

    monkeypatch.setattr(replay, "time", SimpleNamespace(monotonic=clock))
    body = b'{"choices":[{"text":"sk-secret","finish_reason":"stop"}]}'
    steps: list[Any] = [said(body)[0][: -len(body)], body[:22], read, body[22:]]

    async def run() -> None:
        async with Scripted(steps) as server, record(Upstream(server.url, PLAIN, "sk-secret"), file) as upstream:
            assert ["sk-secret"] == texts(await heard(upstream, ask()))

    asyncio.run(run())
    [exchange] = read_exchanges(file)
    assert body.replace(b"sk-secret", b"*********") == b"".join(data for _, data in exchange.pieces)
    assert [1.0, 3.0] == [after for after, _ in exchange.pieces]


def line(**members: Any) -> str:
    return json.dumps(members) + "\n"


def event(text: str) -> str:
    return f'data: {{"choices":[{{"text":"{text}","finish_reason":"stop"}}]}}\n\n'


def test_exchanges_without_a_prompt_answer_in_order_and_once(tmp_path: Path) -> None:
    file = tmp_path / "hand.jsonl"
    call = "POST /completions"
    file.write_text(line(call=call) + line(text=event("a")) + "\n" + line(call=call) + line(text=event("b")))

    async def run() -> list[str]:
        async with Replay(file, PLAIN) as replay:
            assert await replay.healthy()
            assert Facts() == await replay.facts()
            return texts(await heard(replay, ask("x"), ask("y"), ask("z")))

    assert ["a", "b", "None False"] == asyncio.run(run())


def test_exchanges_with_a_prompt_answer_it_as_often_as_it_is_asked(tmp_path: Path) -> None:
    found = {name: hash_of(PLAIN.call(ask(name))) for name in ("x", "é")}
    assert found["é"] == hash_of(HttpCall("POST", "/completions", b'{"prompt": "\\u00e9", "seed": 3}'))
    call = "POST /completions"
    (tmp_path / "1.jsonl").write_text(line(call=call, prompt=found["x"]) + line(text=event("x1")))
    (tmp_path / "2.jsonl").write_text(line(call=call, prompt=found["x"]) + line(text=event("x2")))
    (tmp_path / "3.jsonl").write_text(line(call=call, prompt=found["é"]) + line(text=event("e")))
    (tmp_path / "other.txt").write_text("not read")

    async def run() -> list[str]:
        async with Replay(tmp_path, PLAIN) as replay:
            return texts(await heard(replay, *map(ask, ("x", "é", "x", "x", "é"))))

    assert ["x1", "e", "x2", "x2", "e"] == asyncio.run(run())


@scaled
def test_pauses_are_kept_or_left_out_and_watched(tmp_path: Path, scale: float) -> None:
    file = tmp_path / "slow.jsonl"
    call = line(call="POST /completions", prompt=hash_of(PLAIN.call(ask())))
    file.write_text(call + line(after=0.2 * scale, text=event("a")))

    async def run(**settings: Any) -> tuple[list[str], float]:
        start = time.monotonic()
        async with Replay(file, PLAIN, **settings) as replay:
            return texts(await heard(replay, ask())), time.monotonic() - start

    assert 0.19 * scale < asyncio.run(run())[1]
    assert 0.19 * scale > asyncio.run(run(speed=4))[1] > 0.04 * scale
    assert 0.1 * scale > asyncio.run(run(speed=0))[1]
    assert ["None False"] == asyncio.run(run(timeouts=Timeouts(first_byte=0.05 * scale)))[0]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "no recorded exchanges"),
        ('{"text":"a"}\n', "line 1: an answer before any call"),
        ('{"call":"POST /x"}\n\n{"txt":"a"}\n', "line 3: .*unknown field `txt`"),
        ('{"call":"POST /x"}\n{"base64":"?"}\n', "line 2"),
        ("hello\n", "line 1"),
    ],
)
def test_a_file_that_is_no_recording_is_an_error_with_file_and_line(tmp_path: Path, content: str, message: str) -> None:
    file = tmp_path / "bad.jsonl"
    file.write_text(content)
    with pytest.raises(InvalidInput, match=message) as caught:
        Replay(file, PLAIN)
    assert str(file) in str(caught.value)
    assert "column" not in str(caught.value)  # it has none, and the line is said with the file


def test_a_recording_that_is_not_there_or_cannot_be_written_is_an_error(tmp_path: Path, llamacpp: str) -> None:
    with pytest.raises(InvalidInput, match="cannot read"):
        Replay(tmp_path / "none.jsonl", PLAIN)
    with pytest.raises(InvalidInput, match="no recorded exchanges"):
        Replay(tmp_path, PLAIN)

    async def run() -> None:
        async with record(Upstream(llamacpp, LLAMA), tmp_path / "no" / "folder.jsonl") as upstream:
            await heard(upstream, ask())

    with pytest.raises(InvalidInput, match="cannot write the recording"):
        asyncio.run(run())


def test_bytes_are_base64_only_where_they_are_no_text(tmp_path: Path) -> None:
    file = tmp_path / "b.jsonl"
    data = base64.b64encode(event("a").encode()).decode()
    file.write_text(line(call="POST /completions", status=201, headers={"x": "y"}) + line(base64=data))

    async def run() -> tuple[int, str, list[Piece]]:
        async with Replay(file, PLAIN) as replay, replay.open(ask()) as answer:
            return answer.status, answer.headers["x"], [piece async for pieces in answer for piece in pieces]

    assert (201, "y", [Piece("a", "stop")]) == asyncio.run(run())
