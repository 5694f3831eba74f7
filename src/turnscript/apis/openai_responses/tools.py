"""Owns tools: reading `function`, `custom`, `namespace` and hosted tools, and writing them back.

`parameters` and `strict` are required members that may be null, so null is what None is written as; a tool that leaves
one out is so in its source alone. Of a hosted tool only its type and name are known here. A `tool_search` that the
client runs, and the tools of `client_tools`, are functions to everybody else: `declared_as` says what they are on the
wire.

A search for tools that the client runs:

| wire, each with `execution: client` | model |
|--|--|
| tool `tool_search` | a function `declared_as` that, which `tools` reads and writes |
| item `tool_search_call` | `ToolCall` in the slot `tool_search_call` |
| item `tool_search_output` | `ToolResult` in the slot `tool_search_output`; joined to it a `ToolsChange`: the tools |

A search has no name on the wire; `declared` gives it one. The result names the tools in words: they stand beside it,
and a model should not read an empty answer.
Searches that the server runs, and items of any other form, stay verbatim: nobody here could answer them.

Tools whose declaration has no name are called what they are declared as, `tool_search` or `shell`, with a number where
a tool of the client has that name. So are their calls.

A client calls things otherwise than the model: it knows ids for items that have none, and names of tools as its request
declared them. A model that knows no namespaces calls `fs__read` what the request declared as `read` in the namespace
`fs`, and a model that knows no free text writes `{"input": "..."}` for a custom tool. Both are taken back here. A call
of a tool that was declared as something else than a function gets the slot that such calls have.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from copy import copy
from hashlib import blake2b
from typing import Any

import msgspec
from msgspec import UNSET

from turnscript.apis.api import Body, Rendering
from turnscript.apis.openai_responses.client_tools import (
    CLIENT_CALLS,
    ID_PREFIXES,
    TOOL_SEARCH_CALL,
    TOOL_SEARCH_OUTPUT,
    client_tool,
    fits,
    name_of,
    settle_client_items,
)
from turnscript.apis.openai_responses.objects import CustomTool, FunctionTool, NamespaceTool, TypedTool
from turnscript.apis.shared.answers import free_text, is_whole
from turnscript.core.conversation import (
    Assistant,
    Extra,
    Item,
    Opaque,
    Request,
    Text,
    Thinking,
    Tool,
    ToolCall,
    ToolResult,
    ToolsChange,
    all_tools,
    loaded,
)
from turnscript.core.errors import InvalidRequest
from turnscript.core.json_text import Json, is_object, plain, read_list, read_object, text_of
from turnscript.core.losses import Loss
from turnscript.core.wire import Reader, Verbatim, extra_of, given

NAMESPACE = "namespace"
NAMESPACE_SEPARATOR = "__"
SEARCH = "tool_search"

_TOOL: Reader[Any] = Reader(TypedTool)


def read_tools(values: list[Json], path: str) -> list[Tool]:
    """The tools of a list; `path` is the list's."""
    tools = []
    for index, value in enumerate(values):
        at = f"{path}[{index}]"
        wire = _TOOL(value, at)
        tools.append(_READ[wire.__class__](wire, at))
    return tools


def _function(wire: FunctionTool, _at: str) -> Tool:
    rest = extra_of(wire)
    parameters, strict = wire.parameters, wire.strict
    # The slow path of the reader puts nulls among the unnamed members.
    if parameters is UNSET:
        rest.pop("parameters", None)
    if strict is UNSET:
        rest.pop("strict", None)
    return Tool(
        name=wire.name,
        description=given(wire.description),
        parameters=None if parameters is UNSET or bytes(parameters) == b"null" else parameters,
        strict=given(strict),
        extra=rest,
    )


def _custom(wire: CustomTool, _at: str) -> Tool:
    tool = Tool(name=wire.name, type="custom", description=given(wire.description), extra=extra_of(wire))
    if wire.format is not UNSET:
        if bytes(wire.format) == b"null":
            tool.extra["format"] = wire.format
        else:
            tool.format = wire.format
    return tool


def _namespace(wire: NamespaceTool, at: str) -> Tool:
    tools = read_tools(wire.tools, f"{at}.tools")
    description = given(wire.description)
    return Tool(name=wire.name, type="namespace", description=description, tools=tools, extra=extra_of(wire))


def _hosted(wire: Verbatim, _at: str) -> Tool:
    members = read_object(wire.value)
    members.pop("type")
    if wire.tag == SEARCH and is_client_run(members):
        return _search(members)
    if (known := client_tool(wire.tag, members)) is not None:
        return known
    tool = Tool(type=wire.tag, extra=members)
    if bytes(members.get("name", b"")).lstrip()[:1] == b'"':
        tool.name = plain(members.pop("name"))
    return tool


