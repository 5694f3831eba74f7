"""Owns what becomes of a request on its way to the model: its limit, its losses by policy, its encoding, its name."""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import Iterator
from typing import Any

import pytest

from tests.gateway.scripted import END, Asked, Script, said, sse
from tests.gateway.stage import APIS, Stage, Told, answer, body_of, is_refused, named, piece, quiet
from turnscript.apis.api import Api
from turnscript.convert.registry import get_api
from turnscript.core.errors import ContextOverflow, InvalidRequest, NotFound
from turnscript.core.losses import Loss
from turnscript.gateway.config import Sampling
from turnscript.gateway.headers import LOSSES, POLICY, REPORT
from turnscript.gateway.reports import Reported, Reports
from turnscript.gateway.visit import Encoded

EACH = pytest.mark.parametrize("api", APIS, ids=named)
NAMING = pytest.mark.parametrize("api", [api for api in APIS if not api.serving.paths], ids=named)
"""The APIs whose bodies name the model, and no path does."""
BOTH = pytest.mark.parametrize("stream", [True, False], ids=["stream", "whole"])
COUNTED = [api for api in APIS if api.serving.count_path]
CHAT, MESSAGES = get_api("openai-chat"), get_api("anthropic-messages")
TEXT = get_api("openai-completions")
LIMIT = 100
LIMITS = {
    "max_tokens",
    "max_completion_tokens",
    "max_output_tokens",
    "generationConfig",
    "generationConfig.maxOutputTokens",
}
STRICT = {POLICY: "error"}


@pytest.fixture(scope="module")
def stage() -> Iterator[Stage]:
    with Stage(model={"max_tokens_limit": LIMIT, "context": 4000}) as made:
        yield made


