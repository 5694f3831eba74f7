"""Owns holding a model to a grammar: the real llama.cpp with random weights writes valid calls and valid JSON.

Nothing is sent to servers that are not known to take a grammar.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from typing import Any

import jsonschema_rs
import openai
import pytest
from prometheus_client.parser import text_string_to_metric_families

import turnscript as ts
from tests.gateway.running import Running
from tests.gateway.scripted import said, sse
from tests.gateway.stage import APIS, CHATS, WEATHER, Stage, answer, named
from tests.sampling import Writer
from tests.sdks import anthropic_sdk, openai_sdk
from turnscript.apis.api import Api
from turnscript.backends.backend import Completion, Facts
from turnscript.convert.registry import get_api, get_backend
from turnscript.core.errors import UpstreamError
from turnscript.core.json_text import json_of
from turnscript.gateway import forcing
from turnscript.gateway.config import Config, Efforts
from turnscript.gateway.forcing import NOT_ENFORCED, Held, held, is_refused, wants
from turnscript.gateway.thinking import closing

TRIP: dict[str, Any] = {
    "type": "object",
    "properties": {
        "city": {"enum": ["Oslo", "Rome", "Tokyo"]},
        "days": {"type": "array", "items": {"enum": [1, 2, 3]}, "minItems": 1, "maxItems": 2},
        "sure": {"type": "boolean"},
        "by": {"anyOf": [{"const": "train"}, {"type": "null"}]},
    },
    "required": ["city", "days", "sure"],
    "additionalProperties": False,
}
SCHEMAS = {"book": TRIP, "cancel": {"type": "object", "properties": {"why": {"enum": ["rain", "no time"]}}}}
TOOLS: Any = [
    {"type": "function", "function": {"name": name, "parameters": schema}} for name, schema in SCHEMAS.items()
]
ASK: Any = [{"role": "user", "content": "Book a trip."}]
SHAPE: Any = {"type": "json_schema", "json_schema": {"name": "trip", "schema": TRIP, "strict": True}}
OF_LLAMA = ["batuta-chatml", "openchatml", "qwen3", "mistral-v11", "llama31", "harmony"]
OF_RWKV = ["rwkv-universal", "ai00-v1", "rwkv-goose", "rwkv-goose-observation"]


@pytest.fixture(scope="module", params=[*OF_LLAMA, *OF_RWKV])
def client(request: pytest.FixtureRequest) -> Iterator[openai.OpenAI]:
    """The official SDK, and a gateway before a real server whose model has random weights."""
    url = request.getfixturevalue("llamacpp" if request.param in OF_LLAMA else "rwkv")
    config = Config.for_backend(url, request.param, kind="llamacpp")
    with Running(config) as gateway, openai_sdk(gateway.url, timeout=60) as made:
        yield made


def check_call(name: str, arguments: str) -> None:
    """It is a call of a tool, with arguments that its schema allows."""
    jsonschema_rs.validate(SCHEMAS[name], json.loads(arguments))


@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.parametrize("choice", ["required", "book"])
def test_a_model_that_knows_nothing_calls_what_it_must(client: openai.OpenAI, choice: str, seed: int) -> None:
    named_: Any = choice if choice == "required" else {"type": "function", "function": {"name": choice}}
    told = client.chat.completions.create(
        model="m", messages=ASK, tools=TOOLS, tool_choice=named_, seed=seed, max_tokens=900, parallel_tool_calls=False
    )
    message = told.choices[0].message
    assert told.choices[0].finish_reason == "tool_calls", message
    [call] = message.tool_calls or []
    assert call.type == "function"
    assert choice in ("required", call.function.name)
    check_call(call.function.name, call.function.arguments)
    assert not message.content


@pytest.mark.parametrize("stream", [False, True])
def test_a_model_that_knows_nothing_answers_in_json(client: openai.OpenAI, stream: bool) -> None:
    told: Any = client.chat.completions.create(
        model="m", messages=ASK, response_format=SHAPE, seed=3, max_tokens=900, stream=stream
    )
    if stream:
        text = "".join(chunk.choices[0].delta.content or "" for chunk in told if chunk.choices)
    else:
        text = told.choices[0].message.content
        assert told.choices[0].finish_reason == "stop"
    jsonschema_rs.validate(TRIP, json.loads(text))


def test_a_thought_comes_before_the_answer(llamacpp: str) -> None:
    """And is cut short, as ever: what is left of the grammar goes on behind it."""
    config = Config.for_backend(llamacpp, "qwen3", kind="llamacpp", thinking="on", efforts=Efforts(low=20))
    with Running(config) as gateway, openai_sdk(gateway.url, timeout=60) as client:
        told: Any = client.chat.completions.create(
            model="m", messages=ASK, response_format=SHAPE, seed=3, max_tokens=900, reasoning_effort="low"
        )
    message = told.choices[0].message
    assert message.reasoning_content
    assert told.usage.completion_tokens_details.reasoning_tokens <= 60
    jsonschema_rs.validate(TRIP, json.loads(message.content))


# What is sent to whom.


def asked_of(stage: Stage) -> list[dict[str, Any]]:
    """The bodies of all requests for a completion since the last script."""
    return [one.json for one in stage.asks[0] if "completion" in one.line]


def numbers(text: str) -> dict[str, float]:
    return {one.name: one.value for family in text_string_to_metric_families(text) for one in family.samples}


@pytest.mark.parametrize("members", [2, 900])
def test_a_large_grammar_is_made_beside_the_streams_of_others(
    llama: Stage, members: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    places: list[str] = []

    def noted(*arguments: Any) -> Held | None:
        places.append(threading.current_thread().name.rpartition("_")[0])
        return held(*arguments)

    monkeypatch.setattr(forcing, "held", noted)
    schema = {"type": "object", "properties": {f"member{n}": {"type": "string"} for n in range(members)}}
    llama.play(written("{}"))
    shape = ts.ResponseFormat("json_schema", name="n", schema=json_of(schema))
    assert llama.post(CHATS[0], request_of(CHATS[0], format_=shape)).status == 200
    assert ["large requests" in place for place in places] == [members > 2]


BAD = {"code": 400, "message": "Failed to initialize samplers: failed to parse grammar", "type": "x"}
REFUSES = said({"error": BAD}, status=400)


def written(text: str) -> Any:
    """An answer as llama.cpp streams it."""
    end = {"content": "", "stop": True, "stop_type": "eos", "tokens_evaluated": 9, "tokens_predicted": 3}
    return sse({"content": text, "stop": False}, end)


def request_of(api: Api, *, format_: ts.ResponseFormat | None = None, choice: str | None = None) -> bytes:
    """A request that leaves its answer no freedom."""
    request = ts.Request(
        conversation=ts.Conversation(items=[ts.User(content=[ts.Text(text="Go.")])]),
        settings=ts.Settings(model="m", max_tokens=64, response_format=format_),
    )
    if choice is not None:
        request.conversation.tools.append(ts.Tool(name="cancel", parameters=json_of(SCHEMAS["cancel"])))
        request.settings.tool_choice = ts.ToolChoice(choice)
    return api.render_request(request).data


@pytest.fixture(scope="module")
def llama() -> Iterator[Stage]:
    with Stage(model={"kind": "llamacpp"}) as made:
        yield made


@pytest.mark.parametrize("api", CHATS, ids=named)
def test_every_api_is_enforced_alike(api: Api, llama: Stage) -> None:
    shape = ts.ResponseFormat("json_schema", name="trip", schema=json_of(TRIP))
    llama.play(written('{"city":"Oslo"}'))
    told = llama.post(api, request_of(api, format_=shape))
    assert (200, "0") == (told.status, told.headers["x-turnscript-losses"])
    (asked,) = asked_of(llama)
    assert asked["grammar"].startswith("root ::= ")
    assert r'answer-city-kv-2 ::= "\"city\"" ws ":" ws ("\"Oslo\"" | ' in asked["grammar"]
    assert "Oslo" in asked["prompt"]  # it is asked for in words, too


def test_what_a_grammar_does_not_tell_is_checked_and_said(llama: Stage) -> None:
    api = CHATS[0]
    schema = {"type": "object", "properties": {"n": {"type": "integer", "multipleOf": 5}}, "required": ["n"]}
    llama.play(written('{"n":1}'))
    told = llama.post(api, request_of(api, format_=ts.ResponseFormat("json_schema", name="n", schema=json_of(schema))))
    report = llama.client.get(told.headers["x-turnscript-report"]).text
    assert "no grammar tells properties.n.multipleOf" in report
    assert NOT_ENFORCED not in report
    assert "not a multiple of 5" in report


MANY: dict[str, Any] = {"type": "array", "items": {"enum": [1, 2]}, "minItems": 101, "maxItems": 102}
LONG = ts.ResponseFormat("json_schema", name="long", schema=json_of(MANY))


@pytest.mark.parametrize("api", CHATS, ids=named)
def test_a_schema_that_a_server_holds_better_is_passed_on(api: Api, llama: Stage) -> None:
    """No grammar of ours counts so far, and that is no loss then."""
    llama.play(written(json.dumps([1] * 101)))
    told = llama.post(api, request_of(api, format_=LONG))
    assert (200, "0") == (told.status, told.headers["x-turnscript-losses"])
    (asked,) = asked_of(llama)
    assert (MANY, False) == (asked["json_schema"], "grammar" in asked)


def test_a_real_server_holds_a_schema_that_is_passed_on(llamacpp: str) -> None:
    config = Config.for_backend(llamacpp, "batuta-chatml", kind="llamacpp")
    with Running(config) as gateway, openai_sdk(gateway.url, timeout=60) as client:
        shape: Any = {"type": "json_schema", "json_schema": {"name": "many", "schema": MANY, "strict": True}}
        told = client.chat.completions.create(
            model="m", messages=ASK, response_format=shape, seed=2, max_tokens=1700, temperature=0.3
        )
    assert told.choices[0].finish_reason == "stop"
    jsonschema_rs.validate(MANY, json.loads(told.choices[0].message.content or ""))


@pytest.mark.parametrize("stream", [False, True])
def test_a_server_that_refuses_a_schema_is_sent_a_grammar(llama: Stage, stream: bool) -> None:
    """And is asked without one only where it refuses that, too."""
    for refusals, members in ((1, ["json_schema", "grammar"]), (2, ["json_schema", "grammar", ""])):
        llama.play(*[REFUSES] * refusals, written("[1]"))
        body = json.loads(request_of(CHATS[0], format_=LONG)) | ({"stream": True} if stream else {})
        told = llama.post(CHATS[0], json.dumps(body).encode())
        assert told.status == 200
        asked = asked_of(llama)
        assert members == ["".join(one.keys() & {"json_schema", "grammar"}) for one in asked]
        report = llama.client.get(told.headers["x-turnscript-report"]).text
        assert ("no grammar tells minItems and 1 more" in report, "refused the grammar (" in report) == (
            True,
            refusals > 1,
        )


NOT_PASSED_ON: dict[str, tuple[str, dict[str, Any], dict[str, Any]]] = {
    "a grammar holds it": ("qwen3", TRIP, {}),
    "nobody holds it": ("qwen3", {"type": "string", "pattern": "x", "maxLength": 1500}, {}),
    "only the grammar holds a part": (
        "qwen3",
        {"type": "array", "items": {"type": "number", "minimum": 0}, "maxItems": 300},
        {},
    ),
    "too many characters": ("qwen3", {"type": "array", "items": MANY, "minItems": 2_001}, {}),
    "there may be calls": ("qwen3", MANY, {"tools": True}),
    "there may be a thought": ("qwen3", MANY, {"effort": "high"}),
    "there is an opening": ("harmony", MANY, {}),
    "a tag is written otherwise": ("qwen3", {**MANY, "items": {"enum": ["<think>"]}}, {}),
}


@pytest.mark.parametrize("case", NOT_PASSED_ON)
def test_other_schemas_are_told_as_grammars(case: str) -> None:
    name, schema, settings = NOT_PASSED_ON[case]
    shape = ts.ResponseFormat("json_schema", name="n", schema=json_of(schema))
    choice = ts.ToolChoice("auto") if settings.pop("tools", False) else None
    body = body_by(prompt_of(name, choice, response_format=shape, **settings), LLAMA)
    assert ("json_schema" in body, "grammar" in body) == (False, True)
    passed = body_by(prompt_of(name, None, response_format=LONG), LLAMA)
    assert ("json_schema" in passed) == (name != "harmony")


def test_what_is_left_of_a_schema_is_told_as_a_grammar() -> None:
    found = held_by(prompt_of("batuta-chatml", None, response_format=LONG), LLAMA)
    assert found is not None
    ask = found.ask(Completion(prompt="", max_tokens=9))
    assert (ask.schema, ask.grammar) == (LONG.schema, None)
    rest = found.ask(ask, "[1,")
    assert rest.schema is None
    assert rest.grammar


@pytest.mark.parametrize("stream", [False, True])
def test_a_server_that_refuses_a_grammar_is_asked_without_it(llama: Stage, stream: bool) -> None:
    """Once, before its first byte; the client is told and the metric counts it."""
    api = CHATS[0]
    before = numbers(llama.client.get("/metrics").text).get("turnscript_grammars_refused_total", 0)
    llama.play(REFUSES, written('"why":"rain"}\n<<END_TOOL_CALL>>'))
    body = json.loads(request_of(api, choice="required")) | ({"stream": True} if stream else {})
    told = llama.post(api, json.dumps(body).encode())
    assert [True, False] == ["grammar" in one for one in asked_of(llama)]
    assert told.status == 200
    report = llama.client.get(told.headers["x-turnscript-report"]).text
    assert "refused the grammar (" in report
    assert told.headers["x-turnscript-losses"] == str(len(json.loads(report)["losses"]))
    assert numbers(llama.client.get("/metrics").text)["turnscript_grammars_refused_total"] == before + 1


@pytest.mark.parametrize("stream", [False, True])
def test_each_of_several_answers_is_asked_without_it(llama: Stage, stream: bool) -> None:
    """And told of once, beside what else is lost."""
    api = get_api("openai-chat")
    refusals: list[bool] = []

    def script(asked: Any) -> Any:
        refusals.append("grammar" in asked.json)
        return REFUSES if refusals[-1] else written("{}")

    llama.play_by(script)
    shape = ts.ResponseFormat("json_schema", name="trip", schema=json_of({"type": "object"}))
    body = json.loads(request_of(api, format_=shape)) | {"n": 2, "stream": stream, "unheard_of": 1}
    told = llama.post(api, json.dumps(body).encode())
    assert (200, [False, False, True, True]) == (told.status, sorted(refusals))
    losses = json.loads(llama.client.get(told.headers["x-turnscript-report"]).text)["losses"]
    assert ["$.unheard_of", "$.response_format.json_schema"] == [loss["path"] for loss in losses[:2]]
    assert ["refused the grammar (" in loss["detail"] for loss in losses] == [False, True, *[False] * len(losses[2:])]
    assert told.headers["x-turnscript-losses"] == str(2 if stream else len(losses))


def test_what_is_wrong_without_a_grammar_too_is_told(llama: Stage) -> None:
    llama.play(REFUSES, said({"error": {"code": 500, "message": "broken"}}, status=500))
    told = llama.post(CHATS[0], request_of(CHATS[0], choice="required"))
    assert (502, 2) == (told.status, len(asked_of(llama)))


@pytest.mark.parametrize("api", APIS, ids=named)
def test_free_answers_have_no_grammar(api: Api, llama: Stage) -> None:
    llama.play(written("Hello"))
    llama.ask(api, stream=False, tools=[] if api.serving.bare else [WEATHER])
    assert [False] == ["grammar" in one for one in asked_of(llama)]


FREE: dict[str, dict[str, Any]] = {
    "another server": {"kind": "completions"},
    "switched off": {"kind": "llamacpp", "grammar": "off"},
    "one of its own": {"kind": "llamacpp", "extra": {"json_schema": {}}},
    "not known there": {"kind": "llamacpp", "drop": ("grammar",)},
    "one of vLLM": {"kind": "completions", "extra": {"structured_outputs": {}}},
    "no end": {"kind": "llamacpp", "extra": {"ignore_eos": True}},
}


@pytest.mark.parametrize("model", FREE.values(), ids=FREE)
def test_nothing_is_sent_where_it_is_not_wanted(model: dict[str, Any]) -> None:
    shape = ts.ResponseFormat("json_schema", name="trip", schema=json_of({"type": "object"}))
    with Stage(model=model) as stage:
        stage.play(answer("{}") if model["kind"] == "completions" else written("{}"))
        told = stage.post(CHATS[0], request_of(CHATS[0], format_=shape))
        assert ["{}"] == [told.text]
        assert stage.asks[0]
        assert not any("grammar" in one.json for one in stage.asks[0])
        assert NOT_ENFORCED in stage.client.get(told.headers["x-turnscript-report"]).text


@pytest.mark.parametrize("model", [{"kind": "llamacpp"}, *FREE.values()], ids=["llama.cpp", *FREE])
def test_the_list_of_models_says_whether_json_is_held_to_its_schema(model: dict[str, Any]) -> None:
    with Stage(model=model) as stage, anthropic_sdk(stage.url) as sdk:
        [shown] = sdk.models.list().data
    assert shown.capabilities is not None
    assert (model == {"kind": "llamacpp"}) is shown.capabilities.structured_outputs.supported


def held_by(prompt: ts.Prompt, *servers: tuple[str, str | None], losses: list[ts.Loss] | None = None) -> Held | None:
    """What an answer is held to by servers of these kinds, which are whose."""
    model = Config.for_backend("http://127.0.0.1:9", "qwen3", kind=servers[0][0]).models[0]
    known = [(get_backend(kind), Facts(owner=owner)) for kind, owner in servers]
    return held(prompt, known, model, [] if losses is None else losses)


LLAMA, AI00, ANY = ("llamacpp", None), ("ai00", None), ("completions", None)
VLLM, SGLANG = ("completions", "vllm"), ("completions", "sglang")


def body_by(prompt: ts.Prompt, *servers: tuple[str, str | None]) -> Any:
    """What the first server is sent."""
    ask, found = Completion(prompt=prompt.text, max_tokens=9), held_by(prompt, *servers)
    return json.loads(get_backend(servers[0][0]).call(ask if found is None else found.ask(ask)).body or b"")


def test_each_server_is_told_in_its_own_words() -> None:
    """vLLM and SGLang only what has no tags: those may be tokens that nothing can spell there."""
    calls, answer_ = prompt_of("ai00-v1", ts.ToolChoice("required")), prompt_of("qwen3", None, response_format=JSON)
    assert body_by(calls, LLAMA)["grammar"].startswith("root ::= ")
    assert body_by(calls, AI00)["bnf_schema"].startswith("start ::= ")
    assert body_by(answer_, VLLM)["structured_outputs"]["grammar"].startswith("root ::= ")
    assert body_by(answer_, SGLANG)["ebnf"].startswith("root ::= ")
    assert held_by(answer_, ANY) is held_by(calls, VLLM) is held_by(calls, SGLANG) is None
    assert held_by(answer_, VLLM, VLLM) is not None
    for pair in ((AI00, LLAMA), (LLAMA, ANY), (VLLM, SGLANG), (VLLM, ANY), (LLAMA, VLLM)):
        assert held_by(answer_, *pair) is None, pair


JSON = ts.ResponseFormat("json_schema", name="trip", schema=json_of(TRIP))


def prompt_of(format_name: str, choice: ts.ToolChoice | None, **settings: Any) -> ts.Prompt:
    """A prompt for calls, or where there is no choice of tools, for an answer."""
    tools = [ts.Tool(name=name, parameters=json_of(schema)) for name, schema in SCHEMAS.items()]
    request = ts.Request(
        conversation=ts.Conversation(items=[ts.User(content=[ts.Text(text="Go.")])], tools=tools if choice else []),
        settings=ts.Settings(tool_choice=choice, **settings),
    )
    return ts.get_format(format_name).prompt(request, thinking="effort" in settings)


OPENED = {"harmony": "<|channel|>analysis<|message|>", "qwen3": "<think>\n"}
"""Where the model opens its thought itself."""


@pytest.mark.parametrize("format_name", ["rwkv-universal", "ai00-v1", "qwen3", "batuta-chatml", "harmony"])
def test_a_grammar_goes_on_where_an_answer_does(format_name: str) -> None:
    """A thought that is closed from outside, and a call that is made once more from where it began."""
    prompt = prompt_of(format_name, ts.ToolChoice("required"), effort="high")
    found = held_by(prompt, LLAMA)
    assert found is not None
    ask = Completion(prompt=prompt.text, max_tokens=9)
    for seed in range(20):
        text = Writer(found.constraint.rules, seed, ("<<", "<|")).text()
        cut = found.ask(ask, text[: len(text) // 2])
        assert cut.grammar
        assert cut.grammar != found.constraint.text or not text[: len(text) // 2]
    thought = "Hm, let me " + "think " * 500
    begun = OPENED.get(format_name, "") + thought + closing(ts.get_format(format_name))
    rest = found.ask(ask, begun)
    assert rest.grammar
    assert "raw" not in rest.grammar or format_name == "ai00-v1"
    assert found.ask(ask, begun + "\x00").grammar is None


ALLOWED = json_of([{"type": "function", "name": "book"}])
FREE_SETTINGS: dict[str, ts.Settings] = {
    "nothing said": ts.Settings(),
    "auto": ts.Settings(tool_choice=ts.ToolChoice("auto")),
    "no calls": ts.Settings(tool_choice=ts.ToolChoice("none")),
    "some, if it likes": ts.Settings(tool_choice=ts.ToolChoice("allowed", tools=ALLOWED)),
    "a text": ts.Settings(response_format=ts.ResponseFormat("text")),
    "a text, and calls if it likes": ts.Settings(
        response_format=ts.ResponseFormat("text"), tool_choice=ts.ToolChoice("auto")
    ),
}
HELD_SETTINGS = [
    ts.Settings(tool_choice=ts.ToolChoice("required")),
    ts.Settings(tool_choice=ts.ToolChoice("named", name="book")),
    ts.Settings(tool_choice=ts.ToolChoice("allowed", tools=ALLOWED, required=True)),
    ts.Settings(response_format=ts.ResponseFormat("json_object")),
    ts.Settings(response_format=ts.ResponseFormat("text"), tool_choice=ts.ToolChoice("required")),
]


@pytest.mark.parametrize("settings", FREE_SETTINGS.values(), ids=FREE_SETTINGS)
def test_no_grammar_is_made_of_tools_that_may_be_passed_over(settings: ts.Settings) -> None:
    """Clients of Responses say of most answers that they are texts."""
    assert not wants(ts.Request(settings=settings))


@pytest.mark.parametrize("settings", HELD_SETTINGS)
def test_what_leaves_no_freedom_is_seen(settings: ts.Settings) -> None:
    assert wants(ts.Request(settings=settings))


def test_which_errors_are_a_grammars() -> None:
    found = held_by(prompt_of("qwen3", ts.ToolChoice("required")), LLAMA)
    cases = [
        (UpstreamError("failed to parse grammar", upstream=400), "", True),
        (UpstreamError("no", upstream=422, body="grammar: extra inputs"), "", True),
        (UpstreamError("wrong", upstream=400), "", True),
        (UpstreamError("failed to parse grammar", upstream=400), "x", False),
        (UpstreamError("the request exceeds the available context size", upstream=400), "", False),
        (UpstreamError("broken", upstream=500), "", False),
    ]
    assert [is_refused(error, found, text) for error, text, _ in cases] == [right for _, _, right in cases]
    assert not is_refused(cases[0][0], None, "")
