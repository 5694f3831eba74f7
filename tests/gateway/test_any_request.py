"""Owns what holds for any request at all: hygiene and offers change a copy, raise nothing but refusals, and repeat."""

from __future__ import annotations

import json
from copy import deepcopy
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import turnscript as ts
from tests.strategies import conversations, jsontext, sdk
from turnscript.core.conversation import Request
from turnscript.gateway.forcing import sampling, structured
from turnscript.gateway.hygiene import clean, unread
from turnscript.gateway.offers import Offering, offer
from turnscript.gateway.thinking import plan_thinking

OPTIONS = st.builds(
    Offering,
    custom=st.sampled_from(("shim", "native")),
    allowed=st.sampled_from(("filter", "keep")),
    hosted=st.sampled_from(("report", "report", "refuse")),
)


def passes(request: Request, options: Offering, format_name: str) -> None:
    """Everything that is done with a request before its prompt. What may be refused is a bad request with a place."""
    before = deepcopy(request)
    format_ = ts.get_format(format_name)
    cleaned = clean(request)
    unread(request)
    made, refused = None, "nothing"
    try:
        made = offer(cleaned.request, format_, options, hidden=cleaned.hidden)
        structured(made.request)
        plan_thinking(made.request, format_)
        sampling(made.request)
    except ts.InvalidRequest as error:
        refused = error.path
    assert refused
    assert before == request, "the given request is changed"
    if made is not None:
        again = clean(cleaned.request)
        assert cleaned.request == again.request, "what is clean is not clean yet"
        names = [tool.name for tool in made.tools]
        assert all(name is not None for name in names)
        assert not any(tool.type == "namespace" for tool in made.request.tools)
        made.located(made.losses)


@settings(max_examples=40)
@given(request=conversations.requests(), options=OPTIONS, format_name=st.sampled_from(ts.formats()))
def test_any_conversation_is_cleaned_and_offered(request: Request, options: Offering, format_name: str) -> None:
    passes(request, options, format_name)


@settings(max_examples=30)
@pytest.mark.parametrize("api_name", [name for name in ts.apis() if name != "openai-completions"])
@given(data=st.data(), options=OPTIONS, format_name=st.sampled_from(ts.formats()))
def test_any_body_of_an_sdk_is_cleaned_and_offered(
    api_name: str, data: st.DataObject, options: Offering, format_name: str
) -> None:
    body: dict[str, Any] = data.draw(sdk.bodies(api_name))
    passes(ts.parse(jsontext.dumps(body), api_name), options, format_name)


@pytest.mark.parametrize("tool", [None, 1, "x", [], {}, {"definition": 1}, {"definition": {}}, {"name": 7}])
@pytest.mark.parametrize("kind", ["tool_addition", "tool_removal", "tool_reference"])
def test_a_directive_of_any_form_is_no_error(kind: str, tool: object) -> None:
    block = {"type": kind, "tool": tool}
    body = {"max_tokens": 1, "messages": [{"role": "user", "content": [block]}, {"role": "system", "content": [block]}]}
    passes(ts.parse(json.dumps(body), "anthropic-messages"), Offering(), ts.formats()[0])


def test_a_number_of_any_length_is_no_error() -> None:
    long = "9" * 5000
    chosen = f'{{"type":"allowed_tools","mode":"auto","tools":[{{"type":"function","name":"f","x":{long}}}]}}'
    body = f'{{"input":"hi","tools":[{{"type":"function","name":"f"}}],"tool_choice":{chosen}}}'
    passes(ts.parse(body, "openai-responses"), Offering(), ts.formats()[0])
    body = f'{{"max_tokens":1,"messages":[{{"role":"user","content":"x"}}],"context_management":{{"x":{long}}}}}'
    passes(ts.parse(body, "anthropic-messages"), Offering(), ts.formats()[0])
