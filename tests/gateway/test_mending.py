"""Owns the tests of calls that a client mends before it runs them: the prompt goes on from what the model wrote."""

import asyncio
import json
from typing import Any

import msgspec
import pytest

import turnscript as ts
from turnscript.gateway.meaning import arguments
from turnscript.gateway.memory import Memory
from turnscript.gateway.mending import Mend, mends

FORMAT = ts.get_format("rwkv-universal")
TEXT, FLAG, COUNT = {"type": "string"}, {"type": "boolean", "default": False}, {"type": "integer"}
SCHEMAS: dict[str, dict[str, Any]] = {
    "Edit": {"file_path": TEXT, "old_string": TEXT, "new_string": TEXT, "replace_all": FLAG},
    "Write": {"file_path": TEXT, "content": TEXT},
    "Bash": {"command": TEXT, "timeout": {"type": ["number", "null"]}, "later": FLAG},
    "find": {
        "text": TEXT,
        "most": COUNT | {"default": 10},
        "in": {"anyOf": [{"type": "array", "items": TEXT}, {"type": "null"}], "default": None},
        "any": {"anyOf": [{"type": "integer"}, {"type": "string"}]},
        "free": {},
    },
}
Mended = tuple[str, dict[str, Any], dict[str, Any]]
SAME: list[Mended] = [
    ("Edit", {"old_string": "a", "new_string": "b"}, {"replace_all": False, "old_string": "a", "new_string": "b"}),
    ("Edit", {"new_string": "b", "replace_all": "true"}, {"new_string": "b", "replace_all": True}),
    ("Edit", {"new_string": "b  \n\tc \n"}, {"new_string": "b\n\tc\n", "replace_all": False}),
    ("Write", {"content": "a \r\nb\t\n"}, {"content": "a\r\nb\n"}),
    ("Bash", {"command": "cd /work/it && ls -l && pwd"}, {"command": "ls -l && pwd"}),
    ("Bash", {"command": r"find . -exec ls {} \\;"}, {"command": r"find . -exec ls {} \;"}),
    ("Bash", {"command": "ls", "timeout": "1000", "later": "false"}, {"command": "ls", "timeout": 1000}),
    ("find", {"text": "x"}, {"text": "x", "most": 10, "in": None}),
    ("find", {"text": "x", "most": 10.0}, {"text": "x"}),
    ("find", {"in": '["a", "b"]'}, {"in": ["a", "b"], "most": 10}),
]
OTHER: list[Mended] = [
    ("Edit", {"new_string": "b"}, {"new_string": "b", "replace_all": True}),
    ("Edit", {"new_string": "  b"}, {"new_string": "b"}),
    ("Edit", {"old_string": "b "}, {"old_string": "b"}),
    ("Write", {"content": "a\n"}, {"content": "a"}),
    ("Bash", {"command": "cd /work && ls"}, {"command": "cd /work"}),
    ("Bash", {"command": "make && ls"}, {"command": "ls"}),
    ("Bash", {"command": "ls "}, {"command": "ls"}),
    ("find", {"text": "5"}, {"text": 5}),
    ("find", {"any": "5"}, {"any": 5}),
    ("find", {"free": "5"}, {"free": 5}),
    ("find", {"most": "5"}, {"most": 6}),
    ("find", {"in": "null"}, {"in": []}),
    ("find", {"text": "x"}, {"text": "x", "more": 10}),
    ("find", {"text": "x"}, {"text": "x", "most": 11}),
]


def body(*messages: dict[str, Any]) -> dict[str, Any]:
    """A request with the tools."""
    tools = [{"name": name, "input_schema": {"type": "object", "properties": of}} for name, of in SCHEMAS.items()]
    return {"model": "m", "max_tokens": 9, "tools": tools, "messages": [{"role": "user", "content": "Go."}, *messages]}


