"""Owns verdicts: what an SDK makes of an answer, in the same words for every SDK and language."""

from __future__ import annotations

from typing import Any, Protocol

from msgspec import Struct

from tests.loopback import Loopback

SDK_OF = {"chat": "openai", "responses": "openai", "completions": "openai", "messages": "anthropic"}
"""Which SDK asks for which kind of answer."""
PARAMS: dict[str, dict[str, Any]] = {
    "chat": {"model": "client-model", "messages": [{"role": "user", "content": "Hi"}]},
    "responses": {"model": "client-model", "input": "Hi"},
    "completions": {"model": "client-model", "prompt": "Hi"},
    "messages": {"model": "client-model", "max_tokens": 9, "messages": [{"role": "user", "content": "Hi"}]},
}
"""What is asked: nothing that matters, because the server answers everything alike."""


class Raised(Struct):
    """An error that an SDK raised. `classes`: its class and those above it, by name."""

    name: str
    classes: list[str]
    message: str
    status: int | None = None
    code: str | int | None = None
    type: str | None = None


class Verdict(Struct):
    """What an SDK made of one answer.

    `result`: what it returned, None if it raised. `events`: the events or chunks of a stream as it gave them on.
    `snapshot`: what its helper had accumulated at the end of the stream or at the error, where it shows that.
    """

    result: Any = None
    error: Raised | None = None
    events: list[Any] = []
    snapshot: Any = None


class Addressed(Protocol):
    """What listens at an address."""

    @property
    def url(self) -> str:
        """The address; without a slash at the end."""
        ...


class Sdk(Protocol):
    """The official SDKs of one language. `method`: `chat`, `chat.stream` for the helper that accumulates a stream,
    `chat.events` for the bare events of one; and so for the other APIs."""

    language: str

    def ask(self, method: str, server: Loopback, retries: int = 0, **params: Any) -> Verdict:
        """Ask the server and say what came of it. `params`: what else is asked; `retries`: how often again."""
        ...


def base_url(method: str, server: Addressed) -> str:
    """Where an SDK finds its API on the server."""
    return server.url if SDK_OF[method.split(".", maxsplit=1)[0]] == "anthropic" else f"{server.url}/v1"


def as_javascript(value: Any) -> Any:
    """A JSON value as JavaScript knows it: every number is a double, and one too large for that is written as null."""
    if isinstance(value, dict):
        return {key: as_javascript(one) for key, one in value.items()}
    if isinstance(value, list):
        return [as_javascript(one) for one in value]
    if isinstance(value, int | float) and not isinstance(value, bool):
        number = float(value)
        return number if number - number == 0 else None
    return value