@pytest.fixture(autouse=True)
def nothing_goes_wrong(stage: Stage, caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    stage.play(answer("Hello"))
    with quiet(caplog):
        yield


def body_without(api: Api, *names: str, stream: bool = False) -> bytes:
    """A request that does not say some of its members."""
    members = json.loads(body_of(api, stream=stream))
    return json.dumps({name: value for name, value in members.items() if name not in names}).encode()


def limit_of(stage: Stage) -> int:
    """How many tokens the model was asked for."""
    [asked] = stage.asks[0]
    return int(asked.json["max_tokens"])


def losses_of(stage: Stage, told: Told) -> list[tuple[str, str, str]]:
    """What was lost, as the report of an answer lists it."""
    assert 200 == told.status, told.body
    found = stage.client.get(told.headers[REPORT]).json()["losses"]
    assert int(told.headers[LOSSES]) == len(found)
    return [(loss["path"], loss["kind"], loss["detail"]) for loss in found]


# What its server takes.


def test_a_deployment_is_asked_as_it_is_configured() -> None:
    """vLLM, say: it shows special tokens only where a request says so, and it knows `top_k`."""
    api, own = CHAT, {"extra": {"skip_special_tokens": False}, "drop": ("stream_options",), "also": ("top_k",)}
    sampling = Sampling(top_k=7, temperature=0.5)
    for model, expected in ((own, [False, 7, 0.5]), ({}, [None, None, 0.5])):
        with Stage(model={**model, "sampling": sampling}) as stage:
            stage.play(answer("Hello"))
            assert "Hello" == stage.ask(api, stream=True).text
            sent = stage.asks[0][0].json
        assert expected == [sent.get(name) for name in ("skip_special_tokens", "top_k", "temperature")]
        assert ("stream_options" in sent) == (not model)


# Reports.


def test_reports_that_say_much_do_not_fill_the_memory() -> None:
    def report(losses: int) -> Reported:
        return Reported("anna", "m", [Loss("$.a", "dropped", "x")] * losses)

    reports = Reports(most=20, entries=100)
    for number in range(50):
        reports.keep(f"short {number}", report(1))
    assert 20 == len(reports)
    for number in range(10):
        reports.keep(f"long {number}", report(30))
    assert 3 == len(reports)
    reports.keep("longest", report(1000))
    assert 1 == len(reports)
    assert 1000 == len(json.loads(reports.body("longest", "anna"))["losses"])
    reports.keep("last", report(0))
    assert 1 == len(reports)
    with pytest.raises(NotFound):
        reports.body("longest", "anna")


# How long an answer may be.


@EACH
@BOTH
def test_an_answer_whose_request_says_no_limit_has_that_of_its_model(stage: Stage, api: Api, stream: bool) -> None:
    told = stage.post(api, body_without(api, *LIMITS, stream=stream))
    assert LIMIT == limit_of(stage)
    assert [] == losses_of(stage, told)


@EACH
def test_a_limit_of_the_client_beyond_that_of_the_model_is_a_loss_at_its_place(stage: Stage, api: Api) -> None:
    [(path, kind, detail)] = losses_of(stage, stage.ask(api, stream=False, limit=LIMIT + 1))
    assert LIMIT == limit_of(stage)
    assert (path[2:] in LIMITS, "approximated") == (True, kind)
    assert "101 became 100: the model's limit here" == detail


@EACH
def test_what_the_context_leaves_of_the_models_own_limit_is_no_loss(api: Api) -> None:
    with Stage(model={"max_tokens_limit": 4000, "context": 1000}) as stage:
        assert [] == losses_of(stage, stage.post(api, body_without(api, *LIMITS)))
        assert 0 < limit_of(stage) < 1000


def test_a_limit_of_any_length_is_made_to_fit_or_refused() -> None:
    with Stage(model={"context": 4000}) as stage:
        for api in APIS:
            body = body_of(api, stream=False, limit=123456789)
            told = stage.post(api, body.replace(b"123456789", b"9" * 400))
            assert ("Hello", "1") == (told.text, told.headers[LOSSES])
            is_refused(stage.post(api, body.replace(b"123456789", b"-" + b"9" * 400)), InvalidRequest("?", path="?"))


@EACH
def test_no_tokens_at_all_became_one_and_that_is_said(stage: Stage, api: Api) -> None:
    [(path, kind, detail)] = losses_of(stage, stage.ask(api, stream=False, limit=0))
    assert 1 == limit_of(stage)
    assert (path[2:] in LIMITS, "approximated") == (True, kind)
    assert detail.startswith("0 became 1")


@BOTH
def test_a_prompt_in_token_ids_must_fit_too(stage: Stage, stream: bool) -> None:
    def ask(tokens: int) -> Told:
        return stage.post(TEXT, json.dumps({"prompt": [7] * tokens, "max_tokens": 90, "stream": stream}).encode())

    stage.play(sse(piece("Hello"), piece("", "stop"), "[DONE]", end=(END,)))  # by a server that counts nothing
    told = ask(3950)
    assert 50 == limit_of(stage)
    assert [("$.max_tokens", "approximated", "90 became 50: the context holds no more")] == losses_of(stage, told)
    assert stream or 3950 == told.json["usage"]["prompt_tokens"]
    stage.asks[0].clear()
    is_refused(ask(4000), ContextOverflow(4001, 4000))
    assert [] == stage.asks[0]


@pytest.mark.parametrize("suffix", ["", None])
def test_a_hole_with_nothing_behind_it_is_none_where_no_format_fills_one(stage: Stage, suffix: str | None) -> None:
    told = stage.post(TEXT, json.dumps({"prompt": "def f(", "suffix": suffix}).encode())
    assert "Hello" == told.text
    assert "<<USER>>\ndef f(\n<<USER_END>>\n\n<<ASSISTANT>>\n" == stage.asks[0][0].json["prompt"]
    is_refused(stage.post(TEXT, b'{"prompt": "def f(", "suffix": "return"}'), InvalidRequest("?"))


VLLM = "This model's maximum context length is 4000 tokens"
SAID = {
    "vllm": f"'max_tokens' is too large: {{}}. {VLLM} and your request has 3000 input tokens ({{}} > 4000 - 3000).",
    "vllm, before": f"{VLLM}. However, you requested {{}} tokens (3000 in the prompt, {{}} in the completion).",
    "vllm, later": f"{VLLM}. However, you requested {{}} output tokens and your prompt contains at least 3000 input "
    "tokens, for a total of at least {} tokens.",
    "openai": f"{VLLM}, however you requested {{}} tokens (3000 in your prompt; {{}} for the completion).",
    "sglang": "Requested token count exceeds the model's maximum context length of 4000 tokens. You requested a total "
    "of {} tokens: 3000 tokens from the input messages and {} tokens for the completion.",
    "tgi": "Input validation error: `inputs` tokens + `max_new_tokens` must be <= 4000. "
    "Given: 3000 `inputs` tokens and {} `max_new_tokens`",
}


@pytest.mark.deep
@EACH
@BOTH
@pytest.mark.parametrize("server", SAID)
def test_a_server_that_counts_more_tokens_than_were_estimated_is_asked_for_less(
    api: Api, stream: bool, server: str
) -> None:
    """Nobody but it can count, and it refuses an answer that might not fit."""

    def counting(asked: Asked) -> Script:
        most = asked.json["max_tokens"]
        if most <= 1000:
            return answer("Hello")
        return said({"error": {"message": SAID[server].format(most, most)}}, status=422 if server == "tgi" else 400)

    with Stage(model={"context": 4000}) as stage:
        stage.play_by(counting)
        told = stage.post(api, body_without(api, *LIMITS, stream=stream))
        assert "Hello" == told.text
        assert 900 < stage.asks[0][-1].json["max_tokens"] <= 1000
        assert [] == losses_of(stage, told)
        told = stage.ask(api, stream=stream, limit=3500)
        assert "Hello" == told.text
        assert 800 < stage.asks[0][-1].json["max_tokens"] <= 1000
        stage.play(said({"error": {"message": SAID[server].format(1000, 1000)}}, status=400))
        assert stage.ask(api, stream=stream, limit=3500).error is not None
        assert (6 if "at least" in SAID[server] else 2) == len(stage.asks[0])
        stage.play(said({"error": {"message": SAID["vllm"].replace("3000", "4100")}}, status=400))
        told = stage.ask(api, stream=stream)  # whose status is 200 if the stream has begun by then
        assert "maximum context length" in str(told.error)
        assert 1 == len(stage.asks[0])


# What is lost, by policy.


@EACH
@pytest.mark.parametrize("members", [{"limit": 99_999_999}, {"limit": 0}, {"temperature": 3}], ids=str)
def test_a_request_that_loses_in_what_it_asks_for_is_refused_if_it_must_not(
    stage: Stage, api: Api, members: dict[str, Any]
) -> None:
    assert 1 == len(losses_of(stage, stage.ask(api, stream=False, **members)))
    stage.asks[0].clear()
    told = stage.ask(api, stream=False, headers=STRICT, **members)
    assert 400 == told.status
    assert "1 thing would be lost" in str(told.error)
    assert "1" == told.headers[LOSSES]
    assert [] == stage.asks[0]
    assert 200 == stage.ask(api, stream=False, headers=STRICT).status


@pytest.mark.parametrize(
    ("api", "members"),
    [
        (CHAT, {"top_logprobs": 3}),
        (CHAT, {"seed": -1}),
        (CHAT, {"stop": [""]}),
        (MESSAGES, {"stop_sequences": [""]}),
    ],
    ids=["top_logprobs", "seed", "stop", "stop_sequences"],
)
def test_every_loss_of_sampling_is_one_before_the_model_is_asked(
    stage: Stage, api: Api, members: dict[str, Any]
) -> None:
    told = stage.ask(api, stream=True, headers=STRICT, **members)
    assert (400, False) == (told.status, told.streamed)
    assert next(iter(members)) in str(told.error)
    assert [] == stage.asks[0]


@EACH
def test_all_losses_are_listed(stage: Stage, api: Api) -> None:
    told = stage.ask(api, stream=False, headers=STRICT, limit=5000, temperature=3, made_up=1)
    assert "3 things would be lost" in str(told.error)
    for name in ("temperature", "5000 became 100", "made_up"):
        assert name in str(told.error)


@EACH
@pytest.mark.parametrize("said", ["error", "Error", "ERROR"])
def test_a_policy_is_read_in_any_case(stage: Stage, api: Api, said: str) -> None:
    assert 400 == stage.ask(api, stream=False, headers={POLICY: said}, temperature=3).status
    assert 200 == stage.ask(api, stream=False, headers={POLICY: said}).status


@EACH
@pytest.mark.parametrize("said", ["errors", "strict", "", "report, error"])
def test_a_policy_that_is_none_is_a_bad_request_that_names_those_there_are(stage: Stage, api: Api, said: str) -> None:
    told = stage.ask(api, stream=False, headers={POLICY: said})
    is_refused(told, InvalidRequest("?"))
    assert f"{POLICY}: expected ignore, report or error, found {said!r}" in str(told.error)
    assert [] == stage.asks[0]


@EACH
@BOTH
@pytest.mark.parametrize("said", ["report", "Report", "ignore", "IGNORE"])
def test_other_policies_let_a_loss_through_and_tell_of_it_or_do_not(
    stage: Stage, api: Api, stream: bool, said: str
) -> None:
    before = counted_losses(stage)
    told = stage.ask(api, stream=stream, headers={POLICY: said}, temperature=3)
    assert "Hello" == told.text
    losses = stage.client.get(told.headers[REPORT]).json()["losses"]
    reported = int(said.lower() == "report")
    assert [str(reported) if reported else None, reported] == [told.headers.get(LOSSES), len(losses)]
    assert reported == counted_losses(stage) - before


@pytest.mark.parametrize("api", COUNTED, ids=named)
def test_what_a_request_that_is_only_counted_would_lose_is_reported_too(stage: Stage, api: Api) -> None:
    told = stage.client.post(api.serving.count_path, content=body_of(api, stream=False, made_up=1, temperature=3))
    report = stage.client.get(told.headers[REPORT]).json()
    assert ["$.made_up", "$.temperature"] == sorted(loss["path"] for loss in report["losses"])
    assert (told.headers[LOSSES], told.json()["input_tokens"]) == ("2", report["usage"]["input"])


HOSTED: dict[str, dict[str, Any]] = {
    "openai-chat": {"web_search_options": {"search_context_size": "low"}},
    "openai-responses": {"tools": [{"type": "web_search"}]},
    "anthropic-messages": {"mcp_servers": [{"type": "url", "url": "http://m", "name": "m"}]},
}


@pytest.mark.parametrize("name", HOSTED)
def test_a_tool_of_the_vendor_is_one_loss_or_by_policy_a_bad_request_that_names_it(stage: Stage, name: str) -> None:
    api, member = get_api(name), next(iter(HOSTED[name]))
    body = json.dumps(json.loads(body_of(api, stream=False)) | HOSTED[name]).encode()
    [(path, kind, detail)] = losses_of(stage, stage.post(api, body))
    assert (path.partition("[")[0], kind) == (f"$.{member}", "dropped")
    assert "is its vendor's own" in detail
    with Stage(policy={"hosted_tools": "refuse"}) as strict:
        told = strict.post(api, body)
        assert (400, []) == (told.status, strict.asks[0])
        assert path in str(told.error)
        assert 200 == strict.ask(api, stream=True).status


def counted_losses(stage: Stage) -> float:
    """How many losses the metrics have counted."""
    lines = stage.client.get("/metrics").text.splitlines()
    return sum(float(line.rpartition(" ")[2]) for line in lines if line.startswith("turnscript_losses_total"))


CALLED = {"name": "f", "arguments": "{}"}
USED = {"type": "tool_use", "id": "c", "name": "f", "input": {}}
RESULT = {"type": "tool_result", "tool_use_id": "c", "content": "x"}
HISTORIES: dict[str, Any] = {
    "openai-chat": [
        {"role": "user", "content": "Hi", "name": None},
        {"role": "assistant", "content": "I see.", "refusal": None, "annotations": [], "audio": None}
        | {"function_call": None, "tool_calls": None, "reasoning_content": None, "made_up": {}},
        {"role": "user", "content": [{"type": "text", "text": "Go on", "made_up": None}]},
        {"role": "assistant", "content": None, "tool_calls": [{"id": "c", "type": "function", "function": CALLED}]}
        | {"refusal": None, "annotations": [], "function_call": None, "reasoning_content": ""},
        {"role": "tool", "tool_call_id": "c", "content": "x", "name": None},
    ],
    "openai-responses": [
        {"type": "message", "id": "msg_1", "role": "user", "content": "Hi", "status": None},
        {"type": "reasoning", "id": "rs_1", "summary": [{"type": "summary_text", "text": "So."}], "content": None}
        | {"encrypted_content": None, "status": None},
        {"type": "message", "id": "msg_2", "role": "assistant", "status": "completed", "phase": None}
        | {"content": [{"type": "output_text", "text": "I see.", "annotations": [], "logprobs": None}]},
        {"type": "function_call", "id": "fc_1", "call_id": "c", "namespace": None, "status": "completed", **CALLED},
        {"type": "function_call_output", "id": "fco_1", "call_id": "c", "output": "x", "status": None},
    ],
    "anthropic-messages": [
        {"role": "user", "content": [{"type": "text", "text": "Hi", "cache_control": None, "citations": None}]},
        {
            "role": "assistant",
            "content": [{"type": "text", "text": "I see.", "citations": None}, USED | {"caller": None}],
        },
        {"role": "user", "content": [RESULT | {"cache_control": None}]},
    ],
}


@pytest.mark.parametrize("name", HISTORIES)
def test_what_an_sdk_writes_into_a_history_that_says_nothing_is_no_loss(stage: Stage, name: str) -> None:
    api = get_api(name)
    member = "input" if api.serving.stored else "messages"
    body = json.loads(body_of(api, stream=False)) | {member: HISTORIES[name]}
    told = stage.post(api, json.dumps(body).encode())
    assert [] == losses_of(stage, told)
    assert 200 == stage.post(api, json.dumps(body).encode(), STRICT).status
    stage.asks[0].clear()


# How its body is encoded.


@EACH
@pytest.mark.parametrize(
    ("encoding", "packed"),
    [
        ("gzip", gzip.compress),
        ("GZIP", gzip.compress),
        ("deflate", zlib.compress),
        ("br", lambda body: b"{\xff" + body),
    ],
    ids=["gzip", "capitals", "deflate", "text at first"],
)
def test_a_body_that_is_compressed_is_refused_in_words_that_say_so(
    stage: Stage, api: Api, encoding: str, packed: Any
) -> None:
    told = stage.post(api, packed(body_of(api, stream=False)), {"content-encoding": encoding})
    is_refused(told, Encoded("?"))
    assert 415 == told.status
    assert f"content-encoding {encoding!r} is not read here; send the body uncompressed" in str(told.error)


@pytest.mark.parametrize("api", COUNTED, ids=named)
def test_a_compressed_body_is_not_counted_either(stage: Stage, api: Api) -> None:
    body = gzip.compress(body_of(api, stream=False), mtime=0)
    told = stage.client.post(api.serving.count_path, content=body, headers={"content-encoding": "gzip"})
    assert 415 == told.status_code
    assert "send the body uncompressed" in told.text


@EACH
@pytest.mark.parametrize("encoding", ["gzip", "identity", "", "utf-8"])
def test_plain_json_is_read_whatever_the_header_says(stage: Stage, api: Api, encoding: str) -> None:
    told = stage.post(api, b" \n" + body_of(api, stream=False), {"content-encoding": encoding})
    assert "Hello" == told.text


@EACH
def test_text_that_is_no_json_is_told_as_such_where_nothing_is_compressed(stage: Stage, api: Api) -> None:
    for headers in ({}, {"content-encoding": "identity"}, {"content-encoding": "Identity"}):
        told = stage.post(api, b"\x8b\xff", headers)
        assert 400 == told.status
        assert "is not UTF-8" in str(told.error)
    assert 400 == stage.post(api, b"", {"content-encoding": "gzip"}).status


# Who answers.


@NAMING
@BOTH
@pytest.mark.parametrize("said", [{}, {"model": ""}, {"model": None}], ids=["missing", "empty", "null"])
def test_an_answer_names_the_model_where_its_request_names_none(
    stage: Stage, api: Api, stream: bool, said: dict[str, Any]
) -> None:
    body = json.loads(body_without(api, "model", stream=stream)) | said
    told = stage.post(api, json.dumps(body).encode())
    assert 200 == told.status, told.body
    assert {"default"} == names_in(told)
    assert {"m"} == names_in(stage.ask(api, stream=stream))


def names_in(told: Told) -> set[str]:
    """Every name of a model in an answer."""
    if not told.streamed:
        return {told.json["model"]}
    events = [json.loads(line[6:]) for line in told.body.splitlines() if line.startswith(b"data: {")]
    holders = [one.get("response") or one.get("message") or one for one in events]
    return {one["model"] for one in holders if "model" in one}


# Nothing to answer.

CHAT_PATH, MESSAGES_PATH, RESPONSES_PATH = (
    get_api(name).endpoint for name in ("openai-chat", "anthropic-messages", "openai-responses")
)
NOTHING: list[tuple[str, dict[str, Any], str]] = [
    (CHAT_PATH, {"messages": []}, "$.messages"),
    (MESSAGES_PATH, {"messages": []}, "$.messages"),
    (MESSAGES_PATH, {"messages": [], "system": "Be kind."}, "$.messages"),
    (RESPONSES_PATH, {}, "$.input"),
    (RESPONSES_PATH, {"input": []}, "$.input"),
    (RESPONSES_PATH, {"input": None}, "$.input"),
]
LITTLE: list[tuple[str, dict[str, Any]]] = [
    (CHAT_PATH, {"messages": [{"role": "system", "content": ""}]}),
    (CHAT_PATH, {"messages": [{"role": "assistant", "content": None}]}),
    (MESSAGES_PATH, {"messages": [{"role": "system", "content": "Be kind."}]}),
    (MESSAGES_PATH, {"messages": [{"role": "user", "content": []}]}),
    (RESPONSES_PATH, {"input": ""}),
    (RESPONSES_PATH, {"input": [], "instructions": "Tell a story."}),
    (TEXT.endpoint, {"prompt": ""}),
]


@BOTH
@pytest.mark.parametrize(("path", "members", "place"), NOTHING)
def test_a_request_without_anything_to_answer_is_refused(
    stage: Stage, path: str, members: dict[str, Any], place: str, stream: bool
) -> None:
    api = next(api for api in APIS if api.endpoint == path)
    told = stage.post(api, json.dumps({"model": "m", "max_tokens": 9, "stream": stream, **members}).encode())
    is_refused(told, InvalidRequest("?", path=place))
    assert place in told.json["error"]["message"]
    assert place == told.json["error"].get("param", place)
    assert not stage.asks[0]


@pytest.mark.parametrize(("path", "members"), LITTLE)
def test_a_request_with_little_to_answer_is_answered(stage: Stage, path: str, members: dict[str, Any]) -> None:
    api = next(api for api in APIS if api.endpoint == path)
    told = stage.post(api, json.dumps({"model": "m", "max_tokens": 9, **members}).encode())
    assert (200, "Hello") == (told.status, told.text)


@pytest.mark.parametrize("api", COUNTED, ids=named)
def test_what_would_not_be_answered_may_be_counted(stage: Stage, api: Api) -> None:
    body = {"model": "m", "messages": [], "input": []}
    assert 200 == stage.client.post(api.serving.count_path, json=body).status_code


def test_an_answer_is_gone_on_from_without_more_input(stage: Stage) -> None:
    api = next(api for api in APIS if api.serving.stored is not None)
    first = stage.ask(api, stream=False).json["id"]
    told = stage.post(api, json.dumps({"model": "m", "input": [], "previous_response_id": first}).encode())
    assert "Hello" == told.text
