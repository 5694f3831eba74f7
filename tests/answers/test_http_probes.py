"""Owns the probes of HTTP: which class each status of ours becomes in each SDK, and what they ask for once more."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.answers.verdict import Sdk
from tests.answers.wires import APIS, Server
from tests.loopback import JSON, Loopback
from turnscript.core.errors import (
    InvalidRequest,
    TurnscriptError,
    UnknownName,
    Unsupported,
    UpstreamError,
    UpstreamTimeout,
)


class Coded(TurnscriptError):
    """An error of a gateway, with the status that a test gives it."""

    def __init__(self, status: int) -> None:
        super().__init__(f"status {status}")
        self.status = status


# The class in the SDKs of OpenAI, and in that of Anthropic. Where two are named: in Python, and in JavaScript.
ERRORS: list[tuple[TurnscriptError, str, str]] = [
    (InvalidRequest("bad", path="$.x"), "BadRequestError", "BadRequestError"),
    (Unsupported("sound", "a format"), "BadRequestError", "BadRequestError"),
    (Coded(401), "AuthenticationError", "AuthenticationError"),
    (Coded(403), "PermissionDeniedError", "PermissionDeniedError"),
    (UnknownName("model", "m", ["n"]), "NotFoundError", "NotFoundError"),
    (Coded(409), "ConflictError", "ConflictError"),
    (Coded(413), "APIStatusError APIError", "ContentTooLargeError"),
    (Coded(422), "BadRequestError", "BadRequestError"),
    (Coded(429), "RateLimitError", "RateLimitError"),
    (UpstreamError("busy", upstream=429), "RateLimitError", "RateLimitError"),
    (Coded(500), "InternalServerError", "InternalServerError"),
    (UpstreamError("gone"), "InternalServerError", "InternalServerError"),
    (UpstreamError("key", upstream=401), "InternalServerError", "InternalServerError"),
    (Coded(503), "InternalServerError", "OverloadedError"),
    (UpstreamTimeout("slow"), "InternalServerError", "GatewayTimeoutError"),
]
BASES = ("OpenAIError", "AnthropicError")


@pytest.mark.parametrize(("error", "openai", "anthropic"), ERRORS, ids=str)
@pytest.mark.parametrize("wire", APIS)
def test_an_error_of_ours_has_a_class_of_its_own(
    sdk: Sdk, server: Server, wire: str, error: TurnscriptError, openai: str, anthropic: str
) -> None:
    status, body = APIS[wire].render_error(error)
    server.serve(body, 0, JSON, status)
    found = sdk.ask(wire, server).error
    names = (anthropic if wire == "messages" else openai).split()
    assert found is not None
    assert (names[0 if sdk.language == "python" else -1], status) == (found.name, found.status)
    assert {"APIError", BASES[wire == "messages"]} <= set(found.classes)
    assert str(error) in found.message
    streamed = sdk.ask("completions.events" if wire == "completions" else f"{wire}.stream", server)
    assert (found, []) == (streamed.error, streamed.events)


# Once more.


@pytest.fixture(scope="module")
def counting() -> Iterator[Loopback]:
    with Loopback() as opened:
        yield opened


AGAIN, ONCE = 3, 1
SOON = {"retry_after_ms": "1"}
HEADERS = [
    ({408: AGAIN, 409: AGAIN, 429: AGAIN, 500: AGAIN, 502: AGAIN, 503: AGAIN, 504: AGAIN, 529: AGAIN}, SOON),
    ({400: ONCE, 401: ONCE, 403: ONCE, 404: ONCE, 413: ONCE, 422: ONCE}, SOON),
    ({429: AGAIN, 503: AGAIN}, {"retry_after": "0.01"}),
    ({408: ONCE, 409: ONCE, 429: ONCE, 500: ONCE, 529: ONCE}, SOON | {"x_should_retry": "false"}),
    ({400: AGAIN, 404: AGAIN}, SOON | {"x_should_retry": "true"}),
]


@pytest.mark.parametrize(
    ("status", "times", "headers"),
    [(status, times, headers) for statuses, headers in HEADERS for status, times in statuses.items()],
)
@pytest.mark.parametrize("wire", ["chat", "messages"])
def test_what_is_asked_for_once_more(
    sdk: Sdk, counting: Loopback, wire: str, status: int, times: int, headers: dict[str, str]
) -> None:
    """A server that does not want to be asked again says so: the statuses alone make clients try twice more."""
    counting.answer(b'{"error":{"message":"no"}}', status=status, **headers)
    counting.asked.clear()
    assert sdk.ask(wire, counting, retries=2).error is not None
    assert times == len(counting.asked)


def test_one_sdk_does_not_wait_for_more_than_two_minutes(python: Sdk, counting: Loopback) -> None:
    counting.answer(b'{"error":{"message":"no"}}', status=429, retry_after="121")
    counting.asked.clear()
    assert python.ask("chat", counting, retries=2).error is not None
    assert ONCE == len(counting.asked)


@pytest.mark.parametrize("tokens", [21_333, 21_334])
def test_an_sdk_asks_for_long_answers_as_streams_only(sdk: Sdk, server: Server, tokens: int) -> None:
    """So a gateway need not be ready to answer at length in one piece."""
    server.serve(b"{}", 0, JSON, 500)
    error = sdk.ask("messages", server, max_tokens=tokens).error
    assert error is not None
    refused = {"python": "ValueError", "javascript": "AnthropicError"}[sdk.language]
    assert (refused if tokens > 21_333 else "InternalServerError") == error.name
