"""Owns the unit tests of errors of the Responses API: the official SDK makes of each what it is."""

from __future__ import annotations

import json
from collections.abc import Iterator

import openai
import pytest
from openai import OpenAI

from tests.loopback import Loopback
from tests.responses import API
from turnscript.core.errors import (
    InvalidRequest,
    LossyConversion,
    TurnscriptError,
    UnknownName,
    UpstreamError,
    UpstreamTimeout,
)

ERRORS = [
    (InvalidRequest("bad", path="$.input[0].role"), 400, None, openai.BadRequestError),
    (LossyConversion([], "x"), 400, None, openai.BadRequestError),
    (UnknownName("model", "gtp", ["gpt"]), 404, "model_not_found", openai.NotFoundError),
    (TurnscriptError("bug"), 500, None, openai.InternalServerError),
    (UpstreamError("refused"), 502, None, openai.InternalServerError),
    (UpstreamTimeout("slow"), 504, "timeout", openai.InternalServerError),
    (UpstreamError("busy", upstream=429), 429, "rate_limit_exceeded", openai.RateLimitError),
    (UpstreamError("key", upstream=401), 502, None, openai.InternalServerError),
    (UpstreamError("slow", upstream=408), 504, "timeout", openai.InternalServerError),
    (UpstreamError("full", upstream=529), 503, "overloaded", openai.InternalServerError),
    (UpstreamError("bad", upstream=400), 400, None, openai.BadRequestError),
    (
        UpstreamError("bad", upstream=400, body="This model's maximum context length is 9 tokens."),
        400,
        "context_length_exceeded",
        openai.BadRequestError,
    ),
    (UpstreamError("prompt is too long: 9 tokens > 8 maximum"), 400, "context_length_exceeded", openai.BadRequestError),
]


@pytest.fixture(scope="module")
def loopback() -> Iterator[Loopback]:
    with Loopback() as server:
        yield server


@pytest.fixture(scope="module")
def client(loopback: Loopback) -> Iterator[OpenAI]:
    with OpenAI(api_key="-", base_url=f"{loopback.url}/v1", max_retries=0) as opened:
        yield opened


@pytest.mark.parametrize(("error", "status", "code", "kind"), ERRORS)
def test_every_error_is_one_that_the_sdk_knows(
    loopback: Loopback,
    client: OpenAI,
    error: TurnscriptError,
    status: int,
    code: str | None,
    kind: type[openai.APIStatusError],
) -> None:
    found, body = API.render_error(error)
    loopback.answer(body, status=found)
    with pytest.raises(kind) as caught:
        client.responses.create(model="m", input="Hi")
    assert (status, status) == (found, caught.value.status_code)
    assert code == caught.value.code
    message = json.loads(body)["error"]["message"]
    assert "maximum context length" in message if code == "context_length_exceeded" else str(error) == message


def test_an_error_names_the_member_as_the_client_wrote_it() -> None:
    _, body = API.render_error(InvalidRequest("bad", path="$.input[0].role"))
    assert "$.input[0].role" == json.loads(body)["error"]["param"]


def test_an_error_that_quotes_half_a_character_can_be_written() -> None:
    status, body = API.render_error(InvalidRequest("bad \ud800", path="$"))
    assert (400, "invalid_request_error") == (status, json.loads(body)["error"]["type"])
