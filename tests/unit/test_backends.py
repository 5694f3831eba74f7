"""Owns what is asked of model servers, and what they say of themselves and of requests that they refuse."""

from __future__ import annotations

import json
from typing import Any

import pytest
from msgspec import Raw

from turnscript.backends.backend import Backend, Completion, Facts, HttpCall, Piece
from turnscript.convert import registry
from turnscript.core.error_kinds import fault_of
from turnscript.core.errors import UnknownName, Unsupported, UpstreamError

ALL = [registry.get_backend(name) for name in registry.backends()]
COMPLETIONS, LLAMA, AI00 = (registry.get_backend(name) for name in ("completions", "llamacpp", "ai00"))
EACH = pytest.mark.parametrize("backend", ALL, ids=registry.backends())


def body(call: HttpCall) -> dict[str, Any]:
    """The members of a request."""
    found = json.loads(call.body or b"")
    assert isinstance(found, dict)
    return found


def ask(prompt: Any = "Hi", max_tokens: int = 5, **more: Any) -> Completion:
    return Completion(prompt=prompt, max_tokens=max_tokens, **more)


def test_the_registry_knows_three_backends_and_offers_the_nearest_name() -> None:
    assert {"ai00", "completions", "llamacpp"} <= set(registry.backends())
    with pytest.raises(UnknownName, match="did you mean 'llamacpp'"):
        registry.get_backend("llama-cpp")


@EACH
def test_a_limit_of_one_at_least_and_the_stops_are_always_sent(backend: Backend) -> None:
    """Q8, Q10, Q15: 0 and none mean different things to servers, and an empty stop string ends at once. An empty list
    is what ai00 needs to have none, and what `transformers serve` fails at."""
    limit = "n_predict" if backend is LLAMA else "max_tokens"
    for tokens in (0, -1, 1):
        assert 1 == body(backend.call(ask(max_tokens=tokens)))[limit]
    assert body(backend.call(ask())).get("stop") == (None if backend is COMPLETIONS else [])
    assert ["a"] == body(backend.call(ask(stops=["", "a", ""])))["stop"]


@EACH
def test_a_setting_that_was_not_said_is_not_sent(backend: Backend) -> None:
    plain = body(backend.call(ask(sampling={"temperature": None, "nobody_knows": 1, "metadata": {}})))
    assert body(backend.call(ask())) == plain


@EACH
def test_a_deployment_may_add_drop_and_know_more(backend: Backend) -> None:
    other = backend.configured(extra={"stop": ["x"], "lora": 1}, drop={"stream"}, also={"min_p"})
    assert type(backend) is type(other)
    sent = other.call(ask(sampling={"min_p": 0.1, "temperature": 1}))
    members = body(sent)
    assert (["x"], 1) == (members["stop"], members["lora"])
    assert "stream" not in members
    assert b'"min_p":0.1' in (sent.body or b"")
    assert "lora" not in body(backend.call(ask()))


@EACH
def test_a_lone_surrogate_does_not_stop_a_request(backend: Backend) -> None:
    assert "a\ufffdb😀" == body(backend.call(ask("a\ud800b😀", stops=["\udfff"])))["prompt"]


@EACH
@pytest.mark.parametrize("member", ["suffix", "state", "grammar", "schema", "echo"])
def test_what_a_server_cannot_do_is_refused_and_not_left_out(backend: Backend, member: str) -> None:
    can = {
        "grammar": bool(backend.grammars),
        "schema": backend is LLAMA,
        "suffix": backend.fills,
        "echo": backend is COMPLETIONS,
    }
    said: dict[str, Any] = {member: {"echo": True, "schema": Raw(b"{}")}.get(member, "some text")}
    asked = ask(**said)
    if can.get(member):
        assert body(backend.call(asked)) != body(backend.call(ask()))
    else:
        with pytest.raises(Unsupported, match=member):
            backend.call(asked)


