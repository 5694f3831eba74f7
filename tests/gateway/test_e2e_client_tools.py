"""Owns OpenAI's own tools that the client runs, end to end: a model is told what they take, and calls them."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2
import openai
import pytest
from openai.types.responses import Response, ResponseApplyPatchToolCall, ResponseFunctionShellToolCall
from openai.types.responses.response_output_item import LocalShellCall

import turnscript as ts
from tests.answers.javascript import JavaScript
from tests.gateway.speaker import Speaker, Talk, call, speaking, text
from tests.gateway.stage import NO_TLS
from turnscript.core.conversation import Item, Tool
from turnscript.gateway.hygiene import clean
from turnscript.gateway.offers import offer

ASKED: Any = [{"role": "user", "content": "Look around."}]
EXIT = {"type": "exit", "exit_code": 0}


@dataclass(frozen=True)
class Kind:
    """A tool: how it is declared, a call of it, what it does, the item that tells it, and what its client answers."""

    type: str
    given: Any
    action: Any
    told: Any
    answer: Any
    member: str = "action"
    shown: str = "a.txt"

    def output(self, call_id: str) -> Any:
        """What the client sends back."""
        return {"type": f"{self.type}_call_output", "call_id": call_id, **self.answer}


_DIFF = "@@ def f():\n-    return 1\n+    return 2\n"
SHELL = Kind(
    "shell",
    {"commands": ["ls", "echo hi"], "timeout_ms": 1000},
    {"commands": ["ls", "echo hi"], "timeout_ms": 1000, "max_output_length": None},
    ResponseFunctionShellToolCall,
    {"output": [{"stdout": "a.txt\n", "stderr": "", "outcome": EXIT}], "max_output_length": 99},
)
LOCAL = Kind(
    "local_shell",
    {"command": ["ls", "-l"], "working_directory": "/tmp"},
    {"type": "exec", "command": ["ls", "-l"], "env": {}, "working_directory": "/tmp"},
    LocalShellCall,
    {"output": '{"stdout": "a.txt\\n"}'},
)
PATCH = Kind(
    "apply_patch",
    {"type": "update_file", "path": "a.py", "diff": _DIFF},
    {"type": "update_file", "path": "a.py", "diff": _DIFF},
    ResponseApplyPatchToolCall,
    {"status": "failed", "output": "There is no a.txt"},
    member="operation",
)
KINDS = [SHELL, LOCAL, PATCH]
SPOKEN = [Tool(name=name) for kind in KINDS for name in (kind.type, f"{kind.type}_2")]


def by_type(kind: Kind) -> str:
    return kind.type


@pytest.fixture(scope="module", params=["rwkv-universal", "rwkv-goose", "openchatml"])
def talk(request: pytest.FixtureRequest) -> Iterator[Talk]:
    with speaking(Speaker(ts.get_format(request.param), SPOKEN), context=8000) as made:
        yield made


def grew(speaker: Speaker) -> bool:
    return all(
        after.prompt.startswith(before.prompt + before.written.rstrip())
        for before, after in zip(speaker.said, speaker.said[1:], strict=False)
    )


def ask(sdk: openai.OpenAI, stream: bool, given: Any, tools: Any, **more: Any) -> Response:
    """The answer, whole or from a stream."""
    if not stream:
        whole: Response = sdk.responses.create(model="m", input=given, tools=tools, **more)
        return whole
    with sdk.responses.stream(model="m", input=given, tools=tools, **more) as opened:
        final: Response = opened.get_final_response()
        return final


def reported(sdk: openai.OpenAI, headers: Any) -> Any:
    """What the gateway says of an answer."""
    return httpx2.get(str(sdk.base_url.copy_with(path=headers["x-turnscript-report"])), verify=NO_TLS).json()


def spoken(kind: Kind) -> Item:
    return call(kind.type, **kind.given)


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("kind", KINDS, ids=by_type)
def test_a_model_calls_a_tool_that_the_client_runs(
    kind: Kind, stream: bool, sdk: openai.OpenAI, speaker: Speaker
) -> None:
    speaker.say(text("I look."), spoken(kind))
    speaker.say(spoken(kind), change=lambda written: written.replace('": ', '" :  '))
    speaker.say(text("Done."))
    given, tools = list(ASKED), [{"type": kind.type}]
    for _ in range(2):
        answer = ask(sdk, stream, given, tools)
        said: Any = answer.output[-1]
        assert (kind.told, "completed", "completed") == (type(said), said.status, answer.status)
        assert kind.action == said.to_dict()[kind.member]
        given += [one.model_dump() for one in answer.output]  # with a null for all that it might say
        given.append(kind.output(said.call_id))
    assert "Done." == ask(sdk, stream, given, tools).output_text
    assert grew(speaker)
    assert kind.shown in speaker.said[-1].prompt
    first = speaker.said[0].prompt
    assert 1 == first.count(f'"{kind.type}"') or f" {kind.type}" in first
    assert all(name in first for name in kind.given if name != "type")


@pytest.mark.parametrize("kind", KINDS, ids=by_type)
def test_it_goes_on_from_an_id_and_is_kept(kind: Kind, sdk: openai.OpenAI, speaker: Speaker) -> None:
    tools: Any = [{"type": kind.type}, {"type": "function", "name": kind.type, "parameters": {}, "strict": None}]
    speaker.say(call(f"{kind.type}_2", **kind.given))
    first = ask(sdk, False, ASKED, tools)
    said: Any = first.output[0]
    kept = sdk.responses.retrieve(first.id)
    assert first.output == kept.output
    assert {"type": kind.type} == kept.tools[0].to_dict()
    speaker.say(text("Done."))
    later = ask(sdk, False, [kind.output(said.call_id)], tools, previous_response_id=first.id)
    assert "Done." == later.output_text
    assert grew(speaker)
    listed: Any = list(sdk.responses.input_items.list(later.id, order="asc"))
    assert [(f"{kind.type}_call_output", said.call_id)] == [(one.type, one.call_id) for one in listed]
    speaker.say(text("Again."))
    named = [*ASKED, {"type": "item_reference", "id": said.id}, kind.output(said.call_id)]
    assert "Again." == ask(sdk, False, named, tools).output_text
    assert speaker.said[-1].prompt == speaker.said[-2].prompt


OTHER: Any = {"type": "function", "name": "other", "parameters": {"type": "object"}, "strict": False}


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("kind", [SHELL, PATCH], ids=by_type)
def test_it_can_be_demanded_by_its_type(kind: Kind, stream: bool, sdk: openai.OpenAI, speaker: Speaker) -> None:
    speaker.say(spoken(kind))
    answer = ask(sdk, stream, ASKED, [OTHER, {"type": kind.type}], tool_choice={"type": kind.type})
    assert [kind.told] == [type(one) for one in answer.output]
    assert {"type": kind.type} == answer.to_dict()["tool_choice"]
    assert begun(kind, speaker)


def test_a_local_shell_can_be_demanded_though_the_api_has_no_such_choice(sdk: openai.OpenAI, speaker: Speaker) -> None:
    choices: list[Any] = [{"type": "local_shell"}, {"type": "function", "name": "local_shell"}]
    for choice in choices:
        speaker.say(spoken(LOCAL))
        answer = ask(sdk, False, ASKED, [OTHER, {"type": "local_shell"}], tool_choice=choice)
        assert [LocalShellCall] == [type(one) for one in answer.output]
        assert choice == answer.to_dict(warnings=False)["tool_choice"]
        assert begun(LOCAL, speaker)


def begun(kind: Kind, speaker: Speaker) -> bool:
    """Whether the prompt has begun the call; some formats write the name behind the arguments."""
    return re.search(rf'{kind.type}\W+|"arguments": ', speaker.said[-1].prompt[-60:]) is not None


@pytest.mark.parametrize("kind", KINDS, ids=by_type)
def test_it_can_be_among_the_allowed_tools(kind: Kind, sdk: openai.OpenAI, speaker: Speaker) -> None:
    choice = {"type": "allowed_tools", "mode": "required", "tools": [{"type": kind.type}]}
    speaker.say(spoken(kind))
    answer = ask(sdk, True, ASKED, [OTHER, {"type": kind.type}], tool_choice=choice)
    assert [kind.told] == [type(one) for one in answer.output]
    assert "other" not in speaker.said[-1].prompt


@pytest.mark.parametrize("kind", KINDS, ids=by_type)
def test_a_function_of_the_same_name_is_another(kind: Kind, sdk: openai.OpenAI, speaker: Speaker) -> None:
    namesake = {"type": "function", "name": kind.type, "parameters": {"type": "object"}, "strict": False}
    for name, type_ in ((kind.type, "function_call"), (f"{kind.type}_2", f"{kind.type}_call")):
        speaker.say(call(name, **kind.given))
        [said] = ask(sdk, True, ASKED, [{"type": kind.type}, namesake]).output
        assert type_ == said.type


WRONG: Any = {
    "shell": {"commands": "ls"},
    "local_shell": {"command": ["ls", 1]},
    "apply_patch": {"type": "update_file"},
}


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("kind", KINDS, ids=by_type)
def test_what_is_nothing_that_the_tool_does_is_told_as_the_call_of_a_function(
    kind: Kind, stream: bool, sdk: openai.OpenAI, speaker: Speaker
) -> None:
    speaker.say(call(kind.type, **WRONG[kind.type]))
    [said] = ask(sdk, stream, ASKED, [{"type": kind.type}]).output
    assert ("function_call", kind.type) == (said.type, getattr(said, "name", ""))
    assert WRONG[kind.type] == json.loads(getattr(said, "arguments", ""))
    speaker.say(text("Sorry."))
    result = {"type": "function_call_output", "call_id": said.call_id, "output": "no such tool"}  # type: ignore[union-attr]
    assert "Sorry." == ask(sdk, stream, [*ASKED, said.to_dict(), result], [{"type": kind.type}]).output_text
    assert grew(speaker)


def test_a_call_is_checked_and_what_the_model_is_told_is_reported(sdk: openai.OpenAI, speaker: Speaker) -> None:
    tools: Any = [{"type": kind.type} for kind in KINDS]
    speaker.say(call("apply_patch", type="update_file", path="a"))
    told = sdk.responses.with_raw_response.create(model="m", input=ASKED, tools=tools)
    report = reported(sdk, told.headers)
    assert [("schema_mismatch", "apply_patch")] == [(one["kind"], one["tool"]) for one in report["findings"]]
    details = {loss["path"]: loss["detail"] for loss in report["losses"] if "a tool of type" in loss["detail"]}
    assert [f"$.tools[{index}]" for index in range(3)] == list(details)
    assert all(kind.type in detail for kind, detail in zip(KINDS, details.values(), strict=True))
    assert ("items[0]", "approximated") == (report["losses"][-1]["path"], report["losses"][-1]["kind"])
    speaker.say(call("apply_patch", type="delete_file", path="a"))
    told = sdk.responses.with_raw_response.create(model="m", input=ASKED, tools=tools)
    assert [] == reported(sdk, told.headers)["findings"]
    assert {"type": "delete_file", "path": "a"} == told.parse().output[0].to_dict()["operation"]


def test_a_stream_tells_the_commands_of_a_shell_one_after_the_other(sdk: openai.OpenAI, speaker: Speaker) -> None:
    speaker.say(spoken(SHELL))
    events = list(sdk.responses.create(model="m", input=ASKED, tools=[{"type": "shell"}], stream=True))
    told = [event.type.removeprefix("response.") for event in events]
    command = [f"shell_call_command.{what}" for what in ("added", "delta", "done")]
    assert ["created", "in_progress", "output_item.added", *command, *command, "output_item.done", "completed"] == told
    added, done = (event.to_dict()["item"] for event in events if event.type.startswith("response.output_item"))
    assert ([], SHELL.given["commands"]) == (added["action"]["commands"], done["action"]["commands"])  # type: ignore[index]
    assert [0, 0, 0, 1, 1, 1] == [getattr(event, "command_index", 9) for event in events[3:9]]
    assert ["ls", "echo hi"] == [event.command for event in events if event.type == "response.shell_call_command.done"]


@pytest.mark.parametrize("way", ["", ".stream"], ids=["whole", "streamed"])
def test_the_javascript_sdk_takes_the_calls_and_sends_them_back(way: str, talk: Talk, speaker: Speaker) -> None:
    given, tools = list(ASKED), [{"type": kind.type} for kind in KINDS]
    with JavaScript() as javascript:
        for kind in KINDS:
            speaker.say(spoken(kind))
            told = javascript.ask(f"responses{way}", talk, model="m", input=given, tools=tools)
            assert told.error is None, told.error
            [said] = told.result["output"]
            assert (f"{kind.type}_call", kind.action) == (said["type"], said[kind.member])
            given += [said, kind.output(said["call_id"])]
    assert grew(speaker)


@pytest.mark.parametrize(
    "tool",
    [
        {"type": "shell", "environment": {"type": "container_auto"}},
        {"type": "shell", "environment": {"type": "container_reference", "container_id": "c"}},
        {"type": "computer_use_preview", "display_width": 9, "display_height": 9, "environment": "linux"},
        {"type": "computer"},
        {"type": "web_search"},
        {"type": "code_interpreter", "container": {"type": "auto"}},
        {"type": "image_generation"},
        {"type": "file_search", "vector_store_ids": ["v"]},
    ],
    ids=lambda tool: tool["type"],
)
def test_what_only_the_vendor_can_run_stays_left_out(tool: Any, sdk: openai.OpenAI, speaker: Speaker) -> None:
    speaker.say(text("No."))
    told = sdk.responses.with_raw_response.create(model="m", input=ASKED, tools=[tool])
    [loss] = [loss for loss in reported(sdk, told.headers)["losses"] if loss["path"].startswith("$.tools")]
    assert ("$.tools[0]", "dropped") == (loss["path"], loss["kind"])
    with pytest.raises(openai.BadRequestError, match="its vendor's own"):
        sdk.responses.create(model="m", input=ASKED, tools=[tool], tool_choice={"type": tool["type"]})
    assert not speaker.left


def test_what_a_server_ran_in_a_container_is_no_call_here(sdk: openai.OpenAI, speaker: Speaker) -> None:
    ran = {"type": "shell_call", "call_id": "c1", "action": SHELL.action, "status": "completed"}
    ran["environment"] = {"type": "container_reference", "container_id": "x"}
    speaker.say(text("Hi."))
    given = [*ASKED, ran, SHELL.output("c1")]
    told = sdk.responses.with_raw_response.create(model="m", input=given, tools=[{"type": "shell"}])
    lost = [(loss["path"], loss["kind"]) for loss in reported(sdk, told.headers)["losses"]]
    assert [("$.input[1]", "dropped"), ("$.input[2]", "dropped")] == [one for one in lost if "input" in one[0]]
    assert "a.txt" not in speaker.said[-1].prompt


def test_an_output_may_name_its_call_in_other_ways(sdk: openai.OpenAI, speaker: Speaker) -> None:
    speaker.say(spoken(LOCAL))
    first = ask(sdk, False, ASKED, [{"type": "local_shell"}])
    [said] = first.output
    outputs: list[Any] = [{"id": said.call_id}, {"id": said.id}]  # type: ignore[union-attr]
    outputs = [{"type": "local_shell_call_output", "output": "a.txt", **one} for one in outputs]
    outputs.append({"type": "function_call_output", "call_id": said.call_id, "output": "a.txt"})  # type: ignore[union-attr]
    prompts = []
    for output in outputs:
        speaker.say(text("Done."))
        ask(sdk, False, [*ASKED, said.to_dict(), output], [{"type": "local_shell"}])
        prompts.append(speaker.said[-1].prompt)
        speaker.say(text("Done."))
        ask(sdk, False, [output], [{"type": "local_shell"}], previous_response_id=first.id)
        prompts.append(speaker.said[-1].prompt)
    assert 1 == len(set(prompts))
    assert "a.txt" in prompts[0]


def test_skills_of_a_shell_are_told(sdk: openai.OpenAI, speaker: Speaker) -> None:
    skill = {"name": "pdf", "description": "Reads PDFs.", "path": "/skills/pdf"}
    tool: Any = {"type": "shell", "environment": {"type": "local", "skills": [skill]}}
    speaker.say(text("Hi."))
    told = sdk.responses.with_raw_response.create(model="m", input=ASKED, tools=[tool])
    assert all(word in speaker.said[-1].prompt for word in skill.values())
    assert not [loss for loss in reported(sdk, told.headers)["losses"] if "environment" in loss["path"]]


def test_a_patch_that_says_no_more_than_its_status(sdk: openai.OpenAI, speaker: Speaker) -> None:
    speaker.say(spoken(PATCH))
    [said] = ask(sdk, False, ASKED, [{"type": "apply_patch"}]).output
    for status in ("completed", "failed"):
        speaker.say(text("Done."))
        output = {"type": "apply_patch_call_output", "call_id": said.call_id, "status": status}  # type: ignore[union-attr]
        ask(sdk, False, [*ASKED, said.to_dict(), output], [{"type": "apply_patch"}])
        assert status in speaker.said[-1].prompt.removeprefix(speaker.said[0].prompt)


def test_a_client_runs_what_the_model_wants(sdk: openai.OpenAI, speaker: Speaker, tmp_path: Path) -> None:
    (tmp_path / "word.txt").write_text("secret", encoding="utf-8")
    speaker.say(call("local_shell", command=["cat", "word.txt"]))
    speaker.say(text("It is secret."))
    given, tools = list(ASKED), [{"type": "local_shell"}]
    answer = ask(sdk, True, given, tools)
    for one in answer.output:
        assert isinstance(one, LocalShellCall)
        action = one.action
        ran = subprocess.run(action.command, env=action.env, cwd=tmp_path, capture_output=True, text=True, check=True)
        given += [one.to_dict(), {"type": "local_shell_call_output", "call_id": one.call_id, "output": ran.stdout}]
    assert "It is secret." == ask(sdk, True, given, tools).output_text
    assert "secret" in speaker.said[-1].prompt


@pytest.mark.parametrize("name", ts.formats())
def test_every_format_shows_the_tools_their_calls_and_their_outputs(name: str) -> None:
    format_ = ts.get_format(name)
    given = list(ASKED)
    for index, kind in enumerate(KINDS):
        given.append(
            {"type": f"{kind.type}_call", "call_id": f"c{index}", kind.member: kind.action, "status": "completed"}
        )
        given.append(kind.output(f"c{index}"))
    body = {"model": "m", "tools": [{"type": kind.type} for kind in KINDS], "input": given}
    cleaned = clean(ts.parse(json.dumps(body), "openai-responses"))
    prompt = offer(cleaned.request, format_).prompt(format_)
    assert {kind.type for kind in KINDS} <= set(prompt.offered)
    assert "in the V4A form" in prompt.text
    assert 3 == prompt.text.count("a.txt")
    assert "dropped" not in [loss.kind for loss in [*cleaned.losses, *prompt.losses] if loss.path.startswith("$.tools")]
