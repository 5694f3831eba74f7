"""Owns offers: which of the declared tools a model is offered, and what it is told of the choice between them.

A prompt shows functions by one name each. So namespaces are flattened (`fs__read`), tools of free text become
functions with one string, `input`, and the history's calls are spelled like that, too; a `Restorer` takes it back in
the answer. A tool of any other type is its vendor's own and cannot be called here: by `Offering.hosted` it is reported
and left out, which is the default because agents declare such tools in every request and do without them, or refused
with the path of its definition. A choice that demands such a tool is always refused: the answer would be a lie.

Choices of tools, and the law that a session's prompts only grow:
- `none`: the tools stay in the prompt, which would otherwise begin anew, and the parser takes no text for a call.
- `required`, a named tool: the prompt itself begins the call.
- `allowed`: the other tools leave the prompt, which then begins differently (a loss says so); a small model calls what
  it sees. With `Offering.allowed` as `keep` they stay, and a call of another tool is an `unknown_tool` for the checks.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from copy import copy
from fnmatch import fnmatchcase
from operator import is_
from typing import Any, Literal

from msgspec import Struct
from msgspec.structs import replace

from turnscript.core.conversation import (
    Conversation,
    Item,
    Request,
    Settings,
    System,
    Text,
    Tool,
    ToolCall,
    ToolChoice,
    ToolResult,
    ToolsChange,
    all_tools,
)
from turnscript.core.errors import InvalidRequest
from turnscript.core.json_text import Json, json_of, plain, read_object, safe_json_string
from turnscript.core.losses import Indexed, Loss, LossKind
from turnscript.core.source_paths import unnamed
from turnscript.engine.bodies import tool_from, tool_line
from turnscript.engine.prompt import Prompt
from turnscript.formats.format import Format
from turnscript.gateway.naming import INPUT, Origin, Restorer

NAMESPACE = "namespace"
_SLOT = "tools"
TOOLS = Indexed(f"$.{_SLOT}")
"""Where tools stand that are all in one list."""
_DEFER = "defer_loading"
REFERENCE = "tool_reference"
"""The type of what names a tool that is to be loaded."""
_DEEPEST = 32


def tool_paths(tools: Sequence[Tool]) -> list[str]:
    """Where the definitions of a request's tools stand, which may be two lists."""
    counts: dict[str, int] = {}
    paths = []
    for tool in tools:
        slot = tool.slot or _SLOT
        index = counts.get(slot, 0)
        counts[slot] = index + 1
        paths.append(TOOLS[index] if slot == _SLOT else f"$.{slot}[{index}]")
    return paths


def spelled(request: Request, as_function: Callable[[Tool], Tool | None]) -> tuple[Request, list[Loss]]:
    """The request with tools that only their vendor's models know as the functions that they are, and what was said of
    them that they did not say themselves. The request that is given is not changed."""
    if not request.tools:
        return request, []
    told = [as_function(tool) or tool for tool in request.tools]
    if all(map(is_, told, request.tools)):
        return request, []
    losses = [
        Loss(path, "approximated", f"the model is told what a tool of type {_type(tool)!r} takes")
        for tool, function, path in zip(request.tools, told, tool_paths(request.tools), strict=True)
        if function is not tool
    ]
    whole = copy(request)
    whole.conversation = Conversation(request.items, told)
    return whole, losses


def _type(tool: Tool) -> str:
    return tool.declared_as or tool.type


def place_of(tool: Tool) -> str:
    """Where the definition of a tool stood."""
    return tool.at or "$.tools"


def is_deferred(tool: Tool) -> bool:
    """Whether a tool is loaded later."""
    said = tool.extra.get(_DEFER)
    return said is not None and bytes(said).strip() == b"true"


def undeferred(tool: Tool) -> Tool:
    """A tool without the mark that it is loaded later: the same one where there is none."""
    if _DEFER not in tool.extra and not tool.tools:
        return tool
    tool = copy(tool)
    tool.extra = {key: value for key, value in tool.extra.items() if key != _DEFER}
    tool.tools = [undeferred(one) for one in tool.tools]
    return tool


