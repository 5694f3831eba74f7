"""Owns a crowd of clients, no two of which ask the same, and the model server that answers them for next to nothing.

Each has a number, which its texts, sessions, tools and ids are made of, and by which it is one of several kinds: it
talks, calls a tool, leaves in the middle, has its answer kept, and so on, in the words of each API in turn. The server
knows from the last order in a prompt what to write.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator
from typing import Any

import msgspec

import turnscript as ts
from tests.gateway.scripted import END, STREAM, chunk, event
from tests.gateway.stage import APIS, WEATHER, body_of, connected, piece, post, text_of_call
from turnscript.apis.api import Api
from turnscript.core.conversation import Item, Request, Response, Text, Tool, ToolCall, ToolResult, User

CONNECTIONS = 32
_MODELS = b'HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 23\r\n\r\n{"data":[{"id":"mod"}]}'
_ORDER = re.compile(rb"(Say|Call|Hang|Fail) (\d+)(?: x(\d+))?")
_NEAR_THE_END = 10_000
"""There stands the last order, however long a prompt is."""
_CALL = text_of_call("CITY")
_DONE = chunk(event(piece("", "stop", usage={"prompt_tokens": 12, "completion_tokens": 3}))) + chunk(event("[DONE]"))


class Cheap(asyncio.Protocol):
    """The model server. It does what the last order says: writes a text or a call, comes to no end, or fails."""

    def __init__(self) -> None:
        self._data = bytearray()
        self._wanted = 0  # so many bytes, once the head of a request has said it

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._data += data
        while len(self._data) >= self._wanted and (end := self._data.find(b"\r\n\r\n")) >= 0:
            head = self._data[:end].lower()
            self._wanted = end + 4 + int(head.partition(b"content-length:")[2].partition(b"\r\n")[0] or 0)
            if len(self._data) < self._wanted:
                return
            body = self._data[end + 4 : self._wanted]
            del self._data[: self._wanted]
            self._wanted = 0
            self._transport.write(_MODELS if head.startswith(b"get") else _written(body))


def _written(prompt: bytearray) -> bytes:
    """What the model writes behind a prompt."""
    word, number, times = _ORDER.findall(prompt, max(0, len(prompt) - _NEAR_THE_END))[-1]
    if word == b"Fail":
        return b"HTTP/1.1 503 No\r\ncontent-length: 0\r\n\r\n"
    text = f"This is what {number.decode()} says. " * int(times or b"1")
    pieces = [f"Hello {number.decode()}, ", text]
    if word == b"Call":
        pieces = [_CALL.replace("CITY", text)]
    begun = STREAM + b"".join([chunk(event(piece(one))) for one in pieces])
    return begun if word == b"Hang" else begun + _DONE + END


# A client.


class Line:
    """A connection to the gateway, made anew where it was left. `asked`: how many requests went over it."""

    def __init__(self, url: str) -> None:
        self.asked = 0
        self._url = url
        self._reader: asyncio.StreamReader | None = None

    async def _open(self) -> asyncio.StreamReader:
        if self._reader is None:
            self._connection = connected(self._url)
            self._reader, self._writer = await self._connection.__aenter__()
        return self._reader

    async def leave(self) -> None:
        """Break it off."""
        if self._reader is not None:
            self._reader = None
            await self._connection.__aexit__(None, None, None)

    async def begin(self, data: bytes) -> asyncio.StreamReader:
        """Send a request and do not wait."""
        reader = await self._open()
        self.asked += 1
        self._writer.write(data)
        return reader

    async def ask(self, data: bytes, *statuses: int) -> bytes:
        """Send a request: the body of its answer. `statuses`: which it may have, 200 if none is given."""
        reader = await self.begin(data)
        head = (await reader.readuntil(b"\r\n\r\n")).lower()
        if int(head[9:12]) not in (statuses or (200,)):
            raise AssertionError((data[:1000], head, await reader.read(1000)))
        if b"transfer-encoding: chunked" not in head:
            return await reader.readexactly(int(head.partition(b"content-length: ")[2].partition(b"\r\n")[0]))
        told = b""
        while size := int(await reader.readline(), 16):
            told += await reader.readexactly(size + 2)
        await reader.readline()
        return told


def _get(path: str, method: str = "GET") -> bytes:
    return f"{method} {path} HTTP/1.1\r\nhost: gateway\r\n\r\n".encode()


class Client:
    """One of the crowd."""

    def __init__(self, line: Line, number: int) -> None:
        self.line = line
        self.api: Api = APIS[number % len(APIS)]
        self.number = number
        self.request = Request()
        self.request.settings.model, self.request.settings.max_tokens = f"m{number % 7}", 10_000

    async def come(self) -> None:
        """Do all that a client of this number does."""
        talk, call, leave = self.talk, self.call, self.leave
        kinds = (talk, call, leave, self.refused, self.kept, call, talk, self.apart)
        kind = kinds[self.number // len(APIS) % len(kinds)]
        bare = self.api.serving.bare and kind in (call, talk)
        await (self.complete() if bare else kind())

    def body(self, *, stream: bool, **members: object) -> bytes:
        """The conversation so far as a request."""
        self.request.settings.stream = stream
        body: Any = self.api.render_request(self.request).value
        return msgspec.json.encode(body | members)

    def post(self, body: bytes) -> bytes:
        """A request with a body, some of them with the name of a session."""
        return post(self.api, body, **({"x_session_id": f"session-{self.number}"} if self.number % 3 else {}))

    def say(self, order: str) -> None:
        """The user's next words; most are short."""
        times = self.number % 16 if self.number % 64 else 400
        self.add(User(content=[Text(text=f"{order} {self.number} x{times}")]))

    def add(self, *items: Item) -> None:
        """More of the conversation."""
        self.request.conversation.items += items

    async def turn(self, *, stream: bool, **members: object) -> Response:
        """Ask for the next turn."""
        told = await self.line.ask(self.post(self.body(stream=stream, **members)))
        if stream:
            parser = self.api.stream_parser()
            response = ts.fold([*parser.feed(told), *parser.close()])
        else:
            response = self.api.parse_response(told)
        assert response.items
        self.add(*response.items)
        return response

    async def complete(self) -> None:
        for stream in (True, False):
            body = body_of(self.api, stream=stream, text=f"Say {self.number} {stream}")
            assert f"what {self.number} says".encode() in await self.line.ask(self.post(body))

    async def talk(self) -> None:
        """Several turns, whole and streamed."""
        for turn in range(3):
            self.say("Say")
            await self.turn(stream=(self.number + turn) % 2 == 0, **self.unkept)

    async def call(self) -> None:
        """A tool that nobody else has is called, and its result told."""
        schema = b'{"type":"object","properties":{"city":{"type":"string","description":"%d"}}}' % self.number
        about = f"The weather as {self.number} has it. "
        self.request.conversation.tools.append(
            Tool(name=WEATHER.name, description=about * (self.number % 50), parameters=msgspec.Raw(schema))
        )
        self.say("Call")
        for turn in range(2):
            (call,) = (await self.turn(stream=(self.number + turn) % 2 == 0, **self.unkept)).items
            assert isinstance(call, ToolCall)
            self.add(ToolResult(id=call.id, name=call.name, content=[Text(text=f"{turn} Say {self.number} done")]))
            if turn:
                continue
            self.say("Call")
        self.say("Say")
        await self.turn(stream=True, **self.unkept)

    async def leave(self) -> None:
        """A client that goes in the middle: of a stream, before a whole answer, in its own request."""
        self.say("Hang")
        reader = await self.line.begin(self.post(self.body(stream=True)))
        await reader.readuntil(b"Hello")
        await self.line.leave()
        self.say("Hang")
        await self.line.begin(self.post(self.body(stream=False)))
        await asyncio.sleep(0.01)
        await self.line.leave()
        await self.line.begin(self.post(self.body(stream=False))[:-7])
        await asyncio.sleep(0)
        await self.line.leave()

    async def refused(self) -> None:
        """Nothing that this one wants is there."""
        await self.line.ask(self.post(b'{"model": %d' % self.number), 400)
        await self.line.ask(_get(f"/v1/nothing/{self.number}"), 404)
        await self.line.ask(_get(f"/turnscript/reports/req_{self.number}"), 404)
        if self.api.serving.count_path:
            self.say("Say")
            counted = self.post(self.body(stream=False))
            await self.line.ask(counted.replace(self.api.endpoint.encode(), self.api.serving.count_path.encode(), 1))

    @property
    def unkept(self) -> dict[str, object]:
        """What to say where nothing is to be kept."""
        return {"store": False} if self.api.serving.stored is not None else {}

    def id_in(self, told: bytes) -> str:
        """The id of an answer."""
        found = re.search(rb'"id":"(%b\w+)"' % self.api.serving.id_prefix.encode(), told)
        assert found is not None, told
        return found[1].decode()

    async def kept(self) -> None:
        """Answers that are kept, gone on from, asked for again, and in part forgotten."""
        if self.api.serving.stored is None:
            await self.talk()
            return
        ids: list[str] = []
        for stream in (False, True, False):
            self.say("Say")
            body = self.body(stream=stream, **({"previous_response_id": ids[-1]} if ids else {}))
            told = await self.line.ask(self.post(body))
            ids.append(self.id_in(told))
            self.request.conversation.items.clear()
        for path in (ids[0], f"{ids[1]}/input_items"):
            assert f"{self.number}".encode() in await self.line.ask(_get(f"{self.api.endpoint}/{path}"))
        if self.number % 3:
            await self.line.ask(_get(f"{self.api.endpoint}/{ids[1]}", "DELETE"))
            await self.line.ask(_get(f"{self.api.endpoint}/{ids[1]}"), 404)

    async def apart(self) -> None:
        """An answer that is made though its client goes, and one that is broken off."""
        if self.api.serving.stored is None:
            await self.leave()
            return
        for order in ("Say", "Hang"):
            self.request.conversation.items.clear()
            self.say(order)
            body = self.body(stream=order == "Say", background=True)
            reader = await self.line.begin(self.post(body))
            told = await reader.readuntil(b'"queued"' if order == "Hang" else b"Hello")
            id_ = self.id_in(told)
            await self.line.leave()
            if order == "Hang":
                assert b'"cancelled"' in await self.line.ask(_get(f"{self.api.endpoint}/{id_}/cancel", "POST"))
            else:
                await self.line.ask(_get(f"{self.api.endpoint}/{id_}?stream=true"))


async def crowd(url: str, numbers: Iterator[int]) -> int:
    """Let the clients of these numbers come, many at a time. Returns how many requests they made."""
    lines = [Line(url) for _ in range(CONNECTIONS)]

    async def come(line: Line) -> None:
        try:
            for number in numbers:
                await Client(line, number).come()
        finally:
            await line.leave()

    await asyncio.gather(*map(come, lines))
    return sum(line.asked for line in lines)
