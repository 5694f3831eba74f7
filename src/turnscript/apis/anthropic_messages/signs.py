"""Owns telling bodies of this API from those of others, where nobody says what they are."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from turnscript.core.json_text import Json, plain

# Block types and members that no other API's messages have (requirements D-U-21, and those that came later).
_OWN_BLOCKS = frozenset(
    {"thinking", "redacted_thinking", "document", "search_result", "container_upload", "compaction"}
)
_OWN_ENDS = ("tool_use", "tool_result")

# Members of a request that no other API has, and how their values begin.
_OWN_MEMBERS = {
    "stop_sequences": b"[",
    "output_config": b"{",
    "output_format": b"{",
    "context_management": b"{",
    "mcp_servers": b"[",
}
_OWN_THINKING = frozenset({"adaptive", "between_tools"})
_OWN_CHOICES = frozenset({"any", "tool"})
"""Types of tool choices that no other API has; clients give `{"type": "auto"}` to every server."""
_OWN_TOOL = re.compile(r"_\d{8}")
"""How the types of Anthropic's own tools end: with the day of their version."""

# What only other APIs have: their messages and what is in them, and members of a request, which this API refuses.
_ROLES = frozenset({"user", "assistant", "system"})
_FOREIGN_PARTS = frozenset({"image_url", "input_audio", "file"})
_FOREIGN_IN_MESSAGES = frozenset(
    {"tool_calls", "function_call", "name", "refusal", "reasoning_content", "reasoning", "audio"}
)
_FOREIGN_MEMBERS = frozenset(
    {"stop", "stream_options", "max_completion_tokens", "response_format", "reasoning_effort", "verbosity", "n", "seed"}
    | {"presence_penalty", "frequency_penalty", "logit_bias", "logprobs", "top_logprobs", "parallel_tool_calls"}
    | {"functions", "function_call", "modalities", "prediction", "web_search_options", "user", "store"}
)


def claims_request(members: Mapping[str, Json]) -> int:
    """Sure if something stands in the body that only this API has.

    Some members say it only where no message is one of another API: servers that speak several take them anywhere.
    """
    if "messages" not in members:
        return 0
    if "system" in members or "anthropic_version" in members:
        return 2
    messages, tools = _value(members, "messages"), _objects(_value(members, "tools"))
    blocks = [block for message in _objects(messages) for block in _objects(message.get("content"))]
    if any("source" in one or _is_own(one) for one in blocks):
        return 2
    if any("input_schema" in one for one in tools):
        return 2
    if _asks_others(members, tools) or _are_foreign(_objects(messages), blocks):
        return 0
    if any(bytes(members.get(name, b""))[:1] == start for name, start in _OWN_MEMBERS.items()):
        return 2
    return 2 if _asks(members, tools) or any("citations" in one for one in blocks) else 0


def claims_response(members: Mapping[str, Json]) -> int:
    """A message of the assistant's that says why it ended, or what it cost."""
    if "content" not in members or bytes(members["content"])[:1] != b"[":
        return 0
    named = _is(members, "type", b'"message"') and _is(members, "role", b'"assistant"')
    ended = "stop_reason" in members
    return 2 if named and (ended or "usage" in members) else int(ended)


def _is_own(block: Mapping[str, Any]) -> bool:
    """Whether only this API has such blocks. Mistral's thoughts are called the same, and are lists."""
    type_ = str(block.get("type"))
    return type_.endswith(_OWN_ENDS) or (type_ in _OWN_BLOCKS and not isinstance(block.get("thinking"), list))


def _asks(members: Mapping[str, Json], tools: list[dict[str, Any]]) -> bool:
    """Whether thinking, a choice of tools or a tool is asked for in the words of this API."""
    thinking, choice = _value(members, "thinking"), _value(members, "tool_choice")
    if isinstance(thinking, dict) and ("budget_tokens" in thinking or str(thinking.get("type")) in _OWN_THINKING):
        return True
    if isinstance(choice, dict) and str(choice.get("type")) in _OWN_CHOICES:
        return True
    return any(_OWN_TOOL.search(str(one.get("type", ""))[-9:]) for one in tools)


def _asks_others(members: Mapping[str, Json], tools: list[dict[str, Any]]) -> bool:
    """Whether something is asked for as this API has it not."""
    return not _FOREIGN_MEMBERS.isdisjoint(members) or any("function" in one for one in tools)


def _are_foreign(messages: list[dict[str, Any]], blocks: list[dict[str, Any]]) -> bool:
    """Whether a message or a part is as this API has none: here instructions do not come first."""
    if messages and messages[0].get("role") == "system":
        return True
    if any(str(one.get("role")) not in _ROLES or not _FOREIGN_IN_MESSAGES.isdisjoint(one) for one in messages):
        return True
    return any(str(one.get("type")) in _FOREIGN_PARTS for one in blocks)


def _is(members: Mapping[str, Json], key: str, value: bytes) -> bool:
    return key in members and bytes(members[key]) == value


def _value(members: Mapping[str, Json], key: str) -> Any:
    return plain(members[key]) if key in members else None


def _objects(value: Any) -> list[dict[str, Any]]:
    """The objects in a list; none in anything else."""
    return [one for one in value if isinstance(one, dict)] if isinstance(value, list) else []