def split(tool: Tool) -> tuple[Tool | None, list[Tool]]:
    """What of a tool is offered at once, and what later: of a namespace each of its tools, in it."""
    plain_tool = undeferred(tool)
    if is_deferred(tool):
        return None, [plain_tool]
    if not tool.tools:
        return plain_tool, []
    later: list[Tool] = []
    for whole, inner in zip(tool.tools, plain_tool.tools, strict=True):
        if is_deferred(whole):
            one = copy(plain_tool)
            one.tools = [inner]
            one.at = place_of(inner)
            later.append(one)
    if later:
        shown = [inner for whole, inner in zip(tool.tools, plain_tool.tools, strict=True) if not is_deferred(whole)]
        if not shown:
            return None, later
        plain_tool.tools = shown
    return plain_tool, later


def names_of(tool: Tool) -> list[str]:
    """What tells a tool from others; of a namespace, what tells each of its tools."""
    if tool.type == NAMESPACE and tool.tools:
        return [f"{tool.name}__{one.name}" for one in tool.tools]
    return [tool.name if tool.name is not None else f"{tool.type}:{place_of(tool)}"]


def unknown(tool: Tool, known: Collection[str]) -> Tool | None:
    """What of a tool is not among the known names; of a namespace, those of its tools."""
    names = names_of(tool)
    if not any(name in known for name in names):
        return tool
    new = [one for one, name in zip(tool.tools, names, strict=False) if name not in known]
    if not new:
        return None
    rest = copy(tool)
    rest.tools = new
    return rest


def defined(members: dict[str, Json]) -> Tool:
    """A tool from its wire object, which an API has left inside something that it does not read."""
    schema = members.pop("input_schema", None)
    inner = members.get("function")
    if inner is not None:
        members = read_object(inner)
    tool = tool_from(members)
    tool.parameters = schema if tool.parameters is None else tool.parameters
    return tool


def references(value: Any, depth: int = 0) -> Iterator[str]:
    """The names that references to tools give, anywhere in a JSON value."""
    if isinstance(value, dict):
        if value.get("type") == REFERENCE:
            yield str(value.get("tool_name", value.get("name", "")))
        elif depth < _DEEPEST:
            for one in value.values():
                yield from references(one, depth + 1)
    elif isinstance(value, list) and depth < _DEEPEST:
        for one in value:
            yield from references(one, depth + 1)


FUNCTION = "function"
CUSTOM = "custom"

HOSTED_MEMBERS = ("web_search_options", "mcp_servers", "container")
"""Members of a request that ask for tools of the vendor's without declaring them as such."""
_ASKING = "web_search_options"
"""The one of them that asks by being there: `{}` is how most clients write it."""

_NOTHING = frozenset({b"", b"null", b"[]", b"{}"})
_CHOICE_MEMBERS = frozenset({"tool_choice", *HOSTED_MEMBERS})
_OF_TOOLS = frozenset({ToolCall, ToolResult, ToolsChange})
_UNSAID = _NOTHING | {b'""', b"false"}


class Offering(Struct, frozen=True, kw_only=True):
    """How tools are offered.

    `hosted`: what to do with tools that only their vendor runs, `refuse`: types that are refused all the same
    (patterns such as `computer*`). `custom`: whether tools of free text become functions. `separator`: what stands
    between a namespace and a name.
    """

    hosted: Literal["report", "refuse"] = "report"
    refuse: tuple[str, ...] = ()
    custom: Literal["shim", "native"] = "shim"
    allowed: Literal["filter", "keep"] = "filter"
    separator: str = "__"


OFFERING = Offering()


