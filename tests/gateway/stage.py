"""Owns a gateway that really runs before a model server that plays what a test tells it, and the clients of its APIs.

    with Stage() as stage:
        stage.play(answer("Hello"))
        told = stage.ask(api, stream=True)
        assert "Hello" == told.text

Gateway and model server have an event loop each, in threads of their own; a test may block as a client may. Every
registered API is asked in its own words, and its answers are read with its own readers.
"""

from __future__ import annotations

import asyncio
import json
import logging
import socket
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Sequence
from contextlib import ExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Self, TypeVar

import httpx2
import msgspec
import pytest
from msgspec.structs import replace

import turnscript as ts
from tests.gateway.running import Running
from tests.gateway.scripted import END, Asked, Script, Scripted, said, sse
from tests.sdks import NO_TLS as NO_TLS
from turnscript.apis.api import Api
from turnscript.convert.registry import apis, get_api
from turnscript.core.conversation import Assistant, Request, Text, Tool, ToolCall, User, text_content
from turnscript.core.error_kinds import fault_of
from turnscript.core.errors import TurnscriptError
from turnscript.core.events import Event, MessageEnd, PartEnd
from turnscript.gateway.config import Config, Model
from turnscript.gateway.connection import Connection

T = TypeVar("T")

FORMAT = "rwkv-universal"
APIS = [get_api(name) for name in apis()]
CHATS = [api for api in APIS if not api.serving.bare]
SESSION = {"x-session-id": "one"}
WEATHER = Tool(
    name="get_weather",
    description="The weather of a city.",
    parameters=msgspec.Raw(b'{"type":"object","properties":{"city":{"type":"string"}},"required":["city"]}'),
)


def named(api: Api) -> str:
    """The name of a case."""
    return api.name


def piece(text: str = "", finish: str | None = None, **more: Any) -> dict[str, Any]:
    """One event of a text-completion stream."""
    return {"choices": [{"text": text, "index": 0, "finish_reason": finish}], **more}


def answer(*texts: str, finish: str = "stop", pause: float = 0) -> Script:
    """A whole answer, streamed."""
    used: Any = {"usage": {"prompt_tokens": 12, "completion_tokens": len(texts)}}
    return sse(*map(piece, texts), piece("", finish, **used), "[DONE]", pause=pause, end=(END,))


def text_of_call(city: str = "Paris") -> str:
    """What a model of the stage's format writes to call the tool WEATHER."""
    request = Request()
    request.conversation.tools.append(WEATHER)
    request.conversation.items += [
        User(content=[Text(text="?")]),
        ToolCall(name="get_weather", arguments=json.dumps({"city": city})),
    ]
    whole = ts.get_format(FORMAT).prompt(request).text
    del request.conversation.items[1:]
    start = ts.get_format(FORMAT).prompt(request).text
    hint = start.splitlines(keepends=True)[-1]
    return whole.removeprefix(start.removesuffix(hint)).removesuffix(hint)


def body_of(
    api: Api, *, stream: bool, text: str = "Hello", tools: Sequence[Tool] = (), limit: int = 64, **members: Any
) -> bytes:
    """A request of an API."""
    request = Request()
    request.conversation.items.append(User(content=[Text(text=text)]))
    request.conversation.tools += tools
    request.settings.model, request.settings.max_tokens, request.settings.stream = "m", limit, stream
    body: Any = api.render_request(request).value
    return msgspec.json.encode(body | members)


