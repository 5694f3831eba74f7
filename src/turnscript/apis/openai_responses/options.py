"""Owns the generation settings of a request: which member holds which setting, and the composite ones.

A composite member that says something no setting holds keeps that in `request.extra` under its key, and one that cannot
be typed at all stays there whole.
"""

from __future__ import annotations

from typing import Any

from msgspec import UNSET, UnsetType

from turnscript.apis.api import THOUGHTS, Body, Option, Rendering, leftover, object_setting, own_setting, setting
from turnscript.apis.openai_responses.client_tools import LOCAL_SHELL, PATCH, SHELL
from turnscript.apis.openai_responses.tools import SEARCH
from turnscript.apis.shared.settings import OWN_STOP, effort_for
from turnscript.apis.shared.tool_choices import left_choice, read_word, write_word
from turnscript.core.conversation import Request, ResponseFormat, ToolChoice, all_tools
from turnscript.core.json_text import Json, plain, read_list, read_object
from turnscript.core.wire import Reader, Verbatim, Wire, extra_of, mismatch

ORIGIN = "openai-responses"


# tool_choice: a word, or an object.


class NamedFunction(Wire, tag="function"):
    name: str


class NamedCustom(Wire, tag="custom"):
    name: str


class AllowedTools(Wire, tag="allowed_tools"):
    mode: str
    tools: Json


_DECLARED = frozenset({LOCAL_SHELL, PATCH, SEARCH, SHELL})
"""Types of tools that a choice names by their type alone."""
_TOOL_CHOICE: Reader[Any] = Reader(str | NamedFunction | NamedCustom | AllowedTools)


def _read_tool_choice(request: Request, value: Json, path: str) -> None:
    if read_word(request, value):
        return
    choice = _TOOL_CHOICE(value, path)
    if isinstance(choice, NamedFunction | NamedCustom):
        type_ = "function" if isinstance(choice, NamedFunction) else "custom"
        named = ToolChoice(mode="named", name=choice.name, type=type_, extra=extra_of(choice))
        request.settings.tool_choice = named
    elif isinstance(choice, AllowedTools) and choice.mode in ("auto", "required"):
        if bytes(choice.tools)[:1] != b"[":
            raise mismatch(choice.tools, f"{path}.tools", "an array of tools")
        required = choice.mode == "required"
        allowed = ToolChoice(mode="allowed", tools=choice.tools, required=required, extra=extra_of(choice))
        request.settings.tool_choice = allowed
    elif not _read_declared(request, choice):
        request.extra["tool_choice"] = value


def _read_declared(request: Request, choice: Any) -> bool:
    """Read a choice of a tool by the type that it was declared as. False: it is something else."""
    kind = choice.tag if isinstance(choice, Verbatim) and choice.tag in _DECLARED else None
    name = next((tool.name for tool in all_tools(request) if kind and tool.declared_as == kind), None)
    if kind is None or name is None:
        return False
    members = read_object(choice.value)
    del members["type"]
    request.settings.tool_choice = ToolChoice(mode="named", name=name, type=kind, extra=members)
    return True


def _write_tool_choice(rendering: Rendering) -> Any:
    choice = left_choice(rendering)
    if choice is None:
        return None
    if choice.mode == "named" and choice.type in _DECLARED:
        body: Body = {"type": choice.type}
    elif choice.mode == "named":
        body = {"type": choice.type, "name": choice.name}
    elif choice.mode == "allowed":
        tools = flat_tools(choice.tools) if rendering.foreign else choice.tools or []
        body = {"type": "allowed_tools", "mode": "required" if choice.required else "auto", "tools": tools}
    else:
        return write_word(rendering, choice)
    rendering.put_extra(body, choice.extra, "$.tool_choice")
    return body


def flat_tools(tools: Json | None) -> Any:
    """A list of tool names, with the object that another API wraps each name in taken off."""
    if tools is None or bytes(tools).lstrip()[:1] != b"[":
        return tools or []
    return [_flat_tool(tool) for tool in read_list(tools)]


