"""Owns what clients make of each failure of a server: the class that its SDK raises, and when that tries again."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, NamedTuple

import anthropic
import openai
import pytest

import turnscript as ts
from tests.loopback import SSE, Loopback
from tests.sdks import anthropic_sdk, openai_sdk
from turnscript.apis.api import Reply
from turnscript.core.errors import (
    BackendDown,
    Conflict,
    ContextOverflow,
    Forbidden,
    InvalidRequest,
    NotFound,
    Overloaded,
    RateLimited,
    Timeout,
    TooLarge,
    TurnscriptError,
    Unauthorized,
    Unsupported,
    UpstreamError,
    UpstreamTimeout,
)
from turnscript.gateway.listing import MethodNotAllowed
from turnscript.gateway.visit import Encoded, SlowBody

CHAT, RESPONSES, MESSAGES = map(ts.get_api, ("openai-chat", "openai-responses", "anthropic-messages"))
QUOTA = UpstreamError("you have no money", upstream=429, body='{"error":{"code":"insufficient_quota","type":"x"}}')


class Case(NamedTuple):
    """A failure, and what each SDK knows it as: status, type (and code), class."""

    error: TurnscriptError
    openai: tuple[int, str, str | None, type[openai.APIStatusError]]
    anthropic: tuple[int, str, type[anthropic.APIStatusError]]


BAD, SERVER = "invalid_request_error", "server_error"
CASES = [
    Case(
        InvalidRequest("expected an array", path="$.messages"),
        (400, BAD, None, openai.BadRequestError),
        (400, BAD, anthropic.BadRequestError),
    ),
    Case(
        ContextOverflow(9000, 8192),
        (400, BAD, "context_length_exceeded", openai.BadRequestError),
        (400, BAD, anthropic.BadRequestError),
    ),
    Case(
        Unsupported("sound", "it", path="$.audio"),
        (400, BAD, None, openai.BadRequestError),
        (400, BAD, anthropic.BadRequestError),
    ),
    Case(
        Unauthorized("who?"),
        (401, "authentication_error", "invalid_api_key", openai.AuthenticationError),
        (401, "authentication_error", anthropic.AuthenticationError),
    ),
    Case(
        Forbidden("no"),
        (403, "permission_error", None, openai.PermissionDeniedError),
        (403, "permission_error", anthropic.PermissionDeniedError),
    ),
    Case(
        NotFound("model", "gpt"),
        (404, BAD, "model_not_found", openai.NotFoundError),
        (404, "not_found_error", anthropic.NotFoundError),
    ),
    Case(
        NotFound("response", "resp_1", "$.previous_response_id"),
        (404, "not_found_error", "previous_response_not_found", openai.NotFoundError),
        (404, "not_found_error", anthropic.NotFoundError),
    ),
    Case(
        Conflict("it runs already"),
        (409, "conflict_error", None, openai.ConflictError),
        (409, "conflict_error", anthropic.ConflictError),
    ),
    Case(
        TooLarge(8, 9),
        (413, BAD, None, openai.APIStatusError),
        (413, "request_too_large", anthropic.ContentTooLargeError),
    ),
    Case(
        RateLimited("too fast", 1.5),
        (429, "rate_limit_error", "rate_limit_exceeded", openai.RateLimitError),
        (429, "rate_limit_error", anthropic.RateLimitError),
    ),
    Case(
        QUOTA,
        (429, "insufficient_quota", "insufficient_quota", openai.RateLimitError),
        (402, "billing_error", anthropic.PaymentRequiredError),
    ),
    Case(
        UpstreamError("the account is empty", upstream=402),
        (429, "insufficient_quota", "insufficient_quota", openai.RateLimitError),
        (402, "billing_error", anthropic.PaymentRequiredError),
    ),
    Case(
        Overloaded("the queue is full", 2),
        (503, SERVER, "overloaded", openai.InternalServerError),
        (529, "overloaded_error", anthropic.OverloadedError),
    ),
    Case(
        Timeout("too slow"),
        (504, SERVER, "timeout", openai.InternalServerError),
        (504, "timeout_error", anthropic.GatewayTimeoutError),
    ),
    Case(
        UpstreamTimeout("the model server is too slow"),
        (504, SERVER, "timeout", openai.InternalServerError),
        (504, "timeout_error", anthropic.GatewayTimeoutError),
    ),
    Case(
        MethodNotAllowed("/v1/x", "GET", ("POST",)),
        (405, BAD, None, openai.APIStatusError),
        (405, BAD, anthropic.APIStatusError),
    ),
    Case(
        SlowBody("the body did not arrive"),
        (408, SERVER, "timeout", openai.APIStatusError),
        (408, "timeout_error", anthropic.RequestTimeoutError),
    ),
    Case(
        Encoded("gzip is not read here"),
        (415, BAD, None, openai.APIStatusError),
        (415, BAD, anthropic.APIStatusError),
    ),
    Case(
        UpstreamError("the server failed", upstream=500),
        (502, SERVER, None, openai.InternalServerError),
        (502, "api_error", anthropic.InternalServerError),
    ),
    Case(
        TurnscriptError("a bug"),
        (500, SERVER, None, openai.InternalServerError),
        (500, "api_error", anthropic.InternalServerError),
    ),
    Case(
        BackendDown("no backend answers"),
        (502, SERVER, None, openai.InternalServerError),
        (502, "api_error", anthropic.InternalServerError),
    ),
]


@pytest.fixture(scope="module")
def server() -> Iterator[Loopback]:
    with Loopback() as loopback:
        yield loopback


@pytest.fixture(scope="module")
def first(server: Loopback) -> Iterator[openai.OpenAI]:
    with openai_sdk(server.url) as made:
        yield made


@pytest.fixture(scope="module")
def second(server: Loopback) -> Iterator[anthropic.Anthropic]:
    with anthropic_sdk(server.url) as made:
        yield made


def ask(client: openai.OpenAI | anthropic.Anthropic, api: Any) -> None:
    if isinstance(client, anthropic.Anthropic):
        client.messages.create(model="m", max_tokens=9, messages=[{"role": "user", "content": "Hi"}])
    elif api is CHAT:
        client.chat.completions.create(model="m", messages=[])
    else:
        client.responses.create(model="m", input="Hi")


def serve(server: Loopback, api: Any, error: TurnscriptError) -> None:
    status, body = api.render_error(error, request_id="req_1")
    server.answer(body, status=status, **api.headers(error, request_id="req_1"))


@pytest.mark.parametrize("api", [CHAT, RESPONSES], ids=["chat", "responses"])
@pytest.mark.parametrize("case", CASES, ids=lambda case: str(case.error)[:20])
def test_the_openai_sdk_raises_the_right_class(server: Loopback, first: openai.OpenAI, api: Any, case: Case) -> None:
    status, type_, code, class_ = case.openai
    serve(server, api, case.error)
    with pytest.raises(class_) as caught:
        ask(first, api)
    error = caught.value
    assert class_ is type(error)
    assert (status, type_, code, "req_1") == (error.status_code, error.type, error.code, error.request_id)
    assert (getattr(case.error, "path", "") or None) == error.param


@pytest.mark.parametrize("case", CASES, ids=lambda case: str(case.error)[:20])
def test_the_anthropic_sdk_raises_the_right_class(server: Loopback, second: anthropic.Anthropic, case: Case) -> None:
    status, type_, class_ = case.anthropic
    serve(server, MESSAGES, case.error)
    with pytest.raises(class_) as caught:
        ask(second, MESSAGES)
    error = caught.value
    assert class_ is type(error)
    assert (status, type_, "req_1") == (error.status_code, error.type, error.request_id)
    if isinstance(case.error, Unsupported | InvalidRequest):
        assert case.error.path in error.message


# Words.


def said(api: Any, error: TurnscriptError) -> str:
    return str(json.loads(api.render_error(error)[1])["error"]["message"])


def test_an_overflow_is_said_in_the_words_that_make_clients_shorten_their_conversation() -> None:
    assert "prompt is too long: 9000 tokens > 8192 maximum" == said(MESSAGES, ContextOverflow(9000, 8192))
    assert "prompt is too long: 9000 tokens > 8192 maximum" == said(MESSAGES, ContextOverflow(9000, 8192, 5))
    expected = (
        "input length and `max_tokens` exceed context limit: 8000 + 500 > 8192, "
        "decrease input length or `max_tokens` and try again"
    )
    assert expected == said(MESSAGES, ContextOverflow(8000, 8192, 500))
    known = "This model's maximum context length is 8192 tokens. However, you requested "
    for api in (CHAT, RESPONSES):
        assert f"{known}9000 tokens. Please reduce the length of the messages." == said(
            api, ContextOverflow(9000, 8192)
        )
        both = f"{known}8500 tokens (8000 in the messages, 500 in the completion). "
        reduce = "Please reduce the length of the messages or completion."
        assert both + reduce == said(api, ContextOverflow(8000, 8192, 500))


def test_the_time_to_wait_stands_in_the_message_too_for_clients_of_streams() -> None:
    assert "Slow down. Please try again in 1.5s." == said(CHAT, RateLimited("Slow down.", 1.5))
    for wait, seconds in ((3_487_345.0, "3487345s"), (0.0004, "0s"), (60.0, "60s"), (59.5971, "59.597s")):
        assert f"Slow down. Please try again in {seconds}." == said(CHAT, RateLimited("Slow down.", wait))
    assert "wait: try again in 3s" == said(CHAT, RateLimited("wait: try again in 3s", 1.5))
    assert ("Slow down.", "Slow down.") == (
        said(CHAT, RateLimited("Slow down.")),
        said(MESSAGES, RateLimited("Slow down.")),
    )


@pytest.mark.parametrize("begun", [True, False])
@pytest.mark.parametrize(
    ("error", "code"), [(QUOTA, "insufficient_quota"), (ContextOverflow(9, 8), "context_length_exceeded")]
)
def test_a_response_that_fails_in_a_stream_keeps_the_code_that_clients_branch_on(
    begun: bool, error: TurnscriptError, code: str
) -> None:
    renderer = RESPONSES.stream_renderer(ts.Request())
    data = (renderer.start() if begun else b"") + renderer.fail(error)
    last = json.loads(data.rstrip().rpartition(b"data: ")[2])
    assert code == (last["response"]["error"]["code"] if begun else last["code"])


def test_an_error_in_a_stream_of_messages_names_the_request(server: Loopback, second: anthropic.Anthropic) -> None:
    renderer = MESSAGES.stream_renderer(ts.Request(), Reply(request_id="req_9"))
    server.answer(renderer.start() + renderer.fail(Overloaded("full")), SSE)
    with (
        pytest.raises(anthropic.APIStatusError) as caught,
        second.messages.stream(model="m", max_tokens=9, messages=[]) as stream,
    ):
        stream.get_final_message()
    assert "req_9" == caught.value.body["request_id"]  # type: ignore[index]


# Trying again.


def test_headers_say_when_to_try_again_and_whether() -> None:
    later = {"retry-after": "2", "retry-after-ms": "1500", "x-should-retry": "true"}
    assert later == CHAT.headers(RateLimited("x", 1.5))
    assert later | {"request-id": "r"} == MESSAGES.headers(RateLimited("x", 1.5), request_id="r")
    assert {"x-should-retry": "true", "x-request-id": "r"} == RESPONSES.headers(Overloaded("x"), request_id="r")
    for error in (Conflict("x"), QUOTA, Unauthorized("x")):
        assert {"x-should-retry": "false"} == CHAT.headers(error)
    assert [{}] * 3 == [CHAT.headers(Forbidden("x")), CHAT.headers(UpstreamError("x")), CHAT.headers(TooLarge(1))]
    upstream = UpstreamError("x", upstream=429, retryable=True, retry_after=0.0004)
    assert {"retry-after": "1", "retry-after-ms": "1", "x-should-retry": "true"} == CHAT.headers(upstream)
    assert {"x-should-retry": "true"} == CHAT.headers(RateLimited("x", float("inf")))


@pytest.mark.parametrize(
    ("error", "times"),
    [
        (RateLimited("x", 0.001), 2),
        (Overloaded("x", 0.001), 2),
        (BackendDown("x", retry_after=0.001), 2),
        (Conflict("x"), 1),
        (QUOTA, 1),
        (Unauthorized("x"), 1),
        (Forbidden("x"), 1),
    ],
    ids=lambda value: type(value).__name__,
)
@pytest.mark.parametrize("api", [CHAT, RESPONSES, MESSAGES], ids=["chat", "responses", "messages"])
def test_the_sdks_try_again_when_they_are_told_to_and_only_then(
    server: Loopback, first: openai.OpenAI, second: anthropic.Anthropic, api: Any, error: TurnscriptError, times: int
) -> None:
    client = second if api is MESSAGES else first
    serve(server, api, error)
    before = len(server.asked)
    with pytest.raises((openai.APIStatusError, anthropic.APIStatusError)):
        ask(client.with_options(max_retries=1), api)
    assert times == len(server.asked) - before


# What a backend said.


@pytest.mark.parametrize(
    ("error", "status", "code"),
    [
        (UpstreamError("x", upstream=402), 429, "insufficient_quota"),
        (UpstreamError("x", upstream=429, body='{"error":{"type": "insufficient_quota"}}'), 429, "insufficient_quota"),
        (
            UpstreamError("x", upstream=429, body='{"error":{"message":"no insufficient_quota"}}'),
            429,
            "rate_limit_exceeded",
        ),
        (UpstreamError("x", upstream=500, body='{"code":"insufficient_quota"}'), 502, None),
        (UpstreamError("x", upstream=401), 502, None),
    ],
)
def test_an_empty_account_at_a_backend_is_told_as_that(error: UpstreamError, status: int, code: str | None) -> None:
    found, body = CHAT.render_error(error)
    assert (status, code) == (found, json.loads(body)["error"]["code"])


@pytest.mark.parametrize("api", [CHAT, RESPONSES, MESSAGES], ids=["chat", "responses", "messages"])
def test_an_empty_account_stays_one_through_two_servers(api: Any) -> None:
    with pytest.raises(UpstreamError) as caught:
        api.parse_response(api.render_error(QUOTA)[1])
    assert not caught.value.retryable
    assert api.render_error(QUOTA)[0] == api.render_error(caught.value)[0]
    assert {"x-should-retry": "false"} == api.headers(caught.value)
