"""Owns what vLLM was seen to say, as version 0.32 says it, before a gateway: what differs from others that speak so.

Its list of models says `"owned_by": "vllm"`, and its `/tokenize`, which is above `/v1`, has the tokens of a prompt. It
refuses more than four stop strings, a `top_p` of 0, and more tokens than its context has at all; any other number of
tokens it makes as small as there is room for. With stop strings the tokens that it tells are ahead of its text.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import httpx2
import pytest

import turnscript as ts
from tests.gateway.running import Running
from tests.gateway.scripted import Asked, Script, said, sse
from tests.gateway.stage import CHATS, FORMAT, NO_TLS, Threaded, Told, body_of, named
from turnscript.apis.api import Api
from turnscript.backends.shared.server_errors import refusal
from turnscript.convert.registry import get_api
from turnscript.core.error_kinds import fault_of, room_said
from turnscript.core.errors import UpstreamError
from turnscript.core.json_text import json_of
from turnscript.gateway.config import Config

CHAT, MESSAGES, TEXT = (get_api(name) for name in ("openai-chat", "anthropic-messages", "openai-completions"))
CONTEXT = 2000
BOS = "<|begin_of_text|>"
EACH = pytest.mark.parametrize("api", CHATS, ids=named)
BOTH = pytest.mark.parametrize("stream", [False, True])


class Server:
    """A token is a word. `owner`: whom its list of models names; `counts`: whether it can be asked;
    `adds_bos`: whether it puts a token before each prompt."""

    def __init__(self, owner: str = "vllm", *, counts: bool = True, adds_bos: bool = False) -> None:
        self.owner, self.counts, self.adds_bos = owner, counts, adds_bos
        self.chunks = [chunk("Hello")]
        self.context = CONTEXT
        self.asks: list[Asked] = []

    def sent(self, path: str) -> list[Any]:
        """What it was sent at a path."""
        return [asked.json for asked in self.asks if asked.line == f"POST {path}" and asked.json["prompt"]]

    def __call__(self, asked: Asked) -> Script:
        self.asks.append(asked)
        if asked.line.endswith("/models"):
            card = {"id": "org/model", "object": "model", "owned_by": self.owner, "max_model_len": self.context}
            return said({"object": "list", "data": [card]})
        if asked.line.endswith("/tokenize"):
            if not self.counts:
                return said({"detail": "Not Found"}, status=404)
            tokens = [BOS] * asked.json.get("add_special_tokens", self.adds_bos) + asked.json["prompt"].split()
            shown = tokens if asked.json.get("return_token_strs") else None
            return said({"count": len(tokens), "tokens": list(range(len(tokens))), "token_strs": shown})
        wrong = refused(asked.json, words(asked))
        return (
            said({"error": {"message": wrong, "type": "BadRequestError", "code": 400}}, 400)
            if wrong
            else self._answer(words(asked))
        )

    def _answer(self, tokens: int) -> Script:
        """Counts come behind it, in a chunk without choices."""
        made = len(self.chunks)
        usage = {"prompt_tokens": tokens, "total_tokens": tokens + made, "completion_tokens": made}
        counted = {
            "object": "text_completion",
            "choices": [],
            "usage": usage | {"prompt_tokens_details": {"cached_tokens": 1}},
        }
        return sse(*self.chunks, chunk("", "stop"), counted, "[DONE]")


def words(asked: Asked) -> int:
    return len(asked.json["prompt"].split())


def refused(body: dict[str, Any], tokens: int) -> str:
    """Why a request is refused, in its words; empty if it is not."""
    most = body["max_tokens"]
    if len(body.get("stop", ())) > 4:
        return "1 validation error:\n  {'type': 'too_long', 'msg': 'List should have at most 4 items after validation'}"
    if body.get("top_p") == 0:
        return "top_p must be in (0, 1], got 0.0. (parameter=top_p, value=0.0)"
    if most > CONTEXT:
        return f"max_tokens={most} cannot be greater than max_model_len={CONTEXT}. Please request fewer output tokens."
    if tokens > CONTEXT:
        return FULL.replace("9000", str(tokens)).replace("4096", str(CONTEXT))
    return NO_ROOM if tokens == CONTEXT else ""


FULL = (
    "This model's maximum context length is 4096 tokens. However, your prompt contains 9000 input tokens, which "
    "exceeds this limit even without any output tokens. Please reduce the length of the input prompt."
)
LONGER = (
    "This model's maximum context length is 4096 tokens. However, your prompt contains 900000 characters (more than "
    "196608 characters, which is the upper bound for 4096 input tokens). Please reduce the length of the input prompt."
)
NO_ROOM = "max_tokens must be at least 1, got 0. (parameter=max_tokens, value=0)"


def chunk(text: str, finish: str | None = None, **more: Any) -> dict[str, Any]:
    choice = {"index": 0, "text": text, "logprobs": None, "finish_reason": finish, "stop_reason": None}
    return {"id": "cmpl-1", "object": "text_completion", "choices": [choice | {"token_ids": None} | more]}


class Before:
    """A gateway before such a server."""

    def __init__(self, server: Server, running: Running) -> None:
        self.server, self.running, self.url = server, running, running.url

    def post(self, api: Api, body: bytes, path: str = "") -> Told:
        self.server.asks.clear()
        found = httpx2.post(f"{self.url}{api.endpoint}{path}", content=body, verify=NO_TLS, timeout=20)
        return Told(api, found.status_code, dict(found.headers), found.content)

    def ask(self, api: Api, *, stream: bool, **more: Any) -> Told:
        return self.post(api, body_of(api, stream=stream, **more))


@contextmanager
def gateway(server: Server, format_: str = FORMAT, **settings: Any) -> Iterator[Before]:
    with ExitStack() as stack:
        model = stack.enter_context(stack.enter_context(Threaded()).server(server))
        config = Config.for_backend(f"{model.url}/v1", format_, kind="completions", **settings)
        yield Before(server, stack.enter_context(Running(config)))


@pytest.fixture
def before() -> Iterator[Before]:
    with gateway(Server()) as made:
        yield made


# Tokens.


@EACH
@BOTH
def test_a_prompt_that_fits_by_the_servers_own_count_is_answered(before: Before, api: Api, stream: bool) -> None:
    """By the number of its characters it would not fit."""
    assert "Hello" == before.ask(api, stream=stream, text="considerably " * 1500, limit=8).text
    (counted,), (sent,) = before.server.sent("/tokenize"), before.server.sent("/v1/completions")
    assert {"prompt": sent["prompt"]} == counted


@EACH
def test_a_prompt_that_does_not_fit_is_refused_with_the_servers_own_count(before: Before, api: Api) -> None:
    told = before.ask(api, stream=False, text="word " * 2100)
    assert ("overflow", 400) == (told.error and fault_of(told.error).kind, told.status)
    assert 2100 < len(before.server.sent("/tokenize")[0]["prompt"].split()) < 2200
    assert [] == before.server.sent("/v1/completions")


def test_a_count_is_exact(before: Before) -> None:
    told = before.post(MESSAGES, body_of(MESSAGES, stream=False, text="one two three " * 10), "/count_tokens")
    (counted,) = before.server.sent("/tokenize")
    assert {"input_tokens": len(counted["prompt"].split())} == told.json
    assert "exact" == told.headers["x-turnscript-token-count"]


@pytest.mark.parametrize("server", [Server(counts=False), Server("somebody"), Server("somebody", counts=False)])
def test_where_nobody_can_be_asked_tokens_are_estimated(server: Server) -> None:
    """A proxy may pass on `/v1` alone. Who is not known to count, or was asked in vain, is sent no prompt."""
    with gateway(server) as before:
        told = before.post(MESSAGES, body_of(MESSAGES, stream=False, text="one two three"), "/count_tokens")
        assert (200, "estimated") == (told.status, told.headers["x-turnscript-token-count"])
        assert [] == server.sent("/tokenize")
        assert "Hello" == before.ask(MESSAGES, stream=True).text


@pytest.mark.parametrize("format_", ["batuta-llama3", "openchatml"])
@pytest.mark.parametrize("adds_bos", [False, True])
def test_the_first_token_is_written_once(adds_bos: bool, format_: str) -> None:
    """Where the server puts it before each prompt, the format does not. OpenChatML has none of its own."""
    with gateway(Server(adds_bos=adds_bos), format_) as before:
        assert "Hello" == before.ask(CHAT, stream=True).text
        sent = before.server.sent("/v1/completions")[0]["prompt"]
        assert (not adds_bos and format_ != "openchatml") == sent.startswith(BOS)
        assert "[BOS]" not in sent


def test_a_server_that_is_told_to_put_nothing_before_a_prompt_counts_so_too() -> None:
    extra = {"add_special_tokens": False}
    with gateway(Server(adds_bos=True), "batuta-llama3", extra=extra) as before:
        told = before.post(MESSAGES, body_of(MESSAGES, stream=False), "/count_tokens")
        (counted,) = before.server.sent("/tokenize")
        assert counted["prompt"].startswith(BOS)
        assert {"input_tokens": len(counted["prompt"].split())} == told.json
        assert "Hello" == before.ask(CHAT, stream=True).text
        assert counted | extra == counted
        assert before.server.sent("/v1/completions")[0]["prompt"] == counted["prompt"]


def test_a_server_that_was_down_and_is_another_one_now_is_asked_what_it_is(before: Before) -> None:
    """It had been forgotten, and nobody asked again: the gateway went on as before it was down."""
    assert "Hello" == before.ask(CHAT, stream=True).text
    served = before.running.service.models()[0]
    (member,) = served.pool.members
    for _ in range(2):
        served.pool.note_failure(member, UpstreamError("gone", retryable=True))
    assert not member.healthy
    before.server.context = 500
    before.running.run(served.pool.check())
    assert (True, 500) == (member.healthy, served.context)
    told = before.ask(CHAT, stream=False, text="considerably " * 400, limit=8)
    assert "Hello" == told.text, "and it is asked how many tokens a prompt has, as before"


# What it refuses.


@BOTH
def test_it_is_told_of_four_stop_strings_and_the_gateway_finds_the_others(stream: bool) -> None:
    with gateway(Server(), "batuta-chatml") as before:
        told_of_four(before, stream)


def told_of_four(before: Before, stream: bool) -> None:
    before.server.chunks = list(map(chunk, ["one ", "two ", "six ", "seven"]))
    stops = ["three", "four", "five", "eight", "six", "nine"]
    told = before.post(TEXT, json.dumps({"prompt": "Count", "stop": stops, "stream": stream}).encode())
    assert ("one two ", "stop") == (told.text, told.end and told.end.finish_reason)
    assert [stops[:4]] == [sent["stop"] for sent in before.server.sent("/v1/completions")]


def test_a_share_of_nothing_is_the_smallest_that_there_is(before: Before) -> None:
    told = before.ask(CHAT, stream=False, top_p=0)
    assert ("Hello", "0") == (told.text, told.headers["x-turnscript-losses"])
    assert 0 < before.server.sent("/v1/completions")[0]["top_p"] < 1e-3


@EACH
@BOTH
def test_more_tokens_than_there_ever_are_become_as_many_as_there_are(api: Api, stream: bool) -> None:
    """Somebody who says more of the context than is true, or a proxy that does not say it at all."""
    with gateway(Server("somebody"), context=100_000) as before:
        assert "Hello" == before.ask(api, stream=stream, limit=50_000).text
        first, second = [sent["max_tokens"] for sent in before.server.sent("/v1/completions")]
    assert 50_000 == first
    assert CONTEXT - 100 < second < CONTEXT  # which has to hold the prompt, too


@EACH
@BOTH
@pytest.mark.parametrize("over", [0, 100])
def test_a_prompt_that_leaves_no_room_is_one_that_does_not_fit(api: Api, stream: bool, over: int) -> None:
    """One that fills the context to the last token is refused for the answer's length, which nobody made 0."""
    with gateway(Server("somebody"), context=100_000) as before:
        own = before.server.sent("/v1/completions")[0] if before.ask(api, stream=False, limit=8).text else {}
        told = before.ask(api, stream=stream, text="a " * (CONTEXT + over - len(own["prompt"].split()) + 1), limit=8)
        assert 1 == len(before.server.sent("/v1/completions"))
        assert told.error is not None
        assert "overflow" == fault_of(told.error).kind


