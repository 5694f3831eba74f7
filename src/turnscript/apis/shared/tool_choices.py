"""Owns what is offered to a model: the tools of the end, the words of choices, and what is left of a choice.

A word may be spelled as another API spells it: many clients give every server `{"type": "auto"}`, or `any`. What such a
choice means is plain, so it is one here, and its spelling comes back to the API that it came from.

What is left of a choice never speaks of a tool that is not there.
Only what a conversion takes away is looked at. A choice of a tool that its own request does not declare stays as it is:
servers refuse it in their own words.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec
from msgspec.structs import replace

from turnscript.apis.api import Body, Rendering
from turnscript.core.conversation import Request, Tool, ToolChoice, ToolsChange, all_tools
from turnscript.core.json_text import Json, excerpt, plain, read_list, read_object

_CALLED = ("function", "custom")
"""The types of tools that every API with tools can offer, as they are or as functions."""

_MODES = {"auto": "auto", "none": "none", "required": "required", "any": "required"}

Names = dict[str, list[dict[str, str]]]
"""The tools of a request as the other API names them, `{type, name}`, by the name that a choice has for them."""


def read_word(request: Request, value: Json) -> bool:
    """Read a choice that is no more than a word, however it is spelled. False: it is something else."""
    members = read_object(value) if bytes(value)[:1] == b"{" else None
    said = value if members is None else members.pop("type", None)
    word: Any = plain(said) if said is not None and bytes(said)[:1] == b'"' else None
    if word not in _MODES:
        return False
    request.settings.tool_choice = ToolChoice(_MODES[word], extra=members or {})
    return True


def write_word(rendering: Rendering, choice: ToolChoice) -> Any:
    """A choice that is no more than a word, in an object where it has members without a name."""
    body: Body = {"type": choice.mode}
    rendering.put_extra(body, choice.extra, rendering.request.paths.get("tool_choice", "$.tool_choice"))
    return body if len(body) > 1 else choice.mode


def left_choice(rendering: Rendering, *, separator: str = "", lists: bool = True) -> ToolChoice | None:
    """The tool choice as another API can have it, or None; what is lost of it is reported.

    `separator`: what stands between a namespace and a name, where there are no namespaces. `lists`: whether a choice
    may list the tools that are allowed.
    """
    choice = rendering.request.settings.tool_choice
    if choice is None or not rendering.foreign:
        return choice
    if offers_none(rendering):
        rendering.lose_setting("tool_choice", "dropped", "none of the tools has a form here")
        return None
    if choice.mode == "allowed" and choice.tools is not None:
        names = _names(rendering.request, separator, spaces=True)
        return _allowed(rendering, choice, names, lists) if names or not lists else choice
    if choice.mode == "named" and choice.name is not None:
        names = _names(rendering.request, separator)
        return _named(rendering, choice, choice.name, names) if names else choice
    return choice


def offers_none(rendering: Rendering) -> bool:
    """Whether a request has tools, and another API none of them."""
    if not rendering.foreign:
        return False
    declared = False
    for tool in all_tools(rendering.request):
        declared = True
        if any(map(_is_called, tool.tools or (tool,))):
            return False
    return declared


def _is_called(tool: Tool) -> bool:
    return tool.name is not None and tool.type in _CALLED


def _names(request: Request, separator: str, *, spaces: bool = False) -> Names:
    """`spaces`: whether the name of a namespace that is not there stands for its tools."""
    names: Names = {}
    for tool in all_tools(request):
        for inner in tool.tools or (tool,):
            if inner.name is None or inner.type not in _CALLED:
                continue
            flat = separator and inner is not tool
            written = {"type": inner.type, "name": f"{tool.name}{separator}{inner.name}" if flat else inner.name}
            names.setdefault(inner.name, []).append(written)
            if spaces and inner is not tool and tool.name is not None and tool.name != inner.name:
                names.setdefault(tool.name, []).append(written if flat else {"type": tool.type, "name": tool.name})
    return names


def _named(rendering: Rendering, choice: ToolChoice, name: str, names: Names) -> ToolChoice | None:
    written = [one["name"] for one in names.get(name, [])]
    if name in written and choice.type not in _CALLED:
        rendering.lose_setting("tool_choice", "renamed", f"the tool is the function {name!r} here")
        return replace(choice, type="function")
    if name in written or not (written or any(tool.name == name for tool in all_tools(rendering.request))):
        return choice
    if not written:
        rendering.lose_setting("tool_choice", "dropped", "the tool that it names has no form here")
        return None
    rendering.lose_setting("tool_choice", "renamed", f"the tool is called {written[0]!r} here")
    return replace(choice, name=written[0])


def _allowed(rendering: Rendering, choice: ToolChoice, names: Names, lists: bool) -> ToolChoice:
    """The choice with the tools that are there. If none is, none may be called: never more than was allowed."""
    assert choice.tools is not None
    entries = read_list(choice.tools) if bytes(choice.tools).lstrip()[:1] == b"[" else []
    there = [entry for entry in entries if name_of(entry, rendering.request) in names]
    if not there and (entries or not lists):
        detail = "no tool that it allows has a form here: none may be called"
        rendering.lose_setting("tool_choice", "approximated", detail)
        return ToolChoice(mode="none")
    if not lists:  # then only these tools are offered
        return choice
    kept = [one for entry in entries for one in _entries(rendering, entry, names)]
    return replace(choice, tools=Json(msgspec.json.encode(kept)))


def _entries(rendering: Rendering, entry: Json, names: Names) -> list[Any]:
    """One allowed tool with the names that it has here; none if it is not there. Both are reported."""
    name = name_of(entry, rendering.request)
    written = names.get(name, []) if name is not None else []
    if said_name(plain(entry)) == name and any(one["name"] == name for one in written):
        return [entry]
    if not written:
        rendering.lose_setting("tool_choice", "dropped", f"it allows {excerpt(entry, 100)}, which has no form here")
        return []
    rendering.lose_setting("tool_choice", "renamed", f"the tool {name!r} that it allows is called otherwise here")
    return written


def name_of(entry: Json, request: Request) -> str | None:
    """The name of the tool in an entry of a list of allowed tools, be it said, or of what has that type."""
    said: Any = plain(entry)
    name = said_name(said)
    if name is None and isinstance(said, dict) and (kind := said.get("type")):
        return next((tool.name for tool in all_tools(request) if tool.declared_as == kind), None)
    return name


def said_name(said: Any) -> str | None:
    """The name in such an entry, which is `{type, name}` or `{type, <type>: {name}}`."""
    if not isinstance(said, dict):
        return None
    inner = said.get(str(said.get("type")))
    name = inner.get("name") if isinstance(inner, dict) else said.get("name")
    return name if isinstance(name, str) else None


def offered_tools(rendering: Rendering, changes: Iterable[ToolsChange]) -> list[tuple[Tool, str]]:
    """The tools and where they stood, for an API whose tools cannot change on the way: those of the end."""
    offered = {place: (tool, f"$.tools[{place}]") for place, tool in enumerate(rendering.request.tools)}
    places: dict[str | None, list[int]] = {}  # a tool without a name cannot be named, so it stays
    for place, (tool, _) in offered.items():
        places.setdefault(tool.name, []).append(place)
    place = len(offered)
    for item in changes:
        rendering.lose(item.at, "moved", "tools cannot change on the way: the tools are those of the end")
        rendering.put_extra({}, item.extra, item.at)
        rendering.put_envelope({}, item)
        for name in (*item.removed, *(tool.name for tool in item.added if tool.name is not None)):
            for gone in places.pop(name, ()):
                rendering.lose(offered.pop(gone)[1], "dropped", "removed or replaced in the course of things")
        for index, tool in enumerate(item.added):
            offered[place] = (tool, f"{item.at}.tools[{index}]")
            places.setdefault(tool.name, []).append(place)
            place += 1
    return list(offered.values())


def inner_tools(rendering: Rendering, tool: Tool, at: str) -> list[tuple[Tool, str]]:
    """The tools of a namespace and where they stood, for an API that has none: its name begins theirs."""
    rendering.lose(at, "renamed", f"tools have no namespaces here: the names of its tools begin {tool.name}__")
    if tool.description is not None:
        rendering.lose(f"{at}.description", "dropped", "tools have no namespaces here")
    for extra in (tool.extra, tool.envelope):
        rendering.put_extra({}, extra, at)
    return [(inner, f"{at}.tools[{index}]") for index, inner in enumerate(tool.tools)]