def grows(tool: str, written: dict[str, Any], told: dict[str, Any]) -> list[bool]:
    """Whether each prompt of a session begins with the one before it and what the model wrote there, where its client
    sends a call back as it has mended it."""
    memory, api = Memory(), ts.get_api("anthropic-messages")
    said: list[dict[str, Any]] = []
    grown: list[bool] = []
    before = ""

    async def turn(number: int) -> str:
        nonlocal before
        request = api.parse_request(body(*said))
        recalled = await memory.recall("scope", request)
        prompt = FORMAT.prompt(request, replays=recalled.replays)
        grown.append(prompt.text.startswith(before))
        text = f"Look.\n<<ASSISTANT_END>>\n\n{called(tool, written, number)}"
        parser = prompt.parser()
        response = ts.fold(parser.feed(text) + parser.close())
        assert memory.remember(recalled, response, prompt)
        before = prompt.text + text
        return f"call_{number}"

    for number in range(3):
        id_ = asyncio.run(turn(number))
        use = {"type": "tool_use", "id": id_, "name": tool, "input": told}
        said.append({"role": "assistant", "content": [{"type": "text", "text": "Look."}, use]})
        said.append({"role": "user", "content": [{"type": "tool_result", "tool_use_id": id_, "content": "done"}]})
    return grown


def called(tool: str, written: dict[str, Any], number: int) -> str:
    """A call as the model writes it."""
    return f'<<TOOL_CALL name="{tool}" id="call_{number}">>\n{json.dumps(written, indent=1)}\n<<END_TOOL_CALL>>'


@pytest.mark.parametrize(("tool", "written", "told"), SAME)
def test_a_call_that_its_client_mends_stays_as_the_model_wrote_it(
    tool: str, written: dict[str, Any], told: dict[str, Any]
) -> None:
    assert [True, True, True] == grows(tool, written, told)
    assert [True, True, True] == grows(tool, told, written)


@pytest.mark.parametrize(("tool", "written", "told"), OTHER)
def test_a_call_that_its_client_changes_is_what_the_client_says(
    tool: str, written: dict[str, Any], told: dict[str, Any]
) -> None:
    assert [True, False, False] == grows(tool, written, told)


def test_the_schemas_of_tools_that_came_later_and_stand_in_namespaces_count_too() -> None:
    request = ts.get_api("anthropic-messages").parse_request(body())
    tools, known = request.tools, mends(request)
    request.conversation.tools = [ts.Tool(type="namespace", name="of", tools=tools)]
    request.conversation.items.append(ts.ToolsChange(added=tools))
    grouped = {f"of__{name}": mend._replace(tool=f"of__{name}") for name, mend in known.items()}
    assert known | grouped == mends(request)
    assert {"replace_all"} == known["Edit"].untexted


@pytest.mark.parametrize(
    "schema",
    [
        {},
        [],
        {"x": True, "y": {"type": 5, "default": {"deep": [1]}}},
        {"x": {"type": ["string", 5]}, "y": {"anyOf": [5, {}]}},
        {"x": {"$ref": "#/$defs/X"}},
        {"x": {"anyOf": [{"type": "integer"}, {"$ref": "#/$defs/X"}]}},
    ],
)
def test_an_odd_schema_mends_nothing(schema: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(SCHEMAS, "odd", schema)
    assert [True, True, True] == grows("odd", {"x": "5"}, {"x": "5"})
    assert [True, False, False] == grows("odd", {"x": "5"}, {"x": 5})


def test_arguments_and_schemas_of_any_depth_have_a_meaning() -> None:
    """What a program can just read may nest too deeply for what is done with it then."""
    mend = Mend("f", frozenset({("n", "1")}), frozenset({"n"}))
    for depth in range(900, 1010):
        nested = "[" * depth + "]" * depth
        for spelled in (f'{{"n": "{nested}"}}', f'{{"n": {nested}}}'):
            exact, _ = arguments(spelled, False, mend)
            assert arguments(spelled)[0] == exact
        for member in ("default", "anyOf"):
            schema = f'{{"properties": {{"n": {{"{member}": {nested}}}}}}}'
            tool = ts.Tool(name="f", parameters=msgspec.Raw(schema.encode()))
            assert ["f"] == list(mends(ts.Request(conversation=ts.Conversation(tools=[tool]))))
