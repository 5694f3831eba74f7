"""Owns the way from messages to items.

One message gives one item, but for the assistant's: it is taken apart into thinking, text and calls, in this order.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from msgspec import UNSET

from turnscript.apis.api import leftover
from turnscript.apis.openai_chat.content import apart, parts_of
from turnscript.apis.openai_chat.objects import (
    NOTHING,
    NULL,
    AssistantMessage,
    AudioReference,
    CalledFunction,
    CustomCall,
    DeveloperMessage,
    FunctionCall,
    FunctionMessage,
    LegacyCall,
    SystemMessage,
    ToolMessage,
    UserMessage,
    encoded,
    read_message,
    with_inner,
)
from turnscript.core.call_pairing import call_ids, drop_generated_ids
from turnscript.core.conversation import (
    Assistant,
    Audio,
    Extra,
    Item,
    Opaque,
    Part,
    Refusal,
    Request,
    System,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
    User,
)
from turnscript.core.json_text import Json, plain, read_list
from turnscript.core.losses import Indexed
from turnscript.core.message_groups import mark_turns
from turnscript.core.source_paths import says_nothing
from turnscript.core.wire import Verbatim, Wire, extra_of, given, mismatch, missing


def read_messages(value: Any, request: Request) -> None:
    """Append the items of all messages, which are JSON or of their types already."""
    if value is None:
        raise missing("$", "messages", "an array of messages")
    if isinstance(value, Json):
        if bytes(memoryview(value)[:1]) != b"[":
            raise mismatch(value, "$.messages", "an array of messages")
        value = [read_message(one, _PLACES[index]) for index, one in enumerate(read_list(value))]
    items = request.items
    for index, message in enumerate(value):
        _READERS[type(message)](message, _PLACES[index], items)
    _pair(request, items)


_PLACES = Indexed("$.messages")


def _pair(request: Request, items: list[Item]) -> None:
    """Give results the names of their calls, and take off ids that were generated for another API."""
    names: dict[str, str] = {}
    odd = generated = False
    for item in items:
        if type(item) is ToolCall:
            odd = odd or item.custom
            if item.id is not None:
                names[item.id] = item.name
                generated = generated or item.id.startswith("call_auto_")
        elif type(item) is ToolResult:
            if item.id is None:
                odd = True
            else:
                generated = generated or item.id.startswith("call_auto_")
                item.name = names.get(item.id) if item.name is None else item.name
    if odd:
        _correlate(items)
    if generated:
        drop_generated_ids(request)


def _correlate(items: list[Item]) -> None:
    """Give results what they leave to their call: the name where they have none, and whether it was custom."""
    ids = call_ids(items)
    calls: dict[str, ToolCall] = {}
    for index, item in enumerate(items):
        if type(item) is ToolCall:
            calls[ids[index]] = item
        elif type(item) is ToolResult and (call := calls.get(ids[index])):
            if item.name is None:
                item.name = call.name
            item.custom = call.custom


def _content(message: Any) -> list[Part]:
    """The parts of a message's content."""
    content = message.content
    if type(content) is str:
        return [Text(text=content)]
    if content is UNSET and message.rest:
        if message.rest.get("content") is not None:
            del message.rest["content"]  # the slow reader keeps a null with the unnamed members
        return []
    return parts_of(content)


def _read_developer(message: DeveloperMessage, at: str, items: list[Item]) -> None:
    _read_system(message, at, items, "developer")


def _read_system(message: SystemMessage | DeveloperMessage, at: str, items: list[Item], role: str = "system") -> None:
    content, name = _content(message), given(message.name)
    items.append(System(content=content, role=role, name=name, extra=extra_of(message), at=at))


def _read_user(message: UserMessage, at: str, items: list[Item]) -> None:
    content = _content(message)
    items.append(User(content=content, name=given(message.name), extra=extra_of(message), at=at))


def _read_tool(message: ToolMessage, at: str, items: list[Item]) -> None:
    content, name = _content(message), None
    if message.name is not UNSET and bytes(message.name)[:1] == b'"':
        name = plain(message.name)
    item = ToolResult(content=content, id=given(message.tool_call_id), name=name, at=at)
    if message.rest or message.name is not UNSET:
        item.extra = extra_of(message, "name")
    items.append(item)


def _read_function(message: FunctionMessage, at: str, items: list[Item]) -> None:
    content = _content(message)
    items.append(ToolResult(content=content, name=given(message.name), extra=extra_of(message), at=at))


def _read_unknown(message: Verbatim, at: str, items: list[Item]) -> None:
    items.append(Opaque(type=message.tag, value=message.value, at=at))


# The assistant's message.


def _read_assistant(message: AssistantMessage, at: str, items: list[Item]) -> None:
    extra = extra_of(message, "annotations") if message.rest or message.annotations is not UNSET else {}
    found: list[Item] = []
    thinking = _thinking(message, at, extra)
    if thinking is not None:
        found.append(thinking)
    calls = _calls(message, at)
    content = _content(message)
    extra.pop("content", None)
    within = apart(content, at) if type(message.content) is list else []
    if within:
        mark_turns(items, [*found, *_with_thoughts(message, at, within, extra), *calls])
        return
    _add_member_parts(message, at, content)
    if content or message.content == [] or not (thinking or calls):
        item = Assistant(content=content, name=given(message.name), at=at)
        item.extra = extra
        found.append(item)
        found += calls
    else:
        found += calls
        if message.name is not UNSET:
            extra["name"] = encoded(message.name)
        if extra:
            found[0].envelope = extra
    mark_turns(items, found)


