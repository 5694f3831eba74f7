"""Owns reading messages and tools as rows of datasets have them: the API's own, and the dialects of data sets.

A clean row goes to the API's reader as it is. What stands in data sets and in no API is put right first:
- members that are null because a table has a column for them, on messages, calls and parts (never inside of arguments);
- `tool_calls` or whole lists as a string of JSON; calls without `type`, or without the object `function` around them;
- `arguments` as an object, which becomes its text in one spelling; a text of them stays as it is, byte by byte;
- the answer of a tool as an object, or null, in place of a text; `thinking` for `reasoning_content`, and a thought that
  stands as tagged text before its answer;
- marks of what is trained, which become weights.

An error is told at its place in the row.
"""

from __future__ import annotations

from functools import cache
from typing import Any, NamedTuple

from msgspec import Struct
from msgspec import json as msgjson

from turnscript.apis.api import Api
from turnscript.convert.registry import apis, get_api
from turnscript.core.conversation import Assistant, Conversation, Item, Request, Text, Thinking, Tool
from turnscript.core.errors import InvalidInput, InvalidRequest
from turnscript.core.json_text import Json, same
from turnscript.datasets.clean_rows import is_clean, may_hold_tags, read_said
from turnscript.datasets.form import Example
from turnscript.datasets.members import (
    CONVERSATIONAL,
    TEMPLATE,
    Members,
    absent,
    arguments_of,
    check_unread,
    embedded,
    first_byte,
    is_null,
    list_of,
    object_of,
    quoted,
    spelled,
    text,
    wrong,
)
from turnscript.datasets.problems import BadRow, Code
from turnscript.datasets.row_checks import check_items
from turnscript.datasets.tagged_calls import may_be_tagged
from turnscript.datasets.tagged_thoughts import has_doubt, may_think, split_thought
from turnscript.datasets.tool_lists import chat_tools
from turnscript.datasets.traces import WRITTEN
from turnscript.datasets.weights import common_weight, is_mark, take_weight, weights_by_item, with_row

CHAT_PATH = "/v1/chat/completions"
"""Where the API is served whose messages data sets imitate."""

_MESSAGES = "$.messages"
_ROLES = frozenset({"system", "developer", "user", "assistant", "tool", "function"})
_OWN = frozenset({"tool_calls", "function_call", "tool_call_id", "reasoning_content"})
_SAID = frozenset({"reasoning_content", "reasoning", "tool_calls", "function_call", "audio"})
"""Members of a message, beside its content, that are a piece of the conversation and are read."""
_ADDRESSES = {"channel": (b'""', b'"final"'), "recipient": (b'""', b'"all"', b'"user"', b'"assistant"')}
"""Whom a message is for, in sets made with Harmony, and the words that say nothing more than its role does."""
_MORE = CONVERSATIONAL - _SAID | _ADDRESSES.keys() | {TEMPLATE}
"""Members that most messages have none of: only those that do are looked at again."""
_HERE = "calls in 'tool_calls'"
_CALL = ("name", "arguments", "parameters")
_NOT_READ = frozenset({"parameters", "args", "input", "kwargs", "params", "argument"})
"""Where calls of other programs have their arguments. Without this, such a call would be one without arguments."""
_NULL, _NOTHING = Json(b"null"), (b"null", b'""')
_THOUGHTS = ("reasoning", "reasoning_content")
"""Where messages have thoughts. An empty text is what a table without them has in its column."""
_PARTS = frozenset({"text", "image_url", "input_audio", "file", "refusal"})


class Chat(NamedTuple):
    """Messages as they were read: `weights` and `context` are those of an example."""

    request: Request
    weights: dict[int, float]
    context: frozenset[int] = frozenset()


class Clean(Struct, gc=False):
    """A row that needs no putting right. `tagged`: calls or tools may stand in one of its texts in tags."""

    example: Example
    tagged: bool


@cache
def chat_api() -> Api:
    """Return the API of those messages."""
    return next(api for api in map(get_api, apis()) if api.endpoint == CHAT_PATH)


