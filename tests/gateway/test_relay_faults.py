"""Owns endings of what is passed on: however a server with a chat API fails, no client takes it for a good end."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.gateway.relays import KINDS, Relay, cut, of_kind, relaying, said_text, script
from tests.gateway.scripted import CLOSE, END, HANG, RESET, STREAM, chunk, said, sse
from tests.gateway.stage import APIS, CHATS, Told, body_of, named
from turnscript.apis.api import Api
from turnscript.backends.chats import Chat
from turnscript.convert.registry import api_at
from turnscript.core.error_kinds import fault_of
from turnscript.gateway.config import Timeouts

EACH = pytest.mark.parametrize("api", APIS, ids=named)
BOTH = pytest.mark.parametrize("stream", [True, False], ids=["stream", "whole"])


@pytest.fixture(scope="module", params=KINDS, ids=of_kind)
def relay(request: pytest.FixtureRequest) -> Iterator[Relay]:
    """A gateway before a server of each kind, which is not waited for long."""
    kind: Chat = request.param
    with relaying(kind, timeouts=Timeouts(between=0.25)) as made:
        yield made


def ask(relay: Relay, api: Api, *, stream: bool) -> Told:
    """Ask for an answer."""
    return relay.post(api, body_of(api, stream=stream))


def refused(kind: Chat, word: str, message: str) -> Any:
    """The body of an error as servers of a kind have it."""
    error = {"type": word, "message": message}
    return {"type": "error", "error": error} if kind.name == "messages" else {"error": error | {"code": word}}


REFUSALS: dict[str, tuple[int, str, str, dict[str, str]]] = {
    "no key": (401, "authentication_error", "bad key", {}),
    "too often": (429, "rate_limit_error", "slow down", {"retry_after": "7"}),
    "a failure": (500, "api_error", "out of memory", {}),
    "overloaded": (529, "overloaded_error", "busy", {}),
    "a bad request": (400, "invalid_request_error", "messages: no", {}),
    "too long": (400, "invalid_request_error", "prompt is too long: 210000 tokens > 200000 maximum", {}),
    "too long for OpenAI": (400, "context_length_exceeded", "This model's maximum context length is 8 tokens.", {}),
}


@EACH
@BOTH
@pytest.mark.parametrize("case", REFUSALS)
def test_a_refusal_has_the_status_and_shape_of_the_clients_api(relay: Relay, api: Api, stream: bool, case: str) -> None:
    status, word, message, headers = REFUSALS[case]
    relay.play(said(refused(relay.kind, word, message), status, **headers))
    told = ask(relay, api, stream=stream)
    error = relay.kind.read_error(status, json.dumps(refused(relay.kind, word, message)).encode())
    assert api.render_error(error)[0] == told.status, told.body
    assert (told.error is not None, told.streamed) == (True, False)
    if "retry_after" in headers:
        assert "7" == told.headers["retry-after"]
    if case.startswith("too long"):
        assert "overflow" == fault_of(error).kind  # which each API says in its own words
    else:
        assert message.encode() in told.body


@EACH
def test_a_refusal_that_takes_its_time_has_its_status_in_a_stream_too(relay: Relay, api: Api) -> None:
    relay.play([0.3, *said(refused(relay.kind, "rate_limit_error", "slow down"), 429, retry_after="7")])
    told = ask(relay, api, stream=True)
    assert (429, "7", False) == (told.status, told.headers["retry-after"], told.streamed)


WHOLE: dict[str, Any] = {
    "reset": [RESET],
    "no JSON": said("{oops"),
    "no answer": said({"hello": "there"}),
    "a page": said("<html><body>Bad Gateway</body></html>", media="text/html"),
    "an error in a good answer": said({"error": {"message": "out of memory", "type": "server_error"}}),
    "nothing": [STREAM, END],
    "a stream of nothing": sse("[DONE]"),
    "half": [b'HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 999\r\n\r\n{"id": "a"', CLOSE],
}
"""What comes instead of an answer."""


@EACH
@BOTH
@pytest.mark.parametrize("case", WHOLE)
def test_what_is_no_answer_is_an_error(relay: Relay, api: Api, stream: bool, case: str) -> None:
    relay.play(WHOLE[case])
    told = ask(relay, api, stream=stream)
    assert (True, False) == (told.error is not None, told.streamed), told.body
    assert told.status in (500, 502, 503)


AFTER: dict[str, list[Any]] = {
    "reset": [RESET],
    "closed": [CLOSE],
    "ended": [END],
    "no JSON": [chunk(b"event: content_block_delta\ndata: {oops\n\n"), END],
    "silence": [HANG],
    "an error": [
        chunk(b'event: error\ndata: {"type": "error", "error": {"type": "overloaded_error", "message": "busy"}}\n\n'),
        END,
    ],
}
"""What follows in the middle of a stream."""


@EACH
@pytest.mark.parametrize("case", AFTER)
def test_a_stream_that_breaks_ends_with_an_error(relay: Relay, api: Api, case: str) -> None:
    relay.play(cut(relay.kind, b"Hello", *AFTER[case]))
    told = ask(relay, api, stream=True)
    assert told.streamed
    assert b"Hello" in told.body
    assert told.error is not None
    assert told.end is None
    assert b"[DONE]" not in told.body
    if case == "an error":
        assert b"busy" in told.body


@pytest.mark.parametrize("api", CHATS, ids=named)
def test_a_call_that_breaks_off_is_never_whole(relay: Relay, api: Api) -> None:
    relay.play(cut(relay.kind, b"Paris", RESET))
    told = ask(relay, api, stream=True)
    assert told.error is not None
    assert told.end is None


@EACH
@BOTH
def test_a_limit_is_told_as_one(relay: Relay, api: Api, stream: bool) -> None:
    relay.play(script(relay.kind, said_text("Half"), finish="length"))
    told = ask(relay, api, stream=stream)
    words = {"openai-responses": b"incomplete", "anthropic-messages": b"max_tokens", "gemini": b"MAX_TOKENS"}
    assert words.get(api.name, b'"length"') in told.body


@EACH
def test_a_word_that_nobody_knows_is_no_good_end(api: Api) -> None:
    answer = {"choices": [{"index": 0, "message": {"role": "assistant", "content": "Hm"}, "finish_reason": "tired"}]}
    with relaying(KINDS[0]) as relay:
        relay.play(said(answer))
        told = ask(relay, api, stream=False)
        assert not any(word in told.body for word in (b'"stop"', b'"end_turn"', b'"completed"')), told.body
        relay.play(said(answer | {"choices": [answer["choices"][0] | {"finish_reason": "error"}]}))
        assert ask(relay, api, stream=False).error is not None


@pytest.mark.parametrize("api", CHATS, ids=named)
@BOTH
def test_the_server_is_left_when_the_client_goes(api: Api, stream: bool) -> None:
    for kind in KINDS:
        with relaying(kind) as relay:
            relay.play(cut(kind, b"Hello", HANG) if stream else [0.1, HANG])
            request = relay.client.build_request("POST", api.endpoint, content=body_of(api, stream=stream))
            if stream:
                response = relay.client.send(request, stream=True)
                next(response.iter_bytes())
                response.close()
            else:
                with pytest.raises(Exception, match="timed out"):
                    relay.client.post(api.endpoint, content=body_of(api, stream=False), timeout=0.5)
            at = [number for number, one in enumerate(relay.server.asked) if one.line.startswith("POST")][-1]
            relay.thread.run(relay.server.until_gone(at))


def test_another_server_is_asked_where_one_is_down() -> None:
    kind = KINDS[0]
    with relaying(kind) as one, relaying(kind, more=(f"{one.server.url}/v1",)) as two:
        two.play(said({"error": {"message": "loading"}}, 503))
        one.play(script(kind, said_text("I am well.")))
        told = [two.post(api, body_of(api, stream=True)).text for api in CHATS]
        assert ["I am well."] * len(CHATS) == told


def test_a_server_that_answers_in_the_other_way_is_understood(relay: Relay) -> None:
    """Some stream though they were not asked to, and the other way round."""
    api = api_at(relay.kind.endpoint)
    for asked in (True, False):
        other = body_of(api, stream=not asked)

        def play(came: Any, other: bytes = other) -> Any:
            came.body = other
            return script(relay.kind, said_text("Hello"))(came)

        relay.play(play)
        for client in CHATS:
            assert "Hello" == ask(relay, client, stream=asked).text