def _with_thoughts(message: AssistantMessage, at: str, within: list[Item], extra: Extra) -> list[Item]:
    """The items of a content that has thoughts in it. What stands beside the content belongs to the last text."""
    beside: list[Part] = []
    _add_member_parts(message, at, beside)
    if (beside or message.name is not UNSET) and not isinstance(within[-1], Assistant):
        within.append(Assistant(content=[], at=at))
    last = within[-1]
    if isinstance(last, Assistant):
        last.content += beside
        last.name = given(message.name)
    if extra:
        within[0].envelope = extra
    return within


def _thinking(message: AssistantMessage, at: str, extra: Extra) -> Thinking | None:
    """What two unofficial members say; when both do, and not the same, the second stays unnamed."""
    text = message.reasoning_content
    found = None
    if isinstance(text, str):
        found = Thinking(content=[Text(text=text)], at=f"{at}.reasoning_content")
    if message.reasoning is not UNSET and message.reasoning != NULL:
        other = plain(message.reasoning) if bytes(message.reasoning)[:1] == b'"' else None
        if found is None and other is not None:
            return Thinking(content=[Text(text=other)], at=f"{at}.reasoning")
        if found is None or other != text:
            extra["reasoning"] = message.reasoning
    return found


def _calls(message: AssistantMessage, at: str) -> list[Item]:
    entries, legacy = message.tool_calls or (), message.function_call
    calls = [
        _CALL_READERS[type(entry)](entry, f"{at}.tool_calls[{index}]", index) for index, entry in enumerate(entries)
    ]
    if isinstance(legacy, LegacyCall):
        calls.append(_read_legacy_call(legacy, f"{at}.function_call"))
    return calls


def _add_member_parts(message: AssistantMessage, at: str, content: list[Part]) -> None:
    """Add to the content what members beside it say."""
    sound = message.audio
    if isinstance(sound, AudioReference) and not _is_silent(sound):
        if sound.id is UNSET:
            raise missing(f"{at}.audio", "id", "a string")
        content.append(Audio(id=sound.id, extra=extra_of(sound)))
    if isinstance(message.refusal, str) and message.refusal:
        content.append(Refusal(text=message.refusal))


def _is_silent(sound: AudioReference) -> bool:
    """Return whether a sound is none, which some servers say of every answer."""
    members = dict(sound.rest or {})
    if sound.id is not UNSET:
        members["id"] = encoded(sound.id)
    return says_nothing(leftover(members))


def _read_function_call(entry: FunctionCall, at: str, place: int) -> Item:
    function = entry.function
    call = ToolCall(name=function.name, arguments=_arguments(function), id=given(entry.id), at=at)
    return _completed(call, entry, "function", function, place)


def _read_custom_call(entry: CustomCall, at: str, place: int) -> Item:
    custom = entry.custom
    call = ToolCall(name=custom.name, arguments=custom.input, id=given(entry.id), custom=True, at=at)
    return _completed(call, entry, "custom", custom, place)


def _arguments(function: CalledFunction | LegacyCall) -> str:
    """The arguments of a call, an empty object where it has none."""
    said = function.arguments
    if said is UNSET and function.rest and "arguments" in function.rest:
        del function.rest["arguments"]  # the slow reader keeps a null with the unnamed members
    return said or NOTHING


def _completed(call: ToolCall, entry: FunctionCall | CustomCall, key: str, inner: Wire, place: int) -> ToolCall:
    # Some servers say the place of an entry in the list, and their clients send it back.
    if entry.index is not UNSET and bytes(entry.index) != b"%d" % place:
        call.extra = {"index": entry.index}
    if entry.rest or inner.rest:
        call.extra = with_inner(call.extra | extra_of(entry), key, inner)
    return call


def _read_unknown_call(entry: Verbatim, at: str, _place: int) -> Item:
    return Opaque(type=entry.tag, value=entry.value, role="assistant", at=at)


def _read_legacy_call(call: LegacyCall, at: str) -> Item:
    return ToolCall(name=call.name, arguments=_arguments(call), id=given(call.id), extra=extra_of(call), at=at)


_CALL_READERS: dict[type, Callable[[Any, str, int], Item]] = {
    FunctionCall: _read_function_call,
    CustomCall: _read_custom_call,
    Verbatim: _read_unknown_call,
}

_READERS: dict[type, Callable[[Any, str, list[Item]], None]] = {
    SystemMessage: _read_system,
    DeveloperMessage: _read_developer,
    UserMessage: _read_user,
    AssistantMessage: _read_assistant,
    ToolMessage: _read_tool,
    FunctionMessage: _read_function,
    Verbatim: _read_unknown,
}
