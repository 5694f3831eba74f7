"""Owns the wire objects of a request: messages, content parts, tool calls and tools, the members that have a name.

A few members that the model has no name for are declared all the same, verbatim: ordinary clients send them, and an
undeclared member costs a second, slower reading of its whole message. `extra_of` puts them with the other unnamed ones.
"""

from __future__ import annotations

import msgspec
from msgspec import UNSET, UnsetType

from turnscript.apis.api import leftover
from turnscript.core.conversation import Extra
from turnscript.core.json_text import Json
from turnscript.core.wire import Reader, Verbatim, Wire

NULL_TEXT = b"null"
WORDS = {
    "meant": "audio content custom description format function function_call id name parameters reasoning"
    " reasoning_content refusal role strict tool_call_id tool_calls type",
    "holders": "function custom format grammar image_url input_audio file"
    " tool_choice allowed_tools function_call response_format json_schema",
    "silent": "refusal annotations audio tool_calls function_call reasoning_content reasoning image_url"
    " provider_specific_fields caller=direct",
    "content": "string",
    "tool_call.name": "function.name",
    "tool_call.arguments": "function.arguments",
    "custom_call.name": "custom.name",
    "custom_call.arguments": "custom.input",
    "custom_call.custom": "type",
    "tool_result.id": "tool_call_id",
    "tool_result.custom": "",
    "image.detail": "image_url.detail",
    "document.filename": "file.filename",
    "document.file_id": "file.file_id",
    "function_tool": "function",
    "custom_tool": "custom",
    "response.finish_reason": "choices[0].finish_reason",
    "response.stop_sequence": "choices[0]",
    "response.choices": "choices[0]",
    "response.choices.message": "message",
    "response.choices.message.content": "",
    "response.usage": "usage",
    "response.usage.prompt_tokens_details": "prompt_tokens_details",
    "response.usage.completion_tokens_details": "completion_tokens_details",
}
"""What members of the model are called here, for losses."""

NULL = Json(NULL_TEXT)

BOTH = "reasoning_content+reasoning"
"""The slot of a thought that stood under both names, the same text twice."""

NOTHING = "{}"
"""The arguments of a call that has none."""


# Content parts, tagged by `type`.


class TextPart(Wire, tag="text", tag_field="type"):
    text: str
    cache_control: Json | UnsetType = UNSET
    prompt_cache_breakpoint: Json | UnsetType = UNSET


class ImageUrl(Wire):
    url: str
    detail: str | UnsetType = UNSET


class ImagePart(Wire, tag="image_url", tag_field="type"):
    image_url: ImageUrl | str  # servers take the URL alone, too
    prompt_cache_breakpoint: Json | UnsetType = UNSET


class InputAudio(Wire):
    data: str
    format: str


class AudioPart(Wire, tag="input_audio", tag_field="type"):
    input_audio: InputAudio
    prompt_cache_breakpoint: Json | UnsetType = UNSET


class File(Wire):
    file_data: str | UnsetType = UNSET
    file_id: str | UnsetType = UNSET
    filename: str | UnsetType = UNSET


class FilePart(Wire, tag="file", tag_field="type"):
    file: File
    prompt_cache_breakpoint: Json | UnsetType = UNSET


class RefusalPart(Wire, tag="refusal", tag_field="type"):
    refusal: str


AnyPart = TextPart | ImagePart | AudioPart | FilePart | RefusalPart
Content = str | list[AnyPart] | None


# Tool calls, tagged by `type`.


class CalledFunction(Wire):
    name: str
    arguments: str | UnsetType | None = UNSET  # which servers take for an empty object, as they do an empty text


class FunctionCall(Wire, tag="function", tag_field="type"):
    known_by = "function"
    function: CalledFunction
    id: str | UnsetType = UNSET
    index: Json | UnsetType = UNSET


class CalledCustom(Wire):
    name: str
    input: str


class CustomCall(Wire, tag="custom", tag_field="type"):
    custom: CalledCustom
    id: str | UnsetType = UNSET
    index: Json | UnsetType = UNSET


class LegacyCall(Wire):
    """The deprecated `function_call` of a message. Its `id` is the Universal document's addition."""

    name: str
    arguments: str | UnsetType | None = UNSET
    id: str | UnsetType = UNSET


# Messages, tagged by `role`.


class SystemMessage(Wire, tag="system", tag_field="role"):
    content: str | list[AnyPart] | UnsetType | None = UNSET
    name: str | UnsetType = UNSET


class DeveloperMessage(Wire, tag="developer", tag_field="role"):
    content: str | list[AnyPart] | UnsetType | None = UNSET
    name: str | UnsetType = UNSET


class UserMessage(Wire, tag="user", tag_field="role"):
    content: str | list[AnyPart] | UnsetType | None = UNSET
    name: str | UnsetType = UNSET


class AudioReference(Wire):
    id: str | UnsetType = UNSET


class AssistantMessage(Wire, tag="assistant", tag_field="role"):
    content: str | list[AnyPart] | UnsetType | None = UNSET
    refusal: str | UnsetType | None = UNSET
    tool_calls: list[FunctionCall | CustomCall] | UnsetType | None = UNSET
    function_call: LegacyCall | UnsetType | None = UNSET
    audio: AudioReference | UnsetType | None = UNSET
    name: str | UnsetType = UNSET
    reasoning_content: str | UnsetType | None = UNSET
    reasoning: Json | UnsetType = UNSET
    annotations: Json | UnsetType = UNSET


class ToolMessage(Wire, tag="tool", tag_field="role"):
    content: str | list[AnyPart] | UnsetType | None = UNSET
    tool_call_id: str | UnsetType = UNSET
    name: Json | UnsetType = UNSET


class FunctionMessage(Wire, tag="function", tag_field="role"):
    content: str | list[AnyPart] | UnsetType | None = UNSET
    name: str | UnsetType = UNSET


Message = SystemMessage | DeveloperMessage | UserMessage | AssistantMessage | ToolMessage | FunctionMessage

read_message: Reader[Message | Verbatim] = Reader(Message)


# Tools, tagged by `type`.


class FunctionDefinition(Wire):
    name: str
    description: str | UnsetType = UNSET
    parameters: Json | UnsetType = UNSET
    strict: bool | UnsetType = UNSET


class FunctionTool(Wire, tag="function", tag_field="type"):
    known_by = "function"
    function: FunctionDefinition


class CustomDefinition(Wire):
    name: str
    description: str | UnsetType = UNSET
    format: Json | UnsetType = UNSET


class CustomTool(Wire, tag="custom", tag_field="type"):
    custom: CustomDefinition


AnyTool = FunctionTool | CustomTool

read_tool: Reader[AnyTool | Verbatim] = Reader(AnyTool)
read_function: Reader[FunctionDefinition] = Reader(FunctionDefinition)


# Unnamed members.


def with_inner(extra: Extra, key: str, inner: Wire) -> Extra:
    """`extra` and, under `key`, the unnamed members of the object that stands there."""
    if inner.rest:
        extra[key] = leftover(inner.rest)
    return extra


def encoded(value: object) -> Json:
    """A value that was read typed as JSON text again, for `extra`."""
    return Json(msgspec.json.encode(value))