@EACH
def test_tokens_before_a_text_are_sent_or_refused_and_ids_alone_stay_as_they_are(backend: Backend) -> None:
    if backend.prepends:
        assert [0, 5, "Hi"] == body(backend.call(ask(before=(0, 5))))["prompt"]
        assert [7, 8] == body(backend.call(ask([7, 8], before=(0,))))["prompt"]
        with pytest.raises(Unsupported, match="pictures"):
            backend.call(ask(before=(0,), media=["aGk="]))
    else:
        with pytest.raises(Unsupported, match="token"):
            backend.call(ask(before=(0,)))
    bare = backend.bare_tokens_call("Hi")
    assert (backend is COMPLETIONS) == (bare is not None)
    assert bare is None or {"prompt": "Hi", "add_special_tokens": False} == body(bare)


def test_completions_send_only_what_every_server_knows() -> None:
    """Some servers answer 422 to any other member."""
    sampling = {"temperature": 0.5, "top_p": 0.9, "top_k": 4, "seed": 1, "presence_penalty": 1, "logit_bias": {}}
    call = COMPLETIONS.call(ask(model="m", sampling=sampling, slot=1, visible=["<|x|>"]))
    assert ("POST", "/completions") == (call.method, call.path)
    assert {
        "prompt": "Hi",
        "max_tokens": 5,
        "stream": True,
        "temperature": 0.5,
        "top_p": 0.9,
        "seed": 1,
        "presence_penalty": 1,
        "model": "m",
        "stream_options": {"include_usage": True},
    } == body(call)
    assert "stream_options" not in body(COMPLETIONS.call(ask(stream=False)))
    assert 3 == body(COMPLETIONS.call(ask(sampling={"logprobs": True, "top_logprobs": 3})))["logprobs"]
    assert [1, 2] == body(COMPLETIONS.call(ask([1, 2])))["prompt"]
    assert True is body(COMPLETIONS.call(ask(echo=True)))["echo"]


def test_llamacpp_is_asked_for_its_slot_its_control_tokens_and_only_what_is_read() -> None:
    call = LLAMA.call(ask([1, 2], slot=0, visible=("<|x|>",), grammar='root ::= "a"', sampling={"logprobs": True}))
    members = body(call)
    assert ("POST", "/completion") == (call.method, call.path)
    assert "prompt" not in members.pop("response_fields")
    assert {
        "prompt": [1, 2],
        "n_predict": 5,
        "stop": [],
        "stream": True,
        "cache_prompt": True,
        "return_progress": True,
        "id_slot": 0,
        "preserved_tokens": ["<|x|>"],
        "grammar": 'root ::= "a"',
        "n_probs": 10,
    } == members
    assert "return_progress" not in body(LLAMA.call(ask(stream=False)))


def test_llamacpp_tokens_are_those_of_a_prompt_or_of_content() -> None:
    prompt, plain = LLAMA.tokens_call("a<|x|>"), LLAMA.tokens_call("a<|x|>", plain=True)
    assert prompt is not None
    assert plain is not None
    assert {"content": "a<|x|>", "add_special": True, "parse_special": True} == body(prompt)
    assert {"content": "a<|x|>", "add_special": False, "parse_special": False} == body(plain)
    assert [1, 2] == LLAMA.read_tokens(b'{"tokens":[1,{"id":2,"piece":"x"}]}')
    for bad in (b"", b"{}", b'{"tokens":["x"]}', b"[" * 5000):
        with pytest.raises(UpstreamError, match="sent no tokens"):
            LLAMA.read_tokens(bad)
    assert AI00.tokens_call("a") is None
    with pytest.raises(UpstreamError, match="no tokenizer"):
        AI00.read_tokens(b"{}")


def test_only_who_is_known_to_have_a_tokenizer_is_asked_for_tokens() -> None:
    call = COMPLETIONS.tokens_call("a<|x|>")
    assert call is not None
    assert ("POST", "/../tokenize", {"prompt": "a<|x|>"}) == (call.method, call.path, body(call))
    assert COMPLETIONS.tokens_call("a<|x|>", plain=True) is None  # it would be the same
    assert [1, 2] == COMPLETIONS.read_tokens(b'{"count":2,"max_model_len":64,"tokens":[1,2],"token_strs":null}')
    for bad in (b"", b"{}", b'{"tokens":["x"]}', b"[" * 5000):
        with pytest.raises(UpstreamError, match="sent no tokens"):
            COMPLETIONS.read_tokens(bad)
    owners = ("vllm", "sglang", "openai", None)
    assert [True, True, False, False] == [COMPLETIONS.counts(Facts(owner=owner)) for owner in owners]
    assert [True, False] == [backend.counts(Facts()) for backend in (LLAMA, AI00)]


