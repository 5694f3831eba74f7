"""Owns the generation settings: the options table, and how effort, tool choice and output format are translated."""

from __future__ import annotations

from msgspec import UNSET, UnsetType

from turnscript.apis.api import THOUGHTS, Body, Option, Rendering, leftover, setting
from turnscript.apis.shared.tool_choices import left_choice, offers_none
from turnscript.core.conversation import Extra, Request, ResponseFormat, ThinkingMode, ToolChoice
from turnscript.core.json_text import Json, json_of, read_object
from turnscript.core.wire import Reader, Wire, extra_of, given

DEFAULT_MAX_TOKENS = 4096
EFFORTS = frozenset({"low", "medium", "high", "xhigh", "max"})
SERVICE_TIERS = frozenset({"auto", "standard_only"})
OLD_FORMAT = "output_format"
# Words of `tool_choice.type` and of `ToolChoice.mode`.
MODES = {"auto": "auto", "any": "required", "none": "none", "tool": "named"}
TYPES = {mode: word for word, mode in MODES.items()}


class MetadataMember(Wire):
    user_id: str | UnsetType = UNSET


class ThinkingMember(Wire):
    type: str
    budget_tokens: int | UnsetType = UNSET
    display: str | UnsetType = UNSET


class FormatMember(Wire):
    type: str
    schema: Json | UnsetType = UNSET


class OutputMember(Wire):
    effort: str | UnsetType = UNSET
    format: FormatMember | UnsetType = UNSET


class ToolChoiceMember(Wire):
    type: str
    name: str | UnsetType = UNSET
    disable_parallel_tool_use: bool | UnsetType = UNSET


_metadata: Reader[MetadataMember] = Reader(MetadataMember)
_thinking: Reader[ThinkingMember] = Reader(ThinkingMember)
_output: Reader[OutputMember] = Reader(OutputMember)
_form: Reader[FormatMember] = Reader(FormatMember)
_choice: Reader[ToolChoiceMember] = Reader(ToolChoiceMember)


def is_native(rendering: Rendering) -> bool:
    """Whether the request came from this API, so that every value in it is one of this API's."""
    return rendering.request.origin is not None and not rendering.foreign


def _keep(request: Request, key: str, rest: Extra | None, typed: bool, value: Json) -> None:
    """Keep what no setting holds: the unnamed members, or the whole value when nothing in it has a name."""
    if not typed:
        request.extra[key] = value
    elif rest:
        request.extra[key] = leftover(rest)


# Metadata, and the limit that this API requires.


def _read_metadata(request: Request, value: Json, path: str) -> None:
    member = _metadata(value, path)
    if member.user_id is not UNSET:
        request.settings.user = member.user_id
        request.paths["user"] = f"{path}.user_id"
    _keep(request, "metadata", member.rest, member.user_id is not UNSET, value)


def _write_metadata(rendering: Rendering) -> Body | None:
    user = rendering.request.settings.user
    return None if user is None else {"user_id": user}


_max_tokens = setting("max_tokens", "max_tokens", int)


def _write_max_tokens(rendering: Rendering) -> int | None:
    request = rendering.request
    limit, items = request.settings.max_tokens, request.items
    # Bare messages are no request yet; one that names a model is, and so is a text that is to be continued.
    begun = rendering.begun or (items and items[-1].open)
    asks = rendering.foreign or (request.origin is None and (request.settings.model or begun))
    if limit is None and asks:
        rendering.lose_setting("max_tokens", "invented", f"required here: {DEFAULT_MAX_TOKENS}")
        return DEFAULT_MAX_TOKENS
    return limit


_stop = setting("stop_sequences", "stop", list[str])


def _write_stop(rendering: Rendering) -> list[str] | None:
    stop = rendering.request.settings.stop
    if not stop or is_native(rendering):
        return stop
    blank = [text for text in stop if not text.strip()]
    if blank:
        detail = f"white space alone is not accepted as a stop sequence: {', '.join(map(repr, blank))}"
        rendering.lose_setting("stop", "dropped", detail)
    return [text for text in stop if text.strip()] or None


_service_tier = setting("service_tier", "service_tier", str)


def _write_service_tier(rendering: Rendering) -> str | None:
    tier = rendering.request.settings.service_tier
    if tier is not None and rendering.foreign and tier not in SERVICE_TIERS:
        rendering.lose_setting("service_tier", "dropped", f"{rendering.target} has no service tier {tier!r}")
        return None
    return tier


# Thinking, effort and the output format.


def _read_thinking(request: Request, value: Json, path: str) -> None:
    member = _thinking(value, path)
    thinking = ThinkingMode(member.type, extra=extra_of(member))
    if member.budget_tokens is not UNSET:
        thinking.budget = member.budget_tokens
    if member.display is not UNSET:
        thinking.display = member.display
    request.settings.thinking = thinking


def _write_thinking(rendering: Rendering) -> Body | None:
    thinking, effort = rendering.request.settings.thinking, rendering.request.settings.effort
    if thinking is None:
        if effort == "none" and not is_native(rendering):
            rendering.lose_setting("effort", "approximated", "no effort is thinking disabled here")
            return {"type": "disabled"}
        return None
    member: Body = {"type": thinking.mode}
    if thinking.budget is not None:
        member["budget_tokens"] = thinking.budget
    if thinking.display is not None:
        member["display"] = thinking.display
    rendering.put_extra(member, thinking.extra, "$.thinking")
    return member


