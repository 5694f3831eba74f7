"""Owns log probabilities end to end: what servers tell of their tokens, and what the openai SDK is told."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import httpx2
import openai
import pytest
from msgspec.structs import replace

from tests.gateway.running import Running
from tests.gateway.scripted import Asked, Script, said, sse
from tests.gateway.stage import NO_TLS, Threaded
from tests.gateway.tinygguf import gbnf
from tests.sdks import openai_sdk
from turnscript.gateway.config import Config

FORMAT = "rwkv-goose-hermes"
ASK: Any = [{"role": "user", "content": "Hello"}]
PARAMETERS: Any = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
TOOL: Any = {"type": "function", "function": {"name": "get_weather", "parameters": PARAMETERS}}
FLAT: Any = {"type": "function", "name": "get_weather", "parameters": PARAMETERS, "strict": False}
ASKED: Any = {"logprobs": True, "top_logprobs": 2}
INCLUDE: Any = {"include": ["message.output_text.logprobs"], "top_logprobs": 2}

THOUGHT, TEXT = "Hm é, a lot to think of.", "It is <<\\USER>> 👍, 字 so."
CALL = '\n<tool_call>\n{"name":"get_weather","arguments":{"city":"Oslo"}}\n</tool_call>'
MIXED = f" <think>\n{THOUGHT}\n</think>\n{TEXT}{CALL}"

Piece = tuple[str, list[bytes]]
"""A text that a server sends, and the tokens that it tells with it."""
Wire = Callable[[Sequence[Piece]], Script]


# What servers say.


def number(at: int) -> float:
    """The log probability of a token."""
    return -1.0 - at / 100


def shown(token: bytes) -> str:
    return token.decode("utf-8", "replace")


def entry(token: bytes, at: int) -> dict[str, Any]:
    """A token as llama.cpp tells it, the likeliest one first."""
    likely = [(token, number(at)), (b"x", number(at) - 1), (b"\xf0", number(at) - 2)]
    named = [{"id": hash(one) & 0xFFFF, "token": shown(one), "bytes": list(one), "logprob": lp} for one, lp in likely]
    return named[0] | {"top_logprobs": named}


def entries(pieces: Sequence[Piece]) -> Iterator[tuple[str, list[dict[str, Any]]]]:
    at = 0
    for text, tokens in pieces:
        yield text, [entry(token, at + place) for place, token in enumerate(tokens)]
        at += len(tokens)


def llamacpp(pieces: Sequence[Piece]) -> Script:
    """llama.cpp's own wire."""
    told = [
        {"content": text, "stop": False, "completion_probabilities": tokens} for text, tokens in entries(pieces) if text
    ]
    return sse(*told, {"content": "", "stop": True, "stop_type": "eos"})


def last(finish: str = "stop") -> Any:
    return {"choices": [{"text": "", "index": 0, "finish_reason": finish, "logprobs": None}]}


def chat_form(pieces: Sequence[Piece]) -> Script:
    """llama.cpp's `/v1/completions`."""
    told = [
        {"choices": [{"text": text, "index": 0, "finish_reason": None, "logprobs": {"content": tokens}}]}
        for text, tokens in entries(pieces)
    ]
    return sse(*told, last(), "[DONE]")


def listed(pieces: Sequence[Piece]) -> Iterator[tuple[str, dict[str, Any]]]:
    for text, tokens in entries(pieces):
        lists = {
            "tokens": [one["token"] for one in tokens],
            "token_logprobs": [one["logprob"] for one in tokens],
            "top_logprobs": [{two["token"]: two["logprob"] for two in one["top_logprobs"]} for one in tokens],
            "text_offset": [-1 for _ in tokens],
        }
        yield text, lists


def lists(pieces: Sequence[Piece]) -> Script:
    """vLLM, SGLang and llama-cpp-python."""
    told = [
        {"choices": [{"text": text, "index": 0, "finish_reason": None, "logprobs": one}]}
        for text, one in listed(pieces)
    ]
    return sse(*told, last(), "[DONE]")


def whole_lists(pieces: Sequence[Piece]) -> Script:
    """The same from a server that does not stream."""
    ((text, one),) = listed([("".join([text for text, _ in pieces]), [one for _, more in pieces for one in more])])
    return said({"choices": [{"text": text, "index": 0, "finish_reason": "stop", "logprobs": one}]})