@dataclass
class Told:
    """What a client was told: the status and headers, the bytes, and how its API's reader understands them."""

    api: Api
    status: int
    headers: dict[str, str]
    body: bytes
    streamed: bool = field(init=False)
    items: list[Any] = field(default_factory=list)
    end: MessageEnd | None = None
    error: TurnscriptError | None = None

    def __post_init__(self) -> None:
        self.streamed = self.headers.get("content-type", "").startswith("text/event-stream")
        try:
            if self.streamed:
                parser = self.api.stream_parser()
                self._take(parser.feed(self.body))
                self._take(parser.close())
            else:
                response = self.api.parse_response(self.body)
                self.items = response.items
                self.end = MessageEnd(response.finish_reason)
                self.usage = response.usage
        except TurnscriptError as error:
            self.error = error

    def _take(self, events: list[Event]) -> None:
        self.items += [event.part for event in events if isinstance(event, PartEnd)]
        for event in events:
            if isinstance(event, MessageEnd):
                self.end, self.usage = event, event.usage

    @property
    def text(self) -> str:
        """What the model said."""
        return "".join([text_content(item.content) for item in self.items if isinstance(item, Assistant)])

    @property
    def calls(self) -> list[ToolCall]:
        """What it called."""
        return [item for item in self.items if isinstance(item, ToolCall)]

    @property
    def json(self) -> Any:
        """The body as data."""
        return json.loads(self.body)


def is_refused(told: Told, error: TurnscriptError) -> None:
    """The client is told of an error with the status and in the shape that its API has for it."""
    status, _ = told.api.render_error(error)
    assert status == told.status, told.body
    assert told.error is not None
    assert not told.streamed
    assert told.headers[told.api.request_id].startswith("req_")
    if fault_of(error).retry:
        assert 1 <= int(told.headers["retry-after"]) <= 60
        assert 0 < int(told.headers["retry-after-ms"]) <= 60_000


async def _settled() -> None:
    """End what a loop has still to do. A connection that was accepted when it stopped would be found open later."""
    for _ in range(3):
        await asyncio.sleep(0)
    left = asyncio.all_tasks() - {asyncio.current_task()}
    for task in left:
        task.cancel()
    await asyncio.gather(*left, return_exceptions=True)
    for _ in range(3):
        await asyncio.sleep(0)


class Threaded:
    """Scripted servers in a thread of their own."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="models", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.run_until_complete(_settled())
        self._loop.close()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run something in the thread."""
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(timeout=30)

    @contextmanager
    def server(self, scripts: Callable[[Asked], Script]) -> Iterator[Scripted]:
        """A server."""
        server = Scripted(scripts)
        self.run(server.__aenter__())
        try:
            yield server
        finally:
            self.run(server.__aexit__(None, None, None))


