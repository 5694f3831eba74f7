"""What a request body says, apart from its API's shape: the check that a peer converted and did not only run.

An outline is the list of what every API can carry, in order: system text, user text, assistant text, calls with
their arguments as values, results, and the tools. Ids lose the prefix that an API puts before them. Thinking is
counted on its own, since Chat has no place for it in the order.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

from benchmarks.session import Session
from benchmarks.tools import JsonObject


@dataclass(slots=True)
class Outline:
    items: list[tuple[Any, ...]] = field(default_factory=list)
    tools: list[tuple[str, str, JsonObject]] = field(default_factory=list)
    thinking: list[str] = field(default_factory=list)
    messages: int = 0

    def say(self, kind: str, content: Any) -> None:
        """Add text; texts of one kind in a row become one, so part boundaries do not count."""
        text = _text(content)
        if not text:
            return
        if self.items and self.items[-1][0] == kind:
            text = self.items.pop()[1] + text
        self.items.append((kind, text))

    def difference(self, other: Outline) -> str | None:
        """The first place where the other outline says something else, or None."""
        for index, (mine, theirs) in enumerate(zip(self.items, other.items, strict=False)):
            if mine != theirs:
                return f"item {index}: {_short(mine)} became {_short(theirs)}"
        if len(self.items) != len(other.items):
            return f"{len(self.items)} items became {len(other.items)}"
        for one, another in zip(self.tools, other.tools, strict=False):
            if one != another:
                return f"tool {one[0]} changed"
        if len(self.tools) != len(other.tools):
            return f"{len(self.tools)} tools became {len(other.tools)}"
        return None


def _short(item: tuple[Any, ...]) -> str:
    written = repr(item)
    return written if len(written) < 120 else f"{written[:100]}…({len(written)})"


def _text(content: Any) -> str:
    if content is None or isinstance(content, str):
        return content or ""
    return "".join(part.get("text", "") for part in content)


def _bare(identifier: str) -> str:
    return identifier.split("_", 1)[-1]


def of_session(conversation: Session) -> Outline:
    outline = Outline(tools=list(conversation.tools))
    outline.say("system", "".join(conversation.system))
    for step in conversation.steps:
        for result in step.results:
            outline.items.append(("result", result.call, result.text))
        outline.say("user", step.user)
        if step.thinking:
            outline.thinking.append(step.thinking)
        outline.say("assistant", step.text)
        for call in step.calls:
            outline.items.append(("call", call.id, call.name, call.arguments))
    for result in conversation.closing_results:
        outline.items.append(("result", result.call, result.text))
    outline.say("user", conversation.closing_user)
    return outline


def _of_chat(body: JsonObject) -> Outline:
    outline = Outline(messages=len(body["messages"]))
    for message in body["messages"]:
        role = message["role"]
        if role == "tool":
            outline.items.append(("result", _bare(message["tool_call_id"]), _text(message["content"])))
            continue
        outline.say("system" if role == "developer" else role, message.get("content"))
        thinking = message.get("reasoning_content") or message.get("reasoning")
        blocks = message.get("thinking_blocks") or ()
        if thinking or blocks:
            outline.thinking.append(thinking or "".join(block.get("thinking", "") for block in blocks))
        for call in message.get("tool_calls") or ():
            function = call["function"]
            arguments = json.loads(function["arguments"])
            outline.items.append(("call", _bare(call["id"]), function["name"], arguments))
    for tool in body["tools"]:
        function = tool["function"]
        outline.tools.append((function["name"], function["description"], function["parameters"]))
    return outline


def _of_messages(body: JsonObject) -> Outline:
    outline = Outline(messages=len(body["messages"]))
    outline.say("system", body.get("system"))
    for message in body["messages"]:
        content = message["content"]
        blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
        for block in blocks:
            kind = block["type"]
            if kind == "text":
                outline.say(message["role"], block["text"])
            elif kind == "thinking":
                outline.thinking.append(block["thinking"])
            elif kind == "tool_use":
                outline.items.append(("call", _bare(block["id"]), block["name"], block["input"]))
            elif kind == "tool_result":
                outline.items.append(("result", _bare(block["tool_use_id"]), _text(block.get("content"))))
    for tool in body["tools"]:
        outline.tools.append((tool["name"], tool["description"], tool["input_schema"]))
    return outline


def of_body(api: str, body: JsonObject) -> Outline:
    return _of_messages(body) if api == "anthropic-messages" else _of_chat(body)
