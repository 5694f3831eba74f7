"""Owns reading whole responses, the words for why one stopped, and token counts; streams read their blocks here too.

| wire | model |
|---|---|
| each block of `content` | an item of its own; unknown ones `Opaque` |
| `stop_reason` `end_turn` `stop_sequence` | `finish_reason` `stop`; `stop_sequence` is kept |
| `max_tokens` `tool_use` `refusal` | `length` `tool_calls` `content_filter` |
| every other `stop_reason` | the same word |
| `usage.input_tokens` + `cache_read_input_tokens` + `cache_creation_input_tokens` | `usage.input` |
| `output_tokens`, `output_tokens_details.thinking_tokens` | `usage.output`, `usage.reasoning` |
| `id` `model`; every other member | the same; `extra`, but for those that are null here unless they say something |

Whether the last call of a response that met a limit is whole cannot be seen, because a server completes what was cut:
such a call is no item, it becomes an issue and `Response.cut`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeGuard

from turnscript.apis.anthropic_messages.blocks import (
    AssistantMessage,
    DocumentBlock,
    ImageBlock,
    RedactedBlock,
    TextBlock,
    ThinkingBlock,
    ToolUseBlock,
    items_of,
)
from turnscript.apis.anthropic_messages.errors import upstream_error
from turnscript.apis.api import Body, leftover
from turnscript.apis.shared.answers import invalid_count, missing_count, nameless, read_count
from turnscript.core.conversation import Assistant, Extra, Issue, Item, Response, Thinking, ToolCall, Usage
from turnscript.core.errors import InvalidRequest
from turnscript.core.events import cut_call
from turnscript.core.json_text import NULL, Json, json_of, read_list, read_object
from turnscript.core.losses import Indexed
from turnscript.core.payloads import Source, body_bytes
from turnscript.core.wire import Reader, mismatch, missing

ORIGIN = "anthropic"

REASONS = {
    "end_turn": "stop",
    "stop_sequence": "stop",
    "max_tokens": "length",
    "tool_use": "tool_calls",
    "refusal": "content_filter",
}
STOP_REASONS = {"stop": "end_turn", "length": "max_tokens", "tool_calls": "tool_use", "content_filter": "refusal"}
OWN_REASONS = frozenset({"pause_turn", "model_context_window_exceeded", "compaction", "refusal"})
"""Endings that no other API has a word for, and one that may come under this API's own word."""
CUTTING = frozenset({"length", "content_filter", "model_context_window_exceeded"})
"""Finish reasons that may come in the middle of a call."""

SILENT, SILENT_USAGE = (
    ("stop_details", "container"),
    ("cache_creation", "inference_geo", "server_tool_use", "service_tier"),
)
"""The members of a message and of its counts that are there whether they say anything or not: null is nothing."""

_BLOCK = TextBlock | ThinkingBlock | ToolUseBlock | RedactedBlock | ImageBlock | DocumentBlock
_read_block: Reader[Any] = Reader(_BLOCK)
_read_word: Reader[str | None] = Reader(str | None)
_PLACES = Indexed("$.content")

# Blocks.


def fill(body: Body, silent: Sequence[str]) -> None:
    """Write null for those of some members that say nothing."""
    for name in silent:
        body.setdefault(name, None)


def item_of(block: Json, index: int) -> Item:
    """The item of one content block. An empty signature is none: the member is required, even where nobody signs. An
    empty id is none, too, and citations that are null."""
    place = _PLACES[index]
    message = AssistantMessage(content=[_read_block(block, place)])
    item = items_of(message, "$")[0]
    item.at = place
    if isinstance(item, Thinking):
        item.signature, item.hints = item.signature or None, None
    elif isinstance(item, ToolCall):
        item.id = item.id or None
    elif isinstance(item, Assistant) and item.content[0].extra.get("citations") == NULL:
        del item.content[0].extra["citations"]
    return item


# Token counts.

_INPUT, _OUTPUT = "input_tokens", "output_tokens"
_COUNTS = frozenset({_INPUT, _OUTPUT, "cache_read_input_tokens", "cache_creation_input_tokens"})
_DETAILS = "output_tokens_details"
_THINKING = "thinking_tokens"