def test_ai00_takes_settings_in_a_sampler_and_a_grammar_and_a_state_by_other_names() -> None:
    state = "00000000-0000-0000-0000-00000000000a"
    sampling = {"temperature": 0.7, "top_k": 3, "logit_bias": {"11": -1.5}, "seed": 4}
    call = AI00.call(ask(grammar="start ::= 'a';", state=state, sampling=sampling))
    assert ("POST", "/completions") == (call.method, call.path)
    assert {
        "prompt": "Hi",
        "max_tokens": 5,
        "stop": [],
        "stream": True,
        "bias": {"11": -1.5},
        "sampler": {"type": "Nucleus", "temperature": 0.7, "top_k": 3},
        "bnf_schema": "start ::= 'a';",
        "state": state,
    } == body(call)
    greedy = body(AI00.call(ask(sampling={"temperature": 0, "top_k": 50})))["sampler"]
    assert {"type": "Nucleus", "temperature": 1, "top_k": 1} == greedy
    for odd in ({"state": "my state"}, {"prompt": [1, 2]}):
        with pytest.raises(Unsupported):
            AI00.call(ask(**odd))


# What servers say of themselves.


@EACH
@pytest.mark.parametrize("said", [b"", b"null", b"[]", b"{", b'{"data":null}', b'{"data":[3]}', b"[" * 5000])
def test_facts_that_are_not_understood_are_none(backend: Backend, said: bytes) -> None:
    count = len(backend.facts_calls())
    assert count > 0
    assert Facts() == backend.read_facts([said] * count)


@pytest.mark.parametrize("number", [0, -1])
def test_a_context_and_slots_that_there_are_not_are_not_known(number: int) -> None:
    """A router of llama.cpp says that its context is 0: no prompt would fit."""
    said = {"default_generation_settings": {"n_ctx": number}, "total_slots": number}
    assert Facts() == LLAMA.read_facts([json.dumps(said).encode(), b""])
    for card in ({"max_model_len": number}, {"meta": {"n_ctx": number}}):
        assert Facts() == COMPLETIONS.read_facts([json.dumps({"data": [card]}).encode(), b""])
    both = {"data": [{"max_model_len": number, "meta": {"n_ctx": 64}}]}
    assert Facts(context=64) == COMPLETIONS.read_facts([json.dumps(both).encode(), b""])


def test_facts_are_read_where_servers_say_them() -> None:
    models = b'{"object":"list","data":[{"id":"m","object":"model","max_model_len":8192}]}'
    assert Facts(context=8192, model="m", asked_as="m") == COMPLETIONS.read_facts([models, b""])
    assert Facts(owner="vllm") == COMPLETIONS.read_facts([b'{"data":[{"object":"model","owned_by":"vllm"}]}', b"{}"])
    assert Facts(context=64, model="m", asked_as="m") == COMPLETIONS.read_facts(
        [b'{"data":[{"id":"m","meta":{"n_ctx":64}}]}', b""]
    )
    assert Facts(model="RWKV") == AI00.read_facts([b'{"data":[{"object":"models","id":"RWKV"}]}'])
    props = (
        b'{"default_generation_settings":{"n_ctx":64},"total_slots":2,"model_path":"C:\\\\m\\\\x.gguf","eos_token":"E"}'
    )
    told = Facts(context=64, slots=2, model="x.gguf", end_token="E", file="C:\\m\\x.gguf")
    assert told == LLAMA.read_facts([props, b""])
    params = b'"params":{"temperature":0.800000011920929,"top_p":1,"presence_penalty":null},'
    sampled = LLAMA.read_facts([props.replace(b'"n_ctx"', params + b'"n_ctx"'), b""]).sampling
    assert {"temperature": 0.8, "top_p": 1} == sampled
    assert True is LLAMA.read_facts([props, b'{"tokens":[{"id":1,"piece":"B"}]}']).adds_bos
    assert False is LLAMA.read_facts([props, b'{"tokens":[]}']).adds_bos


# What servers refuse.

