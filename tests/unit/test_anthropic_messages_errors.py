"""Owns the errors of Messages: the shape, status and words that clients branch on, as the SDK raises them."""

from __future__ import annotations

import json
from collections.abc import Iterator

import anthropic
import pytest

from tests.loopback import Loopback
from tests.messages import API
from tests.sdks import anthropic_sdk
from turnscript.core.errors import (
    InvalidRequest,
    TurnscriptError,
    UnknownName,
    Unsupported,
    UpstreamError,
    UpstreamTimeout,
)


@pytest.fixture(scope="module")
def server() -> Iterator[Loopback]:
    with Loopback() as loopback:
        yield loopback


@pytest.fixture(scope="module")
def client(server: Loopback) -> Iterator[anthropic.Anthropic]:
    with anthropic_sdk(server.url) as made:
        yield made


def ask(client: anthropic.Anthropic) -> anthropic.types.Message:
    return client.messages.create(model="m", max_tokens=9, messages=[{"role": "user", "content": "hi"}])


class Busy(TurnscriptError):
    status = 503


class Denied(TurnscriptError):
    status = 401


@pytest.mark.parametrize(
    ("error", "status", "type_", "raised"),
    [
        (InvalidRequest("bad", path="$.x"), 400, "invalid_request_error", anthropic.BadRequestError),
        (Unsupported("sound", "a format"), 400, "invalid_request_error", anthropic.BadRequestError),
        (Denied("who?"), 401, "authentication_error", anthropic.AuthenticationError),
        (UnknownName("model", "gpt", ["rwkv"]), 404, "not_found_error", anthropic.NotFoundError),
        (UpstreamError("slow down", upstream=429), 429, "rate_limit_error", anthropic.RateLimitError),
        (Busy("full"), 529, "overloaded_error", anthropic.APIStatusError),
        (UpstreamError("gone"), 502, "api_error", anthropic.InternalServerError),
        (UpstreamError("wrong key", upstream=401), 502, "api_error", anthropic.InternalServerError),
        (UpstreamTimeout("slow"), 504, "timeout_error", anthropic.InternalServerError),
        (TurnscriptError("oops"), 500, "api_error", anthropic.InternalServerError),
    ],
)
def test_errors_have_the_shape_that_clients_branch_on(
    server: Loopback,
    client: anthropic.Anthropic,
    error: TurnscriptError,
    status: int,
    type_: str,
    raised: type[anthropic.APIStatusError],
) -> None:
    got_status, body = API.render_error(error, request_id="req_1")
    assert status == got_status
    expected = {"type": "error", "error": {"type": type_, "message": str(error)}, "request_id": "req_1"}
    assert expected == json.loads(body)
    server.answer(body, status=got_status, request_id="req_1")
    with pytest.raises(raised) as caught:
        ask(client)
    assert (status, type_, "req_1") == (caught.value.status_code, caught.value.type, caught.value.request_id)


@pytest.mark.parametrize(
    ("message", "body", "expected"),
    [
        ("x: prompt is too long: 9 tokens > 8 maximum", "", "prompt is too long: 9 tokens > 8 maximum"),
        (
            "input length and `max_tokens` exceed context limit: 9 + 1 > 8, decrease",
            "",
            "input length and `max_tokens` exceed context limit: 9 + 1 > 8, decrease",
        ),
        (
            "This model's maximum context length is 8192 tokens. However, you requested 9000 tokens.",
            "",
            "prompt is too long: 9000 tokens > 8192 maximum",
        ),
        (
            "bad",
            '{"error":{"type":"exceed_context_size_error","n_prompt_tokens":9000,"n_ctx":8192}}',
            "prompt is too long: 9000 tokens > 8192 maximum",
        ),
        ("bad", '{"error":{"code":"context_length_exceeded"}}', "prompt is too long: bad"),
    ],
)
def test_a_context_that_is_too_long_is_said_in_the_words_that_clients_look_for(
    message: str, body: str, expected: str
) -> None:
    status, data = API.render_error(UpstreamError(message, upstream=400, body=body))
    assert 400 == status
    error = json.loads(data)["error"]
    assert ("invalid_request_error", expected) == (error["type"], error["message"])


def test_an_error_about_half_a_surrogate_pair_can_be_said() -> None:
    _, data = API.render_error(InvalidRequest("the name '\ud800' is odd", path="$.x"))
    assert "$.x: the name '\\ud800' is odd" == json.loads(data)["error"]["message"]
