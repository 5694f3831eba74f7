"""Owns trajectories of SWE-agent: the `history` of an agent in the messages of Chat, with notes of its own on each.

    {"history": [{"role": "assistant", "content": "...", "thought": "...", "action": "ls", "agent": "main",
                  "tool_calls": [{"id": "call_1", "type": "function", "function": {"name": "bash", "arguments": "{}"}}],
                  "message_type": "action"}, ...],
     "trajectory": [{"action": "ls", "observation": "...", "response": "...", "state": {...}, "query": [...]}, ...],
     "info": {"exit_status": "submitted", "submission": "..."}, "environment": "swe_main"}

- `history` is the conversation. `trajectory` tells the same by steps; `thought` and `action` are what was parsed of a
  message's `content` and calls: none of them says more, so none is read.
- A message of a tool names its call in `tool_call_ids`. Without calls, observations are messages of the user.
- `thinking_blocks` become thoughts with their signatures, before what the message says.
- A demonstration (`is_demo`) is part of the prompt: what the assistant says in it is not trained.
- Older trajectories hold the messages of several agents: each agent is an example of its own.
- The tools that the model was given are not kept; where a trajectory has `tools`, they are read.

Shape: https://github.com/SWE-agent/SWE-agent (2026-08).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from turnscript.core.conversation import Item, Part, Text, Thinking
from turnscript.core.json_text import Json
from turnscript.datasets.form import Example, Form
from turnscript.datasets.members import check_unread
from turnscript.datasets.problems import BadRow, Code
from turnscript.datasets.traces import (
    CHAT,
    check,
    checked,
    elements_of,
    has,
    member,
    members_of,
    message_index,
    object_at,
    of_list,
    relocate,
    request_of,
    text_at,
    text_of_member,
    tools_member,
    untrained,
    value_of,
)

_SAID = ("role", "content", "tool_calls", "reasoning_content", "function_call", "name", "tool_call_id")
_NOTES = ("message_type", "agent", "thought", "tool_call_ids")


class SweAgent(Form):
    """SWE-agent's `.traj` files."""

    name = "swe-agent"
    members = frozenset({"history"})
    title = "SWE-agent trajectories"
    fields = "`history` with messages that name their `agent`, `trajectory`, `info`"

    def score(self, record: Mapping[str, Any]) -> tuple[float, str]:
        history = record.get("history")
        if not isinstance(history, list):
            return 0.0, "no list `history`"
        if isinstance(record.get("trajectory"), list):
            return 1.0, "the lists `history` and `trajectory`"
        first = history[0] if history and isinstance(history[0], dict) else {}
        if "role" in first and any(note in first for note in _NOTES):
            return 1.0, "a list `history` whose messages name their `agent`"
        return 0.0, "a `history` of another kind"

    def read(self, data: bytes) -> list[Example]:
        members = members_of(checked(data))
        check_unread(members, ("history", "trajectory", "tools"), self.name)
        messages = elements_of(member(members, "history", "$"), "$.history")
        if not messages:
            raise BadRow(Code.EMPTY, "there is no message", path="$.history")
        tools = tools_member(members, "tools")
        agents: dict[str, _Agent] = {}
        for index, message in enumerate(messages):
            at = f"$.history[{index}]"
            wire = members_of(message, at)
            name = text_of_member(wire, "agent", at) if has(wire, "agent") else ""
            agents.setdefault(name, _Agent()).add(wire, at)
        examples = [agent.example(tools) for agent in agents.values()]
        if len(examples) > 1:
            for name, example in zip(agents, examples, strict=True):
                example.label = f"agent {name}".strip()
        return examples


class _Agent:
    """The messages of one agent."""

    def __init__(self) -> None:
        self._messages: list[bytes] = []
        self._places: list[str] = []
        self._demonstrations: set[int] = set()
        self._thoughts: dict[int, list[Item]] = {}

    def add(self, wire: Mapping[str, Json], at: str) -> None:
        """Add one more message."""
        said = {name: bytes(wire[name]) for name in _SAID if name in wire}
        text_of_member(wire, "role", at)
        if "tool_call_id" not in said and has(wire, "tool_call_ids"):
            said["tool_call_id"] = _call_id(wire["tool_call_ids"], f"{at}.tool_call_ids")
        if said.get("tool_calls") == b"[]":
            del said["tool_calls"]
        index = len(self._messages)
        if bytes(wire.get("is_demo", b"")) == b"true":
            self._demonstrations.add(index)
        if has(wire, "thinking_blocks"):
            self._thoughts[index] = _thoughts(wire["thinking_blocks"], f"{at}.thinking_blocks", index)
        self._messages.append(b"{" + b",".join([b'"%s":%s' % (name.encode(), said[name]) for name in said]) + b"}")
        self._places.append(at)

    def example(self, tools: Mapping[str, bytes]) -> Example:
        """Return the conversation of the agent."""
        place = of_list(self._places)
        request = request_of(CHAT, {"messages": b"[" + b",".join(self._messages) + b"]", **tools}, place)
        if self._thoughts:
            request.conversation.items = self._with_thoughts(request.items)
        context = untrained(request.items, lambda index: index not in self._demonstrations)
        relocate(request, place)
        check(request.items, "$.history")
        return Example(request, context=context)

    def _with_thoughts(self, items: list[Item]) -> list[Item]:
        found: list[Item] = []
        for item in items:
            thoughts = self._thoughts.pop(message_index(item.at), [])
            if thoughts and item.turn == "new":
                item.turn = ""  # the message begins with the thought now
            found += [*thoughts, item]
        return found


def _call_id(value: Json, at: str) -> bytes:
    ids = elements_of(value, at)
    if len(ids) != 1:
        raise BadRow(Code.CALL, f"a result of {len(ids)} calls; expected one", path=at)
    return bytes(ids[0])


def _thoughts(value: Json, at: str, message: int) -> list[Item]:
    """Return the blocks before what the message of that number says."""
    thoughts: list[Item] = []
    for index, one in enumerate(elements_of(value, at)):
        place = f"{at}[{index}]"
        block = object_at(value_of(one, place), place)
        if block.get("type") == "redacted_thinking":
            thought = Thinking(redacted=text_at(block.get("data"), f"{place}.data"))
        elif block.get("type") == "thinking":
            content: list[Part] = [Text(text=text_at(block.get("thinking"), f"{place}.thinking"))]
            signature = block.get("signature")
            thought = Thinking(content=content)
            thought.signature = None if signature is None else text_at(signature, f"{place}.signature")
        else:
            raise BadRow(Code.SHAPE, "a block that is no thought", path=f"{place}.type")
        thought.at = f"$.messages[{message}].thinking_blocks[{index}]"
        if thoughts:
            thought.turn = "join"
        thoughts.append(thought)
    return thoughts


FORMS = (SweAgent(),)
