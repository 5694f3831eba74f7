"""Owns asking the official Python SDKs."""

from __future__ import annotations

from collections.abc import Callable
from types import TracebackType
from typing import Any

import anthropic
import httpx2
import openai
from pydantic import BaseModel

from tests.answers.verdict import PARAMS, SDK_OF, Raised, Verdict, base_url
from tests.loopback import Loopback

# Their own errors, and what a wrong stream or a lost connection makes them raise all the same.
RAISED = (
    *(openai.OpenAIError, anthropic.AnthropicError, httpx2.TransportError),
    *(RuntimeError, AssertionError, LookupError, TypeError, AttributeError, ValueError),
)


class Python:
    """The Python SDKs, with one client for each server."""

    language = "python"

    def __init__(self) -> None:
        self._clients: dict[str, Any] = {}

    def ask(self, method: str, server: Loopback, retries: int = 0, **params: Any) -> Verdict:
        """Ask the server and say what came of it."""
        api, _, way = method.partition(".")
        verdict = Verdict(events=[])
        client = self._client(method, server).with_options(max_retries=retries)
        try:
            _WAYS[way](_endpoint(client, api), PARAMS[api] | params, verdict)
        except RAISED as error:
            verdict.error = _raised(error)
        return verdict

    def _client(self, method: str, server: Loopback) -> Any:
        url = base_url(method, server)
        if url not in self._clients:
            sdk = SDK_OF[method.split(".", maxsplit=1)[0]]
            make: Callable[..., Any] = openai.OpenAI if sdk == "openai" else anthropic.Anthropic
            self._clients[url] = make(api_key="-", base_url=url, max_retries=0)
        return self._clients[url]

    def __enter__(self) -> Python:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for client in self._clients.values():
            client.close()


def _endpoint(client: Any, api: str) -> Any:
    return client.chat.completions if api == "chat" else getattr(client, api)


def _whole(endpoint: Any, params: dict[str, Any], verdict: Verdict) -> None:
    verdict.result = _plain(endpoint.create(**params))


def _bare(endpoint: Any, params: dict[str, Any], verdict: Verdict) -> None:
    for event in endpoint.create(**params, stream=True):
        verdict.events.append(_plain(event))


def _helper(endpoint: Any, params: dict[str, Any], verdict: Verdict) -> None:
    """The helper of a stream. What it had accumulated is kept also where it raises in the end."""
    with endpoint.stream(**params) as helper:
        try:
            for event in helper:
                verdict.events.append(_plain(event))
            final = next(name for name in _FINALS if hasattr(helper, name))
            verdict.result = _plain(getattr(helper, final)())
        finally:
            verdict.snapshot = _snapshot(helper)


_FINALS = ("get_final_completion", "get_final_response", "get_final_message")
_SNAPSHOTS = ("current_completion_snapshot", "current_message_snapshot")


def _snapshot(helper: Any) -> Any:
    for name in _SNAPSHOTS:
        try:
            return _plain(getattr(helper, name))
        except (AttributeError, AssertionError):  # another API's, or nothing came
            continue
    return None


_WAYS: dict[str, Callable[[Any, dict[str, Any], Verdict], None]] = {"": _whole, "events": _bare, "stream": _helper}


def _plain(value: Any) -> Any:
    """What an SDK gave as the JSON that it came from. Parsed answers hold types that pydantic warns of."""
    if isinstance(value, BaseModel):
        return value.model_dump(mode="json", exclude_unset=True, warnings=False)
    return value


def _raised(error: BaseException) -> Raised:
    classes = [one.__name__ for one in type(error).__mro__]
    status, code, type_ = (getattr(error, name, None) for name in ("status_code", "code", "type"))
    return Raised(classes[0], classes, str(error), status, code, type_)