def read_clean(data: bytes) -> Clean | None:
    """Return a row with messages and tools alone, if nothing in it has to be put right or taken apart."""
    said = read_said(data)
    if said is not None:
        api = chat_api()
        said.origin, said.words = api.origin, api.words
        if not may_hold_tags(said.texts):
            return Clean(Example(None, spoken=said), tagged=False)
        items = _thoughts_apart(said.items())
        if items is not None:
            request = Request(conversation=Conversation(items=items), origin=api.origin, words=api.words)
            return Clean(Example(request), tagged=True)
    if not is_clean(data):
        return None
    try:
        request = chat_api().parse_request(data)
    except InvalidRequest:
        return None  # the careful reader says what is wrong, if it is
    if may_think(data) and any(map(has_doubt, request.items)):
        return None
    check_items(request.conversation.items)
    return Clean(Example(request), may_be_tagged(data))


def _thoughts_apart(items: list[Item]) -> list[Item] | None:
    """Return messages of one text each, with the thoughts before answers; None where an answer is only a thought.

    Most sets of reasoning have nothing but such rows, so this has to be as quick as a row without thoughts.
    """
    found: list[Item] = []
    for item in items:
        if isinstance(item, Assistant):
            said = item.content[0]
            thought, rest = split_thought(said.text, f"{item.at}.content") if isinstance(said, Text) else (None, "")
            if thought is not None:
                if not rest:
                    return None
                found.append(Thinking(content=[Text(text=thought)], at=f"{item.at}.reasoning_content"))
                item.content = [Text(text=rest)]
        found.append(item)
    return found


def read_messages(value: Json, tools: Json | None = None, functions: Json | None = None, at: str = _MESSAGES) -> Chat:
    """Return messages, and the tools beside them, put right and read. `at`: where the messages stand in the row."""
    by_turn: dict[str, float] = {}
    body: dict[str, Any] = {"messages": _repaired(embedded(value, at), at, by_turn)}
    body["tools"] = [] if tools is None else chat_tools(tools, "$.tools")
    body["tools"] += [] if functions is None else chat_tools(functions, "$.functions")
    return _read(body, at, by_turn)


def read_joined(members: Members, first: str, second: str) -> Chat:
    """Return the messages of two members as one conversation; those of the first are not trained."""
    for key in (first, second):
        if key not in members:
            raise absent(f"$.{key}", "an array of messages")
    prompt, completion = list_of(members[first], f"$.{first}"), list_of(members[second], f"$.{second}")
    if not completion:
        raise wrong(members[second], f"$.{second}", "at least one message")

    def place(at: str) -> str:
        number, _, rest = at[2:].partition("]")
        if not (at.startswith("$[") and number.isdecimal()):
            return at
        index = int(number)
        return f"$.{first}[{index}]{rest}" if index < len(prompt) else f"$.{second}[{index - len(prompt)}]{rest}"

    try:
        chat = read_messages(spelled_list([*prompt, *completion]), members.get("tools"), at="$")
    except InvalidInput as error:
        error.path = place(error.path)
        raise
    items = chat.request.conversation.items
    for item in items:
        item.at = place(item.at)
    asked = frozenset(index for index, item in enumerate(items) if item.at.startswith(f"$.{first}["))
    return chat._replace(context=asked)


def example_of(chat: Chat, weight: float | None) -> Example:
    """Return messages as an example. `weight`: a mark of the row, which is that of its answer, and of no question."""
    items = enumerate(chat.request.items)
    answered = [index for index, item in items if index not in chat.context and isinstance(item, WRITTEN)]
    return Example(chat.request, weights=with_row(chat.weights, answered, weight), context=chat.context)


def read_tools(value: Json | None, at: str = "$.tools") -> list[Tool]:
    """Return a list of tools in any of its dialects."""
    if value is None or not (found := chat_tools(value, at)):
        return []
    body: Members = {"messages": Json(b"[]"), "tools": spelled_list(found)}
    try:
        return chat_api().parse_members(body).tools
    except InvalidInput as error:
        raise _moved(error, "$.tools", at) from None


def spelled_list(values: list[Json]) -> Json:
    """Return values as one array."""
    return Json(msgjson.encode(values))


