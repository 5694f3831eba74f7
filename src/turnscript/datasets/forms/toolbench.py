"""Owns ToolBench: answers with their search tree, and the conversations that were made of them for training.

    {"answer_generation": {"query": "...", "valid_data": true, "finish_type": "give_answer", "function": [...],
                           "train_messages": [[{"role": "system", ...}, {"role": "assistant", "content": null,
                                                "function_call": {"name": "search", "arguments": "{}"}}], ...]},
     "tree": {...}, "win": true}

    {"id": "Step 7: ...", "conversations": [{"from": "system", "value": "..."}, {"from": "user", "value": "..."},
      {"from": "assistant", "value": "\\nThought: ...\\nAction: search\\nAction Input: {}"},
      {"from": "function", "value": "..."}]}

- Of an answer, `train_messages` are the conversation: every beginning of it that was once asked about is a list. Lists
  that another one goes on from are left out; of two that part on the way, each is an example, and what both begin
  with is trained in the first. `tree` is the search: steps that were given up are no conversation.
- An answer that was not found (`valid_data` is false) has no such lists and is refused.
- In the conversations, an assistant's text holds a thought and an action. The thought becomes what the assistant says,
  the action a call, and what `function` says its result. An answer may end in an action, `Finish` above all.
- Tools are in `function`, or behind the words "the following APIs:" in the text of the system. That text stays as it
  is. Where the list is JSON its text is kept; most are Python literals, and are written anew as JSON.

Shape: https://github.com/OpenBMB/ToolBench (2024-03).
"""

from __future__ import annotations

import ast
import re
import warnings
from collections.abc import Mapping
from typing import Any

from turnscript.core.conversation import Assistant, Item, Part, Request, System, Text, ToolCall, ToolResult, User
from turnscript.core.json_text import Json, is_json, json_of
from turnscript.core.message_groups import mark_turns
from turnscript.datasets.form import Example, Form
from turnscript.datasets.members import check_decoded, check_unread
from turnscript.datasets.problems import BadRow, Code
from turnscript.datasets.traces import (
    CHAT,
    check,
    checked,
    elements_of,
    has,
    list_at,
    member,
    members_of,
    object_at,
    of_list,
    relocate,
    request_of,
    request_of_items,
    text_at,
    tools_member,
    untrained,
    value_of,
)

_ACTION = re.compile(r"\n?Action:(?P<name>[^\n]*+)\n\s*Action Input:[ \t]*(?P<input>.*)\Z", re.DOTALL)
_THOUGHT = re.compile(r"\A\s*Thought:[ \t]*")
_APIS = "the following APIs: "
_ENDED = "\nEnd Action"


class ToolBench(Form):
    """ToolBench's answers and conversations."""

    name = "toolbench"
    members = frozenset({"answer_generation", "conversations"})
    title = "ToolBench answers and conversations"
    fields = (
        "`answer_generation` with `train_messages` and `function`; or `conversations` with `Action:` in their texts"
    )

    def score(self, record: Mapping[str, Any]) -> tuple[float, str]:
        answer = record.get("answer_generation")
        if isinstance(answer, dict):
            own = "train_messages" in answer or "valid_data" in answer
            return (1.0 if own else 0.6), "the member `answer_generation`"
        turns = record.get("conversations")
        if isinstance(turns, list) and any(_acts(turn) for turn in turns):
            return 1.0, "turns of the assistant with `Action:` and `Action Input:`"
        return 0.0, "no `answer_generation`, and no turn with an `Action:`"

    def read(self, data: bytes) -> list[Example]:
        data = checked(data)
        members = members_of(data)
        check_unread(members, () if "answer_generation" in members else ("conversations",), self.name)
        if "answer_generation" in members:
            return _answer(members_of(members["answer_generation"], "$.answer_generation"), "$.answer_generation")
        turns = list_at(value_of(member(members, "conversations", "$"), "$.conversations"), "$.conversations")
        return [_conversation(turns)]


def _acts(turn: object) -> bool:
    if not isinstance(turn, dict) or turn.get("from") != "assistant":
        return False
    value = turn.get("value")
    return isinstance(value, str) and "Action:" in value and "Action Input:" in value


# Answers.


