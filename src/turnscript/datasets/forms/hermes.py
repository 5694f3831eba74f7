"""Calls as tagged text in turns with `from` and `value`, or in messages: what Hermes models are trained with.

    {"conversations": [
      {"from": "system", "value": "... <tools>[{...}]</tools> ..."},
      {"from": "human", "value": "Is it cold in Oslo?"},
      {"from": "gpt", "value": "<tool_call>\\n{\\"name\\": \\"weather\\", \\"arguments\\": {...}}\\n</tool_call>"},
      {"from": "tool", "value": "<tool_response>\\n{...}\\n</tool_response>"}]}

Spec: https://github.com/NousResearch/Hermes-Function-Calling.

Quirks: calls, results and tools become real ones, so that any format can write them its own way. The sentences of the
system text that tell a model how to call are left out; any other sentence stays, but one that speaks of the tags is
refused. Tools are those of the system text; a `tools` member beside the turns is its copy. A call that cannot be read
refuses the row. White space around the tags is not kept. `<think>` at the beginning of a turn is a thought. Results may
stand in a turn of the user, as Qwen's template writes them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from turnscript.core.conversation import Assistant, Item, System, Tool, ToolResult, User
from turnscript.core.json_text import Json
from turnscript.datasets.chat_rows import read_tools, spelled_list
from turnscript.datasets.form import Example, Form
from turnscript.datasets.members import (
    Members,
    absent,
    check_unread,
    check_wanted,
    first_byte,
    is_null,
    list_of,
    object_of,
    record,
    required_text,
    unread,
)
from turnscript.datasets.problems import BadRow, Code
from turnscript.datasets.tagged_calls import is_tagged, split_tagged, value_in
from turnscript.datasets.tagged_thoughts import split_thought
from turnscript.datasets.turns import Turns
from turnscript.datasets.weights import take_weight, take_weight_of_row

_READS = ("conversations", "messages", "tools")
_CALLS = frozenset({"tool_calls", "function_call"})
_MEMBERS = (("conversations", "from", "value"), ("messages", "role", "content"))
_SIDES = {
    "system": "system",
    "human": "user",
    "user": "user",
    "gpt": "assistant",
    "assistant": "assistant",
    "tool": "result",
}
_KINDS: dict[str, type[Item]] = {"system": System, "user": User, "assistant": Assistant, "result": ToolResult}
_TAGS = re.compile(r"</?(?:tools|tool_call|tool_response)>")
_ANSWERED = re.compile(r"\s*<tool_response>")
_TOOLS = re.compile(r"<tools>(?=\s*[\[{])")
_TOOLS_END = "</tools>"
_OBJECT = r"\{(?:[^{}]|\{(?:[^{}]|\{[^{}]*\})*\})*\}"
_EXAMPLE = (
    r"For each function call,? return a (?i:json) object with function name and arguments within "
    r"<tool_call> ?</tool_call> (?:XML )?tags(?: as follows| with the following schema)?[:.]?"
    rf"\s*<tool_call>\s*{_OBJECT}\s*</tool_call>"
)
_SCHEMA = (
    r"For each function call,? return a (?i:json) object,? with the following pydantic model json schema(?: for each)?:"
    rf"\s*{_OBJECT}"
)
_BLANKS = r"(?:Example:\s*)?<tool_call>\s*\{[^{}<]*(?:<[a-z-]+>[^{}<]*)+\}\s*</tool_call>"
"""How a call is to look, with blanks such as `<args-dict>`. One that is filled in is an example, and not left out."""
_SENTENCES = [
    re.compile(pattern, re.DOTALL)
    for pattern in (
        r"You are a function calling AI model\.",
        r"# Tools\n",
        r"You are provided with function signatures within <tools> ?</tools> XML tags[.:]?",
        r"You may call one or more functions to assist with the user query\.",
        (
            r"If available tools are not relevant in assisting with user query, just respond in natural conversational "
            r"language\."
        ),
        r"Don't make assumptions about what values to plug into functions\.",
        (
            r"After calling & executing the functions, you will be provided with function results within "
            r"<tool_response> ?</tool_response> XML tags\."
        ),
        r"Here are the available tools:",
        rf"Use the following pydantic model json schema for each tool call you will make:\s*{_OBJECT}",
        _EXAMPLE,
        _SCHEMA,
        r"Each function call should be enclosed within <tool_call> ?</tool_call> XML tags(?: as follows)?[.:]?",
        _BLANKS,
    )
]


class Hermes(Form):
    """Rows with calls as tagged text."""

    name = "hermes"
    members = frozenset(key for key, _, _ in _MEMBERS)
    title = "Hermes function calling: tools in the system text, calls and results in tags"
    fields = "conversations: [{from: system | human | gpt | tool, value}] (or messages), tools"

    def score(self, record: Mapping[str, Any]) -> tuple[float, str]:
        """Look for tags in the turns that have them in this form, and for no calls of another kind."""
        for key, role, content in _MEMBERS:
            turns = record.get(key)
            if isinstance(turns, list) and turns and all(isinstance(one, dict) for one in turns):
                if unread(record, _READS) or any(one.get("tool_calls") for one in turns):
                    return 0, ""
                if not any("<" in one[content] for one in turns if isinstance(one.get(content), str)):
                    continue  # most have no tag, and no time shall be lost with them
                said = [(_KINDS.get(_SIDES.get(str(one.get(role)), "")), one.get(content)) for one in turns]
                texts = [(kind, value) for kind, value in said if kind is not None and isinstance(value, str)]
                if len(texts) == len(said) and any(is_tagged(kind, value) for kind, value in texts):
                    return 1, "turns with <tools>, <tool_call> or <tool_response>"
        return 0, ""

    def read(self, data: bytes) -> list[Example]:
        """Return one conversation."""
        members = record(data)
        key, role, content = next((names for names in _MEMBERS if not is_null(members.get(names[0]))), _MEMBERS[0])
        check_unread(members, (key, "tools"), self.name)
        check_wanted(members)
        if key not in members:
            raise absent(f"$.{key}", "an array of turns")
        turns, tools = Turns(), read_tools(members.get("tools"))
        for index, entry in enumerate(list_of(members[key], f"$.{key}")):
            at = f"$.{key}[{index}]"
            turn, first = object_of(entry, at), len(turns.items)
            check_unread(turn, _CALLS, self.name, at)
            found = _add(turns, turn, required_text(turn, role, at), role, content, at)
            tools = found or tools
            turns.weigh(first, take_weight(turn, at))
        return [turns.example(tools, weight=take_weight_of_row(members))]


def _add(turns: Turns, turn: Members, name: str, role: str, content: str, at: str) -> list[Tool]:
    """Add a turn; gives the tools that it lists."""
    side = _SIDES.get(name)
    if side is None:
        raise BadRow(Code.ROLE, f"the role {name!r} is not one of {', '.join(_SIDES)}", path=f"{at}.{role}")
    said, where = required_text(turn, content, at), f"{at}.{content}"
    strange = sorted(turn.keys() & _CALLS)
    if strange and bytes(turn[strange[0]]) not in (b"null", b"[]"):
        raise BadRow(Code.FORM, "calls stand in tags in this form", path=f"{at}.{strange[0]}")
    if side == "system":
        return _add_system(turns, said, where)
    if side == "user" and not _ANSWERED.match(said):
        turns.user(said, where)
    elif side == "assistant":
        _add_answer(turns, said, where)
    else:
        _add_results(turns, said, where)
    return []


def _add_system(turns: Turns, said: str, at: str) -> list[Tool]:
    found = _TOOLS.search(said)
    end = -1 if found is None else said.find(_TOOLS_END, found.end())
    if found is None or end < 0:
        if _TAGS.search(said):
            said = _without_instructions(said, at)
        if said:
            turns.system(said, at)
        return []
    rest = _without_instructions(said[: found.start()] + said[end + len(_TOOLS_END) :], at)
    if rest:
        turns.system(rest, at)
    return read_tools(_tool_list(said[found.end() : end].strip(), at), at)


def _without_instructions(said: str, at: str) -> str:
    """Return a system text without what it says about calling tools."""
    for sentence in _SENTENCES:
        said = sentence.sub("", said)
    left = next((line.strip() for line in said.splitlines() if _TAGS.search(line)), "")
    if left:
        shown = left if len(left) <= 100 else f"{left[:97]}..."
        message = f"the system text speaks of the tags in words that are not known: {shown!r}"
        raise BadRow(Code.SHAPE, f"{message}; take them out of it, for each format says itself how to call", path=at)
    return said.strip()


def _tool_list(inside: str, at: str) -> Json:
    """Return a tool list: one array, or an object a line."""
    if inside.startswith("[") or "\n" not in inside:
        return value_in(inside, at)
    try:
        return value_in(inside, at)
    except BadRow:
        return spelled_list([value_in(line, at) for line in inside.splitlines() if line.strip()])


def _add_answer(turns: Turns, said: str, at: str) -> None:
    thought, said = split_thought(said, at)
    if thought is not None:
        turns.thinking(thought, at)
    pieces = split_tagged(said, "tool_call", at)
    if len(pieces) < 2 and not (pieces and pieces[0][0]):
        if said or thought is None:
            turns.assistant(said, at)
        return
    for is_call, piece in pieces:
        if is_call:
            _add_call(turns, piece, at)
        elif piece.strip():
            turns.assistant(piece.strip(), at)


def _add_call(turns: Turns, inside: str, at: str) -> None:
    value = value_in(inside, at, Code.ARGS)
    if first_byte(value) not in (b"{", b"["):
        raise BadRow(Code.ARGS, "a call must be a JSON object with name and arguments", path=at)
    turns.calls(value, at)


def _add_results(turns: Turns, said: str, at: str) -> None:
    """Add results: the texts of the tags. One without a tag is the whole turn."""
    pieces = split_tagged(said, "tool_response", at)
    if not any(inside for inside, _ in pieces):
        turns.result(said, at)
        return
    for inside, piece in pieces:
        if inside:
            turns.result(piece.strip("\n"), at)
        elif piece.strip():
            raise BadRow(Code.SHAPE, f"text beside the results: {piece.strip()[:40]!r}", path=at)


FORMS = (Hermes(),)