def _read(body: dict[str, Any], at: str, by_turn: dict[str, float]) -> Chat:
    try:
        request = chat_api().parse_request(msgjson.encode(body))
    except InvalidInput as error:
        raise _moved(error, _MESSAGES, at) from None
    items = request.conversation.items
    if at != _MESSAGES:
        move(items, _MESSAGES, at)
    check_items(items)
    return Chat(request, weights_by_item(items, by_turn) if by_turn else {})


def move(items: list[Item], old: str, new: str) -> None:
    """Say where items stand that were read from elsewhere."""
    for item in items:
        if item.at.startswith(old):
            item.at = new + item.at[len(old) :]


def _moved(error: InvalidInput, old: str, new: str) -> InvalidInput:
    if error.path.startswith(old):
        error.path = new + error.path[len(old) :]
    return error


# Putting right.


def _repaired(value: Json, at: str, by_turn: dict[str, float]) -> list[Members]:
    if is_null(value):
        raise absent(at, "an array of messages")
    found, thinks = [], may_think(bytes(value))
    for index, entry in enumerate(list_of(value, at)):
        where = f"{at}[{index}]"
        members = object_of(entry, where)
        weight = take_weight(members, where)
        _repair(members, where)
        if not _MORE.isdisjoint(members):
            _check_said(members, where)
        parts = _repaired_parts(members, where)
        if thinks and _is_answer(members) and all(bytes(members.get(key, _NULL)) in _NOTHING for key in _THOUGHTS):
            _take_thought(members, where)
        if weight is not None and parts is not None and parts != weight:
            message = f"the parts of this message say {parts:g}, the message says {weight:g}; let both say the same"
            raise BadRow(Code.WEIGHT, message, path=where)
        weight = parts if weight is None else weight
        if weight is not None:
            by_turn[where] = weight
        found.append(members)
    return found


def _repair(members: Members, at: str) -> None:
    for key in [key for key, value in members.items() if key != "content" and is_null(value)]:
        del members[key]
    if bytes(members.get("role", b"")) == b'"tool"':
        _repair_result(members)
    elif _is_answer(members):
        if "thinking" in members and same(members["thinking"], members.get("reasoning_content", members["thinking"])):
            members["reasoning_content"] = members.pop("thinking")
        if "tool_calls" in members:
            _repair_calls(members, at)
        if "function_call" in members:
            call = object_of(members["function_call"], f"{at}.function_call")
            _repair_arguments(call, f"{at}.function_call")
            members["function_call"] = spelled(call)


def _is_answer(members: Members) -> bool:
    return bytes(members.get("role", b"")) == b'"assistant"'


def _check_said(members: Members, at: str) -> None:
    """Refuse a message that says more than is read of it."""
    check_unread(members, _SAID, "messages", at)
    if not _is_answer(members):
        return  # to whom others speak, and in which channel of a chat, is a note
    for key, plain in _ADDRESSES.items():
        if not is_null(members.get(key)) and bytes(members[key]) not in plain:
            message = f"what is said there is no answer to the user; thoughts stand in 'reasoning_content', {_HERE}"
            raise BadRow(Code.SHAPE, message, path=f"{at}.{key}")


def is_taken(key: str) -> bool:
    """Return whether a member of a message is read as more than a note on it, or refused."""
    return key in _ADDRESSES or (key in CONVERSATIONAL and key not in _SAID) or is_mark(key)


def _repair_result(members: Members) -> None:
    content = members.get("content")
    if content is None:
        return
    if is_null(content):
        members["content"] = Json(b'""')
    elif first_byte(content) == b"{":
        members["content"] = quoted(bytes(content).decode())


