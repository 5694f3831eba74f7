"""Owns what the client calls things: ids for items that have none, and names of tools as its request declared them.

A model that knows no namespaces calls `fs__read` what the request declared as `read` in the namespace `fs`, and a model
that knows no free text writes `{"input": "..."}` for a custom tool. Both are taken back here. A call of a tool that
was declared as something else than a function gets the slot that such calls have.
"""

from __future__ import annotations

from collections.abc import Iterable
from copy import copy
from hashlib import blake2b

import msgspec

from turnscript.apis.openai_responses.client_tools import CLIENT_CALLS, ID_PREFIXES, fits
from turnscript.apis.openai_responses.tools import NAMESPACE, NAMESPACE_SEPARATOR, OWN_CALLS
from turnscript.apis.shared.answers import free_text, is_whole
from turnscript.core.conversation import (
    DECLARED_AS,
    Assistant,
    Hints,
    Item,
    Request,
    Thinking,
    Tool,
    ToolCall,
    ToolResult,
    all_tools,
)
from turnscript.core.losses import Loss
from turnscript.core.message_groups import slot_of

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
        self._declared = {
            tool.name: f"{tool.hints[DECLARED_AS]}_call" for tool in all_tools(request) if DECLARED_AS in tool.hints
        }
        for space in request.tools:
            for tool in space.tools if space.type == NAMESPACE else ():
                self._namespaced[f"{space.name}{NAMESPACE_SEPARATOR}{tool.name}"] = (space.name or "", tool)

    def begin(self, item: Item, index: int, whole: Item | None = None) -> Named:
        """The item with all that the client identifies it by. `whole`: what a call is that was announced with less."""
        named = copy(item)
        if isinstance(named, ToolCall):
            shim = self._restore(named)
            if named.hints is not None and named.hints.slot in CLIENT_CALLS:
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
            whole.hints = start.hints
        return whole

    def _restore(self, call: ToolCall) -> bool:
        """Take the namespace off the name again. Gives whether the arguments are free text in a JSON object."""
        space, tool = self._tool_of(call)
        if space is not None and call.namespace is None:
            call.namespace, call.name = space, (tool.name if tool is not None else None) or ""
        if call.namespace is None and call.name in self._declared:
            call.hints = Hints(slot=self._declared[call.name])
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
        if not fits(slot_of(call), call.arguments):
            call.hints = None
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
    return item.hints is not None and item.hints.slot in OWN_CALLS


def _call_prefix(call: ToolCall) -> str:
    """How the ids of such an item begin."""
    if _is_own(call):
        return ID_PREFIXES.get(slot_of(call), "tsc_")
    return "ctc_" if call.custom else "fc_"
