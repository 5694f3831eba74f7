"""Owns the comparison with llm-comply: what its cases for three APIs find wrong with answers of the gateway.

The tiny model answers, as with `turnscript serve` alone. It is asked by names of models that think, because some cases
are left out for others.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import NamedTuple

import llm_comply
import pytest
from llm_comply.config import ComplianceConfig
from llm_comply.http import close_client
from llm_comply.result import TestStatus as Status
from llm_comply.runner import TestRunner as Runner
from llm_comply.schema import SpecLoader
from llm_comply.test_case import TestCase as Case
from llm_comply.tests import get_tests

from tests.gateway.running import Running
from turnscript.gateway import shipped
from turnscript.gateway.configfile import load

pytestmark = pytest.mark.filterwarnings("ignore:jsonschema.RefResolver:DeprecationWarning")


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


def cases(name: str) -> Iterator[Case]:
    """The cases for an API. The package has schemas for the events of Responses: each whole answer is streamed, too."""
    for case in get_tests(name):
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
