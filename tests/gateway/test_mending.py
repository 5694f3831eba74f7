"""Owns the tests of calls that a client mends before it runs them: the prompt goes on from what the model wrote."""

import asyncio
import json
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

import turnscript as ts
from tests.growth import assert_grows_below
from turnscript.gateway.meaning import LONGEST, Mend, Mends, arguments, mend_of
from turnscript.gateway.memory import Memory

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
        "odd": {"type": "any"},
        "deep": {"type": "object", "properties": {"most": COUNT}},
    },
}
SYSTEM = "You help.\n\n# Environment\n - Primary working directory: /work/it\n - Is a git repository: false"
Mended = tuple[str, dict[str, Any], dict[str, Any]]
SAME: list[Mended] = [
    ("Edit", {"old_string": "a", "new_string": "b"}, {"replace_all": False, "old_string": "a", "new_string": "b"}),
    ("Edit", {"new_string": "b", "replace_all": "true"}, {"new_string": "b", "replace_all": True}),
    ("Bash", {"command": "ls", "timeout": "1000", "later": "false"}, {"command": "ls", "timeout": 1000}),
    ("find", {"text": "x"}, {"text": "x", "most": 10, "in": None}),
    ("find", {"text": "x", "most": 10.0}, {"text": "x"}),
    ("find", {"in": '["a", "b"]'}, {"in": ["a", "b"], "most": 10}),
]
TIDIED: list[Mended] = [
    ("Edit", {"new_string": "b  \n\tc \n"}, {"new_string": "b\n\tc\n", "replace_all": False}),
    ("Write", {"content": "a \r\nb\t\n\u2003\rc "}, {"content": "a\r\nb\n\rc"}),
    ("Write", {"file_path": 5, "content": "a "}, {"file_path": 5, "content": "a"}),
    ("Bash", {"command": "cd /work/it && ls -l && pwd"}, {"command": "ls -l && pwd"}),
    ("Bash", {"command": r"find . -exec ls {} \\;"}, {"command": r"find . -exec ls {} \;"}),
    ("Bash", {"command": "cd /work/it && ls", "timeout": "9"}, {"command": "ls", "timeout": 9}),
]
"""What Claude Code does to a text, which nobody undoes."""
KEPT: list[Mended] = [
    ("Edit", {"new_string": "b \n"}, {"new_string": "b \n", "replace_all": False}),
    ("Bash", {"command": "cd /work/it && ls", "timeout": "9"}, {"command": "cd /work/it && ls", "timeout": 9}),
    ("Bash", {"command": "cd /work && ls", "timeout": "9"}, {"command": "cd /work && ls", "timeout": 9}),
]
"""What is mended by the schema, and not tidied: another client's, or another version's."""
OTHER: list[Mended] = [
    ("Edit", {"new_string": "b"}, {"new_string": "b", "replace_all": True}),
    ("Edit", {"new_string": "  b"}, {"new_string": "b"}),
    ("Edit", {"new_string": "b"}, {"new_string": "b "}),
    ("Edit", {"new_string": "b  "}, {"new_string": "b "}),
    ("Edit", {"old_string": "b "}, {"old_string": "b"}),
    ("Write", {"content": "a\n"}, {"content": "a"}),
    ("Write", {"content": "a\r\nb"}, {"content": "a\nb"}),
    ("Write", {"file_path": "A.MD", "content": "a  \nb"}, {"file_path": "A.MD", "content": "a\nb"}),
    ("Edit", {"file_path": "a.mdx", "new_string": "a  "}, {"file_path": "a.mdx", "new_string": "a"}),
    ("Bash", {"command": "cd /work && ls"}, {"command": "cd /work"}),
    ("Bash", {"command": "cd /work && ls"}, {"command": "ls"}),
    ("Bash", {"command": "cd /work/it && ls"}, {"command": "cd /work && ls"}),
    ("Bash", {"command": "cd /work/it/in && ls"}, {"command": "ls"}),
    ("Bash", {"command": "cd /work/it; make && ls"}, {"command": "ls"}),
    ("Bash", {"command": "ls"}, {"command": "cd /work/it && ls"}),
    ("Bash", {"command": r"ls \;"}, {"command": r"ls \\;"}),
    ("Bash", {"command": "make && ls"}, {"command": "ls"}),
    ("Bash", {"command": "ls "}, {"command": "ls"}),
    ("find", {"text": "5"}, {"text": 5}),
    ("find", {"any": "5"}, {"any": 5}),
    ("find", {"free": "5"}, {"free": 5}),
    ("find", {"odd": "5"}, {"odd": 5}),
    ("find", {"most": "5"}, {"most": 6}),
    ("find", {"most": '"5"'}, {"most": 5}),
    ("find", {"most": 1}, {"most": True}),
    ("find", {"in": "null"}, {"in": []}),
    ("find", {"in": "null"}, {}),
    ("find", {"deep": {"most": "5"}}, {"deep": {"most": 5}}),
    ("find", {"text": "x"}, {"text": "x", "more": 10}),
    ("find", {"text": "x"}, {"text": "x", "most": 11}),
]


