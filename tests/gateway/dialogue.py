"""Owns dialogues as programs lead them with the official SDKs: each keeps its history in the objects of its SDK.

    with dialogue("openai-chat", url, ASYNC_STREAM, tools=[WEATHER]) as talk:
        talk.user("How is the weather?")
        answer = talk.ask()
        talk.results({one.id: run(one) for one in answer.calls})

There are four ways to ask: with the sync or the async client, whole or streamed.
"""

from __future__ import annotations

import asyncio
import json
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack, ExitStack
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, NamedTuple, Self

import anthropic
import openai

from tests.gateway.stage import NO_TLS
from turnscript.core.conversation import Tool
from turnscript.core.json_text import is_object


class Way(NamedTuple):
    """How a program asks."""

    asynchronous: bool
    stream: bool

    def __str__(self) -> str:
        return f"{'async' if self.asynchronous else 'sync'}-{'stream' if self.stream else 'whole'}"


WAYS = [Way(asynchronous, stream) for asynchronous in (False, True) for stream in (False, True)]
WHOLE, STREAM = WAYS[0], WAYS[1]


@dataclass
class Called:
    """A call as a program sees it."""

    id: str
    name: str
    arguments: dict[str, Any]


@dataclass
class Said:
    """An answer as a program sees it that runs no call of which the end says that it is not whole. `whole`: the object
    of the SDK."""

    text: str
    calls: list[Called]
    thoughts: str
    reason: str | None
    whole: Any = field(repr=False)
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)


class Dialogue(ABC):
    """What the three have in common."""

    sdk: Any
    client_class: tuple[type[Any], type[Any]]

    def __init__(self, url: str, way: Way, tools: Sequence[Tool] = (), **more: Any) -> None:
        self.url, self.way, self.more = url, way, more
        self.tools = [self.tool(one, json.loads(bytes(one.parameters or b"{}"))) for one in tools]
        self.history: list[Any] = []
        self.headers: dict[str, str] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        return None

    @abstractmethod
    def tool(self, tool: Tool, parameters: Any) -> Any:
        """A tool as the SDK takes it."""

    def user(self, text: str) -> None:
        """The user says something."""
        self.history.append({"role": "user", "content": text})

    @abstractmethod
    def results(self, told: Mapping[str, str]) -> None:
        """The tools have answered."""

    def ask(self, **more: Any) -> Said:
        """The model's answer, which joins the history."""
        asked = self.members() | self.more | more
        whole = asyncio.run(self._later(asked)) if self.way.asynchronous else self._now(asked)
        said = self.read(whole)
        said.headers = self.headers
        return said

    def _now(self, asked: dict[str, Any]) -> Any:
        with ExitStack() as stack:
            web = self.sdk.DefaultHttpxClient(verify=NO_TLS)
            client = stack.enter_context(self.client_class[0](http_client=web, **self.options()))
            if not self.way.stream:
                return self.create(client, asked)
            stream = stack.enter_context(self.open(client, asked))
            list(stream)
            return self.final(stream)

    async def _later(self, asked: dict[str, Any]) -> Any:
        async with AsyncExitStack() as stack:
            web = self.sdk.DefaultAsyncHttpxClient(verify=NO_TLS)
            client = await stack.enter_async_context(self.client_class[1](http_client=web, **self.options()))
            if not self.way.stream:
                return await self.create(client, asked)
            stream = await stack.enter_async_context(self.open(client, asked))
            async for _ in stream:
                pass
            return await self.final(stream)

    def options(self) -> dict[str, Any]:
        """The options of a client."""
        return {"api_key": "k", "max_retries": 0, "timeout": 20}

    @abstractmethod
    def members(self) -> dict[str, Any]:
        """What is asked."""

    @abstractmethod
    def create(self, client: Any, asked: dict[str, Any]) -> Any:
        """Ask for a whole answer."""

    @abstractmethod
    def open(self, client: Any, asked: dict[str, Any]) -> Any:
        """Ask for a stream."""

    @abstractmethod
    def final(self, stream: Any) -> Any:
        """What a stream adds up to."""

    @abstractmethod
    def read(self, whole: Any) -> Said:
        """An answer, which joins the history."""