def _read_output(request: Request, value: Json, path: str) -> None:
    member = _output(value, path)
    rest = extra_of(member)
    if member.effort is not UNSET:
        request.settings.effort = member.effort
        request.paths["effort"] = f"{path}.effort"
    if member.format is not UNSET:
        form = _format_read(member.format)
        if form is None:  # of a kind that has no name here: whole, as it came
            rest["format"] = read_object(value)["format"]
        else:
            request.settings.response_format = form
            request.paths["response_format"] = f"{path}.format"
    typed = member.effort is not UNSET or (member.format is not UNSET and "format" not in rest)
    _keep(request, "output_config", rest, typed, value)


def _read_old_format(request: Request, value: Json, path: str) -> None:
    """Where the format stood before there was an `output_config`, and where older SDKs still write it."""
    form = _format_read(_form(value, path))
    if form is None or request.settings.response_format is not None:
        request.extra[OLD_FORMAT] = value
        return
    request.settings.response_format = form
    request.paths["response_format"] = path


def _write_old_format(rendering: Rendering) -> None:
    """The format is said in `output_config`."""


def _format_read(member: FormatMember) -> ResponseFormat | None:
    if member.type != "json_schema" or member.schema is UNSET:
        return None
    return ResponseFormat(member.type, schema=member.schema, extra=extra_of(member))


def _write_output(rendering: Rendering) -> Body | None:
    member: Body = {}
    effort = _effort(rendering)
    if effort is not None:
        member["effort"] = effort
    form = _format(rendering)
    if form is not None:
        member["format"] = form
    return member or None


def _effort(rendering: Rendering) -> str | None:
    effort = rendering.request.settings.effort
    if effort is None or is_native(rendering) or effort in EFFORTS:
        return effort
    if effort == "minimal":
        rendering.lose_setting("effort", "approximated", "the least effort here is 'low'")
        return "low"
    if effort != "none":
        rendering.lose_setting("effort", "dropped", f"{rendering.target} has no effort {effort!r}")
    elif rendering.request.settings.thinking is not None:
        rendering.lose_setting("effort", "dropped", "the thinking mode says whether to think")
    return None


def _format(rendering: Rendering) -> Body | None:
    form = rendering.request.settings.response_format
    if form is None:
        return None
    path = rendering.request.paths.get("response_format", "$.response_format")
    if form.type != "json_schema" or form.schema is None:
        detail = f"{rendering.target} takes a JSON schema and nothing else, not {form.type!r}"
        rendering.lose_setting("response_format", "dropped", detail)
        return None
    rendering.lose_unplaced(form, path)
    body: Body = {"type": form.type, "schema": form.schema}
    rendering.put_extra(body, form.extra, path)
    return body


# Tool choice.


def _read_tool_choice(request: Request, value: Json, path: str) -> None:
    member = _choice(value, path)
    mode = MODES.get(member.type)
    name = given(member.name)
    if mode is None or (mode == "named" and name is None):
        request.extra["tool_choice"] = value
        return
    choice = ToolChoice(mode, extra=extra_of(member))
    if mode == "named":
        choice.name = name
    elif name is not None:
        choice.extra["name"] = json_of(name)
    request.settings.tool_choice = choice
    if member.disable_parallel_tool_use is not UNSET:
        request.settings.parallel_tool_calls = not member.disable_parallel_tool_use
        request.paths["parallel_tool_calls"] = f"{path}.disable_parallel_tool_use"


def _write_tool_choice(rendering: Rendering) -> Body | None:
    choice = left_choice(rendering, separator="__", lists=False)
    parallel = rendering.request.settings.parallel_tool_calls
    member: Body | None = None
    if choice is not None:
        member = _chosen(choice, rendering)
        if member is not None:
            rendering.put_extra(member, choice.extra, "$.tool_choice")
    if parallel is None:
        return member
    if member is not None and member["type"] == "none" and not is_native(rendering):
        rendering.lose_setting("parallel_tool_calls", "dropped", "no tool is called at all")
        return member
    without = not rendering.request.tools or offers_none(rendering)
    if member is None and without and not is_native(rendering):
        rendering.lose_setting("parallel_tool_calls", "dropped", "there are no tools to call")
        return None
    if member is None:
        member = {"type": "auto"}
    member["disable_parallel_tool_use"] = not parallel
    return member


def _chosen(choice: ToolChoice, rendering: Rendering) -> Body | None:
    if choice.mode == "allowed":
        rendering.lose_setting("tool_choice", "approximated", "only the allowed tools are offered")
        return {"type": "any" if choice.required else "auto"}
    if choice.mode == "named" and (choice.name is None or choice.type not in ("function", "custom")):
        detail = f"{rendering.target} has no tool of type {choice.type!r} to choose"
        rendering.lose_setting("tool_choice", "dropped", detail)
        return None
    if choice.type == "custom":
        rendering.lose_setting("tool_choice", "approximated", "the tool becomes a function")
    member: Body = {"type": TYPES.get(choice.mode, choice.mode)}
    if choice.name is not None:
        member["name"] = choice.name
    return member


OPTIONS = (
    setting("model", "model", str),
    Option("max_tokens", ("max_tokens",), _max_tokens.read, _write_max_tokens),
    Option("stop_sequences", ("stop",), _stop.read, _write_stop),
    setting("stream", "stream", bool),
    setting("temperature", "temperature", int | float),
    setting("top_p", "top_p", int | float),
    setting("top_k", "top_k", int),
    Option("thinking", ("thinking",), _read_thinking, _write_thinking),
    THOUGHTS,
    Option("output_config", ("effort", "response_format"), _read_output, _write_output),
    Option(OLD_FORMAT, ("response_format",), _read_old_format, _write_old_format),
    Option("tool_choice", ("tool_choice", "parallel_tool_calls"), _read_tool_choice, _write_tool_choice),
    Option("metadata", ("user",), _read_metadata, _write_metadata),
    Option("service_tier", ("service_tier",), _service_tier.read, _write_service_tier),
)
