"""Owns the comparison with llm-comply: what its cases for three APIs find wrong with answers of the gateway.

The tiny model answers, as with `turnscript serve` alone. It is asked by names of models that think, because some cases
are left out for others. What Open Responses' own suite asks beyond them is asked, too, and judged by the same schemas:
that suite is in no registry.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import llm_comply
import pytest
from llm_comply.config import ComplianceConfig
from llm_comply.http import close_client, make_request
from llm_comply.result import TestStatus as Status
from llm_comply.runner import TestRunner as Runner
from llm_comply.schema import SpecLoader
from llm_comply.test_case import TestCase as Case
from llm_comply.test_case import TestCategory as Category
from llm_comply.test_case import Validator
from llm_comply.tests import get_tests
from llm_comply.validators import completed_status, has_output, has_output_type

from tests.gateway.running import Running
from turnscript.gateway import shipped
from turnscript.gateway.configfile import load

pytestmark = pytest.mark.filterwarnings("ignore:jsonschema.RefResolver:DeprecationWarning")


Body = dict[str, Any]


class Suite(NamedTuple):
    """The cases for an API: its schemas, where it is, and the name to ask a model by."""

    schemas: str
    place: str
    model: str


SUITES = {
    "open-responses": Suite("openresponses.json", "/v1", "o3"),
    "openai-chat": Suite("openai_chat.json", "/v1", "o3"),
    "anthropic": Suite("anthropic.json", "", "claude-sonnet-4"),
}
STREAMED = "streamed "
NAMELESS = "a request that names no model is for the default one, unless `strict_models` is set"
OTHERWISE = {
    "error-handling": NAMELESS,
    "compact-missing-model": NAMELESS,
    "chat-error-handling": NAMELESS,
    "anth-error-handling": "a request without `max_tokens` has the limit of its model",
    f"{STREAMED}reasoning-summary": "OpenAI's SDK says `response.reasoning_text.delta`, not `response.reasoning.delta`",
}
"""The cases that are red, each with the reason."""


CITY = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
TOOL = {"type": "function", "name": "get_weather", "description": "Get the weather in a city", "parameters": CITY}


def asked(id_: str, *wanted: Validator, **members: Any) -> Case:
    """A case of Open Responses' own suite: a request, and what its answer must have."""

    def build(config: ComplianceConfig) -> Body:
        return {"model": config.model, **members}

    return Case(id_, id_, "", Category.BASIC, build, [has_output, *wanted])


def goes_on(first: Case, then: Callable[[Body], Any]) -> Case:
    """The same for a request that goes on from the answer to a first one, with what is made of that."""

    def build(config: ComplianceConfig) -> Body:
        answer = make_request(config, first.endpoint, first.build_request(config), streaming=False)[1]
        return {"model": config.model, "previous_response_id": answer["id"], "input": then(answer)}

    return replace(first, build_request=build, validators=[has_output, completed_status])


def result(answer: Body) -> list[Body]:
    """What a tool answers to the first call."""
    call = next(item for item in answer["output"] if item["type"] == "function_call")
    return [{"type": "function_call_output", "call_id": call["call_id"], "output": "sunny, 21 degrees"}]


PDF = "data:application/pdf;base64,JVBERi0xLjEKJSVFT0Y="
FILE = [
    {"type": "input_text", "text": "What is it called?"},
    {"type": "input_file", "filename": "a.pdf", "file_data": PDF},
]
CALLS = has_output_type("function_call")
BEYOND = [
    asked(
        "system-role",
        completed_status,
        input=[{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi"}],
    ),
    asked("free-tool-calling", CALLS, input="What is the weather in Paris?", tools=[TOOL]),
    asked("file-input", completed_status, input=[{"type": "message", "role": "user", "content": FILE}]),
    goes_on(
        asked(
            "call-and-result",
            input="Get the weather in Paris.",
            tools=[TOOL],
            tool_choice={"type": "function", "name": "get_weather"},
        ),
        result,
    ),
    goes_on(asked("previous-response", input="Remember the word papaya."), lambda _: "What is the word?"),
]


def cases(name: str) -> Iterator[Case]:
    """The cases for an API. The package has schemas for the events of Responses: each whole answer is streamed, too."""
    for case in [*get_tests(name), *(BEYOND if name == "open-responses" else [])]:
        yield case
        if name == "open-responses" and case.schema_name is not None and not case.streaming:
            yield replace(case, id=f"{STREAMED}{case.id}", streaming=True)


def named(one: str | Case) -> str:
    """What an API or a case is called in the id of a test."""
    return one if isinstance(one, str) else one.id


ALL = [(name, case) for name in SUITES for case in cases(name)]


@pytest.fixture(scope="module")
def urls() -> Iterator[dict[str, str]]:
    """Where two gateways are: one as it is without any settings, and one that wants a model's name."""
    running: dict[str, str] = {}
    with ExitStack() as stack:
        stack.callback(close_client)
        for name, own in (("plain", {}), ("strict", {"server.strict_models": True})):
            config = load(None, {}, own, shipped=shipped.settings())
            running[name] = stack.enter_context(Running(config)).url
        yield running


@cache
def schemas(file: str) -> SpecLoader:
    """The schemas in a file of the package."""
    return SpecLoader(str(Path(llm_comply.__file__).with_name("specs") / file))


def wrong(name: str, case: Case, url: str) -> list[str]:
    """What a case finds wrong, its warnings included. None may be left out."""
    suite = SUITES[name]
    config = ComplianceConfig(f"{url}{suite.place}", "none", suite.model)
    result = Runner(config, [case], schemas(suite.schemas)).run_one(case)
    assert result.status is not Status.SKIPPED, result.errors
    return [*result.errors, *result.warnings]


@pytest.mark.parametrize(("name", "case"), ALL, ids=named)
def test_an_answer_is_as_the_package_wants_it(urls: dict[str, str], name: str, case: Case) -> None:
    found = wrong(name, case, urls["plain"])
    assert (case.id in OTHERWISE) == bool(found), found


@pytest.mark.parametrize(("name", "case"), [one for one in ALL if OTHERWISE.get(one[1].id) == NAMELESS], ids=named)
def test_a_gateway_that_is_strict_about_models_passes_where_none_is_named(
    urls: dict[str, str], name: str, case: Case
) -> None:
    assert [] == wrong(name, case, urls["strict"])
