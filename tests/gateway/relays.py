"""Owns model servers with a chat API for tests: each kind answers what it is told to, in its own words."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

import httpx2
import msgspec
from msgspec.structs import replace

from tests.gateway.running import Running
from tests.gateway.scripted import END, STREAM, Asked, Script, Scripted, chunk, said
from tests.gateway.stage import NO_TLS, Threaded, Told
from turnscript.apis.api import Api, Reply
from turnscript.backends.chats import Chat
from turnscript.convert.registry import api_at, chat_backends, get_backend
from turnscript.core.conversation import Assistant, Item, Request, Response, Text, Thinking, ToolCall, Usage
from turnscript.core.events import unfold
from turnscript.gateway.config import Config, Policy, Signing
from turnscript.gateway.kinds import Secret

KINDS: list[Chat] = [backend for name in chat_backends() if isinstance(backend := get_backend(name), Chat)]
USAGE = Usage(input=21, output=9, cached=5)
Play = Script | Callable[[Asked], Script]


def of_kind(kind: Chat) -> str:
    """The name of a case."""
    return kind.name


def proved(kind: Chat, text: str = "Let me see.") -> Thinking:
    """A thought as a server of a kind tells it: with what proves it, where it has such a thing."""
    thought = Thinking(content=[Text(text=text)])
    if kind.name == "messages":
        thought.signature = "signed-by-upstream"
    if kind.name == "responses":
        thought.encrypted, thought.id = "encrypted-by-upstream", "rs_upstream"
    return thought


def said_text(text: str) -> Assistant:
    """What a model says."""
    return Assistant(content=[Text(text=text)])


def call(number: int, city: str) -> ToolCall:
    """A call of the weather's tool."""
    return ToolCall(name="get_weather", arguments=json.dumps({"city": city}), id=f"call_up_{number}")


def script(kind: Chat, *items: Item, finish: str = "stop", usage: Usage | None = USAGE) -> Callable[[Asked], Script]:
    """What a server of a kind answers, whole or as a stream as it is asked."""

    def play(asked: Asked) -> Script:
        api = api_at(kind.endpoint)
        request = api.parse_request(asked.body)
        response = Response(items=list(items), finish_reason=finish, usage=usage, origin=api.origin)
        if not streams(asked, request):
            return said(api.render_response(response, request, reply=Reply(id="up_1")).data)
        return [STREAM, *(chunk(event) for event in stream_events(api, request, response)), END]

    return play


def streams(asked: Asked, request: Request) -> bool:
    """Whether a stream is asked for: one kind says it in the path."""
    return bool(request.settings.stream) or "streamGenerateContent" in asked.line


def path_of(kind: Chat, *, stream: bool, model: str = "upstream-model") -> str:
    """Where a server of a kind is asked for an answer of a model."""
    method = "streamGenerateContent?alt=sse" if stream else "generateContent"
    return f"/models/{model}:{method}" if kind.name == "gemini" else kind.path


def stream_events(api: Api, request: Request, response: Response) -> list[bytes]:
    """A response as the events of a stream."""
    renderer = api.stream_renderer(request, Reply(id="up_1"))
    told = renderer.send(unfold(response)) + renderer.close()
    return [event + b"\n\n" for event in told.split(b"\n\n") if event]


def cut(kind: Chat, behind: bytes, *more: Any) -> Callable[[Asked], Script]:
    """What a server of a kind answers that streams until an event holds these bytes, and then does something else."""

    def play(asked: Asked) -> Script:
        api = api_at(kind.endpoint)
        request = api.parse_request(asked.body)
        response = Response(items=[said_text("Hello"), call(1, "Paris")], finish_reason="tool_calls", usage=USAGE)
        events = stream_events(api, request, response)
        last = next(number for number, event in enumerate(events) if behind in event)
        return [STREAM, *map(chunk, events[: last + 1]), *more]

    return play


class Relay:
    """A gateway before one server of a kind. `play`: what that answers next; the last one again and again."""

    def __init__(self, kind: Chat, running: Running, server: Scripted, thread: Threaded, plays: list[Play]) -> None:
        self.kind, self.gateway, self.server, self.thread = kind, running, server, thread
        self.url = running.url
        self.client = httpx2.Client(base_url=self.url, timeout=20, verify=NO_TLS)
        self._plays = plays

    def play(self, *plays: Play) -> None:
        """What the server plays from now on."""
        self._plays[:] = plays
        self.server.asked.clear()

    @property
    def asked(self) -> list[Asked]:
        """The requests that were no questions of the gateway's own."""
        return [one for one in self.server.asked if one.line.startswith("POST")]

    def ask(self, api: Api, request: Request, *, stream: bool, headers: dict[str, str] | None = None) -> Told:
        """Ask in the words of an API."""
        request.settings.stream = stream or None
        request.settings.model = request.settings.model or "m"
        return self.post(api, msgspec.json.encode(api.render_request(request).value), headers)

    def post(self, api: Api, body: bytes, headers: dict[str, Any] | None = None) -> Told:
        """Send a body to an API."""
        response = self.client.post(api.endpoint, content=body, headers=headers)
        return Told(api, response.status_code, dict(response.headers), response.content)

    def losses(self, told: Told) -> list[str]:
        """The paths of what the report of an answer says was lost."""
        report = self.client.get(told.headers["x-turnscript-report"]).json()
        return [loss["path"] for loss in report["losses"]]


@contextmanager
def relaying(
    kind: Chat,
    models: Sequence[str] = ("upstream-model",),
    *,
    signing: Signing | None = None,
    policy: Policy | None = None,
    more: Sequence[str] = (),
    **settings: Any,
) -> Iterator[Relay]:
    """A gateway before a server of a kind. `more`: URLs of others. `settings`: those of the model."""
    plays: list[Play] = [script(kind, said_text("Hello"))]

    def choose(asked: Asked) -> Script:
        if asked.line.startswith("GET"):
            return said({"data": [{"id": name} for name in models]})
        play = plays.pop(0) if len(plays) > 1 else plays[0]
        return play(asked) if callable(play) else play

    with ExitStack() as stack:
        thread = stack.enter_context(Threaded())
        server = stack.enter_context(thread.server(choose))
        for name in {"api_key", "headers"} & settings.keys():
            said_so = settings[name]
            settings[name] = Secret(said_so) if isinstance(said_so, str) else {k: Secret(v) for k, v in said_so.items()}
        config = Config.for_backend(f"{server.url}/v1", None, kind=kind.name, **settings)
        others = [Config.for_backend(url, None, kind=kind.name).models[0].backend[0] for url in more]
        model = replace(config.models[0], backend=(*config.models[0].backend, *others))
        config = replace(
            config,
            models=(model,),
            signing=signing or Signing(key=Secret("a key of the tests")),
            policy=policy or Policy(),
        )
        relay = Relay(kind, stack.enter_context(Running(config)), server, thread, plays)
        stack.callback(relay.client.close)
        yield relay