def _flat_tool(tool: Json) -> Any:
    if bytes(tool).lstrip()[:1] != b"{":
        return tool
    members = read_object(tool)
    type_ = plain(members["type"]) if "type" in members else None
    inner = members.get(type_) if isinstance(type_, str) else None
    if type_ is None or inner is None or bytes(inner).lstrip()[:1] != b"{":
        return tool
    del members[type_]
    return {**members, **read_object(inner)}


# text: the format of the answer and how long it should be.


class TextFormat(Wire, tag="text"):
    pass


class JsonObject(Wire, tag="json_object"):
    pass


class JsonSchema(Wire, tag="json_schema"):
    name: str
    schema: Json
    strict: bool | UnsetType = UNSET
    description: str | UnsetType = UNSET


class TextConfig(Wire):
    format: TextFormat | JsonObject | JsonSchema | UnsetType = UNSET
    verbosity: str | UnsetType = UNSET


_TEXT: Reader[TextConfig] = Reader(TextConfig)


def _read_text(request: Request, value: Json, path: str) -> None:
    text = _TEXT(value, path)
    rest = extra_of(text)
    settings = request.settings
    format_ = text.format
    if isinstance(format_, Verbatim):
        rest["format"] = format_.value
    elif format_ is not UNSET:
        settings.response_format = _format(format_)
        request.paths["response_format"] = f"{path}.format"
    if text.verbosity is not UNSET:
        settings.verbosity = text.verbosity
        request.paths["verbosity"] = f"{path}.verbosity"
    if rest or (settings.response_format is None and settings.verbosity is None):
        request.extra["text"] = leftover(rest)


def _format(wire: TextFormat | JsonObject | JsonSchema) -> ResponseFormat:
    if not isinstance(wire, JsonSchema):
        type_ = "text" if isinstance(wire, TextFormat) else "json_object"
        return ResponseFormat(type=type_, extra=extra_of(wire))
    format_ = ResponseFormat(type="json_schema", name=wire.name, schema=wire.schema, extra=extra_of(wire))
    if wire.strict is not UNSET:
        format_.strict = wire.strict
    if wire.description is not UNSET:
        format_.description = wire.description
    return format_


_SHAPES = ("text", "json_object", "json_schema")


def _write_text(rendering: Rendering) -> Any:
    settings = rendering.request.settings
    body: Body = {}
    format_ = settings.response_format
    if format_ is not None and format_.type in _SHAPES:
        body["format"] = _write_format(rendering, format_)
    elif format_ is not None:
        rendering.lose_setting("response_format", "dropped", f"there is no response format {format_.type!r} here")
    if settings.verbosity is not None:
        body["verbosity"] = settings.verbosity
    return body or None


def _write_format(rendering: Rendering, format_: ResponseFormat) -> Body:
    body: Body = {"type": format_.type}
    if format_.type == "json_schema":
        body["name"] = format_.name
        if format_.name is None:
            body["name"] = "response"
            rendering.lose_setting("response_format", "invented", "a schema has a name here: 'response'")
        body["schema"] = format_.schema
        if format_.schema is None:
            body["schema"] = {}
            rendering.lose_setting("response_format", "invented", "a json_schema format has a schema here: {}")
        if format_.strict is not None:
            body["strict"] = format_.strict
        if format_.description is not None:
            body["description"] = format_.description
    path = rendering.request.paths.get("response_format", "$.response_format")
    rendering.put_extra(body, format_.extra, path)
    return body


# reasoning: how hard to think, and what to show of it.


class ReasoningConfig(Wire):
    effort: str | UnsetType = UNSET
    summary: str | UnsetType = UNSET


_REASONING: Reader[ReasoningConfig] = Reader(ReasoningConfig)


def _read_reasoning(request: Request, value: Json, path: str) -> None:
    reasoning = _REASONING(value, path)
    if reasoning.effort is not UNSET:
        request.settings.effort = reasoning.effort
        request.paths["effort"] = f"{path}.effort"
    if reasoning.summary is not UNSET:
        request.settings.reasoning_summary = reasoning.summary
        request.paths["reasoning_summary"] = f"{path}.summary"
    if reasoning.rest or (reasoning.effort is UNSET and reasoning.summary is UNSET):
        request.extra["reasoning"] = leftover(extra_of(reasoning))


