"""A model server that costs next to nothing: text completions over a raw protocol, whole or streamed.

The name of the model says how it answers: `quick` at once (a stream in one write), `slow` after 25 to 75 ms with the
times at which it was asked and answered, `paced` with a piece each 25 ms that holds the time, `open` with a piece each
second until its client goes.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import sys
import time
from functools import cache
from random import Random
from typing import Any

import uvloop

SLOW = (0.025, 0.075)
PACE = 0.025
WORDS = 8
"""What a whole answer says, so often: `word`."""

_MODELS = json.dumps({"object": "list", "data": [{"id": "bench", "object": "model"}]}).encode()
_STREAM = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
_END = b"0\r\n\r\n"
_COUNT = itertools.count()
_RANDOM = Random(1)


def _whole(body: bytes) -> bytes:
    return b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%s" % (len(body), body)


def _answer(text: str, finish: str | None = None, **more: Any) -> bytes:
    """One answer or piece, with the members that vLLM sends."""
    choice = {"index": 0, "text": text, "logprobs": None, "finish_reason": finish, "stop_reason": None}
    head = {"id": "cmpl-6f1d2a9b", "object": "text_completion", "created": 1763000000, "model": "bench"}
    return json.dumps({**head, "choices": [choice], **more}, separators=(",", ":")).encode()


def _event(data: bytes) -> bytes:
    return b"data: %s\n\n" % data


def _chunk(data: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(data), data)


_WORD = _event(_answer(" word"))
_DONE = _event(b"[DONE]")


def _usage(tokens: int) -> dict[str, int]:
    return {"prompt_tokens": 24, "completion_tokens": tokens, "total_tokens": 24 + tokens}


_UNARY = _whole(_answer(" word" * WORDS, "stop", usage=_usage(WORDS)))


def _tail(tokens: int) -> bytes:
    last = _event(_answer("", "stop", usage=_usage(tokens)))
    return _chunk(last) + _chunk(_DONE) + _END


@cache
def _burst(tokens: int) -> bytes:
    return _STREAM + b"".join([_chunk(_WORD)] * tokens) + _tail(tokens)


class Upstream(asyncio.Protocol):
    """One connection."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        self._transport = transport
        self._held = b""
        self._task: asyncio.Task[None] | None = None
        self._loop = asyncio.get_running_loop()

    def connection_lost(self, exc: Exception | None) -> None:
        if self._task is not None:
            self._task.cancel()

    def data_received(self, data: bytes) -> None:
        held = self._held + data if self._held else data
        end = held.find(b"\r\n\r\n")
        if end < 0:
            self._held = held
            return
        head = held[:end].lower()
        at = head.find(b"content-length:")
        length = int(head[at + 15 :].split(b"\r\n", 1)[0]) if at >= 0 else 0
        if len(held) < end + 4 + length:
            self._held = held
            return
        self._held = held[end + 4 + length :]
        if head.startswith(b"get"):
            self._transport.write(_whole(_MODELS))
        else:
            self._complete(json.loads(held[end + 4 : end + 4 + length]))

    def _complete(self, asked: dict[str, Any]) -> None:
        model, tokens = asked["model"], asked.get("max_tokens", WORDS)
        if model == "slow":
            self._loop.call_later(_RANDOM.uniform(*SLOW), self._slowly, time.monotonic_ns(), asked.get("stream"))
        elif not asked.get("stream"):
            self._transport.write(_UNARY)
        elif model == "quick":
            self._transport.write(_burst(tokens))
        elif model == "paced":
            self._task = self._loop.create_task(self._paced(tokens))
        else:
            self._task = self._loop.create_task(self._open())

    def _slowly(self, asked: int, streams: bool) -> None:
        text = f" @{asked}:{time.monotonic_ns()}@"
        if streams:
            self._transport.write(_STREAM + _chunk(_event(_answer(text))) + _tail(WORDS))
        else:
            self._transport.write(_whole(_answer(text, "stop", usage=_usage(WORDS))))

    async def _paced(self, tokens: int) -> None:
        """Each piece says when it left. The streams are spread over the time between two pieces."""
        self._transport.write(_STREAM)
        began = self._loop.time() + PACE * (next(_COUNT) % 40) / 40
        for number in range(tokens):
            await asyncio.sleep(began + number * PACE - self._loop.time())
            self._transport.write(_chunk(_event(_answer(f" @{time.monotonic_ns()}@"))))
        self._transport.write(_tail(tokens))

    async def _open(self) -> None:
        self._transport.write(_STREAM)
        while True:
            self._transport.write(_chunk(_WORD))
            await asyncio.sleep(1)


async def main(port: int) -> None:
    server = await asyncio.get_running_loop().create_server(Upstream, "127.0.0.1", port, backlog=1024)
    async with server:
        await server.serve_forever()


if __name__ == "__main__":
    uvloop.run(main(int(sys.argv[1])))
