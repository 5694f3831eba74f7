"""Owns reading test data: the corpus of named conversations, and the hard cases of what models write.

`corpus/NAME.json` is one conversation. An item's first key is its kind:

    {"title": "A call and its answer", "needs": ["calls", ...], "tools": [{"name": "now", ...}], "items": [
      {"user": "Hi", "name": "Alice"},
      {"thinking": "Hm.", "of": "reflect"},
      {"call": {"name": "now", "arguments": "{}", "id": "c1"}},
      {"result": {"name": "now", "id": "c1", "text": "12:00", "status": "ok"}},
      {"assistant": "Noon."}]}

`cases/hard_cases.json` holds outputs of models: what stands after a generation prompt, and what it must be read as.
Both are read strictly: a key that nobody declared is an error.
"""

from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, Literal

import msgspec
from msgspec import Raw, Struct

from tests.every import every
from turnscript import (
    Assistant,
    Conversation,
    Item,
    Part,
    Request,
    System,
    Text,
    Thinking,
    Tool,
    ToolCall,
    ToolResult,
    User,
)
from turnscript.core.conversation import text_content
from turnscript.core.json_text import Json, compact

CORPUS = Path(__file__).parent / "corpus"
HARD_CASES = Path(__file__).parent / "cases" / "hard_cases.json"

# What a conversation asks of a format that is to carry it whole: each word, and what it means. A format that lacks one
# reports a loss or refuses; which of its conversations those are, a law can read off the needs.
NEEDS = {
    "system": "instructions before anybody speaks",
    "system_runs": "two instructions in a row stay two",
    "mid_system": "instructions after somebody has spoken",
    "developer": "instructions in the developer role",
    "names": "a name for who speaks",
    "leading_assistant": "the model speaks before any user",
    "user_runs": "two user texts in a row stay two",
    "assistant_runs": "two assistant texts in a row stay two",
    "open": "a last text that the model is to continue",
    "thinking": "a thought",
    "thinking_kinds": "a thought that is not plain reasoning",
    "thinking_runs": "two thoughts in a row stay two",
    "late_thinking": "a thought after a text or a call of the same turn",
    "tools": "the list of tools that are offered",
    "bare_tools": "a tool without a description or without parameters",
    "rich_schemas": "parameters with more than a type and a description each",
    "calls": "a tool call",
    "parallel": "several calls in a row",
    "text_and_calls": "a call directly after a text",
    "unanswered": "a call that no result follows at once",
    "unknown_tools": "a call of a tool that is not offered",
    "ids": "ids of calls and results",
    "missing_ids": "a call or result without an id",
    "duplicate_ids": "two calls with one id",
    "odd_ids": "an id with more than letters, digits, `_` and `-`",
    "results": "a tool result",
    "unnamed_results": "a result that does not say which tool it comes from",
    "shuffled_results": "results in another order than their calls",
    "orphans": "a result that no call asked for",
    "status": "whether a tool failed",
    "invalid_arguments": "arguments that are no JSON object",
    "exact_arguments": "the spelling of a call's JSON: numbers, escapes, spaces, keys that come twice",
    "blank_lines": "blank lines inside a text",
    "outer_space": "white space at the ends of a text",
    "empty_text": "a text without characters",
    "carriage_returns": "line ends other than a line feed",
    "markers": "control literals of some format inside a content",
}


class _System(Struct, forbid_unknown_fields=True):
    system: str
    role: str = "system"

    def item(self) -> Item:
        return System(content=_content(self.system), role=self.role)


class _User(Struct, forbid_unknown_fields=True):
    user: str
    name: str | None = None

    def item(self) -> Item:
        return User(content=_content(self.user), name=self.name)


class _Assistant(Struct, forbid_unknown_fields=True):
    assistant: str
    open: bool = False

    def item(self) -> Item:
        return Assistant(content=_content(self.assistant), open=self.open)


class _Thinking(Struct, forbid_unknown_fields=True):
    thinking: str
    of: str = "reason"

    def item(self) -> Item:
        return Thinking(content=_content(self.thinking), of=self.of)


class _CallFields(Struct, forbid_unknown_fields=True):
    name: str
    arguments: str
    id: str | None = None


class _Call(Struct, forbid_unknown_fields=True):
    call: _CallFields

    def item(self) -> Item:
        return ToolCall(name=self.call.name, arguments=self.call.arguments, id=self.call.id)


class _ResultFields(Struct, forbid_unknown_fields=True):
    text: str
    id: str | None = None
    name: str | None = None
    status: str | None = None


class _Result(Struct, forbid_unknown_fields=True):
    result: _ResultFields

    def item(self) -> Item:
        told = self.result
        return ToolResult(content=_content(told.text), id=told.id, name=told.name, status=told.status)


_Entry = _System | _User | _Assistant | _Thinking | _Call | _Result
_KINDS: dict[str, type[_Entry]] = {
    "system": _System,
    "user": _User,
    "assistant": _Assistant,
    "thinking": _Thinking,
    "call": _Call,
    "result": _Result,
}


