"""Owns the conversations that are compared: each as transformers' users write it, and as a body of OpenAI's Chat."""

import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

Message = dict[str, Any]

_DATA = Path(__file__).with_name("conversations.json")


@dataclass(frozen=True)
class Conversation:
    """Messages and tools as chat templates take them: arguments are objects."""

    name: str
    messages: list[Message]
    tools: list[dict[str, Any]] | None = None

    @property
    def body(self) -> dict[str, Any]:
        """Return it as clients send it: arguments are text, spelled as Python spells it."""
        body: dict[str, Any] = {"model": "any", "messages": [_sent(message) for message in self.messages]}
        return body if self.tools is None else body | {"tools": self.tools}

    def until(self, end: int) -> "Conversation":
        """Return its beginning, without the message at `end` and what follows."""
        return replace(self, messages=self.messages[:end])


def conversations() -> list[Conversation]:
    """Read all conversations of the data file."""
    data = json.loads(_DATA.read_text(encoding="utf-8"))
    return [_conversation(one, data["tools"]) for one in data["conversations"]]


def _conversation(one: dict[str, Any], tools: dict[str, Any]) -> Conversation:
    return Conversation(
        one["name"], one["messages"], [tools[name] for name in one["tools"]] if "tools" in one else None
    )


def _sent(message: Message) -> Message:
    calls = message.get("tool_calls")
    return message if calls is None else message | {"tool_calls": [_sent_call(call) for call in calls]}


def _sent_call(call: dict[str, Any]) -> dict[str, Any]:
    function = call["function"]
    text = json.dumps(function["arguments"], ensure_ascii=False)
    return call | {"function": function | {"arguments": text}}