def _write_reasoning(rendering: Rendering) -> Any:
    settings = rendering.request.settings
    body: Body = {}
    effort = settings.effort if settings.thinking is None else effort_for(rendering, settings.thinking)
    if effort is not None:
        body["effort"] = effort
    if settings.reasoning_summary is not None:
        body["summary"] = settings.reasoning_summary
    return body or None


# Members that another API fills with values unknown here, or that have no official place here.

_INCLUDE: Reader[list[str]] = Reader(list[str])
LOGPROBS = "message.output_text.logprobs"


def _read_include(request: Request, value: Json, path: str) -> None:
    include = _INCLUDE(value, path)
    if LOGPROBS in include:
        request.settings.logprobs = True
        request.paths["logprobs"] = path
    if include != [LOGPROBS]:
        request.extra["include"] = value


def _write_include(rendering: Rendering) -> Any:
    logprobs = rendering.request.settings.logprobs
    if logprobs is False:
        rendering.lose_setting("logprobs", "dropped", "no log probabilities is what is usual here")
    if not logprobs or (not rendering.foreign and "include" in rendering.request.extra):
        return None
    return [LOGPROBS]


def _write_service_tier(rendering: Rendering) -> Any:
    tier = rendering.request.settings.service_tier
    if tier == "standard_only" and rendering.foreign:
        rendering.lose_setting("service_tier", "approximated", "'standard_only' became 'default'")
        return "default"
    return tier


class StreamOptions(Wire):
    include_obfuscation: Json | UnsetType = UNSET


_STREAM_OPTIONS: Reader[StreamOptions] = Reader(StreamOptions)


def _read_stream_options(request: Request, value: Json, path: str) -> None:
    _STREAM_OPTIONS(value, path)
    request.settings.stream_options = value


def _write_stream_options(rendering: Rendering) -> Any:
    """Another API's options: only the obfuscation means the same here, and usage always comes."""
    value = rendering.request.settings.stream_options
    if value is None or not rendering.foreign:
        return value
    options = _STREAM_OPTIONS(value, "$.stream_options")
    body: Body = {}
    if options.include_obfuscation is not UNSET:
        body["include_obfuscation"] = options.include_obfuscation
    rendering.put_extra(body, extra_of(options), "$.stream_options")
    return None if options.rest and not body else body


OPTIONS = (
    setting("model", "model", str),
    setting("max_output_tokens", "max_tokens", int),
    setting("temperature", "temperature", int | float),
    setting("top_p", "top_p", int | float),
    own_setting("presence_penalty", "presence_penalty", int | float),  # OpenAI has none here, and Open Responses has
    own_setting("frequency_penalty", "frequency_penalty", int | float),
    setting("stream", "stream", bool),
    Option("stream_options", ("stream_options",), _read_stream_options, _write_stream_options),
    setting("parallel_tool_calls", "parallel_tool_calls", bool),
    Option("tool_choice", ("tool_choice",), _read_tool_choice, _write_tool_choice),
    Option("text", ("response_format", "verbosity"), _read_text, _write_text),
    Option("reasoning", ("effort", "reasoning_summary", "thinking"), _read_reasoning, _write_reasoning),
    THOUGHTS,
    Option("include", ("logprobs",), _read_include, _write_include),
    setting("top_logprobs", "top_logprobs", int),
    object_setting("metadata"),
    setting("user", "user", str),
    setting("safety_identifier", "safety_identifier", str),
    Option("service_tier", ("service_tier",), setting("service_tier", "service_tier", str).read, _write_service_tier),
    setting("store", "store", bool),
    setting("prompt_cache_key", "prompt_cache_key", str),
    object_setting("prompt_cache_options"),
    setting("prompt_cache_retention", "prompt_cache_retention", str),
    object_setting("moderation"),
    OWN_STOP,
)
"""Every member that is a setting. The others of the 33 (background, conversation, ...) have no counterpart anywhere."""