@pytest.mark.parametrize("message", [FULL, FULL.replace("contains", "contains at least"), LONGER, NO_ROOM])
def test_its_words_for_too_much_are_those_that_clients_shorten_for(message: str) -> None:
    error = refusal(400, json.dumps({"error": {"message": message, "type": "BadRequestError", "code": 400}}).encode())
    fault = fault_of(error)
    known = 9000 if "input tokens, which" in message else None
    assert ("overflow", known, None if message == NO_ROOM else 4096) == (fault.kind, fault.asked, fault.limit)
    assert room_said(error, 64) is None
    assert b"prompt is too long" in MESSAGES.render_error(error)[1]
    assert b'"context_length_exceeded"' in CHAT.render_error(error)[1]


# Log probabilities.


def test_a_character_of_several_tokens_is_that_of_the_last_and_the_others_are_empty(before: Before) -> None:
    """One that never became a character has no text of its own, and nothing is lost of what comes behind it, though
    the first bytes of the next one are told already: the text is behind the tokens, for a stop string may begin."""
    tokens = ["So", "", "", "\U0001f600", "", " end", ""]
    lists = [
        {"tokens": [token], "token_logprobs": [-0.5], "top_logprobs": [{token: -0.5}], "text_offset": [0]}
        for token in tokens
    ]
    texts = ["S", "", "", "o", "\U0001f600", "", "\ufffd end"]
    chunks = [chunk(text, logprobs=one) for text, one in zip(texts, lists, strict=True)]
    before.server.chunks = chunks
    told = before.post(TEXT, json.dumps({"prompt": "Say", "logprobs": 1}).encode())
    choice = told.json["choices"][0]
    assert "So\U0001f600\ufffd end" == choice["text"]
    assert tokens[:-1] == choice["logprobs"]["tokens"]