def _answer(answer: Mapping[str, Json], at: str) -> list[Example]:
    if bytes(answer.get("valid_data", b"")) == b"false" or not has(answer, "train_messages"):
        message = "the answer was not found, so there is nothing to learn from"
        raise BadRow(Code.EMPTY, message, path=f"{at}.train_messages")
    place = f"{at}.train_messages"
    lists = [
        [bytes(message) for message in elements_of(one, f"{place}[{index}]")]
        for index, one in enumerate(elements_of(answer["train_messages"], place))
    ]
    functions = tools_member(answer, "function")
    tools = {"functions": functions["function"]} if functions else {}
    chosen = _longest(lists)
    if not chosen:
        raise BadRow(Code.EMPTY, "there is no message", path=place)
    begun = _begun([lists[index] for index in chosen])
    examples = []
    for number, index in enumerate(chosen):
        places = [f"{place}[{index}][{position}]" for position in range(len(lists[index]))]
        label = f"path {number + 1}" if len(chosen) > 1 else ""
        examples.append(_path(lists[index], begun[number], tools, places, label))
    return examples


def _longest(lists: list[list[bytes]]) -> list[int]:
    """Return the lists that no other one goes on from; of equal ones the first."""
    root: dict[bytes, Any] = {}
    ends = []
    for messages in lists:
        node = root
        for message in messages:
            node = node.setdefault(message, {})
        ends.append(node)
    chosen: dict[int, int] = {}
    for index, node in enumerate(ends):
        if not node and lists[index]:
            chosen.setdefault(id(node), index)
    return list(chosen.values())


def _begun(lists: list[list[bytes]]) -> list[int]:
    """Return for every list how many messages one before it begins with too."""
    root: dict[bytes, Any] = {}
    begun = []
    for messages in lists:
        node, shared = root, 0
        for position, message in enumerate(messages):
            if message in node:
                shared = position + 1
            node = node.setdefault(message, {})
        begun.append(shared)
    return begun


def _path(messages: list[bytes], begun: int, tools: Mapping[str, bytes], places: list[str], label: str) -> Example:
    place = of_list(places)
    request = request_of(CHAT, {"messages": b"[" + b",".join(messages) + b"]", **tools}, place)
    context = untrained(request.items, lambda index: index >= begun) if begun else frozenset()
    relocate(request, place)
    check(request.items, places[0])
    return Example(request, label=label, context=context)


# Conversations.


def _conversation(turns: list[Any]) -> Example:
    items: list[Item] = []
    request = request_of_items(items)
    for index, value in enumerate(turns):
        at = f"$.conversations[{index}]"
        turn = object_at(value, at)
        check_decoded(turn, (), ToolBench.name, at)
        role = text_at(turn.get("from"), f"{at}.from")
        text = text_at(turn.get("value"), f"{at}.value")
        content: list[Part] = [Text(text=text)]
        if role == "assistant":
            mark_turns(items, _said(text, f"{at}.value"))
        elif role == "function":
            items.append(ToolResult(content=content, name=_last_call(items), at=at))
        elif role == "user":
            items.append(User(content=content, at=at))
        elif role == "system":
            items.append(System(content=content, at=at))
            _read_tools(text, request, at)
        else:
            raise BadRow(Code.ROLE, f"a speaker that is not known: {role!r}", path=f"{at}.from")
    check(items, "$.conversations")
    return Example(request)


def _last_call(items: list[Item]) -> str | None:
    return next((item.name for item in reversed(items[-1:]) if isinstance(item, ToolCall)), None)


def _said(text: str, at: str) -> list[Item]:
    """Return what the assistant says and the call that it makes, as the text holds them."""
    start = text.rfind("\nAction:")
    start = 0 if start < 0 and text.startswith("Action:") else start
    found = _ACTION.match(text, start) if start >= 0 else None
    said = text[: found.start()] if found else text
    said = said[match.end() :] if (match := _THOUGHT.match(said)) else said
    items: list[Item] = []
    if said.strip() or not found:
        items.append(Assistant(content=[Text(text=said)], at=at))
    if found:
        arguments = found["input"].removesuffix(_ENDED).strip()
        items.append(ToolCall(name=found["name"].strip(" \t"), arguments=arguments, at=at))
    return items


def _read_tools(text: str, request: Request, at: str) -> None:
    """Read the tools that a system's text lists."""
    _, found, listed = text.partition(_APIS)
    if not found:
        return
    listed = listed.strip()
    value = listed.encode("utf-8", "surrogatepass") if is_json(listed) else _literal(listed, at)
    tools = request_of(CHAT, {"messages": b"[]", "functions": value}, lambda _: at)
    request.tools.extend(tools.tools)


def _literal(text: str, at: str) -> bytes:
    """Return a Python literal as JSON."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of escapes in its strings that Python does not know
            return bytes(json_of(ast.literal_eval(text)))
    except (ValueError, TypeError, SyntaxError, RecursionError, MemoryError):
        message = f"what stands behind {_APIS!r} is no list of tools, neither as JSON nor as Python"
        raise BadRow(Code.SHAPE, message, path=f"{at}.value") from None


FORMS = (ToolBench(),)
