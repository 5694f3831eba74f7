"""Owns the checks of what a provider's own tools did: a reason, calls or text as the plan says, and nothing unsaid."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.datasets.jobs import built, plan_for, rejects, written
from turnscript import Assistant, Item, ToolCall, ToolResult, User
from turnscript.datasets.form import Example
from turnscript.datasets.form_registry import get_form
from turnscript.datasets.hosted_tools import CALLS, TEXT, retold
from turnscript.datasets.opened import open_rows
from turnscript.datasets.problems import Code
from turnscript.datasets.verify import verify

ASKED: dict[str, dict[str, Any]] = {
    "openai-responses": {"input": "?"},
    "anthropic-messages": {"messages": [{"role": "user", "content": "?"}]},
}
SEARCH = {"type": "search", "query": "who won", "sources": [{"url": "https://x"}]}
CODE = {"type": "code_interpreter_call", "id": "c", "status": "completed", "code": "print(1)", "container_id": "x"}
USE = {"type": "server_tool_use", "id": "s", "name": "web_search", "input": {"query": "who won"}}
FOUND = {"type": "web_search_result", "url": "https://x", "title": "X", "encrypted_content": "c2VjcmV0"}
CASES: list[tuple[str, list[dict[str, Any]], list[tuple[str, str]]]] = [
    (
        "openai-responses",
        [{"type": "web_search_call", "id": "w", "status": "completed", "action": SEARCH}],
        [('web_search {"type":"search","query":"who won"}', '[{"url":"https://x"}]')],
    ),
    (
        "openai-responses",
        [CODE | {"outputs": [{"type": "logs", "logs": "1\n"}]}],
        [('code_interpreter {"code":"print(1)"}', '[{"type":"logs","logs":"1\\n"}]')],
    ),
    ("openai-responses", [CODE | {"outputs": None}], [('code_interpreter {"code":"print(1)"}', "completed")]),
    (
        "openai-responses",
        [{"type": "file_search_call", "id": "f", "status": "completed", "queries": ["a"], "results": [{"text": "b"}]}],
        [('file_search {"queries":["a"]}', '[{"text":"b"}]')],
    ),
    (
        "openai-responses",
        [
            {
                "type": "mcp_call",
                "id": "m",
                "name": "roll",
                "server_label": "dice",
                "arguments": '{"d": 6}',
                "output": "4",
            }
        ],
        [('dice__roll {"d": 6}', "4")],
    ),
    (
        "anthropic-messages",
        [USE, {"type": "web_search_tool_result", "tool_use_id": "s", "content": [FOUND]}],
        [('web_search {"query":"who won"}', '[{"type":"web_search_result","url":"https://x","title":"X"}]')],
    ),
    (
        "anthropic-messages",
        [
            {"type": "mcp_tool_use", "id": "s", "name": "roll", "server_name": "dice", "input": {}},
            {
                "type": "mcp_tool_result",
                "tool_use_id": "s",
                "is_error": True,
                "content": [{"type": "text", "text": "no"}],
            },
        ],
        [("dice__roll {}", "no")],
    ),
]


def row_of(form: str, done: list[dict[str, Any]]) -> bytes:
    """A logged request whose answer holds what was done, and then says `Norway.`"""
    if form == "anthropic-messages":
        said = {"type": "message", "role": "assistant", "stop_reason": "end_turn"}
        response = said | {"content": [*done, {"type": "text", "text": "Norway."}]}
    else:
        text = {"type": "output_text", "text": "Norway."}
        output = [*done, {"type": "message", "role": "assistant", "content": [text]}]
        response = {"object": "response", "status": "completed", "output": output}
    return json.dumps({"request": {"model": "m", "max_tokens": 9, **ASKED[form]}, "response": response}).encode()


def example_of(form: str, done: list[dict[str, Any]]) -> Example:
    (example,) = get_form(form).read(row_of(form, done))
    return example


def said(item: Item) -> str:
    if isinstance(item, ToolCall):
        return f"{item.name} {item.arguments}"
    assert isinstance(item, User | Assistant | ToolResult)
    return "".join([getattr(part, "text", "?") for part in item.content])


@pytest.mark.parametrize(("form", "done", "expected"), CASES)
def test_calls_are_made_of_it_with_results_that_pair(
    form: str, done: list[dict[str, Any]], expected: list[tuple[str, str]]
) -> None:
    items = retold(example_of(form, done), CALLS).request.items
    assert ["?", *[text for pair in expected for text in pair], "Norway."] == list(map(said, items))
    calls, results = ([one for one in items if isinstance(one, kind)] for kind in (ToolCall, ToolResult))
    assert [one.id for one in calls] == [one.id for one in results]
    assert all(one.at.startswith("$.response") for one in [*calls, *results])


@pytest.mark.parametrize(("form", "done", "expected"), CASES)
def test_its_text_is_read_and_not_learnt(
    form: str, done: list[dict[str, Any]], expected: list[tuple[str, str]]
) -> None:
    example = retold(example_of(form, done), TEXT)
    items = example.request.items
    assert {Assistant} == set(map(type, items[1:]))
    texts = "\n".join(map(said, items))
    assert all(result in texts and call.split(" ", 1)[1] in texts for call, result in expected)
    assert frozenset(range(1, len(items) - 1)) == example.context


@pytest.mark.parametrize("how", ["reject", TEXT, CALLS])
@pytest.mark.parametrize("format_", ["rwkv-universal", "openchatml", "rwkv-goose"])
def test_a_job_does_as_its_plan_says(how: str, format_: str, tmp_path: Path) -> None:
    for form in ASKED:
        rows = [row_of(form, done) for of, done, _ in CASES if of == form]
        out, file = tmp_path / form, written(tmp_path / f"{form}.jsonl", rows)
        report = built(plan_for(file, form=form, format=format_, hosted=how, outputs=("jsonl",)), out)
        if how == "reject":
            assert {Code.HOSTED: len(rows)} == report.rejected
            assert all("--hosted" in aside["message"] for aside in rejects(out))
            assert "$.response" == rejects(out)[0]["pointer"][:10]
        else:
            assert len(rows) == report.written
            found = verify(out)
            assert found.ok, found.findings


def test_what_cannot_be_retold_is_a_reason_whatever_the_plan_says(tmp_path: Path) -> None:
    """A result without its use, and a use without a name."""
    odd = [{"type": "web_search_tool_result", "tool_use_id": "?", "content": []}]
    rows = [row_of("anthropic-messages", odd), row_of("anthropic-messages", [{**USE, "name": 7}])]
    file = written(tmp_path / "rows.jsonl", rows)
    report = built(plan_for(file, form="anthropic-messages", hosted=CALLS), tmp_path / "out")
    assert {Code.HOSTED: 2} == report.rejected
    assert [None, None] == [row.problem for row in open_rows(str(file), "anthropic-messages")]


def test_a_picture_that_a_tool_drew_is_one(tmp_path: Path) -> None:
    drawn = {"type": "image_generation_call", "id": "i", "status": "completed", "result": "AAAA"}
    file = written(tmp_path / "rows.jsonl", [row_of("openai-responses", [drawn])])
    for how in (TEXT, CALLS):
        plan = plan_for(file, form="openai-responses", hosted=how)
        assert {Code.MEDIA: 1} == built(plan, tmp_path / how).rejected


def test_weights_stay_with_their_items() -> None:
    example = example_of(*CASES[0][:2])
    example.weights = {0: 0.5, 2: 0.25}
    assert {0: 0.5, 3: 0.25} == retold(example, CALLS).weights
