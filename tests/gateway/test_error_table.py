"""Owns the table of errors (spec apis A8.9): each row, brought about in a real gateway, is the class that it names."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from threading import Event
from typing import Any, NamedTuple

import anthropic
import openai
import pytest

from tests.gateway.scripted import CLOSE, HANG, Script, said
from tests.gateway.stage import Stage, answer
from tests.sdks import anthropic_sdk, openai_sdk
from turnscript.gateway.config import Timeouts
from turnscript.gateway.keys import add_key

ASK: Any = [{"role": "user", "content": "Hello"}]
MODEL = "default"
KEYS: dict[str, dict[str, Any]] = {
    "free": {},
    "often": {"requests_per_minute": 1},
    "narrow": {"running": 1, "queue": 0},
}
BAD, SERVER = "invalid_request_error", "server_error"


class Row(NamedTuple):
    """A row: what the openai SDK raises with which status, type and code, and what the anthropic SDK does.

    `script`: what the model server plays; `key`: of which client; `members`: what the body has beside the usual.
    """

    openai: type[openai.APIStatusError]
    words: tuple[int, str, str | None]
    anthropic: type[anthropic.APIStatusError]
    type: str
    script: Script = ()
    key: str = "free"
    members: dict[str, Any] = {}  # noqa: RUF012 - never changed


def refused(status: int, **error: Any) -> Script:
    """A model server that refuses."""
    return said({"error": {"message": "no", **error}}, status=status)


FULL = refused(400, message="the request exceeds the available context size (4096 tokens)")
ROWS = {
    "bad request": Row(
        openai.BadRequestError, (400, BAD, None), anthropic.BadRequestError, BAD, members={"temperature": "hot"}
    ),
    "unsupported": Row(
        openai.BadRequestError, (400, BAD, None), anthropic.BadRequestError, BAD, key="firm", members={"hosted": True}
    ),
    "who asks": Row(
        openai.AuthenticationError,
        (401, "authentication_error", "invalid_api_key"),
        anthropic.AuthenticationError,
        "authentication_error",
        key="nobody",
    ),
    "unknown model": Row(
        openai.NotFoundError,
        (404, BAD, "model_not_found"),
        anthropic.NotFoundError,
        "not_found_error",
        members={"model": "another"},
    ),
    "too large": Row(
        openai.APIStatusError,
        (413, BAD, None),
        anthropic.ContentTooLargeError,
        "request_too_large",
        members={"metadata": {"user_id": "x" * 200_000}},
    ),
    "overflow": Row(
        openai.BadRequestError, (400, BAD, "context_length_exceeded"), anthropic.BadRequestError, BAD, script=FULL
    ),
    "rate": Row(
        openai.RateLimitError,
        (429, "rate_limit_error", "rate_limit_exceeded"),
        anthropic.RateLimitError,
        "rate_limit_error",
        key="often",
    ),
    "rate of the server": Row(
        openai.RateLimitError,
        (429, "rate_limit_error", "rate_limit_exceeded"),
        anthropic.RateLimitError,
        "rate_limit_error",
        script=refused(429),
    ),
    "no money": Row(
        openai.RateLimitError,
        (429, "insufficient_quota", "insufficient_quota"),
        anthropic.PaymentRequiredError,
        "billing_error",
        script=refused(402),
    ),
    "no money in words": Row(
        openai.RateLimitError,
        (429, "insufficient_quota", "insufficient_quota"),
        anthropic.PaymentRequiredError,
        "billing_error",
        script=refused(429, type="insufficient_quota", code="insufficient_quota"),
    ),
    "queue full": Row(
        openai.InternalServerError,
        (503, SERVER, "overloaded"),
        anthropic.OverloadedError,
        "overloaded_error",
        key="narrow",
    ),
    "server busy": Row(
        openai.InternalServerError,
        (503, SERVER, "overloaded"),
        anthropic.OverloadedError,
        "overloaded_error",
        script=refused(503),
    ),
    "server fails": Row(
        openai.InternalServerError, (502, SERVER, None), anthropic.InternalServerError, "api_error", refused(500)
    ),
    "server down": Row(
        openai.InternalServerError, (502, SERVER, None), anthropic.InternalServerError, "api_error", [CLOSE]
    ),
    "server forbids": Row(
        openai.InternalServerError, (502, SERVER, None), anthropic.InternalServerError, "api_error", refused(403)
    ),
    "timeout": Row(
        openai.InternalServerError, (504, SERVER, "timeout"), anthropic.GatewayTimeoutError, "timeout_error", [HANG]
    ),
}


class Clients:
    """A client of each SDK for each key."""

    def __init__(self, stage: Stage, tokens: dict[str, str]) -> None:
        self.stage = stage
        self._clients: dict[str, tuple[openai.OpenAI, anthropic.Anthropic]] = {
            name: (openai_sdk(stage.url, api_key=token), anthropic_sdk(stage.url, api_key=token))
            for name, token in tokens.items()
        }

    def ask(self, call: str, key: str, members: dict[str, Any]) -> Any:
        """Ask once. `call`: which API, and whether it streams."""
        first, second = self._clients[key]
        api, _, stream = call.partition("_")
        more = {name: value for name, value in members.items() if name not in ("model", "hosted")}
        if "hosted" in members:
            more |= HOSTED[api]
        asked: Any = {"model": members.get("model", MODEL), "stream": bool(stream), "extra_body": more}
        if api == "chat":
            return drained(first.chat.completions.create(messages=ASK, **asked))
        if api == "text":
            return drained(first.completions.create(prompt="Hello", **asked))
        if api == "responses":
            return drained(first.responses.create(input="Hello", **asked))
        return drained(second.messages.create(max_tokens=64, messages=ASK, **asked))

    def close(self) -> None:
        """Close all."""
        for pair in self._clients.values():
            for client in pair:
                client.close()


def drained(told: Any) -> Any:
    """An answer, or all events of one."""
    return list(told) if hasattr(told, "__next__") else told


HOSTED: dict[str, dict[str, Any]] = {
    "chat": {"web_search_options": {}},
    "text": {"suffix": "after"},
    "responses": {"tools": [{"type": "web_search"}]},
    "messages": {"tools": [{"type": "web_search_20250305", "name": "web_search"}]},
}
"""What no model here can do, in each API; a client with this key wants it refused."""
CALLS = [f"{api}{stream}" for api in HOSTED for stream in ("", "_stream")]


@pytest.fixture(scope="module")
def clients(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Clients]:
    path = tmp_path_factory.mktemp("keys") / "keys"
    tokens = {name: add_key(path, name, limits=own).reveal() for name, own in KEYS.items()}
    tokens["firm"] = add_key(path, "firm", policy={"hosted_tools": "refuse", "losses": "error"}).reveal()
    server = {"keys": path, "max_body": 100_000, "strict_models": True}
    with Stage(server=server) as stage:
        made = Clients(stage, tokens | {"nobody": "tsk-nobody"})
        yield made
        made.close()


@pytest.fixture(autouse=True)
def late(monkeypatch: pytest.MonkeyPatch) -> None:
    """Streams begin with their models, so that errors have a status."""
    monkeypatch.setattr("turnscript.gateway.answers.SOON", 60.0)


def outcome(clients: Clients, call: str, row: Row, told: Event) -> Any:
    """What a client is told; the busy one while it already waits for an answer, the other one the second time."""
    with ThreadPoolExecutor(1) as pool:
        if row.key == "narrow":
            pool.submit(clients.ask, call, row.key, {})
            clients.stage.until(lambda: clients.stage.asks[0])
        elif row.key == "often":
            pool.submit(clients.ask, call, row.key, {}).exception()
        try:
            return clients.ask(call, row.key, row.members)
        finally:
            told.set()


@pytest.fixture
def hurried(clients: Clients, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the model's server is silent the gateway soon gives up; nowhere else, because a machine can be slower."""
    if ROWS[name].script == [HANG]:
        upstream = clients.stage.gateway.service.models()[0].pool.members[0].upstream
        monkeypatch.setattr(upstream, "timeouts", Timeouts(first_byte=0.2))


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("name", ROWS)
@pytest.mark.usefixtures("hurried")
def test_every_row_is_the_class_that_it_names(clients: Clients, name: str, call: str) -> None:
    row = ROWS[name]
    told = Event()
    clients.stage.play(row.script or ([told, *answer("Hello")] if row.key == "narrow" else answer("Hello")))
    messages = call.startswith("messages")
    with pytest.raises((openai.APIStatusError, anthropic.APIStatusError)) as caught:
        outcome(clients, call, row, told)
    error = caught.value
    assert (row.anthropic if messages else row.openai) is type(error)
    assert (error.request_id or "").startswith("req_")
    if isinstance(error, openai.APIStatusError):
        assert row.words == (error.status_code, error.type, error.code)
    else:
        assert row.type == error.type
    clients.stage.until(clients.stage.idle)