def _take_thought(members: Members, at: str) -> None:
    """Give a thought that stands as tagged text before an answer the place that thoughts have."""
    content, where = members.get("content", _NULL), f"{at}.content"
    parts = list_of(content, where) if first_byte(content) == b"[" else []
    first = object_of(parts[0], where) if parts else {"text": content}
    value = first.get("text", _NULL)
    thought, said = split_thought(text(value, where), where) if first_byte(value) == b'"' else (None, "")
    if thought is None:
        return
    members.pop("reasoning", None)
    members["reasoning_content"] = quoted(thought)
    rest = ([spelled({**first, "text": quoted(said)})] if said else []) + parts[1:]
    if rest:
        members["content"] = spelled_list(rest) if parts else quoted(said)
    else:
        del members["content"]


def _repair_calls(members: Members, at: str) -> None:
    where = f"{at}.tool_calls"
    value = embedded(members["tool_calls"], where)
    entries = [] if is_null(value) else list_of(value, where)
    if not entries:
        del members["tool_calls"]
        return
    calls = [_repaired_call(entry, f"{where}[{index}]") for index, entry in enumerate(entries)]
    members["tool_calls"] = spelled_list(calls)


def _repaired_call(entry: Json, at: str) -> Json:
    call = {key: value for key, value in object_of(embedded(entry, at), at).items() if not is_null(value)}
    if "function" not in call and "name" in call and "custom" not in call:
        inner: Members = {key: call.pop(key) for key in _CALL if key in call}
        call["function"] = spelled(inner)
    if "function" in call:
        call.setdefault("type", Json(b'"function"'))
        function = object_of(call["function"], f"{at}.function")
        _check_members(call, at)
        _repair_arguments(function, f"{at}.function")
        call["function"] = spelled(function)
    return spelled(call)


def _repair_arguments(function: Members, at: str) -> None:
    if "parameters" in function and is_null(function.get("arguments")):
        function["arguments"] = function.pop("parameters")
    _check_members(function, at)
    arguments = function.get("arguments")
    if arguments is None or is_null(arguments):
        function["arguments"] = Json(b'"{}"')
    elif first_byte(arguments) == b"{":
        function["arguments"] = quoted(arguments_of(arguments))


def _check_members(call: Members, at: str) -> None:
    for key in sorted(call.keys() & _NOT_READ):
        raise BadRow(Code.SHAPE, f"a call has no member {key!r}; its arguments are in 'arguments'", path=f"{at}.{key}")


def _repaired_parts(members: Members, at: str) -> float | None:
    """Return the weight that the parts of a content have, if any; nulls and marks are taken off them."""
    content = members.get("content")
    if content is None or first_byte(content) != b"[":
        return None
    where = f"{at}.content"
    parts, weights = [], []
    for index, entry in enumerate(list_of(content, where)):
        if first_byte(entry) != b"{":
            raise wrong(entry, f"{where}[{index}]", "an object")
        part = {key: value for key, value in object_of(entry, where).items() if not is_null(value)}
        weights.append(take_weight(part, f"{where}[{index}]"))
        parts.append(spelled(part))
    members["content"] = spelled_list(parts)
    return common_weight(weights, where)


def same_text(value: Json, items: list[Item], at: str) -> bool:
    """Return whether a string repeats what the first user says in the items."""
    first = next((item for item in items if item.kind == "user"), None)
    parts = getattr(first, "content", [])
    return len(parts) == 1 and getattr(parts[0], "text", None) == text(value, at)


def score_messages(messages: list[Any]) -> tuple[float, str]:
    """Return how much a decoded list looks like messages of this form."""
    if not all(isinstance(one, dict) and isinstance(one.get("role"), str) for one in messages):
        return 0, ""
    strange = [one["role"] for one in messages if one["role"] not in _ROLES]
    if strange:
        return 0.3, f"messages, but with the role {strange[0]!r}"
    if any(not _is_content(one.get("content")) for one in messages):
        return 0.2, "messages, but with contents of another form"
    if any(not _OWN.isdisjoint(one) for one in messages):
        return 1, "messages with role, content and tool_calls"
    return 0.9, "messages with role and content"


def _is_content(content: Any) -> bool:
    if isinstance(content, list):
        return all(isinstance(part, dict) and _is_known(part.get("type")) and "value" not in part for part in content)
    return content is None or isinstance(content, str | dict)


def _is_known(kind: Any) -> bool:
    return isinstance(kind, str) and kind in _PARTS
