"""Owns clients of the three chat APIs as tests play them: official SDKs that get an answer and send it back."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any

import anthropic
import openai

import turnscript as ts
from tests.loopback import SSE, Loopback
from turnscript.apis.api import Api
from turnscript.core.events import Event

USER = [{"role": "user", "content": "Hi"}]
MODEL = "client-model"
TOKENS = 4096


class Client(ABC):
    """A client of one API. `members`: what its requests say beside the conversation."""

    def __init__(self, server: Loopback, name: str, members: dict[str, Any]) -> None:
        self.server = server
        self.api: Api = ts.get_api(name)
        self.members = members
        self.asked = self.api.parse_request(json.loads(json.dumps(self.body())))

    def body(self) -> dict[str, Any]:
        """The request, as it is first sent."""
        return {"model": MODEL, "messages": USER, **self.members}

    def next_request(self, response: ts.Response) -> ts.Request:
        """What the client asks next, once it got this answer whole."""
        self.server.answer(self.api.render_response(response, self.asked).data)
        self.ask_again(self.whole())
        return self._read()

    def next_request_streamed(self, told: Sequence[Event]) -> ts.Request:
        """What the client asks next, once it got this answer as a stream."""
        renderer = self.api.stream_renderer(self.asked)
        self.server.answer(renderer.send(told) + renderer.close(), SSE)
        said = self.streamed()
        self.server.answer(self.api.render_response(ts.Response(finish_reason="stop"), self.asked).data)
        self.ask_again(said)
        return self._read()

    def _read(self) -> ts.Request:
        return self.api.parse_request(self.server.asked[-1].body)

    @abstractmethod
    def whole(self) -> Any:
        """Ask; gives what the SDK makes of the answer and lets one send back."""

    @abstractmethod
    def streamed(self) -> Any:
        """The same of a stream."""

    @abstractmethod
    def ask_again(self, said: Any) -> None:
        """Ask with that answer in the conversation."""


class ChatClient(Client):
    """It sends back the message, with the members that the SDK has no name for."""

    def __init__(self, server: Loopback, sdk: openai.OpenAI, **members: Any) -> None:
        self.create: Callable[..., Any] = sdk.chat.completions.create
        self.stream: Callable[..., Any] = sdk.chat.completions.stream
        super().__init__(server, "openai-chat", members)

    def whole(self) -> Any:
        return self.create(**self.body()).choices[0].message

    def streamed(self) -> Any:
        with self.stream(**self.body()) as stream:
            return stream.get_final_completion().choices[0].message

    def ask_again(self, said: Any) -> None:
        self.create(**self.body() | {"messages": [*USER, said, *USER]})


class ResponsesClient(Client):
    """It sends back the items of the output; `only`: of a thought no other members than these, as some agents do."""

    def __init__(
        self, server: Loopback, sdk: openai.OpenAI, only: frozenset[str] | None = None, **members: Any
    ) -> None:
        self.create: Callable[..., Any] = sdk.responses.create
        self.stream: Callable[..., Any] = sdk.responses.stream
        self.only = only
        super().__init__(server, "openai-responses", members)

    def body(self) -> dict[str, Any]:
        return {"model": MODEL, "input": USER, **self.members}

    def whole(self) -> Any:
        return self.create(**self.body()).output

    def streamed(self) -> Any:
        with self.stream(**self.body()) as stream:
            return stream.get_final_response().output

    def ask_again(self, said: Any) -> None:
        self.create(**self.body() | {"input": [*USER, *map(self._kept, said), *USER]})

    def _kept(self, item: Any) -> Any:
        if self.only is None or item.type != "reasoning":
            return item
        return {key: value for key, value in item.to_dict().items() if key in self.only}


class MessagesClient(Client):
    """It sends back the blocks."""

    def __init__(self, server: Loopback, sdk: anthropic.Anthropic, **members: Any) -> None:
        self.create: Callable[..., Any] = sdk.messages.create
        self.stream: Callable[..., Any] = sdk.messages.stream
        super().__init__(server, "anthropic-messages", members)

    def body(self) -> dict[str, Any]:
        return {"max_tokens": TOKENS, **super().body()}

    def whole(self) -> Any:
        return self.create(**self.body()).content

    def streamed(self) -> Any:
        with self.stream(**self.body()) as stream:
            return stream.get_final_message().content

    def ask_again(self, said: Any) -> None:
        turn = {"role": "assistant", "content": said}
        self.create(**self.body() | {"messages": [*USER, turn, *USER]})


def thinks(display: str) -> dict[str, Any]:
    """The member of a Messages request that asks for thoughts, shown in a way."""
    return {"thinking": {"type": "enabled", "budget_tokens": 1024, "display": display}}