class Tokens:
    """Token counts as a stream gives them: all cumulative, so that a later one replaces an earlier one."""

    def __init__(self) -> None:
        self._counts: dict[str, int] = {}
        self._rest: Extra = {}
        self._issues: dict[str, Issue] = {}
        self._seen = False
        self._begun = False  # the count of the output is what it was when the answer began

    def read(self, value: Json | None, at: str) -> None:
        """Take a `usage` object. Null and absent counts change nothing, and what is no count is an issue."""
        if value is None or bytes(value) == b"null":
            return
        self._seen = True
        if bytes(value)[:1] != b"{":
            self._issues[""] = invalid_count(value, at)
            return
        for key, member in read_object(value).items():
            if key in _COUNTS:
                self._count(key, member, f"{at}.{key}")
            elif key == _DETAILS:
                self._details(member, f"{at}.{key}")
            elif bytes(member) != b"null" or not (key in self._rest or key in SILENT_USAGE):
                self._rest[key] = member

    def begin(self) -> None:
        """The answer begins: how much it is has yet to be told."""
        self._begun = True

    def _details(self, value: Json, at: str) -> None:
        if bytes(value)[:1] == b"{":
            details = read_object(value)
            self._count(_THINKING, details.pop(_THINKING, None), f"{at}.{_THINKING}")
            if details:
                self._rest[_DETAILS] = leftover(details)
        elif bytes(value) != b"null":
            self._issues[_DETAILS] = invalid_count(value, at)

    def _count(self, name: str, value: Json | None, at: str) -> None:
        if value is None or bytes(value) == b"null":
            return
        self._issues.pop(name, None)
        self._counts.pop(name, None)
        count = read_count(value)
        if count is None:
            self._issues[name] = invalid_count(value, at)
        else:
            self._counts[name] = count
            self._begun = self._begun and name != _OUTPUT

    def usage(self) -> Usage | None:
        """The counts so far; None if those of the input and the output were not told."""
        if _INPUT not in self._counts or _OUTPUT not in self._counts:
            return None
        count = self._counts.get
        cached, written = count("cache_read_input_tokens", 0), count("cache_creation_input_tokens", 0)
        total = self._counts[_INPUT] + cached + written
        return Usage(total, self._counts[_OUTPUT], cached, written, count(_THINKING, 0))

    def end(self) -> tuple[Usage | None, list[Issue]]:
        """The counts at the end, and what is wrong with them. What an answer was said to be when it began is none."""
        if self._begun:
            self._counts.pop(_OUTPUT, None)
        issues = list(self._issues.values())
        if self._seen and "" not in self._issues:
            missing = [name for name in (_INPUT, _OUTPUT) if name not in self._counts and name not in self._issues]
            issues += [missing_count(f"$.usage.{name}") for name in missing]
        return self.usage(), issues

    def extra(self) -> Extra:
        """The members without a name, as `extra` of the response; counts, too, where they are not all."""
        known = {} if self.usage() is not None else {name: json_of(self._counts[name]) for name in self._counts}
        rest = {name: count for name, count in known.items() if name in _COUNTS} | self._rest
        if _THINKING in known:
            beside = read_object(rest[_DETAILS]) if _DETAILS in rest else {}
            rest[_DETAILS] = leftover({_THINKING: known[_THINKING], **beside})
        return {"usage": leftover(rest)} if rest else {}


def usage_object(usage: Usage) -> Body:
    """Token counts as this API says them: `input_tokens` are those that no cache had to do with."""
    return {
        "input_tokens": max(0, usage.input - usage.cached - usage.cache_written),
        "cache_creation_input_tokens": usage.cache_written,
        "cache_read_input_tokens": usage.cached,
        "output_tokens": usage.output,
        _DETAILS: {_THINKING: usage.reasoning},
    }


def put_known(told: Body, extra: Extra) -> None:
    """Put the counts that are known, though they are not all, in the place of those that were made up."""
    for name, count in read_object(extra["usage"]).items():
        if name in _COUNTS:
            told[name] = count
        elif name == _DETAILS:
            told[name] |= {one: value for one, value in read_object(count).items() if one == _THINKING}


# Whole responses.


def read_response(source: Source, api: str) -> Response:
    """A response body. Raises UpstreamError for an error body, InvalidRequest for what is no response at all."""
    members = read_object(body_bytes(source))
    kind = word(members, "type")
    if kind == "error" or ("error" in members and "content" not in members):
        raise upstream_error(members.get("error"), api)
    if kind not in (None, "message"):
        raise InvalidRequest(f"expected 'message', got {kind!r}", path="$.type", expected="'message'", got=repr(kind))
    if "content" not in members:
        raise missing("$", "content", "an array of content blocks")
    id_, model = head_of(members)
    response = Response(items=_items(members.pop("content")), id=id_, model=model, origin=ORIGIN)
    response.finish_reason = finish_reason(word(members, "stop_reason"))
    response.stop_sequence = word(members, "stop_sequence")
    tokens = Tokens()
    tokens.read(members.pop("usage", None), "$.usage")
    response.usage, response.issues = tokens.end()
    response.extra = told(members) | tokens.extra()
    if response.finish_reason is None:
        response.issues.append(Issue("missing_reason", "the message has no stop_reason"))
    last = response.items[-1] if response.items else None
    if response.finish_reason in CUTTING and isinstance(last, ToolCall):
        del response.items[-1]
        response.cut = cut_call(last, last.arguments)
        response.issues.append(cut_short(last.name, last.arguments))
    response.issues += [nameless(item.arguments) for item in response.items if _is_nameless(item)]
    response.items = [item for item in response.items if not _is_nameless(item)]
    return response


def told(members: Extra) -> Extra:
    """The members of a message that say something."""
    return {name: value for name, value in members.items() if value != NULL or name not in SILENT}


def _is_nameless(item: Item) -> TypeGuard[ToolCall]:
    return isinstance(item, ToolCall) and not item.name


def head_of(members: dict[str, Json]) -> tuple[str | None, str | None]:
    """The id and the model that a response names. Takes out the members that it reads."""
    role = word(members, "role")
    if role not in (None, "assistant"):
        raise InvalidRequest(f"a response is the assistant's, not of role {role!r}", path="$.role")
    return word(members, "id"), word(members, "model")


def finish_reason(word: str | None) -> str | None:
    """The reason in the words of all APIs. An empty word says none."""
    return REASONS.get(word, word) if word else None


def cut_short(name: str, arguments: str) -> Issue:
    """The issue for a call that a limit may have cut."""
    return Issue("cut_call", f"the answer met its limit in a call of {name!r}, so it is not told; so far: {arguments}")


def _items(content: Json) -> list[Item]:
    if bytes(content)[:1] != b"[":
        raise mismatch(content, "$.content", "an array of content blocks")
    return [item_of(block, index) for index, block in enumerate(read_list(content))]


def word(members: dict[str, Json], key: str) -> str | None:
    """Remove a member that is a string, or null, and give its value."""
    value = members.pop(key, None)
    return None if value is None else _read_word(value, f"$.{key}")
