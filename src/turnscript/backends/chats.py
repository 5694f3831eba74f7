"""Owns servers that speak a chat API themselves: where each kind is asked, what carries its key, how it is read.

| kind | API | path | key |
| --- | --- | --- | --- |
| `chat` | OpenAI Chat Completions | `/chat/completions` | `Authorization: Bearer` |
| `responses` | OpenAI Responses | `/responses` | `Authorization: Bearer` |
| `messages` | Anthropic Messages | `/messages` | `x-api-key`, beside `anthropic-version` |
| `gemini` | Gemini | `/models/{model}:generateContent`, or `:streamGenerateContent?alt=sse` | `x-goog-api-key` |

Such a server is sent the body of a request, which the gateway makes with the API's own writer, and its answer is read
with the API's own reader: a piece holds events. A server may stream though it was not asked to, and the other way
round: the first character tells. Errors have the shapes that `refused` reads for all kinds.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, ClassVar
from urllib.parse import quote

import msgspec

from turnscript.apis.api import Api
from turnscript.apis.streams import StreamParser
from turnscript.backends.backend import (
    UNREADABLE,
    AnswerReader,
    Backend,
    Completion,
    EventPiece,
    Facts,
    HttpCall,
    Piece,
    encode,
)
from turnscript.backends.shared.server_errors import SHOWN
from turnscript.core.errors import InvalidRequest, UpstreamError
from turnscript.core.events import Event, MessageEnd, unfold
from turnscript.core.json_text import plain, read_object
from turnscript.core.sse import LIMIT


class Chat(Backend):
    """A server with OpenAI's Chat Completions, as most have it. `streaming` and `always`: members that a request has
    beside its own, when it streams and in any case."""

    name = "chat"
    title = "OpenAI Chat Completions"
    default_path = "/v1"
    endpoint = "/v1/chat/completions"
    settings: ClassVar[tuple[str, ...]] = ("temperature", "top_p", "seed", "presence_penalty", "frequency_penalty")
    streaming: ClassVar[Mapping[str, Any]] = MappingProxyType({"stream_options": {"include_usage": True}})
    always: ClassVar[Mapping[str, Any]] = MappingProxyType({})

    @property
    def path(self) -> str:
        """Return the path that requests go to, behind the server's base."""
        return self.endpoint.removeprefix(self.default_path)

    def body(self, members: dict[str, Any], *, stream: bool) -> str:
        """The body."""
        for name, value in self.always.items():
            members[name] = _joined(members.get(name), value)
        if stream:
            members |= {"stream": True, **self.streaming}
        return (self.post(self.path, members).body or b"").decode()

    def call(self, ask: Completion) -> HttpCall:
        """The request, whose body is made already."""
        assert isinstance(ask.prompt, str)
        return HttpCall("POST", self.path, ask.prompt.encode(), ask.headers)

    def why_call(self, ask: Completion) -> HttpCall | None:
        """None: a request is made for one kind of answer."""
        return None

    def reader(self, ask: Completion) -> AnswerReader:
        """A reader of its API's answers."""
        return ChatReader(ask.api)


class Responses(Chat):
    """A server with OpenAI's Responses. It keeps nothing, so its thoughts come with what proves them."""

    name = "responses"
    title = "OpenAI Responses"
    endpoint = "/v1/responses"
    settings = ("temperature", "top_p")
    streaming = MappingProxyType({})
    always = MappingProxyType({"store": False, "include": ["reasoning.encrypted_content"]})
    signs = True


class Messages(Chat):
    """A server with Anthropic's Messages, which counts tokens too."""

    name = "messages"
    title = "Anthropic Messages"
    endpoint = "/v1/messages"
    key_header = "x-api-key"
    headers = MappingProxyType({"anthropic-version": "2023-06-01"})
    passes = ("anthropic-version", "anthropic-beta")
    settings = ("temperature", "top_p", "top_k")
    streaming = MappingProxyType({})
    signs = True

    def count_call(self, body: str) -> HttpCall:
        """The request with what counts of a body."""
        counted = {key: value for key, value in read_object(body).items() if key in _COUNTED}
        return HttpCall("POST", f"{self.path}/count_tokens", encode(counted))

    def read_count(self, body: bytes) -> int | None:
        """The number."""
        try:
            return _read_count(body).input_tokens
        except (msgspec.DecodeError, UnicodeDecodeError):
            return None