WIRES: dict[str, tuple[str, Wire]] = {
    "llamacpp": ("llamacpp", llamacpp),
    "chat-form": ("completions", chat_form),
    "lists": ("completions", lists),
    "whole-lists": ("completions", whole_lists),
}


def chopped(text: str, size: int) -> list[bytes]:
    """A text in tokens of so many bytes, characters cut in two."""
    data = text.encode()
    return [data[at : at + size] for at in range(0, len(data), size)]


def sent(tokens: Sequence[bytes], *, merged: bool) -> list[Piece]:
    """What a server sends with each token: whole characters. `merged`: it tells no token before its character is."""
    pieces: list[Piece] = []
    rest, waiting = b"", list[bytes]()
    for token in tokens:
        rest += token
        text = rest.decode("utf-8", "ignore")
        whole = len(text.encode()) == len(rest)
        if merged:
            waiting.append(token)
            if whole:
                pieces.append((text, [b"".join(waiting)]))
                waiting, rest = [], b""
        else:
            pieces.append((text, [token]))
            rest = rest[len(text.encode()) :]
    return pieces


# The gateway.


@contextmanager
def client_of(url: str, kind: str, policy: Any = None, format_: str = FORMAT, **wire: Any) -> Iterator[openai.OpenAI]:
    """A client of a gateway before a server. `wire`: how this one differs from the others of its kind."""
    address = f"{url}/v1" if kind == "completions" else url
    config = Config.for_backend(address, format_, kind=kind)
    config = replace(config, policy=replace(config.policy, **(policy or {})))
    with Running(config) as running:
        for member in running.service.models()[0].pool.members:
            member.upstream.backend = member.upstream.backend.configured(**wire)
        with openai_sdk(running.url) as client:
            yield client


@contextmanager
def gateway(kind: str, *scripts: Script, **more: Any) -> Iterator[tuple[openai.OpenAI, list[Asked]]]:
    """The same before one that plays one script after another, and what that was asked."""
    asks: list[Asked] = []
    left = list(scripts)

    def play(asked: Asked) -> Script:
        if asked.line.startswith("GET") or asked.line.endswith("/tokenize"):
            return said({"data": [{"id": "model"}], "tokens": []})
        asks.append(asked)
        return left.pop(0) if len(left) > 1 else left[0]

    with Threaded() as thread, thread.server(play) as server, client_of(server.url, kind, **more) as client:
        yield client, asks


def chat(client: openai.OpenAI, *, stream: bool, **asked: Any) -> tuple[str | None, Any]:
    """The text of an answer, and what is told of its tokens."""
    asked = {"model": "m", "messages": ASK, "tools": [TOOL]} | ASKED | asked
    if not stream:
        choice = client.chat.completions.create(**asked).choices[0]
        return choice.message.content, choice.logprobs and [one.to_dict() for one in choice.logprobs.content or ()]
    with client.chat.completions.stream(**asked) as events:
        told = [one for event in events if event.type == "chunk" for one in event.chunk.choices]
        final = events.get_final_completion().choices[0]
    pieces = [one.to_dict() for choice in told if choice.logprobs for one in choice.logprobs.content or ()]
    content = final.logprobs and [one.to_dict() for one in final.logprobs.content or ()]
    assert pieces == (content or [])
    return final.message.content, content


def responses(client: openai.OpenAI, *, stream: bool, **asked: Any) -> tuple[str | None, Any]:
    """The same of a response."""
    asked = {"model": "m", "input": "Hello", "tools": [FLAT]} | INCLUDE | asked
    if not stream:
        return texts_of(client.responses.create(**asked))
    with client.responses.stream(**asked) as events:
        told = list(events)
        final = events.get_final_response()
    text, tokens = texts_of(final)
    bare = [without_bytes(one) for one in tokens]
    pieces = [event for event in told if event.type == "response.output_text.delta"]
    assert text == "".join([event.delta for event in pieces])
    assert bare == [one.to_dict() for event in pieces for one in event.logprobs]
    ends = [event for event in told if event.type == "response.output_text.done"]
    assert bare == [one.to_dict() for event in ends for one in event.logprobs or ()]
    return text, tokens


def texts_of(response: Any) -> tuple[str, Any]:
    parts = [part for item in response.output if item.type == "message" for part in item.content]
    return "".join([part.text for part in parts]), [one.to_dict() for part in parts for one in part.logprobs]