REFUSALS = [
    (422, b'{"detail":[{"loc":["body","top_k"],"msg":"extra"}]}', '"loc"', "bad_request"),
    (400, b'{"detail":"no such model"}', "no such model", "bad_request"),
    (400, b'{"object":"error","message":"too hot","type":"BadRequestError","code":400}', "too hot", "bad_request"),
    (401, b'{"error":{"message":"bad key"}}', "check the key", "server"),
    (404, b"<html>nginx</html>", "check the path", "server"),
    (429, b'{"error":"slow down"}', "slow down", "rate_limited"),
    (500, b"Internal Server Error", "Internal Server Error", "server"),
    (503, b'{"error":{"code":503,"message":"Loading model","type":"unavailable_error"}}', "Loading", "overloaded"),
    (307, b"", "answers 307", "server"),
    (400, b'{"error":{"message":"maximum context length is 10 tokens. However, you requested 20"}}', "10", "overflow"),
    (400, b"\xff\xfe{", "answers 400", "bad_request"),
]


@EACH
@pytest.mark.parametrize(("status", "said", "shown", "kind"), REFUSALS)
def test_a_refusal_says_what_the_server_said(backend: Backend, status: int, said: bytes, shown: str, kind: str) -> None:
    error = backend.read_error(status, said)
    assert shown in str(error)
    assert (status, kind) == (error.upstream, fault_of(error).kind)
    assert (status in (429, 500, 503)) == error.retryable


@pytest.mark.parametrize(
    ("status", "said"),
    [
        (404, b'{"error":{"message":"model \'\' not found","type":"api_error"}}'),
        (404, b'{"object":"error","message":"The model `x` does not exist.","type":"NotFoundError","code":404}'),
        (404, b'{"error":{"message":"The model `Qwen/Qwen2.5-7B` does not exist.","type":"NotFoundError"}}'),
        (404, b'{"error":"model \'llama3.2:1b\' not found, try pulling it first"}'),
        (400, b'{"error":{"message":"model is required","type":"invalid_request_error"}}'),
        (400, b"missing or invalid 'model' key"),
        (400, b'{"detail":"no such model"}'),
        (422, b'{"detail":[{"type":"missing","loc":["body","model"],"msg":"Field required"}]}'),
    ],
)
def test_a_server_that_asks_which_model_is_meant_is_answered_in_the_configuration(status: int, said: bytes) -> None:
    assert "`upstream_model`" in str(COMPLETIONS.read_error(status, said))


@pytest.mark.parametrize(
    ("status", "said"),
    [
        (400, b'{"error":{"message":"This model\'s maximum context length is 10 tokens. However, you requested 20"}}'),
        (400, b'{"error":"top_k is not supported by the model"}'),
        (400, b'{"error":"the model\'s context is 10 tokens; max_tokens is required"}'),
        (404, b'{"error":"This model has no images. File not found"}'),
        (500, b'{"error":"the model could not be found"}'),
        (404, b'{"detail":"Not Found"}'),
        (404, b"404 page not found"),
    ],
)
def test_other_refusals_say_nothing_of_the_name_of_a_model(status: int, said: bytes) -> None:
    assert "upstream_model" not in str(COMPLETIONS.read_error(status, said))


def test_an_overflow_of_llamacpp_has_both_numbers() -> None:
    message = "request (9001 tokens) exceeds the available context size (1024 tokens), try increasing it"
    said = {"error": {"code": 400, "message": message, "type": "exceed_context_size_error", "n_ctx": 1024}}
    fault = fault_of(LLAMA.read_error(400, json.dumps(said).encode()))
    assert ("overflow", 1024, 9001) == (fault.kind, fault.limit, fault.asked)


def test_what_a_long_page_says_is_shortened() -> None:
    error = COMPLETIONS.read_error(502, b"x" * 100_000)
    assert len(str(error)) < 500
    assert 2000 == len(error.body)


def test_a_piece_that_says_nothing_is_equal_to_none_said() -> None:
    assert Piece() == Piece("", None, None, None, None, None)


def test_of_a_few_names_all_are_told_rather_than_one_that_is_hardly_like_it() -> None:
    known = ["ai00", "completions", "llamacpp"]
    assert "unknown backend 'vllm'; known: ai00, completions, llamacpp" == str(UnknownName("backend", "vllm", known))
    assert "unknown backend 'llama.cpp'; did you mean 'llamacpp'?" == str(UnknownName("backend", "llama.cpp", known))
