"""Owns writing the items of a conversation as input items."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from msgspec import Raw as RawJson

from turnscript.apis.api import SEED, Body, Rendering
from turnscript.apis.openai_responses.client_tools import (
    TOOL_SEARCH_CALL,
    TOOL_SEARCH_OUTPUT,
    call_body,
    is_written,
    output_body,
    reasoning_ids,
)
from turnscript.apis.openai_responses.options import ORIGIN
from turnscript.apis.openai_responses.parts import INPUT, OUTPUT, REASONING, SUMMARY, Place, write_parts
from turnscript.apis.openai_responses.tools import NAMESPACE_SEPARATOR, found_text, write_tools
from turnscript.core.call_pairing import call_ids, is_generated, kept_ids
from turnscript.core.conversation import (
    Assistant,
    Document,
    Extra,
    Item,
    Opaque,
    Part,
    System,
    Text,
    Thinking,
    ThinkingMode,
    ToolCall,
    ToolResult,
    ToolsChange,
    User,
    single_text,
)
from turnscript.core.json_text import is_object
from turnscript.core.source_paths import Unplaced, message_path, telling
from turnscript.core.validation import text_only

_NAMELESS = {"name": f"{ORIGIN} has no names of participants"}
UNPLACED = Unplaced(
    {
        System: _NAMELESS,
        User: _NAMELESS,
        Assistant: _NAMELESS,
        Thinking: {
            "signature": "only the API that signed the thought can read its signature",
            "redacted": "only the API that hid the thought can read it",
            "of": ("approximated", "a thought of kind {!r} became ordinary reasoning"),
        },
        ToolResult: {"status": f"{ORIGIN} does not say whether a tool failed"},
        Document: {"context": "an input_file has no context"},
        ThinkingMode: {"display": f"{ORIGIN} does not say how thinking is shown"},
    }
)


def write_items(body: Body, rendering: Rendering) -> None:
    """Write `instructions` and `input` into `body`."""
    items = rendering.request.items
    writer = Writer(rendering, items)
    start = writer.write_instructions(body)
    kept = rendering.slices.member("input", items[start:])
    if kept is not None:
        body["input"] = kept
    elif len(items) > start:
        writer.write(start, len(items))
        body["input"] = writer.out


class Writer:
    """Writes items one after another into `out`.

    An item that came from this API and is unchanged stands there as it came. `own` says whether the types of calls and
    results are those of this API; they are not when the request came from another, nor for the seed profile, which
    writes every item in one shape.
    """

    __slots__ = (
        "_reasoning_ids",
        "_stays",
        "custom",
        "index",
        "items",
        "joined",
        "names",
        "out",
        "own",
        "rendering",
        "seed",
    )

    def __init__(self, rendering: Rendering, items: Sequence[Item]) -> None:
        self.rendering = rendering
        self.items = items
        self.seed = rendering.profile == SEED
        self.own = not (rendering.foreign or self.seed)
        self.out: list[Any] = []
        self.index = 0
        self.names: dict[str, str] = {}  # id of a call -> its tool's name, as the reader derives the names of results
        self.custom: set[str] = set()
        self.joined: Item | None = None  # the last item that was written with the one before it
        self._stays: set[int] | None = None  # where a reader will keep the call id that is generated here
        self._reasoning_ids: dict[int, str] | None = None

    def write(self, start: int, end: int) -> None:
        """Write the items from `start` to `end`."""
        self.index = start
        for value, run in self.rendering.slices.runs(self.items[start:end]):
            if value is not None:
                self.out.append(value)
                self.index += len(run)
                self.names |= {item.id: item.name for item in run if type(item) is ToolCall and item.id is not None}
                continue
            for item in run:
                _WRITE[item.__class__](self, item)
                if item.turn or item.envelope:
                    self._lose_message(item)
                self.index += 1

    def write_instructions(self, body: Body) -> int:
        """Write what stood in `instructions` there again; gives the number of items that did."""
        slices, items = self.rendering.slices, self.items
        count = 0
        while count < len(items) and slices.place(items[count]).startswith("$.instructions"):
            count += 1
        value = slices.member("instructions", items[:count])
        if value is not None:
            body["instructions"] = value
        elif count == 1 and (text := single_text(items[0].content)) is not None:  # type: ignore[attr-defined]
            body["instructions"] = text
        elif count:
            self.write(0, count)
            body["instructions"], self.out = self.out, []
        return count

    # What every item needs.

    def parts(self, item: Item, content: list[Part], usual: str) -> list[Any]:
        if len(content) == 1:  # the most common content by far
            part = content[0]
            if type(part) is Text and not part.extra:
                return [{"type": usual, "text": part.text}]
        return write_parts(Place(self.rendering, item, usual), content)

    def add(self, item: Item, body: Body) -> None:
        """Append an item with its unnamed members."""
        if item.extra:
            self.rendering.put_extra(body, self._unsaid(item, body), item.at)
        self.out.append(body)

    def _unsaid(self, item: Item, body: Body) -> Extra:
        """The unnamed members of an item, without the name of a result that has a place here and none in its source."""
        if self.rendering.foreign and isinstance(item, ToolResult) and "name" in body:
            return {key: value for key, value in item.extra.items() if key != "name"}
        return item.extra

    def _lose_message(self, item: Item) -> None:
        """Report what the shape of messages said and this API cannot: only blocks of the seed share a message."""
        if item.turn and self.joined is not item:
            self.rendering.lose(item.at, "approximated", "where a message begins and ends is not kept")
        message = message_path(item.at)
        for key in telling(item.envelope or {}, self.rendering.request.words):
            self.rendering.lose(f"{message}.{key}", "dropped", f"{self.rendering.target} has no message around this")

    def call_id(self, item: ToolCall | ToolResult) -> str:
        """The id on the wire; generated for an item that has none."""
        if item.id is not None:
            return item.id
        if self._stays is None:
            looks = any(isinstance(one, ToolCall | ToolResult) and is_generated(one.id) for one in self.items)
            self._stays = kept_ids(self.items, call_ids(self.items)) if looks else set()
        stays = f"{self.rendering.call_id(item)!r}: next to ids that look generated, it will not be taken for one"
        return self.rendering.told_id(item, stays if self.index in self._stays else "")

    def reasoning_id(self) -> str | None:
        if self._reasoning_ids is None:
            self._reasoning_ids = reasoning_ids(self.items)
        return self._reasoning_ids.get(self.index)


# Messages.


def _system(writer: Writer, item: System) -> None:
    role = item.role
    if role not in ("system", "developer"):
        writer.rendering.lose_member(item, "role", "renamed", f"{role!r} is no role here: written as system")
        role = "system"
    _message(writer, item, role, INPUT)


def _user(writer: Writer, item: User) -> None:
    _message(writer, item, "user", INPUT)


def _assistant(writer: Writer, item: Assistant) -> None:
    if item.open and writer.rendering.request.origin != ORIGIN:
        detail = f"{writer.rendering.target} starts a new message instead of continuing this one"
        writer.rendering.lose(item.at, "approximated", detail)
    _message(writer, item, "assistant", OUTPUT)


def _message(writer: Writer, item: System | User | Assistant, role: str, usual: str) -> None:
    body: Body = {"role": role, "content": writer.parts(item, item.content, usual)}
    if item.id is not None:
        body["id"] = item.id
    if type(item) is Assistant and item.phase is not None:
        body["phase"] = item.phase
    writer.rendering.lose_unplaced(item)
    writer.add(item, body)


# Thinking.


def _thinking(writer: Writer, item: Thinking) -> None:
    rendering = writer.rendering
    rendering.lose_unplaced(item)
    if not is_written(item):
        rendering.lose(item.at, "dropped", "a thought that only another API can read")
        rendering.put_extra({}, item.extra, item.at)
        return
    body: Body = {"type": "reasoning"}
    id_ = item.id if item.id is not None else writer.reasoning_id()
    if id_ is not None:
        body["id"] = id_
    body["summary"] = writer.parts(item, item.summary, SUMMARY) if item.summary else []
    if item.content:
        body["content"] = writer.parts(item, item.content, REASONING)
    if item.encrypted is not None:
        if not rendering.proved:
            rendering.lose_member(item, "encrypted", "dropped", "only its own API can read it")
        else:
            body["encrypted_content"] = item.encrypted
    writer.add(item, body)


# Calls and results.


def _tool_call(writer: Writer, item: ToolCall) -> None:
    call_id = writer.call_id(item)
    writer.names[call_id] = item.name
    if item.custom:
        writer.custom.add(call_id)
    if writer.seed:
        _seed_call(writer, item, call_id)
        return
    if writer.own and item.slot == TOOL_SEARCH_CALL:
        writer.add(item, search_call(item, call_id))
        return
    if writer.own and (own := call_body(item, call_id)) is not None:
        writer.add(item, own)
        return
    kind, text = ("custom_tool_call", "input") if item.custom else ("function_call", "arguments")
    body: Body = {"type": kind, "call_id": call_id, "name": item.name, text: text_only(item.arguments)}
    if item.item_id is not None:
        body["id"] = item.item_id
    if item.namespace is not None:
        body["namespace"] = item.namespace
    writer.add(item, body)


def _tool_result(writer: Writer, item: ToolResult) -> None:
    call_id = writer.call_id(item)
    rendering = writer.rendering
    if writer.own and (own := output_body(item, call_id)) is not None:
        writer.add(item, own)
        return
    rendering.lose_unplaced(item)
    if writer.seed:
        _seed_result(writer, item, call_id)
        return
    if writer.own and item.slot == TOOL_SEARCH_OUTPUT and _search_output(writer, item, call_id):
        return
    custom = item.custom or (rendering.request.origin != ORIGIN and call_id in writer.custom)
    kind = "custom_tool_call_output" if custom else "function_call_output"
    body: Body = {"type": kind, "call_id": call_id, "output": _output(writer, item)}
    if item.item_id is not None:
        body["id"] = item.item_id
    if item.name is not None and _says_name(writer, item, call_id):
        if custom and rendering.request.origin != ORIGIN:
            rendering.lose_member(item, "name", "dropped", "the result of a custom tool has no name here")
        else:
            body["name"] = item.name
    if item.namespace is not None:
        body["namespace"] = item.namespace
    writer.add(item, body)


def search_call(item: ToolCall, call_id: str | None) -> Body:
    """A call of a search for tools that the client runs. It has no name, and its arguments are no text."""
    arguments: Any = item.arguments
    if is_object(item.arguments):
        arguments = RawJson(item.arguments.encode())
    body: Body = {"type": TOOL_SEARCH_CALL, "call_id": call_id, "execution": "client", "arguments": arguments}
    if item.item_id is not None:
        body["id"] = item.item_id
    return body


def _search_output(writer: Writer, item: ToolResult, call_id: str) -> bool:
    """Write what such a search has found: the change that belongs to the result. False if the result says more."""
    found = writer.items[writer.index + 1] if writer.index + 1 < len(writer.items) else None
    if not isinstance(found, ToolsChange) or found.turn != "join" or found.removed:
        found = None
    tools = found.added if found is not None else []
    if item.content and single_text(item.content) != found_text(tools):
        return False
    written = write_tools(writer.rendering, tools, f"{item.at}.tools")
    body: Body = {"type": TOOL_SEARCH_OUTPUT, "call_id": call_id, "execution": "client", "tools": written}
    if item.item_id is not None:
        body["id"] = item.item_id
    writer.add(item, body)
    writer.joined = found
    return True


def _says_name(writer: Writer, item: ToolResult, call_id: str) -> bool:
    """Whether the name of a result must be written: its call does not give it."""
    return writer.names.get(call_id) != item.name


def _output(writer: Writer, item: ToolResult) -> Any:
    text = single_text(item.content)
    if text is not None:
        return text
    written = writer.parts(item, item.content, INPUT)
    if writer.seed and len(written) == 1 and isinstance(written[0], dict) and written[0].keys() == _PLAIN_TEXT:
        return written[0]["text"]  # of more than a text, only that is left
    return written


_PLAIN_TEXT = {"type", "text"}


def _seed_call(writer: Writer, item: ToolCall, call_id: str) -> None:
    """The Universal document's form: a block in an assistant message."""
    name = item.name
    if item.namespace is not None:
        name = f"{item.namespace}{NAMESPACE_SEPARATOR}{name}"
        writer.rendering.lose_member(item, "namespace", "renamed", f"the tool became {name!r}")
    if item.custom:
        writer.rendering.lose(item.at, "approximated", "a call of a custom tool became an ordinary one")
    body: Body = {"type": "tool_call", "id": call_id, "name": name, "arguments": item.arguments}
    _add_block(writer, item, "assistant", body)