class Offer(Struct):
    """A request whose tools a prompt can show. `tools`: what may be called, by the model's names for it; `worded`: what
    of that the conversation tells in words; `origins`: what the client calls those that have another name here."""

    request: Request
    losses: list[Loss]
    tools: list[Tool]
    worded: list[Tool]
    origins: dict[str, Origin]

    def prompt(self, format_: Format, *, thinking: bool | None = None, escape: str = "auto") -> Prompt:
        """The prompt in a format. Its parser knows the tools that came later in the conversation, too."""
        return self.bind(format_.prompt(self.request, thinking=thinking, escape=escape))

    def bind(self, prompt: Prompt) -> Prompt:
        """Tell a prompt of the tools that came later in the conversation, and that it has in words."""
        if self.worded:
            choice = self.request.settings.tool_choice
            if choice is None or choice.mode != "none":
                prompt.offer(self.worded)
        return prompt

    def restorer(self) -> Restorer:
        """What gives the calls of one answer back the names and forms that the client knows."""
        return Restorer(self.origins)

    def located(self, losses: Sequence[Loss]) -> list[Loss]:
        """Losses of a prompt, with tools at the places that their definitions had in the request."""
        if not losses:
            return []
        each = ((TOOLS[index], place_of(tool)) for index, tool in enumerate(self.request.tools))
        places = {path: place for path, place in each if path != place}
        if not places:
            return list(losses)
        found = []
        for loss in losses:
            head, bracket, rest = loss.path.partition("]")
            place = places.get(f"{head}{bracket}")
            found.append(loss if place is None else Loss(f"{place}{rest}", loss.kind, loss.detail))
        return found


def offer(
    request: Request, format_: Format | None, options: Offering = OFFERING, *, hidden: Sequence[Tool] = ()
) -> Offer:
    """What a model is offered of a request's tools. `hidden`: tools that may be called though no prompt shows them.
    `format_`: None where no prompt is made, so that tools can be told in words alone where they come later.

    Raises InvalidRequest, with a path, for tools that are refused and for a choice that cannot be met.
    """
    conversation = request.conversation
    if not conversation.tools and not hidden and _calls_nothing(request, conversation.items):
        return Offer(request, [], [], [], {})
    return _Offering(request, format_, options).run(hidden)


def _calls_nothing(request: Request, items: Sequence[Item]) -> bool:
    """Whether a request says nothing of tools anywhere, so that there is nothing to offer."""
    if request.settings.tool_choice is not None or not _CHOICE_MEMBERS.isdisjoint(request.extra):
        return False
    return _OF_TOOLS.isdisjoint(map(type, items))


