"""Owns Anthropic Messages: `/v1/messages` request bodies as requests, and back.

| wire | model |
|---|---|
| `system`: a string, or blocks | a leading `System` item, or one for each block |
| message of role `system` | `System` further down; slot `message` if nothing but systems stands before it |
| `text` `image` `document`; `search_result` `container_upload` | parts of `User`, `Assistant`; `Raw` parts |
| `thinking` `redacted_thinking` | `Thinking` |
| `tool_use` | `ToolCall`; `input` is its `arguments`, as text |
| `tool_result` | `ToolResult`; `is_error` is its `status`, `error` or `ok` |
| every other block; a message of an unknown role | `Opaque` with the role of its message; without a role |
| `tools[]`: `name` `description` `input_schema` `strict` | `Tool`: `name` `description` `parameters` `strict` |
| `stop_sequences`, `metadata.user_id` | `stop`, `user` |
| `tool_choice.type` `auto` `any` `none` `tool` | `tool_choice.mode` `auto` `required` `none` `named` |
| `tool_choice.disable_parallel_tool_use` | `parallel_tool_calls`, negated |
| `thinking`, `output_config.effort`, `output_config.format` | `thinking`, `effort`, `response_format` |
| `output_format`, as older SDKs have it | `response_format` |
| `model` `max_tokens` `stream` `temperature` `top_p` `top_k` `service_tier` | the same |

Profile `seed` writes the tables R-U-28..32 of the requirements: all system texts in one top-level string, every other
item a message of its own with a list as its content.

Responses and streams: see the tables in `response`.

Spec: https://platform.claude.com/docs/en/api/messages, read 2026-11-20.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from msgspec import Raw

from turnscript.apis.anthropic_messages.blocks import MESSAGES, SYSTEM, WORDS, items_of, read_messages, system_items
from turnscript.apis.anthropic_messages.errors import encoded, error_body
from turnscript.apis.anthropic_messages.response import API, ORIGIN
from turnscript.apis.anthropic_messages.serving import SERVING
from turnscript.apis.anthropic_messages.settings import OLD_FORMAT, OPTIONS
from turnscript.apis.anthropic_messages.stream_reading import Message, claims_event
from turnscript.apis.anthropic_messages.stream_writing import StreamWriter
from turnscript.apis.anthropic_messages.tools import TOOLS, ToolWriter, tools_of
from turnscript.apis.anthropic_messages.writing import JOINS, UNPLACED, Writer
from turnscript.apis.api import OFFICIAL, SEED, Api, Body, Option, Rendering, Reply
from turnscript.core.call_pairing import drop_generated_ids
from turnscript.core.conversation import Assistant, Request, Response, Text, ToolCall, ToolResult
from turnscript.core.errors import TurnscriptError
from turnscript.core.json_text import Json, plain
from turnscript.core.losses import Indexed
from turnscript.core.message_groups import mark_turns
from turnscript.core.wire import missing

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
"""The types of Anthropic's own tools end with the day of their version."""

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
    """Return whether only this API has such blocks. Mistral's thoughts are called the same, and are lists."""
    type_ = str(block.get("type"))
    return type_.endswith(_OWN_ENDS) or (type_ in _OWN_BLOCKS and not isinstance(block.get("thinking"), list))


def _asks(members: Mapping[str, Json], tools: list[dict[str, Any]]) -> bool:
    """Return whether thinking, a choice of tools or a tool is asked for in the words of this API."""
    thinking, choice = _value(members, "thinking"), _value(members, "tool_choice")
    if isinstance(thinking, dict) and ("budget_tokens" in thinking or str(thinking.get("type")) in _OWN_THINKING):
        return True
    if isinstance(choice, dict) and str(choice.get("type")) in _OWN_CHOICES:
        return True
    return any(_OWN_TOOL.search(str(one.get("type", ""))[-9:]) for one in tools)


def _asks_others(members: Mapping[str, Json], tools: list[dict[str, Any]]) -> bool:
    """Return whether something is asked for as this API has it not."""
    return not _FOREIGN_MEMBERS.isdisjoint(members) or any("function" in one for one in tools)


def _are_foreign(messages: list[dict[str, Any]], blocks: list[dict[str, Any]]) -> bool:
    """Return whether a message or a part is as this API has none: here instructions do not come first."""
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


# A value that there is nothing to make of: null, or a list without elements.
_EMPTY = re.compile(rb"null|\[\s*\]")
_PLACES = Indexed("$.messages")
_UNNAMED = "betas cache_control container context_management diagnostics fallbacks inference_geo mcp_servers speed"
"""Members without a name in the model that ordinary bodies have: one that is not declared costs a second reading."""