class _Tool(Struct, forbid_unknown_fields=True):
    name: str
    description: str | None = None
    parameters: Raw = Raw(b"")

    def tool(self) -> Tool:
        schema = Json(compact(self.parameters).encode()) if bytes(self.parameters) else None
        return Tool(name=self.name, description=self.description, parameters=schema)


class _File(Struct, forbid_unknown_fields=True):
    title: str
    needs: list[str]
    items: list[Raw]
    tools: list[_Tool] = []


def names() -> list[str]:
    """The names of all conversations, sorted."""
    return sorted(path.stem for path in CORPUS.glob("*.json"))


def on_every(law: Callable[..., None]) -> Callable[..., None]:
    """A test that holds a law, which takes a `name`, on every conversation."""
    return every("name", names())(law)


def load(name: str) -> Request:
    """A conversation as a request; every call gives fresh objects."""
    return _request(*_told(name))


@cache
def _told(name: str) -> tuple[list[_Entry], list[_Tool]]:
    """What a conversation's file says. Laws load each many thousand times."""
    return _entries((CORPUS / f"{name}.json").read_bytes())


def needs(name: str) -> frozenset[str]:
    """What a format must be able to do to carry the conversation without a loss: words of `NEEDS`."""
    return frozenset(_read((CORPUS / f"{name}.json").read_bytes()).needs)


def parse(data: bytes) -> Request:
    """The request that a corpus file describes. Raises msgspec.ValidationError for anything that is not declared."""
    return _request(*_entries(data))


def _entries(data: bytes) -> tuple[list[_Entry], list[_Tool]]:
    file = _read(data)
    return [_entry(raw) for raw in file.items], file.tools


def _request(entries: list[_Entry], tools: list[_Tool]) -> Request:
    items = [entry.item() for entry in entries]
    return Request(conversation=Conversation(items=items, tools=[tool.tool() for tool in tools]))


def _read(data: bytes) -> _File:
    file = msgspec.json.decode(data, type=_File)
    unknown = [need for need in file.needs if need not in NEEDS]
    if unknown:
        raise msgspec.ValidationError(f"no such need: {', '.join(unknown)}")
    return file


def _entry(raw: Raw) -> _Entry:
    kind = next(iter(msgspec.json.decode(raw, type=dict[str, Raw])), "")
    if kind not in _KINDS:
        raise msgspec.ValidationError(f"an item begins with its kind ({', '.join(_KINDS)}), not with {kind!r}")
    return msgspec.json.decode(raw, type=_KINDS[kind])


def _content(text: str) -> list[Part]:
    return [Text(text=text)]


# Hard cases: what a model wrote, and what that is.


class Expected(Struct, forbid_unknown_fields=True):
    """What an output is read as: items in the shape of `outline`, why it ended, and the kinds of issues in order."""

    items: list[dict[str, Any]]
    finish_reason: str
    issues: list[str]


class HardCase(Struct, forbid_unknown_fields=True):
    """One output of a model.

    `case` numbers the list of hard cases that it stands for. `tools` are names from the file's list of tools.
    `thinking`: the prompt has opened a thought. `choice`: the request's tool choice. `finish`: why the backend stopped,
    None if it did not say. `chunks`: a way to cut the output that has broken parsers; joined, they are the output.
    """

    case: int
    title: str
    format: str
    output: str
    expect: Expected
    tools: list[str] = []
    thinking: bool = False
    choice: Literal["auto", "none"] = "auto"
    finish: Literal["stop", "length"] | None = None
    chunks: list[str] = []


class HardCases(Struct, forbid_unknown_fields=True):
    """The file: what each kind of issue means, the tools that cases name, and the cases."""

    issues: dict[str, str]
    tools: list[_Tool]
    cases: list[HardCase]

    def offered(self, case: HardCase) -> list[Tool]:
        """The tools that a case offers to the model."""
        known = {tool.name: tool for tool in self.tools}
        return [known[name].tool() for name in case.tools]


@cache
def hard_cases() -> HardCases:
    """All hard cases."""
    return msgspec.json.decode(HARD_CASES.read_bytes(), type=HardCases)


def outline(items: list[Item]) -> list[dict[str, Any]]:
    """Items of a response as hard cases write them. An id, or a kind of thought, stands there only if there is one."""
    return [_outline(item) for item in items]


def _outline(item: Item) -> dict[str, Any]:
    if isinstance(item, Thinking):
        kind = {} if item.of == "reason" else {"of": item.of}
        return {"thinking": text_content(item.content), **kind}
    if isinstance(item, ToolCall):
        identity = {} if item.id is None else {"id": item.id}
        return {"call": {"name": item.name, "arguments": item.arguments, **identity}}
    assert isinstance(item, Assistant), f"a model does not write a {item.kind}"
    return {"text": text_content(item.content)}