def _seed_result(writer: Writer, item: ToolResult, call_id: str) -> None:
    """The Universal document's form: a block in a user message."""
    if item.name is not None and _says_name(writer, item, call_id):
        detail = "a result in a message has no name but that of its call"
        writer.rendering.lose_member(item, "name", "dropped", detail)
    body: Body = {"type": "tool_result", "tool_call_id": call_id, "output": _output(writer, item)}
    _add_block(writer, item, "user", body)


def _add_block(writer: Writer, item: ToolCall | ToolResult, role: str, block: Body) -> None:
    rendering = writer.rendering
    if item.item_id is not None:
        rendering.lose_member(item, "item_id", "dropped", "a call in a message has no id beside the one of the call")
    rendering.put_extra(block, item.extra, item.at)
    writer.out.append({"role": role, "content": [block]})


# The rest.


def _tools_change(writer: Writer, item: ToolsChange) -> None:
    rendering, at = writer.rendering, item.at
    if writer.joined is item:
        return
    for name in item.removed:
        rendering.lose(at, "dropped", f"{rendering.target} cannot take away the tool {name!r}")
    if writer.seed:
        rendering.lose(at, "dropped", "the seed profile has no tools")
        return
    if item.removed and not item.added and rendering.foreign:
        rendering.put_extra({}, item.extra, at)
        return
    body: Body = {"type": "additional_tools"}
    if rendering.foreign or "role" not in item.extra:
        body["role"] = "developer"
    body["tools"] = write_tools(rendering, item.added, f"{at}.tools")
    writer.add(item, body)


def _opaque(writer: Writer, item: Opaque) -> None:
    rendering = writer.rendering
    if rendering.foreign:
        rendering.lose(item.at, "dropped", f"{rendering.target} has no item {item.type!r}")
    else:
        writer.out.append(item.value)


_WRITE: dict[type, Callable[[Writer, Any], None]] = {
    System: _system,
    User: _user,
    Assistant: _assistant,
    Thinking: _thinking,
    ToolCall: _tool_call,
    ToolResult: _tool_result,
    ToolsChange: _tools_change,
    Opaque: _opaque,
}
