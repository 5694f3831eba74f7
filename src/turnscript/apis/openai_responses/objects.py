"""Owns the wire objects of the Responses API: the items, content parts and tools that have members with a name here.

Members typed `Json` have no name in the conversation but are so ordinary that the fast path reads them too; they go
verbatim to `extra`, like every member that is not declared at all.
"""

from __future__ import annotations

from typing import Literal

from msgspec import UNSET, UnsetType

from turnscript.core.json_text import Json
from turnscript.core.wire import Wire

# Content parts.


WORDS = {
    "meant": "arguments call_id caller content description encrypted_content format id input name namespace output"
    " parameters phase role status strict summary tools type",
    "holders": "text reasoning input_audio",
    "silent": "annotations logprobs content encrypted_content status namespace caller=direct",
    "tool_call.id": "call_id",
    "tool_call.item_id": "id",
    "custom_call.id": "call_id",
    "custom_call.item_id": "id",
    "custom_call.arguments": "input",
    "custom_call.custom": "type",
    **dict.fromkeys(("shell_call.arguments", "local_shell_call.arguments"), "action"),
    "apply_patch_call.arguments": "operation",
    **dict.fromkeys(("shell_call.name", "local_shell_call.name", "apply_patch_call.name"), "type"),
    "tool_result.id": "call_id",
    "tool_result.item_id": "id",
    "tool_result.custom": "type",
    "thinking.encrypted": "encrypted_content",
    "image.url": "image_url",
    "document.url": "file_url",
    "response.finish_reason": "status",
    "response.incomplete_details": "incomplete_details",
    "response.usage": "usage",
    "response.usage.input_tokens_details": "input_tokens_details",
    "response.usage.output_tokens_details": "output_tokens_details",
}
"""What members of the model are called here, for losses."""


class InputText(Wire, tag="input_text"):
    text: str
    prompt_cache_breakpoint: Json | UnsetType = UNSET


class OutputText(Wire, tag="output_text"):
    text: str
    annotations: Json | UnsetType = UNSET
    logprobs: Json | UnsetType = UNSET


class SummaryText(Wire, tag="summary_text"):
    text: str


class ReasoningText(Wire, tag="reasoning_text"):
    text: str


class PlainText(Wire, tag="text"):
    """Not a part of today's input types, but clients that know other APIs send it."""

    text: str


class OutputRefusal(Wire, tag="refusal"):
    refusal: str


class InputImage(Wire, tag="input_image"):
    image_url: str | UnsetType = UNSET
    file_id: str | UnsetType = UNSET
    detail: str | UnsetType = UNSET
    prompt_cache_breakpoint: Json | UnsetType = UNSET


class InputFile(Wire, tag="input_file"):
    file_data: str | UnsetType = UNSET
    file_id: str | UnsetType = UNSET
    file_url: str | UnsetType = UNSET
    filename: str | UnsetType = UNSET
    detail: Json | UnsetType = UNSET
    prompt_cache_breakpoint: Json | UnsetType = UNSET


class AudioData(Wire):
    data: str
    format: str | UnsetType = UNSET


class InputAudio(Wire, tag="input_audio"):
    input_audio: AudioData


class SeedCall(Wire, tag="tool_call"):
    """The Universal document's form of a call, in the content of an assistant message."""

    name: str
    arguments: Json
    id: str | UnsetType = UNSET


class SeedResult(Wire, tag="tool_result"):
    """The Universal document's form of a result, in the content of a user message."""

    output: Json
    tool_call_id: str | UnsetType = UNSET


TextPart = InputText | OutputText | SummaryText | ReasoningText | PlainText
Content = str | list[TextPart | OutputRefusal | InputImage | InputFile | InputAudio]
"""What a tool answers, or a message with blocks that stand in the wrong role."""
Parts = list[TextPart | OutputRefusal | InputImage | InputFile | InputAudio]
MessageContent = str | list[TextPart | OutputRefusal | InputImage | InputFile | InputAudio | SeedCall | SeedResult]


# Items.


class EasyMessage(Wire):
    """A message that need not say its type."""

    role: str
    content: MessageContent
    type: Literal["message"] | UnsetType = UNSET
    id: str | UnsetType = UNSET
    phase: str | UnsetType = UNSET
    status: Json | UnsetType = UNSET


class Message(Wire, tag="message"):
    role: str
    content: MessageContent
    id: str | UnsetType = UNSET
    phase: str | UnsetType = UNSET
    status: Json | UnsetType = UNSET


class OrdinaryMessage(Wire, tag="message"):
    """A message of a known role, and without the Universal document's calls and results."""

    role: Literal["user", "assistant", "system", "developer"]
    content: Content
    id: str | UnsetType = UNSET
    phase: str | UnsetType = UNSET
    status: Json | UnsetType = UNSET


AnyMessage = EasyMessage | Message | OrdinaryMessage


class FunctionCall(Wire, tag="function_call"):
    name: str
    arguments: str
    call_id: str | UnsetType = UNSET
    id: str | UnsetType = UNSET
    namespace: str | UnsetType = UNSET
    status: Json | UnsetType = UNSET


class CustomToolCall(Wire, tag="custom_tool_call"):
    name: str
    input: str
    call_id: str | UnsetType = UNSET
    id: str | UnsetType = UNSET
    namespace: str | UnsetType = UNSET
    status: Json | UnsetType = UNSET


class FunctionCallOutput(Wire, tag="function_call_output"):
    output: Content
    call_id: str | UnsetType = UNSET
    id: str | UnsetType = UNSET
    name: str | UnsetType = UNSET
    namespace: str | UnsetType = UNSET
    status: Json | UnsetType = UNSET


class CustomToolCallOutput(Wire, tag="custom_tool_call_output"):
    output: Content
    call_id: str | UnsetType = UNSET
    id: str | UnsetType = UNSET
    name: str | UnsetType = UNSET
    namespace: str | UnsetType = UNSET
    status: Json | UnsetType = UNSET


class Reasoning(Wire, tag="reasoning"):
    summary: Parts
    content: Parts | UnsetType | None = UNSET
    id: str | UnsetType = UNSET
    encrypted_content: str | UnsetType | None = UNSET
    status: Json | UnsetType = UNSET


class AdditionalTools(Wire, tag="additional_tools"):
    role: str
    tools: list[Json]


TypedItem = (
    Message | FunctionCall | CustomToolCall | FunctionCallOutput | CustomToolCallOutput | Reasoning | AdditionalTools
)
OrdinaryItem = (
    OrdinaryMessage
    | FunctionCall
    | CustomToolCall
    | FunctionCallOutput
    | CustomToolCallOutput
    | Reasoning
    | AdditionalTools
)
INPUT = str | list[OrdinaryItem]
"""An input that can be read in one pass: each item says its type. Of any other item the text is needed, too."""


# Tools.


class FunctionTool(Wire, tag="function"):
    name: str
    description: str | UnsetType = UNSET
    parameters: Json | UnsetType = UNSET
    strict: bool | UnsetType | None = UNSET


class CustomTool(Wire, tag="custom"):
    name: str
    description: str | UnsetType = UNSET
    format: Json | UnsetType = UNSET


class NamespaceTool(Wire, tag="namespace"):
    name: str
    tools: list[Json]
    description: str | UnsetType = UNSET


TypedTool = FunctionTool | CustomTool | NamespaceTool