def without_bytes(token: dict[str, Any]) -> dict[str, Any]:
    others = [{"token": one["token"], "logprob": one["logprob"]} for one in token["top_logprobs"]]
    return {"token": token["token"], "logprob": token["logprob"], "top_logprobs": others}


APIS = {"chat": chat, "responses": responses}
EACH = pytest.mark.parametrize("api", APIS)
BOTH = pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])


def expected(whole: str, tokens: Sequence[bytes], text: str, before: str) -> list[tuple[str, float]]:
    """The tokens that have a byte of the text, and none of the thought before it."""
    data = whole.encode()
    start, end = (place := data.index(text.encode())), place + len(text.encode())
    thought = data.index(before.encode()) + len(before.encode()) if before else -1
    found, at = [], 0
    for index, token in enumerate(tokens):
        if at < end and at + len(token) > start and at >= thought:
            found.append((shown(token), number(index)))
        at += len(token)
    return found


def heads(tokens: Any) -> list[tuple[str, float]]:
    return [(one["token"], one["logprob"]) for one in tokens]


SIZES = (1, 2, 3, 5, 7, 13, 40, 400)


def mixed(size: int, wire: Wire) -> list[Piece]:
    """A thought, a text and a call, in tokens of so many bytes."""
    return sent(chopped(MIXED, size), merged=wire in (llamacpp, chat_form))


@EACH
@BOTH
@pytest.mark.parametrize("wire", WIRES)
def test_the_tokens_of_the_text_are_told_and_no_others(api: str, stream: bool, wire: str) -> None:
    kind, play = WIRES[wire]
    answers = [mixed(size, play) for size in SIZES]
    with gateway(kind, *map(play, answers)) as (client, asks):
        for pieces in answers:
            text, told = APIS[api](client, stream=stream)
            assert TEXT == text
            tokens = [token for _, more in pieces for token in more]
            assert expected(MIXED, tokens, TEXT, THOUGHT) == heads(told or [])
            for one in told or []:
                assert 2 == len(one["top_logprobs"])
                if "\ufffd" not in one["token"]:
                    assert list(one["token"].encode()) == one["bytes"]
    name, count = ("n_probs", 10) if kind == "llamacpp" else ("logprobs", 2)
    assert [count] * len(SIZES) == [asked.json[name] for asked in asks]


def report(client: openai.OpenAI, answer: Any) -> list[tuple[str, str, str]]:
    """The losses that the report of an answer names."""
    url = f"{str(client.base_url).removesuffix('/v1/')}{answer.headers['x-turnscript-report']}"
    told = httpx2.get(url, headers={"authorization": "Bearer k"}, verify=NO_TLS).json()
    return [(one["path"], one["kind"], one["detail"]) for one in told["losses"] if "prob" in one["detail"]]


def plain(text: str, size: int = 3) -> list[Piece]:
    return sent(chopped(text, size), merged=False)


def test_only_what_is_asked_for_is_asked_and_told() -> None:
    with gateway("completions", lists(plain(" Hello you."))) as (client, asks):
        none: list[Any] = [{}, {"logprobs": False, "top_logprobs": 0}]
        for asked in none:
            bare = client.chat.completions.with_raw_response.create(model="m", messages=ASK, **asked)
            assert None is bare.parse().choices[0].logprobs
            assert "logprobs" not in asks[-1].json
            assert [] == report(client, bare)
        _, told = chat(client, stream=False, top_logprobs=openai.omit)
        assert [[]] * 4 == [one["top_logprobs"] for one in told]
        assert 1 == asks[-1].json["logprobs"]
        many = client.chat.completions.with_raw_response.create(model="m", messages=ASK, logprobs=True, top_logprobs=30)
        assert [] == report(client, many)
        assert 20 == asks[-1].json["logprobs"]
        assert "1" == many.headers["x-turnscript-losses"]
        alone = client.chat.completions.with_raw_response.create(model="m", messages=ASK, top_logprobs=3)
        assert None is alone.parse().choices[0].logprobs
        detail = "log probabilities were not asked for"
        assert [("$.top_logprobs", "dropped", detail)] == report(client, alone)


