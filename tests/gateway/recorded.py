"""Owns recorded sessions as their clients lead them with another server: what the model says, and what is asked next.

    session = Recording(path)
    answers = []
    for turn, step in enumerate(session.steps):
        answers.append(ask(session.request(turn, answers)))  # a model that says `step.said`

How a client sends an answer back was recorded with another server's answer. So the next request is the recorded one, in
which the ids, thoughts and signatures of the answer that was given stand where those of the recorded one stood.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from copy import deepcopy
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import turnscript as ts
from tests.gateway.echo import Body
from tests.gateway.speaker import call, text, thought
from turnscript.core.conversation import Assistant, Item, Opaque, Thinking, Tool, ToolCall, text_content

_SEALED = "Hm, let me see."
"""A thought of which the recording holds only the seal."""
_LAST = "That is all."
"""The answer to the last request, which was not recorded."""


class Step(NamedTuple):
    """A request as it was recorded, and what the model says to it."""

    body: Body
    said: list[Item]


class Recording:
    """A session of a client. Where two answers follow each other, the request between them is made from the next one.

    `instead`: what the model says in the first turn, where the client sends back something else than what it said.
    """

    def __init__(self, path: Path, instead: Sequence[Item] = ()) -> None:
        told = json.loads(path.read_text(encoding="utf-8"))
        self.name, self.api = path.stem, told["api"]
        self._wire = _WIRES[self.api]
        self._turns = [_plain(body, self._wire.member) for body in told["turns"]]
        self._first = len(self._turns[0][self._wire.member])
        self._instead = list(instead)

    @cached_property
    def steps(self) -> list[Step]:
        """The requests in order."""
        member, asked = self._wire.member, self._turns[0]
        made: list[Step] = []
        for body in self._turns[1:]:
            for start, end in self._runs(body[member]):
                if start < len(asked[member]):
                    continue
                if start > len(asked[member]):
                    asked = body | {member: body[member][:start]}
                made.append(Step(asked, (not made and self._instead) or self._said(body, start, end)))
            asked = body
        return [*made, Step(asked, [_last(asked)])]

    @property
    def tools(self) -> list[Tool]:
        """What the model calls in it."""
        names = [item.name for step in self.steps for item in step.said if isinstance(item, ToolCall)]
        return [Tool(name=name) for name in dict.fromkeys(names)]

    def request(self, turn: int, answers: Sequence[Body]) -> Body:
        """The request of a turn as the client sends it. `answers` so far: messages of Chat, bodies of the others."""
        body = deepcopy(self.steps[turn].body)
        entries = body[self._wire.member]
        thoughtful = any(isinstance(item, Thinking) for step in self.steps for item in step.said)
        echo = Echo(thoughtful and not self._instead)
        sent: list[Body] = []
        done = 0
        for (start, end), answer in zip(self._runs(entries), answers, strict=True):
            sent += [echo.pointed(entry) for entry in entries[done:start]]
            sent += self._wire.send_back(echo, entries[start:end], deepcopy(answer))
            done = end
        return body | {self._wire.member: [*sent, *map(echo.pointed, entries[done:])]}

    def _runs(self, entries: Sequence[Body]) -> Iterator[tuple[int, int]]:
        """Where answers are. What is in the first request already is the client's, whoever is to have said it."""
        start = -1
        for at, entry in enumerate([*entries, {}]):
            if at >= self._first and (entry.get("role") == "assistant" or entry.get("type") in _MODELS):
                start = at if start < 0 else start
            elif start >= 0:
                yield start, at
                start = -1

    def _said(self, body: Body, start: int, end: int) -> list[Item]:
        read, member = ts.get_api(self.api).parse_request, self._wire.member
        before = len(read(body | {member: body[member][:start]}).items)
        items = read(body | {member: body[member][:end]}).items[before:]
        return [said for item in items if (said := _spoken(item, body)) is not None]


def _plain(body: Body, member: str) -> Body:
    """A request in the one shape of those that have several, as far as no prompt can tell them apart."""
    body.pop("thread", None)  # is refused, and the client asks again without it
    if isinstance(body[member], str):
        body[member] = [{"role": "user", "content": body[member]}]
    return body