def _search(members: Extra) -> Tool:
    """A search that the client runs. It has no name on the wire."""
    tool = Tool(name=SEARCH, declared_as=SEARCH)
    if bytes(members.get("description", b"")).lstrip()[:1] == b'"':
        tool.description = plain(members.pop("description"))
    if bytes(members.get("parameters", b"")).lstrip()[:1] == b"{":
        tool.parameters = members.pop("parameters")
    tool.extra = members
    return tool


def is_client_run(members: Extra) -> bool:
    """Whether the members of a search, or of a call or output of one, say that the client runs it."""
    return bytes(members.get("execution", b"")).strip() == b'"client"'


def found_text(tools: Sequence[Tool]) -> str:
    """What the result of a search says: the names of the tools that it brings."""
    names: list[str] = []
    for tool in tools:
        own = SEARCH if is_search(tool) else tool.name or tool.type  # a search is given its name later
        names += [f"{own}{NAMESPACE_SEPARATOR}{inner.name}" for inner in tool.tools] or [own]
    return loaded(names)


def is_search(tool: Tool) -> bool:
    """Whether a tool is a search that the client runs."""
    return tool.declared_as == SEARCH


_READ: dict[type, Callable[[Any, str], Tool]] = {
    FunctionTool: _function,
    CustomTool: _custom,
    NamespaceTool: _namespace,
    Verbatim: _hosted,
}


def write_tools(rendering: Rendering, tools: list[Tool], path: str) -> list[Body]:
    """Tools as wire objects, without those that another API would run."""
    written = []
    for index, tool in enumerate(tools):
        at = f"{path}[{index}]"
        write = _WRITE.get(tool.type, _write_hosted)
        if write is _write_hosted and rendering.foreign:
            rendering.lose(at, "dropped", f"{rendering.target} has no tool of type {tool.type!r}")
            continue
        body = write(rendering, tool, at)
        if tool.extra:
            rendering.put_extra(body, tool.extra, at)
        if tool.envelope and rendering.foreign:
            rendering.put_extra(body, tool.envelope, at)
        written.append(body)
    return written


def _head(tool: Tool) -> Body:
    body: Body = {"type": tool.type}
    if tool.name is not None:
        body["name"] = tool.name
    if tool.description is not None:
        body["description"] = tool.description
    return body


def _write_function(rendering: Rendering, tool: Tool, _at: str) -> Body:
    if tool.declared_as and not rendering.foreign:
        return _write_search(tool) if is_search(tool) else {"type": tool.declared_as}
    return _head(tool) | {"parameters": tool.parameters, "strict": tool.strict}


def _write_search(tool: Tool) -> Body:
    body: Body = {"type": SEARCH, "execution": "client"}
    for key, value in (("description", tool.description), ("parameters", tool.parameters)):
        if value is not None:
            body[key] = value
    return body


def _write_custom(_rendering: Rendering, tool: Tool, _at: str) -> Body:
    body = _head(tool)
    if tool.format is not None:
        body["format"] = tool.format
    return body


def _write_namespace(rendering: Rendering, tool: Tool, at: str) -> Body:
    body = _head(tool)
    body["tools"] = write_tools(rendering, tool.tools, f"{at}.tools")
    return body


def _write_hosted(_rendering: Rendering, tool: Tool, _at: str) -> Body:
    body = _head(tool)
    for key, value in (("parameters", tool.parameters), ("strict", tool.strict)):
        if value is not None:  # never read from here, but a conversation built by hand may say them
            body[key] = value
    return body


_WRITE: dict[str, Callable[[Rendering, Tool, str], Body]] = {
    "function": _write_function,
    "custom": _write_custom,
    "namespace": _write_namespace,
}


def read_search(kind: str, value: Json, at: str) -> list[Item]:
    """The items of a call or output of a search that the client runs; none where it is anything else."""
    read = {TOOL_SEARCH_CALL: _search_call, TOOL_SEARCH_OUTPUT: _search_output}.get(kind)
    members = read_object(value) if read is not None else {}
    if read is None or not is_client_run(members) or not _begins(members.get("call_id"), b'"'):
        return []
    del members["type"]
    return read(members, at)


def _search_call(members: Extra, at: str) -> list[Item]:
    value = members.pop("arguments", None)
    if value is None:
        return []
    call = ToolCall(name=SEARCH, arguments=text_of(value), as_object=True, slot=TOOL_SEARCH_CALL, at=at)
    if _begins(value, b'"'):
        call.arguments, call.as_object = plain(value), False
    elif not is_object(call.arguments):
        return []
    _identify_search(call, members)
    return [call]