class Stage:
    """The gateway, and its model servers: as many as `servers`. `model`: settings of the model; the rest are sections:
    `Stage(servers=2, server={"grace": 1.0}, limits={...})`."""

    def __init__(
        self, servers: int = 1, model: dict[str, Any] | None = None, format_: str = FORMAT, **sections: dict[str, Any]
    ) -> None:
        self._servers = servers
        self._model = {"kind": "completions"} | (model or {})
        self._format = format_
        self._sections = sections
        self._scripts: list[list[Script]] = [[answer("Hello")] for _ in range(servers)]
        self._chosen: dict[int, Callable[[Asked], Script]] = {}
        self.asks: list[list[Asked]] = [[] for _ in range(servers)]
        self.models: list[Scripted] = []

    def play(self, *scripts: Script, server: int = 0) -> None:
        """What a server plays for the next completions; the last one again and again."""
        self._scripts[server] = list(scripts)
        self._chosen.pop(server, None)
        self.asks[server].clear()

    def play_by(self, choose: Callable[[Asked], Script], server: int = 0) -> None:
        """What a server plays for the next completions, by what it is asked."""
        self._chosen[server] = choose
        self.asks[server].clear()

    def _script(self, number: int) -> Callable[[Asked], Script]:
        def choose(asked: Asked) -> Script:
            if asked.line.startswith("GET"):
                return said({"data": [{"id": "model"}]})
            self.asks[number].append(asked)
            if number in self._chosen:
                return self._chosen[number](asked)
            scripts = self._scripts[number]
            return scripts.pop(0) if len(scripts) > 1 else scripts[0]

        return choose

    def __enter__(self) -> Self:
        self._stack = ExitStack()
        self.thread = self._stack.enter_context(Threaded())
        self.models = [self._stack.enter_context(self.thread.server(self._script(at))) for at in range(self._servers)]
        self.config = self.configured([f"{server.url}/v1" for server in self.models])
        self.gateway = self._stack.enter_context(Running(self.config))
        self.url = self.gateway.url
        self.client = self._stack.enter_context(httpx2.Client(base_url=self.url, timeout=20, verify=NO_TLS))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()

    def connection(self, writer: asyncio.StreamWriter) -> Connection | None:
        """The gateway's side of a client's connection, as long as it is there."""
        assert self.gateway.server is not None
        port = writer.get_extra_info("sockname")[1]
        there = list(self.gateway.server.connections)  # at once: it changes in another thread
        return next((one for one in there if one.transport.get_extra_info("peername")[1] == port), None)

    def hurry(self, writer: asyncio.StreamWriter, **times: float) -> None:
        """Give a connection other times than its server has. It is there, so that no slow start is cut."""
        one: Any = self.connection(writer)
        one.settings = replace(one.settings, **times)

    def configured(self, urls: Sequence[str]) -> Config:
        """The configuration with these model servers."""
        base = Config.for_backend(urls[0], self._format, **self._model)
        more = [Config.for_backend(url, self._format, **self._model).models[0].backend[0] for url in urls[1:]]
        model: Model = replace(base.models[0], backend=(*base.models[0].backend, *more))
        changed = {name: replace(getattr(base, name), **values) for name, values in self._sections.items()}
        return replace(base, models=(model,), **changed)

    def ask(self, api: Api, *, stream: bool, headers: dict[str, str] | None = None, **more: Any) -> Told:
        """Ask in the words of an API, and wait for the whole answer."""
        body = body_of(api, stream=stream, **more)
        return self.post(api, body, headers)

    def post(self, api: Api, body: bytes, headers: dict[str, str] | None = None) -> Told:
        """Send a body to an API."""
        response = self.client.post(api.endpoint, content=body, headers=headers)
        return Told(api, response.status_code, dict(response.headers), response.content)

    def until(self, holds: Callable[[], object], seconds: float = 20.0) -> None:
        """Wait until something is so."""
        event = threading.Event()
        for _ in range(int(seconds / 0.005)):
            if holds():
                return
            event.wait(0.005)
        raise AssertionError(f"not so after {seconds:g} s")

    def idle(self) -> bool:
        """Whether the gateway does nothing."""
        service = self.gateway.service
        return (
            not service.visits
            and not service.room.taken
            and all(served.gate.idle and not served.pool.running for served in service.models())
        )


@contextmanager
def quiet(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """Nothing inside may be an error to a log: no task that was forgotten, no answer without an end."""
    yield
    told = [record.getMessage() for record in caplog.records if record.levelno >= logging.ERROR]
    assert [] == told


@asynccontextmanager
async def connected(url: str, room: int = 0) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    """A bare connection to a server. `room`: about how many bytes it takes in before they are read."""
    parts = httpx2.URL(url)
    made = socket.socket()
    made.setblocking(False)
    if room:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, room)
    await asyncio.get_running_loop().sock_connect(made, (parts.host, parts.port))
    reader, writer = await asyncio.open_connection(sock=made, limit=room or 2**26)
    try:
        yield reader, writer
    finally:
        writer.transport.abort()


def post(api: Api, body: bytes, **headers: str) -> bytes:
    """The bytes of a request."""
    named = {"host": "gateway", "content-type": "application/json", "content-length": str(len(body))}
    named |= {name.replace("_", "-"): value for name, value in headers.items()}
    lines = [f"{name}: {value}" for name, value in named.items()]
    return f"POST {api.endpoint} HTTP/1.1\r\n".encode() + "\r\n".join(lines).encode() + b"\r\n\r\n" + body
