"""Owns tools of Anthropic's own types that the client runs: the model is told what they take, and calls them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from anthropic.tools.memory import BetaLocalFilesystemMemoryTool

import turnscript as ts
from tests.gateway.stage import Stage, Told, answer
from tests.sdks import anthropic_sdk
from turnscript.gateway.headers import REPORT
from turnscript.gateway.offers import spelled

API = ts.get_api("anthropic-messages")
BASH = {"type": "bash_20250124", "name": "bash"}
MEMORY = {"type": "memory_20250818", "name": "memory"}
EDITOR = "str_replace_based_edit_tool"
KEPT = {"command": "create", "path": "/memories/word.txt", "file_text": "secret"}
LOOKED = {"command": "view", "path": "a.txt", "view_range": [1, 2]}


def written(name: str, given: dict[str, Any]) -> str:
    """How the model of the stage writes a call."""
    return f'<<TOOL_CALL name="{name}" id="call_1">>\n{json.dumps(given)}\n<<END_TOOL_CALL>>'


def ask(stage: Stage, tools: list[Any], **more: Any) -> Told:
    body = {"model": "m", "max_tokens": 100, "messages": [{"role": "user", "content": "Hi"}], "tools": tools, **more}
    return stage.post(API, json.dumps(body).encode())


def shown(prompt: str, name: str) -> dict[str, Any]:
    """What a prompt says of a tool."""
    [line] = [line for line in prompt.splitlines() if f'"{name}"' in line and "parameters" in line]
    listed = json.loads(line)
    found: dict[str, Any] = next(one for one in (listed if isinstance(listed, list) else [listed]) if name in str(one))
    return found


@pytest.mark.parametrize(
    ("type_", "name", "given"),
    [
        ("bash_20241022", "bash", {"command": "ls"}),
        ("bash_20250124", "bash", {"restart": True}),
        ("text_editor_20241022", "str_replace_editor", {"command": "undo_edit", "path": "a.txt"}),
        ("text_editor_20250124", "str_replace_editor", {"command": "insert", "insert_line": 0, "new_str": "a"}),
        ("text_editor_20250429", EDITOR, LOOKED),
        ("text_editor_20250728", EDITOR, {"command": "insert", "insert_line": 0, "insert_text": "a"}),
        ("memory_20250818", "memory", KEPT),
    ],
)
def test_a_tool_that_the_client_runs_is_offered_with_what_it_takes(
    type_: str, name: str, given: dict[str, Any], stage: Stage
) -> None:
    stage.play(answer(written(name, given)))
    told = ask(stage, [{"type": type_, "name": name, "cache_control": {"type": "ephemeral"}}])
    assert [(name, given)] == [(call.name, json.loads(call.arguments)) for call in told.calls]
    assert "tool_use" == told.json["stop_reason"]
    report = stage.client.get(told.headers[REPORT]).json()["losses"]
    assert [("$.tools[0]", "approximated")] == [(loss["path"], loss["kind"]) for loss in report]
    [asked] = stage.asks[0]
    properties = shown(asked.json["prompt"], name)["parameters"]["properties"]
    assert set(given) <= set(properties)
    assert set(str(given.get("command", "")).split()) <= set(properties["command"].get("enum", ["ls"]))


def test_such_a_tool_can_be_demanded(stage: Stage) -> None:
    stage.play(answer('{"command": "ls"}\n<<END_TOOL_CALL>>'))
    told = ask(stage, [BASH], tool_choice={"type": "tool", "name": "bash"})
    assert ["bash"] == [call.name for call in told.calls]


@pytest.mark.parametrize(
    "tool",
    [
        {"type": "computer_20251124", "name": "computer", "display_width_px": 9, "display_height_px": 9},
        {"type": "web_search_20250305", "name": "web_search"},
        {"type": "bash_20991231", "name": "bash"},
    ],
    ids=lambda tool: tool["type"],
)
def test_a_tool_that_only_its_vendor_knows_is_left_out(tool: dict[str, Any], stage: Stage) -> None:
    stage.play(answer("No."))
    told = ask(stage, [tool])
    [loss] = stage.client.get(told.headers[REPORT]).json()["losses"]
    assert ("$.tools[0]", "dropped") == (loss["path"], loss["kind"])
    assert "its vendor's own" in loss["detail"]


def test_the_memory_of_the_sdk_keeps_what_the_model_writes(stage: Stage, tmp_path: Path) -> None:
    stage.play(answer(written("memory", KEPT)), answer("Kept."))
    with anthropic_sdk(stage.url) as sdk:
        runner = sdk.beta.messages.tool_runner(
            model="m",
            max_tokens=100,
            messages=[{"role": "user", "content": "Keep the word."}],
            tools=[BetaLocalFilesystemMemoryTool(base_path=str(tmp_path))],
        )
        [said] = runner.until_done().content
    assert "Kept." == said.text  # type: ignore[union-attr]
    assert "secret" == (tmp_path / "memories" / "word.txt").read_text(encoding="utf-8")


def test_the_request_itself_stays_and_a_tool_that_comes_later_is_told_too() -> None:
    added = {"type": "tool_addition", "tool": {"type": "tool_reference", "tool_name": "memory"}}
    turns = [
        {"role": "user", "content": "Hi"},
        {"role": "system", "content": [added]},
        {"role": "user", "content": "?"},
    ]
    body = {"model": "m", "max_tokens": 9, "messages": turns, "tools": [BASH, {**MEMORY, "defer_loading": True}]}
    request = ts.parse(json.dumps(body), API.name)
    as_function = API.serving.as_function
    assert as_function is not None
    told, losses = spelled(request, as_function)
    assert ["$.tools[0]", "$.tools[1]"] == [loss.path for loss in losses]
    assert ["function", "function"] == [tool.type for tool in told.tools]
    assert ["bash_20250124", "memory_20250818"] == [tool.type for tool in request.tools]
    assert body == ts.render(request, API.name).value
