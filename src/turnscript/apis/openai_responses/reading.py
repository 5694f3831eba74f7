"""Owns reading input items into the conversation."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import msgspec
from msgspec import UNSET

from turnscript.apis.openai_responses.client_tools import (
    read_client_item,
    reasoning_ids,
)
from turnscript.apis.openai_responses.objects import (
    AdditionalTools,
    AnyMessage,
    Content,
    CustomToolCall,
    CustomToolCallOutput,
    EasyMessage,
    FunctionCall,
    FunctionCallOutput,
    Message,
    OrdinaryMessage,
    Parts,
    Reasoning,
    SeedCall,
    SeedResult,
    TypedItem,
)
from turnscript.apis.openai_responses.parts import read_parts
from turnscript.apis.openai_responses.tools import read_search, read_tools
from turnscript.core.conversation import (
    Assistant,
    Extra,
    Item,
    Opaque,
    Part,
    System,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
    ToolsChange,
    User,
)
from turnscript.core.json_text import Json, json_of, plain, read_list, read_object, text_of
from turnscript.core.losses import Indexed
from turnscript.core.wire import Reader, Verbatim, extra_of, given, mismatch, missing

_EASY: Reader[EasyMessage] = Reader(EasyMessage)
_TYPED: Reader[Any] = Reader(TypedItem)
_CONTENT: Reader[Any] = Reader(Content)
_PARTS: Reader[list[Any]] = Reader(Parts)
_decode_easy = msgspec.json.Decoder(EasyMessage).decode
_decode_typed = msgspec.json.Decoder(TypedItem).decode

_ROLES: dict[str, type[System | User | Assistant]] = {
    "user": User,
    "assistant": Assistant,
    "system": System,
    "developer": System,
}
NULL = Json(b"null")
_SEED_BLOCKS: dict[type, str] = {SeedCall: "tool_call", SeedResult: "tool_result"}
_SEED_ROLES: dict[str, type] = {"assistant": SeedCall, "user": SeedResult}


def read_items(values: Sequence[Json], path: str, first: int = 0) -> list[Item]:
    """The items of a list of input items; `first` is the place of the first one in the list at `path`."""
    items: list[Item] = []
    for index, value in enumerate(values, first):
        at = f"{path}[{index}]"
        try:
            # A message often says no type, which a tagged union cannot read.
            wire = (_decode_easy if bytes(value)[:7] == b'{"role"' else _decode_typed)(value)
        except (msgspec.DecodeError, RecursionError):
            wire = _wire_slowly(value, at)
        _READ[wire.__class__](wire, value, at, items)
    return items


def read_ordinary(wires: Sequence[Any], places: Indexed) -> list[Item]:
    """The items of an input that was read in one pass."""
    items: list[Item] = []
    for index, wire in enumerate(wires):
        _READ[wire.__class__](wire, NULL, places[index], items)
    return items


def read_instructions(value: Json | str) -> list[Item] | None:
    """`instructions` as items: a string, or a list of items as responses repeat it. None: better kept as it stands."""
    text = plain(value) if isinstance(value, Json) and bytes(value).lstrip()[:1] == b'"' else value
    if isinstance(text, str):
        return [System(content=[Text(text=text)], at="$.instructions")]
    if bytes(text).lstrip()[:1] != b"[":
        raise mismatch(text, "$.instructions", "a string or an array of input items")
    return read_items(read_list(text), "$.instructions") or None


def drop_reasoning_ids(items: list[Item]) -> None:
    """Take off the ids that the writer would give again in the same places."""
    if Thinking not in map(type, items):
        return
    tagged = {
        index: item.id
        for index, item in enumerate(items)
        if type(item) is Thinking and item.id is not None and item.id.startswith("rs_auto_")
    }
    if not tagged:
        return
    for index in tagged:
        items[index].id = None  # type: ignore[attr-defined]
    again = reasoning_ids(items)
    if any(again[index] != id_ for index, id_ in tagged.items()):
        for index, id_ in tagged.items():
            items[index].id = id_  # type: ignore[attr-defined]


def _wire_slowly(value: Json, at: str) -> Any:
    """One item as a wire object, with the members that are not declared."""
    if bytes(value).lstrip()[:1] != b"{":
        raise mismatch(value, at, "an input item, which is an object")
    members = read_object(value)
    if bytes(members.get("type", b"null")).strip() != b"null":
        return _TYPED(value, at)
    if "role" in members:
        return _EASY(value, at)
    if "id" in members:
        return Verbatim("item_reference", value)
    raise missing(at, "type", "the type of an input item, or the role of a message")


def reopen(items: list[Item]) -> None:
    """A trailing assistant message that says it is not finished is a text to be continued."""
    last = items[-1] if items else None
    if isinstance(last, Assistant) and bytes(last.extra.get("status", b"")).strip() == b'"in_progress"':
        last.open = True


# Messages.


def _message(wire: AnyMessage, value: Json, at: str, items: list[Item]) -> None:
    kind = _ROLES.get(wire.role)
    if kind is None:
        items.append(Opaque(type="message", value=value, at=at))
        return
    content = wire.content
    if isinstance(content, str):
        parts: list[Part] = [Text(text=content)]
    elif not content:
        parts = []
    else:
        for block in content:
            if block.__class__ in _SEED_BLOCKS:
                _seed_message(wire, value, at, items)
                return
        parts = read_parts(content)
    item = kind(content=parts, at=at)
    _finish_message(item, wire)
    items.append(item)


def _finish_message(item: System | User | Assistant, wire: AnyMessage) -> None:
    """The members of a message beside its content."""
    if wire.role == "developer":
        item.role = "developer"  # type: ignore[union-attr]
    item.id = given(wire.id)
    if wire.rest is not None or wire.status is not UNSET:
        item.extra = extra_of(wire, "status")
    if wire.phase is not UNSET:
        if isinstance(item, Assistant):
            item.phase = wire.phase
        else:
            item.extra["phase"] = json_of(wire.phase)


def _seed_message(wire: AnyMessage, value: Json, at: str, items: list[Item]) -> None:
    """A message with calls or results in it: each is an item of its own, and so is each run of parts between them."""
    kind = _ROLES[wire.role]
    content = _only_own_blocks(wire, value)
    start = len(items)
    run: list[Any] = []
    for index, block in enumerate([*content, None]):
        if block is not None and block.__class__ not in _SEED_BLOCKS:
            run.append(block)
            continue
        if run:
            first = index - len(run)
            items.append(kind(content=read_parts(run), at=f"{at}.content[{first}]" if first else at))
            run = []
        if block is not None:
            items.append(_SEED[block.__class__](block, f"{at}.content[{index}]"))
    for item in items[start + 1 :]:
        item.turn = "join"
    head = items[start]
    if isinstance(head, System | User | Assistant):
        _finish_message(head, wire)
    elif envelope := _envelope(wire):
        head.envelope = envelope


def _only_own_blocks(wire: AnyMessage, value: Json) -> list[Any]:
    """The content, with calls and results left verbatim where the role of the message is not theirs."""
    own = _SEED_ROLES.get(wire.role)
    content: list[Any] = list(wire.content)
    if any(block.__class__ in _SEED_BLOCKS and block.__class__ is not own for block in content):
        texts = read_list(read_object(value)["content"])
        for index, block in enumerate(content):
            if block.__class__ in _SEED_BLOCKS and block.__class__ is not own:
                content[index] = Verbatim(_SEED_BLOCKS[block.__class__], texts[index])
    return content


def _envelope(wire: AnyMessage) -> Extra:
    envelope = extra_of(wire, "status")
    if wire.id is not UNSET:
        envelope["id"] = json_of(wire.id)
    if wire.phase is not UNSET:
        envelope["phase"] = json_of(wire.phase)
    return envelope


def _seed_call(wire: SeedCall, at: str) -> ToolCall:
    call = ToolCall(name=wire.name, id=given(wire.id), extra=extra_of(wire), at=at)
    if bytes(wire.arguments)[:1] == b'"':
        call.arguments = plain(wire.arguments) or "{}"
    else:
        call.arguments, call.as_object = text_of(wire.arguments), True
    return call


def _seed_result(wire: SeedResult, at: str) -> ToolResult:
    result = ToolResult(id=given(wire.tool_call_id), extra=extra_of(wire), at=at)
    if bytes(wire.output)[:1] in (b'"', b"["):
        _set_output(result, _CONTENT(wire.output, f"{at}.output"))
    else:
        result.content = [Text(text=text_of(wire.output))]
    return result


_SEED: dict[type, Callable[[Any, str], Item]] = {SeedCall: _seed_call, SeedResult: _seed_result}


# Calls and results.


def _function_call(wire: FunctionCall, _value: Json, at: str, items: list[Item]) -> None:
    _call(ToolCall(name=wire.name, arguments=wire.arguments or "{}", at=at), wire, items)


def _custom_tool_call(wire: CustomToolCall, _value: Json, at: str, items: list[Item]) -> None:
    _call(ToolCall(name=wire.name, arguments=wire.input, custom=True, at=at), wire, items)


def _call(call: ToolCall, wire: FunctionCall | CustomToolCall, items: list[Item]) -> None:
    call.id, call.item_id, call.namespace = given(wire.call_id), given(wire.id), given(wire.namespace)
    if wire.rest is not None or wire.status is not UNSET:
        call.extra = extra_of(wire, "status")
    items.append(call)


def _function_call_output(wire: FunctionCallOutput, _value: Json, at: str, items: list[Item]) -> None:
    _output(ToolResult(at=at), wire, items)


def _custom_tool_call_output(wire: CustomToolCallOutput, _value: Json, at: str, items: list[Item]) -> None:
    _output(ToolResult(custom=True, at=at), wire, items)


def _output(result: ToolResult, wire: FunctionCallOutput | CustomToolCallOutput, items: list[Item]) -> None:
    _set_output(result, wire.output)
    result.id, result.item_id = given(wire.call_id), given(wire.id)
    result.namespace, result.name = given(wire.namespace), given(wire.name)
    if wire.rest is not None or wire.status is not UNSET:
        result.extra = extra_of(wire, "status")
    items.append(result)


def _set_output(result: ToolResult, output: str | list[Any]) -> None:
    """The content of a result; a string is the usual way to write one text."""
    if isinstance(output, str):
        result.content = [Text(text=output)]
        return
    result.content = read_parts(output)


# The rest.


def _reasoning(wire: Reasoning, _value: Json, at: str, items: list[Item]) -> None:
    thinking = Thinking(summary=read_parts(wire.summary), at=at)
    if wire.rest is not None or wire.status is not UNSET:
        thinking.extra = extra_of(wire, "status")
    if wire.content:
        thinking.content = read_parts(wire.content)
    thinking.id, thinking.encrypted = given(wire.id), given(wire.encrypted_content)
    items.append(thinking)


def _additional_tools(wire: AdditionalTools, _value: Json, at: str, items: list[Item]) -> None:
    change = ToolsChange(added=read_tools(wire.tools, f"{at}.tools"), extra=extra_of(wire), at=at)
    if wire.role != "developer":
        change.extra["role"] = json_of(wire.role)
    items.append(change)


def _opaque(wire: Verbatim, value: Json, at: str, items: list[Item]) -> None:
    found = read_client_item(wire.tag, value, at)
    items += [found] if found is not None else read_search(wire.tag, value, at) or [_verbatim(wire, value, at)]


def _verbatim(wire: Verbatim, value: Json, at: str) -> Opaque:
    return Opaque(type=wire.tag, value=value, at=at)


_READ: dict[type, Callable[[Any, Json, str, list[Item]], None]] = {
    EasyMessage: _message,
    Message: _message,
    OrdinaryMessage: _message,
    FunctionCall: _function_call,
    CustomToolCall: _custom_tool_call,
    FunctionCallOutput: _function_call_output,
    CustomToolCallOutput: _custom_tool_call_output,
    Reasoning: _reasoning,
    AdditionalTools: _additional_tools,
    Verbatim: _opaque,
}