def body(*messages: dict[str, Any]) -> dict[str, Any]:
    """A request with the tools."""
    tools = [{"name": name, "input_schema": {"type": "object", "properties": of}} for name, of in SCHEMAS.items()]
    said = [{"role": "user", "content": "Go."}, *messages]
    return {"model": "m", "max_tokens": 9, "system": SYSTEM, "tools": tools, "messages": said}


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


@pytest.mark.parametrize(("tool", "written", "told"), [*TIDIED, *KEPT])
def test_a_call_may_be_tidied_or_not(tool: str, written: dict[str, Any], told: dict[str, Any]) -> None:
    assert [True, True, True] == grows(tool, written, told)


@pytest.mark.parametrize(("tool", "told", "written"), TIDIED)
def test_what_tidying_takes_away_is_not_put_back(tool: str, written: dict[str, Any], told: dict[str, Any]) -> None:
    assert [True, False, False] == grows(tool, written, told)


def test_no_folder_is_left_out_where_nobody_says_which_one_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(globals(), "SYSTEM", "You help.")
    assert [True, False, False] == grows("Bash", {"command": "cd /work/it && ls"}, {"command": "ls"})


@pytest.mark.parametrize(
    ("said", "folder"),
    [
        ("Working directory: /tmp/w", "/tmp/w"),
        ("<env>\nWorking directory: /\nPlatform: linux", "/"),
        (" - Primary working directory: C:\\work\\it\n", "C:\\work\\it"),
        (" - Primary working directory: C:/work", "C:/work"),
        ("Working directory: /tmp/with spaces", ""),
        ("Working directory: here", ""),
    ],
)
def test_the_folder_of_commands_is_told_by_the_instructions(
    said: str, folder: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(globals(), "SYSTEM", said)
    request = ts.get_api("anthropic-messages").parse_request(body())
    assert folder == Mends(request).written["Bash"].folder


@pytest.mark.parametrize(("tool", "written", "told"), OTHER)
def test_a_call_that_its_client_changes_is_what_the_client_says(
    tool: str, written: dict[str, Any], told: dict[str, Any]
) -> None:
    assert [True, False, False] == grows(tool, written, told)


def test_the_schemas_of_tools_that_came_later_and_stand_in_namespaces_count_too() -> None:
    request = ts.get_api("anthropic-messages").parse_request(body())
    tools, known = request.tools, Mends(request).told
    request.conversation.tools = [ts.Tool(type="namespace", name="of", tools=tools)]
    request.conversation.items.append(ts.ToolsChange(added=tools))
    grouped = {f"of__{name}": mend for name, mend in known.items()}
    assert {**known, **grouped} == Mends(request).told
    assert Mends(request).told.keys() == Mends(request).written.keys()
    assert {"Bash", "Edit", "Write"} == {name for name, mend in Mends(request).written.items() if mend.tool}
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
    mend = Mend(frozenset({("n", "1")}), frozenset({"n"}), frozenset({"n"}))
    for depth in range(900, 1010):
        nested = "[" * depth + "]" * depth
        for spelled in (f'{{"n": "{nested}"}}', f'{{"n": {nested}}}'):
            exact, _ = arguments(spelled, False, mend)
            assert arguments(spelled)[0] == exact
        for member in ("default", "anyOf"):
            schema = f'{{"properties": {{"n": {{"{member}": {nested}}}}}}}'
            tool = ts.Tool(name="f", parameters=msgspec.Raw(schema.encode()))
            assert ["f"] == list(Mends(ts.Request(conversation=ts.Conversation(tools=[tool]))).told)


def test_many_members_with_defaults_cost_no_more_than_each() -> None:
    def mended(count: int) -> Callable[[], object]:
        names = [f"k{number}" for number in range(count)]
        mend = Mend(frozenset((name, "1.0") for name in names), frozenset(names))
        return lambda: mend(dict.fromkeys(names, -1.0))

    assert_grows_below(20, mended, 1000, 8000)


def test_a_schema_as_long_as_no_tool_has_is_not_kept() -> None:
    members = {f"k{number}": {"default": "x" * 1000} for number in range(LONGEST // 1000)}
    assert Mend() == mend_of(json.dumps({"properties": members}).encode())