class _Offering:
    def __init__(self, request: Request, format_: Format | None, options: Offering) -> None:
        self._request = request
        self._options = options
        self._losses: list[Loss] = []
        self._names: dict[tuple[str | None, str], str] = {}
        self._taken = {tool.name for tool in all_tools(request) if tool.type != NAMESPACE and tool.name is not None}
        self._origins: dict[str, Origin] = {}
        self._callable: dict[str, Tool] = {}
        self._turns = () if format_ is None else format_.document.turns

    def run(self, hidden: Sequence[Tool]) -> Offer:
        request = self._request
        self._callable.update(self._added(request.tools, []))
        tools = list(self._callable.values())
        worded: list[Tool] = []
        items = list(self._items(request.items, worded))
        self._members()
        settings, shown, callable_ = self._choose(tools, list(self._callable.values()))
        offered = copy(request)
        offered.conversation = Conversation(items=items, tools=shown)
        offered.settings = settings
        quiet = [flat for tool in hidden for flat in self._flat(tool, report=False)]
        return Offer(offered, self._losses, [*callable_, *quiet], worded, self._origins)

    def _lose(self, path: str, kind: LossKind, detail: str) -> None:
        self._losses.append(Loss(path, kind, detail))

    # Tools.

    def _added(self, tools: Sequence[Tool], paths: Sequence[str]) -> dict[str, Tool]:
        """Tools as functions that a prompt can show, by name. Of two with one name the first counts."""
        added: dict[str, Tool] = {}
        for tool in _placed(tools, paths) if tools else ():
            for flat in (tool,) if tool.type == FUNCTION and tool.name is not None else self._flat(tool):
                name = flat.name or ""
                if name in added:
                    self._lose(place_of(flat), "dropped", f"there is a tool named {name!r} already")
                added.setdefault(name, flat)
        return added

    def _flat(self, tool: Tool, report: bool = True) -> Iterator[Tool]:
        """A tool as functions that a prompt can show."""
        losses = self._losses
        if not report:
            self._losses = []
        if tool.type == NAMESPACE:
            yield from self._opened(tool)
        elif tool.type not in (FUNCTION, CUSTOM):
            self._hosted(tool.type, place_of(tool))
        elif tool.name is None:
            self._lose(place_of(tool), "dropped", "a tool without a name cannot be called")
        else:
            yield self._function(tool, None, tool.name)
        self._losses = losses

    def _opened(self, space: Tool) -> Iterator[Tool]:
        """The tools of a namespace. What describes it stands before the description of the first."""
        about = space.description or ""
        for inner in space.tools:
            if inner.type not in (FUNCTION, CUSTOM) or inner.name is None:
                self._hosted(inner.type, place_of(inner))
                continue
            function = self._function(inner, space.name, inner.name)
            if about:
                function = replace(function, description=f"{about}\n\n{function.description or ''}".strip())
                self._lose(f"{place_of(space)}.description", "moved", f"it describes {function.name!r} now")
                about = ""
            yield function

    def _function(self, tool: Tool, namespace: str | None, bare: str) -> Tool:
        shim = tool.type == CUSTOM and self._options.custom == "shim"
        if namespace is None and not shim:
            return tool
        function = copy(tool)
        function.name = name = self._named(namespace, bare, place_of(tool))
        if shim:
            function.type, function.format, function.strict = FUNCTION, None, None
            function.parameters = _shim_schema(tool)
            self._lose(place_of(tool), "approximated", f"free text is asked for as a string, {INPUT!r}")
        self._origins[name] = Origin(bare, namespace, shim)
        return function

    def _named(self, namespace: str | None, name: str, path: str = "") -> str:
        """The model's name for a tool: of one in a namespace both names, and a number where that is taken."""
        if namespace is None:
            return name
        key = (namespace, name)
        if key not in self._names:
            flat = wanted = f"{namespace}{self._options.separator}{name}"
            count = 1
            while flat in self._taken:
                count += 1
                flat = f"{wanted}_{count}"
            self._taken.add(flat)
            self._names[key] = flat
            if path:
                self._lose(path, "renamed", f"the model knows it as {flat!r}")
        return self._names[key]

    def _hosted(self, type_: str, path: str) -> None:
        """A tool that only its vendor can run."""
        if self._options.hosted == "refuse" or any(fnmatchcase(type_, one) for one in self._options.refuse):
            raise _refused(type_, path)
        self._lose(path, "dropped", f"a tool of type {type_!r} is its vendor's own, and cannot be called here")

    def _members(self) -> None:
        extra = self._request.extra
        for key in HOSTED_MEMBERS:
            if key not in extra:
                continue
            said = bytes(extra[key]).strip()
            if said not in _NOTHING or (key == _ASKING and said == b"{}"):
                self._hosted(key, f"$.{key}")

    # The conversation.

    def _items(self, items: Sequence[Item], worded: list[Tool]) -> Iterator[Item]:
        called: dict[str, ToolCall] = {}
        for item in items:
            if type(item) is ToolCall:
                call = self._call(item)
                if call is not item and call.id is not None:
                    called[call.id] = call
                yield call
            elif type(item) is ToolResult and (item.namespace is not None or item.custom or item.id in called):
                result = copy(item)
                if item.id in called:
                    result.name = called[item.id].name if item.name is not None else None
                elif item.name is not None:
                    result.name = self._named(item.namespace, item.name)
                result.namespace, result.custom = None, item.custom and self._options.custom == "native"
                yield result
            elif type(item) is ToolsChange:
                yield self._change(item, worded)
            else:
                yield item

    def _call(self, call: ToolCall) -> ToolCall:
        """A call as the model has written it, or would have."""
        shim = call.custom and self._options.custom == "shim"
        if call.namespace is None and not shim:
            return call
        flat = copy(call)
        flat.name, flat.namespace = self._named(call.namespace, call.name), None
        if shim:
            flat.arguments, flat.custom = f'{{"{INPUT}": {safe_json_string(call.arguments)}}}', False
        return flat

    def _change(self, change: ToolsChange, worded: list[Tool]) -> Item:
        paths = [f"{change.at}.tools[{index}]" for index in range(len(change.added))]
        for name in change.removed:
            self._callable.pop(name, None)
        found = self._added(change.added, paths)
        self._callable.update(found)
        added = list(found.values())
        if any(one.kind == ToolsChange.kind and one.prompt for turn in self._turns for one in turn.segments):
            shown = copy(change)
            shown.added = added
            return shown
        worded += added
        for tool in added:
            self._lose(place_of(tool), "approximated", "told in words: this format has its tools at the beginning only")
        return System(content=[Text(text=_in_words(added, change.removed))], at=change.at)

    # The choice.

    def _choose(self, shown: list[Tool], all_: list[Tool]) -> tuple[Settings, list[Tool], list[Tool]]:
        """The settings with the choice in the model's names, and the tools that are shown and that may be called."""
        settings = self._request.settings
        choice, path = settings.tool_choice, self._request.paths.get("tool_choice", "$.tool_choice")
        if choice is None:
            self._unknown_choice(path)
            return settings, shown, all_
        self._beside_choice(choice, path)
        made: ToolChoice | None = choice
        may = all_
        if choice.mode == "named":
            made = self._one(choice, all_, path)
        elif choice.mode == "allowed":
            made, names = self._allowed(choice, all_, path)
            may = [tool for tool in all_ if tool.name in names]
            if self._options.allowed == "filter" and 0 < len(may) < len(all_):
                shown = [tool for tool in shown if tool.name in names]
                self._lose(path, "moved", "only the allowed tools are shown, so the prompt begins differently")
        elif choice.mode == "required" and not all_:
            self._lose(path, "dropped", "there is no tool that could be called")
            made = None
        if made is choice:
            return settings, shown, may
        settings = copy(settings)
        settings.tool_choice = made
        return settings, shown, may

    def _beside_choice(self, choice: ToolChoice, path: str) -> None:
        """Members of a choice that nobody reads: some may say how many calls there shall be, in another API's words."""
        beside, held = choice.extra, self._request.extra.get("tool_choice")
        if held is not None and bytes(held)[:1] == b"{":
            beside = beside | read_object(held)
        said = {key: value for key, value in beside.items() if bytes(value).strip() not in _UNSAID}
        for one in unnamed(said, self._request.words):
            self._lose(f"{path}.{one}", "dropped", "this has no effect here")

    def _unknown_choice(self, path: str) -> None:
        """A choice that its API has not read: of a tool that the vendor runs, or a new word."""
        value = self._request.extra.get("tool_choice")
        if value is None or bytes(value).strip() in _NOTHING:
            return
        word = plain(value)
        if isinstance(word, dict):
            raise _refused(str(word.get("type")), path)
        self._lose(path, "dropped", f"{word!r} is no choice that is known here")

    def _one(self, choice: ToolChoice, tools: Sequence[Tool], path: str) -> ToolChoice:
        names = self._flat_names(tools).get(choice.name, [])
        if len(names) != 1:
            hosted = next((tool for tool in self._request.tools if tool.name == choice.name and not names), None)
            if hosted is not None and hosted.type not in (FUNCTION, CUSTOM, NAMESPACE):
                raise _refused(hosted.type, path)
            what = "is in several namespaces" if names else "is not among the tools"
            known = ", ".join(tool.name for tool in tools if tool.name) or "no tools"
            raise InvalidRequest(
                f"the tool {choice.name!r} {what}", path=path, expected=f"one of {known}", got=repr(choice.name)
            )
        return ToolChoice("named", names[0])

    def _flat_names(self, tools: Sequence[Tool]) -> dict[str | None, list[str]]:
        """The model's names for what a client calls by a name: that of a tool, or one inside a namespace."""
        found: dict[str | None, list[str]] = {}
        for tool in tools:
            if tool.name is not None and tool.name in self._origins:
                found.setdefault(self._origins[tool.name].name, []).append(tool.name)
        return found | {tool.name: [tool.name] for tool in tools if tool.name is not None}

    def _allowed(self, choice: ToolChoice, tools: Sequence[Tool], path: str) -> tuple[ToolChoice, set[str]]:
        names: set[str] = set()
        called, declared, inside = self._flat_names(tools), _grouped(_types(tools)), _grouped(self._namespaces())
        for index, entry in enumerate(_entries(choice.tools)):
            type_, name = str(entry.get("type")), _entry_name(entry)
            found = called.get(name) or (declared.get(type_, []) if name is None else [])
            if type_ == NAMESPACE:
                found = inside.get(name, [])
            names.update(found)
            if not found:
                self._lose(f"{path}.tools[{index}]", "dropped", f"{name or type_!r} is not among the tools here")
        if not names:
            self._lose(path, "approximated", "none of the allowed tools can be called here: none is")
            return ToolChoice("none"), names
        return ToolChoice("required" if choice.required else "auto"), names

    def _namespaces(self) -> Iterator[tuple[str | None, str]]:
        return ((origin.namespace, name) for name, origin in self._origins.items())


