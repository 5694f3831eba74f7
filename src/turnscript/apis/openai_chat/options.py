"""Owns the generation settings of a request: one `Option` for each member that has a name in `Settings`.

Members that say the same twice: the deprecated `max_tokens` and `function_call` are typed when they stand alone;
beside the member that replaced them they stay unnamed.
"""

from __future__ import annotations

from typing import Any

from msgspec import UNSET, UnsetType

from turnscript.apis.api import THOUGHTS, Body, Option, Rendering, leftover, object_setting, setting
from turnscript.apis.shared.settings import STOP, effort_for
from turnscript.apis.shared.tool_choices import left_choice, offers_none, read_word, write_word
from turnscript.core.conversation import Extra, Request, ResponseFormat, ToolChoice
from turnscript.core.json_text import Json, members_in, plain, read_list, read_object
from turnscript.core.wire import Reader, Verbatim, Wire, mismatch

DEPRECATED = ("max_tokens", "function_call")
"""Read after all others, so that what replaced them wins."""


# max_completion_tokens and max_tokens

_read_integer: Reader[int] = Reader(int)


def _read_max_tokens(request: Request, value: Json, path: str) -> None:
    if request.settings.max_tokens is not None:
        request.extra["max_tokens"] = value
        return
    request.settings.max_tokens = _read_integer(value, path)


def _write_nothing(rendering: Rendering) -> None:
    """Write nothing: the successor of a deprecated member says it."""


# tool_choice and function_call


class _Name(Wire):
    name: str


class _NamedFunction(Wire, tag="function", tag_field="type"):
    known_by = "function"
    function: _Name


class _NamedCustom(Wire, tag="custom", tag_field="type"):
    custom: _Name


class _Allowed(Wire):
    mode: str
    tools: Json


class _AllowedTools(Wire, tag="allowed_tools", tag_field="type"):
    allowed_tools: _Allowed


_read_choice: Reader[Any] = Reader(str | _NamedFunction | _NamedCustom | _AllowedTools)
_read_legacy_choice: Reader[str | _Name] = Reader(str | _Name)
_MODES = frozenset({"none", "auto", "required"})


def _read_tool_choice(request: Request, value: Json, path: str) -> None:
    if read_word(request, value):
        return
    wire = _read_choice(value, path)
    choice: ToolChoice | None
    if isinstance(wire, _NamedFunction):
        choice = ToolChoice(mode="named", name=wire.function.name)
        _keep_rest(request, "tool_choice", wire, "function", wire.function)
    elif isinstance(wire, _NamedCustom):
        choice = ToolChoice(mode="named", name=wire.custom.name, type="custom")
        _keep_rest(request, "tool_choice", wire, "custom", wire.custom)
    elif isinstance(wire, _AllowedTools) and wire.allowed_tools.mode in ("auto", "required"):
        allowed = wire.allowed_tools
        if bytes(allowed.tools)[:1] != b"[":
            raise mismatch(allowed.tools, f"{path}.allowed_tools.tools", "an array of tools")
        choice = ToolChoice(mode="allowed", tools=allowed.tools, required=allowed.mode == "required")
        _keep_rest(request, "tool_choice", wire, "allowed_tools", allowed)
    else:
        choice = None
    request.settings.tool_choice = choice
    if choice is None:
        request.extra["tool_choice"] = value


def _keep_rest(request: Request, key: str, outer: Wire, inner_key: str, inner: Wire) -> None:
    """Keep the unnamed members of a composite option where `merge` puts them back."""
    rest: Extra = dict(outer.rest) if outer.rest else {}
    if inner.rest:
        rest[inner_key] = leftover(inner.rest)
    if rest:
        request.extra[key] = leftover(rest)