class AnthropicMessages(Api):
    """Anthropic's Messages API."""

    name = API
    title = "Anthropic Messages"
    endpoint = "/v1/messages"
    origin = ORIGIN
    serving = SERVING
    request_id = "request-id"
    profiles = (OFFICIAL, SEED)
    flags: ClassVar[Mapping[str, tuple[str, ...]]] = {"system": ("join", "blocks"), "mid_system": ("message", "hoist")}
    options: ClassVar[tuple[Option, ...]] = OPTIONS
    typed: ClassVar[Mapping[str, Any]] = {
        "system": SYSTEM,
        "messages": MESSAGES,
        "tools": TOOLS,
        **dict.fromkeys(_UNNAMED.split(), Json),
    }
    words = WORDS
    unplaced = UNPLACED
    has_objects = True

    def read(self, members: dict[str, Any], request: Request) -> None:
        """Read `system`, `messages` and `tools`. An empty list or a null stays behind, as `extra`."""
        items = request.items
        system = _take(members, "system")
        if system is not None:
            items += system_items(system)
        if "messages" not in members:
            raise missing("$", "messages", "an array of messages")
        for index, wire in enumerate(read_messages(members.pop("messages"), "$.messages")):
            mark_turns(items, items_of(wire, _PLACES[index]), JOINS)
        _pair(request)
        # In a request, a last text of the assistant's is to be continued; in bare messages it is what was said.
        if items and type(last := items[-1]) is Assistant and "max_tokens" in members:
            last.open = not last.content or type(last.content[-1]) is Text
        tools = _take(members, "tools")
        if tools is not None:
            request.conversation.tools = tools_of(tools)

    def read_options(self, members: dict[str, Any], request: Request) -> None:
        """Read the older name of a format last: where `output_config` says one beside it, it stays unnamed."""
        if OLD_FORMAT in members:
            members[OLD_FORMAT] = members.pop(OLD_FORMAT)
        super().read_options(members, request)

    def write(self, body: Body, rendering: Rendering) -> None:
        """Write `system`, `messages` and `tools`."""
        writer = Writer(rendering)
        writer.write(body)
        rendering.lose_end()
        if "max_tokens" in body:
            _report_prefill(writer, body["messages"])
        kept = None if writer.changes else rendering.slices.tools(rendering.request, "tools")
        if kept is not None:
            body |= kept
        elif rendering.request.tools or writer.changes:
            tools = ToolWriter(rendering).write(writer.changes)
            if tools:
                body["tools"] = tools

    def claims_response(self, members: Mapping[str, Json]) -> int:
        """A message of the assistant's that says why it ended, or what it cost."""
        return claims_response(members)

    def reader(self) -> Message:
        """Return what reads an answer."""
        return Message()

    def writer(self, request: Request, reply: Reply, response: Response | None = None) -> StreamWriter:
        """Return what writes an answer. Who asks that thoughts be `omitted` gets their signatures alone."""
        return StreamWriter(self, request, reply, response)

    def claims_event(self, name: str, members: Mapping[str, Json]) -> int:
        """A type that only events of this API have. Others have errors too, but not one inside the other."""
        return claims_event(members)

    def render_error(self, error: TurnscriptError, *, request_id: str | None = None) -> tuple[int, bytes]:
        """Status and body of an error; `request_id` is that of the response's header `request-id`."""
        status, body = error_body(error, request_id)
        return status, encoded(body)

    def claims(self, members: Mapping[str, Json]) -> int:
        """Sure if something stands in the body that only this API has."""
        return claims_request(members)


def _take(members: dict[str, Any], key: str) -> Any:
    """Remove a member and give its value; None, and it stays, when there is nothing to make of it."""
    value = members.get(key)
    if value is None or (isinstance(value, Raw) and _EMPTY.fullmatch(value)):
        return None
    if value == []:
        members[key] = Raw(b"[]")
        return None
    return members.pop(key)


def _report_prefill(writer: Writer, messages: Sequence[Any]) -> None:
    """Report a finished answer at the end of a request: here the model would go on with it.

    The end is that of the messages, because what came after the answer may have no place here.
    """
    said = messages[-1] if messages else None
    if not isinstance(said, dict) or said["role"] != "assistant":
        return
    end = said["content"][-1:]  # of a text or of a list of blocks
    if isinstance(end, list) and not (end and isinstance(end[0], dict) and end[0].get("type") == "text"):
        return
    last = writer.spoken
    if last is not None and not last.open:
        writer.rendering.lose(last.at, "approximated", "the model continues a last text of its own here")


def _pair(request: Request) -> None:
    """Name the results after their calls, and take off the ids that were generated when this was written."""
    names: dict[str | None, str | None] = {}
    for item in request.items:
        if type(item) is ToolCall:
            names[item.id] = item.name
        elif type(item) is ToolResult:
            item.name = names.setdefault(item.id, None)
    if "call_auto_" in "\0".join(filter(None, names)):
        drop_generated_ids(request)  # a result keeps the name: it is what pairs it with its call then


APIS = (AnthropicMessages(),)