def _types(tools: Iterable[Tool]) -> Iterator[tuple[str | None, str]]:
    """The type that each tool was declared with, where it is no function, and its name."""
    return ((tool.declared_as, tool.name) for tool in tools if tool.name and tool.declared_as)


def _grouped(pairs: Iterable[tuple[str | None, str]]) -> dict[str | None, list[str]]:
    found: dict[str | None, list[str]] = {}
    for key, name in pairs:
        found.setdefault(key, []).append(name)
    return found


def _placed(tools: Sequence[Tool], paths: Sequence[str] = ()) -> Iterator[Tool]:
    """The tools, each knowing where it was defined."""
    if all(tool.at for tool in tools):
        yield from tools
        return
    for tool, path in zip(tools, paths or tool_paths(tools), strict=True):
        if tool.at:
            yield tool
            continue
        placed = copy(tool)
        placed.at = path
        inside = [f"{path}.tools[{index}]" for index in range(len(tool.tools))]
        placed.tools = list(_placed(tool.tools, inside)) if inside else []
        yield placed


def _shim_schema(tool: Tool) -> Json:
    """The parameters of a function that stands for a tool of free text. A grammar is told in words."""
    form: Any = plain(tool.format) if tool.format is not None else None
    about: dict[str, Any] = {"type": "string"}
    if isinstance(form, dict) and form.get("type") == "grammar":
        about["description"] = f"It must follow this {form.get('syntax')} grammar:\n{form.get('definition')}"
    return json_of({"type": "object", "properties": {INPUT: about}, "required": [INPUT]})


def _in_words(added: Sequence[Tool], removed: Sequence[str]) -> str:
    lines = []
    if added:
        lines += ["From here on these tools can be called, too:", *(tool_line(tool, archive=False) for tool in added)]
    if removed:
        lines.append(f"From here on these tools can no longer be called: {', '.join(removed)}")
    return "\n".join(lines)


def _entries(tools: Json | None) -> list[dict[str, Any]]:
    value = plain(tools) if tools is not None else []
    return [one for one in value if isinstance(one, dict)] if isinstance(value, list) else []


def _entry_name(entry: dict[str, Any]) -> str | None:
    """The name in an entry of a list of allowed tools, which one API wraps in an object of its type's name."""
    inner = entry.get(str(entry.get("type")))
    name = inner.get("name") if isinstance(inner, dict) else entry.get("name")
    return name if isinstance(name, str) else None


def _refused(type_: str, path: str) -> InvalidRequest:
    message = f"a tool of type {type_!r} is its vendor's own, and cannot be called here"
    message += "; leave it out, or declare a function"
    return InvalidRequest(message, path=path, expected="a function or a custom tool", got=repr(type_))