class Gemini(Chat):
    """A server with Gemini's API: the path says the model and whether to stream. It counts tokens, and tells thoughts
    to who asks for them beside thinking."""

    name = "gemini"
    title = "Gemini"
    default_path = "/v1beta"
    endpoint = "/v1beta/models/{model}:generateContent"
    key_header = "x-goog-api-key"
    settings = ("temperature", "top_p", "top_k", "seed", "presence_penalty", "frequency_penalty")
    streaming = MappingProxyType({})

    def body(self, members: dict[str, Any], *, stream: bool) -> str:
        """The body, with the model in it until it is sent."""
        config = members.get("generationConfig")
        said = dict(read_object(encode(config))) if isinstance(config, dict) else {}
        thinking = dict(read_object(said["thinkingConfig"])) if "thinkingConfig" in said else {}
        if thinking and plain(thinking.get("thinkingBudget", _DYNAMIC)) != 0:
            said["thinkingConfig"] = msgspec.Raw(encode({"includeThoughts": True, **thinking}))
            members["generationConfig"] = said
        return super().body(members, stream=stream)

    def call(self, ask: Completion) -> HttpCall:
        """The request, at the path of its model."""
        assert isinstance(ask.prompt, str)
        path, members = self._of_model(ask.prompt)
        method = "streamGenerateContent?alt=sse" if ask.stream else "generateContent"
        return HttpCall("POST", f"{path}:{method}", encode(members), ask.headers)

    def count_call(self, body: str) -> HttpCall:
        """The request, in one that counts."""
        path, members = self._of_model(body)
        kept = {name: value for name, value in members.items() if name in _COUNTED_CONTENTS}
        asked = {"model": path.removeprefix("/"), **kept}
        return HttpCall("POST", f"{path}:countTokens", encode({"generateContentRequest": asked}))

    def read_count(self, body: bytes) -> int | None:
        """The number."""
        try:
            return _read_total(body).total_tokens
        except (msgspec.DecodeError, UnicodeDecodeError):
            return None

    def read_facts(self, bodies: Sequence[bytes]) -> Facts:
        """What the list of models says of the first of them. A proxy may have a list as others have it."""
        try:
            models = _read_models(bodies[0]).models
        except UNREADABLE:
            models = []
        if not models:
            return super().read_facts(bodies)
        name = models[0].name.removeprefix("models/")
        return Facts(context=models[0].input_token_limit, model=name, asked_as=name if len(models) == 1 else None)

    @staticmethod
    def _of_model(body: str) -> tuple[str, dict[str, Any]]:
        """The path of the model that a body names, and its members without that."""
        members: dict[str, Any] = dict(read_object(body))
        members.pop("stream", None)
        name = str(plain(members.pop("model", msgspec.Raw(b'""'))))
        return f"/models/{quote(name.removeprefix('models/'))}", members


_COUNTED_CONTENTS = frozenset({"contents", "systemInstruction", "tools", "toolConfig"})
_DYNAMIC = msgspec.Raw(b"-1")


class _Total(msgspec.Struct, rename="camel"):
    total_tokens: int


class _Listed(msgspec.Struct, rename="camel"):
    name: str
    input_token_limit: int | None = None


class _List(msgspec.Struct):
    models: list[_Listed]


_read_total = msgspec.json.Decoder(_Total).decode
_read_models = msgspec.json.Decoder(_List).decode
_COUNTED = frozenset({"model", "messages", "system", "tools", "tool_choice", "thinking", "output_config"})


class _Count(msgspec.Struct):
    input_tokens: int


_read_count = msgspec.json.Decoder(_Count).decode


def _joined(said: Any, value: Any) -> Any:
    """A member with what is always in it: of a list all, and what was said besides."""
    found = plain(said) if isinstance(said, msgspec.Raw) else said
    return [*found, *(one for one in value if one not in found)] if isinstance(found, list) else value


class ChatReader:
    """Reads an answer in a chat API, whole or streamed, as pieces that hold its events."""

    finished = over = False
    stray = ""

    def __init__(self, api: Api) -> None:
        self._api = api
        self._begun = b""
        self._whole: bytearray | None = None
        self._parser: StreamParser | None = None

    def feed(self, data: bytes) -> list[Piece]:
        """More bytes; returns what is certain now."""
        if self._whole is None and self._parser is None:
            data = (self._begun + data).removeprefix(b"\xef\xbb\xbf").lstrip(b" \t\r\n")
            self._begun = data if b"\xef\xbb\xbf".startswith(data) else b""
            if not data or self._begun:
                return []
            if data[:1] in b"{[" and not any(one.begins.match(data) for one in self._api.framings.values()):
                self._whole = bytearray()
            else:
                self._parser = self._api.stream_parser()
        if self._parser is not None:
            return self._told(self._parser.feed(data))
        assert self._whole is not None
        self._whole += data
        if len(self._whole) > LIMIT:
            raise UpstreamError(f"the server sent an answer of more than {LIMIT} bytes; it was given up")
        return []

    def close(self) -> list[Piece]:
        """The bytes are over. Raises UpstreamError unless the answer was whole."""
        if self._parser is not None:
            return self._told(self._parser.close())
        if self._whole is None:
            raise UpstreamError("the model server's answer broke off before its beginning", retryable=True)
        try:
            return self._told(unfold(self._api.parse_response(bytes(self._whole))))
        except InvalidRequest as error:
            said = bytes(self._whole[:SHOWN]).decode("utf-8", "replace")
            message = f"the model server sent what is no answer of {self._api.title}: {error}"
            raise UpstreamError(message, body=said, retryable=True) from None

    def _told(self, events: list[Event]) -> list[Piece]:
        if any(isinstance(event, MessageEnd) for event in events):
            self.finished = self.over = True
        return [EventPiece(events=events)] if events else []


BACKENDS = (Chat(), Responses(), Messages(), Gemini())
