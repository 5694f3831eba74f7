"""Owns asking a model server as the doctor does: always the same text for the same prompt, with a clock beside it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from time import monotonic
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from turnscript.backends.backend import Completion, Facts, HttpCall
from turnscript.core.conversation import Usage
from turnscript.core.errors import InvalidInput
from turnscript.formats.format import Format
from turnscript.gateway.config import Config, Timeouts
from turnscript.gateway.served import Served
from turnscript.gateway.transport import Reply, Transport
from turnscript.gateway.upstream import Upstream

PATIENCE = Timeouts(connect=5.0, first_byte=30.0, between=15.0, total=120.0)
"""How long a check waits for a server."""
COUNTING = "Count on: one, two, three, four, five, six, seven, eight,"
"""A prompt behind which nearly every model goes on."""
OTHER = "Once upon a time, there was a small house at the edge of a dark forest, and in it lived"
_TAIL = 64
_GRAMMAR = "gbnf"


class Heard(Struct):
    """An answer, and when it came. Times are seconds since it was asked for; `arrivals` is when texts were read, and
    `texts` what the server had put into one piece each. `left`: it was not read to its end."""

    texts: list[str] = []
    arrivals: list[float] = []
    finish: str | None = None
    stop: str | None = None
    usage: Usage | None = None
    slot: int | None = None
    finished: float | None = None
    took: float = 0.0
    left: bool = False

    @property
    def text(self) -> str:
        """All of it."""
        return "".join(self.texts)

    @property
    def first(self) -> float:
        """When its first text came."""
        return self.arrivals[0] if self.arrivals else self.took

    @property
    def last(self) -> float:
        """When its last text came."""
        return self.arrivals[-1] if self.arrivals else self.took

    @property
    def tokens(self) -> int:
        """How many tokens it has, or about how many."""
        return self.usage.output if self.usage is not None and self.usage.output else len(self.texts)

    @property
    def speed(self) -> float | None:
        """Tokens in a second, once it had begun."""
        seconds = self.last - self.first
        return (self.tokens - 1) / seconds if self.tokens > 1 and seconds > 0 else None


class Watched:
    """Carries calls as another transport does; `tail` is how the body of the last answer ended."""

    def __init__(self, inner: Transport) -> None:
        self.inner = inner
        self.tail = b""

    async def send(self, call: HttpCall) -> Reply:
        """Send a call."""
        self.tail = b""
        return _WatchedReply(await self.inner.send(call), self)

    async def close(self) -> None:
        """Let go of all connections."""
        await self.inner.close()


class _WatchedReply:
    def __init__(self, inner: Reply, watched: Watched) -> None:
        self.status: int = inner.status
        self.headers: Mapping[str, str] = inner.headers
        self._inner = inner
        self._watched = watched

    async def read(self) -> bytes:
        """More of the body."""
        data = await self._inner.read()
        self._watched.tail = (self._watched.tail + data)[-_TAIL:]
        return data

    def close(self) -> None:
        """Let go of it."""
        self._inner.close()


class Patient:
    """A model server that is looked at: `upstream`, one of those of `served`. `sample` is an answer to COUNTING that
    the later checks compare with."""

    def __init__(self, served: Served, upstream: Upstream, config: Config) -> None:
        self.served = served
        self.upstream = upstream
        self.config = config
        self.watched = Watched(upstream.transport)
        upstream.transport = self.watched
        self.facts = Facts()
        self.prompt = COUNTING
        self.sample = Heard()

    @property
    def format(self) -> Format | None:
        """The format of its prompts, if anything tells it."""
        try:
            return self.served.format
        except InvalidInput:
            return None

    @property
    def context(self) -> int | None:
        """How many tokens a conversation may have."""
        return self.served.model.context or self.facts.context

    @property
    def obeys_grammars(self) -> bool:
        """Whether a grammar can make it write any text."""
        return _GRAMMAR in self.upstream.backend.grammars

    def can(self, setting: str) -> bool:
        """Whether this kind of server knows a sampling setting."""
        return setting in (*self.upstream.backend.settings, *self.upstream.backend.also)

    def ask(self, prompt: str, limit: int, *, endless: bool = True, **members: Any) -> Completion:
        """A request that is answered alike whenever it is sent. `endless`: the model's own end does not end it, where
        the server can be asked for that."""
        sampling: dict[str, Any] = {"temperature": 0, "seed": 1, **members.pop("sampling", {})}
        if endless:
            sampling["ignore_eos"] = True
        model = self.served.model.upstream_model or self.served.facts.asked_as
        return Completion(prompt=prompt, max_tokens=limit, model=model, sampling=sampling, **members)

    async def hear(self, ask: Completion, enough: Callable[[Heard], bool] | None = None) -> Heard:
        """The answer, read to its end or as far as it is `enough`. Raises UpstreamError."""
        heard, began = Heard(), monotonic()
        async with self.upstream.open(ask) as answer:
            async for pieces in answer:
                now = monotonic() - began
                for piece in pieces:
                    heard.finish = piece.finish or heard.finish
                    heard.stop = piece.stop or heard.stop
                    heard.usage = piece.usage or heard.usage
                    heard.slot = heard.slot if piece.slot is None else piece.slot
                texts = [piece.text for piece in pieces if piece.text]
                heard.texts += texts
                if texts:
                    heard.arrivals.append(now)
                if heard.finish is not None and heard.finished is None:
                    heard.finished = now
                if enough is not None and enough(heard):
                    heard.left = True
                    break
        heard.took = monotonic() - began
        return heard

    async def whole(self, ask: Completion) -> Heard:
        """The same answer in one piece."""
        return await self.hear(replace(ask, stream=False))

    async def tokens(self, text: str) -> list[int] | None:
        """The ids of a text as a prompt, without what the server puts before it; None if it cannot be asked."""
        ids, before = await asyncio.gather(self.upstream.tokens(text), self.upstream.tokens(""))
        if ids is None or before is None:
            return None
        return ids[len(before) :] if ids[: len(before)] == before else ids
