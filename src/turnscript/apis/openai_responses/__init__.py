"""Owns the OpenAI Responses API: its request bodies, its responses, whole and streamed, and its errors.

| wire | model |
|--|--|
| `instructions` | `System` |
| `input` as a string | one `User` |
| message of `user`; `assistant`; `system` or `developer` | `User`; `Assistant` (`id`, `phase`); `System` (`role`) |
| `input_text`, `output_text`; `refusal` | `Text`; `Refusal` |
| `input_image`, `input_file`, `input_audio` | `Image`, `Document`, `Audio` |
| `reasoning`: `summary`, `content`, `encrypted_content`, `id` | `Thinking`: `summary`, `content`, `encrypted`, `id` |
| `function_call`: `call_id`, `id`, `arguments` | `ToolCall`: `id`, `item_id`, `arguments` |
| `custom_tool_call`: `input` | `ToolCall` with `custom`: `arguments` |
| `function_call_output`, `custom_tool_call_output`: `output` | `ToolResult`: `content` |
| `additional_tools` | `ToolsChange` |
| `tool_search_call`, `tool_search_output` of the client | `ToolCall`; `ToolResult` and `ToolsChange` |
| `local_shell_call`, `shell_call`, `apply_patch_call` of the client; their outputs | `ToolCall`; `ToolResult` |
| every other item, such as `item_reference` or `web_search_call` | `Opaque` |
| tools `function`, `custom`, `namespace`, hosted | `Tool` with that `type` |
| `tool_search`, `local_shell`, `shell`, `apply_patch` of the client | `Tool` of type `function` |
| `max_output_tokens` | `max_tokens` |
| `text.format`, `text.verbosity` | `response_format`, `verbosity` |
| `reasoning.effort`, `reasoning.summary` | `effort`, `reasoning_summary` |
| `include` of `message.output_text.logprobs` | `logprobs` |

Both profiles also read the Universal document's form of calls and results, content parts `tool_call` and `tool_result`
of a message; the profile `seed` writes it (requirements D-U-14). Items are never grouped: each is an item of the input.

Spec: https://developers.openai.com/api/reference/resources/responses, read 2026-11-20.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, ClassVar

import msgspec
from msgspec import UNSET, UnsetType

from turnscript.apis.api import OFFICIAL, SEED, Api, Body, Rendering, Reply
from turnscript.apis.openai_responses.objects import INPUT, WORDS
from turnscript.apis.openai_responses.options import OPTIONS, ORIGIN
from turnscript.apis.openai_responses.reading import (
    drop_reasoning_ids,
    read_instructions,
    read_items,
    read_ordinary,
    reopen,
)
from turnscript.apis.openai_responses.serving import SERVING
from turnscript.apis.openai_responses.stream_reading import StreamedResponse, claims_event
from turnscript.apis.openai_responses.stream_writing import StreamWriter
from turnscript.apis.openai_responses.tools import name_declared, read_tools, write_tools
from turnscript.apis.openai_responses.writing import UNPLACED, write_items
from turnscript.core.call_pairing import drop_generated_ids, name_results
from turnscript.core.conversation import Item, Request, Response, SourceBody, Text, User
from turnscript.core.error_object import encoded, error_body
from turnscript.core.errors import TurnscriptError
from turnscript.core.json_text import NULL, Json, plain, read_list
from turnscript.core.losses import Indexed
from turnscript.core.payloads import Source, body_bytes
from turnscript.core.wire import mismatch

_EMPTY = Json(b"[]")
_EASY_INPUT = re.compile(rb'"input"\s*:\s*\[\s*\{\s*"role"')
_PLACES = Indexed("$.input")
_UNNAMED = (
    "background client_metadata context_management conversation max_tool_calls previous_response_id prompt truncation"
)
"""Members without a name in the model that ordinary bodies have. One that is not known here costs a second reading."""


class OpenAIResponses(Api):
    """`POST /v1/responses`."""

    name = ORIGIN
    title = "OpenAI Responses"
    endpoint = "/v1/responses"
    origin = ORIGIN
    serving = SERVING
    profiles = (OFFICIAL, SEED)
    options = OPTIONS
    typed: ClassVar[Mapping[str, Any]] = {
        "instructions": str,
        "input": INPUT,
        "tools": list[Json],
        **dict.fromkeys(_UNNAMED.split(), Json),
    }
    words = WORDS
    unplaced = UNPLACED

    def __init__(self) -> None:
        super().__init__()
        types = {option.key: option.wire for option in self.options} | dict(self.typed) | {"input": list[Json]}
        members = [(name, type_ | UnsetType, UNSET) for name, type_ in types.items()]
        self._decode_easy = msgspec.json.Decoder(
            msgspec.defstruct("EasyBody", members, forbid_unknown_fields=True, repr_omit_defaults=True, gc=False)
        ).decode

    def parse_request(self, source: Source) -> Request:
        """A request body (bytes, str or a dict) as a `Request`. Raises InvalidRequest with the place.

        The messages of many clients say no type. `typed` cannot read such an input, and finds that out late.
        """
        data = body_bytes(source)
        at = data.find(b'"input"')
        if at < 0 or _EASY_INPUT.match(data, at) is None:
            return super().parse_request(data)
        try:
            said = self._decode_easy(data).__rich_repr__()  # the members that are said
        except (msgspec.DecodeError, RecursionError):
            return super().parse_request(data)
        request = self.parse_members(dict(said))
        request.source = SourceBody(data)
        return request

    def read(self, members: dict[str, Any], request: Request) -> None:
        items = request.items
        instructions = members.get("instructions")
        if instructions is not None and instructions != NULL:
            found = read_instructions(instructions)
            if found is not None:
                items += found
                del members["instructions"]
        value = members.get("input")
        if value is not None and value != NULL:
            found = _read_input(value)
            if found:
                items += found
                del members["input"]
                reopen(items)
            else:
                members["input"] = _EMPTY
        self._read_tools(members, request)
        name_declared(request)
        if name_results(items):
            drop_generated_ids(request)
        drop_reasoning_ids(items)

    def claims(self, members: Mapping[str, Json]) -> int:
        """No other API has an `input`; a request may also lean on what the server stores, such as a prompt."""
        if self.claims_response(members) > 1:  # an answer repeats members of its request
            return 0
        if "input" in members:
            return 3
        if "output" in members:
            return 0
        stored = not {"instructions", "previous_response_id", "conversation"}.isdisjoint(members)
        stored = stored or bytes(members.get("prompt", Json(b"null")))[:1] == b"{"
        return 1 if stored and "messages" not in members else 0

    def claims_response(self, members: Mapping[str, Json]) -> int:
        """A list called `output`; surely if the body calls itself a response."""
        if bytes(members.get("output", Json(b"null")))[:1] != b"[":
            return 0
        return 2 if bytes(members.get("object", Json(b"null"))) == b'"response"' else 1

    def claims_event(self, name: str, members: Mapping[str, Json]) -> int:
        """A type, or a name, that only events of this API have. An error of another may look like one of this."""
        return claims_event(name, members)

    def _read_tools(self, members: dict[str, Any], request: Request) -> None:
        value = members.get("tools")
        if value is None or value == NULL:
            return
        if isinstance(value, Json):
            if bytes(value)[:1] != b"[":
                raise mismatch(value, "$.tools", "an array of tools")
            value = read_list(value)
        request.conversation.tools = read_tools(value, "$.tools")
        if value:
            del members["tools"]
        else:
            members["tools"] = _EMPTY

    def write(self, body: Body, rendering: Rendering) -> None:
        write_items(body, rendering)
        rendering.lose_end()
        tools, kept = rendering.request.tools, rendering.slices.tools(rendering.request, "tools")
        if rendering.profile == SEED:
            for index in range(len(tools)):
                rendering.lose(f"$.tools[{index}]", "dropped", "the seed profile has no tools")
            rendering.drop(body, "tool_choice", "the seed profile has no tools to choose from")
        elif kept is not None:
            body |= kept
        elif tools:
            written = write_tools(rendering, tools, "$.tools")
            if written:
                body["tools"] = written

    def reader(self) -> StreamedResponse:
        return StreamedResponse()

    def writer(self, request: Request, reply: Reply, response: Response | None = None) -> StreamWriter:
        return StreamWriter(self, request, reply, response)

    def render_error(self, error: TurnscriptError, *, request_id: str | None = None) -> tuple[int, bytes]:
        status, body = error_body(error)
        return status, encoded(body)


def _read_input(value: Json | str | list[Any]) -> list[Item]:
    said = plain(value) if isinstance(value, Json) and bytes(value)[:1] == b'"' else value
    if isinstance(said, str):
        return [User(content=[Text(text=said)], at="$.input")]
    if isinstance(said, list):
        easy = bool(said) and isinstance(said[0], Json)
        return read_items(said, "$.input") if easy else read_ordinary(said, _PLACES)
    if bytes(said)[:1] != b"[":
        raise mismatch(said, "$.input", "a string or an array of input items")
    return read_items(read_list(said), "$.input")


APIS = (OpenAIResponses(),)