class Chat(Dialogue):
    """openai, Chat Completions."""

    sdk = openai
    client_class = (openai.OpenAI, openai.AsyncOpenAI)

    def options(self) -> dict[str, Any]:
        return super().options() | {"base_url": f"{self.url}/v1"}

    def tool(self, tool: Tool, parameters: Any) -> Any:
        function = {"name": tool.name, "description": tool.description, "parameters": parameters}
        return {"type": "function", "function": function}

    def results(self, told: Mapping[str, str]) -> None:
        self.history += [{"role": "tool", "tool_call_id": id_, "content": text} for id_, text in told.items()]

    def members(self) -> dict[str, Any]:
        return {"model": "m", "messages": self.history} | ({"tools": self.tools} if self.tools else {})

    def create(self, client: Any, asked: dict[str, Any]) -> Any:
        return client.chat.completions.create(**asked)

    def open(self, client: Any, asked: dict[str, Any]) -> Any:
        return client.chat.completions.stream(**({"stream_options": {"include_usage": True}} | asked))

    def final(self, stream: Any) -> Any:
        return stream.get_final_completion()

    def read(self, whole: Any) -> Said:
        message = whole.choices[0].message
        self.history.append(message)
        cut = whole.choices[0].finish_reason == "length"
        calls = [
            Called(one.id, one.function.name, json.loads(one.function.arguments))
            for one in message.tool_calls or ()
            if not cut or is_object(one.function.arguments)
        ]
        thoughts = getattr(message, "reasoning_content", None) or ""
        return Said(message.content or "", calls, thoughts, whole.choices[0].finish_reason, whole)


class Responses(Dialogue):
    """openai, Responses."""

    sdk = openai
    client_class = (openai.OpenAI, openai.AsyncOpenAI)

    def options(self) -> dict[str, Any]:
        return super().options() | {"base_url": f"{self.url}/v1"}

    def tool(self, tool: Tool, parameters: Any) -> Any:
        described = {"description": tool.description, "parameters": parameters, "strict": False}
        return {"type": "function", "name": tool.name} | described

    def results(self, told: Mapping[str, str]) -> None:
        outputs = [{"type": "function_call_output", "call_id": id_, "output": text} for id_, text in told.items()]
        self.history += outputs

    def members(self) -> dict[str, Any]:
        return {"model": "m", "input": self.history} | ({"tools": self.tools} if self.tools else {})

    def create(self, client: Any, asked: dict[str, Any]) -> Any:
        return client.responses.create(**asked)

    def open(self, client: Any, asked: dict[str, Any]) -> Any:
        return client.responses.stream(**asked)

    def final(self, stream: Any) -> Any:
        return stream.get_final_response()

    def read(self, whole: Any) -> Said:
        self.history += whole.output
        calls = [
            Called(one.call_id, one.name, json.loads(one.arguments))
            for one in whole.output
            if one.type == "function_call" and one.status != "incomplete"
        ]
        thoughts = [
            part.text for one in whole.output if one.type == "reasoning" for part in (one.content or one.summary)
        ]
        incomplete = whole.incomplete_details.reason if whole.incomplete_details else None
        return Said(whole.output_text, calls, "".join(thoughts), incomplete or whole.status, whole)


class Messages(Dialogue):
    """anthropic."""

    sdk = anthropic
    client_class = (anthropic.Anthropic, anthropic.AsyncAnthropic)

    def options(self) -> dict[str, Any]:
        return super().options() | {"base_url": self.url}

    def tool(self, tool: Tool, parameters: Any) -> Any:
        return {"name": tool.name, "description": tool.description, "input_schema": parameters}

    def results(self, told: Mapping[str, str]) -> None:
        blocks = [{"type": "tool_result", "tool_use_id": id_, "content": text} for id_, text in told.items()]
        self.history.append({"role": "user", "content": blocks})

    def members(self) -> dict[str, Any]:
        asked = {"model": "m", "max_tokens": 2000, "messages": self.history}
        return asked | ({"tools": self.tools} if self.tools else {})

    def create(self, client: Any, asked: dict[str, Any]) -> Any:
        return client.messages.create(**asked)

    def open(self, client: Any, asked: dict[str, Any]) -> Any:
        return client.messages.stream(**asked)

    def final(self, stream: Any) -> Any:
        return stream.get_final_message()

    def read(self, whole: Any) -> Said:
        self.history.append({"role": "assistant", "content": whole.content})
        content = whole.content[:-1] if whole.stop_reason == "max_tokens" else whole.content
        calls = [Called(one.id, one.name, one.input) for one in content if one.type == "tool_use"]
        thoughts = "".join([one.thinking for one in whole.content if one.type == "thinking"])
        text = "".join([one.text for one in whole.content if one.type == "text"])
        return Said(text, calls, thoughts, whole.stop_reason, whole)


DIALOGUES: dict[str, type[Dialogue]] = {
    "openai-chat": Chat,
    "openai-responses": Responses,
    "anthropic-messages": Messages,
}
"""By the name of the API."""