def _spoken(item: Item, body: Body) -> Item | None:
    """What a model says so that a client gets this item; nothing for a blank that the client has put there."""
    if isinstance(item, Thinking):
        return thought(text_content(item.content) or _SEALED)
    if isinstance(item, Assistant):
        words = text_content(item.content)
        return text(words) if words.strip() else None
    if isinstance(item, ToolCall):
        name = f"{item.namespace}__{item.name}" if item.namespace else item.name
        return ToolCall(name=name, arguments=json.dumps({"input": item.arguments}) if item.custom else item.arguments)
    assert isinstance(item, Opaque), item
    id_ = json.loads(bytes(item.value))["id"]  # a reference to an item that only the recorded server knew
    return thought(_SEALED) if id_.startswith("rs_") else call(body["tools"][0]["name"], path=".")


def _last(body: Body) -> Item:
    """What the model says to the last request: a call of the last tool where it must make one."""
    choice = body.get("tool_choice") or "auto"
    if (choice["type"] if isinstance(choice, dict) else choice) == "auto":
        return text(_LAST)
    return call(body["tools"][-1]["function"]["name"])


# How an answer is sent back.


class Echo:
    """One history that is sent back. `ids`: those of the recorded answers, and what they are now. `thoughtful`: whether
    the client sends thoughts back, also those that the recorded model did not have."""

    def __init__(self, thoughtful: bool) -> None:
        self.thoughtful = thoughtful
        self.ids: dict[str, str] = {}

    def pointed(self, value: Any) -> Any:
        """What the client says, with the ids of the calls that it answers."""
        if isinstance(value, list):
            return [self.pointed(one) for one in value]
        if not isinstance(value, dict):
            return value
        return {key: self.ids.get(one, one) if key in _POINTERS else self.pointed(one) for key, one in value.items()}

    def chat(self, recorded: Sequence[Body], answer: Body) -> list[Body]:
        """A message for a message."""
        (message,) = deepcopy(list(recorded))
        if message.get("tool_calls"):
            for one, given in zip(message["tool_calls"], answer["tool_calls"], strict=True):
                assert one["function"]["name"] == given["function"]["name"]
                self.ids[one["id"]] = one["id"] = given["id"]
        if self.thoughtful and answer.get("reasoning_content"):
            message["reasoning_content"] = answer["reasoning_content"]
        return [message]

    def messages(self, recorded: Sequence[Body], answer: Body) -> list[Body]:
        """Blocks for blocks: thoughts as they came, because they are signed."""
        (message,) = deepcopy(list(recorded))
        thoughts = [block for block in answer["content"] if block["type"] == "thinking"]
        blocks = [block for block in message["content"] if block["type"] not in ("thinking", "redacted_thinking")]
        calls = [[block for block in one if block["type"] == "tool_use"] for one in (blocks, answer["content"])]
        for one, given in zip(*calls, strict=True):
            assert one["name"] == given["name"]
            self.ids[one["id"]] = one["id"] = given["id"]
        return [message | {"content": [*(thoughts if self.thoughtful else ()), *blocks]}]

    def responses(self, recorded: Sequence[Body], answer: Body) -> list[Body]:
        """Items for items, of those members that the client sends."""
        sent = []
        left = list(recorded)
        for given in answer["output"]:
            if given["type"] == "reasoning" and not (left and _is_thought(left[0])):
                sent += [given] if self.thoughtful else []
                continue
            item = deepcopy(left.pop(0))
            named = all(item[key] == given.get(key) for key in ("type", "name", "namespace") if key in item)
            assert named or item["type"] == "item_reference"
            if "call_id" in item:
                self.ids[item["call_id"]] = given["call_id"]
            same = ("id", "call_id", "summary", "encrypted_content")
            item |= {key: given.get(key) for key in same if key in item}
            if item.get("content") and given["type"] == "reasoning":
                item["content"] = given["content"]
            sent.append(item)
        assert [] == left
        return sent


def _is_thought(item: Body) -> bool:
    return item.get("type") == "reasoning" or item.get("id", "").startswith("rs_")


_POINTERS = ("tool_call_id", "tool_use_id", "call_id")
_MODELS = ("reasoning", "function_call", "custom_tool_call", "tool_search_call", "item_reference")


class _Wire(NamedTuple):
    member: str
    send_back: Callable[[Echo, Sequence[Body], Body], list[Body]]


_WIRES = {
    "openai-chat": _Wire("messages", Echo.chat),
    "openai-responses": _Wire("input", Echo.responses),
    "anthropic-messages": _Wire("messages", Echo.messages),
}