@pytest.mark.parametrize(
    ("kind", "script", "more", "detail"),
    [
        ("ai00", sse({"choices": [{"delta": {"content": " Hi"}}]}, last()), {}, "tells no"),
        ("completions", sse({"choices": [{"text": " Hi"}]}, last(), "[DONE]"), {"drop": ("logprobs",)}, "tells no"),
        ("completions", sse({"choices": [{"text": " Hi"}]}, last(), "[DONE]"), {}, "told no"),
        (
            "completions",
            sse({"choices": [{"text": " Hi", "logprobs": [0.5]}]}, last(), "[DONE]"),
            {},
            "told no",
        ),
    ],
)
def test_a_server_that_has_none_is_a_loss(kind: str, script: Script, more: Any, detail: str) -> None:
    with gateway(kind, script, **more) as (client, _):
        answer = client.chat.completions.with_raw_response.create(model="m", messages=ASK, logprobs=True)
        assert ("Hi", None) == (answer.parse().choices[0].message.content, answer.parse().choices[0].logprobs)
        ((path, loss, said),) = report(client, answer)
        assert ("$.logprobs", "dropped") == (path, loss)
        assert detail in said
        assert 1 <= int(answer.headers["x-turnscript-losses"])
        reply = client.responses.with_raw_response.create(model="m", input="Hello", **INCLUDE)
        assert ("Hi", []) == texts_of(reply.parse())
        assert [] == [told for told in reply.parse().output if told.type != "message"]
        with client.chat.completions.stream(model="m", messages=ASK, logprobs=True) as events:
            assert None is events.get_final_completion().choices[0].logprobs


@BOTH
def test_what_a_stop_string_cuts_off_is_not_told(stream: bool) -> None:
    """The gateway itself looks for the client's strings. A token that begins before one is told as it is."""
    pieces = [(text, [text.encode()]) for text in (" One", " two", "!EN", "D", " three")]
    with gateway("completions", lists(pieces)) as (client, _):
        text, told = chat(client, stream=stream, stop=["END"])
    assert "One two!" == text
    assert [" One", " two", "!EN"] == [one["token"] for one in told]


RETRY: Any = {"policy": {"invalid_calls": "retry"}}


@EACH
@BOTH
def test_a_call_that_is_made_again_leaves_the_tokens_as_they_were(api: str, stream: bool) -> None:
    first = plain(f" Let me see.{CALL.replace('city', 'town')}")
    again = plain(f"{CALL}\n\nUser:")
    with gateway("completions", lists(first), lists(again), **RETRY) as (client, asks):
        text, told = APIS[api](client, stream=stream)
        assert 2 == len(asks)
    assert "Let me see." == text
    assert [" Le", "t m", "e s", "ee."] == [one["token"] for one in told]


@EACH
@BOTH
def test_a_call_that_is_answered_as_text_has_its_tokens(api: str, stream: bool) -> None:
    wrong = CALL.replace("city", "town")
    with gateway("completions", lists(plain(f" So.{wrong}")), policy={"invalid_calls": "text"}) as (client, _):
        text, told = APIS[api](client, stream=stream)
    assert wrong.strip() in (text or "")
    assert wrong.strip() in "".join([one["token"] for one in told])


@EACH
@BOTH
def test_a_call_that_breaks_off_is_text_with_its_tokens(api: str, stream: bool) -> None:
    """It was told as a call already, inside the gateway, before it turned out to be none."""
    half = ' So.\n<tool_call>\n{"name":"get_weather","arguments":{"city":"Os'
    with gateway("completions", lists(plain(half)), policy={"invalid_calls": "text"}) as (client, _):
        text, told = APIS[api](client, stream=stream)
    assert half.strip() == text
    assert text in "".join([one["token"] for one in told])


@EACH
@BOTH
def test_a_thought_that_is_ended_for_the_model_moves_no_token(api: str, stream: bool) -> None:
    long = plain(f">\n{'I wonder whether it goes on. ' * 400}", 29)
    with gateway("completions", lists(long), lists(plain("\nEnough."))) as (client, asks):
        effort = {"reasoning_effort": "low"} if api == "chat" else {"reasoning": {"effort": "low"}}
        text, told = APIS[api](client, stream=stream, **effort)
        assert 2 == len(asks)
    assert "Enough." == text
    assert ["\nEn", "oug", "h."] == [one["token"] for one in told]


