"""Owns the settings of a request: `generationConfig` as a table, `toolConfig`, and the tools.

| wire | model |
| --- | --- |
| `generationConfig`: the members of `SETTINGS` | the setting of that name |
| its `responseMimeType`, `responseJsonSchema`, `responseSchema` | `response_format` |
| its `thinkingConfig.thinkingBudget`: 0, -1, a number | `thinking`: `disabled`, `adaptive`, `enabled` with a budget |
| its `thinkingConfig.thinkingLevel` | `effort` |
| `toolConfig.functionCallingConfig` | `tool_choice` |
| an entry of `functionDeclarations` | `Tool`; `parametersJsonSchema` or `parameters` are its parameters |
| any other member of an entry of `tools` | `Tool` of that type |

`model` and `stream` are said by the path of a request. A body may say them too, as servers such as ours take them.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from turnscript.apis.api import THOUGHTS, Body, Option, Rendering, leftover, setting
from turnscript.apis.gemini.objects import is_list, is_object, json_schema, kept, members_of, text_in, without
from turnscript.apis.shared.tool_choices import inner_tools, left_choice, name_of, offered_tools
from turnscript.core.conversation import Extra, Request, ResponseFormat, ThinkingMode, Tool, ToolChoice, ToolsChange
from turnscript.core.json_text import NULL, Json, json_of, plain, read_list, same
from turnscript.core.wire import Reader

CONFIG, TOOLS = "generationConfig", "toolConfig"
_AT = f"$.{CONFIG}"
NUMBER = int | float
SETTINGS: dict[str, tuple[str, Reader[Any]]] = {
    "temperature": ("temperature", Reader(NUMBER)),
    "topP": ("top_p", Reader(NUMBER)),
    "topK": ("top_k", Reader(NUMBER)),
    "maxOutputTokens": ("max_tokens", Reader(int)),
    "stopSequences": ("stop", Reader(list[str])),
    "candidateCount": ("n", Reader(int)),
    "seed": ("seed", Reader(int)),
    "presencePenalty": ("presence_penalty", Reader(NUMBER)),
    "frequencyPenalty": ("frequency_penalty", Reader(NUMBER)),
    "responseLogprobs": ("logprobs", Reader(bool)),
    "logprobs": ("top_logprobs", Reader(int)),
}


def _read_config(request: Request, value: Json, path: str) -> None:
    members = members_of(value, path)
    rest: Extra = {}
    for name, one in members.items():
        if name not in SETTINGS or one == NULL:
            rest[name] = one
            continue
        field, read = SETTINGS[name]
        said = read(one, f"{path}.{name}")
        if field == "top_k" and said != int(said):
            rest[name] = one
            continue
        setattr(request.settings, field, int(said) if field == "top_k" else said)
        request.paths[field] = f"{path}.{name}"
    _read_format(request, rest, path)
    if is_object(rest.get("thinkingConfig")):
        _read_thinking(request, rest, f"{path}.thinkingConfig")
    if rest or not members:
        request.extra[CONFIG] = leftover(rest)


def _write_config(rendering: Rendering) -> Body | None:
    settings = rendering.request.settings
    body: Body = {name: getattr(settings, field) for name, (field, _) in SETTINGS.items()}
    body = {name: value for name, value in body.items() if value is not None}
    body |= _written_format(rendering)
    thinking = _written_thinking(rendering)
    if thinking:
        body["thinkingConfig"] = thinking
    return body or None


# Response formats.

_JSON, _TEXT = "application/json", "text/plain"


def _read_format(request: Request, rest: Extra, path: str) -> None:
    """Take what the answer is to be out of the members, if it has a name in the model."""
    mime = text_in(rest, "responseMimeType")
    schema = next((name for name in ("responseJsonSchema", "responseSchema") if is_object(rest.get(name))), "")
    if mime == _TEXT and not schema:
        request.settings.response_format = ResponseFormat("text")
    elif mime == _JSON and not schema:
        request.settings.response_format = ResponseFormat("json_object")
    elif mime == _JSON:
        said = rest.pop(schema)
        if schema == "responseSchema":
            said = json_schema(said)
        request.settings.response_format = ResponseFormat("json_schema", schema=said)
    else:
        return
    del rest["responseMimeType"]
    request.paths["response_format"] = f"{path}.{schema or 'responseMimeType'}"


def _written_format(rendering: Rendering) -> Body:
    wanted, request = rendering.request.settings.response_format, rendering.request
    if wanted is None:
        return {}
    path = request.paths.get("response_format", "$.response_format")
    rendering.put_extra({}, wanted.extra, path)
    rendering.lose_unplaced(wanted, path)
    if wanted.type == "text":
        return {"responseMimeType": _TEXT}
    if wanted.type == "json_object":
        return {"responseMimeType": _JSON}
    if wanted.type != "json_schema" or wanted.schema is None:
        rendering.lose_setting("response_format", "dropped", f"there is no such response format {wanted.type!r} here")
        return {}
    return {"responseMimeType": _JSON, "responseJsonSchema": wanted.schema}


# Thinking.

_LEVELS = {word.upper(): word for word in ("minimal", "low", "medium", "high", "xhigh")}
_LEVEL_OF = {word: level for level, word in _LEVELS.items()}
_BUDGETS = {"disabled": 0, "adaptive": -1}
_MODES = {budget: mode for mode, budget in _BUDGETS.items()}


def _read_thinking(request: Request, rest: Extra, path: str) -> None:
    """Take what thinking is to be out of the members, if it has a name in the model."""
    members = members_of(rest["thinkingConfig"], path)
    level, value = text_in(members, "thinkingLevel"), members.get("thinkingBudget", NULL)
    named = []
    if level in _LEVELS:
        request.settings.effort = _LEVELS[level]
        request.paths["effort"] = f"{path}.thinkingLevel"
        named.append("thinkingLevel")
    if value != NULL:
        budget = _read_budget(value, f"{path}.thinkingBudget")
        if budget >= -1:
            mode = _MODES.get(budget, "enabled")
            request.settings.thinking = ThinkingMode(mode, budget=budget if mode == "enabled" else None)
            request.paths["thinking"] = f"{path}.thinkingBudget"
            named.append("thinkingBudget")
    left = without(members, named)
    if left or not members:
        rest["thinkingConfig"] = leftover(left)
    else:
        del rest["thinkingConfig"]


_read_budget: Reader[int] = Reader(int)


def _written_thinking(rendering: Rendering) -> Body:
    thinking, effort = rendering.request.settings.thinking, rendering.request.settings.effort
    body: Body = {}
    if effort is not None and thinking is not None:
        if thinking.mode == "disabled" or thinking.budget is not None:
            rendering.lose_setting("effort", "dropped", "servers take a budget or an effort, not both")
            effort = None
        else:
            rendering.lose_setting("thinking", "approximated", "an effort says here that the model is to think")
            thinking = None
    if effort in _LEVEL_OF:
        body["thinkingLevel"] = _LEVEL_OF[effort]
    elif effort == "none":
        rendering.lose_setting("effort", "approximated", "no effort is a budget of 0 here")
        body["thinkingBudget"] = 0
    elif effort is not None:
        rendering.lose_setting("effort", "approximated", "the largest effort here is 'XHIGH'")
        body["thinkingLevel"] = "XHIGH"
    if thinking is None:
        return body
    path = rendering.request.paths.get("thinking", "$.thinking")
    rendering.put_extra({}, thinking.extra, path)
    rendering.lose_unplaced(thinking, path)
    body["thinkingBudget"] = _BUDGETS.get(thinking.mode, -1) if thinking.budget is None else thinking.budget
    known = thinking.mode in _BUDGETS if thinking.budget is None else thinking.mode == "enabled" and thinking.budget > 0
    if not known:
        rendering.lose(path, "approximated", f"thinking of mode {thinking.mode!r} is a budget here")
    return body


# Tool choice.

_CHOICES = {"auto": "AUTO", "none": "NONE", "required": "ANY"}
_WORDS = {word: mode for mode, word in _CHOICES.items()}
_CALLING, _NAMES = "functionCallingConfig", "allowedFunctionNames"


def _read_choice(request: Request, value: Json, path: str) -> None:
    members = members_of(value, path)
    inner = members.get(_CALLING, NULL)
    said = members_of(inner, f"{path}.{_CALLING}") if is_object(inner) else {}
    mode, names = text_in(said, "mode"), _strings(said.get(_NAMES))
    named = ["mode", _NAMES] if mode in ("ANY", "VALIDATED") and names else ["mode"]
    if mode in _WORDS or len(named) > 1:
        choice = ToolChoice(_WORDS.get(mode or "", "allowed"))
        if mode == "ANY" and len(names) == 1:
            choice = ToolChoice("named", name=names[0])
        elif len(named) > 1:
            choice = ToolChoice("allowed", tools=_listed(names), required=mode == "ANY")
        request.settings.tool_choice = choice
        request.paths["tool_choice"] = f"{path}.{_CALLING}"
        del members[_CALLING]
        members = kept(members, _CALLING, without(said, named))
        if not members:
            return
    request.extra[TOOLS] = leftover(members)


def _strings(value: Json | None) -> list[str]:
    said = plain(value) if is_list(value) else []
    return said if all(isinstance(one, str) for one in said) else []


def _listed(names: list[str]) -> Json:
    return json_of([{"type": "function", "name": name} for name in names])


def _write_choice(rendering: Rendering) -> Body | None:
    choice = left_choice(rendering, separator="__")
    if choice is None:
        return None
    path = rendering.request.paths.get("tool_choice", "$.tool_choice")
    body: Body = {"mode": _CHOICES.get(choice.mode, "ANY")}
    if choice.mode == "named":
        if choice.type not in ("function", "custom") or choice.name is None:
            rendering.lose_setting("tool_choice", "dropped", f"there is no tool of type {choice.type!r} here")
            return None
        if choice.type == "custom":
            rendering.lose_setting("tool_choice", "approximated", "the tool becomes a function")
        body[_NAMES] = [choice.name]
    elif choice.mode == "allowed":
        entries = read_list(choice.tools) if is_list(choice.tools) else []
        names = [name for one in entries if (name := name_of(one, rendering.request)) is not None]
        body = {"mode": "ANY" if choice.required else "VALIDATED", _NAMES: names}
        if choice.tools is None or not same(_listed(names), choice.tools) or len(names) < 1 + choice.required:
            rendering.lose_setting("tool_choice", "approximated", "tools are allowed by their names here")
        if not names:
            body = {"mode": "NONE"}
    rendering.put_extra({}, choice.extra, path)
    return {_CALLING: body}


# The path.


def _read_stream(request: Request, value: Json, path: str) -> None:
    """`true` asks for server-sent events, `"array"` for one array of JSON, as servers stream that are not asked."""
    array = value == Json(b'"array"')
    request.settings.stream = True if array else _read_bool(value, path)
    if array:
        request.framing = "array"


_read_bool: Reader[bool] = Reader(bool)


def _write_stream(rendering: Rendering) -> Any:
    stream = rendering.request.settings.stream
    if stream is None or not rendering.foreign:
        return stream
    rendering.lose_setting("stream", "moved", "the path of a request says it: streamGenerateContent")
    return None


_FIELDS = (*(field for field, _ in SETTINGS.values()), "response_format", "thinking", "effort")
OPTIONS = (
    setting("model", "model", str),
    Option("stream", ("stream",), _read_stream, _write_stream),
    Option(CONFIG, _FIELDS, _read_config, _write_config),
    Option(TOOLS, ("tool_choice",), _read_choice, _write_choice),
    THOUGHTS,
)


# Tools.

_FUNCTIONS, _SCHEMA, _DIALECT = "functionDeclarations", "parametersJsonSchema", "parameters"
_DECLARATION = "declaration"
"""The type of a function without a name."""


def read_tools(value: Json, request: Request) -> None:
    """Append the tools, each with its place."""
    entries = read_list(value)
    for number, entry in enumerate(entries):
        at = f"$.tools[{number}]"
        members = members_of(entry, at)
        names = sorted(members.keys() - {_FUNCTIONS})  # which stand in any order in an entry
        found = [_read_other(name, members[name], at) for name in names]
        functions = members.get(_FUNCTIONS)
        if functions is not None and is_list(functions) and functions != Json(b"[]") and _are_objects(functions):
            places = enumerate(read_list(functions))
            found += [_read_function(one, f"{at}.{_FUNCTIONS}[{index}]") for index, one in places]
        elif functions is not None or not members:
            found.append(_read_other(_FUNCTIONS, functions, at) if functions is not None else (Tool(type="tool"), at))
        for tool, place in found:
            request.paths[f"$.tools[{len(request.tools)}]"] = place
            request.tools.append(tool)


def _are_objects(value: Json) -> bool:
    return all(map(is_object, read_list(value)))


def _read_other(name: str, value: Json, at: str) -> tuple[Tool, str]:
    return Tool(type=name, extra={name: value}), at


def _read_function(value: Json, at: str) -> tuple[Tool, str]:
    members = members_of(value, at)
    name = text_in(members, "name")
    if name is None:
        return Tool(type=_DECLARATION, extra=members), at
    tool, named = Tool(name=name, description=text_in(members, "description")), ["name"]
    if tool.description is not None:
        named.append("description")
    if is_object(members.get(_SCHEMA)):
        tool.parameters = members[_SCHEMA]
        named.append(_SCHEMA)
    elif is_object(members.get(_DIALECT)):
        tool.parameters = json_schema(members[_DIALECT])
        named.append(_DIALECT)
    tool.extra = without(members, named)
    return tool, at


def write_tools(body: Body, rendering: Rendering, changes: list[ToolsChange]) -> None:
    """Write the tools, those of the end where they change on the way: all functions in one entry, every other alone."""
    kept = None if changes else rendering.slices.tools(rendering.request, "tools")
    if kept is not None:
        body |= kept
        return
    entries: list[Body] = []
    functions: list[Body] = []
    for tool, at in offered_tools(rendering, changes):
        if tool.name is None and rendering.request.origin == rendering.origin:
            said: Body = dict(tool.extra)
            entries.append({_FUNCTIONS: [said]} if tool.type == _DECLARATION else said)
            continue
        written = list(_functions(rendering, tool, at))
        if written and not functions:
            entries.append({_FUNCTIONS: functions})
        functions += written
    if entries:
        body["tools"] = entries


def _functions(rendering: Rendering, tool: Tool, at: str, prefix: str = "") -> Iterator[Body]:
    """The functions that a tool is. `prefix`: the namespaces around it, which begin its name."""
    if tool.type in ("function", "custom"):
        yield _function(rendering, tool, at, prefix)
    elif tool.type != "namespace":
        rendering.lose(at, "dropped", f"a tool of type {tool.type!r} has no form here")
    else:
        for inner, place in inner_tools(rendering, tool, at):
            yield from _functions(rendering, inner, place, f"{prefix}{tool.name}__")


_FREE_TEXT = Json(b'{"type":"object","properties":{"input":{"type":"string"}},"required":["input"]}')


def _function(rendering: Rendering, tool: Tool, at: str, prefix: str) -> Body:
    body: Body = {"name": f"{prefix}{tool.name}"}
    if tool.description is not None:
        body["description"] = tool.description
    if tool.type == "custom":
        rendering.lose(at, "approximated", "a tool of free text becomes a function with one text")
        body[_SCHEMA] = _FREE_TEXT
    elif tool.parameters is not None:
        body[_SCHEMA] = tool.parameters
    rendering.lose_unplaced(tool, at)
    rendering.put_extra(body, tool.extra, at)
    if tool.envelope:
        rendering.put_extra({}, tool.envelope, at)
    return body
