"""Errors of Chat Completions: the status, type, code and wording that clients branch on, as the SDK raises them."""

from __future__ import annotations

import json
from collections.abc import Iterator

import openai
import pytest

from tests.loopback import Loopback
from tests.sdks import openai_sdk
from turnscript.apis.openai_chat import OpenAIChat
from turnscript.core.errors import (
    InvalidRequest,
    LossyConversion,
    TurnscriptError,
    UnknownName,
    Unsupported,
    UpstreamError,
    UpstreamTimeout,
)
from turnscript.core.losses import Loss

API = OpenAIChat()


@pytest.fixture(scope="module")
def server() -> Iterator[Loopback]:
    with Loopback() as loopback:
        yield loopback


@pytest.fixture(scope="module")
def client(server: Loopback) -> Iterator[openai.OpenAI]:
    with openai_sdk(server.url) as found:
        yield found


class Coded(TurnscriptError):
    """An error of a gateway, with the status that a test gives it."""

    def __init__(self, status: int) -> None:
        super().__init__(f"status {status}")
        self.status = status


OVERFLOW = '{"error":{"code":400,"message":"request (9001 tokens) exceeds the available context size (1024 tokens)"}}'


@pytest.mark.parametrize(
    ("error", "status", "type_", "code", "param"),
    [
        (InvalidRequest("bad", path="$.messages[2].role"), 400, "invalid_request_error", None, "$.messages[2].role"),
        (Unsupported("audio", "x"), 400, "invalid_request_error", None, None),
        (LossyConversion([Loss("$.n", "dropped", "d")], "x"), 400, "invalid_request_error", None, "$.n"),
        (UnknownName("model", "m", ["n"]), 404, "invalid_request_error", "model_not_found", None),
        (UnknownName("format", "m", ["n"]), 404, "not_found_error", None, None),
        (Coded(401), 401, "authentication_error", "invalid_api_key", None),
        (Coded(403), 403, "permission_error", None, None),
        (Coded(409), 409, "conflict_error", None, None),
        (Coded(413), 413, "invalid_request_error", None, None),
        (Coded(422), 400, "invalid_request_error", None, None),
        (Coded(429), 429, "rate_limit_error", "rate_limit_exceeded", None),
        (Coded(503), 503, "server_error", "overloaded", None),
        (TurnscriptError("x"), 500, "server_error", None, None),
        (UpstreamError("down"), 502, "server_error", None, None),
        (UpstreamTimeout("slow"), 504, "server_error", "timeout", None),
        (UpstreamError("key", upstream=401), 502, "server_error", None, None),
        (UpstreamError("slow down", upstream=429), 429, "rate_limit_error", "rate_limit_exceeded", None),
        (UpstreamError("full", upstream=529), 503, "server_error", "overloaded", None),
        (UpstreamError("top_p", upstream=400), 400, "invalid_request_error", None, None),
        (
            UpstreamError("no", upstream=400, body=OVERFLOW),
            400,
            "invalid_request_error",
            "context_length_exceeded",
            None,
        ),
    ],
)
def test_errors_have_the_status_type_and_code_that_clients_branch_on(
    error: TurnscriptError, status: int, type_: str, code: str | None, param: str | None
) -> None:
    actual, data = API.render_error(error)
    body = json.loads(data)["error"]
    assert (status, type_, code, param) == (actual, body["type"], body["code"], body["param"])


def test_a_full_context_is_said_in_the_words_that_clients_know() -> None:
    data = API.render_error(UpstreamError("no", upstream=400, body=OVERFLOW))[1]
    expected = "This model's maximum context length is 1024 tokens. However, you requested 9001 tokens."
    assert json.loads(data)["error"]["message"].startswith(expected)


@pytest.mark.parametrize(
    ("error", "class_"),
    [
        (InvalidRequest("bad", path="$.n"), openai.BadRequestError),
        (Coded(401), openai.AuthenticationError),
        (Coded(403), openai.PermissionDeniedError),
        (UnknownName("model", "m", []), openai.NotFoundError),
        (Coded(429), openai.RateLimitError),
        (UpstreamError("down"), openai.InternalServerError),
    ],
)
def test_the_sdk_raises_its_own_class_with_our_message(
    server: Loopback, client: openai.OpenAI, error: TurnscriptError, class_: type[openai.APIStatusError]
) -> None:
    status, data = API.render_error(error)
    server.answer(data, status=status)
    with pytest.raises(class_) as raised:
        client.chat.completions.create(model="m", messages=[])
    assert str(error) in raised.value.message


def test_an_error_about_half_of_a_surrogate_pair_gets_through() -> None:
    data = API.render_error(InvalidRequest("bad \ud800", path="$.\ud800"))[1]
    assert "$.?: bad ?" == json.loads(data)["error"]["message"]
