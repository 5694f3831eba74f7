"""Owns the members of a request that nobody reads: which of them are reported, and at which place."""

from __future__ import annotations

import json
from typing import Any

import pytest

import turnscript as ts
from turnscript.core.conversation import Request
from turnscript.gateway.hygiene import clean, unread


def messages(**members: Any) -> Request:
    body = {"model": "m", "max_tokens": 9, "messages": [{"role": "user", "content": "Hi"}]} | members
    return ts.parse(json.dumps(body), "anthropic-messages")


def test_members_without_effect_are_reported_and_meaningless_ones_are_not() -> None:
    keep = {"edits": [{"type": "clear_thinking_20251015", "keep": "all"}]}
    trim = {"edits": [{"type": "clear_tool_uses_20250919"}]}
    quiet = messages(context_management=keep, client_metadata={"a": 1}, betas=["x"], new=None)
    assert [] == unread(quiet)
    loud = messages(context_management=trim, thread={"type": "create"}, surprise=1)
    assert ["$.context_management", "$.surprise", "$.thread"] == sorted(loss.path for loss in unread(loud))
    assert ["$.context_management"] == [loss.path for loss in unread(loud, handled=("thread", "surprise"))]
    verbose = ts.parse('{"input": "x", "text": {"verbosity": "low"}}', "openai-responses")
    assert ["$.text.verbosity"] == [loss.path for loss in unread(verbose)]
    budget = messages(output_config={"effort": "high", "task_budget": {"type": "tokens", "total": 20_000}})
    assert ["$.output_config.task_budget"] == [loss.path for loss in unread(budget)]


@pytest.mark.parametrize(
    ("api", "usual", "other"),
    [
        ("openai-responses", {"truncation": "disabled"}, {"truncation": "auto"}),
        ("openai-responses", {"text": {"verbosity": "medium"}}, {"text": {"verbosity": "high"}}),
        ("openai-chat", {"modalities": ["text"]}, {"modalities": ["text", "audio"]}),
        ("openai-chat", {"verbosity": "medium"}, {"verbosity": "low"}),
        ("openai-chat", {"search_parameters": {"mode": "off"}}, {"search_parameters": {"mode": "auto"}}),
    ],
    ids=lambda value: value if isinstance(value, str) else "-".join(value),
)
def test_a_member_that_asks_for_what_is_done_anyway_is_not_reported(
    api: str, usual: dict[str, Any], other: dict[str, Any]
) -> None:
    said = {"input": "Hi"} if api == "openai-responses" else {"messages": [{"role": "user", "content": "Hi"}]}
    assert [] == unread(ts.parse(said | usual, api))
    assert 1 == len(unread(ts.parse(said | other, api)))


@pytest.mark.parametrize(
    "member",
    [
        {"background_options": {"completion_window": "8h", "continuation_id": "c"}},
        {"max_tool_calls": 5},
        {"prediction": {"type": "content", "content": "def f(): ..."}},
        {"usage": {"include": True}},
        {"user_profile_id": "uprof_1"},
    ],
    ids=lambda value: next(iter(value)),
)
def test_a_member_that_says_nothing_of_the_answer_is_not_reported(member: dict[str, Any]) -> None:
    assert [] == unread(messages(**member))


@pytest.mark.parametrize("text", [None, "Hi", ["Hi"], {}, {"format": None}], ids=repr)
def test_a_member_that_changes_nothing_may_hold_anything(text: Any) -> None:
    assert [] == unread(messages(text=text))


def test_what_a_client_notes_on_the_results_of_its_tools_is_not_reported() -> None:
    """GitHub's Copilot says on each result where it is from, once a session was stored: it is what its call says."""
    call = {"id": "c", "type": "function", "function": {"name": "view", "arguments": "{}"}}
    result = {"role": "tool", "tool_call_id": "c", "content": "r"}
    noted = result | {"__copilotMessageSource": {"kind": "tool", "name": "view", "summary": "view a file"}}
    plain, marked = (
        ts.parse(json.dumps({"messages": [{"role": "assistant", "tool_calls": [call]}, one]}), "openai-chat")
        for one in (result, noted)
    )
    format_ = ts.get_format("rwkv-universal")
    prompts = [format_.prompt(clean(request).request) for request in (plain, marked)]
    assert prompts[0].text == prompts[1].text
    assert [] == prompts[1].losses