# Grammars.

SHAPE = ts.ResponseFormat("json_schema", name="n", schema=json_of({"type": "object", "properties": {"n": {}}}))


def shaped(api: Api, shape: ts.ResponseFormat = SHAPE) -> bytes:
    """A request for an answer in JSON."""
    request = ts.Request(
        conversation=ts.Conversation(items=[ts.User(content=[ts.Text(text="Go.")])]),
        settings=ts.Settings(model="m", max_tokens=9, response_format=shape),
    )
    return api.render_request(request).data


@EACH
@pytest.mark.parametrize("owner", ["vllm", "sglang", "llamacpp", ""])
def test_an_answer_in_json_is_held_to_a_grammar_by_a_server_that_says_whose_it_is(api: Api, owner: str) -> None:
    """In its own member, and no other server is sent one."""
    with gateway(Server(owner, counts=False)) as before:
        before.server.chunks = [chunk('{"n": 1}')]
        assert '{"n": 1}' == before.post(api, shaped(api)).text
        (sent,) = before.server.sent("/v1/completions")
    found = {"vllm": sent.get("structured_outputs", {}).get("grammar"), "sglang": sent.get("ebnf")}
    assert [owner] * (owner in found) == [name for name, grammar in found.items() if grammar]
    assert all(
        grammar.startswith('root ::= "{" ws ') or "answer-object-1" in grammar for grammar in found.values() if grammar
    )
    assert "grammar" not in sent