def _search_output(members: Extra, at: str) -> list[Item]:
    value = members.pop("tools", None)
    if value is None or not _begins(value, b"["):
        return []
    try:
        found = read_tools(read_list(value), f"{at}.tools")
    except InvalidRequest:
        return []  # what of the list is a tool can still be of use
    result = ToolResult(content=[Text(text=found_text(found))], slot=TOOL_SEARCH_OUTPUT, at=at)
    _identify_search(result, members)
    return [result, ToolsChange(added=found, turn="join", at=at)]


def _identify_search(item: ToolCall | ToolResult, members: Extra) -> None:
    """The ids, and the members that have no name here."""
    item.id = plain(members.pop("call_id"))
    if _begins(members.get("id"), b'"'):
        item.item_id = plain(members.pop("id"))
    item.extra = members


def _begins(value: Json | None, mark: bytes) -> bool:
    return value is not None and bytes(value).lstrip()[:1] == mark


OWN_CALLS = CLIENT_CALLS | {TOOL_SEARCH_CALL}
"""The slots of calls whose items have no name."""


def name_declared(request: Request) -> None:
    """Give such tools of a request, and the calls of them, a name that no other tool has."""
    if not _has_any(request):
        return
    tools = [tool for tool in all_tools(request) if tool.type != NAMESPACE]
    taken = {tool.name for tool in tools if not tool.declared_as}
    names = {kind: _free(kind, taken) for kind in map(name_of, OWN_CALLS)}
    for tool in tools:
        if tool.declared_as:
            tool.name = names[tool.declared_as]
    _name_calls(request.items, names)
    settle_client_items(request.items)


def name_joined(request: Request, items: Iterable[Item]) -> None:
    """The same for the calls among items that were kept and are put into a request."""
    names = {tool.declared_as: tool.name for tool in request.tools if tool.declared_as}
    _name_calls(items, {kind: name for kind, name in names.items() if name is not None})


def _name_calls(items: Iterable[Item], names: Mapping[str, str]) -> None:
    for item in items:
        if type(item) is ToolCall and (slot := item.slot) in OWN_CALLS:
            item.name = names.get(name_of(slot), item.name)


def _free(name: str, taken: Container[str | None]) -> str:
    free, count = name, 1
    while free in taken:
        count += 1
        free = f"{name}_{count}"
    return free


def _has_any(request: Request) -> bool:
    """Whether there may be any, which is rare."""
    tools, items = request.tools, request.items
    if any(tool.declared_as for tool in tools):
        return True
    kinds = set(map(type, items))
    if ToolsChange in kinds or Opaque in kinds:
        return True
    return ToolCall in kinds and any(type(item) is ToolCall and item.slot in OWN_CALLS for item in items)


_PREFIXES: dict[type, str] = {Assistant: "msg_", Thinking: "rs_", ToolResult: "fco_"}


def response_id(request: Request, items: Iterable[Item] = ()) -> str:
    """An id for the answer to a request, the same each time."""
    request.locate()
    try:
        data = msgspec.json.encode([request.conversation, request.settings, request.extra, list(items)])
    except UnicodeEncodeError:  # half of a surrogate pair; writing it will say so
        data = b""
    return f"resp_{blake2b(data, digest_size=16).hexdigest()}"


class Named:
    """An item as the client is told of it, beside what it was `given` as.

    `shim`: a call of free text whose arguments the model wrote as JSON.
    """

    __slots__ = ("given", "item", "shim")

    def __init__(self, given: Item, item: Item, shim: bool = False) -> None:
        self.given = given
        self.item = item
        self.shim = shim


