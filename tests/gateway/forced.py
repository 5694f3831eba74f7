"""Owns a gateway before a real llama.cpp whose model writes what a test wants: a grammar leaves it nothing else.

with forced(url, LlamaCpp()) as (gateway_url, backend):
    backend.say(call("get_weather", city="Tokyo"))
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import turnscript as ts
from tests.gateway.running import Running
from tests.gateway.speaker import Turn, written
from tests.gateway.stage import WEATHER
from tests.gateway.tinygguf import gbnf
from turnscript.backends.backend import Backend, Completion, HttpCall
from turnscript.core.conversation import Item, Tool
from turnscript.formats.format import Format
from turnscript.gateway.config import Config

FORMAT = "rwkv-goose-hermes"


class Forced:
    """A backend whose server may write one text only, the next of its turns, and what it was asked.

    `tools`: what the model may call.
    """

    def __init__(self, own: Backend, format_: Format, tools: Sequence[Tool] = (WEATHER,)) -> None:
        self.own, self.format, self.tools = own, format_, tools
        self.asked: list[Completion] = []
        self.turns: list[Turn] = []
        self.generated: list[str] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self.own, name)

    def call(self, ask: Completion) -> HttpCall:
        """The request, with a grammar."""
        self.asked.append(ask)
        assert isinstance(ask.prompt, str)
        whole = written(self.format, ask.prompt, self.turns.pop(0), self.tools)
        end = min((at + len(stop) for stop in ask.stops if (at := whole.find(stop)) >= 0), default=len(whole))
        found = [at for stop in ask.stops if (at := whole.find(stop)) >= 0]
        self.generated.append(whole[: min(found, default=len(whole))])
        return self.own.configured(extra={"grammar": gbnf(whole[:end])}).call(ask)

    def say(self, *items: Item, change: Callable[[str], str] = str) -> None:
        """The next turn."""
        self.turns.append(Turn(items, change))

    def clear(self) -> None:
        """Forget what was asked, said and to be said."""
        self.asked.clear()
        self.turns.clear()
        self.generated.clear()

    def grew(self) -> list[bool]:
        """Of each prompt but the first, whether it begins with the one before and with what was generated for that."""
        prompts = [str(ask.prompt) for ask in self.asked]
        told = zip(prompts, self.generated, prompts[1:], strict=False)
        return [after.startswith(prompt + generated) for prompt, generated, after in told]


@contextmanager
def forced(url: str, own: Backend, format_name: str = FORMAT, **model: Any) -> Iterator[tuple[str, Forced]]:
    """A gateway before a real server, and what that server is made to say."""
    backend = Forced(own, ts.get_format(format_name))
    config = Config.for_backend(url, format_name, kind=own.name, **model)
    with Running(config) as gateway:
        for member in gateway.service.models()[0].pool.members:
            member.upstream.backend = backend  # type: ignore[assignment]
        yield gateway.url, backend


def tokens(whole: Any) -> tuple[int, int]:
    """The tokens of the prompt of an SDK's answer, and how many of them the server had read before."""
    usage = whole.usage
    if hasattr(usage, "cache_read_input_tokens"):
        return usage.input_tokens + usage.cache_read_input_tokens, usage.cache_read_input_tokens
    details = getattr(usage, "prompt_tokens_details", None) or usage.input_tokens_details
    return getattr(usage, "prompt_tokens", None) or usage.input_tokens, details.cached_tokens
