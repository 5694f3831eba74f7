"""Owns the words of the wire: what members of the model are called here, their two spellings, and schemas.

A member may be spelled `systemInstruction` or `system_instruction`: servers take both, and both are read. What is
written has the first spelling. The objects of people (arguments, results, schemas) are left as they are.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, TypeGuard

from turnscript.apis.api import Body, leftover
from turnscript.core.conversation import Extra
from turnscript.core.json_text import Json, json_of, plain, read_object
from turnscript.core.wire import mismatch

ORIGIN = "gemini"
WORDS = {
    "meant": "behavior codeExecutionResult code_execution_result description executableCode executable_code"
    " fileData file_data functionCall function_call functionResponse function_response"
    " functionDeclarations function_declarations inlineData inline_data name parameters"
    " parametersJsonSchema parameters_json_schema parts response role text thought thoughtSignature"
    " thought_signature toolCall tool_call toolResponse tool_response",
    "holders": "generationConfig thinkingConfig toolConfig functionCallingConfig"
    " functionCall functionResponse inlineData fileData",
    "tool_call.name": "functionCall.name",
    "tool_call.id": "functionCall.id",
    "tool_call.arguments": "functionCall.args",
    "tool_result.name": "functionResponse.name",
    "tool_result.id": "functionResponse.id",
    "tool_result.status": "functionResponse.response",
    "tool_result.custom": "",
    "thinking.signature": "thoughtSignature",
    "document.filename": "inlineData.displayName",
    "response.finish_reason": "candidates[0].finishReason",
    "response.candidates": "candidates[0]",
    "response.candidates.content": "content",
    "response.usageMetadata": "usageMetadata",
}
"""Names members of the model as they are called here, for losses."""

_TOP = "systemInstruction generationConfig toolConfig safetySettings cachedContent generateContentRequest serviceTier"
_ANSWER = "usageMetadata modelVersion responseId promptFeedback createTime finishReason finishMessage"
_PARTS = "inlineData fileData functionCall functionResponse executableCode codeExecutionResult toolCall toolResponse"
_INNER = "thoughtSignature mimeType fileUri displayName"
_TOOLS = "functionDeclarations parametersJsonSchema functionCallingConfig allowedFunctionNames"
_SETTINGS = (
    "topP topK candidateCount maxOutputTokens stopSequences presencePenalty frequencyPenalty responseLogprobs"
    " responseMimeType responseSchema responseJsonSchema thinkingConfig thinkingBudget thinkingLevel includeThoughts"
)
_COUNTS = "promptTokenCount candidatesTokenCount thoughtsTokenCount cachedContentTokenCount totalTokenCount"


def _spelled(name: str) -> str:
    return "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in name)


_NAMES = {
    _spelled(name): name
    for name in " ".join((_TOP, _ANSWER, _PARTS, _INNER, _TOOLS, _SETTINGS, _COUNTS)).split()
    if _spelled(name) != name
}


def respelled(members: dict[str, Json]) -> dict[str, Json]:
    """The members of an object of the wire by their first spelling. One that stands there twice keeps the other."""
    if not any("_" in name for name in members):
        return members
    return {
        name if _NAMES.get(name, name) in members else _NAMES.get(name, name): value for name, value in members.items()
    }


def members_of(value: Json, at: str) -> dict[str, Json]:
    """The members of an object, by their first spelling. Raises InvalidRequest for what is none."""
    if not is_object(value):
        raise mismatch(value, at, "an object")
    return respelled(read_object(value))


def is_object(value: Json | None) -> TypeGuard[Json]:
    """Return whether a value is an object."""
    return value is not None and bytes(memoryview(value)[:1]) == b"{"


def is_list(value: Json | None) -> TypeGuard[Json]:
    """Return whether a value is a list."""
    return value is not None and bytes(memoryview(value)[:1]) == b"["


def text_in(members: dict[str, Json], name: str) -> str | None:
    """A member that is a text; None for any other."""
    value = members.get(name)
    return plain(value) if value is not None and bytes(memoryview(value)[:1]) == b'"' else None


def without(members: dict[str, Json], names: Iterable[str]) -> Extra:
    """The members that are none of these."""
    return {name: value for name, value in members.items() if name not in names}


def kept(extra: Extra, key: str, rest: Extra) -> Extra:
    """`extra`, and under a key what is left of the object that stands there."""
    return extra | {key: leftover(rest)} if rest else extra


# Schemas.

_TYPES = {name: name.lower() for name in ("STRING", "NUMBER", "INTEGER", "BOOLEAN", "ARRAY", "OBJECT", "NULL")}
_COUNTED = ("minItems", "maxItems", "minLength", "maxLength", "minProperties", "maxProperties")
_SCHEMAS = ("items", "additionalProperties", "additional_properties", "not")


def json_schema(source: Json) -> Json:
    """A schema in this API's own dialect, that of OpenAPI, as JSON Schema: `STRING` is `string`, a `nullable` type is
    one of two, and numbers that stand as texts are numbers. What is not of the dialect stays as it is."""
    try:
        return json_of(_schema(plain(source), 0))
    except (TypeError, ValueError):  # numbers of thousands of digits, and halves of characters
        return source


_DEEPEST = 64


def _schema(value: Any, depth: int) -> Any:
    if not isinstance(value, dict) or depth > _DEEPEST:
        return value
    found: Body = {}
    for key, one in value.items():
        if key == "type" and isinstance(one, str):
            found[key] = _TYPES.get(one, one)
        elif key in ("properties", "defs", "$defs") and isinstance(one, dict):
            found[key] = {name: _schema(inner, depth + 1) for name, inner in one.items()}
        elif key in ("anyOf", "any_of", "prefixItems") and isinstance(one, list):
            found[key.replace("any_of", "anyOf")] = [_schema(inner, depth + 1) for inner in one]
        elif key in _SCHEMAS:
            found[key] = _schema(one, depth + 1)
        elif key in _COUNTED and isinstance(one, str) and one.isascii() and one.isdigit() and len(one) < 20:
            found[key] = int(one)
        else:
            found[key] = one
    if found.get("nullable") is True and isinstance(found.get("type"), str):
        del found["nullable"]
        found["type"] = [found["type"], "null"]
    return found