def test_a_turn_is_remembered_as_it_was() -> None:
    raw = " It is  so.\n"
    with gateway("completions", lists(plain(raw))) as (client, asks):
        answer = client.chat.completions.create(model="m", messages=ASK, **ASKED).choices[0].message
        more = [*ASK, answer.to_dict(), {"role": "user", "content": "And?"}]
        client.chat.completions.create(model="m", messages=more, **ASKED)
        first, second = (asked.json["prompt"] for asked in asks)
        assert second.startswith(f"{first}{raw.rstrip()}")


def test_an_answer_that_is_kept_has_them() -> None:
    with gateway("completions", lists(plain(" Hello you."))) as (client, _):
        told = client.responses.create(model="m", input="Hello", background=True, **INCLUDE)
        for _ in range(200):
            told = client.responses.retrieve(told.id)
            if told.status == "completed":
                break
            time.sleep(0.01)
        text, tokens = texts_of(told)
    assert "Hello you." == text
    assert [" He", "llo", " yo", "u."] == [one["token"] for one in tokens]


@BOTH
def test_completions_have_lists(stream: bool) -> None:
    with gateway("completions", lists(plain("Hé so.", 2))) as (client, asks):
        asked: Any = {"model": "m", "prompt": "Say", "logprobs": 2, "stream": stream}
        answer = client.completions.create(**asked)
        told = [one.choices[0].logprobs for one in answer] if stream else [answer.choices[0].logprobs]
        found = [one for one in told if one is not None]
    assert ["H\ufffd", "\ufffd ", "so", "."] == [token for one in found for token in one.tokens]
    assert [-1.0, -1.01, -1.02, -1.03] == [value for one in found for value in one.token_logprobs]
    offsets = [offset for one in found for offset in one.text_offset]
    assert sorted(offsets) == offsets
    assert {"so": -1.02, "x": -2.02} == [top for one in found for top in one.top_logprobs][2]
    assert 2 == asks[0].json["logprobs"]


def test_an_answer_of_a_shape_has_them() -> None:
    with gateway("completions", lists(plain(' {"a": 1}'))) as (client, _):
        text, told = chat(client, stream=False, response_format={"type": "json_object"})
    assert '{"a": 1}' == text
    assert [' {"', 'a":', " 1}"] == [one["token"] for one in told]


@BOTH
def test_what_a_server_leaves_out_of_its_text_is_left_out(stream: bool) -> None:
    """The space before a first word, and a control token. One that nobody can find takes no other one with it."""
    pieces = [("Hello", [b" Hello"]), ("", [b"<|x|>"]), (" you", [b" you"]), (", too", [b"+++", b", to", b"o"])]
    with gateway("completions", lists(pieces)) as (client, _):
        answer: Any = client.completions.create(model="m", prompt="Say", logprobs=0, stream=stream)
        told = list(answer) if stream else [answer]
    found = [one.choices[0].logprobs.tokens for one in told if one.choices and one.choices[0].logprobs]
    assert [" Hello", " you", ", to", "o"] == [token for tokens in found for token in tokens]


@BOTH
def test_an_escape_is_no_token_of_the_text(stream: bool) -> None:
    raw = "Tell <<\\USER>> so.\n<<ASSISTANT_END>>\n\n<<USER>>\n"
    with gateway("completions", lists(plain(raw, 1)), format_="rwkv-universal") as (client, _):
        text, told = chat(client, stream=stream)
    assert "Tell <<USER>> so." == text
    assert list(text) == [one["token"] for one in told]


# The real server.

HELD = " One\nline,\n\ntwo é字👍 lines."


@EACH
@BOTH
@pytest.mark.parametrize("kind", ["llamacpp", "completions"])
def test_the_real_server(rwkv: str, api: str, stream: bool, kind: str) -> None:
    """It holds line ends back, because they may begin a stop string, and calls them nothing then."""
    grammar = gbnf(f" <think>\n{THOUGHT}\n</think>{HELD}")
    with client_of(rwkv, kind, extra={"grammar": grammar}) as client:
        text, told = APIS[api](client, stream=stream, temperature=0)
    assert HELD.strip() == text
    whole = "".join([one["token"] for one in told])
    assert text == whole
    assert whole.encode() == b"".join([bytes(one["bytes"]) for one in told])
    assert ["\n", "\n"] == [one["token"] for one in told if "\n" in one["token"]][:2]
    assert all(one["logprob"] < 0 and 2 == len(one["top_logprobs"]) for one in told)