class Naming:
    """Gives the items of one response their ids and names. `seed` is the response's id."""

    def __init__(self, request: Request, seed: str, losses: list[Loss]) -> None:
        self.seed = seed
        self._losses = losses
        self._taken: set[tuple[str, str]] = set()
        self._namespaced: dict[str, tuple[str, Tool]] = {}
        self._plain = {tool.name: tool for tool in request.tools if tool.type != NAMESPACE}
        self._declared = {tool.name: f"{tool.declared_as}_call" for tool in all_tools(request) if tool.declared_as}
        for space in request.tools:
            for tool in space.tools if space.type == NAMESPACE else ():
                self._namespaced[f"{space.name}{NAMESPACE_SEPARATOR}{tool.name}"] = (space.name or "", tool)

    def begin(self, item: Item, index: int, whole: Item | None = None) -> Named:
        """The item with all that the client identifies it by. `whole`: what a call is that was announced with less."""
        named = copy(item)
        if isinstance(named, ToolCall):
            shim = self._restore(named)
            if named.slot in CLIENT_CALLS:
                self._act(named, whole if isinstance(whole, ToolCall) else named, index)
            named.id = self._free("call", named.id, "call_", index, named)
            named.item_id = self._free("item", named.item_id, _call_prefix(named), index, named)
            return Named(item, named, shim)
        if isinstance(named, ToolResult):
            named.item_id = self._free("item", named.item_id, _PREFIXES[ToolResult], index, named)
        elif isinstance(named, Assistant | Thinking):
            named.id = self._free("item", named.id, _PREFIXES[type(named)], index, named)
        return Named(item, named)

    def end(self, item: Item, begun: Named, index: int) -> Item:
        """The whole item under the ids and names it began with: nothing may change them while it is told."""
        whole = copy(item)
        start = begun.item
        for field in (
            ("id", "item_id", "name", "namespace", "custom") if isinstance(start, ToolCall) else ("id", "item_id")
        ):
            if not hasattr(start, field) or not hasattr(whole, field):
                continue
            first, later = getattr(start, field), getattr(whole, field)
            if field in ("id", "item_id") and later not in (None, first, getattr(begun.given, field)):
                at = f"{item.at or f'items[{index}]'}.{field}"
                self._losses.append(Loss(at, "renamed", f"the stream has called it {first!r} already"))
            setattr(whole, field, first)
        if begun.shim and isinstance(item, ToolCall) and isinstance(whole, ToolCall) and is_whole(item):
            at = f"{item.at or f'items[{index}]'}.arguments"
            whole.arguments, whole.open = free_text(whole, at, self._losses), False
        if isinstance(whole, ToolCall) and (_is_own(start) or _is_own(whole)):
            whole.slot = start.slot
        return whole

    def _restore(self, call: ToolCall) -> bool:
        """Take the namespace off the name again. Gives whether the arguments are free text in a JSON object."""
        space, tool = self._tool_of(call)
        if space is not None and call.namespace is None:
            call.namespace, call.name = space, (tool.name if tool is not None else None) or ""
        if call.namespace is None and call.name in self._declared:
            call.slot = self._declared[call.name]
        if tool is None or tool.type != "custom" or call.custom:
            return False
        call.custom = True
        return True

    def _tool_of(self, call: ToolCall) -> tuple[str | None, Tool | None]:
        """The tool that a call names, and the namespace that it is in."""
        tool = self._plain.get(call.name)
        if tool is None and call.namespace is None:
            return self._namespaced.get(call.name, (None, None))
        if call.namespace is None:
            return None, tool
        return self._namespaced.get(f"{call.namespace}{NAMESPACE_SEPARATOR}{call.name}", (call.namespace, None))

    def shows_late(self, call: ToolCall) -> bool:
        """Whether only its whole tells what a call is: one of a tool of its own type, or of free text in JSON."""
        _, tool = self._tool_of(call)
        shim = tool is not None and tool.type == "custom" and not call.custom
        return shim or _is_own(call) or (call.namespace is None and call.name in self._declared)

    def _act(self, call: ToolCall, whole: ToolCall, index: int) -> None:
        """Such a call is an item of its own, which begins with what it does. Where that is nothing that the tool does,
        it stays the call of a function."""
        call.arguments = whole.arguments
        if not fits(call.slot, call.arguments):
            call.slot = ""
            detail = f"what the model wrote is nothing that {call.name!r} does: it is told as the call of a function"
            self._losses.append(Loss(whole.at or f"items[{index}]", "approximated", detail))

    def _free(self, kind: str, id_: str | None, prefix: str, index: int, item: Item) -> str:
        """The id if nothing else has it; else one that is made up."""
        if id_ is not None and (kind, id_) not in self._taken:
            self._taken.add((kind, id_))
            return id_
        made = made_item_id(self.seed, index, prefix)
        if id_ is not None:
            at = f"{item.at or f'items[{index}]'}.id"
            self._losses.append(Loss(at, "renamed", f"{id_!r} is the id of two things; this one became {made!r}"))
        self._taken.add((kind, made))
        return made


def made_item_id(seed: str, index: int, prefix: str = _PREFIXES[Assistant]) -> str:
    """An id for an item of a response, of which `seed` is the id."""
    digest = blake2b(f"{seed}/{index}".encode("utf-8", "surrogatepass"), digest_size=12).hexdigest()
    return f"{prefix}{digest}"


def _is_own(item: Item) -> bool:
    """Whether an item is a call that has no name on the wire."""
    return item.slot in OWN_CALLS


def _call_prefix(call: ToolCall) -> str:
    """How the ids of such an item begin."""
    if _is_own(call):
        return ID_PREFIXES.get(call.slot, "tsc_")
    return "ctc_" if call.custom else "fc_"
