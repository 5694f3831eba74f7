"""Owns the request bodies of Gemini: what the SDK sends, under a root that the SDK has as arguments of a method.

To the SDK every member of a part may be missing, or stand beside any other. Servers take parts that have one kind of
data, so most are drawn as those; the SDK's own `Part` and `Content` are drawn, too.
"""

from __future__ import annotations

from typing import Any, Literal

from google.genai import types
from google.genai._common import BaseModel


class Said(BaseModel):
    """What any part may say beside its data."""

    thought_signature: bytes | None = None
    part_metadata: dict[str, Any] | None = None


class TextPart(Said):
    """A text, or a thought."""

    text: str
    thought: bool | None = None


class Blob(types.Blob):
    """Data with their type."""

    mime_type: str
    data: bytes


class BlobPart(Said):
    """A picture, a sound, a file."""

    inline_data: Blob
    media_resolution: types.PartMediaResolution | None = None


class File(types.FileData):
    """A file that stands elsewhere."""

    file_uri: str


class FilePart(Said):
    """The same."""

    file_data: File
    video_metadata: types.VideoMetadata | None = None


class Call(types.FunctionCall):
    """A call of a function that has a name."""

    name: str


class CallPart(Said):
    """A call."""

    function_call: Call


class Result(types.FunctionResponse):
    """What a function that has a name has answered."""

    name: str
    response: dict[str, Any]


class ResultPart(Said):
    """A result."""

    function_response: Result


class UserTurn(BaseModel):
    """What a user says, and what functions answer."""

    role: Literal["user", "function"] | None = None
    parts: list[TextPart | BlobPart | FilePart | ResultPart | types.Part]


class ModelTurn(BaseModel):
    """What the model says."""

    role: Literal["model"]
    parts: list[TextPart | BlobPart | CallPart | types.Part]


class Instruction(BaseModel):
    """Instructions: their role says nothing."""

    role: Literal["user", "system"] | None = None
    parts: list[TextPart | BlobPart | types.Part]


class Declaration(types.FunctionDeclaration):
    """A function that has a name."""

    name: str
    parameters_json_schema: dict[str, Any] | None = None


class Functions(types.Tool):
    """Functions, beside anything else."""

    function_declarations: list[Declaration]  # type: ignore[assignment]


class GenerateContent(BaseModel):
    """The body of `generateContent`."""

    contents: list[UserTurn | ModelTurn | types.Content]
    model: str = ""
    system_instruction: Instruction | None = None
    tools: list[Functions | types.Tool] | None = None
    tool_config: types.ToolConfig | None = None
    generation_config: types.GenerationConfig | None = None
    safety_settings: list[types.SafetySetting] | None = None
    cached_content: str | None = None
    labels: dict[str, str] | None = None
    service_tier: types.ServiceTier | None = None
    store: bool | None = None


class Cached(GenerateContent):
    """The same, beside contents that were cached before."""

    cached_content: str


Bodies = GenerateContent | Cached


class Candidate(types.Candidate):
    """One of the answers."""

    content: ModelTurn  # type: ignore[assignment]


class GenerateContentResponse(BaseModel):
    """The body of an answer, without what the SDK puts beside it."""

    candidates: list[Candidate]
    usage_metadata: types.GenerateContentResponseUsageMetadata | None = None
    prompt_feedback: types.GenerateContentResponsePromptFeedback | None = None
    model_version: str = ""
    response_id: str = ""
    create_time: str | None = None


class Models:
    """Posts all that it is given, as the SDK does with those members."""

    _post: Any

    def create(self, *, timeout: float, **members: Any) -> None:
        """Post the members."""
        self._post("/models", body=members)
