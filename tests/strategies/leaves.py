"""Owns what is drawn at the leaves of a body, and the tables of the few places that need more than their type says."""

from __future__ import annotations

from copy import deepcopy
from functools import cache
from typing import Any

from hypothesis import strategies as st

from tests.strategies import jsontext, text
from tests.strategies.shapes import Leaf, Options, Record, Shape

Strategy = st.SearchStrategy[Any]

CALL_IDS = ("call_1", "call_2", "toolu_01abc123", "fc_1", "srvtoolu_1", "call_auto_001", "")
NAMES = ("get_weather", "f", "apply_patch", "exec_command", "Bash", "mcp__fs__read", "a-b.c")
# Sizes, indexes, seeds; past 2^31 and 2^53, where other languages' readers break.
INTS = (0, 1, 2, 7, 100, 1024, 32000, -1, 2**31, 2**53 + 1)
FLOATS = (0.0, 1.0, 0.5, 0.7, 1e-07, -2.0, 1e22, 0, 1, 2)
BASE64 = ("", "aGVsbG8=", "iVBORw0KGgo=", "JVBERi0xLjQK", "not base64!")
URLS = ("https://example.com/a.png", "data:image/png;base64,aGVsbG8=", "file:///x", "")
TIMES = ("2026-11-20T12:00:00Z", "2026-11-20T12:00:00.123456+09:00", "")
SCHEMAS: tuple[dict[str, Any], ...] = (
    {},
    {"type": "object"},
    {"type": "object", "properties": {}},
    {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
    {
        "type": "object",
        "properties": {
            "n": {"type": "integer", "minimum": 0, "default": 1.0},
            "é": {"enum": ["a", None, 1]},
            "type": {"type": ["string", "null"], "description": "</tool>\n<<TOOLS_END>>"},
        },
        "additionalProperties": False,
        "$defs": {"x": {"$ref": "#/$defs/x"}},
    },
    {"properties": {"b": {}, "a": True}, "$schema": "https://json-schema.org/draft/2020-12/schema"},
)


@cache
def call_ids() -> Strategy:
    # Twice the pool: a hostile id should not be the usual one, or ids would never meet.
    return st.one_of(st.sampled_from(CALL_IDS), st.sampled_from(CALL_IDS[::-1]), text.words())


@cache
def names() -> Strategy:
    return st.one_of(st.sampled_from(NAMES), st.sampled_from(NAMES[::-1]), text.words())


@cache
def schemas() -> Strategy:
    # Copies: a test that changes a body must not change the pool.
    return st.one_of(st.sampled_from(SCHEMAS).map(deepcopy), jsontext.json_objects())


def _or_words(values: tuple[str, ...]) -> Strategy:
    return st.one_of(st.sampled_from(values), text.words())


# By kind of leaf alone: what a place gets that the table below does not name.
BY_KIND: dict[str, Strategy] = {
    "str": text.words(),
    "int": st.sampled_from(INTS),
    "float": st.sampled_from(FLOATS),
    "bool": st.booleans(),
    "null": st.none(),
    "object": jsontext.json_objects(),
    "any": jsontext.json_values(),
}


def _responses() -> Strategy:
    """What a function answers: a text that came out, one that says what went wrong, or any object."""
    texts = text.texts()
    said = st.sampled_from(("output", "error")).flatmap(lambda name: texts.map(lambda one: {name: one}))
    return st.one_of(said, jsontext.spelled_objects())


# By TypedDict ("*": any), field and kind of leaf. Every entry says why the type alone is not enough.
OVERRIDES: dict[tuple[str, str, str], Strategy] = {
    # The argument string of a call is a JSON text whose spelling must survive; models also write broken ones.
    ("*", "arguments", "str"): jsontext.arguments(),
    # Arguments that stand in the body as JSON: their spelling must survive as well.
    ("*", "input", "object"): jsontext.spelled_objects(),
    ("ToolSearchCall", "arguments", "any"): jsontext.spelled_objects(),
    ("*", "args", "object"): jsontext.spelled_objects(),
    ("*", "response", "object"): _responses(),
    # Ids come from a small pool, so that calls, results and references meet, and ids repeat.
    ("*", "id", "str"): call_ids(),
    ("*", "call_id", "str"): call_ids(),
    ("*", "tool_call_id", "str"): call_ids(),
    ("*", "tool_use_id", "str"): call_ids(),
    ("*", "approval_request_id", "str"): call_ids(),
    # Names come from a small pool, so that calls, tools and tool choices meet.
    ("*", "name", "str"): names(),
    # Content is where hostile text matters most, so it is not diluted with plain words.
    ("*", "content", "str"): text.texts(),
    ("*", "text", "str"): text.texts(),
    ("*", "thinking", "str"): text.texts(),
    ("*", "output", "str"): text.texts(),
    ("*", "input", "str"): text.texts(),
    ("*", "system", "str"): text.texts(),
    ("*", "instructions", "str"): text.texts(),
    # JSON Schemas: real ones exercise the schema walkers, the rest shows that they are not required to be valid.
    ("*", "parameters", "object"): schemas(),
    ("*", "input_schema", "object"): schemas(),
    ("*", "output_schema", "object"): schemas(),
    ("*", "schema", "object"): schemas(),
    ("McpListToolsTool", "input_schema", "any"): schemas(),
    # Declared str, but read as base64, a URL or a time by converters.
    ("*", "data", "str"): _or_words(BASE64),
    ("*", "file_data", "str"): _or_words(BASE64),
    ("*", "thoughtSignature", "str"): _or_words(BASE64),
    ("*", "mimeType", "str"): _or_words(("image/png", "audio/wav", "application/pdf", "text/plain")),
    ("*", "responseMimeType", "str"): _or_words(("application/json", "text/plain")),
    ("*", "fileUri", "str"): _or_words(URLS),
    ("*", "url", "str"): _or_words(URLS),
    ("*", "image_url", "str"): _or_words(URLS),
    ("*", "clear_at", "str"): _or_words(TIMES),
}

# How often a union gives a member, relative to 3 for any other: without this a turn of an agent is one item in thirty.
MEMBER_WEIGHTS: dict[str, int] = {
    # Chat: calls and their answers.
    "ChatCompletionAssistantMessageParam": 6,
    "ChatCompletionToolMessageParam": 6,
    # Responses: the six kinds that an ordinary session consists of.
    "EasyInputMessageParam": 15,
    "ResponseOutputMessageParam": 9,
    "ResponseReasoningItemParam": 9,
    "ResponseFunctionToolCallParam": 15,
    "FunctionCallOutput": 15,
    "ResponseCustomToolCallParam": 6,
    "ResponseCustomToolCallOutputParam": 6,
    "FunctionToolParam": 9,
    # Anthropic: the same.
    "TextBlockParam": 15,
    "ThinkingBlockParam": 9,
    "ToolUseBlockParam": 18,
    "ToolResultBlockParam": 18,
    "ToolParam": 12,
    "BetaTextBlockParam": 15,
    "BetaThinkingBlockParam": 9,
    "BetaToolUseBlockParam": 18,
    "BetaToolResultBlockParam": 18,
    "BetaToolParam": 12,
    # Gemini: parts with one kind of data, and functions with names.
    "UserTurn": 9,
    "ModelTurn": 9,
    "TextPart": 9,
    "BlobPart": 3,
    "FilePart": 3,
    "CallPart": 6,
    "ResultPart": 9,
    "Functions": 9,
}

# Optional fields that half of the bodies should have at the least: the conversation itself.
USUAL_FIELDS = {
    ("ChatCompletionAssistantMessageParam", "content"),
    ("ChatCompletionAssistantMessageParam", "tool_calls"),
    ("ResponseCreateParamsNonStreaming", "input"),
    ("ResponseCreateParamsStreaming", "input"),
    ("FunctionCallOutput", "call_id"),
}

# Lists that hold a conversation, and so may be longer than the others' three elements.
LONG_LISTS = {"messages": 6, "input": 8, "contents": 6}


def class_name(record: str) -> str:
    """A record's name as the tables above write it: without the module that tells two classes apart."""
    return record.partition("@")[0]


def leaf(shape: Leaf) -> Strategy:
    """What to draw at a leaf. Elements of a list field `x` are looked up as `x[]`, values of a map as `x{}`."""
    for owner in (class_name(shape.owner), "*"):
        if (owner, shape.name, shape.kind) in OVERRIDES:
            return OVERRIDES[owner, shape.name, shape.kind]
    return BY_KIND[shape.kind]


def weight(shape: Shape) -> int:
    """How often a union gives this member, relative to the others."""
    if isinstance(shape, Record):
        return MEMBER_WEIGHTS.get(class_name(shape.name), 1 if shape.is_model else 3)
    if isinstance(shape, Leaf) and shape.kind == "null":
        return 1
    return 2 if isinstance(shape, Options) else 3