def _write_tool_choice(rendering: Rendering) -> Any:
    choice = left_choice(rendering, separator="__")
    if choice is None:
        return None
    if choice.mode in _MODES:
        return write_word(rendering, choice)
    path = rendering.request.paths.get("tool_choice", "$.tool_choice")
    rendering.put_extra({}, choice.extra, path)
    if choice.mode == "named" and choice.type in ("function", "custom"):
        return {"type": choice.type, choice.type: {"name": choice.name}}
    if choice.mode == "allowed":
        tools = _nested_tools(choice.tools) if rendering.foreign else choice.tools
        allowed = {"mode": "required" if choice.required else "auto", "tools": tools or []}
        return {"type": "allowed_tools", "allowed_tools": allowed}
    rendering.lose(path, "dropped", f"a choice of a tool of type {choice.type!r} has no form here")
    return None


def _write_parallel(rendering: Rendering) -> bool | None:
    parallel = rendering.request.settings.parallel_tool_calls
    if parallel is not None and offers_none(rendering):
        rendering.lose_setting("parallel_tool_calls", "dropped", "there are no tools to call")
        return None
    return parallel


def _nested_tools(tools: Json | None) -> Any:
    """A list of tools by name, each in the wrapper that this API puts around it."""
    if tools is None or bytes(tools)[:1] != b"[":
        return tools
    return [_nested_tool(one) for one in read_list(tools)]


def _nested_tool(tool: Json) -> Any:
    members = members_in(tool)
    type_ = plain(members["type"]) if "type" in members else None
    if type_ not in ("function", "custom") or type_ in members:
        return tool
    return {"type": type_, type_: {key: value for key, value in members.items() if key != "type"}}


def _read_function_call(request: Request, value: Json, path: str) -> None:
    wire = _read_legacy_choice(value, path)
    if request.settings.tool_choice is not None or wire == "required" or (isinstance(wire, str) and wire not in _MODES):
        request.extra["function_call"] = value
        return
    if isinstance(wire, str):
        request.settings.tool_choice = ToolChoice(mode=wire)
    else:
        request.settings.tool_choice = ToolChoice(mode="named", name=wire.name)
        if wire.rest:
            request.extra["function_call"] = leftover(wire.rest)
    request.paths["tool_choice"] = path


# response_format


class _TextFormat(Wire, tag="text", tag_field="type"):
    pass


class _JsonObject(Wire, tag="json_object", tag_field="type"):
    schema: Json | UnsetType = UNSET  # not OpenAI's, but many servers of open models have it here


class _Schema(Wire):
    name: str | UnsetType = UNSET
    description: str | UnsetType = UNSET
    schema: Json | UnsetType = UNSET
    strict: bool | UnsetType = UNSET


class _JsonSchema(Wire, tag="json_schema", tag_field="type"):
    json_schema: _Schema | UnsetType = UNSET


_read_format: Reader[Any] = Reader(_TextFormat | _JsonObject | _JsonSchema)
_FORMATS: dict[type[Wire], str] = {_TextFormat: "text", _JsonObject: "json_object"}


def _read_response_format(request: Request, value: Json, path: str) -> None:
    wire = _read_format(value, path)
    if isinstance(wire, Verbatim) or (isinstance(wire, _JsonSchema) and wire.json_schema is UNSET):
        request.extra["response_format"] = value
    elif isinstance(wire, _JsonSchema) and isinstance(wire.json_schema, _Schema):
        request.settings.response_format = _format_of(wire.json_schema)
        request.paths["response_format"] = f"{path}.json_schema"
        _keep_rest(request, "response_format", wire, "json_schema", wire.json_schema)
    else:
        found = ResponseFormat(type=_FORMATS[type(wire)])
        if isinstance(wire, _JsonObject) and wire.schema is not UNSET:
            found = ResponseFormat(type="json_schema", schema=wire.schema)
        request.settings.response_format = found
        if wire.rest:
            request.extra["response_format"] = leftover(wire.rest)


def _format_of(schema: _Schema) -> ResponseFormat:
    found = ResponseFormat(type="json_schema")
    for name in ("name", "description", "schema", "strict"):
        value = getattr(schema, name)
        if value is not UNSET:
            setattr(found, name, value)
    return found


