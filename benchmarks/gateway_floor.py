"""The floor: the least that a gateway of this stack can do, for chat completions over text completions.

Bare ASGI on uvicorn, httptools and uvloop; aiohttp to the model's server; orjson both ways. It reads the messages,
makes a prompt, and passes the pieces of each read on as a chat's chunks, in one send. It checks, keeps, counts and
reports nothing.
"""

from __future__ import annotations

import sys
from typing import Any

import aiohttp
import orjson
import uvicorn

_JSON = [(b"content-type", b"application/json")]
_EVENTS = [(b"content-type", b"text/event-stream")]


class Floor:
    """The application."""

    def __init__(self, upstream: str) -> None:
        self._url = f"{upstream}/v1/completions"
        self._session: aiohttp.ClientSession | None = None

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if self._session is None:
            self._session = aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0))
        message = await receive()
        body = message["body"]
        while message["more_body"]:
            message = await receive()
            body += message["body"]
        asked = orjson.loads(body)
        prompt = "".join([f"{one['role'].capitalize()}: {one['content']}\n\n" for one in asked["messages"]])
        streams = asked.get("stream", False)
        members = {
            "model": asked["model"],
            "prompt": f"{prompt}Assistant:",
            "max_tokens": asked["max_tokens"],
            "stop": ["\n\nUser:"],
            "stream": streams,
        }
        if streams:
            members["stream_options"] = {"include_usage": True}
        data = orjson.dumps(members)
        async with self._session.post(self._url, data=data, headers={"content-type": "application/json"}) as answer:
            if streams:
                await _stream(answer, send)
            else:
                await _whole(answer, send)


async def _whole(answer: aiohttp.ClientResponse, send: Any) -> None:
    said = orjson.loads(await answer.read())
    choice = said["choices"][0]
    body = orjson.dumps(
        {
            "id": said["id"],
            "object": "chat.completion",
            "created": said["created"],
            "model": said["model"],
            "choices": [
                {
                    "index": 0,
                    "message": {"role": "assistant", "content": choice["text"].strip()},
                    "finish_reason": choice["finish_reason"],
                }
            ],
            "usage": said["usage"],
        }
    )
    headers = [*_JSON, (b"content-length", b"%d" % len(body))]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": body})


async def _stream(answer: aiohttp.ClientResponse, send: Any) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": _EVENTS})
    held = b""
    async for data in answer.content.iter_any():
        *events, held = (held + data).split(b"\n\n")
        out = [_event(event[6:]) for event in events]
        if out:
            await send({"type": "http.response.body", "body": b"".join(out), "more_body": True})
    await send({"type": "http.response.body", "body": b"", "more_body": False})


def _event(data: bytes) -> bytes:
    if data == b"[DONE]":
        return b"data: [DONE]\n\n"
    said = orjson.loads(data)
    choice = said["choices"][0]
    chunk = {
        "id": said["id"],
        "object": "chat.completion.chunk",
        "created": said["created"],
        "model": said["model"],
        "choices": [
            {"index": 0, "delta": {"content": choice["text"]}, "finish_reason": choice["finish_reason"]},
        ],
    }
    if "usage" in said:
        chunk["usage"] = said["usage"]
    return b"data: %s\n\n" % orjson.dumps(chunk)


if __name__ == "__main__":
    uvicorn.run(
        Floor(sys.argv[2]),
        host="127.0.0.1",
        port=int(sys.argv[1]),
        http="httptools",
        loop="uvloop",
        ws="none",
        lifespan="off",
        access_log=False,
        log_level="warning",
    )