def _write_response_format(rendering: Rendering) -> Any:
    wanted = rendering.request.settings.response_format
    if wanted is None:
        return None
    rendering.put_extra({}, wanted.extra, rendering.request.paths.get("response_format", "$.response_format"))
    if wanted.type in ("text", "json_object"):
        return {"type": wanted.type}
    if wanted.type != "json_schema":
        rendering.lose_setting("response_format", "dropped", f"there is no response format {wanted.type!r} here")
        return None
    schema: Body = {}
    for name in ("name", "description", "schema", "strict"):
        value = getattr(wanted, name)
        if value is not None:
            schema[name] = value
    if rendering.foreign and wanted.name is None:
        schema = {"name": "response", **schema}
        rendering.lose_setting("response_format", "invented", "a schema needs a name here: 'response'")
    return {"type": "json_schema", "json_schema": schema}


def _write_effort(rendering: Rendering) -> str | None:
    settings = rendering.request.settings
    return settings.effort if settings.thinking is None else effort_for(rendering, settings.thinking)


# service_tier

TIERS = frozenset({"auto", "default", "flex", "scale", "priority", "fast"})


def _write_tier(rendering: Rendering) -> Any:
    tier = rendering.request.settings.service_tier
    if tier is None or not rendering.foreign or tier in TIERS:
        return tier
    if tier == "standard_only":
        rendering.lose_setting("service_tier", "approximated", "'standard_only' is written as 'default'")
        return "default"
    rendering.lose_setting("service_tier", "dropped", f"there is no service tier {tier!r} here")
    return None


def _write_cache_options(rendering: Rendering) -> Any:
    """Of another API's options, those that exist here: the mode, and one time to live."""
    value = rendering.request.settings.prompt_cache_options
    if value is None or not rendering.foreign:
        return value
    members = read_object(value)
    known = {key: one for key, one in members.items() if key == "mode" or (key == "ttl" and plain(one) == "30m")}
    for key in [key for key in members if key not in known]:
        rendering.lose(f"$.prompt_cache_options.{key}", "dropped", "there is no such option, or value of it, here")
    return known if known or not members else None


NUMBER = int | float
_parallel = setting("parallel_tool_calls", "parallel_tool_calls", bool)

OPTIONS: tuple[Option, ...] = (
    setting("model", "model", str),
    setting("max_completion_tokens", "max_tokens", int),
    Option("max_tokens", ("max_tokens",), _read_max_tokens, _write_nothing),
    setting("temperature", "temperature", NUMBER),
    setting("top_p", "top_p", NUMBER),
    setting("n", "n", int),
    STOP,
    setting("stream", "stream", bool),
    object_setting("stream_options"),
    Option("tool_choice", ("tool_choice",), _read_tool_choice, _write_tool_choice),
    Option("function_call", ("tool_choice",), _read_function_call, _write_nothing),
    Option("parallel_tool_calls", ("parallel_tool_calls",), _parallel.read, _write_parallel),
    Option("response_format", ("response_format",), _read_response_format, _write_response_format),
    Option("reasoning_effort", ("effort", "thinking"), setting("reasoning_effort", "effort", str).read, _write_effort),
    THOUGHTS,
    setting("verbosity", "verbosity", str),
    setting("seed", "seed", int),
    setting("presence_penalty", "presence_penalty", NUMBER),
    setting("frequency_penalty", "frequency_penalty", NUMBER),
    object_setting("logit_bias"),
    setting("logprobs", "logprobs", bool),
    setting("top_logprobs", "top_logprobs", int),
    setting("user", "user", str),
    object_setting("metadata"),
    Option("service_tier", ("service_tier",), setting("service_tier", "service_tier", str).read, _write_tier),
    setting("store", "store", bool),
    setting("safety_identifier", "safety_identifier", str),
    setting("prompt_cache_key", "prompt_cache_key", str),
    setting("prompt_cache_retention", "prompt_cache_retention", str),
    Option(
        "prompt_cache_options",
        ("prompt_cache_options",),
        object_setting("prompt_cache_options").read,
        _write_cache_options,
    ),
    object_setting("moderation"),
)
